"""Writes traces: `Traced`, a transport around another one, and the file, with secrets masked.

Does not change what goes through. The format is in `format`.
"""

from __future__ import annotations

import json
import logging
import os
import re
import sys
import time
import weakref
from binascii import b2a_base64
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from functools import lru_cache
from itertools import count
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Final, cast

import anyio
import msgspec
from anyio.to_thread import run_sync

from outrider._version import __version__
from outrider.command import FOLDER
from outrider.errors import ConnectionLost, OptionsError, OutriderError, TransportClosed
from outrider.redaction import DEFAULT, MASK, Redaction
from outrider.transports._process.wakeup import forget_in_forks
from outrider.transports._trace.format import FROM_AGENT, FROM_HOST, VERSION
from outrider.transports._transport import Transport

if TYPE_CHECKING:
    from outrider.command import Command
    from outrider.options import Trace
    from outrider.transports._trace.format import StrPath

log = logging.getLogger("outrider.trace")

_MARGIN: Final = 8192
"""How much of a line is searched beyond what is kept: a secret must not be cut in two."""
_AT_ONCE: Final = 32 * 1024
"""How many bytes can be searched in a few milliseconds, on the event loop."""
_SHORT: Final = 80
"""Texts up to this length often repeat: names, kinds, ids."""

_KEY_LINES: Final = 200
"""No common private key has more lines. After these, lines are shown again."""

_UUID_LENGTH: Final = 36
_is_uuid: Final = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}").fullmatch

_encode: Final = msgspec.json.Encoder().encode


class TraceFile:
    """A file that records the runs of one or more agents. May be used from any thread."""

    def __init__(
        self,
        path: StrPath,
        *,
        redaction: Redaction = DEFAULT,
        max_line: int | None = None,
        max_bytes: int | None = None,
        replaces: bool = False,
    ) -> None:
        """Make the file, readable by this user alone; `replaces` an existing one. Raises `OSError`."""
        self.path = os.fspath(path)
        self.max_line = max_line
        self.masking = Masking(redaction)
        self._max_bytes = max_bytes
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND | getattr(os, "O_CLOEXEC", 0)
        if replaces:
            # The owner of the old one might be able to read it.
            with suppress(FileNotFoundError):
                os.unlink(self.path)  # noqa: PTH108
        self._number: int | None = os.open(self.path, flags | getattr(os, "O_BINARY", 0), 0o600)
        self._finalizer = weakref.finalize(self, os.close, self._number)
        self._lock = Lock()
        forget_in_forks(self)
        self._size = 0
        self._runs = count(1)
        header = {
            "outrider_trace": VERSION,
            "at": datetime.now(UTC).isoformat(timespec="milliseconds"),
            "outrider": __version__,
            "python": ".".join(map(str, sys.version_info[:3])),
            "platform": sys.platform,
        }
        self.write(_encode(header) + b"\n")
        self._header_size = self._size

    @property
    def is_empty(self) -> bool:
        """Whether nothing is recorded yet."""
        return self._size == self._header_size

    @property
    def is_open(self) -> bool:
        """Whether it still records."""
        return self._number is not None

    def new_run(self) -> RunTrace:
        """The record of one more agent."""
        return RunTrace(self, next(self._runs))

    def forget(self) -> None:
        """Stop in a forked process: the runs belong to the parent, which continues."""
        self._lock, self._number = Lock(), None

    def write(self, data: bytes) -> None:
        """Add whole lines, which are safe even if this process is killed now."""
        with self._lock:
            number = self._number
            if number is None:
                return
            if self._max_bytes is not None and self._size + len(data) > self._max_bytes:
                full = {"dir": "meta", "event": "full", "why": f"the limit is {self._max_bytes} bytes"}
                data, self._number = _encode(full) + b"\n", None
                log.warning("the trace %s has reached its limit of %d bytes", self.path, self._max_bytes)
            self._size += len(data)
            try:
                while data:
                    data = data[os.write(number, data) :]
            except OSError as error:
                self._number = None
                log.warning("the trace %s cannot be written any more: %s", self.path, error)
            if self._number is None:
                self._finalizer()

    def close(self) -> None:
        """Record nothing more."""
        with self._lock:
            self._number = None
            self._finalizer()


class RunTrace:
    """Records one agent."""

    def __init__(self, file: TraceFile, number: int) -> None:
        self.file = file
        self.number = number
        self.masking = file.masking
        self._since = time.monotonic()
        self._key_lines = 0
        """How many more lines on stderr may belong to a private key that has begun there."""

    def lines(self, direction: str) -> Lines:
        """A recorder for one side."""
        return Lines(self, direction, self.file.max_line)

    def hide(self, values: Iterable[str]) -> None:
        """Hide these secrets too, from now on."""
        redaction = self.masking.redaction.with_values(*values)
        if redaction is not self.masking.redaction:
            self.masking = Masking(redaction)

    def event(self, event: str, facts: Mapping[str, object]) -> None:
        """Record an event."""
        masked = self.masking.redaction.mask_json({k: v for k, v in facts.items() if v is not None})
        line: dict[str, object] = {"run": self.number, "t": self._now(), "dir": "meta", "event": event}
        self.file.write(_encoded(line | masked) + b"\n")

    def stderr(self, line: str) -> None:
        """Record a line on stderr."""
        is_secret = self._key_lines > 0
        self._key_lines -= is_secret
        if "PRIVATE KEY" in line:
            self._key_lines = _KEY_LINES if "-----BEGIN " in line and "-----END " not in line else 0
        data = line.encode("utf-8", "backslashreplace")
        self.file.write(self.line("stderr", data, is_secret=is_secret))

    def line(
        self,
        direction: str,
        data: bytes,
        size: int | None = None,
        *,
        is_open: bool = False,
        is_secret: bool = False,
    ) -> bytes:
        """A line as it is written down. `size`: what it had, if this is only its beginning; `is_secret`: all
        of it is hidden."""
        hidden: bytes | None = None
        limit = self.file.max_line
        is_cut = size is not None or (limit is not None and len(data) > limit)
        real = len(data) if size is None else size
        head = f'{{"run":{self.number},"t":{self._now()},"dir":"{direction}",'.encode()
        if not is_cut and direction != "stderr" and data[:1] == b"{" and data[-1:] == b"}":
            if direction == FROM_HOST:
                self.hide(_secrets_sent(data, self.masking.redaction))
            hidden = self.masking.frame(data)
        if hidden is not None:
            body = b'"json":' + hidden
        else:
            hidden = MASK.encode() if is_secret else self.masking.text(data)
            if is_cut:
                hidden = hidden[:limit]
            body = _text_field(hidden)
        if is_cut or hidden != data:
            body += f',"n":{real}'.encode()
        if is_cut:
            body += b',"cut":true'
        elif hidden != data:
            body += b',"masked":true'
        return head + body + (b',"open":true}\n' if is_open else b"}\n")

    def _now(self) -> float:
        return round(time.monotonic() - self._since, 6)


class Lines:
    """Splits the bytes of one side into lines, and keeps no more of a line than is recorded."""

    def __init__(self, run: RunTrace, direction: str, limit: int | None) -> None:
        self._run = run
        self._direction = direction
        self._limit = None if limit is None else limit + _MARGIN
        self._pieces: list[bytes] = []
        self._kept = self._size = 0
        self._lock = Lock()

    def takes_long(self, data: bytes | None = None) -> bool:
        """Whether feeding these bytes, or finishing, takes more than a few milliseconds."""
        if data is None:
            return self._kept > _AT_ONCE
        return self._kept + len(data) > _AT_ONCE and b"\n" in data

    def feed(self, data: bytes) -> None:
        """Record the lines that these bytes complete."""
        with self._lock:
            self._feed(data)

    def _feed(self, data: bytes) -> None:
        first, *others = data.split(b"\n")
        self._hold(first)
        if not others:
            return
        written = [self._take()]
        for line in others[:-1]:
            self._hold(line)
            written.append(self._take())
        self._hold(others[-1])
        self._run.file.write(b"".join(written))

    def finish(self) -> None:
        """Record the last line, even without its end."""
        with self._lock:
            if self._size:
                self._run.file.write(self._take(is_open=True))

    def _hold(self, piece: bytes) -> None:
        self._size += len(piece)
        if self._limit is not None:
            piece = piece[: self._limit - self._kept]
        if piece:
            self._pieces.append(piece)
            self._kept += len(piece)

    def _take(self, *, is_open: bool = False) -> bytes:
        data = b"".join(self._pieces)
        size = self._size if self._size > len(data) else None
        self._pieces, self._kept, self._size = [], 0, 0
        return self._run.line(self._direction, data, size, is_open=is_open)


class Masking:
    """Hides secrets in lines; short texts are searched only once."""

    def __init__(self, redaction: Redaction) -> None:
        self.redaction = redaction

        def is_secret_name(name: str) -> bool:
            return redaction.mask(name) != name or redaction.is_secret_key(name)

        def has_secret(text: str) -> bool:
            # There is one in every frame, each time another, and no built-in rule hides it.
            if len(text) == _UUID_LENGTH and not redaction.patterns and _is_uuid(text):
                return redaction.mask_values(text) != text
            return redaction.mask(text) != text

        self._is_secret_name = _remembering(is_secret_name)
        self._has_secret = _remembering(has_secret)

    def frame(self, line: bytes) -> bytes | None:
        """The same line, where there is nothing to hide in it; None if it is not JSON."""
        try:
            value: object = msgspec.json.decode(line)
            # The same name may come twice, and only one of the values has been looked at then.
            is_complete = len(_encoded(value)) == len(line) or not _has_twins(line)
            if is_complete and not self._may_hide(value):
                return line
            return _encoded(self.redaction.mask_json(value))
        except (ValueError, RecursionError):
            return None

    def text(self, data: bytes) -> bytes:
        """Any line, with its secrets hidden; bytes that are not UTF-8 stay as they are."""
        return self.redaction.mask(data.decode("utf-8", "surrogateescape")).encode("utf-8", "surrogateescape")

    def _may_hide(self, frame: object) -> bool:
        """Whether there may be something to hide: searches as `mask_json` does, without a copy."""
        waiting = [frame]
        while waiting:
            value = waiting.pop()
            if isinstance(value, str):
                if self._has_secret(value):
                    return True
            elif isinstance(value, dict):
                fields = cast("dict[str, object]", value)
                if any(map(self._is_secret_name, fields)):
                    return True
                if any(self._is_label(fields[name]) for name in _LABELS if name in fields):
                    return True
                waiting += fields.values()
            elif isinstance(value, list):
                items = cast("list[object]", value)
                flags = (item for item in items if isinstance(item, str) and item.startswith("--"))
                if any(map(self._is_secret_name, flags)):
                    return True
                if len(items) == 2 and self._is_label(items[0]):
                    return True
                waiting += items
        return False

    def _is_label(self, value: object) -> bool:
        return isinstance(value, str) and self._is_secret_name(value)


_LABELS: Final = ("name", "Name", "key", "Key")
_REQUEST: Final = b'"control_request"'
_HEAD: Final = 64


def _secrets_sent(line: bytes, redaction: Redaction) -> list[str]:
    """Secrets in a request of the host: the agent may repeat them without their names."""
    if _REQUEST not in line[:_HEAD]:
        return []
    with suppress(ValueError, RecursionError):
        return redaction.secrets_in(msgspec.json.decode(line))
    return []


def _remembering(judge: Callable[[str], bool]) -> Callable[[str], bool]:
    known = lru_cache(4096)(judge)
    return lambda text: known(text) if len(text) <= _SHORT else judge(text)


def _text_field(data: bytes) -> bytes:
    try:
        return b'"text":' + _encode(data.decode())
    except UnicodeDecodeError:
        return b'"base64":' + _encode(b2a_base64(data, newline=False).decode())


def _has_twins(line: bytes) -> bool:
    """Whether an object on the line has a name twice."""
    has_twins = False

    def look(pairs: list[tuple[str, object]]) -> None:
        nonlocal has_twins
        has_twins |= len({name for name, _ in pairs}) < len(pairs)

    json.loads(line, object_pairs_hook=look)
    return has_twins


def _encoded(value: object) -> bytes:
    try:
        return _encode(value)
    except UnicodeEncodeError:
        # A lone surrogate has no UTF-8 form, but an escape.
        return json.dumps(value, separators=(",", ":")).encode()


def new_trace_path(path: str) -> Iterator[str]:
    """Names for a new file: the given one, then others in case it exists.

    Raises `OptionsError` if there is no such folder.
    """
    now = datetime.now(UTC).strftime("%Y%m%dT%H%M%S")
    target = Path(path.replace("{time}", now).replace("{pid}", str(os.getpid())))
    if target.is_dir() or path.endswith(("/", os.sep)):
        target = target / f"{now}-{os.getpid()}.jsonl"
    if not target.parent.is_dir():
        raise OptionsError(
            f"`trace` is {path!r}, and there is no folder {str(target.parent)!r}", hint="Make it first."
        )
    yield str(target)
    for number in count(2):
        yield str(target.with_name(f"{target.stem}-{number}{target.suffix}"))


class Traced(Transport):
    """Wraps a transport and records everything: lines in both directions, stderr, start and end.

    What else the other one offers can be had from this one too.
    """

    def __init__(self, transport: Transport, trace: TraceFile, *, owns_file: bool = False) -> None:
        """`owns_file`: close the file at the end; otherwise several may share it, and its maker closes it."""
        self._transport = transport
        self._run = trace.new_run()
        self._sent, self._received = self._run.lines(FROM_HOST), self._run.lines(FROM_AGENT)
        self._command: Command | None = getattr(transport, "command", None)
        self._owns_file = owns_file
        self._is_receiving = False
        self._unread = b""
        """What was received and recorded, but not returned, because the receiver was cancelled."""
        self._writing: dict[Lines, anyio.Lock] = {}
        """What is being written in threads, and whose turn it is."""
        self._has_begun = self._is_ending = self._has_ended = self._is_over = False
        self.max_buffer_size = transport.max_buffer_size
        tap = getattr(transport, "on_stderr", None)
        if tap is not None:
            tap(self._run.stderr)

    def __getattr__(self, name: str) -> object:
        # Not for itself: this is asked for before it is there when it is copied.
        if name.startswith("__") or "_transport" not in self.__dict__:
            raise AttributeError(name)
        return getattr(self._transport, name)

    @property
    def trace_path(self) -> str:
        """The path of the file."""
        return self._run.file.path

    def prepare(self, command: Command) -> None:
        self._command = command
        self._transport.prepare(command)

    async def connect(self) -> None:
        if not self._has_begun:
            self._has_begun = True
            if self._command is not None:
                self._run.hide(self._command.known_secrets(os.environ))
            self._run.event("start", _start(self._transport, self._command, self._run))
        try:
            await self._transport.connect()
        except Exception as error:
            await self._end(error, is_last=True)
            raise
        self._run.event("connected", {"pid": getattr(self._transport, "pid", None)})

    async def receive(self) -> bytes:
        self._is_receiving = True
        try:
            if not self._unread:
                self._unread = await self._transport.receive()
                await self._write(self._received, self._unread)
            data, self._unread = self._unread, b""
        except ConnectionLost as error:
            await self._end(error, is_last=True)
            raise
        finally:
            self._is_receiving = False
        if not data:
            await self._end(None, is_last=True)
        return data

    async def send(self, data: bytes) -> None:
        # First: the answer may come before this continues.
        await self._write(self._sent, data)
        try:
            await self._transport.send(data)
        except Exception as error:
            self._run.event("send_failed", {"error": _describe(error)})
            raise

    async def end_input(self) -> None:
        await self._write(self._sent, None)
        self._run.event("stdin_eof", {})
        await self._transport.end_input()

    async def close(self) -> None:
        if not self._is_ending:
            self._run.event("close", {})
        await self._transport.close()
        # The receiver may still get what came until now.
        if not self._is_receiving:
            await self._end(None)

    @property
    def is_ready(self) -> bool:
        return self._transport.is_ready

    @property
    def exit_error(self) -> OutriderError | None:
        return self._transport.exit_error

    async def _write(self, lines: Lines, data: bytes | None) -> None:
        """Record the bytes of one side; None: its end.

        What takes long is looked through in a thread, and the sender or receiver waits for it, whatever
        becomes of them: nothing is lost, and no more than one piece is on its way.
        """
        if lines not in self._writing and not lines.takes_long(data):
            lines.finish() if data is None else lines.feed(data)
            return
        # A raw cancel gets through, and the thread continues; all later data is then written in threads.
        with anyio.CancelScope(shield=True):
            async with (lock := self._writing.setdefault(lines, anyio.Lock())):
                await (run_sync(lines.finish) if data is None else run_sync(lines.feed, data))
                if not lock.statistics().tasks_waiting:
                    del self._writing[lines]

    async def _end(self, error: Exception | None, *, is_last: bool = False) -> None:
        """Record the end; `is_last`: nothing more can be received."""
        self._is_over |= is_last
        if not self._is_ending:
            self._is_ending = True
            await self._write(self._sent, None)
            await self._write(self._received, None)
            code = getattr(self._transport, "returncode", None)
            is_failure = error is not None and not isinstance(error, TransportClosed)
            self._run.event("exit", {"returncode": code, "error": _describe(error) if is_failure else None})
            self._has_ended = True
        if self._has_ended and self._is_over and self._owns_file:
            self._run.file.close()


def traced(transport: Transport, trace: Trace) -> Traced:
    """A transport recorded as the option says. Raises `OptionsError` if that is impossible."""
    return Traced(transport, open_trace(trace), owns_file=True)


def open_trace(trace: Trace) -> TraceFile:
    """A new file for a trace. Raises `OptionsError` if it cannot be made."""
    for path in new_trace_path(trace.path):
        try:
            file = TraceFile(
                path, redaction=trace.redaction, max_line=trace.max_line, max_bytes=trace.max_bytes
            )
        except FileExistsError:
            continue
        except OSError as error:
            raise OptionsError(
                f"`trace`: {path!r} cannot be written: {error.strerror or error}",
                hint="Give a file in a folder that you may write to.",
            ) from error
        log.info("tracing to %s", path)
        return file
    raise AssertionError("there is always another number")


def _start(transport: Transport, command: Command | None, run: RunTrace) -> dict[str, object]:
    facts: dict[str, object] = {
        "at": datetime.now(UTC).isoformat(timespec="milliseconds"),
        "transport": type(transport).__name__,
        "host_pid": os.getpid(),
    }
    if command is not None:
        argv = run.masking.redaction.mask_argv(command.argv)
        facts["argv"] = [argument.replace(FOLDER, "<folder>") for argument in argv]
        with suppress(OSError):
            facts["cwd"] = command.cwd or str(Path.cwd())
        # Only names: values may be secret.
        facts["env"] = sorted(os.environ if command.env is None else command.env)
    return facts


def _describe(error: Exception | None) -> str:
    return f"{type(error).__name__}: {error}"

"""Owns `Traced`, a transport that writes down all that goes through another one.

Does not change what goes through, and does not know how it is written: `_trace_file` does.
"""

from __future__ import annotations

import os
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import anyio
from anyio.to_thread import run_sync

from outrider.command import FOLDER
from outrider.errors import ConnectionLost, OptionsError, OutriderError, TransportClosed
from outrider.transports._trace_file import RunTrace, TraceFile, log, new_trace_path
from outrider.transports._trace_format import FROM_AGENT, FROM_HOST
from outrider.transports._transport import Transport

if TYPE_CHECKING:
    from outrider.command import Command
    from outrider.options import Trace
    from outrider.transports._trace_file import Lines

__all__ = ["Traced", "open_trace", "traced"]


class Traced(Transport):
    """Another transport, with all that goes through it written down: lines both ways, stderr, start and end.

    What else the other one offers can be had from this one too.
    """

    def __init__(self, transport: Transport, trace: TraceFile, *, owns_file: bool = False) -> None:
        """`owns_file`: it is closed at the end; else by whoever made it, and may be that of several."""
        self._transport = transport
        self._run = trace.new_run()
        self._sent, self._received = self._run.lines(FROM_HOST), self._run.lines(FROM_AGENT)
        self._command: Command | None = getattr(transport, "command", None)
        self._owns_file = owns_file
        self._is_receiving = False
        self._unread = b""
        """What was received and written down, but not given out: whoever received it was cancelled."""
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
        """The file that is written."""
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
        # First: the answer may come before this goes on.
        await self._write(self._sent, data)
        try:
            await self._transport.send(data)
        except Exception as error:
            self._run.event("send_failed", {"error": _told(error)})
            raise

    async def end_input(self) -> None:
        await self._write(self._sent, None)
        self._run.event("stdin_eof", {})
        await self._transport.end_input()

    async def close(self) -> None:
        if not self._is_ending:
            self._run.event("close", {})
        await self._transport.close()
        # Whoever receives may still be given what came until now.
        if not self._is_receiving:
            await self._end(None)

    @property
    def is_ready(self) -> bool:
        return self._transport.is_ready

    @property
    def exit_error(self) -> OutriderError | None:
        return self._transport.exit_error

    async def _write(self, lines: Lines, data: bytes | None) -> None:
        """Write down what one side said; None: that it says no more.

        What takes long is looked through in a thread, and whoever sends or receives waits for it, whatever
        becomes of them: nothing is lost, and no more than one piece is on its way.
        """
        if lines not in self._writing and not lines.takes_long(data):
            lines.finish() if data is None else lines.feed(data)
            return
        # A raw cancel gets through, and the thread goes on: then all that follows is written in threads.
        with anyio.CancelScope(shield=True):
            async with (lock := self._writing.setdefault(lines, anyio.Lock())):
                await (run_sync(lines.finish) if data is None else run_sync(lines.feed, data))
                if not lock.statistics().tasks_waiting:
                    del self._writing[lines]

    async def _end(self, error: Exception | None, *, is_last: bool = False) -> None:
        """It has ended; `is_last`: and nothing more can be received."""
        self._is_over |= is_last
        if not self._is_ending:
            self._is_ending = True
            await self._write(self._sent, None)
            await self._write(self._received, None)
            code = getattr(self._transport, "returncode", None)
            is_failure = error is not None and not isinstance(error, TransportClosed)
            self._run.event("exit", {"returncode": code, "error": _told(error) if is_failure else None})
            self._has_ended = True
        if self._has_ended and self._is_over and self._owns_file:
            self._run.file.close()


def traced(transport: Transport, trace: Trace) -> Traced:
    """A transport that is written down as the option says. Raises `OptionsError` if it cannot be."""
    return Traced(transport, open_trace(trace), owns_file=True)


def open_trace(trace: Trace) -> TraceFile:
    """A new file for a trace. Raises `OptionsError` if there can be none."""
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
        # Names alone: values may be secret, and are the business of whoever set them.
        facts["env"] = sorted(os.environ if command.env is None else command.env)
    return facts


def _told(error: Exception | None) -> str:
    return f"{type(error).__name__}: {error}"

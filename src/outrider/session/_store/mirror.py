"""Copies the transcript to a session store while the agent writes it.

Takes frames from the reader without waiting, and stores them in a task of its own, in order, for as long as
it takes. Does not open or close the store, nor decide when the session ends.
"""

from __future__ import annotations

import logging
import os
import re
import tempfile
from collections import deque
from typing import TYPE_CHECKING, Final, NamedTuple, cast
from uuid import uuid4

import anyio

from outrider.errors import LeaseLost, OptionsError, OutriderError, SessionBusy, StoreTimedOut
from outrider.session._streams.stream import ResultHold
from outrider.transcripts import check_project_key, check_subpath
from outrider.wire import MirrorErrorMessage, OversizedMessage, ResultMessage, TranscriptMirror, encode

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from anyio.abc import TaskGroup

    from outrider.session._store.link import Leases
    from outrider.transcripts import SessionKey, SessionStoreEntry, StoreCalls
    from outrider.wire import JsonObject

log = logging.getLogger("outrider.session")

BATCH_ENTRIES: Final = 500
BATCH_BYTES: Final = 1024 * 1024
MEMORY_BYTES: Final = 64 * 1024 * 1024
"""How far the store may be behind, counted as JSON: so much is kept in memory."""


class Batch(NamedTuple):
    """Entries of one transcript that are stored together, once."""

    key: SessionKey
    entries: list[SessionStoreEntry]
    id: str
    last: int
    """The number of the last piece in it."""


class _Piece(NamedTuple):
    number: int
    key: SessionKey
    entries: list[SessionStoreEntry]
    size: int


class Backlog:
    """A queue of pieces, each of one file; neighbours of one file are taken out together."""

    def __init__(self) -> None:
        self._pieces: deque[_Piece] = deque()
        self._run = uuid4().hex
        self._taken = 0
        self.size = 0
        """Of all that waits, in bytes of JSON."""
        self.last = 0
        """The number of the piece that came last; they count from 1."""

    def __len__(self) -> int:
        return len(self._pieces)

    @property
    def is_full(self) -> bool:
        """Whether what is there is worth a batch."""
        return self.size >= BATCH_BYTES or sum(len(piece.entries) for piece in self._pieces) >= BATCH_ENTRIES

    def put(self, key: SessionKey, entries: list[JsonObject], size: int) -> None:
        """Add entries, which take up about `size` bytes."""
        for piece, piece_size in _cut(cast("list[SessionStoreEntry]", entries), size):
            self.last += 1
            self.size += piece_size
            self._pieces.append(_Piece(self.last, key, piece, piece_size))

    def take(self) -> Batch | None:
        """The next batch; None if there is nothing."""
        if not self._pieces:
            return None
        first = self._pieces[0]
        entries: list[SessionStoreEntry] = []
        size, last = 0, first.number
        while self._pieces:
            piece = self._pieces[0]
            is_over = len(entries) + len(piece.entries) > BATCH_ENTRIES or size + piece.size > BATCH_BYTES
            if piece.key != first.key or (entries and is_over):
                break
            self._pieces.popleft()
            entries += piece.entries
            size, last = size + piece.size, piece.number
        self.size -= size
        self._taken += 1
        return Batch(first.key, entries, f"{self._run}-{self._taken}", last)


def _cut(entries: list[SessionStoreEntry], size: int) -> Iterator[tuple[list[SessionStoreEntry], int]]:
    if len(entries) <= BATCH_ENTRIES and (size <= BATCH_BYTES or len(entries) == 1):
        yield entries, size
        return
    piece: list[SessionStoreEntry] = []
    piece_size = 0
    for entry in entries:
        entry_size = len(encode(entry)) + 1
        if piece and (len(piece) == BATCH_ENTRIES or piece_size + entry_size > BATCH_BYTES):
            yield piece, piece_size
            piece, piece_size = [], 0
        piece.append(entry)
        piece_size += entry_size
    if piece:
        yield piece, piece_size


class RescueFile:
    """A file for entries that could not be stored and are nowhere else; only this user can read it.

    Each line is an object with a `key` and `entries`, to be given to `append` of a store.
    """

    def __init__(self) -> None:
        self._path = ""
        self._known: set[str] = set()
        self._error: OSError | None = None

    def add(self, batch: Batch) -> None:
        """Write a batch, once. Keeps what was written before a failure."""
        if batch.id in self._known or self._error is not None:
            return
        self._known.add(batch.id)
        line = encode({"key": batch.key, "batch": batch.id, "entries": batch.entries}) + b"\n"
        try:
            if not self._path:
                number, self._path = tempfile.mkstemp(prefix="outrider-transcript-", suffix=".jsonl")
                os.close(number)
            with open(self._path, "ab") as file:  # noqa: PTH123 - the name was made by `tempfile`
                file.write(line)
        except OSError as error:
            error.filename = error.filename or self._path
            self._error = error

    def describe(self) -> str:
        """Its path, for a message."""
        if self._error is not None:
            return f"and could not be written whole to a file: {self._error}"
        if not self._path:
            return "it is lost"
        return f"it is in {self._path}: give each line's `entries` to the store's `append`"


HOLD_SECONDS: Final = 5.0
"""How long a result waits until the entries before it are stored."""

_LINGER_SECONDS: Final = 1.0
"""How long entries wait for more, so that they are stored together."""

_QUICK_SECONDS: Final = (0.2, 0.8)
"""Pauses between the first tries."""

_SLOW_SECONDS: Final = (1.0, 2.0, 5.0, 10.0, 30.0)
"""Pauses between later tries, while the session is open. The last is repeated."""

_NOT_READY: Final = "what was written before the result is not stored yet"


class Mirror:
    """Moves the transcript of one connection to the store.

    A batch is tried again under the same id until it is stored, and nothing overtakes it. The first failure
    after a success is reported, as a message and in the log.
    """

    concerned: Final[frozenset[type]] = frozenset((TranscriptMirror, OversizedMessage, ResultMessage))
    """The events that it takes, or that wait for it."""

    def __init__(
        self, calls: StoreCalls, leases: Leases, keys: Keys, *, is_eager: bool, is_only_copy: bool
    ) -> None:
        """`is_only_copy`: the agent's own files are removed with it."""
        self.keys = keys
        self.tell: Callable[[MirrorErrorMessage], None] = lambda _: None
        """Gives a message to the reader of the session."""
        self._calls, self._leases = calls, leases
        self._is_eager, self._is_only_copy = is_eager, is_only_copy
        self._backlog = Backlog()
        self._current: Batch | None = None
        """The batch that is being stored."""
        self._rescue = RescueFile()
        self._is_incomplete = False
        """Whether some entries will not be stored."""
        self._lost: set[str] = set()
        """Sessions that another writer has."""
        self._holds: deque[tuple[int, ResultHold]] = deque()
        self._files: dict[str, SessionKey | None] = {}
        """The files whose entries came, in order; without a key for a file that is not a transcript."""
        self._had_answers = False
        self._is_cut_off = False
        self._is_down = False
        self._is_ending = False
        self._is_left = False
        self._news = anyio.Event()
        self._tasks: TaskGroup | None = None

    # What the reader calls.

    def takes(self, event: object) -> bool:
        """Take an event if it is for the store."""
        if isinstance(event, TranscriptMirror):
            if event.entries and not self._is_left:
                self._take(event)
            return True
        if isinstance(event, OversizedMessage) and event.frame_type == TranscriptMirror.type:
            self._cut_off(f"what was written is too large to be read ({event.error()})")
            return True
        return False

    def _take(self, frame: TranscriptMirror) -> None:
        path = frame.file_path
        if path not in self._files:
            self._files[path] = self.keys.key_of(path)
            if self._files[path] is None:
                log.warning("what is written to %r is not a transcript and is not stored", path)
        if (key := self._files[path]) is None:
            return
        size = len(frame.raw_json)
        if self._backlog and self._backlog.size + size > MEMORY_BYTES and not self._is_cut_off:
            if self._is_only_copy:
                # In order: waiting entries first.
                self._rescue_left()
            self._cut_off(f"the session store is behind by {MEMORY_BYTES >> 20} MiB")
        if not self._is_cut_off:
            self._backlog.put(key, frame.entries, size)
            self._wake()
        elif self._is_only_copy:
            entries = cast("list[SessionStoreEntry]", frame.entries)
            self._rescue.add(Batch(key, entries, uuid4().hex, 0))

    def _cut_off(self, reason: str) -> None:
        """Store nothing more: a transcript must not have gaps."""
        if self._is_cut_off:
            return
        self._is_cut_off = self._is_incomplete = True
        words = f"{reason}, and nothing after it is stored"
        log.warning("%s", words)
        self._tell(None, words)

    def hold(self, result: ResultMessage) -> ResultHold | None:
        """Hold back a new result; None if it need not wait."""
        self._had_answers |= not result.is_error
        if self._is_down or self._is_ending or self._tasks is None or self.is_idle:
            return None
        hold = ResultHold()
        self._holds.append((self._backlog.last, hold))
        self._tasks.start_soon(self._time, hold)
        self._wake()
        return hold

    @property
    def is_idle(self) -> bool:
        """Whether all that came is stored."""
        return not self._backlog and self._current is None

    @property
    def is_holding(self) -> bool:
        """Whether a result waits."""
        return bool(self._holds)

    def release_results(self, notice: MirrorErrorMessage | None = None) -> None:
        """Let readers have all results."""
        holds, self._holds = self._holds, deque()
        for _, hold in holds:
            hold.release(notice)
            notice = None

    def end(self) -> None:
        """Note that no more frames will come. Results still wait: the agent may exit right after one."""
        self._is_ending = True
        self._wake()

    # The task.

    async def serve(self, tasks: TaskGroup) -> None:
        """Store entries, until all are stored after the end, or the store is given up."""
        self._tasks = tasks
        while True:
            if self._current is None:
                await self._gather()
                self._current = self._backlog.take()
            if (batch := self._current) is not None:
                if not await self._store(batch):
                    return
                self._current = None
                self._release_until(batch.last if self._backlog else self._backlog.last)
            elif self._is_ending:
                return

    async def _gather(self) -> None:
        """Wait for entries, and then for more of them unless a result waits."""
        while not self._backlog and not self._is_ending:
            await self._news.wait()
        with anyio.move_on_after(_LINGER_SECONDS):
            while not (self._is_eager or self._is_ending or self._holds or self._backlog.is_full):
                await self._news.wait()

    async def _store(self, batch: Batch) -> bool:
        """Try until it is stored, or dropped. False if the store is given up at the end."""
        tries, was_ending = 0, self._is_ending
        while True:
            try:
                await self._leases.ensure(batch.key)
                await self._calls.append(batch.key, batch.entries, batch.id)
            except (SessionBusy, LeaseLost) as error:
                self._lose(batch, error)
                return True
            except OptionsError as error:
                # The store will never accept this batch, but may accept the next one.
                self._strand(batch, f"the store rejects an entry: {_words(error)}")
                return True
            except OutriderError as error:
                tries += 1
                is_passing = error.retryable and not isinstance(error, StoreTimedOut)
                if tries > len(_QUICK_SECONDS) or not is_passing:
                    self._fail(batch.key, _words(error))
                    if was_ending:
                        return False
                if self._is_ending == was_ending:
                    await self._pause(tries)
                if self._is_ending and not was_ending:
                    # One last series of tries.
                    tries, was_ending = 0, True
            else:
                if self._is_down:
                    self._is_down = False
                    log.info("the session store %s takes entries again", self._calls.name)
                return True

    async def _pause(self, tries: int) -> None:
        delays = (*_QUICK_SECONDS, *_SLOW_SECONDS)
        was_ending = self._is_ending
        with anyio.move_on_after(delays[min(tries, len(delays)) - 1]):
            while self._is_ending == was_ending:
                await self._news.wait()

    async def _time(self, hold: ResultHold) -> None:
        with anyio.move_on_after(HOLD_SECONDS):
            await hold.wait()
        if not hold.is_released:
            key = self._current.key if self._current is not None else None
            self._fail(key, f"{_NOT_READY}, after {HOLD_SECONDS:g} s, and is not waited for")

    def _wake(self) -> None:
        self._news.set()
        self._news = anyio.Event()

    def _release_until(self, last: int) -> None:
        while self._holds and self._holds[0][0] <= last:
            self._holds.popleft()[1].release()

    # Failures.

    def _fail(self, key: SessionKey | None, words: str) -> None:
        """Report once that the store is down, and let no result wait for it."""
        if not self._is_down:
            self._is_down = True
            log.warning("the transcript is not reaching the session store %s: %s", self._calls.name, words)
            self._tell(key, words)
        self.release_results()

    def _lose(self, batch: Batch, error: SessionBusy | LeaseLost) -> None:
        """Store nothing more of a session that another writer has."""
        session_id, words = batch.key["session_id"], ""
        if session_id not in self._lost:
            self._lost.add(session_id)
            self._leases.lose(batch.key, error)
            words = f"another writer has the session, so nothing more of it is stored: {_words(error)}"
        self._strand(batch, words)

    def _strand(self, batch: Batch, words: str) -> None:
        self._is_incomplete = True
        if self._is_only_copy:
            self._rescue.add(batch)
        if words:
            log.warning("%s", words)
            self._tell(batch.key, words)

    def _tell(self, key: SessionKey | None, words: str) -> None:
        message = _message(key, words)
        if self._holds:
            self.release_results(message)
        else:
            self.tell(message)

    def leave(self) -> None:
        """End it: rescue or report what is not stored. May be called again."""
        if self._is_left:
            return
        self._is_left = self._is_ending = True
        self.release_results()
        if self._had_answers and not (self._files or self._is_cut_off):
            log.warning("Claude Code did not report what it writes, so nothing is stored; it may be too old")
        if self.is_idle and not self._is_incomplete:
            return
        key = None if self._current is None else self._current.key
        words = f"the end of the transcript did not reach the session store; {self._rest()}"
        log.warning("%s", words)
        self.tell(_message(key, words))

    def _rest(self) -> str:
        """Where the unstored entries can be found."""
        if not self._is_only_copy:
            paths = ", ".join(path for path, key in self._files.items() if key is not None)
            return f"it is on disk, in {paths}" if paths else "it is on disk"
        self._rescue_left()
        return self._rescue.describe()

    def _rescue_left(self) -> None:
        batch = self._current
        while batch is not None or (batch := self._backlog.take()) is not None:
            self._rescue.add(batch)
            batch = None


def _words(error: BaseException) -> str:
    return str(error).splitlines()[0]


def _message(key: SessionKey | None, words: str) -> MirrorErrorMessage:
    named = None if key is None else cast("JsonObject", dict(key))
    data: JsonObject = {"type": "system", "subtype": "mirror_error", "key": named, "error": words}
    return MirrorErrorMessage("mirror_error", data, key=named, error=words)


_FOLDER: Final = "projects"
_SUFFIX: Final = ".jsonl"
_UUID: Final = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", re.IGNORECASE)
_WINDOWS: Final = re.compile(r"[A-Za-z]:[\\/]|\\\\")


class Keys:
    """Makes keys from paths: `<config>/projects/<project>/<session>.jsonl`; deeper files are parts.

    `config` is the agent's configuration folder, if it is on this machine and known: nothing outside of it is
    taken then.
    """

    def __init__(self, config: Path | None = None) -> None:
        folders = () if config is None else (os.path.abspath(config), os.path.realpath(config))  # noqa: PTH100
        self._folders = {tuple(_parts(folder)) for folder in folders}
        self._projects: dict[str, str] = {}

    def place(self, session_id: str, project: str) -> None:
        """Note a session that the store has under another project than that of its present folder."""
        self._projects[session_id] = project

    def key_of(self, path: str) -> SessionKey | None:
        """The key of a file; None if it is not a transcript."""
        parts = _parts(path)
        if not parts or "\0" in path or ".." in parts or not parts[-1].endswith(_SUFFIX):
            return None
        parts[-1] = parts[-1].removesuffix(_SUFFIX)
        inside = self._inside(parts)
        if inside is None or len(inside) < 2 or not all(inside):
            return None
        project, session_id, *rest = inside
        try:
            check_project_key(project)
            check_subpath("/".join((session_id, *rest)))
        except OptionsError:
            return None
        key: SessionKey = {
            "project_key": self._projects.get(session_id, project),
            "session_id": session_id,
        }
        if rest:
            key["subpath"] = "/".join(rest)
        return key

    def _inside(self, parts: list[str]) -> list[str] | None:
        """What comes after the folder of all projects."""
        for folder in self._folders:
            if tuple(parts[: len(folder)]) == folder and parts[len(folder) : len(folder) + 1] == [_FOLDER]:
                return parts[len(folder) + 1 :]
        if self._folders:
            return None
        found = [place for place, part in enumerate(parts) if part == _FOLDER and len(parts) > place + 2]
        # Folders above may have the same name; session ids are unmistakable.
        known = [place for place in found if _UUID.fullmatch(parts[place + 2])]
        place = next(reversed(known or found), None)
        return None if place is None else parts[place + 1 :]


def _parts(path: str) -> list[str]:
    if _WINDOWS.match(path):
        path = path.replace("\\", "/")
    return [part for part in path.split("/") if part not in ("", ".")]

"""Owns what the agent has written and the store does not have yet: in memory, and past a budget in a file.

Does not store it, and does not wait for anything.
"""

from __future__ import annotations

import logging
import os
import tempfile
from collections import deque
from io import BufferedReader
from typing import TYPE_CHECKING, Final, NamedTuple, cast
from uuid import uuid4

from outrider.wire import encode
from outrider.wire._decoding import decode_object

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from io import FileIO

    from outrider.transcripts import SessionKey, SessionStoreEntry
    from outrider.wire import JsonObject

__all__ = ["BATCH_BYTES", "BATCH_ENTRIES", "MEMORY_BYTES", "Backlog", "Batch", "rescue"]

log = logging.getLogger("outrider.session")

BATCH_ENTRIES: Final = 500
BATCH_BYTES: Final = 1024 * 1024
MEMORY_BYTES: Final = 64 * 1024 * 1024
"""How much of it is kept in memory, counted as JSON."""


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

    def __init__(self, budget: int = MEMORY_BYTES) -> None:
        self._budget = budget
        self._pieces: deque[_Piece] = deque()
        self._bytes = 0
        self._spilled = 0
        self._tail: deque[_Piece] = deque()
        """What came after that in the file, and could not be written there."""
        self._file: FileIO | None = None
        self._read_at = 0
        self._run = uuid4().hex
        self._taken = 0
        self.last = 0
        """The number of the piece that came last; they count from 1."""

    def __len__(self) -> int:
        return len(self._pieces) + self._spilled + len(self._tail)

    @property
    def is_full(self) -> bool:
        """Whether what is there is worth a batch."""
        return (
            self._bytes >= BATCH_BYTES or sum(len(piece.entries) for piece in self._pieces) >= BATCH_ENTRIES
        )

    def put(self, key: SessionKey, entries: list[JsonObject], size: int) -> None:
        """Add entries, which take up about `size` bytes."""
        for piece, piece_size in _cut(cast("list[SessionStoreEntry]", entries), size):
            self.last += 1
            self._put(_Piece(self.last, key, piece, piece_size))

    def add(self, batch: Batch) -> None:
        """Add what was taken out of another one."""
        self.put(
            batch.key, cast("list[JsonObject]", batch.entries), sum(len(encode(e)) for e in batch.entries)
        )

    def _put(self, piece: _Piece) -> None:
        if self._tail:
            self._tail.append(piece)
        elif self._spilled or (self._pieces and self._bytes + piece.size > self._budget):
            self._spill(piece)
        else:
            self._add(piece)

    def _spill(self, piece: _Piece) -> None:
        """Write it behind what waits in the file."""
        try:
            if self._file is None:
                # It has no name: nothing of it is left, whatever becomes of this process.
                self._file = tempfile.TemporaryFile(prefix="outrider-mirror-", buffering=0)  # noqa: SIM115
                log.warning("the session store is behind by %d bytes; the rest waits in a file", self._bytes)
            end = self._file.seek(0, os.SEEK_END)
            line = memoryview(encode(piece._asdict()) + b"\n")
            try:
                while line:
                    line = line[self._file.write(line) :]
            except OSError:
                self._file.truncate(end)
                raise
            self._spilled += 1
        except OSError as error:
            log.warning("what the session store does not take has to stay in memory: %s", error)
            self._tail.append(piece)

    def take(self) -> Batch | None:
        """The next batch; None if there is nothing."""
        if not self._pieces:
            self._refill()
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
            self._bytes -= piece.size
            entries += piece.entries
            size, last = size + piece.size, piece.number
        self._taken += 1
        return Batch(first.key, entries, f"{self._run}-{self._taken}", last)

    def _refill(self) -> None:
        """Read back as much as makes a batch."""
        if self._file is not None:
            self._file.seek(self._read_at)
            # It is written without a buffer, and would be read byte by byte.
            lines = BufferedReader(self._file)
            while self._spilled and self._bytes < BATCH_BYTES:
                line = lines.readline()
                self._read_at += len(line)
                self._spilled -= 1
                self._add(_Piece(**decode_object(line)))
            lines.detach()
            if not self._spilled:
                self.close()
        if not self._spilled:
            tail, self._tail = self._tail, deque()
            for piece in tail:
                self._add(piece)

    def _add(self, piece: _Piece) -> None:
        self._pieces.append(piece)
        self._bytes += piece.size

    def drain(self) -> Iterator[Batch]:
        """All that is left, taken out."""
        while (batch := self.take()) is not None:
            yield batch

    def close(self) -> None:
        """Let go of the file."""
        file, self._file, self._read_at, self._spilled = self._file, None, 0, 0
        if file is not None:
            file.close()


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


def rescue(batches: Iterable[Batch]) -> str | None:
    """Write batches to a file of their own, which nobody but this user can read; gives its path, None if
    there are none. Raises `OSError`.

    Each line is an object with a `key` and `entries`, to be given to `append` of a store.
    """
    path: str | None = None
    number = -1
    try:
        for batch in batches:
            if path is None:
                number, path = tempfile.mkstemp(prefix="outrider-transcript-", suffix=".jsonl")
            line = encode({"key": batch.key, "batch": batch.id, "entries": batch.entries}) + b"\n"
            view = memoryview(line)
            while view:
                view = view[os.write(number, view) :]
    except OSError as error:
        # What could be written is better than nothing.
        error.filename = error.filename or path
        raise
    finally:
        if number >= 0:
            os.close(number)
    return path

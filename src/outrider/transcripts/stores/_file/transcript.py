"""Reads and writes the two files of a transcript: the entries, one per line, and a log of what was added.

The log is authoritative: entries beyond the size in its last record were never acknowledged. `Transcript`
takes no lock: the caller holds the session, with `locked`.
"""

from __future__ import annotations

import fcntl
import os
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final, cast
from uuid import uuid4

from outrider.transcripts.stores._blocking import raise_if_abandoned
from outrider.transcripts.stores._records import Place, decode, encode

if TYPE_CHECKING:
    from collections.abc import Generator
    from pathlib import Path

    from outrider.transcripts.stores._base import SessionStoreEntry
    from outrider.transcripts.stores._records import Line

# Files.

_LONGEST_PAUSE: Final = 0.02


@contextmanager
def opened(path: Path, flags: int) -> Generator[int]:
    number = os.open(path, flags | os.O_CLOEXEC, 0o600)
    try:
        yield number
    finally:
        os.close(number)


@contextmanager
def locked(path: Path, *, shared: bool, wait: float) -> Generator[None]:
    """Hold a lock, among all threads and processes. Raises `TimeoutError` if others hold it for so long."""
    kind = fcntl.LOCK_SH if shared else fcntl.LOCK_EX
    end, pause = time.monotonic() + wait, 0.0005
    with opened(path, os.O_RDWR | os.O_CREAT) as number:
        while True:
            try:
                fcntl.flock(number, kind | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > end:
                    raise TimeoutError("other writers did not finish in time") from None
            # `flock` itself would wait without end.
            time.sleep(pause)
            raise_if_abandoned()
            pause = min(pause * 2, _LONGEST_PAUSE)
        try:
            yield
        finally:
            # A process that was forked off meanwhile has the file too, and closing it here would not do.
            fcntl.flock(number, fcntl.LOCK_UN)


def write_all(number: int, data: bytes, offset: int) -> None:
    """Write to a file, and see that it is on the disk."""
    left = memoryview(data)
    while left:
        written = os.pwrite(number, left, offset)
        left, offset = left[written:], offset + written
    os.fsync(number)


def write_whole(path: Path, data: bytes, *, sync: bool) -> None:
    """Replace a file: others see the old one or the new one."""
    new = path.with_name(f".{uuid4().hex}.tmp")
    try:
        with opened(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL) as number:
            if sync:
                write_all(number, data, 0)
            else:
                os.write(number, data)
        new.replace(path)
    except BaseException:
        new.unlink(missing_ok=True)
        raise
    if sync:
        sync_folder(path.parent)


def make_folder(path: Path) -> None:
    """Make a folder that only its owner can read, unless it is there; its parent has to be."""
    try:
        path.mkdir(0o700)
    except FileExistsError:
        return
    sync_folder(path.parent)


def sync_folder(path: Path) -> None:
    """See that the names in a folder are on the disk."""
    with opened(path, os.O_RDONLY | os.O_DIRECTORY) as number:
        os.fsync(number)


# Transcripts.

_FORMAT: Final = 1


class Damaged(ValueError):
    """A file is not as it was written."""


class Index:
    """What is known of a transcript without reading it again."""

    def __init__(self, id: str) -> None:
        self.id = id
        """Made with the log: after a deletion there is another one."""
        self.log_size = 0
        self.size = 0
        """Of the entries that were acknowledged."""
        self.uuids: set[str] = set()
        self.batches: set[str] = set()


class Transcript:
    """`stem` is the path of both files, without an ending."""

    def __init__(self, stem: Path) -> None:
        self.entries = stem.with_name(f"{stem.name}.jsonl")
        self.log = stem.with_name(f"{stem.name}.log")

    def place(self) -> Place | None:
        """What it is the transcript of; None if it is not there."""
        try:
            head = self._head()
        except FileNotFoundError:
            return None
        return Place(*cast("list[str]", head["place"])) if head else None

    def is_there(self) -> bool:
        return self.entries.exists() and self.index(None, uuids=False) is not None

    def index(self, known: Index | None, *, uuids: bool = True) -> Index | None:
        """What is there now, from what was known before. None if there is no transcript.

        Raises `Damaged`.
        """
        try:
            size = self.entries.stat().st_size
        except FileNotFoundError:
            return None
        try:
            head = self._head()
        except FileNotFoundError:
            raise Damaged(f"{self.log} is missing") from None
        if not head:
            return None
        if known is None or known.id != head["id"] or self.log.stat().st_size < known.log_size:
            known = Index(str(head["id"]))
        self._read_log(known, size, uuids=uuids)
        return known if known.size else None

    def load(self, start: int, end: int) -> list[SessionStoreEntry]:
        """The entries in a part of the file that was acknowledged."""
        with opened(self.entries, os.O_RDONLY) as number:
            data = _read(number, start, end)
        if data[-1:] not in (b"\n", b""):
            raise Damaged(f"{self.entries} does not end a line at byte {end}")
        entries: list[SessionStoreEntry] = []
        for line in data.split(b"\n")[:-1]:
            try:
                entries.append(decode(line))
            except ValueError as error:
                where = f"line {len(entries) + 1}" + (f" after byte {start}" if start else "")
                raise Damaged(f"{self.entries} is damaged in {where}: {error}") from error
        return entries

    def create(self, place: Place) -> Index:
        """Begin a transcript that is not there."""
        self.entries.unlink(missing_ok=True)
        index = Index(uuid4().hex)
        head = encode({"format": _FORMAT, "id": index.id, "place": [*place]}) + b"\n"
        with opened(self.log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC) as number:
            write_all(number, head, 0)
        with opened(self.entries, os.O_WRONLY | os.O_CREAT | os.O_TRUNC):
            pass
        sync_folder(self.log.parent)
        index.log_size = len(head)
        return index

    def add(self, index: Index, lines: list[Line], batch: str | None) -> None:
        """Add lines, all or none. What was left half written before is cut off."""
        data = b"".join(line.data + b"\n" for line in lines)
        record: dict[str, object] = {"size": index.size + len(data)}
        if batch is not None:
            record["batch"] = batch
        note = encode(record) + b"\n"
        _put(self.entries, index.size, data)
        _put(self.log, index.log_size, note)
        index.size += len(data)
        index.log_size += len(note)
        index.uuids.update(line.uuid for line in lines if line.uuid is not None)
        if batch is not None:
            index.batches.add(batch)

    def remove(self) -> None:
        # In this order: without entries there is no transcript, whatever the log says.
        self.entries.unlink(missing_ok=True)
        self.log.unlink(missing_ok=True)

    def _head(self) -> dict[str, object]:
        """The first record of the log; empty if it was never finished."""
        with opened(self.log, os.O_RDONLY) as number, os.fdopen(number, "rb", closefd=False) as file:
            line = file.readline()
        if not line.endswith(b"\n"):
            return {}
        head = self._record(line, 0)
        if head.get("format", _FORMAT) != _FORMAT:
            raise Damaged(f"{self.log} has the format {head['format']!r}, and this Outrider knows {_FORMAT}")
        match head:
            case {"format": _, "id": str(), "place": [str(), str(), str() | None]}:
                return head
            case _:
                raise Damaged(f"{self.log} has no head")

    def _read_log(self, index: Index, size: int, *, uuids: bool) -> None:
        with opened(self.log, os.O_RDONLY) as number:
            data = _read(number, index.log_size, None)
        # A last line that was not finished was not acknowledged.
        whole = data[: data.rfind(b"\n") + 1]
        before = index.size
        for line in whole.split(b"\n")[:-1]:
            record = self._record(line, index.log_size)
            reached, batch = record.get("size", index.size), record.get("batch")
            if not isinstance(reached, int) or reached < index.size:
                raise Damaged(f"{self.log} is damaged at byte {index.log_size}")
            index.size = reached
            if isinstance(batch, str):
                index.batches.add(batch)
            index.log_size += len(line) + 1
        if size < index.size:
            raise Damaged(f"{self.entries} has {size} bytes, and {index.size} were written")
        if uuids:
            found = (cast("object", entry.get("uuid")) for entry in self.load(before, index.size))
            index.uuids.update(uuid for uuid in found if isinstance(uuid, str))

    def _record(self, line: bytes, offset: int) -> dict[str, object]:
        try:
            return cast("dict[str, object]", decode(line))
        except ValueError as error:
            raise Damaged(f"{self.log} is damaged at byte {offset}: {error}") from error


def _put(path: Path, offset: int, data: bytes) -> None:
    """Write to the end of what was acknowledged; if that fails, all is as before."""
    with opened(path, os.O_WRONLY) as number:
        if os.fstat(number).st_size != offset:
            os.ftruncate(number, offset)
        try:
            write_all(number, data, offset)
        except OSError:
            os.ftruncate(number, offset)
            raise


def _read(number: int, start: int, end: int | None) -> bytes:
    end = os.fstat(number).st_size if end is None else end
    parts: list[bytes] = []
    while start < end:
        part = os.pread(number, end - start, start)
        if not part:
            break
        parts.append(part)
        start += len(part)
    return b"".join(parts)

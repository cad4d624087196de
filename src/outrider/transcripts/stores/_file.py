"""Defines `FileStore`, a session store in a folder.

A session is a folder with a file of entries for each transcript, one per line, and a log of its heads. The
log is authoritative: entries beyond the size in its last record were never acknowledged.
"""

from __future__ import annotations

import fcntl
import os
import re
import time
from contextlib import contextmanager, nullcontext, suppress
from hashlib import sha256
from itertools import islice, pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple, TypeVar, cast
from uuid import uuid4
from zlib import crc32

import msgspec
from msgspec.structs import replace

from outrider._folders import opened, remove_folder, replace_file, sync_folder
from outrider.errors import StoreError
from outrider.transcripts.stores._base import (
    WAIT_LONGER,
    Place,
    boot,
    check_version,
    decode,
    encode,
    explain_os_error,
    plain,
    restored,
    to_bytes,
)
from outrider.transcripts.stores._blocking import DEFAULT_TIMEOUT, Explained, raise_if_abandoned
from outrider.transcripts.stores._heads import (
    Batch,
    Change,
    Conflict,
    Damaged,
    Head,
    HeadStore,
    KeptLease,
    Missing,
    Part,
    read_head,
)
from outrider.transcripts.stores._urls import SECONDS, absolute_path, local_path, take_parameters

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Hashable, Iterable, Iterator
    from typing import Self

T = TypeVar("T")

# Files.

_LONGEST_PAUSE: Final = 0.02
_TAIL: Final = 1 << 13
"""Bytes in which the last records of a log are looked for first."""


@contextmanager
def locked(path: Path, *, wait: float) -> Generator[None]:
    """Hold a lock, among all threads and processes. Raises `TimeoutError` if others hold it for so long."""
    end, pause = time.monotonic() + wait, 0.0005
    with opened(path, os.O_RDWR | os.O_CREAT) as number:
        while True:
            try:
                fcntl.flock(number, fcntl.LOCK_EX | fcntl.LOCK_NB)
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


@contextmanager
def put(path: Path, offset: int, data: bytes) -> Generator[int]:
    """Write to the end of what was acknowledged. If that, or anything in the block, fails, all is as before.
    What was left half written is cut off."""
    with opened(path, os.O_WRONLY) as number:
        size = os.fstat(number).st_size
        if size < offset:
            raise ValueError(f"{path} has {size} bytes, and {offset} were written")
        if size > offset:
            os.ftruncate(number, offset)
        try:
            left, place = memoryview(data), offset
            while left:
                written = os.pwrite(number, left, place)
                left, place = left[written:], place + written
            yield number
        except OSError:
            os.ftruncate(number, offset)
            raise


def sync(number: int) -> None:
    """See that what was written is on the disk."""
    getattr(os, "fdatasync", os.fsync)(number)


def read(number: int, start: int, end: int) -> bytes:
    parts: list[bytes] = []
    while start < end and (part := os.pread(number, end - start, start)):
        parts.append(part)
        start += len(part)
    return b"".join(parts)


def read_lines(path: Path, has_enough: Callable[[list[bytes]], bool]) -> tuple[list[bytes], int]:
    """The last whole lines of a file, all of them unless some are enough, and where they end. There are none
    without a file."""
    length, begin, tail = _TAIL, 1, b""
    lines: list[bytes] = []
    with suppress(FileNotFoundError), opened(path, os.O_RDONLY) as number:
        while begin and not has_enough(lines):
            # Each time: what a writer left half written is cut off.
            size = os.fstat(number).st_size
            begin = max(0, size - length)
            tail = read(number, begin, size)
            # A last line that was not finished was not acknowledged, and the first may have begun before.
            lines = tail.split(b"\n")[1 if begin else 0 : -1]
            length *= 2
        return lines, begin + tail.rfind(b"\n") + 1
    return [], 0


def make_new(path: Path) -> None:
    """Make an empty file, another one than that which was there."""
    path.unlink(missing_ok=True)
    with opened(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL):
        pass
    sync_folder(path.parent)


def make_folder(path: Path) -> None:
    """Make a folder that only its owner can read, unless it is there; its parent has to be."""
    try:
        path.mkdir(0o700)
    except FileExistsError:
        return
    sync_folder(path.parent)


# File names.

_LONGEST: Final = 200
"""Bytes of a name; most file systems allow 255, and an ending is added."""
_CUT: Final = "~"
"""Stands before the checksum of a long text; no other name has it."""
_EMPTY: Final = "%"

_MARKER: Final = "outrider.json"
_ESCAPED: Final = re.compile(rb"[^a-z0-9_.\-]|^\.|\.$|^o(?=utrider\.json$)")


def name_of(text: str) -> str:
    """The file name of a text: another one for each, also where upper and lower case, or two spellings of an
    accent, are the same."""
    data = to_bytes(text)
    name = _ESCAPED.sub(lambda found: b"%%%02x" % found[0][0], data).decode()
    if len(name) > _LONGEST:
        return f"{name[:100]}{_CUT}{sha256(data).hexdigest()}"
    return name or _EMPTY


class Layout:
    """The files of a store in a folder.

    `PROJECT/SESSION/main.jsonl` is a transcript, `PROJECT/SESSION/parts/SUBPATH.jsonl` a part of it. What
    begins with a dot is the store's own.
    """

    def __init__(self, root: Path) -> None:
        self.root = root
        self.marker = root / _MARKER
        self.locks = root / ".locks"
        self.leases = root / ".leases"

    def deleted(self, name: str) -> Path:
        """Where a session is put that is about to be removed."""
        return self.root / f".deleted-{name}"

    def project(self, project: str) -> Path:
        return self.root / name_of(project)

    def session(self, place: Place) -> Path:
        return self.project(place.project) / name_of(place.session)

    def entries(self, place: Place) -> Path:
        return _entries_in(self.session(place), place.subpath)

    def log(self, place: Place) -> Path:
        return self.session(place) / _LOG

    def lock(self, place: Place) -> Path:
        return self.locks / f"{_checksum(place)}.lock"

    def lease(self, place: Place) -> Path:
        return self.leases / f"{_checksum(place)}.json"


def _entries_in(session: Path, subpath: str | None) -> Path:
    if subpath is None:
        return session / "main.jsonl"
    return session / "parts" / f"{name_of(subpath)}.jsonl"


_LOG: Final = "session.log"


def _checksum(place: Place) -> str:
    # Not a name: these are needed where the session is not there, or not any more.
    return sha256(to_bytes(repr((place.project, place.session)))).hexdigest()[:40]


# The store.

_FORMAT: Final = 1


class _Record(msgspec.Struct, omit_defaults=True):
    """A line of a log."""

    head: Head
    """Without the lease, which has a file of its own."""
    name: str = ""
    """The part that got a batch."""
    mark: str = ""
    """That of the batch; empty if there was none."""
    start: int = 0
    """Where the batch begins in the file of entries."""
    checksum: int = 0
    boot: str = ""
    """From when to when the machine was up that wrote it, if both files were brought to its disk together:
    after a loss of power, the batch of the last record may be missing then. It was not acknowledged."""
    back: int = 0
    """How many lines above is a head with all parts, if this one has only the part that got the batch. With
    all parts in each line, a log would grow by the number of parts at each batch."""


class _Log(NamedTuple):
    """The end of a log, from the last head with all parts on."""

    records: list[_Record]
    last: bytes
    size: int
    end: int

    @classmethod
    def read(cls, path: Path) -> _Log:
        def has_all(lines: list[bytes]) -> bool:
            return bool(lines) and len(lines) > _decoded(path, lines[-1], _Record).back

        lines, end = _read_log(path, has_all)
        if not lines:
            return cls([], b"", 0, end)
        if not has_all(lines):
            raise ValueError(f"{path} is damaged: its beginning is missing")
        lines = lines[-1 - _decoded(path, lines[-1], _Record).back :]
        records = [_decoded(path, line, _Record) for line in lines]
        return cls(records, lines[-1], sum(map(len, lines)), end)

    def head(self, session: Place) -> Head:
        if not self.records:
            return read_head(session, None)
        parts = {name: part for one in self.records for name, part in one.head.parts.items()}
        return replace(self.records[-1].head, parts=parts)


class _Version(NamedTuple):
    record: bytes
    lease: bytes


class FileStore(HeadStore):
    """Stores sessions in a folder, which is created on first use; only its owner can read it.

    `PROJECT/SESSION/main.jsonl` has the entries of a session, and `PROJECT/SESSION/parts/` those of its
    parts. Other programs may read these files, but must not write to them. Several processes may use the
    folder at once, also on several machines if the file system supports locks between them (`flock`). What
    was acknowledged survives a power loss.
    """

    _is_local = True

    def __init__(self, folder: str | os.PathLike[str], *, timeout: float | None = DEFAULT_TIMEOUT) -> None:
        """`timeout` is how many seconds a call may take, the wait for other writers included."""
        self._folder = absolute_path(os.fspath(folder), "a folder", "Give the path of a folder.")
        super().__init__(f"file://{self._folder}", timeout=timeout)
        self._layout = Layout(self._folder)

    @classmethod
    def from_url(cls, url: str) -> Self:
        """`file:///absolute/path`, with `?timeout=seconds`."""
        url, given = take_parameters(url, {"timeout": SECONDS})
        return cls(f"/{local_path(url)}", **given)

    @property
    def folder(self) -> Path:
        """Where the files are."""
        return self._folder

    # Reading. No lock is needed: what was acknowledged is not changed.

    def _read(self, session: Place) -> tuple[Head, _Version]:
        if not self._is_ready():
            return read_head(session, None), _Version(b"", b"")
        path, lease = self._layout.log(session), self._read_lease(session)
        kept: KeptLease | None = None
        try:
            kept = _decoded(self._layout.lease(session), lease, KeptLease) if lease else None
            log = _Log.read(path)
        except ValueError as error:
            version = _Version(_last_record(path), lease)
            raise Damaged(str(error), session, b"", version=version, lease=kept) from error
        return replace(log.head(session), lease=kept), _Version(log.last, lease)

    def _read_lease(self, session: Place) -> bytes:
        try:
            return self._layout.lease(session).read_bytes()
        except FileNotFoundError:
            return b""

    def _read_batches(self, place: Place, part: Part, start: int, stop: int) -> list[Batch]:
        path, log, name = self._layout.entries(place), self._layout.log(place), plain(place.part)

        def find(lines: list[bytes]) -> list[tuple[str, Part]]:
            """The marks of the transcript's batches, and what it was with each."""
            found: list[tuple[str, Part]] = []
            for line in lines:
                record = _decoded(log, line, _Record)
                if record.mark and record.name == name:
                    found.append((record.mark, record.head.parts[name]))
                elif not record.back and name not in record.head.parts:
                    # It was deleted.
                    found.clear()
            return found

        def has_enough(lines: list[bytes]) -> bool:
            found = find(lines)
            return bool(found) and found[0][1].count <= max(start, 1)

        try:
            # The file first: it is that of the generation which the log has after that.
            with opened(path, os.O_RDONLY) as number:
                added = find(_read_log(log, has_enough)[0])
                if not added or added[-1][1].generation != part.generation:
                    raise Missing(f"{log} has another transcript by now")
                begin = next((one.size for _, one in added if one.count == start), 0)
                end = next((one.size for _, one in added if one.count == stop), part.size)
                data = read(number, begin, end)
        except FileNotFoundError as error:
            raise Missing(f"{error.filename} is missing") from None
        if begin + len(data) < end:
            raise Missing(f"{path} has {begin + len(data)} bytes, and {end} were written")
        if data[-1:] not in (b"\n", b""):
            raise ValueError(f"{path} does not end a line at byte {end}")
        its = [(mark, one.size - begin) for mark, one in added if start < one.count <= stop]
        spans = pairwise([0, *(end for _, end in its)])
        return [
            Batch(mark, data[slice(*span)].removesuffix(b"\n"))
            for (mark, _), span in zip(its, spans, strict=True)
        ]

    def _find_heads(
        self, *, project: str | None = None, session: str | None = None
    ) -> list[tuple[str, bytes]]:
        if not self._is_ready():
            return []
        if project is not None:
            folders = _folders(self._layout.project(project))
        else:
            folders = [one / name_of(session or "") for one in _folders(self._folder)]
        return list(_heads_in(folders))

    def _list_projects(self) -> list[str]:
        projects = _folders(self._folder) if self._is_ready() else []
        listed = (islice(self._listed(_heads_in(_folders(project))), 1) for project in projects)
        return [restored(head.project) for its in listed for head, _ in its]

    def _decode_head(self, data: bytes) -> Head:
        return msgspec.json.decode(data, type=_Record).head

    # Writing.

    def _replace(self, session: Place, change: Change, version: _Version) -> _Version:
        self._make_ready()
        with locked(self._layout.lock(session), wait=self._patience):
            raise_if_abandoned()
            path = self._layout.log(session)
            # Of a log that is damaged, too.
            log = _Log.read(path) if change.head.parts or change.head.summary else None
            last = _last_record(path) if log is None else log.last
            if _Version(last, self._read_lease(session)) != version:
                raise Conflict
            if change.head.lease != change.before.lease:
                return version._replace(lease=self._write_lease(session, change.head.lease))
            if log is not None:
                return version._replace(record=self._write_record(session, change, log))
            folder = self._layout.session(session)
            # In one step: no half of a session is left. If a lease alone is damaged, there may be no session.
            with suppress(FileNotFoundError):
                folder.rename(self._layout.deleted(uuid4().hex))
                sync_folder(folder.parent)
            if change.head.lease is None:
                self._write_lease(session, None)
        # What others did not come to remove is removed too.
        for gone in self._folder.glob(self._layout.deleted("*").name):
            with suppress(OSError):
                remove_folder(gone)
        return version._replace(record=b"")

    def _write_lease(self, session: Place, lease: KeptLease | None) -> bytes:
        path, data = self._layout.lease(session), b"" if lease is None else msgspec.json.encode(lease)
        if data:
            replace_file(path, data)
        else:
            path.unlink(missing_ok=True)
        return data

    def _write_record(self, session: Place, change: Change, log: _Log) -> bytes:
        path, record = self._layout.log(session), _Record(replace(change.head, lease=None), change.name)
        place = session._replace(subpath=Place.subpath_of(restored(change.name)))
        if not log.end:
            make_folder(self._layout.project(session.project))
            make_folder(self._layout.session(session))
        entries, added = self._layout.entries(place), b""
        if change.batch is not None:
            record.mark, before = change.batch.mark, change.before.parts.get(change.name)
            if before is None:
                make_folder(entries.parent)
                make_new(entries)
            if change.batch.data:
                added, record.start = change.batch.data + b"\n", before.size if before else 0
                record.checksum, record.boot = crc32(added), boot()
        if not log.end:
            make_new(path)
        data = msgspec.json.encode(record)
        # A head with all parts when the lines since the last one are as long as it.
        if record.mark and len(change.head.parts) > 1 and 0 < log.size < 2 * len(data):
            record.head = replace(record.head, parts={change.name: change.head.parts[change.name]})
            record.back = len(log.records)
            data = msgspec.json.encode(record)
        with put(entries, record.start, added) if added else nullcontext() as number:
            if number is not None and not record.boot:
                # One after the other, where a loss of power could not be told from damage.
                sync(number)
            with put(path, log.end, data + b"\n") as log_number:
                if number is not None and record.boot:
                    # Both together: the system writes much of it once.
                    sync(number)
                sync(log_number)
        for name, _ in change.gone:
            its = session._replace(subpath=Place.subpath_of(restored(name)))
            self._layout.entries(its).unlink(missing_ok=True)
        return data

    # The rest.

    @property
    def _address(self) -> Hashable:
        return "file", self._folder

    def _close(self) -> None:
        """Nothing is open between calls."""

    def _explain(self, error: Exception) -> Explained | None:
        if isinstance(error, TimeoutError) and error.errno is None:
            return str(error), True, WAIT_LONGER
        return explain_os_error(error) if isinstance(error, OSError) else None

    def _is_ready(self) -> bool:
        """Whether there is a store. Raises `StoreError` if there is something else, or a newer one."""
        try:
            marker = self._layout.marker.read_bytes()
        except FileNotFoundError:
            if any(not name.startswith(".") for name in _names(self._folder)) and not (
                # Another process may have made the store since.
                self._layout.marker.exists()
            ):
                raise StoreError(
                    self._name, "open", "the folder holds something else", hint="Give an empty folder."
                ) from None
            return False
        try:
            version: object = cast("dict[str, object]", decode(marker)).get("format")
        except ValueError as error:
            raise ValueError(f"{self._layout.marker} is damaged: {error}") from error
        check_version(self._name, "its files are", version, _FORMAT, "folder")
        return True

    def _make_ready(self) -> None:
        if not self._is_ready():
            make_folder(self._folder)
            replace_file(self._layout.marker, encode({"format": _FORMAT}))
        for folder in (self._layout.locks, self._layout.leases):
            make_folder(folder)


def _decoded(path: Path, data: bytes, kind: type[T]) -> T:
    try:
        return msgspec.json.decode(data, type=kind)
    except ValueError as error:
        raise ValueError(f"{path} is damaged: {error}") from error


def _heads_in(folders: Iterable[Path]) -> Iterator[tuple[str, bytes]]:
    """The records with the heads of the sessions in these folders: without their leases, and perhaps without
    most of their parts."""
    for folder in folders:
        if record := _last_record(folder / _LOG):
            yield f"{folder.parent.name}/{folder.name}", record


def _last_record(log: Path) -> bytes:
    lines, _ = _read_log(log, bool)
    return lines[-1] if lines else b""


def _read_log(path: Path, has_enough: Callable[[list[bytes]], bool]) -> tuple[list[bytes], int]:
    """As `read_lines`, without a last record whose batch was lost with the power of the machine."""
    lines, end = read_lines(path, has_enough)
    if not lines or not _is_lost(path, lines[-1]):
        return lines, end
    lines, whole = read_lines(path, lambda found: len(found) > 1 and has_enough(found[:-1]))
    return (lines[:-1], whole - len(lines[-1]) - 1) if whole == end else _read_log(path, has_enough)


def _is_lost(log: Path, line: bytes) -> bool:
    if b'"boot"' not in line or boot().encode() in line:
        return False
    try:
        record = msgspec.json.decode(line, type=_Record)
        part = record.head.parts[record.name]
        with opened(_entries_in(log.parent, Place.subpath_of(restored(record.name))), os.O_RDONLY) as number:
            return crc32(read(number, record.start, part.size)) != record.checksum
    except FileNotFoundError:
        return True
    except (ValueError, LookupError):
        # Damaged, which its reader says.
        return False


def _names(folder: Path) -> list[str]:
    try:
        return os.listdir(folder)  # noqa: PTH208 - names only
    except FileNotFoundError:
        return []


def _folders(folder: Path) -> list[Path]:
    try:
        with os.scandir(folder) as found:
            return [Path(one.path) for one in found if one.is_dir() and not one.name.startswith(".")]
    except FileNotFoundError:
        return []

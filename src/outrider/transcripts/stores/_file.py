"""Defines `FileStore`, a session store in a folder.

A transcript is two files: the entries, one per line, and a log of what was added. The log is authoritative:
entries beyond the size in its last record were never acknowledged.
"""

from __future__ import annotations

import errno
import fcntl
import os
import re
import time
from collections import OrderedDict
from contextlib import ExitStack, contextmanager, suppress
from hashlib import sha256
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Final, cast
from urllib.parse import unquote_to_bytes
from uuid import uuid4

from msgspec import convert
from msgspec.structs import asdict

from outrider._folders import remove_folder, replace_file, sync_folder
from outrider.errors import StoreError
from outrider.transcripts._describe import fold_session_summary
from outrider.transcripts.stores._base import (
    RESTORE,
    WAIT_LONGER,
    Lease,
    LeaseTime,
    Line,
    Place,
    check_version,
    decode,
    encode,
    explain_os_error,
    fresh_lines,
    later,
    to_bytes,
    to_text,
)
from outrider.transcripts.stores._blocking import (
    DEFAULT_TIMEOUT,
    BlockingStore,
    Explained,
    Listed,
    raise_if_abandoned,
)
from outrider.transcripts.stores._urls import SECONDS, absolute_path, local_path, take_parameters

if TYPE_CHECKING:
    from collections.abc import Callable, Generator
    from typing import Self

    from outrider.transcripts.stores._base import SessionStoreEntry, SessionSummaryEntry


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


def make_folder(path: Path) -> None:
    """Make a folder that only its owner can read, unless it is there; its parent has to be."""
    try:
        path.mkdir(0o700)
    except FileExistsError:
        return
    sync_folder(path.parent)


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


# File names.

_LONGEST: Final = 200
"""Bytes of a name; most file systems allow 255, and an ending is added."""
_CUT: Final = "~"
"""Stands before the checksum of a long text; no other name has it."""
_EMPTY: Final = "%"

_ESCAPED: Final = re.compile(rb"[^a-z0-9_.\-]|^\.|\.$")


def name_of(text: str) -> str:
    """The file name of a text: another one for each, also where upper and lower case, or two spellings of an
    accent, are the same. `text_of` undoes it, but for long ones."""
    data = to_bytes(text)
    name = _ESCAPED.sub(lambda found: b"%%%02x" % found[0][0], data).decode()
    if len(name) > _LONGEST:
        return f"{name[:100]}{_CUT}{sha256(data).hexdigest()}"
    return name or _EMPTY


def text_of(name: str) -> str | None:
    """The text of a file name; None if it was too long to be in it, or if it is no such name."""
    if name == _EMPTY:
        return ""
    try:
        text = to_text(unquote_to_bytes(name))
    except UnicodeDecodeError:
        return None
    return text if text and name_of(text) == name else None


class Layout:
    """The files of a store in a folder.

    `PROJECT/SESSION/main.jsonl` is a transcript, `PROJECT/SESSION/parts/SUBPATH.jsonl` a part of it, each
    with a `.log` of what was added when. What begins with a dot is the store's own.
    """

    def __init__(self, root: Path) -> None:
        self.root = root
        self.marker = root / "outrider.json"
        self.locks = root / ".locks"
        self.leases = root / ".leases"

    def deleted(self, name: str) -> Path:
        """Where a session is put that is about to be removed."""
        return self.root / f".deleted-{name}"

    def project(self, project: str) -> Path:
        return self.root / name_of(project)

    def session(self, place: Place) -> Path:
        return self.project(place.project) / name_of(place.session)

    def transcript(self, place: Place) -> Path:
        """Without an ending."""
        session = self.session(place)
        return session / "main" if place.subpath is None else session / "parts" / name_of(place.subpath)

    def summary(self, place: Place) -> Path:
        return self.session(place) / "summary.json"

    def lock(self, place: Place) -> Path:
        return self.locks / f"{_checksum(place)}.lock"

    def lease(self, place: Place) -> Path:
        return self.leases / f"{_checksum(place)}.json"


def _checksum(place: Place) -> str:
    # Not a name: these are needed where the session is not there, or not any more.
    return sha256(to_bytes(repr((place.project, place.session)))).hexdigest()[:40]


# The store.


_MOST_INDEXES: Final = 64
"""Transcripts of which it is remembered what is in them; others are read again at the next append."""


class FileStore(BlockingStore):
    """Stores sessions in a folder, which is created on first use; only its owner can read it.

    `PROJECT/SESSION/main.jsonl` has the entries of a session, and `PROJECT/SESSION/parts/` those of its
    parts. Other programs may read these files, but must not write to them. Several processes may use the
    folder at once, also on several machines if the file system supports locks between them (`flock`). What
    was acknowledged survives a power loss.
    """

    def __init__(self, folder: str | os.PathLike[str], *, timeout: float | None = DEFAULT_TIMEOUT) -> None:
        """`timeout` is how many seconds a call may take, the wait for other writers included."""
        self._folder = absolute_path(os.fspath(folder), "a folder", "Give the path of a folder.")
        super().__init__(f"file://{self._folder}", timeout=timeout)
        self._layout = Layout(self._folder)
        self._indexes: OrderedDict[Place, Index] = OrderedDict()
        self._guard = Lock()
        self._latest = 0

    @classmethod
    def from_url(cls, url: str) -> Self:
        """`file:///absolute/path`, with `?timeout=seconds`."""
        url, given = take_parameters(url, {"timeout": SECONDS})
        return cls(f"/{local_path(url)}", **given)

    @property
    def folder(self) -> Path:
        """Where the files are."""
        return self._folder

    # Writing.

    def _append(self, place: Place, lines: list[Line], batch: str | None) -> None:
        with self._writing(place):
            transcript = Transcript(self._layout.transcript(place))
            index = transcript.index(self._taken_index(place))
            if index is None:
                self._make_folders(place)
                if place.subpath is None:
                    self._layout.summary(place).unlink(missing_ok=True)
                index = transcript.create(place)
            if batch is None or batch not in index.batches:
                fresh = [line for line, _ in fresh_lines(lines, index.uuids, str)]
                if fresh or batch is not None:
                    before = index.size
                    transcript.add(index, fresh, batch)
                    if fresh and place.subpath is None:
                        self._summarise(place, index, before, fresh)
            self._keep_index(place, index)

    def _delete(self, place: Place) -> None:
        with self._writing(place):
            if place.subpath is not None:
                self._taken_index(place)
                Transcript(self._layout.transcript(place)).remove()
                return
            session = self._layout.session(place)
            if not session.exists():
                return
            # In one step: no half of a session is left.
            session.rename(self._layout.deleted(uuid4().hex))
            sync_folder(session.parent)
        # What others did not come to remove is removed too.
        for gone in self._folder.glob(self._layout.deleted("*").name):
            with suppress(OSError):
                remove_folder(gone)

    def _change_lease(self, session: Place, change: Callable[[Lease | None], Lease | None]) -> None:
        path = self._layout.lease(session)
        with self._locked(session):
            kept = self._lease(session)
            lease = change(kept)
            if lease is None:
                path.unlink(missing_ok=True)
            elif lease is not kept:
                told = {
                    "token": lease.token,
                    "holder": lease.holder,
                    **asdict(LeaseTime.of(lease.seconds)),
                }
                replace_file(path, encode(told))

    # Reading.

    def _load(self, place: Place) -> list[SessionStoreEntry] | None:
        transcript = Transcript(self._layout.transcript(place))
        if not self._is_ready() or not transcript.entries.exists():
            return None
        with self._reading(place):
            index = transcript.index(None, uuids=False)
            return None if index is None else transcript.load(0, index.size)

    def _list_sessions(self, project: str, *, summaries: bool) -> list[Listed]:
        if not self._is_ready():
            return []
        found = (self._summary(project, folder) for folder in _folders(self._layout.project(project)))
        return [
            (one["session_id"], one["mtime"], encode(one["data"]) if summaries else None)
            for one in found
            if one is not None
        ]

    def _list_subkeys(self, session: Place) -> list[str]:
        if not self._is_ready():
            return []
        parts = self._layout.session(session) / "parts"
        with self._reading(session):
            stems = [path.with_suffix("") for path in parts.glob("*.jsonl")] if parts.exists() else []
            places = [transcript.place() for stem in stems if (transcript := Transcript(stem)).is_there()]
        return [place.subpath for place in places if place is not None and place.subpath is not None]

    def _list_projects(self) -> list[str]:
        if not self._is_ready():
            return []
        found = (self._project(folder) for folder in _folders(self._folder))
        return [project for project in found if project is not None]

    def _find_session(self, session_id: str) -> list[str]:
        name = name_of(session_id)
        found: list[str] = []
        for project in self._list_projects():
            folder = self._layout.project(project) / name
            if folder.exists() and self._summary(project, folder) is not None:
                found.append(project)
        return found

    # The rest.

    def _close(self) -> None:
        with self._guard:
            self._indexes.clear()

    def _forget(self) -> None:
        self._guard = Lock()
        self._indexes = OrderedDict()

    def _explain(self, error: Exception) -> Explained | None:
        if isinstance(error, Damaged):
            return str(error), False, RESTORE
        if isinstance(error, TimeoutError) and error.errno is None:
            return str(error), True, WAIT_LONGER
        return explain_os_error(error) if isinstance(error, OSError) else None

    @contextmanager
    def _locked(self, place: Place, *, shared: bool = False) -> Generator[None]:
        self._make_ready()
        with locked(self._layout.lock(place), shared=shared, wait=self._patience):
            raise_if_abandoned()
            yield

    @contextmanager
    def _reading(self, place: Place) -> Generator[None]:
        with ExitStack() as stack:
            try:
                stack.enter_context(self._locked(place, shared=True))
            except OSError as error:
                # Who may only read does so without a lock. What was acknowledged is not changed.
                if error.errno not in (errno.EACCES, errno.EPERM, errno.EROFS):
                    raise
            yield

    @contextmanager
    def _writing(self, place: Place) -> Generator[None]:
        with self._locked(place):
            self._check_lease(place, self._lease(place))
            yield

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
            raise Damaged(f"{self._layout.marker} is damaged: {error}") from error
        check_version(self._name, "its files are", version, _FORMAT, "folder")
        return True

    def _make_ready(self) -> None:
        if not self._is_ready():
            make_folder(self._folder)
            replace_file(self._layout.marker, encode({"format": _FORMAT}))
        for folder in (self._layout.locks, self._layout.leases):
            make_folder(folder)

    def _make_folders(self, place: Place) -> None:
        make_folder(self._layout.project(place.project))
        make_folder(self._layout.session(place))
        if place.subpath is not None:
            make_folder(self._layout.transcript(place).parent)

    def _taken_index(self, place: Place) -> Index | None:
        # Taken out: if the append fails, it is read anew.
        with self._guard:
            return self._indexes.pop(place, None)

    def _keep_index(self, place: Place, index: Index) -> None:
        with self._guard:
            self._indexes[place] = index
            if len(self._indexes) > _MOST_INDEXES:
                self._indexes.popitem(last=False)

    # Leases.

    def _lease(self, place: Place) -> Lease | None:
        path = self._layout.lease(place)
        try:
            lease = cast("dict[str, object]", decode(path.read_bytes()))
        except FileNotFoundError:
            return None
        except ValueError as error:
            raise Damaged(f"{path} is damaged: {error}") from error
        token, holder = lease.get("token"), lease.get("holder")
        try:
            # What older versions have written has the end alone.
            when = convert(lease, LeaseTime)
        except ValueError as error:
            raise Damaged(f"{path} is damaged: {error}") from error
        if not (isinstance(token, str) and isinstance(holder, str)):
            raise Damaged(f"{path} is damaged: it has no token, holder and end")
        return Lease(token, holder, when.left)

    # Summaries: what is missing of them is read from the entries.

    def _summarise(self, place: Place, index: Index, before: int, fresh: list[Line]) -> None:
        known = self._read_summary(place)
        if known is None or (known["id"], known["size"]) != (index.id, before):
            previous = self._caught_up(place, index, before)
        else:
            previous = _public(place.session, known)
        summary = fold_session_summary(previous, place.key, [line.entry for line in fresh])
        with self._guard:
            self._latest = later(max(self._latest, summary["mtime"]))
            mtime = self._latest
        kept = {"id": index.id, "size": index.size, "mtime": mtime, "data": summary["data"]}
        try:
            replace_file(self._layout.summary(place), encode(kept), is_synced=False)
        except OSError:
            # The entries are stored: this must not look as if they were not.
            return

    def _caught_up(self, place: Place, index: Index, size: int) -> SessionSummaryEntry | None:
        """The summary of the first so many bytes of a transcript."""
        if not size:
            return None
        transcript = Transcript(self._layout.transcript(place))
        known = self._read_summary(place)
        if known is None or known["id"] != index.id or not 0 < cast("int", known["size"]) <= size:
            summary = fold_session_summary(None, place.key, transcript.load(0, size))
        else:
            start = cast("int", known["size"])
            summary = fold_session_summary(
                _public(place.session, known), place.key, transcript.load(start, size)
            )
        written = transcript.entries.stat().st_mtime_ns // 1_000_000
        summary["mtime"] = max(summary["mtime"], written)
        return summary

    def _summary(self, project: str, folder: Path) -> SessionSummaryEntry | None:
        """The summary of a session; None if it has no main transcript."""
        transcript = Transcript(folder / "main")
        try:
            size = transcript.entries.stat().st_size
            session = text_of(folder.name)
            place = transcript.place() if session is None else Place(project, session)
        except FileNotFoundError:
            return None
        if place is None or not size:
            return None
        known = self._read_summary(place)
        if known is not None and known["size"] == size:
            return _public(place.session, known)
        with self._reading(place):
            index = transcript.index(None, uuids=False)
            return None if index is None else self._caught_up(place, index, index.size)

    def _read_summary(self, place: Place) -> dict[str, object] | None:
        """None if it is not there, or not whole, as after a loss of power: it can be made again."""
        try:
            known = cast("dict[str, object]", decode(self._layout.summary(place).read_bytes()))
        except (OSError, ValueError):
            return None
        whole = {"id": str, "size": int, "mtime": int, "data": dict}
        return known if all(isinstance(known.get(name), kind) for name, kind in whole.items()) else None

    def _project(self, folder: Path) -> str | None:
        """The project that a folder is of; None if it has no session."""
        named = text_of(folder.name)
        for session in _folders(folder):
            place = Transcript(session / "main").place() if named is None else None
            project = named if place is None else place.project
            if project is not None and self._summary(project, session) is not None:
                return project
        return None


def _public(session: str, known: dict[str, object]) -> SessionSummaryEntry:
    return {
        "session_id": session,
        "mtime": cast("int", known["mtime"]),
        "data": cast("dict[str, object]", known["data"]),
    }


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

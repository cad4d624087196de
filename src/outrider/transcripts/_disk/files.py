"""Finds Claude Code's session files, and reads and writes them while it may write, too. All of it blocks."""

from __future__ import annotations

import errno
import os
import re
import stat
import time
import unicodedata
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, Final
from uuid import uuid4

import msgspec

from outrider._folders import make_folders, opened, remove_folder, replace_file, sync_folder
from outrider.errors import OptionsError, SessionExists, SessionNotFound, TranscriptError
from outrider.transcripts._describe import now
from outrider.transcripts._entries import to_line
from outrider.transcripts._values import checked_id

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from typing import Self

    from outrider.transcripts._values import Bundle
    from outrider.wire import JsonObject


_LONGEST_KEY: Final = 200
_DIGITS: Final = "0123456789abcdefghijklmnopqrstuvwxyz"


def config_folder(environ: Mapping[str, str]) -> Path:
    """The configuration folder of a program with these variables."""
    given = environ.get("CLAUDE_CONFIG_DIR")
    if given:
        return Path(unicodedata.normalize("NFC", given))
    home = environ.get("HOME") or environ.get("USERPROFILE")
    return (Path(home) if home else Path.home()) / ".claude"


def project_folder(config: Path, cwd: str | os.PathLike[str]) -> Path:
    """Where the sessions are that were started in a folder."""
    return config / "projects" / project_key(cwd)


def project_key(cwd: str | os.PathLike[str]) -> str:
    """The name that stands for a folder, made from its real path."""
    try:
        path = os.path.realpath(cwd)
    except ValueError:
        # No folder can have this name, but a line of a transcript may say so.
        path = os.path.join(os.getcwd(), cwd)  # noqa: PTH109, PTH118
    return key_of_path(unicodedata.normalize("NFC", path))


def key_of_path(path: str) -> str:
    """A path with a dash for all but letters and digits.

    A long one is cut, and ends in a checksum. Both are counted in UTF-16 units, as the program does.
    """
    units = path.encode("utf-16-le", "surrogatepass")
    codes = [int.from_bytes(units[index : index + 2], "little") for index in range(0, len(units), 2)]
    key = re.sub(r"[^a-zA-Z0-9]", "-", "".join(chr(code) for code in codes))
    return key if len(key) <= _LONGEST_KEY else f"{key[:_LONGEST_KEY]}-{_checksum(codes)}"


def is_same_project(name: str, key: str) -> bool:
    """Whether a folder of this name may hold the sessions of the project with this key. The checksum at the
    end of a long key depends on the runtime that the program was built with; what comes before it does
    not."""
    if name == key:
        return True
    cut = key[: _LONGEST_KEY + 1]
    return len(key) > _LONGEST_KEY and cut.endswith("-") and name.startswith(cut)


def has_sessions(folder: Path) -> bool:
    """Whether a project's folder holds a session that has something in it."""
    try:
        with os.scandir(folder) as entries:
            return any(entry.name.endswith(".jsonl") and entry.stat().st_size for entry in entries)
    except OSError:
        return False


def check_can_continue(config: Path, cwd: str | os.PathLike[str]) -> None:
    """Raise `SessionNotFound` if there is no session of this folder to continue: the program would begin a
    new one, and not say so."""
    folder = project_folder(config, cwd)
    if not has_sessions(folder):
        raise SessionNotFound(
            "the latest",
            searched=[str(folder)],
            message=f"there is no session to continue in {os.fspath(cwd)}",
        )


def _checksum(codes: list[int]) -> str:
    number = 0
    for code in codes:
        number = (number * 31 + code) & 0xFFFFFFFF
    number = abs(number - (1 << 32) if number & 0x80000000 else number)
    digits = ""
    while True:
        number, digit = divmod(number, 36)
        digits = _DIGITS[digit] + digits
        if not number:
            return digits


# Names.

_UNSAFE: Final = re.compile(r'[\x00-\x1f\x7f\\:*?"<>|]')
"""What ends a name, leads elsewhere or names a stream, on one system or another."""

_DEVICES: Final = re.compile(r"(?i:con|prn|aux|nul|com\d|lpt\d)(?:\..*)?")
"""Not files on Windows, in whichever folder they are."""

_LONGEST: Final = 240


def check_subpath(subpath: object) -> str:
    """The name of a part of a session, such as `subagents/agent-a1`. Raises `OptionsError` for one that could
    be a file outside of the session's folder."""
    if not isinstance(subpath, str) or not all(_is_name(name) for name in subpath.split("/")):
        raise OptionsError(
            f"{subpath!r} cannot be a part of a session",
            hint="A part is named by a path within the session's folder, such as 'subagents/agent-a1'.",
        )
    return subpath


def check_project_key(key: object) -> str:
    """The name of a project. Raises `OptionsError` for one that could be a folder somewhere else."""
    if not isinstance(key, str) or "/" in key or not _is_name(key):
        raise OptionsError(
            f"{key!r} cannot be a project's name", hint="Give the folder of the project as `project`."
        )
    return key


def _is_name(name: str) -> bool:
    try:
        size = len(name.encode())
    except UnicodeEncodeError:
        return False
    is_plain = bool(name) and size <= _LONGEST and not name.endswith((".", " "))
    return is_plain and not _UNSAFE.search(name) and not _DEVICES.fullmatch(name)


def worktrees(folder: str | os.PathLike[str]) -> list[str]:
    """The folders of all worktrees of the repository that a folder is in; none if it is in no repository."""
    # Here: what reads repositories is large, and few programs that open sessions need it.
    from outrider._git import find_repository

    try:
        repository = find_repository(folder)
    except (OSError, ValueError):
        return []
    found = [] if repository is None else repository.worktrees()
    return [unicodedata.normalize("NFC", each) for each in found]


SUFFIX: Final = ".jsonl"

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_NAME: Final = re.compile(r"([0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12})\.jsonl")

# A FIFO must not be waited for; the others are what Python's own `open` does.
_READING: Final = (
    os.O_RDONLY
    | getattr(os, "O_NONBLOCK", 0)
    | getattr(os, "O_CLOEXEC", 0)
    | getattr(os, "O_NOCTTY", 0)
    | getattr(os, "O_BINARY", 0)
)


class SessionFile(msgspec.Struct, frozen=True, kw_only=True):
    session_id: str
    project: str
    """The key of the project: the name of the folder that the file is in."""
    path: Path
    """Its main transcript."""

    @property
    def folder(self) -> Path:
        """Its other files, those of subagents for one; it need not be there."""
        return self.path.with_suffix("")


class Found(msgspec.Struct, frozen=True, gc=False):
    """A file that looks like a session's, not opened yet."""

    mtime_ns: int
    size: int
    session_id: str
    folder: str
    name: str

    @classmethod
    def of(cls, file: SessionFile) -> Self:
        """A file that is known, looked at again. Raises `OSError`."""
        status = file.path.stat()
        return cls(status.st_mtime_ns, status.st_size, file.session_id, str(file.path.parent), file.path.name)

    @property
    def last_modified(self) -> datetime:
        return _EPOCH + timedelta(microseconds=self.mtime_ns // 1000)

    @property
    def file(self) -> SessionFile:
        folder = Path(self.folder)
        return SessionFile(session_id=self.session_id, project=folder.name, path=folder / self.name)


def sessions_in(folder: str | os.PathLike[str]) -> Iterator[Found]:
    """The files of sessions in a project's folder, in any order. What cannot be looked at is left out, and so
    are empty files: the program makes them before it has anything to say."""
    place = os.fspath(folder)
    try:
        entries = os.scandir(place)
    except OSError:
        return
    # All at once, so that a caller who stops halfway leaves nothing open.
    with entries:
        listed = list(entries)
    for entry in listed:
        session_id = session_id_of(entry.name)
        if session_id is None:
            continue
        try:
            status = entry.stat()
        except OSError:
            continue
        if status.st_size and stat.S_ISREG(status.st_mode):
            yield Found(status.st_mtime_ns, status.st_size, session_id, place, entry.name)


def session_id_of(name: str) -> str | None:
    """The id of the session whose main transcript has this name; None for other files."""
    found = _NAME.fullmatch(name)
    return found[1].lower() if found else None


def open_file(path: str | os.PathLike[str], buffering: int = -1) -> BinaryIO:
    """Open a file to read it; waits for nothing. Raises `OSError`, also for what is not a regular file."""
    number = os.open(path, _READING)
    try:
        if not stat.S_ISREG(os.fstat(number).st_mode):
            raise OSError(None, "not a regular file", os.fspath(path))
        return open(number, "rb", buffering)  # noqa: PTH123 - opened already
    except BaseException:
        os.close(number)
        raise


# Parts of a session.

METADATA: Final = ".meta.json"
"""Ends the name of the file with a subagent's metadata."""

_AGENT: Final = "agent-"
_DEEPEST: Final = 16
"""Folders within each other; the program has two."""


def part_files(file: SessionFile, *, strict: bool = False) -> Iterator[tuple[str, Path]]:
    """The other transcripts of a session and their metadata, by subpath: without the end of the name. Links
    are not followed: they lead to what is not the session's. Transcripts that are links, and folders that may
    not be read, are left out, or raise an `OSError` if `strict`."""
    pending: list[tuple[str, ...]] = [()]
    while pending:
        above = pending.pop()
        place = file.folder.joinpath(*above)
        names, folders = _entries(place, strict=strict)
        for name in names:
            for end in (SUFFIX, METADATA):
                if name.endswith(end) and len(name) > len(end):
                    yield "/".join((*above, name.removesuffix(end))), place / name
        if len(above) < _DEEPEST:
            pending += [(*above, name) for name in reversed(folders)]


def _entries(folder: Path, *, strict: bool) -> tuple[list[str], list[str]]:
    """The names of what is in a folder and is not a folder itself, and of what is."""
    names: list[str] = []
    folders: list[str] = []
    try:
        refuse_link(folder)
        with os.scandir(folder) as found:
            for entry in sorted(found, key=lambda entry: entry.name):
                if entry.is_symlink():
                    if strict and entry.name.endswith((SUFFIX, METADATA)):
                        refuse_link(Path(entry.path))
                else:
                    (folders if entry.is_dir() else names).append(entry.name)
    except OSError as error:
        if strict and not isinstance(error, FileNotFoundError | NotADirectoryError):
            raise
    return names, folders


def refuse_link(path: Path) -> None:
    """Raise `OSError` if there is a link."""
    if path.is_symlink():
        raise OSError(errno.ELOOP, "It is a link, which may lead anywhere", str(path))


def agent_files(file: SessionFile) -> dict[str, Path]:
    """The transcripts of the subagents of a session, by their ids."""
    return {
        path.name.removesuffix(SUFFIX).removeprefix(_AGENT): path
        for subpath, path in part_files(file)
        if path.name.endswith(SUFFIX) and path.name.startswith(_AGENT) and subpath.startswith("subagents/")
    }


# Lines.

_END: Final = 1 << 16
"""This much of each end is enough for a list: the program repeats title and tag after each turn."""
_LONGEST_LINE: Final = 1 << 25
"""A longer one at the beginning is not read to its end."""
_LONGEST_KEPT: Final = 1 << 28
"""A line that is longer is left out: it would take all memory, and the program writes none like it."""
_BUFFER: Final = 1 << 20


class Ends:
    """The whole lines at both ends of a file; all of them if it is small."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._size = os.fstat(file.fileno()).st_size
        head = file.read(2 * _END if self._size <= 2 * _END else _END)
        self._is_all = self._size <= 2 * _END
        cut = len(head) if self._is_all else head.rfind(b"\n") + 1
        self.head: list[bytes] = head[:cut].split(b"\n")
        self._cut_off = head[cut:]

    def next_line(self) -> bytes:
        """The line that the head ends in: a long prompt may well be the first. Empty if there is none, and if
        it is longer than any prompt."""
        if self._is_all:
            return b""
        self._file.seek(_END)
        pieces = [self._cut_off]
        size = len(self._cut_off)
        while size < _LONGEST_LINE and (piece := self._file.read(4 * _END)):
            end = piece.find(b"\n")
            pieces.append(piece if end < 0 else piece[:end])
            if end >= 0:
                return b"".join(pieces)
            size += len(piece)
        return b""

    def tail(self) -> list[bytes]:
        """The lines at the end, without those of the head."""
        if self._is_all:
            return []
        # One byte more: a line may begin exactly here.
        self._file.seek(self._size - _END - 1)
        tail = self._file.read(_END + 1)
        start = tail.find(b"\n")
        return tail[start + 1 :].split(b"\n") if start >= 0 else []


def lines(file: BinaryIO) -> Iterator[bytes]:
    """All lines that are not empty, first to last."""
    for chunk in chunks(file):
        yield from (line for line in chunk.split(b"\n") if 0 < len(line) < _LONGEST_KEPT)


def chunks(file: BinaryIO) -> Iterator[bytes]:
    """All lines, many at a time: each chunk ends where a line does. One that is left out is an empty line."""
    left = os.fstat(file.fileno()).st_size
    kept: list[bytes] = []
    is_left_out = False
    while left > 0 and (piece := file.read(min(left, _BUFFER))):
        left -= len(piece)
        if is_left_out:
            start = piece.find(b"\n")
            if start < 0:
                continue
            piece, is_left_out = piece[start:], False
        end = piece.rfind(b"\n") + 1
        if end:
            yield b"".join([*kept, piece[:end]])
            kept = []
        kept.append(piece[end:])
        if sum(map(len, kept)) > _LONGEST_KEPT:
            kept, is_left_out = [], True
    if any(kept):
        yield b"".join(kept)


def backwards(file: BinaryIO) -> Iterator[list[bytes]]:
    """The lines from the end of a file to its beginning, some at a time, and more each time; each list is in
    the order of the file."""
    place = os.fstat(file.fileno()).st_size
    size = _END
    kept: list[bytes] = []
    """The end of a line whose beginning is not read yet, last piece first."""
    is_left_out = False
    while place > 0:
        size = min(size, place)
        place -= size
        file.seek(place)
        piece = file.read(size)
        if is_left_out:
            end = piece.rfind(b"\n") + 1
            piece, is_left_out = piece[:end], not end
        start = 0 if not place else piece.find(b"\n") + 1
        if place and not start:
            kept.append(piece)
            if sum(map(len, kept)) > _LONGEST_KEPT:
                kept, is_left_out = [], True
        else:
            whole = b"".join([piece[start:], *reversed(kept)])
            kept = [piece[:start]]
            yield whole.split(b"\n")
        size = min(2 * size, _LONGEST_KEPT)


_BINARY: Final = getattr(os, "O_BINARY", 0)
_CLOSED_IN_CHILDREN: Final = getattr(os, "O_CLOEXEC", 0)
_NOWHERE_ELSE: Final = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)
"""A link would lead to a file that is not a session's, and a pipe would be waited for."""
_FLAGS: Final = _BINARY | _CLOSED_IN_CHILDREN | _NOWHERE_ELSE
_ATTEMPTS: Final = 3
"""How often a line is written that came to stand after half of another."""
_LOOKS: Final = 5
_LOOK_SECONDS: Final = 0.002
"""For a line to be there as a whole that someone else is writing."""
_NO_LINKS: Final = (errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK, errno.EXDEV)
"""What a file system says that has no hard links."""
_IN_ONE_WRITE: Final = 1 << 20


def append(file: SessionFile, entries: Sequence[JsonObject]) -> None:
    """Add entries to the end of a session, each a whole line; other writers' lines stay whole as well. Raises
    `SessionNotFound` if the file is not there (any more): it is not made again. Raises `TranscriptError` if
    it cannot be written to."""
    data = b"".join(_line(entry) for entry in entries)
    if not data:
        return
    try:
        # Not O_CREAT: a session that was deleted meanwhile stays so.
        number = os.open(file.path, os.O_RDWR | os.O_APPEND | _FLAGS)
    except FileNotFoundError:
        raise SessionNotFound(file.path.stem, searched=[str(file.path.parent)]) from None
    except OSError as error:
        raise _failed(file.path, error) from error
    try:
        for _ in range(_ATTEMPTS):
            if _append_once(number, file.path, data):
                return
        raise TranscriptError(
            f"{file.path} could not be appended to: its last line is cut off each time",
            hint="End what writes to it, and try again.",
            session_id=file.path.stem,
        )
    except OSError as error:
        raise _failed(file.path, error) from error
    finally:
        os.close(number)


def archive(file: SessionFile, *, archived: bool) -> None:
    """Note that a session is archived, or is not any more. Raises as `append` does."""
    folder = file.path.with_suffix("")
    note: JsonObject = {"archived": archived, "at": now(), "by": "sdk"}
    try:
        if not file.path.exists():
            raise SessionNotFound(file.path.stem, searched=[str(file.path.parent)])
        refuse_link(folder)
        make_folders(folder)
        replace_file(folder / "archived.json", _line(note))
        if not file.path.exists():
            # It was deleted meanwhile: leave nothing of it.
            (folder / "archived.json").unlink(missing_ok=True)
            with suppress(OSError):
                folder.rmdir()
            raise SessionNotFound(file.path.stem, searched=[str(file.path.parent)])
    except OSError as error:
        raise _failed(folder, error) from error


def delete(file: SessionFile) -> None:
    """Remove a session: the folder of its parts, then its file, so that what fails can be tried again. Raises
    `SessionNotFound` if there is none, and `TranscriptError` with what is left if not all could be
    removed."""
    folder = file.path.with_suffix("")
    if not file.path.exists():
        raise SessionNotFound(file.path.stem, searched=[str(file.path.parent)])
    try:
        remove_folder(folder)
        file.path.unlink(missing_ok=True)
    except OSError as error:
        left = dict.fromkeys((str(error.filename or folder), str(file.path)))
        raise TranscriptError(
            f"not all of the session was removed ({error.strerror or error}); left: {', '.join(left)}",
            hint="Make these writable, and delete it again.",
            session_id=file.path.stem,
        ) from error


def put(config: Path, bundle: Bundle, project_key: str) -> Path:
    """Write a new session; it is there at once and whole, or not at all. Returns the path of its file. Raises
    `SessionExists` if there is one of this id in the project, which is left as it is, `OptionsError` if a
    name in it would lead elsewhere, and `TranscriptError` if it cannot be written."""
    session_id = checked_id(bundle.session_id)
    folder = config / "projects" / check_project_key(project_key)
    parts = {check_subpath(subpath): part for subpath, part in bundle.parts.items() if part}
    path = folder / f"{session_id}.jsonl"
    place = path.with_suffix("")
    if os.path.lexists(path):
        raise SessionExists(session_id, where=folder)
    if os.path.lexists(place):
        # Its subagents would become those of the new one.
        raise SessionExists(session_id, where=place, hint="Remove this folder: it is what is left of one.")
    mark = uuid4().hex
    main, beside = folder / f".{session_id}.{mark}.tmp", folder / f".{session_id}.{mark}.parts.tmp"
    has_parts = False
    try:
        make_folders(folder)
        _write_new(main, _lines(bundle.entries))
        if parts:
            for subpath, part in parts.items():
                _put_part(beside, subpath, part)
            # Refused if it is there with something in it.
            _take_name(beside, place)
            has_parts = True
        _link(main, path)
        with suppress(OSError):
            sync_folder(folder)
    except BaseException as error:
        if has_parts:
            _take_back(place, parts)
        if isinstance(error, FileExistsError):
            raise SessionExists(session_id, where=folder) from None
        if isinstance(error, OSError):
            raise _failed(folder, error) from error
        raise
    finally:
        with suppress(OSError):
            main.unlink(missing_ok=True)
        with suppress(OSError):
            remove_folder(beside)
    return path


# Added lines.


def _append_once(number: int, path: Path, data: bytes) -> bool:
    """Add lines at the end, in one call; False if half a line of someone else came between."""
    if not _ends_whole(number):
        # What a run left that was killed.
        data = b"\n" + data
    written = os.write(number, data)
    # Where this call has written, whatever others have added since.
    end = os.lseek(number, 0, os.SEEK_CUR)
    start = end - written
    if written < len(data):
        _blank(path, start, written)
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    return start == 0 or data.startswith(b"\n") or _byte_at(number, start - 1) == b"\n"


def _ends_whole(number: int) -> bool:
    """Whether the last line is complete. One that is long can be seen while it grows: so look again."""
    for _ in range(_LOOKS):
        size = os.lseek(number, 0, os.SEEK_END)
        if not size or _byte_at(number, size - 1) == b"\n":
            return True
        time.sleep(_LOOK_SECONDS)
    return False


def _byte_at(number: int, place: int) -> bytes:
    os.lseek(number, place, os.SEEK_SET)
    return os.read(number, 1)


def _blank(path: Path, start: int, size: int) -> None:
    """Blank out a line that was only partly written: the next writer would continue it. Not cut off, as
    someone may have written after it. To write over what is there takes no room."""
    if not size:
        return
    with suppress(OSError), opened(path, os.O_WRONLY | _FLAGS) as number:
        os.lseek(number, start, os.SEEK_SET)
        os.write(number, b" " * (size - 1) + b"\n")


# New files.


def _put_part(folder: Path, subpath: str, entries: Sequence[JsonObject]) -> None:
    path = folder / f"{subpath}.jsonl"
    make_folders(path.parent)
    lines = [entry for entry in entries if entry.get("type") != "agent_metadata"]
    described = [entry for entry in entries if entry.get("type") == "agent_metadata"]
    if lines:
        _write_new(path, _lines(lines))
    if described:
        metadata = {name: value for name, value in described[-1].items() if name != "type"}
        _write_new(folder / f"{subpath}.meta.json", [_line(metadata)])


def _lines(entries: Iterable[JsonObject]) -> Iterator[bytes]:
    pending = bytearray()
    for entry in entries:
        pending += _line(entry)
        if len(pending) >= _IN_ONE_WRITE:
            yield bytes(pending)
            pending.clear()
    yield bytes(pending)


def _line(value: JsonObject) -> bytes:
    return to_line(value).encode() + b"\n"


def _write_new(path: Path, pieces: Iterable[bytes]) -> None:
    """Write a file that is not there, and wait until it is on the disk."""
    number = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | _FLAGS, 0o600)
    with os.fdopen(number, "wb") as stream:
        stream.writelines(pieces)
        stream.flush()
        os.fsync(stream.fileno())


def _link(temporary: Path, path: Path) -> None:
    """Give a finished file its name. Raises `FileExistsError` if that is taken."""
    try:
        os.link(temporary, path)
    except FileExistsError:
        raise
    except OSError as error:
        if error.errno not in _NO_LINKS:
            raise
        # Take the name first: a file with nothing in it is not a session to anyone.
        os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | _FLAGS, 0o600))
        temporary.replace(path)


def _take_name(temporary: Path, folder: Path) -> None:
    """Give a finished folder its name. Raises `FileExistsError` if that is taken."""
    try:
        temporary.rename(folder)
    except OSError as error:
        if os.path.lexists(folder):
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), str(folder)) from error
        raise


def _take_back(folder: Path, parts: Iterable[str]) -> None:
    """Remove what was put in a folder, and nothing of another session that took the id meanwhile."""
    for subpath in parts:
        for end in (".jsonl", ".meta.json"):
            with suppress(OSError):
                (folder / f"{subpath}{end}").unlink()
    folders = {(folder / subpath).parent for subpath in parts} | {folder}
    for path in sorted(folders, key=lambda path: len(path.parts), reverse=True):
        with suppress(OSError):
            path.rmdir()


def _failed(path: Path, error: OSError) -> TranscriptError:
    return TranscriptError(
        f"{path} could not be written: {error.strerror or error}",
        hint="Check that there is room, and that this user may write there.",
        session_id=path.stem if path.suffix == ".jsonl" else None,
    )

"""Finds Claude Code's session files, opens them safely, and reads their lines from either end.

Each project has a folder, named after its path. Links are not followed and pipes not waited for. What lines
say is in `outrider.transcripts._entries`.
"""

from __future__ import annotations

import errno
import os
import re
import stat
import unicodedata
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, Final

import msgspec

from outrider.errors import OptionsError, SessionNotFound

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from typing import Self

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
    """Whether a folder of this name may hold the sessions of the project with this key.

    The checksum at the end of a long key depends on the runtime that the program was built with; what comes
    before it does not.
    """
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
    """A session on disk."""

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
    """The other transcripts of a session and their metadata, by subpath: without the end of the name.

    Links are not followed: they lead to what is not the session's. Transcripts that are links, and folders
    that may not be read, are left out, or raise an `OSError` if `strict`.
    """
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

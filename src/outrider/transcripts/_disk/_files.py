"""Owns how the files of sessions are found and opened, so that nothing in their place can block or mislead.

Does not know what is in them.
"""

from __future__ import annotations

import os
import re
import stat
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, Final

import msgspec

if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Self

__all__ = ["SUFFIX", "Found", "SessionFile", "open_file", "session_id_of", "sessions_in"]

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
        """A file that is known, looked at anew. Raises `OSError`."""
        told = file.path.stat()
        return cls(told.st_mtime_ns, told.st_size, file.session_id, str(file.path.parent), file.path.name)

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
    # All at once: whoever stops halfway leaves nothing open.
    with entries:
        listed = list(entries)
    for entry in listed:
        session_id = session_id_of(entry.name)
        if session_id is None:
            continue
        try:
            told = entry.stat()
        except OSError:
            continue
        if told.st_size and stat.S_ISREG(told.st_mode):
            yield Found(told.st_mtime_ns, told.st_size, session_id, place, entry.name)


def session_id_of(name: str) -> str | None:
    """The id of the session whose main transcript has this name; None for other files."""
    found = _NAME.fullmatch(name)
    return found[1].lower() if found else None


def open_file(path: str | os.PathLike[str], buffering: int = -1) -> BinaryIO:
    """Open a file to read it; waits for nothing. Raises `OSError`, also for what is no regular file."""
    number = os.open(path, _READING)
    try:
        if not stat.S_ISREG(os.fstat(number).st_mode):
            raise OSError(None, "not a regular file", os.fspath(path))
        return open(number, "rb", buffering)  # noqa: PTH123 - opened already
    except BaseException:
        os.close(number)
        raise

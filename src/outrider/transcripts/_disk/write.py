"""Writes to Claude Code's session files, which Claude Code may be writing at the same time.

Does not decide what is written or find the session. Everything here blocks: call it in a thread.
"""

from __future__ import annotations

import errno
import os
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final
from uuid import uuid4

from outrider._folders import make_folders, opened, remove_folder, replace_file, sync_folder
from outrider.errors import SessionExists, SessionNotFound, TranscriptError
from outrider.transcripts._describe import now
from outrider.transcripts._disk.files import check_project_key, check_subpath, refuse_link
from outrider.transcripts._entries import to_line
from outrider.transcripts._values import checked_id

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from outrider.transcripts._disk.files import SessionFile
    from outrider.transcripts._values import Bundle
    from outrider.wire import JsonObject

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
    """Add entries to the end of a session, each a whole line; other writers' lines stay whole as well.

    Raises `SessionNotFound` if the file is not there (any more): it is not made again. Raises
    `TranscriptError` if it cannot be written to.
    """
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
    """Remove a session: the folder of its parts, then its file, so that what fails can be tried again.

    Raises `SessionNotFound` if there is none, and `TranscriptError` with what is left if not all could be
    removed.
    """
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
    """Write a new session; it is there at once and whole, or not at all. Returns the path of its file.

    Raises `SessionExists` if there is one of this id in the project, which is left as it is, `OptionsError`
    if a name in it would lead elsewhere, and `TranscriptError` if it cannot be written.
    """
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
    """Blank out a line that was only partly written: the next writer would continue it.

    Not cut off, as someone may have written after it. To write over what is there takes no room.
    """
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

"""Copies, removes and walks whole folders, however deep they are and whatever is in them.

Each step opens an entry relative to its open folder, by name and never through a link. So depth costs no
stack, descriptors or path length, and nothing outside the folder is touched. Also writes private files.
Everything here blocks: call it in a thread.
"""

from __future__ import annotations

import errno
import os
import shutil
import stat
import tempfile
from collections.abc import Callable, Collection, Generator
from contextlib import contextmanager, suppress
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeAlias

if TYPE_CHECKING:
    from types import TracebackType
    from typing import Self

StrPath: TypeAlias = str | os.PathLike[str]

_ATTEMPTS: Final = 3
"""A process that is just ending may still write into a folder while it is being removed."""
_CHUNK: Final = 1 << 18

_NO_LINK: Final = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_CLOEXEC", 0)
FOLDER: Final = os.O_RDONLY | getattr(os, "O_DIRECTORY", 0) | _NO_LINK
# A pipe that takes the place of a file must not be waited for.
_READING: Final = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_NOCTTY", 0) | _NO_LINK
NEW_FILE: Final = os.O_WRONLY | os.O_CREAT | os.O_EXCL | _NO_LINK


@contextmanager
def opened(path: StrPath, flags: int, mode: int = 0o600, *, dir_fd: int | None = None) -> Generator[int]:
    """Open a file or a folder, not for children, and close it again. Returns the descriptor."""
    number = os.open(path, flags | getattr(os, "O_CLOEXEC", 0), mode, dir_fd=dir_fd)
    try:
        yield number
    finally:
        os.close(number)


def make_folders(folder: Path, owner: tuple[int, int] | None = None) -> None:
    """Make a folder, and those above it that are missing; only their owner can read them."""
    if not folder.is_dir():
        make_folders(folder.parent, owner)
        folder.mkdir(mode=0o700, exist_ok=True)
        if owner is not None:
            os.chown(folder, *owner, follow_symlinks=False)


def remove_folder(path: StrPath, *, dir_fd: int | None = None) -> None:
    """Remove whatever is there, if anything; folders that their owner may not change are made changeable.
    What cannot be removed is left, with the folders that it is in; when all else is gone, the first reason is
    raised as an `OSError`. `dir_fd`: an open folder that a relative path starts from."""
    for attempts_left in reversed(range(_ATTEMPTS)):
        try:
            _remove(path, dir_fd)
            return
        except FileNotFoundError:
            return
        except OSError as error:
            if error.errno not in (errno.ENOTEMPTY, errno.EEXIST) or not attempts_left:
                raise


def copy_folder(
    source: StrPath,
    target: StrPath,
    *,
    is_left_out: Callable[[str], bool] = lambda _: False,
    without: Collection[StrPath] = (),
) -> None:
    """Copy a folder to where nothing is yet. Links are copied as links; pipes, sockets and devices are not.

    Modes and times are kept, but no file of the copy runs as its owner or group. `is_left_out` is asked for
    each name; the folders in `without` and the target itself are left out wherever they are met. Raises
    `OSError` at the first thing that cannot be copied, and leaves what it has made.
    """
    os.mkdir(target, 0o700)  # noqa: PTH102
    # To name a link as the source is the caller's choice; one in it is an entry.
    with _OpenFolder(os.path.realpath(source)) as there, _OpenFolder(target) as here:
        met = {_identity(os.stat(folder)) for folder in (target, *without)}  # noqa: PTH116
        pending = [_copy_entries(there, here, is_left_out, met)]
        while pending:
            if pending[-1]:
                name = pending[-1].pop()
                with there.naming(name):
                    os.mkdir(name, 0o700, dir_fd=here.number)
                    there.enter(name)
                    here.enter(name)
                pending.append(_copy_entries(there, here, is_left_out, met))
                continue
            pending.pop()
            # Last of all: the mode may forbid to change what is in it, and to get out of it.
            original, copy = os.fstat(there.number), os.dup(here.number)
            try:
                if pending:
                    there.leave()
                    here.leave()
                _set_look(copy, original)
            finally:
                os.close(copy)


def walk(
    top: StrPath, failed: Callable[[OSError], None] | None = None
) -> Generator[tuple[str, list[str], list[str]]]:
    """As `os.walk`, from the top down, which calls itself for each level in Python 3.11."""
    pending = [os.fspath(top)]
    while pending:
        place = pending.pop()
        for _, folders, names in islice(os.walk(place, onerror=failed), 1):
            yield place, folders, names
            inside = (os.path.join(place, name) for name in reversed(folders))  # noqa: PTH118
            pending += [each for each in inside if not os.path.islink(each)]  # noqa: PTH114


class _OpenFolder:
    """A folder that is open, from which one can go into the folders in it and back up again."""

    def __init__(self, path: StrPath, dir_fd: int | None = None, *, is_ours: bool = False) -> None:
        """`is_ours`: it may be made readable and changeable where it is not."""
        self._is_ours = is_ours
        self.number = self._open(path, dir_fd)
        self._names = [os.fspath(path)]
        self._above: list[tuple[int, int]] = []
        """The identities of the folders that lead here."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        os.close(self.number)

    def enter(self, name: str) -> None:
        """Go into a folder in this one. Raises `OSError`, and stays."""
        inside = self._open(name, self.number)
        self._above.append(_identity(os.fstat(self.number)))
        self._names.append(name)
        os.close(self.number)
        self.number = inside

    def leave(self) -> str:
        """Go back up; returns the name of the folder that was left. Raises `OSError` if it has moved."""
        outside = os.open("..", FOLDER, dir_fd=self.number)
        if _identity(os.fstat(outside)) != self._above[-1]:
            os.close(outside)
            raise OSError(errno.EBUSY, "The folder was moved while it was worked on", self._path())
        os.close(self.number)
        self.number = outside
        self._above.pop()
        return self._names.pop()

    @contextmanager
    def naming(self, name: str = "") -> Generator[None]:
        """Say in an `OSError` where it happened."""
        try:
            yield
        except OSError as error:
            raise OSError(error.errno, error.strerror, self._path(name)) from error

    def _path(self, name: str = "") -> str:
        """Where something is, in words: it can be too long to be a path."""
        return "/".join([*self._names, name] if name else self._names)

    def _open(self, path: StrPath, dir_fd: int | None) -> int:
        try:
            number = os.open(path, FOLDER, dir_fd=dir_fd)
        except PermissionError:
            if not self._is_ours:
                raise
            _let_owner_in(path, dir_fd)
            number = os.open(path, FOLDER, dir_fd=dir_fd)
        if self._is_ours and os.fstat(number).st_mode & stat.S_IRWXU != stat.S_IRWXU:
            with suppress(OSError):
                os.fchmod(number, stat.S_IRWXU)
        return number


def _identity(status: os.stat_result) -> tuple[int, int]:
    return status.st_dev, status.st_ino


def _let_owner_in(path: StrPath, dir_fd: int | None) -> None:
    """Let the owner of a folder do everything in it; what a link in its place leads to stays as it is."""
    if not hasattr(os, "O_PATH"):
        os.chmod(path, stat.S_IRWXU, dir_fd=dir_fd, follow_symlinks=False)
        return
    # Linux has no such call, but can change what is open, even if only as a place.
    with opened(path, os.O_PATH | FOLDER, dir_fd=dir_fd) as number:
        os.chmod(f"/proc/self/fd/{number}", stat.S_IRWXU)  # noqa: PTH101


# Removing


def _remove(path: StrPath, dir_fd: int | None) -> None:
    status = os.stat(path, dir_fd=dir_fd, follow_symlinks=False)
    if not stat.S_ISDIR(status.st_mode):
        os.unlink(path, dir_fd=dir_fd)
        return
    with _OpenFolder(path, dir_fd, is_ours=True) as folder:
        failed: list[OSError] = []
        pending = [_unlink_entries(folder, failed)]
        while True:
            if pending[-1]:
                name = pending[-1].pop()
                with _noting(failed), folder.naming(name):
                    folder.enter(name)
                    pending.append(_unlink_entries(folder, failed))
            elif len(pending) > 1:
                pending.pop()
                name = folder.leave()
                with _noting(failed), folder.naming(name):
                    os.rmdir(name, dir_fd=folder.number)
            else:
                break
    if failed:
        raise failed[0]
    os.rmdir(path, dir_fd=dir_fd)


def _unlink_entries(folder: _OpenFolder, failed: list[OSError]) -> list[str]:
    """Remove all in a folder but the folders in it; returns those."""
    folders: list[str] = []
    with _noting(failed), folder.naming(), os.scandir(folder.number) as entries:
        for name, is_folder in [(entry.name, entry.is_dir(follow_symlinks=False)) for entry in entries]:
            if is_folder:
                folders.append(name)
                continue
            with _noting(failed), folder.naming(name):
                os.unlink(name, dir_fd=folder.number)
    return folders


@contextmanager
def _noting(failed: list[OSError]) -> Generator[None]:
    """Keep the first error, and continue. What is gone already is not an error."""
    try:
        yield
    except FileNotFoundError:
        pass
    except OSError as error:
        if not failed:
            failed.append(error)


# Copying


def _copy_entries(
    there: _OpenFolder, here: _OpenFolder, is_left_out: Callable[[str], bool], met: set[tuple[int, int]]
) -> list[str]:
    """Copy all in a folder but the folders in it; returns those, which are to be copied, too."""
    folders: list[str] = []
    with there.naming():
        names = os.listdir(there.number)  # noqa: PTH208
    for name in names:
        if is_left_out(name):
            continue
        with there.naming(name):
            status = os.stat(name, dir_fd=there.number, follow_symlinks=False)
            if stat.S_ISDIR(status.st_mode):
                if _identity(status) not in met:
                    folders.append(name)
            elif stat.S_ISLNK(status.st_mode):
                os.symlink(os.readlink(name, dir_fd=there.number), name, dir_fd=here.number)
            elif stat.S_ISREG(status.st_mode):
                _copy_file(name, there, here)
    return folders


def _copy_file(name: str, there: _OpenFolder, here: _OpenFolder) -> None:
    with open(os.open(name, _READING, dir_fd=there.number), "rb", 0) as reading:  # noqa: PTH123
        status = os.fstat(reading.fileno())
        if not stat.S_ISREG(status.st_mode):
            return
        with open(os.open(name, NEW_FILE, 0o600, dir_fd=here.number), "wb") as writing:  # noqa: PTH123
            shutil.copyfileobj(reading, writing, _CHUNK)
            writing.flush()
            _set_look(writing.fileno(), status)


def _set_look(number: int, status: os.stat_result) -> None:
    # The owner of the copy is another one: no one gets to run a file as this user.
    os.fchmod(number, status.st_mode & 0o777)
    os.utime(number, ns=(status.st_atime_ns, status.st_mtime_ns))


# Files.

_FLAGS = getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_BINARY", 0) | getattr(os, "O_NOFOLLOW", 0)


def make_private(path: Path, data: bytes = b"") -> None:
    """Make a file. Raises `FileExistsError` if anything is there, also a link that leads nowhere."""
    number = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | _FLAGS, 0o600)
    with os.fdopen(number, "wb") as file:
        file.write(data)


def write_private(path: Path, data: bytes) -> None:
    """Make a file, or write it again where there is one."""
    try:
        make_private(path, data)
    except FileExistsError:
        refuse_planted(path)
        path.write_bytes(data)


def replace_file(
    path: Path, data: bytes, *, owner: tuple[int, int] | None = None, is_synced: bool = True
) -> None:
    """Write a file whole, or leave the old one; only its owner can read it. `owner`: user and group.
    `is_synced`: it outlives a loss of power."""
    number, name = tempfile.mkstemp(prefix=".outrider-", dir=path.parent)
    try:
        with os.fdopen(number, "wb") as file:
            file.write(data)
            if is_synced:
                file.flush()
                os.fsync(file.fileno())
            if owner is not None:
                # Not by its name: the folder may be that user's.
                os.fchown(file.fileno(), *owner)
        Path(name).replace(path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise
    if is_synced:
        sync_folder(path.parent)


def sync_folder(path: Path) -> None:
    """Have the names in a folder outlive a loss of power."""
    with opened(path, FOLDER) as number:
        os.fsync(number)


def refuse_planted(path: Path) -> None:
    """Raises `PermissionError` if a file is another user's, where all may make files: what is written to it
    would be theirs to read, and a lock on it theirs to keep. Linux does the same, for files that may have to
    be made."""
    owner = path.lstat().st_uid
    is_open_to_all = path.parent.stat().st_mode & stat.S_IWOTH
    if is_open_to_all and owner not in (0, os.geteuid()):
        raise PermissionError(
            f"{str(path)!r} belongs to another user, and is in a folder that all may write to"
        )

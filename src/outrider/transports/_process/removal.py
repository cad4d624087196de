"""Removes private folders: one that is known, however deep or read-only it is, and those that hosts which
were killed have left behind.

Used by the host and by its watchdog, which runs with the bare interpreter: so it imports nothing but the
standard library, and little of that. Follows no link, and needs two descriptors for a tree of any size.
"""

from __future__ import annotations

import fcntl
import os
import stat
import time
from contextlib import suppress

PREFIX = "outrider-"
_RANDOM_LENGTH = 16
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


def new_name() -> str:
    """A name for a private folder that no other program can guess."""
    return f"{PREFIX}{os.getpid()}-{os.urandom(_RANDOM_LENGTH // 2).hex()}"


def is_name(name: str) -> bool:
    """Whether this can be the name of a private folder. Earlier versions, which had no locks, used others."""
    pid, _, rest = name.removeprefix(PREFIX).partition("-")
    is_random = len(rest) == _RANDOM_LENGTH and not rest.strip("0123456789abcdef")
    return name.startswith(PREFIX) and pid.isdecimal() and is_random


def lock(path: str) -> int:
    """Mark a new folder as being in use, as long as the descriptor is open.

    A lock tells more than the number of a process: that may be used again, and means nothing in another
    container. Raises `FileNotFoundError` if another host has taken it for an old one meanwhile, and
    `OSError`.
    """
    number = os.open(path, _FOLDER)
    try:
        try:
            fcntl.flock(number, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise FileNotFoundError(path) from None
        except OSError:  # a file system without locks, where no one takes one for old, either
            pass
        if not os.path.samestat(os.fstat(number), os.lstat(path)):
            raise FileNotFoundError(path)
    except BaseException:
        os.close(number)
        raise
    return number


def sweep(parent: str) -> None:
    """Remove the private folders of this user that are not in use. Raises nothing."""
    with suppress(OSError):
        for name in filter(is_name, os.listdir(parent)):  # noqa: PTH208
            with suppress(OSError):
                _remove_unused(f"{parent}/{name}")


def _remove_unused(path: str) -> None:
    # Any user can make such a folder in a shared place. Those of other users are not touched.
    if os.lstat(path).st_uid != os.geteuid():
        return
    number = _open(path)
    try:
        if os.fstat(number).st_uid == os.geteuid():
            fcntl.flock(number, fcntl.LOCK_EX | fcntl.LOCK_NB)
            _empty(number)
            os.rmdir(path)  # noqa: PTH106
    finally:
        os.close(number)


def remove_tree(path: str, seconds: float = float("inf")) -> None:
    """Remove a folder with all that is in it, as far as possible in this time. Raises nothing."""
    with suppress(OSError):
        number = _open(path)
        try:
            _empty(number, seconds)
        finally:
            os.close(number)
        os.rmdir(path)  # noqa: PTH106


def _empty(root: int, seconds: float = float("inf")) -> None:
    """Folders in a folder inside are moved up before that is removed, so that nothing is ever deep."""
    mark, count = os.urandom(8).hex(), 0
    deadline = time.monotonic() + seconds
    has_moved = True
    # A process that escaped might make folders for ever.
    while has_moved and time.monotonic() < deadline:
        has_moved = False
        for name in os.listdir(root):
            if not _is_folder(name, root):
                with suppress(OSError):
                    os.unlink(name, dir_fd=root)
                continue
            with suppress(OSError):
                inner = _open(name, root)
                try:
                    for each in os.listdir(inner):  # noqa: PTH208
                        with suppress(OSError):
                            if _is_folder(each, inner):
                                # A folder that is moved is written to: `..` in it changes.
                                os.close(_open(each, inner))
                                count += 1
                                os.rename(each, f"{mark}-{count}", src_dir_fd=inner, dst_dir_fd=root)
                                has_moved = True
                            else:
                                os.unlink(each, dir_fd=inner)
                finally:
                    os.close(inner)
                os.rmdir(name, dir_fd=root)


def _is_folder(name: str, parent: int | None) -> bool:
    try:
        return stat.S_ISDIR(os.stat(name, dir_fd=parent, follow_symlinks=False).st_mode)
    except OSError:
        return False


def _open(name: str, parent: int | None = None) -> int:
    """Open a folder that can then be read and written to. Raises `OSError`."""
    try:
        number = os.open(name, _FOLDER, dir_fd=parent)
    except PermissionError:
        # Root needs no rights, and must not be tricked into changing the rights of something else.
        if os.geteuid() == 0 or not _is_folder(name, parent):
            raise
        os.chmod(name, 0o700, dir_fd=parent)
        number = os.open(name, _FOLDER, dir_fd=parent)
    try:
        if os.geteuid() != 0 and os.fstat(number).st_mode & 0o700 != 0o700:
            os.fchmod(number, 0o700)
    except BaseException:
        os.close(number)
        raise
    return number

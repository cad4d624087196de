"""The private folder of a child: made before it starts, readable by its user alone, removed when it has
ended, or by the watchdog, or by the next host that is started.

Does not decide what is in it; the command does.
"""

from __future__ import annotations

import contextlib
import fcntl
import logging
import os
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Final

from outrider.errors import LaunchError
from outrider.transports._process.removal import lock, new_name, remove_tree

if TYPE_CHECKING:
    from collections.abc import Callable

    from outrider.command import Command, UserId

log = logging.getLogger("outrider.process")

_ATTEMPTS: Final = 3
"""A process that is just ending may still write into the folder while it is being removed."""

_SECONDS: Final = 10.0
"""That an attempt may take; what it leaves is removed when the next host is started."""
_NAMES: Final = 10
"""That are tried for a folder, each of them nobody else's as far as anybody can tell."""

_locks: Final[dict[Path, int]] = {}
"""Descriptors that show other hosts that a folder is in use. They are gone with this process, however it
ends."""


def make_folder(command: Command, expect: Callable[[str], object]) -> Path:
    """Make the folder with the command's files in it. Raises `LaunchError`, and nothing is left behind.

    `expect` gets its path before it is there, for when this process is killed the next moment.
    """
    for name in (*command.folders, *(file.name for file in command.files)):
        if Path(name).is_absolute() or ".." in Path(name).parts:
            raise LaunchError(f"{name!r} is outside of the private folder", hint="Give a path inside of it.")
    folder: Path | None = None
    try:
        folder = _make_locked(expect)
        for name in command.folders:
            _make_path(folder, Path(name), command.user)
        for file in command.files:
            inner = Path(file.name)
            path = _make_path(folder, inner.parent, command.user) / inner.name
            path.touch(mode=0o600, exist_ok=False)
            path.write_bytes(file.content)
            _give(path, command.user)
        _give(folder, command.user)
    except OSError as error:
        if folder is not None:
            discard_folder(folder, command)
        raise LaunchError(
            f"the files that the program needs cannot be written: {error}",
            argv=command.argv,
            hint="Make room in the temporary folder, or set TMPDIR to one that can be written.",
        ) from error
    return folder


def discard_folder(folder: Path, command: Command) -> None:
    """Remove what `make_folder` has made, if the program was not started. Needs no descriptor: to have none
    left is a reason why a program cannot be started."""
    _unlock(folder)
    names = [Path(name) for name in (*command.folders, *(file.name for file in command.files), ".")]
    paths = {folder / path for name in names for path in (name, *name.parents)}
    for path in sorted(paths, key=lambda path: len(path.parts), reverse=True):
        with contextlib.suppress(OSError):
            path.rmdir() if path.is_dir() else path.unlink()
    remove_folder(folder)


def remove_folder(folder: Path) -> None:
    """Remove it with all that is in it. A failure is logged, never raised."""
    for _ in range(_ATTEMPTS):
        remove_tree(str(folder), _SECONDS)
        if not os.path.lexists(folder):
            break
    else:
        log.warning("the private folder %s could not be removed", folder)
    _unlock(folder)


def _make_locked(expect: Callable[[str], object]) -> Path:
    """A new folder that no other host takes for one that was left behind."""
    for _ in range(_NAMES):
        folder = Path(tempfile.gettempdir(), new_name())
        expect(str(folder))
        folder.mkdir(mode=0o700)
        try:
            _locks[folder] = lock(str(folder))
        except FileNotFoundError:
            continue
        except BaseException:
            folder.rmdir()
            raise
        return folder
    raise FileNotFoundError(f"every folder made in {tempfile.gettempdir()} is taken away at once")


def _unlock(folder: Path) -> None:
    if (number := _locks.pop(folder, None)) is not None:
        # A process that is just being forked may hold a copy, and the lock with it.
        fcntl.flock(number, fcntl.LOCK_UN)
        os.close(number)


def _forget() -> None:
    """In a forked process: the folders are the other one's, and so is the say over how long they stay."""
    for number in _locks.values():
        os.close(number)
    _locks.clear()


os.register_at_fork(after_in_child=_forget)


def _make_path(folder: Path, name: Path, user: UserId | None) -> Path:
    path = folder
    for part in name.parts:
        path /= part
        if not path.is_dir():
            path.mkdir(mode=0o700)
            _give(path, user)
    return path


def _give(path: Path, user: UserId | None) -> None:
    if user is not None:
        os.chown(path, user.uid, user.gid)

"""The private folder of a child: made before it starts, readable by its user alone, removed when it has
ended.

Does not decide what is in it; the command does.
"""

from __future__ import annotations

import contextlib
import logging
import os
import shutil
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Final

from bridle.errors import LaunchError

if TYPE_CHECKING:
    from bridle.command import Command, UserId

log = logging.getLogger("bridle.process")

_ATTEMPTS: Final = 3
"""A process that is just ending may still write into the folder while it is being removed."""


def make_folder(command: Command) -> Path:
    """Make the folder with the command's files in it. Raises `LaunchError`, and nothing is left behind."""
    for name in (*command.folders, *(file.name for file in command.files)):
        if Path(name).is_absolute() or ".." in Path(name).parts:
            raise LaunchError(f"{name!r} is outside of the private folder", hint="Give a path inside of it.")
    folder: Path | None = None
    try:
        folder = Path(tempfile.mkdtemp(prefix=f"bridle-{os.getpid()}-"))
        for name in command.folders:
            _make_path(folder, Path(name), command.user)
        for file in command.files:
            place = Path(file.name)
            path = _make_path(folder, place.parent, command.user) / place.name
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
    names = [Path(name) for name in (*command.folders, *(file.name for file in command.files), ".")]
    paths = {folder / path for name in names for path in (name, *name.parents)}
    for path in sorted(paths, key=lambda path: len(path.parts), reverse=True):
        with contextlib.suppress(OSError):
            path.rmdir() if path.is_dir() else path.unlink()
    remove_folder(folder)


def remove_folder(folder: Path) -> None:
    """Remove it with all that is in it. A failure is logged, never raised."""
    for _ in range(_ATTEMPTS):
        with contextlib.suppress(RecursionError):  # a program can make folders a thousand deep
            shutil.rmtree(folder, ignore_errors=True)
        if not os.path.lexists(folder):
            return
    log.warning("the private folder %s could not be removed", folder)


def _make_path(folder: Path, name: Path, user: UserId | None) -> Path:
    path = folder
    for part in name.parts:
        path /= part
        if not path.is_dir():
            path.mkdir(mode=0o700)
            _give(path, user)
    return path


def _give(path: Path, user: UserId | None) -> None:
    if user is not None and sys.platform != "win32":
        os.chown(path, user.uid, user.gid)

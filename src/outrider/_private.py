"""Makes files that nobody but their owner can read, from the first byte on, whatever the umask says.

Does not change the rights of files that are there: those are the business of whoever made them.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path

__all__ = ["make_private", "refuse_planted", "write_private"]

_FLAGS = getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_BINARY", 0) | getattr(os, "O_NOFOLLOW", 0)


def make_private(path: Path, data: bytes = b"") -> None:
    """Make a file. Raises `FileExistsError` if anything is there, also a link that leads nowhere."""
    number = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | _FLAGS, 0o600)
    with os.fdopen(number, "wb") as file:
        file.write(data)


def write_private(path: Path, data: bytes) -> None:
    """Make a file, or write it anew where there is one."""
    try:
        make_private(path, data)
    except FileExistsError:
        refuse_planted(path)
        path.write_bytes(data)


def refuse_planted(path: Path) -> None:
    """Raises `PermissionError` if a file is another user's, where all may make files: what is written to it
    would be theirs to read, and a lock on it theirs to keep. Linux does the same, for files that may have to
    be made."""
    if not hasattr(os, "geteuid"):
        return
    owner = path.lstat().st_uid
    is_open_to_all = path.parent.stat().st_mode & stat.S_IWOTH
    if is_open_to_all and owner not in (0, os.geteuid()):
        raise PermissionError(
            f"{str(path)!r} belongs to another user, and is in a folder that all may write to"
        )

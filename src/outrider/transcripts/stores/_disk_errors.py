"""Owns how what goes wrong on a disk is told.

Does not catch anything.
"""

from __future__ import annotations

import errno
import os
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["MAKE_ROOM", "RESTORE", "WAIT_LONGER", "explain_os_error", "has_room"]

MAKE_ROOM: Final = "Make room, and try again."
RESTORE: Final = "Restore it from a copy; or move it away, and a new one is made."
WAIT_LONGER: Final = "Look for what holds it so long, or give a longer `timeout`."

_NO_ROOM: Final = (errno.ENOSPC, errno.EDQUOT)
_MAY_PASS: Final = (*_NO_ROOM, errno.EMFILE, errno.ENFILE, errno.EINTR, errno.EAGAIN)
_LITTLE: Final = 256 * 1024
"""Below this, SQLite may find no room though a few bytes are left."""


def explain_os_error(error: OSError) -> tuple[str, bool, str]:
    """What went wrong, whether it may pass, and what to do."""
    what, hint = (error.strerror or str(error)).lower(), ""
    if error.errno in _NO_ROOM:
        what, hint = f"there is no room left on its disk ({what})", MAKE_ROOM
    elif error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
        what, hint = f"this process has no right to it ({what})", "Give it the right to write there."
    elif error.errno in (errno.ENOENT, errno.ENOTDIR):
        hint = "Make the folder that it should be in, or give another path."
    where = f": {error.filename}" if error.filename else ""
    return f"{what}{where}", error.errno in _MAY_PASS, hint


def has_room(folder: Path) -> bool:
    try:
        found = os.statvfs(folder)
    except OSError:
        return True
    return found.f_bavail * found.f_frsize > _LITTLE

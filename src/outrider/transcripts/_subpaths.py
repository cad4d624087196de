"""Owns which names of projects and of parts of sessions can be names of files, and cannot lead elsewhere.

Does not touch a disk.
"""

from __future__ import annotations

import re
from typing import Final

from outrider.errors import OptionsError

__all__ = ["check_project_key", "check_subpath"]

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

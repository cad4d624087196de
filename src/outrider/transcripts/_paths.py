"""Finds where Claude Code keeps its sessions: one folder for each project, named after the project's path.

Also validates names of projects and parts, and lists worktrees. `_disk` reads what is in the folders.
"""

from __future__ import annotations

import os
import re
import unicodedata
from pathlib import Path
from typing import TYPE_CHECKING, Final

from outrider._git import find_repository
from outrider.errors import OptionsError, SessionNotFound

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["check_project_key", "check_subpath", "worktrees"]


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
    """The name that stands for a folder: its real path with a dash for all but letters and digits.

    A long one is cut, and ends in a checksum. Both are counted in UTF-16 units, as the program does.
    """
    try:
        path = os.path.realpath(cwd)
    except ValueError:
        # No folder can have this name, but a line of a transcript may say so.
        path = os.path.join(os.getcwd(), cwd)  # noqa: PTH109, PTH118
    path = unicodedata.normalize("NFC", path)
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
    """Raise `SessionNotFound` if there is no session of this folder to go on with: the program would begin a
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
    try:
        repository = find_repository(folder)
    except (OSError, ValueError):
        return []
    found = [] if repository is None else repository.worktrees()
    return [unicodedata.normalize("NFC", each) for each in found]

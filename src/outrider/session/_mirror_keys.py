"""Owns which transcript of a store a file of the agent's belongs to.

Does not touch a disk: the file may be on another machine.
"""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING, Final

from outrider.errors import OptionsError
from outrider.transcripts import check_project_key, check_subpath

if TYPE_CHECKING:
    from pathlib import Path

    from outrider.transcripts import SessionKey

__all__ = ["Keys"]

_FOLDER: Final = "projects"
_SUFFIX: Final = ".jsonl"
_UUID: Final = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", re.IGNORECASE)
_WINDOWS: Final = re.compile(r"[A-Za-z]:[\\/]|\\\\")


class Keys:
    """Reads keys off paths: `<config>/projects/<project>/<session>.jsonl`, and what is deeper is a part.

    `config` is the agent's configuration folder, if it is on this machine and known: nothing outside of it is
    taken then.
    """

    def __init__(self, config: Path | None = None) -> None:
        folders = () if config is None else (os.path.abspath(config), os.path.realpath(config))  # noqa: PTH100
        self._folders = {tuple(_parts(folder)) for folder in folders}
        self._projects: dict[str, str] = {}

    def place(self, session_id: str, project: str) -> None:
        """A session that is kept under another project than that of the folder it runs in now."""
        self._projects[session_id] = project

    def key_of(self, path: str) -> SessionKey | None:
        """The key of a file; None if it is no transcript."""
        parts = _parts(path)
        if not parts or "\0" in path or ".." in parts or not parts[-1].endswith(_SUFFIX):
            return None
        parts[-1] = parts[-1].removesuffix(_SUFFIX)
        inside = self._inside(parts)
        if inside is None or len(inside) < 2 or not all(inside):
            return None
        project, session_id, *rest = inside
        try:
            check_project_key(project)
            check_subpath("/".join((session_id, *rest)))
        except OptionsError:
            return None
        key: SessionKey = {
            "project_key": self._projects.get(session_id, project),
            "session_id": session_id,
        }
        if rest:
            key["subpath"] = "/".join(rest)
        return key

    def _inside(self, parts: list[str]) -> list[str] | None:
        """What comes after the folder of all projects."""
        for folder in self._folders:
            if tuple(parts[: len(folder)]) == folder and parts[len(folder) : len(folder) + 1] == [_FOLDER]:
                return parts[len(folder) + 1 :]
        if self._folders:
            return None
        found = [place for place, part in enumerate(parts) if part == _FOLDER and len(parts) > place + 2]
        # Folders above may have the same name; ids of sessions look like nothing else.
        known = [place for place in found if _UUID.fullmatch(parts[place + 2])]
        place = next(reversed(known or found), None)
        return None if place is None else parts[place + 1 :]


def _parts(path: str) -> list[str]:
    if _WINDOWS.match(path):
        path = path.replace("\\", "/")
    return [part for part in path.split("/") if part not in ("", ".")]

"""Shim: where the reference SDK finds sessions on disk, for programs that open the files themselves."""

from __future__ import annotations

import os
import unicodedata
from contextlib import suppress
from pathlib import Path

from outrider.compat._sessions.disk import project_key_for_directory
from outrider.errors import OptionsError, SessionNotFound
from outrider.transcripts import config_folder
from outrider.transcripts._disk.files import is_same_project
from outrider.transcripts._disk.files import key_of_path as _sanitize_path
from outrider.transcripts._disk.read import Disk

__all__ = [
    "_canonicalize_path",
    "_find_project_dir",
    "_get_claude_config_home_dir",
    "_get_project_dir",
    "_get_projects_dir",
    "_resolve_session_file_path",
    "_sanitize_path",
    "project_key_for_directory",
]


def _get_claude_config_home_dir() -> Path:
    return config_folder(os.environ)


def _get_projects_dir(env_override: dict[str, str] | None = None) -> Path:
    return config_folder({**os.environ, **(env_override or {})}) / "projects"


def _canonicalize_path(d: str) -> str:
    return unicodedata.normalize("NFC", os.path.realpath(d))


def _get_project_dir(project_path: str) -> Path:
    return _get_projects_dir() / _sanitize_path(project_path)


def _find_project_dir(project_path: str) -> Path | None:
    """The folder with the sessions of a project, whose path is canonical; None if there is none."""
    exact = _get_project_dir(project_path)
    if exact.is_dir():
        return exact
    with suppress(OSError):
        for folder in exact.parent.iterdir():
            if is_same_project(folder.name, exact.name) and folder.is_dir():
                return folder
    return None


def _resolve_session_file_path(session_id: str, directory: str | None) -> Path | None:
    """The file of a session, or None."""
    try:
        return Disk().find(session_id, directory or None).path
    except (SessionNotFound, OptionsError):
        return None

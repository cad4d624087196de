"""Owns which files belong to a session besides its main transcript.

Does not read them.
"""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import TYPE_CHECKING, Final

from outrider.transcripts._disk._files import SUFFIX, SessionFile

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["METADATA", "agent_files", "part_files", "refuse_link"]

METADATA: Final = ".meta.json"
"""Ends the name of the file that tells what a subagent is."""

_AGENT: Final = "agent-"
_DEEPEST: Final = 16
"""Folders within each other; the program has two."""


def part_files(file: SessionFile, *, strict: bool = False) -> Iterator[tuple[str, Path]]:
    """The other transcripts of a session, and what tells of them, by subpath: without the end of the name.

    Links are not followed: they lead to what is not the session's. Transcripts that are links, and folders
    that may not be read, are left out, or raise an `OSError` if `strict`.
    """
    pending: list[tuple[str, ...]] = [()]
    while pending:
        above = pending.pop()
        place = file.folder.joinpath(*above)
        names, folders = _entries(place, strict=strict)
        for name in names:
            for end in (SUFFIX, METADATA):
                if name.endswith(end) and len(name) > len(end):
                    yield "/".join((*above, name.removesuffix(end))), place / name
        if len(above) < _DEEPEST:
            pending += [(*above, name) for name in reversed(folders)]


def _entries(folder: Path, *, strict: bool) -> tuple[list[str], list[str]]:
    """The names of what is in a folder and is no folder itself, and of what is."""
    names: list[str] = []
    folders: list[str] = []
    try:
        refuse_link(folder)
        with os.scandir(folder) as found:
            for entry in sorted(found, key=lambda entry: entry.name):
                if entry.is_symlink():
                    if strict and entry.name.endswith((SUFFIX, METADATA)):
                        refuse_link(Path(entry.path))
                else:
                    (folders if entry.is_dir() else names).append(entry.name)
    except OSError as error:
        if strict and not isinstance(error, FileNotFoundError | NotADirectoryError):
            raise
    return names, folders


def refuse_link(path: Path) -> None:
    """Raise `OSError` if there is a link."""
    if path.is_symlink():
        raise OSError(errno.ELOOP, "It is a link, which may lead anywhere", str(path))


def agent_files(file: SessionFile) -> dict[str, Path]:
    """The transcripts of the subagents of a session, by their ids."""
    return {
        path.name.removesuffix(SUFFIX).removeprefix(_AGENT): path
        for subpath, path in part_files(file)
        if path.name.endswith(SUFFIX) and path.name.startswith(_AGENT) and subpath.startswith("subagents/")
    }

"""Owns which files belong to a session besides its main transcript.

Does not read them.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Final

from bridle.transcripts._disk._files import SUFFIX, SessionFile

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["METADATA", "agent_files", "part_files"]

METADATA: Final = ".meta.json"
"""Ends the name of the file that tells what a subagent is."""

_AGENT: Final = "agent-"


def part_files(file: SessionFile, *, strict: bool = False) -> Iterator[tuple[str, Path]]:
    """The other transcripts of a session, and what tells of them, by subpath: without the end of the name.
    Folders that may not be read are left out, or raise an `OSError` if `strict`; links to others are not
    followed."""
    root = os.fspath(file.folder)
    for folder, folders, names in os.walk(root, onerror=_refuse if strict else None):
        folders.sort()
        for name in sorted(names):
            for end in (SUFFIX, METADATA):
                if name.endswith(end) and len(name) > len(end):
                    path = Path(folder, name)
                    subpath = Path(os.path.relpath(folder, root), name.removesuffix(end)).as_posix()
                    yield subpath, path


def _refuse(error: OSError) -> None:
    if not isinstance(error, FileNotFoundError | NotADirectoryError):
        raise error


def agent_files(file: SessionFile) -> dict[str, Path]:
    """The transcripts of the subagents of a session, by their ids."""
    return {
        path.name.removesuffix(SUFFIX).removeprefix(_AGENT): path
        for subpath, path in part_files(file)
        if path.name.endswith(SUFFIX) and path.name.startswith(_AGENT) and subpath.startswith("subagents/")
    }

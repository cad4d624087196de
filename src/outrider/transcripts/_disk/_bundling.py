"""Owns how everything of a session is read, with nothing lost of what can be read.

Does not find the session.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, cast

from outrider.transcripts._disk._files import SessionFile, open_file
from outrider.transcripts._disk._parts import METADATA, part_files
from outrider.transcripts._disk._scanning import lines
from outrider.transcripts._entry import decode_line
from outrider.transcripts._lines import finite, to_object
from outrider.transcripts._values import Bundle

if TYPE_CHECKING:
    from outrider.wire import JsonObject

__all__ = ["load_bundle"]


def load_bundle(file: SessionFile) -> Bundle:
    """Everything of a session. Raises `OSError` if any of it cannot be read: a part of a session is none."""
    entries = _entries(file.path)
    parts: dict[str, list[JsonObject]] = {}
    for subpath, path in part_files(file, strict=True):
        part = parts.setdefault(subpath, [])
        if path.name.endswith(METADATA):
            # Where the program puts it when it tells a store of it.
            part[:0] = [{"type": "agent_metadata", **told} for told in _objects(path)[-1:]]
        else:
            part += _entries(path)
    return Bundle(
        session_id=file.session_id,
        project=file.project,
        entries=entries,
        parts={subpath: part for subpath, part in parts.items() if part},
    )


def _entries(path: Path) -> list[JsonObject]:
    """The entries of a transcript: an object without a type is none, and no store would take it."""
    return [entry for entry in _objects(path) if isinstance(entry.get("type"), str)]


def _objects(path: Path) -> list[JsonObject]:
    with open_file(path) as stream:
        return [found for line in lines(stream) if (found := _object(line)) is not None]


def _object(line: bytes) -> JsonObject | None:
    try:
        return to_object(line.decode())
    except ValueError:
        pass
    try:
        return cast("JsonObject", finite(decode_line(line)))
    except ValueError:
        return None

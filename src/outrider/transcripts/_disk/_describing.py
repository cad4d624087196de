"""Owns what a list says of a session on disk.

Does not decide which sessions are listed.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from outrider.transcripts._describing import describe_data, fold_lines
from outrider.transcripts._disk._files import Found, open_file
from outrider.transcripts._disk._scanning import Ends
from outrider.transcripts._summary import ARCHIVED
from outrider.transcripts._values import StoredSession

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["describe_facts", "describe_file", "read_facts"]


def describe_file(found: Found, *, in_lists: bool = True) -> StoredSession | None:
    """A session, from the ends of its file; None if it has no place in lists. Raises `OSError`."""
    return describe_facts(found, read_facts(found), in_lists=in_lists)


def read_facts(found: Found) -> dict[str, object]:
    """What the ends of a session's file say of it, as in the summaries of stores. Raises `OSError`."""
    file = found.file
    data: dict[str, object] = {}
    with open_file(file.path, 0) as stream:
        ends = Ends(stream)
        fold_lines(data, ends.head)
        if not ("first_prompt" in data and "cwd" in data and "created_at" in data):
            fold_lines(data, [ends.next_line()])
        fold_lines(data, ends.tail())
    is_archived = _is_archived(file.folder)
    if is_archived is not None:
        data[ARCHIVED] = is_archived
    return data


def describe_facts(
    found: Found, data: Mapping[str, object], *, in_lists: bool = True
) -> StoredSession | None:
    """The session of which this is known; None if it has no place in lists."""
    file = found.file
    return describe_data(
        data,
        session_id=file.session_id,
        project=file.project,
        last_modified=found.last_modified,
        size=found.size,
        path=file.path,
        in_lists=in_lists,
    )


class _Note(msgspec.Struct):
    archived: bool


def _is_archived(folder: Path) -> bool | None:
    """What the note beside a session says; None if there is none."""
    try:
        with open_file(folder / "archived.json", 0) as stream:
            return msgspec.json.decode(stream.read(1 << 16), type=_Note).archived
    except (OSError, ValueError):
        return None

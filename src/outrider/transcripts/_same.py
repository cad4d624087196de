"""Owns when two copies of a session are the same, and how far one has come that is being made.

What differs between places without meaning anything does not count: the order of fields, lines that a place
keeps once, where in a part it is told which subagent it is of, and whether the session is archived.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from outrider.transcripts._summary import ARCHIVED
from outrider.transcripts._values import Bundle

if TYPE_CHECKING:
    from collections.abc import Iterable

    from outrider.wire import JsonObject

__all__ = ["is_same", "kept_once", "left_of", "says_archived", "without_notes"]


def is_same(one: Bundle, other: Bundle) -> bool:
    """Whether two are copies of one session."""
    return _plain(one.entries) == _plain(other.entries) and {
        subpath: _plain(part) for subpath, part in one.parts.items() if part
    } == {subpath: _plain(part) for subpath, part in other.parts.items() if part}


def left_of(entries: list[JsonObject], there: list[JsonObject]) -> list[JsonObject] | None:
    """What has to be added to those that are there; None if these are not the beginning of it."""
    if _plain(entries) == _plain(there):
        return []
    wanted = kept_once(entries)
    begun = kept_once(there)
    return wanted[len(begun) :] if wanted[: len(begun)] == begun else None


def kept_once(entries: Iterable[JsonObject]) -> list[JsonObject]:
    """As a store keeps them: one entry for each uuid."""
    made: list[JsonObject] = []
    seen: set[object] = set()
    for entry in entries:
        uuid = entry.get("uuid")
        if isinstance(uuid, str):
            if uuid in seen:
                continue
            seen.add(uuid)
        made.append(entry)
    return made


def says_archived(entries: Iterable[JsonObject]) -> bool:
    """Whether entries of a store say so; the last one counts."""
    said = [entry.get(ARCHIVED) for entry in entries if entry.get("type") == ARCHIVED]
    return said[-1:] == [True]


def without_notes(bundle: Bundle) -> Bundle:
    """The session without what only a store says in its transcript."""
    if all(entry.get("type") != ARCHIVED for entry in bundle.entries):
        return bundle
    return Bundle(
        session_id=bundle.session_id,
        project=bundle.project,
        entries=[entry for entry in bundle.entries if entry.get("type") != ARCHIVED],
        parts=bundle.parts,
    )


def _plain(entries: list[JsonObject]) -> list[JsonObject]:
    told = [entry for entry in entries if entry.get("type") == "agent_metadata"][-1:]
    said = (entry for entry in entries if entry.get("type") not in ("agent_metadata", ARCHIVED))
    return [*told, *kept_once(said)]

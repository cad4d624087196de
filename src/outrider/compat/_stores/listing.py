"""Lists the sessions in a store: from its summaries if they are current, else from the transcripts.

Loads no more transcripts than needed, and changes nothing in the store.
"""

from __future__ import annotations

import json
import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

from outrider.compat._sessions.values import to_info
from outrider.compat._types.messages import SDKSessionInfo
from outrider.transcripts import StoreCalls, fold_session_summary, offers

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from outrider.compat._types.messages import SessionKey, SessionStore, SessionSummaryEntry
    from outrider.transcripts import SessionStore as NativeStore
    from outrider.transcripts import SessionStoreEntry
    from outrider.wire import JsonObject

__all__ = ["listed", "read_entries", "size_of"]

log = logging.getLogger("outrider.compat")


@dataclass(frozen=True)
class _Row:
    """A session that may have to be loaded to be described."""

    session_id: str
    mtime: int
    data: Mapping[str, Any] | None
    """What the store remembers of it, if that is up to date."""


async def listed(
    store: SessionStore, project: str, limit: int | None, offset: int, *, folder: str
) -> list[SDKSessionInfo]:
    """The sessions of a project, newest first.

    Those that are not up to date in the summaries are counted for a page before they are loaded, and then
    left out if they have no place in lists. Raises `ValueError` for a store that cannot list.
    """
    summaries = await _summaries(store, project)
    rows = await _rows(store, project, summaries)
    calls = StoreCalls(cast("NativeStore", store))
    start = max(offset, 0)
    wanted = start + limit if limit is not None and limit > 0 else None

    async def describe(row: _Row) -> SDKSessionInfo | None:
        return await _described(store, project, row, folder)

    if summaries is not None:
        known = [row for row in rows if row.data is None or _is_listed(row.data)]
        told = await calls.each(describe, known[start:wanted])
        return [info for info in told if info is not None]
    found: list[SDKSessionInfo] = []
    while rows and (wanted is None or len(found) < wanted):
        count = len(rows) if wanted is None else wanted - len(found)
        some, rows = rows[:count], rows[count:]
        found += [info for info in await calls.each(describe, some) if info is not None]
    return found[start:wanted]


def _is_listed(data: Mapping[str, object]) -> bool:
    return to_info(data, session_id="", last_modified=0) is not None


async def _summaries(store: SessionStore, project: str) -> list[SessionSummaryEntry] | None:
    """What the store remembers of sessions; None if it does not."""
    if not offers(store, "list_session_summaries"):
        return None
    try:
        return await store.list_session_summaries(project)
    except NotImplementedError:
        return None


async def _rows(store: SessionStore, project: str, summaries: list[SessionSummaryEntry] | None) -> list[_Row]:
    """The sessions of a project, newest first, each once."""
    known = {summary["session_id"]: summary for summary in summaries or ()}
    found: list[_Row] = []
    if offers(store, "list_sessions"):
        for entry in await store.list_sessions(project):
            summary = known.get(entry["session_id"])
            is_fresh = summary is not None and summary["mtime"] >= entry["mtime"]
            data = summary["data"] if summary is not None and is_fresh else None
            found.append(_Row(entry["session_id"], entry["mtime"], data))
    elif summaries is None:
        raise ValueError(
            "session_store implements neither list_session_summaries() nor list_sessions() -- cannot list "
            "sessions. Provide a store with at least one of those methods."
        )
    else:
        found = [_Row(id, summary["mtime"], summary["data"]) for id, summary in known.items()]
    found.sort(key=lambda row: row.mtime)
    newest = {row.session_id: row for row in found}
    return sorted(newest.values(), key=lambda row: row.mtime, reverse=True)


async def _described(store: SessionStore, project: str, row: _Row, folder: str) -> SDKSessionInfo | None:
    data, size = row.data, None
    if data is None:
        key: SessionKey = {"project_key": project, "session_id": row.session_id}
        try:
            entries = read_entries(await store.load(key))
        except Exception as error:  # noqa: BLE001 - a store may raise anything; the others are listed still
            log.warning("the session %s could not be loaded for a list: %s", row.session_id, error)
            return SDKSessionInfo(session_id=row.session_id, summary="", last_modified=row.mtime)
        data = fold_session_summary(None, key, cast("list[SessionStoreEntry]", entries))["data"]
        size = size_of(entries)
    return to_info(data, session_id=row.session_id, last_modified=row.mtime, size=size, folder=folder)


def read_entries(loaded: Iterable[object] | None) -> list[JsonObject]:
    """What a store has loaded, without what no entry can be."""
    return [cast("JsonObject", entry) for entry in loaded or () if isinstance(entry, dict)]


def size_of(entries: Sequence[JsonObject]) -> int:
    """How many bytes the entries have as a file."""
    return sum(len(json.dumps(entry, separators=(",", ":"))) + 1 for entry in entries)

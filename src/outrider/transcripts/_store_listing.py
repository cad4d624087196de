"""Owns the list of the sessions in a store: from its summaries where they are up to date, else from the
transcripts, of which no more are loaded than are asked for.

Does not change anything in the store, nor in what the store gives.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import msgspec

from outrider.errors import OptionsError, OutriderError
from outrider.transcripts._describing import describe_data, describe_entries, from_milliseconds
from outrider.transcripts._store_calls import to_key
from outrider.transcripts._values import StoredSession

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from datetime import datetime

    from outrider.transcripts._store_calls import StoreCalls
    from outrider.transcripts._values import SessionQuery

__all__ = ["listed", "rows_of"]

log = logging.getLogger("outrider.transcripts")


class Row(msgspec.Struct, frozen=True):
    """A session in a list that may not be described yet."""

    project: str
    session_id: str
    mtime: float
    data: Mapping[str, object] | None
    """What the store remembers of it."""
    is_fresh: bool

    @property
    def last_modified(self) -> datetime:
        return from_milliseconds(self.mtime)


async def listed(store: StoreCalls, projects: Sequence[str], query: SessionQuery) -> list[StoredSession]:
    """The sessions of these projects that are asked for, newest first.

    One that cannot be loaded is listed with what is known of it. Raises `OptionsError` if the store cannot
    list.
    """
    newest: dict[str, Row] = {}
    for project in projects:
        for row in await rows_of(store, project):
            there = newest.get(row.session_id)
            if query.is_in_time(row.last_modified) and (there is None or row.mtime > there.mtime):
                newest[row.session_id] = row
    rows = sorted(newest.values(), key=lambda row: (-row.mtime, row.session_id))
    wanted = len(rows) if query.limit is None else query.offset + query.limit
    found: list[StoredSession] = []
    while rows and len(found) < wanted:
        some, rows = rows[: wanted - len(found)], rows[wanted - len(found) :]
        described = await store.each(lambda row: describe(store, row), some)
        found += [info for info in described if info is not None and query.matches(info)]
    return query.page(found)


async def rows_of(store: StoreCalls, project: str) -> list[Row]:
    """The sessions of a project, in any order. Raises `OptionsError` if the store cannot list."""
    if not (store.offers("list_sessions") or store.offers("list_session_summaries")):
        raise OptionsError(
            f"the store {store.name} cannot list sessions",
            hint="Give it `list_sessions` or `list_session_summaries`.",
        )
    summaries = await store.list_session_summaries(project) if store.offers("list_session_summaries") else []
    known = {summary["session_id"]: summary for summary in summaries}
    if not store.offers("list_sessions"):
        return [Row(project, id, summary["mtime"], summary["data"], True) for id, summary in known.items()]
    rows: list[Row] = []
    for entry in await store.list_sessions(project):
        id, mtime = entry["session_id"], entry["mtime"]
        summary = known.get(id)
        if summary is None:
            rows.append(Row(project, id, mtime, None, False))
        else:
            rows.append(Row(project, id, mtime, summary["data"], summary["mtime"] >= mtime))
    return rows


async def describe(store: StoreCalls, row: Row) -> StoredSession | None:
    """What there is to say of a session; None if it has no place in lists."""
    if not row.is_fresh or row.data is None:
        try:
            entries = await store.load(to_key(row.project, row.session_id))
        except OutriderError as error:
            log.warning("the session %s could not be loaded for a list: %s", row.session_id, error)
            if row.data is None:
                return StoredSession(
                    id=row.session_id,
                    project=row.project,
                    title=row.session_id,
                    last_modified=row.last_modified,
                )
        else:
            return describe_entries(
                entries,
                session_id=row.session_id,
                project=row.project,
                last_modified=row.last_modified,
            )
    return describe_data(
        row.data, session_id=row.session_id, project=row.project, last_modified=row.last_modified
    )

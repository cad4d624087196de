"""Owns the search through the sessions in a store: one after the other, as the hits are asked for.

Does not know what is looked for.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Protocol

from outrider._threads import run_sync
from outrider.errors import TranscriptError
from outrider.transcripts._entry import to_entry
from outrider.transcripts._values import SearchHit

if TYPE_CHECKING:
    from collections.abc import Iterator

    from outrider.transcripts._disk._searching import Search
    from outrider.transcripts._values import Bundle, SessionQuery, StoredSession
    from outrider.wire import JsonObject

__all__ = ["StoreSearch"]

log = logging.getLogger("outrider.transcripts")


class _Sessions(Protocol):
    async def load_at(self, key: str, session_id: str) -> Bundle: ...

    async def list(self, query: SessionQuery) -> list[StoredSession]: ...


class StoreSearch:
    """A search that is on its way."""

    def __init__(
        self, sessions: _Sessions, search: Search, query: SessionQuery, *, agents: bool, limit: int | None
    ) -> None:
        self._sessions = sessions
        self._search, self._query = search, query
        self._with_agents = agents
        self._left = limit
        self._to_do: list[StoredSession] | None = None

    async def pull(self) -> list[SearchHit] | None:
        """The hits in the next session that has any."""
        if self._to_do is None:
            self._to_do = (await self._sessions.list(self._query))[::-1]
        while self._to_do and self._left != 0:
            info = self._to_do.pop()
            try:
                bundle = await self._sessions.load_at(info.project, info.id)
            except TranscriptError as error:
                # As on disk: one that cannot be read, or was deleted meanwhile, does not end the search.
                log.warning("the session %s could not be searched: %s", info.id, error)
                continue
            found = await run_sync(lambda: list(self._in(info, bundle)), abandon_on_cancel=True)  # noqa: B023 - awaited within the turn of the loop
            if self._left is not None:
                found = found[: self._left]
                self._left -= len(found)
            if found:
                return found
        return None

    def stop(self) -> None:
        self._to_do = []

    def _in(self, info: StoredSession, bundle: Bundle) -> Iterator[SearchHit]:
        yield from self._in_entries(info, bundle.entries, None)
        for subpath, part in bundle.parts.items() if self._with_agents else ():
            yield from self._in_entries(info, part, subpath.rpartition("/")[2].removeprefix("agent-"))

    def _in_entries(
        self, info: StoredSession, entries: list[JsonObject], agent: str | None
    ) -> Iterator[SearchHit]:
        for number, data in enumerate(entries, 1):
            entry = to_entry(data)
            if (excerpt := self._search.excerpt(entry)) is not None:
                yield SearchHit(
                    session=info, entry=entry, line_number=number, excerpt=excerpt, agent_id=agent
                )

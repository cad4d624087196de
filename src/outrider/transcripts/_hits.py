"""Owns `Hits`, what a search gives: hits as they are found.

Does not search.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from outrider.transcripts._values import SearchHit

if TYPE_CHECKING:
    from typing import Self

    from outrider.transcripts._library import Puller

__all__ = ["Hits"]


class Hits:
    """The hits of a search, as they are found: `async for hit in sessions.search("TODO")`.

    Whoever leaves the loop early has nothing to do. If a wait is cancelled, the search is over.
    """

    def __init__(self, puller: Puller) -> None:
        """Made by `Sessions.search`."""
        self._puller = puller
        self._found: deque[SearchHit] = deque()
        self._has_ended = False

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> SearchHit:
        if not self._found:
            self._found += await self._pulled()
        return self._found.popleft()

    def __del__(self) -> None:
        self._end()

    async def _pulled(self) -> list[SearchHit]:
        if self._has_ended:
            raise StopAsyncIteration
        # A search that is cancelled or fails cannot go on.
        self._has_ended = True
        try:
            found = await self._puller.pull()
        except BaseException:
            self._puller.stop()
            raise
        if not found:
            raise StopAsyncIteration
        self._has_ended = False
        return found

    def _end(self) -> None:
        self._has_ended = True
        self._puller.stop()

"""How to follow what is answered to the agent: each follower gets all events from when it began.

Keeps nothing that nobody follows. What the events are is known to `outrider.handlers`.
"""

from __future__ import annotations

import weakref
from collections import deque
from typing import TYPE_CHECKING, Final

import anyio

if TYPE_CHECKING:
    from typing import Self

    from outrider.handlers import Handled

_KEPT: Final = 10_000
"""How many events are kept for a follower that does not read. The oldest go first: what happened last is
what counts when it looks again."""


class Followers:
    """Hands events to all who follow them."""

    def __init__(self) -> None:
        self._boxes: weakref.WeakSet[_Box] = weakref.WeakSet()
        self._is_closed = False

    def __call__(self, event: Handled) -> None:
        for box in list(self._boxes):
            box.put(event)

    def follow(self, owner: object = None) -> Following:
        """A new follower, which gets what comes from now on, and keeps `owner` meanwhile."""
        box = _Box(owner)
        if self._is_closed:
            box.close()
        self._boxes.add(box)
        return Following(box)

    def begin(self) -> None:
        """Something may come, also after an end: a session that could not be opened may be tried again."""
        self._is_closed = False

    def close(self) -> None:
        """Nothing more comes; what has come can still be read."""
        self._is_closed = True
        for box in list(self._boxes):
            box.close()


class Following:
    """Events as they come, for one reader: `async for event in session.handled(): ...`.

    It ends with the session. Of more than 10,000 that are not read the oldest are dropped, and counted in
    `missed`.
    """

    def __init__(self, box: _Box) -> None:
        """Made by `Session.handled`."""
        self._box = box

    @property
    def missed(self) -> int:
        """How many events were dropped because they were not read."""
        return self._box.missed

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Handled:
        return await self._box.take()


class _Box:
    """What one follower has not read yet."""

    def __init__(self, owner: object) -> None:
        self._owner = owner
        self._events: deque[Handled] = deque()
        self._more = anyio.Event()
        self._is_closed = False
        self.missed = 0

    def put(self, event: Handled) -> None:
        if len(self._events) >= _KEPT:
            self._events.popleft()
            self.missed += 1
        self._events.append(event)
        self._more.set()

    def close(self) -> None:
        self._is_closed = True
        self._more.set()

    async def take(self) -> Handled:
        while not self._events:
            if self._is_closed:
                raise StopAsyncIteration
            if self._more.is_set():
                self._more = anyio.Event()
            await self._more.wait()
        return self._events.popleft()

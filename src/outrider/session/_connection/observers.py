"""Lets a layer above see all messages of a session as they come, and refuse or end its turns.

It is not a reader: what it sees stays unread for others, and reading pauses as if it were not there. Decides
nothing itself.
"""

from __future__ import annotations

import weakref
from collections import deque
from typing import TYPE_CHECKING, Final, Protocol

import anyio

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Self

    from outrider.errors import OutriderError
    from outrider.handlers import Handled
    from outrider.session._connection.connection import Connection
    from outrider.session._instrument import SessionFollower
    from outrider.session._session import Session
    from outrider.session._usage import Usage
    from outrider.wire import Message


class Observer(Protocol):
    """Gets what happens in a session, in order, before the tasks that wait for it continue.

    Only `begins` may raise.
    """

    def begins(self) -> None:
        """A turn is about to be sent. If this raises, so does `send`, and nothing is sent."""
        ...

    def received(self, messages: Sequence[Message]) -> None:
        """These messages have come, for any turn."""
        ...

    def ended(self) -> None:
        """Nothing more will come."""
        ...


class Observed:
    """An observed session. Does not keep the session itself alive."""

    def __init__(self, connection: Connection, observer: Observer) -> None:
        """Made by `observe`."""
        self._connection = connection
        self._observer = observer
        connection.routing.observers.append(observer)

    @property
    def usage(self) -> Usage:
        """The usage since the session was opened here."""
        return self._connection.routing.meter.total

    @property
    def is_closed(self) -> bool:
        """Whether nothing more can come."""
        return self._connection.is_closed

    def end_turns(
        self, failure: Callable[[Sequence[Message], str | None], OutriderError], grace: float
    ) -> int:
        """Begin to end all turns that are not over, as `Turn.cancel` does; returns their number.

        Those that are cut off by it fail with what `failure` makes of the messages that came until then, and
        of the session's id.
        """
        connection = self._connection
        turns = list(connection.routing.outstanding)
        for turn in turns:
            connection.begin_stop(
                turn, lambda turn: failure(turn.received, connection.info.session_id), grace=grace
            )
        return len(turns)

    def stop(self) -> None:
        """Stop observing. A second call does nothing."""
        if self._observer in self._connection.routing.observers:
            self._connection.routing.observers.remove(self._observer)


def observe(session: Session, observer: Observer) -> Observed:
    """Begin to observe a session that is open. Raises `UsageError` if it is not."""
    return Observed(session._conversation.connected(), observer)  # pyright: ignore[reportPrivateUsage]


_KEPT: Final = 10_000
"""How many events are kept for a subscriber that does not read. The oldest are dropped: the latest matter
most when it reads again."""


class EventFeed:
    """Gives each event to all subscribers."""

    def __init__(self) -> None:
        self._subscriptions: weakref.WeakSet[_Subscription | SessionFollower] | None = None
        """Made with the first: most sessions have none."""
        self._is_closed = False

    def __bool__(self) -> bool:
        """Whether there is a subscriber."""
        return self._subscriptions is not None and len(self._subscriptions) > 0

    def __call__(self, event: Handled) -> None:
        for subscription in list(self._subscriptions or ()):
            subscription.put(event)

    def subscribe(self, owner: object = None) -> EventReader:
        """A reader of the events from now on. It keeps `owner` alive."""
        subscription = _Subscription(owner)
        if self._is_closed:
            subscription.close()
        self.add(subscription)
        return EventReader(subscription)

    def add(self, subscription: _Subscription | SessionFollower) -> None:
        """Give it the events from now on, for as long as it exists elsewhere."""
        if self._subscriptions is None:
            self._subscriptions = weakref.WeakSet()
        self._subscriptions.add(subscription)

    def begin(self) -> None:
        """Accept events, also after `close`: a session that failed to open may be opened again."""
        self._is_closed = False

    def close(self) -> None:
        """Accept no more events. Those that came can still be read."""
        self._is_closed = True
        for subscription in list(self._subscriptions or ()):
            subscription.close()


class EventReader:
    """Events as they come, for one reader: `async for event in session.handled(): ...`.

    It ends with the session. Of more than 10,000 that are not read the oldest are dropped, and counted in
    `missed`.
    """

    def __init__(self, subscription: _Subscription) -> None:
        """Made by `Session.handled`."""
        self._subscription = subscription

    @property
    def missed(self) -> int:
        """How many events were dropped because they were not read."""
        return self._subscription.missed

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Handled:
        return await self._subscription.take()


class _Subscription:
    """What one subscriber has not read yet."""

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

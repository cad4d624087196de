"""Lets layers above follow a session without being a reader: what they see stays unread for others, and
reading pauses as if they were not there.

An `Observer` sees all messages as they come, and may refuse or end turns. An `EventReader` gets each answer
to the agent. An `Instrument` makes telemetry of sessions, pools and runs: nothing of that is loaded or called
unless the options or `default_instrument` have one.
"""

from __future__ import annotations

import weakref
from collections import deque
from typing import TYPE_CHECKING, Final, Protocol, TypeAlias

import anyio

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from contextlib import AbstractContextManager
    from contextvars import Context
    from typing import Self

    from outrider.errors import OutriderError
    from outrider.fleet import Pool
    from outrider.handlers import Handled
    from outrider.options import Options
    from outrider.session._connection.connection import Connection
    from outrider.session._connection.conversation import Conversation
    from outrider.session._session import Session
    from outrider.session._streams.turn_state import TurnState
    from outrider.session._usage import Usage
    from outrider.wire import JsonObject, Message, StreamEvent
    from outrider.wire.control import Ask


class Observer(Protocol):
    """Gets what happens in a session, in order, before the tasks that wait for it continue.

    Only `begins` may raise.
    """

    def begins(self) -> None:
        """A turn is about to be sent. If this raises, so does `send`, and nothing is sent."""
        return

    def received(self, messages: Sequence[Message]) -> None:
        """These messages have come, for any turn."""
        return

    def ended(self) -> None:
        """Nothing more will come."""
        return


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


Facts: TypeAlias = "Mapping[str, str | int | float | bool | None]"


class SessionFollower(Protocol):
    """Follows one session, on its event loop. None of its methods raises, or waits."""

    def prepare(self, options: Options) -> Options:
        """The options as Claude Code is to be started with."""
        ...

    def starting(self) -> AbstractContextManager[Callable[[Connection], None]]:
        """Around the start of Claude Code; to be called with the connection once that is ready."""
        ...

    def turn_began(self, turn: TurnState, context: Context, continues: Sequence[str] = ()) -> None:
        """A turn is about to be sent, and its callbacks will run in copies of this context. `continues`: what
        `trace_of` gave for calls of other turns, perhaps in another process, that this one goes on with."""
        ...

    def trace_of(self, tool_use_id: str) -> str:
        """The turn that makes a call, in a form that can be kept; empty if it is not known."""
        ...

    def prompt_sent(self, turn: TurnState, frame: JsonObject) -> None:
        """A message of a turn is about to be sent."""
        ...

    def received(
        self,
        messages: Sequence[Message],
        kinds: set[type],
        figures: Sequence[StreamEvent],
        turns: Sequence[TurnState],
    ) -> None:
        """These messages have come together, for these turns. `figures` are those of the stream events that
        begin or end a message of the model: the others are too many to be looked at."""
        ...

    def used(self, usage: Usage, turns: Sequence[TurnState]) -> None:
        """A result tells that so much was used since the last one, by these turns together."""
        ...

    def turn_ended(self, turn: TurnState, usage: Usage | None) -> None:
        """A turn is over, and `usage` is what its messages tell if it has no result. A second call for it
        means nothing."""
        ...

    def answering(self, request: Ask) -> None:
        """A request of the agent is about to be answered, in the current context, which is a copy."""
        ...

    def put(self, event: Handled) -> None:
        """A request was answered."""
        ...

    def close(self) -> None:
        """No more requests are answered."""
        ...

    def ended(self, error: BaseException | None, usage: Usage) -> None:
        """Nothing more comes, because of this error if it was not closed; `usage` was in no result."""
        ...


class TaskFollower(Protocol):
    """Follows one task, or one attempt at it."""

    def end(self, status: str, error: str | None, facts: Facts) -> None:
        """What became of it: the class of its error, and what else is known."""
        ...


class Instrument(Protocol):
    """Makes telemetry. Nothing in it raises."""

    def follow(self, conversation: Conversation) -> SessionFollower:
        """Follow a session that is about to be opened."""
        ...

    def run(self, engine: str) -> AbstractContextManager[TaskFollower]:
        """Around a run of a fleet."""
        ...

    def task(self, id: str, number: int, total: int | None) -> AbstractContextManager[TaskFollower]:
        """Around a task of a run that has `total` of them, if that is known."""
        ...

    def attempt(self, number: int, session_id: str | None) -> AbstractContextManager[TaskFollower]:
        """Around an attempt at a task."""
        ...

    def carrier(self) -> dict[str, str]:
        """The current trace, to be continued by another process."""
        ...

    def resume(self, carrier: Mapping[str, str]) -> None:
        """Continue a trace of another process in the current context."""
        ...

    def pool_opened(self, pool: Pool) -> None:
        """A pool was opened."""
        ...

    def pool_wait(self) -> AbstractContextManager[TaskFollower]:
        """Around the time that a caller of a pool has to wait for a slot."""
        ...


class _Unfollowed:
    """Stands for all that nothing follows."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def end(self, status: str, error: str | None, facts: Facts) -> None:
        pass


UNFOLLOWED: Final = _Unfollowed()

default_instrument: Instrument | None = None
"""That of all sessions whose options have none."""


def instrument_of(options: Options) -> Instrument | None:
    """What makes telemetry of what is done with these options, if anything does."""
    given = options.telemetry
    if given is None:
        return default_instrument
    return given or None

"""What sessions, pools and runs report to telemetry: the protocols that `outrider.telemetry` fulfils.

Nothing of telemetry is loaded or called unless the options or `default` have an `Instrument`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Protocol, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from contextlib import AbstractContextManager
    from contextvars import Context
    from typing import Self

    from outrider.fleet import Pool
    from outrider.handlers import Handled
    from outrider.options import Options
    from outrider.session._connection.connection import Connection
    from outrider.session._connection.conversation import Conversation
    from outrider.session._streams.turn_state import TurnState
    from outrider.session._usage import Usage
    from outrider.wire import JsonObject, Message, StreamEvent
    from outrider.wire.control import Ask


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

default: Instrument | None = None
"""That of all sessions whose options have none."""


def instrument_of(options: Options) -> Instrument | None:
    """What makes telemetry of what is done with these options, if anything does."""
    given = options.telemetry
    if given is None:
        return default
    return given or None

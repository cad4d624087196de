"""Watches the turns of a connection: which timeout a turn has passed, and how it is interrupted or ended.

The limits are `Timeouts` in the options.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final, NamedTuple, TypeVar

import anyio

from outrider.errors import (
    ConnectionLost,
    RequestFailed,
    RequestTimedOut,
    TurnInterrupted,
    TurnTimedOut,
    Unsupported,
)
from outrider.wire.control import CancelAsyncMessage, Interrupt

if TYPE_CHECKING:
    from outrider.options import Timeouts
    from outrider.session._connection.connection import Connection
    from outrider.session._connection.tasks import Signal
    from outrider.session._streams.turn_state import TurnState
    from outrider.wire.control import Request


class Deadline(NamedTuple):
    """A time by which something must have happened."""

    at: float
    which: str
    """The field of `Timeouts` that sets it."""
    seconds: float


def deadline_of(
    turn: TurnState, timeouts: Timeouts, *, heard_at: float, kept_until: float, is_excused: bool
) -> Deadline | None:
    """The first deadline of a turn that has no result yet; None if it has none for now.

    `heard_at`: when the agent last said something; `kept_until`: until when we last kept it waiting.
    `is_excused`: it may be silent, because it waits for us, or works on something else.
    """
    if turn.front_at is None or turn.is_waiting_for_prompts:
        # Another turn is before it, and has deadlines of its own; or it waits for its user.
        return None
    since = max(turn.front_at, turn.prompted_at)
    found: list[Deadline] = []
    if timeouts.turn is not None:
        found.append(Deadline(since + timeouts.turn, "turn", timeouts.turn))
    if turn.retrying_since is not None and timeouts.retries is not None:
        found.append(Deadline(turn.retrying_since + timeouts.retries, "retries", timeouts.retries))
    if not is_excused:
        since = max(since, kept_until)
        if not turn.has_sign_of_life and timeouts.first_event is not None:
            found.append(Deadline(since + timeouts.first_event, "first_event", timeouts.first_event))
        elif timeouts.silence is not None and not turn.open_tools:
            found.append(Deadline(max(since, heard_at) + timeouts.silence, "silence", timeouts.silence))
    return min(found, default=None)


def patience(timeouts: Timeouts) -> float | None:
    """The longest time until deadlines are checked again: one that did not count before may count by then."""
    limits = (timeouts.first_event, timeouts.silence, timeouts.retries, timeouts.turn, timeouts.background)
    return min([limit for limit in limits if limit is not None], default=None)


log = logging.getLogger("outrider.session")

_READ_SECONDS: Final = 0.01
"""How long to read on before a deadline counts as passed. After a program has blocked its event loop, the
messages that kept the deadline may still be unread."""


class Watch:
    """Ends turns that pass their deadlines."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._patience = patience(connection.timeouts)
        self.heard_at = 0.0
        """When the agent last sent something."""
        self.kept_until = 0.0
        """Until when we last kept it waiting."""
        self._news: Signal[None] | None = None
        self._is_stopped = False

    def look_again(self) -> None:
        """Check again: something has changed that may have an earlier deadline."""
        if self._news is not None:
            self._news.set()

    def stop(self) -> None:
        """Let `run` end."""
        self._is_stopped = True
        self.look_again()

    async def run(self) -> None:
        """End turns that take too long."""
        while not self._is_stopped:
            self._news = self._connection.loop.make_signal()
            wait = self._look()
            if wait is not None and wait <= 0:
                await anyio.sleep(_READ_SECONDS)
                wait = self._look(is_earnest=True)
            await self._news.wait(wait)

    def _look(self, *, is_earnest: bool = False) -> float | None:
        """The seconds until the next deadline, 0 or less if it has passed; None if there is none.

        In earnest, turns whose deadline has passed are ended.
        """
        routing, timeouts = self._connection.routing, self._connection.timeouts
        now = anyio.current_time()
        due: list[float] = []
        for state in list(routing.outstanding):
            deadline = None if state.is_stopping else self._deadline(state)
            if deadline is not None and deadline.at <= now and is_earnest:
                self._overrun(state, deadline)
            elif deadline is not None:
                due.append(deadline.at - now)
        for state in list(routing.settling):
            if timeouts.background is None or state.answered_at is None:
                continue
            left = state.answered_at + timeouts.background - now
            if left <= 0 and is_earnest:
                routing.give_up_settling(state, now)
            else:
                due.append(left)
        if self._patience is not None and (routing.outstanding or routing.settling):
            due.append(self._patience)
        return min(due, default=None)

    def _deadline(self, state: TurnState) -> Deadline | None:
        return deadline_of(
            state,
            self._connection.timeouts,
            heard_at=self.heard_at,
            kept_until=self.kept_until,
            is_excused=self._connection.is_agent_excused,
        )

    def _overrun(self, state: TurnState, deadline: Deadline) -> None:
        connection = self._connection
        log.warning("a turn ran into its %s deadline of %g s", deadline.which, deadline.seconds)
        connection.begin_stop(
            state,
            lambda turn: TurnTimedOut(
                deadline.which,
                deadline.seconds,
                messages=turn.received,
                session_id=connection.info.session_id,
            ),
        )


T = TypeVar("T")

_ANSWER_SECONDS: Final = 1.0
"""How long the agent may take to answer before something else is tried. It takes milliseconds."""

_REPEAT_SECONDS: Final = 0.25
"""How long after an interrupt the next one follows, if nothing has come of it. The agent ignores one that
comes right behind a prompt. After one that it took, the time doubles: it may be at it, and one too many could
hit the turn behind."""


async def stop(connection: Connection, turn: TurnState) -> None:
    """End a turn: ask the agent for `turn.grace` seconds, then end the agent."""
    with anyio.move_on_after(turn.grace) as turn.stopping:
        try:
            await _ask(connection, turn)
        except ConnectionLost:
            # The turn ends with the connection, unless the agent is alive and just does not read.
            await _over(turn)
    if turn.is_over:
        return
    turn.is_killed = True
    why = f"the agent did not stop within {turn.grace:g} s, and was ended"
    if turn.make_failure is None:
        turn.make_failure = lambda turn: TurnInterrupted(
            message=why, messages=turn.received, session_id=connection.info.session_id
        )
    await connection.close(why)


async def _ask(connection: Connection, turn: TurnState) -> None:
    """Withdraw or interrupt it, again and again, until it is over."""
    pause = _REPEAT_SECONDS
    while not turn.is_over:
        was_taken = await _try(connection, turn)
        with anyio.move_on_after(pause if was_taken else _REPEAT_SECONDS):
            await _over(turn)
        pause = pause * 2 if was_taken else _REPEAT_SECONDS


async def _try(connection: Connection, turn: TurnState) -> bool:
    """Try once. False if another try is certainly needed."""
    is_answered = await _take_back(connection, turn)
    if turn.is_doubtful and is_answered and not turn.is_known:
        # The agent has answered a request sent after the prompt, and has never mentioned the prompt.
        connection.routing.fail(turn, None, anyio.current_time())
    if turn.is_over:
        return True
    if not turn.has_begun and connection.routing.is_behind_another(turn):
        # An interrupt would hit the other turn, and so would ending the agent. That turn has its own limits.
        if is_answered is not False and turn.stopping is not None:
            turn.stopping.deadline = anyio.current_time() + _REPEAT_SECONDS + turn.grace
        return False
    answer = await _ask_once(connection, Interrupt())
    return answer is None or turn.uuids.keys().isdisjoint(answer.still_queued)


async def _take_back(connection: Connection, turn: TurnState) -> bool | None:
    """Withdraw the prompts that the agent has not begun. False if it does not say whether it dropped them,
    None if its version cannot."""
    for uuid in turn.waiting_uuids:
        try:
            answer = await connection.request(CancelAsyncMessage(uuid), {}, _ANSWER_SECONDS)
        except RequestTimedOut:
            return False
        except Unsupported:
            return None
        except RequestFailed:
            # There are other ways.
            continue
        if answer.cancelled:
            connection.routing.withdrawn([uuid], anyio.current_time())
    return True


async def _ask_once(connection: Connection, request: Request[T]) -> T | None:
    try:
        return await connection.request(request, {}, _ANSWER_SECONDS)
    except RequestFailed:
        return None


async def _over(turn: TurnState) -> None:
    while not turn.is_over:
        await turn.stream.wait_changed()

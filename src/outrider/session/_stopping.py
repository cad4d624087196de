"""How a turn is ended before its time: taken back, interrupted, or ended with the agent.

Does not decide that it must end.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, TypeVar

import anyio

from outrider.errors import ConnectionLost, RequestFailed, RequestTimedOut, TurnInterrupted
from outrider.wire.control import CancelAsyncMessage, Interrupt

if TYPE_CHECKING:
    from outrider.session._connection import Connection
    from outrider.session._turn_state import TurnState
    from outrider.wire.control import Request

T = TypeVar("T")

_ANSWER_SECONDS: Final = 1.0
"""How long the agent may take to answer before something else is tried. It takes milliseconds."""

_REPEAT_SECONDS: Final = 0.25
"""How long after an interrupt the next one follows, if nothing has come of it. The agent ignores one that
comes right behind a prompt. After one that it took, the time doubles: it may be at it, and one too many could
hit the turn behind."""


async def stop(connection: Connection, turn: TurnState) -> None:
    """End a turn: within `turn.grace` seconds by asking, then with the agent."""
    with anyio.move_on_after(turn.grace) as turn.stopping:
        try:
            await _ask(connection, turn)
        except ConnectionLost:
            # Then the turn ends with the connection, unless the agent is there and only does not read.
            await _over(turn)
    if turn.is_over:
        return
    turn.is_killed = True
    why = f"the agent did not stop within {turn.grace:g} s, and was ended"
    if turn.doom is None:
        turn.doom = lambda turn: TurnInterrupted(
            message=why, messages=turn.received, session_id=connection.info.session_id
        )
    await connection.close(why)


async def _ask(connection: Connection, turn: TurnState) -> None:
    """Take it back or interrupt it, again and again, until it is over."""
    pause = _REPEAT_SECONDS
    while not turn.is_over:
        was_taken = await _try(connection, turn)
        with anyio.move_on_after(pause if was_taken else _REPEAT_SECONDS):
            await _over(turn)
        pause = pause * 2 if was_taken else _REPEAT_SECONDS


async def _try(connection: Connection, turn: TurnState) -> bool:
    """Try once. False if it is clear that it will take another try."""
    is_answered = await _take_back(connection, turn)
    if turn.is_doubtful and is_answered and not turn.is_known:
        # The agent has answered what was sent behind the prompt, and has not heard of the prompt.
        connection.routing.fail(turn, None, anyio.current_time())
    if turn.is_over:
        return True
    if not turn.has_begun and connection.routing.is_behind_another(turn):
        # An interrupt would hit that one, and so would the end of the agent. It has limits of its own.
        if is_answered and turn.stopping is not None:
            turn.stopping.deadline = anyio.current_time() + _REPEAT_SECONDS + turn.grace
        return False
    answer = await _ask_once(connection, Interrupt())
    return answer is None or turn.uuids.keys().isdisjoint(answer.still_queued)


async def _take_back(connection: Connection, turn: TurnState) -> bool:
    """Take back what the agent has not taken up. False if it does not say whether that can be done."""
    for uuid in turn.waiting_uuids:
        try:
            answer = await connection.request(CancelAsyncMessage(uuid), {}, _ANSWER_SECONDS)
        except RequestTimedOut:
            return False
        except RequestFailed:
            # Refused, or not known to this agent. There are other ways.
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
        await turn.stream.wait()

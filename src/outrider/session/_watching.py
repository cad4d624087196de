"""Watches over the turns of a connection, and has those ended that take too long.

When that is, is known to `_deadlines`; how a turn is ended, to `_stopping`.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

import anyio

from outrider.errors import TurnTimedOut
from outrider.session._deadlines import deadline_of, patience

if TYPE_CHECKING:
    from outrider.session._connection import Connection
    from outrider.session._deadlines import Deadline
    from outrider.session._turn_state import TurnState

log = logging.getLogger("outrider.session")

_READ_SECONDS: Final = 0.01
"""How long what has come may take to be read. A program that blocks its event loop for a while finds
deadlines passed, and what would have kept them unread."""


class Watch:
    """Knows when the agent was heard, and looks at the clock."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self.heard_at = 0.0
        """When the agent last said something."""
        self.kept_until = 0.0
        """Until when we last kept it waiting."""
        self._news = anyio.Event()

    def look_again(self) -> None:
        """Something has changed that may have an earlier deadline."""
        self._news.set()

    async def run(self) -> None:
        """End turns that take too long."""
        while True:
            self._news = anyio.Event()
            wait = self._look()
            if wait is not None and wait <= 0:
                await anyio.sleep(_READ_SECONDS)
                wait = self._look(is_earnest=True)
            with anyio.move_on_after(wait):
                await self._news.wait()

    def _look(self, *, is_earnest: bool = False) -> float | None:
        """The seconds until something is due, none or less if it is now; None if nothing is.

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
        look = patience(timeouts)
        if look is not None and (routing.outstanding or routing.settling):
            due.append(look)
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

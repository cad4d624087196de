"""Owns how a lasting session sits in a pool: its tenant, the process that it has at the moment, and whether
that may be taken away.

Does not decide to take it away: the steward does.
"""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING

import anyio

from outrider.fleet._starting import Starter
from outrider.session import SessionState

if TYPE_CHECKING:
    from outrider.fleet._lasting import LastingSession
    from outrider.fleet._pool_places import Place
    from outrider.fleet._pool_steward import Steward
    from outrider.options import Options
    from outrider.session import Session


class Seat(Starter):
    """Where one lasting session gets its processes from."""

    def __init__(self, steward: Steward, tenant: str) -> None:
        self._steward = steward
        self.tenant = tenant
        self.place: Place | None = None
        self.is_parking = False
        # Not kept: one that nobody has any more gives up its place.
        self._lasting: weakref.ref[LastingSession[object]] | None = None

    def seat(self, lasting: LastingSession[object]) -> None:
        """It is this one's."""
        self._lasting = weakref.ref(lasting)

    @property
    def lasting(self) -> LastingSession[object] | None:
        return None if self._lasting is None else self._lasting()

    async def start(self, options: Options, output: object) -> Session:
        return await self._steward.take(options, output, self.tenant, seat=self)

    async def stop(self, session: Session) -> None:
        await self._steward.give_back(session)

    def idle_seconds(self) -> float | None:
        """For how long it has had a process and not used it; None: it uses it, or has none."""
        place, lasting = self.place, self.lasting
        if place is None or place.state != "held" or place.session is None or lasting is None:
            return None
        since = lasting.idle_since
        # The agent may go on by itself after the turn.
        if since is None or place.session.state is not SessionState.IDLE:
            return None
        return anyio.current_time() - since

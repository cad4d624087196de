"""Owns who waits for a process of a pool, and in which order they are served: one of each tenant in turn.

Does not know what they wait for, nor when there is one: whoever does takes the next.
"""

from __future__ import annotations

from collections import deque
from contextvars import Context, copy_context
from typing import TYPE_CHECKING

import anyio

if TYPE_CHECKING:
    from collections.abc import Iterator

    from outrider.fleet._pool_places import Place
    from outrider.options import Options
    from outrider.session import Session


class Ticket:
    """One that waits. It ends with a place, or with an error."""

    def __init__(self, options: Options, session: Session | None, kind: int | None, tenant: str) -> None:
        self.options = options
        self.session = session
        """To be connected for it, if a process that is ready would not do."""
        self.kind = kind
        """Which of the pool's own options it may be served with; None: a process has to be started for it."""
        self.tenant = tenant
        self.context: Context = copy_context()
        self.place: Place | None = None
        """Promised to it; the process may still be starting."""
        self.error: BaseException | None = None
        self.is_gone = False
        """Nobody waits for it any more."""
        self.is_weighed = anyio.Event()
        """It was known whether there was room for it."""
        self.is_promised = anyio.Event()
        self.is_over = anyio.Event()

    def promise(self, place: Place) -> None:
        """A process is being started for it: it waits in no queue any more."""
        self.place = place
        self.is_weighed.set()
        self.is_promised.set()

    def serve(self, place: Place) -> None:
        self.promise(place)
        self.is_over.set()

    def fail(self, error: BaseException) -> None:
        self.error = error
        self.is_weighed.set()
        self.is_promised.set()
        self.is_over.set()


class FairQueue:
    """Tickets by tenant. A tenant that was served goes behind all others."""

    def __init__(self, limit: int | None = None) -> None:
        """`limit`: how many of one tenant may wait."""
        self._limit = limit
        self._tenants: dict[str, deque[Ticket]] = {}

    def __len__(self) -> int:
        return sum(map(len, self._tenants.values()))

    def __iter__(self) -> Iterator[Ticket]:
        return (ticket for waiting in self._tenants.values() for ticket in waiting)

    def enter(self, ticket: Ticket) -> None:
        self._tenants.setdefault(ticket.tenant, deque()).append(ticket)

    def leave(self, ticket: Ticket) -> None:
        """Take it out, wherever it stands; it may be out already."""
        waiting = self._tenants.get(ticket.tenant)
        if waiting is not None and ticket in waiting:
            waiting.remove(ticket)
            if not waiting:
                del self._tenants[ticket.tenant]

    @property
    def next(self) -> Ticket | None:
        """Whose turn it is."""
        return next(iter(self._tenants.values()))[0] if self._tenants else None

    def take(self) -> Ticket:
        """Take out the one whose turn it is; its tenant goes to the end."""
        tenant, waiting = next(iter(self._tenants.items()))
        ticket = waiting.popleft()
        del self._tenants[tenant]
        if waiting:
            self._tenants[tenant] = waiting
        return ticket

    def trim(self) -> list[Ticket]:
        """Take out those that came last, where more of a tenant wait than may."""
        out: list[Ticket] = []
        if self._limit is None:
            return out
        for tenant, waiting in list(self._tenants.items()):
            while len(waiting) > self._limit:
                out.append(waiting.pop())
            if not waiting:
                del self._tenants[tenant]
        return out

    def empty(self) -> list[Ticket]:
        """Take out everybody."""
        out = list(self)
        self._tenants.clear()
        return out

    def counts(self) -> dict[str, int]:
        """How many wait, by tenant."""
        return {tenant: len(waiting) for tenant, waiting in self._tenants.items()}

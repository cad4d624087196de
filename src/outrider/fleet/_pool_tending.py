"""Owns what a pool does without being asked: it keeps processes ready, measures them, exchanges those that
have had their time or do not answer, parks idle sessions, and ends everything at the end.

Does not serve anybody: the steward does.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

import anyio

from outrider.errors import ConnectionLost, OutriderError, RequestTimedOut
from outrider.fleet._errors import PoolClosed

if TYPE_CHECKING:
    from outrider.fleet._pool_places import Place
    from outrider.fleet._pool_seat import Seat
    from outrider.fleet._pool_steward import Steward

log = logging.getLogger("outrider.fleet")

_TICK: Final = 1.0
"""How often ages and idle times are looked at, in seconds."""

_TICK_WHEN_WAITED_FOR: Final = 0.05
"""How often it is looked whether a lasting session has become idle, while somebody waits for its place."""

_MEASURING_SHARE: Final = 20
"""Measuring may take one in so many seconds: it looks at every process of the machine."""

_HEALTH_SECONDS: Final = 10.0
"""How long a process may take to answer, at most."""


class Tending:
    """Looks after the processes of a steward, as long as `run` runs."""

    def __init__(self, steward: Steward) -> None:
        self._steward = steward
        self._rules = steward.rules
        self._places = steward.places
        self._counters = steward.counters
        self.is_up = anyio.Event()
        self.is_gone = anyio.Event()
        self._looked = anyio.Event()
        """Set after each look, and made anew."""
        self._checked_at = 0.0

    async def run(self) -> None:
        """All of it, until `close` and what follows from it."""
        steward = self._steward
        try:
            async with anyio.create_task_group() as steward.tasks:
                self._checked_at = anyio.current_time()
                self.is_up.set()
                while not steward.is_closing:
                    steward.changed = anyio.Event()
                    await self._look()
                    with anyio.move_on_after(self._pause()):
                        await steward.changed.wait()
                await self._wind_up()
                steward.tasks.cancel_scope.cancel()
        finally:
            steward.tasks = None
            self.close(hurry=True)
            for place in self._places.in_state("starting", "warm", "held", "closing"):
                # The event loop goes down.
                steward.drop(place)
            self.is_gone.set()

    async def _look(self) -> None:
        await self._measure()
        self._exchange()
        self._shrink()
        self._steward.serve()
        self._refill()
        self._check_health()
        self._looked.set()
        self._looked = anyio.Event()

    def _pause(self) -> float:
        steward = self._steward
        is_waited_for = len(steward.queue) > 0 and any(seat.place is not None for seat in steward.seats)
        return _TICK_WHEN_WAITED_FOR if is_waited_for else _TICK

    # Memory.

    async def _measure(self) -> None:
        rules, now = self._rules, anyio.current_time()
        if rules.max_memory is None and rules.max_process_memory is None:
            interval = rules.health_seconds or _TICK * _MEASURING_SHARE
        else:
            interval = max(_TICK, self._places.measuring_took * _MEASURING_SHARE)
        measured_at = self._places.measured_at
        if self._steward.wants_figures or measured_at is None or now - measured_at >= interval:
            await self._places.measure()
            self._steward.wants_figures = False

    def _shrink(self) -> None:
        """Those that work have grown over the limit: what does not work has to go, the largest first."""
        excess = self._places.excess - sum(place.size or 0 for place in self._places.in_state("closing"))
        left = len(self._places.in_state("starting", "warm", "held"))
        for place in sorted(self._places.in_state("warm"), key=lambda place: -(place.size or 0)):
            # The next one would be as large as the last, which may be there whatever it has.
            if excess <= 0 or left == 1:
                return
            left -= 1
            excess -= place.size or 0
            self._counters.evicted += 1
            self._steward.end(place)
        for seat in sorted(self._steward.idle_seats(), key=lambda seat: -_size(seat)):
            if excess <= 0:
                return
            excess -= _size(seat)
            self._steward.park(seat)

    # Exchanging.

    def _exchange(self) -> None:
        """End processes that are dead or have had their time; park sessions that have been idle for long."""
        for place in self._places.in_state("held"):
            if place.is_deserted:
                self._steward.end(place)
        for place in self._places.in_state("warm"):
            if place.is_dead:
                self._replace(place)
            elif self._is_spent(place):
                self._counters.recycled += 1
                self._steward.end(place)
        park_after = self._rules.park_after
        for seat in self._steward.idle_seats():
            idle = seat.idle_seconds()
            if seat.place is not None and self._is_spent(seat.place):
                self._counters.recycled += 1
                self._steward.park(seat)
            elif park_after is not None and idle is not None and idle >= park_after:
                self._steward.park(seat)

    def _is_spent(self, place: Place) -> bool:
        rules = self._rules
        return (
            (rules.max_age is not None and anyio.current_time() - place.began_at >= rules.max_age)
            or (rules.max_turns is not None and place.turns >= rules.max_turns)
            or (rules.max_process_memory is not None and self._is_larger(place, rules.max_process_memory))
        )

    def _is_larger(self, place: Place, most: int) -> bool:
        # In place of one that was larger from the start there would only be another such.
        is_like_all = place.state == "warm" and (place.first_size or 0) > most
        return (place.size or 0) > most and not is_like_all

    def _replace(self, place: Place) -> None:
        self._counters.replaced += 1
        self._steward.end(place)

    # Health.

    def _check_health(self) -> None:
        interval, now = self._rules.health_seconds, anyio.current_time()
        if interval is not None and now - self._checked_at >= interval:
            self._checked_at = now
            for place in self._places.in_state("warm"):
                self._steward.start_soon(self._check, place, min(interval, _HEALTH_SECONDS))

    async def _check(self, place: Place, limit: float) -> None:
        """Ask a warm process something that costs nothing; one that does not answer is replaced."""
        session = place.session
        assert session is not None
        try:
            await session.mcp_status(timeout=limit)
        except (ConnectionLost, RequestTimedOut) as error:
            if place.state == "warm":
                log.warning("a warm process did not answer and is replaced: %s", error)
                self._replace(place)
        except OutriderError:
            pass  # It answered.

    # Keeping ready.

    def _refill(self) -> None:
        """Make processes ready, one of each kind in turn. Those who wait come first."""
        steward, warm = self._steward, self._rules.warm
        if steward.is_closing or len(steward.queue):
            return
        for count in range(1, warm + 1):
            for kind, options in enumerate(steward.kinds.all):
                if self._is_short(kind, count) and self._places.is_room() and steward.is_known():
                    steward.begin(options, kind, None)
        for kind in range(len(steward.kinds)):
            # Left over from callers who did not wait for them.
            ready = self._ready(kind)
            for place in [place for place in ready if place.state == "warm"][: max(0, len(ready) - warm)]:
                steward.end(place)

    def _is_short(self, kind: int, count: int) -> bool:
        backoff, ready = self._steward.backoff.get(kind), self._ready(kind)
        if backoff is not None and not backoff.is_over:
            return False
        # After a failure, one alone is tried.
        is_tried = backoff is not None and any(place.state == "starting" for place in ready)
        return len(ready) < count and not is_tried

    def _ready(self, kind: int) -> list[Place]:
        """Those of a kind that are ready for the next who asks, or will be."""
        return [
            place
            for place in self._places.in_state("starting", "warm")
            if place.kind == kind and not place.is_claimed
        ]

    async def wait_warm(self) -> None:
        """Wait until all is ready that there is room for. Raises why it cannot be."""
        steward, warm = self._steward, self._rules.warm
        while True:
            if steward.is_closing:
                raise PoolClosed
            for backoff in steward.backoff.values():
                raise backoff.error
            ready = [place.kind for place in self._places.in_state("warm")]
            is_short = any(ready.count(kind) < warm for kind in range(len(steward.kinds)))
            is_coming = bool(self._places.in_state("starting", "closing")) or self._places.is_room()
            if not (is_short and is_coming):
                return
            await self._looked.wait()

    # The end.

    def close(self, *, hurry: bool) -> None:
        """Begin to end: nobody is served any more. `hurry`: turns are not waited for either."""
        steward = self._steward
        steward.is_hurried = steward.is_hurried or hurry
        steward.is_closing = True
        for ticket in steward.queue.empty():
            ticket.fail(PoolClosed())
        steward.wake()
        self._looked.set()

    async def _wind_up(self) -> None:
        steward = self._steward
        while len(self._places):
            steward.changed = anyio.Event()
            for place in self._places.in_state("warm", "held"):
                if steward.is_hurried or place.state == "warm" or place.is_deserted:
                    steward.end(place)
                elif place.seat is not None:
                    steward.park(place.seat)
            for place in self._places.in_state("starting"):
                if steward.is_hurried or not place.is_claimed:
                    steward.give_up(place)
            with anyio.move_on_after(_TICK):
                await steward.changed.wait()


def _size(seat: Seat) -> int:
    return 0 if seat.place is None else seat.place.size or 0

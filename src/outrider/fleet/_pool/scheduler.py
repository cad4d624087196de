"""Owns who is served next, and what is started, parked and ended for it.

Everything that outlives a call is done in one task of the event loop's, so that no cancelled caller leaves a
process or a place behind. What is done without being asked is in `_pool_tending`.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final, cast
from weakref import WeakSet

import anyio
from anyio.lowlevel import EventLoopToken, current_token

from outrider.errors import ConnectionLost, OutriderError, RequestTimedOut, UsageError
from outrider.fleet._errors import PoolClosed, QueueFull, QueueTimedOut
from outrider.fleet._pool.limits import Counters, Seat
from outrider.fleet._pool.slots import FairQueue, Place, Places, Ticket
from outrider.session import Session, observe

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from anyio.abc import TaskGroup

    from outrider.fleet._pool.limits import Kinds, Rules
    from outrider.options import Options
    from outrider.wire import Message


log = logging.getLogger("outrider.fleet")

_FIRST_BACKOFF: Final = 1.0
_LONGEST_BACKOFF: Final = 60.0
"""How long nothing is made ready for options with which the last start failed."""


class Backoff:
    """After a start that failed: until when none is tried, how long that is, and why."""

    def __init__(self, before: Backoff | None, error: BaseException) -> None:
        self.seconds: float = _FIRST_BACKOFF if before is None else min(2 * before.seconds, _LONGEST_BACKOFF)
        self.until = anyio.current_time() + self.seconds
        self.error = error

    @property
    def is_over(self) -> bool:
        return self.until <= anyio.current_time()


class Steward:
    """Has the processes of a pool, and serves those who ask for one."""

    def __init__(self, rules: Rules, kinds: Kinds) -> None:
        self.rules = rules
        self.kinds = kinds
        self.places = Places(rules.max_processes, rules.max_memory)
        self.queue = FairQueue(rules.queue_limit)
        self.counters = Counters()
        self.seats: WeakSet[Seat] = WeakSet()
        self.backoff: dict[int, Backoff] = {}
        """By kind."""
        self.token: EventLoopToken | None = None
        """Of the event loop that it was opened on."""
        self.tasks: TaskGroup | None = None
        """Where all of it runs; None: not opened, or over."""
        self.is_closing = False
        self.is_hurried = False
        """No turn is waited for any more."""
        self.wants_figures = False
        """Somebody cannot be served before memory is measured."""
        self.changed = anyio.Event()

    def wake(self) -> None:
        """Something has changed."""
        self.changed.set()

    def check(self) -> None:
        """Raises `PoolClosed` or `UsageError` if nobody can be served."""
        if self.is_closing:
            raise PoolClosed
        if self.tasks is None:
            raise UsageError(
                "The pool is not open. Use it inside `async with outrider.fleet.Pool(…) as pool:`."
            )
        self.check_loop()

    def check_loop(self) -> None:
        """Raises `UsageError` on another event loop than that on which the pool was opened."""
        if self.token is not None and self.token != current_token():
            raise UsageError("The pool belongs to another event loop: each loop needs a pool of its own.")

    # Taking.

    async def take(
        self,
        options: Options,
        output: object,
        tenant: str,
        *,
        seat: Seat | None = None,
        timeout: float | None = None,
    ) -> Session:
        """A connected session, which holds a place. Whatever is raised, nothing is held then."""
        self.check()
        kind = self.kinds.number_of(options, output)
        # Here, because what is wrong with them is the caller's business.
        own = None if kind is not None else cast("Session", Session(options, output=output))
        ticket = Ticket(options, own, kind, tenant)
        self.queue.enter(ticket)
        self.serve()
        try:
            await self._wait_for_promise(ticket, self.rules.queue_seconds if timeout is None else timeout)
            await ticket.is_over.wait()
        except BaseException:
            self._renounce(ticket)
            raise
        if ticket.error is not None:
            raise ticket.error
        place = ticket.place
        assert place is not None
        assert place.session is not None
        place.seat = seat
        if seat is not None:
            seat.place = place
        return place.session

    async def _wait_for_promise(self, ticket: Ticket, limit: float | None) -> None:
        if ticket.is_promised.is_set():
            return
        began = anyio.current_time()
        self.counters.waits += 1
        self.wake()
        try:
            # To find out whether there is room is no waiting for it.
            await ticket.is_weighed.wait()
            with anyio.move_on_after(limit):
                await ticket.is_promised.wait()
        finally:
            self.counters.waited_seconds += anyio.current_time() - began
        if not ticket.is_promised.is_set():
            self.counters.turned_away += 1
            raise QueueTimedOut(limit, ticket.tenant)

    def _renounce(self, ticket: Ticket) -> None:
        """Nobody waits for it any more. What is being made for it may serve somebody else."""
        ticket.is_gone = True
        self.queue.leave(ticket)
        place = ticket.place
        if place is not None and ticket.error is None:
            if ticket.is_over.is_set():
                self._offer(place)
            else:
                place.is_claimed = False
                if place.kind is None:
                    self.give_up(place)
        self.wake()

    async def give_back(self, session: Session) -> bool:
        """End a process that was handed out, and wait until its place is free. Cancelled, that goes on.

        Tells whether the session was one of this pool's.
        """
        self.check_loop()
        place = self.places.of(session)
        if place is None:
            return False
        self.end(place)
        await place.gone.wait()
        return True

    # Serving.

    def serve(self) -> None:
        """Serve those who wait, as far as that goes at this moment. Nothing in it waits, so that no place can
        be given to two."""
        if self.is_closing:
            return
        while (ticket := self.queue.next) is not None:
            if (place := self._find_warm(ticket.kind)) is not None:
                self.queue.take()
                self.counters.hits += 1
                place.state = "held"
                ticket.serve(place)
                continue
            if not self.is_known():
                return
            if not self.places.is_room():
                self._make_room()
                break
            self.queue.take()
            self.counters.misses += 1
            ticket.promise(self.begin(ticket.options, ticket.kind, ticket))
        for ticket in self.queue.trim():
            self.counters.turned_away += 1
            ticket.fail(QueueFull(self.rules.queue_limit or 0, ticket.tenant))
        for ticket in self.queue:
            ticket.is_weighed.set()

    def is_known(self) -> bool:
        """Whether it can be told if there is room. If not, memory is going to be measured."""
        is_known = self.places.is_full or self.places.is_fresh(anyio.current_time())
        if not is_known:
            self.wants_figures = True
            self.wake()
        return is_known

    def _find_warm(self, kind: int | None) -> Place | None:
        if kind is None:
            return None
        for place in self.places.in_state("warm"):
            if place.kind == kind:
                if not place.is_dead:
                    return place
                self.counters.replaced += 1
                self.end(place)
        return None

    def _make_room(self) -> None:
        """End what nobody uses, for those who wait: warm processes, then those of idle lasting sessions."""
        wanted = {ticket.kind for ticket in self.queue}
        starting = self.places.in_state("starting")
        coming = [place for place in starting if not place.is_claimed and place.kind in wanted]
        going = [seat for seat in self.seats if seat.is_parking and seat.idle_seconds() is not None]
        missing = len(self.queue) - len(coming) - len(going) - len(self.places.in_state("closing"))
        for place in self.places.in_state("warm")[: max(0, missing)]:
            missing -= 1
            self.counters.evicted += 1
            self.end(place)
        for seat in self.idle_seats()[: max(0, missing)]:
            self.park(seat)

    # Starting and ending.

    def begin(self, options: Options, kind: int | None, ticket: Ticket | None) -> Place:
        """Take a place and begin to start a process in it, for a ticket or to have it ready."""
        place = self.places.take(options, kind, anyio.current_time())
        place.is_claimed = ticket is not None
        place.session = None if ticket is None else ticket.session
        if ticket is None:
            self.start_soon(self._start, place, None)
        else:
            # In the context of whoever asked: callbacks outside of turns see it.
            ticket.context.run(self.start_soon, self._start, place, ticket)
        return place

    async def _start(self, place: Place, ticket: Ticket | None) -> None:
        session = place.session = place.session or Session(place.options)
        failure: BaseException | None = PoolClosed()
        try:
            await session.connect()
            if self.is_hurried:
                await session.close()
            else:
                failure = None
        except Exception as error:  # noqa: BLE001 - whoever waits for it gets it
            failure = error
        finally:
            # Also if the event loop goes down.
            if failure is not None:
                self._failed(place, ticket, failure)
        if failure is None:
            self._started(place, session, ticket)

    def _started(self, place: Place, session: Session, ticket: Ticket | None) -> None:
        self.counters.started += 1
        if place.kind is not None:
            self.backoff.pop(place.kind, None)
        observe(session, _Watch(self, place))
        if ticket is None or ticket.is_gone:
            self._offer(place)
        else:
            place.state = "held"
            ticket.serve(place)

    def _failed(self, place: Place, ticket: Ticket | None, failure: BaseException) -> None:
        self.counters.failed += 1
        if ticket is not None:
            ticket.fail(failure)
        elif place.kind is not None and not self.is_closing:
            self._hold_off(place.kind, failure)
        self._free(place)

    def _hold_off(self, kind: int, failure: BaseException) -> None:
        before = self.backoff.get(kind)
        # Several that were begun together count once.
        if before is None or before.is_over:
            backoff = self.backoff[kind] = Backoff(before, failure)
            log.warning("no process could be made ready; next try in %g s: %s", backoff.seconds, failure)

    def _offer(self, place: Place) -> None:
        """A process that is ready and has done nothing yet: it serves the next, or waits."""
        if place.kind is None or self.is_closing or place.is_dead:
            self.end(place)
            return
        place.state, place.is_claimed = "warm", False
        self.serve()
        self.wake()

    def end(self, place: Place) -> None:
        """Begin to end a process; its place is free when it is gone."""
        if self.tasks is None:
            self.drop(place)
        elif place.state != "closing":
            place.state = "closing"
            self.start_soon(self._close, place)

    def give_up(self, place: Place) -> None:
        """End a start that nobody needs: it fails then, and gives its place back."""
        if place.session is not None:
            self.start_soon(place.session.close)

    def drop(self, place: Place) -> None:
        """Let go of a process when the event loop goes down, and there is nobody to wait for its end."""
        if place.session is not None:
            place.session.abandon()
        self._free(place)

    async def _close(self, place: Place) -> None:
        try:
            if place.session is not None:
                await place.session.close()
        finally:
            self._free(place)

    def _free(self, place: Place) -> None:
        self.places.give_back(place)
        if place.seat is not None and place.seat.place is place:
            place.seat.place = None
        self.serve()
        self.wake()

    def start_soon(self, function: Callable[..., Awaitable[object]], *arguments: object) -> None:
        """Start a task of the pool's."""
        if self.tasks is not None:
            self.tasks.start_soon(_quietly, function, arguments)

    # Parking.

    def idle_seats(self) -> list[Seat]:
        """Lasting sessions that could be parked, the one that has been idle for longest first."""
        idle = [
            (seconds, number, seat)
            for number, seat in enumerate(self.seats)
            if not seat.is_parking and (seconds := seat.idle_seconds()) is not None
        ]
        return [seat for _, _, seat in sorted(idle, reverse=True)]

    def park(self, seat: Seat) -> None:
        """Begin to park a lasting session. One that is in a turn is parked after it."""
        if not seat.is_parking:
            seat.is_parking = True
            self.start_soon(self._park, seat)

    async def _park(self, seat: Seat) -> None:
        try:
            lasting = seat.lasting
            # Since then it may have begun a turn. At the end that is waited for.
            is_due = self.is_closing or seat.idle_seconds() is not None
            if lasting is not None and seat.place is not None and is_due:
                self.counters.parkings += 1
                await lasting.park()
        finally:
            seat.is_parking = False
            self.wake()


class _Watch:
    """Counts the turns of a process, and notices its end."""

    def __init__(self, steward: Steward, place: Place) -> None:
        self._steward = steward
        self._place = place

    def begins(self) -> None:
        self._place.turns += 1

    def received(self, messages: Sequence[Message]) -> None:
        pass

    def ended(self) -> None:
        self._steward.wake()


async def _quietly(function: Callable[..., Awaitable[object]], arguments: tuple[object, ...]) -> None:
    """What goes wrong in one task of a pool must not end the others."""
    try:
        await function(*arguments)
    except Exception:
        log.exception("a task of a pool failed")


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

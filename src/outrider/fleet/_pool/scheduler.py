"""The scheduler of a pool: serves waiting callers, and starts, parks and ends processes for them.

Everything that outlives a call runs in one background task, so that a cancelled caller leaves no process and
no slot behind.
"""

from __future__ import annotations

import logging
import math
from typing import TYPE_CHECKING, Any, Final, cast
from weakref import WeakSet

import anyio
from anyio.lowlevel import EventLoopToken, current_token

from outrider.errors import ConnectionLost, OutriderError, RequestTimedOut, UsageError
from outrider.fleet._errors import PoolClosed, QueueFull, QueueTimedOut
from outrider.fleet._pool.slots import Counters, FairQueue, PooledStarter, Slot, Slots, Ticket
from outrider.session import Session, observe
from outrider.session._connection.observers import instrument_of

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from anyio.abc import TaskGroup

    from outrider.fleet._pool.slots import Rules, WarmOptions
    from outrider.options import Options
    from outrider.wire import Message


log = logging.getLogger("outrider.fleet")

_FIRST_BACKOFF: Final = 1.0
_LONGEST_BACKOFF: Final = 60.0
"""How long nothing is made ready for options with which the last start failed."""

_TICK: Final = 1.0
"""How often ages and idle times are looked at, in seconds."""

_TICK_WHEN_WAITED_FOR: Final = 0.05
"""How often to check for idle resilient sessions while a caller waits for a slot."""

_MEASURING_SHARE: Final = 20
"""Measuring may take one in this many seconds: it looks at every process of the machine."""

_HEALTH_SECONDS: Final = 10.0
"""How long a process may take to answer, at most."""


class Backoff:
    """After a start that failed: until when none is tried, how long that is, and why."""

    def __init__(self, before: Backoff | None, error: BaseException) -> None:
        self.seconds: float = _FIRST_BACKOFF if before is None else min(2 * before.seconds, _LONGEST_BACKOFF)
        self.until = anyio.current_time() + self.seconds
        self.error = error

    @property
    def is_over(self) -> bool:
        return self.until <= anyio.current_time()


class Scheduler:
    """Starts and ends the processes of a pool, and hands them to callers, while `run` runs."""

    def __init__(self, rules: Rules, warm_options: WarmOptions) -> None:
        self.rules = rules
        self.warm_options = warm_options
        self.slots = Slots(rules.max_processes, rules.max_memory)
        self.queue = FairQueue(rules.queue_limit)
        self.counters = Counters()
        self.starters: WeakSet[PooledStarter] = WeakSet()
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
        """A caller cannot be served before memory is measured."""
        self.changed = anyio.Event()
        self.is_up = anyio.Event()
        self.is_gone = anyio.Event()
        self._looked = anyio.Event()
        """Set after each check, and then replaced."""
        self._checked_at = 0.0

    def wake(self) -> None:
        """Something has changed."""
        self.changed.set()

    def check(self) -> None:
        """Raises `PoolClosed` or `UsageError` if the pool is not open."""
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
        starter: PooledStarter | None = None,
        timeout: float | None = None,
    ) -> Session:
        """A connected session, which holds a slot. If this raises, no slot is held."""
        self.check()
        kind = self.warm_options.number_of(options, output)
        # Here, because what is wrong with them is the caller's business.
        own = None if kind is not None else Session(options, output=cast(Any, output))
        ticket = Ticket(options, own, kind, tenant)
        self.queue.enter(ticket)
        self.serve()
        try:
            limit = self.rules.queue_seconds if timeout is None else timeout
            admitted = None if starter is None else starter.admitted
            if (instrument := instrument_of(options)) is None or ticket.is_promised.is_set():
                await self._wait_for_promise(ticket, limit, admitted)
            else:
                with instrument.pool_wait() as follower:
                    await self._wait_for_promise(ticket, limit, admitted)
                    # One that is being started is promised before it is there.
                    follower.end("done", None, {"outrider.pool.hit": ticket.is_over.is_set()})
            await ticket.is_over.wait()
        except BaseException:
            self._renounce(ticket)
            raise
        if ticket.error is not None:
            raise ticket.error
        slot = ticket.slot
        assert slot is not None
        assert slot.session is not None
        slot.starter = starter
        if starter is not None:
            starter.slot = slot
        return slot.session

    async def _wait_for_promise(
        self, ticket: Ticket, limit: float | None, admitted: anyio.Event | None
    ) -> None:
        if ticket.is_promised.is_set():
            if admitted is not None and ticket.error is None:
                admitted.set()
            return
        began = anyio.current_time()
        self.counters.waits += 1
        self.wake()
        try:
            # The limit does not include the time to find out whether there is room.
            await ticket.is_weighed.wait()
            if admitted is not None and ticket.error is None:
                admitted.set()
            with anyio.move_on_after(limit):
                await ticket.is_promised.wait()
        finally:
            self.counters.waited_seconds += anyio.current_time() - began
        if not ticket.is_promised.is_set():
            self.counters.turned_away += 1
            raise QueueTimedOut(limit, ticket.tenant)

    def _renounce(self, ticket: Ticket) -> None:
        """The caller is gone. What is being started for it may serve another."""
        ticket.is_gone = True
        self.queue.leave(ticket)
        slot = ticket.slot
        if slot is not None and ticket.error is None:
            if ticket.is_over.is_set():
                self._offer(slot)
            else:
                slot.is_claimed = False
                if slot.kind is None:
                    self.give_up(slot)
        self.wake()

    async def give_back(self, session: Session) -> bool:
        """End a process that was handed out, and wait for its slot. Cancelling the call does not stop that.

        Returns whether the session was one of this pool's.
        """
        self.check_loop()
        slot = self.slots.of(session)
        if slot is None:
            return False
        self.end(slot)
        await slot.gone.wait()
        return True

    # Serving.

    def serve(self) -> None:
        """Serve waiting callers, as far as possible now. It never waits, so that no slot is given to two."""
        if self.is_closing:
            return
        while (ticket := self.queue.next) is not None:
            if (slot := self._find_warm(ticket.kind)) is not None:
                self.queue.take()
                self.counters.hits += 1
                slot.state = "held"
                ticket.serve(slot)
                continue
            if not self.is_known():
                return
            if not self.slots.is_room():
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
        """Whether the figures say if there is room. If they are too old, memory will be measured."""
        is_known = self.slots.is_full or self.slots.is_fresh(anyio.current_time())
        if not is_known:
            self.wants_figures = True
            self.wake()
        return is_known

    def _find_warm(self, kind: int | None) -> Slot | None:
        if kind is None:
            return None
        for slot in self.slots.in_state("warm"):
            if slot.kind == kind:
                if not slot.is_dead:
                    return slot
                self._replace(slot)
        return None

    def _count_missing(self) -> int:
        """How many callers wait for whom nothing is being started or ended yet."""
        wanted = {ticket.kind for ticket in self.queue}
        starting = self.slots.in_state("starting")
        coming = [slot for slot in starting if not slot.is_claimed and slot.kind in wanted]
        going = [
            starter for starter in self.starters if starter.is_parking and starter.idle_seconds() is not None
        ]
        return len(self.queue) - len(coming) - len(going) - len(self.slots.in_state("closing"))

    def _make_room(self) -> None:
        """End unused processes for waiting callers: warm ones, then those of idle resilient sessions."""
        missing = self._count_missing()
        for slot in self.slots.in_state("warm")[: max(0, missing)]:
            missing -= 1
            self.counters.evicted += 1
            self.end(slot)
        for starter in self.idle_starters()[: max(0, missing)]:
            self.park(starter)

    # Starting and ending.

    def begin(self, options: Options, kind: int | None, ticket: Ticket | None) -> Slot:
        """Take a slot and begin to start a process in it, for a ticket or to have it ready."""
        slot = self.slots.take(options, kind, anyio.current_time())
        slot.is_claimed = ticket is not None
        slot.session = None if ticket is None else ticket.session
        if ticket is None:
            self.start_soon(self._start, slot, None)
        else:
            # In the context of the caller: callbacks outside of turns see it.
            ticket.context.run(self.start_soon, self._start, slot, ticket)
        return slot

    async def _start(self, slot: Slot, ticket: Ticket | None) -> None:
        session = slot.session = slot.session or Session(slot.options)
        failure: BaseException | None = PoolClosed()
        try:
            await session.connect()
            if self.is_hurried:
                await session.close()
            else:
                failure = None
        except Exception as error:  # noqa: BLE001 - raised to the caller that waits for it
            failure = error
        finally:
            # Also if the event loop goes down.
            if failure is not None:
                self._failed(slot, ticket, failure)
        if failure is None:
            self._started(slot, session, ticket)

    def _started(self, slot: Slot, session: Session, ticket: Ticket | None) -> None:
        self.counters.started += 1
        if slot.kind is not None:
            self.backoff.pop(slot.kind, None)
        observe(session, _Watch(self, slot))
        if ticket is None or ticket.is_gone:
            self._offer(slot)
        else:
            slot.state = "held"
            ticket.serve(slot)

    def _failed(self, slot: Slot, ticket: Ticket | None, failure: BaseException) -> None:
        self.counters.failed += 1
        if ticket is not None:
            ticket.fail(failure)
        elif slot.kind is not None and not self.is_closing:
            before = self.backoff.get(slot.kind)
            # Several that were begun together count once.
            if before is None or before.is_over:
                backoff = self.backoff[slot.kind] = Backoff(before, failure)
                log.warning("no process could be made ready; next try in %g s: %s", backoff.seconds, failure)
        self._free(slot)

    def _offer(self, slot: Slot) -> None:
        """A process that is ready and has done nothing yet: it serves the next, or waits."""
        if slot.kind is None or self.is_closing or slot.is_dead:
            self.end(slot)
            return
        slot.state, slot.is_claimed = "warm", False
        self.serve()
        self.wake()

    def end(self, slot: Slot) -> None:
        """Begin to end a process; its slot is free when it is gone."""
        if self.tasks is None:
            self.drop(slot)
        elif slot.state != "closing":
            slot.state = "closing"
            self.start_soon(self._close, slot)

    def give_up(self, slot: Slot) -> None:
        """End a start that is not needed: it fails, and gives its slot back."""
        if slot.session is not None:
            self.start_soon(slot.session.close)

    def drop(self, slot: Slot) -> None:
        """Abandon a process when the event loop ends, without waiting for it."""
        if slot.session is not None:
            slot.session.abandon()
        self._free(slot)

    async def _close(self, slot: Slot) -> None:
        try:
            if slot.session is not None:
                await slot.session.close()
        finally:
            self._free(slot)

    def _free(self, slot: Slot) -> None:
        self.slots.give_back(slot)
        if slot.starter is not None and slot.starter.slot is slot:
            slot.starter.slot = None
        self.serve()
        self.wake()

    def start_soon(self, function: Callable[..., Awaitable[object]], *arguments: object) -> None:
        """Start a task of the pool's."""
        if self.tasks is not None:
            self.tasks.start_soon(_quietly, function, arguments)

    # Parking.

    def idle_starters(self) -> list[PooledStarter]:
        """Resilient sessions that could be parked, the one that has been idle for longest first."""
        idle = [
            (seconds, number, starter)
            for number, starter in enumerate(self.starters)
            if not starter.is_parking and (seconds := starter.idle_seconds()) is not None
        ]
        return [starter for _, _, starter in sorted(idle, reverse=True)]

    def park(self, starter: PooledStarter) -> None:
        """Begin to park a resilient session. One that is in a turn is parked after it."""
        if not starter.is_parking:
            starter.is_parking = True
            self.start_soon(self._park, starter)

    def take_back(self, starter: PooledStarter, park: Callable[[], Awaitable[None]]) -> bool:
        """At the end of a turn, before the next can begin: whether the process is ended, by `park`, because
        somebody waits for one. Otherwise a session that is asked without a pause would never be idle."""
        if self.tasks is None or self.is_closing or starter.is_parking or starter.idle_seconds() is None:
            return False
        # Those that are idle were ended when the caller came.
        if self.slots.is_room() or self._count_missing() <= 0:
            return False
        starter.is_parking = True
        self.start_soon(self._park_by, starter, park)
        return True

    async def _park_by(self, starter: PooledStarter, park: Callable[[], Awaitable[None]]) -> None:
        try:
            self.counters.parkings += 1
            await park()
        finally:
            starter.is_parking = False
            self.wake()

    async def _park(self, starter: PooledStarter) -> None:
        try:
            owner = starter.owner()
            # Since then it may have begun a turn. At the end that is waited for.
            is_due = self.is_closing or starter.idle_seconds() is not None
            if owner is not None and starter.slot is not None and is_due:
                self.counters.parkings += 1
                await owner.park()
        finally:
            starter.is_parking = False
            self.wake()

    # Running.

    async def run(self) -> None:
        """All of it, until `close` and what follows from it."""
        try:
            async with anyio.create_task_group() as self.tasks:
                self._checked_at = anyio.current_time()
                self.is_up.set()
                while not self.is_closing:
                    self.changed = anyio.Event()
                    await self._look()
                    with anyio.move_on_after(self._pause()):
                        await self.changed.wait()
                await self._wind_up()
                self.tasks.cancel_scope.cancel()
        finally:
            self.tasks = None
            self.close(hurry=True)
            for slot in self.slots.in_state("starting", "warm", "held", "closing"):
                # The event loop goes down.
                self.drop(slot)
            self.is_gone.set()

    async def _look(self) -> None:
        await self._measure()
        self._exchange()
        self._shrink()
        self.serve()
        self._refill()
        self._check_health()
        self._looked.set()
        self._looked = anyio.Event()

    def _pause(self) -> float:
        is_waited_for = len(self.queue) > 0 and any(starter.slot is not None for starter in self.starters)
        return _TICK_WHEN_WAITED_FOR if is_waited_for else _TICK

    # Memory.

    async def _measure(self) -> None:
        rules, now = self.rules, anyio.current_time()
        if rules.max_memory is None and rules.max_process_memory is None:
            interval = rules.health_seconds or _TICK * _MEASURING_SHARE
        else:
            interval = max(_TICK, self.slots.measuring_took * _MEASURING_SHARE)
        measured_at = self.slots.measured_at
        if self.wants_figures or measured_at is None or now - measured_at >= interval:
            await self.slots.measure()
            self.wants_figures = False

    def _shrink(self) -> None:
        """End unused processes while all together exceed the limit, the largest first."""
        excess = self.slots.excess - sum(slot.size or 0 for slot in self.slots.in_state("closing"))
        left = len(self.slots.in_state("starting", "warm", "held"))
        for slot in sorted(self.slots.in_state("warm"), key=lambda slot: -(slot.size or 0)):
            # Keep the last process: one may always be there, and the next would be as large.
            if excess <= 0 or left == 1:
                return
            left -= 1
            excess -= slot.size or 0
            self.counters.evicted += 1
            self.end(slot)
        for starter in sorted(self.idle_starters(), key=lambda starter: -_size(starter)):
            if excess <= 0:
                return
            excess -= _size(starter)
            self.park(starter)

    # Exchanging.

    def _exchange(self) -> None:
        """End processes that are dead or too old; park sessions that have been idle for long."""
        for slot in self.slots.in_state("held"):
            if slot.is_deserted:
                self.end(slot)
        for slot in self.slots.in_state("warm"):
            if slot.is_dead:
                self._replace(slot)
            elif self._is_spent(slot):
                self.counters.recycled += 1
                self.end(slot)
        park_after = self.rules.park_after
        for starter in self.idle_starters():
            idle = starter.idle_seconds()
            if starter.slot is not None and self._is_spent(starter.slot):
                self.counters.recycled += 1
                self.park(starter)
            elif park_after is not None and idle is not None and idle >= park_after:
                self.park(starter)

    def _is_spent(self, slot: Slot) -> bool:
        rules, largest = self.rules, self.rules.max_process_memory or math.inf
        # A warm process that was too large from the start would be replaced by another such.
        is_like_all = slot.state == "warm" and (slot.first_size or 0) > largest
        return (
            anyio.current_time() - slot.began_at >= (rules.max_age or math.inf)
            or slot.turns >= (rules.max_turns or math.inf)
            or ((slot.size or 0) > largest and not is_like_all)
        )

    def _replace(self, slot: Slot) -> None:
        self.counters.replaced += 1
        self.end(slot)

    # Health.

    def _check_health(self) -> None:
        interval, now = self.rules.health_seconds, anyio.current_time()
        if interval is not None and now - self._checked_at >= interval:
            self._checked_at = now
            for slot in self.slots.in_state("warm"):
                self.start_soon(self._probe, slot, min(interval, _HEALTH_SECONDS))

    async def _probe(self, slot: Slot, limit: float) -> None:
        """Ask a warm process something that costs nothing; one that does not answer is replaced."""
        session = slot.session
        assert session is not None
        try:
            await session.mcp_status(timeout=limit)
        except (ConnectionLost, RequestTimedOut) as error:
            if slot.state == "warm":
                log.warning("a warm process did not answer and is replaced: %s", error)
                self._replace(slot)
        except OutriderError:
            pass  # It answered.

    # Keeping ready.

    def _refill(self) -> None:
        """Start warm processes, one of each kind in turn. Waiting callers come first."""
        warm = self.rules.warm
        if self.is_closing or len(self.queue):
            return
        for count in range(1, warm + 1):
            for kind, options in enumerate(self.warm_options.all):
                if self._is_short(kind, count) and self.slots.is_room() and self.is_known():
                    self.begin(options, kind, None)
        for kind in range(len(self.warm_options.all)):
            # Left over from callers that did not wait for them.
            ready = self._ready(kind)
            for slot in [slot for slot in ready if slot.state == "warm"][: max(0, len(ready) - warm)]:
                self.end(slot)

    def _is_short(self, kind: int, count: int) -> bool:
        backoff, ready = self.backoff.get(kind), self._ready(kind)
        if backoff is not None and not backoff.is_over:
            return False
        # After a failure, one alone is tried.
        is_tried = backoff is not None and any(slot.state == "starting" for slot in ready)
        return len(ready) < count and not is_tried

    def _ready(self, kind: int) -> list[Slot]:
        """The slots of a kind that are, or will be, ready for the next caller."""
        return [
            slot
            for slot in self.slots.in_state("starting", "warm")
            if slot.kind == kind and not slot.is_claimed
        ]

    async def wait_warm(self) -> None:
        """Wait until all is ready that there is room for. Raises why it cannot be."""
        warm = self.rules.warm
        while True:
            if self.is_closing:
                raise PoolClosed
            for backoff in self.backoff.values():
                raise backoff.error
            ready = [slot.kind for slot in self.slots.in_state("warm")]
            is_short = any(ready.count(kind) < warm for kind in range(len(self.warm_options.all)))
            is_coming = bool(self.slots.in_state("starting", "closing")) or self.slots.is_room()
            if not (is_short and is_coming):
                return
            await self._looked.wait()

    # The end.

    def close(self, *, hurry: bool) -> None:
        """Begin to close: serve no more callers. `hurry`: do not wait for turns either."""
        self.is_hurried = self.is_hurried or hurry
        self.is_closing = True
        for ticket in self.queue.empty():
            ticket.fail(PoolClosed())
        self.wake()
        self._looked.set()

    async def _wind_up(self) -> None:
        while len(self.slots):
            self.changed = anyio.Event()
            for slot in self.slots.in_state("warm", "held"):
                if self.is_hurried or slot.state == "warm" or slot.is_deserted:
                    self.end(slot)
                elif slot.starter is not None:
                    self.park(slot.starter)
            for slot in self.slots.in_state("starting"):
                if self.is_hurried or not slot.is_claimed:
                    self.give_up(slot)
            with anyio.move_on_after(_TICK):
                await self.changed.wait()


class _Watch:
    """Counts the turns of a process, and notices its end."""

    def __init__(self, scheduler: Scheduler, slot: Slot) -> None:
        self._scheduler = scheduler
        self._slot = slot

    def begins(self) -> None:
        self._slot.turns += 1

    def received(self, messages: Sequence[Message]) -> None:
        pass

    def ended(self) -> None:
        self._scheduler.wake()


async def _quietly(function: Callable[..., Awaitable[object]], arguments: tuple[object, ...]) -> None:
    """What goes wrong in one task of a pool must not end the others."""
    try:
        await function(*arguments)
    except Exception:
        log.exception("a task of a pool failed")


def _size(starter: PooledStarter) -> int:
    return 0 if starter.slot is None else starter.slot.size or 0

"""The state of a pool: its limits, its slots, the callers that wait for one, and its statistics.

A slot is taken before a process is started and given back when it has ended, so that no limit can be passed
in between. `scheduler` starts and ends processes.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Mapping, Sequence
from contextvars import Context, copy_context
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

import anyio
import msgspec
from anyio import CapacityLimiter

from outrider._threads import run_sync
from outrider.errors import OptionsError
from outrider.fleet._fields import read_size, write_size
from outrider.fleet._resilient.turn_runner import QueuedStarter
from outrider.options import Options
from outrider.options._validators import (
    Validator,
    above_zero,
    invalid_value,
    is_list,
    optional,
    seconds,
    whole,
    within,
)
from outrider.session import Session, SessionState

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator

    from outrider.fleet._pool.scheduler import Scheduler
    from outrider.fleet._resilient.session import ResilientSession


class Rules(msgspec.Struct, frozen=True, kw_only=True):
    """The limits of a pool; see `Pool`. Raises `OptionsError` when made with what cannot work."""

    warm: int
    max_processes: int
    max_memory: int | None
    park_after: float | None
    max_age: float | None
    max_turns: int | None
    max_process_memory: int | None
    queue_limit: int | None
    queue_seconds: float | None
    health_seconds: float | None

    def __post_init__(self) -> None:
        for name, read in _READERS.items():
            msgspec.structs.force_setattr(self, name, read(f"`{name}`", getattr(self, name)))
        each, together = self.max_process_memory, self.max_memory
        if each is not None and together is not None and each > together:
            raise OptionsError(
                f"`max_process_memory` ({write_size(each)}) is over `max_memory` ({write_size(together)})",
                hint="All processes together cannot have less than one of them.",
            )


_READERS: dict[str, Validator] = {
    "warm": whole(0),
    "max_processes": whole(1),
    "max_memory": optional(read_size),
    "max_process_memory": optional(read_size),
    "park_after": optional(seconds),
    "max_age": optional(above_zero),
    "max_turns": optional(whole(1)),
    "queue_limit": optional(whole(0)),
    "queue_seconds": optional(seconds),
    "health_seconds": optional(above_zero),
}


class WarmOptions:
    """The options that a pool keeps processes ready for."""

    def __init__(self, options: Options | Sequence[Options] | None) -> None:
        given: object = Options() if options is None else options
        if isinstance(given, Options):
            given = (given,)
        if not is_list(given):
            raise invalid_value("`options`", "an `Options`, or a list of them", given)
        if not given:
            raise OptionsError("`options` is an empty list", hint="Leave it out for the defaults.")
        self.all: list[Options] = []
        for number, each in enumerate(given):
            checked = _checked("`options`" if len(given) == 1 else within("`options`", number), each)
            if self.number_of(checked, None) is None:
                self.all.append(checked)

    def number_of(self, options: Options, output: object) -> int | None:
        """Which of them these are; None: none, or a process that is ready would not know the output."""
        if output is not None:
            return None
        return next((number for number, own in enumerate(self.all) if _is_same(own, options)), None)


def _is_same(own: Options, other: Options) -> bool:
    try:
        return own is other or bool(own == other)
    except Exception:  # noqa: BLE001 - tools and stores of a user's may answer anything
        return False


def check_can_park(options: Options) -> None:
    """Raises `OptionsError` if a session with these options could not be resumed."""
    why = ""
    if options.transport is not None:
        why = "`transport` can be used once"
    elif not options.persist_session:
        why = "with `persist_session=False` nothing is kept"
    elif options.isolation.is_hermetic and not options.isolation.config_dir and not options.session_store:
        why = "a hermetic run keeps nothing without a `config_dir` of its own or a `session_store`"
    if why:
        raise OptionsError(
            f"the session could not be resumed after it was parked: {why}",
            hint="Change that, or use `Pool.acquire`, which parks nothing.",
        )


def _checked(place: str, options: object) -> Options:
    if not isinstance(options, Options):
        raise invalid_value(
            place, "an `Options`", options, "Single options go into it: `Options(model='opus')`."
        )
    if options.transport is not None:
        raise OptionsError(
            f"{place} has a `transport`, which is one connection, and a pool makes many",
            hint="Leave it out; in tests, use `Simulator.stand_in()` or its executable.",
        )
    names = ("session_id", "resume", "continue_conversation")
    one = next((name for name in names if getattr(options, name)), None)
    if one == "session_id" or (one is not None and not options.fork_session):
        raise OptionsError(
            f"{place} has `{one}`, and all processes of the pool would be in that one session",
            hint=f"Give `{one}` to `Pool.session` or `Pool.acquire` instead.",
        )
    # What is wrong with tools, hooks and the like is said when a session is made.
    Session(options)
    return options


class PooledStarter(QueuedStarter):
    """Where one resilient session gets its processes from."""

    owner: Callable[[], ResilientSession[object] | None]
    """Returns the session while it exists: a weak reference, so that a dropped session gives up its slot."""

    def __init__(self, scheduler: Scheduler, tenant: str) -> None:
        self._scheduler = scheduler
        self._tenant = tenant
        self.slot: Slot | None = None
        self.is_parking = False

    async def start(self, options: Options, output: object) -> Session:
        return await self._scheduler.take(options, output, self._tenant, starter=self)

    async def stop(self, session: Session) -> None:
        await self._scheduler.give_back(session)

    def take_back(self, park: Callable[[], Awaitable[None]]) -> bool:
        return self._scheduler.take_back(self, park)

    def idle_seconds(self) -> float | None:
        """For how long it has had a process and not used it; None: it uses it, or has none."""
        slot, owner = self.slot, self.owner()
        if slot is None or slot.state != "held" or slot.session is None or owner is None:
            return None
        since = owner.idle_since
        # The agent may continue by itself after the turn.
        if since is None or slot.session.state is not SessionState.IDLE:
            return None
        return anyio.current_time() - since


class PoolStats(msgspec.Struct, frozen=True, kw_only=True):
    """Figures about a pool. A snapshot: ask again for newer ones."""

    processes: int = 0
    """All that hold a slot: `starting + warm + busy + idle + closing`. Never more than `max_processes`."""
    max_processes: int = 0
    starting: int = 0
    warm: int = 0
    """Ready, and not handed out."""
    busy: int = 0
    """Handed out: all that were acquired, and those of resilient sessions in a turn."""
    idle: int = 0
    """Held by idle resilient sessions, which are parked when another caller needs the slot."""
    closing: int = 0
    parked: int = 0
    """Resilient sessions without a process."""
    waiting: Mapping[str, int] = {}
    """How many wait for a process, by tenant."""
    memory: int | None = None
    """Resident bytes of all the processes and what they started, when last measured; None: never."""
    max_memory: int | None = None
    started: int = 0
    """Processes, since the pool was opened; the rest counts from there too."""
    failed: int = 0
    """Starts that failed."""
    hits: int = 0
    """Served with a warm process."""
    misses: int = 0
    """Served with one that had to be started."""
    recycled: int = 0
    """Ended for their age, their turns or their memory."""
    replaced: int = 0
    """Warm ones that had died or did not answer."""
    evicted: int = 0
    """Warm ones that had to make room."""
    parkings: int = 0
    """How often a resilient session gave up its process."""
    waits: int = 0
    """How often a caller had to wait for a slot."""
    waited_seconds: float = 0.0
    """For how long, all together."""
    turned_away: int = 0
    """Callers that the limit or the deadline of the queue rejected."""

    def __str__(self) -> str:
        memory = "" if self.memory is None else f", {write_size(self.memory)}"
        return (
            f"{self.processes} of {self.max_processes} processes ({self.busy} busy, {self.idle} idle, "
            f"{self.warm} warm{memory}), {self.parked} parked, {sum(self.waiting.values())} waiting"
        )


class Counters:
    """What is counted as it happens; see `PoolStats`."""

    def __init__(self) -> None:
        self.started = self.failed = self.hits = self.misses = self.waits = self.turned_away = 0
        self.recycled = self.replaced = self.evicted = self.parkings = 0
        self.waited_seconds = 0.0


def stats_of(scheduler: Scheduler) -> PoolStats:
    """How a pool stands."""
    slots = scheduler.slots
    held = slots.in_state("held")
    idle = [slot for slot in held if slot.starter is not None and slot.starter.idle_seconds() is not None]
    owners = [starter.owner() for starter in scheduler.starters]
    return PoolStats(
        processes=len(slots),
        max_processes=scheduler.rules.max_processes,
        starting=len(slots.in_state("starting")),
        warm=len(slots.in_state("warm")),
        busy=len(held) - len(idle),
        idle=len(idle),
        closing=len(slots.in_state("closing")),
        parked=sum(each is not None and each.state == "parked" for each in owners),
        waiting=scheduler.queue.counts(),
        memory=slots.memory,
        max_memory=scheduler.rules.max_memory,
        **vars(scheduler.counters),
    )


FIRST_GUESS: Final = 300 * 1024 * 1024
"""The memory that a process is expected to need before one was measured at work."""

_FRESH_SECONDS: Final = 0.2
"""How long a measurement counts. What is started meanwhile counts with what it is expected to need."""

_FRESH_SHARE: Final = 5
"""It counts for this many times as long as it took, so that a busy pool does not measure all the time."""

_REMEMBERED: Final = 16
"""How many processes that have ended count for what the next one will need."""

SlotState: TypeAlias = Literal["starting", "warm", "held", "closing"]


class Slot:
    """A slot for one process, from before its start until after its end."""

    def __init__(self, options: Options, kind: int | None, began_at: float) -> None:
        self.options = options
        self.kind = kind
        """The index of its options among the pool's; None: other options, for one caller only."""
        self.began_at = began_at
        self.state: SlotState = "starting"
        self.is_claimed = False
        """A caller waits for its start."""
        self.session: Session | None = None
        self.starter: PooledStarter | None = None
        """The resilient session that has it."""
        self.turns = 0
        """Begun, since its start."""
        self.size: int | None = None
        """Resident bytes when last measured, 0 for no process of this machine; None: not measured yet."""
        self.first_size: int | None = None
        """When it was measured for the first time."""
        self.peak = 0
        """The most that it has had since it was handed out."""
        self.gone = anyio.Event()

    @property
    def is_dead(self) -> bool:
        """Whether its process has ended, or its session was closed."""
        return self.session is not None and self.session.state is SessionState.CLOSED

    @property
    def is_deserted(self) -> bool:
        """Whether it is permanently unused: it is dead, or its resilient session was dropped."""
        return self.is_dead or (self.starter is not None and self.starter.owner() is None)


class Slots:
    """All slots that are taken."""

    def __init__(self, limit: int, max_memory: int | None) -> None:
        self._limit = limit
        self._max_memory = max_memory
        self._taken: list[Slot] = []
        self._peaks: deque[int] = deque(maxlen=_REMEMBERED)
        """Of those that have ended."""
        self.measured_at: float | None = None
        # A thread of its own, so that other work in threads does not delay measuring.
        self._thread = CapacityLimiter(1)
        self.measuring_took = 0.0
        """The last time, in seconds of a processor."""

    def __len__(self) -> int:
        return len(self._taken)

    def in_state(self, *states: SlotState) -> list[Slot]:
        """Those in any of these states, the oldest first."""
        return [slot for slot in self._taken if slot.state in states]

    def of(self, session: Session) -> Slot | None:
        """The slot of a session, unless it has ended."""
        return next((slot for slot in self._taken if slot.session is session), None)

    def take(self, options: Options, kind: int | None, now: float) -> Slot:
        """A slot for a process that is about to be started. Look first whether there `is_room`."""
        slot = Slot(options, kind, now)
        self._taken.append(slot)
        return slot

    def give_back(self, slot: Slot) -> None:
        """The process has ended. A second time does nothing."""
        if slot in self._taken:
            self._taken.remove(slot)
            if slot.peak:
                self._peaks.append(slot.peak)
        slot.gone.set()

    # How much.

    def is_room(self) -> bool:
        """Whether one more process may be started; by memory, one may be where there is none."""
        if not self._taken:
            return True
        if self.is_full:
            return False
        if self._max_memory is None:
            return True
        # A process that has done little yet will grow.
        expected = self._expected()
        needed = sum(expected if slot.size is None else max(slot.size, expected) for slot in self._taken)
        return needed + expected <= self._max_memory

    def is_fresh(self, now: float) -> bool:
        """Whether what `is_room` says rests on measurements of this moment."""
        if self._max_memory is None or not self._taken:
            return True
        if any(slot.size is None and slot.state != "starting" for slot in self._taken):
            return False
        fresh = max(_FRESH_SECONDS, _FRESH_SHARE * self.measuring_took)
        return self.measured_at is not None and now - self.measured_at <= fresh

    @property
    def is_full(self) -> bool:
        """Whether the number of processes has reached its limit."""
        return len(self._taken) >= self._limit

    @property
    def memory(self) -> int | None:
        """Resident bytes of all, when last measured."""
        if self.measured_at is None:
            return None
        return sum(slot.size or 0 for slot in self._taken)

    @property
    def excess(self) -> int:
        """By how much they exceed the limit of memory."""
        return 0 if self._max_memory is None else max(0, (self.memory or 0) - self._max_memory)

    def _expected(self) -> int:
        """The memory that a process will need, by the peaks of others; at least that of a warm one."""
        peaks = [*self._peaks, *(slot.peak for slot in self._taken if slot.peak)]
        least = max((slot.size or 0 for slot in self.in_state("warm")), default=0)
        return max(least, sum(peaks) // len(peaks) if peaks else FIRST_GUESS)

    async def measure(self) -> None:
        """Measure the process trees of all slots, in a thread."""
        looked_at = [slot for slot in self._taken if slot.session is not None]
        sizes, self.measuring_took = await run_sync(
            _measure, [slot.session for slot in looked_at], limiter=self._thread
        )
        for slot, size in zip(looked_at, sizes, strict=True):
            # A process that is starting or warm says little about what it will need.
            if slot.state != "starting":
                slot.size = size
                slot.first_size = size if slot.first_size is None else slot.first_size
                slot.peak = max(slot.size, slot.peak) if slot.state == "held" else slot.peak
        self.measured_at = anyio.current_time()


def _measure(sessions: list[Session | None]) -> tuple[list[int], float]:
    # By the clock of the thread: on a busy machine it is not the measuring that takes long.
    began = time.thread_time()
    sizes = [_size_of(session) for session in sessions]
    return sizes, time.thread_time() - began


def _size_of(session: Session | None) -> int:
    try:
        return max(0, (session and session.resident_bytes()) or 0)
    except Exception:  # noqa: BLE001 - a transport of the user's may answer anything
        return 0


class Ticket:
    """A caller that waits. It gets a slot, or an error."""

    def __init__(self, options: Options, session: Session | None, kind: int | None, tenant: str) -> None:
        self.options = options
        self.session = session
        """To be connected for it, if no warm process can serve it."""
        self.kind = kind
        """The index of its options among the pool's; None: a process has to be started for it."""
        self.tenant = tenant
        self.context: Context = copy_context()
        self.slot: Slot | None = None
        """Reserved for it; the process may still be starting."""
        self.error: BaseException | None = None
        self.is_gone = False
        """The caller no longer waits."""
        self.is_weighed = anyio.Event()
        """Set when it is known whether there is room for it."""
        self.is_promised = anyio.Event()
        self.is_over = anyio.Event()

    def promise(self, slot: Slot | None) -> None:
        """Reserve a slot, whose process is being started: it no longer waits in the queue."""
        self.slot = slot
        self.is_weighed.set()
        self.is_promised.set()

    def serve(self, slot: Slot) -> None:
        self.promise(slot)
        self.is_over.set()

    def fail(self, error: BaseException) -> None:
        self.error = error
        self.promise(self.slot)
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
        """Remove a ticket; it may have left already."""
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
        """Remove the next ticket; its tenant goes to the end."""
        tenant, waiting = next(iter(self._tenants.items()))
        ticket = waiting.popleft()
        del self._tenants[tenant]
        if waiting:
            self._tenants[tenant] = waiting
        return ticket

    def trim(self) -> list[Ticket]:
        """Remove the latest tickets of tenants that are over the limit."""
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
        """Remove all tickets."""
        out = list(self)
        self._tenants.clear()
        return out

    def counts(self) -> dict[str, int]:
        """How many wait, by tenant."""
        return {tenant: len(waiting) for tenant, waiting in self._tenants.items()}

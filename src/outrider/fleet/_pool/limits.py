"""What a pool was given, validated: limits, warm options, and the statistics that it reports.

Starts nothing: `scheduler` does.
"""

from __future__ import annotations

import weakref
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import anyio
import msgspec

from outrider.errors import OptionsError
from outrider.fleet._fields import write_size
from outrider.fleet._resilient.process import Starter
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
    from outrider.fleet._pool.scheduler import Scheduler
    from outrider.fleet._pool.slots import Slot
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
        checked = [
            _checked("`options`" if len(given) == 1 else within("`options`", number), each)
            for number, each in enumerate(given)
        ]
        self.all: tuple[Options, ...] = tuple(
            each
            for number, each in enumerate(checked)
            if not any(_is_same(other, each) for other in checked[:number])
        )

    def __len__(self) -> int:
        return len(self.all)

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


class PooledStarter(Starter):
    """Where one resilient session gets its processes from."""

    def __init__(self, scheduler: Scheduler, tenant: str) -> None:
        self._scheduler = scheduler
        self.tenant = tenant
        self.slot: Slot | None = None
        self.is_parking = False
        # Not kept: one that nobody has any more gives up its slot.
        self._owner: weakref.ref[ResilientSession[object]] | None = None

    def attach(self, owner: ResilientSession[object]) -> None:
        """It is this one's."""
        self._owner = weakref.ref(owner)

    @property
    def owner(self) -> ResilientSession[object] | None:
        return None if self._owner is None else self._owner()

    async def start(self, options: Options, output: object) -> Session:
        return await self._scheduler.take(options, output, self.tenant, starter=self)

    async def stop(self, session: Session) -> None:
        await self._scheduler.give_back(session)

    def idle_seconds(self) -> float | None:
        """For how long it has had a process and not used it; None: it uses it, or has none."""
        slot, owner = self.slot, self.owner
        if slot is None or slot.state != "held" or slot.session is None or owner is None:
            return None
        since = owner.idle_since
        # The agent may go on by itself after the turn.
        if since is None or slot.session.state is not SessionState.IDLE:
            return None
        return anyio.current_time() - since


class PoolStats(msgspec.Struct, frozen=True, kw_only=True):
    """How a pool stands. A value: ask again for newer figures."""

    processes: int = 0
    """All that hold a slot: `starting + warm + busy + idle + closing`. Never more than `max_processes`."""
    max_processes: int = 0
    starting: int = 0
    warm: int = 0
    """Ready, and nobody's."""
    busy: int = 0
    """Handed out, and not known to do nothing: all that were acquired, and resilient sessions in a turn."""
    idle: int = 0
    """Held by resilient sessions that do nothing; parked when somebody needs the slot."""
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
    """Starts that came to nothing."""
    hits: int = 0
    """Served with a warm process."""
    misses: int = 0
    """Served with one that had to be started."""
    recycled: int = 0
    """Ended for their age, their turns or their memory."""
    replaced: int = 0
    """Warm ones that had died, or did not answer."""
    evicted: int = 0
    """Warm ones that had to make room."""
    parkings: int = 0
    """How often a resilient session gave up its process."""
    waits: int = 0
    """How often somebody had to wait for a slot."""
    waited_seconds: float = 0.0
    """For how long, all together."""
    turned_away: int = 0
    """Ended by the limit or the deadline of the queue."""

    def __str__(self) -> str:
        memory = "" if self.memory is None else f", {write_size(self.memory)}"
        return (
            f"{self.processes} of {self.max_processes} processes ({self.busy} busy, {self.idle} idle, "
            f"{self.warm} warm{memory}), {self.parked} parked, {sum(self.waiting.values())} waiting"
        )


class Counters:
    """What is counted as it happens; see `PoolStats`."""

    def __init__(self) -> None:
        self.started = self.failed = self.hits = self.misses = 0
        self.recycled = self.replaced = self.evicted = self.parkings = 0
        self.waits = self.turned_away = 0
        self.waited_seconds = 0.0


def stats_of(scheduler: Scheduler) -> PoolStats:
    """How a pool stands."""
    slots, counters = scheduler.slots, scheduler.counters
    held = slots.in_state("held")
    idle = [slot for slot in held if slot.starter is not None and slot.starter.idle_seconds() is not None]
    owners = [starter.owner for starter in scheduler.starters]
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
        **vars(counters),
    )

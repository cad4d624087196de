"""Owns the slots of a pool: how many processes there may be, and how much memory they may have together.

A slot is taken before a process is started and given back when it has ended, so that no limit can be passed
in between. Starts and ends nothing itself.
"""

from __future__ import annotations

import time
from collections import deque
from contextvars import Context, copy_context
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

import anyio
from anyio import CapacityLimiter

from outrider._threads import run_sync
from outrider.session import SessionState

if TYPE_CHECKING:
    from collections.abc import Iterator

    from outrider.fleet._pool.limits import PooledStarter
    from outrider.options import Options
    from outrider.session import Session


FIRST_GUESS: Final = 300 * 1024 * 1024
"""What a process is taken to need before one has been seen at work: what the agent needs with its helpers."""

_FRESH_SECONDS: Final = 0.2
"""How long a measurement counts. What is started meanwhile counts with what it is expected to need."""

_FRESH_SHARE: Final = 5
"""It counts for so many times as long as it took, so that a busy pool does not measure all the time."""

_REMEMBERED: Final = 16
"""How many processes that have ended say what the next one will need."""

SlotState: TypeAlias = Literal["starting", "warm", "held", "closing"]


class Slot:
    """A slot for one process, from before its start until after its end."""

    def __init__(self, options: Options, kind: int | None, began_at: float) -> None:
        self.options = options
        self.kind = kind
        """Which of the pool's own options it has; None: others, so that it can serve nobody else."""
        self.began_at = began_at
        self.state: SlotState = "starting"
        self.is_claimed = False
        """Somebody waits for its start."""
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
        """Whether its process has ended, or was closed by whoever has it."""
        return self.session is not None and self.session.state is SessionState.CLOSED

    @property
    def is_deserted(self) -> bool:
        """Whether nobody can use it any more: it is dead, or its resilient session was dropped."""
        return self.is_dead or (self.starter is not None and self.starter.owner is None)


class Slots:
    """All slots that are taken."""

    def __init__(self, limit: int, max_memory: int | None) -> None:
        self._limit = limit
        self._max_memory = max_memory
        self._taken: list[Slot] = []
        self._peaks: deque[int] = deque(maxlen=_REMEMBERED)
        """Of those that have ended."""
        self.measured_at: float | None = None
        # Its own: whatever else the threads of the loop are busy with, a pool has to know how it stands.
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
        return self._max_memory is None or self._reckoned() + self._expected() <= self._max_memory

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
        """Whether no process may be started, however little memory they have."""
        return len(self._taken) >= self._limit

    @property
    def memory(self) -> int | None:
        """Resident bytes of all, when last measured."""
        if self.measured_at is None:
            return None
        return sum(slot.size or 0 for slot in self._taken)

    @property
    def excess(self) -> int:
        """By how much they have grown over the limit."""
        return 0 if self._max_memory is None else max(0, (self.memory or 0) - self._max_memory)

    def _expected(self) -> int:
        """What a process comes to need, by those that there are and were; not less than one that waits."""
        peaks = [*self._peaks, *(slot.peak for slot in self._taken if slot.peak)]
        least = max((slot.size or 0 for slot in self.in_state("warm")), default=0)
        return max(least, sum(peaks) // len(peaks) if peaks else FIRST_GUESS)

    def _reckoned(self) -> int:
        """What they have, or will have: one that has done little yet is going to grow."""
        expected = self._expected()
        return sum(expected if slot.size is None else max(slot.size, expected) for slot in self._taken)

    async def measure(self) -> None:
        """Look at the trees of all processes, in a thread."""
        looked_at = [slot for slot in self._taken if slot.session is not None]
        sizes, self.measuring_took = await run_sync(
            _measure, [slot.session for slot in looked_at], limiter=self._thread
        )
        for slot, size in zip(looked_at, sizes, strict=True):
            # One that is only starting, or waits, says little about what it comes to need.
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
    """One that waits. It ends with a slot, or with an error."""

    def __init__(self, options: Options, session: Session | None, kind: int | None, tenant: str) -> None:
        self.options = options
        self.session = session
        """To be connected for it, if a process that is ready would not do."""
        self.kind = kind
        """Which of the pool's own options it may be served with; None: a process has to be started for it."""
        self.tenant = tenant
        self.context: Context = copy_context()
        self.slot: Slot | None = None
        """Promised to it; the process may still be starting."""
        self.error: BaseException | None = None
        self.is_gone = False
        """Nobody waits for it any more."""
        self.is_weighed = anyio.Event()
        """It was known whether there was room for it."""
        self.is_promised = anyio.Event()
        self.is_over = anyio.Event()

    def promise(self, slot: Slot) -> None:
        """A process is being started for it: it waits in no queue any more."""
        self.slot = slot
        self.is_weighed.set()
        self.is_promised.set()

    def serve(self, slot: Slot) -> None:
        self.promise(slot)
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

"""Owns how far a run has come: what is counted while it goes on, and `Progress`, which is shown of it.

Does not show it.
"""

from __future__ import annotations

import time
from collections import Counter, deque
from typing import TYPE_CHECKING, Final

import msgspec

from outrider.fleet._outcome import STATUSES, Outcome, Status
from outrider.session import Usage

if TYPE_CHECKING:
    from collections.abc import Callable

    from outrider.fleet._journal import Counts

__all__ = ["Progress", "Running", "Tally"]

_RECENT: Final = 100
"""Ends that the rate is reckoned from: it follows the last minutes of a run of hours."""


class Running(msgspec.Struct, frozen=True):
    """A task that is running."""

    id: str
    attempt: int
    began_at: float
    """Unix seconds, of this attempt."""
    session_id: str | None = None
    worker: str | None = None


class Progress(msgspec.Struct, frozen=True, kw_only=True):
    """How far a run has come, with what earlier runs of its journal did."""

    total: int | None = None
    """None as long as the tasks are not counted: a generator is taken as it comes."""
    done: int = 0
    failed: int = 0
    skipped: int = 0
    over_budget: int = 0
    running: int = 0
    concurrency: int = 0
    """How many may run at once, at this moment."""
    waiting_until: float | None = None
    """Unix seconds: nothing is begun before, because of a limit of the account."""
    waiting_for: str | None = None
    """What that limit is."""
    cost_usd: float = 0.0
    tokens: int = 0
    rate_per_minute: float = 0.0
    """Tasks that end in a minute, lately."""
    seconds_left: float | None = None
    """At this rate; None if that is not known."""
    is_draining: bool = False
    current: tuple[Running, ...] = ()

    @property
    def ended(self) -> int:
        return self.done + self.failed + self.skipped + self.over_budget


class Tally:
    """Counts what ends in a run, on top of what its journal had."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._began = clock()
        self.counts: Counter[Status] = Counter()
        self.total: int | None = None
        self.running: dict[str, Running] = {}
        self._usage: dict[str, Usage] = {}
        """Of attempts that run."""
        self._cost_usd, self._tokens = 0.0, 0
        self._ends: deque[float] = deque(maxlen=_RECENT)

    def start_from(self, counts: Counts, cost_usd: float, tokens: int) -> None:
        """What was there before."""
        for status in STATUSES:
            self.counts[status] = getattr(counts, status)
        self.total = counts.total
        self._cost_usd, self._tokens = cost_usd, tokens

    def know_total(self) -> None:
        """There is no task that was not begun: now they are counted."""
        if self.total is None:
            self.total = self.counts.total() + len(self.running)

    def begin(self, running: Running) -> None:
        """An attempt begins; the one before it, if there was one, is over."""
        self.leave(running.id)
        self.running[running.id] = running
        self._usage[running.id] = Usage()

    def change(self, id: str, session_id: str | None, worker: str | None) -> None:
        now = self.running[id]
        self.running[id] = msgspec.structs.replace(
            now, session_id=session_id or now.session_id, worker=worker or now.worker
        )

    def use(self, id: str, usage: Usage) -> None:
        """What the running attempt has used so far."""
        self._usage[id] = usage

    def leave(self, id: str, usage: Usage | None = None) -> None:
        """The attempt is over, and has used this in all, or what was told last."""
        self.running.pop(id, None)
        told = self._usage.pop(id, Usage())
        used = told if usage is None else usage
        self._cost_usd += used.cost_usd
        self._tokens += used.total_tokens

    def end(self, outcome: Outcome[object]) -> None:
        self.counts[outcome.status] += 1
        if outcome.attempts:
            self._ends.append(self._clock())

    @property
    def ran(self) -> float:
        """Seconds since the run began."""
        return self._clock() - self._began

    def progress(
        self, *, concurrency: int, waiting_until: float | None, waiting_for: str | None, is_draining: bool
    ) -> Progress:
        """How it stands."""
        usages = tuple(self._usage.values())
        rate = self._rate()
        ended = self.counts.total()
        left = None if self.total is None or not rate else max(self.total - ended, 0) / rate
        return Progress(
            total=self.total,
            done=self.counts["done"],
            failed=self.counts["failed"],
            skipped=self.counts["skipped"],
            over_budget=self.counts["over_budget"],
            running=len(self.running),
            concurrency=concurrency,
            waiting_until=waiting_until,
            waiting_for=waiting_for,
            cost_usd=self._cost_usd + sum(usage.cost_usd for usage in usages),
            tokens=self._tokens + sum(usage.total_tokens for usage in usages),
            rate_per_minute=rate * 60,
            seconds_left=left,
            is_draining=is_draining,
            current=tuple(self.running.values()),
        )

    def _rate(self) -> float:
        """Ends in a second. The first of those that are remembered only tells where the others begin."""
        if not self._ends:
            return 0.0
        if len(self._ends) < _RECENT:
            since, ends = self._began, len(self._ends)
        else:
            since, ends = self._ends[0], len(self._ends) - 1
        return ends / max(self._clock() - since, 0.001)

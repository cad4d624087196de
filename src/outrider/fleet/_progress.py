"""`Progress`, how far a run has come, and `Adaptive`, how many tasks run at once.

Displaying it is left to the command.
"""

from __future__ import annotations

import time
from collections import Counter, deque
from statistics import median
from typing import TYPE_CHECKING, Any, Final, cast

import msgspec

from outrider.errors import OptionsError
from outrider.fleet._task import STATUSES, Outcome, Status
from outrider.options._validators import invalid_value, whole
from outrider.session import Usage

if TYPE_CHECKING:
    from collections.abc import Callable

    from outrider.fleet._journal.journal import Counts


_RECENT: Final = 100
"""How many ends the rate is computed from, so that it follows the last minutes of a long run."""


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
    waiting: int = 0
    running: int = 0
    concurrency: int = 0
    """How many may run at once, at this moment."""
    waiting_until: float | None = None
    """Unix seconds: nothing is begun before, because of a limit of the account."""
    waiting_for: str | None = None
    """What that limit is."""
    away: str | None = None
    """What nothing is begun without, and why it is away: the journal, the ledger or the session store."""
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
        return self.done + self.failed + self.skipped + self.over_budget + self.waiting


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
        """Begin with the counts of earlier runs."""
        for status in STATUSES:
            self.counts[status] = getattr(counts, status)
        self.total = counts.total
        self._cost_usd, self._tokens = cost_usd, tokens

    def see_all(self, total: int, counts: Counts) -> None:
        """What has become of the tasks of all workers."""
        for status in STATUSES:
            self.counts[status] = getattr(counts, status)
        self.total = total

    def know_total(self) -> None:
        """The last task has begun, so their number is known."""
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
        """The attempt is over; it used `usage`, by default what was reported last."""
        self.running.pop(id, None)
        reported = self._usage.pop(id, Usage())
        used = reported if usage is None else usage
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
        self,
        *,
        concurrency: int,
        waiting_until: float | None,
        waiting_for: str | None,
        away: str | None,
        is_draining: bool,
    ) -> Progress:
        """How it stands."""
        usages, counts = tuple(self._usage.values()), cast("Any", self.counts)
        rate = self._rate()
        ended = self.counts.total()
        left = None if self.total is None or not rate else max(self.total - ended, 0) / rate
        return Progress(
            total=self.total,
            **counts,
            running=len(self.running),
            concurrency=concurrency,
            waiting_until=waiting_until,
            waiting_for=waiting_for,
            away=away,
            cost_usd=self._cost_usd + sum(usage.cost_usd for usage in usages),
            tokens=self._tokens + sum(usage.total_tokens for usage in usages),
            rate_per_minute=rate * 60,
            seconds_left=left,
            is_draining=is_draining,
            current=tuple(self.running.values()),
        )

    def _rate(self) -> float:
        """Ends per second."""
        since, ends = self._began, len(self._ends)
        if ends == _RECENT:
            # The first of them is where the others begin.
            since, ends = self._ends[0], ends - 1
        return ends / max(self._clock() - since, 0.001)


_START: Final = 4
_TOLERANCE: Final = 1.5
"""Tasks differ: only if they take this much longer than in better rounds, too many run at once."""
_REMEMBERED: Final = 8
"""How many rounds are compared."""

_count = whole(1, 10_000)


class Adaptive(msgspec.Struct, frozen=True):
    """Adapts how many tasks run at once, within bounds.

    The number grows after each round in which tasks took no longer than before and met no rate limit: it
    doubles until one of these happens first, and grows by one from then on. It halves when a task meets a
    limit. Raises `OptionsError`.
    """

    minimum: int = 1
    maximum: int = 16
    start: int | None = None
    """Unset: 4, or what is nearest to it within the bounds."""

    def __post_init__(self) -> None:
        _count("`Adaptive.minimum`", self.minimum)
        _count("`Adaptive.maximum`", self.maximum)
        if self.minimum > self.maximum:
            raise OptionsError(
                f"`Adaptive.minimum` is {self.minimum}, which is over the maximum of {self.maximum}",
                hint="Give the smaller number first: `Adaptive(2, 16)`.",
            )
        if self.start is not None:
            whole(self.minimum, self.maximum)("`Adaptive.start`", self.start)

    @property
    def first(self) -> int:
        """The width to begin with."""
        return min(max(_START, self.minimum), self.maximum) if self.start is None else self.start


def read_concurrency(value: object) -> Adaptive:
    """A number, or an `Adaptive`. Raises `OptionsError`."""
    if isinstance(value, Adaptive):
        return value
    if isinstance(value, bool) or not isinstance(value, int):
        raise invalid_value("`concurrency`", "a whole number of 1 or more, or an `Adaptive`", value)
    number = cast(int, _count("`concurrency`", value))
    return Adaptive(number, number, number)


class Width:
    """How many tasks may run at this moment."""

    def __init__(self, bounds: Adaptive) -> None:
        self._bounds = bounds
        self.now: int = bounds.first
        self._round: list[float] = []
        self._medians: deque[float] = deque(maxlen=_REMEMBERED)
        self._is_probing = True
        """Whether it still doubles: to reach n one by one takes about n²/2 tasks."""
        self._begun = 0
        self._since = 0
        """Tasks with a lower number began under another width, and say nothing about this one."""

    def allow(self, most: int) -> None:
        """As many may run as fit where they run, which may change meanwhile."""
        was_full = self.now >= self._bounds.maximum
        self._bounds = Adaptive(1, most, most)
        if was_full or self.now > most:
            self._change(most)

    def begin(self) -> int:
        """A task begins. Returns its number for the methods below."""
        self._begun += 1
        return self._begun

    def limited(self, number: int) -> None:
        """A task met a rate limit. Many tasks meet the same one; only the first counts."""
        if number > self._since:
            self._is_probing = False
            self._change(max(self._bounds.minimum, self.now // 2))

    def ended(self, number: int, seconds: float) -> None:
        """A task was done after this many seconds."""
        if number <= self._since:
            return
        self._round.append(seconds)
        if len(self._round) < self.now:
            return
        usual = median(self._round)
        self._round.clear()
        # The lower quartile: the very least of some noisy rounds is not a measure.
        better = sorted(self._medians)[len(self._medians) // 4] if self._medians else usual
        has_risen = usual > _TOLERANCE * better
        self._medians.append(usual)
        if has_risen:
            self._is_probing = False
        elif self.now < self._bounds.maximum:
            self._change(min(self._bounds.maximum, self.now * 2 if self._is_probing else self.now + 1))

    def _change(self, width: int) -> None:
        if width < self.now:
            self._since = self._begun
        self.now = width
        self._round.clear()

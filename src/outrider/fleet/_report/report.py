"""`Report`, the results of a batch: counts, cost, times and failures, computed from its outcomes.

`render` writes it.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, Final

import msgspec

from outrider.fleet._journal.journal import Journal
from outrider.fleet._report import render
from outrider.fleet._task import Outcome
from outrider.session import Usage

if TYPE_CHECKING:
    from os import PathLike
    from typing import Self


_SLOWEST: Final = 5
_EXAMPLES: Final = 3


class Latency(msgspec.Struct, frozen=True):
    """How long tasks took, in seconds, as percentiles."""

    p50: float
    p90: float
    p99: float
    max: float

    @classmethod
    def of(cls, durations: Iterable[float]) -> Self | None:
        """None if there are none. Each figure is the time of a task that was run, none is between two."""
        ordered = sorted(durations)
        if not ordered:
            return None

        def at(percent: int) -> float:
            return ordered[max(math.ceil(len(ordered) * percent / 100), 1) - 1]

        return cls(at(50), at(90), at(99), ordered[-1])


class Part(msgspec.Struct, frozen=True, kw_only=True):
    """The results of some of the tasks."""

    done: int = 0
    failed: int = 0
    over_budget: int = 0
    waiting: int = 0
    skipped: int = 0
    usage: Usage = msgspec.field(default_factory=Usage)

    @classmethod
    def of(cls, outcomes: Sequence[Outcome[object]]) -> Self:
        counts: Any = Counter(outcome.status for outcome in outcomes)
        return cls(**counts, usage=sum((outcome.usage for outcome in outcomes), Usage()))

    @property
    def ended(self) -> int:
        """How many have ended, however they did."""
        return self.done + self.failed + self.over_budget + self.skipped + self.waiting


class FailureKind(msgspec.Struct, frozen=True):
    """Tasks that failed with the same class of error."""

    kind: str
    count: int
    ids: tuple[str, ...]
    """The first few of them."""
    error: str
    """What the first of them said."""


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """The results of a batch, so far."""

    total: int
    """How many tasks there are, with those that have not ended."""
    sums: Part
    began_at: float | None = None
    """Unix seconds."""
    ended_at: float | None = None
    active_seconds: float = 0.0
    """For how long at least one task was at work: the pauses between a run and its `resume` do not count."""
    attempts: int = 0
    latency: Latency | None = None
    """Of the tasks that were run."""
    slowest: tuple[Outcome[object], ...] = ()
    failures: tuple[FailureKind, ...] = ()
    """The most frequent first."""
    by_tag: dict[str, dict[str, Part]] = {}
    """By the name of a tag, then by its value."""
    outcomes: tuple[Outcome[object], ...] = ()
    """In the order of the tasks."""

    @classmethod
    def from_outcomes(
        cls,
        outcomes: Iterable[Outcome[object]],
        *,
        total: int | None = None,
        began_at: float | None = None,
        ended_at: float | None = None,
    ) -> Self:
        """Work it out. `total` is how many tasks there are, if some have not ended."""
        ordered = tuple(sorted(outcomes, key=lambda outcome: outcome.number))
        ran = [outcome for outcome in ordered if outcome.attempts]
        return cls(
            total=max(total or 0, len(ordered)),
            sums=Part.of(ordered),
            began_at=began_at,
            ended_at=ended_at,
            active_seconds=sum(end - start for start, end in _at_work(ran)),
            attempts=sum(outcome.attempts for outcome in ordered),
            latency=Latency.of(outcome.duration for outcome in ran),
            slowest=tuple(sorted(ran, key=lambda outcome: -outcome.duration)[:_SLOWEST]),
            failures=_failures(ordered),
            by_tag=_by_tag(ordered),
            outcomes=ordered,
        )

    @classmethod
    def from_journal(cls, place: str | PathLike[str] | Journal) -> Self:
        """Of all runs of a journal, which may be running. Blocks. Raises `JournalInvalid`."""
        with place.reader() if isinstance(place, Journal) else Journal(place) as journal:
            outcomes, total = list(journal.outcomes()), journal.counts().total
            made_at = journal.meta("made_at")
        return cls.from_outcomes(
            outcomes,
            total=total,
            began_at=None if made_at is None else float(made_at),
            ended_at=max((outcome.ended_at for outcome in outcomes), default=None),
        )

    @property
    def pending(self) -> int:
        """How many tasks have not ended."""
        return self.total - self.sums.ended

    @property
    def rate_per_minute(self) -> float | None:
        """How many tasks ended in a minute of work; None if no time has passed."""
        ran = sum(1 for outcome in self.outcomes if outcome.attempts)
        return ran / self.active_seconds * 60 if self.active_seconds > 0 else None

    def to_markdown(self) -> str:
        """A page for readers. Secrets in errors are masked."""
        return render.markdown(self)

    def to_csv(self) -> str:
        """A line for each task that has ended."""
        return render.csv(self)

    def to_json(self) -> str:
        """All of it, with the outcome of each task."""
        return render.json(self)

    def to_svg(self) -> str:
        """A plot: how many tasks had ended at each time of the work, and how long they took.

        It stands for itself, and suits light and dark pages.
        """
        return render.svg(self, _at_work(each for each in self.outcomes if each.attempts))


def _at_work(ran: Iterable[Outcome[object]]) -> list[tuple[float, float]]:
    """When at least one task was at work: spans that do not touch, in order."""
    spans: list[tuple[float, float]] = []
    for start, end in sorted((each.ended_at - each.duration, each.ended_at) for each in ran):
        if spans and start <= spans[-1][1]:
            spans[-1] = spans[-1][0], max(end, spans[-1][1])
        else:
            spans.append((start, end))
    return spans


def _failures(outcomes: Iterable[Outcome[object]]) -> tuple[FailureKind, ...]:
    kinds: dict[str, list[Outcome[object]]] = {}
    for outcome in outcomes:
        if outcome.status != "done" and outcome.error is not None:
            kinds.setdefault(outcome.error_kind or "unknown", []).append(outcome)
    return tuple(
        FailureKind(kind, len(failed), tuple(each.id for each in failed[:_EXAMPLES]), failed[0].error or "")
        for kind, failed in sorted(kinds.items(), key=lambda item: (-len(item[1]), item[0]))
    )


def _by_tag(outcomes: Iterable[Outcome[object]]) -> dict[str, dict[str, Part]]:
    tagged: dict[str, dict[str, list[Outcome[object]]]] = {}
    for outcome in outcomes:
        for name, value in outcome.tags.items():
            tagged.setdefault(name, {}).setdefault(value, []).append(outcome)
    return {
        name: {value: Part.of(values[value]) for value in sorted(values)}
        for name, values in sorted(tagged.items())
    }

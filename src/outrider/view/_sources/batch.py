"""How a batch stands: from a `Run` of this process, or from the journal that another one writes."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import parse_qs, urlsplit

import anyio
import msgspec

from outrider._threads import run_sync
from outrider.fleet import Journal, JournalInvalid, Report, Run
from outrider.fleet._journal.journal import is_queue

if TYPE_CHECKING:
    from outrider.fleet import Outcome

_RECENT: Final = 100
"""Ends that the rate is computed from."""
_LEAST_PAUSE: Final = 2.0
"""Seconds between two times that all outcomes are read."""


class RunningTask(msgspec.Struct, frozen=True):
    """A task that is at work."""

    id: str
    attempt: int
    since: float | None
    session_id: str | None


class BatchState(msgspec.Struct, frozen=True, kw_only=True):
    """How far it has come."""

    name: str
    total: int | None
    counts: dict[str, int]
    cost_usd: float
    tokens: int
    running: list[RunningTask]
    is_running: bool
    runner: str | None = None
    rate_per_minute: float | None = None
    seconds_left: float | None = None
    waiting_until: float | None = None
    waiting_for: str | None = None
    concurrency: int | None = None

    @property
    def ended(self) -> int:
        return sum(self.counts.values())


class Batch:
    """A batch that is looked at."""

    def __init__(self, source: Run[Any] | Journal) -> None:
        self._run = source if isinstance(source, Run) else None
        self._journal = source if isinstance(source, Journal) else None
        self._report: tuple[object, float, Report] | None = None
        self._lock = anyio.Lock()

    @staticmethod
    def is_journal(path: Path) -> bool:
        """Whether a file is the journal of a batch, and not a store."""
        try:
            with Journal(path) as journal:
                journal.counts()
        except (JournalInvalid, OSError):
            return False
        return True

    async def state(self) -> BatchState:
        if self._run is not None:
            return self._of_run(self._run)
        state = await run_sync(self._of_journal)
        report = await self.report()
        recent = sorted(outcome.ended_at for outcome in report.outcomes if outcome.attempts)[-_RECENT:]
        now = time.time() if state.is_running else (recent[-1] if recent else 0.0)
        took = now - recent[0] if len(recent) > 1 else 0.0
        rate = len(recent) / took * 60 if took > 0 else None
        left = None if not rate or state.total is None else (state.total - state.ended) / rate * 60
        return msgspec.structs.replace(
            state, rate_per_minute=rate, seconds_left=left if state.is_running else None
        )

    async def report(self) -> Report:
        """All that has ended; at most every other second anew."""
        async with self._lock:
            key = await run_sync(self._key)
            if self._report is not None:
                known, at, report = self._report
                if known == key or time.monotonic() - at < _LEAST_PAUSE:
                    return report
            report = await run_sync(self._made)
            self._report = key, time.monotonic(), report
            return report

    def _made(self) -> Report:
        if self._run is not None:
            return self._run.report()
        assert self._journal is not None
        return Report.from_journal(self._journal)

    def _key(self) -> object:
        if self._run is not None:
            return self._run.progress.ended
        assert self._journal is not None
        with self._journal.reader() as journal:
            return journal.counts().ended

    def _of_run(self, run: Run[Any]) -> BatchState:
        told = run.progress
        names = ("done", "failed", "over_budget", "skipped", "waiting")
        return BatchState(
            name="This run" if run.journal is None else _name(run.journal),
            total=told.total,
            counts={name: getattr(told, name) for name in names},
            cost_usd=told.cost_usd,
            tokens=told.tokens,
            running=[
                RunningTask(each.id, each.attempt, each.began_at, each.session_id) for each in told.current
            ],
            is_running=told.running > 0 or told.total is None or told.ended < told.total,
            rate_per_minute=told.rate_per_minute or None,
            seconds_left=told.seconds_left,
            waiting_until=told.waiting_until,
            waiting_for=told.waiting_for,
            concurrency=told.concurrency,
        )

    def _of_journal(self) -> BatchState:
        assert self._journal is not None
        with self._journal.reader() as journal:
            counts, spent, runner = journal.counts(), journal.spent(), journal.runner()
            started = [
                RunningTask(entry.task.id, entry.attempts, entry.started_at, entry.session_id)
                for entry in journal.started()
            ]
        names = ("done", "failed", "over_budget", "skipped", "waiting")
        return BatchState(
            name=_name(self._journal),
            total=counts.total,
            counts={name: getattr(counts, name) for name in names},
            cost_usd=spent.usd,
            tokens=spent.tokens,
            running=started if runner else [],
            is_running=runner is not None,
            runner=runner,
        )


def is_batch(url: str) -> bool:
    """Whether a URL names a batch in a database, which may hold sessions, too."""
    return is_queue(url) and "batch" in parse_qs(urlsplit(url).query)


def _name(journal: Journal) -> str:
    return journal.name if journal.path is None else journal.path.name


def chosen(outcomes: tuple[Outcome[object], ...], status: str, error: str) -> list[Outcome[object]]:
    """Those with a status and a kind of error, the latest first."""
    found = [
        each
        for each in outcomes
        if (not status or each.status == status) and (not error or (each.error_kind or "unknown") == error)
    ]
    return sorted(found, key=lambda each: each.ended_at, reverse=True)

"""`Run`: starts tasks, as many at once as may run, and yields their outcomes.

`TaskAttempts` runs one task, the engine decides where, and the journal records the outcome.
"""

from __future__ import annotations

import logging
import signal
import time
from collections import deque
from contextlib import suppress
from threading import current_thread, main_thread
from typing import TYPE_CHECKING, Any, Final, Generic, cast

import anyio
import msgspec
from anyio.lowlevel import checkpoint

from outrider._threads import run_sync
from outrider.errors import LimitReached, UsageError
from outrider.fleet._budget.budget import Spent
from outrider.fleet._budget.ledger import backlog_of
from outrider.fleet._engine import TaskAttempts, outcome_of
from outrider.fleet._journal.journal import Finished, Journal, Noted, TasksLost
from outrider.fleet._progress import Adaptive, Progress, Running, Tally, Width
from outrider.fleet._source import Outages, SharedSource
from outrider.fleet._task import Outcome
from outrider.session import background
from outrider.session._connection.observers import UNFOLLOWED, instrument_of
from outrider.session._result import Output_co

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Generator
    from typing import Self

    from anyio.abc import TaskGroup, TaskStatus

    from outrider.fleet._engine import Note
    from outrider.fleet._journal.journal import Entry, Pulse
    from outrider.fleet._map import Plan
    from outrider.fleet._report.report import Report


log = logging.getLogger("outrider.fleet")

_WRITTEN: Final = ("session_id", "workspace", "worker", "usage", "tool_calls")
"""What of a note is written down."""

_ENGINE_PACE: Final = 10.0
"""Seconds between two looks at the size of a cluster."""

_FIRST_FEW: Final = 20
"""So many tasks must have ended before a share of them counts."""

_TOLERANCE: Final = 1.0
"""Two clocks do not agree to the second."""

_TOLD: Final = ("total", "done", "failed", "skipped", "over_budget", "waiting")
"""What of its progress is told at the end."""


class Run(Generic[Output_co]):
    """Tasks that are being run. Made by `map` and `resume`.

        async with fleet.map(prompts, journal="run.db") as run:
            async for outcome in run:
                print(outcome.id, outcome.status, run.progress.seconds_left)

        outcomes = await fleet.map(prompts)

    The loop gives the outcome of each task as it ends. Tasks do not wait for the loop. Leaving the block
    early stops what runs; with a journal, `resume` continues from there.
    """

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._width = Width(plan.concurrency or Adaptive())
        self._tally = Tally()
        self._began_at = time.time()
        self._earlier = 0.0
        """Seconds that the journal was run for before."""
        self._ready: deque[Outcome[Output_co]] = deque()
        self._ended: list[Outcome[object]] = []
        """For the report, without what is large; empty if a journal has them."""
        self._scopes: dict[str, anyio.CancelScope] = {}
        """Around each task that runs."""
        self._others = Spent()
        """What other workers have spent, as far as the budget knows it."""
        self._gate_until = 0.0
        """Until when the gate of all workers is closed, as far as is known."""
        self._beginning_anew = anyio.Lock()
        self._ended_here = self._failed_here = 0
        self.stopped_by: str | None = None
        """Why no more tasks were begun, if too many had failed."""
        self._outages = plan.source.outages = Outages(self._report_progress)
        self._noted = anyio.Event()
        self._changed = anyio.Event()
        self._scope = anyio.CancelScope()
        self._was_entered = False
        self._is_draining = False
        self._is_over = False
        self._failure: BaseException | None = None
        self._instrument = instrument_of(plan.shared.options)
        self._journal_id: str | None = None

    # For its user.

    @property
    def journal(self) -> Journal | None:
        """The journal, if there is one. It is closed when the run is over."""
        return self._plan.source.journal

    @property
    def progress(self) -> Progress:
        """How far it has come."""
        gate = self._plan.shared.gate
        until = None if gate is None else gate.opens_at
        return self._tally.progress(
            concurrency=self._width.now,
            waiting_until=until,
            waiting_for=None if gate is None or until is None else gate.why,
            away=self._outages.why,
            is_draining=self._is_draining,
        )

    def drain(self) -> None:
        """Begin no more tasks, and end when those that run have. Returns at once.

        Tasks that have not begun end as `skipped`. A journal does not record that: `resume` runs them.
        """
        if not self._is_draining:
            self._is_draining = True
            self._report_progress()

    def stop(self) -> None:
        """End all that runs, now. Returns at once; the loop ends when nothing is left running.

        Tasks that were running end as `skipped`, too. With a journal, `resume` resumes their sessions.
        """
        self.drain()
        self._outages.stop()
        self._scope.cancel()

    async def finish(self) -> list[Outcome[Output_co]]:
        """Run all of it, and give the outcomes in the order of the tasks; with a journal, those of earlier
        runs too. `await run` is the same.

        Raises what the loop would raise. Cancelling the call stops the run.
        """
        async with self:
            ended = {outcome.number: outcome async for outcome in self}
        for outcome in await run_sync(self._written, frozenset(ended)):
            ended[outcome.number] = outcome
        return [ended[number] for number in sorted(ended)]

    def __await__(self) -> Generator[object, None, list[Outcome[Output_co]]]:
        return self.finish().__await__()

    def report(self) -> Report:
        """The results so far: counts, cost, times, failures; with a journal, of all its runs."""
        from outrider.fleet._report.report import Report

        ended = self._ended if self.journal is None else self._written()
        total = self._tally.total
        return Report.from_outcomes(
            cast("list[Outcome]", ended),
            total=len(ended) if total is None else total,
            began_at=self._began_at,
            ended_at=time.time(),
        )

    def _written(self, known: frozenset[int] = frozenset()) -> list[Outcome[Output_co]]:
        """What the journal has, without those that are `known`: texts may be long."""
        if self.journal is None:
            return []
        with self.journal.reader() as journal:
            found = (outcome for outcome in journal.outcomes() if outcome.number not in known)
            return [self._plan.typed(outcome) for outcome in found]

    # Beginning and end.

    async def __aenter__(self) -> Self:
        """Take the tasks and begin. Raises `OptionsError` for what is wrong with them or with the engine,
        `JournalBusy` and `JournalInvalid`; nothing was begun then."""
        if self._was_entered:
            raise UsageError("The run was begun before", hint="Call `map` or `resume` again for another.")
        if self._plan.drain_on_interrupt and current_thread() is not main_thread():
            raise UsageError(
                "`drain_on_interrupt` needs the main thread, which gets all signals",
                hint="Leave it out, and call `run.drain()` when the run is to end.",
            )
        self._was_entered = True
        try:
            await self._begin()
        except BaseException:
            with anyio.CancelScope(shield=True):
                await self._plan.source.close()
            raise
        return self

    async def _begin(self) -> None:
        plan = self._plan
        known = await plan.source.open()
        try:
            if known.counts is not None:
                self._tally.start_from(known.counts, known.spent.usd, known.spent.tokens)
            self._earlier, self._journal_id = known.spent.wall, known.journal_id
            plan.charge_earlier(known.journal_id, known.spent)
            self._others = _without_time(known.spent)
            await plan.open_root()
            await plan.engine.open(plan.shared)
            if (slots := self._slots) is not None:
                most = await slots()
                self._width = Width(Adaptive(1, most, most))
            await (await background()).start(self._drive, name="outrider fleet")
        except BaseException:
            with anyio.CancelScope(shield=True):
                await plan.close_root()
            raise

    async def __aexit__(self, *_: object) -> None:
        if not self._is_over:
            self.stop()
        with anyio.CancelScope(shield=True):
            while not self._is_over:
                await self._changed.wait()
        if self._failure is not None:
            log.error("a run has failed, and was left before that was read", exc_info=self._failure)

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Outcome[Output_co]:
        if not self._was_entered:
            raise UsageError("The run has not begun", hint="Write `async with run:` around the loop.")
        await checkpoint()
        while not self._ready:
            if self._is_over:
                failure, self._failure = self._failure, None
                raise StopAsyncIteration if failure is None else failure
            await self._changed.wait()
        return self._ready.popleft()

    # The task that does it.

    async def _drive(self) -> None:
        instrument, engine = self._instrument, self._plan.engine.name
        with UNFOLLOWED if instrument is None else instrument.run(engine) as follower:
            await self._drive_all()
            progress, failure = self.progress, self._failure
            facts = {f"outrider.run.{name}": getattr(progress, name) for name in _TOLD}
            facts["outrider.run.journal_id"] = self._journal_id
            follower.end("done", None if failure is None else type(failure).__name__, facts)

    async def _drive_all(self) -> None:
        try:
            with self._scope:
                async with anyio.create_task_group() as helpers:
                    helpers.start_soon(self._write_notes)
                    if isinstance(self._plan.source, SharedSource):
                        helpers.start_soon(self._keep_in_touch, self._plan.source)
                    if self._slots is not None:
                        helpers.start_soon(self._follow_engine, self._slots)
                    if self._plan.drain_on_interrupt:
                        await helpers.start(self._listen)
                    async with anyio.create_task_group() as tasks:
                        await self._begin_all(tasks)
                    helpers.cancel_scope.cancel()
        except Exception as error:  # noqa: BLE001 - raised to the reader of the run
            self._failure = _bare(error)
        finally:
            with anyio.CancelScope(shield=True):
                await self._wind_up()
            self._is_over = True
            self._report_progress()

    @property
    def _slots(self) -> Callable[[], Awaitable[int]] | None:
        """How many tasks the engine wants at once, if that is for it to say."""
        return None if self._plan.concurrency is not None else getattr(self._plan.engine, "slots", None)

    async def _follow_engine(self, slots: Callable[[], Awaitable[int]]) -> None:
        """A cluster grows and shrinks."""
        while True:
            await anyio.sleep(_ENGINE_PACE)
            try:
                self._width.allow(await slots())
            except Exception:
                log.exception("the engine does not tell how many tasks it can run")
            self._report_progress()

    async def _listen(self, *, task_status: TaskStatus[None]) -> None:
        with anyio.open_signal_receiver(signal.SIGINT) as signals:
            task_status.started()
            async for _ in signals:
                if self._is_draining:
                    # This ends here, too: the next Ctrl-C is a `KeyboardInterrupt`.
                    self.stop()
                else:
                    log.warning("interrupted: running tasks are finished, and Ctrl-C again stops them")
                    self.drain()

    async def _wind_up(self) -> None:
        plan = self._plan
        for step in (
            plan.engine.close,
            self._settle_ledger,
            plan.source.flush,
            self._skip_rest,
            plan.close_root,
            plan.source.close,
        ):
            try:
                await step()
            except Exception as error:  # noqa: BLE001 - raised to the reader of the run
                self._failure = self._failure or error

    async def _begin_all(self, tasks: TaskGroup) -> None:
        budget, source = self._plan.shared.budget, self._plan.source
        while await self._may_begin():
            entry: Entry | None = None
            try:
                await self._settle_ledger()
                if budget is not None:
                    budget.check()
                entry = await self._next()
                if budget is not None:
                    # With what the others have spent.
                    budget.check()
            except LimitReached as error:
                # If others have the tasks now, they end them.
                with suppress(TasksLost):
                    await self._end_rest(error, entry)
                return
            except Exception as error:  # noqa: BLE001 - what runs is brought to its end first
                self._failure = error
                return
            if entry is None:
                if source.has_more:
                    await self._wait_for_more()
                    continue
                self._tally.know_total()
                return
            if self._is_draining:
                # Since it was asked for.
                if not source.has_more:
                    self._give(outcome_of(entry, "skipped", None))
                return
            number = self._width.begin()
            self._tally.begin(Running(entry.task.id, entry.attempts + 1, time.time()))
            scope = self._scopes[entry.task.id] = anyio.CancelScope()
            tasks.start_soon(self._run_one, entry, number, scope, name=f"outrider task {entry.task.id}")
            self._report_progress()

    async def _settle_ledger(self) -> None:
        """A ledger that has not taken all that was spent stops the spending."""
        if self._plan.shared.ledger is not None:
            backlog = backlog_of(self._plan.shared.ledger)
            if backlog:
                await self._outages.outlast("the ledger", backlog.settle)

    async def _next(self) -> Entry | None:
        source = self._plan.source
        if not isinstance(source, SharedSource):
            return await source.next()
        generation = source.generation
        try:
            entry = await source.next()
        except TasksLost as error:
            await self._begin_anew(source, generation, error)
            return None
        if source.pulse is not None:
            await self._see(source.pulse)
        # Meanwhile the lease may have been lost, and the task with it.
        return None if entry is None or source.has_lost(entry) else entry

    async def _wait_for_more(self) -> None:
        """Wait until there may be tasks again: when another worker has ended, or was lost."""
        with anyio.move_on_after(cast("SharedSource", self._plan.source).pace):
            while not self._is_draining:
                await self._changed.wait()

    async def _may_begin(self) -> bool:
        """Wait until there is room for another task; False if there is to be none."""
        gate = self._plan.shared.gate
        while not self._is_draining:
            if len(self._tally.running) >= self._width.now or self._outages.why is not None:
                await self._changed.wait()
            elif gate is not None and not gate.is_open:
                async with anyio.create_task_group() as waiting:
                    # The run may be drained meanwhile.
                    waiting.start_soon(_then_cancel, gate.wait, waiting)
                    waiting.start_soon(_then_cancel, self._changed.wait, waiting)
            else:
                return True
        return False

    async def _run_one(self, entry: Entry, number: int, scope: anyio.CancelScope) -> None:
        instrument, id, total = self._instrument, entry.task.id, self._tally.total
        with scope:
            try:
                with (
                    UNFOLLOWED if instrument is None else instrument.task(id, entry.number, total) as follower
                ):
                    outcome = await self._run_task(entry, number)
                    facts = {"outrider.task.attempts": outcome.attempts}
                    follower.end(outcome.status, outcome.error_kind, facts)
            except TasksLost:
                log.warning("another worker has the task %r, which was run here too", id)
                self._tally.leave(id)
            finally:
                del self._scopes[id]
                self._report_progress()

    async def _run_task(self, entry: Entry, number: int) -> Outcome[object]:
        id = entry.task.id
        attempts = TaskAttempts(
            self._plan,
            entry,
            lambda work: self._tally.begin(Running(id, work.attempt, time.time(), work.session_id)),
            lambda note: self._take_note(id, number, note),
            self._plan.source.flush,
        )
        try:
            ended = await attempts.run()
        except anyio.get_cancelled_exc_class():
            with anyio.CancelScope(shield=True):
                await self._cut_off(entry, attempts)
            raise
        with anyio.CancelScope(shield=True):
            ran = self._earlier + self._tally.ran
            finished = Finished(ended.outcome, ended.usage, ended.tool_calls, ran)
            if not all(await self._plan.source.write(finished)):
                raise TasksLost(id)
        self._tally.leave(id, ended.usage)
        if ended.outcome.is_done:
            self._width.ended(number, ended.outcome.duration)
        self._give(ended.outcome)
        return ended.outcome

    async def _cut_off(self, entry: Entry, attempts: TaskAttempts) -> None:
        self._tally.leave(entry.task.id)
        if self._is_draining:
            self._give(outcome_of(entry, "skipped", None, attempts=attempts.attempt))
        if self.journal is None or self.journal.lease:
            # It cannot be resumed, or not here.
            await self._plan.remove_folder(entry)

    # Tasks that are not run.

    async def _end_rest(self, error: LimitReached, first: Entry | None) -> None:
        """Nothing may be spent any more: not for the `first`, which was taken, nor for the others."""
        entries = [] if first is None else [first]
        while entries := entries or await self._plan.source.rest():
            outcomes = [
                outcome_of(
                    entry,
                    "over_budget",
                    error,
                    workspace=await self._plan.leave_folder(entry, "over_budget"),
                )
                for entry in entries
            ]
            made = await self._plan.source.write(*map(Finished, outcomes))
            for outcome, is_made in zip(outcomes, made, strict=True):
                if is_made:
                    self._give(outcome)
            entries = []

    async def _skip_rest(self) -> None:
        if self.journal is not None and self.journal.lease:
            # Other workers run them.
            return
        while self._is_draining and (entries := await self._plan.source.rest()):
            for entry in entries:
                self._give(outcome_of(entry, "skipped", None))

    def _give(self, outcome: Outcome[object]) -> None:
        is_kept = self._plan.shared.keep_results or outcome.status == "waiting"
        if not is_kept and outcome.result is not None:
            # A journal has the rest, and all messages of all tasks would fill the memory. What waits for a
            # person is in `result.pending`.
            outcome = msgspec.structs.replace(outcome, result=None)
        self._tally.end(outcome)
        self._count_failure(outcome)
        if self.journal is None:
            self._ended.append(
                msgspec.structs.replace(outcome, text="", output=None, raw_output=None, result=None)
            )
        self._ready.append(cast("Outcome[Output_co]", outcome))
        self._report_progress()

    def _count_failure(self, outcome: Outcome[object]) -> None:
        """Begin no more if too many have failed."""
        most = self._plan.max_failures
        if most is None or outcome.status == "skipped":
            return
        self._ended_here += 1
        self._failed_here += outcome.status == "failed"
        limit = most if most >= 1 else max(most * self._ended_here, _FIRST_FEW * most)
        if self._failed_here >= limit and not self._is_draining:
            log.error("%d of %d tasks failed: no more are begun", self._failed_here, self._ended_here)
            self.stopped_by = f"{self._failed_here} of {self._ended_here} tasks failed"
            self.drain()

    # What comes on the way.

    def _take_note(self, id: str, number: int, note: Note) -> None:
        if id not in self._tally.running:
            # A note of another machine can come late.
            return
        if note.is_rate_limited:
            self._width.limited(number)
        if note.usage is not None:
            self._tally.use(id, note.usage)
        if note.session_id is not None or note.worker is not None:
            self._tally.change(id, note.session_id, note.worker)
        facts = {name: fact for name in _WRITTEN if (fact := getattr(note, name))}
        if facts and self.journal is not None:
            self._plan.source.note(Noted(id, **cast("Any", facts)))
            self._noted.set()
        self._report_progress()

    async def _write_notes(self) -> None:
        while True:
            await self._noted.wait()
            self._noted = anyio.Event()
            await self._plan.source.flush()

    # Other workers.

    async def _keep_in_touch(self, source: SharedSource) -> None:
        """Keep the lease, and hear what the others have spent, and of limits of the account."""
        gate = self._plan.shared.gate
        while True:
            await anyio.sleep(source.pace)
            until = None if gate is None else gate.opens_at
            paused, now = None, time.time()
            if gate is not None and until is not None and until > self._gate_until + _TOLERANCE:
                paused = until - now, gate.why or ""
            generation = source.generation
            try:
                pulse = await source.sync(paused, is_opened=until is None and self._gate_until > now + 1)
            except TasksLost as error:
                await self._begin_anew(source, generation, error)
            else:
                await self._see(pulse)

    async def _see(self, pulse: Pulse) -> None:
        budget, gate = self._plan.shared.budget, self._plan.shared.gate
        others = _without_time(pulse.spent - pulse.mine)
        news, self._others = others - self._others, others
        if budget is not None and news != Spent():
            budget.charge(news)
        self._tally.see_all(pulse.total, pulse.counts)
        if gate is not None:
            until = time.time() + pulse.gate_seconds
            if pulse.gate_seconds and until > (gate.opens_at or 0.0) + _TOLERANCE:
                await gate.pause(until, pulse.gate_why)
            elif not pulse.gate_seconds and self._gate_until > time.time() + _TOLERANCE and not gate.is_open:
                await gate.open()
            self._gate_until = until if pulse.gate_seconds else 0.0
        self._report_progress()

    async def _begin_anew(self, source: SharedSource, generation: int, error: TasksLost) -> None:
        """Others have the tasks that run here: end them, and take others."""
        async with self._beginning_anew:
            if source.generation != generation:
                return
            log.warning("%s: %d tasks that run here are ended", error, len(self._scopes))
            for scope in self._scopes.values():
                scope.cancel()
            while self._scopes:
                await self._changed.wait()
            await source.begin_anew()

    def _report_progress(self) -> None:
        self._changed.set()
        self._changed = anyio.Event()
        if self._plan.on_progress is not None:
            try:
                self._plan.on_progress(self.progress)
            except Exception:
                log.exception("`on_progress` failed")
            except BaseException as error:  # noqa: BLE001 - raised to the reader of the run
                # It ends the whole program.
                self._failure = self._failure or error
                self.stop()


async def _then_cancel(wait: Callable[[], Awaitable[object]], tasks: TaskGroup) -> None:
    await wait()
    tasks.cancel_scope.cancel()


def _without_time(spent: Spent) -> Spent:
    """Each run has a clock of its own."""
    return spent - Spent(wall=spent.wall)


def _bare(error: Exception) -> BaseException:
    """The first of a group: what failed first has cancelled the rest."""
    found: BaseException = error
    while isinstance(found, BaseExceptionGroup):
        found = cast("BaseExceptionGroup[BaseException]", found).exceptions[0]
    return found

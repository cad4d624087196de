"""`Run`: starts tasks, as many at once as may run, and yields their outcomes.

`TaskAttempts` runs one task, the engine decides where, and the journal records the outcome.
"""

from __future__ import annotations

import logging
import signal
import time
from collections import deque
from threading import current_thread, main_thread
from typing import TYPE_CHECKING, Any, Final, Generic, cast

import anyio
import msgspec
from anyio.lowlevel import checkpoint

from outrider.errors import LimitReached, UsageError
from outrider.fleet._engine import TaskAttempts, outcome_of
from outrider.fleet._journal import Journal
from outrider.fleet._progress import Progress, Running, Tally, Width
from outrider.fleet._task import Outcome
from outrider.session import background
from outrider.session._instrument import UNFOLLOWED, instrument_of
from outrider.session._result import Output_co

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Generator
    from typing import Self

    from anyio.abc import TaskGroup, TaskStatus

    from outrider.fleet._engine import Note
    from outrider.fleet._journal import Entry
    from outrider.fleet._map import Plan
    from outrider.fleet._report.report import Report


log = logging.getLogger("outrider.fleet")

_WRITTEN: Final = ("session_id", "workspace", "worker", "usage", "tool_calls")
"""What of a note is written down."""

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
        self._width = Width(plan.concurrency)
        self._tally = Tally()
        self._began_at = time.time()
        self._earlier = 0.0
        """Seconds that the journal was run for before."""
        self._ready: deque[Outcome[Output_co]] = deque()
        self._ended: list[Outcome[object]] = []
        """For the report, without what is large; empty if a journal has them."""
        self._notes: deque[tuple[str, dict[str, Any]]] = deque()
        """What is to be written down."""
        self._noting = anyio.Lock()
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
        self._scope.cancel()

    async def finish(self) -> list[Outcome[Output_co]]:
        """Run all of it, and give the outcomes in the order of the tasks; with a journal, those of earlier
        runs too. `await run` is the same.

        Raises what the loop would raise. Cancelling the call stops the run.
        """
        async with self:
            ended = {outcome.number: outcome async for outcome in self}
        for outcome in self._written():
            ended.setdefault(outcome.number, outcome)
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

    def _written(self) -> list[Outcome[Output_co]]:
        if self.journal is None:
            return []
        with Journal(self.journal.path) as journal:
            return [self._plan.typed(outcome) for outcome in journal.outcomes()]

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
            await plan.open_root()
            await plan.engine.open(plan.shared)
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
            self._flush_notes,
            self._skip_rest,
            plan.close_root,
            plan.source.close,
        ):
            try:
                await step()
            except Exception as error:  # noqa: BLE001 - raised to the reader of the run
                self._failure = self._failure or error

    async def _begin_all(self, tasks: TaskGroup) -> None:
        budget = self._plan.shared.budget
        while await self._may_begin():
            try:
                if budget is not None:
                    budget.check()
                entry = await self._plan.source.next()
            except LimitReached as error:
                await self._end_rest(error)
                return
            except Exception as error:  # noqa: BLE001 - what runs is brought to its end first
                self._failure = error
                return
            if entry is None:
                self._tally.know_total()
                return
            if self._is_draining:
                # Since it was asked for.
                self._give(outcome_of(entry, "skipped", None))
                return
            number = self._width.begin()
            self._tally.begin(Running(entry.task.id, entry.attempts + 1, time.time()))
            tasks.start_soon(self._run_one, entry, number, name=f"outrider task {entry.task.id}")
            self._report_progress()

    async def _may_begin(self) -> bool:
        """Wait until there is room for another task; False if there is to be none."""
        gate = self._plan.shared.gate
        while not self._is_draining:
            if len(self._tally.running) >= self._width.now:
                await self._changed.wait()
            elif gate is not None and not gate.is_open:
                async with anyio.create_task_group() as waiting:
                    # The run may be drained meanwhile.
                    waiting.start_soon(_then_cancel, gate.wait, waiting)
                    waiting.start_soon(_then_cancel, self._changed.wait, waiting)
            else:
                return True
        return False

    async def _run_one(self, entry: Entry, number: int) -> None:
        instrument, id, total = self._instrument, entry.task.id, self._tally.total
        with UNFOLLOWED if instrument is None else instrument.task(id, entry.number, total) as follower:
            outcome = await self._run_task(entry, number)
            follower.end(outcome.status, outcome.error_kind, {"outrider.task.attempts": outcome.attempts})

    async def _run_task(self, entry: Entry, number: int) -> Outcome[object]:
        id = entry.task.id
        attempts = TaskAttempts(
            self._plan,
            entry,
            lambda work: self._tally.begin(Running(id, work.attempt, time.time(), work.session_id)),
            lambda note: self._take_note(id, number, note),
            self._flush_notes,
        )
        try:
            ended = await attempts.run()
        except anyio.get_cancelled_exc_class():
            with anyio.CancelScope(shield=True):
                await self._cut_off(entry, attempts)
            raise
        with anyio.CancelScope(shield=True):
            ran = self._earlier + self._tally.ran
            await self._plan.source.write(
                Journal.end, ended.outcome, usage=ended.usage, tool_calls=ended.tool_calls, ran=ran
            )
        self._tally.leave(id, ended.usage)
        if ended.outcome.is_done:
            self._width.ended(number, ended.outcome.duration)
        self._give(ended.outcome)
        return ended.outcome

    async def _cut_off(self, entry: Entry, attempts: TaskAttempts) -> None:
        self._tally.leave(entry.task.id)
        if self._is_draining:
            self._give(outcome_of(entry, "skipped", None, attempts=attempts.attempt))
        if self.journal is None:
            # It cannot be resumed.
            await self._plan.remove_folder(entry)

    # Tasks that are not run.

    async def _end_rest(self, error: LimitReached) -> None:
        """Nothing may be spent any more."""
        while entries := await self._plan.source.rest():
            outcomes = [
                outcome_of(
                    entry,
                    "over_budget",
                    error,
                    workspace=await self._plan.leave_folder(entry, "over_budget"),
                )
                for entry in entries
            ]
            await self._plan.source.write(Journal.end_all, outcomes)
            for outcome in outcomes:
                self._give(outcome)

    async def _skip_rest(self) -> None:
        while self._is_draining and (entries := await self._plan.source.rest()):
            for entry in entries:
                self._give(outcome_of(entry, "skipped", None))

    def _give(self, outcome: Outcome[object]) -> None:
        self._tally.end(outcome)
        if self.journal is None:
            self._ended.append(
                msgspec.structs.replace(outcome, text="", output=None, raw_output=None, result=None)
            )
        self._ready.append(cast("Outcome[Output_co]", outcome))
        self._report_progress()

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
            self._notes.append((id, facts))
            self._noted.set()
        self._report_progress()

    async def _write_notes(self) -> None:
        while True:
            await self._noted.wait()
            await self._flush_notes()

    async def _flush_notes(self) -> None:
        async with self._noting:
            while self._notes:
                # If this is cancelled, it was not written.
                id, facts = self._notes[0]
                await self._plan.source.write(Journal.note, id, **facts)
                self._notes.popleft()
            self._noted = anyio.Event()

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


def _bare(error: Exception) -> BaseException:
    """The first of a group: what failed first has cancelled the rest."""
    found: BaseException = error
    while isinstance(found, BaseExceptionGroup):
        found = cast("BaseExceptionGroup[BaseException]", found).exceptions[0]
    return found

"""`Run`: starts tasks, as many at once as may run, and gives each one's outcome.

`TaskAttempts` runs one task, the engine decides where, and the source writes down what becomes of it.
"""

from __future__ import annotations

import logging
import time
from collections import deque
from typing import TYPE_CHECKING, Generic, cast

import anyio
import msgspec
from anyio.lowlevel import checkpoint

from outrider.errors import LimitReached, UsageError
from outrider.fleet._engine import TaskAttempts
from outrider.fleet._progress import Progress, Running, Tally, Width
from outrider.fleet._task import Outcome, Output_co, Status
from outrider.session import background

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Generator
    from typing import Self

    from anyio.abc import TaskGroup

    from outrider.fleet._engine import Note
    from outrider.fleet._journal import Entry, Journal
    from outrider.fleet._map import Plan
    from outrider.fleet._report.report import Report

__all__ = ["Run"]

log = logging.getLogger("outrider.fleet")


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
        self._ended: list[Outcome[Output_co]] = []
        """For the report, without what is large; empty if a journal has them."""
        self._notes: deque[tuple[str, Note]] = deque()
        self._noting = anyio.Lock()
        self._noted = anyio.Event()
        self._changed = anyio.Event()
        self._scope = anyio.CancelScope()
        self._was_entered = False
        self._is_draining = False
        self._is_over = False
        self._failure: BaseException | None = None

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

        What was not begun is given as `skipped`. With a journal that is not written down: `resume` goes on
        with these.
        """
        if not self._is_draining:
            self._is_draining = True
            self._report_progress()

    def stop(self) -> None:
        """End all that runs, now. Returns at once; the loop ends when nothing is left running.

        What was running is given as `skipped`, too. With a journal, `resume` picks it up by its session.
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
        """What it came to so far: counts, cost, times, failures; with a journal, of all its runs."""
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
        from outrider.fleet._journal import Journal

        with Journal(self.journal.path) as journal:
            return [self._plan.typed(outcome) for outcome in journal.outcomes()]

    # Beginning and end.

    async def __aenter__(self) -> Self:
        """Take the tasks and begin. Raises `OptionsError` for what is wrong with them or with the engine,
        `JournalBusy` and `JournalInvalid`; nothing was begun then."""
        if self._was_entered:
            raise UsageError("The run was begun before", hint="Call `map` or `resume` again for another.")
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
            self._earlier = known.spent.wall
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
        try:
            with self._scope:
                async with anyio.create_task_group() as helpers:
                    helpers.start_soon(self._write_notes)
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
                self._give(self._unrun(entry, "skipped"))
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
            await self._plan.source.end(ended.outcome, ended.usage, ended.tool_calls, ran)
        self._tally.leave(id, ended.usage)
        if ended.outcome.is_done:
            self._width.ended(number, ended.outcome.duration)
        self._give(cast("Outcome[Output_co]", ended.outcome))

    async def _cut_off(self, entry: Entry, attempts: TaskAttempts) -> None:
        self._tally.leave(entry.task.id)
        if self._is_draining:
            self._give(self._unrun(entry._replace(attempts=attempts.attempt), "skipped"))
        await self._plan.forget_folder(entry)

    # Tasks that are not run.

    async def _end_rest(self, error: LimitReached) -> None:
        """Nothing may be spent any more."""
        while entries := await self._plan.source.rest():
            outcomes = [
                self._unrun(
                    entry._replace(workspace=await self._plan.leave_folder(entry, "over_budget")),
                    "over_budget",
                    error,
                )
                for entry in entries
            ]
            await self._plan.source.end_all(cast("list[Outcome[object]]", outcomes))
            for outcome in outcomes:
                self._give(outcome)

    async def _skip_rest(self) -> None:
        while self._is_draining and (entries := await self._plan.source.rest()):
            for entry in entries:
                self._give(self._unrun(entry, "skipped"))

    def _unrun(self, entry: Entry, status: Status, error: LimitReached | None = None) -> Outcome[Output_co]:
        return Outcome(
            id=entry.task.id,
            number=entry.number,
            status=status,
            error=None if error is None else str(error),
            error_kind=None if error is None else type(error).__name__,
            usage=entry.usage,
            attempts=entry.attempts,
            session_id=entry.session_id,
            workspace=entry.workspace,
            started_at=entry.started_at,
            ended_at=time.time(),
            tags=entry.task.tags,
        )

    def _give(self, outcome: Outcome[Output_co]) -> None:
        self._tally.end(outcome)
        if self.journal is None:
            self._ended.append(
                msgspec.structs.replace(outcome, text="", output=None, raw_output=None, result=None)
            )
        self._ready.append(outcome)
        self._report_progress()

    # What comes on the way.

    def _take_note(self, id: str, number: int, note: Note) -> None:
        if id not in self._tally.running:
            # It comes from elsewhere, and late.
            return
        if note.is_rate_limited:
            self._width.limited(number)
        if note.usage is not None:
            self._tally.use(id, note.usage)
        if note.session_id is not None or note.worker is not None:
            self._tally.change(id, note.session_id, note.worker)
        if any((note.session_id, note.workspace, note.worker, note.usage, note.tool_calls)):
            self._notes.append((id, note))
            self._noted.set()
        self._report_progress()

    async def _write_notes(self) -> None:
        while True:
            await self._noted.wait()
            await self._flush_notes()

    async def _flush_notes(self) -> None:
        async with self._noting:
            while self._notes:
                # Who is cancelled here has not written it.
                await self._plan.source.note(*self._notes[0])
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
                # It was told to end the whole program.
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

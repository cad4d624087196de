"""Reads the arguments of `map` and `resume`, and makes the plan of a run.

Starts nothing: `_run` does.
"""

from __future__ import annotations

import os
import tempfile
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar, cast, overload
from weakref import WeakKeyDictionary

import msgspec

from outrider._threads import run_sync
from outrider.errors import OptionsError
from outrider.fleet._budget.budget import Budget, Gate
from outrider.fleet._engine import Assignment, Engine, LocalEngine, Shared
from outrider.fleet._fields import (
    PolicyFields,
    of_kind,
    read_ledger,
    read_seconds,
    read_starter,
    split_keywords,
)
from outrider.fleet._progress import Adaptive, read_concurrency
from outrider.fleet._resilient.retry import Restart, Retry
from outrider.fleet._run import Run
from outrider.fleet._source import IterableSource, JournalSource, check_unique_ids
from outrider.fleet._task import Outcome, Status, Task, numbered
from outrider.fleet._workspaces import discard, folder_name, read_workspace, sweep
from outrider.options import Options
from outrider.options._validators import choice, function, invalid_value, path_text, switch
from outrider.session import Session

if TYPE_CHECKING:
    from os import PathLike
    from typing import Unpack

    from outrider.fleet._budget.account import Spent
    from outrider.fleet._journal import Entry
    from outrider.fleet._progress import Progress
    from outrider.fleet._resilient.process import Starter
    from outrider.fleet._source import Source
    from outrider.fleet._workspaces import Workspace
    from outrider.wire import Json

__all__ = ["Plan", "map", "resume"]


_charged: WeakKeyDictionary[Budget, set[str]] = WeakKeyDictionary()
"""The journals that each budget knows of: one that saw them being run need not be told what they spent."""


class Plan(msgspec.Struct, kw_only=True):
    """All that a run was told."""

    source: Source
    engine: Engine
    shared: Shared
    output: object
    workspace: Workspace | None
    concurrency: Adaptive
    task_seconds: float | None
    on_progress: Callable[[Progress], object] | None
    root: Path | None = None
    """Where folders are made; None until there is one."""

    def assignment(
        self, entry: Entry, attempt: int, session_id: str | None, spent: Spent, restarts: int
    ) -> Assignment:
        """One attempt. `session_id`: that of an earlier one, to be picked up; `spent`: by all earlier ones;
        `restarts`: in this run.

        Raises `OptionsError` if the options of the run and those of the task do not go together.
        """
        task = entry.task
        task.check_folder(self.workspace)
        options = task.applied_to(self.shared.options)
        workspace = self.workspace_of(entry)
        return Assignment(
            id=task.id,
            number=entry.number,
            attempt=attempt,
            task=task,
            options=options,
            output=self.output if task.output is None else task.output,
            session_id=session_id or (str(uuid.uuid4()) if _may_choose_id(options) else None),
            is_picked_up=session_id is not None,
            workspace=workspace,
            root=None if workspace is None else str(self.root),
            usd=None if task.usd is None else max(task.usd - spent.usd, 0.0),
            tokens=None if task.tokens is None else max(task.tokens - spent.tokens, 0),
            tool_calls=None if task.tool_calls is None else max(task.tool_calls - spent.tool_calls, 0),
            wall=task.wall,
            seconds=self.task_seconds,
            restarts=restarts,
            tags={"task": task.id, **task.tags},
        )

    def check(self, task: Task) -> None:
        """Raises `OptionsError` for a task that does not go together with the options of the run, or with its
        engine."""
        task.check_folder(self.workspace)
        if task.options:
            self.engine.check(task.applied_to(self.shared.options))

    def workspace_of(self, entry: Entry) -> Workspace | None:
        return self.workspace if entry.task.workspace is None else entry.task.workspace

    def typed(self, outcome: Outcome[object], output: object = None) -> Outcome[Any]:
        """An outcome that was written down, or came from elsewhere, with its output as the type that the task
        or else the run asks for."""
        output = self.output if output is None else output
        if output is None or outcome.raw_output is None or not outcome.is_done:
            return outcome
        from outrider.handlers import Shape, ShapeError

        with suppress(ShapeError):
            # One that asked for another type stays as it came.
            return msgspec.structs.replace(outcome, output=Shape(output).convert(outcome.raw_output))
        return outcome

    def charge_earlier(self, journal_id: str | None, spent: Spent) -> None:
        """Charge the budget with what earlier runs of the journal spent, if it was not there to see it."""
        budget = self.shared.budget
        if budget is None or journal_id is None:
            return
        known = _charged.setdefault(budget, set())
        if journal_id not in known:
            known.add(journal_id)
            budget.charge(spent)

    # Folders.

    async def open_root(self) -> None:
        """Have a place for folders, and nothing half made in it."""
        if self.root is None:
            self.root = Path(await run_sync(lambda: tempfile.mkdtemp(prefix="outrider-fleet-")))
        else:
            await run_sync(sweep, self.root)

    async def close_root(self) -> None:
        """Remove that place, unless a folder in it was kept."""
        if self.root is not None:
            with suppress(OSError):
                await run_sync(self.root.rmdir)

    async def forget_folder(self, entry: Entry) -> None:
        """Remove the folder of a task that was cut off and that nobody can pick up."""
        if self.source.journal is None:
            await self._remove_folder(entry)

    async def leave_folder(self, entry: Entry, status: Status) -> str | None:
        """Remove the folder of a task that was cut off earlier and ends like this; gives it if it is kept."""
        kind = self.workspace_of(entry)
        if kind is None or not entry.attempts or kind.is_kept(status):
            return entry.workspace
        return None if await self._remove_folder(entry) else entry.workspace

    async def _remove_folder(self, entry: Entry) -> bool:
        kind = self.workspace_of(entry)
        if kind is None or self.root is None:
            return True
        return await run_sync(discard, kind, self.root / folder_name(entry.task.id))


def _may_choose_id(options: Options) -> bool:
    """Whether a session can be given an id before it begins: one that goes on with another has that one's."""
    is_old = options.resume is not None or options.continue_conversation
    return options.persist_session and options.session_id is None and (not is_old or options.fork_session)


T = TypeVar("T")


_NOT_DONE: Final[tuple[Status, ...]] = ("failed", "over_budget")


class RunFields(PolicyFields, total=False):
    """What `map` and `resume` take as keywords: these, and every option."""

    concurrency: int | Adaptive
    """How many tasks run at once: a number, or an `Adaptive`, which is the default."""
    workspace: Workspace | str | Mapping[str, object] | None
    """The folder that each task works in, unless it says so itself: `Copy`, `Worktree`, `Empty`."""
    engine: str | Engine
    """Where tasks run: `local`, which is the default, `ray`, or an engine."""
    pool: Starter | None
    """Where the local engine gets its processes from."""
    task_seconds: float | str | None
    """How long one attempt at a task may take."""
    on_progress: Callable[[Progress], object] | None
    """Called with each change, in the event loop. It must not block."""


@overload
def map(  # noqa: A001
    tasks: Iterable[Task | str],
    options: Options | None = None,
    *,
    output: Mapping[str, object] | None = None,
    journal: str | PathLike[str] | None = None,
    **fields: Unpack[RunFields],
) -> Run[Json]: ...


@overload
def map(  # noqa: A001
    tasks: Iterable[Task | str],
    options: Options | None = None,
    *,
    output: type[T],
    journal: str | PathLike[str] | None = None,
    **fields: Unpack[RunFields],
) -> Run[T]: ...


@overload
def map(  # noqa: A001
    tasks: Iterable[Task | str],
    options: Options | None = None,
    *,
    output: object,
    journal: str | PathLike[str] | None = None,
    **fields: Unpack[RunFields],
) -> Run[object]: ...


def map(  # noqa: A001
    tasks: Iterable[Task | str],
    options: Options | None = None,
    *,
    output: object = None,
    journal: str | PathLike[str] | None = None,
    **fields: Unpack[RunFields],
) -> Run[object]:
    """Run tasks side by side, each in a session of its own, and give each one's outcome as it ends.

        async with fleet.map(prompts, cwd="project", concurrency=8, journal="run.db") as run:
            async for outcome in run: ...

    `options`, single ones as keywords, and `output`, as for `run`; the other keywords are in `RunFields`.
    Tasks are taken from the iterable when there is room for them, in a thread, so that it may block.

    `journal`: a file that has all tasks and what became of them. All are taken and written down before the
    first is begun; call it again with the same tasks, or `resume`, and it goes on where it was cut off, by
    whatever. Folders of tasks are made beside it; without it, in a temporary place.

    Raises `OptionsError` for what cannot work, and names the task. Nothing is begun before `async with`, or
    `await`.
    """
    if isinstance(tasks, (str, bytes, Mapping)) or not isinstance(tasks, Iterable):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise invalid_value(
            "`tasks`", "an iterable of tasks", cast(object, tasks), "Give a list: `map([prompt])`."
        )
    plan = _plan(options, output, fields)
    if journal is None:
        if isinstance(tasks, Sequence):
            for _ in check_unique_ids(numbered(tasks, plan.check)):
                pass
        plan.source = IterableSource(tasks, plan.check)
    else:
        _keep_journal(plan, path_text("`journal`", journal), tasks)
    return Run(plan)


@overload
def resume(
    journal: str | PathLike[str],
    options: Options | None = None,
    *,
    output: Mapping[str, object] | None = None,
    retry_failed: bool = False,
    **fields: Unpack[RunFields],
) -> Run[Json]: ...


@overload
def resume(
    journal: str | PathLike[str],
    options: Options | None = None,
    *,
    output: type[T],
    retry_failed: bool = False,
    **fields: Unpack[RunFields],
) -> Run[T]: ...


@overload
def resume(
    journal: str | PathLike[str],
    options: Options | None = None,
    *,
    output: object,
    retry_failed: bool = False,
    **fields: Unpack[RunFields],
) -> Run[object]: ...


def resume(
    journal: str | PathLike[str],
    options: Options | None = None,
    *,
    output: object = None,
    retry_failed: bool = False,
    **fields: Unpack[RunFields],
) -> Run[object]:
    """Go on with the tasks of a journal: those that have not ended, and no others.

    One that was cut off is picked up by its session, if that is there, and otherwise begun anew.
    `retry_failed`: those that failed, or that a budget stopped or kept from being begun, are begun anew, too.
    The other arguments are those of `map`; the journal has the tasks, but not the options of the run, and not
    the secrets in the options of tasks: variables are taken from `env` or the environment, for others call
    `map` with the same tasks.

    Raises `OptionsError` here, and when the run is begun `JournalBusy`, or `JournalInvalid` for a file that
    is no journal.
    """
    plan = _plan(options, output, fields)
    path = path_text("`journal`", journal)
    again = _NOT_DONE if switch("`retry_failed`", retry_failed) else ()
    _keep_journal(plan, path, None, again)
    return Run(plan)


def _keep_journal(
    plan: Plan, file: str, tasks: Iterable[Task | str] | None, retry: tuple[Status, ...] = ()
) -> None:
    env = {**os.environ, **plan.shared.options.env}
    source = JournalSource(file, tasks, plan.check, retry, env)
    path = source.journal.path
    plan.source, plan.root = source, path.with_name(path.name + ".workspaces")


def _plan(options: Options | None, output: object, fields: RunFields) -> Plan:
    own, single = split_keywords(fields, RunFields)
    # It is made only to have all of it checked before anything starts.
    checked = Session(options, output=cast(Any, output), **single).options
    if checked.transport is not None:
        raise OptionsError("`transport` cannot be shared by the sessions of many tasks")
    seconds, on_progress = own.get("task_seconds"), own.get("on_progress")
    shared = Shared(
        budget=of_kind("budget", own.get("budget"), Budget),
        gate=of_kind("gate", own.get("gate"), Gate) or Gate(),
        retry=of_kind("retry", own.get("retry", Retry()), Retry),
        restart=of_kind("restart", own.get("restart", Restart()), Restart),
        ledger=read_ledger("ledger", own.get("ledger")),
        pool=read_starter("pool", own.get("pool")),
        options=checked,
    )
    return Plan(
        source=IterableSource(()),
        engine=_engine(own.get("engine", "local")),
        shared=shared,
        output=output,
        workspace=read_workspace("`workspace`", own.get("workspace")),
        concurrency=read_concurrency(own.get("concurrency", Adaptive())),
        task_seconds=None if seconds is None else read_seconds("`task_seconds`", seconds),
        on_progress=None if on_progress is None else cast("Any", function("`on_progress`", on_progress)),
    )


def _engine(given: object) -> Engine:
    if not isinstance(given, str):
        if isinstance(given, type) or not isinstance(given, Engine):
            raise invalid_value("`engine`", "'local', 'ray' or an engine", given)
        return given
    if choice("local", "ray")("`engine`", given) == "local":
        return LocalEngine()
    from outrider.fleet._ray.engine import RayEngine

    return RayEngine()

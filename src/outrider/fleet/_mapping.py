"""Makes runs: of tasks (`map`), and of a journal (`resume`). Reads their arguments.

Runs nothing.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, TypeVar, cast, overload

from outrider.errors import OptionsError
from outrider.fleet._budget import Budget
from outrider.fleet._concurrency import Adaptive, read_concurrency
from outrider.fleet._engine import Engine, Shared
from outrider.fleet._fields import PolicyFields, apart, of_kind, read_ledger, read_starter
from outrider.fleet._gate import Gate
from outrider.fleet._local import LocalEngine
from outrider.fleet._outcome import Status
from outrider.fleet._plan import Plan
from outrider.fleet._restart import Restart
from outrider.fleet._retry import Retry
from outrider.fleet._run import Run
from outrider.fleet._sizes import read_seconds
from outrider.fleet._source import Journalled, Listed, unlike
from outrider.fleet._task import Task, numbered
from outrider.fleet._workspaces import read_workspace
from outrider.options import Options
from outrider.options._readers import choice, fault, function, path_text, switch
from outrider.session import Session

if TYPE_CHECKING:
    from os import PathLike
    from typing import Unpack

    from outrider.fleet._progress import Progress
    from outrider.fleet._starting import Starter
    from outrider.fleet._workspaces import Workspace
    from outrider.wire import Json

T = TypeVar("T")

__all__ = ["map", "resume"]

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
        raise fault("`tasks`", "an iterable of tasks", cast(object, tasks), "Give a list: `map([prompt])`.")
    plan = _plan(options, output, fields)
    if journal is None:
        if isinstance(tasks, Sequence):
            for _ in unlike(numbered(tasks, plan.check)):
                pass
        plan.source = Listed(tasks, plan.check)
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
    source = Journalled(file, tasks, plan.check, retry, env)
    path = source.journal.path
    plan.source, plan.root = source, path.with_name(path.name + ".workspaces")


def _plan(options: Options | None, output: object, fields: RunFields) -> Plan:
    own, single = apart(fields, RunFields)
    # It is made only to have all of it checked before anything starts.
    checked = Session(options, output=output, **single).options
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
        source=Listed(()),
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
            raise fault("`engine`", "'local', 'ray' or an engine", given)
        return given
    if choice("local", "ray")("`engine`", given) == "local":
        return LocalEngine()
    from outrider.fleet._ray import RayEngine

    return RayEngine()

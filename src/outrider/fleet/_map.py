"""`map`, `resume` and `submit`: validates their arguments, and makes the plan of a run. `_source` has its
tasks, `_run` runs it.

`resume_or_start` is for programs with a queue of their own: a message that is delivered again continues the
session that the first delivery has begun.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, cast
from weakref import WeakKeyDictionary

import msgspec

from outrider._threads import run_sync
from outrider.errors import OptionsError, SessionExists, SessionNotFound
from outrider.fleet._budget.budget import Budget, Spent
from outrider.fleet._engine import PICK_UP, Assignment, Engine, LocalEngine, Shared
from outrider.fleet._fields import (
    PolicyFields,
    ResilientFields,
    of_kind,
    read_ledger,
    read_seconds,
    read_starter,
    split_keywords,
)
from outrider.fleet._journal.journal import Entry, is_queue
from outrider.fleet._progress import Adaptive, read_concurrency
from outrider.fleet._resilient.retry import RESTART, RETRY, Gate, Restart, Retry
from outrider.fleet._resilient.session import ResilientSession
from outrider.fleet._resilient.turn_runner import resumed
from outrider.fleet._run import Run
from outrider.fleet._source import Given, Source, open_source
from outrider.fleet._task import Outcome, Status, Task, numbered
from outrider.fleet._workspaces import discard, folder_name, in_thread, make_root, read_workspace, sweep
from outrider.options import Options
from outrider.options._validators import choice, function, invalid_value, path_text, switch, text
from outrider.options._values import differing, plain
from outrider.session import Session
from outrider.session._result import Output

if TYPE_CHECKING:
    from os import PathLike
    from typing import Unpack

    from outrider.fleet._progress import Progress
    from outrider.fleet._resilient.retry import Tries
    from outrider.fleet._resilient.turn_runner import Starter
    from outrider.fleet._workspaces import Workspace
    from outrider.session import Prompt, Result, Usage
    from outrider.session._result import OutputType

_charged: WeakKeyDictionary[Budget, set[str]] = WeakKeyDictionary()
"""The journals whose spending each budget has counted already."""


class Plan(msgspec.Struct, kw_only=True):
    """The arguments of a run, validated."""

    source: Source = msgspec.field(default_factory=Source)
    engine: Engine
    shared: Shared
    output: object
    workspace: Workspace | None
    concurrency: Adaptive | None
    """None: as the engine says."""
    task_seconds: float | None
    on_progress: Callable[[Progress], object] | None
    max_failures: float | None = None
    drain_on_interrupt: bool = False
    root: Path | None = None
    """Where folders are made; None until there is one."""
    lock: int | None = None
    """Held on a temporary root, as long as this process lives."""

    @property
    def needs(self) -> dict[str, bool]:
        """The arguments that decide what becomes of tasks, as far as they were given; True for those that can
        be written down."""
        given = differing(self.shared.options)
        given |= {name: getattr(self, name) for name in ("output", "workspace", "task_seconds")}
        given["engine"] = None if type(self.engine) is LocalEngine else self.engine
        # Of these, what matters can be.
        given |= {name: getattr(self.shared, name) and True for name in ("budget", "ledger")}
        return {name: _is_plain(value) for name, value in given.items() if value is not None}

    def assignment(
        self, entry: Entry, attempt: int, session_id: str | None, spent: tuple[Usage, int], tries: Tries
    ) -> Assignment:
        """One attempt. `session_id`: that of an earlier one, to be picked up; `spent`: usage and tool calls
        of all earlier ones; `tries`: what was tried again in this run.

        Raises `OptionsError` if the options of the run and those of the task do not go together.
        """
        task, (usage, calls) = entry.task, spent
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
            usd=None if task.usd is None else max(task.usd - usage.cost_usd, 0.0),
            tokens=None if task.tokens is None else max(task.tokens - usage.total_tokens, 0),
            tool_calls=None if task.tool_calls is None else max(task.tool_calls - calls, 0),
            wall=task.wall,
            seconds=self.task_seconds,
            tries=tries,
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
            self.root, self.lock = await run_sync(make_root)
        else:
            await run_sync(sweep, self.root)

    async def close_root(self) -> None:
        """Remove that place, unless a folder in it was kept."""
        if self.root is not None:
            with suppress(OSError):
                await run_sync(self.root.rmdir)
        if self.lock is not None:
            os.close(self.lock)
            self.lock = None

    async def leave_folder(self, entry: Entry, status: Status) -> str | None:
        """Remove the folder of a task that was cut off earlier and ends like this; gives it if it is kept."""
        kind = self.workspace_of(entry)
        if kind is None or not entry.attempts or kind.is_kept(status):
            return entry.workspace
        return None if await self.remove_folder(entry) else entry.workspace

    async def remove_folder(self, entry: Entry) -> bool:
        """Remove the folder of a task; gives whether it is gone."""
        kind = self.workspace_of(entry)
        if kind is None or self.root is None:
            return True
        return await in_thread(kind, discard, kind, self.root / folder_name(entry.task.id))


def _is_plain(value: object) -> bool:
    try:
        msgspec.json.encode(plain(value))
    except (TypeError, ValueError):
        return False
    return True


def _may_choose_id(options: Options) -> bool:
    """Whether a session can be given an id before it begins: one that continues another has the other's."""
    is_old = options.resume is not None or options.continue_conversation
    return options.persist_session and options.session_id is None and (not is_old or options.fork_session)


_NOT_DONE: Final[tuple[Status, ...]] = ("failed", "over_budget")


class RunFields(PolicyFields, total=False):
    """What `map` and `resume` take as keywords: these, and every option."""

    concurrency: int | Adaptive
    """How many tasks run at once: a number, or an `Adaptive`, which is the default here; on a cluster it is
    twice what fits there."""
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
    max_failures: float | None
    """Begin no more tasks when so many have failed in this run: a number, or a share of those that have
    ended, as in 0.5, which counts from the 20th on."""
    keep_results: bool
    """Outcomes have their `result`, with every message. Unset: only in a run without a journal."""
    drain_on_interrupt: bool
    """Ctrl-C begins no more tasks and lets the running ones finish; a second one stops them. Only in the main
    thread. Unset: Ctrl-C is left to the event loop."""


def map(  # noqa: A001
    tasks: Iterable[Task | str],
    options: Options | None = None,
    *,
    output: OutputType[Output] = None,
    journal: str | PathLike[str] | None = None,
    **fields: Unpack[RunFields],
) -> Run[Output]:
    """Run tasks concurrently, each in a session of its own, and give the outcome of each as it ends.

        async with fleet.map(prompts, cwd="project", concurrency=8, journal="run.db") as run:
            async for outcome in run: ...

    `options`, single ones as keywords, and `output`, as for `run`; the other keywords are in `RunFields`.
    Tasks are taken from the iterable when there is room for them, in a thread, so that it may block.

    `journal`: a file that has all tasks and what became of them. All are taken and written down before the
    first is begun; call it again with the same tasks, or `resume`, to continue after any interruption.
    Folders of tasks are made beside it; without it, in a temporary place. With a URL
    (`postgresql://host/database?batch=name`) it is a queue in a database, from which other processes may take
    tasks at the same time; the loop gives the outcomes of those that ran here, `await` those of all.

    Raises `OptionsError` for invalid arguments, and names the task. Nothing starts before `async with` or
    `await`.
    """
    if isinstance(tasks, (str, bytes, Mapping)) or not isinstance(tasks, Iterable):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise invalid_value(
            "`tasks`", "an iterable of tasks", cast(object, tasks), "Give a list: `map([prompt])`."
        )
    plan = _plan(options, output, fields, has_journal=journal is not None)
    if journal is None:
        plan.source = Source(tasks, plan.check)
    else:
        _keep_journal(plan, path_text("`journal`", journal), tasks)
    return Run(plan)


def resume(
    journal: str | PathLike[str],
    options: Options | None = None,
    *,
    output: OutputType[Output] = None,
    retry_failed: bool = False,
    stay: bool = False,
    **fields: Unpack[RunFields],
) -> Run[Output]:
    """Continue with the tasks of a journal that have not ended.

    Of a journal in PostgreSQL any number of processes may do so at once: each takes tasks that no other has,
    and the run ends when all have ended. `stay`: wait for more tasks then.

    A task that was interrupted resumes its session if that exists, and starts over otherwise.
    `retry_failed`: those that failed, or that a budget stopped or kept from being begun, are begun anew, too.
    The other arguments are those of `map`; the journal has the tasks, but not the options of the run, and not
    the secrets in the options of tasks: variables are taken from `env` or the environment, for others call
    `map` with the same tasks.

    Raises `OptionsError` here, and when the run is begun `JournalBusy`, or `JournalInvalid` for a file that
    is not a journal.
    """
    plan = _plan(options, output, fields, has_journal=True)
    path = path_text("`journal`", journal)
    again = _NOT_DONE if switch("`retry_failed`", retry_failed) else ()
    _keep_journal(plan, path, None, again, stays=switch("`stay`", stay))
    return Run(plan)


async def submit(
    tasks: Iterable[Task | str], journal: str, *, append: bool = False, options: Options | None = None
) -> int:
    """Put tasks into a journal in PostgreSQL, for workers to run; gives how many were new.

        await fleet.submit(prompts, "postgresql://agents@db/fleet?batch=night")

    Each worker is a `resume` of the same journal, or `outrider fleet work`. All tasks are added, or none. The
    same tasks may be submitted again, which changes nothing. `append`: add them to those that are there;
    tasks whose `id` is there already are not added again. `options` are those of the workers, and are only
    used to check the tasks.

    Raises `OptionsError`, and `JournalInvalid` if the database cannot be used.
    """
    place = path_text("`journal`", journal)
    if not is_queue(place):
        raise invalid_value(
            "`journal`", "the URL of a database: postgresql://…", journal, "Use `map` with a file."
        )
    base = Options() if options is None else options

    def check(task: Task) -> None:
        task.check_folder(None)
        if task.options:
            task.applied_to(base)

    def put() -> int:
        from outrider.fleet._journal.postgres import PostgresJournal

        with PostgresJournal(place, writing=True) as opened:
            return opened.add(numbered(tasks, check, placed=not append), append=append)

    return await run_sync(put)


def _keep_journal(
    plan: Plan,
    place: str,
    tasks: Iterable[Task | str] | None,
    retry: tuple[Status, ...] = (),
    *,
    stays: bool = False,
) -> None:
    env = {**os.environ, **plan.shared.options.env}
    plan.source = open_source(place, Given(tasks, plan.check, retry, env, plan.needs, stays))
    if not is_queue(place):
        # Workers of a queue have folders of their own.
        path = Path(place).absolute()
        plan.root = path.with_name(path.name + ".workspaces")


def _read_failures(value: object) -> float | None:
    if value is None:
        return None
    if isinstance(value, int | float) and not isinstance(value, bool):
        is_share, is_count = 0 < value < 1, value >= 1 and value == value // 1
        if is_share or is_count:
            return value
    raise invalid_value("`max_failures`", "a number of 1 or more, or a share between 0 and 1", value)


def _plan(options: Options | None, output: object, fields: RunFields, *, has_journal: bool) -> Plan:
    own, single = split_keywords(fields, RunFields)
    # It is made only to have all of it checked before anything starts.
    checked = Session(options, output=cast(Any, output), **single).options
    if checked.transport is not None:
        raise OptionsError("`transport` cannot be shared by the sessions of many tasks")
    seconds, on_progress = own.get("task_seconds"), own.get("on_progress")
    shared = Shared(
        budget=of_kind("budget", own.get("budget"), Budget),
        gate=of_kind("gate", own.get("gate"), Gate) or Gate(),
        retry=of_kind("retry", own.get("retry", RETRY), Retry),
        restart=_read_restart(own.get("restart", RESTART)),
        ledger=read_ledger("ledger", own.get("ledger")),
        pool=read_starter("pool", own.get("pool")),
        keep_results=switch("`keep_results`", own.get("keep_results", not has_journal)),
        options=checked,
    )
    return Plan(
        engine=_engine(own.get("engine", "local")),
        shared=shared,
        output=output,
        workspace=read_workspace("`workspace`", own.get("workspace")),
        concurrency=read_concurrency(own["concurrency"]) if "concurrency" in own else None,
        task_seconds=None if seconds is None else read_seconds("`task_seconds`", seconds),
        on_progress=None if on_progress is None else cast("Any", function("`on_progress`", on_progress)),
        max_failures=_read_failures(own.get("max_failures")),
        drain_on_interrupt=switch("`drain_on_interrupt`", own.get("drain_on_interrupt", False)),
    )


def _read_restart(given: object) -> Restart | None:
    restart = of_kind("restart", given, Restart)
    if restart is None or restart.continue_with is not None:
        return restart
    # A task whose prompt is not sent again continues.
    return msgspec.structs.replace(restart, continue_with=PICK_UP)


def _engine(given: object) -> Engine:
    if not isinstance(given, str):
        if isinstance(given, type) or not isinstance(given, Engine):
            raise invalid_value("`engine`", "'local', 'ray' or an engine", given)
        return given
    if choice("local", "ray")("`engine`", given) == "local":
        return LocalEngine()
    from outrider.fleet._ray.engine import RayEngine

    return RayEngine()


_NAMESPACE: Final = uuid.UUID("6f0a3c1e-2d0b-5a55-9a0e-0f5c7d3b9e41")


def session_id_for(id: str) -> str:
    """The id of the session that `resume_or_start` uses for this one: the same if it is a UUID, else one that
    is made from it."""
    given = text("`id`", id)
    with suppress(ValueError):
        return str(uuid.UUID(given))
    return str(uuid.uuid5(_NAMESPACE, given))


async def resume_or_start(
    id: str,
    prompt: Prompt,
    options: Options | None = None,
    *,
    output: OutputType[Output] = None,
    continue_with: str = PICK_UP,
    check: bool = True,
    **fields: Unpack[ResilientFields],
) -> Result[Output]:
    """Run a prompt under an id of your own, such as that of a message in a queue, and return its result.

        result = await fleet.resume_or_start(message.id, "Review it", session_store="postgresql://…")

    The first call with an id starts a session. A later one finds it, wherever it runs if there is a
    `session_store`, and sends `continue_with`: the agent goes on where it was cut off, or gives its answer
    again. The other keywords are those of a `ResilientSession`.

    If the last holder was lost, waits for its lease to run out, as often as `restart` says. Raises
    `SessionBusy` if another process is at work on it; otherwise what `ResilientSession.ask` raises.
    """
    session_id = session_id_for(id)
    own, single = split_keywords(fields, ResilientFields)
    base = (options or Options()).replace(**single)
    if not base.persist_session or base.resume is not None or base.continue_conversation:
        raise OptionsError(
            "`resume_or_start` chooses the session, and has to find it again",
            hint="Leave `resume`, `continue_conversation` and `persist_session` out.",
        )
    if own.get("restart", True) is not None:
        restart = own.get("restart") or Restart()
        own["restart"] = Restart(
            max=restart.max,
            backoff=restart.backoff,
            max_backoff=restart.max_backoff,
            resend=restart.resend,
            continue_with=restart.continue_with or continue_with,
        )

    async def ask(given: Options, words: Prompt) -> Result[Output]:
        session: ResilientSession[Any] = ResilientSession(given, output=cast("Any", output), **own)
        try:
            # Not `async with`: `connect` does not wait for a session that a lost writer still holds.
            turn = await session.send(words, until="idle")
            return cast("Result[Output]", await turn.result(check=check))
        finally:
            await session.close()

    try:
        return await ask(resumed(base, session_id), continue_with)
    except SessionNotFound:
        pass
    try:
        return await ask(base.replace(session_id=session_id), prompt)
    except SessionExists:
        # Another delivery of the same message was faster.
        return await ask(resumed(base, session_id), continue_with)

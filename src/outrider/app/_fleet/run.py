"""Implements `outrider fleet run`, `resume` and `retry-failed`, and what Ctrl-C does to a batch.

`outrider.fleet` runs the tasks; `progress` shows them.
"""

from __future__ import annotations

import signal
import sys
from codecs import BOM_UTF8
from collections.abc import Iterator, Mapping
from contextlib import AsyncExitStack, chdir
from pathlib import Path
from typing import TYPE_CHECKING, Final, cast

import anyio
from rich.text import Text

from outrider.app._flags import ENDING, Code, Failed, in_one_line
from outrider.app._fleet.progress import Board
from outrider.app._fleet.reports import META, BatchFields, Settings, at_the_end, shown_journal
from outrider.app._render import counted
from outrider.app._terminal import Terminal
from outrider.errors import OptionsError
from outrider.fleet import Journal, Ledger, Report, Task, resume
from outrider.fleet._journal.journal import is_queue
from outrider.fleet._task import numbered
from outrider.launch import find_agent

if TYPE_CHECKING:
    from collections.abc import Callable

    from anyio.abc import TaskStatus

    from outrider.fleet import Run, Workspace
    from outrider.options import OptionFields


_SUFFIX: Final = ".journal"
_TICK: Final = 0.2
"""Seconds between two updates of the progress."""


def run_tasks(
    file: Path,
    journal: str | None,
    batch: Mapping[str, object],
    fields: OptionFields,
    *,
    no_color: bool,
    as_json: bool,
) -> int:
    """Run the tasks of a file; gives the exit code. All are validated before the first begins."""
    terminal = Terminal(no_color=no_color)
    settings = Settings(folder=str(Path.cwd()), batch=_batch(batch), fields=dict(fields))
    settings.keywords()
    shown = _journal_for(file, journal)
    tasks = _tasks(file, settings)
    if batch.get("engine") != "ray":
        _find_agents(tasks, settings)
    with Journal(shown, writing=True) as opened:
        # In this order: without tasks, the journal can be begun anew.
        settings.keep(opened)
        opened.add((number, task.placed(number)) for number, task in enumerate(tasks))
    return _carry_on(shown, settings, terminal, as_json=as_json)


def submit_tasks(
    file: Path,
    journal: str,
    batch: Mapping[str, object],
    fields: OptionFields,
    *,
    no_color: bool,
    append: bool,
) -> int:
    """Put the tasks of a file into a database; gives the exit code. All are validated before."""
    if not is_queue(journal):
        raise Failed(
            f"{journal!r} is not a database that workers can share. Give postgresql://host/database.",
            Code.USAGE,
        )
    from outrider.fleet._journal.postgres import PostgresJournal

    terminal = Terminal(no_color=no_color)
    settings = Settings(folder=str(Path.cwd()), batch=_batch(batch), fields=dict(fields))
    settings.keywords()
    tasks = _tasks(file, settings)
    with PostgresJournal(journal, writing=True) as opened:
        new = opened.add(numbered(tasks, placed=not append), append=append)
        is_begun = append and opened.meta(META) is not None
        if not is_begun:
            settings.keep(opened)
    if is_begun and (settings.batch or settings.fields):
        terminal.note("The batch has its flags from its first `submit`: those given here are not kept.")
    terminal.note(
        f"{counted(new, 'task')} submitted. To run them: outrider fleet work {shown_journal(journal)}"
    )
    return Code.OK


def _tasks(file: Path, settings: Settings) -> list[Task]:
    tasks = list(_read(file, settings))
    if not tasks:
        raise Failed(f"There are no tasks in {_source(file)}. Write one per line, as JSON.", Code.USAGE)
    return tasks


def resume_tasks(
    journal: str,
    batch: Mapping[str, object],
    fields: OptionFields,
    *,
    no_color: bool,
    as_json: bool,
    retry_failed: bool = False,
    stay: bool = False,
) -> int:
    """Continue a batch; gives the exit code."""
    terminal = Terminal(no_color=no_color)
    if stay:
        if not is_queue(journal):
            raise Failed("--stay is for a database, to which others add tasks.", Code.USAGE)
        # It may be there before the first task.
        with Journal(journal, writing=True):
            pass
    settings = Settings.read(journal).changed(_batch(batch), fields)
    with Journal(journal) as opened:
        counts = opened.counts()
    if stay:
        settings.keywords()
        return _carry_on(journal, settings, terminal, as_json=as_json, ended=counts.ended, stay=True)
    if not counts.total:
        raise Failed(f"There are no tasks in {journal}. Begin again with `outrider fleet run`.", Code.USAGE)
    ended = counts.ended - counts.waiting - (counts.failed + counts.over_budget if retry_failed else 0)
    if ended == counts.total:
        terminal.note(f"Nothing is left to do in {shown_journal(journal)}")
        return at_the_end(terminal, Report.from_journal(journal), journal)
    # A worker may be on another machine than the one that the tasks were submitted from.
    folder = "." if is_queue(journal) else settings.folder
    path = journal if is_queue(journal) else str(Path(journal).absolute())
    with chdir(folder):
        settings.keywords()
        return _carry_on(
            path, settings, terminal, journal, as_json=as_json, retry_failed=retry_failed, ended=ended
        )


# Running.


def _carry_on(
    journal: str,
    settings: Settings,
    terminal: Terminal,
    shown: str | None = None,
    *,
    as_json: bool,
    retry_failed: bool = False,
    ended: int = 0,
    stay: bool = False,
) -> int:
    """Run what is to be done in a journal, whose path is shown as it was given; gives the exit code.

    `ended`: how many tasks have ended, and stay so.
    """

    async def follow() -> _Watch:
        keywords = settings.keywords()
        begin = cast("Callable[..., Run[object]]", resume)
        async with AsyncExitStack() as stack:
            if isinstance(ledger := keywords.get("ledger"), Ledger):
                await stack.enter_async_context(ledger)
            options = settings.options
            if options.approvals is not None:
                await stack.enter_async_context(options.approvals)
            run = begin(journal, options, retry_failed=retry_failed, stay=stay, **keywords)
            watch = _Watch(run, stack.enter_context(Board(terminal, as_json=as_json, ended=ended)))
            await watch.follow()
        return watch

    watch = anyio.run(follow)
    if watch.stopped_by is not None:
        terminal.note(Text(f"Stopped: {watch.stopped_by}.", style="red"))
    code = at_the_end(
        terminal, Report.from_journal(journal), shown or journal, was_interrupted=watch.is_draining
    )
    if watch.ended_by is not None:
        sys.stdout.flush()
        signal.raise_signal(watch.ended_by)
    return code


class _Watch:
    """Follows a run to its end, and stops it early if asked to."""

    def __init__(self, run: Run[object], board: Board) -> None:
        self._run = run
        self._board = board
        self.is_draining = False
        self._is_stopping = False
        self.ended_by: signal.Signals | None = None
        """The signal that ends this process after the run was stopped."""

    @property
    def stopped_by(self) -> str | None:
        return self._run.stopped_by

    async def follow(self) -> None:
        """Raises what the run raises."""
        failure: Exception | None = None
        async with anyio.create_task_group() as tasks:
            await tasks.start(self._listen)
            try:
                async with self._run as run:
                    tasks.start_soon(self._tick)
                    async for outcome in run:
                        # A skipped task has not ended: the journal does not record it either.
                        if outcome.status != "skipped":
                            self._board.ended(outcome, run.progress)
            except Exception as error:  # noqa: BLE001 - raised below: the group would wrap it
                failure = error
            tasks.cancel_scope.cancel()
        if failure is not None:
            raise failure

    async def _tick(self) -> None:
        while True:
            self._board.show(self._run.progress)
            await anyio.sleep(_TICK)

    async def _listen(self, *, task_status: TaskStatus[None]) -> None:
        # Under `nohup` one of them is ignored, and stays so.
        heard = [each for each in (signal.SIGINT, *ENDING) if signal.getsignal(each) != signal.SIG_IGN]
        with anyio.open_signal_receiver(*heard) as signals:
            task_status.started()
            async for number in signals:
                self._interrupt(number)

    def _interrupt(self, number: signal.Signals) -> None:
        if self._is_stopping:
            # Do not wait any longer. The watchdog ends the agents.
            self._board.close()
            signal.signal(number, signal.SIG_DFL)
            signal.raise_signal(number)
        elif number in ENDING:
            self.ended_by, self._is_stopping = number, True
            self._run.stop()
        elif self.is_draining:
            self._is_stopping = True
            self._board.say("stopping (Ctrl-C again leaves at once)")
            self._run.stop()
        else:
            self.is_draining = True
            running = self._run.progress.running
            them = "it" if running == 1 else "them"
            self._board.say(f"finishing {counted(running, 'task')}; Ctrl-C again stops {them}")
            self._run.drain()


# Reading.


def _journal_for(file: Path, given: str | None) -> str:
    """Where to keep a journal. Raises `Failed` if there is a batch in it."""
    if given is None and str(file) == "-":
        raise Failed("Tasks from standard input need --journal FILE.", Code.USAGE)
    path = str(file.with_suffix(_SUFFIX)) if given is None else given
    if is_queue(path):
        # The same tasks may be submitted again.
        return path
    if Path(path) == file:
        raise Failed(f"{file} cannot be both the tasks and the journal. Give a --journal FILE.", Code.USAGE)
    if Path(path).exists():
        with Journal(path) as journal:
            if journal.counts().total:
                raise Failed(
                    f"{path} already has a batch. Continue it with `outrider fleet resume {path}`,"
                    " or give another --journal.",
                    Code.USAGE,
                )
    return path


def _read(file: Path, settings: Settings) -> Iterator[Task]:
    """The tasks of a file. Raises `Failed`, which names the line."""
    options, workspace = settings.options, cast("Workspace | None", settings.keywords().get("workspace"))
    lines = sys.stdin.buffer if str(file) == "-" else file.read_bytes().splitlines()
    seen: dict[str, int] = {}
    for number, line in enumerate(lines, 1):
        # Some editors begin a file with a mark.
        text = line.removeprefix(BOM_UTF8).strip()
        if not text or text.startswith(b"#"):
            continue
        try:
            task = Task.from_json(text)
            task.applied_to(options)
            task.check_folder(workspace)
        except OptionsError as error:
            # A field of a task is not a flag.
            said = in_one_line(error, {}).replace("`", "'")
            raise Failed(f"{_source(file)}, line {number}: {said}", Code.USAGE) from error
        if task.id and (first := seen.setdefault(task.id, number)) != number:
            raise Failed(
                f"{_source(file)}, line {number}: the id {task.id!r} is that of line {first}."
                " Give each task one of its own, or none.",
                Code.USAGE,
            )
        yield task


def _find_agents(tasks: list[Task], settings: Settings) -> None:
    """Raises `AgentNotFound` if the program of a task does not exist: once, not for each task."""
    options = settings.options
    places = {(own.cli_path, own.bundled_path) for own in (task.applied_to(options) for task in tasks)}
    for cli_path, bundled_path in places:
        find_agent(cli_path=cli_path, bundled_path=bundled_path)


def _source(file: Path) -> str:
    return "standard input" if str(file) == "-" else str(file)


def _batch(given: Mapping[str, object]) -> BatchFields:
    """The flags, with the schema that `--output` names. Raises `Failed`."""
    if "output" not in given:
        return cast("BatchFields", given)
    from outrider.app._run import read_schema

    return cast("BatchFields", {**given, "output": read_schema(str(given["output"]))})

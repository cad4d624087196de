"""Owns what a run is to do: its tasks, where and how they are run, and what they have in common.

Does not run them.
"""

from __future__ import annotations

import tempfile
import uuid
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

import msgspec

from outrider._threads import run_sync
from outrider.fleet._engine import Assignment
from outrider.fleet._outcome import Outcome, Status
from outrider.fleet._workspaces import discard, folder_name, sweep
from outrider.options import Options

if TYPE_CHECKING:
    from outrider.fleet._budget import Budget
    from outrider.fleet._budget_account import Spent
    from outrider.fleet._concurrency import Adaptive
    from outrider.fleet._engine import Engine, Shared
    from outrider.fleet._journal import Entry
    from outrider.fleet._progress import Progress
    from outrider.fleet._source import Source
    from outrider.fleet._task import Task
    from outrider.fleet._workspaces import Workspace

__all__ = ["Plan"]

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
        from outrider.handlers import Misfit, Shape

        with suppress(Misfit):
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

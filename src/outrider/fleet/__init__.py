"""Many sessions: pools of ready processes, healing, budgets, and fleets of tasks on one machine or a cluster.

Adds no protocol of its own: everything is done with sessions. Names are loaded when they are first used.
"""

from typing import TYPE_CHECKING

from outrider._lazy import lazily

if TYPE_CHECKING:
    from outrider.fleet._attempting import attempt_here
    from outrider.fleet._budget import Budget, BudgetWarning
    from outrider.fleet._budget_account import Left, Spent
    from outrider.fleet._clock import Clock
    from outrider.fleet._concurrency import Adaptive
    from outrider.fleet._engine import Assignment, Attempted, Engine, Note, Shared
    from outrider.fleet._errors import (
        ClusterNotFound,
        JournalBusy,
        JournalInvalid,
        PoolClosed,
        QueueFull,
        QueueTimedOut,
        WorkerLost,
        WorkspaceFailed,
    )
    from outrider.fleet._fields import LastingFields
    from outrider.fleet._gate import Gate
    from outrider.fleet._journal import Counts, Entry, Journal
    from outrider.fleet._lasting import LastingSession, LastingState
    from outrider.fleet._lasting_turn import LastingReader, LastingTurn
    from outrider.fleet._ledger import Ledger, LedgerEntry
    from outrider.fleet._local import LocalEngine
    from outrider.fleet._mapping import RunFields, map, resume  # noqa: A004 - as it is called: `fleet.map`
    from outrider.fleet._outcome import Outcome, Status
    from outrider.fleet._pool import Pool
    from outrider.fleet._pool_stats import PoolStats
    from outrider.fleet._progress import Progress, Running
    from outrider.fleet._ray import RayEngine
    from outrider.fleet._report import FailureKind, Latency, Part, Report
    from outrider.fleet._restart import Restart, Restarted
    from outrider.fleet._retry import CONTINUE, Retry, Retrying
    from outrider.fleet._run import Run
    from outrider.fleet._starting import DirectStarter, Starter
    from outrider.fleet._task import Task, read_lines
    from outrider.fleet._workspaces import Copy, Empty, Keep, Workspace, Worktree

_HOMES = {
    "_attempting": ("attempt_here",),
    "_budget": (
        "Budget",
        "BudgetWarning",
    ),
    "_budget_account": (
        "Left",
        "Spent",
    ),
    "_clock": ("Clock",),
    "_concurrency": ("Adaptive",),
    "_engine": (
        "Assignment",
        "Attempted",
        "Engine",
        "Note",
        "Shared",
    ),
    "_errors": (
        "ClusterNotFound",
        "JournalBusy",
        "JournalInvalid",
        "PoolClosed",
        "QueueFull",
        "QueueTimedOut",
        "WorkerLost",
        "WorkspaceFailed",
    ),
    "_fields": ("LastingFields",),
    "_gate": ("Gate",),
    "_journal": (
        "Counts",
        "Entry",
        "Journal",
    ),
    "_lasting": (
        "LastingSession",
        "LastingState",
    ),
    "_lasting_turn": (
        "LastingReader",
        "LastingTurn",
    ),
    "_ledger": (
        "Ledger",
        "LedgerEntry",
    ),
    "_local": ("LocalEngine",),
    "_outcome": (
        "Outcome",
        "Status",
    ),
    "_pool": ("Pool",),
    "_pool_stats": ("PoolStats",),
    "_progress": (
        "Progress",
        "Running",
    ),
    "_ray": ("RayEngine",),
    "_report": (
        "FailureKind",
        "Latency",
        "Part",
        "Report",
    ),
    "_restart": (
        "Restart",
        "Restarted",
    ),
    "_retry": (
        "CONTINUE",
        "Retry",
        "Retrying",
    ),
    "_mapping": (
        "RunFields",
        "map",
        "resume",
    ),
    "_run": ("Run",),
    "_starting": (
        "DirectStarter",
        "Starter",
    ),
    "_task": (
        "Task",
        "read_lines",
    ),
    "_workspaces": (
        "Copy",
        "Empty",
        "Keep",
        "Workspace",
        "Worktree",
    ),
}
"""Where the names are."""

__getattr__, __dir__ = lazily(__name__, _HOMES)

__all__ = [
    "CONTINUE",
    "Adaptive",
    "Assignment",
    "Attempted",
    "Budget",
    "BudgetWarning",
    "Clock",
    "ClusterNotFound",
    "Copy",
    "Counts",
    "DirectStarter",
    "Empty",
    "Engine",
    "Entry",
    "FailureKind",
    "Gate",
    "Journal",
    "JournalBusy",
    "JournalInvalid",
    "Keep",
    "LastingFields",
    "LastingReader",
    "LastingSession",
    "LastingState",
    "LastingTurn",
    "Latency",
    "Ledger",
    "LedgerEntry",
    "Left",
    "LocalEngine",
    "Note",
    "Outcome",
    "Part",
    "Pool",
    "PoolClosed",
    "PoolStats",
    "Progress",
    "QueueFull",
    "QueueTimedOut",
    "RayEngine",
    "Report",
    "Restart",
    "Restarted",
    "Retry",
    "Retrying",
    "Run",
    "RunFields",
    "Running",
    "Shared",
    "Spent",
    "Starter",
    "Status",
    "Task",
    "WorkerLost",
    "Workspace",
    "WorkspaceFailed",
    "Worktree",
    "attempt_here",
    "map",
    "read_lines",
    "resume",
]

"""Many sessions: pools of ready processes, healing, budgets, and fleets of tasks on one machine or a cluster.

Everything here is built on sessions. Names are loaded on first use.
"""

from typing import TYPE_CHECKING

from outrider._lazy import lazily

if TYPE_CHECKING:
    from outrider.fleet._budget.account import Left, Spent
    from outrider.fleet._budget.budget import Budget, BudgetWarning, Gate
    from outrider.fleet._budget.ledger import Ledger, LedgerEntry
    from outrider.fleet._engine import (
        Assignment,
        Attempted,
        Engine,
        LocalEngine,
        Note,
        Shared,
        attempt_locally,
    )
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
    from outrider.fleet._fields import ResilientFields
    from outrider.fleet._journal import Counts, Entry, Journal
    from outrider.fleet._map import RunFields, map, resume  # noqa: A004 - as it is called: `fleet.map`
    from outrider.fleet._pool.pool import Pool
    from outrider.fleet._pool.slots import PoolStats
    from outrider.fleet._progress import Adaptive, Progress, Running
    from outrider.fleet._ray.engine import RayEngine
    from outrider.fleet._report.report import FailureKind, Latency, Part, Report
    from outrider.fleet._resilient.retry import CONTINUE, Clock, Restart, Restarted, Retry, Retrying
    from outrider.fleet._resilient.session import (
        ResilientReader,
        ResilientSession,
        ResilientState,
        ResilientTurn,
    )
    from outrider.fleet._resilient.turn_runner import DirectStarter, Starter
    from outrider.fleet._run import Run
    from outrider.fleet._task import Outcome, Status, Task, read_lines
    from outrider.fleet._workspaces import Copy, Empty, Keep, Workspace, Worktree

_HOMES = {
    "_budget.account": (
        "Left",
        "Spent",
    ),
    "_budget.budget": (
        "Budget",
        "BudgetWarning",
        "Gate",
    ),
    "_budget.ledger": (
        "Ledger",
        "LedgerEntry",
    ),
    "_engine": (
        "Assignment",
        "Attempted",
        "Engine",
        "LocalEngine",
        "Note",
        "Shared",
        "attempt_locally",
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
    "_fields": ("ResilientFields",),
    "_journal": (
        "Counts",
        "Entry",
        "Journal",
    ),
    "_map": (
        "RunFields",
        "map",
        "resume",
    ),
    "_pool.slots": ("PoolStats",),
    "_pool.pool": ("Pool",),
    "_progress": (
        "Adaptive",
        "Progress",
        "Running",
    ),
    "_ray.engine": ("RayEngine",),
    "_report.report": (
        "FailureKind",
        "Latency",
        "Part",
        "Report",
    ),
    "_resilient.turn_runner": (
        "DirectStarter",
        "Starter",
    ),
    "_resilient.retry": (
        "CONTINUE",
        "Clock",
        "Restart",
        "Restarted",
        "Retry",
        "Retrying",
    ),
    "_resilient.session": (
        "ResilientReader",
        "ResilientSession",
        "ResilientState",
        "ResilientTurn",
    ),
    "_run": ("Run",),
    "_task": (
        "Outcome",
        "Status",
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
    "ResilientFields",
    "ResilientReader",
    "ResilientSession",
    "ResilientState",
    "ResilientTurn",
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
    "attempt_locally",
    "map",
    "read_lines",
    "resume",
]

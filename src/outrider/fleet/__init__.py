"""Many sessions: pools of ready processes, healing, budgets, and fleets of tasks on one machine or a cluster.

Everything here is built on sessions. Names are loaded on first use.
"""

from typing import TYPE_CHECKING

from outrider._lazy import lazily

if TYPE_CHECKING:
    from outrider.fleet._budget.budget import Budget as Budget
    from outrider.fleet._budget.budget import BudgetWarning as BudgetWarning
    from outrider.fleet._budget.budget import Left as Left
    from outrider.fleet._budget.budget import Spent as Spent
    from outrider.fleet._budget.ledger import Ledger as Ledger
    from outrider.fleet._budget.ledger import LedgerEntry as LedgerEntry
    from outrider.fleet._engine import Assignment as Assignment
    from outrider.fleet._engine import Attempted as Attempted
    from outrider.fleet._engine import Engine as Engine
    from outrider.fleet._engine import LocalEngine as LocalEngine
    from outrider.fleet._engine import Note as Note
    from outrider.fleet._engine import Shared as Shared
    from outrider.fleet._engine import attempt_locally as attempt_locally
    from outrider.fleet._errors import ClusterNotFound as ClusterNotFound
    from outrider.fleet._errors import JournalBusy as JournalBusy
    from outrider.fleet._errors import JournalInvalid as JournalInvalid
    from outrider.fleet._errors import PoolClosed as PoolClosed
    from outrider.fleet._errors import QueueFull as QueueFull
    from outrider.fleet._errors import QueueTimedOut as QueueTimedOut
    from outrider.fleet._errors import WorkerLost as WorkerLost
    from outrider.fleet._errors import WorkspaceFailed as WorkspaceFailed
    from outrider.fleet._fields import ResilientFields as ResilientFields
    from outrider.fleet._journal.journal import Counts as Counts
    from outrider.fleet._journal.journal import Entry as Entry
    from outrider.fleet._journal.journal import Journal as Journal
    from outrider.fleet._map import RunFields as RunFields
    from outrider.fleet._map import map as map  # noqa: A004 - as `fleet.map`
    from outrider.fleet._map import resume as resume
    from outrider.fleet._map import resume_or_start as resume_or_start
    from outrider.fleet._map import session_id_for as session_id_for
    from outrider.fleet._map import submit as submit
    from outrider.fleet._pool.pool import Pool as Pool
    from outrider.fleet._pool.slots import PoolStats as PoolStats
    from outrider.fleet._progress import Adaptive as Adaptive
    from outrider.fleet._progress import Progress as Progress
    from outrider.fleet._progress import Running as Running
    from outrider.fleet._ray.engine import RayEngine as RayEngine
    from outrider.fleet._report.report import FailureKind as FailureKind
    from outrider.fleet._report.report import Latency as Latency
    from outrider.fleet._report.report import Part as Part
    from outrider.fleet._report.report import Report as Report
    from outrider.fleet._resilient.retry import CONTINUE as CONTINUE
    from outrider.fleet._resilient.retry import Clock as Clock
    from outrider.fleet._resilient.retry import Gate as Gate
    from outrider.fleet._resilient.retry import Restart as Restart
    from outrider.fleet._resilient.retry import Restarted as Restarted
    from outrider.fleet._resilient.retry import Retry as Retry
    from outrider.fleet._resilient.retry import Retrying as Retrying
    from outrider.fleet._resilient.session import ResilientReader as ResilientReader
    from outrider.fleet._resilient.session import ResilientSession as ResilientSession
    from outrider.fleet._resilient.session import ResilientState as ResilientState
    from outrider.fleet._resilient.session import ResilientTurn as ResilientTurn
    from outrider.fleet._resilient.turn_runner import DirectStarter as DirectStarter
    from outrider.fleet._resilient.turn_runner import Starter as Starter
    from outrider.fleet._run import Run as Run
    from outrider.fleet._task import Outcome as Outcome
    from outrider.fleet._task import Status as Status
    from outrider.fleet._task import Task as Task
    from outrider.fleet._task import read_lines as read_lines
    from outrider.fleet._workspaces import Copy as Copy
    from outrider.fleet._workspaces import Empty as Empty
    from outrider.fleet._workspaces import Keep as Keep
    from outrider.fleet._workspaces import Workspace as Workspace
    from outrider.fleet._workspaces import Worktree as Worktree
else:
    __getattr__, __dir__, __all__ = lazily(__name__)

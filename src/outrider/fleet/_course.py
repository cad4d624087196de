"""Brings one task to one end: attempt after attempt, until one came to something.

Does not know of other tasks, nor who is told about the end.
"""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, NamedTuple

from outrider.errors import OutriderError, SessionNotFound, TurnFailed
from outrider.fleet._budget_account import Spent
from outrider.fleet._engine import Assignment, Attempted, Note
from outrider.fleet._errors import ClusterNotFound, WorkerLost
from outrider.fleet._outcome import Outcome
from outrider.fleet._restart import Restarts
from outrider.session import Usage

if TYPE_CHECKING:
    from outrider.fleet._engine import Tell
    from outrider.fleet._journal import Entry
    from outrider.fleet._plan import Plan

__all__ = ["Course", "Ended"]


class Ended(NamedTuple):
    """What a task came to, and what its last attempt used of it."""

    outcome: Outcome[object]
    usage: Usage
    tool_calls: int


class Course:
    """The attempts at one task."""

    def __init__(
        self,
        plan: Plan,
        entry: Entry,
        begin: Callable[[Assignment], None],
        tell: Tell,
        settle: Callable[[], Awaitable[None]],
    ) -> None:
        """`begin` is told of each attempt; `settle` writes down what `tell` was told so far."""
        self._plan = plan
        self._entry = entry
        self._begin = begin
        self._tell = tell
        self._settle = settle
        self.attempt = entry.attempts
        self._usage, self._calls = entry.usage, entry.tool_calls
        """Of attempts that are over."""
        self._session_id = entry.session_id if entry.attempts else None
        self._is_picked_up = False
        self._restarts = Restarts(plan.shared.restart)
        """By the attempts, and of attempts whose worker was lost."""
        self._noted = Note()
        self._began_at = time.time() if entry.started_at is None else entry.started_at

    async def run(self) -> Ended:
        """Make attempts until there is an outcome. Raises what cannot be written down."""
        while True:
            self.attempt += 1
            self._noted = Note()
            try:
                attempted = await self._try()
                is_missing = self._is_picked_up and isinstance(attempted.error, SessionNotFound)
                if is_missing and self._restarts.anew():
                    # It was cut off before its session was written, or that is on another machine: from the
                    # start, in another, whose id is written down before it begins.
                    self._session_id = None
                    continue
                break
            except WorkerLost as lost:
                await self._settle()
                attempted = self._given_up(lost)
                if not self._restarts.again():
                    break
                self._usage += attempted.usage
                self._calls += attempted.tool_calls
        return Ended(self._outcome(attempted), attempted.usage, attempted.tool_calls)

    async def _try(self) -> Attempted:
        plan, entry = self._plan, self._entry
        try:
            spent = Spent.of(self._usage, tool_calls=self._calls)
            work = plan.assignment(entry, self.attempt, self._session_id, spent, self._restarts.count)
        except OutriderError as error:
            await plan.source.begin(entry.task.id, self.attempt, self._here(), None)
            return Attempted(status="failed", error=error)
        self._session_id, self._is_picked_up = work.session_id, work.is_picked_up
        await plan.source.begin(entry.task.id, self.attempt, self._here(), work.session_id)
        self._begin(work)
        return await self._ask_engine(work)

    async def _ask_engine(self, work: Assignment) -> Attempted:
        try:
            return await self._plan.engine.attempt(work, self._note)
        except (WorkerLost, ClusterNotFound):
            raise
        except OutriderError as error:
            return self._given_up(error)
        except Exception as error:  # noqa: BLE001 - an engine that fails ends this task, not the run
            failed = TurnFailed(message=f"The engine failed: {error!r}")
            failed.__cause__ = error
            return self._given_up(failed)

    def _given_up(self, error: OutriderError) -> Attempted:
        noted = self._noted
        return Attempted(
            status="failed",
            error=error,
            usage=noted.usage or Usage(),
            tool_calls=noted.tool_calls or 0,
            session_id=self._session_id,
            workspace=noted.workspace,
        )

    def _note(self, note: Note) -> None:
        before = self._noted
        self._session_id = note.session_id or self._session_id
        self._noted = Note(
            usage=note.usage or before.usage,
            tool_calls=before.tool_calls if note.tool_calls is None else note.tool_calls,
            workspace=note.workspace or before.workspace,
        )
        self._restarts.count = max(self._restarts.count, note.restarts or 0)
        self._tell(note)

    def _here(self) -> str:
        return f"{self._plan.engine.name} {socket.gethostname()}:{os.getpid()}"

    def _outcome(self, attempted: Attempted) -> Outcome[object]:
        error, result = attempted.error, attempted.result
        outcome: Outcome[object] = Outcome(
            id=self._entry.task.id,
            number=self._entry.number,
            status=attempted.status,
            text=attempted.text,
            output=attempted.output if result is None else result.output,
            raw_output=attempted.output,
            error=None if error is None else str(error),
            error_kind=None if error is None else type(error).__name__,
            usage=self._usage + attempted.usage,
            duration=attempted.duration,
            attempts=self.attempt,
            session_id=attempted.session_id,
            workspace=attempted.workspace,
            started_at=self._began_at,
            ended_at=time.time(),
            tags=self._entry.task.tags,
            result=result,
        )
        return outcome if result is not None else self._plan.typed(outcome, self._entry.task.output)

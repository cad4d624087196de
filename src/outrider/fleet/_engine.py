"""Runs the attempts at a task: `Engine`, the local engine, and `TaskAttempts`, the loop over attempts.

The engine for Ray is in `_ray`; the turns of an attempt are run by `_resilient`.
"""

from __future__ import annotations

import math
import os
import socket
import time
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol, TypeAlias, cast, runtime_checkable

import anyio
import msgspec

from outrider import errors
from outrider._threads import run_sync
from outrider.fleet._budget.budget import KINDS, Budget
from outrider.fleet._errors import ClusterNotFound, WorkerLost
from outrider.fleet._journal.journal import Begun, TasksLost
from outrider.fleet._resilient.retry import Recovery, Retrying, Tries
from outrider.fleet._resilient.session import ResilientSession
from outrider.fleet._resilient.turn_runner import resumed
from outrider.fleet._task import Outcome, Status, Task
from outrider.fleet._workspaces import (
    Workspace,
    discard,
    folder_name,
    has_folder,
    in_thread,
    mark_kept,
    working_folder,
)
from outrider.options import Options
from outrider.session import Result, Usage
from outrider.session._connection.observers import UNFOLLOWED, instrument_of
from outrider.wire import ApiRetryMessage, AssistantMessage, ConversationResetMessage, InitMessage, Json
from outrider.wire._blocks import TOOL_CALLS

if TYPE_CHECKING:
    from outrider.approvals import Approval
    from outrider.fleet._budget.ledger import Ledger
    from outrider.fleet._journal.journal import Entry
    from outrider.fleet._map import Plan
    from outrider.fleet._resilient.retry import Gate, Restart, Retry
    from outrider.fleet._resilient.session import ResilientTurn
    from outrider.fleet._resilient.turn_runner import Item, Starter


class Assignment(msgspec.Struct, frozen=True, kw_only=True):
    """One attempt at a task: all that an engine needs to know."""

    id: str
    number: int
    attempt: int
    """From 1, over all runs of the journal."""
    task: Task
    options: Options
    """Those of the run with those of the task over them; the folder of a workspace is not among them yet."""
    output: object = None
    """The form that the answer must have: a type or a JSON Schema."""
    session_id: str | None = None
    """The session of this attempt, chosen before it begins, so that it is known after a crash."""
    is_picked_up: bool = False
    """An earlier attempt was cut off: its session is resumed and asked to continue. If it does not exist, the
    attempt ends in `SessionNotFound`, and another one starts over."""
    workspace: Workspace | None = None
    """The folder to make, unless an earlier attempt left one."""
    root: str | None = None
    """Where folders are made."""
    usd: float | None = None
    """What is left of the task's own limits."""
    tokens: int | None = None
    tool_calls: int | None = None
    wall: float | None = None
    seconds: float | None = None
    """How long the attempt may take."""
    tries: Tries = Tries()
    """How often something was tried again for this task before, of as often as it may be."""
    tags: Mapping[str, str] = {}


class Note(msgspec.Struct, frozen=True, kw_only=True):
    """What an engine reports of an attempt that is under way."""

    session_id: str | None = None
    """The session of the attempt has changed to this one."""
    workspace: str | None = None
    """Its folder is made."""
    usage: Usage | None = None
    """What the attempt has used so far."""
    tool_calls: int | None = None
    """How many tools it has used so far."""
    is_rate_limited: bool = False
    """The API wants fewer requests."""
    worker: str | None = None
    """Where it runs."""
    tries: Tries | None = None
    """How often something was tried again for the task so far."""


class Attempted(msgspec.Struct, frozen=True, kw_only=True):
    """The result of an attempt."""

    status: Status
    text: str = ""
    output: Json = None
    """The structured output as it came."""
    usage: Usage = Usage()
    tool_calls: int = 0
    duration: float = 0.0
    session_id: str | None = None
    workspace: str | None = None
    """The folder that was made for it, if it is still there."""
    error: errors.OutriderError | None = None
    result: Result[object] | None = None
    """All that came of it, where it ran in this process."""


PICK_UP: Final = (
    "You were cut off before you were done. Look at what you have done so far, go on where you stopped, do"
    " nothing twice, and end with the answer."
)
"""The prompt for a session whose runner, worker or process was lost."""


class Shared(msgspec.Struct, kw_only=True):
    """What all attempts of a run have in common."""

    budget: Budget | None = None
    gate: Gate | None = None
    retry: Retry | None = None
    restart: Restart | None = None
    ledger: Ledger | None = None
    pool: Starter | None = None
    keep_results: bool = False
    """Whether outcomes have all messages."""
    options: Options = msgspec.field(default_factory=Options)
    """Those of the run, for an engine that cannot do with all of them; each attempt has its own."""


Tell: TypeAlias = Callable[[Note], None]


@runtime_checkable
class Engine(Protocol):
    """Runs attempts somewhere. One engine serves one run."""

    name: str

    def check(self, options: Options) -> None:
        """Raises `OptionsError` for options of a task that this engine cannot do."""

    async def open(self, shared: Shared) -> None:
        """Make ready. Raises `OptionsError` for what this engine cannot do, before anything is started."""

    def attempt(self, work: Assignment, tell: Tell) -> Coroutine[Any, Any, Attempted]:
        """Make one attempt, and report its progress with `tell`, in the thread of the event loop.

        A task that fails is a result of the attempt, not an error of the engine. Raises `WorkerLost` if the
        place where it ran is gone. Cancelling the call ends the attempt, and leaves nothing running.
        """
        ...

    async def close(self) -> None:
        """Give back all that was taken. No attempt is running."""


_KEPT_MESSAGES: Final = 50
"""Messages of an attempt that are kept at least, for errors, if its result is not."""
_NOTED_EVERY: Final = 2.0
"""Seconds between two notes of what an attempt has used: each is written to disk."""


def attempt_locally(work: Assignment, shared: Shared, tell: Tell) -> Coroutine[Any, Any, Attempted]:
    """Make one attempt in this process. Failures of the agent are part of the result, not raised.

    If the session to resume does not exist, the error is `SessionNotFound`, and nothing was done.

    Cancelling the call ends the agent; the folder of the attempt stays for the next one.
    """
    return _Attempt(work, shared, tell).make()


class _Attempt:
    """One attempt, while it is made."""

    def __init__(self, work: Assignment, shared: Shared, tell: Tell) -> None:
        self._work = work
        self._shared = shared
        self._tell = tell
        self._folder: Path | None = None
        self._session_id = work.session_id
        self._session: ResilientSession[object] | None = None
        self._calls = 0
        self._began = self._noted_at = self._talks_since = anyio.current_time()

    async def make(self) -> Attempted:
        work = self._work
        try:
            options = self._resumed(await self._enter_folder())
            asked = await self._asked_for(options)
            if pending := tuple(each for each in asked if each.state == "pending"):
                result = Result[object](pending=pending)
            else:
                result = await self._talk(self._open(options), is_decided=bool(asked))
        except errors.OutriderError as failed:
            result = Result[object](error=failed)
        except Exception as failed:  # noqa: BLE001 - an error in a callback ends its task, not the run
            result = Result[object](error=errors.TurnFailed(message=f"The attempt failed: {failed!r}"))
        error = result.error
        if error is None and not (result.is_success or result.pending):
            error = errors.TurnFailed(result, result.messages)
        is_limit = isinstance(error, errors.LimitReached) and error.kind.startswith("budget.")
        status: Status = "done" if error is None else "over_budget" if is_limit else "failed"
        if error is None and result.pending:
            status = "waiting"
        return Attempted(
            status=status,
            text=result.text,
            output=_plain_output(work.output, result),
            usage=self._usage,
            tool_calls=self._calls,
            duration=anyio.current_time() - self._began,
            session_id=self._session_id,
            workspace=await self._leave_folder(status),
            error=error,
            result=result,
        )

    async def _asked_for(self, options: Options) -> list[Approval]:
        """What a session that is picked up was left with, for a person to decide."""
        if options.approvals is None or options.resume is None:
            return []
        found = await options.approvals.list(session_id=options.resume)
        return [each for each in found if each.is_open]

    async def _talk(self, session: ResilientSession[object], *, is_decided: bool) -> Result[object]:
        self._session, work = session, self._work
        # Only now: how long it took to make the folder says nothing about the task.
        self._talks_since = anyio.current_time()
        try:
            # Not `async with`: `connect` does not wait for a session that a lost writer still holds.
            if is_decided:
                turn = await session.continue_turn(until="idle")
            else:
                turn = await session.send(PICK_UP if work.is_picked_up else work.task.prompt, until="idle")
            return await self._wait_for(turn)
        finally:
            await session.close()

    @property
    def _usage(self) -> Usage:
        return Usage() if self._session is None else self._session.usage

    # The folder.

    async def _enter_folder(self) -> Options:
        """Have a folder, that of the attempt before if it is picked up; gives the options with it."""
        work = self._work
        if work.workspace is None or work.root is None:
            return work.options
        root = Path(work.root)
        folder = root / folder_name(work.id)
        if not work.is_picked_up or not await run_sync(has_folder, folder):
            await in_thread(work.workspace, work.workspace.make, work.id, root)
            self._tell(Note(workspace=str(folder)))
        self._folder = folder
        return work.options.replace(cwd=await run_sync(working_folder, folder, work.task.cwd or "."))

    async def _leave_folder(self, status: Status) -> str | None:
        kind, folder = self._work.workspace, self._folder
        if kind is None or folder is None:
            return None
        is_gone = not kind.is_kept(status) and await in_thread(kind, discard, kind, folder)
        if not is_gone:
            await run_sync(mark_kept, folder.parent)
        return None if is_gone else str(folder)

    # The session.

    def _resumed(self, options: Options) -> Options:
        """The options with the session that the attempt is made in. Raises `SessionNotFound` if none is
        kept."""
        id = self._work.session_id
        if id is None:
            return options
        if not self._work.is_picked_up:
            # Not `Options.replace`, which would check all of them again: they let the run choose an id.
            return msgspec.structs.replace(options, session_id=id)
        try:
            return resumed(options, id)
        except errors.OptionsError as error:
            raise errors.SessionNotFound(id, message="A hermetic run keeps no sessions") from error

    def _open(self, options: Options) -> ResilientSession[object]:
        work, shared = self._work, self._shared
        session: ResilientSession[object] = ResilientSession(
            options,
            output=cast("Any", work.output),
            restart=shared.restart,
            retry=shared.retry,
            budget=self._budget(),
            ledger=shared.ledger,
            gate=shared.gate,
            tags=work.tags,
            starter=shared.pool,
        )
        # Reported before each start, so that it counts even if the start ends this whole process.
        session.recovery = Recovery(
            shared.restart, shared.retry, work.tries, lambda tries: self._tell(Note(tries=tries))
        )
        session.listener = self._hear
        session.keeps_last = None if shared.keep_results else _KEPT_MESSAGES
        return session

    async def _wait_for(self, turn: ResilientTurn[object]) -> Result[object]:
        turn.leave_unread()
        seconds = self._work.seconds
        result: Result[object] | None = None
        with anyio.CancelScope(deadline=math.inf if seconds is None else self._talks_since + seconds):
            result = await turn.result(check=False)
        if result is None:
            await turn.cancel()
            result = await turn.result(check=False)
            late = errors.TurnTimedOut("task_seconds", seconds, result=result, messages=result.messages)
            result = msgspec.structs.replace(result, error=late)
        if isinstance(result.error, errors.ApiFailed):
            self._tell(Note(is_rate_limited=_is_rate_limit(result.error)))
        self._see_session()
        return result

    def _hear(self, message: Item) -> None:
        """Report what comes in the turn."""
        if isinstance(message, AssistantMessage):
            self._calls += sum(isinstance(block, TOOL_CALLS) for block in message.content)
        elif isinstance(message, Retrying):
            self._tell(Note(is_rate_limited=_is_rate_limit(message.error)))
        elif isinstance(message, ApiRetryMessage) and message.error_status == 429:
            # The program tries again by itself, for minutes.
            self._tell(Note(is_rate_limited=True))
        elif isinstance(message, InitMessage | ConversationResetMessage):
            self._see_session()
        now = anyio.current_time()
        if now >= self._noted_at + _NOTED_EVERY:
            self._noted_at = now
            self._tell(Note(usage=self._usage, tool_calls=self._calls))

    def _see_session(self) -> None:
        session_id = None if self._session is None else self._session.id
        if session_id is not None and session_id != self._session_id:
            self._session_id = session_id
            self._tell(Note(session_id=session_id))

    def _budget(self) -> Budget | None:
        work, shared = self._work, self._shared.budget
        limits = {kind: getattr(work, kind) for kind in KINDS if getattr(work, kind) is not None}
        return Budget(**limits, parent=shared, name=work.id) if limits else shared


def _is_rate_limit(error: errors.ApiFailed) -> bool:
    return error.kind in ("rate_limit", "overloaded") or error.status in (429, 529)


def _plain_output(kind: object, result: Result[object]) -> Json:
    """The structured output as JSON, without the object that a type which is none is wrapped in."""
    if kind is None:
        return cast("Json", result.output)
    # A result that is given none finds it in its messages, before anything is made of it.
    came = cast("Json", Result[object](message=result.message, messages=result.messages).output)
    from outrider.handlers import Shape

    is_wrapped = Shape(kind).schema.get("type") != "object"
    return came.get("value") if is_wrapped and isinstance(came, dict) else came


class LocalEngine:
    """Makes attempts here. What a task declares of memory and processors is not looked at: a `pool` with
    limits does that."""

    name: str = "local"

    def __init__(self) -> None:
        self._shared = Shared()

    def check(self, options: Options) -> None:
        pass

    async def open(self, shared: Shared) -> None:
        self._shared = shared

    def attempt(self, work: Assignment, tell: Tell) -> Coroutine[Any, Any, Attempted]:
        return attempt_locally(work, self._shared, tell)

    async def close(self) -> None:
        pass


_STORE: Final = "a store"
_NOT_MADE: Final = Attempted(status="failed")


class Ended(NamedTuple):
    """The outcome of a task, and what its last attempt used."""

    outcome: Outcome[object]
    usage: Usage
    tool_calls: int


class TaskAttempts:
    """The attempts at one task."""

    def __init__(
        self,
        plan: Plan,
        entry: Entry,
        begin: Callable[[Assignment], None],
        tell: Tell,
        settle: Callable[[], Awaitable[None]],
    ) -> None:
        """`begin` is called with each attempt, `tell` with each note; `settle` writes the notes down."""
        self._plan = plan
        self._entry = entry
        self._begin = begin
        self._tell = tell
        self._settle = settle
        self.attempt = entry.attempts
        self._usage, self._calls = entry.usage, entry.tool_calls
        """Of attempts that are over."""
        self._session_id: str | None = entry.session_id if entry.attempts else None
        self._here = f"{plan.engine.name} {socket.gethostname()}:{os.getpid()}"
        self._recovery = Recovery(plan.shared.restart, plan.shared.retry)
        """Counts attempts whose worker was lost, and all that was tried again in them."""
        self._noted = Note()
        self._began_at = time.time() if entry.started_at is None else entry.started_at
        self._away_since: float | None = None
        """Since when its store does not answer."""

    async def run(self) -> Ended:
        """Make attempts until there is an outcome. Raises what cannot be written down, and `TasksLost` if
        another worker has the task."""
        plan, entry, recovery = self._plan, self._entry, self._recovery
        while True:
            self.attempt += 1
            self._noted = Note()
            work: Assignment | None = None
            try:
                self._check()
                spent = self._usage, self._calls
                work = plan.assignment(entry, self.attempt, self._session_id, spent, recovery.tries)
                self._session_id = work.session_id
                attempted = _NOT_MADE
            except errors.OutriderError as error:
                attempted = Attempted(status="failed", error=error)
            session_id = None if work is None else work.session_id
            begun = Begun(entry.task.id, self.attempt, self._here, session_id)
            if not all(await plan.source.write(begun)):
                raise TasksLost(entry.task.id)
            if work is not None:
                self._begin(work)
                try:
                    attempted = await self._attempt(work)
                except ClusterNotFound:
                    raise
                except errors.OutriderError as error:
                    attempted = self._given_up(error)
                except Exception as error:  # noqa: BLE001 - an engine that fails ends this task, not the run
                    failed = errors.TurnFailed(message=f"The engine failed: {error!r}")
                    failed.__cause__ = error
                    attempted = self._given_up(failed)
            if isinstance(attempted.error, WorkerLost):
                await self._settle()
                if recovery.after_loss() is None:
                    break
                self._usage += attempted.usage
                self._calls += attempted.tool_calls
            elif (
                work is not None
                and work.is_picked_up
                and isinstance(attempted.error, errors.SessionNotFound)
                and recovery.after_missing_session() is not None
            ):
                # It was cut off before its session was written, or that is on another machine: from the
                # start, in another, whose id is written down before it begins.
                self._session_id = None
            elif await self._may_outlast(attempted):
                self._usage += attempted.usage
                self._calls += attempted.tool_calls
            else:
                break
        return Ended(self._outcome(attempted), attempted.usage, attempted.tool_calls)

    def _check(self) -> None:
        """Raises why no attempt is to be made."""
        restart, losses = self._plan.shared.restart, self._entry.losses
        if self._entry.refused is not None:
            raise self._entry.refused
        if losses > (0 if restart is None else restart.max):
            # It may be the task that ends them, and would end all workers, one after the other.
            raise WorkerLost(reason=f"{losses} workers were lost while they ran the task")

    async def _may_outlast(self, attempted: Attempted) -> bool:
        """Wait for a session store, or a ledger, that does not answer; False if it does, or has not for as
        long as a task is retried. The run begins nothing meanwhile."""
        outages, retry, error = self._plan.source.outages, self._plan.shared.retry, attempted.error
        if not isinstance(error, errors.StoreError):
            outages.end(_STORE)
            return False
        now = anyio.current_time()
        self._away_since = now if self._away_since is None else self._away_since
        away = now - self._away_since
        if not error.retryable or retry is None or away >= retry.max_seconds:
            return False
        await self._settle()
        # The next attempt asks as often as this one has.
        self._recovery.tries = msgspec.structs.replace(self._recovery.tries, refusals=0)
        wait = min(retry.max_backoff, max(retry.backoff, away))
        return await outages.sleep(wait, lambda: outages.begin(_STORE, error))

    async def _attempt(self, work: Assignment) -> Attempted:
        instrument = instrument_of(work.options)
        followed = UNFOLLOWED if instrument is None else instrument.attempt(work.attempt, work.session_id)
        with followed as follower:
            attempted = await self._plan.engine.attempt(work, self._note)
            error = None if attempted.error is None else type(attempted.error).__name__
            follower.end(attempted.status, error, {})
            return attempted

    def _given_up(self, error: errors.OutriderError) -> Attempted:
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
        if note.tries is not None:
            # A note that comes late must not take back what was counted since.
            most = max(note.tries.restarts, self._recovery.tries.restarts)
            self._recovery.tries = msgspec.structs.replace(note.tries, restarts=most)
        self._tell(note)

    def _outcome(self, attempted: Attempted) -> Outcome[object]:
        result = attempted.result
        outcome: Outcome[object] = outcome_of(
            self._entry,
            attempted.status,
            attempted.error,
            text=attempted.text,
            output=attempted.output if result is None else result.output,
            raw_output=attempted.output,
            usage=self._usage + attempted.usage,
            duration=attempted.duration,
            attempts=self.attempt,
            session_id=attempted.session_id,
            workspace=attempted.workspace,
            started_at=self._began_at,
            result=result,
        )
        return outcome if result is not None else self._plan.typed(outcome, self._entry.task.output)


def outcome_of(entry: Entry, status: Status, error: Exception | None, **facts: object) -> Outcome[object]:
    """The outcome of a task, with what is known of it before and with these facts over it."""
    known = {
        "usage": entry.usage,
        "attempts": entry.attempts,
        "session_id": entry.session_id,
        "workspace": entry.workspace,
        "started_at": entry.started_at,
        **facts,
    }
    return Outcome(
        id=entry.task.id,
        number=entry.number,
        status=status,
        error=None if error is None else str(error),
        error_kind=None if error is None else type(error).__name__,
        ended_at=time.time(),
        tags=entry.task.tags,
        **cast("Any", known),
    )

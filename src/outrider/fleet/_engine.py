"""Makes the attempts of a task: what an engine is, the local engine, and `TaskAttempts`, the loop over them.

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

from outrider._threads import run_sync
from outrider.errors import (
    ApiFailed,
    LimitReached,
    OptionsError,
    OutriderError,
    SessionNotFound,
    TurnFailed,
    TurnTimedOut,
)
from outrider.fleet._budget.budget import Budget
from outrider.fleet._errors import ClusterNotFound, WorkerLost
from outrider.fleet._resilient.retry import Recovery, Retrying, Tries
from outrider.fleet._resilient.session import ResilientSession
from outrider.fleet._resilient.turn_runner import resumed
from outrider.fleet._task import Outcome, Status, Task
from outrider.fleet._workspaces import Workspace, discard, folder_name, has_folder, working_folder
from outrider.options import Options
from outrider.session import Result, Usage
from outrider.wire import ApiRetryMessage, AssistantMessage, ConversationResetMessage, InitMessage, Json
from outrider.wire._blocks import TOOL_CALLS

if TYPE_CHECKING:
    from outrider.fleet._budget.budget import Gate
    from outrider.fleet._budget.ledger import Ledger
    from outrider.fleet._journal import Entry
    from outrider.fleet._map import Plan
    from outrider.fleet._resilient.retry import Restart, Retry
    from outrider.fleet._resilient.session import ResilientTurn
    from outrider.fleet._resilient.turn_runner import Item, Starter

__all__ = [
    "Assignment",
    "Attempted",
    "Ended",
    "Engine",
    "LocalEngine",
    "Note",
    "Shared",
    "TaskAttempts",
    "Tell",
    "attempt_locally",
]


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
    """The session of this attempt: made up before it begins, so that it is known whatever happens."""
    is_picked_up: bool = False
    """An earlier attempt was cut off: its session is resumed, and told to go on. If it is not there, the
    attempt comes to `SessionNotFound`, and there is another, from the start."""
    workspace: Workspace | None = None
    """The folder to make, unless there is one of an earlier attempt to go on in."""
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
    """It goes on in this session now."""
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
    """What an attempt came to."""

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
    error: OutriderError | None = None
    result: Result[object] | None = None
    """All that came of it, where it ran in this process."""


PICK_UP: Final = (
    "You were cut off before you were done. Look at what you have done so far, go on where you stopped, do"
    " nothing twice, and end with the answer."
)
"""What a session is told that is picked up after its runner, its worker or its process was lost."""


class Shared(msgspec.Struct, kw_only=True):
    """What all attempts of a run have in common."""

    budget: Budget | None = None
    gate: Gate | None = None
    retry: Retry | None = None
    restart: Restart | None = None
    ledger: Ledger | None = None
    pool: Starter | None = None
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
        """Make one attempt, and tell what comes on the way, in the event loop's thread.

        A task that fails is what the attempt came to, no error of the engine. Raises `WorkerLost` if the
        place where it ran is gone. Cancelling the call ends the attempt, and leaves nothing running.
        """
        ...

    async def close(self) -> None:
        """Give back all that was taken. No attempt is running."""


_NOTED_EVERY: Final = 2.0
"""Seconds between two notes of what an attempt has used: each is written to disk."""


def attempt_locally(work: Assignment, shared: Shared, tell: Tell) -> Coroutine[Any, Any, Attempted]:
    """Make one attempt in this process. Whatever the agent does is what it came to, and raises nothing.

    A session that is to be picked up and is not there is a `SessionNotFound`, and nothing was done.

    Cancelling the call ends the agent; the folder of the attempt stays, so that it can be picked up.
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
        self._began = self._noted_at = anyio.current_time()

    async def make(self) -> Attempted:
        work = self._work
        try:
            session = self._session = self._open(self._resumed(await self._enter_folder()))
            try:
                # Not `async with`: `connect` does not wait for a session that a lost writer still holds.
                turn = await session.send(PICK_UP if work.is_picked_up else work.task.prompt, until="idle")
                result = await self._wait_for(turn)
            finally:
                await session.close()
        except OutriderError as failed:
            result = Result[object](error=failed)
        except Exception as failed:  # noqa: BLE001 - what a callback raises ends its task, not the run
            result = Result[object](error=TurnFailed(message=f"The attempt failed: {failed!r}"))
        error = result.error
        if error is None and not result.is_success:
            error = TurnFailed(result, result.messages)
        status = _status(error)
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
            await run_sync(work.workspace.make, work.id, root)
            self._tell(Note(workspace=str(folder)))
        self._folder = folder
        return work.options.replace(cwd=await run_sync(working_folder, folder, work.task.cwd or "."))

    async def _leave_folder(self, status: Status) -> str | None:
        kind, folder = self._work.workspace, self._folder
        if kind is None or folder is None:
            return None
        is_gone = not kind.is_kept(status) and await run_sync(discard, kind, folder)
        return None if is_gone else str(folder)

    # The session.

    def _resumed(self, options: Options) -> Options:
        """The options with the session that the attempt is made in. Raises `SessionNotFound` if none is
        kept."""
        id = self._work.session_id
        if id is None:
            return options
        if not self._work.is_picked_up:
            return options.replace(session_id=id)
        try:
            return resumed(options, id)
        except OptionsError as error:
            raise SessionNotFound(id, message="A hermetic run keeps no sessions") from error

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
        # Told before each start, so that it counts also if the start takes all of this process with it.
        session.recovery = Recovery(
            shared.restart, shared.retry, work.tries, lambda tries: self._tell(Note(tries=tries))
        )
        session.listener = self._hear
        return session

    async def _wait_for(self, turn: ResilientTurn[object]) -> Result[object]:
        turn.leave_unread()
        seconds = self._work.seconds
        result: Result[object] | None = None
        with anyio.CancelScope(deadline=math.inf if seconds is None else self._began + seconds):
            result = await turn.result(check=False)
        if result is None:
            await turn.cancel()
            result = await turn.result(check=False)
            late = TurnTimedOut("task_seconds", seconds, result=result, messages=result.messages)
            result = msgspec.structs.replace(result, error=late)
        if isinstance(result.error, ApiFailed):
            self._tell(Note(is_rate_limited=_is_rate_limit(result.error)))
        self._see_session()
        return result

    def _hear(self, message: Item) -> None:
        """Tell what comes of the turn."""
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
        limits = (work.usd, work.tokens, work.tool_calls, work.wall)
        if limits == (None, None, None, None):
            return shared
        usd, tokens, tool_calls, wall = limits
        return Budget(usd=usd, tokens=tokens, tool_calls=tool_calls, wall=wall, parent=shared, name=work.id)


def _status(error: OutriderError | None) -> Status:
    if error is None:
        return "done"
    is_budget = isinstance(error, LimitReached) and error.kind.startswith("budget.")
    return "over_budget" if is_budget else "failed"


def _is_rate_limit(error: ApiFailed) -> bool:
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


_NOT_MADE: Final = Attempted(status="failed")


class Ended(NamedTuple):
    """What a task came to, and what its last attempt used of it."""

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
        """`begin` is told of each attempt; `settle` writes down what `tell` was told so far."""
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

    async def run(self) -> Ended:
        """Make attempts until there is an outcome. Raises what cannot be written down."""
        plan, entry, recovery = self._plan, self._entry, self._recovery
        while True:
            self.attempt += 1
            self._noted = Note()
            work: Assignment | None = None
            try:
                spent = self._usage, self._calls
                work = plan.assignment(entry, self.attempt, self._session_id, spent, recovery.tries)
                self._session_id = work.session_id
                attempted = _NOT_MADE
            except OutriderError as error:
                attempted = Attempted(status="failed", error=error)
            await plan.source.begin(
                entry.task.id, self.attempt, self._here, None if work is None else work.session_id
            )
            if work is not None:
                self._begin(work)
                try:
                    attempted = await plan.engine.attempt(work, self._note)
                except ClusterNotFound:
                    raise
                except OutriderError as error:
                    attempted = self._given_up(error)
                except Exception as error:  # noqa: BLE001 - an engine that fails ends this task, not the run
                    failed = TurnFailed(message=f"The engine failed: {error!r}")
                    failed.__cause__ = error
                    attempted = self._given_up(failed)
            if isinstance(attempted.error, WorkerLost):
                await self._settle()
                if recovery.after_loss() is None:
                    break
                self._usage += attempted.usage
                self._calls += attempted.tool_calls
            elif self._is_missing(work, attempted) and recovery.after_missing_session() is not None:
                # It was cut off before its session was written, or that is on another machine: from the
                # start, in another, whose id is written down before it begins.
                self._session_id = None
            else:
                break
        return Ended(self._outcome(attempted), attempted.usage, attempted.tool_calls)

    def _is_missing(self, work: Assignment | None, attempted: Attempted) -> bool:
        return work is not None and work.is_picked_up and isinstance(attempted.error, SessionNotFound)

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
        self._recovery.tries = note.tries or self._recovery.tries
        self._tell(note)

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

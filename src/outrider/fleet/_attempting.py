"""Makes one attempt at a task in this process: its folder, its session, its turns, and what they came to.

Does not decide whether there is another attempt, and writes nothing down.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING, Final, cast

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
from outrider.fleet._budget import Budget
from outrider.fleet._engine import Attempted, Note
from outrider.fleet._lasting import LastingSession
from outrider.fleet._restart import Restarts
from outrider.fleet._retry import Retrying
from outrider.fleet._workspaces import discard, folder_name, has_folder, working_folder
from outrider.session import Result, Usage
from outrider.wire import (
    ApiRetryMessage,
    AssistantMessage,
)
from outrider.wire._blocks import TOOL_CALLS

if TYPE_CHECKING:
    from outrider.fleet._engine import Assignment, Shared, Tell
    from outrider.fleet._lasting_turn import LastingTurn
    from outrider.fleet._outcome import Status
    from outrider.fleet._restart import Restart
    from outrider.options import Options
    from outrider.wire import Json

__all__ = ["attempt_here"]

_PICK_UP: Final = (
    "You were cut off before you were done. Look at what you have done so far, go on where you stopped, do"
    " nothing twice, and end with the answer."
)
"""What a session is told that is picked up after its runner, its worker or its process was lost."""
_NOTED_EVERY: Final = 2.0
"""Seconds between two notes of what an attempt has used: each is written to disk."""


async def attempt_here(work: Assignment, shared: Shared, tell: Tell) -> Attempted:
    """Make one attempt in this process. Whatever the agent does is what it came to, and raises nothing.

    A session that is to be picked up and is not there is a `SessionNotFound`, and nothing was done.

    Cancelling the call ends the agent; the folder of the attempt stays, so that it can be picked up.
    """
    return await _Attempt(work, shared, tell).make()


class _Attempt:
    """One attempt, while it is made."""

    def __init__(self, work: Assignment, shared: Shared, tell: Tell) -> None:
        self._work = work
        self._shared = shared
        self._tell = tell
        self._folder: Path | None = None
        self._session_id = work.session_id
        self._usage = Usage()
        """Of sessions that are closed."""
        self._calls = 0
        self._began = self._noted_at = anyio.current_time()

    async def make(self) -> Attempted:
        work = self._work
        try:
            result = await self._work_on()
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

    # The folder.

    async def _enter_folder(self, *, anew: bool) -> Options:
        """Have a folder; gives the options with it. One that is there is used, unless it is made anew."""
        work = self._work
        if work.workspace is None or work.root is None:
            return work.options
        root = Path(work.root)
        folder = root / folder_name(work.id)
        if anew or not await run_sync(has_folder, folder):
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

    async def _work_on(self) -> Result[object]:
        work, id = self._work, self._work.session_id
        options = await self._enter_folder(anew=not work.is_picked_up)
        if id is None:
            return await self._talk(options, work.task.prompt)
        if work.is_picked_up:
            try:
                resumed = _resumed(options, id)
            except OptionsError as error:
                raise SessionNotFound(id, message="A hermetic run keeps no sessions") from error
            return await self._talk(resumed, _PICK_UP)
        return await self._talk(options.replace(session_id=id), work.task.prompt)

    async def _talk(self, options: Options, prompt: str) -> Result[object]:
        work, shared = self._work, self._shared
        session: LastingSession[object] = LastingSession(
            options,
            output=work.output,
            restart=self._restart(),
            retry=shared.retry,
            budget=self._budget(),
            ledger=shared.ledger,
            gate=shared.gate,
            tags=work.tags,
            starter=shared.pool,
        )
        # Told before each start, so that it counts also if the start takes all of this process with it.
        session.restarts = Restarts(
            shared.restart, work.restarts, lambda count: self._tell(Note(restarts=count))
        )
        try:
            # Not `async with`: `connect` does not wait for a session that a lost writer still holds.
            return await self._turn(session, prompt)
        except OutriderError as error:
            # It could not go on.
            return Result[object](error=error)
        finally:
            await session.close()
            self._usage += session.usage

    def _restart(self) -> Restart | None:
        """The policy, by which a turn that is not sent again is told to go on."""
        restart = self._shared.restart
        if restart is None or restart.continue_with is not None:
            return restart
        return msgspec.structs.replace(restart, continue_with=_PICK_UP)

    async def _turn(self, session: LastingSession[object], prompt: str) -> Result[object]:
        turn = await session.send(prompt, until="idle")
        seconds = self._work.seconds
        with anyio.CancelScope(deadline=math.inf if seconds is None else self._began + seconds) as scope:
            await self._follow(session, turn)
        if scope.cancelled_caught:
            await turn.cancel()
        result = await turn.result(check=False)
        if scope.cancelled_caught:
            late = TurnTimedOut("task_seconds", seconds, result=result, messages=result.messages)
            result = msgspec.structs.replace(result, error=late)
        if isinstance(result.error, ApiFailed):
            self._tell(Note(is_rate_limited=_is_rate_limit(result.error)))
        self._see(session.id)
        return result

    async def _follow(self, session: LastingSession[object], turn: LastingTurn[object]) -> None:
        """Tell what comes of a turn, until it is over."""
        try:
            async for message in turn:
                if isinstance(message, AssistantMessage):
                    self._calls += sum(isinstance(block, TOOL_CALLS) for block in message.content)
                elif isinstance(message, Retrying):
                    self._tell(Note(is_rate_limited=_is_rate_limit(message.error)))
                elif isinstance(message, ApiRetryMessage) and message.error_status == 429:
                    # The program tries again by itself, for minutes.
                    self._tell(Note(is_rate_limited=True))
                self._note(session)
        except OutriderError:
            # The result has it.
            pass

    def _see(self, session_id: str | None) -> None:
        if session_id is not None and session_id != self._session_id:
            self._session_id = session_id
            self._tell(Note(session_id=session_id))

    def _note(self, session: LastingSession[object]) -> None:
        self._see(session.id)
        now = anyio.current_time()
        if now >= self._noted_at + _NOTED_EVERY:
            self._noted_at = now
            self._tell(Note(usage=self._usage + session.usage, tool_calls=self._calls))

    def _budget(self) -> Budget | None:
        work, shared = self._work, self._shared.budget
        limits = (work.usd, work.tokens, work.tool_calls, work.wall)
        if all(limit is None for limit in limits):
            return shared
        usd, tokens, tool_calls, wall = limits
        return Budget(usd=usd, tokens=tokens, tool_calls=tool_calls, wall=wall, parent=shared, name=work.id)


def _resumed(options: Options, session_id: str) -> Options:
    return options.replace(
        resume=session_id,
        session_id=None,
        continue_conversation=False,
        fork_session=False,
        resume_session_at=None,
        resume_drops_turn=None,
    )


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

"""Runs one turn of a resilient session: try after try, over failures of the API and lost processes.

Knows the policies. Processes are started and ended by `process`, what came is kept in the log.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from contextlib import suppress
from copy import copy
from typing import TYPE_CHECKING, TypeAlias, TypeVar

import anyio
import msgspec
from anyio.lowlevel import checkpoint

from outrider.errors import (
    ApiFailed,
    ConnectionLost,
    FrameTooLarge,
    OutriderError,
    RequestTimedOut,
    SessionBusy,
    SessionNotFound,
    StoreError,
    TransportClosed,
    TurnFailed,
    TurnInterrupted,
)
from outrider.fleet._resilient.retry import Restarted, Retrying, is_unexpected, is_usage_limit
from outrider.session import CancelReceipt, Result, SessionState, Usage
from outrider.wire import AssistantMessage, Message, StreamEvent, UserMessage
from outrider.wire._blocks import TOOL_CALLS

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from outrider.fleet._budget.budget import Gate
    from outrider.fleet._resilient.process import ResilientProcess
    from outrider.fleet._resilient.retry import Restarts
    from outrider.session import Prompt, Session, Turn
    from outrider.session._streams.turn_state import Until


T = TypeVar("T")


class TurnRunner:
    """One turn, until it is over. Runs in a task of its own, which nobody cancels but the event loop."""

    def __init__(
        self, process: ResilientProcess, turn_log: TurnLog, prompt: Prompt, until: Until, restarts: Restarts
    ) -> None:
        self._process = process
        self._policies = process.policies
        self._turn_log = turn_log
        self._prompt = prompt
        self._until: Until = until
        self._inner: Turn[object] | None = None
        """The try that runs, until it is accounted for."""
        self._has_acted = False
        self._tries = 0
        """That the API has failed, one after the other."""
        self._failing_since: float | None = None
        self._restarts = restarts
        self._refusals = 0
        """How often the session could not be had from its store."""
        self._is_left_over = process.session is not None
        """Whether the process is one that an earlier turn has left."""

    async def run(self) -> None:
        """Bring the turn to its end. Raises nothing but what cancels the task."""
        process, turn_log = self._process, self._turn_log
        result: Result[object] | None = None
        try:
            try:
                with turn_log.stopping:
                    result = await self._try_until_done()
                if result is None:
                    result = await self._stopped()
            except OutriderError as error:
                result = Result(error=error)
            # A process that has ended is gone before the next turn, which starts another.
            await process.tidy()
            turn_log.finish(result, process.usage, process.id)
        except anyio.get_cancelled_exc_class():
            turn_log.fail(TransportClosed("the event loop ended under the turn"))
            raise
        except BaseException as error:  # noqa: BLE001 - whoever waits for the turn gets it
            # A handler was told to end the whole program, or something raised what nobody knows.
            turn_log.fail(error)

    # Trying.

    async def _try_until_done(self) -> Result[object]:
        process, prompt = self._process, self._prompt
        while True:
            self._check_budget()
            if self._policies.gate is not None:
                await self._pass(self._policies.gate)
                self._check_budget()
            session = await self._within_budget(self._started)
            was_gone = session.state is SessionState.CLOSED
            process.phase = "busy"
            result = await self._try(session, prompt)
            if isinstance(result.error, ApiFailed):
                if not await self._may_retry(result.error):
                    return result
                prompt = self._next_prompt(prompt)
            elif isinstance(result.error, ConnectionLost):
                following = await self._replaced(result.error, prompt, was_gone=was_gone)
                if following is None:
                    return result
                prompt = following
            else:
                return result

    async def _pass(self, gate: Gate) -> None:
        self._process.phase = "waiting"
        await self._process.rest((gate.opens_at or 0.0) - self._policies.clock.time())
        await self._within_budget(gate.wait)

    def _check_budget(self) -> None:
        if self._policies.budget is not None:
            self._policies.budget.check(session_id=self._process.id)

    async def _within_budget(self, wait: Callable[[], Awaitable[T]]) -> T:
        """Wait for something while no session is watched: the time of a budget runs on."""
        budget = self._policies.budget
        while True:
            with anyio.move_on_after(None if budget is None else budget.left.wall):
                return await wait()
            self._check_budget()

    async def _try(self, session: Session[object], prompt: Prompt) -> Result[object]:
        self._process.sent()
        try:
            self._inner = inner = await session.send(prompt, until=self._until)
        except ConnectionLost as error:
            return Result(error=error)
        await self._collect(inner)
        return await self._account(inner)

    async def _collect(self, inner: Turn[object]) -> None:
        """Take all that comes. Why it ended is told by its result."""
        reader = aiter(inner)
        while True:
            try:
                for message in await reader.batch():
                    self._look_at(message)
                    self._turn_log.add(message)
            except StopAsyncIteration:
                return
            except FrameTooLarge as error:
                # In the place of one message. Those behind it come.
                self._turn_log.add(error)
            except OutriderError:
                return

    def _look_at(self, message: Message) -> None:
        if isinstance(message, AssistantMessage) and any(
            isinstance(each, TOOL_CALLS) for each in message.content
        ):
            # It gets somewhere: what failed before is past.
            self._tries, self._failing_since = 0, None
            self._has_acted = True
            self._process.acted()

    async def _account(self, inner: Turn[object]) -> Result[object]:
        """What a try came to. Done once for each."""
        result = await inner.result(check=False)
        self._inner = None
        self._turn_log.usage += result.usage
        return await self._process.account(result, inner.uuid)

    async def _stopped(self) -> Result[object]:
        """The turn was cancelled, or the session is being closed."""
        turn_log, inner = self._turn_log, self._inner
        if inner is None:
            if turn_log.is_closed:
                return Result(error=TransportClosed("the session was closed"))
            return Result(error=TurnInterrupted(message="the turn was cancelled while no try was running"))
        if not turn_log.is_closed:
            with turn_log.closing, suppress(ConnectionLost):
                turn_log.receipt = await inner.cancel()
        if turn_log.is_closed:
            await self._process.end()
        await self._collect(inner)
        return await self._account(inner)

    # Trying again after the API failed.

    async def _may_retry(self, error: ApiFailed) -> bool:
        """Wait for the next try; False if there is none."""
        retry, clock = self._policies.retry, self._policies.clock
        if retry is None or (self._has_acted and retry.continue_with is None):
            return False
        now = clock.time()
        self._tries += 1
        since = now if self._failing_since is None else self._failing_since
        self._failing_since = since
        wait = retry.wait_before(error, self._tries, since, now=now, random=clock.random)
        if wait is None:
            return False
        if is_usage_limit(error) and retry.fallback_model is not None:
            # By this clock it may be lifted already.
            until = max(error.resets_at or 0.0, now + retry.max_backoff)
            if not await self._process.fall_back(retry.fallback_model, until):
                return False
        self._turn_log.add(Retrying(error, self._tries, wait, now + wait))
        if is_usage_limit(error):
            self._failing_since += wait
        if wait:
            await self._wait(error, now, wait)
        return True

    async def _wait(self, error: ApiFailed, now: float, wait: float) -> None:
        gate = self._policies.gate
        self._process.phase = "waiting"
        await self._process.rest(wait)
        if gate is not None and error.kind == "rate_limit" and (is_usage_limit(error) or error.retry_after):
            # The gate makes this one wait, with all the others.
            await gate.pause(now + wait, str(error).partition("\n")[0])
        else:
            await self._sleep(wait)

    async def _sleep(self, seconds: float) -> None:
        await self._within_budget(lambda: self._policies.clock.sleep(seconds))

    def _next_prompt(self, prompt: Prompt) -> Prompt:
        retry = self._policies.retry
        if self._has_acted and retry is not None and retry.continue_with is not None:
            return retry.continue_with
        return _again(prompt)

    # Starting again after the process was lost.

    async def _started(self) -> Session[object]:
        """A process. One that cannot be started counts like one that was lost."""
        process = self._process
        process.phase = "restarting" if self._restarts.count else "busy"
        await process.leave_fallback()
        while True:
            try:
                return await process.start()
            except SessionNotFound:
                if not process.forget() or not self._restarts.anew():
                    raise
            except (ConnectionLost, RequestTimedOut) as error:
                if not error.retryable or not await self._wait_to_start():
                    raise
            except (SessionBusy, StoreError) as error:
                # Whoever had the session last may have been killed: its hold runs out.
                least = (error.retry_after or 0.0) if isinstance(error, SessionBusy) else 0.0
                if not error.retryable or not await self._wait_for_store(least):
                    raise

    async def _wait_to_start(self) -> bool:
        """Wait before the agent is started again; False: it was often enough."""
        restart = self._policies.restart
        if restart is None or not self._process.can_start_again or not self._restarts.again():
            return False
        self._process.phase = "restarting"
        await self._sleep(restart.wait_before(self._restarts.count))
        return True

    async def _wait_for_store(self, least: float) -> bool:
        """Wait because the session cannot be had yet, for so long if that may be. No agent was started, so
        this counts for itself; False: it was often enough."""
        restart = self._policies.restart
        if restart is None or not self._process.can_start_again or self._refusals >= restart.max:
            return False
        self._refusals += 1
        self._process.phase = "restarting"
        await self._sleep(max(min(least, restart.max_backoff), restart.wait_before(self._refusals)))
        return True

    async def _replaced(self, error: ConnectionLost, prompt: Prompt, *, was_gone: bool) -> Prompt | None:
        """Replace a process that was lost; gives what to send to the new one. None: the turn ends with that.

        `was_gone`: before the turn began, so that nothing was in flight.
        """
        process, restarts = self._process, self._restarts
        if not process.can_start_again:
            return None
        await process.end()
        if was_gone and self._is_left_over:
            # Nobody has asked for it before: this is no more than to come back from being parked.
            self._is_left_over = False
            restarts.add()
            if not is_unexpected(error):
                return _again(prompt)
        elif not is_unexpected(error) or not await self._wait_to_start():
            return None
        try:
            await self._within_budget(self._started)
        except OutriderError as failure:
            raise failure from error
        told = Restarted(
            cause=error,
            attempt=restarts.count,
            session_id=process.id,
            has_acted=self._has_acted,
            is_resent=was_gone or not self._has_acted,
        )
        is_resent = was_gone or await self._may_resend(told)
        self._turn_log.add(msgspec.structs.replace(told, is_resent=is_resent))
        if is_resent:
            return _again(prompt)
        return None if self._policies.restart is None else self._policies.restart.continue_with

    async def _may_resend(self, told: Restarted) -> bool:
        resend = None if self._policies.restart is None else self._policies.restart.resend
        if resend is None or isinstance(resend, bool):
            return told.is_resent if resend is None else resend
        try:
            answer = resend(told)
            return bool(await answer if inspect.isawaitable(answer) else answer)
        except Exception as error:
            raise TurnFailed(message=f"`Restart.resend` failed: {error!r}") from error


def _again(prompt: Prompt) -> Prompt:
    """The prompt for one more try: the agent drops a second message with the same uuid."""
    if isinstance(prompt, UserMessage):
        return msgspec.structs.replace(prompt, uuid=None)
    if isinstance(prompt, Mapping) and "uuid" in prompt:
        return {name: value for name, value in prompt.items() if name != "uuid"}
    return prompt


Item: TypeAlias = Message | Restarted | Retrying
"""What comes in a resilient turn."""


class Link:
    """A message, and a way to the one after it. Nothing holds those that everybody has read."""

    __slots__ = ("following", "item")

    def __init__(self) -> None:
        self.item: Item | Exception | None = None
        self.following: Link | None = None
        """None at the end, where the next message will be."""


class Position:
    """How far somebody has read."""

    __slots__ = ("link",)

    def __init__(self, link: Link) -> None:
        self.link = link


class TurnLog:
    """One turn, from its prompt to its end."""

    def __init__(self) -> None:
        self.last = Link()
        """Where the next message will be."""
        self.messages: list[Message] = []
        self.usage = Usage()
        """Of all tries that have ended."""
        self.result: Result[object] | None = None
        self.crash: BaseException | None = None
        """What ended it that is no error of the agent's."""
        self.receipt: CancelReceipt | None = None
        """What became of a try that was interrupted because the turn was cancelled."""
        self.stopping = anyio.CancelScope()
        """Around all that is done for it."""
        self.closing = anyio.CancelScope()
        """Around what is done to stop it in good order."""
        self._began_at = anyio.current_time()
        self._news: anyio.Event | None = None

    @property
    def is_over(self) -> bool:
        return self.result is not None or self.crash is not None

    @property
    def is_closed(self) -> bool:
        """Whether it ends with its agent."""
        return self.closing.cancel_called

    @property
    def failure(self) -> BaseException | None:
        """What readers raise at the end: why there is no result."""
        if self.crash is not None:
            return self.crash
        result = self.result
        return None if result is None or result.message is not None else copy(result.error)

    # How it is stopped.

    def stop(self) -> None:
        """Begin to cancel it: a try that runs is interrupted."""
        self.stopping.cancel()

    def close(self) -> None:
        """Begin to end it with its agent."""
        self.stop()
        self.closing.cancel()

    # What comes.

    def add(self, item: Item | Exception) -> None:
        """A message, or what its readers are to raise in the place of one."""
        if not isinstance(item, Exception | StreamEvent | Restarted | Retrying):
            self.messages.append(item)
        link = self.last
        link.item = item
        self.last = link.following = Link()
        self._wake()

    def finish(self, result: Result[object], total: Usage, session_id: str | None) -> None:
        """It is over: with its last try, and with what all of them have said and used."""
        self.result = whole = msgspec.structs.replace(
            result,
            messages=tuple(self.messages),
            usage=self.usage,
            total_usage=total,
            duration=anyio.current_time() - self._began_at,
            session_id=result.session_id or session_id,
        )
        if whole.error is not None:
            whole.error.result = whole
        self._wake()

    def fail(self, error: BaseException) -> None:
        """It is over, by something that is no error of the agent's."""
        self.crash = error
        self._wake()

    def _wake(self) -> None:
        if self._news is not None:
            self._news.set()
            self._news = None

    async def wait(self) -> None:
        """Wait until something comes, or it is over."""
        if self._news is None:
            self._news = anyio.Event()
        await self._news.wait()

    async def wait_over(self) -> None:
        """Wait until it is over."""
        await checkpoint()
        while not self.is_over:
            await self.wait()

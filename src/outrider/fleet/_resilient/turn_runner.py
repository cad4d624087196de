"""One turn of a resilient session: its processes, its tries, and the log that its readers follow.

The policies in `retry` decide what is tried again; `TurnRunner` has the one loop that does it.
"""

from __future__ import annotations

import inspect
import logging
from collections.abc import Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple, Protocol, TypeAlias, TypeVar, cast

import anyio
import msgspec

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
from outrider.fleet._budget.budget import limit_reached
from outrider.fleet._resilient.retry import Recovery, Restarted, Retrying, is_unexpected, is_usage_limit
from outrider.session import Result, Session, SessionState, Usage
from outrider.wire import AssistantMessage, Message, StreamEvent, UserMessage
from outrider.wire._blocks import TOOL_CALLS

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from contextlib import AbstractAsyncContextManager

    from outrider.fleet._budget.budget import Budget, Gate
    from outrider.fleet._budget.ledger import Ledger
    from outrider.fleet._resilient.retry import Clock, Restart, Retry
    from outrider.fleet._resilient.session import TurnLog
    from outrider.options import Options
    from outrider.session import Prompt, Turn
    from outrider.session._streams.turn_state import Until

log = logging.getLogger("outrider.fleet")

T = TypeVar("T")

_IDLE_SECONDS: Final = 300.0
"""A process that would wait longer for the API is ended meanwhile. To start one takes a second or less."""

_NOTHING: Final = Usage()

Phase: TypeAlias = Literal["busy", "waiting", "restarting"]

Item: TypeAlias = Message | Restarted | Retrying
"""What comes in a resilient turn."""


class Policies(NamedTuple):
    """The settings of a resilient session."""

    restart: Restart | None
    retry: Retry | None
    budget: Budget | None
    ledger: Ledger | None
    gate: Gate | None
    tags: Mapping[str, str]
    starter: Starter
    clock: Clock


class ResilientProcess:
    """The processes of one conversation, one after another: starts, resumes and ends them."""

    def __init__(self, options: Options, output: object, policies: Policies) -> None:
        self.policies = policies
        self.session: Session[Any] | None = None
        """The one that runs, as far as is known."""
        self.id: str | None = None
        """Of the conversation, as soon as it is known."""
        self.phase: Phase | None = None
        """What is done in a turn; None between turns."""
        self.was_started = False
        self.is_closed = False
        self._options = options
        self._output = output
        self._watch: AbstractAsyncContextManager[None] | None = None
        self._has_history = options.resume is not None or options.continue_conversation
        """Whether there is something that must not be lost: a turn that ended, or a tool that was called."""
        self._past = Usage()
        """Of the processes that are gone."""
        self._fallback: tuple[str, float] | None = None
        """The model in place of the given one, and when that may be used again, in Unix seconds."""

    @property
    def can_start_again(self) -> bool:
        """A transport of the user's can be used once."""
        return self._options.transport is None

    @property
    def usage(self) -> Usage:
        """Of all processes together."""
        return self._past if self.session is None else _sum(self._past, self.session.usage)

    @property
    def is_working(self) -> bool:
        """Whether something goes on in the background, which would be ended with the process."""
        return self.session is not None and bool(self.session.tasks)

    # Beginning and end.

    def check(self) -> None:
        """Raises `TransportClosed` after the end."""
        if self.is_closed:
            raise TransportClosed("the session was closed", hint="Open a new one.")

    async def start(self) -> Session[Any]:
        """The process; it is started if there is none, and resumes the conversation if that has begun.

        Raises what `Starter.start` raises.
        """
        self.check()
        await self.leave_fallback()
        if self.session is None:
            if self.was_started and not self.can_start_again:
                hint = "Leave `transport` out, so that the agent can be started again."
                raise TransportClosed("the transport that was given has ended", hint=hint)
            self.session = await self.policies.starter.start(self._next_options(), self._output)
            self.was_started = True
        session = self.session
        if self.policies.budget is not None and self._watch is None:
            watch = self.policies.budget.watching(session)
            try:
                await watch.__aenter__()
            except BaseException:
                # What nobody watches must not run.
                await self.end()
                raise
            self._watch = watch
        return session

    def forget(self) -> bool:
        """Begin anew with the next start; False if something would be lost: more was written, or done, than
        to give the conversation its id."""
        if self.id is None or self._has_history:
            return False
        self.id = None
        return True

    def _next_options(self) -> Options:
        options = self._options
        if self.id is not None:
            options = resumed(options, self.id)
        return options if self._fallback is None else options.replace(model=self._fallback[0])

    async def end(self) -> None:
        """End the process, if there is one. The conversation can be resumed."""
        session = self.session
        if session is None:
            return
        with anyio.CancelScope(shield=True):
            # First: there is nothing to be stopped in good order any more, which might take long.
            await self.policies.starter.stop(session)
            if self._watch is not None:
                watch, self._watch = self._watch, None
                await watch.__aexit__(None, None, None)
        self._note(session)
        self._past = _sum(self._past, session.usage)
        self.session = None

    async def rest(self, seconds: float) -> None:
        """Nothing will be asked for so long: end the process, if that is worth it and harms nothing."""
        if seconds > _IDLE_SECONDS and self.can_start_again and not self.is_working:
            await self.end()

    async def tidy(self) -> None:
        """Let go of a process that has ended by itself."""
        if self.session is not None and self.session.state is SessionState.CLOSED:
            await self.end()

    # What turns tell.

    def sent(self) -> None:
        """A prompt is on its way: an id that was asked for may be taken from now on."""
        if self.id is None:
            self.id = self._options.session_id

    def acted(self) -> None:
        """A tool was called."""
        self._has_history = True

    def _note(self, session: Session[Any]) -> None:
        self.id = session.id or self.id

    async def account(self, result: Result[object], uuid: str | None) -> Result[object]:
        """Take account of a try: for the ledger, and for a budget, which may be why it ended."""
        if self.session is not None:
            self._note(self.session)
        self._has_history = self._has_history or result.message is not None
        if (error := limit_reached(self.policies.budget, result)) is not None:
            result = msgspec.structs.replace(result, error=error)
        if self.policies.ledger is not None:
            return await self._entered(self.policies.ledger, result, uuid)
        return result

    async def _entered(self, ledger: Ledger, result: Result[object], uuid: str | None) -> Result[object]:
        from outrider.fleet._budget.ledger import LedgerEntry

        entry = LedgerEntry.of(result, turn=uuid or "", tags=self.policies.tags)
        try:
            with anyio.CancelScope(shield=True):
                await ledger.add(entry)
        except OutriderError as error:
            # A ledger must have no gaps: the turn fails.
            return msgspec.structs.replace(result, error=error)
        return result

    # The model for when a usage limit is used up.

    async def fall_back(self, model: str, until: float) -> bool:
        """Go on with another model until then; False if it is in use already, or cannot be used."""
        if self._fallback is not None:
            return False
        self._fallback = model, until
        try:
            if self.session is not None:
                await self.session.set_model(model)
        except ConnectionLost:
            # The next process is started with it.
            return True
        except OutriderError:
            self._fallback = None
            return False
        return True

    async def leave_fallback(self) -> None:
        """Go back to the given model once it may be used again."""
        if self._fallback is None or self.policies.clock.time() < self._fallback[1] or self.is_working:
            return
        self._fallback = None
        if self.can_start_again:
            # What began with the other model would take that for the given one.
            await self.end()
        elif self.session is not None:
            await self.session.set_model(self._options.model)


def _sum(past: Usage, more: Usage) -> Usage:
    """Most conversations have one process, and most turns one try."""
    return past + more if past != _NOTHING else more


def resumed(options: Options, session_id: str) -> Options:
    """The options to resume a session with, wherever they would have begun. Raises `OptionsError`."""
    return options.replace(
        resume=session_id,
        session_id=None,
        continue_conversation=False,
        fork_session=False,
        resume_session_at=None,
        resume_drops_turn=None,
    )


class Starter(Protocol):
    """Gives out connected sessions, and takes them back. A `Pool` is one."""

    async def start(self, options: Options, output: object) -> Session[Any]:
        """A session that is connected. Raises what `Session.connect` raises; cancelled, it leaves nothing."""
        ...

    async def stop(self, session: Session[Any]) -> None:
        """End a session that `start` gave, also one that has ended by itself. Never raises."""
        ...


class DirectStarter(Starter):
    """Starts a process for each session, and ends it."""

    def __init__(self, first: Session[Any] | None = None) -> None:
        """`first`: a session that is made already, for the first start with its options."""
        self._first = first

    async def start(self, options: Options, output: object) -> Session[Any]:
        session, self._first = self._first, None
        if session is None or session.options is not options:
            session = Session(options, output=cast(Any, output))
        await session.connect()
        return session

    async def stop(self, session: Session[Any]) -> None:
        try:
            await session.close()
        except Exception:
            log.exception("a session could not be closed")


# One turn.


class _Loss(NamedTuple):
    """A process that was lost in a turn, until another has taken its place."""

    error: ConnectionLost
    result: Result[object]
    """What the turn comes to if it does not go on."""
    was_gone: bool
    """Whether it was lost before the prompt reached it, so that nothing was in flight."""


class TurnRunner:
    """One turn, until it is over. Runs in a task of its own, which nobody cancels but the event loop."""

    def __init__(
        self,
        process: ResilientProcess,
        turn_log: TurnLog,
        recovery: Recovery,
        listener: Callable[[Item], None] | None,
        finish: Callable[[], None],
    ) -> None:
        """`listener` is called with all that comes, `finish` at the end."""
        self._process = process
        self._policies = process.policies
        self._turn_log = turn_log
        self._recovery = recovery
        self._listener = listener
        self._finish = finish
        self._inner: Turn[object] | None = None
        """The try that runs, until it is accounted for."""
        self._has_acted = False
        self._is_left_over = process.session is not None
        """Whether the process is one that an earlier turn has left."""

    async def run(self, prompt: Prompt, until: Until) -> None:
        """Bring the turn to its end. Raises nothing but what cancels the task."""
        process, turn_log = self._process, self._turn_log
        result: Result[object] | None = None
        try:
            try:
                with turn_log.stopping:
                    result = await self._try_until_done(prompt, until)
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
        except BaseException as error:  # noqa: BLE001 - raised to those that wait for the turn
            # A handler was told to end the whole program, or something raised what nobody knows.
            turn_log.fail(error)
        finally:
            self._finish()

    async def _try_until_done(self, prompt: Prompt, until: Until) -> Result[object]:
        """The one loop: each round starts a process if there is none, and tries once."""
        process = self._process
        loss: _Loss | None = None
        while True:
            await self._pass_gate()
            tries = self._recovery.tries
            process.phase = "restarting" if tries.restarts or tries.refusals else "busy"
            try:
                session = await self._within_budget(process.start)
            except (ConnectionLost, RequestTimedOut, SessionBusy, SessionNotFound, StoreError) as error:
                if await self._may_start_again(error):
                    continue
                if loss is not None:
                    raise error from loss.error
                raise
            if loss is not None:
                following = await self._go_on(loss, prompt)
                if following is None:
                    return loss.result
                prompt, loss = following, None
            process.phase = "busy"
            was_gone = session.state is SessionState.CLOSED
            process.sent()
            try:
                inner = self._inner = await session.send(prompt, until=until)
            except ConnectionLost as error:
                result = Result[object](error=error)
            else:
                self._turn_log.add(aiter(inner).fork())
                result = await self._follow(inner)
            if isinstance(result.error, ApiFailed):
                if not await self._may_retry(result.error):
                    return result
                prompt = self._next_prompt(prompt)
            elif isinstance(result.error, ConnectionLost):
                if not await self._may_replace(result.error, was_gone=was_gone):
                    return result
                if is_unexpected(result.error):
                    loss = _Loss(result.error, result, was_gone)
                else:
                    prompt = _again(prompt)
            else:
                return result

    async def _pass_gate(self) -> None:
        gate = self._policies.gate
        self._check_budget()
        if gate is not None:
            self._process.phase = "waiting"
            await self._process.rest((gate.opens_at or 0.0) - self._policies.clock.time())
            await self._within_budget(gate.wait)
            self._check_budget()

    def _check_budget(self) -> None:
        if self._policies.budget is not None:
            self._policies.budget.check(session_id=self._process.id)

    def _within_budget(self, wait: Callable[[], Awaitable[T]]) -> Awaitable[T]:
        """Wait for something while no session is watched: the time of a budget runs on."""
        budget = self._policies.budget
        return wait() if budget is None else self._wait_within(budget, wait)

    async def _wait_within(self, budget: Budget, wait: Callable[[], Awaitable[T]]) -> T:
        while True:
            with anyio.move_on_after(budget.left.wall):
                return await wait()
            self._check_budget()

    async def _sleep(self, seconds: float) -> None:
        await self._within_budget(lambda: self._policies.clock.sleep(seconds))

    # One try.

    async def _follow(self, inner: Turn[object]) -> Result[object]:
        """Look at all that comes of a try; gives what it came to."""
        reader = aiter(inner)
        while True:
            try:
                for message in await reader.batch():
                    self._look_at(message)
            except FrameTooLarge:
                # It stands in the place of one message. Those behind it come.
                continue
            except (StopAsyncIteration, OutriderError):
                # Its result tells why it ended.
                break
        result = await inner.result(check=False)
        self._inner = None
        self._turn_log.usage = _sum(self._turn_log.usage, result.usage)
        return await self._process.account(result, inner.uuid)

    def _look_at(self, message: Message) -> None:
        if isinstance(message, AssistantMessage) and any(
            isinstance(each, TOOL_CALLS) for each in message.content
        ):
            self._recovery.note_progress()
            self._has_acted = True
            self._process.acted()
        if not isinstance(message, StreamEvent):
            self._turn_log.messages.append(message)
        if self._listener is not None:
            self._listener(message)

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
        return await self._follow(inner)

    def _tell(self, item: Restarted | Retrying) -> None:
        self._turn_log.add(item)
        if self._listener is not None:
            self._listener(item)

    # Trying again after the API failed.

    async def _may_retry(self, error: ApiFailed) -> bool:
        """Wait for the next try; False if there is none."""
        retry, clock = self._policies.retry, self._policies.clock
        now = clock.time()
        wait = self._recovery.after_api_failure(
            error, now=now, random=clock.random, has_acted=self._has_acted
        )
        if wait is None or retry is None:
            return False
        if is_usage_limit(error) and retry.fallback_model is not None:
            # By this clock it may be lifted already.
            until = max(error.resets_at or 0.0, now + retry.max_backoff)
            if not await self._process.fall_back(retry.fallback_model, until):
                return False
        self._tell(Retrying(error, self._recovery.tries.failures, wait, now + wait))
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

    def _next_prompt(self, prompt: Prompt) -> Prompt:
        retry = self._policies.retry
        if self._has_acted and retry is not None and retry.continue_with is not None:
            return retry.continue_with
        return _again(prompt)

    # Starting again after the process was lost.

    async def _may_start_again(self, error: OutriderError) -> bool:
        """Wait before the next start, after one that failed; False if there is none."""
        recovery = self._recovery
        if isinstance(error, SessionNotFound):
            return self._process.forget() and recovery.after_missing_session() is not None
        if not error.retryable or not self._process.can_start_again:
            return False
        if isinstance(error, SessionBusy | StoreError):
            # The last holder of the session may have been killed: its lease runs out.
            least = (error.retry_after or 0.0) if isinstance(error, SessionBusy) else 0.0
            return await self._wait_to_start(recovery.after_refusal(least))
        return await self._wait_to_start(recovery.after_loss())

    async def _may_replace(self, error: ConnectionLost, *, was_gone: bool) -> bool:
        """End a process that was lost, and wait before the next; False if there is none."""
        if not self._process.can_start_again:
            return False
        await self._process.end()
        if was_gone and self._is_left_over:
            # Nobody has asked for it before: this is no more than to come back from being parked.
            self._is_left_over = False
            self._recovery.count_start()
            return True
        return is_unexpected(error) and await self._wait_to_start(self._recovery.after_loss())

    async def _wait_to_start(self, seconds: float | None) -> bool:
        if seconds is None:
            return False
        self._process.phase = "restarting"
        await self._sleep(seconds)
        return True

    async def _go_on(self, loss: _Loss, prompt: Prompt) -> Prompt | None:
        """What to send to the process that has taken the place of a lost one; None: the turn ends with the
        loss."""
        restarted = Restarted(
            cause=loss.error,
            attempt=self._recovery.tries.restarts,
            session_id=self._process.id,
            has_acted=self._has_acted,
            is_resent=loss.was_gone or not self._has_acted,
        )
        is_resent = loss.was_gone or await self._may_resend(restarted)
        self._tell(msgspec.structs.replace(restarted, is_resent=is_resent))
        if is_resent:
            return _again(prompt)
        return None if self._policies.restart is None else self._policies.restart.continue_with

    async def _may_resend(self, restarted: Restarted) -> bool:
        resend = None if self._policies.restart is None else self._policies.restart.resend
        if resend is None or isinstance(resend, bool):
            return restarted.is_resent if resend is None else resend
        try:
            answer = resend(restarted)
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

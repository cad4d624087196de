"""One turn of a resilient session: its processes, its tries, and the log that its readers follow.

The policies in `retry` decide what is tried again; `TurnRunner` has the one loop that does it.
"""

from __future__ import annotations

import inspect
import logging
from collections.abc import Mapping
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple, Protocol, TypeAlias, TypeVar, cast

import anyio
import msgspec

from outrider import errors
from outrider.approvals._errors import SessionParked
from outrider.fleet._budget.budget import limit_reached
from outrider.fleet._resilient.retry import (
    CONTINUE,
    Recovery,
    Restarted,
    Retrying,
    is_unexpected,
    is_usage_limit,
)
from outrider.session import Result, Session, SessionState, Usage
from outrider.wire import AssistantMessage, Message, StreamEvent, UserMessage
from outrider.wire._blocks import TOOL_CALLS

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from contextlib import AbstractAsyncContextManager

    from outrider.fleet._budget.budget import Budget
    from outrider.fleet._budget.ledger import Ledger
    from outrider.fleet._resilient.retry import Clock, Gate, Restart, Retry
    from outrider.fleet._resilient.session import TurnLog
    from outrider.options import Options
    from outrider.session import Prompt, Turn
    from outrider.session._streams.turn_state import Until

log = logging.getLogger("outrider.fleet")

T = TypeVar("T")

_IDLE_SECONDS: Final = 300.0
"""A process that would wait longer for the API is ended meanwhile. To start one takes a second or less."""

_NOTHING: Final = Usage()

_START_FAILURES: Final = (
    *(errors.ConnectionLost, errors.RequestTimedOut),
    *(errors.SessionBusy, errors.SessionNotFound, errors.StoreError),
)
"""Errors after which a start may be tried again."""

GO_ON: Final[Prompt] = "the decisions about what has waited for approval"
"""Stands for a prompt: the very object, not its text."""

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
        self.has_history = options.resume is not None or options.continue_conversation
        """Whether there is something that must not be lost: a turn that ended, or a tool that was called."""
        self._past = Usage()
        """Of the processes that are gone."""
        self._fallback: tuple[str, float] | None = None
        """The model in place of the given one, and when that may be used again, in Unix seconds."""

    @property
    def can_start_again(self) -> bool:
        """Whether the process can be started again: a given transport can be used once."""
        return self._options.transport is None

    @property
    def usage(self) -> Usage:
        """Of all processes together."""
        return self._past if self.session is None else _sum(self._past, self.session.usage)

    @property
    def is_working(self) -> bool:
        """Whether it works in the background, which would end with the process."""
        return self.session is not None and bool(self.session.tasks)

    # Beginning and end.

    def check(self) -> None:
        """Raises `TransportClosed` after the end."""
        if self.is_closed:
            raise errors.TransportClosed("the session was closed", hint="Open a new one.")

    async def start(self, admitted: anyio.Event | None = None) -> Session[Any]:
        """The process; it is started if there is none, and resumes the conversation if that has begun.

        `admitted` is set when it will not be refused for want of a place in a queue. Raises what
        `Starter.start` raises.
        """
        self.check()
        await self.leave_fallback()
        if self.session is None:
            if self.was_started and not self.can_start_again:
                hint = "Leave `transport` out, so that the agent can be started again."
                raise errors.TransportClosed("the transport that was given has ended", hint=hint)
            options = self._options if self.id is None else resumed(self._options, self.id)
            if self._fallback is not None:
                options = options.replace(model=self._fallback[0])
            starter = self.policies.starter
            if isinstance(starter, QueuedStarter):
                starter.admitted = admitted
            elif admitted is not None:
                admitted.set()
            self.session = await starter.start(options, self._output)
            self.was_started = True
        session = self.session
        if admitted is not None:
            admitted.set()
        if self.policies.budget is not None and self._watch is None:
            watch = self.policies.budget.watching(session)
            try:
                await watch.__aenter__()
            except BaseException:
                # An agent without its watch must not run.
                await self.end()
                raise
            self._watch = watch
        return session

    def forget(self) -> bool:
        """Start over next time; False if that would lose something: a turn that ended, or a tool call."""
        if self.id is None or self.has_history:
            return False
        self.id = None
        return True

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
        self.id = session.id or self.id
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

    # What turns use.

    async def account(self, result: Result[object], uuid: str | None) -> Result[object]:
        """Record a try in the ledger, and find out whether a budget ended it."""
        if self.session is not None:
            self.id = self.session.id or self.id
        self.has_history = self.has_history or result.message is not None
        if (error := limit_reached(self.policies.budget, result)) is not None:
            result = msgspec.structs.replace(result, error=error)
        if self.policies.ledger is not None:
            from outrider.fleet._budget.ledger import LedgerEntry, backlog_of

            entry = LedgerEntry.of(result, turn=uuid or "", tags=self.policies.tags)
            with anyio.CancelScope(shield=True):
                await backlog_of(self.policies.ledger).add(entry)
        return result

    async def settle(self) -> None:
        """A ledger must have no gaps: write what it could not take before more is spent. Raises what
        `Ledger.add` raises."""
        if self.policies.ledger is not None:
            from outrider.fleet._budget.ledger import backlog_of

            await backlog_of(self.policies.ledger).settle()

    # The model for when a usage limit is used up.

    async def fall_back(self, model: str, until: float) -> bool:
        """Use another model until then; False if it is in use already, or cannot be used."""
        if self._fallback is not None:
            return False
        self._fallback = model, until
        try:
            if self.session is not None:
                await self.session.set_model(model)
        except errors.ConnectionLost:
            # The next process is started with it.
            return True
        except errors.OutriderError:
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


class QueuedStarter(Starter):
    """One that may let its caller wait in a queue, or refuse it."""

    admitted: anyio.Event | None = None
    """To be set once a start is not refused."""

    def take_back(self, park: Callable[[], Awaitable[None]]) -> bool:
        """Called at the end of each turn: whether somebody else needs the process. It has `park` called then,
        before the next turn."""
        return False


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

    error: errors.ConnectionLost
    result: Result[object]
    """The result of the turn if it does not continue."""
    was_gone: bool
    """Whether it was lost before the prompt reached it, so that nothing was in flight."""


class TurnRunner:
    """Runs one turn in a task of its own, which only the end of the event loop cancels."""

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
            except errors.OutriderError as error:
                result = Result(error=error)
            # A process that has ended is gone before the next turn, which starts another.
            await process.tidy()
            turn_log.finish(result, process.usage, process.id)
        except anyio.get_cancelled_exc_class():
            turn_log.fail(errors.TransportClosed("the event loop ended under the turn"))
            raise
        except BaseException as error:  # noqa: BLE001 - raised to those that wait for the turn
            # A handler ends the whole program, or raised something unknown.
            turn_log.fail(error)
        finally:
            self._finish()

    async def _try_until_done(self, prompt: Prompt, until: Until) -> Result[object]:
        """The one loop: each round starts a process if there is none, and makes one try."""
        process = self._process
        loss: _Loss | None = None
        was_parked = False
        while True:
            await self._pass_gate()
            tries = self._recovery.tries
            process.phase = "restarting" if tries.restarts or tries.refusals else "busy"
            try:
                await process.settle()
                session = await self._within_budget(partial(process.start, self._turn_log.admitted))
            except _START_FAILURES as error:
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
            # From now on an id that was asked for may be taken.
            process.id = process.id or session.options.session_id
            try:
                if prompt is GO_ON:
                    inner = self._inner = await session.continue_turn(until=until)
                    # It is gone on with, whatever becomes of it.
                    prompt = CONTINUE
                else:
                    inner = self._inner = await session.send(prompt, until=until)
            except SessionParked:
                if prompt is not GO_ON or was_parked or not process.can_start_again:
                    raise
                # By this very process: the next one is offered the call.
                was_parked = True
                await process.end()
                continue
            except errors.ConnectionLost as error:
                result = Result[object](error=error)
            else:
                self._turn_log.begin(inner)
                result = await self._follow(inner)
            if isinstance(result.error, errors.ApiFailed):
                if not await self._may_retry(result.error):
                    return result
                retry = self._policies.retry
                prompt = (self._has_acted and retry and retry.continue_with) or _again(prompt)
            elif isinstance(result.error, errors.ConnectionLost):
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
            if gate.opens_at is not None:
                self._turn_log.admitted.set()
            await self._process.rest((gate.opens_at or 0.0) - self._policies.clock.time())
            await self._within_budget(gate.wait)
            self._check_budget()

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

    async def _sleep(self, seconds: float) -> None:
        await self._within_budget(lambda: self._policies.clock.sleep(seconds))

    # One try.

    async def _follow(self, inner: Turn[object]) -> Result[object]:
        """Read all messages of a try. Returns its result."""
        reader = aiter(inner)
        while True:
            try:
                for message in await reader.batch():
                    self._look_at(message)
            except errors.FrameTooLarge:
                # It stands in place of one message. Those behind it come.
                continue
            except (StopAsyncIteration, errors.OutriderError):
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
            self._process.has_history = True
        if not isinstance(message, StreamEvent):
            self._turn_log.keep(message)
        if self._listener is not None:
            self._listener(message)

    async def _stopped(self) -> Result[object]:
        """The turn was cancelled, or the session is being closed."""
        turn_log, inner = self._turn_log, self._inner
        if inner is None:
            if turn_log.is_closed:
                return Result(error=errors.TransportClosed("the session was closed"))
            return Result(error=errors.TurnInterrupted(message="the turn was cancelled between two tries"))
        if not turn_log.is_closed:
            with turn_log.closing, suppress(errors.ConnectionLost):
                turn_log.receipt = await inner.cancel(grace=turn_log.grace)
        if turn_log.is_closed:
            await self._process.end()
        return await self._follow(inner)

    def _tell(self, item: Restarted | Retrying) -> None:
        self._turn_log.add(item)
        if self._listener is not None:
            self._listener(item)

    # Trying again after the API failed.

    async def _may_retry(self, error: errors.ApiFailed) -> bool:
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

    async def _wait(self, error: errors.ApiFailed, now: float, wait: float) -> None:
        gate = self._policies.gate
        self._process.phase = "waiting"
        await self._process.rest(wait)
        if gate is not None and error.kind == "rate_limit" and (is_usage_limit(error) or error.retry_after):
            # The gate makes this one wait, with all the others.
            await gate.pause(now + wait, str(error).partition("\n")[0])
        else:
            await self._sleep(wait)

    # Starting again after the process was lost.

    async def _may_start_again(self, error: errors.OutriderError) -> bool:
        """Wait before the next start, after one that failed; False if there is none."""
        recovery = self._recovery
        if isinstance(error, errors.SessionNotFound):
            return self._process.forget() and recovery.after_missing_session() is not None
        if not error.retryable or not self._process.can_start_again:
            return False
        if isinstance(error, errors.SessionBusy | errors.StoreError):
            # The last holder of the session may have been killed: its lease runs out.
            least = (error.retry_after or 0.0) if isinstance(error, errors.SessionBusy) else 0.0
            return await self._wait_to_start(recovery.after_refusal(least))
        return await self._wait_to_start(recovery.after_loss())

    async def _may_replace(self, error: errors.ConnectionLost, *, was_gone: bool) -> bool:
        """End a process that was lost, and wait before the next; False if there is none."""
        if not self._process.can_start_again:
            return False
        await self._process.end()
        if was_gone and self._is_left_over:
            # It ended between two turns: starting it again is like coming back from being parked.
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
            raise errors.TurnFailed(message=f"`Restart.resend` failed: {error!r}") from error


def _again(prompt: Prompt) -> Prompt:
    """The prompt for one more try: the agent drops a second message with the same uuid."""
    if isinstance(prompt, UserMessage):
        return msgspec.structs.replace(prompt, uuid=None)
    if isinstance(prompt, Mapping) and "uuid" in prompt:
        return {name: value for name, value in prompt.items() if name != "uuid"}
    return prompt

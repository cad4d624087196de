"""`ResilientSession`, a conversation that outlives the agent's process, and its turns.

`turn_runner` runs a turn; the policies are in `retry`.
"""

from __future__ import annotations

import weakref
from collections.abc import AsyncIterable, Iterable, Mapping, Sequence
from contextlib import suppress
from copy import copy
from typing import TYPE_CHECKING, Generic, Literal, TypeAlias, cast

import anyio
import msgspec
from anyio.lowlevel import checkpoint

from outrider.errors import (
    ConnectionLost,
    FrameTooLarge,
    OutriderError,
    SessionNotFound,
    TurnInterrupted,
    UsageError,
)
from outrider.fleet._budget.budget import Budget
from outrider.fleet._errors import QueueFull
from outrider.fleet._fields import ResilientFields, of_kind, read_ledger, read_starter, split_keywords
from outrider.fleet._resilient import retry
from outrider.fleet._resilient.turn_runner import (
    GO_ON,
    DirectStarter,
    Policies,
    QueuedStarter,
    ResilientProcess,
    TurnRunner,
)
from outrider.options import Options
from outrider.options._validators import any_text, mapped, seconds, text
from outrider.session import CancelReceipt, Reader, Session, SessionState, TextReader, Usage, background
from outrider.session._result import Output_co, find_tool_calls
from outrider.session._streams.turn_state import read_until
from outrider.session._turn import keep_last

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Self, Unpack

    from outrider.fleet._resilient.turn_runner import Item, Starter
    from outrider.session import Prompt, Queued, Result, ToolRun, Turn
    from outrider.session._result import OutputType
    from outrider.session._streams.turn_state import Until
    from outrider.session._turn import Delivery
    from outrider.wire import Message


class Part:
    """A part of a turn, and a link to the next: the messages of one try, or a notice between two tries.

    Messages stay in the stream of their session; nothing holds the parts that everybody has read.
    """

    __slots__ = ("following", "item")

    def __init__(self) -> None:
        self.item: Reader | retry.Restarted | retry.Retrying | None = None
        """A reader at the beginning of a try, for others to be forked from."""
        self.following: Part | None = None
        """None at the end, where the next part will be."""


class Position:
    """The position of a reader."""

    __slots__ = ("part", "reader")

    def __init__(self, part: Part, reader: Reader | None = None) -> None:
        self.part = part
        self.reader = reader
        """In the try before that part, if that is not read to its end."""

    def __copy__(self) -> Position:
        return Position(self.part, None if self.reader is None else self.reader.fork())


class TurnLog:
    """One turn, from its prompt to its end."""

    def __init__(self) -> None:
        self.last = Part()
        """Where the next part will be."""
        self.messages: list[Message] = []
        self.keeps_last: int | None = None
        """How many messages are kept at least, if not all."""
        self.usage = Usage()
        """Of all tries that have ended."""
        self.result: Result[object] | None = None
        self.crash: BaseException | None = None
        """An exception that ended it and is not an error of the agent."""
        self.receipt: CancelReceipt | None = None
        """What became of a try that was interrupted because the turn was cancelled."""
        self.attempt: Turn[object] | None = None
        """The last try that was begun."""
        self.before: tuple[int, Usage] = (0, Usage())
        """The number of messages before that try, and what those before it have used."""
        self.grace: float | None = None
        """How long a try has to end once it is interrupted; None: as long as its options say."""
        self.admitted = anyio.Event()
        """Set once it is known that it need not be refused: it has a slot, a place in a queue, or waits for
        the API."""
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
        """What readers raise at the end if there is no result."""
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

    def begin(self, attempt: Turn[object]) -> None:
        """A try was begun."""
        self.attempt = attempt
        if self.keeps_last is not None:
            keep_last(attempt, self.keeps_last)
        self.before = len(self.messages), self.usage
        self.add(aiter(attempt).fork())

    def keep(self, message: Message) -> None:
        """Keep a message for the result."""
        self.messages.append(message)
        last = self.keeps_last
        if last is not None and len(self.messages) > 2 * last:
            del self.messages[:-last]

    def add(self, item: Reader | retry.Restarted | retry.Retrying) -> None:
        """Add a part: a try, or a notice between two tries."""
        part = self.last
        part.item = item
        self.last = part.following = Part()
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
        """End it with an exception that is not an error of the agent."""
        self.crash = error
        self._wake()

    def _wake(self) -> None:
        if self.is_over:
            self.admitted.set()
        if self._news is not None:
            self._news.set()
            self._news = None

    async def wait(self) -> None:
        """Wait until there is another part, or it is over."""
        if self._news is None:
            self._news = anyio.Event()
        await self._news.wait()

    async def wait_over(self) -> None:
        """Wait until it is over."""
        await checkpoint()
        while not self.is_over:
            await self.wait()


class ResilientTurn(Generic[Output_co]):
    """A turn that outlives the agent's process, and failures of the API.

    `async for message in turn` gives what comes, with a `Restarted` or a `Retrying` where it was tried again;
    `result()` waits for the end. Both can be used together, by several tasks. A loop continues where
    the one before it stopped. The turn runs until it is over or cancelled, whether it is read or not.
    """

    def __init__(self, turn_log: TurnLog, process: ResilientProcess) -> None:
        """Made by `ResilientSession.send`."""
        self._turn_log = turn_log
        self._process = process
        self._position = Position(turn_log.last)
        self._reader: weakref.ref[ResilientReader] | None = None

    def __repr__(self) -> str:
        return f"<ResilientTurn, {'over' if self.is_over else 'running'}, {len(self.messages)} messages>"

    @property
    def uuid(self) -> str | None:
        """The id of the prompt in the last try; None before the first."""
        attempt = self._turn_log.attempt
        return None if attempt is None else attempt.uuid

    @property
    def is_over(self) -> bool:
        """Whether it has ended, successfully or not."""
        return self._turn_log.is_over

    @property
    def delivery(self) -> Delivery:
        """The state of the prompt in the last try."""
        attempt = self._turn_log.attempt
        return "sent" if attempt is None else attempt.delivery

    @property
    def messages(self) -> tuple[Message, ...]:
        """All that the agent has said so far, in all tries; without stream events."""
        return tuple(self._turn_log.messages)

    @property
    def tool_calls(self) -> tuple[ToolRun, ...]:
        """The tools that were called so far, in all tries."""
        return find_tool_calls(self._turn_log.messages)

    @property
    def usage(self) -> Usage:
        """What all tries that have ended have used."""
        return self._turn_log.usage

    def __aiter__(self) -> ResilientReader:
        """What comes, up to the end.

        A turn that its result says has failed ends like any other; one that ended without a result raises
        after the last message what `result` would raise.
        """
        if self._reader is not None and self._reader() is not None:
            # Another loop is at it. This one starts from there, and goes its own way.
            return ResilientReader(self._turn_log, copy(self._position))
        reader = ResilientReader(self._turn_log, self._position)
        self._reader = weakref.ref(reader)
        return reader

    def text(self) -> TextReader:
        """What the model says: pieces of text with `include_partial_messages`, else whole blocks.

        Where a try was lost in the middle of an answer, the next one begins again.
        """
        return TextReader(aiter(self))

    async def result(self, *, until: Until | None = None, check: bool = True) -> Result[Output_co]:
        """Wait for the end. Returns the result of the last try, with the messages and the usage of all.

        `until="idle"` also waits for the background work of that try; the default is the `until` of `send`.

        Raises its error: what `Turn.result` raises, a `LimitReached` of a budget, a `ConnectionLost` if it
        was not sent again, or what kept the agent from being started. In each, `result` has what there is.
        With `check=False` the result is given back instead, with its `error`. Cancelling the call does not
        cancel the turn.
        """
        if until is not None:
            read_until("`until`", until)
        turn_log = self._turn_log
        await turn_log.wait_over()
        if turn_log.crash is not None:
            raise turn_log.crash
        whole = cast("Result[object]", turn_log.result)
        if until == "idle" and turn_log.attempt is not None and whole.message is not None:
            whole = await self._settled(turn_log.attempt, whole)
        result = cast("Result[Output_co]", whole)
        return result.raise_for_error() if check else result

    async def _settled(self, attempt: Turn[object], whole: Result[object]) -> Result[object]:
        """The result, with what came of the background work of the last try."""
        last = await attempt.result(until="idle", check=False)
        count, usage = self._turn_log.before
        return msgspec.structs.replace(
            whole,
            message=last.message,
            messages=(*whole.messages[:count], *last.messages),
            usage=usage + last.usage,
            total_usage=self._process.usage,
            unfinished_tasks=last.unfinished_tasks,
        )

    async def cancel(self, *, grace: float | None = None) -> CancelReceipt:
        """End the turn: a try that runs is interrupted, and there is no other.

        If the agent does not react within `grace` seconds (by default `timeouts.interrupt`), it is ended; the
        next prompt resumes the session. Cancelling this call does not stop any of it.
        """
        turn_log = self._turn_log
        was_over = turn_log.is_over
        if grace is not None:
            turn_log.grace = seconds("`grace`", grace)
        self.stop()
        await turn_log.wait_over()
        if turn_log.receipt is not None and not was_over:
            return turn_log.receipt
        result = turn_log.result
        message = None if result is None else result.message
        if was_over or (result is not None and result.error is None):
            return CancelReceipt("finished_first", message)
        is_interrupted = result is not None and isinstance(result.error, TurnInterrupted)
        return CancelReceipt("cancelled" if is_interrupted else "killed", message)

    async def steer(self, prompt: Prompt) -> Queued:
        """Add to what the agent is doing: it reads this between two of its steps. Between two tries, it is
        added to the next.

        If the turn has no further step, this becomes the next turn. Raises `UsageError` once the turn is
        over.
        """
        turn_log = self._turn_log
        while not turn_log.is_over:
            attempt = turn_log.attempt
            if attempt is not None and not attempt.is_over:
                with suppress(ConnectionLost):
                    return await attempt.steer(prompt)
            await turn_log.wait()
        raise UsageError("The turn is over. Send the next prompt with `session.send(…)`.")

    def leave_unread(self) -> None:
        """Hold nothing for a loop: there will be none."""
        self._position = Position(Part())

    def stop(self) -> None:
        """Begin to cancel the turn, without waiting for it."""
        if not self._turn_log.is_over:
            self._turn_log.stop()


class ResilientReader:
    """Reads a resilient turn: `async for message in turn`. Leaving the loop leaves nothing behind."""

    def __init__(self, turn_log: TurnLog, position: Position) -> None:
        self._turn_log = turn_log
        self._position = position

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Item:
        position = self._position
        while True:
            if (reader := position.reader) is not None:
                try:
                    return await anext(reader)
                except FrameTooLarge:
                    raise
                except (StopAsyncIteration, OutriderError):
                    # The end of a try. The next part, or the end of the turn, says how it ended.
                    if position.reader is reader:
                        position.reader = None
                    continue
            await checkpoint()
            part = position.part
            if part.following is not None:
                position.part = part.following
                if not isinstance(part.item, Reader):
                    return cast("Item", part.item)
                position.reader = part.item.fork()
            elif self._turn_log.is_over:
                failure = self._turn_log.failure
                raise StopAsyncIteration if failure is None else failure
            else:
                await self._turn_log.wait()


ResilientState: TypeAlias = Literal["new", "idle", "busy", "waiting", "restarting", "parked", "closed"]
"""What a resilient session is doing: `waiting` for the API, a gate or an answer of a person; `restarting`
after its process was lost; `parked`, with no process until the next prompt."""

_TAGS = mapped(text, any_text)


class ResilientSession(Generic[Output_co]):
    """A session that outlives its process: restarts a crashed agent, retries when the API fails, and can be
    parked.

        async with ResilientSession(cwd="project", gate=gate) as session:
            result = await session.ask("Fix the failing test")

    It may be used from several tasks, on one event loop; turns run one at a time. A process that was
    stopped on purpose is not restarted: by `close`, by cancelling a turn, or by SIGTERM. The next prompt
    resumes the session, except after `close`.
    """

    def __init__(
        self,
        options: Options | None = None,
        *,
        output: OutputType[Output_co] = None,
        starter: Starter | None = None,
        clock: retry.Clock | None = None,
        **fields: Unpack[ResilientFields],
    ) -> None:
        """`options`, `output` and single options as for `Session`; other keywords are in `ResilientFields`.

        `starter`: where processes come from. Raises `OptionsError`.
        """
        own, single = split_keywords(fields, ResilientFields)
        tags = own.get("tags")
        # All of it is checked before anything starts.
        first = Session(options, output=output, **single)
        self.options: Options = first.options
        policies = Policies(
            of_kind("restart", own.get("restart", retry.RESTART), retry.Restart),
            of_kind("retry", own.get("retry", retry.RETRY), retry.Retry),
            of_kind("budget", own.get("budget"), Budget),
            read_ledger("ledger", own.get("ledger")),
            of_kind("gate", own.get("gate"), retry.Gate),
            cast("dict[str, str]", _TAGS("`tags`", {} if tags is None else tags)),
            read_starter("starter", starter) or DirectStarter(first),
            of_kind("clock", clock, retry.Clock) or retry.Clock(),
        )
        self._process = ResilientProcess(self.options, output, policies)
        self._turn_slot = anyio.Semaphore(1)
        """Held by what has the process to itself: a turn, or a start or an end."""
        self.recovery: retry.Recovery | None = None
        """The count of tries, if all turns share one; None: each turn has its own."""
        self.listener: Callable[[Item], None] | None = None
        self.keeps_last: int | None = None
        """How many messages of a turn are kept at least, if not all."""
        """Called with all that comes in turns."""
        self._turn_log: TurnLog | None = None
        """The turn that runs."""
        self._connecting: anyio.CancelScope | None = None
        self._idle_since: float | None = None

    def __repr__(self) -> str:
        return f"<ResilientSession {self.id or '(no id yet)'}, {self.state}>"

    # Beginning and end.

    async def connect(self) -> None:
        """Start the agent and wait until it is ready, if it is not. Need not be called: a prompt does it.

        Raises what `Session.connect` raises, and `TransportClosed` if it is closed meanwhile. Nothing is left
        running then.
        """
        await self._turn_slot.acquire()
        try:
            with anyio.CancelScope() as self._connecting:
                await self._process.tidy()
                try:
                    await self._process.start()
                except SessionNotFound:
                    if not self._process.forget():
                        raise
                    await self._process.start()
            self._process.check()
            self._idle_since = anyio.current_time()
        finally:
            self._connecting = None
            self._turn_slot.release()

    async def close(self) -> None:
        """End the agent, and with it the turn that runs, which fails with `TransportClosed`.

        Takes as long as `Session.close` at most. Closing twice does no harm. Cancelling this call does not
        stop any of it.
        """
        self._process.is_closed = True
        if self._turn_log is not None:
            self._turn_log.close()
        if self._connecting is not None:
            self._connecting.cancel()
        done = anyio.Event()
        cut: BaseException | None = None
        is_begun = False
        while not is_begun:
            try:
                with anyio.CancelScope(shield=True):
                    await (await background()).start(self._close, done, name="outrider resilient session")
                is_begun = True
            except anyio.get_cancelled_exc_class() as error:
                # A bare cancel of asyncio's heeds no shield. It comes once for each time that it is called.
                cut = error
        if cut is not None:
            raise cut
        await done.wait()

    async def _close(self, done: anyio.Event) -> None:
        try:
            async with self._turn_slot:
                await self._process.end()
        finally:
            done.set()

    async def park(self) -> None:
        """End the process and keep the conversation, which the next prompt resumes. Waits for the turn that
        runs.

        Cancelling this call once the process is being ended does not stop that. Raises `UsageError` for a
        session with a `transport` of yours, which could not be started again.
        """
        if not self._process.can_start_again:
            raise UsageError("A session with a `transport` cannot be parked: a transport can be used once.")
        await self._turn_slot.acquire()
        done = anyio.Event()
        try:
            await (await background()).start(self._park, done, name="outrider resilient session")
        except BaseException:
            self._turn_slot.release()
            raise
        await done.wait()

    async def _park(self, done: anyio.Event | None = None) -> None:
        try:
            await self._process.end()
        finally:
            self._turn_slot.release()
            if done is not None:
                done.set()

    async def __aenter__(self) -> Self:
        await self.connect()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    # Talking.

    async def send(self, prompt: Prompt, *, until: Until = "result") -> ResilientTurn[Output_co]:
        """Send a prompt; returns the turn that it begins. Waits for the turn before it to end.

        `until="idle"`: the turn ends when its background work does. An iterable of prompts is refused, with
        `UsageError`, because it could not be sent again. Raises `TransportClosed` after `close`, and
        `QueueFull` if the pool that it is of has no process and no place in its queue; all else that can
        happen is what the turn comes to. Cancelling the call sends nothing.
        """
        read_until("`until`", until)
        if _is_stream(prompt):
            raise UsageError("An iterable of prompts cannot be sent again if the agent is lost. Send each.")
        await self._turn_slot.acquire()
        try:
            self._process.check()
            # From here on, so that a `close` before it has begun ends it too.
            self._turn_log = turn_log = TurnLog()
            turn_log.keeps_last = self.keeps_last
            turn: ResilientTurn[Output_co] = ResilientTurn(turn_log, self._process)
            policies = self._process.policies
            recovery = self.recovery or retry.Recovery(policies.restart, policies.retry)
            runner = TurnRunner(self._process, turn_log, recovery, self.listener, self._turn_is_over)
            place = await background()
            self._idle_since = None
            await place.start(runner.run, prompt, until, name="outrider resilient turn")
        except BaseException:
            self._turn_log = None
            self._turn_slot.release()
            raise
        try:
            await turn_log.admitted.wait()
        except BaseException:
            turn.stop()
            raise
        if turn_log.result is not None and isinstance(turn_log.result.error, QueueFull):
            turn_log.result.raise_for_error()
        return turn

    def _turn_is_over(self) -> None:
        self._turn_log = self._process.phase = None
        self._idle_since = anyio.current_time()
        starter = self._process.policies.starter
        # The turn slot is kept for parking: the next prompt must not be faster.
        if not (isinstance(starter, QueuedStarter) and starter.take_back(self._park)):
            self._turn_slot.release()

    async def continue_turn(self, *, until: Until = "result") -> ResilientTurn[Output_co]:
        """Continue after a call has waited for approval, as `Session.continue_turn` does."""
        return await self.send(GO_ON, until=until)

    async def ask(self, prompt: Prompt, *, until: Until = "result", check: bool = True) -> Result[Output_co]:
        """Send a prompt and wait for its result. Raises what `send` and `ResilientTurn.result` raise.

        Cancelling the call cancels the turn.
        """
        turn = await self.send(prompt, until=until)
        turn.leave_unread()
        try:
            return await turn.result(check=check)
        except anyio.get_cancelled_exc_class():
            turn.stop()
            raise

    # How it stands.

    @property
    def id(self) -> str | None:
        """The session's id, to resume it by; known from the first turn on."""
        session = self._process.session
        return (None if session is None else session.id) or self._process.id

    @property
    def state(self) -> ResilientState:
        """What it is doing."""
        process = self._process
        if process.is_closed:
            return "closed"
        if process.phase == "busy" and process.session is not None:
            return "waiting" if process.session.state is SessionState.WAITING else "busy"
        if process.phase is not None:
            return process.phase
        if process.session is None or process.session.state is SessionState.CLOSED:
            return "parked" if process.was_started else "new"
        return "idle"

    @property
    def session(self) -> Session[Output_co] | None:
        """The session with the process that runs now; None while there is none."""
        return cast("Session[Output_co] | None", self._process.session)

    @property
    def usage(self) -> Usage:
        """What all turns have used together, in all its processes."""
        return self._process.usage

    @property
    def idle_since(self) -> float | None:
        """Since when it has had a process and nothing to do, by `anyio.current_time()`; else None.

        Work in the background counts as something to do.
        """
        return self._idle_since if self.state == "idle" and not self._process.is_working else None


def _is_stream(prompt: object) -> bool:
    """Whether it can be read only once."""
    return isinstance(prompt, AsyncIterable) or (
        isinstance(prompt, Iterable) and not isinstance(prompt, Sequence | Mapping)
    )

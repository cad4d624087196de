"""One turn, for its user: what comes, what it came to, and ways to end it or add to it.

Keeps the agent running as long as someone has it. What is known of the turn is in its state, which the
connection keeps.
"""

from __future__ import annotations

import weakref
from copy import copy
from typing import TYPE_CHECKING, Final, Generic, Literal, TypeAlias, cast

import msgspec

from outrider.errors import OutriderError, UsageError
from outrider.options._validators import seconds
from outrider.protocol import MessageState
from outrider.session._failures import failure_of, hide_known
from outrider.session._prompts import is_prompt_stream
from outrider.session._result import Output_co, Result, ToolRun, find_tool_calls, shape_output
from outrider.session._streams.stream import Reader
from outrider.session._streams.turn_state import Until, is_interrupted, read_until
from outrider.wire import AssistantMessage, Message, ResultMessage, StreamEvent
from outrider.wire.control import CancelAsyncMessage

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from typing import Self

    from outrider.session._connection.conversation import Conversation
    from outrider.session._prompts import Prompt
    from outrider.session._streams.stream import Position
    from outrider.session._streams.turn_state import TurnState

Cancelled: TypeAlias = Literal["cancelled", "finished_first", "killed"]

Delivery: TypeAlias = Literal["sent", "queued", "delivered", "consumed", "withdrawn", "lost"]
"""Where a message stands: written, waiting at the agent, taken up, dealt with, taken back, or lost with the
agent."""

_DELIVERY: Final[dict[MessageState, Delivery]] = {
    MessageState.SENT: "sent",
    MessageState.QUEUED: "queued",
    MessageState.STARTED: "delivered",
    MessageState.CONSUMED: "consumed",
    MessageState.ANSWERED: "consumed",
    MessageState.WITHDRAWN: "withdrawn",
    MessageState.LOST: "lost",
}


class CancelReceipt(msgspec.Struct, frozen=True):
    """The outcome of an attempt to cancel a turn."""

    outcome: Cancelled
    """`cancelled`: the turn ended because of it; `finished_first`: it was over before; `killed`: the agent
    did not react, so it was ended, and the session with it."""
    result: ResultMessage | None = None
    """The result that ended the turn; None if its prompt was withdrawn before it began, or it was killed."""

    @property
    def was_withdrawn(self) -> bool:
        """Whether the prompt was taken back before the agent began. Otherwise a `cancelled` turn was
        interrupted; versions of Claude Code before 2.1.76 can do nothing else."""
        return self.outcome == "cancelled" and self.result is None

    def __str__(self) -> str:
        return self.outcome


def keep_last(turn: Turn[object], count: int) -> None:
    """Keep at least so many of the messages of a turn from now on, and not all of them."""
    turn._state.keeps_last = count  # pyright: ignore[reportPrivateUsage]


class Turn(Generic[Output_co]):
    """A prompt and the messages that answer it.

    `async for message in turn` yields them as they come, up to the result; `text()` only yields what the
    model says; `result()` waits for the end. Several tasks may use all of these at once. A loop continues
    where the one before it stopped; concurrent loops each see everything from there on.
    """

    def __init__(self, conversation: Conversation, state: TurnState, start: Position | None = None) -> None:
        """Made by `Session.send`."""
        self._conversation = conversation
        self._state = state
        self._position = start
        self._reader: weakref.ref[Reader] | None = None

    def __repr__(self) -> str:
        return f"<Turn {self.uuid or '(no prompt yet)'}, {'over' if self.is_over else self.delivery}>"

    @property
    def uuid(self) -> str | None:
        """The id of its first prompt; the agent names it in messages about the turn."""
        return next(iter(self._state.uuids), None)

    @property
    def is_over(self) -> bool:
        """Whether it has its result, or failed."""
        return self._state.is_over and not self._state.is_held

    @property
    def delivery(self) -> Delivery:
        """The state of its last prompt."""
        return _DELIVERY[next(reversed(self._state.uuids.values()), MessageState.SENT)]

    @property
    def messages(self) -> tuple[Message, ...]:
        """All that came for it so far. Stream events are dropped once the whole message is there."""
        return tuple(self._state.shown)

    @property
    def tool_calls(self) -> tuple[ToolRun, ...]:
        """The tools that were called so far, with their inputs and outputs."""
        return find_tool_calls(self.messages)

    # What comes.

    def __aiter__(self) -> Reader:
        """Its messages, up to its result.

        If the result reports a failure, the loop just ends. If the turn ended without a result, it raises
        what `result` would raise, after the last message.
        """
        self._conversation.release()
        stream = self._state.stream
        position = stream.position() if self._position is None else self._position
        if self._reader is not None and self._reader() is not None:
            # Another loop is running. This one starts from there, with a position of its own.
            return Reader(stream, stream.position(position), self._conversation)
        reader = Reader(stream, position, self._conversation)
        self._reader = weakref.ref(reader)
        return reader

    def text(self) -> TextReader:
        """What the model says: pieces of text with `include_partial_messages`, else whole blocks.

        Only the text of the answer: no thinking, and nothing that subagents say.
        """
        return TextReader(aiter(self))

    # Its end.

    async def result(self, *, until: Until | None = None, check: bool = True) -> Result[Output_co]:
        """Wait for the end of the turn, and return its result.

        `until="idle"` also waits for the background work that this turn began, for at most
        `timeouts.background`; `unfinished_tasks` lists what is left then. The default is the `until` of
        `send`.

        A failed turn raises its error: `TurnTimedOut`, `ApiFailed`, `LimitReached`, `TurnInterrupted`,
        `OutputInvalid` (all of them `TurnFailed`), or `ConnectionLost`. Its `result` has what came until
        then. With `check=False`, the result is returned instead, with its `error`. Cancelling the call does
        not cancel the turn.
        """
        state = self._state
        if until is not None:
            read_until("`until`", until)
        self._conversation.release()
        is_patient = (until or state.until) == "idle"
        while state.is_held or not (state.is_settled if is_patient else state.is_over):
            await state.stream.wait_changed()
        result = self._result()
        return result.raise_for_error() if check else result

    def _result(self) -> Result[Output_co]:
        state, connection = self._state, self._conversation.opened()
        message = state.results[-1] if state.results else None
        failure = state.failure
        if failure is not None and not isinstance(failure, OutriderError):
            # A handler raised what is meant to end the whole program.
            raise failure
        messages = state.received
        if failure is None and message is not None:
            failure = failure_of(message, messages, options=self._conversation.options)
        elif failure is not None:
            failure = copy(failure)
        if failure is not None:
            hide_known(failure, connection.transport)
        meter = connection.routing.meter
        usage = state.usage if state.usage is not None else meter.turn
        result: Result[object] = Result(
            message=message,
            messages=tuple(messages),
            usage=usage,
            total_usage=meter.total,
            duration=(state.ended_at or state.sent_at) - state.sent_at,
            unfinished_tasks=tuple(connection.routing.tasks.values()),
            error=failure,
            session_id=message.session_id if message is not None else connection.info.session_id,
            pending=() if self._conversation.gate is None else tuple(self._conversation.gate.pending),
        )
        shape = self._conversation.shape
        if shape is not None and failure is None:
            shape_output(result, shape)
        if result.error is not None:
            result.error.result = result
        return cast("Result[Output_co]", result)

    # Ending it, and adding to it.

    async def cancel(self, *, grace: float | None = None) -> CancelReceipt:
        """End the turn: take its prompt back, or interrupt it, for as long as it takes to take effect.

        If it is not over after `grace` seconds (by default `timeouts.interrupt`), the agent is ended, and the
        session with it. While it waits behind another turn and cannot be taken back, that time does not run:
        the other one is left alone. Cancelling this call does not stop any of it.
        """
        state = self._state
        if grace is not None:
            seconds("`grace`", grace)
        connection = self._conversation.connected()
        was_over = state.is_over
        if not was_over:
            connection.flow.check_loop()
        connection.begin_stop(state, grace=grace)
        while not state.is_over:
            await state.stream.wait_changed()
        message = state.results[-1] if state.results else None
        if state.is_killed:
            return CancelReceipt("killed")
        is_taken_back = not state.uuids or MessageState.WITHDRAWN in state.uuids.values()
        if not was_over and (
            is_taken_back or (message is not None and is_interrupted(message, state.messages))
        ):
            return CancelReceipt("cancelled", message)
        return CancelReceipt("finished_first" if was_over or message is not None else "killed", message)

    async def steer(self, prompt: Prompt) -> Queued:
        """Add to what the agent is doing: it reads this between two of its steps.

        If the turn has no further step, this becomes the next turn. Raises `UsageError` once the turn is
        over.
        """
        if self._state.is_over:
            raise UsageError("The turn is over. Send the next prompt with `session.send(…)`.")
        return await queue(self._conversation, prompt, "next")


class Queued:
    """A message that waits for the agent."""

    def __init__(self, conversation: Conversation, state: TurnState, start: Position | None) -> None:
        """Made by `Turn.steer` and `Session.enqueue`."""
        self._conversation = conversation
        self._state = state
        self.turn = Turn(conversation, state, start)
        """The turn that answers it: its own, or the one into which the agent takes it."""

    def __repr__(self) -> str:
        return f"<Queued {self.uuid}, {self.state}>"

    @property
    def uuid(self) -> str:
        """Its id; the agent names it in messages about it."""
        return self.turn.uuid or ""

    @property
    def state(self) -> Delivery:
        """Its state now."""
        return self.turn.delivery

    async def wait(self) -> Delivery:
        """Wait until it is `consumed`, `withdrawn` or `lost`."""
        while self.state not in ("consumed", "withdrawn", "lost"):
            await self._state.stream.wait_changed()
        return self.state

    async def withdraw(self) -> bool:
        """Withdraw it. False if the agent has already begun to work on it."""
        if self.state in ("consumed", "withdrawn"):
            return self.state == "withdrawn"
        answer = await self._conversation.request(CancelAsyncMessage(self.uuid))
        if answer.cancelled:
            self._conversation.withdrawn(self.uuid)
        return answer.cancelled


class TextReader:
    """Reads the text of a turn: `async for text in turn.text()`."""

    def __init__(self, reader: AsyncIterator[object]) -> None:
        self._reader = reader
        self._is_streamed = False

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> str:
        async for message in self._reader:
            if text := self._text(message):
                return text
        raise StopAsyncIteration

    def _text(self, message: object) -> str:
        if isinstance(message, StreamEvent):
            text = message.text
            self._is_streamed = self._is_streamed or bool(text)
            return text
        if not isinstance(message, AssistantMessage) or message.parent_tool_use_id is not None:
            return ""
        # The whole of what came in pieces says nothing new.
        is_streamed, self._is_streamed = self._is_streamed, False
        return "" if is_streamed or message.error is not None else message.text


async def queue(conversation: Conversation, prompt: Prompt, priority: str) -> Queued:
    """Send a prompt; returns a handle to follow it."""
    if is_prompt_stream(prompt):
        raise UsageError("An iterable of prompts cannot be queued. Queue each, or give it to `send`.")
    return Queued(conversation, *await conversation.send(prompt, "result", priority))

"""The state of one turn: what was sent for it, what came back, how it ended.

Decides nothing: which messages belong to a turn is found out in `routing`, when it has taken too long in
`deadlines`. Holds no session, which may be dropped while the turn continues.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Final, Literal, TypeAlias, get_args

from outrider.options._validators import choice
from outrider.protocol import HOLDING_TASKS, MessageState
from outrider.session._streams.stream import Flow, Position, Stream
from outrider.wire import (
    ApiRetryMessage,
    AssistantMessage,
    CommandLifecycleMessage,
    InitMessage,
    Message,
    ResultMessage,
    SessionStateChangedMessage,
    StatusMessage,
    StreamEvent,
    TaskStartedMessage,
    ToolResultBlock,
    ToolUseBlock,
    UserMessage,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from anyio import CancelScope

    from outrider.session._streams.stream import ResultHold
    from outrider.session._usage import Usage

Until: TypeAlias = Literal["result", "idle"]
"""What a turn waits for: its result, or also the end of its background work."""

read_until: Final = choice(*get_args(Until))
"""Raises `OptionsError` for any other value."""

MakeFailure: TypeAlias = "Callable[[TurnState], BaseException]"
"""Makes the error of a failed turn, from what has come by then."""

_KEPT_PARTIALS: Final = 4096
"""How many pieces of an unfinished message are kept, to show how far it came."""

_PRELIMINARY: Final = (CommandLifecycleMessage, InitMessage, SessionStateChangedMessage, StatusMessage)
"""Messages that come before the model is called: no sign of life yet."""

_WAITING: Final = (MessageState.SENT, MessageState.QUEUED)
_TAKEN_UP: Final = (MessageState.STARTED, MessageState.CONSUMED)
_FINAL: Final = (MessageState.ANSWERED, MessageState.WITHDRAWN, MessageState.LOST)


_INTERRUPTED: Final = "[Request interrupted by user"


class TurnState:
    def __init__(self, flow: Flow, until: Until, now: float) -> None:
        read_until("`until`", until)
        self.stream = Stream(flow)
        """Its messages, for readers."""
        self.until = until
        self.uuids: dict[str, MessageState] = {}
        """The messages sent for it, each with its state."""
        self.is_fed = True
        """Whether all its messages have been sent."""
        self.is_kept = True
        """Whether its messages are kept, for its result and for later readers."""
        self.keeps_last: int | None = None
        """How many messages are kept at least, if not all: nobody reads the others."""
        self.messages: list[Message] = []
        """All that came for it, except pieces of messages that have come whole."""
        self._partials: deque[Message] = deque(maxlen=_KEPT_PARTIALS)
        self.results: list[ResultMessage] = []
        self._hold: ResultHold | None = None
        self._held_from = 0
        self.usage: Usage | None = None
        self.failure: BaseException | None = None
        """Why it failed, if its result does not say so, or says something wrong."""
        self.is_doubtful = False
        """Whether the agent may not have got its prompt, and the user has no handle to it."""
        self.make_failure: MakeFailure | None = None
        """Makes the failure of a turn that is being stopped, unless it is answered first."""
        self.input_error: BaseException | None = None
        """Why not all of its messages could be sent."""
        self.feeding: CancelScope | None = None
        """Set while its messages are being made and sent."""
        self.is_over = False
        """It has its result, or failed."""
        self.is_settled = False
        """It is over, and so is its background work."""
        self.is_stopping = False
        self.grace = 0.0
        """How long it may take to end, once it is being stopped."""
        self.stopping: CancelScope | None = None
        """Set while the agent is asked to end it, with the deadline for that."""
        self.is_killed = False
        """Whether the agent had to be ended to end it."""
        self.open_tools: set[str] = set()
        self.open_tasks: set[str] = set()
        """Its background tasks that should be waited for."""
        self.is_owed_report = False
        """Such a task has ended, and the agent is about to report it to the model in a turn of its own."""
        # Times, on the event loop's clock.
        self.sent_at = now
        self.front_at: float | None = None
        """Since when it is first in line; None while another turn is before it."""
        self.prompted_at = now
        """When a prompt was sent for it while no other was unanswered."""
        self.has_sign_of_life = False
        self.retrying_since: float | None = None
        self.answered_at: float | None = None
        self.ended_at: float | None = None

    @property
    def is_known(self) -> bool:
        """Whether the agent has said anything about any of its prompts."""
        return any(state is not MessageState.SENT for state in self.uuids.values())

    @property
    def is_answered(self) -> bool:
        """Whether every message sent for it has its result, or was withdrawn."""
        return self.is_fed and all(state in _FINAL for state in self.uuids.values())

    @property
    def has_begun(self) -> bool:
        """Whether the agent works on any of its messages."""
        return any(state in _TAKEN_UP for state in self.uuids.values())

    @property
    def waiting_uuids(self) -> list[str]:
        """The messages that the agent has not begun."""
        return [uuid for uuid, state in self.uuids.items() if state in _WAITING]

    @property
    def is_waiting_for_prompts(self) -> bool:
        """Whether all its messages are answered, and its user will send more."""
        return not self.is_fed and all(state in _FINAL for state in self.uuids.values())

    @property
    def is_withdrawn(self) -> bool:
        """Whether it was withdrawn before the agent began."""
        return bool(self.uuids) and not self.results and MessageState.WITHDRAWN in self.uuids.values()

    @property
    def is_quiet(self) -> bool:
        """Whether its background work is done."""
        return not self.open_tasks and not self.is_owed_report

    @property
    def is_held(self) -> bool:
        """Whether its result has come, but is held back from readers."""
        return self._hold is not None and not self._hold.is_released

    def hold(self, hold: ResultHold) -> None:
        """Hold back the result that just came."""
        if not self.is_held:
            self._held_from = len(self.messages) - 1
        self._hold = hold
        hold.add_turn(self)

    def reading_position(self) -> Position | None:
        """A position to read it from; None if it is not kept."""
        return self.stream.position() if self.is_kept else None

    @property
    def shown(self) -> list[Message]:
        """What its readers may see so far, as `received`."""
        return self.messages[: self._held_from] if self.is_held else self.received

    @property
    def received(self) -> list[Message]:
        """All that came for it so far, with the pieces of an unfinished message."""
        return [*self.messages, *self._partials]

    def keep(self, message: Message) -> None:
        """Keep a message for its result, if those are kept."""
        if self.is_kept:
            self.messages.append(message)
            self._trim()

    def _trim(self) -> None:
        """Drop the oldest messages, but not while some are held: their places are counted."""
        last = self.keeps_last
        if last is not None and len(self.messages) > 2 * last and not self.is_held:
            del self.messages[:-last]

    def take(self, message: Message, now: float) -> None:
        """Note what a message means for the turn."""
        if isinstance(message, StreamEvent | AssistantMessage | UserMessage):
            self.take_output([message], {type(message)})
            return
        self.keep(message)
        if isinstance(message, ResultMessage):
            self._partials.clear()
            self.open_tools.clear()
            self.answered_at = now
            if not self.is_kept:
                self.results.clear()
            self.results.append(message)
        elif isinstance(message, TaskStartedMessage):
            if message.task_type in HOLDING_TASKS:
                self.open_tasks.add(message.task_id)
        elif isinstance(message, ApiRetryMessage):
            # A sign of the agent, not of the model: retries have a limit of their own.
            self.has_sign_of_life = True
            self.retrying_since = now if self.retrying_since is None else self.retrying_since
            return
        if not isinstance(message, _PRELIMINARY):
            self.has_sign_of_life = True
            self.retrying_since = None

    def take_output(self, messages: list[Message], kinds: set[type]) -> None:
        """Take messages of and to the model of these types, which came together."""
        if kinds == {StreamEvent}:
            self._partials.extend(messages)
        else:
            if self.is_kept:
                self.messages += (message for message in messages if type(message) is not StreamEvent)
                self._trim()
            self._follow_tools(messages)
        self.has_sign_of_life = True
        self.retrying_since = None

    def _follow_tools(self, messages: list[Message]) -> None:
        partials, open_tools = self._partials, self.open_tools
        for message in messages:
            if type(message) is AssistantMessage:
                if message.parent_tool_use_id is None:
                    if partials:
                        partials.clear()
                    for block in message.content:
                        if type(block) is ToolUseBlock:
                            open_tools.add(block.id)
            elif type(message) is StreamEvent:
                partials.append(message)
            elif type(message) is UserMessage and type(message.content) is list:
                for block in message.content:
                    if type(block) is ToolResultBlock:
                        open_tools.discard(block.tool_use_id)

    def end(self, now: float, failure: BaseException | None = None) -> None:
        """End it: it has its result, or failed. Later calls do nothing."""
        if self.is_over:
            return
        self.is_over = True
        self.ended_at = now
        if self.make_failure is not None and self._is_cut_off:
            failure = self.make_failure(self)
        self.failure = self.failure or self.input_error or failure
        if self.until == "result" or self.failure is not None:
            self.stream.end(self.failure)
        self.stream.wake()

    @property
    def _is_cut_off(self) -> bool:
        if not self.results or is_interrupted(self.results[-1], self.messages):
            return True
        return any(state is not MessageState.ANSWERED for state in self.uuids.values())

    def hurry(self, now: float, grace: float) -> None:
        """Shorten the grace period of a turn that is being stopped."""
        self.grace = min(self.grace, grace)
        if self.stopping is not None:
            self.stopping.deadline = min(self.stopping.deadline, now + grace)

    def settle(self, now: float) -> None:
        """Note that all its work is done."""
        self.end(now)
        self.is_settled = True
        self.ended_at = now if self.until == "idle" else self.ended_at
        self.stream.end(self.failure)
        self.stream.wake()


def is_interrupted(result: ResultMessage, messages: Sequence[Message] = ()) -> bool:
    """Whether a result says that its turn, with these messages, was cut off."""
    if result.terminal_reason:
        return result.terminal_reason.startswith("aborted")
    # Old versions give no reason, but say so before.
    return result.subtype == "error_during_execution" and any(
        isinstance(message, UserMessage) and _INTERRUPTED in message.text for message in messages[-4:]
    )

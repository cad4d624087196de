"""Tracks when a turn is over, and when a run is over.

Results do not match prompts one to one: queued messages are answered together or join a running turn, and
background work produces results of its own. Only uuids tie a result to what it answers. Has no clock:
`outrider.session` keeps the time.
"""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from outrider.protocol._peer import Table
from outrider.wire import (
    AssistantMessage,
    CommandLifecycleMessage,
    InitMessage,
    ResultMessage,
    SessionStateChangedMessage,
    StreamEvent,
    TaskNotificationMessage,
    TaskStartedMessage,
    TaskUpdatedMessage,
    Value,
)
from outrider.wire.choices import TERMINAL_TASK_STATUSES

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable


class MessageState(Enum):
    """The state of a sent message."""

    SENT = "sent"
    QUEUED = "queued"
    STARTED = "started"
    CONSUMED = "consumed"
    ANSWERED = "answered"
    WITHDRAWN = "withdrawn"
    LOST = "lost"


class MessageSignal(Enum):
    """What changes the state of a sent message."""

    QUEUED = "lifecycle queued"
    STARTED = "lifecycle started"
    COMPLETED = "lifecycle completed"
    CANCELLED = "lifecycle cancelled"
    RESULT = "result"
    EOF = "end of output"


_ENDINGS: Final = {MessageSignal.RESULT: MessageState.ANSWERED, MessageSignal.EOF: MessageState.LOST}

MESSAGE_TABLE: Final = Table(
    MessageState.SENT,
    {
        MessageState.SENT: {
            MessageSignal.QUEUED: MessageState.QUEUED,
            MessageSignal.STARTED: MessageState.STARTED,
            MessageSignal.COMPLETED: MessageState.CONSUMED,
            MessageSignal.CANCELLED: MessageState.WITHDRAWN,
            **_ENDINGS,
        },
        MessageState.QUEUED: {
            MessageSignal.STARTED: MessageState.STARTED,
            MessageSignal.COMPLETED: MessageState.CONSUMED,
            MessageSignal.CANCELLED: MessageState.WITHDRAWN,
            **_ENDINGS,
        },
        MessageState.STARTED: {
            MessageSignal.COMPLETED: MessageState.CONSUMED,
            MessageSignal.CANCELLED: MessageState.WITHDRAWN,
            **_ENDINGS,
        },
        # Folded into a turn that continues: that turn's result answers it.
        MessageState.CONSUMED: {**_ENDINGS},
        MessageState.ANSWERED: {},
        MessageState.WITHDRAWN: {},
        MessageState.LOST: {},
    },
)
"""The life of a sent message. After its result the lifecycle frames that follow say nothing new."""


class RunState(Enum):
    """The state of the whole run: all work that the messages sent so far have started."""

    QUIET = "quiet"
    BUSY = "busy"
    ASKING = "asking"
    SETTLING = "settling"
    OVER = "over"
    CLOSED = "closed"


class RunSignal(Enum):
    """What changes the state of a run."""

    PROMPT = "message sent"
    WORK = "work seen"
    QUESTION = "question open"
    TURN_DONE = "answered, work goes on"
    ALL_DONE = "answered, nothing left"
    EOF = "end of output"


_MOVES: Final = {
    RunSignal.PROMPT: RunState.BUSY,
    RunSignal.WORK: RunState.BUSY,
    RunSignal.QUESTION: RunState.ASKING,
    RunSignal.TURN_DONE: RunState.SETTLING,
    RunSignal.ALL_DONE: RunState.OVER,
    RunSignal.EOF: RunState.CLOSED,
}


def _row(state: RunState, **also: RunState) -> dict[RunSignal, RunState]:
    moves = {**_MOVES, **{RunSignal[name]: target for name, target in also.items()}}
    return {signal: target for signal, target in moves.items() if target is not state}


RUN_TABLE: Final = Table(
    RunState.QUIET,
    {
        # Nothing was asked yet: that nothing is left to do ends no run.
        RunState.QUIET: _row(RunState.QUIET, TURN_DONE=RunState.QUIET, ALL_DONE=RunState.QUIET),
        RunState.BUSY: _row(RunState.BUSY),
        # A message sent meanwhile waits behind the question.
        RunState.ASKING: _row(RunState.ASKING, PROMPT=RunState.ASKING),
        RunState.SETTLING: _row(RunState.SETTLING),
        # Background work may wake the agent again; that opens the run again.
        RunState.OVER: _row(RunState.OVER),
        RunState.CLOSED: {},
    },
)
"""The life of a run."""

HOLDING_TASKS: Final = frozenset(("local_agent", "local_workflow"))
"""Tasks that a run waits for. Shells are not: one that never ends would hold the run for ever."""

_LIFECYCLE: Final = {
    "queued": MessageSignal.QUEUED,
    "started": MessageSignal.STARTED,
    "completed": MessageSignal.COMPLETED,
    "cancelled": MessageSignal.CANCELLED,
}


class MessageMoved(Value):
    """A sent message has a new state."""

    uuid: str
    state: MessageState


class TurnBegan(Value):
    """The agent began to work on messages; none are named if it works on its own, or names none."""

    uuids: list[str]


class TurnEnded(Value):
    """A turn is over; its result answers these messages, or none where background work caused it."""

    result: ResultMessage
    uuids: list[str]


class RunMoved(Value):
    """The run has a new state."""

    state: RunState


TurnEvent: TypeAlias = MessageMoved | TurnBegan | TurnEnded | RunMoved
"""What `Turns` finds out."""


class Turns:
    """Follows one connection. Tell it what is sent (`sent`) and what arrives (`receive`, `receive_eof`)."""

    def __init__(self) -> None:
        self.run = RUN_TABLE.initial
        self.session_state: str | None = None
        """As the agent reports it: `running`, `requires_action`, `idle`; None if it never did."""
        self.tasks: set[str] = set()
        """Background tasks that the run waits for."""
        self.names_prompts = False
        """Whether the agent has shown that it says which messages it works on."""
        self._waiting: dict[str, MessageState] = {}
        self._ended: dict[str, MessageState] = {}
        self.is_turn_open = False
        """Whether the agent is at work on a turn, as far as is known."""
        self._unnamed: list[str] = []
        """Messages of the turn in progress that its beginning did not name."""
        # Each takes the class that it stands under.
        self._handlers: dict[type, Callable[[Any], list[TurnEvent]]] = {
            AssistantMessage: self._on_output,
            CommandLifecycleMessage: self._on_lifecycle,
            InitMessage: self._on_init,
            ResultMessage: self._on_result,
            SessionStateChangedMessage: self._on_session_state,
            StreamEvent: self._on_output,
            TaskNotificationMessage: self._on_task_status,
            TaskStartedMessage: self._on_task_started,
            TaskUpdatedMessage: self._on_task_status,
        }

    def state_of(self, uuid: str) -> MessageState | None:
        """The state of a sent message; None for one that was never sent, or has been forgotten."""
        return self._waiting.get(uuid) or self._ended.get(uuid)

    @property
    def outstanding(self) -> list[str]:
        """The sent messages that have neither a result nor been withdrawn, oldest first."""
        return list(self._waiting)

    @property
    def is_over(self) -> bool:
        """Whether everything is answered and no background work is left."""
        return self.run in (RunState.OVER, RunState.CLOSED)

    # What happens.

    def sent(self, uuid: str) -> list[TurnEvent]:
        """Note that a message with this uuid was written to the agent."""
        events: list[TurnEvent] = []
        if uuid in self._ended:
            # The agent drops a message whose uuid it has seen.
            return events
        self._waiting.setdefault(uuid, MESSAGE_TABLE.initial)
        if self.run is RunState.CLOSED:
            self._move(uuid, MessageSignal.EOF, events)
        return events + self._signal(RunSignal.PROMPT)

    def forget(self, uuid: str) -> None:
        """Drop a message that has ended: its state is not needed any more."""
        self._ended.pop(uuid, None)

    def withdrawn(self, uuids: Iterable[str]) -> list[TurnEvent]:
        """Note that the agent dropped these messages."""
        events: list[TurnEvent] = []
        for uuid in uuids:
            self._move(uuid, MessageSignal.CANCELLED, events)
        return events + self._settle()

    def receive(self, message: object) -> list[TurnEvent]:
        """Take a message that arrived; returns what it means for turns. Most mean nothing."""
        handle = self._handlers.get(type(message))
        return [] if handle is None else handle(message)

    def receive_eof(self) -> list[TurnEvent]:
        """Note the end of the agent's output: messages without a result are lost."""
        events: list[TurnEvent] = []
        for uuid in self.outstanding:
            self._move(uuid, MessageSignal.EOF, events)
        self.is_turn_open = False
        self.tasks.clear()
        return events + self._signal(RunSignal.EOF)

    # How single messages are taken.

    def _on_lifecycle(self, message: CommandLifecycleMessage) -> list[TurnEvent]:
        self.names_prompts = True
        events: list[TurnEvent] = []
        signal = _LIFECYCLE.get(message.state)
        is_ours = message.command_uuid in self._waiting
        if signal is not None:
            self._move(message.command_uuid, signal, events)
        if signal is MessageSignal.CANCELLED:
            events += self._settle()
        elif signal is MessageSignal.STARTED and not is_ours and not self.is_turn_open:
            # It works on its own, like a resumed session that was left in the middle of a call.
            events += self._begin([])
        return events

    def _on_init(self, message: InitMessage) -> list[TurnEvent]:
        self.names_prompts = self.names_prompts or bool(message.user_message_uuids)
        uuids = [uuid for uuid in message.user_message_uuids or () if uuid in self._waiting]
        events: list[TurnEvent] = []
        for uuid in uuids:
            self._move(uuid, MessageSignal.STARTED, events)
        # The agent names no more than 64, here and in the result, but has said of each that it is started.
        self._unnamed = [uuid for uuid in self._started if uuid not in uuids] if uuids else []
        return events + self._begin(uuids + self._unnamed)

    def _begin(self, uuids: list[str]) -> list[TurnEvent]:
        self.is_turn_open = True
        return [TurnBegan(list(uuids)), *self._signal(RunSignal.WORK)]

    def _on_output(self, message: AssistantMessage | StreamEvent) -> list[TurnEvent]:
        if self.is_turn_open or message.parent_tool_use_id is not None:
            return []
        # A turn whose beginning was not announced.
        self.is_turn_open = True
        return self._signal(RunSignal.WORK)

    def _on_result(self, message: ResultMessage) -> list[TurnEvent]:
        uuids = self._answered_by(message)
        events: list[TurnEvent] = []
        for uuid in uuids:
            self._move(uuid, MessageSignal.RESULT, events)
        self.is_turn_open = False
        self._unnamed = []
        return [*events, TurnEnded(message, uuids), *self._settle()]

    def _answered_by(self, result: ResultMessage) -> list[str]:
        """The messages of ours that a result ends."""
        waiting = self.outstanding
        named = set(result.user_message_uuids or ())
        if not named and result.user_message_uuid:
            named = {result.user_message_uuid}
        consumed = [uuid for uuid in waiting if self._waiting[uuid] is MessageState.CONSUMED]
        if named:
            self.names_prompts = True
            named.update(consumed, self._unnamed)
            return [uuid for uuid in waiting if uuid in named]
        if result.origin is not None and result.origin.get("kind") != "human":
            return []
        taken = [*consumed, *self._started]
        if taken or self.names_prompts:
            # If none was begun, it ended a turn of its own, as after a resume.
            return taken
        # An old version never says which: then it is the message that has waited longest.
        return waiting[:1]

    @property
    def _started(self) -> list[str]:
        return [uuid for uuid, state in self._waiting.items() if state is MessageState.STARTED]

    def _on_session_state(self, message: SessionStateChangedMessage) -> list[TurnEvent]:
        self.session_state = message.state
        if message.state == "requires_action":
            return self._signal(RunSignal.QUESTION)
        if message.state == "running" and (self.is_turn_open or self._waiting):
            return self._signal(RunSignal.WORK)
        # Running with nothing unanswered is background work: its turn, if it has one, announces itself.
        if message.state == "idle":
            # No turn and no task runs then: one whose end was not seen is over too.
            self.is_turn_open = False
            self.tasks.clear()
        return self._settle()

    def _on_task_started(self, message: TaskStartedMessage) -> list[TurnEvent]:
        if message.task_type in HOLDING_TASKS:
            self.tasks.add(message.task_id)
        return []

    def _on_task_status(self, message: TaskUpdatedMessage | TaskNotificationMessage) -> list[TurnEvent]:
        if message.task_id not in self.tasks or message.status not in TERMINAL_TASK_STATUSES:
            return []
        self.tasks.discard(message.task_id)
        if self.session_state is None and message.status in ("completed", "failed"):
            # The agent reports it to the model next, in a turn of its own. Without a reported state, only
            # that turn's result shows that it is done.
            return []
        return self._settle()

    def _move(self, uuid: str, signal: MessageSignal, events: list[TurnEvent]) -> None:
        state = self._waiting.get(uuid)
        if state is None:
            return
        after = MESSAGE_TABLE.next(state, signal)
        if after is state:
            return
        if MESSAGE_TABLE.is_final(after):
            del self._waiting[uuid]
            self._ended[uuid] = after
        else:
            self._waiting[uuid] = after
        events.append(MessageMoved(uuid, after))

    def _settle(self) -> list[TurnEvent]:
        """If nothing is unanswered, the run is over, or continues only in the background."""
        if self.is_turn_open or self._waiting:
            return []
        if self.session_state == "requires_action":
            # Background work waits for an answer: the end of other work does not change that.
            return self._signal(RunSignal.QUESTION)
        is_working = self.session_state not in (None, "idle") or bool(self.tasks)
        return self._signal(RunSignal.TURN_DONE if is_working else RunSignal.ALL_DONE)

    def _signal(self, signal: RunSignal) -> list[TurnEvent]:
        after = RUN_TABLE.next(self.run, signal)
        if after is self.run:
            return []
        self.run = after
        return [RunMoved(after)]

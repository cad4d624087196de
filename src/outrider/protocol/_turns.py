"""Tracks when a turn is over, when a run is over, and when the agent's input may be closed.

Results do not match prompts one to one: queued messages are answered together or join a running turn, and
background work produces results of its own. Only uuids tie a result to what it answers. Has no clock:
`is_ceiling_armed` tells when a time limit applies, and `outrider.session` keeps the time.
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
    """Where a sent message stands."""

    SENT = "sent"
    QUEUED = "queued"
    STARTED = "started"
    CONSUMED = "consumed"
    ANSWERED = "answered"
    WITHDRAWN = "withdrawn"
    LOST = "lost"


class MessageSignal(Enum):
    """What moves a sent message on."""

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
        # Folded into a turn that goes on: that turn's result answers it.
        MessageState.CONSUMED: {**_ENDINGS},
        MessageState.ANSWERED: {},
        MessageState.WITHDRAWN: {},
        MessageState.LOST: {},
    },
)
"""The life of a sent message. After its result the lifecycle frames that follow say nothing new."""


class RunState(Enum):
    """Where the whole run stands: all that the messages sent so far have set going."""

    QUIET = "quiet"
    BUSY = "busy"
    ASKING = "asking"
    SETTLING = "settling"
    OVER = "over"
    CLOSED = "closed"


class RunSignal(Enum):
    """What moves a run on."""

    PROMPT = "message sent"
    WORK = "work seen"
    QUESTION = "question open"
    TURN_DONE = "answered, work goes on"
    ALL_DONE = "answered, nothing left"
    CEILING = "ceiling passed"
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
        # Only here a time limit runs: the answer is there, and nobody waits for what goes on.
        RunState.SETTLING: _row(RunState.SETTLING, CEILING=RunState.OVER),
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
    """The agent took up messages; none named where it works on its own account, or names none."""

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
    """Follows one connection. Tell it what is sent (`sent`) and what arrives (`receive`, `receive_eof`).

    `can_be_asked` says whether the agent may need an answer of the host (hooks, permissions, tools, servers):
    only then must its input stay open until all work is done.
    """

    def __init__(self, *, can_be_asked: bool = True) -> None:
        self.can_be_asked = can_be_asked
        self.run = RUN_TABLE.initial
        self.session_state: str | None = None
        """As the agent reports it: `running`, `requires_action`, `idle`; None if it never did."""
        self.current: list[str] = []
        """The messages that the turn in progress answers, as far as they are known."""
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
        """Where a sent message stands; None for one that was never sent, or has been forgotten."""
        return self._waiting.get(uuid) or self._ended.get(uuid)

    @property
    def outstanding(self) -> list[str]:
        """The sent messages that have neither a result nor been withdrawn, oldest first."""
        return list(self._waiting)

    @property
    def is_over(self) -> bool:
        """Whether all that was asked is answered and nothing goes on behind it."""
        return self.run in (RunState.OVER, RunState.CLOSED)

    @property
    def is_ceiling_armed(self) -> bool:
        """Whether time runs: the answer is there and the session goes on without anything to wait for."""
        return self.run is RunState.SETTLING and not self.tasks

    @property
    def may_close_input(self) -> bool:
        """Whether the agent needs its input no more, once no further message is to be sent."""
        if self.run is RunState.SETTLING:
            return not self.can_be_asked
        return self.is_over or self.run is RunState.QUIET

    # What happens.

    def sent(self, uuid: str) -> list[TurnEvent]:
        """A message with this uuid was written to the agent."""
        events: list[TurnEvent] = []
        if uuid in self._ended:
            # The agent drops a message whose uuid it has seen.
            return events
        self._waiting.setdefault(uuid, MESSAGE_TABLE.initial)
        if self.run is RunState.CLOSED:
            self._move(uuid, MessageSignal.EOF, events)
        return events + self._signal(RunSignal.PROMPT)

    def forget(self, uuid: str) -> None:
        """Drop a message that has ended: nobody will ask for its state again."""
        self._ended.pop(uuid, None)

    def withdrawn(self, uuids: Iterable[str]) -> list[TurnEvent]:
        """The agent confirmed that it will not take these messages."""
        events: list[TurnEvent] = []
        for uuid in uuids:
            self._move(uuid, MessageSignal.CANCELLED, events)
        return events + self._settle()

    def ceiling_passed(self) -> list[TurnEvent]:
        """The time limit that `is_ceiling_armed` called for has passed."""
        return self._signal(RunSignal.CEILING) if self.is_ceiling_armed else []

    def receive(self, message: object) -> list[TurnEvent]:
        """A message arrived; gives back what it means for turns. Most mean nothing."""
        handle = self._handlers.get(type(message))
        return [] if handle is None else handle(message)

    def receive_eof(self) -> list[TurnEvent]:
        """The agent's output has ended: messages without a result are lost."""
        events: list[TurnEvent] = []
        for uuid in self.outstanding:
            self._move(uuid, MessageSignal.EOF, events)
        self.is_turn_open = False
        self.current = []
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
            # It works on its own account, as a resumed session does that was left in the middle of a call.
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
        self.current = uuids
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
        self.current, self._unnamed = [], []
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
            # Where none was taken up, it ended a turn of its own, as after a resume.
            return taken
        # An old agent never says: then it is the message that has waited longest.
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
        # Running with nothing owed is work in the background: its turn, if it has one, announces itself.
        if message.state == "idle":
            # Then no turn and no task goes on either: one whose end was not seen is over too.
            self.is_turn_open = False
            self.current = []
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
            # The agent tells the model next, in a turn of its own; with no state reported, only that
            # turn's result shows that it is done.
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
        """Nothing more is owed? Then the run is over, or goes on only in the background."""
        if self.is_turn_open or self._waiting:
            return []
        if self.session_state == "requires_action":
            # Something in the background waits for an answer: other work that ends does not end that.
            return self._signal(RunSignal.QUESTION)
        is_working = self.session_state not in (None, "idle") or bool(self.tasks)
        return self._signal(RunSignal.TURN_DONE if is_working else RunSignal.ALL_DONE)

    def _signal(self, signal: RunSignal) -> list[TurnEvent]:
        after = RUN_TABLE.next(self.run, signal)
        if after is self.run:
            return []
        self.run = after
        return [RunMoved(after)]

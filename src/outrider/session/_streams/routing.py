"""Which messages belong to which turn, and when turns are over.

Does no I/O and has no clock of its own: it is told what was sent, what arrived, and at what time. How long a
turn may take is decided in `_connection/deadlines`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec

from outrider.errors import TurnInterrupted
from outrider.protocol import HOLDING_TASKS, MessageMoved, MessageState, RunMoved, TurnBegan, TurnEnded, Turns
from outrider.session._result import UnfinishedTask
from outrider.session._streams.stream import Stream
from outrider.session._usage import UsageMeter
from outrider.wire import (
    AssistantMessage,
    BackgroundTasksChangedMessage,
    CommandLifecycleMessage,
    ConversationResetMessage,
    ResultMessage,
    StreamEvent,
    TaskNotificationMessage,
    TaskProgressMessage,
    TaskStartedMessage,
    TaskUpdatedMessage,
    UserMessage,
)
from outrider.wire.choices import TERMINAL_TASK_STATUSES

if TYPE_CHECKING:
    from collections.abc import Iterable

    from outrider.protocol import TurnEvent
    from outrider.session._connection.observers import Observer
    from outrider.session._streams.stream import Flow, ResultHold
    from outrider.session._streams.turn_state import TurnState
    from outrider.wire import Message


class _Task(msgspec.Struct, eq=False):
    owners: list[TurnState]
    run: str
    """What a result names it by."""
    is_holding: bool
    is_reported: bool
    """Whether its end is told to the model in a turn of its own: not if its call was waited for."""
    is_over: bool = False


class TaskOwners:
    """Knows which turns the background tasks of one connection belong to."""

    def __init__(self) -> None:
        self._tasks: dict[str, _Task] = {}
        self._calls: dict[str, _Task] = {}
        """By the call that began each, which the messages of a subagent name."""
        self._due: list[_Task] = []
        """Those that have ended, in the order in which the agent tells of them."""

    def add(self, message: TaskStartedMessage, states: list[TurnState]) -> None:
        """A task was begun in a turn of these."""
        is_alone = message.is_backgrounded is not False and message.parent_task_id is None
        is_holding = message.task_type in HOLDING_TASKS
        task = _Task(list(states), message.run_id or message.task_id, is_holding, is_alone)
        self._tasks[message.task_id] = task
        if message.tool_use_id is not None:
            self._calls[message.tool_use_id] = task

    def update(self, message: TaskUpdatedMessage | TaskNotificationMessage) -> None:
        """A task has moved on, perhaps to its end."""
        task = self._tasks.get(message.task_id)
        if task is None or task.is_over:
            return
        if isinstance(message, TaskUpdatedMessage) and message.patch.get("is_backgrounded"):
            task.is_reported = True
        if message.status in TERMINAL_TASK_STATUSES:
            task.is_over = True
            # A command that was stopped is not told of, a subagent is.
            if task.is_reported and (task.is_holding or message.status in ("completed", "failed")):
                self._due.append(task)

    def owners_of(self, message: Message) -> list[TurnState]:
        """The turns that a message about a task, or of a subagent, belongs to; none if that is not known."""
        task: _Task | None = None
        if isinstance(message, TaskStartedMessage):
            task = self._tasks.get(message.parent_task_id or "")
        elif isinstance(message, TaskProgressMessage | TaskUpdatedMessage | TaskNotificationMessage):
            task = self._tasks.get(message.task_id)
        elif isinstance(message, AssistantMessage | UserMessage) and message.parent_tool_use_id is not None:
            task = self._calls.get(message.parent_tool_use_id)
        return [] if task is None else task.owners

    def own_any_of(self, messages: list[Message]) -> bool:
        """Whether any message of the model, or to it, comes from a subagent that is known here."""
        calls = self._calls
        return bool(calls) and any(
            getattr(message, "parent_tool_use_id", None) in calls for message in messages
        )

    @property
    def next_owners(self) -> list[TurnState] | None:
        """The turns whose work is told of next; None if nothing is due."""
        return list(self._due[0].owners) if self._due else None

    def take_reported(self, result: ResultMessage) -> list[TurnState] | None:
        """The turns whose work a result reports; None if that is not known."""
        run = None if result.origin is None else result.origin.get("runId")
        runs = [task.run for task in self._due]
        if not runs or (run is not None and run not in runs):
            return None
        # What is due before it was told of with something else, or not at all.
        end = 1 if run is None else runs.index(run) + 1
        owners = list(self._due[end - 1].owners)
        del self._due[:end]
        return owners

    def is_owed_to(self, state: TurnState) -> bool:
        """Whether something that such a turn waits for has ended and is still to be told of."""
        return any(task.is_holding and state in task.owners for task in self._due)

    def forget(self, state: TurnState) -> None:
        """Nothing is expected for a turn any more."""
        for task in {*self._tasks.values(), *self._calls.values()}:
            if state in task.owners:
                task.owners.remove(state)
        for tasks in (self._tasks, self._calls):
            for key in [key for key, task in tasks.items() if task.is_over and not task.owners]:
                del tasks[key]

    def clear(self) -> None:
        """The run is over: what was due was told of, or never will be."""
        self._due.clear()


_OUTPUT: Final = frozenset((StreamEvent, AssistantMessage, UserMessage))
"""What the model says and what tools gave: within a turn, they begin nothing and end nothing."""


class Routing:
    """Gives each message to the turns that it belongs to, and all of them to `everything`."""

    def __init__(self, flow: Flow, *, can_be_asked: bool, is_resumed: bool = False) -> None:
        self.everything = Stream(flow, is_whole=True)
        self.turns = Turns(can_be_asked=can_be_asked)
        self.meter = UsageMeter(resumed=is_resumed)
        self.tasks: dict[str, UnfinishedTask] = {}
        """What goes on in the background, by id."""
        self.observers: list[Observer] = []
        self.outstanding: list[TurnState] = []
        """Turns that have no result yet, oldest first."""
        self.settling: list[TurnState] = []
        """Turns that have theirs, with work that they began still going on."""
        self._by_uuid: dict[str, TurnState] = {}
        self._current: list[TurnState] | None = None
        """The turns that the agent works on: none of ours if it works on its own account."""
        self._hearing: list[TurnState] = []
        """The turns that what it says on its own account belongs to."""
        self._task_owners = TaskOwners()

    @property
    def is_on_its_own(self) -> bool:
        """Whether the agent works on a turn that nobody here asked for."""
        return self._current is not None and not self._current

    @property
    def foremost(self) -> list[TurnState]:
        """The turns that are being worked on, or else the one that has waited longest."""
        if self._current is not None:
            return list(self._current)
        return [self._oldest] if self._oldest is not None else self.outstanding[:1]

    @property
    def _oldest(self) -> TurnState | None:
        """The first turn that the agent owes something: none that waits for prompts of its user."""
        for state in self.outstanding:
            if not state.is_waiting_for_prompts:
                return state
        return None

    @property
    def front(self) -> TurnState | None:
        """The first of them."""
        if self._current is not None:
            return self._current[0] if self._current else None
        return self._oldest or (self.outstanding[0] if self.outstanding else None)

    def is_behind_another(self, state: TurnState) -> bool:
        """Whether an interrupt would hit another turn."""
        return state not in self.foremost and bool(self.foremost)

    # What is sent.

    def begin(self, state: TurnState) -> None:
        """A turn is about to be sent. Raises what an observer has against it."""
        for observer in self.observers:
            observer.begins()
        self.outstanding.append(state)
        self._move_up(state.sent_at)

    def sent(self, state: TurnState, uuid: str, now: float) -> None:
        """A message of a turn is about to be written."""
        if state.is_waiting_for_prompts:
            state.prompted_at = now
        state.uuids[uuid] = MessageState.SENT
        self._by_uuid[uuid] = state
        self._move_up(now)
        self._apply(self.turns.sent(uuid), now)

    def fed(self, state: TurnState, now: float) -> None:
        """All messages of a turn have been sent."""
        state.is_fed = True
        self._settle(state, now)

    def withdrawn(self, uuids: Iterable[str], now: float) -> None:
        """The agent confirmed that it will not take these messages."""
        self._apply(self.turns.withdrawn(uuids), now)

    def fail(self, state: TurnState, failure: BaseException | None, now: float) -> None:
        """A turn is given up: nothing will be heard of it, or nobody wants to hear it."""
        uuids = [uuid for uuid in state.uuids if uuid in self._by_uuid]
        self._end(state, now, failure)
        self._settled(state, now)
        self._apply(self.turns.withdrawn(uuids), now)

    # What arrives.

    def receive(
        self,
        messages: list[Message],
        kinds: set[type],
        size: int,
        now: float,
        hold: ResultHold | None = None,
    ) -> None:
        """Take messages that came together, and are of these types; with a hold, a result alone."""
        if self.turns.is_turn_open and kinds <= _OUTPUT and not self._task_owners.own_any_of(messages):
            # Nearly all chunks: all of it belongs to the same turns.
            self.meter.receive_output(messages, kinds)
            for state in self._listening:
                state.take_output(messages, kinds)
                state.stream.append(messages, kinds, size)
        else:
            self._sort(messages, size // len(messages), now, hold)
        self.everything.append(messages, kinds, size, hold)
        for observer in list(self.observers):
            observer.received(messages)

    def announce(self, message: Message) -> None:
        """Give a message of our own to whoever reads. It says nothing about the agent."""
        for state in self._listening:
            state.keep(message)
            state.stream.append([message], {type(message)}, 0)
        self.everything.append([message], {type(message)}, 0)

    def receive_eof(self, error: BaseException, now: float) -> None:
        """Nothing more will come: turns without a result fail with `error`. `everything` is not ended yet."""
        self._apply(self.turns.receive_eof(), now)
        self._current = None
        for state in list(self.outstanding):
            self._end(state, now, error)
        for state in list(self.settling):
            self._settled(state, now)
        for observer in list(self.observers):
            observer.ended()

    def give_up_settling(self, state: TurnState, now: float) -> None:
        """Its background work has been waited for long enough."""
        self._settled(state, now)

    def _sort(self, messages: list[Message], share: int, now: float, hold: ResultHold | None) -> None:
        pending: dict[TurnState, list[Message]] = {}
        for message in messages:
            events = self.turns.receive(message)
            for event in events:
                if isinstance(event, TurnBegan):
                    self._begin(event.uuids, now)
            self._note(message)
            states = self._recipients(message, events)
            if isinstance(message, TaskStartedMessage):
                self._task_owners.add(message, states)
            for state in states:
                state.take(message, now)
                if hold is not None:
                    state.hold(hold)
                pending.setdefault(state, []).append(message)
            if events:
                # Before a stream is ended: it takes nothing more then.
                _deliver(pending, share, hold)
                self._apply(events, now)
        _deliver(pending, share, hold)

    def _recipients(self, message: Message, events: list[TurnEvent]) -> list[TurnState]:
        if isinstance(message, ResultMessage):
            ended = next(event for event in events if isinstance(event, TurnEnded))
            return self._states(ended.uuids) if ended.uuids else self._owners_of_report(message)
        if isinstance(message, CommandLifecycleMessage):
            return self._states([message.command_uuid])
        if owners := self._task_owners.owners_of(message):
            return owners
        return self._listening

    @property
    def _listening(self) -> list[TurnState]:
        """The turns that hear what names none."""
        if self._current is not None:
            return self._current or self._hearing
        # Nothing is being worked on, so it leads to the next turn.
        return self.foremost or self.settling

    def _owners_of_report(self, result: ResultMessage) -> list[TurnState]:
        """The turns that get a result which answers no prompt."""
        owners = self._task_owners.take_reported(result)
        for state in [*self.outstanding, *self.settling]:
            state.is_owed_report = self._task_owners.is_owed_to(state)
        self._hearing = self._hearing if owners is None else owners
        return list(self._hearing)

    def _states(self, uuids: Iterable[str]) -> list[TurnState]:
        return list(dict.fromkeys(self._by_uuid[uuid] for uuid in uuids if uuid in self._by_uuid))

    def _begin(self, uuids: list[str], now: float) -> None:
        # An agent that names none has still said which it started.
        current = self._states(uuids) or [state for state in self.outstanding if state.has_begun]
        if not current and not self.turns.names_prompts:
            # An old one says nothing of the kind: it takes prompts in their order.
            current = self.outstanding[:1]
        self._current = current
        owners = self._task_owners.next_owners
        self._hearing = list(self.settling) if owners is None else owners
        for state in self.outstanding:
            if state in current:
                state.front_at = now if state.front_at is None else state.front_at
            elif current:
                # It was overtaken.
                state.front_at = None

    def _apply(self, events: Iterable[TurnEvent], now: float) -> None:
        for event in events:
            if isinstance(event, MessageMoved):
                self._move(event, now)
            elif isinstance(event, TurnEnded):
                self._finish(event, now)
            elif isinstance(event, RunMoved):
                self.everything.wake()
                if self.turns.is_over:
                    self._task_owners.clear()
                    for state in list(self.settling):
                        self._settled(state, now)

    def _move(self, event: MessageMoved, now: float) -> None:
        state = self._by_uuid.get(event.uuid)
        self.turns.forget(event.uuid)
        if state is not None:
            state.uuids[event.uuid] = event.state
            state.stream.wake()
            if event.state is MessageState.WITHDRAWN:
                self._settle(state, now)

    def _finish(self, event: TurnEnded, now: float) -> None:
        """The agent has ended a turn: ours, or one on its own account."""
        answered = self._states(event.uuids)
        usage = self.meter.finish_turn(event.result)
        for state in answered if event.uuids else self._hearing:
            state.usage = usage if state.usage is None else state.usage + usage
        self._current = None
        for state in [*answered, *self.settling]:
            self._settle(state, now)
        if (oldest := self._oldest) is not None:
            oldest.front_at = now

    def _settle(self, state: TurnState, now: float) -> None:
        """Is it over now? Is it all quiet?"""
        if not state.is_answered:
            return
        if state in self.outstanding:
            taken_back = TurnInterrupted(message="the prompt was taken back before the agent took it up")
            self._end(state, now, taken_back if state.is_withdrawn else None)
        # While another turn goes on, in the background too, the run is not over; that says nothing about this
        # one.
        is_other = self.outstanding or any(not other.is_quiet for other in self.settling)
        if state in self.settling and state.is_quiet and (self.turns.is_over or is_other):
            self._settled(state, now)

    def _end(self, state: TurnState, now: float, failure: BaseException | None = None) -> None:
        for uuid in state.uuids:
            self._by_uuid.pop(uuid, None)
        self.outstanding.remove(state)
        if self._current and state in self._current:
            self._current = [other for other in self._current if other is not state]
        self._move_up(now)
        self.settling.append(state)
        state.end(now, failure)
        self.everything.wake()
        if state.failure is not None:
            self._settled(state, now)

    def _move_up(self, now: float) -> None:
        """Note since when no turn is before the oldest."""
        if not self._current and (oldest := self._oldest) is not None and oldest.front_at is None:
            oldest.front_at = now

    def _settled(self, state: TurnState, now: float) -> None:
        if state in self.settling:
            self.settling.remove(state)
        if state in self._hearing:
            self._hearing.remove(state)
        self._task_owners.forget(state)
        state.settle(now)
        self.everything.wake()

    def _note(self, message: Message) -> None:
        """What a message says about the connection as a whole."""
        self.meter.receive(message)
        if isinstance(message, TaskStartedMessage):
            task = UnfinishedTask(message.task_id, message.task_type or "", message.description)
            self.tasks[message.task_id] = task
        elif isinstance(message, TaskUpdatedMessage | TaskNotificationMessage):
            self._task_owners.update(message)
            if message.status in TERMINAL_TASK_STATUSES:
                self._task_ended(message.task_id)
        elif isinstance(message, BackgroundTasksChangedMessage):
            self.tasks = {task.id: task for task in map(UnfinishedTask.from_wire, message.tasks)}
        elif isinstance(message, ConversationResetMessage):
            self.tasks.clear()

    def _task_ended(self, id: str) -> None:
        self.tasks.pop(id, None)
        for state in [*self.outstanding, *self.settling]:
            state.open_tasks.discard(id)
            state.is_owed_report = self._task_owners.is_owed_to(state)


def _deliver(pending: dict[TurnState, list[Message]], share: int, hold: ResultHold | None) -> None:
    for state, messages in pending.items():
        state.stream.append(messages, set(map(type, messages)), share * len(messages), hold)
    pending.clear()

"""Finds out which messages belong to which turn, and when turns are over.

Does no I/O and has no clock: callers say what was sent, what arrived, and when. How long a turn may take is
decided in `_connection/deadlines`.
"""

from __future__ import annotations

from itertools import groupby
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
    from outrider.session._connection.observers import Observer, SessionFollower
    from outrider.session._streams.stream import Flow, ResultHold
    from outrider.session._streams.turn_state import TurnState
    from outrider.wire import Message


class _Task(msgspec.Struct, eq=False):
    owners: list[TurnState]
    run: str
    """The id by which a result names it."""
    is_holding: bool
    is_reported: bool
    """Whether the agent reports its end to the model in a turn of its own: not if the call waited for it."""
    is_over: bool = False


class TaskOwners:
    """Knows which turns the background tasks of one connection belong to."""

    def __init__(self) -> None:
        self._tasks: dict[str, _Task] = {}
        self._calls: dict[str, _Task] = {}
        """By the tool call that began each; messages of a subagent name it."""
        self._due: list[_Task] = []
        """Those that have ended, in the order in which the agent reports them."""

    def add(self, message: TaskStartedMessage, states: list[TurnState]) -> None:
        """Note a task that began in one of these turns."""
        is_alone = message.is_backgrounded is not False and message.parent_task_id is None
        is_holding = message.task_type in HOLDING_TASKS
        task = _Task(list(states), message.run_id or message.task_id, is_holding, is_alone)
        self._tasks[message.task_id] = task
        if message.tool_use_id is not None:
            self._calls[message.tool_use_id] = task

    def update(self, message: TaskUpdatedMessage | TaskNotificationMessage) -> None:
        """Note the new state of a task."""
        task = self._tasks.get(message.task_id)
        if task is None or task.is_over:
            return
        if isinstance(message, TaskUpdatedMessage) and message.patch.get("is_backgrounded"):
            task.is_reported = True
        if message.status in TERMINAL_TASK_STATUSES:
            task.is_over = True
            # The agent reports a subagent that was stopped, but not a command.
            if task.is_reported and (task.is_holding or message.status in ("completed", "failed")):
                self._due.append(task)

    def owners_of(self, message: Message) -> list[TurnState]:
        """The turns that a message about a task, or of a subagent, belongs to; empty if unknown."""
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
        """The turns whose work is reported next; None if nothing is due."""
        return list(self._due[0].owners) if self._due else None

    def take_reported(self, result: ResultMessage) -> list[TurnState] | None:
        """The turns whose work a result reports; None if unknown."""
        run = None if result.origin is None else result.origin.get("runId")
        runs = [task.run for task in self._due]
        if not runs or (run is not None and run not in runs):
            return None
        # Those due before it were reported with something else, or not at all.
        end = 1 if run is None else runs.index(run) + 1
        owners = list(self._due[end - 1].owners)
        del self._due[:end]
        return owners

    def is_owed_to(self, state: TurnState) -> bool:
        """Whether something that the turn waits for has ended and is not reported yet."""
        return any(task.is_holding and state in task.owners for task in self._due)

    def forget(self, state: TurnState) -> None:
        """Forget a turn: nothing more is expected for it."""
        for task in {*self._tasks.values(), *self._calls.values()}:
            if state in task.owners:
                task.owners.remove(state)
        for tasks in (self._tasks, self._calls):
            for key in [key for key, task in tasks.items() if task.is_over and not task.owners]:
                del tasks[key]

    def clear(self) -> None:
        """Forget what is due: the run is over, so it was reported or never will be."""
        self._due.clear()


_OUTPUT: Final = frozenset((StreamEvent, AssistantMessage, UserMessage))
"""Output of the model and results of tools: within a turn, they begin and end nothing."""


class Routing:
    """Gives each message to the turns that it belongs to, and all of them to `everything`."""

    def __init__(self, flow: Flow, *, can_be_asked: bool, is_resumed: bool = False) -> None:
        self.everything = Stream(flow, is_whole=True)
        self.turns = Turns()
        self.can_be_asked = can_be_asked
        """Whether the agent may need an answer, from a hook, a callback or a tool."""
        self.meter = UsageMeter(resumed=is_resumed)
        self.tasks: dict[str, UnfinishedTask] = {}
        """The background tasks, by id."""
        self.observers: list[Observer] = []
        self.follower: SessionFollower | None = None
        self.outstanding: list[TurnState] = []
        """Turns that have no result yet, oldest first."""
        self.settling: list[TurnState] = []
        """Turns that have their result, and whose background work still runs."""
        self._by_uuid: dict[str, TurnState] = {}
        self._current: list[TurnState] | None = None
        """The turns that the agent works on; empty if it works on a turn of its own."""
        self._hearing: list[TurnState] = []
        """The turns that get the messages of the agent's own turns."""
        self._adopted: TurnState | None = None
        """A turn without a prompt, which gets all of the agent's own next turn."""
        self._task_owners = TaskOwners()

    @property
    def is_on_its_own(self) -> bool:
        """Whether the agent works on a turn that no prompt began."""
        return self._current is not None and not self._current

    @property
    def foremost(self) -> list[TurnState]:
        """The turns that the agent works on, or else the one that has waited longest."""
        if self._current is not None:
            return list(self._current)
        oldest = self._oldest
        return self.outstanding[:1] if oldest is None else [oldest]

    @property
    def _oldest(self) -> TurnState | None:
        """The first turn that waits for the agent, not for further prompts of its user."""
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

    @property
    def has_prompts_behind(self) -> bool:
        """Whether prompts wait behind the one that the agent works on, or may come."""
        front, names = self.front, self.turns.names_prompts
        return any(
            state is not front or not state.is_fed or (names and bool(state.waiting_uuids))
            for state in self.outstanding
        )

    def is_behind_another(self, state: TurnState) -> bool:
        """Whether an interrupt would hit another turn."""
        return state not in self.foremost and bool(self.foremost)

    # What is sent.

    def begin(self, state: TurnState) -> None:
        """Note a turn that is about to be sent. Raises what an observer raises."""
        for observer in self.observers:
            observer.begins()
        self.outstanding.append(state)
        self._move_up(state.sent_at)

    def adopt(self, state: TurnState) -> None:
        """Let a turn that has begun, and gets no prompt, be what the agent does next by itself."""
        self._adopted = state

    def sent(self, state: TurnState, uuid: str, now: float) -> None:
        """Note a message of a turn that is about to be written."""
        if state.is_waiting_for_prompts:
            state.prompted_at = now
        state.uuids[uuid] = MessageState.SENT
        self._by_uuid[uuid] = state
        self._move_up(now)
        self._apply(self.turns.sent(uuid), now)

    def fed(self, state: TurnState, now: float) -> None:
        """Note that all messages of a turn have been sent."""
        state.is_fed = True
        self._settle(state, now)

    def withdrawn(self, uuids: Iterable[str], now: float) -> None:
        """Note that the agent dropped these messages."""
        self._apply(self.turns.withdrawn(uuids), now)

    def fail(self, state: TurnState, failure: BaseException | None, now: float) -> None:
        """Give up a turn: nothing will come for it, or its user does not want it any more."""
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
        """Take messages of these types that came together; with a hold, a single result."""
        if kinds <= _OUTPUT:
            # Nearly all chunks.
            self._take(messages, kinds, size, now)
        elif len(messages) == 1:
            self._sort(messages, size, now, hold)
        else:
            share = size // len(messages)
            for _, run in groupby(messages, _is_output):
                some = list(run)
                self._take(some, set(map(type, some)), share * len(some), now)
        self.everything.append(messages, kinds, size, hold)
        for observer in list(self.observers):
            observer.received(messages)

    def _take(self, messages: list[Message], kinds: set[type], size: int, now: float) -> None:
        """Take messages that are output or are none, all of them."""
        if not (self.turns.is_turn_open and kinds <= _OUTPUT) or self._task_owners.own_any_of(messages):
            self._sort(messages, size // len(messages), now, None)
            return
        # All of them belong to the same turns.
        figures = self.meter.receive_output(messages, kinds)
        if self.follower is not None:
            self.follower.received(messages, kinds, figures, self._listening)
        for state in self._listening:
            state.take_output(messages, kinds)
            state.stream.append(messages, kinds, size)

    def announce(self, message: Message) -> None:
        """Deliver a message of Outrider itself to all readers."""
        for state in self._listening:
            state.keep(message)
            state.stream.append([message], {type(message)}, 0)
        self.everything.append([message], {type(message)}, 0)

    def receive_eof(self, error: BaseException, now: float) -> None:
        """Note the end of the output: turns without a result fail with `error`. `everything` stays open."""
        self._apply(self.turns.receive_eof(), now)
        self._current = None
        for state in list(self.outstanding):
            self._end(state, now, error)
        for state in list(self.settling):
            self._settled(state, now)
        for observer in list(self.observers):
            observer.ended()
        if self.follower is not None:
            self.follower.ended(error, self.meter.turn)

    def abandon(self, error: BaseException) -> None:
        """End what telemetry has open: there is no event loop any more in which anything else could end."""
        follower, self.follower = self.follower, None
        if follower is not None:
            follower.ended(error, self.meter.turn)

    def give_up_settling(self, state: TurnState, now: float) -> None:
        """Stop waiting for the background work of a turn."""
        self._settled(state, now)

    def _sort(self, messages: list[Message], share: int, now: float, hold: ResultHold | None) -> None:
        pending: dict[TurnState, list[Message]] = {}
        for message in messages:
            events = self.turns.receive(message)
            for event in events:
                if isinstance(event, TurnBegan):
                    self._begin(event.uuids, now)
            figures = self._note(message)
            states = self._recipients(message, events)
            if isinstance(message, TaskStartedMessage):
                self._task_owners.add(message, states)
            if self.follower is not None:
                self.follower.received([message], {type(message)}, figures, states)
            for state in states:
                state.take(message, now)
                if hold is not None:
                    state.hold(hold)
                pending.setdefault(state, []).append(message)
            if events:
                # Before the events end a stream, which then accepts nothing more.
                _deliver(pending, share, hold)
                self._apply(events, now)
        _deliver(pending, share, hold)

    def _recipients(self, message: Message, events: list[TurnEvent]) -> list[TurnState]:
        if isinstance(message, ResultMessage):
            ended = next(event for event in events if isinstance(event, TurnEnded))
            return self._answered(ended) or ([] if ended.uuids else self._owners_of_report(message))
        if isinstance(message, CommandLifecycleMessage):
            return self._states([message.command_uuid])
        if owners := self._task_owners.owners_of(message):
            return owners
        return self._listening

    @property
    def _listening(self) -> list[TurnState]:
        """The turns that get messages which name no turn."""
        if self._current is not None:
            return self._current or self._hearing
        # The agent works on nothing, so the message leads to the next turn.
        return self.foremost or self.settling

    def _owners_of_report(self, result: ResultMessage) -> list[TurnState]:
        """The turns that get a result which answers no prompt."""
        owners = self._task_owners.take_reported(result)
        for state in [*self.outstanding, *self.settling]:
            state.is_owed_report = self._task_owners.is_owed_to(state)
        self._hearing = self._hearing if owners is None else owners
        return list(self._hearing)

    def _answered(self, ended: TurnEnded) -> list[TurnState]:
        """The turns that a result is for: those that it names, or the one that waits for none of them."""
        if ended.uuids:
            return self._states(ended.uuids)
        return [state for state in self.outstanding if state is self._adopted]

    def _states(self, uuids: Iterable[str]) -> list[TurnState]:
        states = map(self._by_uuid.get, uuids)
        return list(dict.fromkeys(filter(None, states)))

    def _begin(self, uuids: list[str], now: float) -> None:
        # Even if it names none here, the agent has reported which it started.
        current = self._states(uuids) or [state for state in self.outstanding if state.has_begun]
        if not current and self._adopted in self.outstanding:
            current = [state for state in self.outstanding if state is self._adopted]
        if not current and not self.turns.names_prompts:
            # An old version reports nothing, and takes prompts in order.
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
        """Note the end of a turn: one of ours, or one of the agent's own."""
        answered = self._answered(event)
        usage = self.meter.finish_turn(event.result)
        users = answered or ([] if event.uuids else self._hearing)
        if self.follower is not None:
            self.follower.used(usage, users)
        for state in users:
            state.usage = usage if state.usage is None else state.usage + usage
        self._current = None
        for state in [*answered, *self.settling]:
            self._settle(state, now)
        if (oldest := self._oldest) is not None:
            oldest.front_at = now

    def _settle(self, state: TurnState, now: float) -> None:
        """End a turn if it is answered, and settle it if its background work is done."""
        if not state.is_answered:
            return
        if state in self.outstanding:
            failure = None
            if state.is_withdrawn:
                failure = TurnInterrupted(message="the prompt was taken back before the agent took it up")
            self._end(state, now, failure)
        # The run is not over while another turn continues, even in the background: that says nothing about
        # this one.
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
        if self.follower is not None and state.until == "result":
            self._tell_end(state, self.follower)
        self.everything.wake()
        if state.failure is not None:
            self._settled(state, now)

    def _move_up(self, now: float) -> None:
        """Note since when the oldest turn is first in line."""
        if not self._current and (oldest := self._oldest) is not None and oldest.front_at is None:
            oldest.front_at = now

    def _settled(self, state: TurnState, now: float) -> None:
        if state in self.settling:
            self.settling.remove(state)
        if state in self._hearing:
            self._hearing.remove(state)
        self._task_owners.forget(state)
        state.settle(now)
        if self.follower is not None:
            self._tell_end(state, self.follower)
        self.everything.wake()

    def _tell_end(self, state: TurnState, follower: SessionFollower) -> None:
        # Without a result, only what its messages tell is known, and only the first in line has any.
        is_unknown = state.usage is None and state.front_at is not None
        follower.turn_ended(state, self.meter.turn if is_unknown else None)

    def _note(self, message: Message) -> list[StreamEvent]:
        """Note what a message means for the connection as a whole. Returns what the meter does."""
        figures = self.meter.receive(message)
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
        return figures

    def _task_ended(self, id: str) -> None:
        self.tasks.pop(id, None)
        for state in [*self.outstanding, *self.settling]:
            state.open_tasks.discard(id)
            state.is_owed_report = self._task_owners.is_owed_to(state)


def _is_output(message: Message) -> bool:
    return type(message) in _OUTPUT


def _deliver(pending: dict[TurnState, list[Message]], share: int, hold: ResultHold | None) -> None:
    for state, messages in pending.items():
        state.stream.append(messages, set(map(type, messages)), share * len(messages), hold)
    pending.clear()

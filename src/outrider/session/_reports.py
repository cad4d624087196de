"""Whose work in the background is whose: the turns that began a task, and who hears of its end.

The agent tells the model of it in a turn of its own, with a result of its own. Does not know when a turn is
over.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from outrider.protocol import HOLDING_TASKS
from outrider.wire import (
    AssistantMessage,
    TaskNotificationMessage,
    TaskProgressMessage,
    TaskStartedMessage,
    TaskUpdatedMessage,
    UserMessage,
)
from outrider.wire.choices import TERMINAL_TASK_STATUSES

if TYPE_CHECKING:
    from outrider.session._turn_state import TurnState
    from outrider.wire import Message, ResultMessage


class _Task(msgspec.Struct, eq=False):
    owners: list[TurnState]
    run: str
    """What a result names it by."""
    is_holding: bool
    is_reported: bool
    """Whether its end is told to the model in a turn of its own: not if its call was waited for."""
    is_over: bool = False


class Reports:
    """Follows the tasks of one connection."""

    def __init__(self) -> None:
        self._tasks: dict[str, _Task] = {}
        self._calls: dict[str, _Task] = {}
        """By the call that began each, which the messages of a subagent name."""
        self._due: list[_Task] = []
        """Those that have ended, in the order in which the agent tells of them."""

    def began(self, message: TaskStartedMessage, states: list[TurnState]) -> None:
        """A task was begun in a turn of these."""
        is_alone = message.is_backgrounded is not False and message.parent_task_id is None
        is_holding = message.task_type in HOLDING_TASKS
        task = _Task(list(states), message.run_id or message.task_id, is_holding, is_alone)
        self._tasks[message.task_id] = task
        if message.tool_use_id is not None:
            self._calls[message.tool_use_id] = task

    def changed(self, message: TaskUpdatedMessage | TaskNotificationMessage) -> None:
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

    @property
    def next_owners(self) -> list[TurnState] | None:
        """The turns whose work is told of next; None if nothing is due."""
        return list(self._due[0].owners) if self._due else None

    def told(self, result: ResultMessage) -> list[TurnState] | None:
        """The turns whose work a result tells of; None if that is not known."""
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

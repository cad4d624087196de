"""System messages about what runs beside the conversation: hook commands, and tasks in the background.

The other subtypes are in `_system`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, cast

from outrider.wire._system_message import SystemMessage
from outrider.wire._value import JsonObject

if TYPE_CHECKING:
    from outrider.wire.choices import TaskNotificationStatus, TaskUpdatedStatus
    from outrider.wire.shapes import BackgroundTask, TaskPatch, TaskUsage
else:
    # Plain dicts when decoding: msgspec would drop every key that a TypedDict does not name.
    BackgroundTask = TaskPatch = TaskUsage = dict
    # Open sets: any text is let through.
    TaskNotificationStatus = TaskUpdatedStatus = str


class HookEventMessage(SystemMessage, rename={"hook_event_name": "hook_event"}):
    """A hook command from the settings is run."""

    hook_event_name: str = ""
    session_id: str | None = None
    uuid: str | None = None
    hook_id: str = ""
    hook_name: str = ""

    @classmethod
    def derive(cls, data: JsonObject) -> JsonObject:
        """Older programs name the event in other places."""
        name = data.get("hook_event") or data.get("hook_name") or data.get("hook_event_name")
        return {"hook_event": name or ""}


class HookStartedMessage(HookEventMessage):
    """A hook command began."""


class HookProgressMessage(HookEventMessage):
    """What a hook command has printed so far."""

    stdout: str = ""
    stderr: str = ""
    output: str = ""


class HookResponseMessage(HookEventMessage):
    """A hook command ended."""

    stdout: str = ""
    stderr: str = ""
    output: str = ""
    exit_code: int | None = None
    outcome: str | None = None


class TaskStartedMessage(SystemMessage):
    """A subagent, shell or workflow began as a task."""

    task_id: str
    description: str
    uuid: str
    session_id: str
    tool_use_id: str | None = None
    task_type: str | None = None
    """`local_agent`, `local_bash`, `local_workflow`, …"""
    run_id: str | None = None
    subagent_type: str | None = None
    is_backgrounded: bool | None = None
    spawn_depth: int | None = None
    parent_task_id: str | None = None
    workflow_name: str | None = None
    prompt: str | None = None
    skip_transcript: bool | None = None
    ambient: bool | None = None


class TaskProgressMessage(SystemMessage):
    """How far a task has come."""

    task_id: str
    description: str
    usage: TaskUsage
    uuid: str
    session_id: str
    tool_use_id: str | None = None
    last_tool_name: str | None = None
    run_id: str | None = None
    subagent_type: str | None = None
    summary: str | None = None
    workflow_progress: list[JsonObject] | None = None


class TaskNotificationMessage(SystemMessage):
    """A task ended; the agent tells the model next. May be left out: see `TaskUpdatedMessage`."""

    task_id: str
    status: TaskNotificationStatus
    output_file: str
    summary: str
    uuid: str
    session_id: str
    tool_use_id: str | None = None
    usage: TaskUsage | None = None
    run_id: str | None = None
    reason: str | None = None
    resource_links: list[JsonObject] | None = None
    skip_transcript: bool | None = None
    ambient: bool | None = None


class TaskUpdatedMessage(SystemMessage):
    """Fields of a task changed; sometimes the only sign that it ended."""

    inferred: ClassVar[frozenset[str]] = frozenset(("status",))

    task_id: str
    patch: TaskPatch
    status: TaskUpdatedStatus | None = None
    """The new status, where it is among what changed."""
    session_id: str | None = None
    uuid: str | None = None
    run_id: str | None = None

    @classmethod
    def derive(cls, data: JsonObject) -> JsonObject:
        """The status is part of the patch."""
        patch = data.get("patch")
        return {"status": cast("JsonObject", patch).get("status")} if isinstance(patch, dict) else {}


class BackgroundTasksChangedMessage(SystemMessage):
    """The tasks alive in the background, whole: takes the place of the list before."""

    tasks: list[BackgroundTask]
    uuid: str | None = None
    session_id: str | None = None


class TaskSummaryMessage(SystemMessage):
    """A summary of a task; its fields are in `data`."""

    uuid: str | None = None
    session_id: str | None = None

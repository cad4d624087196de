"""Defines the system messages: one subclass of `SystemMessage` for each subtype.

Does not decode them: `_decoding` picks the class from `SYSTEM_SUBTYPES`.
"""

import re
from typing import TYPE_CHECKING, ClassVar, Final, Literal, cast

from outrider.wire._value import Frame, JsonObject

if TYPE_CHECKING:
    from outrider.wire.choices import SessionState, TaskNotificationStatus, TaskUpdatedStatus
    from outrider.wire.shapes import (
        BackgroundTask,
        CompactMetadata,
        FailedFile,
        NoResponse,
        PersistedFile,
        PromptSubmitOutcome,
        RecalledMemory,
        SlashCommandShape,
        SystemInitMcpServer,
        SystemInitMcpServerError,
        SystemInitPlugin,
        SystemInitPluginError,
        TaskPatch,
        TaskUsage,
    )
else:
    # Plain dicts when decoding: msgspec would drop every key that a TypedDict does not name.
    BackgroundTask = CompactMetadata = FailedFile = NoResponse = PersistedFile = PromptSubmitOutcome = dict
    RecalledMemory = SlashCommandShape = SystemInitMcpServer = SystemInitMcpServerError = dict
    SystemInitPlugin = SystemInitPluginError = TaskPatch = TaskUsage = dict
    # Open sets: any text is accepted.
    SessionState = TaskNotificationStatus = TaskUpdatedStatus = str


class SystemMessage(Frame):
    """A report from the agent about itself. Each known subtype has a class of its own."""

    type: ClassVar[Literal["system"]] = "system"
    subtype: str
    data: JsonObject
    """The whole frame as sent, keys as the agent spells them."""

    inferred: ClassVar[frozenset[str]] = frozenset()
    """Fields that never travel under their own name."""

    @classmethod
    def derive(cls, data: JsonObject) -> JsonObject:
        """Fields that are not in the frame under their own name, but follow from it."""
        return {}


class _Notice(SystemMessage, kw_only=True):
    uuid: str | None = None
    session_id: str | None = None


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


class BackgroundTasksChangedMessage(_Notice):
    """All tasks that are running in the background: replaces the list before."""

    tasks: list[BackgroundTask]


class TaskSummaryMessage(_Notice):
    """A summary of a task; its fields are in `data`."""


class UnknownSystemMessage(SystemMessage):
    """A system message of a subtype that has no class here."""


class InitMessage(
    SystemMessage, rename={"permission_mode": "permissionMode", "api_key_source": "apiKeySource"}
):
    """How the session is set up. Comes at the start of every turn, not only of the first."""

    session_id: str
    cwd: str
    model: str
    tools: list[str]
    mcp_servers: list[SystemInitMcpServer]
    permission_mode: str
    slash_commands: list[str]
    claude_code_version: str
    api_key_source: str = ""
    output_style: str = ""
    agents: list[str] = []
    skills: list[str] = []
    plugins: list[SystemInitPlugin] = []
    capabilities: list[str] = []
    """What this Claude Code can do; check this rather than its version."""
    uuid: str = ""
    user_message_uuids: list[str] | None = None
    """The sent messages that the turn about to begin answers."""
    betas: list[str] | None = None
    effort: str | None = None
    mcp_server_errors: list[SystemInitMcpServerError] | None = None
    plugin_errors: list[SystemInitPluginError] | None = None
    terminal_slash_commands: list[str] | None = None
    memory_paths: dict[str, str] | None = None
    original_cwd: str | None = None
    additional_directories: list[str] | None = None
    messaging_socket_path: str | None = None
    fast_mode_state: str | None = None
    fast_mode_disabled_reason: str | None = None
    analytics_disabled: bool | None = None
    product_feedback_disabled: bool | None = None
    per_turn_effort_active: bool | None = None
    ultrathink_available: bool | None = None
    ultrathink_typed_raises: bool | None = None
    view_mode: str | None = None


class StatusMessage(_Notice, rename={"permission_mode": "permissionMode"}):
    """What the agent is doing: `requesting`, `compacting`, or nothing (None)."""

    status: str | None = None
    permission_mode: str | None = None
    compact_result: str | None = None
    compact_error: str | None = None
    compact_output_chars: int | None = None
    user_message_uuids: list[str] | None = None


class SessionStateChangedMessage(_Notice):
    """The session is `running`, waits for an answer (`requires_action`), or is `idle`."""

    state: SessionState
    sdk_host_only: bool | None = None
    """Meant for the host alone: the user did not ask for these."""


class SessionTitleChangedMessage(_Notice):
    """The session has a new title."""

    title: str


class ThinkingTokensMessage(_Notice):
    """How much the model has thought so far, estimated."""

    estimated_tokens: int
    estimated_tokens_delta: int
    user_message_uuid: str | None = None


class ApiRetryMessage(_Notice):
    """A call of the API failed and is tried again after `retry_delay_ms`."""

    attempt: int
    max_retries: int
    retry_delay_ms: int
    error_status: int | None = None
    """The HTTP status; None where there was no answer."""
    error: str = ""
    no_response: NoResponse | None = None


class ModelFallbackMessage(_Notice):
    """The agent switched to another model because the first one is overloaded or missing."""

    original_model: str
    fallback_model: str
    trigger: str | None = None
    content: str = ""


class ModelRefusalFallbackMessage(_Notice):
    """A model refused, and another takes over; some messages are taken back."""

    original_model: str
    fallback_model: str
    trigger: str | None = None
    direction: str | None = None
    scope: str | None = None
    request_id: str | None = None
    api_refusal_category: str | None = None
    api_refusal_explanation: str | None = None
    retracted_message_uuids: list[str] | None = None
    refused_user_message_uuid: str | None = None
    content: str = ""


class ModelRefusalNoFallbackMessage(_Notice):
    """A model refused, and none is left to take over."""

    original_model: str
    request_id: str | None = None
    api_refusal_category: str | None = None
    api_refusal_explanation: str | None = None
    refused_user_message_uuid: str | None = None
    content: str = ""


class CompactBoundaryMessage(_Notice):
    """The conversation before this was replaced by a summary."""

    compact_metadata: CompactMetadata
    logical_parent_uuid: str | None = None


class PermissionDeniedMessage(_Notice):
    """A tool call was refused without anyone being asked."""

    tool_name: str
    tool_use_id: str
    message: str
    decision_reason_type: str | None = None
    decision_reason: str | None = None
    decision_reason_code: str | None = None
    agent_id: str | None = None


class InformationalMessage(_Notice, rename={"is_meta": "isMeta"}):
    """A notice for the user: a hook's words, a blocked prompt, a failed callback."""

    content: str
    level: str = ""
    tag: str | None = None
    tool_use_id: str | None = None
    prevent_continuation: bool | None = None
    prompt_submit_outcome: PromptSubmitOutcome | None = None
    is_meta: bool | None = None
    timestamp: str | None = None


class NotificationMessage(_Notice):
    """A short notice, which a terminal would show for a moment."""

    key: str
    text: str
    priority: str = ""
    color: str | None = None
    timeout_ms: int | None = None


class LocalCommandOutputMessage(_Notice):
    """What a slash command printed."""

    content: str


class CommandsChangedMessage(_Notice):
    """All slash commands on offer: replaces the list before."""

    commands: list[SlashCommandShape]


class ControlRequestProgressMessage(_Notice):
    """The progress of a slow control request."""

    request_id: str
    status: str
    attempt: int | None = None
    max_retries: int | None = None
    retry_delay_ms: int | None = None
    error_status: int | None = None


class ElicitationCompleteMessage(_Notice):
    """The user has done what an MCP server asked for at an address."""

    mcp_server_name: str
    elicitation_id: str


class PluginInstallMessage(_Notice):
    """A plugin is being installed."""

    status: str
    name: str | None = None
    error: str | None = None


class FilesPersistedMessage(_Notice):
    """Files were stored, or could not be."""

    files: list[PersistedFile]
    failed: list[FailedFile] = []
    processed_at: str | None = None


class MemoryRecallMessage(_Notice):
    """Memories were shown to the model."""

    mode: str
    memories: list[RecalledMemory]


class SessionWritesLostMessage(_Notice):
    """The disk is full: the transcript lacks entries."""

    error_code: str
    lost: list[JsonObject | str] = []
    transcript_session_ids: list[str] | None = None


class WorkerShuttingDownMessage(_Notice):
    """The machine that the agent runs on is about to stop."""

    reason: str


class UiInvalidateMessage(_Notice):
    """A host that draws the agent's screen should draw it again."""

    event: str


class PostTurnSummaryMessage(_Notice):
    """A summary of the turn; its fields are in `data`."""


class SessionMetadataMessage(_Notice):
    """Facts about the session; they are in `data`."""


class MirrorErrorMessage(SystemMessage):
    """Made by Outrider: part of the transcript did not reach the session store."""

    key: JsonObject | None = None
    error: str = ""


_NO_SUBTYPE: Final = ("HookEventMessage", "UnknownSystemMessage")

SYSTEM_SUBTYPES: dict[str, type[SystemMessage]] = {
    re.sub(r"\B(?=[A-Z])", "_", name.removesuffix("Message")).lower(): kind
    for name, kind in [*globals().items()]
    if isinstance(kind, type) and issubclass(kind, SystemMessage) and kind is not SystemMessage
    if not name.startswith("_") and name not in _NO_SUBTYPE
}
"""The class of each known subtype."""

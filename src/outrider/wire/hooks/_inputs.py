"""Defines the inputs of hook callbacks: `HookInput` for what all events share, and a class for each event.

Also lists the events and describes how callbacks are registered. The answers are in `_outputs`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Literal, TypeAlias, cast, get_args

from msgspec import UNSET, UnsetType

from outrider.wire._tolerant import convert_leniently
from outrider.wire._value import Json, JsonObject, Received, Value
from outrider.wire.choices import AssistantMessageError, EffortLevel, ExitReason, PermissionMode
from outrider.wire.permissions import PermissionUpdate, permission_updates_from_wire

if TYPE_CHECKING:
    from typing import Self

    from outrider.wire.tools import ToolOutput


class HookEffort(Value):
    """How hard the model thinks."""

    level: EffortLevel


class McpServerSource(Value):
    """The MCP server that a tool belongs to, and where that server was configured."""

    name: str
    source: str | None = None


class ToolCall(Value):
    """A tool call of a batch, with what became of it."""

    tool_name: str
    tool_input: JsonObject
    tool_use_id: str
    tool_response: Json = None
    """What the model is given: text, or a list of content blocks."""


class BackgroundTaskSummary(Value):
    """A background task that was alive when the agent stopped. Long texts are cut."""

    id: str
    type: str
    status: str
    description: str
    command: str | None = None
    agent_type: str | None = None
    server: str | None = None
    tool: str | None = None
    name: str | None = None


class SessionCronSummary(Value):
    """A prompt that the session is to be given again later. Long texts are cut."""

    id: str
    schedule: str
    recurring: bool
    prompt: str


class HookInput(Received, kw_only=True):
    """What every event tells. Each event has a subclass; `raw` is the object as received."""

    session_id: str = ""
    transcript_path: str = ""
    cwd: str = ""
    prompt_id: str | None = None
    """Ties together what belongs to one prompt."""
    permission_mode: PermissionMode | None = None
    agent_id: str | None = None
    """The subagent in which it happened; unset on the main thread."""
    agent_type: str | None = None
    """What kind of subagent that is."""
    effort: HookEffort | None = None

    @property
    def hook_event_name(self) -> str:
        """The name of the event."""
        return str(self.__struct_config__.tag or "")

    def to_wire(self) -> JsonObject:
        always = {"session_id": self.session_id, "transcript_path": self.transcript_path, "cwd": self.cwd}
        return always | super().to_wire()


class _KnownInput(
    HookInput, kw_only=True, tag_field="hook_event_name", tag=lambda name: name.removesuffix("Input")
):
    """An event that has a class; its name on the wire is that of the class."""


class _ToolInput(_KnownInput, kw_only=True):
    tool_name: str
    tool_input: JsonObject
    mcp_server: McpServerSource | None = None
    """Of a tool that an MCP server offers."""

    @property
    def tool(self) -> Value | None:
        """The input as a typed value of `outrider.wire.tools` for a built-in tool: `BashInput(command="ls")`.
        None for all others, and where it does not have the form that is known."""
        from outrider.wire.tools import typed_input

        value = typed_input(self.tool_name, self.tool_input)
        return value if isinstance(value, Value) else None


class PreToolUseInput(_ToolInput, kw_only=True):
    """A tool is about to be used."""

    tool_use_id: str


class PostToolUseInput(_ToolInput, kw_only=True):
    """A tool has been used."""

    tool_use_id: str
    tool_response: Json
    """The tool's own result object, of a shape that each tool has to itself."""
    duration_ms: int | float | None = None

    @property
    def output(self) -> ToolOutput | list[ToolOutput] | None:
        """The response as a typed value of `outrider.wire.tools` for a built-in tool: `EditOutput(…)`.
        None for all others, and where it does not have the form that is known."""
        from outrider.wire.tools import typed_output

        value = typed_output(self.tool_name, self.tool_response)
        return None if value is self.tool_response else cast("ToolOutput | list[ToolOutput]", value)


class PostToolUseFailureInput(_ToolInput, kw_only=True):
    """A tool has failed."""

    tool_use_id: str
    error: str
    is_interrupt: bool | None = None
    """True where it was interrupted."""
    duration_ms: int | float | None = None


class PostToolBatchInput(_KnownInput, kw_only=True):
    """All tool calls of one answer of the model are done."""

    tool_calls: list[ToolCall]


class NotificationInput(_KnownInput, kw_only=True):
    """The agent wants to tell a person something."""

    message: str
    title: str | None = None
    notification_type: str


class UserPromptSubmitInput(_KnownInput, kw_only=True):
    """A prompt has been sent and is about to be taken up."""

    prompt: str
    source: str | None = None
    """Where it came from: `user`, `sdk`, `system`, `loop_wakeup`, `schedule_wakeup`, `poll_event`."""
    session_title: str | None = None


class UserPromptExpansionInput(_KnownInput, kw_only=True):
    """A command in a prompt is about to be replaced by what it stands for."""

    expansion_type: str
    """`slash_command` or `mcp_prompt`."""
    command_name: str
    command_args: str
    command_source: str | None = None
    """Where the command was defined, such as `projectSettings`."""
    prompt: str


class SessionStartInput(_KnownInput, kw_only=True):
    """A session begins, or continues another conversation."""

    source: str
    """`startup`, `resume`, `clear`, `compact` or `fork`."""
    model: str | None = None
    session_title: str | None = None
    seconds_since_last_response: int | float | None = None
    context_tokens: int | None = None
    prompt_cache_likely_expired: bool | None = None
    estimated_cache_write_usd: float | None = None


class SessionEndInput(_KnownInput, kw_only=True):
    """A session, or the conversation it held, is over."""

    reason: ExitReason


class _StopInput(_KnownInput, kw_only=True):
    stop_hook_active: bool
    """True where a hook has kept it from stopping before: the way out of an endless round."""
    last_assistant_message: str | None = None
    background_tasks: list[BackgroundTaskSummary] | None = None
    session_crons: list[SessionCronSummary] | None = None


class StopInput(_StopInput, kw_only=True):
    """The model has nothing more to do."""


class StopFailureInput(_KnownInput, kw_only=True):
    """A turn ends because the API failed."""

    error: AssistantMessageError
    error_details: str | None = None
    last_assistant_message: str | None = None


class SubagentStartInput(_KnownInput, kw_only=True):
    """A subagent begins; `agent_id` and `agent_type` say which."""


class SubagentStopInput(_StopInput, kw_only=True):
    """A subagent has nothing more to do; `agent_id` and `agent_type` say which."""

    agent_transcript_path: str


class PreCompactInput(_KnownInput, kw_only=True):
    """The conversation is about to be summarised."""

    trigger: str
    """`manual` or `auto`."""
    custom_instructions: str | None
    """What a person asked the summary to keep."""


class PostCompactInput(_KnownInput, kw_only=True):
    """The conversation has been summarised."""

    trigger: str
    """`manual` or `auto`."""
    compact_summary: str


class _ModelSwitchInput(_KnownInput, kw_only=True):
    from_model: str
    to_model: str
    requested_model: str | None
    """The name that was asked for; None for a return to the default."""
    source: str
    """What asked for it: `command`, `picker`, `sdk`; once it is done also `auto`, `resume`."""
    context_tokens: int
    prompt_cache_warm: bool
    cache_ttl: str
    """`5m` or `1h`."""
    estimated_cache_write_usd: float | None
    """What it costs to send the conversation to the new model."""
    pricing: str | None
    """What the estimate rests on, such as `catalog`."""


class PreModelSwitchInput(_ModelSwitchInput, kw_only=True):
    """The model is about to be changed."""


class PostModelSwitchInput(_ModelSwitchInput, kw_only=True):
    """The model has been changed."""


class PermissionRequestInput(_ToolInput, kw_only=True):
    """A tool needs permission; the first answer wins, of this hook or of the host."""

    permission_suggestions: list[PermissionUpdate] | None = None
    """Changes that would make the question unnecessary next time."""

    @classmethod
    def from_wire(cls, data: JsonObject) -> Self:
        """Read the input; never raises. Suggestions of any shape are kept."""
        value = super().from_wire(data)
        value.permission_suggestions = permission_updates_from_wire(data.get("permission_suggestions"))
        return value

    def to_wire(self) -> JsonObject:
        wire = super().to_wire()
        if self.permission_suggestions is not None:
            wire["permission_suggestions"] = [update.to_dict() for update in self.permission_suggestions]
        return wire


class PermissionDeniedInput(_ToolInput, kw_only=True):
    """A tool was refused with no one asked."""

    tool_use_id: str
    reason: str


class SetupInput(_KnownInput, kw_only=True):
    """The agent prepares the project."""

    trigger: str
    """`init` or `maintenance`."""


class TeammateIdleInput(_KnownInput, kw_only=True):
    """A teammate has nothing to do."""

    teammate_name: str
    team_name: str | None = None


class _TaskInput(_KnownInput, kw_only=True):
    task_id: str
    task_subject: str
    task_description: str | None = None
    teammate_name: str | None = None
    team_name: str | None = None


class TaskCreatedInput(_TaskInput, kw_only=True):
    """An item was put on the task list."""


class TaskCompletedInput(_TaskInput, kw_only=True):
    """An item of the task list was finished."""


class ElicitationInput(_KnownInput, kw_only=True):
    """An MCP server asks the user for something."""

    mcp_server_name: str
    message: str
    mode: str | None = None
    """`form` or `url`."""
    url: str | None = None
    elicitation_id: str | None = None
    requested_schema: JsonObject | None = None


class ElicitationResultInput(_KnownInput, kw_only=True):
    """What an MCP server asked the user for has been answered."""

    mcp_server_name: str
    elicitation_id: str | None = None
    mode: str | None = None
    """`form` or `url`."""
    action: str
    """`accept`, `decline` or `cancel`."""
    content: JsonObject | None = None


class ConfigChangeInput(_KnownInput, kw_only=True):
    """A settings file was changed."""

    source: str
    """`user_settings`, `project_settings`, `local_settings`, `policy_settings` or `skills`."""
    file_path: str | None = None


class WorktreeCreateInput(_KnownInput, kw_only=True):
    """A worktree is wanted; a hook for this event has to make it."""

    name: str


class WorktreeRemoveInput(_KnownInput, kw_only=True):
    """A worktree is not wanted any more."""

    worktree_path: str


class InstructionsLoadedInput(_KnownInput, kw_only=True):
    """A file of instructions (`CLAUDE.md`) was put before the model."""

    file_path: str
    memory_type: str
    """`User`, `Project`, `Local` or `Managed`."""
    load_reason: str
    """`session_start`, `nested_traversal`, `path_glob_match`, `include` or `compact`."""
    globs: list[str] | None = None
    trigger_file_path: str | None = None
    parent_file_path: str | None = None


class CwdChangedInput(_KnownInput, kw_only=True):
    """The working folder has changed."""

    old_cwd: str
    new_cwd: str


class FileChangedInput(_KnownInput, kw_only=True):
    """A watched file has changed."""

    file_path: str
    event: str
    """`change`, `add` or `unlink`."""


class DirectoryAddedInput(_KnownInput, kw_only=True):
    """A further folder may be worked in."""

    directory: str
    source: str
    """`slash_command` or `register_repo_root`."""


class MessageDisplayInput(_KnownInput, kw_only=True):
    """Text of the model is about to be shown."""

    turn_id: str
    message_id: str
    index: int
    """Which piece of the message this is."""
    final: bool
    delta: str


HookEvent: TypeAlias = Literal[
    "PreToolUse",
    "PostToolUse",
    "PostToolUseFailure",
    "PostToolBatch",
    "Notification",
    "UserPromptSubmit",
    "UserPromptExpansion",
    "SessionStart",
    "SessionEnd",
    "Stop",
    "StopFailure",
    "SubagentStart",
    "SubagentStop",
    "PreCompact",
    "PostCompact",
    "PreModelSwitch",
    "PostModelSwitch",
    "PermissionRequest",
    "PermissionDenied",
    "Setup",
    "TeammateIdle",
    "TaskCreated",
    "TaskCompleted",
    "Elicitation",
    "ElicitationResult",
    "ConfigChange",
    "WorktreeCreate",
    "WorktreeRemove",
    "InstructionsLoaded",
    "CwdChanged",
    "FileChanged",
    "DirectoryAdded",
    "MessageDisplay",
]
"""The events that have a class here; the agent may know more."""
HOOK_EVENTS: Final[tuple[HookEvent, ...]] = get_args(HookEvent)


class HookRegistration(Value, rename="camel"):
    """Registers callbacks for an event, as an item of the list under its name in `initialize`."""

    hook_callback_ids: list[str]
    matcher: str | UnsetType | None = UNSET
    """Which tools or causes: a name or a pattern, such as `Write|Edit`. None or unset: all."""
    timeout: float | None = None
    """Seconds until the agent gives a callback up."""
    on_failure: str | None = None
    """What a callback that fails or times out means: `continue` or `block`."""


class UnknownHookInput(HookInput, kw_only=True):
    """An event that has no class of its own."""

    event: str
    """Its name; empty where it has none, or none that is text."""
    fields: JsonObject
    """All that the event tells beyond the common fields."""

    @classmethod
    def from_wire(cls, data: JsonObject) -> Self:
        common = convert_leniently(HookInput, data)
        values = {name: getattr(common, name) for name in HookInput.__struct_fields__}
        fields = {key: item for key, item in data.items() if key not in HookInput.__struct_encode_fields__}
        event = fields.get("hook_event_name")
        if isinstance(event, str):
            del fields["hook_event_name"]
        value = cls(**values, event=event if isinstance(event, str) else "", fields=fields)
        value._raw = data
        return value

    @property
    def hook_event_name(self) -> str:
        """The name of the event."""
        return self.event

    def to_wire(self) -> JsonObject:
        common = {key: value for key, value in super().to_wire().items() if key not in ("event", "fields")}
        return common | {"hook_event_name": self.event} | self.fields


HOOK_INPUTS: Final[dict[str, type[HookInput]]] = {
    event: cast(type[HookInput], globals()[f"{event}Input"]) for event in HOOK_EVENTS
}
"""The class of each event's input."""


def hook_input_from_wire(data: JsonObject) -> HookInput:
    """Read what the agent tells a hook; never raises.

    An event with no class gives an `UnknownHookInput`. What is missing or mistyped takes its default or an
    empty value; `raw` has it all.
    """
    event: object = data.get("hook_event_name")
    kind = HOOK_INPUTS.get(event, UnknownHookInput) if isinstance(event, str) else UnknownHookInput
    return kind.from_wire(data)

"""Defines the reference SDK's types for hooks: inputs, outputs, and callbacks in options.

Does not call hooks: `outrider.compat._callbacks` adapts them.
"""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any, Literal, NotRequired, TypeAlias, TypedDict

# Annotations are evaluated where they stand: else `NotRequired` would mean nothing at run time.


class PreToolUseHookSpecificOutput(TypedDict):
    """Before a tool runs: whether it may, and with which input."""

    hookEventName: Literal["PreToolUse"]
    permissionDecision: NotRequired[Literal["allow", "deny", "ask", "defer"]]
    permissionDecisionReason: NotRequired[str]
    updatedInput: NotRequired[dict[str, Any]]
    additionalContext: NotRequired[str]


class PostToolUseHookSpecificOutput(TypedDict):
    """After a tool ran: context for the model, or another result."""

    hookEventName: Literal["PostToolUse"]
    additionalContext: NotRequired[str]
    updatedToolOutput: NotRequired[Any]
    updatedMCPToolOutput: NotRequired[Any]


class PostToolUseFailureHookSpecificOutput(TypedDict):
    """After a tool failed: context for the model."""

    hookEventName: Literal["PostToolUseFailure"]
    additionalContext: NotRequired[str]


class UserPromptSubmitHookSpecificOutput(TypedDict):
    """When a prompt is submitted: context for the model."""

    hookEventName: Literal["UserPromptSubmit"]
    additionalContext: NotRequired[str]
    sessionTitle: NotRequired[str]
    suppressOriginalPrompt: NotRequired[bool]


class UserPromptExpansionHookSpecificOutput(TypedDict):
    """When a slash command becomes a prompt: context for the model."""

    hookEventName: Literal["UserPromptExpansion"]
    additionalContext: NotRequired[str]
    suppressOriginalPrompt: NotRequired[bool]


class SessionStartHookSpecificOutput(TypedDict):
    """When a session begins: context, a first message, a title."""

    hookEventName: Literal["SessionStart"]
    additionalContext: NotRequired[str]
    initialUserMessage: NotRequired[str]
    sessionTitle: NotRequired[str]
    watchPaths: NotRequired[list[str]]
    reloadSkills: NotRequired[bool]


class NotificationHookSpecificOutput(TypedDict):
    """When the agent notifies: context for the model."""

    hookEventName: Literal["Notification"]
    additionalContext: NotRequired[str]


class SubagentStartHookSpecificOutput(TypedDict):
    """When a subagent begins: context for it."""

    hookEventName: Literal["SubagentStart"]
    additionalContext: NotRequired[str]


class PermissionRequestHookSpecificOutput(TypedDict):
    """When the agent would ask for permission: the answer."""

    hookEventName: Literal["PermissionRequest"]
    decision: dict[str, Any]


class PostToolBatchHookSpecificOutput(TypedDict):
    """After tools that ran together: context for the model."""

    hookEventName: Literal["PostToolBatch"]
    additionalContext: NotRequired[str]


class StopHookSpecificOutput(TypedDict):
    """When a turn ends: context with which the model continues."""

    hookEventName: Literal["Stop"]
    additionalContext: NotRequired[str]


class SubagentStopHookSpecificOutput(TypedDict):
    """When a subagent ends: context with which it continues."""

    hookEventName: Literal["SubagentStop"]
    additionalContext: NotRequired[str]


class PermissionDeniedHookSpecificOutput(TypedDict):
    """After a tool call was refused: whether the model may try again."""

    hookEventName: Literal["PermissionDenied"]
    retry: NotRequired[bool]


class PreModelSwitchHookSpecificOutput(TypedDict):
    """Before the model changes: whether it may."""

    hookEventName: Literal["PreModelSwitch"]
    permissionDecision: NotRequired[Literal["allow", "deny", "ask"]]
    permissionDecisionReason: NotRequired[str]


class PostModelSwitchHookSpecificOutput(TypedDict):
    """After the model changed: context for the new one."""

    hookEventName: Literal["PostModelSwitch"]
    additionalContext: NotRequired[str]


class _ElicitationAnswer(TypedDict):
    action: NotRequired[Literal["accept", "decline", "cancel"]]
    content: NotRequired[dict[str, Any]]


class ElicitationHookSpecificOutput(_ElicitationAnswer):
    """When an MCP server asks the user: the answer."""

    hookEventName: Literal["Elicitation"]


class ElicitationResultHookSpecificOutput(_ElicitationAnswer):
    """After the user answered an MCP server: another answer."""

    hookEventName: Literal["ElicitationResult"]


class CwdChangedHookSpecificOutput(TypedDict):
    """After the working folder changed: the paths to watch."""

    hookEventName: Literal["CwdChanged"]
    watchPaths: NotRequired[list[str]]


class FileChangedHookSpecificOutput(TypedDict):
    """After a watched file changed: the paths to watch from now on."""

    hookEventName: Literal["FileChanged"]
    watchPaths: NotRequired[list[str]]


class WorktreeCreateHookSpecificOutput(TypedDict):
    """When a worktree is wanted: the path of the one that the hook made."""

    hookEventName: Literal["WorktreeCreate"]
    worktreePath: str


class MessageDisplayHookSpecificOutput(TypedDict):
    """Before a message is shown: the text to show instead."""

    hookEventName: Literal["MessageDisplay"]
    displayContent: NotRequired[str]


HookSpecificOutput: TypeAlias = (
    PreToolUseHookSpecificOutput
    | PostToolUseHookSpecificOutput
    | PostToolUseFailureHookSpecificOutput
    | UserPromptSubmitHookSpecificOutput
    | SessionStartHookSpecificOutput
    | NotificationHookSpecificOutput
    | SubagentStartHookSpecificOutput
    | PermissionRequestHookSpecificOutput
    | UserPromptExpansionHookSpecificOutput
    | PostToolBatchHookSpecificOutput
    | StopHookSpecificOutput
    | SubagentStopHookSpecificOutput
    | PermissionDeniedHookSpecificOutput
    | PreModelSwitchHookSpecificOutput
    | PostModelSwitchHookSpecificOutput
    | ElicitationHookSpecificOutput
    | ElicitationResultHookSpecificOutput
    | CwdChangedHookSpecificOutput
    | FileChangedHookSpecificOutput
    | WorktreeCreateHookSpecificOutput
    | MessageDisplayHookSpecificOutput
)
"""The part of an answer that depends on the event."""


class AsyncHookJSONOutput(TypedDict):
    """The hook continues in the background, and the agent does not wait for it."""

    async_: Literal[True]
    """Sent as `async`, which is a keyword of Python."""
    asyncTimeout: NotRequired[int]
    """Milliseconds."""


class SyncHookJSONOutput(TypedDict):
    """The decision of a hook."""

    continue_: NotRequired[bool]
    """Sent as `continue`, which is a keyword of Python. False ends the turn."""
    suppressOutput: NotRequired[bool]
    stopReason: NotRequired[str]
    decision: NotRequired[Literal["block"]]
    systemMessage: NotRequired[str]
    reason: NotRequired[str]
    hookSpecificOutput: NotRequired[HookSpecificOutput]


HookJSONOutput: TypeAlias = AsyncHookJSONOutput | SyncHookJSONOutput
"""The answer of a hook callback."""


HookEvent: TypeAlias = (
    Literal["PreToolUse"]  # noqa: PYI030 - a union of many, so that `get_args` gives what it always gave
    | Literal["PostToolUse"]
    | Literal["PostToolUseFailure"]
    | Literal["UserPromptSubmit"]
    | Literal["Stop"]
    | Literal["SubagentStop"]
    | Literal["PreCompact"]
    | Literal["Notification"]
    | Literal["SubagentStart"]
    | Literal["PermissionRequest"]
)
"""The events in the reference's options. The agent has more, and accepts callbacks for those, too."""


class HookEffort(TypedDict):
    """How hard the model thinks."""

    level: str


class BaseHookInput(TypedDict):
    """The input that every hook gets."""

    session_id: str
    transcript_path: str
    cwd: str
    permission_mode: NotRequired[str]
    prompt_id: NotRequired[str]
    effort: NotRequired[HookEffort]


class _OfTool(BaseHookInput):
    tool_name: str
    tool_input: dict[str, Any]
    agent_id: NotRequired[str]
    """The subagent that it comes from; absent on the main thread."""
    agent_type: NotRequired[str]


class PreToolUseHookInput(_OfTool):
    """A tool is about to run."""

    hook_event_name: Literal["PreToolUse"]
    tool_use_id: str


class PostToolUseHookInput(_OfTool):
    """A tool ran."""

    hook_event_name: Literal["PostToolUse"]
    tool_response: Any
    tool_use_id: str
    duration_ms: NotRequired[int]


class PostToolUseFailureHookInput(_OfTool):
    """A tool failed."""

    hook_event_name: Literal["PostToolUseFailure"]
    tool_use_id: str
    error: str
    is_interrupt: NotRequired[bool]
    duration_ms: NotRequired[int]


class UserPromptSubmitHookInput(BaseHookInput):
    """A prompt was submitted."""

    hook_event_name: Literal["UserPromptSubmit"]
    prompt: str


class BackgroundTaskSummary(TypedDict):
    """A task that is alive in the background. Long texts are cut."""

    id: str
    type: str
    status: str
    description: str
    command: NotRequired[str]
    agent_type: NotRequired[str]
    server: NotRequired[str]
    tool: NotRequired[str]
    name: NotRequired[str]


class SessionCronSummary(TypedDict):
    """A prompt that the session submits at certain times."""

    id: str
    schedule: str
    recurring: bool
    prompt: str


class _Stopping(BaseHookInput):
    stop_hook_active: bool
    """A hook has kept it from ending before."""
    last_assistant_message: NotRequired[str]
    background_tasks: NotRequired[list[BackgroundTaskSummary]]
    session_crons: NotRequired[list[SessionCronSummary]]


class StopHookInput(_Stopping):
    """A turn is about to end."""

    hook_event_name: Literal["Stop"]


class SubagentStopHookInput(_Stopping):
    """A subagent is about to end."""

    hook_event_name: Literal["SubagentStop"]
    agent_id: str
    agent_transcript_path: str
    agent_type: str


class PreCompactHookInput(BaseHookInput):
    """The conversation is about to be compacted."""

    hook_event_name: Literal["PreCompact"]
    trigger: Literal["manual", "auto"]
    custom_instructions: str | None


class NotificationHookInput(BaseHookInput):
    """The agent notifies the user."""

    hook_event_name: Literal["Notification"]
    message: str
    title: NotRequired[str]
    notification_type: str


class SubagentStartHookInput(BaseHookInput):
    """A subagent begins."""

    hook_event_name: Literal["SubagentStart"]
    agent_id: str
    agent_type: str


class PermissionRequestHookInput(_OfTool):
    """The agent is about to ask for permission."""

    hook_event_name: Literal["PermissionRequest"]
    permission_suggestions: NotRequired[list[Any]]


HookInput: TypeAlias = (
    PreToolUseHookInput
    | PostToolUseHookInput
    | PostToolUseFailureHookInput
    | UserPromptSubmitHookInput
    | StopHookInput
    | SubagentStopHookInput
    | PreCompactHookInput
    | NotificationHookInput
    | SubagentStartHookInput
    | PermissionRequestHookInput
)
"""The input of a hook callback; `hook_event_name` names the event."""


class HookContext(TypedDict):
    """The context of a hook callback."""

    signal: Any | None
    """Always None."""


HookCallback: TypeAlias = Callable[[HookInput, str | None, HookContext], Awaitable[HookJSONOutput]]
"""A hook: takes its input, the id of the tool call if there is one, and the context."""


@dataclass
class HookMatcher:
    """Hooks with a matcher."""

    matcher: str | None = None
    """A tool, several as `Write|Edit`, or a cause of the event; None for all."""
    hooks: list[HookCallback] = field(default_factory=list[HookCallback])
    timeout: float | None = None
    """Seconds that the agent waits for them."""
    on_failure: Literal["continue", "block"] | None = None
    """What it means if a hook fails or takes too long."""

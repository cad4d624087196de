"""Owns the shapes of what hook callbacks are given, and how callbacks are named in options.

Does not call them.
"""

# Annotations are evaluated where they stand: else `NotRequired` would mean nothing at run time.

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any, Literal, NotRequired, TypeAlias, TypedDict

from outrider.compat._types_hook_outputs import HookJSONOutput

__all__ = [
    "BackgroundTaskSummary",
    "BaseHookInput",
    "HookCallback",
    "HookContext",
    "HookEffort",
    "HookEvent",
    "HookInput",
    "HookMatcher",
    "NotificationHookInput",
    "PermissionRequestHookInput",
    "PostToolUseFailureHookInput",
    "PostToolUseHookInput",
    "PreCompactHookInput",
    "PreToolUseHookInput",
    "SessionCronSummary",
    "StopHookInput",
    "SubagentStartHookInput",
    "SubagentStopHookInput",
    "UserPromptSubmitHookInput",
]

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
"""The events that options name. The agent has more, and takes callbacks for those as well."""


class HookEffort(TypedDict):
    """How hard the model thinks."""

    level: str


class BaseHookInput(TypedDict):
    """What every hook is given."""

    session_id: str
    transcript_path: str
    cwd: str
    permission_mode: NotRequired[str]
    prompt_id: NotRequired[str]
    effort: NotRequired[HookEffort]


class _FromAgent(TypedDict, total=False):
    """Which subagent an event comes from; nothing on the main thread."""

    agent_id: str
    agent_type: str


class PreToolUseHookInput(BaseHookInput, _FromAgent):
    """A tool is about to run."""

    hook_event_name: Literal["PreToolUse"]
    tool_name: str
    tool_input: dict[str, Any]
    tool_use_id: str


class PostToolUseHookInput(BaseHookInput, _FromAgent):
    """A tool ran."""

    hook_event_name: Literal["PostToolUse"]
    tool_name: str
    tool_input: dict[str, Any]
    tool_response: Any
    tool_use_id: str
    duration_ms: NotRequired[int]


class PostToolUseFailureHookInput(BaseHookInput, _FromAgent):
    """A tool failed."""

    hook_event_name: Literal["PostToolUseFailure"]
    tool_name: str
    tool_input: dict[str, Any]
    tool_use_id: str
    error: str
    is_interrupt: NotRequired[bool]
    duration_ms: NotRequired[int]


class UserPromptSubmitHookInput(BaseHookInput):
    """A prompt came."""

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
    """A prompt that the session gives to itself at certain times."""

    id: str
    schedule: str
    recurring: bool
    prompt: str


class StopHookInput(BaseHookInput):
    """A turn is about to end."""

    hook_event_name: Literal["Stop"]
    stop_hook_active: bool
    """A hook has kept the turn from ending before."""
    last_assistant_message: NotRequired[str]
    background_tasks: NotRequired[list[BackgroundTaskSummary]]
    session_crons: NotRequired[list[SessionCronSummary]]


class SubagentStopHookInput(BaseHookInput):
    """A subagent is about to end."""

    hook_event_name: Literal["SubagentStop"]
    stop_hook_active: bool
    """A hook has kept it from ending before."""
    agent_id: str
    agent_transcript_path: str
    agent_type: str
    last_assistant_message: NotRequired[str]
    background_tasks: NotRequired[list[BackgroundTaskSummary]]
    session_crons: NotRequired[list[SessionCronSummary]]


class PreCompactHookInput(BaseHookInput):
    """The conversation is about to be compacted."""

    hook_event_name: Literal["PreCompact"]
    trigger: Literal["manual", "auto"]
    custom_instructions: str | None


class NotificationHookInput(BaseHookInput):
    """The agent tells the user something."""

    hook_event_name: Literal["Notification"]
    message: str
    title: NotRequired[str]
    notification_type: str


class SubagentStartHookInput(BaseHookInput):
    """A subagent begins."""

    hook_event_name: Literal["SubagentStart"]
    agent_id: str
    agent_type: str


class PermissionRequestHookInput(BaseHookInput, _FromAgent):
    """The agent is about to ask for permission."""

    hook_event_name: Literal["PermissionRequest"]
    tool_name: str
    tool_input: dict[str, Any]
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
"""What a hook callback is given; `hook_event_name` tells which it is."""


class HookContext(TypedDict):
    """What else a hook callback is given."""

    signal: Any | None
    """Always None."""


HookCallback: TypeAlias = Callable[[HookInput, str | None, HookContext], Awaitable[HookJSONOutput]]
"""A hook: takes what happened, the id of the tool call if there is one, and the context."""


@dataclass
class HookMatcher:
    """Which hooks run, and for what."""

    matcher: str | None = None
    """A tool, several as `Write|Edit`, or what else the event is matched by; None for all."""
    hooks: list[HookCallback] = field(default_factory=list[HookCallback])
    timeout: float | None = None
    """Seconds that the agent waits for them."""
    on_failure: Literal["continue", "block"] | None = None
    """What a hook that fails or takes too long means."""

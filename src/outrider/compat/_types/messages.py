"""Exports the messages, blocks and permission values that the reference SDK has, and defines their parts.

The messages are the classes of `outrider.wire`. Also defines the types of session stores and lists.
"""

# ruff: noqa: PLC0414 - type checkers take a name that is imported as itself for one that is exported

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, NotRequired, Protocol, Required, TypeAlias, TypedDict

from outrider.transcripts import SessionListSubkeysKey as SessionListSubkeysKey
from outrider.transcripts import SessionStoreListEntry as SessionStoreListEntry
from outrider.wire import AssistantMessage as AssistantMessage
from outrider.wire import ContentBlock as ContentBlock
from outrider.wire import ConversationResetMessage as ConversationResetMessage
from outrider.wire import DeferredToolUse as DeferredToolUse
from outrider.wire import HookEventMessage as HookEventMessage
from outrider.wire import Message as Message
from outrider.wire import MirrorErrorMessage as MirrorErrorMessage
from outrider.wire import RateLimitEvent as RateLimitEvent
from outrider.wire import RateLimitInfo as RateLimitInfo
from outrider.wire import ResultMessage as ResultMessage
from outrider.wire import ServerToolResultBlock as ServerToolResultBlock
from outrider.wire import ServerToolUseBlock as ServerToolUseBlock
from outrider.wire import StreamEvent as StreamEvent
from outrider.wire import SystemMessage as SystemMessage
from outrider.wire import TaskNotificationMessage as TaskNotificationMessage
from outrider.wire import TaskProgressMessage as TaskProgressMessage
from outrider.wire import TaskStartedMessage as TaskStartedMessage
from outrider.wire import TaskUpdatedMessage as TaskUpdatedMessage
from outrider.wire import TextBlock as TextBlock
from outrider.wire import ThinkingBlock as ThinkingBlock
from outrider.wire import ToolResultBlock as ToolResultBlock
from outrider.wire import ToolUseBlock as ToolUseBlock
from outrider.wire import UserMessage as UserMessage
from outrider.wire import choices as _choices
from outrider.wire.choices import TERMINAL_TASK_STATUSES as TERMINAL_TASK_STATUSES
from outrider.wire.permissions import PermissionResult as PermissionResult
from outrider.wire.permissions import PermissionResultAllow as PermissionResultAllow
from outrider.wire.permissions import PermissionResultDeny as PermissionResultDeny
from outrider.wire.permissions import PermissionRuleValue as PermissionRuleValue
from outrider.wire.permissions import PermissionUpdate as PermissionUpdate
from outrider.wire.shapes import TaskUsage as TaskUsage

# Annotations are evaluated where they stand, so that `get_type_hints` finds what they name.

# Open sets here, of which the reference knows these values.
FastModeDisabledReason: TypeAlias = _choices.KnownFastModeDisabledReason
FastModeState: TypeAlias = _choices.KnownFastModeState
MessageOriginKind: TypeAlias = _choices.KnownMessageOriginKind
PermissionBehavior: TypeAlias = _choices.KnownPermissionBehavior
PermissionMode: TypeAlias = _choices.KnownPermissionMode
RateLimitStatus: TypeAlias = _choices.KnownRateLimitStatus
RateLimitType: TypeAlias = _choices.KnownRateLimitType
ServerToolName: TypeAlias = _choices.KnownServerToolName
TaskNotificationOriginSubkind: TypeAlias = _choices.KnownTaskNotificationOriginSubkind
TaskNotificationStatus: TypeAlias = _choices.KnownTaskNotificationStatus
TaskUpdatedStatus: TypeAlias = _choices.KnownTaskUpdatedStatus

PermissionUpdateDestination: TypeAlias = Literal[
    "userSettings", "projectSettings", "localSettings", "session"
]
"""Where a change of permissions is kept."""


@dataclass
class ToolPermissionContext:
    """Why the agent asks, and updates that would avoid the question next time."""

    signal: Any | None = None
    """Always None."""
    suggestions: list[PermissionUpdate] = field(default_factory=list[PermissionUpdate])
    """To return as `updated_permissions`."""
    tool_use_id: str | None = None
    agent_id: str | None = None
    """The subagent that asks; None on the main thread."""
    blocked_path: str | None = None
    decision_reason: str | None = None
    title: str | None = None
    display_name: str | None = None
    description: str | None = None


CanUseTool: TypeAlias = Callable[[str, dict[str, Any], ToolPermissionContext], Awaitable[PermissionResult]]
"""A permission callback: takes the tool's name, its input and the context."""


class CanUseToolShadowedWarning(UserWarning):
    """A permission callback is not called for some tools, or for any."""


AssistantMessageError: TypeAlias = Literal[
    "authentication_failed", "billing_error", "rate_limit", "invalid_request", "server_error", "unknown"
]
"""Why an assistant message stands for a failure."""


# fmt: off
MessageOrigin = TypedDict(
    "MessageOrigin",
    {
        "kind": Required[MessageOriginKind],
        "server": str, "from": str, "name": str, "fromSession": str, "senderTaskId": str, "body": str,
        "verifiedPeerPid": int, "subkind": TaskNotificationOriginSubkind,
    },
    total=False,
)
"""Who caused a turn or a user message; which of the other keys there are depends on `kind`."""
# fmt: on


class ModelUsage(TypedDict):
    """Tokens and money by model."""

    inputTokens: int
    outputTokens: int
    cacheReadInputTokens: int
    cacheCreationInputTokens: int
    webSearchRequests: int
    costUSD: float
    contextWindow: int
    maxOutputTokens: int
    canonicalModel: NotRequired[str]
    provider: NotRequired[str]


class SystemInitMcpServer(TypedDict):
    """An MCP server as the init message lists it."""

    name: str
    status: str
    source: NotRequired[str]


class SystemInitPlugin(TypedDict):
    """A plugin that was loaded."""

    name: str
    path: str
    version: NotRequired[str]


class SystemInitPluginError(TypedDict):
    """A plugin that was skipped, and why."""

    plugin: str
    type: str
    message: str
    path: NotRequired[str]


class SystemInitData(TypedDict):
    """The `data` of an init message, keys as sent."""

    type: Literal["system"]
    subtype: Literal["init"]
    uuid: str
    session_id: str
    agents: NotRequired[list[str]]
    apiKeySource: str
    betas: NotRequired[list[str]]
    claude_code_version: str
    cwd: str
    tools: list[str]
    mcp_servers: list[SystemInitMcpServer]
    model: str
    permissionMode: PermissionMode
    slash_commands: list[str]
    terminal_slash_commands: NotRequired[list[str]]
    output_style: str
    skills: list[str]
    plugins: list[SystemInitPlugin]
    plugin_errors: NotRequired[list[SystemInitPluginError]]
    fast_mode_state: NotRequired[FastModeState]
    fast_mode_disabled_reason: NotRequired[FastModeDisabledReason]
    capabilities: NotRequired[list[str]]


class ContextUsageCategory(TypedDict):
    """A part of the context, with its size."""

    name: str
    tokens: int
    color: str
    isDeferred: NotRequired[bool]


class ContextUsageResponse(TypedDict):
    """The use of the model's context."""

    categories: list[ContextUsageCategory]
    totalTokens: int
    maxTokens: int
    rawMaxTokens: int
    percentage: float
    model: str
    isAutoCompactEnabled: bool
    memoryFiles: list[dict[str, Any]]
    mcpTools: list[dict[str, Any]]
    agents: list[dict[str, Any]]
    gridRows: list[list[dict[str, Any]]]
    autoCompactThreshold: NotRequired[int]
    deferredBuiltinTools: NotRequired[list[dict[str, Any]]]
    systemTools: NotRequired[list[dict[str, Any]]]
    systemPromptSections: NotRequired[list[dict[str, Any]]]
    slashCommands: NotRequired[dict[str, Any]]
    skills: NotRequired[dict[str, Any]]
    messageBreakdown: NotRequired[dict[str, Any]]
    apiUsage: NotRequired[dict[str, Any] | None]


SessionStoreFlushMode: TypeAlias = Literal["batched", "eager"]
"""When entries are sent to a store: at the end of a turn, or at once."""


class SessionKey(TypedDict):
    """Names one transcript."""

    project_key: str
    session_id: str
    subpath: NotRequired[str]
    """A part of the session, such as `subagents/agent-a1`; absent for the main transcript."""


class SessionStoreEntry(TypedDict, total=False):
    """One line of a transcript: any JSON object. Only these fields mean something to a store."""

    type: Required[str]
    uuid: str
    timestamp: str


class SessionSummaryEntry(TypedDict):
    """A summary of a session that a store has without reading it."""

    session_id: str
    mtime: int
    data: dict[str, Any]
    """A JSON object that the SDK makes and reads."""


if TYPE_CHECKING:
    # For type checkers, only what a store needs here: Outrider's own contract asks for more, and a store that
    # does not derive from it would have to have all of it.
    class SessionStore(Protocol):
        """Keeps transcripts: `append` and `load` have to be written, the others are optional."""

        async def append(self, key: SessionKey, entries: list[SessionStoreEntry]) -> None: ...
        async def load(self, key: SessionKey) -> list[SessionStoreEntry] | None: ...
        async def list_sessions(self, project_key: str) -> list[SessionStoreListEntry]:
            raise NotImplementedError

        async def list_session_summaries(self, project_key: str) -> list[SessionSummaryEntry]:
            raise NotImplementedError

        async def delete(self, key: SessionKey) -> None:
            raise NotImplementedError

        async def list_subkeys(self, key: SessionListSubkeysKey) -> list[str]:
            raise NotImplementedError
else:
    # The same class, so that both APIs agree on which of the optional methods a store has.
    from outrider.transcripts import SessionStore as SessionStore


@dataclass
class SDKSessionInfo:
    """A session, as lists show it."""

    session_id: str
    summary: str
    last_modified: int
    """Milliseconds since 1970."""
    file_size: int | None = None
    """Bytes; None where there is no file."""
    custom_title: str | None = None
    first_prompt: str | None = None
    git_branch: str | None = None
    cwd: str | None = None
    tag: str | None = None
    created_at: int | None = None
    """Milliseconds since 1970."""


@dataclass
class SessionMessage:
    """A message of a transcript."""

    type: Literal["user", "assistant"]
    uuid: str
    session_id: str
    message: Any
    """The API's own message object."""
    parent_tool_use_id: str | None = None
    parent_agent_id: str | None = None


@dataclass
class ForkSessionResult:
    """The copy that a fork made."""

    session_id: str

"""Exports the messages, blocks and permission values that the reference SDK has, and defines their parts.

The messages are the classes of `outrider.wire`. Also defines the types of session stores and lists, of what
servers report, and of control requests.
"""

# ruff: noqa: PLC0414 - type checkers take a name that is imported as itself for one that is exported

from dataclasses import dataclass
from typing import Any, Literal, NotRequired, Required, TypeAlias, TypedDict

from outrider.compat._types.hooks import HookEvent
from outrider.compat._types.options import (
    McpHttpServerConfig,
    McpSSEServerConfig,
    McpStdioServerConfig,
    PermissionMode,
)
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


class McpSdkServerConfigStatus(TypedDict):
    """A server of this process, as the agent sees it."""

    type: Literal["sdk"]
    name: str


class McpClaudeAIProxyServerConfig(TypedDict):
    """A server that the account has."""

    type: Literal["claudeai-proxy"]
    url: str
    id: str


McpServerStatusConfig: TypeAlias = (
    McpStdioServerConfig
    | McpSSEServerConfig
    | McpHttpServerConfig
    | McpSdkServerConfigStatus
    | McpClaudeAIProxyServerConfig
)
"""The configuration of a server, as the agent reports it."""

McpServerConnectionStatus: TypeAlias = Literal["connected", "failed", "needs-auth", "pending", "disabled"]
"""The state of the connection to a server."""


class McpToolAnnotations(TypedDict, total=False):
    """The hints of a tool."""

    readOnly: bool
    destructive: bool
    openWorld: bool


class McpToolInfo(TypedDict):
    """A tool of a server."""

    name: str
    description: NotRequired[str]
    annotations: NotRequired[McpToolAnnotations]


class McpServerInfo(TypedDict):
    """The name and version that a server reports."""

    name: str
    version: str


class McpServerStatus(TypedDict):
    """A server and the state of its connection."""

    name: str
    status: McpServerConnectionStatus
    serverInfo: NotRequired[McpServerInfo]
    error: NotRequired[str]
    config: NotRequired[McpServerStatusConfig]
    scope: NotRequired[str]
    tools: NotRequired[list[McpToolInfo]]


class McpStatusResponse(TypedDict):
    """All servers."""

    mcpServers: list[McpServerStatus]


class SDKControlInterruptRequest(TypedDict):
    """End the turn."""

    subtype: Literal["interrupt"]


class SDKControlPermissionRequest(TypedDict):
    """May this tool run?"""

    subtype: Literal["can_use_tool"]
    tool_name: str
    input: dict[str, Any]
    permission_suggestions: list[dict[str, Any]] | None
    blocked_path: str | None
    decision_reason: NotRequired[str]
    title: NotRequired[str]
    display_name: NotRequired[str]
    description: NotRequired[str]
    tool_use_id: str
    agent_id: NotRequired[str]


class SDKControlInitializeRequest(TypedDict):
    """The first request of a session."""

    subtype: Literal["initialize"]
    hooks: dict[HookEvent, Any] | None
    agents: NotRequired[dict[str, dict[str, Any]]]
    excludeDynamicSections: NotRequired[bool]
    systemPromptSnapshot: NotRequired[bool]
    skills: NotRequired[list[str]]
    forwardSubagentText: NotRequired[bool]


class SDKControlSetPermissionModeRequest(TypedDict):
    """Change the permission mode."""

    subtype: Literal["set_permission_mode"]
    mode: PermissionMode


class SDKHookCallbackRequest(TypedDict):
    """Call a hook."""

    subtype: Literal["hook_callback"]
    callback_id: str
    input: Any
    tool_use_id: str | None


class SDKControlMcpMessageRequest(TypedDict):
    """A message for a server of this process."""

    subtype: Literal["mcp_message"]
    server_name: str
    message: Any


class SDKControlRewindFilesRequest(TypedDict):
    """Restore files to their content at a message."""

    subtype: Literal["rewind_files"]
    user_message_id: str


class SDKControlMcpReconnectRequest(TypedDict):
    """Connect a server again."""

    subtype: Literal["mcp_reconnect"]
    serverName: str


class SDKControlMcpToggleRequest(TypedDict):
    """Turn a server on or off."""

    subtype: Literal["mcp_toggle"]
    serverName: str
    enabled: bool


class SDKControlStopTaskRequest(TypedDict):
    """End a background task."""

    subtype: Literal["stop_task"]
    task_id: str


class SDKControlRequest(TypedDict):
    """A request in its frame."""

    type: Literal["control_request"]
    request_id: str
    request: (
        SDKControlInterruptRequest
        | SDKControlPermissionRequest
        | SDKControlInitializeRequest
        | SDKControlSetPermissionModeRequest
        | SDKHookCallbackRequest
        | SDKControlMcpMessageRequest
        | SDKControlRewindFilesRequest
        | SDKControlMcpReconnectRequest
        | SDKControlMcpToggleRequest
        | SDKControlStopTaskRequest
    )


class ControlResponse(TypedDict):
    """A request was carried out."""

    subtype: Literal["success"]
    request_id: str
    response: dict[str, Any] | None


class ControlErrorResponse(TypedDict):
    """A request was not carried out."""

    subtype: Literal["error"]
    request_id: str
    error: str


class SDKControlResponse(TypedDict):
    """An answer in its frame."""

    type: Literal["control_response"]
    response: ControlResponse | ControlErrorResponse

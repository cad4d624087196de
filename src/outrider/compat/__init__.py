"""The reference SDK's names, on top of sessions: `from outrider.compat import query, ClaudeSDKClient`.

It translates, and has no protocol of its own. The guide for migrating lists the differences and the reasons.
Names are loaded on first use.
"""

# ruff: noqa: F403, F405 - of the types, `__all__` says which are here

from typing import TYPE_CHECKING

from outrider._lazy import lazily
from outrider._version import __version__

if TYPE_CHECKING:
    from outrider.compat import _errors as _errors
    from outrider.compat import testing as testing
    from outrider.compat import types as types
    from outrider.compat._client import ClaudeSDKClient
    from outrider.compat._errors import (
        ClaudeSDKError,
        CLIConnectionError,
        CLIJSONDecodeError,
        CLINotFoundError,
        ProcessError,
        ResultError,
    )
    from outrider.compat._query import query
    from outrider.compat._sessions import (
        delete_session,
        fork_session,
        get_session_info,
        get_session_messages,
        get_subagent_messages,
        list_sessions,
        list_subagents,
        project_key_for_directory,
        rename_session,
        tag_session,
    )
    from outrider.compat._stores import (
        InMemorySessionStore,
        delete_session_via_store,
        fold_session_summary,
        fork_session_via_store,
        get_session_info_from_store,
        get_session_messages_from_store,
        get_subagent_messages_from_store,
        import_session_to_store,
        list_sessions_from_store,
        list_subagents_from_store,
        rename_session_via_store,
        tag_session_via_store,
    )
    from outrider.compat._tools import SdkMcpTool, ToolAnnotations, create_sdk_mcp_server, tool
    from outrider.compat._transport import Transport
    from outrider.compat._types.hooks import *
    from outrider.compat._types.messages import *
    from outrider.compat._types.options import *

__all__ = [
    "AgentDefinition",
    "AssistantMessage",
    "BackgroundTaskSummary",
    "BaseHookInput",
    "CLIConnectionError",
    "CLIJSONDecodeError",
    "CLINotFoundError",
    "CanUseTool",
    "CanUseToolShadowedWarning",
    "ClaudeAgentOptions",
    "ClaudeSDKClient",
    "ClaudeSDKError",
    "ContentBlock",
    "ContextUsageCategory",
    "ContextUsageResponse",
    "ConversationResetMessage",
    "CwdChangedHookSpecificOutput",
    "DeferredToolUse",
    "EffortLevel",
    "ElicitationHookSpecificOutput",
    "ElicitationResultHookSpecificOutput",
    "FastModeDisabledReason",
    "FastModeState",
    "FileChangedHookSpecificOutput",
    "ForkSessionResult",
    "HookCallback",
    "HookContext",
    "HookEffort",
    "HookEventMessage",
    "HookInput",
    "HookJSONOutput",
    "HookMatcher",
    "InMemorySessionStore",
    "McpSdkServerConfig",
    "McpServerConfig",
    "McpServerConnectionStatus",
    "McpServerInfo",
    "McpServerStatus",
    "McpServerStatusConfig",
    "McpStatusResponse",
    "McpToolAnnotations",
    "McpToolInfo",
    "Message",
    "MessageDisplayHookSpecificOutput",
    "MessageOrigin",
    "MessageOriginKind",
    "MirrorErrorMessage",
    "ModelUsage",
    "NotificationHookInput",
    "NotificationHookSpecificOutput",
    "PermissionDeniedHookSpecificOutput",
    "PermissionMode",
    "PermissionRequestHookInput",
    "PermissionRequestHookSpecificOutput",
    "PermissionResult",
    "PermissionResultAllow",
    "PermissionResultDeny",
    "PermissionUpdate",
    "PostModelSwitchHookSpecificOutput",
    "PostToolBatchHookSpecificOutput",
    "PostToolUseFailureHookInput",
    "PostToolUseFailureHookSpecificOutput",
    "PostToolUseHookInput",
    "PostToolUseHookSpecificOutput",
    "PreCompactHookInput",
    "PreModelSwitchHookSpecificOutput",
    "PreToolUseHookInput",
    "PreToolUseHookSpecificOutput",
    "ProcessError",
    "RateLimitEvent",
    "RateLimitInfo",
    "RateLimitStatus",
    "RateLimitType",
    "ResultError",
    "ResultMessage",
    "SDKSessionInfo",
    "SandboxIgnoreViolations",
    "SandboxNetworkConfig",
    "SandboxSettings",
    "SdkBeta",
    "SdkMcpTool",
    "SdkPluginConfig",
    "ServerToolName",
    "ServerToolResultBlock",
    "ServerToolUseBlock",
    "SessionCronSummary",
    "SessionKey",
    "SessionListSubkeysKey",
    "SessionMessage",
    "SessionStartHookSpecificOutput",
    "SessionStore",
    "SessionStoreEntry",
    "SessionStoreFlushMode",
    "SessionStoreListEntry",
    "SessionSummaryEntry",
    "SettingSource",
    "StopHookInput",
    "StopHookSpecificOutput",
    "StreamEvent",
    "SubagentStartHookInput",
    "SubagentStartHookSpecificOutput",
    "SubagentStopHookInput",
    "SubagentStopHookSpecificOutput",
    "SystemInitData",
    "SystemInitMcpServer",
    "SystemInitPlugin",
    "SystemInitPluginError",
    "SystemMessage",
    "TERMINAL_TASK_STATUSES",
    "TaskBudget",
    "TaskNotificationMessage",
    "TaskNotificationOriginSubkind",
    "TaskNotificationStatus",
    "TaskProgressMessage",
    "TaskStartedMessage",
    "TaskUpdatedMessage",
    "TaskUpdatedStatus",
    "TaskUsage",
    "TextBlock",
    "ThinkingBlock",
    "ThinkingConfig",
    "ThinkingConfigAdaptive",
    "ThinkingConfigDisabled",
    "ThinkingConfigEnabled",
    "ToolAnnotations",
    "ToolPermissionContext",
    "ToolResultBlock",
    "ToolUseBlock",
    "Transport",
    "UserMessage",
    "UserPromptExpansionHookSpecificOutput",
    "UserPromptSubmitHookInput",
    "UserPromptSubmitHookSpecificOutput",
    "WorktreeCreateHookSpecificOutput",
    "__version__",
    "create_sdk_mcp_server",
    "delete_session",
    "delete_session_via_store",
    "fold_session_summary",
    "fork_session",
    "fork_session_via_store",
    "get_session_info",
    "get_session_info_from_store",
    "get_session_messages",
    "get_session_messages_from_store",
    "get_subagent_messages",
    "get_subagent_messages_from_store",
    "import_session_to_store",
    "list_sessions",
    "list_sessions_from_store",
    "list_subagents",
    "list_subagents_from_store",
    "project_key_for_directory",
    "query",
    "rename_session",
    "rename_session_via_store",
    "tag_session",
    "tag_session_via_store",
    "tool",
]

_HOMES = {
    "_client": "ClaudeSDKClient",
    "_errors": """
        CLIConnectionError CLIJSONDecodeError CLINotFoundError ClaudeSDKError ProcessError ResultError
    """,
    "_query": "query",
    "_sessions": """
        delete_session fork_session get_session_info get_session_messages get_subagent_messages
        list_sessions list_subagents project_key_for_directory rename_session tag_session
    """,
    "_stores": """
        InMemorySessionStore delete_session_via_store fold_session_summary fork_session_via_store
        get_session_info_from_store get_session_messages_from_store get_subagent_messages_from_store
        import_session_to_store list_sessions_from_store list_subagents_from_store rename_session_via_store
        tag_session_via_store
    """,
    "_tools": "SdkMcpTool ToolAnnotations create_sdk_mcp_server tool",
    "_transport": "Transport",
}
"""Where the names are. All others are in `types`."""

_homes = {home: names.split() for home, names in _HOMES.items()}
_homes["types"] = [*{*__all__} - {"__version__", *" ".join(_HOMES.values()).split()}]
__getattr__, __dir__ = lazily(__name__, _homes, ("_errors", "testing", "types"))

"""The reference SDK's names, on top of sessions: `from outrider.compat import query, ClaudeSDKClient`.

It translates, and has no protocol of its own. The guide for migrating lists the differences and the reasons.
Names are loaded on first use.
"""

import sys
from types import ModuleType
from typing import TYPE_CHECKING

from outrider._lazy import lazily
from outrider.compat._version import __version__ as __version__

if TYPE_CHECKING:
    from outrider.compat import _cli_version as _cli_version
    from outrider.compat import _errors as _errors
    from outrider.compat import _internal as _internal
    from outrider.compat import _version as _version
    from outrider.compat import client as client
    from outrider.compat import testing as testing
    from outrider.compat import types as types
    from outrider.compat._errors import ClaudeSDKError as ClaudeSDKError
    from outrider.compat._errors import CLIConnectionError as CLIConnectionError
    from outrider.compat._errors import CLIJSONDecodeError as CLIJSONDecodeError
    from outrider.compat._errors import CLINotFoundError as CLINotFoundError
    from outrider.compat._errors import ProcessError as ProcessError
    from outrider.compat._errors import ResultError as ResultError
    from outrider.compat._sessions.disk import delete_session as delete_session
    from outrider.compat._sessions.disk import fork_session as fork_session
    from outrider.compat._sessions.disk import get_session_info as get_session_info
    from outrider.compat._sessions.disk import get_session_messages as get_session_messages
    from outrider.compat._sessions.disk import get_subagent_messages as get_subagent_messages
    from outrider.compat._sessions.disk import list_sessions as list_sessions
    from outrider.compat._sessions.disk import list_subagents as list_subagents
    from outrider.compat._sessions.disk import project_key_for_directory as project_key_for_directory
    from outrider.compat._sessions.disk import rename_session as rename_session
    from outrider.compat._sessions.disk import tag_session as tag_session
    from outrider.compat._sessions.stores import InMemorySessionStore as InMemorySessionStore
    from outrider.compat._sessions.stores import delete_session_via_store as delete_session_via_store
    from outrider.compat._sessions.stores import fold_session_summary as fold_session_summary
    from outrider.compat._sessions.stores import fork_session_via_store as fork_session_via_store
    from outrider.compat._sessions.stores import get_session_info_from_store as get_session_info_from_store
    from outrider.compat._sessions.stores import (
        get_session_messages_from_store as get_session_messages_from_store,
    )
    from outrider.compat._sessions.stores import (
        get_subagent_messages_from_store as get_subagent_messages_from_store,
    )
    from outrider.compat._sessions.stores import import_session_to_store as import_session_to_store
    from outrider.compat._sessions.stores import list_sessions_from_store as list_sessions_from_store
    from outrider.compat._sessions.stores import list_subagents_from_store as list_subagents_from_store
    from outrider.compat._sessions.stores import rename_session_via_store as rename_session_via_store
    from outrider.compat._sessions.stores import tag_session_via_store as tag_session_via_store
    from outrider.compat._tools import SdkMcpTool as SdkMcpTool
    from outrider.compat._tools import ToolAnnotations as ToolAnnotations
    from outrider.compat._tools import create_sdk_mcp_server as create_sdk_mcp_server
    from outrider.compat._tools import tool as tool
    from outrider.compat._transport import Transport as Transport
    from outrider.compat.client import ClaudeSDKClient as ClaudeSDKClient
    from outrider.compat.query import query as query
    from outrider.compat.types import TERMINAL_TASK_STATUSES as TERMINAL_TASK_STATUSES
    from outrider.compat.types import AgentDefinition as AgentDefinition
    from outrider.compat.types import AssistantMessage as AssistantMessage
    from outrider.compat.types import BackgroundTaskSummary as BackgroundTaskSummary
    from outrider.compat.types import BaseHookInput as BaseHookInput
    from outrider.compat.types import CanUseTool as CanUseTool
    from outrider.compat.types import CanUseToolShadowedWarning as CanUseToolShadowedWarning
    from outrider.compat.types import ClaudeAgentOptions as ClaudeAgentOptions
    from outrider.compat.types import ContentBlock as ContentBlock
    from outrider.compat.types import ContextUsageCategory as ContextUsageCategory
    from outrider.compat.types import ContextUsageResponse as ContextUsageResponse
    from outrider.compat.types import ConversationResetMessage as ConversationResetMessage
    from outrider.compat.types import CwdChangedHookSpecificOutput as CwdChangedHookSpecificOutput
    from outrider.compat.types import DeferredToolUse as DeferredToolUse
    from outrider.compat.types import EffortLevel as EffortLevel
    from outrider.compat.types import ElicitationHookSpecificOutput as ElicitationHookSpecificOutput
    from outrider.compat.types import (
        ElicitationResultHookSpecificOutput as ElicitationResultHookSpecificOutput,
    )
    from outrider.compat.types import FastModeDisabledReason as FastModeDisabledReason
    from outrider.compat.types import FastModeState as FastModeState
    from outrider.compat.types import FileChangedHookSpecificOutput as FileChangedHookSpecificOutput
    from outrider.compat.types import ForkSessionResult as ForkSessionResult
    from outrider.compat.types import HookCallback as HookCallback
    from outrider.compat.types import HookContext as HookContext
    from outrider.compat.types import HookEffort as HookEffort
    from outrider.compat.types import HookEventMessage as HookEventMessage
    from outrider.compat.types import HookInput as HookInput
    from outrider.compat.types import HookJSONOutput as HookJSONOutput
    from outrider.compat.types import HookMatcher as HookMatcher
    from outrider.compat.types import McpSdkServerConfig as McpSdkServerConfig
    from outrider.compat.types import McpServerConfig as McpServerConfig
    from outrider.compat.types import McpServerConnectionStatus as McpServerConnectionStatus
    from outrider.compat.types import McpServerInfo as McpServerInfo
    from outrider.compat.types import McpServerStatus as McpServerStatus
    from outrider.compat.types import McpServerStatusConfig as McpServerStatusConfig
    from outrider.compat.types import McpStatusResponse as McpStatusResponse
    from outrider.compat.types import McpToolAnnotations as McpToolAnnotations
    from outrider.compat.types import McpToolInfo as McpToolInfo
    from outrider.compat.types import Message as Message
    from outrider.compat.types import MessageDisplayHookSpecificOutput as MessageDisplayHookSpecificOutput
    from outrider.compat.types import MessageOrigin as MessageOrigin
    from outrider.compat.types import MessageOriginKind as MessageOriginKind
    from outrider.compat.types import MirrorErrorMessage as MirrorErrorMessage
    from outrider.compat.types import ModelUsage as ModelUsage
    from outrider.compat.types import NotificationHookInput as NotificationHookInput
    from outrider.compat.types import NotificationHookSpecificOutput as NotificationHookSpecificOutput
    from outrider.compat.types import PermissionDeniedHookSpecificOutput as PermissionDeniedHookSpecificOutput
    from outrider.compat.types import PermissionMode as PermissionMode
    from outrider.compat.types import PermissionRequestHookInput as PermissionRequestHookInput
    from outrider.compat.types import (
        PermissionRequestHookSpecificOutput as PermissionRequestHookSpecificOutput,
    )
    from outrider.compat.types import PermissionResult as PermissionResult
    from outrider.compat.types import PermissionResultAllow as PermissionResultAllow
    from outrider.compat.types import PermissionResultDeny as PermissionResultDeny
    from outrider.compat.types import PermissionUpdate as PermissionUpdate
    from outrider.compat.types import PostModelSwitchHookSpecificOutput as PostModelSwitchHookSpecificOutput
    from outrider.compat.types import PostToolBatchHookSpecificOutput as PostToolBatchHookSpecificOutput
    from outrider.compat.types import PostToolUseFailureHookInput as PostToolUseFailureHookInput
    from outrider.compat.types import (
        PostToolUseFailureHookSpecificOutput as PostToolUseFailureHookSpecificOutput,
    )
    from outrider.compat.types import PostToolUseHookInput as PostToolUseHookInput
    from outrider.compat.types import PostToolUseHookSpecificOutput as PostToolUseHookSpecificOutput
    from outrider.compat.types import PreCompactHookInput as PreCompactHookInput
    from outrider.compat.types import PreModelSwitchHookSpecificOutput as PreModelSwitchHookSpecificOutput
    from outrider.compat.types import PreToolUseHookInput as PreToolUseHookInput
    from outrider.compat.types import PreToolUseHookSpecificOutput as PreToolUseHookSpecificOutput
    from outrider.compat.types import RateLimitEvent as RateLimitEvent
    from outrider.compat.types import RateLimitInfo as RateLimitInfo
    from outrider.compat.types import RateLimitStatus as RateLimitStatus
    from outrider.compat.types import RateLimitType as RateLimitType
    from outrider.compat.types import ResultMessage as ResultMessage
    from outrider.compat.types import SandboxIgnoreViolations as SandboxIgnoreViolations
    from outrider.compat.types import SandboxNetworkConfig as SandboxNetworkConfig
    from outrider.compat.types import SandboxSettings as SandboxSettings
    from outrider.compat.types import SdkBeta as SdkBeta
    from outrider.compat.types import SdkPluginConfig as SdkPluginConfig
    from outrider.compat.types import SDKSessionInfo as SDKSessionInfo
    from outrider.compat.types import ServerToolName as ServerToolName
    from outrider.compat.types import ServerToolResultBlock as ServerToolResultBlock
    from outrider.compat.types import ServerToolUseBlock as ServerToolUseBlock
    from outrider.compat.types import SessionCronSummary as SessionCronSummary
    from outrider.compat.types import SessionKey as SessionKey
    from outrider.compat.types import SessionListSubkeysKey as SessionListSubkeysKey
    from outrider.compat.types import SessionMessage as SessionMessage
    from outrider.compat.types import SessionStartHookSpecificOutput as SessionStartHookSpecificOutput
    from outrider.compat.types import SessionStore as SessionStore
    from outrider.compat.types import SessionStoreEntry as SessionStoreEntry
    from outrider.compat.types import SessionStoreFlushMode as SessionStoreFlushMode
    from outrider.compat.types import SessionStoreListEntry as SessionStoreListEntry
    from outrider.compat.types import SessionSummaryEntry as SessionSummaryEntry
    from outrider.compat.types import SettingSource as SettingSource
    from outrider.compat.types import StopHookInput as StopHookInput
    from outrider.compat.types import StopHookSpecificOutput as StopHookSpecificOutput
    from outrider.compat.types import StreamEvent as StreamEvent
    from outrider.compat.types import SubagentStartHookInput as SubagentStartHookInput
    from outrider.compat.types import SubagentStartHookSpecificOutput as SubagentStartHookSpecificOutput
    from outrider.compat.types import SubagentStopHookInput as SubagentStopHookInput
    from outrider.compat.types import SubagentStopHookSpecificOutput as SubagentStopHookSpecificOutput
    from outrider.compat.types import SystemInitData as SystemInitData
    from outrider.compat.types import SystemInitMcpServer as SystemInitMcpServer
    from outrider.compat.types import SystemInitPlugin as SystemInitPlugin
    from outrider.compat.types import SystemInitPluginError as SystemInitPluginError
    from outrider.compat.types import SystemMessage as SystemMessage
    from outrider.compat.types import TaskBudget as TaskBudget
    from outrider.compat.types import TaskNotificationMessage as TaskNotificationMessage
    from outrider.compat.types import TaskNotificationOriginSubkind as TaskNotificationOriginSubkind
    from outrider.compat.types import TaskNotificationStatus as TaskNotificationStatus
    from outrider.compat.types import TaskProgressMessage as TaskProgressMessage
    from outrider.compat.types import TaskStartedMessage as TaskStartedMessage
    from outrider.compat.types import TaskUpdatedMessage as TaskUpdatedMessage
    from outrider.compat.types import TaskUpdatedStatus as TaskUpdatedStatus
    from outrider.compat.types import TaskUsage as TaskUsage
    from outrider.compat.types import TextBlock as TextBlock
    from outrider.compat.types import ThinkingBlock as ThinkingBlock
    from outrider.compat.types import ThinkingConfig as ThinkingConfig
    from outrider.compat.types import ThinkingConfigAdaptive as ThinkingConfigAdaptive
    from outrider.compat.types import ThinkingConfigDisabled as ThinkingConfigDisabled
    from outrider.compat.types import ThinkingConfigEnabled as ThinkingConfigEnabled
    from outrider.compat.types import ToolPermissionContext as ToolPermissionContext
    from outrider.compat.types import ToolResultBlock as ToolResultBlock
    from outrider.compat.types import ToolUseBlock as ToolUseBlock
    from outrider.compat.types import UserMessage as UserMessage
    from outrider.compat.types import (
        UserPromptExpansionHookSpecificOutput as UserPromptExpansionHookSpecificOutput,
    )
    from outrider.compat.types import UserPromptSubmitHookInput as UserPromptSubmitHookInput
    from outrider.compat.types import UserPromptSubmitHookSpecificOutput as UserPromptSubmitHookSpecificOutput
    from outrider.compat.types import WorktreeCreateHookSpecificOutput as WorktreeCreateHookSpecificOutput
else:
    __getattr__, __dir__, __all__ = lazily(__name__)


class _Package(ModuleType):
    def __setattr__(self, name: str, value: object) -> None:
        # Importing a module makes it an attribute of its package. As in the reference, `query` is the
        # function all the same, and the module is found by its full name.
        is_module = name == "query" and isinstance(value, ModuleType)
        super().__setattr__(name, vars(value)[name] if is_module else value)


sys.modules[__name__].__class__ = _Package


def install() -> None:
    """Let `import claude_agent_sdk` mean this package, in this process and nowhere else.

        import outrider.compat

        outrider.compat.install()  # before anything imports claude_agent_sdk

    Frameworks and instrumentors that import that name, patch it or ask for its version then work with
    Outrider. A second call does nothing. Raises `outrider.errors.UsageError` if the reference itself is
    imported already.
    """
    from outrider.compat._alias import add_alias

    add_alias()

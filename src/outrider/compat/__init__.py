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
    from outrider.compat._types.hooks import BackgroundTaskSummary as BackgroundTaskSummary
    from outrider.compat._types.hooks import BaseHookInput as BaseHookInput
    from outrider.compat._types.hooks import CwdChangedHookSpecificOutput as CwdChangedHookSpecificOutput
    from outrider.compat._types.hooks import ElicitationHookSpecificOutput as ElicitationHookSpecificOutput
    from outrider.compat._types.hooks import (
        ElicitationResultHookSpecificOutput as ElicitationResultHookSpecificOutput,
    )
    from outrider.compat._types.hooks import FileChangedHookSpecificOutput as FileChangedHookSpecificOutput
    from outrider.compat._types.hooks import HookCallback as HookCallback
    from outrider.compat._types.hooks import HookContext as HookContext
    from outrider.compat._types.hooks import HookEffort as HookEffort
    from outrider.compat._types.hooks import HookInput as HookInput
    from outrider.compat._types.hooks import HookJSONOutput as HookJSONOutput
    from outrider.compat._types.hooks import HookMatcher as HookMatcher
    from outrider.compat._types.hooks import (
        MessageDisplayHookSpecificOutput as MessageDisplayHookSpecificOutput,
    )
    from outrider.compat._types.hooks import NotificationHookInput as NotificationHookInput
    from outrider.compat._types.hooks import NotificationHookSpecificOutput as NotificationHookSpecificOutput
    from outrider.compat._types.hooks import (
        PermissionDeniedHookSpecificOutput as PermissionDeniedHookSpecificOutput,
    )
    from outrider.compat._types.hooks import PermissionRequestHookInput as PermissionRequestHookInput
    from outrider.compat._types.hooks import (
        PermissionRequestHookSpecificOutput as PermissionRequestHookSpecificOutput,
    )
    from outrider.compat._types.hooks import (
        PostModelSwitchHookSpecificOutput as PostModelSwitchHookSpecificOutput,
    )
    from outrider.compat._types.hooks import (
        PostToolBatchHookSpecificOutput as PostToolBatchHookSpecificOutput,
    )
    from outrider.compat._types.hooks import PostToolUseFailureHookInput as PostToolUseFailureHookInput
    from outrider.compat._types.hooks import (
        PostToolUseFailureHookSpecificOutput as PostToolUseFailureHookSpecificOutput,
    )
    from outrider.compat._types.hooks import PostToolUseHookInput as PostToolUseHookInput
    from outrider.compat._types.hooks import PostToolUseHookSpecificOutput as PostToolUseHookSpecificOutput
    from outrider.compat._types.hooks import PreCompactHookInput as PreCompactHookInput
    from outrider.compat._types.hooks import (
        PreModelSwitchHookSpecificOutput as PreModelSwitchHookSpecificOutput,
    )
    from outrider.compat._types.hooks import PreToolUseHookInput as PreToolUseHookInput
    from outrider.compat._types.hooks import PreToolUseHookSpecificOutput as PreToolUseHookSpecificOutput
    from outrider.compat._types.hooks import SessionCronSummary as SessionCronSummary
    from outrider.compat._types.hooks import SessionStartHookSpecificOutput as SessionStartHookSpecificOutput
    from outrider.compat._types.hooks import StopHookInput as StopHookInput
    from outrider.compat._types.hooks import StopHookSpecificOutput as StopHookSpecificOutput
    from outrider.compat._types.hooks import SubagentStartHookInput as SubagentStartHookInput
    from outrider.compat._types.hooks import (
        SubagentStartHookSpecificOutput as SubagentStartHookSpecificOutput,
    )
    from outrider.compat._types.hooks import SubagentStopHookInput as SubagentStopHookInput
    from outrider.compat._types.hooks import SubagentStopHookSpecificOutput as SubagentStopHookSpecificOutput
    from outrider.compat._types.hooks import (
        UserPromptExpansionHookSpecificOutput as UserPromptExpansionHookSpecificOutput,
    )
    from outrider.compat._types.hooks import UserPromptSubmitHookInput as UserPromptSubmitHookInput
    from outrider.compat._types.hooks import (
        UserPromptSubmitHookSpecificOutput as UserPromptSubmitHookSpecificOutput,
    )
    from outrider.compat._types.hooks import (
        WorktreeCreateHookSpecificOutput as WorktreeCreateHookSpecificOutput,
    )
    from outrider.compat._types.messages import ContextUsageCategory as ContextUsageCategory
    from outrider.compat._types.messages import ContextUsageResponse as ContextUsageResponse
    from outrider.compat._types.messages import FastModeDisabledReason as FastModeDisabledReason
    from outrider.compat._types.messages import FastModeState as FastModeState
    from outrider.compat._types.messages import ForkSessionResult as ForkSessionResult
    from outrider.compat._types.messages import McpServerConnectionStatus as McpServerConnectionStatus
    from outrider.compat._types.messages import McpServerInfo as McpServerInfo
    from outrider.compat._types.messages import McpServerStatus as McpServerStatus
    from outrider.compat._types.messages import McpServerStatusConfig as McpServerStatusConfig
    from outrider.compat._types.messages import McpStatusResponse as McpStatusResponse
    from outrider.compat._types.messages import McpToolAnnotations as McpToolAnnotations
    from outrider.compat._types.messages import McpToolInfo as McpToolInfo
    from outrider.compat._types.messages import MessageOrigin as MessageOrigin
    from outrider.compat._types.messages import MessageOriginKind as MessageOriginKind
    from outrider.compat._types.messages import ModelUsage as ModelUsage
    from outrider.compat._types.messages import RateLimitStatus as RateLimitStatus
    from outrider.compat._types.messages import RateLimitType as RateLimitType
    from outrider.compat._types.messages import SDKSessionInfo as SDKSessionInfo
    from outrider.compat._types.messages import ServerToolName as ServerToolName
    from outrider.compat._types.messages import SessionKey as SessionKey
    from outrider.compat._types.messages import SessionMessage as SessionMessage
    from outrider.compat._types.messages import SessionStoreEntry as SessionStoreEntry
    from outrider.compat._types.messages import SessionSummaryEntry as SessionSummaryEntry
    from outrider.compat._types.messages import SystemInitData as SystemInitData
    from outrider.compat._types.messages import SystemInitMcpServer as SystemInitMcpServer
    from outrider.compat._types.messages import SystemInitPlugin as SystemInitPlugin
    from outrider.compat._types.messages import SystemInitPluginError as SystemInitPluginError
    from outrider.compat._types.messages import TaskNotificationOriginSubkind as TaskNotificationOriginSubkind
    from outrider.compat._types.messages import TaskNotificationStatus as TaskNotificationStatus
    from outrider.compat._types.messages import TaskUpdatedStatus as TaskUpdatedStatus
    from outrider.compat._types.options import AgentDefinition as AgentDefinition
    from outrider.compat._types.options import CanUseTool as CanUseTool
    from outrider.compat._types.options import CanUseToolShadowedWarning as CanUseToolShadowedWarning
    from outrider.compat._types.options import ClaudeAgentOptions as ClaudeAgentOptions
    from outrider.compat._types.options import EffortLevel as EffortLevel
    from outrider.compat._types.options import McpSdkServerConfig as McpSdkServerConfig
    from outrider.compat._types.options import McpServerConfig as McpServerConfig
    from outrider.compat._types.options import PermissionMode as PermissionMode
    from outrider.compat._types.options import SandboxIgnoreViolations as SandboxIgnoreViolations
    from outrider.compat._types.options import SandboxNetworkConfig as SandboxNetworkConfig
    from outrider.compat._types.options import SandboxSettings as SandboxSettings
    from outrider.compat._types.options import SdkBeta as SdkBeta
    from outrider.compat._types.options import SdkPluginConfig as SdkPluginConfig
    from outrider.compat._types.options import SessionStore as SessionStore
    from outrider.compat._types.options import SessionStoreFlushMode as SessionStoreFlushMode
    from outrider.compat._types.options import SettingSource as SettingSource
    from outrider.compat._types.options import TaskBudget as TaskBudget
    from outrider.compat._types.options import ThinkingConfig as ThinkingConfig
    from outrider.compat._types.options import ThinkingConfigAdaptive as ThinkingConfigAdaptive
    from outrider.compat._types.options import ThinkingConfigDisabled as ThinkingConfigDisabled
    from outrider.compat._types.options import ThinkingConfigEnabled as ThinkingConfigEnabled
    from outrider.compat._types.options import ToolPermissionContext as ToolPermissionContext
    from outrider.compat.client import ClaudeSDKClient as ClaudeSDKClient
    from outrider.compat.query import query as query
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
    from outrider.wire.choices import TERMINAL_TASK_STATUSES as TERMINAL_TASK_STATUSES
    from outrider.wire.permissions import PermissionResult as PermissionResult
    from outrider.wire.permissions import PermissionResultAllow as PermissionResultAllow
    from outrider.wire.permissions import PermissionResultDeny as PermissionResultDeny
    from outrider.wire.permissions import PermissionUpdate as PermissionUpdate
    from outrider.wire.shapes import TaskUsage as TaskUsage
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

"""Defines the values that Claude Code spells as text: a type alias for each set, and the known values.

Every set is open, because releases of Claude Code add values. Nothing here rejects one.
"""

from __future__ import annotations

from typing import Final, Literal, TypeAlias, get_args

__all__ = [
    "AGENT_MODELS",
    "ASSISTANT_MESSAGE_ERRORS",
    "AgentModel",
    "AssistantMessageError",
    "BETAS",
    "Beta",
    "CAPABILITIES",
    "Capability",
    "DECISION_CLASSIFICATIONS",
    "DECISION_REASON_TYPES",
    "DecisionClassification",
    "DecisionReasonType",
    "EFFORT_LEVELS",
    "EffortLevel",
    "FAST_MODE_DISABLED_REASONS",
    "FAST_MODE_STATES",
    "FastModeDisabledReason",
    "FastModeState",
    "MESSAGE_ORIGIN_KINDS",
    "MessageOriginKind",
    "PERMISSION_BEHAVIORS",
    "PERMISSION_MODES",
    "PERMISSION_UPDATE_DESTINATIONS",
    "PERMISSION_UPDATE_TYPES",
    "PermissionBehavior",
    "PermissionMode",
    "PermissionUpdateDestination",
    "PermissionUpdateType",
    "RATE_LIMIT_STATUSES",
    "RATE_LIMIT_TYPES",
    "RateLimitStatus",
    "RateLimitType",
    "SERVER_TOOL_NAMES",
    "SESSION_STATES",
    "SETTING_SOURCES",
    "ServerToolName",
    "SessionState",
    "SettingSource",
    "TASK_NOTIFICATION_ORIGIN_SUBKINDS",
    "TASK_NOTIFICATION_STATUSES",
    "TASK_UPDATED_STATUSES",
    "TERMINAL_REASONS",
    "TERMINAL_TASK_STATUSES",
    "TaskNotificationOriginSubkind",
    "TaskNotificationStatus",
    "TaskUpdatedStatus",
    "TerminalReason",
]

# A union of the literals with `str`: type checkers accept any text, narrow on `==`, and still offer the known
# values while one types (measured with pyright's language server); msgspec decodes it as fast as `str`.

_PermissionMode: TypeAlias = Literal["default", "acceptEdits", "plan", "bypassPermissions", "dontAsk", "auto"]
PermissionMode: TypeAlias = _PermissionMode | str
"""What the agent may do without asking."""
PERMISSION_MODES: Final[tuple[str, ...]] = get_args(_PermissionMode)

_PermissionBehavior: TypeAlias = Literal["allow", "deny", "ask"]
PermissionBehavior: TypeAlias = _PermissionBehavior | str
"""What a permission rule does."""
PERMISSION_BEHAVIORS: Final[tuple[str, ...]] = get_args(_PermissionBehavior)

_PermissionUpdateType: TypeAlias = Literal[
    "addRules", "replaceRules", "removeRules", "setMode", "addDirectories", "removeDirectories"
]
PermissionUpdateType: TypeAlias = _PermissionUpdateType | str
"""What a permission update changes."""
PERMISSION_UPDATE_TYPES: Final[tuple[str, ...]] = get_args(_PermissionUpdateType)

_PermissionUpdateDestination: TypeAlias = Literal[
    "userSettings", "projectSettings", "localSettings", "session", "cliArg"
]
PermissionUpdateDestination: TypeAlias = _PermissionUpdateDestination | str
"""Where a permission update is kept."""
PERMISSION_UPDATE_DESTINATIONS: Final[tuple[str, ...]] = get_args(_PermissionUpdateDestination)

_DecisionClassification: TypeAlias = Literal["user_temporary", "user_permanent", "user_reject"]
DecisionClassification: TypeAlias = _DecisionClassification | str
"""How a person decided on a permission request."""
DECISION_CLASSIFICATIONS: Final[tuple[str, ...]] = get_args(_DecisionClassification)

_DecisionReasonType: TypeAlias = Literal[
    "rule",
    "mode",
    "subcommandResults",
    "permissionPromptTool",
    "hook",
    "asyncAgent",
    "sandboxOverride",
    "workingDir",
    "safetyCheck",
    "classifier",
    "other",
]
DecisionReasonType: TypeAlias = _DecisionReasonType | str
"""What made the agent ask for permission, or refuse it by itself."""
DECISION_REASON_TYPES: Final[tuple[str, ...]] = get_args(_DecisionReasonType)

_SettingSource: TypeAlias = Literal["user", "project", "local"]
SettingSource: TypeAlias = _SettingSource | str
"""A settings file that the agent reads."""
SETTING_SOURCES: Final[tuple[str, ...]] = get_args(_SettingSource)

_Beta: TypeAlias = Literal["context-1m-2025-08-07"]
Beta: TypeAlias = _Beta | str
"""A feature of the API that has to be asked for."""
BETAS: Final[tuple[str, ...]] = get_args(_Beta)

_AgentModel: TypeAlias = Literal["sonnet", "opus", "haiku", "inherit"]
AgentModel: TypeAlias = _AgentModel | str
"""The model of a subagent: a short name, `inherit` for that of the main thread, or a full model id."""
AGENT_MODELS: Final[tuple[str, ...]] = get_args(_AgentModel)

_EffortLevel: TypeAlias = Literal["low", "medium", "high", "xhigh", "max"]
EffortLevel: TypeAlias = _EffortLevel | str
"""How hard the model thinks; not every model has every level."""
EFFORT_LEVELS: Final[tuple[str, ...]] = get_args(_EffortLevel)

_AssistantMessageError: TypeAlias = Literal[
    "authentication_failed",
    "oauth_org_not_allowed",
    "account_on_hold",
    "verification_required",
    "billing_error",
    "rate_limit",
    "overloaded",
    "invalid_request",
    "model_not_found",
    "server_error",
    "unknown",
    "max_output_tokens",
    "cloud_credential_error",
]
AssistantMessageError: TypeAlias = _AssistantMessageError | str
"""Why an assistant message stands for a failure."""
ASSISTANT_MESSAGE_ERRORS: Final[tuple[str, ...]] = get_args(_AssistantMessageError)

_TerminalReason: TypeAlias = Literal[
    "blocking_limit",
    "rapid_refill_breaker",
    "prompt_too_long",
    "image_error",
    "model_error",
    "api_error",
    "malformed_tool_use_exhausted",
    "aborted_streaming",
    "aborted_tools",
    "stop_hook_prevented",
    "hook_stopped",
    "tool_deferred",
    "max_turns",
    "background_requested",
    "completed",
    "budget_exhausted",
    "structured_output_retry_exhausted",
    "tool_deferred_unavailable",
    "turn_setup_failed",
]
TerminalReason: TypeAlias = _TerminalReason | str
"""What ended a turn."""
TERMINAL_REASONS: Final[tuple[str, ...]] = get_args(_TerminalReason)

_FastModeState: TypeAlias = Literal["off", "cooldown", "on"]
FastModeState: TypeAlias = _FastModeState | str
"""Whether answers come by the fast route."""
FAST_MODE_STATES: Final[tuple[str, ...]] = get_args(_FastModeState)

_FastModeDisabledReason: TypeAlias = Literal[
    "free",
    "preference",
    "extra_usage_disabled",
    "network_error",
    "unknown",
    "not_first_party",
    "disabled_by_env",
    "model_not_allowed",
    "sdk_opt_in_required",
    "pending",
]
FastModeDisabledReason: TypeAlias = _FastModeDisabledReason | str
"""Why fast mode cannot be turned on."""
FAST_MODE_DISABLED_REASONS: Final[tuple[str, ...]] = get_args(_FastModeDisabledReason)

_MessageOriginKind: TypeAlias = Literal[
    "human",
    "channel",
    "peer",
    "task-notification",
    "coordinator",
    "unclassified",
    "observer",
    "auto-continuation",
    "observer-activity",
]
MessageOriginKind: TypeAlias = _MessageOriginKind | str
"""Who or what wrote a user message."""
MESSAGE_ORIGIN_KINDS: Final[tuple[str, ...]] = get_args(_MessageOriginKind)

_TaskNotificationOriginSubkind: TypeAlias = Literal["scheduled-trigger", "peer-send-message"]
TaskNotificationOriginSubkind: TypeAlias = _TaskNotificationOriginSubkind | str
"""What kind of task notification a message came from."""
TASK_NOTIFICATION_ORIGIN_SUBKINDS: Final[tuple[str, ...]] = get_args(_TaskNotificationOriginSubkind)

_TaskNotificationStatus: TypeAlias = Literal["completed", "failed", "stopped"]
TaskNotificationStatus: TypeAlias = _TaskNotificationStatus | str
"""How a background task ended, as its notification says."""
TASK_NOTIFICATION_STATUSES: Final[tuple[str, ...]] = get_args(_TaskNotificationStatus)

_TaskUpdatedStatus: TypeAlias = Literal["pending", "running", "paused", "completed", "failed", "killed"]
TaskUpdatedStatus: TypeAlias = _TaskUpdatedStatus | str
"""Where a background task stands, as its updates say."""
TASK_UPDATED_STATUSES: Final[tuple[str, ...]] = get_args(_TaskUpdatedStatus)

TERMINAL_TASK_STATUSES: Final = frozenset(("completed", "failed", "stopped", "killed"))
"""The statuses, of updates and notifications alike, after which a task is over."""

_RateLimitStatus: TypeAlias = Literal["allowed", "allowed_warning", "rejected"]
RateLimitStatus: TypeAlias = _RateLimitStatus | str
"""What a rate limit lets through."""
RATE_LIMIT_STATUSES: Final[tuple[str, ...]] = get_args(_RateLimitStatus)

_RateLimitType: TypeAlias = Literal["five_hour", "seven_day", "seven_day_opus", "seven_day_sonnet", "overage"]
RateLimitType: TypeAlias = _RateLimitType | str
"""The window or purse that a rate limit counts."""
RATE_LIMIT_TYPES: Final[tuple[str, ...]] = get_args(_RateLimitType)

_ServerToolName: TypeAlias = Literal[
    "advisor",
    "web_search",
    "web_fetch",
    "code_execution",
    "bash_code_execution",
    "text_editor_code_execution",
    "tool_search_tool_regex",
    "tool_search_tool_bm25",
]
ServerToolName: TypeAlias = _ServerToolName | str
"""A tool that the API runs itself."""
SERVER_TOOL_NAMES: Final[tuple[str, ...]] = get_args(_ServerToolName)

_SessionState: TypeAlias = Literal["idle", "running", "requires_action"]
SessionState: TypeAlias = _SessionState | str
"""What the session is doing: `requires_action` waits for the host."""
SESSION_STATES: Final[tuple[str, ...]] = get_args(_SessionState)

_Capability: TypeAlias = Literal[
    "interrupt_receipt_v1",
    "interrupt_cancel_queued_v1",
    "interrupt_send_now_v1",
    "interrupt_requeue_taken_v1",
    "queued_notifications",
    "msg_lifecycle_v1",
    "request_marker_lists_v1",
    "lifecycle_wakeup_source_v1",
    "withdrawn_files_note_v2",
    "ask_user_question_unanswered_v1",
    "reload_plugins_refuse_if_busy_v1",
    "mcp_read_resource_v1",
    "mcp_tool_ui_meta_v1",
    "mcp_call_result_not_for_model_v1",
    "mcp_call_check_permissions_v1",
    "mcp_status_no_config_v1",
    "sdk_mcp_tools_list_changed",
    "sdk_mcp_manifests",
    "ui_surface_v1",
    "ui_pane_widget_v1",
    "voice_call_talk_line_v1",
]
Capability: TypeAlias = _Capability | str
"""A feature that a running agent says it has; to be asked for instead of its version."""
CAPABILITIES: Final[tuple[str, ...]] = get_args(_Capability)

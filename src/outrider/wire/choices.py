"""Defines the values that Claude Code spells as text: a type alias for each set, and the known values.

Every set is open, because releases of Claude Code add values. Nothing here rejects one.
"""

from __future__ import annotations

from typing import Final, Literal, TypeAlias, get_args


def _known(choices: object) -> tuple[str, ...]:
    """The known values of an open set."""
    return get_args(get_args(choices)[0])


# A union of the literals with `str`: type checkers accept any text, narrow on `==`, and still offer the known
# values while one types (measured with pyright's language server); msgspec decodes it as fast as `str`.

KnownPermissionMode: TypeAlias = Literal[
    "default", "acceptEdits", "plan", "bypassPermissions", "dontAsk", "auto"
]
PermissionMode: TypeAlias = KnownPermissionMode | str
"""What the agent may do without asking."""
PERMISSION_MODES: Final = _known(PermissionMode)

KnownPermissionBehavior: TypeAlias = Literal["allow", "deny", "ask"]
PermissionBehavior: TypeAlias = KnownPermissionBehavior | str
"""What a permission rule does."""

PermissionUpdateType: TypeAlias = (
    Literal["addRules", "replaceRules", "removeRules", "setMode", "addDirectories", "removeDirectories"] | str
)
"""What a permission update changes."""

PermissionUpdateDestination: TypeAlias = (
    Literal["userSettings", "projectSettings", "localSettings", "session", "cliArg"] | str
)
"""Where a permission update is kept."""

DecisionClassification: TypeAlias = Literal["user_temporary", "user_permanent", "user_reject"] | str
"""How a person decided on a permission request."""

DecisionReasonType: TypeAlias = (
    Literal[
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
    | str
)
"""What made the agent ask for permission, or refuse it by itself."""

KnownSettingSource: TypeAlias = Literal["user", "project", "local"]
SettingSource: TypeAlias = KnownSettingSource | str
"""A settings file that the agent reads."""
SETTING_SOURCES: Final = _known(SettingSource)

KnownBeta: TypeAlias = Literal["context-1m-2025-08-07"]
Beta: TypeAlias = KnownBeta | str
"""A feature of the API that has to be asked for."""

AgentModel: TypeAlias = Literal["sonnet", "opus", "haiku", "inherit"] | str
"""The model of a subagent: a short name, `inherit` for that of the main thread, or a full model id."""

KnownEffortLevel: TypeAlias = Literal["low", "medium", "high", "xhigh", "max"]
EffortLevel: TypeAlias = KnownEffortLevel | str
"""How hard the model thinks; not every model has every level."""
EFFORT_LEVELS: Final = _known(EffortLevel)

AssistantMessageError: TypeAlias = (
    Literal[
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
    | str
)
"""Why an assistant message stands for a failure."""
ASSISTANT_MESSAGE_ERRORS: Final = _known(AssistantMessageError)

TerminalReason: TypeAlias = (
    Literal[
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
    | str
)
"""What ended a turn."""

KnownFastModeState: TypeAlias = Literal["off", "cooldown", "on"]
FastModeState: TypeAlias = KnownFastModeState | str
"""Whether answers come by the fast route."""

KnownFastModeDisabledReason: TypeAlias = Literal[
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
FastModeDisabledReason: TypeAlias = KnownFastModeDisabledReason | str
"""Why fast mode cannot be turned on."""

KnownMessageOriginKind: TypeAlias = Literal[
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
MessageOriginKind: TypeAlias = KnownMessageOriginKind | str
"""Who or what wrote a user message."""

KnownTaskNotificationOriginSubkind: TypeAlias = Literal["scheduled-trigger", "peer-send-message"]
TaskNotificationOriginSubkind: TypeAlias = KnownTaskNotificationOriginSubkind | str
"""What kind of task notification a message came from."""

KnownTaskNotificationStatus: TypeAlias = Literal["completed", "failed", "stopped"]
TaskNotificationStatus: TypeAlias = KnownTaskNotificationStatus | str
"""How a background task ended, as its notification says."""

KnownTaskUpdatedStatus: TypeAlias = Literal["pending", "running", "paused", "completed", "failed", "killed"]
TaskUpdatedStatus: TypeAlias = KnownTaskUpdatedStatus | str
"""Where a background task stands, as its updates say."""

TERMINAL_TASK_STATUSES: Final = frozenset(("completed", "failed", "stopped", "killed"))
"""The statuses, of updates and notifications alike, after which a task is over."""

KnownRateLimitStatus: TypeAlias = Literal["allowed", "allowed_warning", "rejected"]
RateLimitStatus: TypeAlias = KnownRateLimitStatus | str
"""What a rate limit lets through."""

KnownRateLimitType: TypeAlias = Literal[
    "five_hour", "seven_day", "seven_day_opus", "seven_day_sonnet", "overage"
]
RateLimitType: TypeAlias = KnownRateLimitType | str
"""The window or purse that a rate limit counts."""

UsageNotice: TypeAlias = Literal["limit", "warning", "transition", "org_policy"]
"""What a text of the agent's tells about the usage of an account: a limit is reached or near, the account now
pays in another way, or the organisation forbids the service."""

USAGE_NOTICE_PREFIXES: Final[dict[UsageNotice, tuple[str, ...]]] = {
    "limit": (
        "You've hit your",
        "You've reached your",
        "You're out of usage credits",
        "Your org is out of usage · add funds to continue",
        "Your org is out of usage · contact your admin",
        "Your seat type doesn't include usage",
        "Your usage allocation has been disabled by your admin",
        "Your group's usage limit is set to $0",
        "Fable 5 requires usage credits",
        "You're out of extra usage",
        "Your seat type doesn't include extra usage",
    ),
    "warning": ("You've used", "You're close to"),
    "transition": (
        "You're now using usage credits",
        "You're now using your usage allocation",
        "Now using your usage allocation",
        "Now using usage credits",
        "Now using credits",
        "You're now using extra usage",
        "Now using extra usage",
    ),
    "org_policy": ("This service is disabled for your org",),
}
"""How the texts of each kind begin."""


def usage_notice(text: str) -> UsageNotice | None:
    """What a text of the agent's tells about the usage of the account, or None. For an account with a plan:
    with an API key, limits are those of `ApiFailed`."""
    for kind, prefixes in USAGE_NOTICE_PREFIXES.items():
        if text.startswith(prefixes):
            return kind
    return None


KnownServerToolName: TypeAlias = Literal[
    "advisor",
    "web_search",
    "web_fetch",
    "code_execution",
    "bash_code_execution",
    "text_editor_code_execution",
    "tool_search_tool_regex",
    "tool_search_tool_bm25",
]
ServerToolName: TypeAlias = KnownServerToolName | str
"""A tool that the API runs itself."""

ExitReason: TypeAlias = Literal["clear", "resume", "logout", "prompt_input_exit", "other"] | str
"""Why a session ended, or the conversation that it held."""
EXIT_REASONS: Final = _known(ExitReason)

SessionState: TypeAlias = Literal["idle", "running", "requires_action"] | str
"""What the session is doing: `requires_action` waits for the host."""

Capability: TypeAlias = (
    Literal[
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
    | str
)
"""A feature that a running agent says it has; to be asked for instead of its version."""
CAPABILITIES: Final = _known(Capability)

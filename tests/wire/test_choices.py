"""Sets of values: the known ones are listed, and any other is let through."""

from __future__ import annotations

from typing import Literal, assert_type, get_args

import msgspec
import pytest

from outrider.wire import choices
from outrider.wire._value import Value
from outrider.wire.choices import (
    ASSISTANT_MESSAGE_ERRORS,
    CAPABILITIES,
    EFFORT_LEVELS,
    EXIT_REASONS,
    PERMISSION_MODES,
    SETTING_SOURCES,
    TERMINAL_TASK_STATUSES,
    AgentModel,
    AssistantMessageError,
    Beta,
    EffortLevel,
    FastModeDisabledReason,
    FastModeState,
    MessageOriginKind,
    PermissionBehavior,
    PermissionMode,
    PermissionUpdateDestination,
    PermissionUpdateType,
    RateLimitStatus,
    RateLimitType,
    ServerToolName,
    SessionState,
    SettingSource,
    TaskNotificationStatus,
    TaskUpdatedStatus,
    TerminalReason,
    usage_notice,
)
from tests.cases import every_case


def known(alias: object) -> tuple[str, ...]:
    return get_args(get_args(alias)[0])


ALIASES = [
    name
    for name in vars(choices)
    if not name.startswith("_")
    and name[0].isupper()
    and not name.isupper()
    and str in get_args(getattr(choices, name))
]


@pytest.mark.requirement("A7")
@every_case(
    "known, required",
    [
        (PERMISSION_MODES, {"default", "acceptEdits", "plan", "bypassPermissions", "dontAsk", "auto"}),
        (SETTING_SOURCES, {"user", "project", "local"}),
        (known(Beta), {"context-1m-2025-08-07"}),
        (known(AgentModel), {"sonnet", "opus", "haiku", "inherit"}),
        (EFFORT_LEVELS, {"low", "medium", "high", "max"}),
        (known(PermissionBehavior), {"allow", "deny", "ask"}),
        (known(PermissionUpdateDestination), {"userSettings", "projectSettings", "localSettings", "session"}),
        (
            known(PermissionUpdateType),
            {"addRules", "replaceRules", "removeRules", "setMode", "addDirectories", "removeDirectories"},
        ),
    ],
)
def test_values_that_users_set(known: tuple[str, ...], required: set[str]) -> None:
    assert required <= set(known)


@pytest.mark.requirement("A4")
def test_assistant_error_kinds() -> None:
    required = {
        "authentication_failed",
        "billing_error",
        "rate_limit",
        "invalid_request",
        "server_error",
        "unknown",
    }
    assert required <= set(ASSISTANT_MESSAGE_ERRORS)
    assert len(ASSISTANT_MESSAGE_ERRORS) == 13


@pytest.mark.requirement("A7")
@every_case(
    "known, some",
    [
        (
            known(TerminalReason),
            {"completed", "max_turns", "aborted_streaming", "aborted_tools", "api_error"},
        ),
        (known(FastModeState), {"off", "cooldown", "on"}),
        (known(FastModeDisabledReason), {"sdk_opt_in_required", "free"}),
        (known(MessageOriginKind), {"human", "task-notification", "auto-continuation"}),
        (known(TaskNotificationStatus), {"completed", "failed", "stopped"}),
        (known(TaskUpdatedStatus), {"pending", "running", "paused", "completed", "failed", "killed"}),
        (known(RateLimitStatus), {"allowed", "allowed_warning", "rejected"}),
        (known(RateLimitType), {"five_hour", "seven_day", "overage"}),
        (known(ServerToolName), {"web_search", "web_fetch", "code_execution"}),
        (known(SessionState), {"idle", "running", "requires_action"}),
        (EXIT_REASONS, {"clear", "resume", "logout", "prompt_input_exit", "other"}),
        (CAPABILITIES, {"interrupt_receipt_v1", "sdk_mcp_manifests"}),
    ],
)
def test_values_that_the_agent_sends(known: tuple[str, ...], some: set[str]) -> None:
    assert some <= set(known)


def test_a_task_is_over_in_the_terminal_statuses_only() -> None:
    every = {*known(TaskNotificationStatus), *known(TaskUpdatedStatus)}
    assert every - TERMINAL_TASK_STATUSES == {"pending", "running", "paused"}


def test_no_set_has_a_value_twice() -> None:
    assert len(ALIASES) == 24
    for name in ALIASES:
        values = known(getattr(choices, name))
        assert values
        assert len(set(values)) == len(values), name


def test_what_a_text_tells_about_usage() -> None:
    said = {
        "You've hit your 5-hour limit · resets 9:50am (UTC)": "limit",
        "You've used 75% of your weekly limit": "warning",
        "Now using usage credits": "transition",
        "This service is disabled for your organisation": "org_policy",
        "Limits are a matter of taste.": None,
        "": None,
    }
    assert {text: usage_notice(text) for text in said} == said


class Chosen(Value):
    mode: PermissionMode = "default"
    model: AgentModel | None = None


@pytest.mark.requirement("A7")
def test_a_value_of_a_later_release_is_decoded_and_typed() -> None:
    got = msgspec.json.decode(b'{"mode":"a-new-mode","model":"claude-x"}', type=Chosen)
    assert got == Chosen("a-new-mode", "claude-x")
    text: str = got.mode
    assert text == "a-new-mode"


@pytest.mark.requirement("A4")
@pytest.mark.requirement("A7")
def test_type_checkers_accept_any_text() -> None:
    def takes(
        mode: PermissionMode,
        source: SettingSource,
        beta: Beta,
        model: AgentModel,
        effort: EffortLevel,
        error: AssistantMessageError,
        reason: TerminalReason,
    ) -> str:
        if source == "user":
            assert_type(source, Literal["user"])
        return mode

    read_from_a_file: str = "plan".lower()
    assert_type(takes("plan", "user", known(Beta)[0], "opus", "max", "rate_limit", "completed"), str)
    assert takes(*[read_from_a_file] * 7) == "plan"

"""Sets of values: the known ones are listed, and any other is let through."""

from __future__ import annotations

from typing import Any, Literal, assert_type, get_args

import msgspec
import pytest

from outrider.wire import choices
from outrider.wire._value import Value
from outrider.wire.choices import (
    AGENT_MODELS,
    ASSISTANT_MESSAGE_ERRORS,
    BETAS,
    CAPABILITIES,
    EFFORT_LEVELS,
    FAST_MODE_DISABLED_REASONS,
    FAST_MODE_STATES,
    MESSAGE_ORIGIN_KINDS,
    PERMISSION_BEHAVIORS,
    PERMISSION_MODES,
    PERMISSION_UPDATE_DESTINATIONS,
    PERMISSION_UPDATE_TYPES,
    RATE_LIMIT_STATUSES,
    RATE_LIMIT_TYPES,
    SERVER_TOOL_NAMES,
    SESSION_STATES,
    SETTING_SOURCES,
    TASK_NOTIFICATION_STATUSES,
    TASK_UPDATED_STATUSES,
    TERMINAL_REASONS,
    TERMINAL_TASK_STATUSES,
    AgentModel,
    AssistantMessageError,
    Beta,
    EffortLevel,
    PermissionMode,
    SettingSource,
    TerminalReason,
)
from tests.cases import every_case

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
        (BETAS, {"context-1m-2025-08-07"}),
        (AGENT_MODELS, {"sonnet", "opus", "haiku", "inherit"}),
        (EFFORT_LEVELS, {"low", "medium", "high", "max"}),
        (PERMISSION_BEHAVIORS, {"allow", "deny", "ask"}),
        (PERMISSION_UPDATE_DESTINATIONS, {"userSettings", "projectSettings", "localSettings", "session"}),
        (
            PERMISSION_UPDATE_TYPES,
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
        (TERMINAL_REASONS, {"completed", "max_turns", "aborted_streaming", "aborted_tools", "api_error"}),
        (FAST_MODE_STATES, {"off", "cooldown", "on"}),
        (FAST_MODE_DISABLED_REASONS, {"sdk_opt_in_required", "free"}),
        (MESSAGE_ORIGIN_KINDS, {"human", "task-notification", "auto-continuation"}),
        (TASK_NOTIFICATION_STATUSES, {"completed", "failed", "stopped"}),
        (TASK_UPDATED_STATUSES, {"pending", "running", "paused", "completed", "failed", "killed"}),
        (RATE_LIMIT_STATUSES, {"allowed", "allowed_warning", "rejected"}),
        (RATE_LIMIT_TYPES, {"five_hour", "seven_day", "overage"}),
        (SERVER_TOOL_NAMES, {"web_search", "web_fetch", "code_execution"}),
        (SESSION_STATES, {"idle", "running", "requires_action"}),
        (CAPABILITIES, {"interrupt_receipt_v1", "sdk_mcp_manifests"}),
    ],
)
def test_values_that_the_agent_sends(known: tuple[str, ...], some: set[str]) -> None:
    assert some <= set(known)


def test_a_task_is_over_in_the_terminal_statuses_only() -> None:
    every = {*TASK_NOTIFICATION_STATUSES, *TASK_UPDATED_STATUSES}
    assert every - TERMINAL_TASK_STATUSES == {"pending", "running", "paused"}


def test_every_set_has_a_tuple_without_doubles() -> None:
    assert len(ALIASES) == 23
    tuples: dict[str, tuple[Any, ...]] = {
        name: value for name, value in vars(choices).items() if isinstance(value, tuple) and name.isupper()
    }
    by_values = {frozenset(values): name for name, values in tuples.items()}
    for name in ALIASES:
        literal = next(argument for argument in get_args(getattr(choices, name)) if argument is not str)
        assert frozenset(get_args(literal)) in by_values, name
    for values in tuples.values():
        assert len(set(values)) == len(values)


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
    assert_type(takes("plan", "user", BETAS[0], "opus", "max", "rate_limit", "completed"), str)
    assert takes(*[read_from_a_file] * 7) == "plan"

"""Every option that was asked for is there, is explained, and has the default that was asked for."""

from __future__ import annotations

import ast
import inspect
from typing import Any, get_type_hints

import pytest

from outrider import options as public
from outrider.options import (
    AgentDefinition,
    EnvPolicy,
    HttpServer,
    Isolation,
    LocalPlugin,
    OptionFields,
    Options,
    PresetPrompt,
    Sandbox,
    SandboxNetwork,
    SdkServer,
    SseServer,
    StdioServer,
    Timeouts,
    _forms,
    _options,
    _values,
)
from outrider.options._table import OPTIONS
from tests.cases import every_case, names_of

ASKED_FOR = [
    "tools",
    "allowed_tools",
    "disallowed_tools",
    "system_prompt",
    "append_system_prompt",
    "model",
    "fallback_model",
    "permission_mode",
    "permission_prompt_tool_name",
    "continue_conversation",
    "resume",
    "fork_session",
    "max_turns",
    "max_budget_usd",
    "max_thinking_tokens",
    "thinking",
    "effort",
    "max_buffer_size",
    "cwd",
    "cli_path",
    "bundled_path",
    "add_dirs",
    "env",
    "mcp_servers",
    "include_partial_messages",
    "enable_file_checkpointing",
    "output_format",
    "extra_args",
    "betas",
    "setting_sources",
    "settings",
    "strict_settings_merge",
    "user",
    "agents",
    "sandbox",
    "plugins",
    "hooks",
    "permission",
    "stderr",
    "transport",
]

PARTS: list[tuple[type[Any], str]] = [
    (AgentDefinition, "description prompt tools model"),
    (
        Sandbox,
        (
            "enabled autoAllowBashIfSandboxed excludedCommands allowUnsandboxedCommands network filesystem "
            "enableWeakerNestedSandbox ignoreViolations"
        ),
    ),
    (SandboxNetwork, "allowUnixSockets allowAllUnixSockets allowLocalBinding httpProxyPort socksProxyPort"),
    (PresetPrompt, "preset append"),
    (LocalPlugin, "path"),
    (StdioServer, "command args env"),
    (SseServer, "url headers"),
    (HttpServer, "url headers"),
    (SdkServer, "name"),
]


@pytest.mark.requirement("A6")
@every_case("name", ASKED_FOR)
def test_an_option_that_was_asked_for_is_there(name: str) -> None:
    assert name in Options.__struct_fields__


@pytest.mark.requirement("A6")
@every_case("kind, keys", PARTS, ids=lambda value: getattr(value, "__name__", "keys"))
def test_a_part_has_the_keys_that_were_asked_for(kind: type[Any], keys: str) -> None:
    assert set(keys.split()) <= set(kind.__struct_encode_fields__)


@pytest.mark.requirement("A6")
@pytest.mark.parametrize("kind", ["file", "network"])
def test_violations_are_ignored_by_kind(kind: str) -> None:
    sandbox = Options(sandbox={"ignoreViolations": {kind: ["/tmp"]}}).sandbox
    assert sandbox is not None
    assert sandbox.ignore_violations == {kind: ("/tmp",)}


@pytest.mark.requirement("C5")
def test_no_settings_of_the_machine_count_by_default() -> None:
    assert Options().setting_sources == ()
    assert Options(setting_sources=None).setting_sources is None


@pytest.mark.requirement("A6")
def test_unset_options_have_their_documented_defaults() -> None:
    options = Options()
    assert options.strict_settings_merge is True
    assert options.persist_session is True
    assert options.system_prompt is None
    assert options.max_buffer_size is None
    assert options.env_policy == EnvPolicy.INHERIT
    assert options.isolation == Isolation.INHERIT
    assert options.timeouts == Timeouts()
    assert (options.session_store_flush, options.plugin_delivery) == ("batched", "argv")


def test_every_option_is_read_typed_and_kept() -> None:
    names = set(Options.__struct_fields__)
    assert set(OPTIONS) == names
    assert set(get_type_hints(OptionFields)) == names


def documented(module: Any) -> dict[str, set[str]]:
    """By class: the fields that have a text after them."""
    classes: dict[str, set[str]] = {}
    for node in ast.parse(inspect.getsource(module)).body:
        if isinstance(node, ast.ClassDef):
            pairs = zip(node.body, node.body[1:], strict=False)
            classes[node.name] = {
                field.target.id
                for field, text in pairs
                if isinstance(field, ast.AnnAssign)
                and isinstance(field.target, ast.Name)
                and isinstance(text, ast.Expr)
                and isinstance(text.value, ast.Constant)
            }
    return classes


def test_every_option_is_explained() -> None:
    assert documented(_options)["Options"] == set(Options.__struct_fields__)


def test_every_deadline_is_explained() -> None:
    assert documented(_values)["Timeouts"] == set(Timeouts.__struct_fields__)


def test_what_is_exported_exists_and_every_part_is_exported() -> None:
    parts = [
        name
        for module in (_values, _forms, _values)
        for name, value in vars(module).items()
        if isinstance(value, type) and value.__module__ == module.__name__ and not name.startswith("_")
    ]
    assert set(parts) <= set(names_of(public))
    assert all(hasattr(public, name) for name in names_of(public))


# Values.

MODES = ["default", "acceptEdits", "plan", "bypassPermissions", "dontAsk", "auto", "manual"]


@pytest.mark.requirement("A7")
@pytest.mark.parametrize("mode", MODES)
def test_every_permission_mode_is_accepted(mode: str) -> None:
    assert Options(permission_mode=mode).permission_mode == mode


@pytest.mark.requirement("A7")
@pytest.mark.parametrize("sources", [["user"], ["project"], ["local"], ["user", "project", "local"], []])
def test_every_setting_source_is_accepted(sources: list[str]) -> None:
    assert Options(setting_sources=sources).setting_sources == tuple(sources)


@pytest.mark.requirement("A7")
def test_the_beta_and_any_later_one_are_accepted() -> None:
    betas = ("context-1m-2025-08-07", "something-2031-01-01")
    assert Options(betas=betas).betas == betas


@pytest.mark.requirement("A7")
@pytest.mark.parametrize("model", ["sonnet", "opus", "haiku", "inherit", "claude-of-tomorrow"])
def test_every_model_of_a_subagent_is_accepted(model: str) -> None:
    options = Options(agents={"a": AgentDefinition(description="d", prompt="p", model=model)})
    assert options.agents["a"].model == model


@pytest.mark.requirement("A7")
@pytest.mark.parametrize("effort", ["low", "medium", "high", "xhigh", "max", "utmost"])
def test_every_effort_level_and_later_ones_are_accepted(effort: str) -> None:
    assert Options(effort=effort).effort == effort


@pytest.mark.requirement("A7")
def test_a_permission_mode_of_a_later_program_is_accepted() -> None:
    assert Options(permission_mode="unheardOf").permission_mode == "unheardOf"

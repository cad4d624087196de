"""What type checkers see: checked by mypy and pyright in strict mode, run here as well."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Literal, Unpack, assert_type

import pytest

from outrider.errors import OptionsError
from outrider.options import (
    AdaptiveThinking,
    AgentDefinition,
    CustomPrompt,
    DisabledThinking,
    EnabledThinking,
    EnvPolicy,
    FilePrompt,
    Isolation,
    JsonSchemaFormat,
    LocalPlugin,
    McpServer,
    OptionFields,
    Options,
    PresetPrompt,
    Sandbox,
    Timeouts,
)


def test_options_are_read_in_their_one_form() -> None:
    options = Options()
    assert_type(options.cwd, str | None)
    assert_type(options.add_dirs, tuple[str, ...])
    assert_type(options.env, Mapping[str, str])
    assert_type(options.env_policy, EnvPolicy)
    assert_type(options.isolation, Isolation)
    assert_type(options.timeouts, Timeouts)
    assert_type(options.fallback_model, tuple[str, ...] | None)
    assert_type(options.thinking, AdaptiveThinking | EnabledThinking | DisabledThinking | None)
    assert_type(options.system_prompt, PresetPrompt | CustomPrompt | FilePrompt | None)
    assert_type(options.output_format, JsonSchemaFormat | None)
    assert_type(options.task_budget, int | None)
    assert_type(options.tools, tuple[object, ...] | Literal["default"] | None)
    assert_type(options.skills, tuple[str, ...] | Literal["all"] | None)
    assert_type(options.agents, Mapping[str, AgentDefinition])
    assert_type(options.plugins, tuple[LocalPlugin, ...])
    assert_type(options.mcp_servers, Mapping[str, McpServer] | str)
    assert_type(options.hooks, Mapping[str, tuple[object, ...]])
    assert_type(options.sandbox, Sandbox | None)
    assert_type(options.stderr, Callable[[str], object] | None)
    assert_type(options.replace(model="x"), Options)
    assert_type(options.with_env(A="b"), Options)
    assert_type(options.with_hook("Stop", print), Options)


def test_options_can_be_given_in_several_forms() -> None:
    options = Options(
        cwd=Path("a"),
        add_dirs=["a", Path("b")],
        env_policy=["HOME"],
        isolation="hermetic",
        timeouts={"turn": 5.0},
        fallback_model="opus",
        thinking="adaptive",
        system_prompt={"type": "preset", "preset": "claude_code"},
        task_budget={"total": 5},
        mcp_servers={"s": {"command": "x"}},
        agents={"a": {"description": "d", "prompt": "p"}},
        plugins=["a", {"type": "local", "path": "b"}],
    )
    assert_type(options, Options)


def passed_on(**fields: Unpack[OptionFields]) -> Options:
    return Options(**fields)


def test_fields_can_be_passed_on() -> None:
    assert_type(passed_on(model="opus"), Options)


def test_wrong_types_and_names_are_found_by_type_checkers() -> None:
    with pytest.raises(OptionsError):
        Options(max_turns="5")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    with pytest.raises(OptionsError):
        Options(modle="a")  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    with pytest.raises(OptionsError):
        passed_on(permission_prompts="never")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    with pytest.raises(OptionsError):
        Options().replace(cwd=5)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]

"""Options to the first request."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from outrider.errors import OptionsError
from outrider.launch import make_initialize
from outrider.options import (
    AgentDefinition,
    CustomPrompt,
    FilePrompt,
    LocalPlugin,
    Options,
    PresetPrompt,
    SdkServer,
)
from outrider.wire import encode
from tests.cases import every_case

BARE = {"subtype": "initialize", "systemPrompt": [""]}


def request(**fields: Any) -> dict[str, Any]:
    """What is sent, but for the system prompt that is not set."""
    sent: dict[str, Any] = msgspec.json.decode(encode(make_initialize(Options(**fields))))
    return {key: value for key, value in sent.items() if BARE.get(key) != value}


PROMPTS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "unset": ({}, {"systemPrompt": [""]}),
    "text": ({"system_prompt": "Hi"}, {"systemPrompt": ["Hi"]}),
    "empty text": ({"system_prompt": ""}, {"systemPrompt": [""]}),
    "blocks": ({"system_prompt": ["a", "b"]}, {"systemPrompt": ["a", "b"]}),
    "text and append": (
        {"system_prompt": "Hi", "append_system_prompt": "More"},
        {"systemPrompt": ["Hi"], "appendSystemPrompt": "More"},
    ),
    "preset": ({"system_prompt": PresetPrompt()}, {}),
    "preset and append": (
        {"system_prompt": PresetPrompt(append="More")},
        {"appendSystemPrompt": "More"},
    ),
    "preset and the other append": (
        {"system_prompt": PresetPrompt(), "append_system_prompt": "More"},
        {"appendSystemPrompt": "More"},
    ),
    "append alone": ({"append_system_prompt": "More"}, {"appendSystemPrompt": "More"}),
    "mapping": (
        {"system_prompt": {"type": "preset", "preset": "claude_code", "append": "More"}},
        {"appendSystemPrompt": "More"},
    ),
    "file": ({"system_prompt": FilePrompt("p.txt")}, {}),
    "snapshot": (
        {"system_prompt": CustomPrompt("Hi", snapshot=False)},
        {"systemPrompt": ["Hi"], "systemPromptSnapshot": False},
    ),
    "preset with switches": (
        {"system_prompt": PresetPrompt(exclude_dynamic_sections=True, snapshot=True)},
        {"excludeDynamicSections": True, "systemPromptSnapshot": True},
    ),
}


@pytest.mark.requirement("C2")
@every_case("case", PROMPTS)
def test_system_prompts(case: str) -> None:
    fields, expected = PROMPTS[case]
    sent: dict[str, Any] = msgspec.json.decode(encode(make_initialize(Options(**fields))))
    assert sent == {"subtype": "initialize", **expected}


FIELDS: list[tuple[dict[str, Any], dict[str, Any]]] = [
    ({"plan_mode_instructions": "Plan"}, {"planModeInstructions": "Plan"}),
    ({"tool_aliases": {"Read": "Look"}}, {"toolAliases": {"Read": "Look"}}),
    ({"skills": ["pdf"]}, {"skills": ["pdf"]}),
    ({"skills": []}, {"skills": []}),
    ({"skills": "all"}, {}),
    (
        {"agents": {"a": AgentDefinition(description="d", prompt="p", max_turns=3, tools=("Read",))}},
        {"agents": {"a": {"description": "d", "prompt": "p", "maxTurns": 3, "tools": ["Read"]}}},
    ),
    (
        {"plugins": ["/a", LocalPlugin("/b", skip_mcp_discovery=True)], "plugin_delivery": "initialize"},
        {
            "plugins": [
                {"type": "local", "path": "/a"},
                {"type": "local", "path": "/b", "skipMcpDiscovery": True},
            ]
        },
    ),
    ({"plugins": ["/a"]}, {}),
    ({"mcp_servers": {"x": {"command": "y"}}}, {}),
    ({"mcp_servers": {"here": SdkServer(name="here")}}, {"sdkMcpServers": ["here"]}),
    (
        {"mcp_servers": {"here": SdkServer(name="here", timeout=5, tools=[{"name": "t"}])}},
        {
            "sdkMcpServers": ["here"],
            "sdkMcpServerConfigs": {"here": {"timeout": 5, "tools": [{"name": "t"}]}},
        },
    ),
    (
        {"on_user_dialog": print, "supported_dialog_kinds": ["choice"]},
        {"supportedDialogKinds": ["choice"]},
    ),
    ({"managed_settings": {"a": 1}}, {"managedSettings": {"a": 1}}),
    ({"title": "T"}, {"title": "T"}),
    ({"forward_subagent_text": True}, {"forwardSubagentText": True}),
    ({"forward_nested_subagent_tool_calls": True}, {"forwardNestedSubagentToolCalls": True}),
    ({"prompt_suggestions": True}, {"promptSuggestions": True}),
    ({"agent_progress_summaries": True}, {"agentProgressSummaries": True}),
    ({"per_task_stop_affordance": True}, {"perTaskStopAffordance": True}),
    # By file, because the agent takes it from the request without any effect.
    ({"append_subagent_system_prompt": "More"}, {}),
]


@pytest.mark.requirement("C1")
@every_case(
    "fields, expected", FIELDS, ids=[f"{next(iter(fields))}-{i}" for i, (fields, _) in enumerate(FIELDS)]
)
def test_an_option_becomes_a_field_and_nothing_else(fields: dict[str, Any], expected: dict[str, Any]) -> None:
    assert request(**fields) == expected


@pytest.mark.requirement("C6")
def test_the_schema_of_the_output_is_sent() -> None:
    schema = {"type": "object", "properties": {"a": {"type": "integer"}}}
    assert request(output_format={"type": "json_schema", "schema": schema}) == {"jsonSchema": schema}


@pytest.mark.requirement("C6")
def test_output_of_another_kind_is_refused() -> None:
    with pytest.raises(OptionsError):
        request(output_format={"type": "xml"})


def test_hooks_are_left_to_the_session() -> None:
    assert request(hooks={"Stop": [print]}) == {}
    assert make_initialize(Options(hooks={"Stop": [print]})).hooks is msgspec.UNSET

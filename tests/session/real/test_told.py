"""What the agent is told by options: prompts, subagents, skills, plugins. All of it reaches the model."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from outrider.options import (
    SYSTEM_PROMPT_DYNAMIC_BOUNDARY,
    AgentDefinition,
    CustomPrompt,
    FilePrompt,
    LocalPlugin,
    PresetPrompt,
)
from outrider.session import run
from outrider.testing import RealAgent, say, use_tool
from tests.session.real.talking import real_agent

pytestmark = pytest.mark.anyio


def system_of(request: Any) -> str:
    """The system prompt of a request, without what the agent always puts in front of it."""
    system = request.body["system"]
    texts = [system] if isinstance(system, str) else [block["text"] for block in system]
    return "\n".join(text for text in texts if not text.startswith("x-anthropic-billing-header"))


async def told(**fields: Any) -> str:
    with real_agent(say("done")) as agent:
        await run("hi", agent.options(**fields))
        return system_of(agent.api.main_requests[0])


@pytest.mark.parametrize(
    "fields, words, is_preset",
    [
        ({}, [], False),
        ({"system_prompt": "Speak Latin."}, ["Speak Latin."], False),
        ({"system_prompt": ["Speak Latin.", "Or Greek."]}, ["Speak Latin.", "Or Greek."], False),
        ({"system_prompt": CustomPrompt("Speak Latin.")}, ["Speak Latin."], False),
        ({"system_prompt": PresetPrompt()}, [], True),
        ({"system_prompt": PresetPrompt(append="Speak Latin.")}, ["Speak Latin."], True),
        ({"append_system_prompt": "Speak Latin."}, ["Speak Latin."], True),
        (
            {"system_prompt": "Be brief.", "append_system_prompt": "Speak Latin."},
            ["Be brief.", "Speak Latin."],
            False,
        ),
    ],
    ids=["none", "text", "list", "custom", "preset", "preset and more", "append", "text and more"],
)
async def test_the_system_prompt_is_the_one_that_was_asked_for(
    fields: dict[str, Any], words: list[str], is_preset: bool
) -> None:
    system = await told(**fields)
    assert all(word in system for word in words)
    assert (len(system) > 2000) is is_preset


async def test_the_boundary_of_a_cached_system_prompt_is_not_sent() -> None:
    system = await told(system_prompt=["Speak Latin.", SYSTEM_PROMPT_DYNAMIC_BOUNDARY, "To Ada."])
    # At any address but the API's own, what is before and behind it is one text.
    assert system.endswith("Speak Latin.\n\nTo Ada.")


async def test_a_system_prompt_is_read_from_a_file(tmp_path: Path) -> None:
    path = tmp_path / "prompt.md"
    path.write_text("Speak Latin.", encoding="utf-8")
    system = await told(system_prompt=FilePrompt(str(path)))
    assert "Speak Latin." in system
    assert len(system) < 2000


REVIEWER = AgentDefinition(
    description="Reviews code",
    prompt="You review code.",
    tools=("Read",),
    model="haiku",
    effort="low",
)


async def test_a_subagent_has_its_prompt_its_tools_and_its_model() -> None:
    call = use_tool(
        "Agent", description="look", prompt="review it", subagent_type="reviewer", run_in_background=False
    )
    with real_agent(call, say("done"), subagents=[say("fine")]) as agent:
        options = agent.options(
            agents={"reviewer": REVIEWER},
            append_subagent_system_prompt="Never shout.",
            permission_mode="bypassPermissions",
        )
        result = await run("review", options)
        assert result.text == "done"
        (request,) = [request for request in agent.api.requests if request.kind == "subagent"]
        assert "You review code." in system_of(request)
        assert "haiku" in request.body["model"]
        assert [tool["name"] for tool in request.body["tools"]] == ["Read"]
        assert "review it" in json.dumps(request.messages)


async def test_a_subagent_can_be_the_main_one() -> None:
    with real_agent(say("done")) as agent:
        await run("hi", agent.options(agents={"reviewer": REVIEWER}, agent="reviewer"))
        (request,) = agent.api.main_requests
        assert "You review code." in system_of(request)
        names = [tool["name"] for tool in request.body["tools"]]
        # The agent keeps a place for tools that are offered on demand.
        assert [name for name in names if name != "DeferredToolPlaceholder"] == ["Read"]


def write_skill(folder: Path, name: str, body: str) -> None:
    folder = folder / "skills" / name
    folder.mkdir(parents=True)
    text = f"---\nname: {name}\ndescription: How to {name}\n---\n{body}\n"
    (folder / "SKILL.md").write_text(text, encoding="utf-8")


def skills_told(agent: RealAgent) -> str:
    return json.dumps(agent.api.main_requests[0].body)


async def test_skills_of_the_project_are_offered_by_name_and_can_be_used() -> None:
    with real_agent(use_tool("Skill", skill="greet"), say("done")) as agent:
        for name in ("greet", "shout"):
            write_skill(agent.folder / ".claude", name, f"Always {name} politely.")
        options = agent.options(setting_sources=["project"], skills=["greet"])
        result = await run("hi", options)
        assert result.text == "done"
        assert "How to greet" in skills_told(agent)
        assert "How to shout" not in skills_told(agent)
        assert "Always greet politely." in json.dumps(agent.api.main_requests[1].body)


@pytest.mark.parametrize("delivery", ["argv", "initialize"])
async def test_a_plugin_brings_what_it_has(tmp_path: Path, delivery: Any) -> None:
    plugin = tmp_path / "kind"
    (plugin / ".claude-plugin").mkdir(parents=True)
    (plugin / ".claude-plugin" / "plugin.json").write_text(
        '{"name": "kind", "version": "1.0.0"}', encoding="utf-8"
    )
    write_skill(plugin, "greet", "Always greet politely.")
    with real_agent(say("done")) as agent:
        options = agent.options(plugins=[LocalPlugin(str(plugin))], plugin_delivery=delivery, skills="all")
        result = await run("hi", options)
        assert result.text == "done"
        assert "How to greet" in skills_told(agent)


async def test_plan_mode_has_the_instructions_that_it_is_given() -> None:
    with real_agent(say("done")) as agent:
        options = agent.options(permission_mode="plan", plan_mode_instructions="Plan in Latin.")
        await run("hi", options)
        assert "Plan in Latin." in json.dumps(agent.api.main_requests[0].body)

"""What Claude Code reads, and what wins, as docs/settings.md and docs/install.md say."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest

from outrider import AgentDefinition, Session
from outrider.testing import RealAgent, say
from outrider.wire import JsonObject
from outrider.wire.control import GetSettings
from tests.real_program import require_program

pytestmark = [pytest.mark.anyio, pytest.mark.real]


def real_agent() -> RealAgent:
    return RealAgent(program=require_program(), otherwise=say("done"))


def plant(agent: RealAgent) -> None:
    """In every place something that tells where it is from."""
    project, user = agent.folder, Path(agent.options().env["CLAUDE_CONFIG_DIR"])
    servers = json.dumps({"mcpServers": {"server-of-project": {"command": "true"}}})
    files = {
        project / "CLAUDE.md": "memory-of-project",
        project / ".claude" / "rules" / "style.md": "rule-of-project",
        project / ".claude" / "settings.json": settings("project"),
        project / ".mcp.json": servers,
        project / "CLAUDE.local.md": "memory-of-local",
        project / ".claude" / "settings.local.json": settings("local"),
        user / "CLAUDE.md": "memory-of-user",
        user / "settings.json": settings("user"),
    }
    for source, folder in ("project", project / ".claude"), ("user", user):
        for kind, name in (
            ("skill", "skills/skill-{}/SKILL.md"),
            ("subagent", "agents/subagent-{}.md"),
            ("command", "commands/command-{}.md"),
        ):
            head = f"---\nname: {kind}-{source}\ndescription: {kind}-of-{source}\n---\n"
            files[folder / name.format(source)] = f"{head}Be kind."
    for path, text in files.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")


def settings(source: str) -> str:
    return json.dumps({"language": source, "env": {f"SET_BY_{source.upper()}": "1"}})


async def session_of(agent: RealAgent, **options: Any) -> tuple[set[str], JsonObject]:
    """What of it is in the first request to the model, and the settings that apply."""
    async with Session(agent.options(**options)) as session:
        await session.ask("hello")
        told = json.dumps(agent.api.main_requests[-1].body) + str(session.info)
        reply = await session.request(GetSettings())
    kinds = ("memory", "rule", "skill", "subagent", "command", "server")
    marks = {f"{kind}-of-{source}" for kind in kinds for source in ("user", "project", "local")}
    return {mark for mark in marks if mark in told}, dict(reply.effective)


async def test_nothing_is_read_that_no_source_names() -> None:
    with real_agent() as agent:
        plant(agent)
        assert await session_of(agent) == (set(), {})


async def test_a_source_brings_all_that_is_in_its_place() -> None:
    with real_agent() as agent:
        plant(agent)
        found, effective = await session_of(agent, setting_sources=["user"])
        assert found == {f"{kind}-of-user" for kind in ("memory", "skill", "subagent", "command")}
        assert effective["language"] == "user"
        found, effective = await session_of(agent, setting_sources=["project"])
        kinds = ("memory", "rule", "skill", "subagent", "command", "server")
        assert found == {f"{kind}-of-project" for kind in kinds}
        assert effective["language"] == "project"
        found, effective = await session_of(agent, setting_sources=["local"])
        assert (found, effective["language"]) == ({"memory-of-local"}, "local")


async def test_the_nearest_settings_win_and_those_of_the_program_over_all() -> None:
    sources = ["user", "project", "local"]
    with real_agent() as agent:
        plant(agent)
        _, effective = await session_of(agent, setting_sources=sources)
        assert effective["language"] == "local"
        # What differs adds up.
        assert effective["env"] == {"SET_BY_USER": "1", "SET_BY_PROJECT": "1", "SET_BY_LOCAL": "1"}
        _, effective = await session_of(agent, setting_sources=sources, settings={"language": "ours"})
        assert effective["language"] == "ours"
        # None means that Claude Code decides: all of them.
        assert (await session_of(agent, setting_sources=None))[1]["language"] == "local"


async def test_a_key_wins_over_a_token_and_a_login() -> None:
    with real_agent() as agent:
        options = agent.options()
        token = log_in(Path(options.env["CLAUDE_CONFIG_DIR"]))
        key = options.env["ANTHROPIC_API_KEY"]
        keyless = {name: value for name, value in options.env.items() if name != "ANTHROPIC_API_KEY"}
        for environ, expected in (
            (options.env, {"x-api-key": key}),
            ({**options.env, "CLAUDE_CODE_OAUTH_TOKEN": "t0p"}, {"x-api-key": key}),
            ({**keyless, "CLAUDE_CODE_OAUTH_TOKEN": "t0p"}, {"authorization": "Bearer t0p"}),
            (keyless, {"authorization": f"Bearer {token}"}),
        ):
            async with Session(options.replace(env=environ)) as session:
                await session.ask("hello")
            headers = agent.api.main_requests[-1].headers
            assert {
                name: headers[name] for name in ("x-api-key", "authorization") if name in headers
            } == expected


def log_in(folder: Path) -> str:
    """As the program keeps it after a login on Linux; the token."""
    login = {
        "accessToken": "sk-ant-oat01-made-up",
        "refreshToken": "sk-ant-ort01-made-up",
        "expiresAt": int(time.time() + 100_000) * 1000,
        "scopes": ["user:inference", "user:profile"],
        "subscriptionType": "max",
    }
    folder.mkdir(parents=True, exist_ok=True)
    (folder / ".credentials.json").write_text(json.dumps({"claudeAiOauth": login}), encoding="utf-8")
    return "sk-ant-oat01-made-up"


async def test_an_option_wins_over_what_files_say() -> None:
    with real_agent() as agent:
        plant(agent)
        settings_file = agent.folder / ".claude" / "settings.json"
        settings_file.write_text('{"model": "haiku"}', encoding="utf-8")
        ours = AgentDefinition(description="subagent-of-ours", prompt="Be kind.")
        options = agent.options(
            setting_sources=["project"],
            model="opus",
            agents={"subagent-project": ours},
            system_prompt="Be brief.",
        )
        async with Session(options) as session:
            await session.ask("hello")
        request = agent.api.main_requests[-1]
        assert "opus" in request.model
        assert "subagent-of-ours" in str(request.body)
        assert "subagent-of-project" not in str(request.body)
        assert "memory-of-project" in str(request.messages)
        assert "memory-of-project" not in str(request.body["system"])

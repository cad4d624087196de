"""All that a session can ask the real program, beside prompts: what it answers, and how it refuses."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Awaitable
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from outrider.errors import OptionsError, ProcessExited, RequestFailed, RequestTimedOut, Unsupported
from outrider.session import Requests, Session, resolve_settings
from outrider.testing import Gate, hang, say, use_tool
from outrider.wire import AssistantMessage, CommandsChangedMessage, control
from scripts.agent_program import version
from tests.session.real.talking import (
    HOLD,
    began,
    end,
    opened,
    reached,
    real_agent,
    requested,
    talking,
)

pytestmark = pytest.mark.anyio

SERVER = {"command": sys.executable, "args": [str(Path(__file__).with_name("server.py"))]}


async def refusal(asked: Awaitable[object]) -> RequestFailed:
    with pytest.raises(RequestFailed) as caught:
        await asked
    return caught.value


def test_everything_that_can_be_asked_is_asked_here() -> None:
    names = {name for name in dir(Requests) if not name.startswith("_")}
    sources = "".join(path.read_text() for path in Path(__file__).parent.glob("test_*.py"))
    asked = set(re.findall(r"session\.(\w+)\(", sources))
    assert names - asked == set()


async def test_about_the_conversation() -> None:
    async with talking(say("one"), say("because"), say("still because"), say("two")) as (agent, session):
        turn = await session.send("hello")
        result = await turn.result()
        (said,) = [message for message in result.messages if isinstance(message, AssistantMessage)]
        assert said.uuid is not None
        assert not await session.cancel_message(str(uuid4()))
        await session.request(control.SetMaxThinkingTokens(2000))
        await session.request(control.SetMaxThinkingTokens(thinking_display="summarized"))
        models = (await session.request(control.ListModels())).models
        assert {"default", "opus"} <= {model.value for model in models}
        assert all(model.resolved_model for model in models)

        aside = await session.request(control.SideQuestion("why?"))
        assert aside.response == "because"
        past = [control.PastSideQuestion("why?", "because")]
        again = await session.request(control.SideQuestion("really?", past))
        assert again.response == "still because"
        assert await session.generate_title("A long story") == "A scripted session"
        await session.generate_title("A long story", persist=True)
        await session.rename("My own")
        assert session.info.title == "My own"

        await session.request(control.MessageRated(said.uuid, "positive", "assistant_text", cleared=False))
        await session.request(control.SetPromptSuggestionsPaused(True))
        await session.request(control.SetHasSubscribers(True))
        export = await session.request(control.ExportConversation())
        assert "hello" in export.text
        assert (export.default_filename or "").endswith(".txt")
        assert not (await session.request(control.GetPlan())).exists
        assert isinstance(await refusal(session.request(control.SetColor("blue"))), Unsupported)

        # Before the prompt, as if it had not been.
        assert not (await session.request(control.RewindConversation(str(uuid4())))).rewound
        rewound = await session.request(control.RewindConversation(turn.uuid or ""))
        assert (rewound.rewound, rewound.prefill_text) == (True, "hello")
        assert (await session.ask("another")).text == "two"
        assert "hello" not in str(agent.api.main_requests[-1].messages)


async def test_about_files_and_folders() -> None:
    with real_agent(say("hi")) as agent:
        note, inner = agent.folder / "note.txt", agent.folder / "inner"
        note.write_text("hello\n")
        for folder in (agent.folder, inner):
            subprocess.run(["git", "init", "-q", str(folder)], check=True)  # noqa: ASYNC221
        async with opened(agent) as session:
            contents = await session.request(control.ReadFile("note.txt"))
            assert (contents.contents, contents.abs_path) == ("hello\n", str(note))
            some = await session.request(control.ReadFile(str(note), max_bytes=2, encoding="base64"))
            assert (some.contents, some.truncated, some.encoding) == ("aGU=", True, "base64")
            assert "read denied" in str(await refusal(session.request(control.ReadFile("missing.txt"))))
            suggested = await session.request(control.FileSuggestions("note"))
            assert suggested.cwd == str(agent.folder)
            await session.request(control.SeedReadState(str(note), note.stat().st_mtime_ns // 1_000_000))
            agent.api.add(
                use_tool("Edit", file_path=str(note), old_string="hello", new_string="bye"), say("done")
            )
            assert (await session.ask("edit it unread")).is_success
            await session.ask("again")
            assert note.read_text() == "bye\n"
            await session.request(control.GetWorkspaceDiff())
            registered = await session.request(control.RegisterRepoRoot(str(inner)))
            assert registered.directory == str(inner)
            assert "not a subdirectory" in str(await refusal(session.request(control.RegisterRepoRoot("/"))))
            moved = await session.request(control.SetCwd(str(inner)))
            assert (moved.status, moved.directory) == ("needs_trust", str(inner))
            moved = await session.request(control.SetCwd(str(inner), True, str(inner)))
            assert (moved.status, moved.cwd) == ("ok", str(inner))
            for dry_run in (True, False):
                report = await session.rewind_files(str(uuid4()), dry_run=dry_run)
                assert not report.can_rewind
                assert "not enabled" in (report.error or "")


async def test_about_commands_in_the_background() -> None:
    shell = use_tool("Bash", command=HOLD, run_in_background=True)
    async with talking(shell, say("started"), say("it ended")) as (agent, session):
        assert (await session.request(control.BackgroundTasks())).backgrounded is not False
        assert (await session.request(control.BackgroundTasks("toolu_unknown"))).backgrounded is False
        result = await session.ask("start it")
        (task,) = result.unfinished_tasks
        await began(agent)
        assert (await session.request(control.GetTaskOutput(task.id))).output == ""
        reader = aiter(session)
        await end(agent, "the end\n")
        async for _ in reader:
            if not session.tasks:
                break
        assert (await session.request(control.GetTaskOutput(task.id))).output.startswith("the end\n")
        assert (await session.request(control.GetTaskOutput("b00000000"))).total_bytes == 0
        await session.stop_task("b00000000")


async def test_settings_are_resolved_and_nothing_in_them_is_run() -> None:
    with real_agent() as agent:
        folder = agent.folder
        touch = {name: f"touch {folder / name}" for name in ("hook", "key", "server")}
        project = {
            "model": "opus",
            "permissions": {"defaultMode": "acceptEdits"},
            "hooks": {"SessionStart": [{"hooks": [{"type": "command", "command": touch["hook"]}]}]},
            "enableAllProjectMcpServers": True,
        }
        server = {"command": "sh", "args": ["-c", touch["server"]]}
        (folder / ".claude").mkdir()
        for path, content in (
            (folder / ".claude/settings.json", project),
            (agent.config_dir / "settings.json", {"model": "haiku", "apiKeyHelper": touch["key"]}),
            (folder / ".mcp.json", {"mcpServers": {"s": server}}),
        ):
            path.write_text(json.dumps(content), encoding="utf-8")
        options = agent.options(setting_sources=["user", "project"], hooks={"Stop": [print]})
        report = await resolve_settings(options, settings={"effortLevel": "low"})
        assert [each.source for each in report.sources] == ["userSettings", "projectSettings", "flagSettings"]
        assert (report.effective["model"], report.effective["effortLevel"]) == ("opus", "low")
        assert report.provenance == {
            **dict.fromkeys(project, "projectSettings"),
            "apiKeyHelper": "userSettings",
            "effortLevel": "flagSettings",
        }
        assert not any((folder / name).exists() for name in touch)
        assert agent.api.requests == []


async def test_about_settings_and_consumption() -> None:
    with real_agent(say("hi")) as agent:
        async with opened(agent, setting_sources=["user", "local"]) as session:
            result = await session.ask("hello")
            await session.apply_settings({"effortLevel": "low"})
            report = await session.request(control.GetSettings())
            assert report.effective["effortLevel"] == "low"
            refused = await refusal(session.apply_settings({"permissions": 5}))
            assert "permissions" in str(refused)
            await session.request(control.UpdateSettings("localSettings", {"outputStyle": "Concise"}))
            assert "Concise" in (agent.folder / ".claude/settings.local.json").read_text()
            forbidden = control.UpdateSettings("userSettings", {"hooks": {}})
            assert "not allowed" in str(await refusal(session.request(forbidden)))
            rules = await session.request(control.ListPermissionRules())
            assert rules.state.original_cwd == str(agent.folder)
            hooks = await session.request(control.GetHooksListing())
            assert "PreToolUse" in {event.name for event in hooks.event_catalog}

            assert (await session.request(control.ReloadPlugins())).commands
            assert (await session.request(control.ReloadSkills())).skills
            styles = await session.request(control.ReloadOutputStyles())
            assert "default" in styles.available_output_styles

            usage = await session.context_usage(detail="summary")
            assert usage.categories
            full = await session.context_usage()
            assert full.max_tokens == usage.max_tokens
            assert [request.kind for request in agent.api.requests].count("count_tokens") > 1
            spent = await session.usage_report(skip_behaviors=True)
            assert spent.session is not None
            assert spent.session.total_cost_usd == pytest.approx(result.cost_usd)
            assert "cost: " in (await session.request(control.GetSessionCost())).text
            said = (await session.request(control.GetBinaryVersion())).version
            assert said == session.info.version == version()
            status = await session.request(control.GetStatus())
            assert session.id in [row.value for section in status.sections for row in section.rows]
            memory = await session.request(control.GetMemoryDialog())
            assert {file.kind for file in memory.files} >= {"user"}
            assert "skills" in (await session.request(control.GetSkillsDialog())).raw
            assert (await session.request(control.GetSandboxDialog())).mode == "disabled"


async def test_about_servers() -> None:
    with real_agent(use_tool("mcp__small__add", a=20, b=22), say("42")) as agent:
        async with opened(agent, mcp_servers={"small": SERVER}) as session:
            assert (await session.ask("add")).text == "42"
            assert agent.api.main_requests[1].tool_results[0]["content"][0]["text"] == "42"
            assert "mcp__small__add" in session.info.tools
            assert [server["name"] for server in session.info.mcp_servers] == ["small"]
            (server,) = await session.mcp_status()
            assert (server.name, server.status, server.transport) == ("small", "connected", "stdio")
            assert [tool.name for tool in server.tools or ()] == ["add"]
            sums = await session.request(control.McpCall("mcp__small__add", {"a": 1, "b": 2}))
            assert [block["text"] for block in sums.content] == ["3"]
            (card,) = (await session.request(control.McpReadResource("small", "ui://card"))).contents
            assert card.text == "<p>hi</p>"

            reader = aiter(session)
            assert (await session.mcp_set_servers({"other": SERVER})).added == ["other"]
            async for message in reader:
                if isinstance(message, CommandsChangedMessage):
                    break
            assert any("other" in command.name for command in session.info.commands)
            other = control.McpCall("mcp__other__add", {"a": 1})
            assert (await session.request(other)).content
            changed = await session.mcp_set_servers({"broken": {"command": "/no/such/program"}})
            assert changed.removed == ["other"]
            assert list(changed.errors or ()) == ["broken"]
            assert "not connected" in str(await refusal(session.request(other)))

            await session.mcp_toggle("small", False)
            statuses = {server.name: server.status for server in await session.mcp_status()}
            assert statuses["small"] == "disabled"
            await session.mcp_toggle("small", True)
            await session.mcp_reconnect("small")
            statuses = {server.name: server.status for server in await session.mcp_status()}
            assert statuses["small"] == "connected"
            for mode in ("default", None):
                override = control.SetMcpPermissionModeOverride("small", mode)
                assert (await session.request(override)).warning is None

            refused: list[tuple[control.Request[Any], str]] = [
                (control.McpToggle("none", True), "not found"),
                (control.McpReconnect("none"), "not found"),
                (control.McpReadResource("small", "file:///x"), "ui://"),
                (control.SetMcpPermissionModeOverride("small", "plan"), "tighten-only"),
                (control.ChannelEnable("small"), "plugin"),
                (control.McpAuthenticate("small"), "OAuth"),
                (control.McpOauthCallbackUrl("small", "http://localhost/?code=1"), "No active"),
                (control.McpClearAuth("small"), "stdio"),
            ]
            for request, words in refused:
                error = await refusal(session.request(request))
                assert words in str(error)
                assert not isinstance(error, Unsupported)
                assert error.session_id == session.id


async def test_anything_else_by_its_name() -> None:
    async with talking() as (_, session):
        answer = await session.request("get_binary_version")
        assert answer["version"] == version()
        assert (await session.request(control.GetBinaryVersion())).version == version()
        with pytest.raises(Unsupported) as caught:
            await session.request("no_such_request")
        assert caught.value.code == "unsupported_request"
        with pytest.raises(OptionsError):
            await session.request(control.ReadFile(Path("note.txt")))  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]


async def test_requests_are_answered_while_a_turn_runs() -> None:
    gate = Gate()
    async with talking(say("one two", gate=gate), say("aside")) as (_, session):
        turn = await session.send("count")
        await reached(gate)
        assert (await session.request(control.GetBinaryVersion())).version
        assert (await session.request(control.SideQuestion("how far?"))).response == "aside"
        assert await session.set_permission_mode("plan") == "plan"
        assert not turn.is_over
        gate.open()
        assert (await turn.result()).text == "one two"


async def test_a_request_that_takes_too_long_is_given_up() -> None:
    async with talking(say("one"), side={"probe": hang()}) as (agent, session):
        with pytest.raises(RequestTimedOut) as caught:
            await session.set_model("claude-made-up-1", timeout=0.2)
        assert caught.value.timeout == 0.2
        # The program goes on with it all the same, and with nothing else before.
        await requested(agent, lambda request: request.kind == "probe")
        agent.api.release()
        assert (await session.ask("go on")).text == "one"


async def test_a_session_that_is_ended_by_request_is_closed() -> None:
    async with talking(say("one")) as (_, session):
        reader = aiter(session)
        await session.ask("a")
        await session.request(control.EndSession("enough"))
        # The program ends by itself, and well.
        async for _ in reader:
            pass
        with pytest.raises(ProcessExited) as caught:
            await session.ask("more")
        assert caught.value.returncode == 0


# What it says about itself.


async def check_info(session: Session, folder: Path) -> None:
    info = session.info
    assert (info.version, info.cwd, info.session_id) == (version(), str(folder), session.id)
    assert info.init is not None
    assert info.initialized is not None
    assert {"Bash", "Read", "Write"} <= set(info.tools)


async def test_what_the_program_says_about_itself() -> None:
    async with talking(say("hi"), model="opus", title="Mine") as (agent, session):
        info = session.info
        assert (info.version, info.pid, info.session_id) == (version(), session.pid, None)
        assert {"compact", "clear"} <= {command.name for command in info.commands}
        assert "opus" in {model.value for model in info.models}
        assert info.agents
        assert info.account.api_key_source
        assert info.permission_mode == "bypassPermissions"
        assert info.output_style == "default"
        assert "default" in info.output_styles
        assert info.capabilities
        assert info.supports(info.capabilities[0])
        assert not info.supports("no_such_thing")
        await session.ask("hello")
        await check_info(session, agent.folder)
        assert (session.info.model or "").startswith("claude-opus")
        again = await session.reinitialize()
        assert again is session.info
        await check_info(session, agent.folder)


async def test_what_is_used_adds_up() -> None:
    script: list[Any] = [
        say("one", usage={"input_tokens": 100, "output_tokens": 7}),
        use_tool("Agent", description="look", prompt="look", run_in_background=False),
        say("two", usage={"input_tokens": 1000, "cache_read_input_tokens": 50}),
        say("three"),
    ]
    subagents = [say("seen", usage={"input_tokens": 11, "output_tokens": 3})]
    async with talking(*script, subagents=subagents, include_partial_messages=True) as (_, session):
        results = [await session.ask(word) for word in ("a", "b")]
        await session.set_model("claude-made-up-1")
        results.append(await session.ask("c"))
        total = sum((result.usage for result in results), start=type(session.usage)())
        assert total == session.usage
        last = results[-1].message
        assert last is not None
        assert last.model_usage is not None
        assert set(last.model_usage) == set(session.usage.by_model)
        for model, told in last.model_usage.items():
            ours = session.usage.by_model[model]
            assert told["inputTokens"] == ours.input_tokens
            assert told["outputTokens"] == ours.output_tokens
            assert told["cacheReadInputTokens"] == ours.cache_read_tokens
            assert told["costUSD"] == pytest.approx(ours.cost_usd)
        assert last.total_cost_usd == pytest.approx(session.usage.cost_usd)
        assert results[0].usage.input_tokens == 100
        assert results[1].usage.cache_read_tokens == 50
        assert results[-1].total_usage == session.usage

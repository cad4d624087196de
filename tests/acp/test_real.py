"""Editors and the real Claude Code, whose model is played from a script."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from outrider.testing import Gate, RealAgent, ask_question, say, use_tool
from tests.acp.editor import served
from tests.acp.test_editor_tools import ABLE, Buffers
from tests.acp.test_sessions import begin
from tests.handlers.real import eliciting_server
from tests.real_program import require_program

pytestmark = [pytest.mark.anyio, pytest.mark.real, pytest.mark.timeout(120)]


@pytest.mark.smoke
async def test_a_session_with_the_real_program(tmp_path: Path) -> None:
    file = tmp_path / "a.py"
    file.write_text("one\ntwo\n")
    script = [
        use_tool("Read", file_path=str(file)),
        use_tool("Edit", file_path=str(file), old_string="two", new_string="2"),
        use_tool("Edit", file_path=str(file), old_string="one", new_string="1"),
        use_tool("Bash", command="touch made"),
        say("Done, at last."),
        say("One two three", gate=Gate()),
        say("Hello again."),
    ]
    with RealAgent(script, program=require_program()) as agent:
        async with served(agent.options()) as editor:
            made = await begin(editor, tmp_path)
            assert {each["id"] for each in made["configOptions"]} >= {"mode", "model"}
            await editor.until(lambda: editor.of("available_commands_update"))
            names = {each["name"] for each in editor.of("available_commands_update")[0]["availableCommands"]}
            assert "compact" in names
            editor.answer_permission("allow_always", "reject_once")
            ended = await editor.prompt("Edit it.")
            assert ended["stopReason"] == "end_turn"
            assert editor.text == "Done, at last."
            # The second edit is allowed by the rule that the first answer made.
            assert [each["toolCall"]["title"] for _, each in editor.asked] == ["Edit a.py", "touch made"]
            read, edit, *_ = editor.of("tool_call")
            assert editor.call_of(read["toolCallId"])["status"] == "completed"
            changed = editor.call_of(edit["toolCallId"])
            assert changed["status"] == "completed"
            assert changed["locations"] == [{"path": str(file), "line": 1}]
            assert editor.of("usage_update")[-1]["size"] > 0
            editor.updates.clear()
            prompt = await editor.begin_prompt("Wait.")
            await editor.until(lambda: editor.text)
            await editor.tell("session/cancel", sessionId=editor.session_id)
            assert (await editor.end(prompt))["stopReason"] == "cancelled"
            assert (await editor.prompt("Hello?"))["stopReason"] == "end_turn"
            assert editor.text.endswith("Hello again.")
            editor.updates.clear()
            first = editor.session_id
            where = {"cwd": str(tmp_path), "mcpServers": []}
            await editor.call("session/load", sessionId=first, **where)
            assert "Done, at last." in editor.text
            fork = (await editor.call("session/fork", sessionId=first, **where))["sessionId"]
            listed = (await editor.call("session/list", cwd=str(tmp_path)))["sessions"]
            assert first in {each["sessionId"] for each in listed}
            await editor.call("session/close", sessionId=fork)
            await editor.call("session/delete", sessionId=first)
            listed = (await editor.call("session/list", cwd=str(tmp_path)))["sessions"]
            assert first not in {each["sessionId"] for each in listed}
    assert file.read_text() == "1\n2\n"
    assert not (tmp_path / "made").exists()


async def test_modes_models_mentions_and_tasks(tmp_path: Path) -> None:
    (tmp_path / "my notes.txt").write_text("the word is swordfish\n")
    script = [
        use_tool("TaskCreate", subject="Look", description="Look around"),
        use_tool("TaskUpdate", taskId="1", status="completed"),
        say("Done."),
        say("They looked for a word."),
        say("Hello."),
    ]
    with RealAgent(script, program=require_program()) as agent:
        given = agent.options(tools=["Read", "TaskCreate", "TaskUpdate"])
        async with served(given) as editor:
            made = await begin(editor, tmp_path)
            for name in [each["id"] for each in made["modes"]["availableModes"] if each["id"] != "auto"]:
                await editor.call("session/set_mode", sessionId=editor.session_id, modeId=name)
            await editor.call("session/set_mode", sessionId=editor.session_id, modeId="default")
            found = {each["id"]: each for each in made["configOptions"]}
            changed = await editor.call(
                "session/set_config_option",
                sessionId=editor.session_id,
                configId="model",
                value=found["model"]["options"][-1]["value"],
            )
            now = {each["id"]: each for each in changed["configOptions"]}
            assert now["model"]["currentValue"] == found["model"]["options"][-1]["value"]
            if "effort" in now:
                await editor.call(
                    "session/set_config_option", sessionId=editor.session_id, configId="effort", value="high"
                )
            link = {"type": "resource_link", "uri": (tmp_path / "my notes.txt").as_uri(), "name": "notes"}
            await editor.prompt([{"type": "text", "text": "What is the word?"}, link])
            # Claude Code reads a file that is linked.
            assert "swordfish" in str(agent.requests[0].messages)
            plans = [
                [(each["content"], each["status"]) for each in plan["entries"]] for plan in editor.of("plan")
            ]
            assert plans == [[("Look", "pending")], [("Look", "completed")]]
            before = editor.of("usage_update")[-1]["used"]
            await editor.prompt("/compact")
            after = editor.of("usage_update")[-1]
            assert after["used"] != before
            # Claude Code counts from 0 then.
            await editor.prompt("/clear")
            await editor.prompt("Hello?")
            assert editor.of("usage_update")[-1]["cost"]["amount"] > after["cost"]["amount"]


async def test_questions_and_forms_and_servers_of_the_editor(tmp_path: Path) -> None:
    script = [
        ask_question("Which color?", ["Red", "Blue"]),
        use_tool("mcp__asking__form"),
        use_tool("mcp__asking__page"),
        use_tool("mcp__asking__form"),
        say("Nice."),
    ]
    with RealAgent(script, program=require_program()) as agent:
        async with served(agent.options(allowed_tools=["mcp__asking"])) as editor:
            await editor.initialize(elicitation={"form": {}, "url": {}})
            server = {
                "name": "asking",
                "command": sys.executable,
                "args": [eliciting_server.__file__],
                "env": [{"name": "PYTHONPATH", "value": "."}],
            }
            await editor.new(tmp_path, mcpServers=[server])
            answers: list[dict[str, Any]] = [
                {"action": "accept", "content": {"other": "Green"}},
                {"action": "accept", "content": {"name": "Ada", "colour": "red"}},
                {"action": "accept"},
                {"action": "decline"},
            ]

            async def fill_in(_: dict[str, Any]) -> Any:
                return answers.pop(0)

            editor.handlers["elicitation/create"] = fill_in
            await editor.prompt("Ask.")
            color, form, page, declined = (str(each.tool_results) for each in agent.requests[1:5])
            assert "Green" in color
            assert "Ada" in form
            assert "accept" in page
            assert "decline" in declined
            _, asked = editor.asked[1]
            assert asked["requestedSchema"]["required"] == ["name"]
            assert asked["message"].endswith("Who are you?")
            (page_id,) = {each["elicitationId"] for _, each in editor.asked[2:3]}
            assert editor.asked[2][1]["url"] == "https://example.invalid/login"
            assert editor.completed == [page_id]


async def test_files_and_terminals_of_the_editor(tmp_path: Path) -> None:
    script = [
        use_tool("mcp__editor__read_file", file_path=str(tmp_path / "a.txt")),
        use_tool(
            "mcp__editor__edit_file", file_path=str(tmp_path / "a.txt"), old_string="un", new_string="not "
        ),
        use_tool("mcp__editor__run_command", command="make test"),
        say("Done."),
    ]
    with RealAgent(script, program=require_program()) as agent:
        async with served(agent.options(), editor_tools=True) as editor:
            buffers = Buffers(editor, **{"a.txt": "unsaved\n"})
            await begin(editor, tmp_path, **ABLE)
            editor.answer_permission("allow_once", "allow_once")
            await editor.prompt("Go.")
            assert not {"Read", "Write", "Edit", "Bash"} & set(agent.requests[0].tools)
            assert "unsaved" in str(agent.requests[1].tool_results)
            assert buffers.files == {"a.txt": "not saved\n"}
            assert buffers.terminals == ["make test"]
            (call,) = (each for each in editor.of("tool_call") if each["kind"] == "execute")
            assert editor.call_of(call["toolCallId"])["content"][0]["type"] == "terminal"
            assert editor.call_of(call["toolCallId"])["status"] == "completed"

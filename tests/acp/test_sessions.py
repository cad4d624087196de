"""Editors and the simulated agent: sessions, prompts, tool calls, questions."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import anyio
import pytest

import outrider
from outrider.testing import (
    Gate,
    Simulator,
    answer,
    ask_question,
    exit_plan_mode,
    hang,
    say,
    subagent,
    think,
    use_tool,
)
from tests.acp.editor import Editor, Refused, served
from tests.telemetry.recorder import Recorder

pytestmark = pytest.mark.anyio


def options(script: Any, **fields: Any) -> Callable[[], outrider.Options]:
    """Options with one simulated agent after the other, which share a script."""
    agents = [Simulator(script)]

    def make() -> outrider.Options:
        agents.append(agents[-1].again())
        return outrider.Options(transport=agents[-2], **fields)

    return make


async def begin(editor: Editor, cwd: Path, **capabilities: Any) -> dict[str, Any]:
    await editor.initialize(**capabilities)
    return await editor.new(cwd)


async def test_the_first_words(tmp_path: Path) -> None:
    async with served(options([answer(think("Hm."), say("Hello, Ada!"), chunks=3)])) as editor:
        told = await editor.initialize()
        assert told["protocolVersion"] == 1
        assert told["agentCapabilities"]["loadSession"] is True
        made = await editor.new(tmp_path)
        modes = [each["id"] for each in made["modes"]["availableModes"]]
        assert modes[:4] == ["default", "acceptEdits", "plan", "dontAsk"]
        assert made["modes"]["currentModeId"] == "default"
        await editor.until(lambda: editor.of("available_commands_update"))
        ended = await editor.prompt("Hi!")
        assert ended["stopReason"] == "end_turn"
        assert ended["usage"]["totalTokens"] > 0
        assert "".join(each["content"]["text"] for each in editor.of("agent_thought_chunk")) == "Hm."
        assert editor.text == "Hello, Ada!"
        # In pieces, as they came.
        assert len(editor.of("agent_message_chunk")) > 1
        usage = editor.of("usage_update")[-1]
        # The answer is in the context, too.
        assert usage["used"] == ended["usage"]["totalTokens"]
        assert usage["size"] >= usage["used"]
        assert usage["cost"]["currency"] == "USD"


async def test_messages_and_thoughts_have_ids(tmp_path: Path) -> None:
    first = answer(think("Hm, so."), say("I look."), use_tool("Bash", command="echo hi"), chunks=3)
    env = {"CLAUDE_CONFIG_DIR": str(tmp_path / "config")}
    async with served(options([first, say("It is there.")], env=env)) as editor:
        await begin(editor, tmp_path)
        editor.answer_permission("allow_once")
        picture = {"type": "image", "data": base64.b64encode(PIXEL).decode(), "mimeType": "image/png"}
        file = {"uri": "file:///tmp/a.py", "text": "print(1)"}
        prompt: list[dict[str, Any]] = [
            {"type": "text", "text": "Look:"},
            picture,
            {"type": "resource", "resource": file},
        ]
        await editor.prompt(prompt)
        told = _messages(editor)
        assert list(told.values()) == ["Hm, so.", "I look.", "It is there."]
        assert None not in told
        editor.updates.clear()
        await editor.call("session/load", sessionId=editor.session_id, cwd=str(tmp_path), mcpServers=[])
        shown = editor.of("user_message_chunk")
        assert [each["content"]["type"] for each in shown] == ["text", "image", "resource_link"]
        assert shown[1]["content"]["data"] == picture["data"]
        assert shown[2]["content"]["uri"] == "file:///tmp/a.py"
        assert len({each["messageId"] for each in shown}) == 1
        # The same as when they were said.
        assert {id: text for id, text in _messages(editor).items() if id in told} == told


def _messages(editor: Editor) -> dict[str | None, str]:
    """The words of the agent, by the ids of its messages."""
    told: dict[str | None, str] = {}
    for each in editor.updates:
        if each["sessionUpdate"] in ("agent_message_chunk", "agent_thought_chunk"):
            id = each.get("messageId")
            told[id] = told.get(id, "") + each["content"]["text"]
    return told


async def test_a_command_is_asked_about_and_run(tmp_path: Path) -> None:
    script = [use_tool("Bash", command="echo made > file.txt && echo done", id="call-1"), say("It is done.")]
    async with served(options(script)) as editor:
        await begin(editor, tmp_path)
        editor.answer_permission("allow_once")
        assert (await editor.prompt("Make a file."))["stopReason"] == "end_turn"
        ((method, asked),) = editor.asked
        assert method == "session/request_permission"
        assert asked["sessionId"] == editor.session_id
        kinds = {each["kind"]: each["name"] for each in asked["options"]}
        assert kinds["allow_once"] == "Allow"
        assert kinds["reject_once"] == "Reject"
        call = editor.call_of(asked["toolCall"]["toolCallId"])
        assert call["kind"] == "execute"
        assert call["title"].startswith("echo made")
        assert call["rawInput"]["command"].startswith("echo made")
        states = [each["status"] for each in editor.updates if each.get("toolCallId") and each.get("status")]
        assert states[-1] == "completed"
        assert "done" in call["content"][0]["content"]["text"]
    assert (tmp_path / "file.txt").read_text() == "made\n"


@pytest.mark.parametrize("outcome", ["reject_once", None, "nonsense"])
async def test_what_is_not_allowed_does_not_run(tmp_path: Path, outcome: str | None) -> None:
    script = [use_tool("Bash", command="touch made"), say("I may not.")]
    async with served(options(script)) as editor:
        await begin(editor, tmp_path)
        editor.answer_permission(outcome)
        ended = await editor.prompt("Make a file.")
        assert ended["stopReason"] == ("end_turn" if outcome == "reject_once" else "cancelled")
        assert editor.of("tool_call_update")[-1]["status"] == "failed"
    assert not (tmp_path / "made").exists()


async def test_always_is_a_rule_of_the_session(tmp_path: Path) -> None:
    script = [
        use_tool("Write", file_path=str(tmp_path / "a.txt"), content="1"),
        use_tool("Write", file_path=str(tmp_path / "sub" / "b.txt"), content="2"),
        use_tool("Write", file_path=str(tmp_path.parent / "c.txt"), content="3"),
        say("Done."),
        use_tool("Bash", command="touch x"),
        use_tool("Bash", command="touch x"),
        say("Done."),
    ]
    async with served(options(script)) as editor:
        await begin(editor, tmp_path)
        editor.answer_permission("allow_always", "reject_once", "reject_always")
        await editor.prompt("Write.")
        assert [each["toolCall"]["title"] for _, each in editor.asked] == [
            "Write a.txt",
            f"Write {tmp_path.parent / 'c.txt'}",
        ]
        names = [each["name"] for each in editor.asked[0][1]["options"]]
        assert "Always allow edits in this folder" in names
        await editor.prompt("Touch.")
        assert len(editor.asked) == 3
    assert (tmp_path / "sub" / "b.txt").read_text() == "2"
    assert not (tmp_path.parent / "c.txt").exists()
    assert not (tmp_path / "x").exists()


async def test_the_options_decide_first(tmp_path: Path) -> None:
    policy = outrider.Policy.of({"deny": "Bash(rm *)"}, {"allow": "Bash(echo *)"})
    script = [
        use_tool("Bash", command="rm -r x"),
        use_tool("Bash", command="echo hi"),
        use_tool("Bash", command="touch other"),
        say("Done."),
    ]
    async with served(options(script, permission=policy)) as editor:
        await begin(editor, tmp_path)
        editor.answer_permission("allow_once")
        await editor.prompt("Go.")
        assert [each["toolCall"]["title"] for _, each in editor.asked] == ["touch other"]
    assert (tmp_path / "other").exists()


async def test_a_callback_may_leave_it_to_the_editor(tmp_path: Path) -> None:
    def permit(request: outrider.PermissionRequest) -> outrider.Answer:
        return outrider.answers.ask() if request.tool_name == "Write" else outrider.deny("Never.")

    script = [
        use_tool("Bash", command="touch x"),
        use_tool("Write", file_path=str(tmp_path / "a"), content="1"),
        say("Done."),
    ]
    async with served(options(script, permission=permit)) as editor:
        await begin(editor, tmp_path)
        editor.answer_permission("allow_once")
        await editor.prompt("Go.")
        assert len(editor.asked) == 1
    assert (tmp_path / "a").exists()
    assert not (tmp_path / "x").exists()


async def test_edits_are_diffs(tmp_path: Path) -> None:
    file = tmp_path / "a.py"
    file.write_text("one\ntwo\nthree\n")
    script = [
        use_tool("Read", file_path=str(file), offset=2, limit=1),
        use_tool("Edit", file_path=str(file), old_string="two", new_string="2"),
        use_tool("Write", file_path=str(file), content="new\n"),
        say("Done."),
    ]
    async with served(options(script)) as editor:
        await begin(editor, tmp_path)
        editor.answer_permission("allow_once", "allow_once")
        await editor.prompt("Edit.")
        read, edit, write = editor.of("tool_call")
        assert (read["kind"], edit["kind"], write["kind"]) == ("read", "edit", "edit")
        assert read["title"] == "Read a.py (2-2)"
        assert read["locations"] == [{"path": str(file), "line": 2}]
        assert edit["content"] == [{"type": "diff", "path": str(file), "oldText": "two", "newText": "2"}]
        ended = editor.call_of(write["toolCallId"])
        assert ended["content"] == [
            {"type": "diff", "path": str(file), "oldText": "one\n2\nthree\n", "newText": "new\n"}
        ]
        assert {each["status"] for each in editor.of("tool_call_update")} >= {"completed"}


async def test_marks_for_the_model_are_not_shown(tmp_path: Path) -> None:
    async with served(options([use_tool("Gone"), say("No.")], permission=lambda _: True)) as editor:
        await begin(editor, tmp_path)
        await editor.prompt("Go.")
        (shown,) = editor.call_of(editor.of("tool_call")[0]["toolCallId"])["content"]
        assert "Gone" in shown["content"]["text"]
        assert "tool_use_error" not in shown["content"]["text"]


async def test_todos_are_a_plan(tmp_path: Path) -> None:
    todos = [
        {"content": "Look", "status": "completed", "activeForm": "Looking"},
        {"content": "Leap", "status": "in_progress", "activeForm": "Leaping"},
    ]
    script = [use_tool("TodoWrite", todos=todos, tool_result="ok"), say("Done.")]
    async with served(options(script, allowed_tools=["TodoWrite"])) as editor:
        await begin(editor, tmp_path)
        await editor.prompt("Plan.")
        first = editor.of("plan")[0]["entries"]
        assert [(each["content"], each["status"]) for each in first] == [
            ("Look", "completed"),
            ("Leap", "in_progress"),
        ]
        assert not editor.of("tool_call")


async def test_the_list_of_a_subagent_is_not_the_plan(tmp_path: Path) -> None:
    todos = [{"content": "Look", "status": "pending", "activeForm": "Looking"}]
    script = [
        subagent("look", use_tool("TodoWrite", todos=todos, tool_result="ok"), say("Seen.")),
        say("Done."),
    ]
    async with served(options(script, allowed_tools=["TodoWrite"])) as editor:
        await begin(editor, tmp_path)
        await editor.prompt("Look.")
        assert not editor.of("plan")
        assert [each["rawInput"].get("todos") for each in editor.of("tool_call")] == [None, todos]


async def test_a_question_in_a_form_and_by_buttons(tmp_path: Path) -> None:
    script = [
        ask_question("Which color?", ["Red", "Blue"]),
        say("Nice."),
        ask_question("Which color?", ["Red", "Blue"]),
        say("Nice."),
    ]
    agent = Simulator(script)
    again = agent.again()
    agents = [again, agent]
    async with served(lambda: outrider.Options(transport=agents.pop())) as editor:
        await begin(editor, tmp_path, elicitation={"form": {}})

        async def fill_in(params: dict[str, Any]) -> Any:
            assert [each["const"] for each in params["requestedSchema"]["properties"]["answer"]["oneOf"]] == [
                "Red",
                "Blue",
            ]
            return {"action": "accept", "content": {"answer": "Blue"}}

        editor.handlers["elicitation/create"] = fill_in
        await editor.prompt("Ask.")
        assert "Blue" in str(agent.requests[1].tool_results[0]["content"])
        await begin(editor, tmp_path)
        editor.answer_permission("choice-0")
        await editor.prompt("Ask.")
        assert "Red" in str(again.requests[-1].tool_results[0]["content"])
        assert editor.asked[-1][1]["toolCall"]["title"] == "Which color?"


async def test_a_plan_is_approved(tmp_path: Path) -> None:
    script = [exit_plan_mode("# Do it"), say("Doing it.")]
    async with served(options(script, permission_mode="plan")) as editor:
        made = await begin(editor, tmp_path)
        assert made["modes"]["currentModeId"] == "plan"
        editor.answer_permission("acceptEdits")
        await editor.prompt("Plan it.")
        ((_, asked),) = editor.asked
        assert asked["toolCall"]["kind"] == "switch_mode"
        assert asked["toolCall"]["content"][0]["content"]["text"] == "# Do it"
        await editor.until(lambda: editor.of("current_mode_update"))
        assert editor.of("current_mode_update")[-1]["currentModeId"] == "acceptEdits"
        (mode, *_) = editor.of("config_option_update")[-1]["configOptions"]
        assert mode["currentValue"] == "acceptEdits"


async def test_a_cancelled_prompt(tmp_path: Path) -> None:
    async with served(options([say("One two three", gate=Gate()), say("Hello again.")])) as editor:
        await begin(editor, tmp_path)
        prompt = await editor.begin_prompt("Wait.")
        await editor.until(lambda: editor.text)
        await editor.tell("session/cancel", sessionId=editor.session_id)
        # It need not wait for the answer.
        other = await editor.begin_prompt("Hello?")
        assert (await editor.end(prompt))["stopReason"] == "cancelled"
        assert (await editor.end(other))["stopReason"] == "end_turn"
        assert editor.text.endswith("Hello again.")


async def test_a_prompt_that_is_cancelled_before_it_was_sent(tmp_path: Path) -> None:
    async with served(options([say("Hello.")])) as editor:
        await begin(editor, tmp_path)
        prompt = {"sessionId": editor.session_id, "prompt": [{"type": "text", "text": "Hi"}]}
        frames = (
            {"jsonrpc": "2.0", "id": 100, "method": "session/prompt", "params": prompt},
            {"jsonrpc": "2.0", "method": "session/cancel", "params": {"sessionId": editor.session_id}},
        )
        waiting = editor.expect(100, "session/prompt")
        # Both at once: no task runs in between.
        await editor.stream.send(b"".join(json.dumps(each).encode() + b"\n" for each in frames))
        assert (await editor.end(waiting))["stopReason"] == "cancelled"
        assert (await editor.prompt("Hi"))["stopReason"] == "end_turn"


async def test_a_question_is_taken_back_when_the_prompt_is_cancelled(tmp_path: Path) -> None:
    async with served(options([use_tool("Bash", command="touch made"), say("No.")])) as editor:
        await begin(editor, tmp_path)
        asked = anyio.Event()

        async def never(_: dict[str, Any]) -> Any:
            asked.set()
            await anyio.sleep_forever()

        editor.handlers["session/request_permission"] = never
        prompt = await editor.begin_prompt("Go.")
        await asked.wait()
        await editor.tell("session/cancel", sessionId=editor.session_id)
        assert (await editor.end(prompt))["stopReason"] == "cancelled"
        await editor.until(lambda: editor.taken_back)
    assert not (tmp_path / "made").exists()


async def test_a_prompt_while_another_runs_is_refused(tmp_path: Path) -> None:
    async with served(options([hang()])) as editor:
        await begin(editor, tmp_path)
        prompt = await editor.begin_prompt("Wait.")
        with pytest.raises(Refused, match="still running") as refused:
            await editor.prompt("And?")
        assert refused.value.code == -32600
        await editor.tell("session/cancel", sessionId=editor.session_id)
        assert (await editor.end(prompt))["stopReason"] == "cancelled"


async def test_a_prompt_is_part_of_the_trace_of_the_editor(tmp_path: Path) -> None:
    recorder = Recorder()
    trace, span = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
    async with served(options([say("Hello."), say("Bye.")], telemetry=recorder.telemetry)) as editor:
        await begin(editor, tmp_path)
        for meta in ({"traceparent": f"00-{trace}-{span}-01", "requestId": 7}, {"traceparent": 7}):
            prompt = [{"type": "text", "text": "Hi"}]
            await editor.call("session/prompt", sessionId=editor.session_id, prompt=prompt, _meta=meta)
    first, second = (each for each in recorder.started if each.name == "invoke_agent Claude Code")
    assert first.parent is not None
    assert (f"{first.parent.trace_id:x}", f"{first.parent.span_id:x}") == (trace.lstrip("0"), span)
    assert second.parent is None


async def test_two_sessions_side_by_side(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()

    def per_folder(cwd: str) -> outrider.Options:
        words = [hang()] if cwd.endswith("a") else [say(f"I am in {Path(cwd).name}.")]
        return outrider.Options(transport=Simulator(words))

    async with served(per_folder) as editor:
        await editor.initialize()
        first = (await editor.new(tmp_path / "a"))["sessionId"]
        second = (await editor.new(tmp_path / "b"))["sessionId"]
        slow = await editor.begin_prompt("Hi", first)
        assert (await editor.prompt("Hi", second))["stopReason"] == "end_turn"
        assert editor.text == "I am in b."
        await editor.tell("session/cancel", sessionId=first)
        assert (await editor.end(slow))["stopReason"] == "cancelled"


PIXEL = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)


async def test_everything_that_a_prompt_may_have(tmp_path: Path) -> None:
    picture = base64.b64encode(PIXEL).decode()
    text = {"uri": "file:///tmp/a.py", "text": "print(1)", "mimeType": "text/x-python"}
    agent = Simulator([say("Seen.")])
    async with served(outrider.Options(transport=agent)) as editor:
        await begin(editor, tmp_path)
        await editor.prompt(
            [
                {"type": "text", "text": "Look:"},
                {"type": "image", "data": picture, "mimeType": "image/png"},
                {"type": "resource", "resource": text},
                {"type": "resource", "resource": {"uri": "x:y", "blob": picture, "mimeType": "image/png"}},
                {"type": "resource_link", "uri": "file:///tmp/my%20file.py#L3-7", "name": "file"},
                {"type": "resource_link", "uri": "https://example.com", "name": "site"},
            ]
        )
        *_, last = agent.requests[0].messages
        blocks = last["content"]
        assert [each["type"] for each in blocks] == ["text", "image", "document", "image", "text", "text"]
        assert blocks[2]["source"]["data"] == "print(1)"
        assert blocks[4]["text"] == '@"/tmp/my file.py#L3-7"'
        assert blocks[5]["text"] == "[site](https://example.com)"


@pytest.mark.parametrize(
    "block",
    [
        {"type": "audio", "data": "", "mimeType": "audio/wav"},
        {"type": "image", "data": "no base64!", "mimeType": "image/png"},
        {"type": "image", "data": "AAAA", "mimeType": "image/tiff"},
        {"type": "text", "text": "  "},
        {"type": "resource", "resource": {"uri": "x:y", "blob": "AAECAw=="}},
        {"type": "surprise"},
        {},
    ],
    ids=["audio", "not base64", "no picture", "blank", "bytes", "unknown", "nothing"],
)
async def test_a_prompt_that_cannot_be_sent(tmp_path: Path, block: dict[str, Any]) -> None:
    async with served(options([say("Hello!")])) as editor:
        await begin(editor, tmp_path)
        with pytest.raises(Refused) as refused:
            await editor.prompt([block])
        assert refused.value.code == -32602
        assert (await editor.prompt("Hi"))["stopReason"] == "end_turn"


async def test_modes_models_and_effort(tmp_path: Path) -> None:
    async with served(options([say("Hi.")])) as editor:
        made = await begin(editor, tmp_path)
        found = {each["id"]: each for each in made["configOptions"]}
        assert found["mode"]["category"] == "mode"
        assert found["model"]["category"] == "model"
        await editor.call("session/set_mode", sessionId=editor.session_id, modeId="plan")
        other = found["model"]["options"][-1]["value"]
        changed = await editor.call(
            "session/set_config_option", sessionId=editor.session_id, configId="model", value=other
        )
        now = {each["id"]: each["currentValue"] for each in changed["configOptions"]}
        assert (now["mode"], now["model"]) == ("plan", other)
        for setting, value in (("mode", "nonsense"), ("mode", "bypassPermissions"), ("nonsense", "x")):
            with pytest.raises(Refused) as refused:
                await editor.call(
                    "session/set_config_option", sessionId=editor.session_id, configId=setting, value=value
                )
            assert refused.value.code == -32602


async def test_kept_sessions(tmp_path: Path) -> None:
    cwd = tmp_path / "project"
    cwd.mkdir()
    env = {"CLAUDE_CONFIG_DIR": str(tmp_path / "config")}
    script = [
        say("First."),
        use_tool("Bash", command="echo hi"),
        say("Second."),
        say("Third."),
        say("Fourth."),
    ]
    async with served(options(script, env=env)) as editor:
        await begin(editor, cwd)
        await editor.prompt("One")
        first = editor.session_id
        await editor.call("session/close", sessionId=first)
        with pytest.raises(Refused, match="no open session") as refused:
            await editor.prompt("Two")
        assert refused.value.code == -32002
        listed = (await editor.call("session/list", cwd=str(cwd)))["sessions"]
        assert [(each["sessionId"], each["cwd"], each["title"]) for each in listed] == [
            (first, str(cwd), "One")
        ]
        where = {"cwd": str(cwd), "mcpServers": []}
        await editor.call("session/resume", sessionId=first, **where)
        editor.answer_permission("allow_once")
        await editor.prompt("Two")
        editor.updates.clear()
        await editor.call("session/load", sessionId=first, **where)
        told = [
            each["content"]["text"]
            for each in editor.updates
            if each["sessionUpdate"] in ("user_message_chunk", "agent_message_chunk")
        ]
        assert told == ["One", "First.", "Two", "Second."]
        (call,) = editor.of("tool_call")
        assert editor.call_of(call["toolCallId"])["status"] == "completed"
        fork = (await editor.call("session/fork", sessionId=first, **where))["sessionId"]
        assert fork != first
        assert (await editor.prompt("Three", fork))["stopReason"] == "end_turn"
        assert len((await editor.call("session/list"))["sessions"]) == 2
        await editor.call("session/delete", sessionId=fork)
        await editor.call("session/delete", sessionId=fork)
        assert [each["sessionId"] for each in (await editor.call("session/list"))["sessions"]] == [first]


async def test_sessions_in_a_store(tmp_path: Path) -> None:
    store = f"sqlite:///{tmp_path}/sessions.db"
    async with served(options([say("First."), say("Second.")], session_store=store)) as editor:
        await begin(editor, tmp_path)
        await editor.prompt("One")
        first = editor.session_id
        await editor.call("session/close", sessionId=first)
        assert [each["sessionId"] for each in (await editor.call("session/list"))["sessions"]] == [first]
        editor.updates.clear()
        await editor.call("session/load", sessionId=first, cwd=str(tmp_path), mcpServers=[])
        assert editor.text == "First."
        assert (await editor.prompt("Two"))["stopReason"] == "end_turn"

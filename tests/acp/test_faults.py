"""Editors that behave badly, or go away: the agent goes on, or ends, and never does what nobody allowed."""

from __future__ import annotations

import json
import random
from contextlib import suppress
from pathlib import Path
from typing import Any

import anyio
import pytest

import outrider
from outrider.acp._rpc import _encode
from outrider.testing import Gate, Simulator, answer, drop, fail, say, use_tool
from tests.acp.editor import Refused, served
from tests.acp.test_sessions import begin, options

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize(
    "line, code",
    [
        (b"nonsense", -32700),
        (b'{"jsonrpc":"2.0","id":1,"meth', -32700),
        (b"\xff\xfe", -32700),
        (b"[" * 100_000, -32700),
        (b'{"a":"\\ud800"}', -32700),
        (b"[]", -32600),
        (b"7", -32600),
        (b"{}", -32600),
        (b'{"id":{},"method":"initialize"}', -32600),
        (b'{"id":null,"method":7}', -32600),
        (b'{"id":null,"method":"session/new","params":[]}', -32602),
        (b'{"id":null,"method":"nonsense"}', -32601),
        (b'{"id":null,"method":"session/new","params":{}}', -32602),
        (b'{"id":null,"method":"session/new","params":{"cwd":"x","mcpServers":[]}}', -32602),
        (b'{"id":null,"method":"session/new","params":{"cwd":"/nowhere","mcpServers":[]}}', -32602),
    ],
    ids=str,
)
async def test_a_broken_frame_gets_an_error_and_the_next_an_answer(
    tmp_path: Path, line: bytes, code: int
) -> None:
    async with served(options([say("Hello.")])) as editor:
        await editor.initialize()
        await editor.stream.send(line + b"\n\n  \n")
        await editor.until(lambda: editor.errors)
        assert [each["code"] for each in editor.errors] == [code]
        await editor.new(tmp_path)
        await editor.prompt("Hi")
        assert editor.text == "Hello."


async def test_frames_come_in_any_pieces_and_not_too_large(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("outrider.acp._rpc.MOST_BYTES", 2000)
    async with served(options([say("Hello.")])) as editor:
        await editor.initialize()
        await editor.new(tmp_path)
        await editor.stream.send(b'{"a":"' + b"x" * 100_000)
        await editor.stream.send(b'y"}\n')
        await editor.until(lambda: editor.errors)
        assert "100009 bytes" in editor.errors[0]["message"]
        await editor.prompt("Hi")
        assert editor.text == "Hello."


async def test_nothing_before_initialize(tmp_path: Path) -> None:
    async with served(options([])) as editor:
        with pytest.raises(Refused, match="initialize") as refused:
            await editor.new(tmp_path)
        assert refused.value.code == -32600


@pytest.mark.parametrize("session_id", ["nonsense", "../../etc", "8d2bd0ca-5a2b-4b2a-9c7f-111111111111", ""])
async def test_an_unknown_session(tmp_path: Path, session_id: str) -> None:
    env = {"CLAUDE_CONFIG_DIR": str(tmp_path / "config")}
    async with served(options([], env=env)) as editor:
        await editor.initialize()
        where = {"cwd": str(tmp_path), "mcpServers": []}
        for method, more in (
            ("session/prompt", {"prompt": [{"type": "text", "text": "Hi"}]}),
            ("session/load", where),
            ("session/resume", where),
            ("session/fork", where),
            ("session/close", {}),
            ("session/set_mode", {"modeId": "plan"}),
        ):
            with pytest.raises(Refused) as refused:
                await editor.call(method, sessionId=session_id, **more)
            assert refused.value.code == -32002, method
        # A notification has no answer.
        await editor.tell("session/cancel", sessionId=session_id)
        assert (await editor.call("session/list"))["sessions"] == []


async def test_an_editor_that_goes_ends_what_runs(tmp_path: Path) -> None:
    """`served` ends when `serve` returns, and that is when every agent has ended."""
    async with served(options([use_tool("Bash", command="touch made"), say("No.")])) as editor:
        await begin(editor, tmp_path)
        asked = anyio.Event()

        async def never(_: dict[str, Any]) -> Any:
            asked.set()
            await anyio.sleep_forever()

        editor.handlers["session/request_permission"] = never
        await editor.begin_prompt("Go.")
        await asked.wait()
    assert not (tmp_path / "made").exists()


async def test_a_permission_that_is_never_answered_times_out(tmp_path: Path) -> None:
    script = [use_tool("Bash", command="touch made"), say("It was not allowed.")]
    async with served(options(script, timeouts={"permission": 0.2})) as editor:
        await begin(editor, tmp_path)

        async def never(_: dict[str, Any]) -> Any:
            await anyio.sleep_forever()

        editor.handlers["session/request_permission"] = never
        assert (await editor.prompt("Go."))["stopReason"] == "end_turn"
        assert editor.text == "It was not allowed."
        await editor.until(lambda: editor.taken_back)
    assert not (tmp_path / "made").exists()


@pytest.mark.parametrize(
    "reply", [None, 7, {}, {"outcome": "yes"}, {"outcome": {"outcome": "selected"}}], ids=str
)
async def test_nonsense_is_no_permission(tmp_path: Path, reply: Any) -> None:
    async with served(options([use_tool("Bash", command="touch made"), say("No.")])) as editor:
        await begin(editor, tmp_path)

        async def answer(_: dict[str, Any]) -> Any:
            return reply

        editor.handlers["session/request_permission"] = answer
        assert (await editor.prompt("Go."))["stopReason"] == "cancelled"
    assert not (tmp_path / "made").exists()


async def test_answers_that_nobody_waits_for(tmp_path: Path) -> None:
    async with served(options([say("Hello.")])) as editor:
        await editor.send({"jsonrpc": "2.0", "id": 99, "result": {}})
        await editor.send({"jsonrpc": "2.0", "id": "x", "error": {"code": 1}})
        await editor.send({"jsonrpc": "2.0", "id": 98, "error": 7})
        await begin(editor, tmp_path)
        await editor.prompt("Hi")
        assert editor.text == "Hello."


async def test_a_failed_turn_is_an_error_and_the_next_one_goes_on(tmp_path: Path) -> None:
    script = [fail(400, message="no such thing"), say("Hello."), fail(401, message="who are you")]
    async with served(options(script)) as editor:
        await begin(editor, tmp_path)
        with pytest.raises(Refused, match="no such thing") as refused:
            await editor.prompt("Hi")
        assert refused.value.code == -32603
        assert (await editor.prompt("Hi"))["stopReason"] == "end_turn"
        with pytest.raises(Refused) as refused:
            await editor.prompt("Hi")
        assert refused.value.code == -32000


async def test_a_limit_is_a_reason_to_stop(tmp_path: Path) -> None:
    script = [use_tool("Bash", command="echo hi"), use_tool("Bash", command="echo hi"), say("Done.")]
    async with served(options(script, max_turns=1, permission=lambda _: True)) as editor:
        await begin(editor, tmp_path)
        assert (await editor.prompt("Go."))["stopReason"] == "max_turn_requests"


@pytest.mark.parametrize("reason", ["refusal", "max_tokens"])
async def test_an_answer_that_is_cut_off_or_refused_is_a_reason_to_stop(tmp_path: Path, reason: Any) -> None:
    script = [answer(say("Never."), stop_reason=reason)] * 6
    async with served(options([*script])) as editor:
        await begin(editor, tmp_path)
        assert (await editor.prompt("Go."))["stopReason"] == reason
        # Claude Code says why.
        assert "API Error" in editor.text


async def test_an_agent_that_is_lost_is_started_again(tmp_path: Path) -> None:
    env = {"CLAUDE_CONFIG_DIR": str(tmp_path / "config")}
    with Simulator([say("One."), say("Two."), say("Three.")], executable=True) as agent:
        made = agent.options(env={**agent.options().env, **env})
        sessions: list[outrider.Session] = []

        class Watched(outrider.Session):
            async def connect(self) -> None:
                sessions.append(self)
                await super().connect()

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("outrider.acp._session.Session", Watched)
            async with served(made) as editor:
                await begin(editor, tmp_path)
                await editor.prompt("Hi")
                await editor.call("session/set_mode", sessionId=editor.session_id, modeId="plan")
                sessions[0].abandon()
                # It ends by itself: another loop over its messages ends with it.
                with suppress(outrider.ConnectionLost):
                    async for _ in sessions[0]:
                        pass
                assert (await editor.prompt("Hi"))["stopReason"] == "end_turn"
                assert editor.text == "One.Two."
                assert len(sessions) == 2
                assert sessions[1].info.permission_mode == "plan"


async def test_a_request_that_is_taken_back(tmp_path: Path) -> None:
    async with served(options([say("One two", gate=Gate()), say("Hello.")])) as editor:
        await begin(editor, tmp_path)
        prompt = await editor.begin_prompt("Hi")
        await editor.until(lambda: editor.text)
        await editor.tell("$/cancel_request", requestId=prompt)
        with pytest.raises(Refused) as refused:
            await editor.end(prompt)
        assert refused.value.code == -32800
        assert (await editor.prompt("Hi"))["stopReason"] == "end_turn"


@pytest.mark.parametrize("text", ["\ud83d", "a\udc00b", "\ud83d\ude00", "\u00e9"])
def test_half_a_surrogate_pair_leaves_a_frame_that_editors_can_read(text: str) -> None:
    # Readers in Rust reject a whole frame for the escape of such a half.
    frame = _encode({"rawInput": {"command": [text]}})
    assert b"\\u" not in frame
    json.loads(frame)["rawInput"]["command"][0].encode()


async def test_an_editor_that_does_not_read(tmp_path: Path) -> None:
    """All that it is told waits for it, and nothing is lost."""
    words = "many words " * 20_000
    async with served(options([say(words)])) as editor:
        await begin(editor, tmp_path)
        editor.reads = anyio.Event()
        prompt = await editor.begin_prompt("Hi")
        await editor.tell("session/cancel", sessionId="another")
        await anyio.wait_all_tasks_blocked()
        editor.reads.set()
        assert (await editor.end(prompt))["stopReason"] == "end_turn"
        assert editor.text == words


async def test_options_that_cannot_be_served() -> None:
    sources: list[Any] = [outrider.Options(resume="8d2bd0ca-5a2b-4b2a-9c7f-111111111111"), 7]
    for source in sources:
        with pytest.raises(outrider.OptionsError):
            await outrider.acp.serve(source)


@pytest.mark.parametrize("kind", ["raises", "nothing", "resumes"])
async def test_a_function_that_makes_no_options(tmp_path: Path, kind: str) -> None:
    async def make(cwd: str) -> Any:
        if kind == "raises":
            raise ValueError("no options today")
        return None if kind == "nothing" else outrider.Options(continue_conversation=True)

    async with served(make) as editor:
        await editor.initialize()
        with pytest.raises(Refused) as refused:
            await editor.new(tmp_path)
        assert refused.value.code == (-32603 if kind == "raises" else -32602)
        assert "opti" in refused.value.text or "continue_conversation" in refused.value.text


async def test_a_dropped_answer_of_the_api(tmp_path: Path) -> None:
    """What was streamed before a retry does not hide what comes after it."""
    async with served(options([drop(after="One"), say("One two.")])) as editor:
        await begin(editor, tmp_path)
        assert (await editor.prompt("Hi"))["stopReason"] == "end_turn"
        assert editor.text.endswith("One two.")


async def test_what_cannot_be_shown_does_not_end_the_session(tmp_path: Path) -> None:
    deep: Any = "x"
    for _ in range(400):
        deep = [deep]
    script = [use_tool("mcp__x__y", deep=deep, tool_result="ok"), say("Hello.")]
    async with served(options(script, permission=lambda _: True)) as editor:
        await begin(editor, tmp_path)
        assert (await editor.prompt("Hi"))["stopReason"] == "end_turn"
        assert editor.text == "Hello."


async def test_a_session_that_is_closed_while_it_works(tmp_path: Path) -> None:
    async with served(options([say("One two", gate=Gate())])) as editor:
        await begin(editor, tmp_path)
        prompt = await editor.begin_prompt("Hi")
        await editor.until(lambda: editor.text)
        await editor.call("session/close", sessionId=editor.session_id)
        assert (await editor.end(prompt))["stopReason"] == "cancelled"


@pytest.mark.parametrize(
    "fields", [{"isolation": "hermetic"}, {"runner": outrider.runners.Prefix(("env",))}], ids=str
)
async def test_sessions_that_are_not_here_are_not_listed(fields: dict[str, Any]) -> None:
    async with served(outrider.Options(**fields)) as editor:
        await editor.initialize()
        with pytest.raises(Refused, match="session_store"):
            await editor.call("session/list")


async def test_calls_that_wait_for_approval(tmp_path: Path) -> None:
    approvals = outrider.Approvals(f"sqlite:///{tmp_path}/approvals.db", patience=0)
    fields: dict[str, Any] = {
        "permission": outrider.Policy.of({"ask": "Bash(*deploy*)"}, {"allow": "*"}),
        "approvals": approvals,
        "env": {"CLAUDE_CONFIG_DIR": str(tmp_path / "config")},
    }
    script = [use_tool("Bash", command="echo deploy > made"), say("It is deployed."), say("Hello.")]
    with Simulator(script) as agent, agent.stand_in():
        async with served(outrider.Options(**fields)) as editor:
            await begin(editor, tmp_path)
            assert (await editor.prompt("Deploy."))["stopReason"] == "end_turn"
            assert "waits for approval" in editor.text
            assert (await editor.prompt("And?"))["stopReason"] == "end_turn"
            assert not (tmp_path / "made").exists()
            (waiting,) = await approvals.list(state="pending")
            await approvals.decide(waiting.id, outrider.allow(), by="Ada")
            editor.updates.clear()
            assert (await editor.prompt("Now?"))["stopReason"] == "end_turn"
            assert editor.text == "It is deployed.Hello."
            assert not editor.asked
    assert (tmp_path / "made").exists()


@pytest.mark.parametrize("where", [{"cursor": "x"}, {"cursor": "0"}, {"cursor": "9" * 30}, {"cwd": ""}])
async def test_a_list_that_there_is_not(where: dict[str, Any]) -> None:
    async with served(options([])) as editor:
        await editor.initialize()
        with pytest.raises(Refused, match=next(iter(where))) as refused:
            await editor.call("session/list", **where)
        assert refused.value.code == -32602


METHODS = [
    *("session/new", "session/load", "session/resume", "session/fork", "session/list", "session/close"),
    *("session/delete", "session/prompt", "session/cancel", "session/set_mode"),
    *("session/set_config_option", "$/cancel_request", "_other", "", None),
]
NAMES = [
    *("sessionId", "cwd", "mcpServers", "prompt", "modeId", "configId", "value", "requestId", "type"),
    *("additionalDirectories", "cursor"),
]
VALUES: list[Any] = [None, 7, -1, "x", "", [], {}, True, "\u00e9", {"a": [1, 2]}, [[]], [7], 1e300]


@pytest.mark.parametrize("seed", range(4))
async def test_nonsense_in_its_right_place(tmp_path: Path, seed: int) -> None:
    """Whatever comes, each request has an answer, and the session goes on."""
    chance = random.Random(seed)
    env = {"CLAUDE_CONFIG_DIR": str(tmp_path / "config")}
    async with served(options([say("Hello.")], env=env)) as editor:
        await begin(editor, tmp_path)
        for _ in range(200):
            params = {name: chance.choice(VALUES) for name in chance.sample(NAMES, 5)}
            frame = {"jsonrpc": "2.0", "method": chance.choice(METHODS), "params": params}
            if chance.random() < 0.1:
                frame["params"] = chance.choice(VALUES)
            await editor.send(frame | ({"id": None} if chance.random() < 0.7 else {}))
        assert (await editor.prompt("Hi"))["stopReason"] == "end_turn"
        assert editor.text == "Hello."
        assert {each["code"] for each in editor.errors} <= {-32600, -32601, -32602, -32002}

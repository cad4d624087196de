"""Bugs that other SDKs had with conversations, each as a test. The tags name the peer or its own report.

Those of framing, of control without a loop, and of processes are in the tests beside those layers; those of
hooks, permissions, tools and stores come with them.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from copy import deepcopy
from typing import Any

import anyio
import pytest

import outrider
from outrider.errors import (
    ApiFailed,
    ConnectionLost,
    MessageInvalid,
    OptionsError,
    ProcessExited,
    RequestFailed,
    RequestTimedOut,
    TurnFailed,
    TurnTimedOut,
    UsageError,
)
from outrider.options import Timeouts
from outrider.protocol import RequestAnswered, RequestReceived, RequestRefused, RequestWithdrawn
from outrider.session import Result, Session
from outrider.wire import (
    AssistantMessage,
    Message,
    RedactedThinkingBlock,
    ResultMessage,
    ThinkingBlock,
    ToolProgressMessage,
    UnknownBlock,
    UserMessage,
)
from tests.cases import every_case
from tests.session.other_end import (
    OtherEnd,
    assistant,
    init,
    playing,
    result,
    state,
    turn,
)
from tests.session.surroundings import (
    QUICK,
    Program,
    Recording,
    agent_at,
    agent_of,
    answer_everything,
    begin_and_wait,
    with_handler,
)
from tests.transports.conftest import libraries_are_warm, nothing_is_left, own_processes

pytestmark = pytest.mark.anyio

# Autouse, and so in force for this module.
__all__ = ["libraries_are_warm", "nothing_is_left"]

ASK = {"tool_name": "Bash", "input": {}, "tool_use_id": "toolu_1"}


async def prompted(agent: OtherEnd) -> str:
    return (await agent.prompt()).uuid or ""


# Control.


class AnswersAtOnce(Recording):
    """Has the answer before `send` has returned."""

    async def send(self, data: bytes) -> None:
        await super().send(data)
        await anyio.wait_all_tasks_blocked()


@pytest.mark.requirement("D5")
async def test_an_answer_may_come_before_anybody_waits_for_it() -> None:
    """A6-M3: the response was dropped, because the request was not in the table yet."""
    transport = AnswersAtOnce()
    async with agent_of(transport.agent):
        with anyio.fail_after(5):
            async with Session(transport=transport) as session:
                assert await session.request("get_settings") == {}


@pytest.mark.requirement("D5")
async def test_pending_requests_fail_when_the_output_ends() -> None:
    """TS; the reference SDK waited 60 s for them after a clean exit."""

    async def play(agent: OtherEnd) -> None:
        for _ in range(3):
            await agent.asked("mcp_status")
        await agent.leave()

    errors: list[Exception] = []

    async def ask(session: Session) -> None:
        try:
            await session.request("mcp_status", timeout=None)
        except ConnectionLost as error:
            errors.append(error)

    async with playing(play) as session:
        with anyio.fail_after(2):
            async with anyio.create_task_group() as tasks:
                for _ in range(3):
                    tasks.start_soon(ask, session)
        assert [type(error) for error in errors] == [ConnectionLost] * 3
        assert len(set(map(id, errors))) == 3


async def test_callbacks_run_beside_each_other_and_beside_the_reader() -> None:
    """SV, TS, FO, JV, EX, MO: a callback inline in the reader, or one at a time."""
    both = anyio.Event()
    count = 0

    async def handle(_: object) -> dict[str, Any]:
        nonlocal count
        count += 1
        if count == 2:
            both.set()
        await both.wait()
        return {"behavior": "allow"}

    async def play(agent: OtherEnd) -> None:
        uuid = await prompted(agent)
        for _ in range(2):
            await agent.ask("can_use_tool", **ASK)
        for _ in range(2):
            assert isinstance(await agent.next(), RequestAnswered)
        await agent.say(*turn(uuid))

    async with agent_at(play) as transport:
        session = with_handler(transport, handle)
        await session.connect()
        with anyio.fail_after(5):
            await session.ask("a")
        await session.close()


async def test_a_callback_may_ask_the_agent_itself() -> None:
    """A6-M2: a control call inside a callback was half sent, or waited for the reader that waited for it."""
    sessions: list[Session] = []

    async def handle(_: object) -> dict[str, Any]:
        return {"behavior": "deny", "message": str(await sessions[0].request("get_settings"))}

    async def play(agent: OtherEnd) -> None:
        uuid = await prompted(agent)
        await agent.ask("can_use_tool", **ASK)
        await agent.answer(await agent.asked("get_settings"), model="x")
        reply = await agent.next()
        assert isinstance(reply, RequestAnswered)
        await agent.say(*turn(uuid, reply.payload["message"]))

    async with agent_at(play) as transport:
        session = with_handler(transport, handle)
        sessions.append(session)
        await session.connect()
        with anyio.fail_after(5):
            assert (await session.ask("a")).text == "{'model': 'x'}"
        await session.close()


async def test_a_request_that_nobody_knows_gets_a_reply() -> None:
    """SV, TY: the agent waited for ever."""
    replies: list[object] = []

    async def play(agent: OtherEnd) -> None:
        uuid = await prompted(agent)
        for subtype in ("brand_new", "can_use_tool"):
            await agent.ask(subtype, tool_name="Bash", input={}, tool_use_id="toolu_1")
            replies.append(await agent.next())
        await agent.say(*turn(uuid))

    async with playing(play) as session:
        assert (await session.ask("a")).text == "done"
    unknown, denied = replies
    assert isinstance(unknown, RequestRefused)
    assert isinstance(denied, RequestAnswered)
    assert denied.payload["behavior"] == "deny"


async def test_a_cancel_of_the_agents_ends_the_callback_and_not_our_request() -> None:
    """VA, EX: it was looked up among the outgoing requests."""
    waits, cancelled = anyio.Event(), anyio.Event()

    async def handle(_: object) -> None:
        waits.set()
        try:
            await anyio.sleep_forever()
        finally:
            cancelled.set()

    async def play(agent: OtherEnd) -> None:
        ours = await agent.asked("get_settings")
        # Under the same id: the two directions have nothing to do with each other.
        request = {"subtype": "can_use_tool", **ASK}
        await agent.say({"type": "control_request", "request_id": ours.id, "request": request})
        await waits.wait()
        await agent.say({"type": "control_cancel_request", "request_id": ours.id})
        await cancelled.wait()
        await agent.answer(ours, model="x")
        # And no reply to what was taken back: the next thing that comes is a prompt.
        await agent.reply()

    async with agent_at(play) as transport:
        session = with_handler(transport, handle)
        await session.connect()
        with anyio.fail_after(5):
            assert await session.request("get_settings") == {"model": "x"}
            await session.ask("a")
        await session.close()


@pytest.mark.requirement("D5")
@pytest.mark.parametrize("how", ["timeout", "cancel"])
async def test_a_request_that_is_given_up_leaves_no_entry(how: str) -> None:
    """TS and RB 0.16.8: after a timeout; the reference SDK: after a cancellation."""
    is_given_up = anyio.Event()

    async def play(agent: OtherEnd) -> None:
        asked = await agent.asked("mcp_status")
        assert isinstance(await agent.next(), RequestWithdrawn)
        line = {"subtype": "success", "request_id": asked.id, "response": {"late": True}}
        await agent.say({"type": "control_response", "response": line})
        is_given_up.set()
        await answer_everything(agent)

    async with playing(play) as session:
        if how == "timeout":
            with pytest.raises(RequestTimedOut):
                await session.request("mcp_status", timeout=0.02)
        else:
            with anyio.move_on_after(0.02):
                await session.request("mcp_status", timeout=None)
        await is_given_up.wait()
        assert await session.request("get_settings") == {}
        connection = session._conversation.opened()
        assert connection._waiting == {}
        assert connection._peer.pending == {}


async def test_a_callback_that_returns_at_once_leaves_no_entry() -> None:
    """A7-M1: it had finished before it was registered, and was never removed."""

    async def handle(_: object) -> dict[str, Any]:
        return {"behavior": "allow"}

    async def play(agent: OtherEnd) -> None:
        uuid = await prompted(agent)
        for _ in range(10):
            await agent.ask("can_use_tool", **ASK)
        for _ in range(10):
            assert isinstance(await agent.next(), RequestAnswered)
        await agent.say(*turn(uuid))

    async with agent_at(play) as transport:
        session = with_handler(transport, handle)
        await session.connect()
        await session.ask("a")
        connection = session._conversation.opened()
        assert connection.answering._open == {}
        assert connection._peer.open == {}
        await session.close()


# stdin.


class Counting(Recording):
    """Notes when its input is ended."""

    is_input_ended = False

    async def end_input(self) -> None:
        self.is_input_ended = True
        await super().end_input()


async def test_the_input_stays_open_while_anything_goes_on() -> None:
    """Upstream python 295 (a server was still being asked), 676 and A6-H3 (closed after 60 s in the middle of
    a turn), RB 0.24 and upstream ts 348 (subagents in the background): "Stream closed"."""
    transport = Counting()
    agent = transport.agent
    asked: list[str] = []

    async def handle(request: Any) -> dict[str, Any]:
        asked.append(request.tool_name)
        return {"behavior": "allow"}

    async def ask(name: str) -> None:
        await agent.ask("can_use_tool", **ASK | {"tool_name": name})
        assert isinstance(await agent.next(), RequestAnswered)
        assert not transport.is_input_ended
        assert not agent.is_ended

    async def play() -> None:
        await agent.open()
        uuid = await prompted(agent)
        await ask("before the turn")
        await agent.say(state("running"), init(uuid))
        await ask("in the turn")
        task = {"type": "system", "subtype": "task_started", "task_id": "a1", "task_type": "local_agent"}
        await agent.say(task | {"description": "", "uuid": "1", "session_id": "2"}, result(uuid))
        await ask("in the background")
        done = {"type": "system", "subtype": "task_notification", "task_id": "a1", "status": "completed"}
        await agent.say(done | {"summary": "", "output_file": "", "uuid": "3", "session_id": "2"})
        await agent.say(init(), result(text="all", origin={"kind": "task-notification"}), state("idle"))

    with anyio.fail_after(5):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(play)
            session = with_handler(transport, handle)
            await session.connect()
            assert (await session.ask("a", until="idle")).text == "all"
            await session.close()
    assert asked == ["before the turn", "in the turn", "in the background"]


async def test_an_iterable_that_never_ends_does_not_hold_up_a_turn_whose_agent_is_gone(
    program: Program,
) -> None:
    """A6-H1: the user's iterator was never cancelled, and the call waited for it."""
    is_closed = anyio.Event()

    async def prompts() -> AsyncIterator[str]:
        try:
            yield "a"
            await anyio.sleep_forever()
        finally:
            is_closed.set()

    async with Session(cli_path=program("fails_in_a_turn"), timeouts=QUICK) as session:
        with anyio.fail_after(10), pytest.raises(ProcessExited, match="out of cheese"):
            await session.ask(prompts())
        with anyio.fail_after(2):
            await is_closed.wait()


@every_case("prompt", [7, None, b"text", object(), {}, {"a": 1}, "", " ", [], [7], open, {"a"}])
async def test_what_is_no_prompt_is_refused_and_nothing_is_sent(prompt: Any) -> None:
    """A7-M6: garbage was streamed, or the call hung."""

    async def play(agent: OtherEnd) -> None:
        assert (await agent.reply()).content == "a prompt"

    async with playing(play) as session:
        with anyio.fail_after(2), pytest.raises((UsageError, MessageInvalid)):
            await session.send(prompt)
        assert (await session.ask("a prompt")).text == "done"


async def test_stop_iteration_from_user_code_does_not_end_reception() -> None:
    """A7-M5: it ended the reader silently."""

    async def handle(_: object) -> object:
        return next(iter(()))

    async def play(agent: OtherEnd) -> None:
        uuid = await prompted(agent)
        await agent.ask("can_use_tool", **ASK)
        assert isinstance(await agent.next(), RequestRefused)
        await agent.say(*turn(uuid))

    async with agent_at(play) as transport:
        session = with_handler(transport, handle)
        await session.connect()
        with anyio.fail_after(5):
            assert (await session.ask("a")).text == "done"
        await session.close()


async def test_an_iterable_that_waits_for_answers_does_not_hold_up_the_start() -> None:
    """A6-M4: the input was consumed inline before anything was read."""
    answered = anyio.Event()

    async def prompts() -> AsyncIterator[str]:
        yield "a"
        await answered.wait()
        yield "b"

    async with agent_at(answer_everything) as transport:
        with anyio.fail_after(5):
            async with outrider.stream(prompts(), transport=transport) as running:
                async for message in running:
                    if isinstance(message, ResultMessage):
                        answered.set()
                assert sum(isinstance(message, ResultMessage) for message in running.messages) == 2


# Hangs of the reference SDK.


@pytest.mark.requirement("D8")
@pytest.mark.parametrize("count", [150, 5000])
async def test_requests_are_answered_behind_messages_that_nobody_reads(count: int) -> None:
    """The reader waited for room among 100 messages, and with it every answer."""

    async def play(agent: OtherEnd) -> None:
        uuid = await prompted(agent)
        await agent.say(init(uuid), *(assistant(f"message {number}") for number in range(count)))
        await agent.answer(await agent.asked("mcp_status"), mcpServers=[])
        await agent.answer(await agent.asked("interrupt"))
        await agent.say(result(uuid))

    async with playing(play) as session:
        one = await session.send("a")
        with anyio.fail_after(5):
            assert await session.request("mcp_status") == {"mcpServers": []}
            await session.interrupt()
        seen = [message async for message in one if isinstance(message, AssistantMessage)]
        assert len(seen) == count


async def test_many_messages_before_the_first_answer(program: Program) -> None:
    """`connect` hung the same way."""
    with anyio.fail_after(10):
        async with Session(cli_path=program("talks_before_it_is_ready"), timeouts=QUICK) as session:
            seen: list[Message] = []
            one = await session.send("a")
            async for message in session:
                seen.append(message)
                if isinstance(message, ResultMessage):
                    break
            texts = [message.text for message in seen if isinstance(message, AssistantMessage)]
            assert texts == [*(f"early {number}" for number in range(200)), "done"]
            assert (await one.result()).text == "done"


async def test_a_clean_exit_at_the_start_is_told_at_once(program: Program) -> None:
    """Exit code 0 failed nothing: `connect` waited for 60 s."""
    with anyio.fail_after(5), pytest.raises(ProcessExited) as raised:
        await Session(cli_path=program("exits_at_the_start"), timeouts=QUICK).connect()
    assert raised.value.returncode == 0


async def test_what_the_agent_says_in_its_last_moments_is_read(program: Program) -> None:
    """`close` stopped the reader first: the agent blocked on the full pipe, was killed, its words lost."""
    session = Session(cli_path=program("talks_at_the_end"), timeouts=Timeouts(close=30))
    await session.connect()
    await session.send("a")
    with anyio.fail_after(10):
        await session.close()
    texts = [message.text async for message in session if isinstance(message, AssistantMessage)]
    assert len(texts) == 1001
    assert texts[-1].startswith("late 999 ")


async def test_a_turn_that_gets_no_result_ends(program: Program) -> None:
    """`receive_response()` never ended without one."""
    timeouts = Timeouts(silence=0.2, interrupt=0.2, close=0.2, terminate=0.2)
    async with Session(cli_path=program("works_on_and_on"), timeouts=timeouts) as session:
        with anyio.fail_after(10), pytest.raises(TurnTimedOut) as raised:
            await session.ask("a")
        assert isinstance(raised.value.result, Result)
        assert raised.value.result.text == "begun"


async def test_a_turn_does_not_end_with_the_result_of_another() -> None:
    """`receive_response()` ended on any result: of the prompt before, of work in the background."""

    async def play(agent: OtherEnd) -> None:
        first, second = await prompted(agent), await prompted(agent)
        origin = {"kind": "task-notification"}
        await agent.say(init(), assistant("aside"), result(text="aside", origin=origin))
        await agent.say(*turn(first, "one"), *turn(second, "two"))

    async with playing(play) as session:
        await session.send("a")
        second = await session.send("b")
        texts = [message.text async for message in second if isinstance(message, AssistantMessage)]
        assert (texts, (await second.result()).text) == (["two"], "two")


async def test_each_call_may_have_a_limit_of_its_own() -> None:
    """All of them had 60 s."""
    async with playing(begin_and_wait, timeouts=Timeouts(control=0.05)) as session:
        with anyio.fail_after(2), pytest.raises(RequestTimedOut, match=r"0\.05"):
            await session.request("mcp_status")
        with anyio.fail_after(2), pytest.raises(RequestTimedOut, match=r"0\.01"):
            await session.mcp_status(timeout=0.01)
        with anyio.move_on_after(0.2) as scope:
            await session.request("mcp_status", timeout=None)
        assert scope.cancelled_caught


# Leaks of the reference SDK.


@pytest.mark.parametrize(
    "fields", [{"agents": {"a": {"no": "prompt"}}}, {"max_turns": -1}, {"env": {"A=B": "c"}}]
)
async def test_options_that_are_wrong_start_nothing(fields: dict[str, Any], program: Program) -> None:
    """They were found out after the start, and the agent was left running."""
    with pytest.raises(OptionsError):
        await outrider.run("a", cli_path=program("answers"), **fields)
    assert own_processes() == []


async def test_a_session_goes_on_after_an_iterable_of_prompts() -> None:
    """`connect(AsyncIterable)` ended the input with the iterable: nothing could be sent or asked any more."""

    async def prompts() -> AsyncIterator[str]:
        yield "a"

    async with playing(answer_everything) as session:
        await session.ask(prompts())
        assert (await session.ask("b")).text == "done"
        assert await session.request("get_settings") == {}


async def test_leaving_early_ends_the_agent_before_the_next_line(program: Program) -> None:
    """It was left to the garbage collector, also with `aclosing`."""
    async with outrider.stream("a", cli_path=program("works_on_and_on"), timeouts=QUICK) as running:
        async for _ in running:
            break
    assert own_processes() == []


async def test_a_request_that_could_not_be_written_leaves_no_entry(program: Program) -> None:
    """The entry stayed for ever."""
    timeouts = Timeouts(write=0.1, close=0.2, terminate=0.2)
    async with Session(cli_path=program("stops_reading"), timeouts=timeouts) as session:
        with anyio.fail_after(10), pytest.raises(ConnectionLost, match="has not read"):
            await session.request("get_settings", text="x" * 1_000_000)
        connection = session._conversation.opened()
        assert connection._waiting == {}
        assert connection._peer.pending == {}


async def test_an_iterable_that_fails_is_not_a_normal_run() -> None:
    """Its exception was logged and swallowed."""

    async def prompts() -> AsyncIterator[str]:
        yield "a"
        raise LookupError("out of prompts")

    async with playing(answer_everything) as session:
        with anyio.fail_after(5), pytest.raises(TurnFailed, match="out of prompts"):
            await session.ask(prompts())


# What the reference SDK lost, or tripped over.


async def test_a_large_message_does_not_end_the_session() -> None:
    """1 MiB was the limit, and fatal."""

    async def play(agent: OtherEnd) -> None:
        uuid = await prompted(agent)
        await agent.say(init(uuid), assistant("x" * 3_000_000), result(uuid))

    async with playing(play) as session:
        answer = await session.ask("a")
        assert any(
            isinstance(message, AssistantMessage) and len(message.text) == 3_000_000
            for message in answer.messages
        )


BAD_LINES = [
    b'{"type":"assistant","message":{"role":"assistant","content":[{"type":"thinking","thinking":"x"}]}}',
    b'{"type":"assistant","message":{"content":"text"}}',
    b'{"type":"assistant"}',
    b'{"type":"user","message":null}',
    b'{"type":"system"}',
    b'{"type":"control_request"}',
    b'{"type":"control_request","request":{"subtype":"can_use_tool"}}',
    b'{"type":"control_request","request_id":"r","request":7}',
    b'{"type":"control_response"}',
    b'{"type":"control_response","response":{"subtype":"success"}}',
    b'{"type":"control_cancel_request"}',
    b'{"type":"transcript_mirror"}',
    b'{"type":"command_lifecycle"}',
    b'{"type":"stream_event","event":7}',
    b'{"type":null}',
    b"\xff\xfe",
    b'{"type":"assistant","message":{"content":[{"type":"text","text":"\xff"}]}}',
    b"null",
    b"[1, 2]",
    b"{}",
    b"Warning: not JSON at all",
]


@pytest.mark.requirement("A9")
@pytest.mark.requirement("D3")
@every_case("line", BAD_LINES, ids=range(len(BAD_LINES)))
async def test_one_bad_frame_does_not_end_everything(line: bytes) -> None:
    """A `MessageParseError`, a `KeyError` or a `UnicodeDecodeError` ended the reader."""

    async def play(agent: OtherEnd) -> None:
        for text in ("one", "two"):
            uuid = await prompted(agent)
            frames = turn(uuid, text)
            await agent.say(*frames[:3])
            await agent.write(line + b"\n")
            await agent.say(*frames[3:])

    async with playing(play) as session:
        with anyio.fail_after(5):
            texts = [(await session.ask(text)).text for text in "ab"]
        assert texts == ["one", "two"]


async def test_a_result_with_nothing_in_it_ends_its_turn_and_no_more() -> None:
    """The same: it has none of the fields that were required."""

    async def play(agent: OtherEnd) -> None:
        uuid = await prompted(agent)
        await agent.say(init(uuid), assistant("one"), {"type": "result"})
        await agent.reply("two")

    async with playing(play) as session:
        with anyio.fail_after(5):
            assert (await session.ask("a", check=False)).text == "one"
            assert (await session.ask("b")).text == "two"


async def test_nothing_is_dropped_silently() -> None:
    """Blocks and frames that the parser had no case for."""
    blocks = [
        {"type": "redacted_thinking", "data": "x"},
        {"type": "thinking", "thinking": "x"},
        {"type": "web_search_tool_result", "tool_use_id": "t", "content": []},
        {"type": "mcp_tool_use", "id": "t", "name": "n", "server_name": "s", "input": {}},
        {"type": "never_seen", "x": 1},
    ]
    image = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": ""}}

    async def play(agent: OtherEnd) -> None:
        uuid = await prompted(agent)
        said = assistant("")
        said["message"]["content"] = blocks
        user = {"type": "user", "message": {"role": "user", "content": [image]}, "session_id": "s"}
        progress: dict[str, Any] = {
            "type": "tool_progress",
            "tool_use_id": "t",
            "tool_name": "Bash",
            "session_id": "s",
        }
        progress |= {"parent_tool_use_id": None, "elapsed_time_seconds": 1, "uuid": "u"}
        await agent.say(init(uuid), said, user, progress)
        for kind in ("auth_status", "tool_use_summary", "prompt_suggestion", "brand_new"):
            await agent.say({"type": kind})
        await agent.say(result(uuid, an_unknown_field=7))

    async with playing(play) as session:
        messages = (await session.ask("a")).messages
        said = next(message for message in messages if isinstance(message, AssistantMessage))
        assert len(said.content) == 5
        assert isinstance(said.content[0], RedactedThinkingBlock)
        assert isinstance(said.content[1], ThinkingBlock)
        assert isinstance(said.content[4], UnknownBlock)
        user = next(message for message in messages if isinstance(message, UserMessage))
        assert len(user.content) == 1
        assert any(isinstance(message, ToolProgressMessage) for message in messages)
        kinds = [message.type for message in messages]
        assert kinds[4:8] == ["auth_status", "tool_use_summary", "prompt_suggestion", "brand_new"]
        last = messages[-1]
        assert isinstance(last, ResultMessage)
        assert last.raw["an_unknown_field"] == 7


@pytest.mark.parametrize("number", [float("nan"), float("inf")])
async def test_numbers_that_are_no_json_are_not_sent(number: float) -> None:
    """`json.dumps` writes NaN, which the agent cannot read."""
    block = {"type": "text", "text": "x", "weight": number}
    async with playing(answer_everything) as session:
        with pytest.raises(MessageInvalid):
            await session.send([block])
        with pytest.raises(MessageInvalid):
            await session.request("get_settings", weight=number)
        with anyio.fail_after(5):
            await session.wait_idle()
            assert (await session.ask("b")).text == "done"


async def test_what_follows_an_error_result_does_not_hide_it(program: Program) -> None:
    """A `keep_alive` made a bare process error of it; so did the exit that follows (A6-H2)."""
    async with Session(cli_path=program("fails_after_an_error_result"), timeouts=QUICK) as session:
        with anyio.fail_after(10), pytest.raises(ApiFailed) as raised:
            await session.ask("a")
        assert raised.value.status == 500
        # But the session is over, and says why.
        with anyio.fail_after(10), pytest.raises(ProcessExited):
            await session.ask("b")


async def test_an_exit_tells_what_was_on_stderr(program: Program) -> None:
    """It was the constant "Check stderr output for details"."""
    async with Session(cli_path=program("fails_in_a_turn"), timeouts=QUICK) as session:
        with pytest.raises(ProcessExited, match="out of cheese"):
            await session.ask("a")


async def test_several_consumers_do_not_split_the_stream_between_them() -> None:
    """One of two loops never saw the result."""
    counts: dict[str, int] = {}

    async def play(agent: OtherEnd) -> None:
        uuid = await prompted(agent)
        await agent.say(init(uuid), *(assistant(str(number)) for number in range(150)), result(uuid))

    async def count(name: str, reader: Any) -> None:
        async for message in reader:
            counts[name] = counts.get(name, 0) + 1
            if isinstance(message, ResultMessage):
                return

    async with playing(play) as session:
        readers = {"session 1": aiter(session), "session 2": aiter(session)}
        one = await session.send("a")
        readers |= {"turn 1": aiter(one), "turn 2": aiter(one)}
        async with anyio.create_task_group() as tasks:
            for name, reader in readers.items():
                tasks.start_soon(count, name, reader)
    assert set(counts.values()) == {152}


@pytest.mark.parametrize("is_list", [True, False])
async def test_what_the_caller_gave_is_not_changed(is_list: bool) -> None:
    """`client.query()` wrote a session id into the caller's dicts."""
    message = {"type": "user", "message": {"role": "user", "content": [{"type": "text", "text": "a"}]}}
    before = deepcopy(message)
    async with playing(answer_everything) as session:
        await session.ask([message] if is_list else message)
    assert message == before


async def test_false_values_are_values() -> None:
    """`if value:` dropped 0 and ""."""
    sent: list[dict[str, Any]] = []
    wanted: list[dict[str, Any]] = [
        {"subtype": "set_model", "model": None},
        {"subtype": "set_max_thinking_tokens", "max_thinking_tokens": 0},
    ]

    async def play(agent: OtherEnd) -> None:
        while (event := await agent.next()) is not None:
            if isinstance(event, RequestReceived):
                sent.append(event.request.to_wire())
                await agent.answer(event)

    async with playing(play) as session:
        await session.request("set_model", model=None)
        await session.request("set_max_thinking_tokens", max_thinking_tokens=0)
    assert sent == wanted


async def test_a_refusal_is_an_error_and_not_an_empty_answer() -> None:
    async def play(agent: OtherEnd) -> None:
        await agent.refuse(await agent.asked("get_settings"), "no", "not_now")

    async with playing(play) as session:
        with pytest.raises(RequestFailed, match="no") as raised:
            await session.request("get_settings")
        assert raised.value.code == "not_now"

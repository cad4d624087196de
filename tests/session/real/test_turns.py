"""Turns with the real program: one and many, in a row and on top of each other."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from typing import Any

import anyio
import pytest

import outrider
from outrider.errors import TransportClosed, TurnFailed, TurnInterrupted, UsageError
from outrider.session import Session, SessionState
from outrider.testing import Gate, answer, say, think, use_tool
from outrider.wire import (
    AssistantMessage,
    CommandLifecycleMessage,
    InitMessage,
    ResultMessage,
    StreamEvent,
    TextBlock,
    ThinkingBlock,
    ToolResultBlock,
    ToolUseBlock,
    UserMessage,
)
from tests.session.real.talking import (
    DEADLINE,
    HOLD,
    began,
    came_to,
    end,
    is_piece,
    opened,
    reached,
    real_agent,
    requested,
    seen,
    state_of,
    talking,
)

pytestmark = pytest.mark.anyio

BOTH = pytest.mark.parametrize("anyio_backend", ["asyncio", "trio"])


# One.


@pytest.mark.smoke
@BOTH
async def test_run_gives_the_answer_and_leaves_nothing() -> None:
    with real_agent(say("four")) as agent, anyio.fail_after(DEADLINE):
        result = await outrider.run("2 + 2?", agent.options())
        assert str(result) == "four"
        assert result.is_success
        assert (result.num_turns, result.stop_reason, result.terminal_reason) == (1, "end_turn", "completed")
        assert result.cost_usd > 0
        assert result.duration > 0
        assert result.session_id
        assert result.message in result.messages
        assert agent.api.main_requests[0].messages[0]["content"][-1]["text"] == "2 + 2?"


@pytest.mark.smoke
@BOTH
async def test_stream_shows_what_comes_in_its_order() -> None:
    script = [use_tool("Bash", command="echo 42"), say("done")]
    with real_agent(*script) as agent, anyio.fail_after(DEADLINE):
        options = agent.options(permission_mode="bypassPermissions")
        async with outrider.stream("calculate", options) as turn:
            messages = [message async for message in turn]
        assert (await turn.result()).text == "done"
    order = [type(message) for message in messages]
    spoken = [kind for kind in order if kind in (InitMessage, AssistantMessage, UserMessage, ResultMessage)]
    assert spoken == [InitMessage, AssistantMessage, UserMessage, AssistantMessage, ResultMessage]
    blocks: list[Any] = [block for message in messages for block in getattr(message, "content", ())]
    call, outcome, _ = blocks
    assert isinstance(call, ToolUseBlock)
    assert isinstance(outcome, ToolResultBlock)
    assert (call.id, outcome.content) == (outcome.tool_use_id, "42")
    assert tuple(messages) == turn.messages


async def test_a_stream_that_is_left_early_ends_the_agent() -> None:
    gate = Gate()
    with real_agent(say("one two", gate=gate)) as agent, anyio.fail_after(DEADLINE):
        # By itself it would write on to the end of its answer.
        options = agent.options(include_partial_messages=True, timeouts={"close": 0.1})
        async with outrider.stream("count", options) as turn:
            await seen(turn, is_piece)
        with pytest.raises(TransportClosed) as caught:
            await turn.result()
        assert came_to(caught.value).text == "one "


# Many.


@pytest.mark.smoke
async def test_turns_follow_each_other_in_one_conversation() -> None:
    async with talking(say("one"), say("two"), say("three")) as (agent, session):
        assert state_of(session) is SessionState.IDLE
        results = [await session.ask(word) for word in ("a", "b", "c")]
        assert [result.text for result in results] == ["one", "two", "three"]
        assert {result.session_id for result in results} == {session.id}
        roles = [message["role"] for message in agent.api.main_requests[2].messages]
        assert [role for role in roles if role != "system"] == [
            "user",
            "assistant",
            "user",
            "assistant",
            "user",
        ]
        uuids = [result.message.user_message_uuid for result in results if result.message]
        assert len(set(uuids)) == 3


async def test_a_reader_of_the_session_sees_all_turns() -> None:
    async with talking(say("one"), say("two")) as (_, session):
        reader = aiter(session)
        first, second = await session.ask("a"), await session.ask("b")
        await session.close()
        everything = [message async for message in reader]
        texts = [message.text for message in everything if isinstance(message, AssistantMessage)]
        assert texts == ["one", "two"]
        assert {id(message) for message in (*first.messages, *second.messages)} <= set(map(id, everything))


@BOTH
async def test_three_prompts_at_once_are_two_turns_and_each_has_its_result() -> None:
    gate = Gate(after=0)
    async with talking(say("first", gate=gate), say("rest")) as (agent, session):
        turns = [await session.send(word) for word in ("a", "b", "c")]
        await reached(gate)
        assert [turn.is_over for turn in turns] == [False] * 3
        gate.open()
        results = [await turn.result() for turn in turns]
        assert [result.text for result in results] == ["first", "rest", "rest"]
        assert len(agent.api.main_requests) == 2
        last = agent.api.main_requests[1].messages[-1]["content"]
        assert [block["text"] for block in last if block["type"] == "text"][-1] in ("b\nc", "c")
        assert [turn.delivery for turn in turns] == ["consumed"] * 3
        assert results[1].message is results[2].message
        # What both came to is counted once.
        assert session.usage == results[0].usage + results[1].usage
        assert state_of(session) is SessionState.IDLE


async def test_a_message_sent_while_a_tool_runs_is_folded_into_the_turn() -> None:
    script = [use_tool("Bash", command=HOLD), say("done")]
    async with talking(*script) as (agent, session):
        turn = await session.send("wait")
        await began(agent)
        assert state_of(session) is SessionState.BUSY
        note = await turn.steer("and hurry")
        await seen(
            note.turn,
            lambda message: isinstance(message, CommandLifecycleMessage) and message.state == "queued",
        )
        assert note.state == "queued"
        await end(agent)
        assert await note.wait() == "consumed"
        result = await turn.result()
        assert (result.text, note.turn.is_over) == ("done", True)
        assert (await note.turn.result()).message is result.message
        assert "and hurry" in str(agent.api.main_requests[1].messages[-1])
        assert session.usage == result.usage
        with pytest.raises(UsageError, match="over"):
            await turn.steer("too late")


async def test_more_prompts_than_a_result_names_are_all_answered_by_it() -> None:
    gate = Gate(after=0)
    async with talking(say("one", gate=gate), say("two")) as (agent, session):
        first = await session.send("first")
        await requested(agent, 1)
        turns = [await session.send(f"prompt {number}") for number in range(70)]
        await seen(
            turns[-1],
            lambda message: isinstance(message, CommandLifecycleMessage) and message.state == "queued",
        )
        gate.open()
        assert (await first.result()).text == "one"
        results = [await turn.result() for turn in turns]
        assert {result.text for result in results} == {"two"}
        assert {id(result.message) for result in results} == {id(results[0].message)}
        # The agent names fewer than it has answered.
        assert results[0].message is not None
        assert 1 < len(results[0].message.user_message_uuids or ()) < len(turns)
        assert session.usage == (await first.result()).usage + results[0].usage


async def test_what_is_queued_waits_and_can_be_taken_back() -> None:
    gate = Gate()
    async with talking(say("one two", gate=gate), say("next"), say("too much")) as (agent, session):
        turn = await session.send("a")
        await reached(gate)
        kept, dropped = await session.enqueue("b"), await session.enqueue("c")
        assert await dropped.withdraw()
        assert dropped.state == await dropped.wait() == "withdrawn"
        with pytest.raises(TurnInterrupted, match="taken back"):
            await dropped.turn.result()
        assert await dropped.withdraw()
        assert kept.turn.delivery == "queued"
        gate.open()
        assert (await turn.result()).text == "one two"
        assert (await kept.turn.result()).text == "next"
        assert kept.state == "consumed"
        assert not await kept.withdraw()
        assert len(agent.api.main_requests) == 2


async def test_a_prompt_that_is_to_be_answered_now_ends_the_running_turn() -> None:
    gate = Gate()
    async with talking(say("one two", gate=gate), say("now"), include_partial_messages=True) as (_, session):
        old = await session.send("a")
        await seen(old, is_piece)
        new = await session.send("b", priority="now")
        assert (await new.result()).text == "now"
        with pytest.raises(TurnInterrupted, match="newer message"):
            await old.result()
        gate.open()


# Iterables of prompts.


async def test_prompts_of_an_iterable_are_one_turn() -> None:
    async def prompts() -> AsyncIterator[object]:
        yield "a"
        await requested(agent, 1)
        yield {"role": "user", "content": "b"}

    with real_agent(say("one"), say("two")) as agent:
        async with opened(agent) as session:
            turn = await session.send(prompts())
            results = [message async for message in turn if isinstance(message, ResultMessage)]
            assert [result.result for result in results] == ["one", "two"]
            assert (await turn.result()).text == "two"
            assert (await turn.result()).usage == session.usage


async def test_prompts_of_a_plain_iterator_are_sent_too() -> None:
    def prompts() -> Iterator[str]:
        yield "a"
        agent.api.wait_for(1)
        yield "b"

    with real_agent(say("one"), say("two")) as agent, anyio.fail_after(DEADLINE):
        assert (await outrider.run(prompts(), agent.options())).text == "two"


async def test_an_iterable_that_fails_fails_the_turn() -> None:
    async def prompts(*texts: str) -> AsyncIterator[str]:
        for text in texts:
            yield text
        raise ZeroDivisionError("mine")

    async with talking(otherwise=say("one")) as (_, session):
        for texts in ((), ("a",)):
            turn = await session.send(prompts(*texts))
            with pytest.raises(TurnFailed, match="mine") as caught:
                await turn.result()
            assert isinstance(caught.value.__cause__, ZeroDivisionError)
            assert (await session.ask("go on")).is_success
        with pytest.raises(UsageError, match="no prompt"):
            await session.ask(iter(()))


# What the model says.


async def test_partial_messages_join_to_the_answer() -> None:
    script = [answer(think("hm, ", "so"), say("one ", "two ", "three")), say("and ", "more")]
    async with talking(*script, include_partial_messages=True) as (_, session):
        turn = await session.send("count")
        pieces = [piece async for piece in turn.text()]
        assert pieces == ["one ", "two ", "three"]
        result = await turn.result()
        assert result.text == "".join(pieces)
        assert not [message for message in result.messages if isinstance(message, StreamEvent)]
        assert [piece async for piece in (await session.send("on")).text()] == ["and ", "more"]


async def test_blocks_come_one_by_one_without_partial_messages() -> None:
    script = [
        answer(think("hm, ", "so"), say("now "), use_tool("Bash", command="true")),
        say("done"),
        say("part", stop_reason="stop_sequence"),
        say("a part and ", stop_reason="max_tokens"),
        say("the rest"),
    ]
    async with talking(*script) as (_, session):
        turn = await session.send("work")
        assert [text async for text in turn.text()] == ["now ", "done"]
        result = await turn.result()
        said = [message for message in result.messages if isinstance(message, AssistantMessage)]
        blocks = [block for message in said for block in message.content]
        assert [type(block) for block in blocks] == [ThinkingBlock, TextBlock, ToolUseBlock, TextBlock]
        assert said[0].thinking == "hm, so"
        assert (result.text, result.stop_reason) == ("done", "end_turn")
        result = await session.ask("stop there")
        assert (result.text, result.stop_reason) == ("part", "stop_sequence")
        # A message that hit the limit is gone on with.
        result = await session.ask("go on and on")
        assert (result.text, result.stop_reason) == ("the rest", "end_turn")


async def test_lines_of_three_megabytes_come_whole_and_in_order() -> None:
    text = "0123456789abcde\n" * (3 * 65536)
    with real_agent() as agent:
        write = use_tool("Write", file_path=str(agent.folder / "big.txt"), content=text)
        agent.api.add(write, say("done"), say(text, chunks=20))
        async with opened(agent) as session:
            result = await session.ask("write")
            assert (agent.folder / "big.txt").read_text() == text
            kinds = [
                type(message)
                for message in result.messages
                if isinstance(message, AssistantMessage | UserMessage | ResultMessage)
            ]
            assert kinds == [AssistantMessage, UserMessage, AssistantMessage, ResultMessage]
            (call,) = [
                block
                for message in result.messages
                if isinstance(message, AssistantMessage)
                for block in message.tool_uses
            ]
            assert call.input["content"] == text
            sizes = [len(message.raw_json) for message in result.messages]
            assert sum(size > 3_000_000 for size in sizes) == 2
            # As a prompt, and as an answer.
            assert (await session.ask(text[:1_000_000])).text == text


async def test_states_follow_each_other() -> None:
    gate = Gate()
    with real_agent(say("one two", gate=gate)) as agent:
        session = Session(agent.options())
        states = [session.state]
        assert (session.id, session.pid) == (None, None)
        with anyio.fail_after(DEADLINE):
            await session.connect()
            await session.connect()
            states.append(session.state)
            pid = session.pid
            turn = await session.send("a")
            states.append(session.state)
            await reached(gate)
            states.append(session.state)
            gate.open()
            await turn.result()
            states.append(session.state)
            await session.wait_idle()
            assert session.id is not None
            assert session.info.pid == pid == session.pid
            assert session.id in repr(session)
            await session.close()
            await session.close()
        states.append(session.state)
        assert [state.value for state in states] == ["starting", "idle", "busy", "busy", "idle", "closed"]
        with pytest.raises(TransportClosed):
            await session.ask("more")
        with pytest.raises(TransportClosed):
            await session.connect()

"""Interrupts at every point of a turn of the real program, after each of which the session goes on."""

from __future__ import annotations

import os
import signal
from collections.abc import AsyncIterator

import anyio
import pytest

from outrider.errors import TurnInterrupted
from outrider.session import Session, SessionState
from outrider.testing import Gate, Request, Step, fail, hang, say, use_tool
from outrider.wire import ApiRetryMessage
from tests.session.real.talking import (
    HOLD,
    began,
    came_to,
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


async def check_usable(session: Session) -> None:
    """It answers the next prompt, and to that one."""
    result = await session.ask("go on")
    assert result.text == "next"
    assert state_of(session) is SessionState.IDLE


def only_when_told_to_go_on(request: Request) -> Step:
    """A model that answers nothing else: whether a cancelled prompt gets to it is a matter of chance."""
    return say("next") if "go on" in str(request.messages) else hang()


@pytest.mark.parametrize("anyio_backend", ["asyncio", "trio"])
async def test_right_behind_the_first_prompt() -> None:
    async with talking(otherwise=only_when_told_to_go_on) as (_, session):
        turn = await session.send("a")
        receipt = await turn.cancel()
        assert str(receipt) == "cancelled"
        with pytest.raises(TurnInterrupted):
            await turn.result()
        await check_usable(session)


async def test_right_behind_a_later_prompt() -> None:
    async with talking(say("one"), otherwise=only_when_told_to_go_on) as (_, session):
        await session.ask("a")
        turn = await session.send("b")
        receipt = await turn.cancel()
        assert receipt.outcome == "cancelled"
        with pytest.raises(TurnInterrupted):
            await turn.result()
        await check_usable(session)


async def test_while_the_model_writes() -> None:
    gate = Gate()
    async with talking(say("one two", gate=gate), say("next"), include_partial_messages=True) as (_, session):
        turn = await session.send("count")
        await seen(turn, is_piece)
        receipt = await turn.cancel()
        assert receipt.outcome == "cancelled"
        assert receipt.result is not None
        assert receipt.result.terminal_reason == "aborted_streaming"
        with pytest.raises(TurnInterrupted) as caught:
            await turn.result()
        assert came_to(caught.value).text == "one "
        assert caught.value.session_id == session.id
        result = await turn.result(check=False)
        assert not result.is_success
        assert isinstance(result.error, TurnInterrupted)
        await check_usable(session)


@pytest.mark.smoke
async def test_while_a_tool_runs() -> None:
    async with talking(use_tool("Bash", command=HOLD), say("next")) as (agent, session):
        turn = await session.send("wait")
        await began(agent)
        receipt = await turn.cancel()
        assert receipt.outcome == "cancelled"
        assert receipt.result is not None
        assert receipt.result.terminal_reason == "aborted_tools"
        await check_usable(session)


async def test_when_nothing_runs() -> None:
    async with talking(say("one"), say("next")) as (_, session):
        assert (await session.interrupt()).still_queued == []
        turn = await session.send("a")
        assert (await turn.result()).text == "one"
        receipt = await turn.cancel()
        assert receipt.outcome == "finished_first"
        assert receipt.result is (await turn.result()).message
        assert (await session.interrupt()).still_queued == []
        await check_usable(session)


async def test_by_cancelling_who_asks() -> None:
    gate = Gate()
    async with talking(say("one two", gate=gate), say("next")) as (_, session):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(session.ask, "a")
            await reached(gate)
            tasks.cancel_scope.cancel()
        await check_usable(session)


async def test_an_iterable_of_prompts_is_left_alone_after_it() -> None:
    closed = anyio.Event()

    async def prompts() -> AsyncIterator[str]:
        try:
            yield "a"
            await anyio.sleep_forever()
        finally:
            closed.set()

    with real_agent(hang(), say("next")) as agent:
        async with opened(agent) as session:
            turn = await session.send(prompts())
            await requested(agent, 1)
            assert (await turn.cancel()).outcome == "cancelled"
            await closed.wait()
            await check_usable(session)


async def test_before_the_model_says_anything() -> None:
    async with talking(hang(), say("next"), fail(429, retry_after=60), say("next")) as (agent, session):
        turn = await session.send("hi")
        await requested(agent, 1)
        assert (await turn.cancel()).outcome == "cancelled"
        await check_usable(session)
        # Also while the agent waits to try again.
        turn = await session.send("hi")
        await seen(turn, lambda message: isinstance(message, ApiRetryMessage))
        assert (await turn.cancel()).outcome == "cancelled"
        with pytest.raises(TurnInterrupted):
            await turn.result()
        await check_usable(session)


async def test_of_two_turns_one_alone_can_be_stopped() -> None:
    gates = [Gate(), Gate()]
    script = [
        say("one two", gate=gates[0]),
        say("next"),
        say("one", gate=gates[1]),
        say("waited"),
        say("next"),
    ]
    async with talking(*script) as (agent, session):
        first = await session.send("a")
        await reached(gates[0])
        second = await session.send("b")
        receipt = await second.cancel()
        assert (receipt.outcome, receipt.result, second.delivery) == ("cancelled", None, "withdrawn")
        with pytest.raises(TurnInterrupted, match="taken back"):
            await second.result()
        gates[0].open()
        assert (await first.result()).text == "one two"
        assert len(agent.api.main_requests) == 1
        await check_usable(session)

        first = await session.send("a")
        await reached(gates[1])
        second = await session.send("b")
        assert (await first.cancel()).outcome == "cancelled"
        assert (await second.result()).text == "waited"
        await check_usable(session)


async def test_by_a_request_with_all_that_waits() -> None:
    gate = Gate()
    async with talking(say("one two", gate=gate), say("next")) as (_, session):
        first = await session.send("a")
        await reached(gate)
        second = await session.send("b")
        answer = await session.interrupt(cancel_queued=True)
        assert answer.cancelled == [second.uuid]
        for turn in (first, second):
            with pytest.raises(TurnInterrupted):
                await turn.result()
        await check_usable(session)


@pytest.mark.parametrize("anyio_backend", ["asyncio", "trio"])
async def test_an_agent_that_does_not_react_is_ended() -> None:
    gate = Gate()
    timeouts = {"close": 0.1, "terminate": 0.1}
    async with talking(say("one two", gate=gate), timeouts=timeouts) as (_, session):
        turn = await session.send("count")
        await reached(gate)
        assert session.pid is not None
        os.kill(session.pid, signal.SIGSTOP)
        receipt = await turn.cancel(grace=0.2)
        assert (receipt.outcome, receipt.result) == ("killed", None)
        with pytest.raises(TurnInterrupted, match="did not stop"):
            await turn.result()
        assert session.state is SessionState.CLOSED

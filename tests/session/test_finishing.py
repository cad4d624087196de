"""A session that is left to end by itself, or dropped on purpose; and readers that begin where others are."""

from __future__ import annotations

import gc
from collections.abc import AsyncIterator

import anyio
import pytest

from outrider.errors import ProcessExited, TransportClosed, UsageError
from outrider.options import Timeouts
from outrider.session import Session
from outrider.testing import Simulator, say
from outrider.wire import AssistantMessage, ResultMessage
from tests.session.other_end import OtherEnd, assistant, playing, result
from tests.session.surroundings import Program
from tests.transports.conftest import libraries_are_warm, nothing_is_left

# Autouse, and so in force for this module.
__all__ = ["libraries_are_warm", "nothing_is_left"]

pytestmark = pytest.mark.anyio


async def types_of(session: Session) -> list[type]:
    with anyio.fail_after(20):
        return [type(message) async for message in session]


async def test_an_agent_whose_input_ends_ends_when_it_has_answered(program: Program) -> None:
    session = Session(cli_path=program("answers"))
    await session.connect()
    await session.send("a")
    await session.send("b")
    session.end_input()
    session.end_input()
    with pytest.raises(TransportClosed, match="input was ended"):
        await session.send("c")
    assert (await types_of(session)).count(ResultMessage) == 2
    await session.close()


async def test_prompts_that_come_one_by_one_are_waited_for() -> None:
    let_go = anyio.Event()

    async def prompts() -> AsyncIterator[str]:
        yield "a"
        await let_go.wait()
        yield "b"

    agent = Simulator([say("one"), say("two")])
    async with Session(transport=agent) as session:
        await session.send(prompts(), until="idle")
        session.end_input()
        texts: list[str] = []
        with anyio.fail_after(20):
            async for message in session:
                if isinstance(message, AssistantMessage):
                    texts.append(message.text)
                    let_go.set()
    assert texts == ["one", "two"]


async def test_that_the_agent_calls_its_end_a_failure_is_raised(program: Program) -> None:
    session = Session(cli_path=program("fails_at_the_end"))
    await session.connect()
    await session.send("a")
    session.end_input()
    with pytest.raises(ProcessExited, match="code 3") as caught:
        await types_of(session)
    assert "last words" in caught.value.stderr_tail
    await session.close()


async def test_an_agent_that_goes_on_after_its_input_is_made_to_end(program: Program) -> None:
    session = Session(cli_path=program("stays"), timeouts=Timeouts(close=0.1, terminate=0.1))
    await session.connect()
    await session.send("a")
    session.end_input()
    assert ResultMessage in await types_of(session)
    await session.close()


async def test_input_can_only_end_while_the_session_is_open() -> None:
    session = Session(transport=Simulator())
    with pytest.raises(UsageError, match="not open"):
        session.end_input()
    await session.connect()
    await session.close()
    with pytest.raises(TransportClosed):
        session.end_input()


@pytest.mark.parametrize("is_connected", [True, False])
async def test_a_session_can_be_dropped_without_a_warning(program: Program, is_connected: bool) -> None:
    session = Session(cli_path=program("works_on_and_on"), timeouts=Timeouts(close=0.1, terminate=0.1))
    if is_connected:
        await session.connect()
        await session.send("a")
    session.abandon()
    session.abandon()
    del session
    # A warning would be an error, and a process that is left one as well.
    gc.collect()


async def test_an_agent_that_is_dropped_at_work_is_interrupted(program: Program) -> None:
    # Without that it would work on for so long.
    session = Session(cli_path=program("leaves_when_interrupted"), timeouts=Timeouts(close=50))
    await session.connect()
    await session.send("a")
    with anyio.fail_after(20):
        async for message in session:
            if isinstance(message, AssistantMessage):
                break
        session.abandon()
        await types_of(session)


async def test_what_was_said_before_it_was_dropped_can_be_read(program: Program) -> None:
    session = Session(cli_path=program("answers"))
    await session.connect()
    await session.send("a")
    with anyio.fail_after(20):
        await session.wait_idle()
    session.abandon()
    assert ResultMessage in await types_of(session)


async def test_a_fork_begins_where_its_reader_is() -> None:
    async def play(agent: OtherEnd) -> None:
        uuid = str((await agent.prompt()).uuid)
        await agent.say(assistant("one"), assistant("two"), assistant("three"), result(uuid, "three"))

    async with playing(play) as session:
        await session.send("a")
        with anyio.fail_after(20):
            reader = aiter(session)
            first = await anext(reader)
            fork = reader.fork()
            assert isinstance(first, AssistantMessage)
            rest = [await anext(reader) for _ in range(3)]
            assert [await anext(fork) for _ in range(3)] == rest
            assert [type(message) for message in rest] == [AssistantMessage, AssistantMessage, ResultMessage]

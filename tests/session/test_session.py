"""Sessions and turns, with an agent in memory: what belongs to which turn, and what they come to."""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable
from typing import Any

import anyio
import pytest
from anyio import to_thread
from anyio.lowlevel import checkpoint

from outrider.errors import OptionsError, TransportClosed, UsageError
from outrider.session import Session, SessionState
from outrider.transports import MemoryTransport
from outrider.wire import AssistantMessage, ResultMessage
from tests.cases import every_case
from tests.session.other_end import (
    OtherEnd,
    assistant,
    init,
    lifecycle,
    playing,
    result,
    state,
    stream_event,
    turn,
)

pytestmark = pytest.mark.anyio


def standing(session: Session) -> SessionState:
    """Its state: a function, because a type checker takes a property for unchanging."""
    return session.state


async def reply_twice(agent: OtherEnd) -> None:
    await agent.reply("one")
    await agent.reply("two")


async def test_ask_gives_what_the_turn_came_to() -> None:
    async with playing(reply_twice) as session:
        assert standing(session) is SessionState.IDLE
        first = await session.ask("a")
        second = await session.ask("b")
        assert (str(first), second.text) == ("one", "two")
        assert first.is_success
        assert first.session_id == session.id
        assert [type(message) for message in first.messages][-1] is ResultMessage
    assert standing(session) is SessionState.CLOSED


async def test_a_turn_gives_its_own_messages_up_to_its_result() -> None:
    async with playing(reply_twice) as session:
        one = await session.send("a")
        two = await session.send("b")
        said = [message.text async for message in two if isinstance(message, AssistantMessage)]
        assert said == ["two"]
        assert [message.text async for message in one if isinstance(message, AssistantMessage)] == ["one"]
        assert (await one.result()).text == "one"


async def test_prompts_that_run_as_one_turn_have_one_result() -> None:
    async def play(agent: OtherEnd) -> None:
        uuids = [(await agent.prompt()).uuid or "" for _ in range(3)]
        await agent.say(*turn(uuids[0], "first"))
        await agent.say(*(lifecycle(uuid, "queued") for uuid in uuids[1:]))
        await agent.say(init(*uuids[1:]), assistant("both"), result(*uuids[1:], text="both"))

    async with playing(play) as session:
        turns = [await session.send(text) for text in "abc"]
        results = [await turn.result() for turn in turns]
        assert [result.text for result in results] == ["first", "both", "both"]


async def test_a_result_of_background_work_ends_no_turn() -> None:
    async def play(agent: OtherEnd) -> None:
        uuid = (await agent.prompt()).uuid or ""
        await agent.say(init(), assistant("task"), result(text="task", origin={"kind": "task-notification"}))
        await agent.say(*turn(uuid, "mine"))

    async with playing(play) as session:
        assert (await session.ask("a")).text == "mine"


async def test_two_loops_over_a_turn_see_the_same() -> None:
    seen: list[list[str]] = [[], []]

    async def read(turn: Any, texts: list[str]) -> None:
        texts += [message.text async for message in turn if isinstance(message, AssistantMessage)]

    async with playing(reply_twice) as session:
        one = await session.send("a")
        async with anyio.create_task_group() as tasks:
            for texts in seen:
                tasks.start_soon(read, one, texts)
        assert seen == [["one"], ["one"]]


async def test_a_loop_goes_on_where_the_last_one_stopped() -> None:
    async with playing(reply_twice) as session:
        one = await session.send("a")
        async for message in one:
            if isinstance(message, AssistantMessage):
                break
        assert [type(message) async for message in one] == [ResultMessage]
        assert [message async for message in one] == []
        assert [type(message) for message in one.messages].count(ResultMessage) == 1


async def test_what_comes_while_the_prompt_is_being_written_is_in_its_turn(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    send = MemoryTransport.send

    async def send_and_dawdle(self: MemoryTransport, data: bytes) -> None:
        await send(self, data)
        for _ in range(100):
            await checkpoint()

    async with playing(reply_twice) as session:
        monkeypatch.setattr(MemoryTransport, "send", send_and_dawdle)
        turn = await session.send("a")
        assert turn.is_over
        assert [type(message) async for message in turn][-2:] == [AssistantMessage, ResultMessage]


async def test_the_session_gives_everything_from_the_start() -> None:
    async with playing(reply_twice) as session:
        one = await session.send("a")
        async for message in session:
            if isinstance(message, ResultMessage):
                break
        assert one.is_over
        late = aiter(session)
        await session.ask("b")
        texts = []
        async for message in late:
            if isinstance(message, AssistantMessage):
                texts.append(message.text)
            if isinstance(message, ResultMessage):
                break
        assert texts == ["two"]


async def test_text_gives_pieces_once() -> None:
    async def play(agent: OtherEnd) -> None:
        uuid = (await agent.prompt()).uuid or ""
        await agent.say(init(uuid), stream_event("a"), stream_event("b"), assistant("ab"), assistant("c"))
        await agent.say(assistant("not mine", parent_tool_use_id="toolu_1"), result(uuid))

    async with playing(play) as session:
        one = await session.send("a")
        assert [text async for text in one.text()] == ["a", "b", "c"]


async def test_idle_is_waited_for() -> None:
    is_idle = anyio.Event()

    async def play(agent: OtherEnd) -> None:
        uuid = (await agent.prompt()).uuid or ""
        task = {"type": "system", "subtype": "task_started", "task_id": "a1", "task_type": "local_agent"}
        task |= {"description": "dig", "uuid": "1", "session_id": "2"}
        await agent.say(state("running"), init(uuid), task, assistant("begun"), result(uuid, text="begun"))
        await is_idle.wait()
        done = {"type": "system", "subtype": "task_notification", "task_id": "a1", "status": "completed"}
        await agent.say(done | {"summary": "", "output_file": "", "uuid": "3", "session_id": "2"})
        origin = {"kind": "task-notification"}
        await agent.say(init(), assistant("found"), result(text="found", origin=origin), state("idle"))

    async with playing(play) as session:
        one = await session.send("a")
        first = await one.result()
        assert first.text == "begun"
        assert [task.id for task in first.unfinished_tasks] == ["a1"]
        assert standing(session) is SessionState.BUSY
        is_idle.set()
        last = await one.result(until="idle")
        assert last.text == "found"
        assert last.unfinished_tasks == ()
        assert standing(session) is SessionState.IDLE


async def test_a_turn_ends_with_its_result_however_late_it_is_read() -> None:
    async def play(agent: OtherEnd) -> None:
        await agent.reply("one")
        await agent.say(state("idle"), assistant("something else"))
        await agent.reply("two")

    async with playing(play) as session:
        first = await session.send("a")
        await session.ask("b")
        assert isinstance([message async for message in first][-1], ResultMessage)
        assert [message async for message in first] == []


@every_case("until", ["end", "", None, 5])
async def test_an_end_that_there_is_not_is_refused(until: Any) -> None:
    wrong: Any = until or "end"
    async with playing(reply_twice) as session:
        with pytest.raises(OptionsError, match="`until` must be one of 'result', 'idle'"):
            await session.send("a", until=until)
        turn = await session.send("b")
        with pytest.raises(OptionsError, match="`until` must be one of"):
            await turn.result(until=wrong)
        assert (await turn.result()).text == "one"


@pytest.mark.parametrize("options", [5, "model", {"model": "opus"}], ids=str)
def test_options_that_are_none_are_refused(options: Any) -> None:
    with pytest.raises(OptionsError, match=r"`options` must be an `Options`, not .*keywords"):
        Session(options)


@every_case(
    "request_, timeout, words",
    [
        ("", 1, "`request` must be a text that is not empty"),
        (5, 1, "`request` must be the name of a request"),
        ("status", -1, "`timeout` must be a finite number of seconds, 0 or more, not -1"),
        ("status", math.nan, "`timeout` must be"),
        ("status", "1", "`timeout` must be"),
    ],
)
async def test_a_request_that_is_none_is_refused(request_: Any, timeout: Any, words: str) -> None:
    async with playing(reply_twice) as session:
        with pytest.raises(OptionsError, match=words):
            await session.request(request_, timeout=timeout)
        assert (await session.ask("a")).text == "one"


def run_elsewhere(call: Callable[[], Awaitable[object]]) -> object:
    """Make a call in an event loop of its own."""

    async def main() -> object:
        return await call()

    return anyio.run(main)


async def test_another_event_loop_is_refused_and_changes_nothing() -> None:
    async def play(agent: OtherEnd) -> None:
        prompt = await agent.prompt()
        await inside.wait()
        await agent.say(*turn(str(prompt.uuid), "one"))
        await agent.reply("two")

    inside = anyio.Event()
    async with playing(play) as session:
        waiting = await session.send("a")
        calls: list[Callable[[], Awaitable[object]]] = [
            lambda: session.send("b"),
            session.interrupt,
            session.wait_idle,
            waiting.result,
            waiting.cancel,
            lambda: anext(aiter(waiting)),
            lambda: anext(aiter(session)),
        ]
        for call in calls:
            with pytest.raises(UsageError, match=r"another event loop.*`outrider\.sync`"):
                await to_thread.run_sync(run_elsewhere, call)
        inside.set()
        assert (await waiting.result()).text == "one"
        assert (await session.ask("c")).text == "two"


async def test_use_before_and_after() -> None:
    session = Session(cli_path="/nowhere")
    assert standing(session) is SessionState.STARTING
    with pytest.raises(UsageError, match="async with"):
        await session.send("a")
    async with playing(reply_twice) as session:
        waiting = await session.send("a")
        waiting = await session.send("b")
        waiting = await session.send("c")
    with pytest.raises(TransportClosed):
        await session.send("d")
    with pytest.raises(TransportClosed, match="closed"):
        await waiting.result()


async def test_an_agent_that_names_no_prompts_takes_them_in_their_order() -> None:
    async def play(agent: OtherEnd) -> None:
        for text in ("one", "two"):
            await agent.prompt()
            await agent.say(init(), assistant(text), result(text=text))

    async with playing(play) as session:
        turns = [await session.send("a"), await session.send("b")]
        assert [[text async for text in turn.text()] for turn in turns] == [["one"], ["two"]]
        assert [(await turn.result()).text for turn in turns] == ["one", "two"]

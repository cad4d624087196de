"""Nothing is lost, whoever reads or does not, and control never waits behind data."""

from __future__ import annotations

import gc
import logging
import sys
import tracemalloc
from collections.abc import Awaitable, Callable
from contextvars import ContextVar
from pathlib import Path
from typing import Any, cast

import anyio
import pytest
from anyio.lowlevel import checkpoint

from outrider.command import Command
from outrider.errors import ConnectionLost, FrameTooLarge, ProcessExited, RequestTimedOut, TransportClosed
from outrider.options import Timeouts
from outrider.protocol import RequestAnswered, RequestRefused
from outrider.session import Session, Turn
from outrider.session._streams.stream import Flow, Stream
from outrider.transports import ProcessTransport, Transport, memory_pair
from outrider.wire import AssistantMessage, MalformedLine, ResultMessage, StreamEvent, encode
from tests.cases import every_case
from tests.session import stubborn
from tests.session.acting import Actor, acting, check_usable
from tests.session.other_end import (
    OtherEnd,
    answering,
    assistant,
    init,
    lifecycle,
    playing,
    result,
    stream_event,
    turn,
)

pytestmark = pytest.mark.anyio

MANY = 100_000
BUDGET = 100_000
PIECE = 100

_LINE = encode(stream_event("<>")) + b"\n"


def lines(start: int, stop: int) -> bytes:
    """Stream events, numbered."""
    before, after = _LINE.split(b"<>")
    return b"".join(before + b"%d" % number + after for number in range(start, stop))


def number_of(message: object) -> int:
    assert isinstance(message, StreamEvent)
    return int(message.text)


async def flood(end: OtherEnd, count: int) -> None:
    """Write so many numbered messages, a hundred at a time."""
    for start in range(0, count, PIECE):
        await end.write(lines(start, min(start + PIECE, count)))


def with_budget(budget: int = BUDGET, ceiling: int | None = None) -> Callable[[Session], None]:
    """Have a session keep little."""

    def prepare(session: Session) -> None:
        session._conversation.budget = budget
        if ceiling is not None:
            session._conversation.ceiling = ceiling

    return prepare


class Counting(Transport):
    """Counts what is taken from another transport."""

    def __init__(self, way: Transport) -> None:
        self.way = way
        self.taken = 0

    async def connect(self) -> None:
        await self.way.connect()

    async def receive(self) -> bytes:
        data = await self.way.receive()
        self.taken += len(data)
        return data

    async def send(self, data: bytes) -> None:
        await self.way.send(data)

    async def end_input(self) -> None:
        await self.way.end_input()

    async def close(self) -> None:
        await self.way.close()

    @property
    def is_ready(self) -> bool:
        return self.way.is_ready


async def reply_to(agent: OtherEnd, *names: str, **fields: Any) -> object:
    """Ask the host, if a name is given, and wait for the next reply; prompts that come before it are kept."""
    for name in names:
        await agent.ask(name, **fields)
    kept: list[Any] = []
    while not isinstance(event := await agent.next(), RequestAnswered | RequestRefused | None):
        kept.append(event)
    agent._events.extendleft(reversed(kept))
    return event


def is_paused(session: Session) -> bool:
    return session._conversation.opened().reading.is_paused


async def paused(session: Session) -> None:
    """Wait until the session reads no more."""
    while not is_paused(session):
        await checkpoint()


# Many messages that nobody reads.


async def test_the_agent_is_answered_behind_any_number_of_messages() -> None:
    async def hook(_: object) -> dict[str, Any]:
        return {"continue": True}

    replies: list[object] = []

    async def play(agent: OtherEnd) -> None:
        uuid = (await agent.prompt()).uuid or ""
        await agent.say(init(uuid))
        await flood(agent, MANY)
        replies.append(await reply_to(agent, "hook_callback", callback_id="h", input={}))
        await agent.answer(await agent.asked("interrupt"), still_queued=[])
        await agent.say(result(uuid))

    async with playing(play, 50.0, prepare=answering(hook_callback=hook)) as session:
        one = await session.send("a")
        while not replies:
            await checkpoint()
        assert isinstance(replies[0], RequestAnswered)
        assert replies[0].payload == {"continue": True}
        await session.interrupt()
        numbers = [number_of(message) async for message in one if isinstance(message, StreamEvent)]
        assert numbers == list(range(MANY))


@pytest.mark.requirement("D8")
async def test_a_session_that_nobody_reads_takes_no_more_than_its_budget() -> None:
    ways: list[Counting] = []
    prepare = with_budget()

    def wrap(session: Session) -> None:
        prepare(session)
        ways.append(Counting(cast("Transport", session.options.transport)))
        session._conversation.options = session.options.replace(transport=ways[0])

    async def play(agent: OtherEnd) -> None:
        uuid = (await agent.prompt()).uuid or ""
        await agent.say(init(uuid))
        await flood(agent, MANY)
        await agent.say(result(uuid))

    piece = len(lines(0, PIECE))
    async with playing(play, 50.0, prepare=wrap) as session:
        one = await session.send("a")
        await paused(session)
        # It looks after each eighth, and after each piece.
        assert BUDGET <= ways[0].taken <= BUDGET * 1.25 + piece
        seen = await read(one, 10, 1000, 5000)
        assert is_paused(session) or ways[0].taken < MANY * len(_LINE)
        # Reading goes on with whoever reads, and not further.
        assert ways[0].taken <= BUDGET * 1.25 + len(lines(0, 6010 + PIECE)) + piece
        seen += [number_of(message) async for message in one if isinstance(message, StreamEvent)]
        assert seen == list(range(MANY))
        assert (await one.result()).text == "done"


async def read(turn: Turn, *counts: int) -> list[int]:
    """Read some messages, then wait for the session to fill up again."""
    numbers: list[int] = []
    for count in counts:
        more: list[int] = []
        async for message in turn:
            if isinstance(message, StreamEvent):
                more.append(number_of(message))
                if len(more) == count:
                    break
        numbers += more
        for _ in range(20):
            await checkpoint()
    return numbers


def talkative_agent() -> ProcessTransport:
    command = Command((sys.executable, "-I", "-S", str(Path(stubborn.__file__)), "interrupt", "talks"))
    return ProcessTransport(command, grace=2.0, terminate=2.0)


def numbers_of(messages: list[Any]) -> list[int]:
    events: list[Any] = [message.event for message in messages if isinstance(message, StreamEvent)]
    return [event["number"] for event in events if "number" in event]


async def test_a_program_that_nobody_reads_waits_and_loses_nothing() -> None:
    way = Counting(talkative_agent())
    session = Session(transport=way, timeouts=Timeouts(silence=None))
    with_budget()(session)
    with anyio.fail_after(50):
        async with session:
            one = await session.send("a")
            await paused(session)
            assert BUDGET <= way.taken <= BUDGET * 1.25 + 65536
            messages = [message async for message in one]
            assert numbers_of(messages) == list(range(MANY))
            assert isinstance(messages[-1], ResultMessage)


async def test_a_program_is_answered_behind_what_nobody_reads() -> None:
    is_asked = anyio.Event()

    async def hook(_: object) -> None:
        is_asked.set()

    session = Session(transport=talkative_agent())
    answering(hook_callback=hook)(session)
    with anyio.fail_after(50):
        async with session:
            one = await session.send("a")
            await is_asked.wait()
            assert numbers_of([message async for message in one]) == list(range(MANY))


async def test_a_program_that_does_not_read_while_it_writes_gets_its_prompt() -> None:
    """More than a pipe holds, in both directions."""
    session = Session(transport=talkative_agent())
    with_budget()(session)
    with anyio.fail_after(50):
        async with session:
            one = await session.send("a")
            await paused(session)
            await session.send("x" * 1_000_000)
            assert numbers_of([message async for message in one]) == list(range(MANY))


# Whoever waits is served.


async def wait_for_result(session: Session, one: Turn, _: Actor) -> None:
    assert (await one.result()).text == "done"


async def wait_for_idle(session: Session, _: Turn, __: Actor) -> None:
    await session.wait_idle()


async def wait_for_another(session: Session, _: Turn, actor: Actor) -> None:
    await check_usable(session, actor)


async def wait_as_a_second_reader(session: Session, one: Turn, _: Actor) -> None:
    late = aiter(session)
    aiter(session)
    async for message in late:
        if isinstance(message, ResultMessage):
            break


async def wait_for_a_request(session: Session, _: Turn, __: Actor) -> None:
    await session.request("get_status")


async def wait_for_an_interrupt(session: Session, one: Turn, _: Actor) -> None:
    await session.interrupt()
    await one.result()


async def wait_for_cancel(_: Session, one: Turn, __: Actor) -> None:
    assert (await one.cancel()).outcome == "finished_first"


async def wait_for_close(session: Session, one: Turn, _: Actor) -> None:
    await session.close()
    with pytest.raises(TransportClosed):
        await session.send("b")


WAITS: list[Callable[[Session, Turn, Actor], Awaitable[None]]] = [
    wait_for_result,
    wait_for_idle,
    wait_for_another,
    wait_as_a_second_reader,
    wait_for_a_request,
    wait_for_an_interrupt,
    wait_for_cancel,
    wait_for_close,
]


@every_case("wait", WAITS, ids=lambda wait: wait.__name__)
async def test_a_session_that_is_full_reads_on_for_whoever_waits(wait: Any) -> None:
    actor = Actor()

    async def status(asked: Any) -> None:
        await actor.end.answer(asked)

    actor.on["get_status"] = status
    async with acting(actor, prepare=with_budget()) as session:
        one = await session.send("a")
        await actor.begun()
        unread = aiter(one)
        await flood(actor.end, 2000)
        await paused(session)
        # Behind all that nobody has read.
        await actor.finish()
        assert not one.is_over
        await wait(session, one, actor)
        numbers = [number_of(message) async for message in unread if isinstance(message, StreamEvent)]
        assert numbers == list(range(2000))


async def test_a_message_that_waits_is_followed_in_a_session_that_is_full() -> None:
    actor = Actor()
    async with acting(actor, prepare=with_budget()) as session:
        await (await session.send("a")).cancel()
        one = await session.send("a")
        queued = await session.enqueue("b")
        await actor.begun(3)
        await flood(actor.end, 2000)
        await paused(session)
        await actor.finish()
        await actor.finish()
        assert not one.is_over
        assert await queued.wait() == "consumed"


async def test_a_session_pauses_again_when_nobody_waits_any_more() -> None:
    actor = Actor()
    async with acting(actor, prepare=with_budget()) as session:
        one = await session.send("a")
        await actor.begun()
        await flood(actor.end, 1000)
        await paused(session)
        with anyio.move_on_after(0.05):
            await one.result()
        await flood(actor.end, 1000)
        await paused(session)
        assert not one.is_over


async def test_whoever_waits_is_noticed_at_once() -> None:
    """Not at the next look: all of them together would take too long."""
    actor = Actor()
    async with acting(actor, prepare=with_budget(), deadline=10.0) as session:
        for count in range(1, 21):
            one = await session.send("a")
            await actor.taken_up(count)
            await flood(actor.end, 1000)
            await paused(session)
            await actor.finish()
            await one.result()


async def test_who_waits_for_the_end_is_not_woken_by_messages() -> None:
    stream = Stream(Flow())
    ended: list[bool] = []

    async def wait() -> None:
        await stream.wait_changed()
        ended.append(stream.is_ended)

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(wait)
        await anyio.wait_all_tasks_blocked()
        stream.append([MalformedLine(b"text", "no JSON")], {MalformedLine}, 1)
        await anyio.wait_all_tasks_blocked()
        assert ended == []
        stream.end()
    assert ended == [True]


async def test_a_session_reads_on_when_what_nobody_read_is_dropped() -> None:
    actor = Actor()
    async with acting(actor, prepare=with_budget()) as session:
        reader = aiter(session)
        one = await session.send("a")
        two = await session.send("b")
        await actor.begun(2)
        await flood(actor.end, 1000)
        await paused(session)
        await actor.finish()
        del one, reader
        gc.collect()
        while is_paused(session):
            await checkpoint()
        await actor.finish("b")
        assert (await two.result()).text == "b"


async def test_what_several_turns_leave_unread_adds_up() -> None:
    actor = Actor()
    turns: list[Turn] = []
    async with acting(actor, prepare=with_budget()) as session:
        for count in range(1, 10):
            turns.append(await session.send("a"))
            await actor.taken_up(count)
            await flood(actor.end, 100)
            await actor.finish()
            if count < 3:
                await turns[-1].result()
        await paused(session)
        unread = sum(state._state.stream.unread for state in turns)
        assert BUDGET <= unread < 2 * BUDGET
        for each in turns:
            numbers = [number_of(message) async for message in each if isinstance(message, StreamEvent)]
            assert numbers == list(range(100))


# The ceiling.


async def test_a_session_that_must_read_on_fails_at_its_ceiling() -> None:
    async def hook(_: object) -> None: ...

    def prepare(session: Session) -> None:
        with_budget(BUDGET, ceiling=3 * BUDGET)(session)
        answering(hook_callback=hook)(session)

    async def play(agent: OtherEnd) -> None:
        uuid = (await agent.prompt()).uuid or ""
        await agent.say(init(uuid))
        await flood(agent, 10_000)

    async with playing(play, prepare=prepare) as session:
        one = await session.send("a")
        numbers: list[int] = []
        while not one.is_over:
            await checkpoint()
        with pytest.raises(TransportClosed, match=f"unread, and at most {3 * BUDGET} are kept") as caught:
            await read_numbers(one, numbers)
        assert "Read the messages as they come" in str(caught.value)
        assert numbers == list(range(len(numbers)))
        assert len(lines(0, len(numbers))) >= 3 * BUDGET
        with pytest.raises(TransportClosed, match="unread"):
            await session.send("b")


async def read_numbers(turn: Any, numbers: list[int]) -> None:
    async for message in turn:
        if isinstance(message, StreamEvent):
            numbers.append(number_of(message))  # noqa: PERF401 - what came before an error counts


async def test_a_session_that_can_be_asked_never_pauses() -> None:
    async def hook(_: object) -> None: ...

    def prepare(session: Session) -> None:
        with_budget()(session)
        answering(hook_callback=hook)(session)

    actor = Actor()
    async with acting(actor, prepare=prepare) as session:
        one = await session.send("a")
        await actor.begun()
        await flood(actor.end, 5000)
        await actor.finish()
        while not one.is_over:
            await checkpoint()
        numbers: list[int] = []
        await read_numbers(one, numbers)
        assert numbers == list(range(5000))


# Readers.


async def test_readers_of_any_speed_see_the_same_in_the_same_order() -> None:
    actor = Actor()
    seen: dict[str, list[int]] = {"fast": [], "get_status": [], "batches": []}

    async def read_slowly(reader: Any) -> None:
        async for message in reader:
            if isinstance(message, StreamEvent):
                seen["get_status"].append(number_of(message))
                if len(seen["get_status"]) % 10 == 0:
                    await checkpoint()

    async def read_batches(reader: Any) -> None:
        while True:
            try:
                batch = await reader.batch()
            except StopAsyncIteration:
                return
            seen["batches"] += [number_of(message) for message in batch if isinstance(message, StreamEvent)]

    async with acting(actor, prepare=with_budget(20_000)) as session:
        one = await session.send("a")
        await actor.begun()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(read_numbers, aiter(one), seen["fast"])
            tasks.start_soon(read_slowly, aiter(one))
            tasks.start_soon(read_batches, aiter(one))
            await flood(actor.end, 3000)
            await actor.finish()
        assert all(numbers == list(range(3000)) for numbers in seen.values())


async def test_tasks_that_share_a_reader_share_the_messages() -> None:
    actor = Actor()
    seen: list[int] = []

    async def work(reader: Any) -> None:
        async for message in reader:
            if isinstance(message, StreamEvent):
                seen.append(number_of(message))
                await checkpoint()

    async with acting(actor) as session:
        one = await session.send("a")
        await actor.begun()
        shared = aiter(one)
        async with anyio.create_task_group() as tasks:
            for _ in range(5):
                tasks.start_soon(work, shared)
            await flood(actor.end, 2000)
            await actor.finish()
        assert sorted(seen) == list(range(2000))


async def test_what_was_read_is_freed() -> None:
    actor = Actor()
    size = len(lines(0, 20_000))
    async with acting(actor, deadline=50.0) as session:
        one = await session.send("a")
        await actor.begun()
        tracemalloc.start()
        try:
            before = tracemalloc.get_traced_memory()[0]
            count = 0
            for _ in range(20):
                await flood(actor.end, 1000)
                count += len(await read(one, 1000))
            assert count == 20_000
            await actor.end.say(assistant())
            await anext(aiter(one))
            kept = tracemalloc.get_traced_memory()[0] - before
            peak = tracemalloc.get_traced_memory()[1] - before
        finally:
            tracemalloc.stop()
        # While a message is being written its last pieces are kept; then nothing.
        assert kept < size / 20
        assert peak < size


@pytest.mark.requirement("D2")
async def test_a_message_over_the_limit_is_an_error_for_each_reader_once() -> None:
    actor = Actor()
    async with acting(actor, max_buffer_size=5000) as session:
        everything = aiter(session)
        one = await session.send("a")
        await actor.begun()
        await actor.end.say(assistant("before"), assistant("x" * 10_000), assistant("after"))
        await actor.finish()
        errors: list[FrameTooLarge] = []
        for reader in (aiter(one), aiter(one), everything):
            texts: list[str] = []
            with pytest.raises(FrameTooLarge) as caught:
                await read_texts(reader, texts)
            errors.append(caught.value)
            assert texts == ["working", "before"]
            await read_texts(reader, texts)
            assert texts == ["working", "before", "after"]
        assert len({id(error) for error in errors}) == 3
        assert (await one.result()).text == "done"
        await check_usable(session, actor)


async def read_texts(reader: Any, texts: list[str]) -> None:
    async for message in reader:
        if isinstance(message, AssistantMessage):
            texts.append(message.text)
        if isinstance(message, ResultMessage):
            break


# The end.


async def test_a_last_line_without_an_end_counts() -> None:
    async def play(agent: OtherEnd) -> None:
        uuid = (await agent.prompt()).uuid or ""
        frames = turn(uuid)[:-1]
        await agent.say(*frames[:-1])
        await agent.write(encode(frames[-1]))
        await agent.leave()

    async with playing(play) as session:
        one = await session.send("a")
        assert (await one.result()).text == "done"
        assert isinstance([message async for message in one][-1], ResultMessage)


async def test_half_a_line_is_not_lost_either() -> None:
    async def play(agent: OtherEnd) -> None:
        uuid = (await agent.prompt()).uuid or ""
        await agent.say(init(uuid))
        await agent.write(b'{"type":"assistant","mess')
        await agent.leave()

    async with playing(play) as session:
        everything = aiter(session)
        one = await session.send("a")
        for reader in (aiter(one), everything):
            seen: list[object] = []
            with pytest.raises(ConnectionLost, match="ended its output"):
                await collect(reader, seen)
            assert isinstance(seen[-1], MalformedLine)
            assert seen[-1].line == b'{"type":"assistant","mess'


async def collect(reader: Any, seen: list[object]) -> None:
    async for message in reader:
        seen.append(message)  # noqa: PERF401 - what came before an error counts


async def test_requests_fail_with_what_the_program_said_last() -> None:
    command = Command((sys.executable, "-I", "-S", str(Path(stubborn.__file__)), "interrupt", "dies"))
    errors: list[ProcessExited] = []

    async def ask(call: Callable[[], Awaitable[object]]) -> None:
        with pytest.raises(ProcessExited) as caught:
            await call()
        errors.append(caught.value)

    with anyio.fail_after(30):
        async with Session(transport=ProcessTransport(command)) as session:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(ask, lambda: session.request("get_status"))
                tasks.start_soon(ask, lambda: session.request("get_usage", timeout=None))
                await anyio.wait_all_tasks_blocked()
                tasks.start_soon(ask, lambda: session.ask("a"))
            await ask(lambda: session.request("get_status"))
            await ask(lambda: session.send("b"))
    assert len(errors) == 5
    for error in errors:
        assert error.returncode == 3
        assert "out of cheese" in error.stderr_tail
    assert len({id(error) for error in errors}) == 5


# Requests of ours.


@pytest.mark.requirement("D5")
async def test_answers_may_come_in_any_order() -> None:
    async def play(agent: OtherEnd) -> None:
        asked = [await agent.asked(name) for name in ("get_status", "get_usage", "get_plan")]
        for each in reversed(asked):
            await agent.answer(each, name=each.request.subtype)

    answers: dict[str, object] = {}

    async def ask(session: Session, name: str) -> None:
        answers[name] = await session.request(name)

    async with playing(play) as session:
        async with anyio.create_task_group() as tasks:
            for name in ("get_status", "get_usage", "get_plan"):
                tasks.start_soon(ask, session, name)
                await anyio.wait_all_tasks_blocked()
        assert answers == {name: {"name": name} for name in ("get_plan", "get_usage", "get_status")}
        assert list(answers) == ["get_plan", "get_usage", "get_status"]


@pytest.mark.requirement("D5")
async def test_an_answer_that_comes_too_late_is_dropped() -> None:
    is_late = anyio.Event()

    async def play(agent: OtherEnd) -> None:
        late = await agent.asked("get_status")
        assert (await agent.taken_back()).id == late.id
        is_late.set()
        outcome = {"subtype": "success", "request_id": late.id, "response": {"late": True}}
        await agent.say({"type": "control_response", "response": outcome})
        await agent.answer(await agent.asked("get_usage"), late=False)

    async with playing(play) as session:
        with pytest.raises(RequestTimedOut):
            await session.request("get_status", timeout=0.05)
        await is_late.wait()
        assert await session.request("get_usage") == {"late": False}


async def test_cancelling_a_request_takes_it_back() -> None:
    is_taken_back = anyio.Event()

    async def play(agent: OtherEnd) -> None:
        asked = await agent.asked("get_status")
        scope.cancel()
        assert (await agent.taken_back()).id == asked.id
        is_taken_back.set()
        await agent.answer(await agent.asked("get_usage"))

    async with playing(play) as session:
        with anyio.CancelScope() as scope:
            await session.request("get_status")
        assert scope.cancelled_caught
        await is_taken_back.wait()
        await session.request("get_usage")


class Instant(Counting):
    """What is sent is answered before the call that sends it returns."""

    async def send(self, data: bytes) -> None:
        await self.way.send(data)
        for _ in range(20):
            await checkpoint()


async def test_an_answer_may_come_before_the_request_is_known_to_be_sent() -> None:
    async def play(agent: OtherEnd) -> None:
        await agent.answer(await agent.asked("get_status"), quick=True)
        await agent.reply("quick")

    def wrap(session: Session) -> None:
        transport = Instant(cast("Transport", session.options.transport))
        session._conversation.options = session.options.replace(transport=transport)

    async with playing(play, prepare=wrap) as session:
        assert await session.request("get_status", timeout=None) == {"quick": True}
        assert (await session.ask("a")).text == "quick"


# Requests of the agent's.


async def test_what_nobody_answers_is_refused_at_once() -> None:
    replies: list[object] = []

    async def play(agent: OtherEnd) -> None:
        replies.append(await reply_to(agent, "request_user_dialog"))
        replies.append(await reply_to(agent, "brand_new"))
        await agent.reply("done")

    async with playing(play) as session:
        assert (await session.ask("a")).text == "done"
    for reply in replies:
        assert isinstance(reply, RequestRefused)
        assert reply.code == "unsupported_request"


@pytest.mark.parametrize(
    "error", [LookupError("no such thing"), LookupError(), ExceptionGroup("two", [OSError()])]
)
async def test_a_handler_that_fails_is_an_answer_and_a_log_line(
    error: Exception, caplog: pytest.LogCaptureFixture
) -> None:
    async def hook(_: object) -> None:
        raise error

    replies: list[object] = []

    async def play(agent: OtherEnd) -> None:
        replies.append(await reply_to(agent, "hook_callback", callback_id="h", input={}))
        await agent.reply("done")

    with caplog.at_level(logging.ERROR, "outrider.session"):
        async with playing(play, prepare=answering(hook_callback=hook)) as session:
            assert (await session.ask("a")).text == "done"
    (reply,) = replies
    assert isinstance(reply, RequestRefused)
    assert reply.error == (str(error) or "LookupError")
    assert "a handler failed: hook_callback" in caplog.text
    assert type(error).__name__ in caplog.text


async def test_an_answer_that_cannot_be_sent_is_a_failure() -> None:
    async def hook(_: object) -> Any:
        return {"what": object()}

    replies: list[object] = []

    async def play(agent: OtherEnd) -> None:
        replies.append(await reply_to(agent, "hook_callback", callback_id="h", input={}))
        await agent.reply("done")

    async with playing(play, prepare=answering(hook_callback=hook)) as session:
        assert (await session.ask("a")).text == "done"
    assert isinstance(replies[0], RequestRefused)


async def test_a_request_that_is_taken_back_cancels_its_handler() -> None:
    began, ended = anyio.Event(), anyio.Event()
    heard: list[object] = []

    async def hook(_: object) -> None:
        began.set()
        try:
            await anyio.sleep_forever()
        finally:
            ended.set()

    async def play(agent: OtherEnd) -> None:
        id = await agent.ask("hook_callback", callback_id="h", input={})
        await began.wait()
        agent.peer.cancel(id)
        await agent.flush()
        await ended.wait()
        heard.append(await agent.reply("done"))

    async with playing(play, prepare=answering(hook_callback=hook)) as session:
        assert (await session.ask("a")).text == "done"
    # Nothing was answered to what is not asked any more.
    assert len(heard) == 1


async def test_a_request_that_is_taken_back_at_once_runs_no_handler() -> None:
    async def hook(_: object) -> None:
        calls.append("hook")

    calls: list[str] = []

    async def play(agent: OtherEnd) -> None:
        agent.peer.cancel(agent.peer.request("hook_callback", callback_id="h", input={}))
        await agent.flush()
        await agent.reply("done")

    async with playing(play, prepare=answering(hook_callback=hook)) as session:
        assert (await session.ask("a")).text == "done"
        await anyio.wait_all_tasks_blocked()
    assert calls == []


async def test_handlers_run_at_the_same_time() -> None:
    meeting = anyio.Event()
    present: list[str] = []

    async def hook(request: Any) -> None:
        present.append(request.callback_id)
        if len(present) == 3:
            meeting.set()
        await meeting.wait()

    async def play(agent: OtherEnd) -> None:
        for id in "abc":
            await agent.ask("hook_callback", callback_id=id, input={})
        for _ in "abc":
            assert isinstance(await reply_to(agent), RequestAnswered)
        await agent.reply("done")

    async with playing(play, prepare=answering(hook_callback=hook)) as session:
        assert (await session.ask("a")).text == "done"
    assert sorted(present) == ["a", "b", "c"]


# Contexts.

variable: ContextVar[str] = ContextVar("variable", default="unset")


async def test_a_handler_runs_in_the_context_of_the_turn_that_caused_it() -> None:
    seen: list[str] = []
    is_done = anyio.Event()

    async def hook(_: object) -> None:
        seen.append(variable.get())
        variable.set("the handler's")

    async def ask(agent: OtherEnd) -> None:
        assert isinstance(await reply_to(agent, "hook_callback", callback_id="h", input={}), RequestAnswered)

    async def play(agent: OtherEnd) -> None:
        await ask(agent)
        uuids = [(await agent.prompt()).uuid or "" for _ in range(2)]
        await agent.say(init(uuids[0]))
        await ask(agent)
        await ask(agent)
        # All that ends the one and begins the other comes with the request, in one piece.
        for frame in (assistant(), result(uuids[0]), init(uuids[1]), lifecycle(uuids[1], "started")):
            agent.peer.send(frame)
        await ask(agent)
        await agent.say(result(uuids[1]))
        await ask(agent)
        is_done.set()

    variable.set("connect")
    async with playing(play, prepare=answering(hook_callback=hook)) as session:
        await anyio.wait_all_tasks_blocked()
        variable.set("one")
        await session.send("a")
        variable.set("two")
        two = await session.send("b")
        variable.set("later")
        await two.result()
        await is_done.wait()
    assert seen == ["connect", "one", "one", "two", "connect"]
    assert variable.get() == "later"


# Idleness.


async def test_waiting_for_idleness_ends_when_the_last_prompt_is_taken_back() -> None:
    actor = Actor(is_eager=False)
    async with acting(actor) as session:
        one = await session.send("a")
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(session.wait_idle)
            await anyio.wait_all_tasks_blocked()
            assert (await one.cancel()).outcome == "cancelled"


async def test_idleness_is_not_there_while_a_task_goes_on() -> None:
    task = {"type": "system", "subtype": "task_started", "task_id": "t1", "task_type": "local_agent"}
    task |= {"description": "dig", "uuid": "1", "session_id": "2"}
    done = {"type": "system", "subtype": "task_notification", "task_id": "t1", "status": "stopped"}
    done |= {"summary": "", "output_file": "", "uuid": "3", "session_id": "2"}
    actor = Actor()
    actor.opening = [task]
    is_idle = anyio.Event()

    async def wait_idle(session: Session) -> None:
        await session.wait_idle()
        is_idle.set()

    async with acting(actor) as session:
        one = await session.send("a")
        await actor.begun()
        await actor.finish()
        await one.result()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(wait_idle, session)
            await anyio.wait_all_tasks_blocked()
            assert not is_idle.is_set()
            await actor.end.say(done)
        assert is_idle.is_set()


async def test_a_transport_in_memory_ends_for_both() -> None:
    """What the tests here rest on: nothing that was written is lost when a side leaves."""
    one, two = memory_pair()
    await one.connect()
    await two.connect()
    await one.send(b"a")
    await one.close()
    assert await two.receive() == b"a"
    assert await two.receive() == b""
    with pytest.raises(TransportClosed):
        await two.send(b"b")

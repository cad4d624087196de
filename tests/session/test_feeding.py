"""Prompts from an iterable of the user's: what comes of it, however the iterable behaves."""

from __future__ import annotations

import asyncio
import contextvars
import queue
import subprocess
import sys
import textwrap
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from typing import Any

import anyio
import pytest

from outrider.errors import MessageInvalid, TransportClosed, TurnFailed, TurnInterrupted, UsageError
from outrider.options import Timeouts
from outrider.protocol import RequestReceived
from outrider.session import Result, Session, SessionState
from outrider.wire import AssistantMessage, ResultMessage, UserMessage
from tests.cases import every_case
from tests.session.other_end import (
    OtherEnd,
    assistant,
    init,
    interrupted,
    lifecycle,
    playing,
    turn,
)
from tests.session.surroundings import ASYNCIO, Recording
from tests.transports.conftest import libraries_are_warm, nothing_is_left

pytestmark = pytest.mark.anyio

# Autouse, and so in force for this module.
__all__ = ["libraries_are_warm", "nothing_is_left"]


async def answer_each(agent: OtherEnd) -> None:
    """A turn for each prompt, which says the prompt again."""
    while (event := await agent.next()) is not None:
        if isinstance(event, UserMessage):
            await agent.say(*turn(event.uuid or "", str(event.content)))
        elif isinstance(event, RequestReceived):
            await agent.answer(event)


async def begin_each(agent: OtherEnd) -> None:
    """Begins turns, and ends them only if it is told to."""
    begun: list[str] = []
    while (event := await agent.next()) is not None:
        if isinstance(event, UserMessage):
            begun.append(event.uuid or "")
            await agent.say(lifecycle(begun[-1], "started"), init(*begun), assistant("begun"))
        elif isinstance(event, RequestReceived):
            await agent.answer(event)
            if begun:
                await agent.say(interrupted(*begun))
                begun.clear()


async def asynchronous(*prompts: object) -> AsyncIterator[object]:
    for prompt in prompts:
        await anyio.lowlevel.checkpoint()
        yield prompt


def plain(*prompts: object) -> Iterator[object]:
    yield from prompts


class Iterating:
    """An async iterable that is no generator."""

    def __init__(self, *prompts: object) -> None:
        self._rest = iter(prompts)
        self.is_closed = False

    def __aiter__(self) -> Iterating:
        return self

    async def __anext__(self) -> object:
        for prompt in self._rest:
            return prompt
        raise StopAsyncIteration

    async def aclose(self) -> None:
        self.is_closed = True


KINDS: list[Callable[..., Any]] = [asynchronous, plain, Iterating]


@pytest.mark.parametrize("kind", KINDS)
async def test_the_prompts_of_an_iterable_are_one_turn(kind: Callable[..., Any]) -> None:
    async with playing(answer_each) as session:
        one = await session.send(kind("a", ["b"], {"role": "user", "content": "c"}))
        outcome = await one.result()
        texts = [message.text for message in outcome.messages if isinstance(message, AssistantMessage)]
        assert len(texts) == 3
        assert (texts[0], texts[2]) == ("a", "c")
        assert sum(isinstance(message, ResultMessage) for message in outcome.messages) == 3
        assert outcome.text == "c"
        assert outcome.usage.output_tokens == 15
        assert (await session.ask("d")).text == "d"


async def test_a_list_of_messages_is_an_iterable_too() -> None:
    messages = [{"type": "user", "message": {"role": "user", "content": text}} for text in "ab"]
    before = [dict(message) for message in messages]
    async with playing(answer_each) as session:
        outcome = await session.ask(messages)
        assert sum(isinstance(message, ResultMessage) for message in outcome.messages) == 2
    assert messages == before


@pytest.mark.parametrize("kind", KINDS)
async def test_an_empty_iterable_is_an_error_and_the_session_goes_on(kind: Callable[..., Any]) -> None:
    async with playing(answer_each) as session:
        with anyio.fail_after(1), pytest.raises(UsageError, match="no prompt in the iterable"):
            await session.ask(kind())
        assert (await session.ask("b")).text == "b"


def failing(error: BaseException = LookupError("out of prompts")) -> list[object]:  # noqa: B008
    raise error


async def fails_first() -> AsyncIterator[object]:
    for prompt in failing():
        yield prompt


async def fails_later() -> AsyncIterator[str]:
    yield "a"
    raise LookupError("out of prompts")


def fails_first_plainly() -> Iterator[object]:
    yield from failing()


def fails_later_plainly() -> Iterator[str]:
    yield "a"
    raise LookupError("out of prompts")


class FailsToBegin:
    """It cannot even be iterated over."""

    def __aiter__(self) -> AsyncIterator[str]:
        raise LookupError("out of prompts")


@every_case(
    "make, where",
    [
        (fails_first, "before the first"),
        (fails_first_plainly, "before the first"),
        (FailsToBegin, "before the first"),
        (fails_later, "after prompt 1"),
        (fails_later_plainly, "after prompt 1"),
    ],
)
async def test_an_iterable_that_fails_fails_its_turn(make: Callable[[], Any], where: str) -> None:
    async with playing(begin_each) as session:
        with anyio.fail_after(2), pytest.raises(TurnFailed) as raised:
            await session.ask(make())
        assert where in str(raised.value)
        assert "out of prompts" in str(raised.value)
        assert isinstance(raised.value.__cause__, LookupError)
        assert session.state is not SessionState.CLOSED
        # What was under way has been stopped.
        assert (await session.request("get_settings")) == {}


async def test_an_iterable_that_fails_after_its_answers_keeps_them() -> None:
    async def prompts() -> AsyncIterator[str]:
        yield "a"
        await answered.wait()
        raise LookupError("out of prompts")

    async with playing(answer_each) as session:
        answered = anyio.Event()
        one = await session.send(prompts())
        async for message in one:
            if isinstance(message, ResultMessage):
                break
        answered.set()
        with anyio.fail_after(2), pytest.raises(TurnFailed) as raised:
            await one.result()
        assert isinstance(raised.value.result, Result)
        assert raised.value.result.text == "a"


class StopsWrongly:
    """`StopIteration` where it has no business: from an iterator inside that came to its end."""

    def __aiter__(self) -> StopsWrongly:
        return self

    def __anext__(self) -> Awaitable[str]:
        return next(iter(()))


async def leaks() -> AsyncIterator[str]:
    yield "a"
    next(iter(()))


def leaks_plainly() -> Iterator[str]:
    yield "a"
    next(iter(()))


class LeaksAtTheStart:
    """The same, before there is an iterator."""

    def __next__(self) -> str:
        raise AssertionError

    def __iter__(self) -> Iterator[str]:
        return next(iter(()))


@every_case("make", [StopsWrongly, leaks, leaks_plainly, LeaksAtTheStart])
async def test_a_leaked_stop_iteration_is_no_silent_end(make: Callable[[], Any]) -> None:
    async with playing(answer_each) as session:
        with anyio.fail_after(2), pytest.raises(TurnFailed, match="StopIteration"):
            await session.ask(make())
        assert (await session.ask("b")).text == "b"


@ASYNCIO
async def test_an_iterable_that_waits_for_something_cancelled_has_failed_and_no_more() -> None:
    async def prompts() -> AsyncIterator[str]:
        task = asyncio.create_task(asyncio.sleep(10))
        task.cancel()
        await task
        yield "never"

    async with playing(answer_each) as session:
        with anyio.fail_after(2), pytest.raises(TurnFailed, match="CancelledError"):
            await session.ask(prompts())
        assert (await session.ask("b")).text == "b"


@pytest.mark.parametrize("is_plain", [True, False])
async def test_ctrl_c_in_an_iterable_reaches_the_consumer(is_plain: bool) -> None:
    async def interrupt() -> AsyncIterator[object]:
        for prompt in failing(KeyboardInterrupt()):
            yield prompt

    def interrupt_plainly() -> Iterator[object]:
        yield from failing(KeyboardInterrupt())

    async with playing(answer_each) as session:
        with anyio.fail_after(2), pytest.raises(KeyboardInterrupt):
            await session.ask(interrupt_plainly() if is_plain else interrupt())
        assert session.state is SessionState.CLOSED


@every_case("kind", KINDS)
@every_case(
    "prompt, cause",
    [
        (7, UsageError),
        ("", UsageError),
        (None, UsageError),
        (
            {"role": "user", "content": [{"type": "text", "text": "x", "weight": float("nan")}]},
            MessageInvalid,
        ),
    ],
)
async def test_what_is_no_prompt_fails_the_turn_and_nothing_else(
    kind: Callable[..., Any], prompt: object, cause: type
) -> None:
    async with playing(begin_each, timeouts=Timeouts(interrupt=1)) as session:
        with anyio.fail_after(2), pytest.raises(TurnFailed, match="at prompt 1") as raised:
            await session.ask(kind(prompt))
        assert isinstance(raised.value.__cause__, cause)
        assert session.state is not SessionState.CLOSED
        assert (await session.request("get_settings")) == {}


async def test_an_iterable_in_an_iterable_is_refused() -> None:
    async with playing(answer_each) as session:
        for inner in (plain("b"), Iterating("b")):
            with anyio.fail_after(2), pytest.raises(TurnFailed, match="holds another one"):
                await session.ask(plain(inner))
        assert (await session.ask("b")).text == "b"


async def test_messages_keep_their_own_uuids() -> None:
    async with playing(answer_each) as session:
        messages = [{"type": "user", "uuid": f"mine-{n}", "message": {"content": "x"}} for n in range(2)]
        one = await session.send(messages)
        await one.result()
        assert one.uuid == "mine-0"


@pytest.mark.parametrize("is_nested", [True, False])
async def test_a_uuid_that_was_sent_before_is_refused(is_nested: bool) -> None:
    """The agent drops the second without a word: its turn would never end."""
    message = {"type": "user", "uuid": "mine", "message": {"role": "user", "content": "x"}}
    async with playing(answer_each) as session:
        if is_nested:
            with anyio.fail_after(2), pytest.raises(TurnFailed, match="sent before"):
                await session.ask(plain(message, message))
        else:
            await session.ask(message)
            with anyio.fail_after(2), pytest.raises(UsageError, match="'mine' was sent before"):
                await session.ask(message)
        assert (await session.ask("b")).text == "b"


# Endings.


class Watched:
    """Generators that never end, and tell when they are closed."""

    def __init__(self) -> None:
        self.closed = threading.Event()
        self.asked = threading.Event()
        self.gate = queue.SimpleQueue[str]()

    async def asynchronous(self) -> AsyncIterator[str]:
        try:
            yield "a"
            self.asked.set()
            await anyio.sleep_forever()
        finally:
            await anyio.lowlevel.cancel_shielded_checkpoint()
            self.closed.set()

    async def endless(self) -> AsyncIterator[str]:
        try:
            while True:
                yield "a"
                self.asked.set()
                await anyio.sleep(0.001)
        finally:
            self.closed.set()

    def blocking(self) -> Iterator[str]:
        try:
            yield "a"
            self.asked.set()
            yield self.gate.get()
        finally:
            self.closed.set()


@every_case("kind", ["asynchronous", "endless", "blocking"])
@every_case("way", ["cancel", "close"])
async def test_an_iterable_that_never_ends_is_closed_with_its_turn(kind: str, way: str) -> None:
    watched = Watched()
    async with playing(begin_each) as session:
        one = await session.send(getattr(watched, kind)())
        await anyio.to_thread.run_sync(watched.asked.wait)
        if way == "close":
            with anyio.fail_after(1):
                await session.close()
            with pytest.raises(TransportClosed):
                await one.result()
        else:
            with anyio.fail_after(3):
                assert (await one.cancel()).outcome == "cancelled"
            with pytest.raises(TurnInterrupted):
                await one.result()
            assert session.state is not SessionState.CLOSED
        watched.gate.put("late")
        await anyio.to_thread.run_sync(watched.closed.wait, 10)
        assert watched.closed.is_set()


class Gated(Recording):
    """Lets prompts wait before they go out, and drops them if it is cancelled there."""

    def __init__(self) -> None:
        super().__init__()
        self.is_waiting, self.gate = anyio.Event(), anyio.Event()

    async def send(self, data: bytes) -> None:
        if b'"type":"user"' in data:
            self.is_waiting.set()
            await self.gate.wait()
        await super().send(data)


async def test_a_turn_that_is_cancelled_while_a_prompt_goes_out_does_not_cost_the_agent() -> None:
    """A prompt that was cut short is one that the agent never saw, and would never give up."""
    transport = Gated()

    async def play() -> None:
        await transport.agent.open()
        await begin_each(transport.agent)

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(play)
        async with Session(transport=transport, timeouts=Timeouts(interrupt=2)) as session:
            one = await session.send(asynchronous("a"))
            await transport.is_waiting.wait()
            tasks.start_soon(one.cancel)
            await anyio.wait_all_tasks_blocked()
            transport.gate.set()
            with anyio.fail_after(5), pytest.raises(TurnInterrupted):
                await one.result()
            assert session.state is not SessionState.CLOSED


@pytest.mark.parametrize("kind", KINDS)
async def test_a_generator_that_came_to_its_end_needs_no_closing(kind: Callable[..., Any]) -> None:
    prompts = kind("a")
    async with playing(answer_each) as session:
        await session.ask(prompts)
        # What is no generator may be of further use to its owner.
        assert not getattr(prompts, "is_closed", False)


async def test_a_turn_can_be_cancelled_before_its_first_prompt() -> None:
    async def prompts() -> AsyncIterator[str]:
        await anyio.sleep_forever()
        yield "never"

    async with playing(answer_each) as session:
        for yields in (False, True):
            one = await session.send(prompts())
            if yields:
                await anyio.wait_all_tasks_blocked()
            with anyio.fail_after(1):
                assert (await one.cancel()).outcome == "cancelled"
            with pytest.raises(TurnInterrupted):
                await one.result()
        with anyio.fail_after(1):
            await session.wait_idle()
        assert (await session.ask("b")).text == "b"


@pytest.mark.filterwarnings("error")
async def test_cancelling_the_call_cancels_the_iterable() -> None:
    watched = Watched()
    async with playing(begin_each) as session:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(session.ask, watched.asynchronous())
            await anyio.to_thread.run_sync(watched.asked.wait)
            tasks.cancel_scope.cancel()
        await anyio.to_thread.run_sync(watched.closed.wait, 10)
        assert watched.closed.is_set()


async def test_a_generator_that_fails_when_it_is_closed_holds_up_nothing() -> None:
    async def stubborn() -> AsyncIterator[str]:
        try:
            yield "a"
            await anyio.sleep_forever()
        finally:
            raise OSError("never")

    async with playing(begin_each) as session:
        one = await session.send(stubborn())
        await anext(aiter(one))
        with anyio.fail_after(2):
            await one.cancel()
        with pytest.raises(TurnFailed, match="never"):
            await one.result()
        assert (await session.request("get_settings")) == {}
        await session.send(stubborn())
        await anyio.wait_all_tasks_blocked()
        with anyio.fail_after(1):
            await session.close()


async def test_an_iterable_may_use_its_session() -> None:
    async def prompts() -> AsyncIterator[str]:
        yield "a"
        other = await session.send("between")
        assert (await other.result()).text == "between"
        yield "b"

    async with playing(answer_each) as session:
        with anyio.fail_after(2):
            outcome = await session.ask(prompts())
        assert outcome.text == "b"


async def test_others_may_send_while_an_iterable_waits() -> None:
    send, receive = anyio.create_memory_object_stream[str]()
    async with send, receive, playing(answer_each) as session:
        one = await session.send(receive)
        await send.send("a")
        with anyio.fail_after(2):
            assert (await session.ask("other")).text == "other"
        await send.send("b")
        await send.aclose()
        with anyio.fail_after(2):
            assert (await one.result()).text == "b"


async def test_an_iterable_may_close_its_session() -> None:
    async def prompts() -> AsyncIterator[str]:
        yield "a"
        await session.close()
        yield "b"

    async with playing(begin_each) as session:
        with anyio.fail_after(1), pytest.raises(TransportClosed):
            await session.ask(prompts())


async def test_an_iterable_sees_the_context_of_its_turn() -> None:
    variable: contextvars.ContextVar[str] = contextvars.ContextVar("variable", default="unset")

    async def asynchronously() -> AsyncIterator[str]:
        yield variable.get()

    def plainly() -> Iterator[str]:
        yield variable.get()

    async with playing(answer_each) as session:
        variable.set("mine")
        assert (await session.ask(asynchronously())).text == "mine"
        assert (await session.ask(plainly())).text == "mine"


async def test_a_plain_iterable_runs_in_one_thread_that_is_not_ours() -> None:
    threads: set[int] = set()

    def prompts() -> Iterator[str]:
        for text in "abc":
            threads.add(threading.get_ident())
            yield text

    async with playing(answer_each) as session:
        await session.ask(prompts())
    assert len(threads) == 1
    assert threading.get_ident() not in threads


async def test_waiting_for_the_users_next_prompt_is_not_the_agents_silence() -> None:
    timeouts = Timeouts(first_event=0.1, silence=0.1, turn=0.2)

    async def prompts() -> AsyncIterator[str]:
        for text in "ab":
            await anyio.sleep(0.4)
            yield text

    async with playing(answer_each, timeouts=timeouts) as session:
        assert (await session.ask(prompts())).text == "b"


async def test_a_turn_behind_an_iterable_that_waits_has_deadlines() -> None:
    async def prompts() -> AsyncIterator[str]:
        await anyio.sleep_forever()
        yield "never"

    async def play(agent: OtherEnd) -> None:
        await agent.prompt()
        while (event := await agent.next()) is not None:
            if isinstance(event, RequestReceived):
                await agent.answer(event)

    async with playing(play, timeouts=Timeouts(first_event=0.1, interrupt=0.2)) as session:
        await session.send(prompts())
        with anyio.fail_after(3), pytest.raises(TimeoutError):
            await session.ask("b")


def test_a_plain_iterable_that_blocks_for_ever_does_not_hold_up_the_end_of_the_program() -> None:
    code = """
        import anyio, threading
        from outrider.session import Session
        from tests.session.other_end import playing
        from tests.session.test_feeding import begin_each
        def prompts():
            yield "a"
            threading.Event().wait()
        async def main():
            async with playing(begin_each) as session:
                turn = await session.send(prompts())
                await anext(aiter(turn))
        anyio.run(main)
        print("done")
    """
    command = [sys.executable, "-c", textwrap.dedent(code)]
    done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=30)
    assert (done.stdout, done.stderr) == ("done\n", "")

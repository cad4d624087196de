"""However a session is opened, used and left: the user's tasks are untouched, and nothing stays behind."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import aclosing
from pathlib import Path
from typing import Any

import anyio
import anyio.lowlevel
import pytest

import outrider
from outrider.errors import (
    AgentNotFound,
    AgentTooOld,
    ConnectionLost,
    OptionsError,
    OutriderError,
    ProcessExited,
    RequestFailed,
    RequestTimedOut,
    TransportClosed,
    UsageError,
)
from outrider.options import Timeouts
from outrider.session import Session, SessionState
from outrider.transports._process import child
from outrider.wire import AssistantMessage, MalformedLine, ResultMessage, UnknownMessage
from tests.cases import every_case
from tests.session.other_end import OtherEnd, answering, assistant, init, playing, result
from tests.session.surroundings import (
    ASYNCIO,
    QUICK,
    Program,
    Recording,
    agent_at,
    agent_of,
    answer_everything,
    begin_and_wait,
    own_session,
    with_handler,
)
from tests.transports.conftest import libraries_are_warm, nothing_is_left, own_processes, wait_for

# Autouse, and so in force for this module.
__all__ = ["libraries_are_warm", "nothing_is_left"]

Body = Callable[[Session], Coroutine[Any, Any, None]]


# Leaving loops.


async def read_the_turn(session: Session) -> AsyncIterator[object]:
    async for message in await session.send("a"):
        yield message


async def read_the_session(session: Session) -> AsyncIterator[object]:
    await session.send("a")
    async for message in session:
        yield message


async def read_the_text(session: Session) -> AsyncIterator[object]:
    async for text in (await session.send("a")).text():
        yield text


LOOPS = [read_the_turn, read_the_session, read_the_text]


@pytest.mark.anyio
@every_case("play", [begin_and_wait, answer_everything])
@every_case("loop", LOOPS)
async def test_a_loop_that_is_left_can_be_left_at_once(loop: Any, play: Any) -> None:
    async with playing(play) as session:
        async with aclosing(loop(session)) as messages:
            async for _ in messages:
                break
        # The task of the user goes on, and so does the session.
        await anyio.lowlevel.checkpoint()
        assert session.state is not SessionState.CLOSED


@pytest.mark.anyio
async def test_readers_are_no_generators() -> None:
    """A generator that is dropped by `break` cancels tasks on asyncio, and is complained about on trio."""
    async with playing(begin_and_wait) as session:
        turn = await session.send("a")
        async for _ in session:
            break
        async for _ in turn:
            break
        async for _ in turn.text():
            break
        gc.collect()
        for reader in (aiter(turn), turn.text(), aiter(session)):
            assert not hasattr(reader, "aclose")


@pytest.mark.anyio
@pytest.mark.parametrize("loop", LOOPS)
async def test_an_exception_in_the_body_of_a_loop_is_raised_as_it_is(loop: Any) -> None:
    async def read() -> None:
        async with own_session(begin_and_wait) as session, aclosing(loop(session)) as messages:
            async for _ in messages:
                _ = 1 / 0

    with pytest.raises(ZeroDivisionError):
        await read()


@pytest.mark.anyio
async def test_two_loops_over_a_session_each_see_everything() -> None:
    counts = [0, 0]

    async def read(session: Session, number: int, ready: anyio.Event) -> None:
        reader = aiter(session)
        ready.set()
        async for message in reader:
            counts[number] += 1
            if isinstance(message, ResultMessage):
                return

    async with playing(answer_everything) as session, anyio.create_task_group() as tasks:
        for number in range(2):
            ready = anyio.Event()
            tasks.start_soon(read, session, number, ready)
            await ready.wait()
        await session.ask("a")
    assert counts == [4, 4]


# Cancellation at each await.


async def wait_in_send(session: Session) -> None:
    await session.send("a")
    await anyio.sleep_forever()


async def wait_in_iteration(session: Session) -> None:
    async for _ in await session.send("a"):
        pass


async def wait_in_the_session(session: Session) -> None:
    async for _ in session:
        pass


async def wait_in_text(session: Session) -> None:
    async for _ in (await session.send("a")).text():
        pass


async def wait_in_result(session: Session) -> None:
    await (await session.send("a")).result()


async def wait_in_ask(session: Session) -> None:
    await session.ask("a")


async def wait_in_request(session: Session) -> None:
    await session.request("mcp_status", timeout=None)


async def wait_in_prompts(session: Session) -> None:
    async def prompts() -> AsyncIterator[str]:
        yield "a"
        await anyio.sleep_forever()

    await session.ask(prompts())


async def wait_in_idle(session: Session) -> None:
    await session.send("a")
    await session.wait_idle()


WAITS: list[Body] = [
    wait_in_send,
    wait_in_iteration,
    wait_in_the_session,
    wait_in_text,
    wait_in_result,
    wait_in_ask,
    wait_in_request,
    wait_in_prompts,
    wait_in_idle,
]


@pytest.mark.anyio
@every_case("wait", WAITS)
async def test_a_cancelled_wait_leaves_a_session_that_works(wait: Body) -> None:
    async with playing(begin_and_wait) as session:
        with anyio.CancelScope() as scope:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(wait, session)
                await anyio.wait_all_tasks_blocked()
                scope.cancel()
        assert scope.cancelled_caught
        await anyio.lowlevel.checkpoint()
        assert session.state is not SessionState.CLOSED
        assert await session.request("get_settings") == {}


@pytest.mark.anyio
@pytest.mark.parametrize("wait", WAITS)
async def test_a_cancelled_block_ends_the_agent(wait: Body, program: Program) -> None:
    session = Session(cli_path=program("works_on_and_on"), timeouts=QUICK)
    with anyio.CancelScope() as scope:
        async with session, anyio.create_task_group() as tasks:
            tasks.start_soon(wait, session)
            await anyio.wait_all_tasks_blocked()
            scope.cancel()
    assert scope.cancelled_caught
    assert own_processes() == []
    assert session.state is SessionState.CLOSED


@ASYNCIO
@pytest.mark.anyio
@pytest.mark.parametrize("wait", WAITS)
@pytest.mark.parametrize("times", [1, 2])
async def test_a_raw_cancel_ends_the_agent(wait: Body, times: int, program: Program) -> None:
    is_open = asyncio.Event()

    async def main() -> None:
        async with Session(cli_path=program("works_on_and_on"), timeouts=QUICK) as session:
            is_open.set()
            await wait(session)

    task = asyncio.create_task(main())
    await is_open.wait()
    await anyio.wait_all_tasks_blocked()
    task.cancel()
    if times == 2:
        # In the middle of `close`.
        await asyncio.sleep(0)
        task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    if times == 1:
        assert own_processes() == []
    wait_for(lambda: not own_processes())


@pytest.mark.anyio
async def test_cancelling_close_does_not_cut_it_short(program: Program) -> None:
    session = Session(cli_path=program("ignores_everything"), timeouts=QUICK)
    await session.connect()
    with anyio.CancelScope() as scope:
        scope.cancel()
        await session.close()
    assert own_processes() == []


@ASYNCIO
@pytest.mark.anyio
@pytest.mark.parametrize("times", [1, 2, 3])
async def test_a_raw_cancel_of_close_returns_and_the_agent_ends(times: int, program: Program) -> None:
    session = Session(cli_path=program("ignores_everything"), timeouts=QUICK)
    await session.connect()
    task = asyncio.create_task(session.close())
    for _ in range(times):
        await asyncio.sleep(0)
        task.cancel()
    with anyio.fail_after(0.3), pytest.raises(asyncio.CancelledError):
        await task
    assert session.state is SessionState.CLOSED
    await session.close()
    assert own_processes() == []


@pytest.mark.anyio
@pytest.mark.parametrize("name", ["hangs_at_the_start", "hangs_and_ignores_everything"])
async def test_a_cancelled_connect_leaves_no_process(name: str, program: Program) -> None:
    session = Session(cli_path=program(name), timeouts=QUICK)
    with anyio.move_on_after(0.1) as scope:
        await session.connect()
    assert scope.cancelled_caught
    assert own_processes() == []
    assert session.state is SessionState.STARTING


@ASYNCIO
@pytest.mark.anyio
@pytest.mark.parametrize("ticks", range(8))
async def test_a_raw_cancel_of_connect_leaves_no_process(ticks: int, program: Program) -> None:
    session = Session(cli_path=program("hangs_and_ignores_everything"), timeouts=QUICK)
    task = asyncio.create_task(session.connect())
    for _ in range(ticks):
        await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert own_processes() == []


@pytest.mark.anyio
@every_case("ticks", range(10))
async def test_a_connect_that_is_cancelled_anywhere_closes_a_transport_of_the_users(ticks: int) -> None:
    transport = Recording()
    with anyio.CancelScope() as scope:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(Session(transport=transport).connect)
            for _ in range(ticks):
                await anyio.lowlevel.checkpoint()
            scope.cancel()
    assert transport.is_closed == transport.was_connected


@pytest.mark.anyio
async def test_leaving_a_stream_block_ends_the_agent(program: Program) -> None:
    path = program("works_on_and_on")
    async with outrider.stream("a", cli_path=path, timeouts=QUICK) as turn:
        async for _ in turn:
            break
    assert own_processes() == []
    with pytest.raises(ZeroDivisionError):
        async with outrider.stream("a", cli_path=path, timeouts=QUICK):
            _ = 1 / 0
    assert own_processes() == []
    with anyio.CancelScope() as scope:
        async with outrider.stream("a", cli_path=path, timeouts=QUICK) as turn:
            scope.cancel()
            await turn.result()
    assert scope.cancelled_caught
    assert own_processes() == []


@pytest.mark.anyio
async def test_a_cancelled_run_ends_the_agent(program: Program) -> None:
    with anyio.move_on_after(0.3) as scope:
        await outrider.run("a", cli_path=program("works_on_and_on"), timeouts=QUICK)
    assert scope.cancelled_caught
    assert own_processes() == []


# Opening and closing.


@pytest.mark.anyio
async def test_one_task_opens_and_another_closes(program: Program) -> None:
    session = Session(cli_path=program("answers"), timeouts=QUICK)
    texts: list[str] = []

    async def ask() -> None:
        texts.append((await session.ask("a")).text)

    for step in (session.connect, ask, session.close):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(step)
    assert texts == ["done"]
    assert own_processes() == []


@pytest.mark.requirement("F5")
@pytest.mark.anyio
async def test_connecting_twice_is_connecting_once(program: Program) -> None:
    async with Session(cli_path=program("answers"), timeouts=QUICK) as session:
        pid = session.pid
        await session.connect()
        assert (session.pid, own_processes()) == (pid, [pid])


@pytest.mark.requirement("F5")
@pytest.mark.anyio
async def test_two_connects_at_once_start_one_agent(program: Program) -> None:
    session = Session(cli_path=program("answers"), timeouts=QUICK)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(session.connect)
        tasks.start_soon(session.connect)
    assert own_processes() == [session.pid]
    await session.close()


@pytest.mark.requirement("F5")
@pytest.mark.anyio
async def test_a_closed_session_cannot_be_opened(program: Program) -> None:
    session = Session(cli_path=program("answers"), timeouts=QUICK)
    await session.close()
    with pytest.raises(TransportClosed, match="new one"):
        await session.connect()
    assert own_processes() == []
    assert session.state is SessionState.CLOSED
    with pytest.raises(UsageError, match="closed"):
        await session.send("a")


@pytest.mark.anyio
async def test_closing_three_times_is_closing_once(program: Program) -> None:
    session = Session(cli_path=program("answers"), timeouts=QUICK)
    await session.connect()
    for _ in range(3):
        await session.close()
    async with anyio.create_task_group() as tasks:
        for _ in range(3):
            tasks.start_soon(session.close)
    assert own_processes() == []


@pytest.mark.anyio
@pytest.mark.parametrize("ticks", range(12))
async def test_closing_during_connect_ends_both(ticks: int, program: Program) -> None:
    session = Session(cli_path=program("hangs_at_the_start"), timeouts=QUICK)
    raised: list[BaseException] = []

    async def connect() -> None:
        try:
            await session.connect()
        except OutriderError as error:
            raised.append(error)

    with anyio.fail_after(10):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(connect)
            for _ in range(ticks):
                await anyio.lowlevel.checkpoint()
            await session.close()
    assert [type(error) for error in raised] == [TransportClosed]
    assert session.state is SessionState.CLOSED
    assert own_processes() == []


FAILING: list[tuple[dict[str, Any], type[OutriderError], str]] = [
    ({"cli_path": "/nowhere/claude"}, AgentNotFound, "/nowhere/claude"),
    ({"cli_path": "fails_at_the_start"}, ProcessExited, "no such luck"),
    ({"cli_path": "exits_at_the_start"}, ProcessExited, "code 0"),
    ({"cli_path": "refuses_to_start"}, RequestFailed, "not today"),
    ({"cli_path": "is_too_old"}, AgentTooOld, "1.0.3"),
    ({"cli_path": "hangs_at_the_start", "connect": 0.2}, RequestTimedOut, "0.2"),
    ({"cli_path": "hangs_and_ignores_everything", "connect": 0.2}, RequestTimedOut, "0.2"),
    ({"transport": object()}, OptionsError, "not a transport"),
]


@pytest.mark.anyio
@pytest.mark.parametrize(
    "fields, kind, text", FAILING, ids=[str(fields.get("cli_path", "transport")) for fields, _, _ in FAILING]
)
async def test_a_connect_that_fails_raises_a_bare_error_and_leaves_nothing(
    fields: dict[str, Any], kind: type[OutriderError], text: str, program: Program
) -> None:
    fields = dict(fields)
    timeouts = Timeouts(connect=fields.pop("connect", 10), close=0.2, terminate=0.2)
    if "/" not in fields.get("cli_path", "/"):
        fields["cli_path"] = program(fields["cli_path"])
    session = Session(timeouts=timeouts, **fields)
    with pytest.raises(OutriderError) as raised:
        await session.connect()
    assert type(raised.value) is kind
    assert text in str(raised.value)
    assert own_processes() == []
    assert session.state is SessionState.STARTING
    await session.close()


@pytest.mark.anyio
async def test_a_connect_that_failed_can_be_tried_again(program: Program, tmp_path: Path) -> None:
    session = Session(cli_path=str(tmp_path / "answers"), timeouts=QUICK)
    with pytest.raises(AgentNotFound):
        await session.connect()
    program("answers")
    await session.connect()
    assert (await session.ask("a")).text == "done"
    await session.close()


@pytest.mark.requirement("A12")
@pytest.mark.anyio
@pytest.mark.parametrize("step", ["connect", "receive", "send"])
async def test_a_transport_that_fails_is_closed_and_its_error_is_bare(step: str) -> None:
    transport = Recording(step)
    with anyio.fail_after(10), pytest.raises((OSError, ConnectionLost)) as raised:
        await Session(transport=transport).connect()
    assert "it broke" in str(raised.value)
    assert transport.is_closed


class FailsWhileSending(Recording):
    """Breaks while something is being sent, which then cannot be sent either."""

    def __init__(self) -> None:
        super().__init__("receive")
        self._sending = anyio.Event()

    async def receive(self) -> bytes:
        await self._sending.wait()
        return await super().receive()

    async def send(self, data: bytes) -> None:
        self._sending.set()
        await self.closed.wait()
        await super().send(data)


@pytest.mark.requirement("A12")
@pytest.mark.anyio
async def test_what_broke_a_connection_is_told_to_whoever_was_sending() -> None:
    with anyio.fail_after(10), pytest.raises(ConnectionLost, match="it broke"):
        await Session(transport=FailsWhileSending()).connect()


@ASYNCIO
@pytest.mark.anyio
async def test_a_raw_cancel_of_close_closes_a_transport_of_the_users_all_the_same() -> None:
    transport = Recording()
    async with agent_of(transport.agent):
        session = Session(transport=transport)
        await session.connect()
        task = asyncio.create_task(session.close())
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert not transport.closed.is_set()
        with anyio.fail_after(5):
            await transport.closed.wait()


@pytest.mark.requirement("A12")
@pytest.mark.anyio
async def test_a_transport_that_fails_at_close_is_still_closed() -> None:
    transport = Recording("close")
    async with agent_of(transport.agent):
        session = Session(transport=transport)
        await session.connect()
        with anyio.fail_after(10), pytest.raises(OSError, match="it broke"):
            await session.close()
        assert session.state is SessionState.CLOSED
        with anyio.fail_after(10), pytest.raises(TransportClosed):
            await session.send("a")
        with anyio.fail_after(1):
            assert [message async for message in session] == []


@pytest.mark.anyio
async def test_close_meets_a_send_and_a_request_at_the_same_time() -> None:
    outcomes: list[object] = []

    async def use(call: Callable[[], Awaitable[object]]) -> None:
        try:
            outcomes.append(await call())
        except ConnectionLost as error:
            outcomes.append(error)

    async with playing(begin_and_wait) as session, anyio.create_task_group() as tasks:
        tasks.start_soon(use, lambda: session.request("mcp_status"))
        tasks.start_soon(use, lambda: session.send("a"))
        tasks.start_soon(use, lambda: session.ask("b"))
        tasks.start_soon(session.close)
    assert len(outcomes) == 3
    assert sum(isinstance(outcome, TransportClosed) for outcome in outcomes) >= 2


# The agent's own ways to end.


@pytest.mark.requirement("D6")
@pytest.mark.anyio
@pytest.mark.parametrize(
    "name, returncode",
    [("exits_in_a_turn", 0), ("fails_in_a_turn", 1), ("dies_in_a_turn", -9)],
)
async def test_an_agent_that_ends_in_a_turn_fails_it_with_the_evidence(
    name: str, returncode: int, program: Program
) -> None:
    async with Session(cli_path=program(name), timeouts=QUICK) as session:
        turn = await session.send("a")
        seen: list[object] = []

        async def read() -> None:
            async for message in turn:
                seen.append(message)  # noqa: PERF401 - what came before the error counts

        with anyio.fail_after(10), pytest.raises(ProcessExited) as raised:
            await read()
        assert raised.value.returncode == returncode
        assert [message.text for message in seen if isinstance(message, AssistantMessage)] == ["begun"]
        if returncode >= 0:
            assert raised.value.stderr_tail in ("had enough", "out of cheese")
        with pytest.raises(ProcessExited) as raised:
            await turn.result()
        assert raised.value.result is not None
        for call in (session.send("b"), session.request("anything"), session.ask("c")):
            with anyio.fail_after(1), pytest.raises(ProcessExited):
                await call
        assert session.state is SessionState.CLOSED


@pytest.mark.anyio
async def test_an_agent_that_closes_its_output_is_ended(
    program: Program, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(child, "SILENT_SECONDS", 0.2)
    async with Session(cli_path=program("closes_its_output_in_a_turn"), timeouts=QUICK) as session:
        with anyio.fail_after(20), pytest.raises(ConnectionLost):
            await session.ask("a")
    assert own_processes() == []


@pytest.mark.requirement("D3")
@pytest.mark.anyio
async def test_rubbish_does_not_end_a_session(program: Program) -> None:
    async with Session(cli_path=program("talks_rubbish"), timeouts=QUICK) as session:
        for _ in range(2):
            answer = await session.ask("a")
            assert answer.text == "done"
            assert sum(isinstance(message, MalformedLine) for message in answer.messages) >= 4
            assert any(isinstance(message, UnknownMessage) for message in answer.messages)


@pytest.mark.anyio
async def test_an_agent_that_stopped_reading_is_found_out(program: Program) -> None:
    timeouts = Timeouts(close=0.2, terminate=0.2, write=0.3)
    async with Session(cli_path=program("stops_reading"), timeouts=timeouts) as session:
        with anyio.fail_after(10), pytest.raises(ConnectionLost, match=r"not read its input for 0\.3 s"):
            await session.send("x" * 1_000_000)
        with anyio.fail_after(10), pytest.raises(ConnectionLost, match=r"not read its input for 0\.3 s"):
            await session.request("anything")


# Handlers.


ASK = {"tool_name": "Bash", "input": {}, "tool_use_id": "toolu_1"}


async def ask_in_a_turn(agent: OtherEnd) -> None:
    uuid = (await agent.prompt()).uuid or ""
    await agent.say(init(uuid))
    await agent.ask("can_use_tool", **ASK)
    reply = await agent.next()
    if reply is not None:
        await agent.say(assistant(str(getattr(reply, "error", reply))), result(uuid))
    await answer_everything(agent)


@pytest.mark.anyio
async def test_closing_from_inside_a_handler_is_no_deadlock() -> None:
    sessions: list[Session] = []

    async def handle(_: object) -> dict[str, Any]:
        await sessions[0].close()
        return {"behavior": "allow"}

    async def ask_and_wait(agent: OtherEnd) -> None:
        await agent.say(init((await agent.prompt()).uuid or ""))
        await agent.ask("can_use_tool", **ASK)
        while await agent.next() is not None:
            pass

    async with agent_at(ask_and_wait) as transport:
        session = with_handler(transport, handle)
        sessions.append(session)
        await session.connect()
        with anyio.fail_after(1), pytest.raises(TransportClosed):
            await session.ask("a")
        assert session.state is SessionState.CLOSED


@pytest.mark.anyio
async def test_a_handler_that_closes_its_session_does_not_wait_for_itself(program: Program) -> None:
    sessions: list[Session] = []

    async def handle(_: object) -> None:
        await sessions[0].close()

    session = Session(cli_path=program("asks_in_a_turn"), timeouts=QUICK)
    answering(can_use_tool=handle)(session)
    sessions.append(session)
    await session.connect()
    with anyio.fail_after(1), pytest.raises(TransportClosed):
        await session.ask("a")
    began_at = anyio.current_time()
    await session.close()
    assert anyio.current_time() - began_at < 1
    assert own_processes() == []


@pytest.mark.anyio
@pytest.mark.parametrize("crash", [KeyboardInterrupt("stop"), SystemExit(3)])
async def test_what_ends_the_program_reaches_the_consumer(crash: BaseException) -> None:
    async def handle(_: object) -> object:
        raise crash

    async with agent_at(ask_in_a_turn) as transport:
        session = with_handler(transport, handle)
        await session.connect()
        turn = await session.send("a")

        async def read() -> None:
            async for _ in session:
                pass

        for wait in (turn.result, read, turn.result):
            with anyio.fail_after(5), pytest.raises(type(crash)):
                await wait()
        with pytest.raises(type(crash)):
            await session.send("b")
        assert session.state is SessionState.CLOSED
        await session.close()


@ASYNCIO
@pytest.mark.anyio
async def test_a_handler_that_waits_for_something_cancelled_has_failed_and_no_more() -> None:
    async def handle(_: object) -> object:
        task = asyncio.create_task(asyncio.sleep(10, "never"))
        task.cancel()
        return await task

    async with agent_at(ask_in_a_turn) as transport:
        session = with_handler(transport, handle)
        await session.connect()
        assert (await session.ask("a")).text == "done"
        assert (await session.ask("b")).text == "done"
        await session.close()


@pytest.mark.anyio
async def test_sessions_of_one_loop_do_not_share_their_troubles() -> None:
    class Own(BaseException):
        pass

    async def handle(_: object) -> object:
        raise Own

    async with own_session(answer_everything) as other, agent_at(ask_in_a_turn) as transport:
        session = with_handler(transport, handle)
        await session.connect()
        with pytest.raises(Own):
            await session.ask("a")
        assert (await other.ask("b")).text == "done"
        await session.close()

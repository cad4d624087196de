"""Sessions that nobody closes: dropped, or left open when their loop or the program ends; and many."""

from __future__ import annotations

import gc
import logging
import subprocess
import sys
import textwrap
import threading
import warnings
import weakref
from collections.abc import Awaitable, Callable, Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest
from anyio.lowlevel import checkpoint

from outrider.options import Timeouts
from outrider.session import Session, SessionState
from tests.session.other_end import OtherEnd, answering
from tests.session.stores import Told, mirrored
from tests.session.surroundings import (
    QUICK,
    Program,
    Recording,
    agent_of,
)
from tests.transports.conftest import libraries_are_warm, nothing_is_left, own_processes, wait_for

# Autouse, and so in force for this module.
__all__ = ["libraries_are_warm", "nothing_is_left"]


def run(backend: Any, main: Callable[[], Awaitable[Any]]) -> Any:
    return anyio.run(main, backend=backend[0], backend_options=backend[1])


@contextmanager
def no_complaints(caplog: pytest.LogCaptureFixture) -> Generator[None]:
    """Neither the event loop nor Outrider has anything to complain about."""
    with caplog.at_level(logging.WARNING):
        yield
        gc.collect()
    assert [record.getMessage() for record in caplog.records] == []


@contextmanager
def a_warning() -> Generator[None]:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        yield
        gc.collect()
    told = [str(warning.message) for warning in caught if issubclass(warning.category, ResourceWarning)]
    assert len(told) == 1, told
    assert "a session was dropped without being closed; use `async with" in told[0]


def threads_of_outrider() -> set[threading.Thread]:
    return {thread for thread in threading.enumerate() if thread.name.startswith("outrider-")}


async def wait_until(condition: Callable[[], bool]) -> None:
    with anyio.fail_after(20):
        # Nothing announces it.
        while not condition():  # noqa: ASYNC110
            await anyio.sleep(0.005)


async def drop_idle(path: str) -> weakref.ref[Session]:
    session = Session(cli_path=path, timeouts=QUICK)
    await session.connect()
    return weakref.ref(session)


async def drop_busy(path: str) -> weakref.ref[Session]:
    session = Session(cli_path=path, timeouts=QUICK)
    await session.connect()
    turn = await session.send("a")
    await anext(aiter(turn))
    return weakref.ref(session)


async def drop_with_a_handler_that_mentions_it(path: str) -> weakref.ref[Session]:
    session = Session(cli_path=path, timeouts=QUICK)

    async def handle(_: object) -> dict[str, Any]:
        return {"id": session.id}

    answering(can_use_tool=handle)(session)
    await session.connect()
    return weakref.ref(session)


async def drop_with_a_context_that_mentions_it(path: str) -> weakref.ref[Session]:
    from contextvars import ContextVar, copy_context

    variable: ContextVar[Session | None] = ContextVar("variable")
    session = Session(cli_path=path, timeouts=QUICK)
    await session.connect()
    variable.set(session)
    context = copy_context()
    await session.send("a")
    del context
    found = weakref.ref(session)
    variable.set(None)
    return found


async def drop_with_the_task_that_opened_it(path: str) -> weakref.ref[Session]:
    from contextvars import ContextVar

    variable: ContextVar[Session] = ContextVar("variable")
    found: list[weakref.ref[Session]] = []

    async def open_one() -> None:
        session = Session(cli_path=path, timeouts=QUICK)
        variable.set(session)
        await session.connect()
        found.append(weakref.ref(session))

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(open_one)
    return found[0]


@pytest.mark.requirement("F4")
@pytest.mark.anyio
@pytest.mark.parametrize(
    "drop",
    [
        drop_idle,
        drop_busy,
        drop_with_a_handler_that_mentions_it,
        drop_with_a_context_that_mentions_it,
        drop_with_the_task_that_opened_it,
    ],
)
async def test_a_dropped_session_ends_its_agent(
    drop: Callable[[str], Awaitable[weakref.ref[Session]]], program: Program
) -> None:
    with a_warning():
        dropped = await drop(program("works_on_and_on"))
        gc.collect()
        assert dropped() is None
    await wait_until(lambda: not own_processes())


@pytest.mark.anyio
async def test_a_session_that_is_dropped_without_a_transport_of_ours_closes_it() -> None:
    transport = Recording()

    async def open_and_drop() -> None:
        session = Session(transport=transport)
        await session.connect()

    async with agent_of(transport.agent):
        with a_warning():
            await open_and_drop()
        await wait_until(lambda: transport.is_closed)


@pytest.mark.anyio
async def test_a_session_that_is_dropped_with_much_unread_ends(program: Program) -> None:
    """Its reader has paused, and nobody is there who would have it go on."""
    before = threads_of_outrider()

    async def drop(path: str) -> None:
        session = Session(cli_path=path, timeouts=QUICK)
        await session.connect()
        connection = session._conversation.opened()
        connection.flow.budget = 1000
        await session.send("a")
        await wait_until(lambda: connection.reading.is_paused)

    with a_warning():
        await drop(program("talks_much"))
        # Until its next step, the loop of trio has what ended the last sleep, and so the frames that slept.
        await checkpoint()
    await wait_until(lambda: not own_processes())
    await wait_until(lambda: not threads_of_outrider() - before)


@pytest.mark.anyio
async def test_a_warning_that_is_an_error_does_not_keep_the_agent(program: Program) -> None:
    unraisable: list[type] = []
    hook, sys.unraisablehook = sys.unraisablehook, lambda error: unraisable.append(error.exc_type)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            await drop_idle(program("works_on_and_on"))
            gc.collect()
    finally:
        sys.unraisablehook = hook
    assert unraisable == [ResourceWarning]
    await wait_until(lambda: not own_processes())


@pytest.mark.anyio
async def test_a_session_that_is_collected_in_another_thread_ends(program: Program) -> None:
    box: list[Session] = [Session(cli_path=program("works_on_and_on"), timeouts=QUICK)]
    await box[0].connect()
    with a_warning():
        thread = threading.Thread(target=box.clear)
        thread.start()
        await wait_until(lambda: not thread.is_alive())
    await wait_until(lambda: not own_processes())


@pytest.mark.anyio
async def test_a_session_lives_as_long_as_a_turn_of_it(program: Program) -> None:
    async def begin() -> Any:
        session = Session(cli_path=program("answers"), timeouts=QUICK)
        await session.connect()
        return await session.send("a")

    with a_warning():
        turn = await begin()
        gc.collect()
        assert (await turn.result()).text == "done"
        del turn
    await wait_until(lambda: not own_processes())


# Loops that end.


def test_a_loop_that_ends_ends_its_sessions(
    anyio_backend: Any, program: Program, caplog: pytest.LogCaptureFixture
) -> None:
    kept: list[Session] = []

    async def main() -> None:
        session = Session(cli_path=program("works_on_and_on"), timeouts=QUICK)
        await session.connect()
        await session.send("a")
        kept.append(session)

    with no_complaints(caplog):
        run(anyio_backend, main)
        wait_for(lambda: not own_processes())
    assert kept[0].state is SessionState.CLOSED


def test_a_loop_that_ends_closes_transports_of_the_users(
    anyio_backend: Any, caplog: pytest.LogCaptureFixture
) -> None:
    kept: list[Session] = []
    transport = Recording()

    async def main() -> None:
        session = Session(transport=transport)
        async with agent_of(transport.agent):
            await session.connect()
        kept.append(session)

    with no_complaints(caplog):
        run(anyio_backend, main)
    assert transport.is_closed


def test_an_error_of_the_main_task_is_raised_as_it_is(anyio_backend: Any, program: Program) -> None:
    kept: list[Session] = []

    async def main() -> None:
        session = Session(cli_path=program("works_on_and_on"), timeouts=QUICK)
        await session.connect()
        kept.append(session)
        raise LookupError("mine")

    with pytest.raises(LookupError, match="mine"):
        run(anyio_backend, main)
    wait_for(lambda: not own_processes())


@pytest.mark.parametrize("how", ["del session", "asyncio.run(session.close())", "pass"])
def test_a_loop_that_is_closed_under_a_session(how: str, program: Program) -> None:
    """Neither cancelled nor run to the end: the worst that can be done to a loop."""
    code = f"""
        import asyncio, gc, os, time
        from outrider.session import Session
        from outrider.options import Timeouts
        session = Session(cli_path={program("works_on_and_on")!r}, timeouts=Timeouts(close=0.2))
        loop = asyncio.new_event_loop()
        loop.run_until_complete(session.connect())
        pid = session.pid
        loop.close()
        {how}
        gc.collect()
        print(pid, flush=True)
        while {how != "pass"} and os.path.exists(f"/proc/{{pid}}"):
            time.sleep(0.01)
    """
    assert not Path(f"/proc/{int(finished(code).stdout)}").exists()


def finished(code: str) -> subprocess.CompletedProcess[str]:
    """A program that ran to its end."""
    command = [sys.executable, "-c", textwrap.dedent(code)]
    done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=50)
    assert done.returncode == 0, done.stderr
    return done


@pytest.mark.anyio
async def test_a_cancelled_task_group_with_sessions_in_it_ends_them(program: Program) -> None:
    path = program("works_on_and_on")
    ready: list[int | None] = []

    async def use() -> None:
        async with Session(cli_path=path, timeouts=QUICK) as session:
            ready.append(session.pid)
            await session.ask("a")

    async with anyio.create_task_group() as tasks:
        for _ in range(5):
            tasks.start_soon(use)
        await wait_until(lambda: len(ready) == 5)
        tasks.cancel_scope.cancel()
    assert own_processes() == []


@pytest.mark.parametrize("how", ["asyncio.run(main())", "trio.run(main)", "loop.run_until_complete(main())"])
def test_an_interpreter_that_ends_with_an_open_session_leaves_nothing(how: str, program: Program) -> None:
    code = f"""
        import asyncio, sys, trio
        from outrider.session import Session
        from outrider.options import Timeouts
        kept = []
        async def main():
            session = Session(cli_path={program("works_on_and_on")!r}, timeouts=Timeouts(close=0.2))
            await session.connect()
            await session.send("a")
            kept.append(session)
            print(session.pid, flush=True)
        loop = asyncio.new_event_loop()
        {how}
    """
    done = finished(code)
    assert not Path(f"/proc/{int(done.stdout)}").exists()
    if "run_until_complete" not in how:
        assert done.stderr == ""


# Many.


@pytest.mark.anyio
async def test_hundreds_of_sessions_one_after_the_other_leave_nothing() -> None:
    def count() -> int:
        gc.collect()
        # Not all objects: what measures the tests keeps some for each thread.
        names = (str(type(thing).__module__) for thing in gc.get_objects())
        return sum(name.startswith(("anyio", "outrider")) for name in names)

    async def once() -> None:
        agent = OtherEnd()
        async with agent_of(agent), Session(transport=agent.transport) as session:
            await session.ask("a")

    for _ in range(20):
        await once()
    before, threads = count(), threading.active_count()
    with anyio.fail_after(50):
        for _ in range(150):
            await once()
    await anyio.wait_all_tasks_blocked()
    assert count() - before < 100
    assert threading.active_count() <= threads + 1


@pytest.mark.timeout(120)
@pytest.mark.anyio
@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_a_hundred_sessions_at_once(program: Program) -> None:
    path = program("answers")
    texts: list[str] = []

    async def use() -> None:
        async with Session(cli_path=path, timeouts=Timeouts(connect=100)) as session:
            texts.append((await session.ask("a")).text)

    async with anyio.create_task_group() as tasks:
        for _ in range(100):
            tasks.start_soon(use)
    assert texts == ["done"] * 100
    assert own_processes() == []


def test_eight_loops_in_eight_threads(anyio_backend: Any, program: Program) -> None:
    path = program("answers")
    texts: list[str] = []

    async def use() -> None:
        async with Session(cli_path=path, timeouts=QUICK) as session:
            texts.append((await session.ask("a")).text)

    async def main() -> None:
        async with anyio.create_task_group() as tasks:
            for _ in range(3):
                tasks.start_soon(use)

    threads = [threading.Thread(target=run, args=(anyio_backend, main)) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert texts == ["done"] * 24


def test_loops_one_after_the_other(anyio_backend: Any, program: Program) -> None:
    path = program("answers")

    async def main() -> str:
        async with Session(cli_path=path, timeouts=QUICK) as session:
            return (await session.ask("a")).text

    assert [run(anyio_backend, main) for _ in range(5)] == ["done"] * 5


def test_a_loop_that_ends_with_the_session_open_stores_what_came(
    anyio_backend: Any, caplog: pytest.LogCaptureFixture
) -> None:
    store = Told()
    held: list[Any] = []

    async def main() -> None:
        agent = OtherEnd()
        async with agent_of(agent):
            session = Session(transport=agent.transport, session_store=store)
            held.append(session)
            await session.connect()
            await session.ask("go")
            await agent.say(mirrored(1), mirrored(2))
            # The answer comes behind them.
            await session.request("mcp_status")

    run(anyio_backend, main)
    assert store.numbers() == [1, 2]
    assert store.is_free
    held.clear()
    gc.collect()
    assert not caplog.records

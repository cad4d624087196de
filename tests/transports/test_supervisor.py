"""One thread for all children: what is wrong with one of them is of no concern to the others."""

from __future__ import annotations

import asyncio
import logging
import os
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import AsyncExitStack

import anyio
import pytest

from outrider.command import Command
from outrider.errors import LaunchError, TransportClosed
from outrider.transports import ProcessTransport
from outrider.transports._process import child as _child
from outrider.transports._process import processes as _processes
from outrider.transports._process.child import Child
from outrider.transports._process.processes import ProcessTable, Stat, Tree, processes
from outrider.transports._process.supervisor import Supervisor, supervisor
from outrider.transports._process.wakeup import Poller
from tests.transports.conftest import DEADLINE, impatient, logged, own_processes, wait_for

pytestmark = pytest.mark.anyio

CAT = Command(("cat",))


def child_of(transport: ProcessTransport) -> Child:
    assert transport._child is not None
    return transport._child


def descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))  # noqa: PTH208


def own_threads() -> list[str]:
    """But for those of `outrider.sync` and of stores, which may be other tests'."""
    others = {"outrider-sync", "outrider-idle-connections"}
    names = [thread.name for thread in threading.enumerate()]
    return [name for name in names if name.startswith("outrider-") and name not in others]


async def test_a_child_takes_four_descriptors_and_no_thread() -> None:
    async with AsyncExitStack() as stack:
        first = await stack.enter_async_context(ProcessTransport(CAT))
        await first.send(b"one\n")
        assert await first.receive() == b"one\n"
        before, threads = descriptors(), own_threads()
        for _ in range(10):
            transport = await stack.enter_async_context(ProcessTransport(CAT))
            await transport.send(b"one\n")
            assert await transport.receive() == b"one\n"
        # One more is the event loop's own, which is made when somebody has to wait.
        assert descriptors() - before in (40, 41)
        assert own_threads() == threads == ["outrider-supervisor"]


async def test_the_thread_ends_with_the_last_child_and_is_there_for_the_next() -> None:
    for _ in range(3):
        async with ProcessTransport(CAT) as transport:
            await transport.send(b"one\n")
            assert await transport.receive() == b"one\n"
        assert transport.returncode == 0
        wait_for(lambda: not own_threads())


async def test_a_child_that_ends_while_it_is_registered_is_started(monkeypatch: pytest.MonkeyPatch) -> None:
    ended, register = threading.Event(), Poller.register
    release = Child.release

    def note(child: Child) -> None:
        release(child)
        ended.set()

    def register_slowly(poller: Poller, number: int, events: int) -> None:
        register(poller, number, events)
        if threading.current_thread() is threading.main_thread():
            # All of its descriptors would be closed by then, if the other thread did not wait.
            ended.wait(0.05)

    monkeypatch.setattr(Child, "release", note)
    monkeypatch.setattr(Poller, "register", register_slowly)
    async with ProcessTransport(Command(("true",))) as transport:
        assert await transport.receive() == b""


@pytest.mark.parametrize("name", ["serve", "descriptors", "_shut_down", "_finish", "_clean_up"])
async def test_an_error_of_one_child_is_its_own(
    name: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(*_: object) -> None:
        raise LookupError("a bug")

    async with ProcessTransport(CAT) as other, impatient("ignores_everything") as transport:
        await anext(transport.messages())
        monkeypatch.setattr(child_of(transport), name, fail)
        with anyio.fail_after(DEADLINE):
            await transport.close()
        assert "a bug" in logged(caplog)
        await other.send(b"still there\n")
        assert await other.receive() == b"still there\n"
    assert other.returncode == 0
    wait_for(lambda: not own_processes())
    caplog.clear()


async def test_a_round_that_fails_is_not_the_last(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """What was reported in it is not reported again by itself: the end of the input, the exit."""
    wait, failures = Poller.wait, iter(range(5))

    def wait_and_fail(self: Poller, seconds: float | None) -> list[int]:
        ready = wait(self, seconds)
        if next(failures, None) is not None:
            raise MemoryError
        return ready

    monkeypatch.setattr(Poller, "wait", wait_and_fail)
    async with ProcessTransport(CAT) as transport, ProcessTransport(CAT) as other:
        with anyio.fail_after(DEADLINE):
            await transport.close()
            await other.close()
    assert (transport.returncode, other.returncode) == (0, 0)
    assert logged(caplog).count("the supervisor failed, and goes on") == 5
    caplog.clear()


async def test_a_search_that_fails_counts_as_unclear(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    find = Tree.find

    def fail_once(self: Tree, numbers: list[int]) -> Iterator[tuple[int, int]]:
        monkeypatch.setattr(Tree, "find", find)
        raise LookupError("a bug")

    async with ProcessTransport(CAT) as transport:
        monkeypatch.setattr(Tree, "find", fail_once)
        with anyio.fail_after(DEADLINE):
            await transport.close()
    assert transport.returncode == 0
    assert "the search for processes failed" in logged(caplog)
    caplog.clear()


async def test_a_clean_up_that_blocks_holds_up_nobody_else() -> None:
    goes_on = threading.Event()
    blocked, other = ProcessTransport(CAT), ProcessTransport(CAT)
    await blocked.connect()
    await other.connect()
    blocked.on_cleanup(goes_on.wait)
    blocked.end()
    wait_for(lambda: blocked.returncode is not None)
    with anyio.fail_after(DEADLINE):
        await other.close()
    assert blocked.is_alive
    goes_on.set()
    with anyio.fail_after(DEADLINE):
        await blocked.close()


async def test_a_stderr_callback_that_blocks_holds_up_nobody_else(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_child, "CALLBACK_SECONDS", DEADLINE)
    goes_on = threading.Event()
    blocked = impatient("writes_to_stderr", "one\n", stderr=lambda _: goes_on.wait())
    other = ProcessTransport(CAT)
    await blocked.connect()
    await anext(blocked.messages())
    await other.connect()
    blocked.end()
    wait_for(lambda: blocked.returncode is not None)
    with anyio.fail_after(DEADLINE):
        await other.close()
    assert blocked.is_alive
    goes_on.set()
    with anyio.fail_after(DEADLINE):
        await blocked.close()


@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_to_close_300_looks_at_each_process_as_often_as_to_close_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Children that end at the same moment share a search, so a close takes no longer the more there are."""
    if not processes().has_tags:  # what they have started is looked for before they are ended, too
        pytest.skip("there are more searches, then")
    searches: list[int] = []
    looks: Counter[int] = Counter()
    find, stat_of = Tree.find, type(processes()).stat_of

    def count_searches(self: Tree, numbers: dict[int, object]) -> Iterator[tuple[int, int]]:
        searches.append(len(numbers))
        return find(self, numbers)

    def count_looks(self: ProcessTable, pid: int) -> Stat | None:
        looks[pid] += 1
        return stat_of(self, pid)

    owner = supervisor()
    transports = [ProcessTransport(CAT, grace=DEADLINE) for _ in range(300)]
    for transport in transports:
        await transport.connect()
    monkeypatch.setattr(owner, "_search_at", time.monotonic() + 3600)
    monkeypatch.setattr(Tree, "find", count_searches)
    monkeypatch.setattr(type(processes()), "stat_of", count_looks)
    for transport in transports:
        transport.end()
    wait_for(lambda: len(owner._searches) == 300)
    monkeypatch.setattr(owner, "_search_at", 0.0)
    owner.wake()
    with anyio.fail_after(DEADLINE):
        for transport in transports:
            await transport.close()
    assert searches == [300]
    # One that came and went meanwhile has others looked at again.
    assert max(looks.values()) <= _processes._LOOKS
    assert {looks[transport.pid or 0] for transport in transports} == {1}


async def test_without_a_thread_nothing_is_started(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patched:
        patched.setattr(threading.Thread, "start", refuse)
        with pytest.raises(LaunchError, match="no thread can be started"):
            await impatient("ignores_everything").connect()
        assert own_processes() == []
    assert supervisor().children() == []
    async with ProcessTransport(CAT) as transport:
        assert transport.is_ready


def test_a_supervisor_with_nothing_to_do_has_nothing_open() -> None:
    before = descriptors()
    Supervisor().wake()
    assert descriptors() == before


@pytest.fixture(autouse=True)
def errors_are_seen(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING)


@pytest.mark.parametrize("way", ["close", "exit"])
def test_a_program_without_anyio_of_its_own_is_woken(way: str) -> None:
    """What wakes a task is called by the loop, outside of any task: no library can ask where it runs."""

    async def main() -> None:
        transport = impatient("polite")
        await transport.connect()
        await transport.receive()
        reader = asyncio.ensure_future(transport.receive())
        await asyncio.sleep(0)
        if way == "close":
            await transport.close()
            with pytest.raises(TransportClosed):
                await reader
        else:
            await transport.end_input()
            assert await reader == b""

    failures: list[object] = []

    async def run() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda _, context: failures.append(context))
        await asyncio.wait_for(main(), DEADLINE)

    asyncio.run(run())
    assert failures == []

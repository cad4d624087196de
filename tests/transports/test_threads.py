"""The keeper for systems whose pipes can only block, with real children: what Windows has, but for the job.

A process group and the marker stand for the job here. All flags are sockets, as they are there.
"""

from __future__ import annotations

import gc
import os
import signal
import subprocess
import threading
from collections.abc import Awaitable, Callable
from typing import Any

import anyio
import pytest

from outrider.errors import ConnectionLost, LaunchError, ProcessExited, TransportClosed
from outrider.transports import ProcessTransport
from outrider.transports._process import spawn, supervisor, wakeup, windows
from outrider.transports._process.tree import Tree
from outrider.transports._process.watchdog import host
from outrider.transports._process.windows import ThreadedKeeper
from outrider.wire import MalformedLine
from tests.transports.conftest import impatient, own_processes, wait_for
from tests.transports.test_endings import everything, everything_until_closed, first, kinds

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.parametrize("anyio_backend", ["asyncio", "trio"]),
]

LIVE = [
    "polite",
    "ignores_everything",
    "is_stopped",
    "never_reads",
    "floods",
    "closes_stdout",
    "closes_stdin",
    "leaves_a_holder",
    "leaves_an_escaped_one",
    "leaves_a_shell_in_a_session",
    "writes_late",
]


class GroupJob:
    """What a job object does, as far as this system can."""

    def __init__(self, process: subprocess.Popen[bytes], marker: str) -> None:
        self._process = process
        self._tree = Tree(process.pid, marker)
        self.is_closed = False

    def count(self) -> int:
        return len(self._tree.members())

    def terminate(self) -> None:
        if self._process.returncode is None:
            self._tree.signal_group(signal.SIGKILL)
        self._tree.signal_others(signal.SIGKILL)

    def resident_bytes(self) -> int:
        return self._tree.resident_bytes()

    def close(self) -> None:
        self.terminate()
        self.is_closed = True


class GroupKeeper(ThreadedKeeper):
    def __init__(self, spawned: Any, command: Any, number: int, **options: Any) -> None:
        job = GroupJob(spawned.process, "=".join(host().marker(number)))
        super().__init__(spawned, command, number, job=job, **options)


@pytest.fixture(autouse=True)
def keeper_is_threaded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spawn, "SystemKeeper", GroupKeeper)
    monkeypatch.setattr(wakeup, "_open_pair", wakeup.socket_pair)
    monkeypatch.setattr(supervisor, "LEFT_SECONDS", 0.1)


def keeper_of(transport: ProcessTransport) -> Any:
    assert transport._link is not None
    return transport._link.keeper


# Ways to end. Each gives back when the call that ends it is over.


async def by_close(transport: ProcessTransport) -> None:
    await transport.close()


async def by_kill(transport: ProcessTransport) -> None:
    await transport.kill()


async def by_close_in_a_cancelled_scope(transport: ProcessTransport) -> None:
    with anyio.CancelScope() as scope:
        scope.cancel()
        await transport.close()


@pytest.mark.parametrize("way", [by_close, by_kill, by_close_in_a_cancelled_scope])
async def test_nothing_is_left(way: Callable[[ProcessTransport], Awaitable[None]]) -> None:
    async def one(name: str) -> None:
        transport = impatient(name)
        await transport.connect()
        await first(transport)
        with anyio.fail_after(transport.bound):
            await way(transport)
        assert not transport.is_alive
        assert transport.exit_error is None

    async with anyio.create_task_group() as tasks:
        for name in LIVE:
            tasks.start_soon(one, name)
    assert own_processes() == []


async def test_transports_that_nobody_has_any_more_end_their_children() -> None:
    async def start(name: str) -> ProcessTransport:
        transport = impatient(name)
        await transport.connect()
        await first(transport)
        return transport

    transports = [await start(name) for name in LIVE]
    assert len(own_processes()) >= len(transports)
    transports.clear()
    gc.collect()
    wait_for(lambda: not own_processes())


async def test_the_exit_is_noticed_while_a_grandchild_holds_stdout() -> None:
    async with impatient("leaves_a_holder") as transport:
        assert kinds(await everything(transport))[0] == "grandchild"
        assert transport.returncode == 0
        assert own_processes() == []


async def test_a_child_that_fails_at_once_is_reported_with_its_code_and_its_words() -> None:
    async with impatient("fails_at_once") as transport:
        with pytest.raises(ProcessExited) as raised:
            await everything(transport)
        assert (raised.value.returncode, raised.value.stderr_tail) == (3, "cannot go on")


async def test_half_a_line_comes_before_the_failure() -> None:
    async with impatient("writes_half_a_line") as transport:
        messages = transport.messages()
        assert kinds([await anext(messages)]) == ["ready"]
        half = await anext(messages)
        assert isinstance(half, MalformedLine)
        with pytest.raises(ProcessExited):
            await anext(messages)


async def test_a_child_that_closes_stdout_and_lives_on_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(supervisor, "SILENT_SECONDS", 0.05)
    async with impatient("closes_stdout") as transport:
        with pytest.raises(ConnectionLost, match="closed its stdout"):
            await everything(transport)
        assert own_processes() == []


async def test_all_that_is_written_while_closing_can_be_read_afterwards() -> None:
    transport = impatient("writes_late", grace=30.0)
    await transport.connect()
    await first(transport)
    await transport.close()
    assert kinds(await everything_until_closed(transport)) == ["late"] * 700
    assert transport.returncode == 0


async def test_what_is_read_late_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    is_looked_for = threading.Event()
    are_closed = GroupKeeper._are_pipes_closed

    def looked_for(keeper: GroupKeeper) -> bool:
        is_looked_for.set()
        return are_closed(keeper)

    def read_late(number: int) -> bytes:
        is_looked_for.wait()
        return os.read(number, 10)

    monkeypatch.setattr(GroupKeeper, "_are_pipes_closed", looked_for)
    monkeypatch.setattr(windows, "read", read_late)
    async with impatient("dies_by_signal") as transport:
        assert await transport.wait_exited() == -9
        assert await transport.receive() == b'{"type":"ready"}\n'


async def test_a_flood_while_closing_is_kept_up_to_a_limit_and_then_counted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(windows, "ENDING_LIMIT", 300_000)
    transport = impatient("floods", grace=0.2)
    await transport.connect()
    await first(transport)
    await transport.close()
    kept = await everything_until_closed(transport)
    # The limit, and what had been read before.
    assert 100 < len(kept) < 1200
    assert transport.dropped_bytes > 0


async def test_a_child_waits_while_nobody_reads() -> None:
    async with impatient("floods") as transport:
        await first(transport)
        output = keeper_of(transport).output
        wait_for(lambda: output._kept_size >= windows.BUFFER_LIMIT)
        # The thread is where it waits for room; whoever reads on gets all of it, in order.
        wait_for(lambda: len(output._changed._waiters) == 1)
        assert output._kept_size < windows.BUFFER_LIMIT + supervisor.READ_SIZE
        messages = transport.messages()
        for _ in range(1000):
            assert kinds([await anext(messages)]) == ["flood"]


async def test_what_many_writers_send_arrives_whole_and_in_the_order_of_each() -> None:
    seen: dict[int, list[int]] = {writer: [] for writer in range(50)}

    async def write(writer: int) -> None:
        for number in range(100):
            await transport.write({"type": "n", "writer": writer, "number": number, "text": "x" * 200})

    async with impatient("polite") as transport:
        messages = transport.messages()
        await anext(messages)
        async with anyio.create_task_group() as tasks:
            for writer in range(50):
                tasks.start_soon(write, writer)
            for _ in range(5000):
                raw = (await anext(messages)).raw
                seen[raw["writer"]].append(raw["number"])
    assert all(numbers == list(range(100)) for numbers in seen.values())


async def test_a_message_that_is_larger_than_all_buffers_goes_both_ways() -> None:
    async with impatient("polite", grace=30.0) as transport:
        messages = transport.messages()
        await anext(messages)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(transport.write, '{"type":"large","text":"' + "x" * 3_000_000 + '"}')
            await anyio.wait_all_tasks_blocked()
            tasks.start_soon(transport.end_input)
            assert len((await anext(messages)).raw["text"]) == 3_000_000
        assert await transport.wait_exited() == 0


async def test_what_was_taken_on_trust_goes_out_before_the_input_ends() -> None:
    async with impatient("polite", grace=30.0) as transport:
        await first(transport)
        for number in range(100):
            await transport.write({"type": "note", "number": number})
        await transport.end_input()
        assert [one.raw["number"] for one in await everything(transport)] == list(range(100))


async def test_a_write_that_is_cancelled_before_it_began_sends_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(supervisor, "FLUSH_SECONDS", 0.05)
    async with impatient("never_reads", write_timeout=0.05) as transport:
        await first(transport)
        with pytest.raises(ConnectionLost, match=r"has not read its input for 0\.05 s"):
            await transport.write("x" * 1_000_000)
        # The thread is stuck in the middle of it by now.
        waiting = keeper_of(transport).input.waiting_bytes
        with anyio.move_on_after(0.01):
            await transport.write("y" * 1000)
        assert keeper_of(transport).input.waiting_bytes == waiting
        assert transport.is_ready


async def test_the_end_of_the_input_waits_for_what_was_taken_on_trust(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(supervisor, "FLUSH_SECONDS", 0.05)
    async with impatient("never_reads") as transport:
        await first(transport)
        stdin = keeper_of(transport).input
        # The pipe takes the first, and the buffer the second.
        for _ in range(2):
            wait_for(lambda: not stdin.has_more)
            await transport.send(b"x" * windows.BUFFER_LIMIT)
        ticket = stdin.end("it ends")
        assert not ticket.flag.is_set
    assert (ticket.flag.is_set, ticket.was_sent) == (True, False)


async def test_a_child_that_has_closed_stdin_is_told_apart() -> None:
    async with impatient("closes_stdin") as transport:
        await first(transport)
        # The first is taken on trust.
        await transport.write("{}")
        wait_for(lambda: keeper_of(transport).input.is_broken)
        with pytest.raises(TransportClosed, match="closed its stdin"):
            await transport.write("{}")
        assert transport.returncode is None


async def test_the_job_is_asked_for_the_memory_and_given_back_at_the_end() -> None:
    async with impatient("polite") as transport:
        await first(transport)
        assert transport.resident_bytes() > 1_000_000
        assert not keeper_of(transport)._job.is_closed
    assert keeper_of(transport)._job.is_closed


@pytest.mark.parametrize("allowed", [0, 3])
async def test_when_a_thread_cannot_be_started_the_child_is_killed(
    allowed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    start = threading.Thread.start
    started: list[threading.Thread] = []

    def refuse(thread: threading.Thread) -> None:
        if thread.name.startswith("outrider-"):
            if len(started) == allowed:
                raise RuntimeError("can't start new thread")
            started.append(thread)
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", refuse)
    transport = impatient("ignores_everything")
    with pytest.raises(LaunchError, match="thread"):
        await transport.connect()
    assert own_processes() == []


async def test_a_flag_that_is_a_socket_can_be_waited_for_again_after_a_cancellation() -> None:
    flag = wakeup.Flag()
    for _ in range(3):
        with anyio.move_on_after(0.001):
            await flag.wait()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(flag.wait)
        tasks.start_soon(flag.wait)
        await anyio.wait_all_tasks_blocked()
        flag.set()
    assert flag.wait_blocking(0)
    # As many as waited at the same time, however often.
    assert len(flag._spare) == 2

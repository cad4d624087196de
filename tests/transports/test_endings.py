"""However a child behaves and however its end comes about: the caller is told, and nothing is left."""

from __future__ import annotations

import asyncio
import gc
import re
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import anyio
import pytest

from outrider.errors import ConnectionLost, ProcessExited, TransportClosed
from outrider.transports import ProcessTransport
from outrider.transports._process import child as _child
from outrider.transports._process import watchdog_main as _watchdog_main
from outrider.transports._process.pipes import ENDING_LIMIT
from outrider.wire import Arrival, ControlRequest, MalformedLine, UnknownMessage
from tests.proc import stat_of
from tests.transports.conftest import child, impatient, own_processes, wait_for

pytestmark = pytest.mark.anyio

LIVE = [
    "polite",
    "ignores_everything",
    "ignores_sigterm_only",
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


async def first(transport: ProcessTransport) -> Any:
    """The first message: the child is where it should be then."""
    return await anext(transport.messages())


async def everything(transport: ProcessTransport) -> list[Arrival]:
    return [message async for message in transport.messages()]


def kinds(arrivals: list[Arrival]) -> list[str]:
    return [one.type if isinstance(one, UnknownMessage) else type(one).__name__ for one in arrivals]


async def everything_until_closed(transport: ProcessTransport) -> list[Arrival]:
    received: list[Arrival] = []
    try:
        async for message in transport.messages():
            received.append(message)  # noqa: PERF401 - what came before the error counts
    except TransportClosed:
        return received
    raise AssertionError("reading from a closed transport has to be an error")


# Ways to end. Each gives back when the call that ends it is over.


async def by_close(transport: ProcessTransport) -> None:
    await transport.close()


async def by_kill(transport: ProcessTransport) -> None:
    await transport.kill()


async def by_leaving_the_block(transport: ProcessTransport) -> None:
    with pytest.raises(LookupError):
        async with transport:
            raise LookupError


async def by_close_in_a_cancelled_scope(transport: ProcessTransport) -> None:
    with anyio.CancelScope() as scope:
        scope.cancel()
        await transport.close()
    assert not transport.is_alive


async def by_a_deadline_during_close(transport: ProcessTransport) -> None:
    with anyio.move_on_after(0.01):
        await transport.close()
    assert not transport.is_alive


WAYS: list[Callable[[ProcessTransport], Awaitable[None]]] = [
    by_close,
    by_kill,
    by_leaving_the_block,
    by_close_in_a_cancelled_scope,
    by_a_deadline_during_close,
]


@pytest.mark.requirement("F2")
@pytest.mark.requirement("F3")
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("name", LIVE)
async def test_nothing_is_left(name: str, way: Callable[[ProcessTransport], Awaitable[None]]) -> None:
    transport = impatient(name)
    await transport.connect()
    await first(transport)
    with anyio.fail_after(transport.bound):
        await way(transport)
    assert own_processes() == []
    assert transport.exit_error is None or name == "leaves_a_holder"
    assert not transport.is_ready


@pytest.mark.parametrize("anyio_backend", [("asyncio", {"use_uvloop": False})], ids=["asyncio"])
@pytest.mark.parametrize("name", LIVE)
async def test_a_raw_cancel_of_close_lets_the_end_go_on(name: str) -> None:
    transport = impatient(name)
    await transport.connect()
    await first(transport)
    task = asyncio.ensure_future(transport.close())
    await asyncio.sleep(0)
    task.cancel()
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    wait_for(lambda: not transport.is_alive)
    assert own_processes() == []


@pytest.mark.requirement("F4")
@pytest.mark.parametrize("name", LIVE)
async def test_a_transport_that_nobody_has_any_more_ends_its_child(name: str) -> None:
    transport = impatient(name)
    await transport.connect()
    await first(transport)
    del transport
    gc.collect()
    wait_for(lambda: not own_processes())


@pytest.mark.parametrize("name", LIVE)
def test_a_loop_that_ends_with_the_child_running_leaves_nothing(name: str, anyio_backend: Any) -> None:
    async def start() -> ProcessTransport:
        transport = impatient(name)
        await transport.connect()
        await first(transport)
        return transport

    transport = anyio.run(start, backend=anyio_backend[0], backend_options=anyio_backend[1])
    transport.end()
    del transport
    wait_for(lambda: not own_processes())


# What the caller sees.


async def test_a_child_that_exits_at_once() -> None:
    async with impatient("exits_at_once") as transport:
        assert await everything(transport) == []
        assert transport.returncode == 0
        assert transport.exit_error is None
        assert not transport.is_ready


@pytest.mark.requirement("D6")
async def test_a_child_that_fails_at_once_is_reported_with_its_code_and_its_words() -> None:
    async with impatient("fails_at_once") as transport:
        with pytest.raises(ProcessExited) as raised:
            await everything(transport)
        assert raised.value.returncode == 3
        assert raised.value.stderr_tail == "cannot go on"
        assert str(transport.exit_error) == str(raised.value)
        with pytest.raises(ProcessExited):
            await transport.receive()


@pytest.mark.requirement("A12")
async def test_a_failure_is_known_when_nobody_reads() -> None:
    async with impatient("fails_at_once") as transport:
        assert await transport.wait_exited() == 3
        assert isinstance(transport.exit_error, ProcessExited)


async def test_a_clean_exit_with_a_request_open_is_an_end() -> None:
    async with impatient("exits_cleanly_when_asked") as transport:
        await first(transport)
        await transport.write(ControlRequest("1", {"subtype": "interrupt"}))
        assert await everything(transport) == []
        assert transport.returncode == 0


@pytest.mark.requirement("D8")
async def test_a_consumer_that_does_not_read_holds_the_child_up_and_loses_nothing() -> None:
    """Nothing is read ahead but what a pipe holds; the byte budget of a session comes on top of this."""
    async with impatient("counts", "20000") as transport:
        messages = transport.messages()
        await anext(messages)
        assert transport._child is not None
        # It is done only when somebody reads on: a megabyte does not fit into a pipe.
        assert not transport._child.has_exited
        numbers = [
            message.data["number"] async for message in messages if isinstance(message, UnknownMessage)
        ]
        assert numbers == list(range(1, 20000))


@pytest.mark.requirement("D6")
async def test_death_by_signal_is_a_failure() -> None:
    async with impatient("dies_by_signal") as transport:
        messages = transport.messages()
        assert kinds([await anext(messages)]) == ["ready"]
        with pytest.raises(ProcessExited) as raised:
            await anext(messages)
        assert (raised.value.returncode, raised.value.signal) == (-9, 9)


@pytest.mark.requirement("D6")
async def test_the_exit_is_noticed_while_a_grandchild_holds_stdout() -> None:
    async with impatient("leaves_a_holder") as transport:
        assert kinds(await everything(transport))[0] == "grandchild"
        assert transport.returncode == 0
        assert own_processes() == []


async def test_a_grandchild_that_lost_its_environment_is_found_by_its_session() -> None:
    async with impatient("leaves_one_without_environment") as transport:
        grandchild = (await first(transport)).data["pid"]
        wait_for(lambda: (Path("/proc") / str(grandchild) / "environ").read_bytes() == b"")
    left = stat_of(grandchild)
    assert left is None or not left.is_running


@pytest.mark.requirement("D6")
async def test_a_child_that_closes_stdout_and_lives_on_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_child, "SILENT_SECONDS", 0.05)
    async with impatient("closes_stdout") as transport:
        with pytest.raises(ConnectionLost, match="closed its stdout"):
            await everything(transport)
        assert own_processes() == []


async def test_half_a_line_comes_before_the_failure() -> None:
    async with impatient("writes_half_a_line") as transport:
        messages = transport.messages()
        await anext(messages)
        half = await anext(messages)
        assert isinstance(half, MalformedLine)
        assert half.line == b'{"type":"half","text":"and then'
        with pytest.raises(ProcessExited):
            await anext(messages)


async def test_all_that_is_written_after_the_input_ended_arrives() -> None:
    async with impatient("writes_late", grace=30.0) as transport:
        await first(transport)
        await transport.end_input()
        assert kinds(await everything(transport)) == ["late"] * 700


async def test_all_that_is_written_while_closing_can_be_read_afterwards() -> None:
    transport = impatient("writes_late", grace=30.0)
    await transport.connect()
    await first(transport)
    await transport.close()
    assert kinds(await everything_until_closed(transport)) == ["late"] * 700


async def test_a_reader_goes_on_while_another_task_closes() -> None:
    transport = impatient("writes_late", grace=30.0)
    await transport.connect()
    await first(transport)
    received: list[Arrival] = []

    async def read() -> None:
        received.extend(await everything_until_closed(transport))

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(read)
        await anyio.lowlevel.checkpoint()
        await transport.close()
    assert kinds(received) == ["late"] * 700


async def test_a_flood_while_closing_is_kept_up_to_a_limit_and_then_counted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from outrider.transports._process import pipes as _output

    monkeypatch.setattr(_output, "ENDING_LIMIT", 200_000)
    transport = impatient("floods", grace=0.3)
    await transport.connect()
    await first(transport)
    await transport.close()
    kept = await everything_until_closed(transport)
    assert 100 < len(kept) < 1000
    assert transport.dropped_bytes > 0


async def test_a_stopped_child_ends_with_sigterm() -> None:
    async with impatient("is_stopped", terminate=30.0) as transport:
        await first(transport)
    assert transport.returncode == -15


async def test_a_child_that_ignores_sigterm_is_killed() -> None:
    async with impatient("ignores_everything") as transport:
        await first(transport)
    assert transport.returncode == -9


@pytest.mark.requirement("H2")
async def test_a_child_that_traps_sigterm_ends_with_its_input() -> None:
    transport = ProcessTransport(child("ignores_sigterm_only"))
    await transport.connect()
    await first(transport)
    with anyio.fail_after(10):
        await transport.close()
    assert transport.returncode == 0


async def test_a_child_that_never_reads_does_not_block_for_ever() -> None:
    async with impatient("never_reads", write_timeout=0.05) as transport:
        await first(transport)
        with pytest.raises(ConnectionLost, match=r"has not read its input for 0\.05 s"):
            await transport.write("x" * 1_000_000)
        assert transport.is_ready


async def test_a_child_that_has_closed_stdin_is_told_apart() -> None:
    async with impatient("closes_stdin") as transport:
        await first(transport)
        with pytest.raises(TransportClosed, match="closed its stdin"):
            await transport.write("{}")
        assert transport.returncode is None


@pytest.mark.requirement("F2")
def test_the_bounds_are_those_of_the_documentation() -> None:
    page = (Path(__file__).parents[2] / "docs" / "endings.md").read_text(encoding="utf-8")
    table = page.partition("step by step")[2].partition("Each step ends")[0]
    bounds = [float(number) for number in re.findall(r"^\|[^|]*\| (\d+) s", table, re.MULTILINE)]
    transport = ProcessTransport(child("polite"))
    assert bounds == [
        _child.FLUSH_SECONDS,
        5.0,
        5.0,
        _child.LEFT_SECONDS,
        _child.KILL_SECONDS,
        _child.CALLBACK_SECONDS,
    ]
    assert sum(bounds) == transport.bound
    assert f"Added up it is {transport.bound:.0f} s" in page
    assert f"It has {_child.SILENT_SECONDS:.0f} s to exit" in page
    assert f"{ENDING_LIMIT // 2**20} MiB of it are kept" in page
    assert f"waits {_watchdog_main.POLITE_SECONDS:.0f} s" in page
    assert f"SIGKILL after {_watchdog_main.TERM_SECONDS:.0f} s" in page

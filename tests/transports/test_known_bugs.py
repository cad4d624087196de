"""Bugs that other SDKs had with processes, each as a test."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path

import anyio
import pytest

from outrider.errors import ProcessExited, TransportClosed
from outrider.transports import ProcessTransport
from tests.transports.conftest import child, impatient, own_processes, wait_for

pytestmark = pytest.mark.anyio


async def ready(name: str, *arguments: str, **options: object) -> ProcessTransport:
    transport = impatient(name, *arguments, **options)
    await transport.connect()
    await anext(transport.messages())
    return transport


async def test_cancelling_close_does_not_take_the_grace_period_away(tmp_path: Path) -> None:
    """A close that was cancelled went straight to SIGTERM, before the agent had written its session file."""
    saved = tmp_path / "saved"
    transport = await ready("saves_when_its_input_ends", str(saved), grace=30.0)
    with anyio.CancelScope() as scope:
        scope.cancel()
        await transport.close()
    assert saved.read_text() == "all of it"
    assert transport.returncode == 0


async def test_waiting_for_the_exit_has_a_bound() -> None:
    transport = await ready("ignores_everything")
    with anyio.fail_after(transport.bound):
        await transport.close()


async def test_stderr_that_nobody_asked_for_does_not_stall_the_child() -> None:
    async with ProcessTransport(child("fills_stderr")) as transport:
        await anext(transport.messages())


async def test_death_by_a_signal_is_no_success() -> None:
    transport = impatient("dies_by_signal")
    await transport.connect()
    assert await transport.wait_exited() == -9
    assert isinstance(transport.exit_error, ProcessExited)
    assert transport.exit_error.signal == 9
    await transport.close()


@pytest.mark.parametrize("anyio_backend", [("asyncio", {"use_uvloop": False})], ids=["asyncio"])
async def test_a_close_that_timed_out_leaks_neither_child_nor_descriptor() -> None:
    """`asyncio.wait_for` cancels what it waits for, in the middle of whatever that does."""
    transport = await ready("ignores_everything", grace=0.2)
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(transport.close(), 0.01)
    wait_for(lambda: not own_processes())


async def test_closing_from_inside_a_callback_is_no_deadlock() -> None:
    closed = threading.Event()
    box: list[ProcessTransport] = []

    def close(_: str) -> None:
        wait_for(lambda: bool(box))
        box[0].end()
        closed.set()

    transport = ProcessTransport(child("writes_to_stderr", "stop\n"), stderr=close)
    await transport.connect()
    box.append(transport)
    await transport.wait_exited()
    assert closed.is_set()
    box.clear()


async def test_a_second_connect_does_not_leave_the_first_child_behind() -> None:
    async with impatient("polite") as transport:
        await transport.connect()
        wait_for(lambda: own_processes() == [transport.pid])


async def test_output_in_the_last_moments_does_not_block_the_child_and_is_not_lost() -> None:
    """A reader that was stopped first left 64 KB in the pipe, and the agent stuck until it was killed."""
    transport = await ready("writes_late", grace=30.0)
    await transport.close()
    assert transport.returncode == 0
    size = 0
    try:
        while data := await transport.receive():
            size += len(data)
    except TransportClosed:
        pass
    assert size > 70_000


async def test_a_line_that_is_cut_by_the_end_does_not_hide_the_failure() -> None:
    transport = impatient("writes_half_a_line")
    await transport.connect()
    messages = transport.messages()
    assert [type(await anext(messages)).__name__ for _ in range(2)] == ["UnknownMessage", "MalformedLine"]
    with pytest.raises(ProcessExited):
        await anext(messages)
    await transport.close()

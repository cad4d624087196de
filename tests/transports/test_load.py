"""Many processes at once and one after the other: nothing adds up."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import anyio
import pytest

from outrider.command import FOLDER, Command, File
from outrider.transports import ProcessTransport
from outrider.wire import KeepAlive, UnknownMessage
from tests.transports.conftest import child, own_processes

# `cat` starts faster than Python, and what is tested here is not the child.
WITH_FILE = Command(("cat", f"{FOLDER}/greeting", "-"), files=(File("greeting", b'{"type":"hello"}\n'),))


@pytest.mark.timeout(120)
def test_two_hundred_at_once(anyio_backend: Any) -> None:
    async def main() -> None:
        everyone_is_there = anyio.Event()
        count = 0

        async def one() -> None:
            nonlocal count
            async with ProcessTransport(WITH_FILE, grace=60.0) as transport:
                await anext(transport.messages())
                count += 1
                if count == 200:
                    everyone_is_there.set()
                await everyone_is_there.wait()
                await transport.write(KeepAlive())
                await anext(transport.messages())

        async with anyio.create_task_group() as tasks:
            for _ in range(200):
                tasks.start_soon(one)
        assert own_processes() == []

    anyio.run(main, backend=anyio_backend[0], backend_options=anyio_backend[1])


@pytest.mark.timeout(120)
def test_hundreds_one_after_the_other_take_no_more_memory() -> None:
    """In a process of its own: what measures the tests has memory of its own for each thread."""
    command = [sys.executable, str(Path(__file__).with_name("hosts.py")), "starts_hundreds", "asyncio"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    objects, resident, descriptors, threads = map(int, done.stdout.split())
    assert objects < 40_000
    assert resident < 8_000_000
    assert descriptors == 0
    assert threads <= 0  # One that was idle may have ended.


@pytest.mark.anyio
async def test_a_message_of_64_megabytes_goes_both_ways() -> None:
    async with ProcessTransport(child("polite")) as transport:
        messages = transport.messages()
        await anext(messages)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(transport.write, '{"type":"large","text":"' + "x" * 64 * 1024 * 1024 + '"}')
            message = await anext(messages)
            assert isinstance(message, UnknownMessage)
            assert len(message.data["text"]) == 64 * 1024 * 1024

"""Many processes at once and one after the other: nothing adds up."""

from __future__ import annotations

import gc
import os
import tracemalloc
from typing import Any

import anyio
import pytest

from bridle.command import FOLDER, Command, File
from bridle.transports import ProcessTransport
from bridle.wire import KeepAlive, UnknownMessage
from tests.transports.conftest import child, own_processes

# `cat` starts faster than Python, and what is tested here is not the child.
ECHO = Command(("cat",))
WITH_FILE = Command(("cat", f"{FOLDER}/greeting", "-"), files=(File("greeting", b'{"type":"hello"}\n'),))


async def cycle(command: Command) -> None:
    async with ProcessTransport(command) as transport:
        await transport.write(KeepAlive())
        await anext(transport.messages())


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
@pytest.mark.parametrize("anyio_backend", [("asyncio", {}), ("trio", {})], ids=["asyncio", "trio"])
def test_a_thousand_one_after_the_other_take_no_more_memory(anyio_backend: Any) -> None:
    async def main() -> None:
        for _ in range(50):
            await cycle(ECHO)
        gc.collect()
        resident = _resident()
        tracemalloc.start()
        try:
            await cycle(ECHO)
            before = tracemalloc.get_traced_memory()[0]
            for _ in range(1000):
                await cycle(ECHO)
            gc.collect()
            after = tracemalloc.get_traced_memory()[0]
        finally:
            tracemalloc.stop()
        assert after - before < 100_000
        assert _resident() - resident < 16_000_000

    anyio.run(main, backend=anyio_backend[0], backend_options=anyio_backend[1])


def _resident() -> int:
    with open("/proc/self/statm") as file:  # noqa: PTH123
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


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

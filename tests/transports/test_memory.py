"""Two ends in memory that behave like a process and its host."""

from __future__ import annotations

import anyio
import pytest

from outrider.errors import TransportClosed
from outrider.transports import MemoryTransport, memory_pair
from outrider.wire import KeepAlive

pytestmark = pytest.mark.anyio


async def connected_pair() -> tuple[MemoryTransport, MemoryTransport]:
    pair = memory_pair()
    for end in pair:
        await end.connect()
    return pair


async def test_what_one_end_sends_the_other_receives() -> None:
    host, agent = await connected_pair()
    await host.write(KeepAlive())
    await agent.write(KeepAlive())
    assert await agent.receive() == b'{"type":"keep_alive"}\n'
    assert await anext(host.messages()) == KeepAlive()


async def test_of_tasks_that_send_the_first_is_heard_first() -> None:
    host, agent = await connected_pair()
    begun: list[bytes] = []

    async def send(number: int) -> None:
        begun.append(b"%d" % number)
        await host.send(begun[-1])

    # trio runs tasks that can go on in any order.
    async with anyio.create_task_group() as tasks:
        for number in range(20):
            tasks.start_soon(send, number)
    await host.end_input()
    heard = b""
    while part := await agent.receive():
        heard += part
    assert heard == b"".join(begun)


async def test_receiving_waits_for_what_is_sent() -> None:
    host, agent = await connected_pair()
    received: list[bytes] = []

    async def read() -> None:
        received.append(await agent.receive())

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(read)
        await anyio.wait_all_tasks_blocked()
        await host.send(b"x")
    assert received == [b"x"]


async def test_the_end_of_the_input_is_the_end_of_what_the_other_receives() -> None:
    host, agent = await connected_pair()
    await host.send(b"last")
    await host.end_input()
    assert not host.is_ready
    assert await agent.receive() == b"last"
    assert await agent.receive() == b""
    await agent.send(b"answer")
    assert await host.receive() == b"answer"
    with pytest.raises(TransportClosed, match="its input has been ended"):
        await host.send(b"x")


async def test_closing_one_end_ends_both_directions() -> None:
    host, agent = await connected_pair()
    await agent.send(b"on its way")
    await host.close()
    await host.close()
    assert await agent.receive() == b""
    with pytest.raises(TransportClosed, match="other end"):
        await agent.send(b"x")
    assert await host.receive() == b"on its way"
    with pytest.raises(TransportClosed):
        await host.receive()
    with pytest.raises(TransportClosed):
        await host.send(b"x")
    with pytest.raises(TransportClosed):
        await host.connect()


async def test_before_connect_nothing_works() -> None:
    host, _ = memory_pair()
    assert not host.is_ready
    with pytest.raises(TransportClosed, match="not connected yet"):
        await host.receive()
    with pytest.raises(TransportClosed, match="not connected yet"):
        await host.send(b"x")
    await host.end_input()

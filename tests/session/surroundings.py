"""What whole lives of sessions are played with: agents in memory, transports of a user's, and real programs.

Knows nothing of what the tests want to see.
"""

from __future__ import annotations

import sys
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, TypeAlias

import anyio
import anyio.lowlevel
import pytest

from outrider.options import Timeouts
from outrider.protocol import RequestReceived
from outrider.session import Session, background
from outrider.transports import MemoryTransport, Transport
from outrider.wire import UserMessage
from tests.session.other_end import (
    HostLeft,
    OtherEnd,
    answering,
    assistant,
    init,
    interrupted,
    result,
    stream_event,
)

CHILDREN = Path(__file__).with_name("children.py")
ASYNCIO = pytest.mark.parametrize(
    "anyio_backend",
    [("asyncio", {"use_uvloop": False}), ("asyncio", {"use_uvloop": True})],
    ids=["asyncio", "uvloop"],
)
QUICK = Timeouts(connect=10, close=0.2, terminate=0.2, interrupt=5)

Program: TypeAlias = Callable[[str], str]
"""Makes an executable of one of the children."""


def make_program(folder: Path, name: str) -> str:
    """An executable that runs one of the children."""
    path = folder / name
    path.write_text(f'#!/bin/sh\nexec {sys.executable} -I -S {CHILDREN} {name} "$@"\n')
    path.chmod(0o755)
    return str(path)


# Agents in memory.


async def begin_and_wait(agent: OtherEnd) -> None:
    """Begin each turn, end it when told to, and answer every request but `mcp_status`."""
    begun: list[str] = []
    while (event := await agent.next()) is not None:
        if isinstance(event, UserMessage):
            begun.append(event.uuid or "")
            await agent.say(init(*begun), stream_event("be"), assistant("begun"))
        elif isinstance(event, RequestReceived) and event.request.subtype != "mcp_status":
            await agent.answer(event)
            if event.request.subtype == "interrupt" and begun:
                await agent.say(interrupted(*begun))
                begun.clear()


async def answer_everything(agent: OtherEnd) -> None:
    while (event := await agent.next()) is not None:
        if isinstance(event, UserMessage):
            uuid = event.uuid or ""
            await agent.say(init(uuid), stream_event("do"), assistant("done"), result(uuid))
        elif isinstance(event, RequestReceived):
            await agent.answer(event)


@asynccontextmanager
async def agent_of(agent: OtherEnd) -> AsyncGenerator[None]:
    """An agent that answers, at the end that is given."""

    async def play() -> None:
        try:
            await agent.open()
            await answer_everything(agent)
        except HostLeft:
            pass

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(play)
        yield
        tasks.cancel_scope.cancel()


@asynccontextmanager
async def agent_at(play: Callable[[OtherEnd], Awaitable[object]]) -> AsyncGenerator[MemoryTransport]:
    """An agent that is played in a task of no scope of the test's: what the block raises is not wrapped."""
    agent, scope, done = OtherEnd(), anyio.CancelScope(), anyio.Event()

    async def play_on() -> None:
        try:
            with scope:
                await agent.open()
                await play(agent)
        except HostLeft:
            pass
        finally:
            done.set()

    await (await background()).start(play_on, name="agent")
    try:
        with anyio.fail_after(20):
            yield agent.transport
    finally:
        scope.cancel()
        with anyio.CancelScope(shield=True):
            await done.wait()


@asynccontextmanager
async def own_session(
    play: Callable[[OtherEnd], Awaitable[object]], **fields: Any
) -> AsyncGenerator[Session]:
    """A session with such an agent."""
    async with agent_at(play) as transport, Session(transport=transport, **fields) as session:
        yield session


# Sessions that answer.


def with_handler(transport: Transport, handler: Callable[[Any], Awaitable[Any]], **fields: Any) -> Session:
    """A session that answers questions of the agent."""
    session = Session(transport=transport, **fields)
    answering(can_use_tool=handler)(session)
    return session


# Transports.


class Recording(Transport):
    """A transport of a user's, plainly made: nothing in it is shielded from cancellation."""

    def __init__(self, fail_at: str = "", error: Exception | None = None) -> None:
        self.agent = OtherEnd()
        self._inner = self.agent.transport
        self._fail_at = fail_at
        self._error = error or OSError("it broke")
        self.was_connected = False
        self.is_closed = False
        self.closed = anyio.Event()
        """Set at the end of a `close` that nothing has cut short."""

    async def _step(self, name: str) -> None:
        if name == self._fail_at:
            raise self._error
        await anyio.lowlevel.checkpoint()

    async def connect(self) -> None:
        self.was_connected = True
        await self._step("connect")
        await self._inner.connect()

    async def receive(self) -> bytes:
        await self._step("receive")
        return await self._inner.receive()

    async def send(self, data: bytes) -> None:
        await self._step("send")
        await self._inner.send(data)

    async def end_input(self) -> None:
        await self._inner.end_input()

    async def close(self) -> None:
        self.is_closed = True
        await self._step("close")
        await self._inner.close()
        self.closed.set()

    @property
    def is_ready(self) -> bool:
        return self._inner.is_ready

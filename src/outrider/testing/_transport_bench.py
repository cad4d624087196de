"""Owns what is done to a transport to see whether it keeps a clause, with words for where that was.

What should come of it is in `_transport_clauses`.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, cast

import anyio

from outrider.errors import ConnectionLost
from outrider.testing._contract import Violation, expect, opened
from outrider.transports import Transport

if TYPE_CHECKING:
    from outrider.testing._contract import Make

__all__ = ["Bench", "together", "told_bytes"]


class Bench:
    """Makes transports, and knows what is being done to one."""

    def __init__(self, make: Make[Transport], deadline: float) -> None:
        self._make = make
        self.deadline = deadline
        self._doing = "it was made"

    def told(self) -> str:
        return f"while {self._doing}"

    def doing(self, what: str) -> None:
        self._doing = what

    @asynccontextmanager
    async def made(self) -> AsyncGenerator[Transport]:
        """A new one, that is closed at the end whatever happens."""
        self.doing("it was made")
        async with opened(self._make, _is_transport, "transport") as made:
            transport = cast("Transport", made)
            try:
                yield transport
            finally:
                with anyio.move_on_after(self.deadline, shield=True):
                    try:
                        await transport.close()
                    except Exception as error:  # noqa: BLE001 - not what this clause is about
                        self.doing(f"it was closed, which raised {error!r}")

    @asynccontextmanager
    async def connected(self) -> AsyncGenerator[Transport]:
        async with self.made() as transport:
            self.doing("`connect` was called")
            await transport.connect()
            yield transport

    async def receive(self, transport: Transport, size: int) -> bytes:
        """So many bytes, or those until the end."""
        received = bytearray()
        while len(received) < size:
            self.doing(f"{len(received)} of {size} bytes had been received")
            data = await transport.receive()
            expect(type(data) is bytes, f"`receive` gave {type(data).__name__}, not bytes")
            if not data:
                break
            received += data
        return bytes(received)

    async def echo(self, transport: Transport, *lines: bytes) -> None:
        """Send lines, and see that they come back. Sends and receives at the same time."""
        sent, received = b"".join(lines), [b""]

        async def send() -> None:
            for line in lines:
                await transport.send(line)

        async def receive() -> None:
            received[0] = await self.receive(transport, len(sent))

        await together(send, receive)
        expect(received[0] == sent, f"{told_bytes(sent)} was sent, and {told_bytes(received[0])} came back")

    async def lost(self, what: str, call: Awaitable[object]) -> ConnectionLost:
        """What a call raises that cannot succeed."""
        self.doing(what)
        try:
            given = await call
        except ConnectionLost as error:
            return error
        except Exception as error:
            raise Violation(f"{what}: {error!r}, which is no `ConnectionLost`") from error
        raise Violation(f"{what}: no error, and {given!r}")


def _is_transport(made: object) -> bool:
    return isinstance(made, Transport)


async def together(*functions: Callable[[], Coroutine[Any, Any, object]]) -> None:
    """Run these at the same time."""
    async with anyio.create_task_group() as tasks:
        for function in functions:
            tasks.start_soon(function)


def told_bytes(data: bytes) -> str:
    return f"{data[:40]!r}{f' … ({len(data)} bytes)' if len(data) > 40 else ''}"

"""Two transports that are connected to each other in memory, for tests and for agents that run in this
process.

Does not look into what it carries, and copies nothing.
"""

from __future__ import annotations

from collections import deque

import anyio
from anyio.lowlevel import cancel_shielded_checkpoint, checkpoint, checkpoint_if_cancelled

from outrider.errors import TransportClosed
from outrider.transports._transport import Transport


class MemoryTransport(Transport):
    """One end of a pair. What is sent at one end is received at the other, in the same pieces."""

    def __init__(self, inbound: Pipe, outbound: Pipe) -> None:
        self._inbound = inbound
        self._outbound = outbound
        self._is_connected = False
        self._is_closed = False

    async def connect(self) -> None:
        await checkpoint()
        if self._is_closed:
            raise TransportClosed("it has been closed")
        self._is_connected = True

    async def receive(self) -> bytes:
        """The next piece. Raises `TransportClosed` before `connect`, and after `close` when nothing is
        left."""
        self._check_connected()
        data = await self._inbound.take()
        if not data and self._is_closed:
            raise TransportClosed("it has been closed")
        return data

    async def send(self, data: bytes) -> None:
        """Send a piece. Raises `TransportClosed` that says why nothing can be sent."""
        await checkpoint_if_cancelled()
        self._check_connected()
        if self._is_closed:
            raise TransportClosed("it has been closed")
        if self._outbound.is_ended:
            why = (
                "the other end has been closed" if self._outbound.is_abandoned else "its input has been ended"
            )
            raise TransportClosed(why)
        if data:
            self._outbound.put(bytes(data))
        # Afterwards: of two tasks that send, the one that came first is heard first.
        await cancel_shielded_checkpoint()

    async def end_input(self) -> None:
        await checkpoint()
        if self._is_connected:
            self._outbound.end()

    async def close(self) -> None:
        """Close this end: the other one receives what is on its way, then the end, and can send no more."""
        self._is_closed = True
        self._outbound.end()
        self._inbound.is_abandoned = True
        self._inbound.end()
        await checkpoint()

    @property
    def is_ready(self) -> bool:
        return self._is_connected and not self._is_closed and not self._outbound.is_ended

    @property
    def is_received(self) -> bool:
        """Whether the other end has received all that was sent."""
        return self._outbound.is_empty

    def _check_connected(self) -> None:
        if not self._is_connected:
            why = "it has been closed" if self._is_closed else "it is not connected yet"
            raise TransportClosed(why)


class Pipe:
    """One direction."""

    def __init__(self) -> None:
        self._pieces: deque[bytes] = deque()
        self._arrival: anyio.Event | None = None
        self.is_ended = False
        self.is_abandoned = False
        """Whether it was ended by the side that reads."""

    @property
    def is_empty(self) -> bool:
        return not self._pieces

    def put(self, data: bytes) -> None:
        self._pieces.append(data)
        self._wake()

    def end(self) -> None:
        self.is_ended = True
        self._wake()

    async def take(self) -> bytes:
        await checkpoint()
        while not self._pieces:
            if self.is_ended:
                return b""
            if self._arrival is None:
                self._arrival = anyio.Event()
            await self._arrival.wait()
        return self._pieces.popleft()

    def _wake(self) -> None:
        if self._arrival is not None:
            self._arrival.set()
            self._arrival = None


def memory_pair() -> tuple[MemoryTransport, MemoryTransport]:
    """Two ends. Both have to be connected; they belong to one event loop."""
    there, back = Pipe(), Pipe()
    return MemoryTransport(back, there), MemoryTransport(there, back)

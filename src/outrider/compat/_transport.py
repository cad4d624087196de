"""Defines the reference SDK's `Transport`, and adapts one to the transport of a session.

Does not interpret messages.
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator
from typing import Any

import anyio

from outrider import transports
from outrider.wire import encode


class Transport(ABC):
    """Moves messages between Claude Code and this process: JSON lines out, objects in."""

    @abstractmethod
    async def connect(self) -> None:
        """Connect."""

    @abstractmethod
    async def write(self, data: str) -> None:
        """Send a line that ends with a newline."""

    @abstractmethod
    def read_messages(self) -> AsyncIterator[dict[str, Any]]:
        """Receive messages until the end."""

    @abstractmethod
    async def close(self) -> None:
        """Disconnect and free all resources."""

    @abstractmethod
    def is_ready(self) -> bool:
        """Whether it can be written to."""

    @abstractmethod
    async def end_input(self) -> None:
        """Close the input."""


def native(transport: Transport | transports.Transport) -> transports.Transport:
    """Adapt a transport, unless it is one of Outrider's."""
    return transport if isinstance(transport, transports.Transport) else _Adapted(transport)


class _Adapted(transports.Transport):
    """Adapts a reference transport to Outrider's."""

    def __init__(self, carrier: Transport) -> None:
        self._carrier = carrier
        self._messages: AsyncIterator[dict[str, Any]] | None = None
        self._is_connected = False
        self._is_closed = False
        self._end: Exception | None = None
        self._writing = anyio.Lock()
        self._closing = anyio.Lock()

    @property
    def agent_version(self) -> str | None:
        """The version of Claude Code behind it, if the transport says it."""
        return getattr(self._carrier, "agent_version", None)

    async def connect(self) -> None:
        if not self._is_connected:
            await self._carrier.connect()
            self._is_connected = True

    async def receive(self) -> bytes:
        if self._messages is None:
            self._messages = aiter(self._carrier.read_messages())
        try:
            if self._end is None:
                return encode(await anext(self._messages)) + b"\n"
        except StopAsyncIteration as end:
            self._end = end
        except Exception as error:  # noqa: BLE001 - whatever the user's code raises
            self._end = error
        if isinstance(self._end, StopAsyncIteration):
            return b""
        raise self._end

    async def send(self, data: bytes) -> None:
        async with self._writing:
            for line in data.splitlines():
                # As the reference spells it: fakes in tests look for `"type": "user"`.
                await self._carrier.write(json.dumps(json.loads(line)) + "\n")

    async def end_input(self) -> None:
        await self._carrier.end_input()

    async def close(self) -> None:
        # Once, as the reference does; a close that was cancelled does not count.
        async with self._closing:
            if self._is_closed:
                return
            try:
                await self._carrier.close()
            except Exception:
                self._is_closed = True
                raise
            self._is_closed = True

    @property
    def is_ready(self) -> bool:
        return self._carrier.is_ready()

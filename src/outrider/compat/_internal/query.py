"""Shim: what programs use of the reference SDK's `Query`, which `client._query` is."""

from __future__ import annotations

import weakref
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Any

import anyio

from outrider.compat._errors import CLIConnectionError, writing_to

if TYPE_CHECKING:
    from outrider import transports
    from outrider.compat._reading import MessageReader
    from outrider.compat._transport import Transport
    from outrider.compat.client import ClaudeSDKClient
    from outrider.session import Session

__all__ = ["Query"]


class _Frames(AsyncIterator[dict[str, Any]]):
    """Frames as Claude Code sends them."""

    # Not a generator: it can be left at any time, with nothing to clean up.
    def __init__(self, reader: MessageReader) -> None:
        self._reader = reader

    async def __anext__(self) -> dict[str, Any]:
        return (await anext(self._reader)).raw

    def receive_nowait(self) -> dict[str, Any]:
        """The next one. Raises `anyio.WouldBlock` if it is not there yet."""
        if (message := self._reader.take()) is None:
            raise anyio.WouldBlock
        return message.raw


class Query:
    """The conversation of a client that is connected."""

    def __init__(
        self, session: Session, client: ClaudeSDKClient, transport: Transport | transports.Transport
    ) -> None:
        self.transport = transport
        self._session = session
        # Not the client itself: one that is dropped ends, and must not wait for the garbage collector.
        self._client = weakref.ref(client)

    @property
    def _message_receive(self) -> _Frames:
        if (client := self._client()) is None:
            raise CLIConnectionError("Not connected. Call connect() first.")
        return _Frames(client._next_reader())  # pyright: ignore[reportPrivateUsage]

    def receive_messages(self) -> AsyncIterator[dict[str, Any]]:
        """Frames as Claude Code sends them, for `parse_message`."""
        return self._message_receive

    async def _send_control_request(self, request: dict[str, Any], timeout: float = 60.0) -> dict[str, Any]:
        """Ask Claude Code anything, as by `outrider.Session.request`; gives the answer as it came."""
        fields = {**request}
        with writing_to(self._session):
            return await self._session.request(str(fields.pop("subtype")), timeout=timeout, **fields)

    async def close(self) -> None:
        """End Claude Code."""
        await self._session.close()

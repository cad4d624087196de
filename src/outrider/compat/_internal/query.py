"""Shim: what programs use of the reference SDK's `Query`, which `client._query` is."""

from __future__ import annotations

import weakref
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Any

from outrider.compat._errors import CLIConnectionError

if TYPE_CHECKING:
    from outrider.compat.client import ClaudeSDKClient
    from outrider.session import Session
    from outrider.wire import Message

__all__ = ["Query"]


class _Frames(AsyncIterator[dict[str, Any]]):
    # Not a generator: it can be left at any time, with nothing to clean up.
    def __init__(self, messages: AsyncIterator[Message]) -> None:
        self._messages = messages

    async def __anext__(self) -> dict[str, Any]:
        return (await anext(self._messages)).raw


class Query:
    """The conversation of a client that is connected."""

    def __init__(self, session: Session, client: ClaudeSDKClient) -> None:
        self._session = session
        # Not the client itself: one that is dropped ends, and must not wait for the garbage collector.
        self._client = weakref.ref(client)

    def receive_messages(self) -> AsyncIterator[dict[str, Any]]:
        """Frames as Claude Code sends them, for `parse_message`."""
        if (client := self._client()) is None:
            raise CLIConnectionError("Not connected. Call connect() first.")
        return _Frames(client.receive_messages())

    async def close(self) -> None:
        """End Claude Code."""
        await self._session.close()

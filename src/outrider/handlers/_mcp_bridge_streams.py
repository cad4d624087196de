"""The two streams between a session and a server of the `mcp` library, in the form that the library reads.

What goes through them is not known here.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

import anyio
from anyio.lowlevel import checkpoint

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextvars import Context
    from types import TracebackType
    from typing import Self

    from outrider.handlers._mcp_bridge_library import Item

    _Waiting = tuple[object, Context, anyio.Event | None]


class _Stream:
    """What both directions have in common: they are entered, and closed by the library."""

    def __init__(self) -> None:
        self.is_closed = False

    def close(self) -> None:
        self.is_closed = True

    async def aclose(self) -> None:
        self.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class Inbox(_Stream):
    """What the agent says, for the library to read. It holds any number of messages."""

    def __init__(self) -> None:
        super().__init__()
        self._items: deque[_Waiting] = deque()
        self._more = anyio.Event()
        self.last_context: Context | None = None
        """That of the message read last: mcp 2 runs the handler in it."""

    def put(self, message: object, context: Context, *, after: anyio.Event | None = None) -> None:
        """Add a message; the library gets it when `after` has come. Nothing happens once it is closed."""
        if not self.is_closed:
            self._items.append((message, context, after))
            self._more.set()

    def close(self) -> None:
        """End the stream, after what is in it."""
        super().close()
        self._more.set()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> object:
        await checkpoint()
        while not self._items:
            if self.is_closed:
                raise StopAsyncIteration
            self._more = anyio.Event()
            await self._more.wait()
        message, context, after = self._items[0]
        if after is not None:
            await after.wait()
        self._items.popleft()
        self.last_context = context
        return message

    async def receive(self) -> object:
        try:
            return await anext(self)
        except StopAsyncIteration:
            raise anyio.EndOfStream from None


class Outbox(_Stream):
    """What the server says: each message is handed over at once."""

    def __init__(self, take: Callable[[Item], None]) -> None:
        super().__init__()
        self._take = take

    async def send(self, item: Item, /) -> None:
        if self.is_closed:
            raise anyio.ClosedResourceError
        self._take(item)
        # A server that only reports progress must not keep all others from running.
        await checkpoint()

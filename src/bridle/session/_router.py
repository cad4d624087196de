"""Who answers the agent's requests: one function for each kind of them.

Does not know what travels, nor when: the connection calls it, turns its failures into replies, and cancels it
when the agent takes a request back.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from bridle.wire import JsonObject, Value
    from bridle.wire.control import Ask

    Reply: TypeAlias = Value | JsonObject | None
    Handler: TypeAlias = Callable[[Ask], Awaitable[Reply]]


class Router:
    """Gives each request of the agent to the function that answers its kind.

    What has no function is refused as unsupported before it comes here, so that the agent never waits for
    nothing.
    """

    def __init__(self, handlers: Mapping[str, Handler] | None = None) -> None:
        self._handlers = dict(handlers or {})

    @property
    def serves(self) -> frozenset[str]:
        """The kinds of requests that are answered here, as the wire names them."""
        return frozenset(self._handlers)

    async def answer(self, request: Ask) -> Reply:
        """The reply to a request. Raises whatever its function raises."""
        return await self._handlers[request.subtype](request)

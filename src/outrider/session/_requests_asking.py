"""Owns `Asking`, the one way in which a session asks the agent something, and what `timeout` may be there.

Does not know any particular request.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from enum import Enum
from typing import Final, TypeAlias, TypeVar, overload

from outrider.options._tool_names import ANY_TOOL, ToolNames
from outrider.wire import JsonObject
from outrider.wire.control import Request

T = TypeVar("T")


class Unset(Enum):
    """The type of `UNSET`, which stands for an argument that is not given where None means something."""

    UNSET = "unset"

    def __repr__(self) -> str:
        return "UNSET"


UNSET: Final = Unset.UNSET

Timeout: TypeAlias = float | Unset | None
"""Seconds to wait for an answer. Unset: the session's `timeouts.control`. None: for ever."""


class Asking(ABC):
    """What can ask the agent."""

    @overload
    @abstractmethod
    async def request(self, request: Request[T], /, *, timeout: Timeout = UNSET) -> T: ...

    @overload
    @abstractmethod
    async def request(self, request: str, /, *, timeout: Timeout = UNSET, **fields: object) -> JsonObject: ...

    @abstractmethod
    async def request(
        self, request: Request[T] | str, /, *, timeout: Timeout = UNSET, **fields: object
    ) -> T | JsonObject:
        """Ask the agent anything, and wait for the answer.

        A text is the name of a request on the wire, with its fields as the agent spells them; the answer is
        then the payload as it came. Requests that have a class are in `outrider.wire.control`.

        Raises `RequestFailed` if the agent refuses, `Unsupported` if it does not know the request,
        `RequestTimedOut` if no answer comes, `ConnectionLost` if none can come any more. Cancelling the call
        takes the request back.
        """

    def _names_of_tools(self) -> ToolNames:
        """The tools that the session can have."""
        return ANY_TOOL

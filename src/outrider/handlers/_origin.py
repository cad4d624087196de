"""The seams between what answers the agent and the session that it answers for.

Only their shapes: the session makes the origins and links, servers make the endpoints.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from outrider.handlers._handled import Observe
    from outrider.options._tool_names import ToolNames
    from outrider.session import Session, Turn
    from outrider.wire import JsonObject


class Origin(Protocol):
    """Who asks: a session, and the turn that it was busy with."""

    @property
    def session(self) -> Session: ...

    @property
    def turn(self) -> Turn | None:
        """None before the first turn, and between turns."""
        ...

    @property
    def tool_names(self) -> ToolNames:
        """The tools that the session can have."""
        ...


class Link(Protocol):
    """The way from a server of this process to the agent."""

    def post(self, message: JsonObject) -> None:
        """Send a JSON-RPC message, from the event loop or from any thread. Never waits, never raises."""
        ...


class Endpoint(Protocol):
    """A server of this process, as one session sees it."""

    async def receive(self, message: JsonObject, origin: Origin) -> JsonObject | None:
        """Take a JSON-RPC message of the agent. Gives the reply; None for what gets none.

        Raises nothing but cancellation, which cancels what the message began.
        """
        ...

    async def run(self) -> None:
        """Do what has to be done for as long as the session runs."""
        ...


class Server(Protocol):
    """A server of this process. Many sessions may use one at the same time."""

    def open(self, link: Link, observe: Observe) -> Endpoint:
        """Begin to serve a session."""
        ...

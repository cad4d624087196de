"""What handlers get of a session: who asks, and the way from a server of this process to the agent.

Neither keeps the session.
"""

from __future__ import annotations

import logging
import weakref
from typing import TYPE_CHECKING

from anyio import from_thread

from outrider.errors import UsageError
from outrider.session._turn import Turn
from outrider.wire.control import SendMcpMessage

if TYPE_CHECKING:
    from collections.abc import Callable

    from outrider.handlers import Handlers, Origin
    from outrider.options._tool_names import ToolNames
    from outrider.session._connection import Connection
    from outrider.session._conversation import Conversation
    from outrider.session._session import Session
    from outrider.session._turn_state import TurnState
    from outrider.wire import JsonObject
    from outrider.wire.control import Elicitation

log = logging.getLogger("outrider.session")


class TurnOrigin:
    """A session, and the turn that it was busy with when it asked."""

    def __init__(self, conversation: Conversation, state: TurnState | None) -> None:
        self._conversation = weakref.ref(conversation)
        self._state = state

    @property
    def session(self) -> Session:
        return self._kept().session

    @property
    def turn(self) -> Turn | None:
        state = self._state
        return None if state is None else Turn(self._kept(), state, state.reading_position())

    @property
    def tool_names(self) -> ToolNames:
        return self._kept().handlers.tool_names()

    def _kept(self) -> Conversation:
        conversation = self._conversation()
        if conversation is None:
            raise UsageError("The session was dropped while it waited for this answer.")
        return conversation


class ServerLink:
    """Carries the messages of one server to the agent."""

    def __init__(
        self, connection: Connection, server: str, find_handlers: Callable[[], Handlers | None]
    ) -> None:
        self._connection = connection
        self._server = server
        self._find_handlers = find_handlers

    def post(self, message: JsonObject) -> None:
        """Send a JSON-RPC message, from the event loop or from any thread."""
        request = SendMcpMessage(self._server, message)
        try:
            if self._connection.is_here:
                self._connection.post(request)
            else:
                from_thread.run(self._post, request, token=self._connection.token)
        except Exception as error:  # noqa: BLE001 - the agent is gone, or the event loop; both end the call anyway
            log.debug("a message of the server %r could not be sent: %s", self._server, error)

    async def elicit(self, ask: Elicitation, origin: Origin) -> JsonObject:
        """Ask the user what the server wants to know, as if the agent did, which does not do it for servers
        of this process."""
        handlers = self._find_handlers()
        if handlers is None:
            raise UsageError("The session was dropped while a server waited for an answer.")
        return await handlers.answer(ask, origin)

    async def _post(self, request: SendMcpMessage) -> None:
        # In a task: tasks cannot be started from anywhere else.
        self._connection.post(request)

"""Answers what a server of this process asks the user, in place of the agent, which refuses to do so.

Does not ask the user itself: the session does, as for any other server.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final, Protocol, runtime_checkable

import anyio

from outrider.wire.control import INTERNAL_ERROR, Elicitation, JsonRpcError, JsonRpcSuccess

if TYPE_CHECKING:
    from outrider.handlers._origin import Origin
    from outrider.wire import Json, JsonObject
    from outrider.wire.control import JsonRpcReply, JsonRpcRequest

log = logging.getLogger("outrider.session")

ASKING: Final = "elicitation/create"
"""The request of a server that has a question."""


@runtime_checkable
class ElicitingLink(Protocol):
    """A `Link` by which a server can also ask the user."""

    def post(self, message: JsonObject) -> None: ...

    async def elicit(self, ask: Elicitation, origin: Origin) -> JsonObject:
        """What the user says, as the agent would be told it."""
        ...


class Questions:
    """The questions of one server that are open."""

    def __init__(self, server: str, link: ElicitingLink) -> None:
        self._server = server
        self._link = link
        self._open: dict[object, tuple[anyio.CancelScope, object]] = {}

    async def answer(self, request: JsonRpcRequest, origin: Origin, asker: object) -> JsonRpcReply | None:
        """Ask the user; None if the question was withdrawn. `asker` is the call that it belongs to."""
        scope = anyio.CancelScope()
        self._open[request.id] = scope, asker
        try:
            with scope:
                answer = await self._link.elicit(_elicitation(self._server, request.params), origin)
                return JsonRpcSuccess(request.id, answer)
        except Exception as error:
            log.exception("a question of the MCP server %r failed", self._server)
            return JsonRpcError(request.id, INTERNAL_ERROR, str(error) or type(error).__name__)
        finally:
            del self._open[request.id]
        return None

    def withdraw(self, id: Json) -> bool:
        """The server does not want to know any more. Gives whether the question was open."""
        if (question := self._open.get(id)) is None:
            return False
        question[0].cancel()
        return True

    def withdraw_all_of(self, asker: object) -> None:
        """Whoever asked has been cancelled."""
        for scope, known in self._open.values():
            if known is asker:
                scope.cancel()


def with_elicitation(params: Json) -> Json:
    """The parameters of the first request, for a client by which the user can be asked."""
    if not isinstance(params, dict):
        return params
    known = params.get("capabilities")
    asking: JsonObject = {"elicitation": {"form": {}, "url": {}}}
    return {**params, "capabilities": asking | (known if isinstance(known, dict) else {})}


def _elicitation(server: str, params: Json) -> Elicitation:
    """What a server asks, as the agent would put it."""
    given = params if isinstance(params, dict) else {}
    schema: Json = given.get("requestedSchema")
    properties: Json = schema.get("properties") if isinstance(schema, dict) else None
    asked: JsonObject = {
        "subtype": "elicitation",
        "mcp_server_name": server,
        "message": given.get("message"),
        "mode": given.get("mode") or "form",
        "url": given.get("url"),
        "elicitation_id": given.get("elicitationId"),
        "requested_schema": schema,
        "property_order": list(properties) if isinstance(properties, dict) else None,
    }
    return Elicitation.from_wire({key: value for key, value in asked.items() if value is not None})

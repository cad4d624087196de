"""Owns the questions of MCP servers to the user: hooks hear of them, and the host answers.

Only servers in programs of their own can ask: those of the host ask it without the agent.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, cast

from outrider.testing._simulator._world import Refused, Surroundings
from outrider.wire import JsonObject

if TYPE_CHECKING:
    from outrider.testing._simulator._hooks import Hooks

__all__ = ["elicit"]


class _WithHooks(Surroundings, Protocol):
    hooks: Hooks


async def elicit(run: Surroundings, server: str, params: JsonObject) -> JsonObject:
    """Put the question to the host. An error of the host counts as `cancel`."""
    hooks = cast("_WithHooks", run).hooks
    mode = str(params.get("mode") or "form")
    asked: JsonObject = {"mcp_server_name": server, "message": params.get("message"), "mode": mode}
    told: JsonObject = dict(asked)
    if mode == "url":
        asked |= {"url": params.get("url"), "elicitation_id": params.get("elicitationId")}
        told = dict(asked)
    else:
        schema = cast("JsonObject", params.get("requestedSchema") or {})
        told["requested_schema"] = schema
        order = list(cast("JsonObject", schema.get("properties") or {}))
        asked |= {"requested_schema": schema, "property_order": order}
    await hooks.fire("Elicitation", told, subject=server)
    try:
        answer = await run.ask("elicitation", asked)
    except Refused:
        answer = {"action": "cancel"}
    result: JsonObject = {"action": answer.get("action", "cancel")}
    if "content" in answer:
        result["content"] = answer["content"]
    given: JsonObject = {"mcp_server_name": server}
    if mode == "url":
        given["elicitation_id"] = params.get("elicitationId")
    await hooks.fire("ElicitationResult", {**given, "mode": mode, **result}, subject=server)
    if mode == "url" and result["action"] == "accept":
        run.say(
            {
                "type": "system",
                "subtype": "elicitation_complete",
                "mcp_server_name": server,
                "elicitation_id": params.get("elicitationId"),
            }
        )
    return result

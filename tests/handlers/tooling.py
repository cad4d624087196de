"""A server of tools without a session, for the tests of this folder.

Does not check anything.
"""

from __future__ import annotations

from itertools import count
from typing import Any

from outrider.handlers import Handled, ToolHandled, ToolServer
from outrider.handlers._tools.server import ToolEndpoint
from outrider.wire import JsonObject
from tests.handlers.hooking import Unlimited


class Asker(Unlimited):
    """A session and a turn, as far as tools look at them."""

    session: Any = "the session"
    turn: Any = "the turn"
    tool_names: Any = "the names"


class Post:
    """Where messages of a server to the agent end up."""

    def __init__(self) -> None:
        self.messages: list[JsonObject] = []

    def post(self, message: JsonObject) -> None:
        self.messages.append(message)


class Serving:
    """A server in one session: what the agent asks, what it is told, and what is reported."""

    def __init__(
        self, *tools: Any, server: ToolServer | None = None, link: Post | None = None, **how: Any
    ) -> None:
        self.server = ToolServer("s", tools, **how) if server is None else server
        self.link = Post() if link is None else link
        self.reports: list[ToolHandled] = []
        self.endpoint: ToolEndpoint = self.server.open(self.link, self._report)
        self._ids = count(1)

    def _report(self, event: Handled) -> None:
        assert isinstance(event, ToolHandled)
        self.reports.append(event)

    async def receive(self, message: JsonObject) -> JsonObject | None:
        return await self.endpoint.receive({"jsonrpc": "2.0", **message}, Asker())

    async def ask(self, method: str, params: Any = None, id: Any = None) -> JsonObject:
        """The reply to a request."""
        id = next(self._ids) if id is None else id
        reply = await self.receive({"id": id, "method": method, "params": params})
        assert reply is not None
        assert (reply["jsonrpc"], reply["id"]) == ("2.0", id)
        return reply

    async def call(self, name: str, arguments: Any = None, /, id: Any = None, **given: Any) -> JsonObject:
        """The result of a call."""
        params = {
            "name": name,
            "arguments": given if arguments is None else arguments,
            "_meta": {"claudecode/toolUseId": f"toolu_{name}", "progressToken": 5},
        }
        result = (await self.ask("tools/call", params, id))["result"]
        assert isinstance(result, dict)
        return result

    async def take_back(self, id: Any) -> None:
        """As the agent does on interrupt."""
        message = {"method": "notifications/cancelled", "params": {"requestId": id, "reason": "interrupt"}}
        assert await self.receive(message) is None


def text_of(result: JsonObject) -> str:
    """All that a result says."""
    return "\n".join(part["text"] for part in result["content"])


def named(value: object) -> str:
    """The value in the name of a test."""
    kind, shown = type(value).__name__, ascii(value)
    return kind if " at 0x" in shown or " id='" in shown else f"{kind} {shown[:80]}"

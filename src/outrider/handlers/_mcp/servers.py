"""Holds the MCP servers of this process that a session offers to its agent, by name.

`_tools.server` and `bridge` handle the messages.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, cast

from outrider.errors import OptionsError
from outrider.options import SdkServer
from outrider.wire.control import INVALID_PARAMS, JsonRpcError, JsonRpcRequest, McpReply, jsonrpc_from_wire

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from outrider.handlers._router import AgentLink, Endpoint, Observe, Origin, Server
    from outrider.options import McpServer, Options
    from outrider.wire import JsonObject
    from outrider.wire.control import McpMessage

OWN_TOOLS: Final = "tools"
"""The name of the server of those tools that a session was given as `tools`: the model knows them as
`mcp__tools__…`."""


def own_servers(options: Options) -> dict[str, SdkServer]:
    """The servers of this process in the options, and one for their `tools`."""
    servers: Mapping[str, McpServer] = {} if isinstance(options.mcp_servers, str) else options.mcp_servers
    own = {name: server for name, server in servers.items() if isinstance(server, SdkServer)}
    if given := own_tools(options):
        if OWN_TOOLS in servers:
            raise OptionsError(
                f"`mcp_servers` has a server of the name {OWN_TOOLS!r}, which is that of your own `tools`",
                hint="Give that server another name.",
            )
        from outrider.handlers._tools.server import ToolServer

        server = ToolServer(OWN_TOOLS, given)
        own[OWN_TOOLS] = SdkServer(name=OWN_TOOLS, instance=server)
    return own


def own_tools(options: Options) -> list[Callable[..., object]]:
    """The functions among the `tools` of the options."""
    tools = () if options.tools is None or isinstance(options.tools, str) else options.tools
    return cast("list[Callable[..., object]]", [tool for tool in tools if not isinstance(tool, str)])


def as_server(name: str, given: SdkServer) -> Server:
    """The server that the user supplied. Raises `OptionsError` if it is not a server."""
    instance = given.instance
    if callable(getattr(instance, "open", None)) and not isinstance(instance, type):
        return cast("Server", instance)
    from outrider.handlers._mcp.bridge import as_bridge

    return as_bridge(name, instance, always_load=bool(given.always_load))


class Servers:
    """The servers of one session."""

    def __init__(self, given: dict[str, SdkServer], observe: Observe) -> None:
        """Raises `OptionsError` for anything that is not a server."""
        self._given: dict[str, SdkServer] = {}
        self._servers: dict[str, Server] = {}
        self._endpoints: dict[str, Endpoint] = {}
        self._observe = observe
        for name, server in given.items():
            self.put(name, server)

    @property
    def given(self) -> dict[str, SdkServer]:
        """The servers as supplied, by name."""
        return dict(self._given)

    def put(self, name: str, given: SdkServer) -> None:
        """Add a server. Raises `OptionsError` if it is not a server."""
        self._servers[name] = as_server(name, given)
        self._given[name] = given

    def open(self, name: str, link: AgentLink) -> Endpoint:
        """Start to serve one of them; its endpoint has to be run meanwhile."""
        endpoint = self._endpoints[name] = self._servers[name].open(link, self._observe)
        return endpoint

    def remove(self, name: str) -> None:
        """Remove a server."""
        del self._given[name], self._servers[name]
        self._endpoints.pop(name, None)

    async def answer(self, ask: McpMessage, origin: Origin) -> JsonObject:
        """Pass a message to its server, and return the reply."""
        endpoint = self._endpoints.get(ask.server_name)
        reply = _unknown(ask) if endpoint is None else await endpoint.receive(ask.message, origin)
        return {"mcp_response": _NO_REPLY if reply is None else reply}


_NO_REPLY: Final = McpReply.to_notification().mcp_response


def _unknown(ask: McpMessage) -> JsonObject | None:
    message = jsonrpc_from_wire(ask.message)
    if not isinstance(message, JsonRpcRequest):
        return None
    return JsonRpcError(message.id, INVALID_PARAMS, f"no server {ask.server_name!r} runs here").to_wire()

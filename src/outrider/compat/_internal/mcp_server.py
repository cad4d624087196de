"""Shim: a server of tools as one of the `mcp` library, for programs that look at its request handlers."""

from __future__ import annotations

from importlib import import_module
from itertools import count
from typing import TYPE_CHECKING, Any, cast

if TYPE_CHECKING:
    from outrider.handlers import AgentLink, Handled, Origin, ToolServer


class _Nowhere:
    """A link to no agent."""

    def post(self, message: dict[str, Any]) -> None:
        """Nothing to notify."""


def server_of_library(server: ToolServer) -> object:
    """A server of the library, with the tools of the given one. Raises `ImportError` without the library."""
    library: Any = import_module("mcp.server.lowlevel").Server
    types: Any = import_module("mcp.types")
    endpoint = server.open(cast("AgentLink", _Nowhere()), _forget)
    numbers = count()

    async def ask(method: str, **params: object) -> object:
        request = {"jsonrpc": "2.0", "id": next(numbers), "method": method, "params": params}
        reply = await endpoint.receive(request, cast("Origin", None))
        return (reply or {})["result"]

    async def list_tools(*_: object) -> Any:  # noqa: ANN401 - a class of the library
        return types.ListToolsResult.model_validate(await ask("tools/list"))

    async def call_tool(name: str, arguments: dict[str, Any] | None) -> Any:  # noqa: ANN401 - as before
        result = await ask("tools/call", name=name, arguments=arguments or {})
        return types.CallToolResult.model_validate(result)

    if hasattr(types, "jsonrpc_message_adapter"):

        async def on_call(_: object, params: Any) -> Any:  # noqa: ANN401 - a class of the library
            return await call_tool(params.name, params.arguments)

        return library(server.name, version=server.version, on_list_tools=list_tools, on_call_tool=on_call)

    async def listed() -> Any:  # noqa: ANN401 - as before
        return (await list_tools()).tools

    # Before 2.0.
    made = library(server.name, version=server.version)
    made.list_tools()(listed)
    made.call_tool(validate_input=False)(call_tool)
    return made


def _forget(_: Handled) -> None:
    pass

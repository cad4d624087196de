"""The MCP servers of a run: handshakes, tools, calls, and status. Only those of the host are connected to."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final, Literal, TypeAlias, cast

import anyio

from outrider.testing._simulator.frames import (
    Outcome,
    Refused,
    ToolSpec,
    as_list,
    as_object,
    covers_tool,
    no_such_tool,
    pick,
)
from outrider.wire import JsonObject

if TYPE_CHECKING:
    from anyio.abc import TaskStatus

    from outrider.testing._simulator.frames import ToolCall
    from outrider.testing._simulator.run import Run

Status: TypeAlias = Literal["pending", "connected", "failed", "disabled"]

_PROTOCOL: Final = "2025-11-25"
_LIST_DELAYS: Final = (0.25, 0.5, 1.0, 0.0)
"""How long the program waits before it asks for the tools again; the last is for nothing."""
_HINTS: Final = {"readOnlyHint": "readOnly", "destructiveHint": "destructive", "openWorldHint": "openWorld"}


class _ServerError(Exception):
    """The server cannot be reached, or answers with an error. The text is for the model."""


class _Server:
    """One server. `bring_up` connects it; `settled` is set when that came to an end."""

    def __init__(self, run: Run, name: str, config: JsonObject) -> None:
        self.name, self.config = name, config
        self.status: Status = "pending"
        self.error: str | None = None
        self.info: JsonObject = {}
        self.tools: list[JsonObject] = []
        """As the server reports them."""
        self.settled = anyio.Event()
        self._run = run
        self._next_id = 0

    @property
    def transport(self) -> str:
        return str(self.config.get("type") or "stdio")

    @property
    def is_of_host(self) -> bool:
        return self.transport == "sdk"

    @property
    def source(self) -> str:
        return "sdk" if self.is_of_host else "dynamic"

    def declared(self, field: str) -> JsonObject:
        """What a field of the host's `initialize` says of this server."""
        return as_object(as_object((self._run.initialize or {}).get(field)).get(self.name))

    # Connecting.

    async def bring_up(
        self, released: anyio.Event, *, task_status: TaskStatus[None] = anyio.TASK_STATUS_IGNORED
    ) -> None:
        """Connect, and list the tools once `released` is set. Raises nothing but cancellation."""
        task_status.started()
        self.status, self.error = "pending", None
        try:
            await self._connect(released)
        except _ServerError as error:
            await released.wait()
            self.status, self.error = "failed", str(error)
        finally:
            self.settled.set()

    async def _connect(self, released: anyio.Event) -> None:
        if not self.is_of_host:
            text = "The simulated agent starts no MCP servers. Give the results of their tools in the script"
            raise _ServerError(f'{text}: `use_tool("mcp__{_plain(self.name)}__…", tool_result="…")`.')
        if manifest := self.declared("sdkMcpServerManifests"):
            self._next_id = 2
            self._greeted(as_object(manifest.get("initializeResult")))
            self.tools = _objects(as_object(manifest.get("toolsListResult")).get("tools"))
            return
        try:
            answer = await self._greet()
        except _ServerError:
            await released.wait()
            answer = await self._greet()
        await released.wait()
        await self.send({"jsonrpc": "2.0", "method": "notifications/initialized"})
        self._greeted(answer)
        for delay in _LIST_DELAYS if "tools" in as_object(answer.get("capabilities")) else ():
            try:
                await self.list_tools()
                return
            except _ServerError:
                await anyio.sleep(delay)

    async def _greet(self) -> JsonObject:
        self._next_id = 0
        client: JsonObject = {
            "name": "claude-code",
            "title": "Claude Code",
            "websiteUrl": "https://claude.com/claude-code",
            "version": self._run.version,
        }
        given: JsonObject = {"protocolVersion": _PROTOCOL, "capabilities": {}, "clientInfo": client}
        seconds = self._timeout("MCP_TIMEOUT", 30.0)
        with anyio.move_on_after(seconds):
            return await self._request("initialize", given)
        text = f'MCP server "{self.name}" connection timed out after {int(seconds * 1000)}ms'
        raise _ServerError(text)

    def _timeout(self, variable: str, default: float) -> float:
        """Seconds, from a variable that counts milliseconds."""
        try:
            return float(self._run.environment[variable]) / 1000
        except (KeyError, ValueError):
            return default

    def _greeted(self, answer: JsonObject) -> None:
        self.info = as_object(answer.get("serverInfo"))
        self.status = "connected"

    async def list_tools(self) -> None:
        """Ask for the tools. Raises `_ServerError`."""
        page = await self._request("tools/list", None)
        found = _objects(page.get("tools"))
        while page.get("nextCursor"):
            page = await self._request("tools/list", {"cursor": page["nextCursor"]})
            found += _objects(page.get("tools"))
        self.tools = found

    def shut(self, status: Status) -> None:
        """End the connection."""
        self.status, self.error, self.tools = status, None, []
        self.settled = anyio.Event()

    # Requests.

    async def _request(self, method: str, params: JsonObject | None) -> JsonObject:
        """Ask for something. Raises `_ServerError`, also for an error that the server answers with."""
        message: JsonObject = {"method": method, "jsonrpc": "2.0", "id": self._next_id}
        if params is not None:
            message = {"method": method, "params": params, **message}
        self._next_id += 1
        answer = as_object((await self.send(message)).get("mcp_response"))
        if answer.get("id") != message["id"]:
            # The program waits on for the right one.
            await anyio.sleep_forever()
        if isinstance(answer.get("error"), dict):
            raise _ServerError(str(as_object(answer["error"]).get("message")))
        return as_object(answer.get("result"))

    async def send(self, message: JsonObject) -> JsonObject:
        try:
            return await self._run.ask("mcp_message", {"server_name": self.name, "message": message})
        except Refused as refusal:
            raise _ServerError(str(refusal)) from None

    async def call(self, tool: str, arguments: JsonObject, call_id: str | None) -> JsonObject:
        """Call a tool. Raises `_ServerError`. The server is notified of an abandoned call."""
        number = self._next_id
        meta: JsonObject = {} if call_id is None else {"claudecode/toolUseId": call_id}
        meta["progressToken"] = number
        params: JsonObject = {"name": tool, "arguments": arguments, "_meta": meta}
        own = self.declared("sdkMcpServerConfigs").get("timeout", self.config.get("timeout"))
        seconds = self._timeout("MCP_TOOL_TIMEOUT", math.inf)
        seconds = own / 1000 if isinstance(own, int | float) else seconds
        try:
            with anyio.move_on_after(seconds):
                return await self._request("tools/call", params)
        except anyio.get_cancelled_exc_class():
            self._give_up(number, "AbortError: remote-cancel")
            raise
        self._give_up(number, "SdkError: Request timed out")
        raise _ServerError(f'MCP server "{self.name}" tool "{tool}" timed out after {int(seconds)}s')

    def _give_up(self, number: int, reason: str) -> None:
        params: JsonObject = {"requestId": number, "reason": reason}
        message: JsonObject = {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": params}

        async def tell() -> None:
            try:
                await self.send(message)
            except _ServerError as error:
                self._run.complain(str(error))

        self._run.tasks.start_soon(tell, name="simulated MCP client")

    def report(self, *, brief: bool) -> JsonObject:
        """The entry for `system/init`, or the longer one of `mcp_status`."""
        made: JsonObject = {"name": self.name, "status": self.status}
        if brief:
            return {**made, "source": self.source}
        if self.status == "connected":
            made["serverInfo"] = self.info
        if not self.is_of_host:
            made |= {"error": self.error, "config": {"type": self.transport, **self.config}}
        made |= {
            "transport": self.transport,
            "scope": "user" if self.status == "failed" and self.is_of_host else "dynamic",
            "source": self.source,
        }
        if self.status == "connected":
            made["tools"] = [{"name": tool.get("name"), "annotations": _hints(tool)} for tool in self.tools]
        return made


def _hints(tool: JsonObject) -> JsonObject:
    given = as_object(tool.get("annotations"))
    return {short: True for name, short in _HINTS.items() if given.get(name) is True}


class McpServers:
    def __init__(self, run: Run) -> None:
        self._run = run
        self._servers: dict[str, _Server] = {}
        self._dynamic: set[str] = set()
        """Those of `mcp_set_servers`."""
        self._released = anyio.Event()
        self._unhandled: set[anyio.Event] = set()
        """What servers of the host have sent by themselves; set when it is done."""

    # Connecting.

    async def start(self) -> None:
        """Begin with each server: what precedes the answer to `initialize`. A second time, with new ones."""
        declared: dict[str, JsonObject] = dict(self._run.invocation.mcp_config)
        for name in as_list((self._run.initialize or {}).get("sdkMcpServers")):
            if str(name) not in declared:
                declared[str(name)] = {"type": "sdk", "name": name}
                self._dynamic.add(str(name))
        for name, config in declared.items():
            if name not in self._servers:
                # Each has asked when it is started, before the host gets its answer.
                await self._run.tasks.start(self._add(name, config).bring_up, self._released)

    async def settle(self) -> None:
        """Finish the handshakes. A turn waits for it."""
        self._released.set()
        for server in list(self._servers.values()):
            if server.status != "disabled":
                await server.settled.wait()
        for listed in list(self._unhandled):
            await listed.wait()

    def _add(self, name: str, config: JsonObject) -> _Server:
        self._servers[name] = _Server(self._run, name, config)
        return self._servers[name]

    # Tools.

    def specs(self) -> list[ToolSpec]:
        """The tools of the connected servers, by name, but for those that a rule takes away."""
        found = [
            ToolSpec(
                name=_full_name(server, tool),
                description=str(tool.get("description") or ""),
                input_schema=as_object(tool.get("inputSchema")),
                annotations=as_object(tool.get("annotations")),
            )
            for server, tool in self._tools()
        ]
        return sorted(found, key=lambda spec: spec.name)

    def _tools(self) -> Iterator[tuple[_Server, JsonObject]]:
        found = self._run.invocation
        rules = [*found.disallowed_tools, *as_list(as_object(found.settings.get("permissions")).get("deny"))]
        for server in self._servers.values():
            for tool in server.tools if server.status == "connected" else ():
                if not any(covers_tool(str(rule), _full_name(server, tool)) for rule in rules):
                    yield server, tool

    def _find(self, name: str) -> tuple[_Server, JsonObject] | None:
        return next((found for found in self._tools() if _full_name(*found) == name), None)

    def owns(self, name: str) -> bool:
        """Whether a connected server has the tool."""
        return self._find(name) is not None

    async def call(self, call: ToolCall) -> Outcome:
        found = self._find(call.name)
        if found is None:
            return no_such_tool(call.name)
        server, tool = found
        try:
            result = await server.call(str(tool["name"]), call.input, call.id)
        except _ServerError as error:
            return Outcome(content=str(error), is_error=True, detail=f"Error: {error}")
        folder = self._run.transcript_path.with_suffix("") / "tool-results"
        return Outcome.of_server(result, tool=call.name, server=server.name, folder=folder)

    def tool_meta(self, call: ToolCall) -> JsonObject | None:
        """The entry of `tool_use_meta` for a call; None for other tools."""
        if not call.name.startswith("mcp__"):
            return None
        found = self._find(call.name)
        if found is None:
            return {"id": call.id, "display_name": shown_name(call.name.split("__", 2)[-1])}
        server, tool = found
        return {
            "id": call.id,
            "display_name": str(
                as_object(tool.get("annotations")).get("title") or shown_name(_plain(str(tool["name"])))
            ),
            "server_display_name": str(server.info.get("title") or server.info.get("name") or server.name),
            "tool_name": tool["name"],
        }

    def is_configured(self, name: str) -> bool:
        """Whether it is the tool of a server that is not started, which the script may give results of."""
        others = (server for server in self._servers.values() if not server.is_of_host)
        return any(name.startswith(f"mcp__{_plain(server.name)}__") for server in others)

    def is_of_host(self, name: str) -> bool:
        """Whether it is the tool of a server of the host."""
        own = (server for server in self._servers.values() if server.is_of_host)
        return any(name.startswith(f"mcp__{_plain(server.name)}__") for server in own)

    def server_of(self, name: str) -> JsonObject | None:
        """`mcp_server` of a question about the tool; None for other tools."""
        found = self._find(name)
        return None if found is None else {"name": found[0].name, "source": found[0].source}

    def policy(self, name: str) -> str | None:
        """What the host said in `initialize` of asking for the tool."""
        if (found := self._find(name)) is None:
            return None
        tools = _objects(found[0].declared("sdkMcpServerConfigs").get("tools"))
        policies = {tool.get("name"): tool.get("permission_policy") for tool in tools}
        return cast("str | None", policies.get(found[1]["name"]))

    def statuses(self, *, brief: bool = False) -> list[JsonObject]:
        """Of each server: for `mcp_status`, or, `brief`, for `system/init`."""
        return [server.report(brief=brief) for server in self._servers.values()]

    # Requests of the host.

    async def set_servers(self, servers: JsonObject) -> JsonObject:
        """Replace the servers of earlier such requests. The answer to `mcp_set_servers`."""
        errors: JsonObject = {}
        removed = [name for name in self._servers if name in self._dynamic and name not in servers]
        for name in removed:
            self._servers.pop(name).shut("disabled")
        added: list[str] = []
        for name, given in servers.items():
            config, known = as_object(given), self._servers.get(name)
            if known is not None:
                if name not in self._dynamic or known.config == config:
                    continue
                known.shut("disabled")
            added.append(name)
            server = self._add(name, config)
            await self._connect(server)
            if server.status == "failed":
                errors[name] = server.error or "Failed to connect"
        self._dynamic = set(servers) & {*self._dynamic, *added}
        return {"added": added, "removed": removed, "errors": errors}

    async def _connect(self, server: _Server) -> None:
        released = anyio.Event()
        released.set()
        self._run.tasks.start_soon(server.bring_up, released, name=f"simulated MCP {server.name}")
        await server.settled.wait()

    async def toggle(self, name: str, enabled: bool) -> None:
        """Raises `LookupError` with the program's text for an unknown server."""
        server = self._server(name)
        if not enabled:
            server.shut("disabled")
        elif server.status == "disabled":
            await self._connect(server)

    async def reconnect(self, name: str) -> None:
        """Raises `LookupError` with the program's text for an unknown server, or one that fails."""
        server = self._server(name)
        server.shut("pending")
        await self._connect(server)
        if server.status == "failed":
            raise LookupError(server.error)

    def _server(self, name: str) -> _Server:
        if name not in self._servers:
            raise LookupError(f"Server not found: {name}")
        return self._servers[name]

    async def call_tool(self, name: str, arguments: JsonObject) -> JsonObject:
        """The answer to `mcp_call`. Raises `LookupError` with the program's text."""
        found = self._find(name)
        if found is None:
            server = name.split("__", 2)[1] if name.count("__") > 1 else name
            if any(_plain(other) == server for other in self._servers):
                raise LookupError(f"No such tool available: {name}")
            raise LookupError(f"MCP server not connected: {server}")
        try:
            result = await found[0].call(str(found[1]["name"]), arguments, None)
        except _ServerError as error:
            raise LookupError(str(error)) from None
        return {"content": [], **pick(result, "content", "isError", "structuredContent", "_meta")}

    # Messages of servers.

    def receive(self, name: str, message: JsonObject) -> None:
        """Take a message that a server of the host sent by itself (`mcp_message` of the host)."""
        server = self._servers.get(name)
        if server is not None:
            # Noted before anything else: a prompt that follows is to find the tools as they are then.
            answered = anyio.Event()
            self._unhandled.add(answered)
            self._run.tasks.start_soon(self._reply, server, message, answered, name="simulated MCP client")

    async def _reply(self, server: _Server, message: JsonObject, answered: anyio.Event) -> None:
        try:
            if (answer := await self._answer(server, message)) is not None:
                await server.send(answer)
        except _ServerError as error:
            self._run.complain(str(error))
        finally:
            self._unhandled.discard(answered)
            answered.set()

    async def _answer(self, server: _Server, message: JsonObject) -> JsonObject | None:
        """What a message of a server is answered with; None if it wants no answer."""
        method, id = message.get("method"), message.get("id")
        if method == "notifications/tools/list_changed":
            try:
                await server.list_tools()
            except _ServerError as error:
                self._run.complain(str(error))
        if id is None:
            return None
        if method == "ping":
            return {"result": {}, "jsonrpc": "2.0", "id": id}
        return {"jsonrpc": "2.0", "id": id, "error": {"code": -32601, "message": "Method not found"}}


def _plain(name: str) -> str:
    return re.sub(r"[^A-Za-z0-9_-]", "_", name)


def _objects(value: object) -> list[JsonObject]:
    return [as_object(each) for each in as_list(value)]


def _full_name(server: _Server, tool: JsonObject) -> str:
    return f"mcp__{_plain(server.name)}__{_plain(str(tool.get('name')))}"


def shown_name(name: str) -> str:
    """The name of a tool as a user is shown it."""
    return re.sub(r"\b[a-z]", lambda found: found[0].upper(), name.replace("_", " "))

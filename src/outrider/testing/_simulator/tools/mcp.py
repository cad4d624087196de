"""Owns the MCP servers of a run: their handshakes, their tools, calls of these, and what the host is told.

Servers of the host are reached through `mcp_message`, others as programs over stdio. Servers over HTTP, and
those of `.mcp.json` files, are not simulated.
"""

from __future__ import annotations

import json
import math
import os
import re
import signal
from collections.abc import Iterator, Sequence
from subprocess import DEVNULL
from typing import TYPE_CHECKING, Final, Literal, Protocol, TypeAlias, cast

import anyio
import msgspec
from anyio.streams.buffered import BufferedByteReceiveStream

from outrider.testing._simulator.context import (
    Outcome,
    Refused,
    RunContext,
    ToolSpec,
    as_list,
    as_object,
    covers_tool,
    no_such_tool,
    pick,
)
from outrider.wire import JsonObject

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from anyio.abc import Process, TaskGroup, TaskStatus

    from outrider.testing._simulator.context import ToolCall
    from outrider.testing._simulator.host.hooks import Hooks

__all__ = ["McpServers", "shown_name"]

Status: TypeAlias = Literal["pending", "connected", "failed", "disabled"]

_PROTOCOL: Final = "2025-11-25"
_TRANSPORTS: Final = ("sdk", "stdio", "http", "sse", "ws")
_LIST_DELAYS: Final = (0.25, 0.5, 1.0, None)
_HINTS: Final = {"readOnlyHint": "readOnly", "destructiveHint": "destructive", "openWorldHint": "openWorld"}
_MOST_BYTES: Final = 64 * 1024 * 1024


class WireError(Exception):
    """The server cannot be reached, or is gone. The text is for the model."""


class _HostWire:
    """To a server in the host, through `mcp_message`."""

    def __init__(self, run: RunContext, name: str) -> None:
        self._run, self._name = run, name

    async def exchange(self, message: JsonObject) -> JsonObject:
        response = as_object((await self.send(message)).get("mcp_response"))
        if response.get("id") != message["id"]:
            # The program waits on for the right one.
            await anyio.sleep_forever()
        return response

    async def send(self, message: JsonObject) -> JsonObject:
        try:
            return await self._run.ask("mcp_message", {"server_name": self._name, "message": message})
        except Refused as refusal:
            raise WireError(str(refusal)) from None

    async def close(self) -> None:
        pass


class _ProcessWire:
    """To a program of its own, a line for each message."""

    def __init__(
        self, process: Process, on_message: Callable[[JsonObject], Awaitable[JsonObject | None]]
    ) -> None:
        self._process, self._on_message = process, on_message
        self._waiting: dict[object, tuple[anyio.Event, list[JsonObject]]] = {}
        self._is_over = False
        self._sending = anyio.Lock()

    async def exchange(self, message: JsonObject) -> JsonObject:
        """Send a request and wait for its answer: forever, if none comes. Raises `WireError`."""
        done, answers = anyio.Event(), list[JsonObject]()
        self._waiting[message["id"]] = (done, answers)
        try:
            if not self._is_over:
                await self.send(message)
                await done.wait()
        finally:
            self._waiting.pop(message["id"], None)
        if not answers:
            raise WireError("Connection closed")
        return answers[0]

    async def send(self, message: JsonObject) -> None:
        assert self._process.stdin is not None
        try:
            async with self._sending:
                await self._process.stdin.send(json.dumps(message).encode() + b"\n")
        except (anyio.BrokenResourceError, anyio.ClosedResourceError, OSError):
            raise WireError("Connection closed") from None

    async def read(self) -> None:
        assert self._process.stdout is not None
        stream = BufferedByteReceiveStream(self._process.stdout)
        ends = (anyio.IncompleteRead, anyio.ClosedResourceError, anyio.BrokenResourceError, anyio.EndOfStream)
        try:
            async with anyio.create_task_group() as tasks:
                while True:
                    line = await stream.receive_until(b"\n", _MOST_BYTES)
                    try:
                        self._take(as_object(json.loads(line)), tasks)
                    except ValueError:
                        continue
        except* ends:
            pass
        finally:
            self._is_over = True
            for done, _ in self._waiting.values():
                done.set()

    def _take(self, message: JsonObject, tasks: TaskGroup) -> None:
        if "method" in message:
            tasks.start_soon(self._serve, message)
        elif (waiting := self._waiting.get(message.get("id"))) is not None:
            waiting[1].append(message)
            waiting[0].set()

    async def _serve(self, message: JsonObject) -> None:
        if (answer := await self._on_message(message)) is not None:
            try:
                await self.send(answer)
            except WireError:
                self._is_over = True

    async def close(self) -> None:
        self._is_over = True
        with anyio.CancelScope(shield=True):
            try:
                if self._process.returncode is None:
                    os.killpg(self._process.pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
            await self._process.aclose()


class _Tool(msgspec.Struct, frozen=True):
    """A tool as its server tells of it."""

    name: str
    description: str
    input_schema: JsonObject
    annotations: JsonObject

    @property
    def hints(self) -> JsonObject:
        return {short: True for name, short in _HINTS.items() if self.annotations.get(name) is True}


class _Server:
    """One server. `bring_up` connects it; `settled` is set when that came to an end."""

    def __init__(self, servers: McpServers, run: _Context, name: str, config: JsonObject) -> None:
        self.name, self.config = name, config
        self.status: Status = "pending"
        self.error: str | None = None
        self.info: JsonObject = {}
        self.tools: list[_Tool] = []
        self.settled = anyio.Event()
        self.questions: set[anyio.CancelScope] = set()
        """What the server asks the user at the moment."""
        self._servers, self._run = servers, run
        self._wire: _HostWire | _ProcessWire | None = None
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

    def told(self, field: str) -> JsonObject:
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
        except WireError as error:
            await released.wait()
            self.status, self.error = "failed", str(error)
            await self._drop()
        finally:
            self.settled.set()

    async def _connect(self, released: anyio.Event) -> None:
        if manifest := self.told("sdkMcpServerManifests"):
            self._wire = _HostWire(self._run, self.name)
            self._next_id = 2
            self._greeted(as_object(manifest.get("initializeResult")))
            self._take_tools(as_list(as_object(manifest.get("toolsListResult")).get("tools")))
            return
        try:
            answer = await self._greet()
        except WireError:
            if not self.is_of_host:
                raise
            await released.wait()
            answer = await self._greet()
        await released.wait()
        await self._notify("notifications/initialized")
        self._greeted(answer)
        if "tools" not in as_object(answer.get("capabilities")):
            return
        for delay in _LIST_DELAYS:
            try:
                await self.list_tools()
                return
            except WireError:
                if delay is not None:
                    await anyio.sleep(delay)

    async def _greet(self) -> JsonObject:
        self._next_id = 0
        self._wire = await self._open()
        client: JsonObject = {
            "name": "claude-code",
            "title": "Claude Code",
            "websiteUrl": "https://claude.com/claude-code",
            "version": self._run.version,
        }
        able: JsonObject = {} if self.is_of_host else {"roots": {}, "elicitation": {"form": {}, "url": {}}}
        given: JsonObject = {"protocolVersion": _PROTOCOL, "capabilities": able, "clientInfo": client}
        seconds = self._timeout("MCP_TIMEOUT", 30.0)
        with anyio.move_on_after(seconds):
            return await self.request("initialize", given)
        await self._drop()
        raise WireError(f'MCP server "{self.name}" connection timed out after {int(seconds * 1000)}ms')

    async def _open(self) -> _HostWire | _ProcessWire:
        if self.is_of_host:
            return _HostWire(self._run, self.name)
        if self.transport != "stdio":
            raise WireError(f"The simulated agent does not speak to MCP servers over {self.transport}")
        command = [str(word) for word in (self.config.get("command", ""), *as_list(self.config.get("args")))]
        try:
            process = await anyio.open_process(
                command,
                cwd=self._run.cwd,
                env={**self._run.environment, **as_object(self.config.get("env"))},
                stderr=DEVNULL,
                start_new_session=True,
            )
        except FileNotFoundError:
            raise WireError("ENOENT: no such file or directory, posix_spawn 'stdio'") from None
        except OSError as error:
            raise WireError(str(error)) from None
        wire = _ProcessWire(process, lambda message: self._servers.answer(self, message))
        self._run.tasks.start_soon(wire.read, name="simulated MCP client")
        return wire

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
        """Ask for the tools. Raises `WireError`."""
        found: list[object] = []
        params: JsonObject | None = None
        while True:
            page = await self.request("tools/list", params)
            found += as_list(page.get("tools"))
            if not page.get("nextCursor"):
                break
            params = {"cursor": page["nextCursor"]}
        self._take_tools(found)

    def _take_tools(self, tools: Sequence[object]) -> None:
        self.tools = [
            _Tool(
                str(tool.get("name")),
                str(tool.get("description") or ""),
                as_object(tool.get("inputSchema")),
                as_object(tool.get("annotations")),
            )
            for tool in map(as_object, tools)
        ]

    async def shut(self, status: Status) -> None:
        """End the connection."""
        await self._drop()
        self.status, self.error, self.tools = status, None, []
        self.settled = anyio.Event()

    async def _drop(self) -> None:
        wire, self._wire = self._wire, None
        if wire is not None:
            await wire.close()

    # Requests.

    async def request(self, method: str, params: JsonObject | None) -> JsonObject:
        """Ask for something. Raises `WireError`, also for an error that the server answers with."""
        message: JsonObject = {"method": method, "jsonrpc": "2.0", "id": self._next_id}
        if params is not None:
            message = {"method": method, "params": params, **message}
        self._next_id += 1
        if self._wire is None:
            raise WireError("Not connected")
        answer = await self._wire.exchange(message)
        if isinstance(answer.get("error"), dict):
            raise WireError(str(as_object(answer["error"]).get("message")))
        return as_object(answer.get("result"))

    async def _notify(self, method: str, params: JsonObject | None = None) -> None:
        message: JsonObject = {"jsonrpc": "2.0", "method": method}
        await self.send(message if params is None else {**message, "params": params})

    async def send(self, message: JsonObject) -> None:
        """Send what has no answer."""
        if self._wire is not None:
            await self._wire.send(message)

    async def call(self, tool: _Tool, arguments: JsonObject, call_id: str | None) -> JsonObject:
        """Call a tool. Raises `WireError`. The server is told of a call that is given up."""
        number = self._next_id
        meta: JsonObject = {} if call_id is None else {"claudecode/toolUseId": call_id}
        meta["progressToken"] = number
        params: JsonObject = {"name": tool.name, "arguments": arguments, "_meta": meta}
        own = self.told("sdkMcpServerConfigs").get("timeout", self.config.get("timeout"))
        seconds = self._timeout("MCP_TOOL_TIMEOUT", math.inf)
        seconds = own / 1000 if isinstance(own, int | float) else seconds
        try:
            with anyio.move_on_after(seconds):
                return await self.request("tools/call", params)
        except anyio.get_cancelled_exc_class():
            self._give_up(number, "AbortError: remote-cancel")
            raise
        self._give_up(number, "SdkError: Request timed out")
        raise WireError(f'MCP server "{self.name}" tool "{tool.name}" timed out after {int(seconds)}s')

    def _give_up(self, number: int, reason: str) -> None:
        async def tell() -> None:
            try:
                await self._notify("notifications/cancelled", {"requestId": number, "reason": reason})
            except WireError:
                self._wire = None

        self._run.tasks.start_soon(tell, name="simulated MCP client")

    def report(self, *, brief: bool) -> JsonObject:
        """The entry for `system/init`, or the longer one of `mcp_status`."""
        made: JsonObject = {"name": self.name, "status": self.status}
        if brief:
            return {**made, "source": self.source}
        if self.status == "connected":
            made["serverInfo"] = self.info
        if not self.is_of_host:
            if self.error is not None:
                made["error"] = self.error
            made["config"] = {"type": self.transport, **self.config}
            if self.transport == "stdio":
                made["config"].setdefault("args", [])
        made |= {
            "transport": self.transport,
            "scope": "user" if self.status == "failed" and self.is_of_host else "dynamic",
            "source": self.source,
        }
        if self.status == "connected":
            made["tools"] = [{"name": tool.name, "annotations": tool.hints} for tool in self.tools]
        return made


class _Context(RunContext, Protocol):
    hooks: Hooks


class McpServers:
    """The MCP servers of one run."""

    def __init__(self, run: _Context) -> None:
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
        self._servers[name] = _Server(self, self._run, name, config)
        return self._servers[name]

    async def close(self) -> None:
        """End the servers that were started."""
        for server in self._servers.values():
            await server.shut("disabled")

    # Tools.

    def specs(self) -> list[ToolSpec]:
        """The tools of the connected servers, by name, but for those that a rule takes away."""
        found = [
            ToolSpec(
                name=_full_name(server, tool),
                description=tool.description,
                input_schema=tool.input_schema,
                annotations=tool.annotations,
            )
            for server, tool in self._tools()
        ]
        return sorted(found, key=lambda spec: spec.name)

    def _tools(self) -> Iterator[tuple[_Server, _Tool]]:
        found = self._run.invocation
        rules = [*found.disallowed_tools, *as_list(as_object(found.settings.get("permissions")).get("deny"))]
        for server in self._servers.values():
            for tool in server.tools if server.status == "connected" else ():
                if not any(covers_tool(str(rule), _full_name(server, tool)) for rule in rules):
                    yield server, tool

    def _find(self, name: str) -> tuple[_Server, _Tool] | None:
        return next((found for found in self._tools() if _full_name(*found) == name), None)

    def owns(self, name: str) -> bool:
        """Whether a connected server has the tool."""
        return self._find(name) is not None

    async def call(self, call: ToolCall) -> Outcome:
        """Call a tool."""
        found = self._find(call.name)
        if found is None:
            return no_such_tool(call.name)
        server, tool = found
        try:
            result = await server.call(tool, call.input, call.id)
        except WireError as error:
            return Outcome(content=str(error), is_error=True, detail=f"Error: {error}")
        except anyio.get_cancelled_exc_class():
            # With the call, what the server asks about it is over.
            for scope in server.questions:
                scope.cancel()
            raise
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
            "display_name": str(tool.annotations.get("title") or shown_name(_plain(tool.name))),
            "server_display_name": str(server.info.get("title") or server.info.get("name") or server.name),
            "tool_name": tool.name,
        }

    def server_of(self, name: str) -> JsonObject | None:
        """`mcp_server` of a question about the tool; None for other tools."""
        found = self._find(name)
        return None if found is None else {"name": found[0].name, "source": found[0].source}

    def policy(self, name: str) -> str | None:
        """What the host said in `initialize` of asking for the tool."""
        found = self._find(name)
        tools = () if found is None else as_list(found[0].told("sdkMcpServerConfigs").get("tools"))
        for tool in map(as_object, tools):
            if found is not None and tool.get("name") == found[1].name:
                return cast("str | None", tool.get("permission_policy"))
        return None

    def statuses(self, *, brief: bool = False) -> list[JsonObject]:
        """Of each server: for `mcp_status`, or, `brief`, for `system/init`."""
        return [server.report(brief=brief) for server in self._servers.values()]

    # Requests of the host.

    async def set_servers(self, servers: JsonObject) -> JsonObject:
        """Replace the servers of earlier such requests. The answer to `mcp_set_servers`."""
        errors: JsonObject = {}
        removed = [name for name in self._servers if name in self._dynamic and name not in servers]
        for name in removed:
            await self._servers.pop(name).shut("disabled")
        added: list[str] = []
        for name, given in servers.items():
            config, known = as_object(given), self._servers.get(name)
            if known is not None:
                if name not in self._dynamic or known.config == config:
                    continue
                await known.shut("disabled")
            added.append(name)
            server = self._add(name, config)
            if server.transport in _TRANSPORTS:
                await self._connect(server)
            else:
                server.status, server.error = "failed", f"Unknown type of MCP server: {server.transport}"
                server.settled.set()
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
            await server.shut("disabled")
        elif server.status == "disabled":
            await self._connect(server)

    async def reconnect(self, name: str) -> None:
        """Raises `LookupError` with the program's text for an unknown server, or one that fails."""
        server = self._server(name)
        await server.shut("pending")
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
            result = await found[0].call(found[1], arguments, None)
        except WireError as error:
            raise LookupError(str(error)) from None
        return {"content": [], **pick(result, "content", "isError", "structuredContent", "_meta")}

    async def read_resource(self, name: str, uri: str) -> JsonObject:
        """The answer to `mcp_read_resource`. Raises `LookupError` with the program's text."""
        if not uri.startswith("ui://"):
            raise LookupError("mcp_read_resource: uri must use the ui:// scheme")
        server = self._servers.get(name)
        if server is None or server.status != "connected":
            raise LookupError(f"MCP server not connected: {name}")
        try:
            result = await server.request("resources/read", {"uri": uri})
        except WireError as error:
            raise LookupError(str(error)) from None
        return {"contents": result.get("contents") or []}

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
            if (answer := await self.answer(server, message)) is not None:
                await server.send(answer)
        except WireError as error:
            self._run.complain(str(error))
        finally:
            self._unhandled.discard(answered)
            answered.set()

    async def answer(self, server: _Server, message: JsonObject) -> JsonObject | None:
        """What a message of a server is answered with; None if it wants no answer."""
        method, id = message.get("method"), message.get("id")
        if method == "notifications/tools/list_changed":
            try:
                await server.list_tools()
            except WireError as error:
                self._run.complain(str(error))
        if id is None:
            return None
        if method == "ping":
            return {"result": {}, "jsonrpc": "2.0", "id": id}
        if method == "elicitation/create" and not server.is_of_host:
            result: JsonObject = {"action": "cancel"}
            with anyio.CancelScope() as scope:
                server.questions.add(scope)
                try:
                    result = await self._elicit(server.name, as_object(message.get("params")))
                finally:
                    server.questions.discard(scope)
            return {"jsonrpc": "2.0", "id": id, "result": result}
        return {"jsonrpc": "2.0", "id": id, "error": {"code": -32601, "message": "Method not found"}}

    async def _elicit(self, server: str, params: JsonObject) -> JsonObject:
        """Put a server's question to the host. An error of the host counts as `cancel`."""
        run, mode, elicitation = self._run, str(params.get("mode") or "form"), params.get("elicitationId")
        event: JsonObject = {"mcp_server_name": server, "message": params.get("message"), "mode": mode}
        if mode == "url":
            event |= {"url": params.get("url"), "elicitation_id": elicitation}
            asked = event
        else:
            schema = as_object(params.get("requestedSchema"))
            event["requested_schema"] = schema
            asked = {**event, "property_order": list(as_object(schema.get("properties")))}
        await run.hooks.fire("Elicitation", event, subject=server)
        try:
            answer = await run.ask("elicitation", asked)
        except Refused:
            answer = {}
        result: JsonObject = {"action": "cancel", **pick(answer, "action", "content")}
        given: JsonObject = {"mcp_server_name": server}
        if mode == "url":
            given["elicitation_id"] = elicitation
        await run.hooks.fire("ElicitationResult", {**given, "mode": mode, **result}, subject=server)
        if mode == "url" and result["action"] == "accept":
            run.say({"type": "system", "subtype": "elicitation_complete", **given})
        return result


def _plain(name: str) -> str:
    """A name as the model has it."""
    return re.sub(r"[^A-Za-z0-9_-]", "_", name)


def _full_name(server: _Server, tool: _Tool) -> str:
    return f"mcp__{_plain(server.name)}__{_plain(tool.name)}"


def shown_name(name: str) -> str:
    """The name of a tool as a user is shown it."""
    return re.sub(r"\b[a-z]", lambda found: found[0].upper(), name.replace("_", " "))

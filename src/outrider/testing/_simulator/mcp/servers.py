"""Owns the MCP servers of a run: which there are, their tools, calls of these, and what the host is told.

One server is in `server`. Servers over HTTP, and those of `.mcp.json` files, are not simulated.
"""

from __future__ import annotations

import base64
import binascii
import json
import mimetypes
import secrets
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Final, Protocol, cast

import anyio

from outrider.testing._simulator.mcp.server import (
    OnMessage,
    Server,
    ServerTool,
    WireError,
    plain_name,
    shown_name,
)
from outrider.testing._simulator.permissions.rules import read_rule
from outrider.testing._simulator.world import Outcome, Refused, Surroundings, ToolSpec
from outrider.wire import JsonObject

if TYPE_CHECKING:
    from outrider.testing._simulator.host.hooks import Hooks
    from outrider.testing._simulator.world import ToolCall

__all__ = ["McpServers", "elicit", "outcome_of"]


_ENDINGS: Final = {"audio/wav": ".wav", "image/jpeg": ".jpg", "application/octet-stream": ".bin"}


def outcome_of(result: JsonObject, *, tool: str, server: str, folder: Path) -> Outcome:
    """What the program makes of a result. `folder` is where it keeps what a model cannot read."""
    blocks = cast("list[JsonObject]", result.get("content") or [])
    if result.get("isError") is True:
        texts = [str(block.get("text", "")) for block in blocks if block.get("type") == "text"]
        text = "\n".join(texts) or "Unknown error"
        return Outcome(content=text, is_error=True, detail=f"Error: {text}")
    made = _Made(server, folder)
    for block in blocks:
        made.add(block)
    structured = cast("JsonObject | None", result.get("structuredContent"))
    meta = cast("JsonObject | None", result.get("_meta"))
    content: str | list[JsonObject] = made.plain
    detail: object = made.blocks
    if structured is not None:
        text = json.dumps(structured, ensure_ascii=False, separators=(",", ":"))
        # In the place of all texts; pictures stay.
        content = [*made.pictures, {"type": "text", "text": text}] if made.pictures else text
        detail = content
    elif not any(block.get("text") != "" for block in made.plain):
        content = f"({tool} completed with no output)"
    more: JsonObject = {"_meta": meta, "structuredContent": structured, "resourceLinks": made.links or None}
    more = {name: value for name, value in more.items() if value is not None}
    return Outcome(
        content=content,
        detail={"content": detail, **more} if more else detail,
        structured_content=structured,
        meta=meta,
    )


class _Made:
    """The blocks of one result."""

    def __init__(self, server: str, folder: Path) -> None:
        self._server, self._folder = server, folder
        self.blocks: list[JsonObject] = []
        self.links: list[JsonObject] = []
        self.pictures: list[JsonObject] = []
        """Those of the blocks that are images, and where they were saved."""

    @property
    def plain(self) -> list[JsonObject]:
        return [{name: block[name] for name in block if name != "_meta"} for block in self.blocks]

    def add(self, block: JsonObject) -> None:
        match block.get("type"):
            case "text":
                self.blocks.append(_kept(block, "type", "text", "_meta"))
            case "image":
                self._add_image(str(block.get("mimeType", "image/png")), str(block.get("data", "")))
            case "audio":
                kind = str(block.get("mimeType", "audio/wav"))
                self._add_binary(f"[Audio from {self._server}]", kind, str(block.get("data", "")))
            case "resource":
                self._add_resource(cast("JsonObject", block.get("resource") or {}))
            case "resource_link":
                about = f" ({block['description']})" if block.get("description") else ""
                self._add_text(f"[Resource link: {block.get('name')}] {block.get('uri')}{about}")
                self.links.append(_kept(block, "uri", "name", "title", "description", "mimeType"))
            case _:
                pass

    def _add_text(self, text: str) -> None:
        self.blocks.append({"type": "text", "text": text})

    def _add_resource(self, resource: JsonObject) -> None:
        label = f"[Resource from {self._server} at {resource.get('uri')}]"
        if "blob" not in resource:
            self._add_text(f"{label} {resource.get('text', '')}")
            return
        kind = str(resource.get("mimeType", "application/octet-stream"))
        if kind.startswith("image/"):
            self._add_text(f"{label} ")
            self._add_image(kind, str(resource["blob"]))
        else:
            self._add_binary(label, kind, str(resource["blob"]))

    def _add_image(self, kind: str, data: str) -> None:
        self.blocks.append({"type": "image", "source": {"type": "base64", "media_type": kind, "data": data}})
        path, _ = self._keep(kind, data)
        self._add_text(f"[Image: source: {path}]")
        self.pictures += self.blocks[-2:]

    def _add_binary(self, label: str, kind: str, data: str) -> None:
        path, size = self._keep(kind, data)
        self._add_text(f"{label} Binary content ({kind}, {size} bytes) saved to {path}")

    def _keep(self, kind: str, data: str) -> tuple[Path, int]:
        try:
            raw = base64.b64decode(data)
        except (binascii.Error, ValueError):
            raw = b""
        ending = _ENDINGS.get(kind) or mimetypes.guess_extension(kind) or ".bin"
        name = f"mcp-{self._server}-blob-{int(time.time() * 1000)}-{secrets.token_hex(3)}{ending}"
        self._folder.mkdir(parents=True, exist_ok=True)
        path = self._folder / name
        path.write_bytes(raw)
        return path, len(raw)


def _kept(block: JsonObject, *names: str) -> JsonObject:
    return {name: block[name] for name in names if name in block}


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


_KNOWN: Final = ("sdk", "stdio", "http", "sse", "ws")


class McpServers:
    """The MCP servers of one run."""

    def __init__(self, run: Surroundings) -> None:
        self._run = run
        self._servers: dict[str, Server] = {}
        self._dynamic: set[str] = set()
        """Those of `mcp_set_servers`."""
        self._released = anyio.Event()
        self._unhandled: set[anyio.Event] = set()
        """What servers of the host have sent by themselves; set when it is done."""
        self._questions: dict[str, set[anyio.CancelScope]] = {}
        """What servers ask the user at the moment."""

    # Connecting.

    async def start(self) -> None:
        """Begin with each server: what precedes the answer to `initialize`. A second time, with new ones."""
        asked = self._run.initialize or {}
        declared: dict[str, JsonObject] = dict(self._run.invocation.mcp_config)
        for name in cast("list[object]", asked.get("sdkMcpServers") or []):
            if str(name) not in declared:
                declared[str(name)] = {"type": "sdk", "name": name}
                self._dynamic.add(str(name))
        for name, config in declared.items():
            if name not in self._servers:
                # Each has asked when it is started, before the host gets its answer.
                await self._run.tasks.start(self._make(name, config).bring_up, self._released)

    async def settle(self) -> None:
        """Finish the handshakes. A turn waits for it."""
        self._released.set()
        for server in list(self._servers.values()):
            if server.status != "disabled":
                await server.settled.wait()
        for listed in list(self._unhandled):
            await listed.wait()

    def _make(self, name: str, config: JsonObject) -> Server:
        asked = self._run.initialize or {}
        manifests = cast("JsonObject", asked.get("sdkMcpServerManifests") or {})
        configs = cast("JsonObject", asked.get("sdkMcpServerConfigs") or {})
        own = cast("JsonObject", configs.get(name) or {})
        timeout = own.get("timeout", config.get("timeout"))
        server = Server(
            self._run,
            name,
            config,
            on_message=self._receiver(name),
            manifest=manifests.get(name),
            timeout=timeout / 1000 if isinstance(timeout, int | float) else None,
        )
        self._servers[name] = server
        return server

    async def close(self) -> None:
        """End the servers that were started."""
        for server in self._servers.values():
            await server.shut("disabled")

    # Tools.

    def specs(self) -> list[ToolSpec]:
        """The tools of the connected servers, by name, but for those that a rule takes away."""
        found = [
            ToolSpec(
                name=_whole(server, tool),
                description=tool.description,
                input_schema=tool.input_schema,
                annotations=tool.annotations,
            )
            for server, tool in self._tools()
        ]
        return sorted(found, key=lambda spec: spec.name)

    def _tools(self) -> Iterator[tuple[Server, ServerTool]]:
        permissions = self._run.invocation.settings.get("permissions")
        denied = cast("JsonObject", permissions).get("deny") if isinstance(permissions, dict) else None
        texts = (*self._run.invocation.disallowed_tools, *cast("list[str]", denied or []))
        rules = [read_rule(text, "") for text in texts]
        for server in self._servers.values():
            for tool in server.tools if server.status == "connected" else ():
                if not any(rule.covers_tool(_whole(server, tool)) for rule in rules):
                    yield server, tool

    def _find(self, name: str) -> tuple[Server, ServerTool] | None:
        return next((found for found in self._tools() if _whole(*found) == name), None)

    def owns(self, name: str) -> bool:
        """Whether a connected server has the tool."""
        return self._find(name) is not None

    async def call(self, call: ToolCall) -> Outcome:
        """Call a tool."""
        found = self._find(call.name)
        if found is None:
            text = f"Error: No such tool available: {call.name}"
            return Outcome(content=f"<tool_use_error>{text}</tool_use_error>", is_error=True, detail=text)
        server, tool = found
        try:
            result = await server.call(tool, call.input, call.id)
        except WireError as error:
            return Outcome(content=str(error), is_error=True, detail=f"Error: {error}")
        except anyio.get_cancelled_exc_class():
            # With the call, what the server asks about it is over.
            for scope in self._questions.get(server.name, ()):
                scope.cancel()
            raise
        folder = self._run.transcript_path.with_suffix("") / "tool-results"
        return outcome_of(result, tool=call.name, server=server.name, folder=folder)

    # What others want to know of a tool.

    def tool_meta(self, call: ToolCall) -> JsonObject | None:
        """The entry of `tool_use_meta` for a call, as the assistant frame has it; none for other tools."""
        if not call.name.startswith("mcp__"):
            return None
        found = self._find(call.name)
        if found is None:
            return {"id": call.id, "display_name": shown_name(call.name.split("__", 2)[-1])}
        server, tool = found
        return {
            "id": call.id,
            "display_name": tool.display_name,
            "server_display_name": server.shown_as,
            "tool_name": tool.name,
        }

    def server_of(self, name: str) -> JsonObject | None:
        """`mcp_server` of a question about the tool; none for other tools."""
        found = self._find(name)
        return None if found is None else {"name": found[0].name, "source": found[0].source}

    def is_read_only(self, name: str) -> bool:
        """Whether its server says that the tool changes nothing."""
        found = self._find(name)
        return found is not None and found[1].annotations.get("readOnlyHint") is True

    def policy(self, name: str) -> str | None:
        """What the host said in `initialize` of asking for the tool."""
        found = self._find(name)
        if found is None:
            return None
        configs = cast("JsonObject", (self._run.initialize or {}).get("sdkMcpServerConfigs") or {})
        own = cast("JsonObject", configs.get(found[0].name) or {})
        for tool in cast("list[JsonObject]", own.get("tools") or []):
            if tool.get("name") == found[1].name:
                return cast("str | None", tool.get("permission_policy"))
        return None

    def statuses(self, *, brief: bool = False) -> list[JsonObject]:
        """Of each server: for `mcp_status`, or, `brief`, for `system/init`."""
        return [server.report(brief=brief) for server in self._servers.values()]

    # What the host asks for.

    async def set_servers(self, servers: JsonObject) -> JsonObject:
        """Replace the servers of earlier such requests. The answer to `mcp_set_servers`."""
        errors: JsonObject = {}
        removed = [name for name in self._servers if name in self._dynamic and name not in servers]
        for name in removed:
            await self._servers.pop(name).shut("disabled")
        added: list[str] = []
        for name, given in servers.items():
            config = cast("JsonObject", given if isinstance(given, dict) else {})
            if name in self._servers and (name not in self._dynamic or self._servers[name].config == config):
                continue
            if name in self._servers:
                await self._servers.pop(name).shut("disabled")
            added.append(name)
            server = self._make(name, config)
            if server.transport not in _KNOWN:
                server.status, server.error = "failed", f"Unknown type of MCP server: {server.transport}"
                server.settled.set()
            else:
                await self._connect(server)
            if server.status == "failed":
                errors[name] = server.error or "Failed to connect"
        self._dynamic = set(servers) & {*self._dynamic, *added}
        return {"added": added, "removed": removed, "errors": errors}

    async def _connect(self, server: Server) -> None:
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
        """Raises `LookupError` with the program's text for an unknown server, or one that does not
        connect."""
        server = self._server(name)
        await server.shut("pending")
        await self._connect(server)
        if server.status == "failed":
            raise LookupError(server.error)

    def _server(self, name: str) -> Server:
        if name not in self._servers:
            raise LookupError(f"Server not found: {name}")
        return self._servers[name]

    async def receive(self, name: str, message: JsonObject) -> None:
        """Take a message that a server of the host sent by itself (`mcp_message` of the host)."""
        server = self._servers.get(name)
        if server is not None:
            # Noted before anything else: a prompt that follows is to find the tools as they are then.
            answered = anyio.Event()
            self._unhandled.add(answered)
            self._run.tasks.start_soon(self._answer, server, message, answered, name="simulated MCP client")

    async def _answer(self, server: Server, message: JsonObject, answered: anyio.Event) -> None:
        try:
            answer = await self._receiver(server.name)(message)
            if answer is not None:
                await server.respond(answer)
        except WireError as error:
            self._run.complain(str(error))
        finally:
            self._unhandled.discard(answered)
            answered.set()

    def _receiver(self, name: str) -> OnMessage:
        """What is done with messages of a server."""

        async def receive(message: JsonObject) -> JsonObject | None:
            method, id = message.get("method"), message.get("id")
            server = self._servers.get(name)
            if method == "notifications/tools/list_changed" and server is not None:
                try:
                    await server.list_tools()
                except WireError as error:
                    self._run.complain(str(error))
            if id is None:
                return None
            if method == "ping":
                return {"result": {}, "jsonrpc": "2.0", "id": id}
            if method == "elicitation/create" and server is not None and not server.is_of_host:
                params = cast("JsonObject", message.get("params") or {})
                return {"jsonrpc": "2.0", "id": id, "result": await self._elicit(name, params)}
            unknown: JsonObject = {"code": -32601, "message": "Method not found"}
            return {"jsonrpc": "2.0", "id": id, "error": unknown}

        return receive

    async def _elicit(self, name: str, params: JsonObject) -> JsonObject:
        open_questions = self._questions.setdefault(name, set())
        with anyio.CancelScope() as scope:
            open_questions.add(scope)
            try:
                return await elicit(self._run, name, params)
            finally:
                open_questions.discard(scope)
        return {"action": "cancel"}

    async def call_tool(self, name: str, arguments: JsonObject) -> JsonObject:
        """The answer to `mcp_call`. Raises `LookupError` with the program's text."""
        found = self._find(name)
        if found is None:
            server = name.split("__", 2)[1] if name.count("__") > 1 else name
            if any(plain_name(other) == server for other in self._servers):
                raise LookupError(f"No such tool available: {name}")
            raise LookupError(f"MCP server not connected: {server}")
        try:
            result = await found[0].call(found[1], arguments, None)
        except WireError as error:
            raise LookupError(str(error)) from None
        kept = ("content", "isError", "structuredContent", "_meta")
        return {"content": [], **{key: result[key] for key in kept if key in result}}

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


def _whole(server: Server, tool: ServerTool) -> str:
    return f"mcp__{plain_name(server.name)}__{plain_name(tool.name)}"

"""Owns one MCP server of a run: its handshake, its tools and its state.

Which servers a run has is in `servers`.
"""

from __future__ import annotations

import json
import math
import os
import re
import signal
from collections.abc import Awaitable, Callable, Sequence
from subprocess import DEVNULL
from typing import TYPE_CHECKING, Final, Literal, Protocol, TypeAlias, cast

import anyio
import msgspec
from anyio.streams.buffered import BufferedByteReceiveStream

from outrider.testing._simulator.world import Refused
from outrider.wire import JsonObject

if TYPE_CHECKING:
    from anyio.abc import Process, TaskGroup, TaskStatus

    from outrider.testing._simulator.world import Surroundings

__all__ = [
    "HostWire",
    "OnMessage",
    "ProcessWire",
    "Server",
    "ServerTool",
    "Wire",
    "WireError",
    "plain_name",
    "shown_name",
]


_MOST_BYTES: Final = 64 * 1024 * 1024

OnMessage: TypeAlias = Callable[[JsonObject], Awaitable[JsonObject | None]]
"""What is done with a message that a server sends by itself; gives the answer, if there is one."""


class WireError(Exception):
    """The server cannot be reached, or is gone. The text is for the model."""


class Wire(Protocol):
    """A way to one server."""

    async def exchange(self, message: JsonObject) -> JsonObject:
        """Send a request and wait for its answer: forever, if none comes. Raises `WireError`."""
        ...

    async def send(self, message: JsonObject) -> None:
        """Send what has no answer. Raises `WireError`."""
        ...

    async def close(self) -> None:
        """End it. A second time does nothing."""
        ...


class HostWire:
    """To a server in the host, through `mcp_message`."""

    def __init__(self, run: Surroundings, name: str) -> None:
        self._run, self._name = run, name

    async def exchange(self, message: JsonObject) -> JsonObject:
        try:
            answer = await self._ask(message)
        except Refused as refusal:
            raise WireError(str(refusal)) from None
        found = answer.get("mcp_response")
        if isinstance(found, dict):
            response = cast("JsonObject", found)
            if response.get("id") == message["id"]:
                return response
        # The program waits on for the right one.
        await anyio.sleep_forever()
        raise AssertionError

    async def send(self, message: JsonObject) -> None:
        try:
            await self._ask(message)
        except Refused as refusal:
            raise WireError(str(refusal)) from None

    async def _ask(self, message: JsonObject) -> JsonObject:
        return await self._run.ask("mcp_message", {"server_name": self._name, "message": message})

    async def close(self) -> None:
        pass


class ProcessWire:
    """To a program of its own, a line for each message."""

    def __init__(self, process: Process, on_message: OnMessage) -> None:
        self._process, self._on_message = process, on_message
        self._waiting: dict[object, tuple[anyio.Event, list[JsonObject]]] = {}
        self._is_over = False
        self._sending = anyio.Lock()

    @classmethod
    async def start(cls, run: Surroundings, config: JsonObject, on_message: OnMessage) -> ProcessWire:
        """Start the program. Raises `WireError`."""
        words = cast("list[object]", config.get("args") or [])
        command = [str(config.get("command", "")), *map(str, words)]
        extra = cast("dict[str, str]", config.get("env") or {})
        try:
            process = await anyio.open_process(
                command,
                cwd=run.cwd,
                env={**run.environment, **extra},
                stderr=DEVNULL,
                start_new_session=os.name != "nt",
            )
        except FileNotFoundError:
            raise WireError("ENOENT: no such file or directory, posix_spawn 'stdio'") from None
        except OSError as error:
            raise WireError(str(error)) from None
        wire = cls(process, on_message)
        run.tasks.start_soon(wire._read, name="simulated MCP client")
        return wire

    async def exchange(self, message: JsonObject) -> JsonObject:
        if self._is_over:
            raise WireError("Connection closed")
        done, answers = anyio.Event(), list[JsonObject]()
        self._waiting[message["id"]] = (done, answers)
        try:
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

    async def _read(self) -> None:
        assert self._process.stdout is not None
        stream = BufferedByteReceiveStream(self._process.stdout)
        try:
            async with anyio.create_task_group() as tasks:
                while True:
                    line = await stream.receive_until(b"\n", _MOST_BYTES)
                    try:
                        message = json.loads(line)
                    except ValueError:
                        continue
                    if isinstance(message, dict):
                        self._take(cast("JsonObject", message), tasks)
        except* (
            anyio.IncompleteRead,
            anyio.ClosedResourceError,
            anyio.BrokenResourceError,
            anyio.EndOfStream,
        ):
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
        answer = await self._on_message(message)
        if answer is not None:
            try:
                await self.send(answer)
            except WireError:
                self._is_over = True

    async def close(self) -> None:
        self._is_over = True
        with anyio.CancelScope(shield=True):
            if self._process.returncode is None:
                self._kill()
            await self._process.aclose()

    def _kill(self) -> None:
        try:
            if os.name == "nt":
                self._process.kill()
            else:
                os.killpg(self._process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass


Status: TypeAlias = Literal["pending", "connected", "failed", "disabled"]

_PROTOCOL: Final = "2025-11-25"
_LIST_DELAYS: Final = (0.25, 0.5, 1.0)
_HINTS: Final = {"readOnlyHint": "readOnly", "destructiveHint": "destructive", "openWorldHint": "openWorld"}


def plain_name(name: str) -> str:
    """A name as the model has it."""
    return re.sub(r"[^A-Za-z0-9_-]", "_", name)


class ServerTool(msgspec.Struct, frozen=True):
    """A tool as its server tells of it."""

    name: str
    description: str = ""
    input_schema: JsonObject = {}
    annotations: JsonObject = {}

    @property
    def display_name(self) -> str:
        title = self.annotations.get("title")
        return str(title) if title else shown_name(plain_name(self.name))

    def hints(self) -> JsonObject:
        return {short: True for name, short in _HINTS.items() if self.annotations.get(name) is True}


def shown_name(name: str) -> str:
    """The name of a tool as a user is shown it."""
    return re.sub(r"\b[a-z]", lambda found: found[0].upper(), name.replace("_", " "))


class Server:
    """One server. `bring_up` connects it, `settled` is set when that came to an end."""

    def __init__(
        self,
        run: Surroundings,
        name: str,
        config: JsonObject,
        *,
        on_message: OnMessage,
        manifest: JsonObject | None = None,
        timeout: float | None = None,
    ) -> None:
        self.name, self.config = name, config
        self.status: Status = "pending"
        self.error: str | None = None
        self.info: JsonObject = {}
        self.capabilities: JsonObject = {}
        self.tools: Sequence[ServerTool] = ()
        self.settled = anyio.Event()
        self._run, self._on_message, self._manifest = run, on_message, manifest
        self._timeout = timeout
        self._wire: Wire | None = None
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

    @property
    def shown_as(self) -> str:
        return str(self.info.get("title") or self.info.get("name") or self.name)

    # Connecting.

    async def bring_up(
        self, released: anyio.Event, *, task_status: TaskStatus[None] = anyio.TASK_STATUS_IGNORED
    ) -> None:
        """Connect, and list the tools once `released` is set. Raises nothing but cancellation."""
        task_status.started()
        self.status, self.error = "pending", None
        try:
            await self._handshake(released)
        except WireError as error:
            await released.wait()
            self.status, self.error = "failed", str(error)
            await self._drop()
        finally:
            self.settled.set()

    async def _handshake(self, released: anyio.Event) -> None:
        if self._manifest is not None:
            self._wire = HostWire(self._run, self.name)
            self._next_id = 2
            self._greeted(cast("JsonObject", self._manifest.get("initializeResult") or {}))
            self._take_tools(cast("JsonObject", self._manifest.get("toolsListResult") or {}))
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
        if "tools" in self.capabilities:
            await self._list_patiently()

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
        seconds = _milliseconds(self._run.environment.get("MCP_TIMEOUT"), 30.0)
        with anyio.move_on_after(seconds):
            return await self.request("initialize", given)
        await self._drop()
        raise WireError(f'MCP server "{self.name}" connection timed out after {int(seconds * 1000)}ms')

    async def _open(self) -> Wire:
        if self.is_of_host:
            return HostWire(self._run, self.name)
        if self.transport == "stdio":
            return await ProcessWire.start(self._run, self.config, self._on_message)
        raise WireError(f"The simulated agent does not speak to MCP servers over {self.transport}")

    def _greeted(self, answer: JsonObject) -> None:
        self.info = cast("JsonObject", answer.get("serverInfo") or {})
        self.capabilities = cast("JsonObject", answer.get("capabilities") or {})
        self.status = "connected"

    async def _list_patiently(self) -> None:
        for delay in (*_LIST_DELAYS, None):
            try:
                await self.list_tools()
            except WireError:
                if delay is not None:
                    await anyio.sleep(delay)
            else:
                return

    async def list_tools(self) -> None:
        """Ask for the tools. Raises `WireError`."""
        found: list[JsonObject] = []
        params: JsonObject | None = None
        while True:
            page = await self.request("tools/list", params)
            found += cast("list[JsonObject]", page.get("tools") or [])
            if not page.get("nextCursor"):
                break
            params = {"cursor": page["nextCursor"]}
        self._take_tools({"tools": found})

    def _take_tools(self, answer: JsonObject) -> None:
        self.tools = [
            ServerTool(
                name=str(tool.get("name")),
                description=str(tool.get("description") or ""),
                input_schema=tool.get("inputSchema") or {},
                annotations=tool.get("annotations") or {},
            )
            for tool in cast("list[JsonObject]", answer.get("tools") or [])
        ]

    async def shut(self, status: Status) -> None:
        """End the connection."""
        await self._drop()
        self.status, self.error, self.tools = status, None, ()
        self.settled = anyio.Event()

    async def _drop(self) -> None:
        wire, self._wire = self._wire, None
        if wire is not None:
            await wire.close()

    # Talking.

    async def request(self, method: str, params: JsonObject | None) -> JsonObject:
        """Ask for something. Raises `WireError`, also for an error that the server answers with."""
        return await self._exchange(self._numbered(method, params))

    def _numbered(self, method: str, params: JsonObject | None) -> JsonObject:
        message: JsonObject = {"method": method, "jsonrpc": "2.0", "id": self._next_id}
        self._next_id += 1
        return message if params is None else {"method": method, "params": params, **message}

    async def _exchange(self, message: JsonObject) -> JsonObject:
        if self._wire is None:
            raise WireError("Not connected")
        answer = await self._wire.exchange(message)
        error = answer.get("error")
        if isinstance(error, dict):
            raise WireError(str(cast("JsonObject", error).get("message")))
        return cast("JsonObject", answer.get("result") or {})

    async def _notify(self, method: str, params: JsonObject | None = None) -> None:
        message: JsonObject = {"jsonrpc": "2.0", "method": method}
        if self._wire is not None:
            await self._wire.send(message if params is None else {**message, "params": params})

    async def respond(self, message: JsonObject) -> None:
        """Answer what the server asked."""
        if self._wire is not None:
            await self._wire.send(message)

    async def call(self, tool: ServerTool, arguments: JsonObject, call_id: str | None) -> JsonObject:
        """Call a tool. Raises `WireError`. The server is told of a call that is given up."""
        number = self._next_id
        meta: JsonObject = {"progressToken": number}
        if call_id is not None:
            meta = {"claudecode/toolUseId": call_id, **meta}
        params: JsonObject = {"name": tool.name, "arguments": arguments, "_meta": meta}
        message = self._numbered("tools/call", params)
        seconds = self._timeout
        if seconds is None:
            seconds = _milliseconds(self._run.environment.get("MCP_TOOL_TIMEOUT"), math.inf)
        try:
            with anyio.move_on_after(seconds):
                return await self._exchange(message)
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

    # Telling.

    def report(self, *, brief: bool) -> JsonObject:
        """The entry for `system/init`, or the longer one of `mcp_status`."""
        made: JsonObject = {"name": self.name, "status": self.status}
        if brief:
            return {**made, "source": self.source}
        if self.status == "connected":
            made["serverInfo"] = self.info
        if self.error is not None and not self.is_of_host:
            made["error"] = self.error
        if not self.is_of_host:
            made["config"] = {"type": self.transport, **self.config}
            if self.transport == "stdio":
                made["config"].setdefault("args", [])
        is_up = self.status == "connected"
        made |= {
            "transport": self.transport,
            "scope": "user" if self.status == "failed" and self.is_of_host else "dynamic",
            "source": self.source,
        }
        if is_up:
            made["tools"] = [{"name": tool.name, "annotations": tool.hints()} for tool in self.tools]
        return made


def _milliseconds(text: str | None, default: float) -> float:
    """Seconds, from a variable that counts milliseconds."""
    try:
        return float(text) / 1000 if text else default
    except ValueError:
        return default

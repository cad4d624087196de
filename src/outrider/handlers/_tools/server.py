"""Serves tools of this process to any number of sessions, as an MCP server: `ToolServer`."""

from __future__ import annotations

import logging
import re
import threading
import weakref
from collections.abc import Callable, Iterable
from functools import partial
from time import perf_counter
from typing import TYPE_CHECKING, ClassVar, Final, TypeGuard, cast

import anyio
import msgspec
from anyio.lowlevel import checkpoint, current_token

from outrider.errors import OptionsError, ToolFailed
from outrider.handlers._calls import CallTimedOut, call, unwrapped
from outrider.handlers._router import ToolHandled
from outrider.handlers._tools.content import NotSendable, as_result, error_result
from outrider.handlers._tools.shape_errors import ShapeError
from outrider.handlers._tools.signature import Signature
from outrider.handlers._tools.tool import (
    ALWAYS_LOAD,
    Arguments,
    Bound,
    Tool,
    ToolContext,
    ToolPlan,
    Traits,
    as_tool,
)
from outrider.options._validators import did_you_mean
from outrider.redaction import preview
from outrider.wire import JsonObject
from outrider.wire._tolerant import is_object
from outrider.wire.control import (
    INVALID_PARAMS,
    INVALID_REQUEST,
    METHOD_NOT_FOUND,
    JsonRpcError,
    JsonRpcId,
    JsonRpcNotification,
    JsonRpcRequest,
    jsonrpc_from_wire,
)

if TYPE_CHECKING:
    from collections.abc import Awaitable

    from outrider.handlers._calls import CallContext
    from outrider.handlers._router import AgentLink, Observe, Origin, Outcome
    from outrider.wire import Json


log = logging.getLogger("outrider.session")

_VERSIONS: Final = ("2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05")
"""Versions of MCP, the newest first. They do not differ in what is used here."""
_TOOL_USE: Final = "claudecode/toolUseId"
"""The key for the id of the model's tool call."""
_EARLY: Final = 64
"""How many cancellations are remembered that came before their calls."""
_TEXT: Final = 10_000
"""Characters of an exception's text that the model gets."""


class ToolEntry:
    """A tool of a server, with the limit of its concurrent calls in each event loop."""

    def __init__(self, tool: Tool[..., object]) -> None:
        self.tool: Final = tool
        self.arguments: Final = tool.arguments
        self.takes_context: Final = tool.arguments.takes_context
        self._timeout: Final = tool.timeout
        self._concurrency: Final = tool.concurrency
        # It needs neither a thread, nor a deadline, nor a context.
        self._is_direct: Final = tool.is_async and tool.timeout is None and not self.takes_context
        # A semaphore belongs to one event loop. Sessions in other threads have loops of their own.
        self._slots: weakref.WeakKeyDictionary[object, anyio.Semaphore] = weakref.WeakKeyDictionary()
        self._lock = threading.Lock()

    async def run(self, bound: Bound, context: ToolContext | None) -> object:
        """Call the tool when it is its turn. Raises what it raises, and `CallTimedOut`."""
        if self._concurrency is None:
            return await self._run(bound, context)
        async with self._slots_here(self._concurrency):
            return await self._run(bound, context)

    async def _run(self, bound: Bound, context: ToolContext | None) -> object:
        positional, named = bound
        if self._is_direct:
            function = cast("Callable[..., Awaitable[object]]", self.tool.function)
            return await function(*positional, **named)
        # Its parameters may have the names of those of `call`.
        ready = partial(self.tool.function, *positional, **named)
        return await call(ready, timeout=self._timeout, context=context)

    def _slots_here(self, most: int) -> anyio.Semaphore:
        loop = current_token().native_token
        with self._lock:
            slots = self._slots.get(loop)
            if slots is None:
                slots = self._slots[loop] = anyio.Semaphore(most, fast_acquire=True)
            return slots


class ToolEndpoint:
    """A server of tools within one session."""

    def __init__(self, server: ToolServer, link: AgentLink, observe: Observe) -> None:
        self._server = server
        self._link = link
        self._observe = observe
        self._open: dict[JsonRpcId, anyio.CancelScope] = {}
        # Messages that arrive together are handled in any order.
        self._taken_back_early: dict[JsonRpcId, None] = {}
        self._was_listed = False

    async def run(self) -> None:
        """There is nothing to do."""

    async def receive(self, message: JsonObject, origin: Origin) -> JsonObject | None:
        """Handle a message of the agent. Returns the reply, if there is one."""
        if message.get("method") == "tools/call" and _is_id(id := message.get("id")):
            return await self._called(id, message.get("params"), origin)
        match jsonrpc_from_wire(message):
            case JsonRpcRequest(method, id, params):
                return self._answer(id, method, params)
            case JsonRpcNotification("notifications/cancelled", {"requestId": id}) if _is_id(id):
                self._take_back(id)
            case JsonRpcNotification():
                pass
            case _ if _is_id(id := message.get("id")) and not message.keys() & {"result", "error"}:
                return JsonRpcError(id, INVALID_REQUEST, "this is not a request").to_wire()
            case _:
                pass
        return None

    def announce_change(self) -> None:
        """Announce that the tools have changed, if the agent has listed them before."""
        if self._was_listed:
            self._link.post({"jsonrpc": "2.0", "method": "notifications/tools/list_changed"})

    def _answer(self, id: JsonRpcId, method: str, params: Json) -> JsonObject:
        match method:
            case "tools/list":
                # Set first, so that a change of the tools from now on is announced.
                self._was_listed = True
                return _reply(id, self._server.listing)
            case "initialize":
                # The numbers of calls begin again.
                self._taken_back_early.clear()
                return _reply(id, self._introduce(params))
            case "ping":
                return _reply(id, {})
            case _:
                return JsonRpcError(id, METHOD_NOT_FOUND, f"there is no method {preview(method)}").to_wire()

    def _introduce(self, params: Json) -> JsonObject:
        wanted: object = params.get("protocolVersion") if is_object(params) else None
        server = self._server
        introduction: JsonObject = {
            "protocolVersion": wanted if wanted in _VERSIONS else _VERSIONS[0],
            "capabilities": {"tools": {"listChanged": True}},
            "serverInfo": {"name": server.name, "version": server.version},
        }
        if server.instructions:
            introduction["instructions"] = server.instructions
        return introduction

    # Calls.

    async def _called(self, id: JsonRpcId, params: Json, origin: Origin) -> JsonObject:
        started = perf_counter()
        name: object = params.get("name") if is_object(params) else None
        if not is_object(params) or not isinstance(name, str):
            return JsonRpcError(id, INVALID_PARAMS, "`params` must have the `name` of a tool").to_wire()
        arguments: object = params.get("arguments")
        if arguments is None:
            arguments = {}
        elif not is_object(arguments):
            return JsonRpcError(id, INVALID_PARAMS, "`arguments` must be an object").to_wire()
        meta: object = params.get("_meta")
        running = _Running(
            server=self._server.name, name=name, arguments=arguments, meta=meta if is_object(meta) else {}
        )
        try:
            entry = self._server.entries.get(name)
            if entry is None:
                running.outcome = "failed"
                if (result := self._server.missing(name)) is not None:
                    return _reply(id, result)
                known = ", ".join(self._server.entries) or "none"
                text = f"there is no tool {preview(name)!r} on this server; known are: {known}"
                return JsonRpcError(id, INVALID_PARAMS, text).to_wire()
            return _reply(id, await self._run(id, entry, running, origin))
        except anyio.get_cancelled_exc_class():
            raise
        except BaseException as crash:
            running.failed("failed", "", crash)
            raise
        finally:
            self._observe(running.handled(perf_counter() - started))

    async def _run(self, id: JsonRpcId, entry: ToolEntry, running: _Running, origin: Origin) -> JsonObject:
        if id in self._taken_back_early:
            del self._taken_back_early[id]
            return running.taken_back()
        scope = self._open[id] = anyio.CancelScope()
        context = running.make_context(origin, self._link) if entry.takes_context else None
        try:
            with scope:
                return await running.result_of(entry, context)
            return running.taken_back()
        except Exception as error:  # noqa: BLE001 - what else the tool raised when it was cancelled
            return running.failed_with(error)
        finally:
            if context is not None:
                context.end()
            if self._open.get(id) is scope:
                del self._open[id]

    def _take_back(self, id: JsonRpcId) -> None:
        if (scope := self._open.get(id)) is not None:
            scope.cancel()
            return
        self._taken_back_early[id] = None
        if len(self._taken_back_early) > _EARLY:
            del self._taken_back_early[next(iter(self._taken_back_early))]


class _Running(msgspec.Struct, kw_only=True):
    """One call, and its outcome."""

    server: str
    name: str
    arguments: JsonObject
    meta: JsonObject
    outcome: Outcome = "cancelled"
    error: BaseException | None = None
    is_error: bool = True

    @property
    def tool_use_id(self) -> str | None:
        found: object = self.meta.get(_TOOL_USE)
        return found if isinstance(found, str) else None

    def make_context(self, origin: Origin, link: AgentLink) -> ToolContext:
        token: object = self.meta.get("progressToken")
        return ToolContext(
            origin,
            self.tool_use_id,
            tool_name=self.name,
            server_name=self.server,
            link=link,
            progress_token=token if isinstance(token, (str, int)) else None,
        )

    async def result_of(self, entry: ToolEntry, context: ToolContext | None) -> JsonObject:
        """Call the tool; returns its result, or one that says what went wrong."""
        name = self.name
        try:
            bound = entry.arguments.bind(self.arguments, context)
        except ShapeError as error:
            errors = "\n".join(f"- {each}" for each in error.errors)
            text = f"`{name}` was not called, because its arguments do not fit:\n{errors}"
            return self.failed("failed", text, error)
        try:
            result = as_result(await entry.run(bound, context))
        except CallTimedOut as error:
            text = f"`{name}` did not finish within {error.seconds:g} s and was stopped."
            return self.failed("timed_out", text, error)
        except NotSendable as error:
            log.exception("the tool %r returned something that cannot be sent", name)
            return self.failed(
                "failed", f"`{name}` was called, but its result cannot be read: {error}", error
            )
        except anyio.get_cancelled_exc_class() as error:
            # Raises it again if this call is cancelled. Otherwise something that the tool waited for was
            # cancelled, which is an error like any other.
            await checkpoint()
            return self.failed_with(error)
        except Exception as error:  # noqa: BLE001 - whatever the user's code raises
            return self.failed_with(error)
        self.outcome = "answered"
        self.is_error = bool(result.get("isError"))
        return result

    def failed_with(self, error: BaseException) -> JsonObject:
        inner = unwrapped(error)
        if isinstance(inner, ToolFailed):
            log.info("the tool %r failed: %s", self.name, inner)
            return self.failed("failed", inner.text or inner.message, error)
        log.error("the tool %r failed", self.name, exc_info=error)
        # No traceback, and no secrets.
        return self.failed("failed", preview(_in_words(inner), _TEXT), error)

    def taken_back(self) -> JsonObject:
        """The result of a cancelled call, for which the agent still waits."""
        return self.failed("cancelled", f"The call of `{self.name}` was cancelled.")

    def failed(self, outcome: Outcome, text: str, error: BaseException | None = None) -> JsonObject:
        """The result of a failed call."""
        self.outcome, self.error, self.is_error = outcome, error, True
        return error_result(text)

    def handled(self, seconds: float) -> ToolHandled:
        fields = msgspec.structs.asdict(self)
        del fields["meta"]
        return ToolHandled(seconds=seconds, tool_use_id=self.tool_use_id, **fields)


def _in_words(error: BaseException) -> str:
    kind = type(error).__name__
    try:
        text = str(error)
    except Exception:  # noqa: BLE001 - the exception of somebody
        text = ""
    words = f"{kind}: {text}" if text else kind
    if not isinstance(error, BaseExceptionGroup):
        return words
    group = cast("BaseExceptionGroup[BaseException]", error)
    return "\n- ".join((words, *map(_in_words, group.exceptions)))


def _reply(id: JsonRpcId, result: JsonObject) -> JsonObject:
    return {"jsonrpc": "2.0", "id": id, "result": result}


def _is_id(value: object) -> TypeGuard[JsonRpcId]:
    return isinstance(value, (str, int, float)) and not isinstance(value, bool)


_NAME: Final = re.compile(r"[A-Za-z0-9_-]{1,64}")
_LONGEST_NAME: Final = 128
"""The longest name of a tool that the API accepts."""


class ToolServer:
    """A named set of tools. The model knows each as `mcp__<server>__<tool>`.

    Tools may be added and removed at any time and from any thread; open sessions are notified. Many sessions
    may share a server.

    `instructions` tell the model what the tools are for. With `always_load=False` the model has to search for
    the tools, which saves tokens if there are many.

    Raises `OptionsError` for an invalid name, for anything that is not a tool, and for duplicate names.
    """

    has_short_names: ClassVar[bool] = True
    """Whether names are checked, so that rules, policies and hooks may name its tools without the server."""

    def __init__(
        self,
        name: str,
        tools: Iterable[Tool[..., object] | Callable[..., object]] = (),
        *,
        version: str = "1.0.0",
        instructions: str | None = None,
        always_load: bool = True,
    ) -> None:
        if self.has_short_names and (not isinstance(cast(object, name), str) or not _NAME.fullmatch(name)):
            raise OptionsError(
                f"{name!r} cannot be the name of a server", hint="Use 1 to 64 letters, digits, `_` and `-`."
            )
        self.name: Final = name
        self.version: Final = version
        self.instructions: Final = instructions
        self.always_load: Final = always_load
        self._lock = threading.Lock()
        self._endpoints: weakref.WeakSet[ToolEndpoint] = weakref.WeakSet()
        # Both are replaced, never changed, so that readers need no lock.
        self._entries: dict[str, ToolEntry] = {}
        self._listing: JsonObject = {"tools": []}
        self.add(*tools)

    def __repr__(self) -> str:
        return f"<ToolServer {self.name!r}: {', '.join(self._entries) or 'no tools'}>"

    @property
    def tools(self) -> tuple[Tool[..., object], ...]:
        return tuple(entry.tool for entry in self._entries.values())

    def add(self, *tools: Tool[..., object] | Callable[..., object]) -> None:
        """Add tools, all or none. Raises `OptionsError`."""
        new = [ToolEntry(as_tool(each)) for each in tools]
        with self._lock:
            entries = dict(self._entries)
            for entry in new:
                if self.has_short_names:
                    self._check(entry.tool.name, entries)
                entries[entry.tool.name] = entry
            self._replace(entries)
        self._announce()

    def remove(self, *tools: str | Tool[..., object] | Callable[..., object]) -> None:
        """Remove tools, all or none, by name or as they were added. Running calls continue. Raises
        `OptionsError` for an unknown tool."""
        with self._lock:
            entries = dict(self._entries)
            for tool in tools:
                name = tool if isinstance(tool, str) else as_tool(tool).name
                if entries.pop(name, None) is None:
                    hint = did_you_mean(name, list(entries))
                    raise OptionsError(f"{self!r} has no tool {name!r}", hint=hint)
            self._replace(entries)
        self._announce()

    def open(self, link: AgentLink, observe: Observe) -> ToolEndpoint:
        """Begin to serve a session."""
        endpoint = ToolEndpoint(self, link, observe)
        with self._lock:
            self._endpoints.add(endpoint)
        return endpoint

    @property
    def listing(self) -> JsonObject:
        """The answer to `tools/list`."""
        return self._listing

    @property
    def entries(self) -> dict[str, ToolEntry]:
        """The tools by name. Do not change it."""
        return self._entries

    def missing(self, name: str) -> JsonObject | None:
        """The result of a call of an unknown tool; None for an error of the protocol."""
        return None

    def _check(self, name: str, entries: dict[str, ToolEntry]) -> None:
        if name in entries:
            raise OptionsError(
                f"the server {self.name!r} has two tools named {name!r}",
                hint="Give one of them another name: `@tool(name=…)`.",
            )
        full = f"mcp__{self.name}__{name}"
        if len(full) > _LONGEST_NAME:
            raise OptionsError(
                f"the name {full!r} has {len(full)} characters, and models take {_LONGEST_NAME}",
                hint="Shorten the name of the tool or of its server.",
            )

    def _replace(self, entries: dict[str, ToolEntry]) -> None:
        self._listing = {"tools": [self._definition(entry.tool) for entry in entries.values()]}
        self._entries = entries

    def _definition(self, tool: Tool[..., object]) -> JsonObject:
        if not self.always_load:
            return tool.definition
        return {**tool.definition, "_meta": {ALWAYS_LOAD: True, **tool.meta}}

    def _announce(self) -> None:
        with self._lock:
            endpoints = list(self._endpoints)
        for endpoint in endpoints:
            endpoint.announce_change()


class _AsGiven(Arguments):
    """Passes the object of the model unchanged."""

    def bind(self, given: JsonObject, context: CallContext | None = None) -> Bound:
        return (given,), {}


_AS_GIVEN: Final = _AsGiven(Signature(parameters=()), "a raw tool")


def _unplanned(**_arguments: object) -> None:
    """Stands for the function of a raw tool, which is not read."""


_PLAN: Final = ToolPlan(_unplanned, Traits(name="raw"))


class RawTool(Tool[[JsonObject], object]):
    """A tool with its definition as in MCP: `name`, `description`, `inputSchema` and so on.

    The function takes the arguments as one dict.
    """

    def __init__(self, definition: JsonObject, function: Callable[[JsonObject], object]) -> None:
        super().__init__(_PLAN, function, binds=False)
        self._definition: Final = definition

    @property
    def definition(self) -> JsonObject:
        """The tool as MCP lists it."""
        return self._definition

    @property
    def name(self) -> str:
        return str(self._definition["name"])

    @property
    def arguments(self) -> Arguments:
        """Its arguments are not converted."""
        return _AS_GIVEN


class RawToolServer(ToolServer):
    """A server whose names are not checked; of two tools with one name the later counts."""

    has_short_names = False

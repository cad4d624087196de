"""Serves a server of the `mcp` library, of either major version, and passes its questions to the user.

The library is never imported: a server of it shows that it is loaded. Its objects have no types here, because
they differ between the versions.
"""

from __future__ import annotations

import copy
import logging
import sys
from collections import UserDict, deque
from collections.abc import Awaitable, Callable
from contextvars import copy_context
from functools import partial
from importlib import import_module
from itertools import count
from time import perf_counter
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Final, TypeAlias, cast

import anyio
import msgspec
from anyio.lowlevel import checkpoint

from outrider.errors import OptionsError
from outrider.handlers._calls import unwrapped
from outrider.handlers._router import Outcome, ToolHandled
from outrider.redaction import mask, preview
from outrider.wire.control import (
    INTERNAL_ERROR,
    INVALID_REQUEST,
    Elicitation,
    JsonRpcError,
    JsonRpcInvalid,
    JsonRpcNotification,
    JsonRpcRequest,
    JsonRpcSuccess,
    jsonrpc_from_wire,
)

if TYPE_CHECKING:
    from contextlib import AbstractAsyncContextManager
    from contextvars import Context, ContextVar
    from typing import Self

    from anyio.abc import TaskGroup

    from outrider.handlers._router import AgentLink, Observe, Origin, Server
    from outrider.wire import Json, JsonObject
    from outrider.wire.control import JsonRpcId, JsonRpcMessage, JsonRpcReply

    _Elicit: TypeAlias = Callable[[Elicitation, Origin], Awaitable[JsonObject]]


_INNER: Final = ("_mcp_server", "_lowlevel_server")
"""Where `FastMCP` (also that of the package `fastmcp`) and `MCPServer` keep the server that does the work.
There is no public way to it; the library's own helpers take this one."""

_FROM_WITHIN: Final = "something that the handler waited for was cancelled"

Handler: TypeAlias = Callable[[object], Awaitable[object]]
Find: TypeAlias = "Callable[[object], Call | None]"
"""Returns the request with a number."""


def low_server(candidate: object) -> Any:  # noqa: ANN401 - a class of the library
    """The low-level server that an object of the library is, or has; None for any other object."""
    kind = getattr(sys.modules.get("mcp.server.lowlevel"), "Server", None)
    if not isinstance(kind, type) or isinstance(candidate, type):
        return None
    # Not by `getattr`: some objects have an attribute of any name.
    own: dict[str, object] = getattr(candidate, "__dict__", {})
    return next((found for found in (candidate, *map(own.get, _INNER)) if isinstance(found, kind)), None)


class Library:
    """One server, run by the version of the library that it is made with."""

    def __init__(self, server: Any, find: Find) -> None:  # noqa: ANN401 - a class of the library
        self._server = server
        self._find = find
        self._types = import_module("mcp.types")
        self._wrap: Callable[[object], object] = import_module("mcp.shared.message").SessionMessage
        self.is_first: Final = isinstance(getattr(server, "request_handlers", None), dict)
        """Whether it is mcp 1, which also answers requests that were cancelled."""

    def read(self, message: JsonObject) -> object:
        """A message as the library has it. Raises `ValueError` for an invalid one."""
        if self.is_first:
            return self._wrap(self._types.JSONRPCMessage.model_validate(message))
        return self._wrap(self._types.jsonrpc_message_adapter.validate_python(message, by_name=False))

    def write(self, item: Any) -> JsonObject:  # noqa: ANN401 - a class of the library
        """A message of the library as it is sent."""
        left_out = "exclude_none" if self.is_first else "exclude_unset"
        written: JsonObject = item.message.model_dump(by_alias=True, mode="json", **{left_out: True})
        return written

    async def run(self, inbox: Inbox, outbox: Outbox) -> None:
        """Serve until the inbox ends."""
        # The user's object serves others too, and stays as it is. Its lifespan gets that object.
        server = copy.copy(self._server)
        server.lifespan = self._lifespan
        if self.is_first:
            # Handlers would run in the context of the loop; each is taken to that of its request.
            server.request_handlers = _InContext(server.request_handlers, self._find)
        else:
            # A handler runs in the context that comes with its message.
            server.middleware = [_guarded, *server.middleware]
        # Declared, so that the agent heeds them when they come.
        changes: object = import_module("mcp.server.lowlevel").NotificationOptions(True, True, True)
        await server.run(inbox, outbox, server.create_initialization_options(changes))

    def _lifespan(self, _: object) -> AbstractAsyncContextManager[object]:
        found: AbstractAsyncContextManager[object] = self._server.lifespan(self._server)
        return found


async def _guarded(request: object, handler: Handler) -> object:
    """Call a handler. The library would end all of the server for a cancellation that comes out of one."""
    try:
        return await handler(request)
    except anyio.get_cancelled_exc_class():
        # Raises it again if it was meant for this task.
        await checkpoint()
        raise RuntimeError(_FROM_WITHIN) from None


class _InContext(UserDict[type, Handler]):
    """The handlers of a server of mcp 1, each in the context of the request that it is called for."""

    def __init__(self, handlers: dict[type, Handler], find: Find) -> None:
        super().__init__()
        # The same dict: handlers may be added while it is served.
        self.data = handlers
        self._find = find
        self._current: ContextVar[Any] = import_module("mcp.server.lowlevel.server").request_ctx

    def __getitem__(self, kind: type) -> Handler:
        handler = self.data[kind]

        async def in_context(request: object) -> object:
            current = self._current.get()
            call = self._find(current.request_id)
            if call is None:
                return await handler(request)
            call.begun.set()
            # By this the handler finds its request.
            call.context.run(self._current.set, current)
            return await _run_in(call.context, handler, request)

        return in_context


async def _run_in(context: Context, handler: Handler, request: object) -> object:
    """Call a handler in another context than this task's. The library would give no answer at all for a
    cancellation that comes out of one."""
    results: list[object] = []
    errors: list[Exception] = []

    async def inside() -> None:
        try:
            results.append(await handler(request))
        except Exception as error:  # noqa: BLE001 - it is for the library, not for the group
            errors.append(error)

    async with anyio.create_task_group() as group:
        _ = context.run(group.start_soon, inside)
    if errors:
        raise errors[0]
    if not results:
        raise RuntimeError(_FROM_WITHIN)
    return results[0]


# The streams that a server reads and writes.


class _Stream:
    """The library enters and closes both directions."""

    def __init__(self) -> None:
        self.is_closed = False

    def close(self) -> None:
        self.is_closed = True

    async def aclose(self) -> None:
        self.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *error: object) -> None:
        self.close()


class Inbox(_Stream):
    """Messages of the agent, for the library to read, in any number."""

    def __init__(self) -> None:
        super().__init__()
        self._items: deque[tuple[object, Context, anyio.Event | None]] = deque()
        self._more = anyio.Event()
        self.last_context: Context | None = None
        """That of the message read last: mcp 2 runs the handler in it."""

    def put(self, message: object, context: Context, *, after: anyio.Event | None = None) -> None:
        """Add a message; the library gets it when `after` has come. Nothing happens once it is closed."""
        if not self.is_closed:
            self._items.append((message, context, after))
            self._more.set()

    def close(self) -> None:
        """End the stream, after what is in it."""
        super().close()
        self._more.set()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> object:
        await checkpoint()
        while not self._items:
            if self.is_closed:
                raise StopAsyncIteration
            self._more = anyio.Event()
            await self._more.wait()
        message, context, after = self._items[0]
        if after is not None:
            await after.wait()
        self._items.popleft()
        self.last_context = context
        return message

    async def receive(self) -> object:
        try:
            return await anext(self)
        except StopAsyncIteration:
            raise anyio.EndOfStream from None


class Outbox(_Stream):
    """Messages of the server: each is handed over at once."""

    def __init__(self, take: Callable[[Any], None]) -> None:
        super().__init__()
        self._take = take

    async def send(self, item: object, /) -> None:
        if self.is_closed:
            raise anyio.ClosedResourceError
        self._take(item)
        # A server that only reports progress must not keep all others from running.
        await checkpoint()


log = logging.getLogger("outrider.session")

_CLOSING_SECONDS: Final = 5.0
"""How long a server may take to end, with its lifespan, before it is cancelled: as long as an agent."""

_ASKING: Final = "elicitation/create"
"""The request of a server that has a question."""
_CANCELLED: Final = "notifications/cancelled"
_ALWAYS: Final = "anthropic/alwaysLoad"


def as_bridge(name: str, instance: object, *, always_load: bool = False) -> Server:
    """Adapt a server of the `mcp` library for sessions. Raises `OptionsError` for anything else. With
    `always_load` the model knows its tools from the first request on. Otherwise it knows their names only,
    and has to ask for the rest before it can use one."""
    if (server := low_server(instance)) is None:
        what = (
            f"the class {instance.__name__}" if isinstance(instance, type) else f"a {type(instance).__name__}"
        )
        raise OptionsError(
            f"the MCP server {preview(name)!r} is {what}, which is not a server",
            hint="Give a `ToolServer`, a server object of the `mcp` library (`Server`, `FastMCP` or "
            "`MCPServer`), or an object with a method `open(link, observe)`.",
        )
    return cast("Server", SimpleNamespace(open=partial(BridgedServer, server, name, always_load=always_load)))


class Call:
    """A request of the agent that the server works on."""

    def __init__(self, number: int, id: JsonRpcId, origin: Origin) -> None:
        self.number: Final = number
        self.id: Final = id
        self.origin: Final = origin
        self.context: Final = copy_context()
        self.begun = anyio.Event()
        self.over = anyio.Event()
        self.reply: JsonRpcReply | None = None
        self.is_cancelled = False

    def end(self, reply: JsonRpcReply) -> None:
        """Answer it, if that has not been done."""
        if self.reply is None:
            self.reply = reply
            self.over.set()


class BridgedServer:
    """A server of the `mcp` library, as one session sees it. Requests get numbers of their own: whenever the
    set of servers changes, the agent connects to each of them again and counts from 0, while it may still
    wait for answers from before."""

    def __init__(
        self, server: object, name: str, link: AgentLink, observe: Observe, *, always_load: bool = False
    ) -> None:
        self._name = name
        self._always_load = always_load
        self._link: AgentLink | None = link
        self._observe = observe
        self._elicit: _Elicit | None = getattr(link, "elicit", None)
        self._questions: dict[object, tuple[anyio.CancelScope, Call | None]] = {}
        """The open questions of the server, with the calls that they belong to."""
        self._numbers = count(1)
        self._calls: dict[object, Call] = {}
        """The calls that the library has not answered yet, by number."""
        self._library = Library(server, self._find)
        self._inbox = Inbox()
        self._group: TaskGroup | None = None
        self._origin: Origin | None = None
        self._failure = ""

    async def receive(self, message: JsonObject, origin: Origin) -> JsonObject | None:
        """Handle a JSON-RPC message of the agent. Returns the reply, if there is one."""
        self._origin = None if self._failure else origin
        rpc = jsonrpc_from_wire(message)
        if isinstance(rpc, JsonRpcRequest):
            answer = self._observed if rpc.method == "tools/call" else self._answer
            reply = await answer(rpc, Call(next(self._numbers), rpc.id, origin))
            if rpc.method == "tools/list" and self._always_load and isinstance(reply, JsonRpcSuccess):
                _load_always(reply.result)
            return reply.to_wire()
        if isinstance(rpc, JsonRpcInvalid):
            return JsonRpcError(None, INVALID_REQUEST, "this is not a JSON-RPC message").to_wire()
        if isinstance(rpc, JsonRpcNotification) and rpc.method == _CANCELLED:
            self._cancel_for_agent(_field(rpc.params, "requestId"))
        else:
            self._pass_on(message)
        return None

    async def run(self) -> None:
        """Serve for as long as the session runs. When it is cancelled, the server learns that its client is
        gone and has 5 s to end in order."""
        ended = anyio.Event()
        scope = anyio.CancelScope(shield=True)
        try:
            async with anyio.create_task_group() as group:
                self._group = group
                group.start_soon(self._serve, scope, ended)
                try:
                    await ended.wait()
                finally:
                    self._group = None
                    # Not all versions cancel what still runs when the client is gone; they would wait for it.
                    for call in list(self._calls.values()):
                        self._cancel(call, "the session is being closed")
                    self._inbox.close()
                    scope.deadline = anyio.current_time() + _CLOSING_SECONDS
                    group.cancel_scope.cancel()
        except BaseExceptionGroup as error:
            # Ctrl-C and the like, in groups of the library and of this class, with its consequences.
            raise unwrapped(error.split(Exception)[1] or error) from error

    # Messages of the agent.

    async def _observed(self, request: JsonRpcRequest, call: Call) -> JsonRpcReply:
        began = perf_counter()
        reply = None
        try:
            reply = await self._answer(request, call)
            return reply
        finally:
            self._observe(self._handled(request, call, reply, perf_counter() - began))

    def _handled(
        self, request: JsonRpcRequest, call: Call, reply: JsonRpcReply | None, seconds: float
    ) -> ToolHandled:
        outcome: Outcome = "failed"
        if call.is_cancelled or reply is None:
            outcome = "cancelled"
        elif isinstance(reply, JsonRpcSuccess):
            outcome = "answered"
        arguments = _field(request.params, "arguments")
        tool_use_id = _field(request.params, "_meta", "claudecode/toolUseId")
        return ToolHandled(
            server=self._name,
            name=str(_field(request.params, "name")),
            arguments=arguments if isinstance(arguments, dict) else {},
            is_error=not isinstance(reply, JsonRpcSuccess) or _field(reply.result, "isError") is True,
            seconds=seconds,
            outcome=outcome,
            tool_use_id=tool_use_id if isinstance(tool_use_id, str) else None,
        )

    async def _answer(self, request: JsonRpcRequest, call: Call) -> JsonRpcReply:
        if self._failure:
            return JsonRpcError(call.id, INTERNAL_ERROR, self._failure)
        params = request.params
        if request.method == "initialize" and self._elicit is not None:
            params = _with_elicitation(params)
        try:
            message = self._library.read(JsonRpcRequest(request.method, call.number, params).to_wire())
        except ValueError:
            return JsonRpcError(
                call.id, INVALID_REQUEST, f"this is not a request of MCP: {preview(request.method)}"
            )
        self._calls[call.number] = call
        self._inbox.put(message, call.context)
        try:
            await call.over.wait()
        except BaseException:
            self._cancel(call, "the request was withdrawn")
            raise
        return cast("JsonRpcReply", call.reply)

    def _cancel_for_agent(self, id: Json) -> None:
        # The newest call with the id is meant.
        for call in reversed(list(self._calls.values())):
            if call.id == id and not call.over.is_set():
                self._cancel(call, "the agent cancelled the request")
                return

    def _cancel(self, call: Call, reason: str) -> None:
        if call.is_cancelled or call.number not in self._calls:
            return
        call.is_cancelled = True
        cancelled = JsonRpcNotification(_CANCELLED, {"requestId": call.number, "reason": reason})
        message = self._library.read(cancelled.to_wire())
        if self._library.is_first:
            # It would be lost if it came before the handler is reached.
            self._inbox.put(message, call.context, after=call.begun)
        else:
            self._inbox.put(message, call.context)
            del self._calls[call.number]
        for scope, asker in self._questions.values():
            if asker is call:
                scope.cancel()
        # The agent expects an answer to each message, and ignores this one.
        call.end(JsonRpcError(call.id, 0, "Request cancelled"))

    def _pass_on(self, message: JsonObject) -> None:
        try:
            read = self._library.read({**message, "jsonrpc": "2.0"})
        except ValueError as error:
            log.debug("the MCP server %r was spared a message: %s", self._name, error)
        else:
            self._inbox.put(read, copy_context())

    # Messages of the server.

    async def _serve(self, scope: anyio.CancelScope, ended: anyio.Event) -> None:
        failure = f"The MCP server {self._name!r} has ended"
        try:
            with scope:
                await self._library.run(self._inbox, Outbox(self._take))
        except Exception as error:
            cause = unwrapped(error)
            failure = mask(f"The MCP server {self._name!r} failed: {type(cause).__name__}: {cause}")
            log.exception("the MCP server %r failed", self._name)
        finally:
            self._failure = failure
            for call in self._calls.values():
                call.end(JsonRpcError(call.id, INTERNAL_ERROR, failure))
            self._calls.clear()
            # A traceback may keep this object alive; it must not keep the connection.
            self._link = self._elicit = self._origin = None
            ended.set()

    def _take(self, item: Any) -> None:  # noqa: ANN401 - a class of the library
        """Take a message of the server's; called in the task and the context that it comes from."""
        message = self._library.write(item)
        rpc = jsonrpc_from_wire(message)
        if isinstance(rpc, (JsonRpcSuccess, JsonRpcError)):
            if (call := self._calls.pop(rpc.id, None)) is not None:
                call.begun.set()
                call.end(msgspec.structs.replace(rpc, id=call.id))
        elif self._link is not None and not self._is_for_user(rpc, item.metadata):
            self._link.post(message)

    def _is_for_user(self, rpc: JsonRpcMessage, metadata: object) -> bool:
        """Whether it is about a question, which does not concern the agent."""
        elicit, group, origin = self._elicit, self._group, self._origin
        if elicit is None or group is None or origin is None:
            return False
        if isinstance(rpc, JsonRpcRequest) and rpc.method == _ASKING:
            caller = self._find(getattr(metadata, "related_request_id", None))
            group.start_soon(self._ask, elicit, rpc, origin if caller is None else caller.origin, caller)
            return True
        if isinstance(rpc, JsonRpcNotification) and rpc.method == _CANCELLED:
            question = self._questions.get(_field(rpc.params, "requestId"))
            if question is not None:
                question[0].cancel()
            return question is not None
        return False

    async def _ask(
        self, elicit: _Elicit, request: JsonRpcRequest, origin: Origin, caller: Call | None
    ) -> None:
        """Put a question of the server to the user; one that is withdrawn gets no answer."""
        scope = anyio.CancelScope()
        self._questions[request.id] = scope, caller
        reply: JsonRpcReply | None = None
        try:
            with scope:
                answer = await elicit(_elicitation(self._name, request.params), origin)
                reply = JsonRpcSuccess(request.id, answer)
        except Exception as error:
            log.exception("a question of the MCP server %r failed", self._name)
            reply = JsonRpcError(request.id, INTERNAL_ERROR, str(error) or type(error).__name__)
        finally:
            del self._questions[request.id]
        if reply is not None:
            self._pass_on(reply.to_wire())

    def _find(self, number: object) -> Call | None:
        # FastMCP of mcp 1 writes numbers as texts.
        return self._calls.get(int(number) if isinstance(number, str) and number.isdecimal() else number)


def _with_elicitation(params: Json) -> Json:
    """The parameters of the first request, for a client by which the user can be asked."""
    if not isinstance(params, dict):
        return params
    known = params.get("capabilities")
    asking: JsonObject = {"elicitation": {"form": {}, "url": {}}}
    return {**params, "capabilities": asking | (known if isinstance(known, dict) else {})}


def _elicitation(server: str, params: Json) -> Elicitation:
    """The question of a server, as the agent would ask it."""
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


def _load_always(listed: Json) -> None:
    """Mark these tools as known to the model from the start. The agent reads no other mark from a server of
    this process."""
    tools = _field(listed, "tools")
    for tool in tools if isinstance(tools, list) else ():
        tool["_meta"] = {_ALWAYS: True} | (tool.get("_meta") or {})


def _field(value: Json, *path: str) -> Json:
    """The value at a path of keys; None if there is none."""
    for key in path:
        value = value.get(key) if isinstance(value, dict) else None
    return value

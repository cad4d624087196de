"""Serves a server of the `mcp` library to a session, and passes its questions to the user.

Each session runs the library's own loop. Does not know the methods of MCP, except those that a host takes
part in. What differs between versions of the library is in `library`.
"""

from __future__ import annotations

import logging
from contextvars import copy_context
from functools import partial
from itertools import count
from time import perf_counter
from types import SimpleNamespace
from typing import TYPE_CHECKING, Final, Protocol, cast, runtime_checkable

import anyio
import msgspec

from outrider.errors import OptionsError
from outrider.handlers._calls import unwrapped
from outrider.handlers._mcp.library import Inbox, Outbox, library_of, low_server
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
    from anyio.abc import TaskGroup

    from outrider.handlers._mcp.library import Item, LowServer
    from outrider.handlers._router import Link, Observe, Origin, Server
    from outrider.wire import Json, JsonObject
    from outrider.wire.control import JsonRpcId, JsonRpcMessage, JsonRpcReply


log = logging.getLogger("outrider.session")

# Questions of servers.

ASKING: Final = "elicitation/create"
"""The request of a server that has a question."""


@runtime_checkable
class ElicitingLink(Protocol):
    """A `Link` by which a server can also ask the user."""

    def post(self, message: JsonObject) -> None: ...

    async def elicit(self, ask: Elicitation, origin: Origin) -> JsonObject:
        """What the user says, as the agent would be told it."""
        ...


class Questions:
    """The questions of one server that are open."""

    def __init__(self, server: str, link: ElicitingLink) -> None:
        self._server = server
        self._link = link
        self._open: dict[object, tuple[anyio.CancelScope, object]] = {}

    async def answer(self, request: JsonRpcRequest, origin: Origin, asker: object) -> JsonRpcReply | None:
        """Ask the user; None if the question was withdrawn. `asker` is the call that it belongs to."""
        scope = anyio.CancelScope()
        self._open[request.id] = scope, asker
        try:
            with scope:
                answer = await self._link.elicit(_elicitation(self._server, request.params), origin)
                return JsonRpcSuccess(request.id, answer)
        except Exception as error:
            log.exception("a question of the MCP server %r failed", self._server)
            return JsonRpcError(request.id, INTERNAL_ERROR, str(error) or type(error).__name__)
        finally:
            del self._open[request.id]
        return None

    def withdraw(self, id: Json) -> bool:
        """The server does not want to know any more. Gives whether the question was open."""
        if (question := self._open.get(id)) is None:
            return False
        question[0].cancel()
        return True

    def withdraw_all_of(self, asker: object) -> None:
        """Whoever asked has been cancelled."""
        for scope, known in self._open.values():
            if known is asker:
                scope.cancel()


def with_elicitation(params: Json) -> Json:
    """The parameters of the first request, for a client by which the user can be asked."""
    if not isinstance(params, dict):
        return params
    known = params.get("capabilities")
    asking: JsonObject = {"elicitation": {"form": {}, "url": {}}}
    return {**params, "capabilities": asking | (known if isinstance(known, dict) else {})}


def _elicitation(server: str, params: Json) -> Elicitation:
    """What a server asks, as the agent would put it."""
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


# The bridge.

_CLOSING_SECONDS: Final = 5.0
"""How long a server may take to end, lifespan and all, before it is cancelled: as long as an agent may."""

_CANCELLED: Final = "notifications/cancelled"
_ALWAYS: Final = "anthropic/alwaysLoad"


def as_bridge(name: str, instance: object, *, always_load: bool = False) -> Server:
    """A server of the `mcp` library as one that sessions can open. Raises `OptionsError` for what is none.

    With `always_load` the model knows its tools from the first request on. Else it is told their names, and
    has to ask for the rest before it can use one.
    """
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


class _Call:
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
    """A server of the `mcp` library, as one session sees it.

    Requests are numbered anew: whenever the set of servers changes, the agent connects to each of them again
    and counts from 0, while it may still wait for answers from before.
    """

    def __init__(
        self, server: LowServer, name: str, link: Link, observe: Observe, *, always_load: bool = False
    ) -> None:
        self._name = name
        self._always_load = always_load
        self._link: Link | None = link
        self._observe = observe
        self._questions = Questions(name, link) if isinstance(link, ElicitingLink) else None
        self._numbers = count(1)
        self._calls: dict[object, _Call] = {}
        """Those that the library has not answered yet, by their numbers."""
        self._library = library_of(server, self._find)
        self._inbox = Inbox()
        self._group: TaskGroup | None = None
        self._origin: Origin | None = None
        self._failure = ""

    async def receive(self, message: JsonObject, origin: Origin) -> JsonObject | None:
        """Take a JSON-RPC message of the agent. Gives the reply; None for what gets none."""
        self._origin = None if self._failure else origin
        rpc = jsonrpc_from_wire(message)
        if isinstance(rpc, JsonRpcRequest):
            answer = self._observed if rpc.method == "tools/call" else self._answer
            reply = await answer(rpc, _Call(next(self._numbers), rpc.id, origin))
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
        """Serve for as long as the session runs.

        When it is cancelled, the server is told that its client is gone and may end in order, within 5 s.
        """
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
            # Ctrl-C and its like, in groups of the library's and this one, and with what came of it.
            raise unwrapped(error.split(Exception)[1] or error) from error

    # What the agent says.

    async def _observed(self, request: JsonRpcRequest, call: _Call) -> JsonRpcReply:
        began = perf_counter()
        reply = None
        try:
            reply = await self._answer(request, call)
            return reply
        finally:
            self._observe(self._handled(request, call, reply, perf_counter() - began))

    def _handled(
        self, request: JsonRpcRequest, call: _Call, reply: JsonRpcReply | None, seconds: float
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

    async def _answer(self, request: JsonRpcRequest, call: _Call) -> JsonRpcReply:
        if self._failure:
            return JsonRpcError(call.id, INTERNAL_ERROR, self._failure)
        params = request.params
        if request.method == "initialize" and self._questions is not None:
            params = with_elicitation(params)
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
        # The newest of those with the id is the one that is meant.
        for call in reversed(list(self._calls.values())):
            if call.id == id and not call.over.is_set():
                self._cancel(call, "the agent cancelled the request")
                return

    def _cancel(self, call: _Call, reason: str) -> None:
        if call.is_cancelled or call.number not in self._calls:
            return
        call.is_cancelled = True
        cancelled = JsonRpcNotification(_CANCELLED, {"requestId": call.number, "reason": reason})
        message = self._library.read(cancelled.to_wire())
        if self._library.answers_cancelled:
            # It would be lost if it came before the handler has been reached.
            self._inbox.put(message, call.context, after=call.begun)
        else:
            self._inbox.put(message, call.context)
            del self._calls[call.number]
        if self._questions is not None:
            self._questions.withdraw_all_of(call)
        # The agent wants an answer to each message, and looks at none to this one.
        call.end(JsonRpcError(call.id, 0, "Request cancelled"))

    def _pass_on(self, message: JsonObject) -> None:
        try:
            read = self._library.read({**message, "jsonrpc": "2.0"})
        except ValueError as error:
            log.debug("the MCP server %r was spared a message: %s", self._name, error)
        else:
            self._inbox.put(read, copy_context())

    # What the server says.

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
            # A traceback in somebody's log may keep this for long; it must not keep the connection.
            self._link = self._questions = self._origin = None
            ended.set()

    def _take(self, item: Item) -> None:
        """Take a message of the server's; called in the task and the context that it comes from."""
        message = self._library.write(item)
        rpc = jsonrpc_from_wire(message)
        if isinstance(rpc, (JsonRpcSuccess, JsonRpcError)):
            if (call := self._calls.pop(rpc.id, None)) is not None:
                call.begun.set()
                call.end(msgspec.structs.replace(rpc, id=call.id))
        elif self._link is not None and not self._is_for_user(rpc, item):
            self._link.post(message)

    def _is_for_user(self, rpc: JsonRpcMessage, item: Item) -> bool:
        """Whether it is about a question, which is not the agent's business."""
        questions, group, origin = self._questions, self._group, self._origin
        if questions is None or group is None or origin is None:
            return False
        if isinstance(rpc, JsonRpcRequest) and rpc.method == ASKING:
            caller = self._find(getattr(item.metadata, "related_request_id", None))
            group.start_soon(self._ask, questions, rpc, origin if caller is None else caller.origin, caller)
            return True
        if isinstance(rpc, JsonRpcNotification) and rpc.method == _CANCELLED:
            return questions.withdraw(_field(rpc.params, "requestId"))
        return False

    async def _ask(
        self, questions: Questions, request: JsonRpcRequest, origin: Origin, caller: _Call | None
    ) -> None:
        if (reply := await questions.answer(request, origin, caller)) is not None:
            self._pass_on(reply.to_wire())

    def _find(self, number: object) -> _Call | None:
        # FastMCP of mcp 1 writes numbers as texts.
        return self._calls.get(int(number) if isinstance(number, str) and number.isdecimal() else number)


def _load_always(listed: Json) -> None:
    """Have the agent show these tools to the model from the start. It reads no other sign than this one from
    a server of this process."""
    tools = _field(listed, "tools")
    for tool in tools if isinstance(tools, list) else ():
        tool["_meta"] = {_ALWAYS: True} | (tool.get("_meta") or {})


def _field(value: Json, *path: str) -> Json:
    """What an object has under a key, and so on; None if it is no object, or has nothing there."""
    for key in path:
        value = value.get(key) if isinstance(value, dict) else None
    return value

"""Routes each request of the agent to what the user supplied for it, and defines the `Handled` events."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import TYPE_CHECKING, Final, Literal, Protocol, TypeAlias, cast

import msgspec
from msgspec.structs import replace

from outrider.errors import OptionsError
from outrider.options import SdkServer
from outrider.wire import Json, JsonObject
from outrider.wire._tolerant import is_object
from outrider.wire.control import INVALID_PARAMS, JsonRpcError, JsonRpcRequest, McpReply, jsonrpc_from_wire

if TYPE_CHECKING:
    from collections.abc import Awaitable, Collection, Mapping

    from outrider.handlers._hooks.dispatch import Hooks
    from outrider.handlers._permissions.elicitation import Dialogs, Elicitations
    from outrider.handlers._permissions.requests import Permissions
    from outrider.options import McpServer, Options
    from outrider.options._tool_names import ToolNames
    from outrider.session import Session, Turn
    from outrider.wire.control import (
        Ask,
        CanUseTool,
        Elicitation,
        HookCallback,
        Initialize,
        McpMessage,
        RequestUserDialog,
    )


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
    from outrider.handlers._mcp import as_bridge

    return as_bridge(name, instance, always_load=bool(given.always_load))


class Servers:
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


_ALWAYS: Final = frozenset(("can_use_tool", "elicitation", "hook_callback", "mcp_message"))
"""Answered whether the user supplied something for it or not: there is a good answer to each, and servers can
be added later."""


class Handlers:
    """What the user supplied for one session, ready to be asked."""

    def __init__(self, options: Options, observe: Observe) -> None:
        """Raises `OptionsError` for what cannot be used."""
        self._options = options
        self._observe = observe
        self._is_closed = False
        self._own_tools: dict[str, Collection[str]] = {}
        self.servers = Servers(own_servers(options), self._observe)
        self._hooks = self._make_hooks() if options.hooks else None
        if options.permission is not None:
            from outrider.handlers._tool_names import check_names

            check_names(options.permission, self.tool_names())
        self._by_subtype: Final[dict[str, Callable[..., Awaitable[JsonObject]]]] = {
            "can_use_tool": self._can_use_tool,
            "elicitation": self._elicitation,
            "hook_callback": _no_hook if self._hooks is None else self._hooks.answer,
            "mcp_message": self.servers.answer,
            "request_user_dialog": self._request_user_dialog,
        }

    @property
    def serves(self) -> frozenset[str]:
        """The kinds of requests that are answered, as the wire names them."""
        return _ALWAYS if self._options.on_user_dialog is None else _ALWAYS | {"request_user_dialog"}

    @property
    def can_be_asked(self) -> bool:
        """Whether the user supplied anything that the agent may ask for at any time."""
        options = self._options
        return (
            self._hooks is not None
            or bool(self.servers.given)
            or options.permission is not None
            or options.on_question is not None
            or options.on_plan is not None
            or options.on_elicitation is not None
            or options.on_user_dialog is not None
        )

    @property
    def allowed_by_nature(self) -> tuple[str, ...]:
        """Rules for tools that may be used without asking, because there is no one to ask: a function
        that is given to a session is meant to be used."""
        options = self._options
        is_asked = options.permission is not None or options.permission_prompt_tool_name is not None
        return (f"mcp__{OWN_TOOLS}",) if own_tools(options) and not is_asked else ()

    def tool_names(self) -> ToolNames:
        """The tools that the session can have, as of now."""
        from outrider.handlers._tool_names import names_of

        names = names_of(self._options, self.servers.given)
        # One that is gone may still be named.
        self._own_tools |= names.own
        return names if names.own == self._own_tools else replace(names, own=dict(self._own_tools))

    def resolved_options(self) -> dict[str, object]:
        """The options that name tools, with the full names of these; only those that change by it. Raises
        `OptionsError` for a name that no tool of the session has."""
        from outrider.handlers._tool_names import resolved_options

        return resolved_options(self._options, self.tool_names)

    def complete(self, request: Initialize) -> Initialize:
        """Add hooks and servers to the first request."""
        if self._hooks is not None:
            request.hooks = self._hooks.registrations()
        if names := [*self.servers.given]:
            request.sdk_mcp_servers = names
        return request

    def begin(self) -> None:
        """The session begins, or is opened again after a failure."""
        self._is_closed = False
        vars(self).pop("_permissions", None)

    def close(self) -> None:
        """The session ends: nothing is allowed any more, open requests included."""
        self._is_closed = True
        if "_permissions" in vars(self):
            self._permissions.close()

    def answer(self, request: Ask, origin: Origin) -> Awaitable[JsonObject]:
        """The reply to a request."""
        return self._by_subtype[request.subtype](request, origin)

    # One for each kind. What is rarely needed is loaded when it is.

    def _can_use_tool(self, ask: CanUseTool, origin: Origin) -> Awaitable[JsonObject]:
        if self._is_closed:
            raise LookupError("the session is being closed")
        return self._permissions.answer(ask, origin)

    def _elicitation(self, ask: Elicitation, origin: Origin) -> Awaitable[JsonObject]:
        return self._elicitations.answer(ask, origin)

    def _request_user_dialog(self, ask: RequestUserDialog, origin: Origin) -> Awaitable[JsonObject]:
        return self._dialogs.answer(ask, origin)

    def _make_hooks(self) -> Hooks:
        from outrider.handlers._hooks.dispatch import Hooks

        return Hooks(self._options.hooks, self._observe, self.tool_names)

    @cached_property
    def _permissions(self) -> Permissions:
        from outrider.handlers._permissions.requests import Permissions

        options = self._options
        return Permissions(
            options.permission,
            options.on_question,
            options.on_plan,
            self._observe,
            self.tool_names,
            timeout=options.timeouts.permission,
        )

    @cached_property
    def _elicitations(self) -> Elicitations:
        from outrider.handlers._permissions.elicitation import Elicitations

        limit = self._options.timeouts.permission
        return Elicitations(self._options.on_elicitation, self._observe, limit)

    @cached_property
    def _dialogs(self) -> Dialogs:
        from outrider.handlers._permissions.elicitation import Dialogs

        callback = cast("Callable[..., object]", self._options.on_user_dialog)
        return Dialogs(callback, self._observe, self._options.timeouts.permission)


def _no_hook(ask: HookCallback, _: Origin) -> Awaitable[JsonObject]:
    # Registered by an earlier `initialize`, or by no one.
    raise LookupError(f"there is no hook {ask.callback_id!r}")


# Events.

Outcome: TypeAlias = Literal["answered", "failed", "timed_out", "cancelled"]
"""Whether the user's function answered; if not, the agent got a failure, or what the failure policy says."""


class Handled(msgspec.Struct, frozen=True, kw_only=True):
    """A request of the agent that was answered here."""

    seconds: float
    """From the request's arrival to the answer."""
    outcome: Outcome
    error: BaseException | None = None
    """What the function raised, if it failed."""
    tool_use_id: str | None = None


class ToolHandled(Handled, frozen=True, kw_only=True):
    """A call of a tool in this process."""

    server: str
    name: str
    arguments: JsonObject
    """As the model gave them."""
    is_error: bool
    """Whether the model was told about an error."""


class HookHandled(Handled, frozen=True, kw_only=True):
    """A hook that ran."""

    event: str
    name: str
    """The function's."""
    answer: JsonObject
    """As sent."""

    @property
    def decision(self) -> str | None:
        """What it decided: `allow`, `deny`, `ask`, `defer`, `block` or `stop`; none if it decided nothing."""
        if self.answer.get("continue") is False:
            return "stop"
        specific = self.answer.get("hookSpecificOutput")
        decision = self.answer.get("decision")
        if is_object(specific):
            inner = specific.get("decision")
            behavior = inner.get("behavior") if is_object(inner) else None
            decision = specific.get("permissionDecision") or behavior or decision
        return decision if isinstance(decision, str) else None


class PermissionHandled(Handled, frozen=True, kw_only=True):
    """A decision about the use of a tool."""

    tool_name: str
    input: JsonObject
    """What the agent wanted to do."""
    decision: Literal["allow", "deny", "pending"]
    """`pending`: it waits for a person, and the session is parked."""
    reason: str
    """Who decided and why: a rule, the callback, or that there was none."""
    approval_id: str | None = None
    """The approval that it waits for, or that allowed or denied it."""


class ElicitationHandled(Handled, frozen=True, kw_only=True):
    """An answer to a question of an MCP server."""

    server: str
    action: str


class DialogHandled(Handled, frozen=True, kw_only=True):
    """An answer to a dialog of the agent."""

    kind: str
    result: Json


Observe: TypeAlias = Callable[[Handled], None]
"""Takes each event; called on the event loop."""


# What handlers and sessions know of each other.


class Origin(Protocol):
    """Who asks: a session, and the turn that it was busy with."""

    @property
    def session(self) -> Session: ...

    @property
    def turn(self) -> Turn | None:
        """None before the first turn, and between turns."""
        ...

    @property
    def tool_names(self) -> ToolNames:
        """The tools that the session can have."""
        ...

    @property
    def is_cancelled(self) -> bool:
        """Whether the answer is not wanted any more, or took too long."""
        ...

    @property
    def is_late(self) -> bool:
        """Whether the answer has reached its limit."""
        ...

    def limit(self, seconds: float) -> bool:
        """Have the answer cancelled if it takes longer than that. False: the call that is to be limited needs
        a scope of its own."""
        ...


class AgentLink(Protocol):
    """The way from a server of this process to the agent."""

    def post(self, message: JsonObject) -> None:
        """Send a JSON-RPC message, from the event loop or from any thread. Never waits, never raises."""
        ...


class Endpoint(Protocol):
    """A server of this process, as one session sees it."""

    async def receive(self, message: JsonObject, origin: Origin) -> JsonObject | None:
        """Take a JSON-RPC message of the agent. Returns the reply; None for what gets none.

        Raises nothing but cancellation, which cancels what the message began.
        """
        ...

    async def run(self) -> None:
        """Do what has to be done for as long as the session runs."""
        ...


class Server(Protocol):
    """A server of this process. Many sessions may use one at the same time."""

    def open(self, link: AgentLink, observe: Observe) -> Endpoint:
        """Begin to serve a session."""
        ...

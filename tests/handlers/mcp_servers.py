"""Servers of the `mcp` library, of whichever version is installed, and an agent that talks to one.

Does not check anything.
"""

from __future__ import annotations

import asyncio
import base64
from collections.abc import AsyncGenerator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from contextvars import ContextVar
from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Final, TypeVar, cast

import anyio
import msgspec
from anyio.lowlevel import checkpoint

from outrider.handlers import Endpoint, Handled, Origin, ToolHandled
from outrider.handlers._mcp import as_bridge
from outrider.wire import JsonObject
from outrider.wire.control import Elicitation

TURN: Final[ContextVar[str]] = ContextVar("TURN", default="none")
"""Stands for what a user sets before a prompt is sent."""

IS_FIRST: Final = find_spec("mcp.server.mcpserver") is None
"""Whether it is mcp 1."""

types: Final[Any] = import_module("mcp.types")
_lowlevel: Final[Any] = import_module("mcp.server.lowlevel")
_high: Final[Any] = import_module("mcp.server.fastmcp" if IS_FIRST else "mcp.server.mcpserver")

LowLevelServer: Final[Any] = _lowlevel.Server
HighLevelServer: Final[Any] = _high.FastMCP if IS_FIRST else _high.MCPServer
Image: Final[Any] = _high.Image
if TYPE_CHECKING:
    Context = Any
else:
    Context = _high.Context

F = TypeVar("F", bound=Callable[..., Any])

PNG: Final = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNkYPhfDwAChwGA60e6kgAAAABJRU5ErkJggg=="
)


def typed(decorator: Any) -> Callable[[F], F]:
    """A decorator of the library's, for type checkers that do not know which version it is."""
    return cast("Callable[[F], F]", decorator)


class Who(msgspec.Struct, frozen=True):
    """An origin that is nothing but a name."""

    name: str

    @property
    def session(self) -> Any:
        raise AssertionError("no server asks for the session")

    @property
    def turn(self) -> Any:
        raise AssertionError("no server asks for the turn")

    @property
    def tool_names(self) -> Any:
        raise AssertionError("no server asks for names")


class RecordingLink:
    """Keeps what is posted, and lets a test wait for it."""

    def __init__(self) -> None:
        self.posted: list[JsonObject] = []
        self._more = anyio.Event()

    def post(self, message: JsonObject) -> None:
        self.posted.append(message)
        self._more.set()

    async def wait_for(self, method: str) -> JsonObject:
        while True:
            for message in self.posted:
                if message.get("method") == method:
                    return message
            self._more = anyio.Event()
            await self._more.wait()


class AnsweringLink(RecordingLink):
    """Has somebody who answers questions."""

    def __init__(self, answer: Callable[[Elicitation, Any], Any]) -> None:
        super().__init__()
        self._answer = answer

    async def elicit(self, ask: Elicitation, origin: Origin) -> JsonObject:
        return cast("JsonObject", await self._answer(ask, origin))


class Agent:
    """The other end of one endpoint."""

    def __init__(self, endpoint: Endpoint, link: RecordingLink, handled: list[ToolHandled]) -> None:
        self.endpoint = endpoint
        self.link = link
        self.handled = handled
        self._ids = iter(range(1_000_000))

    async def say(self, message: JsonObject, turn: str = "none") -> Any:
        """A message, from within a turn."""
        token = TURN.set(turn)
        try:
            return await self.endpoint.receive({"jsonrpc": "2.0", **message}, cast("Origin", Who(turn)))
        finally:
            TURN.reset(token)

    async def ask(self, method: str, params: JsonObject | None = None, turn: str = "none") -> Any:
        """A request; gives all of its reply."""
        message: JsonObject = {"id": next(self._ids), "method": method}
        reply = await self.say(message | ({} if params is None else {"params": params}), turn)
        assert reply["id"] == message["id"]
        return reply

    async def call(self, tool: str, turn: str = "none", **arguments: Any) -> Any:
        """A tool call; gives its result."""
        params = {"name": tool, "arguments": arguments, "_meta": {"progressToken": 7}}
        return (await self.ask("tools/call", params, turn))["result"]

    async def text(self, tool: str, turn: str = "none", **arguments: Any) -> str:
        """The text that a tool call gives."""
        result = await self.call(tool, turn, **arguments)
        return "".join(block["text"] for block in result["content"])

    async def connect(self) -> JsonObject:
        """Shake hands, counting from 0, as the agent does."""
        self._ids = iter(range(1_000_000))
        client = {"name": "claude-code", "version": "2"}
        params = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": client}
        reply = await self.ask("initialize", params)
        await self.say({"method": "notifications/initialized"})
        return cast("JsonObject", reply["result"])


@asynccontextmanager
async def serving(
    server: object, link: RecordingLink | None = None, *, connect: bool = True, always_load: bool = False
) -> AsyncGenerator[Agent]:
    """An agent that a server serves."""
    link = link or RecordingLink()
    handled: list[ToolHandled] = []

    def observe(event: Handled) -> None:
        assert isinstance(event, ToolHandled)
        handled.append(event)

    endpoint = as_bridge("s", server, always_load=always_load).open(link, observe)
    agent = Agent(endpoint, link, handled)
    with anyio.fail_after(20):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(agent.endpoint.run)
            if connect:
                await agent.connect()
            yield agent
            tasks.cancel_scope.cancel()


class Stopwatch:
    """Which slow tools have begun, and which were cancelled."""

    def __init__(self) -> None:
        self.began: list[str] = []
        self.cancelled: list[str] = []
        self._changed = anyio.Event()

    async def hold(self, name: str) -> str:
        self.began.append(name)
        self._changed.set()
        try:
            await anyio.sleep_forever()
        finally:
            self.cancelled.append(name)
            self._changed.set()
        raise AssertionError

    async def until(self, is_it: Callable[[], bool]) -> None:
        while not is_it():
            self._changed = anyio.Event()
            await self._changed.wait()


def high_level(
    watch: Stopwatch | None = None,
    lifespan: Callable[[Any], AbstractAsyncContextManager[Any]] | None = None,
) -> Any:
    """A server with some of everything."""
    watch = watch or Stopwatch()
    more = {} if lifespan is None else {"lifespan": lifespan}
    server = HighLevelServer("demo", instructions="Be brief.", **more)
    tool = typed(server.tool())

    @tool
    async def add(a: int, b: int) -> int:
        """Add two numbers."""
        return a + b

    @tool
    async def turn() -> str:
        await checkpoint()
        return TURN.get()

    @tool
    def turn_of_sync() -> str:
        return TURN.get()

    @tool
    async def set_turn(value: str) -> str:
        TURN.set(value)
        return value

    @tool
    async def fail() -> str:
        raise ValueError("no such ticket")

    @tool
    async def cancelled_inside() -> str:
        raise asyncio.CancelledError

    @tool
    async def picture() -> Any:
        return [Image(data=PNG, format="png"), "a picture"]

    @tool
    async def hold(name: str) -> str:
        return await watch.hold(name)

    @tool
    async def resources(ctx: Context) -> str:
        return str(ctx.request_context.lifespan_context)

    @tool
    async def tell(ctx: Context) -> str:
        await ctx.report_progress(1, 3, "one")
        session = ctx.request_context.session
        await session.send_tool_list_changed()
        await session.send_prompt_list_changed()
        await session.send_resource_list_changed()
        await session.send_resource_updated("x://note")
        return "told"

    @tool
    async def ping_client(ctx: Context) -> str:
        await ctx.request_context.session.send_ping()
        return "ponged"

    @tool
    async def ask(ctx: Context) -> str:
        answer = await ctx.elicit("Who are you?", _form())
        content = getattr(answer, "data", None)
        return f"{answer.action} {content and content.name} {TURN.get()}"

    @typed(server.resource("x://note", mime_type="text/plain"))
    async def note() -> str:
        return f"a note for {TURN.get()}"

    @typed(server.resource("x://notes/{id}", mime_type="text/plain"))
    async def one_note(id: str) -> str:
        return f"note {id}"

    @typed(server.prompt())
    async def greet(who: str) -> str:
        """Greet somebody."""
        return f"Greet {who} for {TURN.get()}"

    @typed(server.completion())
    async def complete(ref: Any, argument: Any, context: Any) -> Any:
        return types.Completion(values=[f"{argument.value}!"])

    return server


def _form() -> Any:
    return import_module("pydantic").create_model("Form", name=(str, ...))


TOOLS: Final[list[JsonObject]] = [
    {
        "name": "double",
        "description": "Double it",
        "inputSchema": {"type": "object", "properties": {"x": {"type": "integer"}}, "required": ["x"]},
        "annotations": {"readOnlyHint": False, "destructiveHint": False, "title": "Double"},
        "_meta": {"anthropic/maxResultSizeChars": 500_000},
    },
    {"name": "bare", "inputSchema": {"type": "object"}},
    {
        "name": "either",
        "inputSchema": {
            "type": "object",
            "oneOf": [{"required": ["a"]}, {"required": ["b"]}],
            "$defs": {"A": {"enum": [None, False, 0]}},
            "additionalProperties": False,
        },
    },
]
"""What `low_level` offers, as it is to arrive."""


def low_level(tell: Callable[[str], None] = lambda _: None) -> Any:
    """A server made of plain handlers, with what `high_level` has no way to."""
    tools = [types.Tool.model_validate(tool) for tool in TOOLS]

    async def double(arguments: dict[str, Any]) -> Any:
        await checkpoint()
        return [types.TextContent(type="text", text=f"{2 * arguments['x']} {TURN.get()}")]

    async def set_level(level: str) -> None:
        tell(f"level {level}")

    async def subscribe(uri: object) -> None:
        tell(f"subscribed {uri}")

    async def unsubscribe(uri: object) -> None:
        tell(f"unsubscribed {uri}")

    if IS_FIRST:
        return _low_level_of_first(tools, double, set_level, subscribe, unsubscribe)
    return _low_level_of_second(tools, double, set_level, subscribe, unsubscribe)


def _low_level_of_first(tools: Any, double: Any, set_level: Any, subscribe: Any, unsubscribe: Any) -> Any:
    server = LowLevelServer("low", version="3")

    async def listed() -> Any:
        return tools

    async def called(name: str, arguments: dict[str, Any]) -> Any:
        assert name == "double"
        return await double(arguments)

    server.list_tools()(listed)
    server.call_tool()(called)
    server.set_logging_level()(set_level)
    server.subscribe_resource()(subscribe)
    server.unsubscribe_resource()(unsubscribe)
    return server


def _low_level_of_second(tools: Any, double: Any, set_level: Any, subscribe: Any, unsubscribe: Any) -> Any:
    async def listed(ctx: Any, params: Any) -> Any:
        return types.ListToolsResult(tools=tools)

    async def called(ctx: Any, params: Any) -> Any:
        assert params.name == "double"
        return types.CallToolResult(content=await double(params.arguments))

    async def levelled(ctx: Any, params: Any) -> Any:
        await set_level(params.level)
        return types.EmptyResult()

    async def subscribed(ctx: Any, params: Any) -> Any:
        await subscribe(params.uri)
        return types.EmptyResult()

    async def unsubscribed(ctx: Any, params: Any) -> Any:
        await unsubscribe(params.uri)
        return types.EmptyResult()

    server = LowLevelServer(
        "low",
        version="3",
        on_list_tools=listed,
        on_call_tool=called,
        on_subscribe_resource=subscribed,
        on_unsubscribe_resource=unsubscribed,
    )
    # Not by a keyword: that is deprecated, and warns.
    server.add_request_handler("logging/setLevel", types.SetLevelRequestParams, levelled)
    return server


def counting_lifespan(
    events: list[str], *, fails: bool = False, hangs: bool = False
) -> Callable[[Any], AbstractAsyncContextManager[Any]]:
    """A lifespan that tells what becomes of it."""

    @asynccontextmanager
    async def lifespan(_: object) -> AsyncGenerator[str]:
        await checkpoint()
        if fails:
            raise ConnectionError("no database")
        events.append("in")
        try:
            yield f"database {events.count('in')}"
        finally:
            await (anyio.sleep_forever() if hangs else checkpoint())
            events.append("out")

    return lifespan

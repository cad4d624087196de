"""Adapts to both major versions of the `mcp` library: how each runs a server and exchanges messages.

Never imports the library: a server of it shows that it is loaded already.
"""

from __future__ import annotations

import copy
import sys
from collections import deque
from collections.abc import Awaitable, Callable, Iterator, MutableMapping
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final, Generic, Protocol, TypeAlias, TypeVar, cast

import anyio
from anyio.lowlevel import checkpoint

if TYPE_CHECKING:
    from contextlib import AbstractAsyncContextManager
    from contextvars import Context, ContextVar
    from types import TracebackType
    from typing import Self

    from outrider.wire import JsonObject

    _Waiting = tuple[object, Context, anyio.Event | None]


_INNER: Final = ("_mcp_server", "_lowlevel_server")
"""Where `FastMCP` (also that of the package `fastmcp`) and `MCPServer` keep the server that does the work.
There is no public way to it; the library's own helpers take this one."""

_FROM_WITHIN: Final = "something that the handler waited for was cancelled"

Handler: TypeAlias = Callable[[object], Awaitable[object]]


class Item(Protocol):
    """A message as the library has it."""

    @property
    def message(self) -> _Model: ...

    @property
    def metadata(self) -> object: ...


class _Model(Protocol):
    def model_dump(self, **how: object) -> JsonObject: ...


class LowServer(Protocol):
    """What both versions have in common."""

    def create_initialization_options(self, changes: object, /) -> object: ...

    async def run(self, inbox: Inbox, outbox: Outbox, options: object, /) -> None: ...

    lifespan: Callable[[object], AbstractAsyncContextManager[object]]


class _FirstServer(LowServer, Protocol):
    request_handlers: MutableMapping[type, Handler]


class _SecondServer(LowServer, Protocol):
    middleware: list[Callable[[object, Handler], Awaitable[object]]]


class _Request(Protocol):
    @property
    def request_id(self) -> object: ...


class Work(Protocol):
    """A request that a server works on."""

    @property
    def context(self) -> Context:
        """The one to work in, which nobody else has."""
        ...

    @property
    def begun(self) -> anyio.Event:
        """To be set when the handler has been reached."""
        ...


Find: TypeAlias = Callable[[object], Work | None]
"""Gives the request of a number."""


def low_server(candidate: object) -> LowServer | None:
    """The low-level server that an object of the library is, or has; None for any other object."""
    kind = getattr(sys.modules.get("mcp.server.lowlevel"), "Server", None)
    if not isinstance(kind, type) or isinstance(candidate, type):
        return None
    # Not by `getattr`: others may make up whatever they are asked for.
    own: dict[str, object] = getattr(candidate, "__dict__", {})
    for found in (candidate, *map(own.get, _INNER)):
        if isinstance(found, kind):
            return cast("LowServer", found)
    return None


Low = TypeVar("Low", bound=LowServer)


class Library(Generic[Low]):
    """One server, run by the version of the library that it is made with."""

    answers_cancelled: bool
    """Whether a cancelled request is answered nevertheless."""

    def __init__(self, server: Low) -> None:
        self._server = server
        self._types = import_module("mcp.types")
        self._wrap: Callable[[object], object] = import_module("mcp.shared.message").SessionMessage

    def read(self, message: JsonObject) -> object:
        """A message as the library has it. Raises `ValueError` for an invalid one."""
        raise NotImplementedError

    def write(self, item: Item) -> JsonObject:
        """A message of the library as it is sent."""
        raise NotImplementedError

    async def run(self, inbox: Inbox, outbox: Outbox) -> None:
        """Serve until the inbox ends."""
        # The user's object serves others too, and stays as it is. It is the one that its lifespan is told of.
        server = copy.copy(self._server)
        server.lifespan = self._lifespan
        self._prepare(server)
        # Said to be possible, so that the agent heeds them when they come.
        changes: object = import_module("mcp.server.lowlevel").NotificationOptions(True, True, True)
        await server.run(inbox, outbox, server.create_initialization_options(changes))

    def _lifespan(self, _: object) -> AbstractAsyncContextManager[object]:
        return self._server.lifespan(self._server)

    def _prepare(self, server: Low) -> None:
        """Have the handlers of a server called as they should be."""
        raise NotImplementedError


class _SecondMcp(Library[_SecondServer]):
    """mcp 2: a handler runs in the context that comes with its message."""

    answers_cancelled = False

    def read(self, message: JsonObject) -> object:
        return self._wrap(self._types.jsonrpc_message_adapter.validate_python(message, by_name=False))

    def write(self, item: Item) -> JsonObject:
        return item.message.model_dump(by_alias=True, mode="json", exclude_unset=True)

    def _prepare(self, server: _SecondServer) -> None:
        server.middleware = [_guarded, *server.middleware]


async def _guarded(request: object, handler: Handler) -> object:
    """Call a handler. The library would end all of the server for a cancellation that comes out of one."""
    try:
        return await handler(request)
    except anyio.get_cancelled_exc_class():
        # Raises it again if it was meant for this task.
        await checkpoint()
        raise RuntimeError(_FROM_WITHIN) from None


class _FirstMcp(Library[_FirstServer]):
    """mcp 1: handlers would run in the context of the loop; each is taken to that of its request."""

    answers_cancelled = True

    def __init__(self, server: _FirstServer, find: Find) -> None:
        super().__init__(server)
        self._find = find

    def read(self, message: JsonObject) -> object:
        return self._wrap(self._types.JSONRPCMessage.model_validate(message))

    def write(self, item: Item) -> JsonObject:
        return item.message.model_dump(by_alias=True, mode="json", exclude_none=True)

    def _prepare(self, server: _FirstServer) -> None:
        server.request_handlers = _InContext(server.request_handlers, self._find)


def library_of(server: LowServer, find: Find) -> Library[Any]:
    """How to run a server."""
    if isinstance(getattr(server, "request_handlers", None), dict):
        return _FirstMcp(cast("_FirstServer", server), find)
    return _SecondMcp(cast("_SecondServer", server))


class _InContext(MutableMapping[type, Handler]):
    """The handlers of a server, each in the context of the request that it is called for."""

    def __init__(self, handlers: MutableMapping[type, Handler], find: Find) -> None:
        self._handlers = handlers
        self._find = find
        self._current: ContextVar[_Request] = import_module("mcp.server.lowlevel.server").request_ctx

    def __getitem__(self, kind: type) -> Handler:
        handler = self._handlers[kind]

        async def in_context(request: object) -> object:
            current = self._current.get()
            work = self._find(current.request_id)
            if work is None:
                return await handler(request)
            work.begun.set()
            # By this the handler finds its request.
            work.context.run(self._current.set, current)
            return await _run_in(work.context, handler, request)

        return in_context

    def __setitem__(self, kind: type, handler: Handler) -> None:
        self._handlers[kind] = handler

    def __delitem__(self, kind: type) -> None:
        del self._handlers[kind]

    def __iter__(self) -> Iterator[type]:
        return iter(self._handlers)

    def __len__(self) -> int:
        return len(self._handlers)


async def _run_in(context: Context, handler: Handler, request: object) -> object:
    """Call a handler in another context than this task's.

    The library would give no answer at all for a cancellation that comes out of one.
    """
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
    """What both directions have in common: they are entered, and closed by the library."""

    def __init__(self) -> None:
        self.is_closed = False

    def close(self) -> None:
        self.is_closed = True

    async def aclose(self) -> None:
        self.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class Inbox(_Stream):
    """What the agent says, for the library to read. It holds any number of messages."""

    def __init__(self) -> None:
        super().__init__()
        self._items: deque[_Waiting] = deque()
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
    """What the server says: each message is handed over at once."""

    def __init__(self, take: Callable[[Item], None]) -> None:
        super().__init__()
        self._take = take

    async def send(self, item: Item, /) -> None:
        if self.is_closed:
            raise anyio.ClosedResourceError
        self._take(item)
        # A server that only reports progress must not keep all others from running.
        await checkpoint()

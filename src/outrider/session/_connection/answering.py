"""Answers the agent's requests, each in a task of its own and in the context of the turn that it comes from.

What an answer is, is known to the handlers, which are reached through whoever holds them: a handler that
mentions its session does not keep it.
"""

from __future__ import annotations

import logging
import weakref
from collections import OrderedDict
from contextlib import asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING, Final, cast

import anyio
from anyio import from_thread
from anyio.lowlevel import checkpoint

from outrider.errors import OptionsError, UsageError
from outrider.session._turn import Turn
from outrider.wire.control import SendMcpMessage

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
    from contextvars import Context
    from typing import TypeAlias

    from outrider.handlers import Endpoint, Handlers, Origin
    from outrider.options import SdkServer
    from outrider.options._tool_names import ToolNames
    from outrider.protocol import Peer, RequestReceived, RequestWithdrawn
    from outrider.session._connection.connection import Connection
    from outrider.session._connection.conversation import Conversation
    from outrider.session._connection.tasks import Task
    from outrider.session._session import Session
    from outrider.session._streams.turn_state import TurnState
    from outrider.wire import JsonObject, RequestId
    from outrider.wire.control import Ask, Elicitation


def is_failure(error: BaseException) -> bool:
    """Whether it concerns nobody but the code that raised it: an error, a cancellation, or a group of these.

    A cancellation may still be meant for the task: a checkpoint raises it again then.
    """
    kinds = (Exception, GeneratorExit, anyio.get_cancelled_exc_class())
    if isinstance(error, BaseExceptionGroup):
        return cast("BaseExceptionGroup[BaseException]", error).split(kinds)[1] is None
    return isinstance(error, kinds)


def unwrapped(error: BaseException) -> BaseException:
    """The one exception in a group of one, as task groups make them."""
    if not isinstance(error, BaseExceptionGroup):
        return error
    group = cast("BaseExceptionGroup[BaseException]", error)
    return group if len(group.exceptions) > 1 else unwrapped(next(iter(group.exceptions)))


def words_of(error: BaseException) -> str:
    """What it says, or else what it is."""
    try:
        return str(error) or type(error).__name__
    except Exception:  # noqa: BLE001 - an exception of the user's, which may be anything
        return type(error).__name__


if TYPE_CHECKING:
    Answerer: TypeAlias = Callable[[Ask], Awaitable[JsonObject]]

log = logging.getLogger("outrider.session")

_AT_ONCE: Final = 16
"""Answers that are begun before others get their turn, however many are asked for."""


class Answering:
    """The requests of the agent that are open."""

    def __init__(self, connection: Connection, peer: Peer) -> None:
        self._connection = connection
        self._peer = peer
        self.find_answerer: Callable[[TurnState | None], Answerer | None] = lambda _: None
        self.find_context: Callable[[TurnState | None], Context | None] = lambda _: None
        self._open: dict[RequestId, anyio.CancelScope] = {}
        self._tasks: dict[RequestId, Task] = {}
        """Those that are in no task group."""
        self._waiting: OrderedDict[RequestId, Callable[[], None]] = OrderedDict()
        self._starting = 0

    @property
    def count(self) -> int:
        """How many are open."""
        return len(self._open)

    def received(self, event: RequestReceived) -> None:
        """Begin to answer, or have it wait for those that are about to begin."""
        # From now on: it may be taken back before its task runs.
        scope = self._open[event.id] = self._connection.loop.make_scope()
        begin = partial(self._begin, event, self._connection.routing.front, scope)
        if self._starting < _AT_ONCE:
            begin()
        else:
            self._waiting[event.id] = begin

    def _begin(self, event: RequestReceived, turn: TurnState | None, scope: anyio.CancelScope) -> None:
        self._starting += 1
        arguments = (event.id, event.request, turn, scope)
        context = self.find_context(turn)
        task = self._connection.start_answer(self._answer, *arguments, context=context)
        if task is not None:
            self._tasks[event.id] = task

    def withdrawn(self, event: RequestWithdrawn) -> None:
        """The answer is not wanted any more."""
        if self._waiting.pop(event.id, None) is not None:
            del self._open[event.id]
        elif (scope := self._open.get(event.id)) is not None:
            scope.cancel()

    def cancel(self) -> None:
        """No answer is wanted any more."""
        self._waiting.clear()
        for scope in self._open.values():
            scope.cancel()

    async def end(self) -> None:
        """The same, and wait until all have ended."""
        self.cancel()
        if self._tasks:
            with anyio.CancelScope(shield=True):
                await self._connection.loop.wait_ended(self._tasks.values())
            self._tasks.clear()

    async def _answer(
        self, id: RequestId, request: Ask, turn: TurnState | None, scope: anyio.CancelScope
    ) -> None:
        self._starting -= 1
        if self._waiting:
            self._waiting.popitem(last=False)[1]()
        try:
            with scope:
                if not scope.cancel_called:
                    await self._reply(id, request, turn)
            self._connection.flush()
        finally:
            del self._open[id]
            self._tasks.pop(id, None)
            self._connection.was_excused()

    async def _reply(self, id: RequestId, request: Ask, turn: TurnState | None) -> None:
        peer = self._peer
        try:
            answerer = self.find_answerer(turn)
            if answerer is None:
                peer.refuse(id, "the session is being closed")
            else:
                peer.respond(id, await answerer(request))
        except Exception as error:  # noqa: BLE001 - whatever the user's code raises
            self._refuse_for(id, request, error)
        except GeneratorExit as error:
            # Of the user's code, or this is thrown away together with its event loop. It may not wait then.
            if not self._connection.is_here:
                raise
            self._refuse_for(id, request, error)
        except BaseException as error:  # noqa: BLE001 - Ctrl-C and its like, and cancellations
            if is_failure(error):
                # Raises it again if it was meant for this task. Else something that the handler waited for
                # was cancelled.
                await checkpoint()
                self._refuse_for(id, request, error)
            else:
                crash = unwrapped(error)
                peer.refuse(id, f"the host was ended: {type(crash).__name__}")
                self._connection.end_with(crash)

    def _refuse_for(self, id: RequestId, request: Ask, error: BaseException) -> None:
        log.error("a handler failed: %s", request.subtype, exc_info=error)
        self._peer.refuse(id, words_of(error))


class TurnOrigin:
    """A session, and the turn that it was busy with when it asked."""

    def __init__(self, conversation: Conversation, state: TurnState | None) -> None:
        self._conversation = weakref.ref(conversation)
        self._state = state

    @property
    def session(self) -> Session:
        return self._kept().session

    @property
    def turn(self) -> Turn | None:
        state = self._state
        return None if state is None else Turn(self._kept(), state, state.reading_position())

    @property
    def tool_names(self) -> ToolNames:
        return self._kept().handlers.tool_names()

    def _kept(self) -> Conversation:
        conversation = self._conversation()
        if conversation is None:
            raise UsageError("The session was dropped while it waited for this answer.")
        return conversation


class ServerLink:
    """Carries the messages of one server to the agent."""

    def __init__(
        self, connection: Connection, server: str, find_handlers: Callable[[], Handlers | None]
    ) -> None:
        self._connection = connection
        self._server = server
        self._find_handlers = find_handlers

    def post(self, message: JsonObject) -> None:
        """Send a JSON-RPC message, from the event loop or from any thread."""
        request = SendMcpMessage(self._server, message)
        try:
            if self._connection.is_here:
                self._connection.post(request)
            else:
                from_thread.run(self._post, request, token=self._connection.loop.token)
        except Exception as error:  # noqa: BLE001 - the agent is gone, or the event loop; both end the call anyway
            log.debug("a message of the server %r could not be sent: %s", self._server, error)

    async def elicit(self, ask: Elicitation, origin: Origin) -> JsonObject:
        """Ask the user what the server wants to know, as if the agent did, which does not do it for servers
        of this process."""
        handlers = self._find_handlers()
        if handlers is None:
            raise UsageError("The session was dropped while a server waited for an answer.")
        return await handlers.answer(ask, origin)

    async def _post(self, request: SendMcpMessage) -> None:
        # In a task: tasks cannot be started from anywhere else.
        self._connection.post(request)


class Serving:
    """The servers that a conversation runs."""

    def __init__(self, handlers: Handlers, connection: Connection, context: Context) -> None:
        self._handlers = handlers
        self._connection = connection
        self._context = context
        self._fixed = handlers.servers.given
        """Those of the start, which stay."""
        self._changing = anyio.Lock()
        self._running: dict[str, anyio.CancelScope] = {}

    def begin(self, find_handlers: Callable[[], Handlers | None]) -> None:
        """Begin to run those of the start. Their links reach the handlers without keeping them."""
        self._find_handlers = find_handlers
        for name in self._fixed:
            self._run(name)

    @asynccontextmanager
    async def exchanged(self, wanted: Mapping[str, SdkServer]) -> AsyncGenerator[dict[str, JsonObject]]:
        """Have other servers beside those of the start than until now; gives all as the agent has to be told.

        If the block fails, those of before are served again. Raises `OptionsError` for what is no server, or
        has the name of one of the start.
        """
        async with self._changing:
            servers = self._handlers.servers
            before = {name: given for name, given in servers.given.items() if name not in self._fixed}
            for name in wanted:
                if name in self._fixed:
                    raise OptionsError(
                        f"there is a server {name!r} of this process from the start",
                        hint="Give it another name.",
                    )
            try:
                self._become(before, wanted, is_final=False)
                told = {**self._fixed, **wanted}
                yield {name: {**given.to_wire(), "name": name} for name, given in told.items()}
            except BaseException:
                self._become(servers.given.keys() - self._fixed.keys(), before, is_final=True)
                raise
            self._become(before.keys() | wanted.keys(), wanted, is_final=True)
            self._connection.routing.turns.can_be_asked = self._handlers.can_be_asked

    def _become(
        self, before: Mapping[str, object] | set[str], wanted: Mapping[str, SdkServer], *, is_final: bool
    ) -> None:
        """Run what is wanted; if that is final, end what is not."""
        servers = self._handlers.servers
        for name, given in wanted.items():
            if (known := servers.given.get(name)) is None or known.instance is not given.instance:
                # First, because it may raise.
                servers.put(name, given)
                self._end(name)
                self._run(name)
        if is_final:
            for name in set(before) - wanted.keys():
                self._end(name)
                if name in servers.given:
                    servers.remove(name)

    def _run(self, name: str) -> None:
        link = ServerLink(self._connection, name, self._find_handlers)
        endpoint = self._handlers.servers.open(name, link)
        scope = self._running[name] = anyio.CancelScope()
        self._connection.start(_run_endpoint, endpoint, scope, self._connection, context=self._context)

    def _end(self, name: str) -> None:
        if (scope := self._running.pop(name, None)) is not None:
            scope.cancel()


async def _run_endpoint(endpoint: Endpoint, scope: anyio.CancelScope, connection: Connection) -> None:
    """Run a server for as long as it is wanted. One that fails takes nothing else with it."""
    try:
        with scope:
            await endpoint.run()
    except Exception:
        log.exception("a server of this process failed")
    except GeneratorExit:
        # The server's, or this is thrown away together with its event loop.
        if not connection.is_here:
            raise
        log.exception("a server of this process failed")
    except BaseException as error:
        if not is_failure(error):
            connection.end_with(unwrapped(error))
            return
        # Raises it again if it was meant for this task.
        await checkpoint()
        log.exception("a server of this process failed")

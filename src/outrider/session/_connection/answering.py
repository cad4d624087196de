"""Answers the agent's requests, each in a task of its own and in the context of the turn that it comes from.

What an answer is, is known to the handlers, which are reached through whoever holds them: a handler that
mentions its session does not keep it.
"""

from __future__ import annotations

import logging
import math
import weakref
from collections import OrderedDict
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Final, cast

import anyio
import msgspec
from anyio import from_thread
from anyio.lowlevel import checkpoint

from outrider.command import Command
from outrider.errors import LaunchError, OptionsError, UsageError
from outrider.handlers._calls import call, unwrapped
from outrider.options._encode import AUTH_SECONDS
from outrider.session._turn import Turn
from outrider.wire import UpdateEnvironmentVariables

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Mapping
    from contextvars import Context

    from outrider.handlers import Endpoint, Handlers, Origin
    from outrider.options import Options, SdkServer
    from outrider.options._tool_names import ToolNames
    from outrider.protocol import Peer, RequestReceived, RequestWithdrawn
    from outrider.session._connection.connection import Connection
    from outrider.session._connection.conversation import Conversation
    from outrider.session._connection.tasks import Loop, Task
    from outrider.session._session import Session
    from outrider.session._streams.turn_state import TurnState
    from outrider.transports import ProcessTransport, Transport
    from outrider.wire import ApiRetryMessage, JsonObject, RequestId
    from outrider.wire.control import Ask, Elicitation, SendMcpMessage


def is_failure(error: BaseException) -> bool:
    """Whether it concerns no one but the code that raised it: an error, a cancellation, or a group of these.

    A cancellation may still be meant for the task: a checkpoint raises it again then.
    """
    kinds = (Exception, GeneratorExit, anyio.get_cancelled_exc_class())
    if isinstance(error, BaseExceptionGroup):
        return cast("BaseExceptionGroup[BaseException]", error).split(kinds)[1] is None
    return isinstance(error, kinds)


def words_of(error: BaseException) -> str:
    """What it says, or else what it is."""
    try:
        return str(error) or type(error).__name__
    except Exception:  # noqa: BLE001 - an exception of the user's, which may be anything
        return type(error).__name__


log = logging.getLogger("outrider.session")

_REJECTED: Final = 401
"""The status of a call whose token has expired, or was never valid."""

_AT_ONCE: Final = 16
"""Answers that are begun before others get their turn, however many are asked for."""


class Answering:
    """The requests of the agent that are open."""

    def __init__(self, connection: Connection, peer: Peer) -> None:
        self._connection = connection
        self._peer = peer
        self._open: dict[RequestId, TurnOrigin] = {}
        self._waiting: OrderedDict[RequestId, RequestReceived] = OrderedDict()
        self._starting = 0
        self.token: str | None = None
        """The OAuth token that the agent has, as far as it came from here."""
        self._refreshed_at = -math.inf
        self._is_refreshing = False

    @property
    def count(self) -> int:
        """How many are open."""
        return len(self._open)

    def received(self, event: RequestReceived) -> None:
        """Begin to answer, or have it wait for those that are about to begin."""
        # From now on: it may be taken back before its task runs.
        connection = self._connection
        conversation = connection.owner()
        if conversation is None:
            self._peer.refuse(event.id, "the session is being closed")
            return
        origin = TurnOrigin(conversation, connection.routing.front, connection.loop)
        self._open[event.id] = origin
        if self._starting < _AT_ONCE:
            self._begin(event, origin)
        else:
            self._waiting[event.id] = event

    def _begin(self, event: RequestReceived, origin: TurnOrigin) -> None:
        self._starting += 1
        arguments = event.id, event.request, origin
        origin.task = self._connection.start_answer(self._answer, arguments, origin.context)

    def withdrawn(self, event: RequestWithdrawn) -> None:
        """The answer is not wanted any more."""
        if self._waiting.pop(event.id, None) is not None:
            del self._open[event.id]
        elif (origin := self._open.get(event.id)) is not None:
            origin.scope.cancel()

    def cancel(self) -> None:
        """No answer is wanted any more."""
        self._waiting.clear()
        for origin in self._open.values():
            origin.scope.cancel()

    async def end(self) -> None:
        """The same, and wait until all have ended."""
        self.cancel()
        tasks = [origin.task for origin in self._open.values() if origin.task is not None]
        if tasks:
            with anyio.CancelScope(shield=True):
                await self._connection.loop.wait_ended(tasks)
        self._connection.loop.close()

    async def _answer(self, id: RequestId, request: Ask, origin: TurnOrigin) -> None:
        self._starting -= 1
        if self._waiting:
            waiting, event = self._waiting.popitem(last=False)
            self._begin(event, self._open[waiting])
        try:
            with origin.scope as scope:
                if not scope.cancel_called:
                    try:
                        if (follower := self._connection.routing.follower) is not None:
                            follower.answering(request)
                        self._peer.respond(id, await origin.handlers.answer(request, origin))
                    except BaseException as error:  # noqa: BLE001 - whatever the user's code raises
                        await self._refuse_for(id, request, error)
            self._connection.flush()
        finally:
            self._connection.loop.lift_limit(origin.scope)
            del self._open[id]
            self._connection.was_excused()

    async def _refuse_for(self, id: RequestId, request: Ask, error: BaseException) -> None:
        """Refuse a request whose handler failed. Raises the error if it is not the handler's."""
        if isinstance(error, GeneratorExit):
            # Of the user's code, or this is thrown away together with its event loop. It may not wait then.
            if not self._connection.is_here:
                raise error
        elif not isinstance(error, Exception):
            if not is_failure(error):
                # Ctrl-C and its like.
                crash = unwrapped(error)
                self._peer.refuse(id, f"the host was ended: {type(crash).__name__}")
                self._connection.end_with(crash)
                return
            # Raises it again if it was meant for this task. Else something that the handler waited for was
            # cancelled.
            await checkpoint()
        log.error("a handler failed: %s", request.subtype, exc_info=error)
        self._peer.refuse(id, words_of(error))

    # Tokens. The agent does not ask for one: that the API rejected its own is the question.

    def call_failed(self, retry: ApiRetryMessage) -> None:
        """A call of the API failed: get another token if that was the reason, or else stop its turn if it is
        not to be tried again."""
        facts = retry.error_status or "no answer", retry.attempt, retry.max_retries
        log.warning("the API failed (%s), and Claude Code tries again: %d of %d", *facts)
        if not self._begins_refresh(retry):
            self._connection.give_up(retry)

    def _begins_refresh(self, retry: ApiRetryMessage) -> bool:
        """Begin to get another token, if the API rejected the agent's and the user has a function for it."""
        conversation = self._connection.owner()
        if retry.error_status != _REJECTED or conversation is None:
            return False
        if conversation.options.on_auth_refresh is None:
            return False
        if retry.attempt > 1 and self._connection.loop.now() - self._refreshed_at < AUTH_SECONDS:
            # The new one was rejected, too.
            return False
        if not self._is_refreshing:
            self._is_refreshing = True
            context = conversation.context_of(self._connection.routing.front)
            self._connection.start(self._refresh_auth, retry, context=context)
        return True

    async def _refresh_auth(self, retry: ApiRetryMessage) -> None:
        connection = self._connection
        token: str | None = None
        try:
            if (conversation := connection.owner()) is not None:
                token = await new_token(conversation.options)
        except NoToken as error:
            log.error("the API rejected the token: %s", error, exc_info=error.__cause__)  # noqa: TRY400
        except BaseException as error:
            if is_failure(error):
                raise
            connection.end_with(unwrapped(error))
            return
        finally:
            self._is_refreshing = False
        if token is not None and token != self.token:
            self.token, self._refreshed_at = token, connection.loop.now()
            _hide_token(connection.transport, token)
            self._peer.send(UpdateEnvironmentVariables({TOKEN: token}))
            connection.flush()
        # Once there was another token, the call may have begun before that.
        elif token is None or retry.attempt > 1 or self._refreshed_at == -math.inf:
            connection.give_up(retry)


TOKEN: Final = "CLAUDE_CODE_OAUTH_TOKEN"


class NoToken(Exception):
    """The user's function gave no token."""


async def new_token(options: Options) -> str:
    """Ask the user's function for a token. Raises `NoToken`."""
    try:
        token = await call(cast("Callable[[], object]", options.on_auth_refresh), timeout=AUTH_SECONDS)
    except Exception as error:
        raise NoToken(f"`on_auth_refresh` failed: {words_of(error)}") from error
    if not isinstance(token, str) or not token.strip():
        found = "an empty text" if isinstance(token, str) else type(token).__name__
        raise NoToken(f"`on_auth_refresh` returned no token, but {found}")
    return token.strip()


def _hide_token(transport: Transport, token: str) -> None:
    """Have errors hide it, as they hide what the agent was started with."""
    command = getattr(transport, "command", None)
    if isinstance(command, Command):
        known = msgspec.structs.replace(command, secrets=(*command.secrets, token))
        cast("ProcessTransport", transport).command = known


async def with_token(options: Options) -> Options:
    """The options with a token of the user's function in their `env`, if there is one and they have none.
    Raises `LaunchError` if it gives none."""
    if options.on_auth_refresh is None or TOKEN in options.env:
        return options
    try:
        return msgspec.structs.replace(options, env={**options.env, TOKEN: await new_token(options)})
    except NoToken as error:
        raise LaunchError(str(error), hint="Return the token as text.") from error.__cause__


class TurnOrigin:
    """A session, and the turn that it was busy with when it asked."""

    def __init__(self, conversation: Conversation, state: TurnState | None, loop: Loop) -> None:
        self._conversation = weakref.ref(conversation)
        self._state = state
        self._loop = loop
        self._limit = math.inf
        self.handlers: Final = conversation.handlers
        """What answers."""
        self.context: Final = conversation.context_of(state)
        """What the answer runs in."""
        self.scope = loop.make_scope()
        """Ends the answer, when it is not wanted any more or takes too long."""
        self.task: Task | None = None
        """Its task, if that is in no task group."""

    @property
    def is_cancelled(self) -> bool:
        return self.scope.cancel_called

    @property
    def is_late(self) -> bool:
        return self._loop.now() >= self._limit

    def limit(self, seconds: float) -> bool:
        self._limit = self._loop.limit(self.scope, seconds)
        return True

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

    def __init__(self, connection: Connection, server: str) -> None:
        self._connection = connection
        self._server = server

    def post(self, message: JsonObject) -> None:
        """Send a JSON-RPC message, from the event loop or from any thread."""
        # Here: most sessions have no such server.
        from outrider.wire.control import SendMcpMessage

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
        conversation = self._connection.owner()
        if conversation is None:
            raise UsageError("The session was dropped while a server waited for an answer.")
        answer = conversation.handlers.answer(ask, origin)
        del conversation
        return await answer

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

    def begin(self) -> None:
        """Begin to run those of the start."""
        for name in self._fixed:
            self._run(name)

    @asynccontextmanager
    async def exchanged(self, wanted: Mapping[str, SdkServer]) -> AsyncGenerator[dict[str, JsonObject]]:
        """Replace the servers beside those of the start; returns all of them, as the agent gets them.

        If the block fails, the earlier ones are served again. Raises `OptionsError` for an invalid server, or
        one with the name of a server of the start.
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
                all_servers = {**self._fixed, **wanted}
                yield {name: {**given.to_wire(), "name": name} for name, given in all_servers.items()}
            except BaseException:
                self._become(servers.given.keys() - self._fixed.keys(), before, is_final=True)
                raise
            self._become(before.keys() | wanted.keys(), wanted, is_final=True)
            self._connection.routing.can_be_asked = self._handlers.can_be_asked

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
        link = ServerLink(self._connection, name)
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

"""One connection to an agent: reads what it says, asks it, answers it, and watches over its turns.

Its tasks belong to the event loop, not to the user's; it holds no session, which may be dropped at any time
and then ends it. What a request means is known to the router, how the agent is reached to the transport."""

from __future__ import annotations

import logging
from contextlib import suppress
from contextvars import Context
from copy import copy
from typing import TYPE_CHECKING, Any, Final, TypeVar, cast

import anyio
from anyio.lowlevel import checkpoint

from outrider.errors import (
    ConnectionLost,
    OutriderError,
    RequestTimedOut,
    TransportClosed,
)
from outrider.launch import Version
from outrider.launch._program import can_withdraw_requests, check_request
from outrider.protocol import (
    Peer,
    RequestAnswered,
    RequestLost,
    RequestReceived,
    RequestRefused,
    RequestWithdrawn,
)
from outrider.session._connection.answering import Answering
from outrider.session._connection.deadlines import Watch, stop
from outrider.session._connection.tasks import (
    AsyncioLoop,
    background,
    call_from_outside,
    current_connection,
    current_loop,
    enter_connection,
)
from outrider.session._failures import failure_of_retry, hide_known, refusal, why_lost
from outrider.session._info import CHANGES_INFO, SessionInfo
from outrider.session._streams.routing import Routing
from outrider.session._streams.stream import BUDGET, CEILING, Flow
from outrider.session._streams.turn_state import MakeFailure, TurnState, Until
from outrider.wire import (
    ApiRetryMessage,
    KeepAlive,
    Message,
    ResultMessage,
    TranscriptMirror,
)
from outrider.wire.control import GenericRequest, Interrupt

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable, Coroutine

    from anyio.abc import TaskGroup

    from outrider.handlers import Handlers
    from outrider.options import Options
    from outrider.protocol import Event, RequestEvent
    from outrider.session._connection.conversation import Conversation
    from outrider.session._connection.tasks import Loop, Signal, Task
    from outrider.session._store.link import StoreLink
    from outrider.transports import ProcessTransport, Transport
    from outrider.transports._process.pipes import LoopPipes
    from outrider.wire import JsonObject, RequestId
    from outrider.wire.control import Request


log = logging.getLogger("outrider.session")

_INTERRUPT: Final = b'{"type":"control_request","request_id":"the-last","request":{"subtype":"interrupt"}}\n'
"""Written without the peer: an agent may be ended on any thread."""


def end_transport(transport: Transport, *, interrupt: bool = False) -> bool:
    """Begin to end the agent, without waiting; False if its transport cannot do that. `interrupt`: it is at
    work, and would continue until the grace period has passed."""
    put = getattr(transport, "put", None)
    if interrupt and put is not None:
        put(_INTERRUPT)
    end = getattr(transport, "end", None)
    if end is not None:
        end()
    return end is not None


async def close_transport(transport: Transport, seconds: float | None = None) -> None:
    """End the agent, even if the caller is cancelled. Logs a failure."""
    try:
        with anyio.move_on_after(seconds, shield=True):
            await transport.close()
    except Exception:
        log.exception("a transport could not be closed")


_PAUSE_SECONDS: Final = 1.0
"""How often a paused connection looks again: a reader that is dropped does not announce it."""


class Reading:
    """Moves bytes from the transport to the peer, and the peer's events to the connection.

    It can be broken off at any time and begun again: what was not gone through waits in the peer.
    """

    def __init__(self, connection: Connection, peer: Peer) -> None:
        self._connection = connection
        self._peer = peer
        self.is_paused = False

    async def run(self) -> None:
        """Read to the end. Raises what the transport raises, and `TransportClosed` if too much is unread."""
        connection, peer, flow = self._connection, self._peer, self._connection.flow
        receive, loop, pipes = connection.transport.receive, connection.loop, connection.pipes
        while True:
            if flow.is_full and self._may_pause():
                await self._pause()
            flow.check_ceiling()
            if peer.has_more:
                await self._go_on()
            elif pipes is not None and isinstance(loop, AsyncioLoop):
                if not await self._watch(loop, pipes):
                    pipes = None
            elif data := await receive():
                connection.take(peer.begin(data), len(data))
            else:
                return

    async def _watch(self, loop: AsyncioLoop, pipes: LoopPipes) -> bool:
        """Let the event loop read, until there is something to do between two reads. False: the output is
        about to end, and the rest has to be received."""
        left: asyncio.Future[bool] = loop.native.create_future()
        connection, peer, flow = self._connection, self._peer, self._connection.flow
        may_go_on = False

        def take(data: bytes) -> bool:
            nonlocal may_go_on
            try:
                connection.take(peer.begin(data), len(data))
                # `run` looks at these.
                may_go_on = peer.has_more or flow.may_stop_reading
            except BaseException as error:  # noqa: BLE001 - for `run`
                if not left.done():
                    left.set_exception(error)
                return False
            return not may_go_on

        def leave() -> None:
            if not left.done():
                left.set_result(may_go_on)

        loop.enter()
        stop = pipes.watch(loop.native, take, leave)
        try:
            return await left
        finally:
            stop()

    async def finish(self) -> None:
        """Take what is left once no more bytes come, such as a last line without its end. Drops what exceeds
        the ceiling."""
        flow = self._connection.flow
        self._connection.take(self._peer.begin(None), 0)
        while self._peer.has_more and flow.unread <= flow.ceiling:
            await self._go_on()
        self._peer.drop_input()

    async def _go_on(self) -> None:
        """Do the next step on bytes that take more than one, after other tasks have had their turn."""
        await checkpoint()
        self._connection.take(self._peer.go_on(), 0)

    def _may_pause(self) -> bool:
        """Whether no one can be waiting for something in the unread output."""
        connection, peer = self._connection, self._peer
        return not (connection.routing.can_be_asked or connection.is_closed or peer.pending or peer.open)

    async def _pause(self) -> None:
        flow = self._connection.flow
        self.is_paused = True
        try:
            while flow.is_full and self._may_pause():
                await flow.wait_moved(_PAUSE_SECONDS)
        finally:
            self.is_paused = False
            self._connection.was_excused()


T = TypeVar("T")

_END_SECONDS: Final = 2.0
"""How long the rest may take to be read once the transport is closed. A transport that keeps its contract
needs no time."""

_INTERRUPT_SECONDS: Final = 0.5
"""How long the agent may take to read a last request before its input is closed."""

_REQUEST_EVENTS: Final = (RequestReceived, RequestWithdrawn, RequestAnswered, RequestRefused, RequestLost)
_REQUEST_KINDS: Final = frozenset(_REQUEST_EVENTS)
_SERVICE: Final = (KeepAlive, TranscriptMirror)
_SPECIAL: Final[frozenset[type]] = frozenset((*_REQUEST_EVENTS, *_SERVICE, ApiRetryMessage, *CHANGES_INFO))
"""Events that need more than being passed on to readers."""


class Connection:
    """Runs from `open` until it is closed, abandoned, or lost."""

    def __init__(
        self,
        transport: Transport,
        handlers: Handlers,
        options: Options,
        *,
        store_link: StoreLink | None = None,
        budget: int = BUDGET,
        ceiling: int = CEILING,
    ) -> None:
        self.transport = transport
        self._store_link = store_link
        self.mirror = None if store_link is None else store_link.mirror
        self.timeouts = options.timeouts
        self.info = SessionInfo()
        self.version = Version()
        """Of Claude Code, once it is known."""
        self.flow = Flow(budget, ceiling, is_strict=bool(options.max_buffer_size))
        self.routing = Routing(
            self.flow,
            can_be_asked=handlers.can_be_asked,
            is_resumed=bool(options.resume or options.continue_conversation),
        )
        self._special = _SPECIAL
        if store_link is not None:
            store_link.mirror.tell = self.routing.announce
            store_link.on_crash = self.end_with
            self._special |= store_link.mirror.concerned
        self.error: OutriderError | None = None
        """Why it ended, if it was not closed."""
        self.crash: BaseException | None = None
        """What a handler raised that is meant for the whole program, such as Ctrl-C."""
        self._give_up_on = options.give_up_on
        self._peer = Peer("host", serves=handlers.serves, limit=options.max_buffer_size)
        self.answering = Answering(self, self._peer)
        self.owner: Callable[[], Conversation | None] = lambda: None
        """A weak reference to its owner."""
        self.loop: Loop
        """The event loop, once it is open."""
        self.pipes: LoopPipes | None = None
        """The transport's pipes, if the event loop can use them directly."""
        self._is_flush_due = False
        self._waiting: dict[RequestId, Signal[RequestEvent]] = {}
        self._tasks: TaskGroup | None = None
        self._has_tasks = False
        """Whether there ever were others than the deadlines."""
        self._watch = Watch(self)
        self.reading = Reading(self, self._peer)
        self._is_closing = False
        self._why_closed = ""
        self._end_error: BaseException | None = None
        self._readers_error: BaseException | None = None
        """What readers of everything raise at the end."""
        self._is_flushing = False
        self._up = anyio.Event()
        self._done = anyio.Event()
        """Nothing more comes."""
        self._gone = anyio.Event()
        """Nothing more runs."""

    @property
    def is_closed(self) -> bool:
        return self._is_closing or self._done.is_set()

    @property
    def is_here(self) -> bool:
        """Whether the caller runs in its event loop."""
        return self.loop.is_here

    @property
    def is_agent_excused(self) -> bool:
        """Whether the agent may be silent about our turns: it waits for us, or works on a turn of its own."""
        return self.reading.is_paused or bool(self._peer.open) or self.routing.is_on_its_own

    @property
    def open_requests(self) -> list[str]:
        """The kinds of requests of the agent that have no reply yet."""
        return [request.subtype for request in self._peer.open.values()]

    # Beginning and end.

    async def open(self) -> None:
        """Connect the transport and begin to read. Raises what the transport raises, or `RequestTimedOut`."""
        limit = self.timeouts.connect
        try:
            with anyio.move_on_after(limit) as scope:
                await self.transport.connect()
            if scope.cancelled_caught:
                raise RequestTimedOut("initialize", limit, message="the transport did not connect")
            self.loop = self.flow.loop = current_loop()
            if isinstance(self.loop, AsyncioLoop) and hasattr(type(self.transport), "loop_pipes"):
                self.pipes = cast("ProcessTransport", self.transport).loop_pipes()
            self._watch.heard_at = self.loop.now()
            place = await background(self.loop)
            await place.start(self._serve, name="outrider session", context=self.own_context())
            await self._up.wait()
        except BaseException:
            # No task runs yet that would close it.
            self._is_closing = True
            await close_transport(self.transport)
            raise

    async def close(self, why: str = "the session was closed") -> None:
        """End the agent and wait for it. Messages that came before can still be read."""
        is_first = not self.is_closed
        if is_first:
            self._why_closed = why
        self._is_closing = True
        self.flow.moved()
        if self.mirror is not None:
            self.mirror.release_results()
        try:
            if is_first and self.routing.outstanding:
                for state in self.routing.outstanding:
                    state.make_failure = state.make_failure or self._closed_failure
                await self._interrupt()
            await self.transport.close()
        except Exception:
            self._cancel()
            raise
        except BaseException:
            # Cancelled: closing continues without the caller.
            self.start(close_transport, self.transport)
            raise
        if not self._up.is_set() or not self.is_here:
            # Nothing to wait for yet, or on another loop, which may be long gone.
            return
        with anyio.move_on_after(_END_SECONDS, shield=True):
            await self._done.wait()
        if not self._done.is_set():
            self._cancel()
        limit = _END_SECONDS + (0 if self._store_link is None else self._store_link.bound)
        # Its tasks end now, and this may be one of them.
        with anyio.move_on_after(limit, shield=current_connection() is not self):
            await self._gone.wait()

    def _closed_failure(self, _: TurnState) -> BaseException:
        return self.crash or TransportClosed(self._why_closed, session_id=self.info.session_id)

    async def _interrupt(self) -> None:
        """Interrupt the agent. Without this, it would finish its work after the end of its input, and use up
        the grace period."""
        if self._up.is_set() and not self._done.is_set() and self.transport.is_ready:
            self._peer.request(Interrupt())
            with anyio.move_on_after(_INTERRUPT_SECONDS, shield=True):
                await self._send_output()

    def abandon(self) -> None:
        """Begin to end it, without waiting. Safe in any thread and at any time."""
        self._why_closed = "the session was dropped"
        self._is_closing = True
        is_ending = end_transport(self.transport, interrupt=bool(self.routing.outstanding))
        if self.loop.is_closed:
            self.routing.abandon(TransportClosed(self._why_closed))
        if (self.reading.is_paused or not is_ending) and self._up.is_set() and not self._done.is_set():
            call_from_outside(self._cancel, self.loop.token)

    def end_with(self, crash: BaseException) -> None:
        """End it because of an exception meant for the whole program; the next reader raises it."""
        self.crash = crash
        for state in self.routing.outstanding:
            state.failure = crash  # Whatever the agent makes of it.
        self.start(self.close)

    def _cancel(self) -> None:
        if self._tasks is not None:
            self._tasks.cancel_scope.cancel()
        self.answering.cancel()

    async def _serve(self) -> None:
        error: BaseException | None = None
        try:
            async with anyio.create_task_group() as self._tasks:
                self._tasks.start_soon(self._watch.run, name="outrider deadlines")
                self._up.set()
                try:
                    await self.reading.run()
                except Exception as raised:  # noqa: BLE001 - also what a user's transport may raise
                    error = raised
                # Before it ends: a last line without its end may be a result.
                await self.reading.finish()
                is_lost = error is not None and not self._is_closing
                self._finish(error)
                if is_lost:
                    # The other end may not have noticed.
                    await close_transport(self.transport)
                self._watch.stop()
                if self._has_tasks:
                    # Else there is nothing to cancel, which takes its time.
                    self._cancel()
        finally:
            # Through the event loop, it would keep the exception of the main task alive, and its frames.
            self._tasks = None
            try:
                await self.answering.end()
                if not self._done.is_set():
                    # The event loop goes down with the session open, or it was abandoned.
                    self._why_closed = self._why_closed or "the event loop ended with the session open"
                    self._is_closing = True
                    if not end_transport(self.transport):
                        await close_transport(self.transport, _END_SECONDS)
                    await self._read_rest()
                    self._finish(None)
                if self._store_link is not None:
                    await self._store_link.finish()
            finally:
                self.routing.everything.end(self._readers_error)
                self._gone.set()

    def _finish(self, error: BaseException | None) -> None:
        self.take(self._peer.receive_eof(), 0)
        reason = TransportClosed(self._why_closed) if self._is_closing else why_lost(error, self.transport)
        reason.session_id = reason.session_id or self.info.session_id
        is_failure = not self._is_closing and (error is not None or bool(self.routing.outstanding))
        self.error = reason if is_failure else None
        self._end_error = self.crash or reason
        self._readers_error = self._end_error if is_failure or self.crash is not None else None
        self.routing.receive_eof(self._end_error, self.loop.now())
        if self._store_link is None:
            self.routing.everything.end(self._readers_error)
        self._done.set()
        if (owner := self.owner()) is not None:
            owner.handlers.close()
            owner.event_feed.close()

    # Reading.

    async def _read_rest(self) -> None:
        """Take the rest of the output, and with a store what the agent still writes of its transcript. Gives
        up after a while."""
        with anyio.move_on_after(_END_SECONDS, shield=True):
            if self._store_link is not None:
                with suppress(Exception):
                    await self.reading.run()
            await self.reading.finish()
        self._peer.drop_input()

    def was_excused(self) -> None:
        """Note that until now the agent could not be expected to send anything."""
        self._watch.kept_until = self.loop.now()

    def take(self, events: list[Event], size: int) -> None:
        """Take events of the agent, which came in about `size` bytes."""
        self.flow.new_bytes += size
        kinds = self._peer.kinds
        if not events:
            # A piece of a long message.
            self._watch.heard_at = self.loop.now()
        elif kinds <= _REQUEST_KINDS:
            for event in events:
                self._on_request_event(event)
        elif not self._special.isdisjoint(kinds):
            self._sort(events, size // len(events), self.loop.now())
        else:
            now = self._watch.heard_at = self.loop.now()
            self.routing.receive(cast("list[Message]", events), kinds, size, now)
        if self._peer.has_output:
            # The peer refused requests.
            self.flush()

    def _sort(self, events: list[Event], share: int, now: float) -> None:
        """Take events one by one: what one means depends on the messages before it."""
        messages: list[Message] = []

        def hand_on() -> None:
            if messages:
                self._watch.heard_at = now
                kinds = set(map(type, messages))
                self.routing.receive(list(messages), kinds, share * len(messages), now)
                messages.clear()

        for event in events:
            if type(event) not in self._special:
                messages.append(cast("Message", event))
            elif isinstance(event, _REQUEST_EVENTS):
                hand_on()
                self._on_request_event(event)
            elif self.mirror is not None and self.mirror.takes(event):
                pass
            elif isinstance(event, ResultMessage) and self.mirror is not None and not self._is_closing:
                hold = self.mirror.hold(event)
                hand_on()
                self._watch.heard_at = now
                self.routing.receive([event], {ResultMessage}, share, now, hold)
            elif not isinstance(event, _SERVICE):
                messages.append(cast("Message", event))
                if isinstance(event, ApiRetryMessage):
                    hand_on()
                    self.answering.call_failed(event)
                elif type(event) in CHANGES_INFO:
                    self.info = self.info.with_message(messages[-1])
        hand_on()

    def _on_request_event(self, event: Any) -> None:  # noqa: ANN401 - a `RequestEvent`; a cast takes its time
        if type(event) is RequestReceived:
            self.answering.received(event)
        elif type(event) is RequestWithdrawn:
            self.answering.withdrawn(event)
        elif (answer := self._waiting.pop(event.id, None)) is not None:
            answer.set(event)

    def give_up(self, message: ApiRetryMessage) -> None:
        """Stop the turns that wait for a call of the API, if its status is not to be tried again."""
        if message.error_status in self._give_up_on:
            for state in self.routing.foremost:
                self.begin_stop(state, lambda turn: failure_of_retry(message, turn.received))

    # Asking.

    async def request(self, request: Request[T] | str, fields: JsonObject, timeout: float | None) -> T:
        """Send a request, and wait for the answer; for ever if `timeout` is None."""
        asked: Request[Any] = GenericRequest(request, fields) if isinstance(request, str) else request
        self.check_open()
        check_request(asked, self.version)
        id = self._peer.request(asked)
        answer: Signal[RequestEvent] = self.loop.make_signal()
        self._waiting[id] = answer
        self.flow.moved()
        output = self._peer.take_output()
        try:
            if self.pipes is not None and self.pipes.try_put(output):
                await answer.wait(timeout)
            else:
                with anyio.move_on_after(timeout):
                    await self._transmit(output)
                    await answer.wait()
        finally:
            if answer.value is None:
                self._waiting.pop(id, None)
                self._peer.cancel(id, tell=can_withdraw_requests(self.version))
                self.flush()
        event = answer.value
        if isinstance(event, RequestAnswered):
            return cast("T", asked.read_answer(event.payload))
        if isinstance(event, RequestLost):
            raise self.end_error
        session_id = self.info.session_id
        if isinstance(event, RequestRefused):
            failure = refusal(asked, event, session_id)
        else:
            failure = RequestTimedOut(asked, timeout, session_id=session_id)
        raise hide_known(failure, self.transport)

    def post(self, request: Request[Any]) -> None:
        """Send a request without waiting for the answer. Does nothing once it is closed."""
        if not self.is_closed:
            self._peer.request(request)
            self.flush()

    def flush(self) -> None:
        """Send all output, without waiting. Replies to requests that came together go out together."""
        if self.pipes is None:
            self.start(self._flush)
        elif self.answering.count <= 1:
            self._put_output()
        elif not self._is_flush_due and isinstance(self.loop, AsyncioLoop):
            self._is_flush_due = True
            self.loop.native.call_soon(self._put_output)

    def _put_output(self) -> None:
        self._is_flush_due = False
        if self.pipes is not None and (data := self._peer.take_output()):
            self.pipes.put(data)

    async def _flush(self) -> None:
        """Send all output through a transport that has to be awaited.

        One task sends for all: otherwise thousands could wait for an agent that sends requests and does not
        read, and all wake at once.
        """
        if self._is_flushing:
            return
        self._is_flushing = True
        try:
            while self._peer.has_output:
                await self._send_output()
        finally:
            self._is_flushing = False

    async def _send_output(self) -> None:
        """Send, and only log a failure: readers get its reason."""
        try:
            if data := self._peer.take_output():
                await self.transport.send(data)
        except Exception as error:  # noqa: BLE001 - also what a user's transport may raise
            log.debug("an answer could not be sent: %s", error)

    @property
    def end_error(self) -> BaseException:
        """Why nothing more can be sent; a copy, because each raised one gets a traceback."""
        error = self._end_error or TransportClosed("it is not open yet")
        return copy(error) if isinstance(error, OutriderError) else error

    async def send_prompt(self, state: TurnState, uuid: str, frame: JsonObject) -> None:
        """Send a message of a turn. Raises `MessageInvalid`, with nothing sent, if it cannot be encoded."""
        self.check_open()
        self._peer.send(frame)
        output = self._peer.take_output()
        self.routing.sent(state, uuid, self.loop.now())
        self._watch.look_again()
        # Reading must continue: an agent that waits for us to read does not read either.
        with self.flow:
            await self._transmit(output)

    async def _transmit(self, data: bytes) -> None:
        try:
            await self.transport.send(data)
        except ConnectionLost:
            if self._done.is_set():
                # This error says more.
                raise self.end_error from None
            raise

    def check_open(self) -> None:
        """Raise if nothing can be sent."""
        if self._done.is_set():
            raise self.end_error
        if self._is_closing:
            raise self.crash or TransportClosed(self._why_closed, session_id=self.info.session_id)
        self.flow.check_loop()

    def start(
        self,
        function: Callable[..., Coroutine[Any, Any, object]],
        *arguments: object,
        context: Context | None = None,
    ) -> None:
        """Start a task of this connection, in a copy of a context from `own_context`."""
        if self._tasks is not None and not self._done.is_set():
            own = (context or self.own_context()).copy()
            self._has_tasks = True
            _ = own.run(self._tasks.start_soon, function, *arguments)

    def start_answer(
        self,
        function: Callable[..., Coroutine[Any, Any, object]],
        arguments: tuple[object, ...],
        context: Context | None,
    ) -> Task | None:
        """Start a task that answers a request; returns it if `Answering` has to end it."""
        if self._tasks is None or self._done.is_set():
            return None
        self._has_tasks = True
        return self.loop.start(self._tasks, (context or self.own_context()).copy(), function, arguments)

    def own_context(self, context: Context | None = None) -> Context:
        """Prepare a context, or a new one, for tasks of this connection."""
        own = context or Context()
        own.run(enter_connection, self)
        own.run(self.loop.enter)
        return own

    # Turns.

    def begin(self, until: Until) -> TurnState:
        """Begin a turn, before its prompt is sent."""
        self.check_open()
        self.routing.begin(state := TurnState(self.flow, until, self.loop.now()))
        self._watch.look_again()
        return state

    def begin_stop(
        self, state: TurnState, make_failure: MakeFailure | None = None, grace: float | None = None
    ) -> None:
        """Stop a turn that is not over. If that cuts it off, it fails with what `make_failure` returns."""
        if state.is_over:
            return
        if state.is_stopping:
            if grace is not None:
                state.hurry(self.loop.now(), grace)
            return
        state.is_stopping = True
        state.make_failure = make_failure
        state.grace = self.timeouts.interrupt if grace is None else grace
        if state.feeding is not None:
            state.feeding.cancel()
        self.start(stop, self, state)

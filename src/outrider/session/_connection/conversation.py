"""What a session and its turns share: the connection, and the way to send prompts over it.

It is what keeps an agent running: when the last session, turn or reader that holds it is dropped, the agent
ends. The connection does not hold it.
"""

from __future__ import annotations

import logging
import warnings
import weakref
from contextvars import Context, copy_context
from typing import TYPE_CHECKING, TypeVar, cast
from uuid import uuid4

import anyio

from outrider._threads import run_sync
from outrider.errors import MessageInvalid, TransportClosed, UsageError
from outrider.handlers import Handlers
from outrider.launch import make_initialize
from outrider.options._validators import seconds
from outrider.protocol import RunState
from outrider.session._connection.answering import TOKEN, Serving, with_token
from outrider.session._connection.connection import Connection
from outrider.session._connection.observers import EventFeed, instrument_of
from outrider.session._connection.start import (
    OtherVersion,
    initialize,
    make_transport,
    prepared,
    version_before_start,
    version_behind,
)
from outrider.session._prompts import feed, has_files, is_prompt_stream, make_message
from outrider.session._requests import UNSET, Timeout, Unset
from outrider.session._streams.stream import BUDGET, CEILING, Reader

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from outrider.handlers import Shape
    from outrider.options import Options
    from outrider.session._connection.observers import SessionFollower
    from outrider.session._gate import Gate
    from outrider.session._prompts import Prompt, Prompts
    from outrider.session._session import Session
    from outrider.session._store.link import Restored, StoreLink
    from outrider.session._streams.stream import Position
    from outrider.session._streams.turn_state import TurnState, Until
    from outrider.wire import JsonObject
    from outrider.wire.control import Request


log = logging.getLogger("outrider.session")


async def wait_idle(connection: Connection) -> None:
    """Wait until no turn and no background work is left."""
    routing, turns = connection.routing, connection.routing.turns
    while not connection.is_closed and (
        routing.outstanding or not (turns.is_over or turns.run is RunState.QUIET)
    ):
        await routing.everything.wait_changed()


async def finish(connection: Connection) -> None:
    """End the agent's input once it is idle. If it does not exit then, close the connection."""
    await wait_idle(connection)
    if connection.is_closed:
        return
    try:
        await connection.transport.end_input()
    except Exception as error:  # noqa: BLE001 - also what a user's transport may raise
        log.debug("the input could not be ended: %s", error)
    with anyio.move_on_after(connection.timeouts.close):
        await _wait_closed(connection)
        return
    await connection.close("it did not end with its input")


async def _wait_closed(connection: Connection) -> None:
    while not connection.is_closed:
        await connection.routing.everything.wait_changed()


T = TypeVar("T")


class Conversation:
    """A connection from its beginning to its end, with the contexts in which its turns were sent."""

    def __init__(
        self,
        options: Options,
        make_session: Callable[[Conversation], Session],
        shape: Shape[object] | None = None,
    ) -> None:
        self.given = options
        """The options of the user."""
        self.event_feed = EventFeed()
        self.gate: Gate | None = None
        if options.approvals is not None:
            # Here, because few sessions have any.
            from outrider.session._gate import Gate

            self.gate = Gate(options.approvals, options, self.event_feed)
            options = self.gate.guarded(options)
        self.own_turn: tuple[TurnState, Position | None] | None = None
        """What the agent does by itself after a resume, if a call was left open, and where to read it."""
        self.handlers = Handlers(options, self.event_feed)
        self.options = prepared(options, self.handlers, shape)
        self.follower: SessionFollower | None = None
        if (instrument := instrument_of(options)) is not None:
            self.follower = instrument.follow(self)
            self.options = self.follower.prepare(self.options)
            self.event_feed.add(self.follower)
            if self.gate is not None:
                self.gate.trace_of = self.follower.trace_of
        self.shape = shape
        """The form of the structured output of each turn."""
        self._make_session = make_session
        self._session: Callable[[], Session | None] = lambda: None
        self.budget = BUDGET
        self.ceiling = CEILING
        """How much may be unread; set before it is connected."""
        self.connection: Connection | None = None
        self.is_ready = False
        self.is_closed = False
        self._is_finishing = False
        """Its input is to be ended: no more prompts are accepted."""
        self._head: Position | None = None
        """Where the unread messages begin; None once they have a reader."""
        self._context: Context | None = None
        self._contexts: weakref.WeakKeyDictionary[TurnState, Context] = weakref.WeakKeyDictionary()
        self._sent: set[str] = set()
        """The uuids of all messages."""
        self.prompt_listeners: list[Callable[[JsonObject], None]] = []
        """Called with each message that is about to be sent."""
        self._serving: Serving | None = None
        self._lock = anyio.Lock()

    # Beginning and end.

    async def connect(self) -> None:
        async with self._lock:
            if self.is_closed:
                raise TransportClosed("the session was closed", hint="Open a new one.")
            if self.is_ready:
                return
            try:
                if self.gate is not None:
                    await self.gate.begin()
                if self.follower is None:
                    await self._open_any()
                else:
                    with self.follower.starting() as is_started:
                        is_started(await self._open_any())
            except BaseException:
                if self.gate is not None:
                    await self.gate.finish()
                raise
            self.is_ready = True

    async def _open_any(self) -> Connection:
        begin = self._open_with_store if self.options.session_store else self._open
        try:
            return await begin(self.options)
        except OtherVersion:
            return await begin(self.options)

    async def _open_with_store(self, options: Options) -> Connection:
        # Here, because most sessions have no store.
        from outrider.session._store.link import StoreLink

        store_link = StoreLink(options)
        restored = await store_link.begin(options)
        try:
            return await self._open(options if restored is None else restored.options, store_link, restored)
        except BaseException:
            await store_link.finish()
            raise

    async def _open(
        self, options: Options, store_link: StoreLink | None = None, restored: Restored | None = None
    ) -> Connection:
        options = await with_token(options)
        version = version_before_start(options)
        transport = make_transport(options, restored, version)
        version = version_behind(transport, version)
        request = self.handlers.complete(make_initialize(options, version))
        connection = Connection(
            transport, self.handlers, options, store_link=store_link, budget=self.budget, ceiling=self.ceiling
        )
        self._context = copy_context()
        self.handlers.begin()
        self.event_feed.begin()
        connection.owner = weakref.ref(self)
        connection.answering.token = options.env.get(TOKEN)
        connection.routing.follower = self.follower
        self.connection = connection
        self._head = connection.routing.everything.position()
        self._finalizer = weakref.finalize(self, _abandon, connection)
        # When the interpreter exits, the transport ends the agent itself.
        self._finalizer.atexit = False
        try:
            await connection.open()
            connection.own_context(self._context)
            self._serving = Serving(self.handlers, connection, self._context)
            if self.gate is not None and self.gate.is_left_with_a_call:
                # First: the agent begins as soon as it has the first request.
                state = self._begin(connection, "result", keep=True, continues=self.gate.parked_traces)
                self.own_turn = state, state.reading_position()
                connection.routing.adopt(state)
                self.gate.own_turn = state
            if self.gate is not None:
                self.gate.connection = connection
                connection.routing.observers.append(self.gate)
                connection.start(self.gate.run)
            answer = await initialize(connection, self._serving, request, options, version)
            connection.info = connection.info.with_initialized(answer)
            if self.own_turn is not None and self.gate is not None:
                connection.start(self.gate.give_up_own_turn)
        except BaseException:
            self._finalizer.detach()
            self.connection = None
            raise
        return connection

    def serving(self) -> Serving:
        """The servers of this process that it uses. Raises `UsageError` before it is connected."""
        if self._serving is None:
            self.opened()
            raise UsageError("The session is not open yet. Wait for `connect`, or use `async with`.")
        return self._serving

    async def close(self) -> None:
        self.is_closed = True
        self.handlers.close()
        if self.connection is None:
            self.event_feed.close()
        else:
            self._finalizer.detach()
            await self.connection.close()
        if self.gate is not None:
            await self.gate.finish()

    def end_input(self) -> None:
        """End the agent's input once it has done everything it was asked."""
        connection = self.connected()
        connection.check_open()
        if not self._is_finishing:
            self._is_finishing = True
            connection.start(finish, connection)

    def abandon(self) -> None:
        """Begin to end the agent. Safe in any thread and at any time."""
        self.is_closed = True
        self.handlers.close()
        if self.connection is not None and not self.connection.is_closed:
            self._finalizer.detach()
            self.connection.abandon()

    @property
    def session(self) -> Session:
        """The user's session. If it was dropped while a turn was kept, this makes a new one."""
        session = self._session()
        if session is None:
            session = self._make_session(self)
            self._session = weakref.ref(session)
        return session

    @session.setter
    def session(self, session: Session) -> None:
        self._session = weakref.ref(session)

    def opened(self) -> Connection:
        """The connection, even if it is closed. Raises `UsageError` if there never was one."""
        if self.connection is None:
            why = "was closed" if self.is_closed else "is not open"
            raise UsageError(
                f"The session {why}. Use it inside `async with outrider.Session(…) as session:`."
            )
        return self.connection

    def connected(self) -> Connection:
        """The connection, once it is ready to use."""
        connection = self.opened()
        if not self.is_ready:
            raise UsageError("The session is not open yet. Wait for `connect`, or use `async with`.")
        return connection

    def context_of(self, turn: TurnState | None) -> Context | None:
        """The context in which a turn was sent, or in which the session was opened."""
        return self._context if turn is None else self._contexts.get(turn, self._context)

    async def offered_turn(self) -> tuple[TurnState, Position | None] | None:
        """The agent's own turn after a resume; None if it does nothing without a prompt."""
        if self.gate is None or not await self.gate.wait_offered():
            self.own_turn = None
        return self.own_turn

    # Sending.

    async def send(
        self,
        prompt: Prompt | Prompts,
        until: Until,
        priority: str | None,
        *,
        keep: bool = True,
        continues: Sequence[str] = (),
    ) -> tuple[TurnState, Position | None]:
        """Begin a turn with a prompt, or an iterable of prompts. Returns it, and the position to read it from
        if it is kept. `continues`: the spans of the turns that it goes on with."""
        connection = self.connected()
        if self._is_finishing:
            raise TransportClosed("the session's input was ended")
        if self.gate is not None:
            # If there is none, it would stand before this one for ever.
            await self.offered_turn()
        if is_prompt_stream(prompt):
            state = self._begin(connection, until, keep=keep)
            state.is_fed = False
            sender = _Sender(self, state, priority)
            context = self._contexts[state]
            connection.start(feed, connection, state, prompt, sender.send, context=context)
            return state, state.reading_position()
        # First: an invalid prompt begins no turn.
        frame = await self.frame(cast("Prompt", prompt), priority)
        state = self._begin(connection, until, keep=keep, continues=continues)
        # First: the agent may answer before `write` returns.
        start = state.reading_position()
        await self.write(state, frame)
        return state, start

    def _begin(
        self, connection: Connection, until: Until, *, keep: bool, continues: Sequence[str] = ()
    ) -> TurnState:
        if self.gate is not None:
            if self.gate.is_parked:
                # The agent's own turn has led to nothing: it takes another process to continue.
                self.own_turn = None
            self.gate.check_free(connection.info.session_id)
        state = connection.begin(until)
        state.is_kept = keep
        context = self._contexts[state] = connection.own_context(copy_context())
        if self.follower is not None:
            self.follower.turn_began(state, context, continues)
        return state

    async def frame(self, prompt: Prompt, priority: str | None) -> JsonObject:
        """The message for a prompt, with an id of its own."""

        def make() -> JsonObject:
            verbatim = self.options.verbatim_prompts
            return make_message(prompt, uuid=str(uuid4()), priority=priority, verbatim=verbatim)

        # Files are read in a thread.
        return await run_sync(make) if has_files(prompt) else make()

    async def write(self, state: TurnState, frame: JsonObject) -> None:
        """Send a message of a turn."""
        connection = self.connected()
        try:
            uuid = str(frame["uuid"])
            if uuid in self._sent:
                raise UsageError(
                    f"a message with the uuid {uuid!r} was sent before, and the agent drops the second",
                    hint="Give each message a uuid of its own, or none.",
                )
            self._sent.add(uuid)
            if self.follower is not None:
                self.follower.prompt_sent(state, frame)
            for listener in self.prompt_listeners:
                listener(frame)
            try:
                await connection.send_prompt(state, uuid, frame)
            except MessageInvalid:
                self._sent.discard(uuid)
                raise
        except Exception:
            if state.is_fed and not state.is_over:
                connection.routing.fail(state, None, anyio.current_time())
            raise
        except BaseException:
            # Cancelled. The prompt may have been sent, and the caller gets no turn to cancel.
            if state.is_fed:
                state.is_doubtful = True
                connection.begin_stop(state)
            raise

    def withdrawn(self, uuid: str) -> None:
        """Note that the agent dropped a message."""
        self.connected().routing.withdrawn([uuid], anyio.current_time())

    async def request(
        self, request: Request[T] | str, fields: JsonObject | None = None, timeout: Timeout = UNSET
    ) -> T:
        """Send a request, by default with the session's own timeout."""
        limit = self.options.timeouts.control if isinstance(timeout, Unset) else timeout
        if limit is not None:
            seconds("`timeout`", limit)
        connection = self.connected()
        answer = await connection.request(request, fields or {}, limit)
        connection.info = connection.info.with_answer(answer)
        return answer

    # Reading.

    def read_everything(self) -> Reader:
        """A reader of all messages; the first one begins with the unread ones."""
        stream = self.opened().routing.everything
        head, self._head = self._head, None
        return Reader(stream, stream.position() if head is None else head, self)

    def release(self) -> None:
        """Stop keeping unread messages for a reader of everything: turns are read instead."""
        self._head = None


class _Sender:
    """Sends the prompts of an iterable. Does not keep the conversation alive: the iterable may be endless."""

    def __init__(self, conversation: Conversation, state: TurnState, priority: str | None) -> None:
        self._conversation = weakref.ref(conversation)
        self._state = state
        self._priority = priority

    async def send(self, prompt: object) -> None:
        conversation = self._conversation()
        if conversation is None:
            raise TransportClosed("the session was dropped")
        if is_prompt_stream(prompt):
            raise UsageError("an iterable of prompts holds another one; give the prompts themselves")
        frame = await conversation.frame(cast("Prompt", prompt), self._priority)
        await conversation.write(self._state, frame)


def _abandon(connection: Connection) -> None:
    if not connection.is_closed:
        # First: the warning may be turned into an error.
        connection.abandon()
        warnings.warn(
            "a session was dropped without being closed; use `async with outrider.Session(…)` or `close`",
            ResourceWarning,
            stacklevel=2,
        )

"""What a session and its turns share: the connection, and how prompts get into it.

It is what keeps an agent running: when the last session, turn or reader that holds it is dropped, the agent
ends. The connection does not hold it.
"""

from __future__ import annotations

import logging
import warnings
import weakref
from contextvars import Context, copy_context
from functools import partial
from typing import TYPE_CHECKING, TypeVar, cast
from uuid import uuid4

import anyio

from outrider._threads import run_sync
from outrider.errors import MessageInvalid, TransportClosed, UsageError
from outrider.handlers import Handlers
from outrider.launch import make_initialize
from outrider.options._validators import seconds
from outrider.protocol import RunState
from outrider.session._connection.answering import Serving, TurnOrigin
from outrider.session._connection.connection import Connection
from outrider.session._connection.observers import EventFeed
from outrider.session._connection.start import initialize, make_transport, prepared
from outrider.session._prompts import feed, has_files, is_prompt_stream, make_message
from outrider.session._requests import UNSET, Timeout, Unset
from outrider.session._streams.stream import BUDGET, CEILING, Reader

if TYPE_CHECKING:
    from collections.abc import Callable

    from outrider.handlers import Shape
    from outrider.options import Options
    from outrider.protocol import Turns
    from outrider.session._connection.answering import Answerer
    from outrider.session._prompts import Prompt, Prompts
    from outrider.session._session import Session
    from outrider.session._store.link import Restored, StoreLink
    from outrider.session._streams.stream import Position
    from outrider.session._streams.turn_state import TurnState, Until
    from outrider.wire import JsonObject
    from outrider.wire.control import Request


log = logging.getLogger("outrider.session")


async def wait_idle(connection: Connection) -> None:
    """Wait until nothing is asked and nothing goes on, in the background either."""
    routing = connection.routing
    while not connection.is_closed and (routing.outstanding or not _is_quiet(routing.turns)):
        await routing.everything.wait()


async def finish(connection: Connection) -> None:
    """End the agent's input once all is done. An agent that goes on after that is made to end."""
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
        await connection.routing.everything.wait()


def _is_quiet(turns: Turns) -> bool:
    return turns.is_over or turns.run is RunState.QUIET


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
        self.handlers = Handlers(options, self.event_feed)
        self.options = prepared(options, self.handlers, shape)
        self.shape = shape
        """What the structured output of each turn must be."""
        self._make_session = make_session
        self._session: Callable[[], Session | None] = lambda: None
        self.budget = BUDGET
        self.ceiling = CEILING
        """How much may be unread; set before it is connected."""
        self.connection: Connection | None = None
        self.is_ready = False
        self.is_closed = False
        self._is_finishing = False
        """No more will be sent: it ends when all that was asked is done."""
        self._head: Position | None = None
        """Where what nobody has read yet begins; None once somebody reads."""
        self._context: Context | None = None
        self._contexts: weakref.WeakKeyDictionary[TurnState, Context] = weakref.WeakKeyDictionary()
        self._sent: set[str] = set()
        """The uuids of all messages."""
        self._serving: Serving | None = None
        self._lock = anyio.Lock()

    # Beginning and end.

    async def connect(self) -> None:
        async with self._lock:
            if self.is_closed:
                raise TransportClosed("the session was closed", hint="Open a new one.")
            if self.is_ready:
                return
            if self.options.session_store is None:
                await self._open(self.options)
            else:
                await self._open_with_store()
            self.is_ready = True

    async def _open_with_store(self) -> None:
        # Here, because most sessions have no store.
        from outrider.session._store.link import StoreLink

        store_link = StoreLink(self.options)
        restored = await store_link.begin(self.options)
        try:
            await self._open(self.options if restored is None else restored.options, store_link, restored)
        except BaseException:
            await store_link.finish()
            raise

    async def _open(
        self, options: Options, store_link: StoreLink | None = None, restored: Restored | None = None
    ) -> None:
        request = self.handlers.complete(make_initialize(options))
        transport = make_transport(options, restored)
        connection = Connection(
            transport, self.handlers, options, store_link=store_link, budget=self.budget, ceiling=self.ceiling
        )
        self._context = copy_context()
        self.handlers.begin()
        self.event_feed.begin()
        self._take(connection)
        try:
            await connection.open()
            self._serving = Serving(self.handlers, connection, self._context)
            answer = await initialize(connection, request, options, self._begin_to_serve)
            connection.info = connection.info.with_initialized(answer)
        except BaseException:
            self._finalizer.detach()
            self.connection = None
            raise

    def _take(self, connection: Connection) -> None:
        this = weakref.ref(self)

        def find_answerer(turn: TurnState | None) -> Answerer | None:
            conversation = this()
            if conversation is None:
                return None
            return partial(conversation.handlers.answer, origin=TurnOrigin(conversation, turn))

        def find_context(turn: TurnState | None) -> Context | None:
            conversation = this()
            return None if conversation is None else conversation.context_of(turn)

        def on_end() -> None:
            if (conversation := this()) is not None:
                conversation.handlers.close()
                conversation.event_feed.close()

        connection.on_end = on_end
        connection.answering.find_answerer = find_answerer
        connection.answering.find_context = find_context
        self.connection = connection
        self._head = connection.routing.everything.position()
        self._finalizer = weakref.finalize(self, _abandon, connection)
        # At the end of the interpreter the transport sees to itself.
        self._finalizer.atexit = False

    def _begin_to_serve(self) -> None:
        this = weakref.ref(self)

        def find_handlers() -> Handlers | None:
            conversation = this()
            return None if conversation is None else conversation.handlers

        self.serving().begin(find_handlers)

    def serving(self) -> Serving:
        """The servers of this process that run for it. Raises `UsageError` before it is connected."""
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

    def end_input(self) -> None:
        """End the agent's input once all that was asked is done."""
        connection = self.connected()
        connection.check_open()
        if not self._is_finishing:
            self._is_finishing = True
            connection.start(finish, connection)

    def abandon(self) -> None:
        """Begin to end the agent, from any thread and at any time."""
        self.is_closed = True
        self.handlers.close()
        if self.connection is not None and not self.connection.is_closed:
            self._finalizer.detach()
            self.connection.abandon()

    @property
    def session(self) -> Session:
        """What the user has of it. It may have been dropped while a turn is held, and is then made anew."""
        session = self._session()
        if session is None:
            session = self._make_session(self)
            self._session = weakref.ref(session)
        return session

    @session.setter
    def session(self, session: Session) -> None:
        self._session = weakref.ref(session)

    def opened(self) -> Connection:
        """The connection, whether it is still there or not. Raises `UsageError` if there never was one."""
        if self.connection is None:
            why = "was closed" if self.is_closed else "is not open"
            raise UsageError(
                f"The session {why}. Use it inside `async with outrider.Session(…) as session:`."
            )
        return self.connection

    def connected(self) -> Connection:
        """The connection, ready to be used."""
        connection = self.opened()
        if not self.is_ready:
            raise UsageError("The session is not open yet. Wait for `connect`, or use `async with`.")
        return connection

    def context_of(self, turn: TurnState | None) -> Context | None:
        """The context in which a turn was sent; else that in which the session was opened."""
        return self._context if turn is None else self._contexts.get(turn, self._context)

    # Sending.

    async def send(
        self, prompt: Prompt | Prompts, until: Until, priority: str | None, *, keep: bool = True
    ) -> tuple[TurnState, Position | None]:
        """Begin a turn with a prompt, or with an iterable of them; gives it, and where to read it from if it
        is kept."""
        connection = self.connected()
        if self._is_finishing:
            raise TransportClosed("the session's input was ended")
        if is_prompt_stream(prompt):
            state = self._begin(connection, until, keep=keep)
            state.is_fed = False
            sender = _Sender(self, state, priority)
            context = self._contexts[state]
            connection.start(feed, connection, state, prompt, sender.send, context=context)
            return state, state.reading_position()
        # First: what is no prompt begins no turn.
        frame = await self.frame(cast("Prompt", prompt), priority)
        state = self._begin(connection, until, keep=keep)
        # First: the agent may answer before the prompt is known to be written.
        start = state.reading_position()
        await self.write(state, frame)
        return state, start

    def _begin(self, connection: Connection, until: Until, *, keep: bool) -> TurnState:
        state = connection.begin(until)
        state.is_kept = keep
        self._contexts[state] = copy_context()
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
            # Cancelled. It may have been sent or not, and nobody has a handle to it.
            if state.is_fed:
                state.is_doubtful = True
                connection.begin_stop(state)
            raise

    def withdrawn(self, uuid: str) -> None:
        """The agent confirmed that it will not take a message."""
        self.connected().routing.withdrawn([uuid], anyio.current_time())

    async def request(
        self, request: Request[T] | str, fields: JsonObject | None = None, timeout: Timeout = UNSET
    ) -> T:
        """Ask the agent, within the session's own limit unless another is given."""
        limit = self.options.timeouts.control if isinstance(timeout, Unset) else timeout
        if limit is not None:
            seconds("`timeout`", limit)
        connection = self.connected()
        answer = await connection.request(request, fields or {}, limit)
        connection.info = connection.info.with_answer(answer)
        return answer

    # Reading.

    def read_everything(self) -> Reader:
        """A reader of all that comes; the first one begins with what nobody has read yet."""
        stream = self.opened().routing.everything
        head, self._head = self._head, None
        return Reader(stream, stream.position() if head is None else head, self)

    def release(self) -> None:
        """Somebody reads turns: what they leave unread is not kept for a reader of everything."""
        self._head = None


class _Sender:
    """Sends the prompts of an iterable. It does not keep the conversation: the iterable may never end."""

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
        # First, because the warning may be made an error.
        connection.abandon()
        warnings.warn(
            "a session was dropped without being closed; use `async with outrider.Session(…)` or `close`",
            ResourceWarning,
            stacklevel=2,
        )

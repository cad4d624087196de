"""What carries bytes to an agent and back: the contract, two ends in memory, and `intercept`, which puts
another transport in place of a session's.

Does not know what a frame means, only where one ends.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Generator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, TypeAlias, cast

import anyio
from anyio.lowlevel import cancel_shielded_checkpoint, checkpoint, checkpoint_if_cancelled

from outrider.errors import ConnectionLost, MessageInvalid, TransportClosed, UsageError
from outrider.wire import Arrival, Framer, Json, OversizedMessage, Value, encode

if TYPE_CHECKING:
    from typing import NoReturn, Self

    from outrider.command import Command
    from outrider.errors import OutriderError

Sendable: TypeAlias = bytes | bytearray | memoryview | Json | Value
"""What can be written as one message: text or bytes of one line, a frame, or any JSON value."""


class Transport(ABC):
    """Moves bytes between Outrider and an agent. Subclass it to reach an agent in a way of your own.

    Six members are to be written: `connect`, `receive`, `send`, `end_input`, `close`, `is_ready`. The rest is
    built on them. What they have to keep to:

    * `receive` gives bytes in the order in which they came, cut anywhere, and `b""` once there are no more,
      again at each call. An end that is a failure is raised instead, after the last byte, as `ConnectionLost`
      or a subclass, again at each call; `exit_error` has it too, also if no one reads. Any other exception is
      no end. One task receives at a time.
    * `send` takes whole lines. It may be called from several tasks at once; what one call sends stays
      together.
    * `close` can be called at any time, more than once, and from another task than the one that receives. It
      ends a `receive` and a `send` that wait, and returns within a bound of its own, also when the caller is
      cancelled. Afterwards `receive` gives what had come, and then raises `TransportClosed`.

    `outrider.testing.check_transport` checks all of it.
    """

    max_buffer_size: int | None = None
    """The largest message, in bytes. Unset: the default of `Framer`, and a larger one is an
    `OversizedMessage`; set: a larger one is raised as `FrameTooLarge`, once, and reading can continue."""

    _inbox: Inbox | None = None

    def prepare(self, command: Command) -> None:  # noqa: B027 - for those that can use it
        """Called once, before `connect`, with the command that would start Claude Code for this session: its
        arguments, environment, folder and files. Does nothing by default."""

    @abstractmethod
    async def connect(self) -> None:
        """Open the connection to the agent. A second call does nothing; after `close` it is an error."""

    @abstractmethod
    async def receive(self) -> bytes:
        """The next bytes from the agent; `b""` at the end. Cancelling it loses nothing."""

    @abstractmethod
    async def send(self, data: bytes) -> None:
        """Send bytes as they are. Returns once they are sent or queued."""

    @abstractmethod
    async def end_input(self) -> None:
        """End the agent's input. What it still sends can be received."""

    @abstractmethod
    async def close(self) -> None:
        """End the agent and free everything."""

    @property
    @abstractmethod
    def is_ready(self) -> bool:
        """Whether something can be sent now."""

    @property
    def exit_error(self) -> OutriderError | None:
        """Why the agent ended, if it was a failure."""
        return None

    async def write(self, message: Sendable) -> None:
        """Send one message as one line. Raises `MessageInvalid` for an invalid one, with nothing sent."""
        await self.send(line_of(message))

    def messages(self) -> Messages:
        """An iterator over the messages from now on; a second call continues where the first one is."""
        if self._inbox is None:
            self._inbox = Inbox(self.max_buffer_size)
        return Messages(self, self._inbox)

    async def __aenter__(self) -> Self:
        await self.connect()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()


class Inbox:
    """Received messages that were not taken yet, and the beginning of the next one."""

    def __init__(self, limit: int | None) -> None:
        self.framer = Framer(limit)
        self.is_strict = bool(limit)
        self.ready: deque[Arrival] = deque()


class Messages:
    """Iterates over the messages of a transport. Not a generator: a `break` leaves nothing behind."""

    def __init__(self, source: Transport, inbox: Inbox) -> None:
        self._source = source
        self._inbox = inbox
        self._ready = inbox.ready

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Arrival:
        """The next message. Raises what `receive` raises, after the messages that came before."""
        # Nearly every call returns here, and there may be a million of them.
        if not self._ready:
            self._ready.extend(await self._receive())
        arrival = self._ready.popleft()
        if self._inbox.is_strict and isinstance(arrival, OversizedMessage):
            raise arrival.error()
        return arrival

    async def batch(self) -> list[Arrival]:
        """All messages that are there, at least one: one wake-up for many, where speed matters.

        Raises `StopAsyncIteration` at the end. An `OversizedMessage` is always one of them, never an error.
        """
        if not self._ready:
            return await self._receive()
        arrivals = list(self._ready)
        self._ready.clear()
        return arrivals

    async def _receive(self) -> list[Arrival]:
        """Wait for messages; returns at least one."""
        framer = self._inbox.framer
        while True:
            if framer.has_more:
                # Other tasks run in between, however long these bytes take.
                await checkpoint()
                arrivals, end = framer.go_on(), None
            else:
                arrivals, end = await self._begin(framer)
            if arrivals:
                return arrivals
            if end is not None and not framer.has_more:
                raise end

    async def _begin(self, framer: Framer) -> tuple[list[Arrival], Exception | None]:
        """Wait for bytes; returns the first messages in them, and what is to be raised if there are none.

        Bytes without a line end are not a message yet, but they came before the end. The next call meets that
        again, as a transport says it at each call.
        """
        try:
            data = await self._source.receive()
        except ConnectionLost as error:
            return framer.begin(None), error
        return framer.begin(data or None), None if data else StopAsyncIteration()


def line_of(message: Sendable) -> bytes:
    """A message as one line with its end. Raises `MessageInvalid` for anything else."""
    if isinstance(message, str):
        try:
            line = message.encode()
        except UnicodeEncodeError as error:
            raise MessageInvalid(message, f"it cannot be written as UTF-8: {error}") from error
    elif isinstance(message, bytes | bytearray | memoryview):
        line = bytes(message)
    else:
        line = encode(message)
    line = line.removesuffix(b"\n").removesuffix(b"\r")
    if b"\n" in line:
        raise MessageInvalid(
            message, "it has a line end inside, and a message is one line; send each by itself"
        )
    return line + b"\n"


Interceptor: TypeAlias = Callable[[Transport], Transport]
"""Takes the transport that a session is about to connect, and returns the one to use: the same, a wrapper,
or another. If it raises, so does the session."""

_here: ContextVar[tuple[Interceptor, ...]] = ContextVar("outrider.intercept", default=())
_everywhere: list[Interceptor] = []


@contextmanager
def intercept(change: Interceptor, *, everywhere: bool = False) -> Generator[None]:
    """Let `change` choose the transport of every session that is opened inside the block.

    Where several are in force, the innermost comes first, and the next is given what it chose. By default
    the block counts for the tasks that are started in it, as context variables do; with `everywhere`, for
    all threads and tasks of the process.

    An agent that would be started as a program is given as a transport with a `command`, whether the program
    is installed or not.
    """
    if everywhere:
        _everywhere.append(change)
        try:
            yield
        finally:
            # Not the last one: blocks of different threads need not end in order.
            _everywhere.remove(change)
    else:
        _here.set((*_here.get(), change))
        try:
            yield
        finally:
            # Without a token: a fixture may end in another context than it began in.
            left = list(_here.get())
            if change in left:
                left.remove(change)
            _here.set(tuple(left))


def is_intercepted() -> bool:
    """Whether an `intercept` block is active here."""
    return bool(_here.get() or _everywhere)


def intercepted(transport: Transport) -> Transport:
    """The transport to use instead of this one. Raises `UsageError` if `change` returned none."""
    for change in (*reversed(_here.get()), *reversed(tuple(_everywhere))):
        chosen = cast("object", change(transport))
        if not isinstance(chosen, Transport):
            raise UsageError(
                f"An interceptor gave {chosen!r}, which is not a transport",
                hint="Return the transport that it was given, or another.",
            )
        transport = chosen
    return transport


class Unreachable(Transport):
    """Stands for a program that was not found: an interceptor may not need it."""

    def __init__(self, command: Command, error: OutriderError) -> None:
        self.command = command
        self._error = error

    async def connect(self) -> None:
        raise self._error

    async def receive(self) -> NoReturn:
        raise self._error

    async def send(self, data: bytes) -> NoReturn:
        raise self._error

    async def end_input(self) -> None:
        return

    async def close(self) -> None:
        return

    @property
    def is_ready(self) -> bool:
        return False


class MemoryTransport(Transport):
    """One end of a pair. The other end receives what this one sends, in the same pieces."""

    def __init__(self, inbound: Pipe, outbound: Pipe) -> None:
        self._inbound = inbound
        self._outbound = outbound
        self._is_connected = False
        self._is_closed = False

    async def connect(self) -> None:
        await checkpoint()
        if self._is_closed:
            raise TransportClosed("it has been closed")
        self._is_connected = True

    async def receive(self) -> bytes:
        """The next piece. Raises `TransportClosed` before `connect`, and after `close` when nothing is
        left."""
        self._check_connected()
        data = await self._inbound.take()
        if not data and self._is_closed:
            raise TransportClosed("it has been closed")
        return data

    async def send(self, data: bytes) -> None:
        """Send a piece. Raises `TransportClosed` with the reason if nothing can be sent."""
        await checkpoint_if_cancelled()
        self._check_connected()
        if self._is_closed:
            raise TransportClosed("it has been closed")
        if self._outbound.is_ended:
            why = (
                "the other end has been closed" if self._outbound.is_abandoned else "its input has been ended"
            )
            raise TransportClosed(why)
        if data:
            self._outbound.put(bytes(data))
        # Afterwards, so that the pieces of two tasks keep their order.
        await cancel_shielded_checkpoint()

    async def end_input(self) -> None:
        await checkpoint()
        if self._is_connected:
            self._outbound.end()

    async def close(self) -> None:
        """Close this end. The other one receives what was sent, then the end, and can send no more."""
        self._is_closed = True
        self._outbound.end()
        self._inbound.is_abandoned = True
        self._inbound.end()
        await checkpoint()

    @property
    def is_ready(self) -> bool:
        return self._is_connected and not self._is_closed and not self._outbound.is_ended

    @property
    def is_received(self) -> bool:
        """Whether the other end has received all that was sent."""
        return self._outbound.is_empty

    def _check_connected(self) -> None:
        if not self._is_connected:
            why = "it has been closed" if self._is_closed else "it is not connected yet"
            raise TransportClosed(why)


class Pipe:
    """One direction."""

    def __init__(self) -> None:
        self._pieces: deque[bytes] = deque()
        self._arrival: anyio.Event | None = None
        self.is_ended = False
        self.is_abandoned = False
        """Whether it was ended by the side that reads."""

    @property
    def is_empty(self) -> bool:
        return not self._pieces

    def put(self, data: bytes) -> None:
        self._pieces.append(data)
        self._wake()

    def end(self) -> None:
        self.is_ended = True
        self._wake()

    async def take(self) -> bytes:
        await checkpoint()
        while not self._pieces:
            if self.is_ended:
                return b""
            if self._arrival is None:
                self._arrival = anyio.Event()
            await self._arrival.wait()
        return self._pieces.popleft()

    def _wake(self) -> None:
        if self._arrival is not None:
            self._arrival.set()
            self._arrival = None


def memory_pair() -> tuple[MemoryTransport, MemoryTransport]:
    """Two ends. Both have to be connected; they belong to one event loop."""
    there, back = Pipe(), Pipe()
    return MemoryTransport(back, there), MemoryTransport(there, back)

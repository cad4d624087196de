"""Streams of messages, the positions of their readers, and how much is unread.

Does not know where messages come from, nor which belong together.
"""

from __future__ import annotations

import weakref
from copy import copy
from operator import length_hint
from typing import TYPE_CHECKING, Final

import anyio
from anyio.lowlevel import checkpoint

from outrider.errors import TransportClosed, UsageError
from outrider.session._connection.tasks import Signal
from outrider.wire import OversizedMessage, ResultMessage

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from typing import Self, TypeAlias

    from outrider.session._connection.tasks import Loop
    from outrider.session._streams.turn_state import TurnState
    from outrider.wire import Message

    _Piece: TypeAlias = tuple[list[Message], int, Exception | None]


BUDGET: Final = 4 * 1024 * 1024
"""Unread bytes beyond which reading pauses, unless a task waits for a message."""

CEILING: Final = 1024 * 1024 * 1024
"""Unread bytes beyond which a connection fails, if it must keep reading because of its requests."""


class Flow:
    """How much is unread on one connection, and whether a task waits for more.

    While a task waits for a message, reading must continue, even if other messages are unread: the awaited
    message may come after those.
    """

    def __init__(self, budget: int = BUDGET, ceiling: int = CEILING, *, is_strict: bool = False) -> None:
        self.budget = budget
        self.ceiling = ceiling
        self.is_strict = is_strict
        """Whether readers get an error for a message that was too large."""
        self.streams: weakref.WeakSet[Stream] = weakref.WeakSet()
        self._hungry = 0
        self.new_bytes = 0
        """How many bytes came since `unread` was last measured."""
        self._unread = 0
        self._moved: Signal[None] | None = None
        self.loop: Loop | None = None
        """The event loop that it belongs to, once it is open."""

    def check_loop(self) -> None:
        """Raise `UsageError` in another event loop, where waiting would never end."""
        if self.loop is not None and not self.loop.is_here:
            raise UsageError(
                "the session was opened in another event loop",
                hint="Use it in the loop that opened it, one session for each loop, or `outrider.sync`, "
                "which works from any thread.",
            )

    @property
    def _may_be_full(self) -> bool:
        """Whether enough came, or was unread, to measure again."""
        return self._unread > self.budget or self.new_bytes * 8 > self.budget

    @property
    def unread(self) -> int:
        """About how many bytes are unread. Measured only when enough came to matter."""
        if self._may_be_full:
            self.new_bytes = 0
            # A message is in the streams of the session and of its turn: the larger sum counts.
            unread = [0, 0]
            for stream in self.streams:
                unread[stream.is_whole] += stream.unread
            self._unread = max(unread)
        return self._unread

    @property
    def is_full(self) -> bool:
        """Whether reading may pause: enough is unread, and no task waits for more."""
        return not self._hungry and self.unread > self.budget

    @property
    def may_stop_reading(self) -> bool:
        """Whether it is full, or more is unread than can be kept."""
        return self._may_be_full and (self.is_full or self.unread > self.ceiling)

    def check_ceiling(self) -> None:
        """Raise `TransportClosed` if more is unread than can be kept."""
        if self.unread > self.ceiling:
            raise TransportClosed(
                f"{self._unread} bytes of messages are unread, and at most {self.ceiling} are kept",
                hint="Read the messages as they come, or drop the turns and readers that nobody reads.",
            )

    def moved(self) -> None:
        """Wake a paused reader: something was read, or a task waits."""
        if self._moved is not None:
            self._moved.set()
            self._moved = None

    async def wait_moved(self, timeout: float | None = None) -> None:
        if self._moved is None:
            self._moved = self.make_signal()
        await self._moved.wait(timeout)

    def make_signal(self) -> Signal[None]:
        return Signal() if self.loop is None else self.loop.make_signal()

    def __enter__(self) -> None:
        """A task waits for messages until it leaves the block."""
        self._hungry += 1
        self.moved()

    def __exit__(self, *_: object) -> None:
        self._hungry -= 1


class Link:
    """Messages that came together, and a link to those that came after them."""

    __slots__ = ("__weakref__", "batch", "error", "following", "hold", "kinds", "offset")

    def __init__(self, offset: int) -> None:
        self.offset = offset
        """How many bytes came before."""
        self.batch: list[Message] = []
        self.kinds: set[type] = set()
        """Their types, and perhaps more."""
        self.error: Exception | None = None
        """Each reader raises this once, instead of yielding the messages."""
        self.following: Link | None = None
        """None at the end, where the next messages will be."""
        self.hold: ResultHold | None = None
        """Keeps readers from these messages until it is released."""

    @property
    def is_ready(self) -> bool:
        """Whether readers may take its messages."""
        return self.following is not None and (self.hold is None or self.hold.is_released)


class Position:
    """How far a reader has come. Messages before it can be freed."""

    __slots__ = ("__weakref__", "kinds", "link", "rest")

    def __init__(self, link: Link) -> None:
        self.link = link
        """The messages after those in `rest`."""
        self.rest: Iterator[Message] = iter(())
        self.kinds: set[type] = set()
        """The types of those in `rest`, and perhaps more."""

    def __copy__(self) -> Position:
        other = Position(self.link)
        other.rest, other.kinds = copy(self.rest), self.kinds
        return other


class Stream:
    """Messages in order, each kept while a position lies before it."""

    def __init__(self, flow: Flow, *, is_whole: bool = False) -> None:
        self.flow = flow
        self.is_whole = is_whole
        """Whether it has the messages of all turns, not only of one."""
        self.is_ended = False
        self.error: BaseException | None = None
        """The error that readers raise at its end."""
        self._last = Link(0)
        self._positions: weakref.WeakSet[Position] = weakref.WeakSet()
        self._arrival: Signal[None] | None = None
        self._change: Signal[None] | None = None
        flow.streams.add(self)

    def append(
        self, batch: list[Message], kinds: set[type], size: int, hold: ResultHold | None = None
    ) -> None:
        """Add messages of these types, of about `size` bytes. Does nothing once it has ended.

        Readers get them, and those after them, when the hold is released."""
        if self.is_ended:
            return
        if hold is not None:
            self._last.hold = hold
            hold.add(self, self._last)
        pieces: Iterable[_Piece] = [(batch, size, None)]
        if self.flow.is_strict and OversizedMessage in kinds:
            pieces = _with_errors(batch, size // len(batch))
        for piece, length, error in pieces:
            link = self._last
            link.batch, link.kinds, link.error = piece, kinds, error
            self._last = link.following = Link(link.offset + length)
        if self._arrival is not None:
            self._arrival.set()
            self._arrival = None

    def end(self, error: BaseException | None = None) -> None:
        """Accept no more messages."""
        if not self.is_ended:
            self.is_ended = True
            self.error = error
            self.wake()

    def wake(self) -> None:
        """Wake all that wait: it has ended, or something else than messages has changed."""
        arrival, change = self._arrival, self._change
        self._arrival = self._change = None
        if arrival is not None:
            arrival.set()
        if change is not None:
            change.set()

    async def wait(self) -> None:
        """Wait for messages, its end, or another change."""
        self.flow.check_loop()
        self._arrival = arrival = self._arrival or self.flow.make_signal()
        with self.flow:
            await arrival.wait()

    async def wait_changed(self) -> None:
        """Wait for its end, or another change, but for no messages: they may come by the thousand."""
        self.flow.check_loop()
        self._change = change = self._change or self.flow.make_signal()
        with self.flow:
            await change.wait()

    def position(self, at: Position | None = None) -> Position:
        """A new position: at the end, or where another one is."""
        position = Position(self._last) if at is None else copy(at)
        self._positions.add(position)
        return position

    @property
    def unread(self) -> int:
        """Bytes after the position that is furthest behind; 0 without positions."""
        last = self._last.offset
        return last - min((position.link.offset for position in self._positions), default=last)


def _with_errors(messages: list[Message], share: int) -> Iterator[_Piece]:
    """Replace each message that was too large by an error."""
    for message in messages:
        if isinstance(message, OversizedMessage):
            yield [], share, message.error()
        else:
            yield [message], share, None


class Reader:
    """Reads a stream: `async for message in reader`, or many at a time with `batch()`.

    Leaving the loop leaves nothing behind. Raises what ended the stream, after the last message.
    """

    def __init__(self, stream: Stream, position: Position, owner: object) -> None:
        self._stream = stream
        self._position = position
        self._rest = position.rest
        # Keeps the session alive while it is read.
        self._owner = owner

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Message:
        # Nearly every call returns here, and there may be a million of them.
        for message in self._rest:
            return message
        await self._advance()
        return await self.__anext__()

    async def batch(self) -> list[Message]:
        """All messages that are there, at least one: one wake-up for many, where speed matters.

        Raises `StopAsyncIteration` at the end.
        """
        while not (messages := list(self._rest)):
            await self._advance()
        return messages

    def batch_nowait(self) -> list[Message]:
        """All messages that are there, perhaps none. Raises what ended the stream, as `batch` does, but not
        its end."""
        self._move()
        return list(self._rest)

    @property
    def kinds(self) -> set[type]:
        """The types of the messages that it was last given, and perhaps more."""
        return self._position.kinds

    def fork(self) -> Reader:
        """Another reader that begins where this one is."""
        return Reader(self._stream, self._stream.position(self._position), self._owner)

    async def _advance(self) -> None:
        """Move to the next messages, once there are some."""
        stream, position = self._stream, self._position
        if position.link.is_ready or stream.is_ended:
            # No need to wait, but the task that fills the stream must run too.
            await checkpoint()
        while not position.link.is_ready and not length_hint(self._rest):
            if stream.is_ended and position.link.following is None:
                raise StopAsyncIteration if stream.error is None else _again(stream.error)
            await stream.wait()
        self._move()

    def _move(self) -> None:
        """Move to the next messages, unless there are none, or this reader still has some: another task that
        shares it was faster, and has left some."""
        position = self._position
        link = position.link
        if link.following is None or not link.is_ready or length_hint(self._rest):
            return
        position.link = link.following
        position.rest = self._rest = iter(link.batch)
        position.kinds = link.kinds
        self._stream.flow.moved()
        if link.error is not None:
            raise _again(link.error)


def _again(error: BaseException) -> BaseException:
    """A copy of the error for each reader, so that tracebacks do not pile up."""
    try:
        again = copy(error)
    except Exception:  # noqa: BLE001 - a foreign exception that cannot be copied
        return error
    again.__cause__ = error.__cause__
    return again


class ResultHold:
    """Holds back one result until it is stored, in the streams of its turn and of the session.

    For everything but the readers, the turn is done: no deadline runs, and an interrupt comes too late.
    """

    def __init__(self) -> None:
        self.is_released = False
        self._released = anyio.Event()
        self._links: list[tuple[Stream, Link]] = []
        self._turns: list[TurnState] = []

    def add(self, stream: Stream, link: Link) -> None:
        """Stop readers at this link."""
        self._links.append((stream, link))

    def add_turn(self, turn: TurnState) -> None:
        """Keep this turn unfinished for the tasks that wait for it."""
        self._turns.append(turn)

    async def wait(self) -> None:
        await self._released.wait()

    def release(self, notice: Message | None = None) -> None:
        """Let readers have the result, first a notice that says why it was not held longer."""
        if self.is_released:
            return
        self.is_released = True
        if notice is not None:
            for turn in self._turns:
                _insert_before_result(turn.messages, notice)
            for _, link in self._links:
                link.batch, link.kinds = [notice, *link.batch], {type(notice), *link.kinds}
        for stream in (*(stream for stream, _ in self._links), *(turn.stream for turn in self._turns)):
            stream.wake()
        self._released.set()


def _insert_before_result(messages: list[Message], notice: Message) -> None:
    results = [index for index, message in enumerate(messages) if isinstance(message, ResultMessage)]
    messages.insert(results[-1] if results else len(messages), notice)

"""The child's stdin and stdout where a pipe can only block: a thread for each, and bounded buffers between.

Each pipe is closed by the thread that uses it: on Windows, closing it elsewhere would wait for that thread.
Does not start the threads: the keeper does.
"""

from __future__ import annotations

import errno
import os
from collections import deque
from threading import Condition, Lock
from typing import TYPE_CHECKING, Final

from outrider.transports._flags import Bell
from outrider.transports._input import InputClosed, Ticket
from outrider.transports._keeper import ENDING_LIMIT, READ_SIZE

if TYPE_CHECKING:
    from collections.abc import Callable

BUFFER_LIMIT: Final = 65536
"""So much is taken on trust in each direction, as a pipe does elsewhere; then writers wait, and the child."""


class Piece:
    """Bytes on their way to the child that nobody waits for."""

    def __init__(self, data: bytes) -> None:
        self.rest = memoryview(data)
        self.has_begun = False


class BlockingInput:
    """The writing end of the child's stdin. `run` is for a thread; nothing else blocks."""

    def __init__(self, number: int, wake: Callable[[], None]) -> None:
        self._number = number
        self._wake = wake
        self._changed = Condition(Lock())
        self._queue: deque[Piece | Ticket] = deque()
        self._waiting = 0
        self._refusal: str | None = None
        self._is_broken = False
        self._is_cut = False
        """Whether what is in the queue is of no more interest."""
        self._is_closed = False
        self.sent_bytes = 0
        """How much the pipe has taken."""

    @property
    def refusal(self) -> str | None:
        """Why nothing can be sent; None if something can."""
        return self._refusal

    @property
    def is_broken(self) -> bool:
        """Whether the child has closed its end. Known only after something was sent."""
        return self._is_broken

    @property
    def is_closed(self) -> bool:
        """Whether `run` has come to its end."""
        return self._is_closed

    @property
    def has_more(self) -> bool:
        return bool(self._queue)

    @property
    def waiting_bytes(self) -> int:
        return self._waiting

    def put(self, data: bytes) -> Ticket | None:
        """Send; gives a ticket if more waits than is taken on trust."""
        with self._changed:
            if self._refusal is not None:
                raise InputClosed(self._refusal)
            ticket = Ticket(memoryview(data)) if self._waiting + len(data) > BUFFER_LIMIT else None
            self._append(ticket or Piece(data))
        return ticket

    def withdraw(self, ticket: Ticket) -> None:
        with self._changed:
            if not ticket.has_begun and ticket in self._queue:
                self._queue.remove(ticket)
                self._waiting -= len(ticket.rest)
                # Nobody waits, but on Windows somebody may look; see `Flag.wait`.
                ticket.flag.set()

    def end(self, why: str) -> Ticket | None:
        with self._changed:
            if self._refusal is None:
                self._refusal = why
            last = self._queue[-1] if self._queue else None
            if isinstance(last, Piece):
                last = Ticket(memoryview(b""))
                self._append(last)
            self._changed.notify()
            return last

    def close(self, why: str) -> None:
        """Close the pipe as soon as it can be: a write that blocks goes on until the child reads or ends."""
        with self._changed:
            if self._refusal is None:
                self._refusal = why
            self._cut()

    def forget(self) -> None:
        self._refusal = "it belongs to the process that this one was forked from"
        if not self._is_closed:
            os.close(self._number)

    # The thread.

    def run(self) -> None:
        """Write what is put until the end is reached, then close the pipe."""
        while (piece := self._next()) is not None:
            try:
                # Nothing is never written: on Windows the child would take it for the end.
                sent = os.write(self._number, piece.rest[:READ_SIZE]) if piece.rest else 0
            except OSError as error:
                self._break(error)
            else:
                self._advance(piece, sent)
        os.close(self._number)
        self._is_closed = True
        self._wake()

    def _next(self) -> Piece | Ticket | None:
        with self._changed:
            while not self._queue and self._refusal is None:
                self._changed.wait()
            if not self._queue:
                return None
            # From now on it cannot be withdrawn.
            self._queue[0].has_begun = True
            return self._queue[0]

    def _advance(self, piece: Piece | Ticket, sent: int) -> None:
        with self._changed:
            if self._is_cut:
                return
            piece.rest = piece.rest[sent:]
            self._waiting -= sent
            self.sent_bytes += sent
            if not piece.rest:
                self._queue.popleft()
                if isinstance(piece, Ticket):
                    piece.was_sent = True
                    piece.flag.set()
            is_flushed = not self._queue and self._refusal is not None
        if is_flushed:
            self._wake()

    def _break(self, error: OSError) -> None:
        with self._changed:
            self._is_broken = True
            # Windows calls a pipe without a reader an invalid argument.
            reason = os.strerror(errno.EPIPE) if error.errno == errno.EINVAL else error.strerror
            self._refusal = self._refusal or f"the program has closed its stdin ({reason})"
            self._cut()

    def _append(self, piece: Piece | Ticket) -> None:
        self._queue.append(piece)
        self._waiting += len(piece.rest)
        self._changed.notify()

    def _cut(self) -> None:
        self._is_cut = True
        self._waiting = 0
        while self._queue:
            piece = self._queue.popleft()
            if isinstance(piece, Ticket):
                piece.flag.set()
        self._changed.notify()


class BlockingOutput:
    """The reading end of the child's stdout. `take` and `wait` are for the event loop, `run` for a thread."""

    def __init__(self, number: int, wake: Callable[[], None]) -> None:
        self._number = number
        self._wake = wake
        self._changed = Condition(Lock())
        self._kept: deque[bytes] = deque()
        self._kept_size = 0
        self.dropped_bytes = 0
        """What was thrown away because it came too late and was too much."""
        self._is_handed_over = False
        self._is_closed = False
        self._is_over = False
        self._is_awaited = False
        self._news = Bell()

    @property
    def is_closed(self) -> bool:
        """Whether the child, and all that had it from the child, has closed it, and `run` is at its end."""
        return self._is_closed

    @property
    def is_handed_over(self) -> bool:
        return self._is_handed_over

    @property
    def is_drained(self) -> bool:
        return False

    def take(self) -> bytes | None:
        with self._changed:
            if self._kept:
                return self._pop()
            if self._is_over:
                return b""
            self._news.clear()
            self._is_awaited = True
            return None

    async def wait(self) -> None:
        await self._news.wait()

    def hand_over(self) -> None:
        """From now on it is read whether anybody takes it or not."""
        with self._changed:
            self._is_handed_over = True
            self._changed.notify()

    def finish(self) -> None:
        """Let `take` come to an end, after what has been read."""
        with self._changed:
            self._is_handed_over = self._is_over = True
            self._changed.notify()
            self._news.ring()

    def forget(self) -> None:
        if not self._is_closed:
            os.close(self._number)
        self._is_over = True

    # The thread.

    def run(self) -> None:
        """Read until the end, but no more than a buffer full that nobody takes; then close the pipe."""
        while self._wait_for_room() and (data := read(self._number)):
            self._keep(data)
        os.close(self._number)
        with self._changed:
            self._is_closed = True
            self._news.ring()
        self._wake()

    def _wait_for_room(self) -> bool:
        with self._changed:
            while self._kept_size >= BUFFER_LIMIT and not self._is_handed_over:
                self._changed.wait()
            return not self._is_over

    def _keep(self, data: bytes) -> None:
        with self._changed:
            # Once there is a gap, what comes after it would be taken for the rest of what came before.
            if self._is_over or self.dropped_bytes or self._kept_size + len(data) > ENDING_LIMIT:
                self.dropped_bytes += len(data)
                return
            self._kept.append(data)
            self._kept_size += len(data)
            if self._is_awaited:
                self._is_awaited = False
                self._news.ring()

    def _pop(self) -> bytes:
        # Together, because a thread that is always there reads each line by itself.
        pieces: list[bytes] = []
        size = 0
        while self._kept and size < READ_SIZE:
            pieces.append(self._kept.popleft())
            size += len(pieces[-1])
        self._kept_size -= size
        self._changed.notify()
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)


def read(number: int) -> bytes:
    """Wait for bytes; none at the end."""
    try:
        return os.read(number, READ_SIZE)
    except OSError:  # Windows has more than one way to say that nobody writes any more
        return b""

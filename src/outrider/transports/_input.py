"""The child's stdin: what is sent, in order and each piece whole, without ever blocking the sender's thread.

Does not wait: what the pipe does not take at once is left for the keeper thread, and the sender gets a
ticket.
"""

from __future__ import annotations

import os
import sys
from collections import deque
from threading import Lock
from typing import TYPE_CHECKING

from outrider.transports._flags import Flag

if TYPE_CHECKING:
    from collections.abc import Callable


class Ticket:
    """A piece that is still on its way: all of it in the pipe, or never, once `flag` is set."""

    def __init__(self, data: memoryview) -> None:
        self.flag = Flag()
        self.rest = data
        self.has_begun = False
        self.was_sent = False


class Input:
    """The writing end of the child's stdin. Every method may be called from any thread, and none blocks."""

    def __init__(self, number: int, wake: Callable[[], None]) -> None:
        if sys.platform != "win32":
            os.set_blocking(number, False)
        self._number = number
        self._wake = wake
        self._lock = Lock()
        self._queue: deque[Ticket] = deque()
        self._refusal: str | None = None
        """Why nothing is taken any more."""
        self._is_broken = False
        self.sent_bytes = 0
        """How much the pipe has taken of what did not go out at once."""

    @property
    def refusal(self) -> str | None:
        """Why nothing can be sent; None if something can."""
        return self._refusal

    @property
    def is_broken(self) -> bool:
        """Whether the child has closed its end."""
        return self._is_broken

    @property
    def has_more(self) -> bool:
        """Whether something waits for the pipe to take it."""
        return bool(self._queue)

    @property
    def waiting_bytes(self) -> int:
        return sum(len(ticket.rest) for ticket in tuple(self._queue))

    def fileno(self) -> int:
        """The number while the pipe is open, then -1."""
        return self._number

    def put(self, data: bytes) -> Ticket | None:
        """Send; gives a ticket if not all of it went out. Raises `InputClosed` if nothing can be sent."""
        with self._lock:
            # Checked inside the lock: nothing can be closed between this and the write.
            if self._refusal is not None:
                raise InputClosed(self._refusal)
            sent = 0
            if not self._queue:
                try:
                    sent = os.write(self._number, data)
                except BlockingIOError:
                    pass
                except OSError as error:
                    self._break(error)
                    raise InputClosed(str(self._refusal)) from error
                if sent == len(data):
                    return None
            ticket = Ticket(memoryview(data)[sent:])
            ticket.has_begun = sent > 0
            self._queue.append(ticket)
        self._wake()
        return ticket

    def withdraw(self, ticket: Ticket) -> None:
        """Take back a piece that nobody waits for any more, if nothing of it has gone out yet."""
        with self._lock:
            if not ticket.has_begun and ticket in self._queue:
                self._queue.remove(ticket)
                # Whoever ends the input may wait for it as the last one.
                ticket.flag.set()
                if not self._queue and self._refusal is not None:
                    self._close()

    def end(self, why: str) -> Ticket | None:
        """Take nothing more, and close the pipe after the last piece; gives the ticket of that one."""
        with self._lock:
            if self._refusal is None:
                self._refusal = why
            if self._queue:
                return self._queue[-1]
            self._close()
            return None

    def pump(self) -> None:
        """Write what the pipe takes. Called by the keeper when it is writable."""
        with self._lock:
            while self._queue:
                ticket = self._queue[0]
                try:
                    sent = os.write(self._number, ticket.rest)
                except BlockingIOError:
                    return
                except OSError as error:
                    self._break(error)
                    return
                ticket.has_begun = True
                ticket.rest = ticket.rest[sent:]
                self.sent_bytes += sent
                if ticket.rest:
                    return
                self._queue.popleft()
                ticket.was_sent = True
                ticket.flag.set()
            if self._refusal is not None:
                self._close()

    def close(self, why: str) -> None:
        """Take nothing more and close the pipe now; what is still waiting is never sent."""
        with self._lock:
            if self._refusal is None:
                self._refusal = why
            self._fail_all()
            self._close()

    def forget(self) -> None:
        """Close it in a forked process, where the thread that may have held the lock is not."""
        self._lock = Lock()
        self._refusal = "it belongs to the process that this one was forked from"
        self._close()

    def _break(self, error: OSError) -> None:
        self._is_broken = True
        self._refusal = self._refusal or f"the program has closed its stdin ({error.strerror})"
        self._fail_all()
        self._close()

    def _fail_all(self) -> None:
        while self._queue:
            self._queue.popleft().flag.set()

    def _close(self) -> None:
        number, self._number = self._number, -1
        if number >= 0:
            os.close(number)


class InputClosed(Exception):
    """Nothing can be sent; the text says why."""

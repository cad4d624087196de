"""The child's stdin and stdout, without ever blocking the thread that sends or receives.

What is sent goes out in order, each piece whole. Does not wait: what the pipe does not take at once is left
for the supervisor thread, and the sender gets a ticket.
"""

from __future__ import annotations

import os
import select
import sys
from collections import deque
from contextlib import suppress
from functools import partial
from threading import Lock
from typing import TYPE_CHECKING, Final

from outrider.transports._process.wakeup import Descriptor, ThreadEvent, caller_in, wait_until_woken

if TYPE_CHECKING:
    from asyncio import AbstractEventLoop
    from collections.abc import Callable

READ_SIZE: Final = 65536
"""Larger reads and larger pipes are not faster."""
ENDING_LIMIT: Final = 64 * 1024 * 1024
"""How much is kept of what a child writes while it is being ended; the rest is only counted."""
LEFT_LIMIT: Final = 1024 * 1024
"""How much is read after the exit: no pipe holds more, so the rest is not the child's."""
PIPE_BUF: Final = 512 if sys.platform == "win32" else select.PIPE_BUF
"""A pipe takes this much all at once, or nothing of it."""


class Ticket:
    """A queued piece. Once `settled` is set, it is in the pipe, or will never be."""

    def __init__(self, data: memoryview) -> None:
        self.settled = ThreadEvent()
        self.rest = data
        self.has_begun = False
        self.was_sent = False


class Input:
    """The writing end of the child's stdin. Every method may be called from any thread, and none blocks."""

    def __init__(self, number: int, wake: Callable[[], None]) -> None:
        os.set_blocking(number, False)
        self.number = number
        """While the pipe is open, then -1."""
        self._wake = wake
        self._lock = Lock()
        self._queue: deque[Ticket] = deque()
        self.refusal: str | None = None
        """Why nothing can be sent; None if something can."""
        self.is_broken = False
        """Whether the child has closed its end."""
        self.sent_bytes = 0
        """How much the pipe has taken of queued pieces."""

    @property
    def has_more(self) -> bool:
        """Whether a piece waits for the pipe."""
        return bool(self._queue)

    @property
    def waiting_bytes(self) -> int:
        return sum(len(ticket.rest) for ticket in tuple(self._queue))

    def put(self, data: bytes) -> Ticket | None:
        """Send; returns a ticket if a part is queued. Raises `InputClosed` if nothing can be sent."""
        with self._lock:
            # Checked inside the lock: nothing can be closed between this and the write.
            if self.refusal is not None:
                raise InputClosed(self.refusal)
            sent = 0
            if not self._queue:
                try:
                    sent = os.write(self.number, data)
                except BlockingIOError:
                    pass
                except OSError as error:
                    self._break(error)
                    raise InputClosed(str(self.refusal)) from error
                if sent == len(data):
                    return None
            ticket = Ticket(memoryview(data)[sent:])
            ticket.has_begun = sent > 0
            self._queue.append(ticket)
        self._wake()
        return ticket

    def try_put(self, data: bytes) -> bool:
        """Send if the pipe takes all of it now. False: nothing was sent."""
        if len(data) > PIPE_BUF:
            return False
        with self._lock:
            if self.refusal is not None or self._queue:
                return False
            try:
                os.write(self.number, data)
            except OSError:
                # If the pipe is broken, the next `put` reports it.
                return False
        return True

    def withdraw(self, ticket: Ticket) -> None:
        """Withdraw a piece whose sender has given up, if nothing of it has gone out yet."""
        with self._lock:
            if not ticket.has_begun and ticket in self._queue:
                self._queue.remove(ticket)
                # The task that ends the input may wait for it as the last piece.
                ticket.settled.set()
                if not self._queue and self.refusal is not None:
                    self._close()

    def end(self, why: str) -> Ticket | None:
        """Accept nothing more, and close the pipe after the last piece; returns the ticket of that piece."""
        with self._lock:
            if self.refusal is None:
                self.refusal = why
            if self._queue:
                return self._queue[-1]
            self._close()
            return None

    def pump(self) -> None:
        """Write what the pipe takes. Called by the supervisor when it is writable."""
        with self._lock:
            while self._queue:
                ticket = self._queue[0]
                try:
                    sent = os.write(self.number, ticket.rest)
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
                ticket.settled.set()
            if self.refusal is not None:
                self._close()

    def close(self, why: str) -> None:
        """Accept nothing more and close the pipe now; queued pieces are never sent."""
        with self._lock:
            if self.refusal is None:
                self.refusal = why
            self._fail_all()
            self._close()

    def forget(self) -> None:
        """Close it in a forked process, where the thread that may hold the lock does not exist."""
        self._lock = Lock()
        self.refusal = "it belongs to the process that this one was forked from"
        self._close()

    def _break(self, error: OSError) -> None:
        self.is_broken = True
        self.refusal = self.refusal or f"the program has closed its stdin ({error.strerror})"
        self._fail_all()
        self._close()

    def _fail_all(self) -> None:
        while self._queue:
            self._queue.popleft().settled.set()

    def _close(self) -> None:
        number, self.number = self.number, -1
        if number >= 0:
            os.close(number)


class InputClosed(Exception):
    """Nothing can be sent; the text says why."""


class Output:
    """The reading end of the child's stdout."""

    def __init__(self, number: int) -> None:
        os.set_blocking(number, False)
        self.number = number
        """While the pipe is open, then -1."""
        self._lock = Lock()
        self._kept: deque[bytes] = deque()
        self._kept_size = 0
        self.dropped_bytes = 0
        """How much was dropped because it came too late and was too much."""
        self.is_handed_over = False
        """Whether the supervisor reads it instead of the event loop."""
        self.is_closed = False
        """Whether the child, and all that inherited it, have closed it."""
        self.is_drained = False
        """Whether the last read emptied the pipe, so that the next one has to wait."""
        self._is_over = False
        self._is_notified = False
        """Whether there is something that the reader has not seen yet."""
        self._wake: Callable[[], object] | None = None
        """Wakes the waiting task, if there is one."""
        self._is_polled = False
        """Whether an event loop polls the pipe. It must not be closed then: its number could be reused while
        the loop still polls it."""
        self._unclosed: Descriptor | None = None
        """A pipe to close as soon as no event loop polls it."""

    # The event loop's side.

    def take(self) -> bytes | None:
        """The next bytes; `b""` at the end; None if there is nothing yet."""
        with self._lock:
            if self._kept:
                data = self._kept.popleft()
                self._kept_size -= len(data)
                return data
            if self._is_over:
                return b""
            if self.is_drained:
                # Another read would be a system call for nothing.
                self.is_drained = False
            elif not (self.is_handed_over or self.is_closed) and (read := self._read()):
                self.is_drained = len(read) < READ_SIZE
                return read
            self._is_notified = False
            return None

    async def wait(self) -> None:
        """Wait until `take` may have something."""
        number = self._poll_number()
        try:
            await wait_until_woken(self._begin_wait, number)
        finally:
            self._end_wait()

    def watch(
        self, loop: AbstractEventLoop, take: Callable[[bytes], bool], leave: Callable[[], None]
    ) -> Callable[[], None]:
        """Let the event loop read, and pass the data to `take`, until that returns False or the output is
        about to end. Then call `leave`; the rest is for `take` and `wait`. Returns a function to stop it.
        """
        number = self._poll_number()
        is_watching = True

        def stop() -> None:
            nonlocal is_watching
            if is_watching:
                is_watching = False
                if number >= 0:
                    loop.remove_reader(number)
                self._end_wait()

        def read() -> None:
            if not is_watching:
                return
            with self._lock:
                is_ending = self._kept or self._is_over or self.is_handed_over or self.is_closed
                data = b"" if is_ending else self._read()
                self.is_drained = False
            # None: another reader was faster.
            if data is not None and not (data and take(data)):
                stop()
                leave()

        self._begin_wait(partial(caller_in(loop), read))
        if number >= 0:
            loop.add_reader(number, read)
        else:
            loop.call_soon(read)
        return stop

    def _poll_number(self) -> int:
        """The descriptor that an event loop should poll; -1 if it will be woken instead."""
        with self._lock:
            number = -1 if self.is_handed_over else self.number
            self._is_polled = number >= 0
            return number

    def _begin_wait(self, wake: Callable[[], object]) -> None:
        with self._lock:
            self._wake = wake
            # Events before this woke no task.
            if self._is_notified or self._unclosed or (self._is_polled and self.is_handed_over):
                wake()

    def _end_wait(self) -> None:
        with self._lock:
            self._wake, self._is_polled = None, False
            if self._unclosed is not None:
                self._unclosed.close()
                self._unclosed = None

    # The supervisor's side.

    def hand_over(self) -> None:
        """Let the supervisor read from now on."""
        with self._lock:
            self.is_handed_over = True
            self._wake_reader()

    def drain(self) -> bool:
        """Read once and keep the data; returns whether there may be more."""
        with self._lock:
            data = self._read() if not self.is_closed else b""
            if data:
                self._keep(data)
            return bool(data)

    def finish(self) -> None:
        """Keep what is left in the pipe after the child's exit, and let `take` end."""
        self.hand_over()
        left = LEFT_LIMIT
        while left > 0 and self.drain():
            left -= READ_SIZE
        with self._lock:
            self._close()
            self._is_over = True
            self._notify()

    def forget(self) -> None:
        """Close it in a forked process, where the thread that may hold the lock does not exist."""
        self._lock = Lock()
        if self.number >= 0:
            os.close(self.number)
            self.number = -1
        self._is_over = True

    def _read(self) -> bytes | None:
        """Read once; None if there is nothing to read now."""
        try:
            data = os.read(self.number, READ_SIZE)
        except BlockingIOError:
            return None
        if not data:
            self._close()
        return data

    def _keep(self, data: bytes) -> None:
        # After a gap, later bytes would look like the rest of an earlier line.
        if self.dropped_bytes or self._kept_size + len(data) > ENDING_LIMIT:
            self.dropped_bytes += len(data)
            return
        self._kept.append(data)
        self._kept_size += len(data)
        self._notify()

    def _notify(self) -> None:
        self._is_notified = True
        self._wake_reader()

    def _wake_reader(self) -> None:
        if self._wake is not None:
            with suppress(RuntimeError):  # its loop is closed
                self._wake()

    def _close(self) -> None:
        number, self.number = self.number, -1
        if number >= 0:
            self.is_closed = True
            if self._is_polled:
                self._unclosed = Descriptor(number)
                self._wake_reader()
            else:
                os.close(number)


class LoopPipes:
    """Both pipes, for direct use by an event loop of asyncio."""

    def __init__(self, input: Input, output: Output) -> None:
        self.try_put = input.try_put
        self.watch = output.watch
        self._input = input

    def put(self, data: bytes) -> None:
        """Send without waiting. Drops what can no longer be sent: readers get the reason."""
        try:
            self._input.put(data)
        except InputClosed:
            # Not `suppress`, which takes its time: this is done for each reply.
            pass

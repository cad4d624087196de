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
from threading import Lock
from typing import TYPE_CHECKING, Final

from anyio import wait_readable

from outrider.transports._process.wakeup import ThreadEvent, WakeupFd, forget_in_forks

if TYPE_CHECKING:
    from asyncio import AbstractEventLoop
    from collections.abc import Callable

READ_SIZE: Final = 65536
"""Larger reads and larger pipes measured no better."""
ENDING_LIMIT: Final = 64 * 1024 * 1024
"""So much is kept of what a child writes while it is being ended; the rest is only counted."""
LEFT_LIMIT: Final = 1024 * 1024
"""So much is read after the exit at most: no pipe holds more, so the rest is not the child's."""
PIPE_BUF: Final = 512 if sys.platform == "win32" else select.PIPE_BUF
"""A pipe takes so much all at once, or nothing of it."""


class Ticket:
    """A piece that is still on its way: all of it in the pipe, or never, once `settled` is set."""

    def __init__(self, data: memoryview) -> None:
        self.settled = ThreadEvent()
        self.rest = data
        self.has_begun = False
        self.was_sent = False


class Input:
    """The writing end of the child's stdin. Every method may be called from any thread, and none blocks."""

    def __init__(self, number: int, wake: Callable[[], None]) -> None:
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

    def try_put(self, data: bytes) -> bool:
        """Send if the pipe takes all of it now. False: nothing was sent."""
        if len(data) > PIPE_BUF:
            return False
        with self._lock:
            if self._refusal is not None or self._queue:
                return False
            try:
                os.write(self._number, data)
            except OSError:
                # If it is broken, the next piece that is put will tell.
                return False
        return True

    def withdraw(self, ticket: Ticket) -> None:
        """Take back a piece that nobody waits for any more, if nothing of it has gone out yet."""
        with self._lock:
            if not ticket.has_begun and ticket in self._queue:
                self._queue.remove(ticket)
                # The task that ends the input may wait for it as the last one.
                ticket.settled.set()
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
        """Write what the pipe takes. Called by the supervisor when it is writable."""
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
                ticket.settled.set()
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
            self._queue.popleft().settled.set()

    def _close(self) -> None:
        number, self._number = self._number, -1
        if number >= 0:
            os.close(number)


class InputClosed(Exception):
    """Nothing can be sent; the text says why."""


class Output:
    """The reading end of the child's stdout. `take` is the event loop's, all else the supervisor's."""

    def __init__(self, number: int) -> None:
        os.set_blocking(number, False)
        self._number = number
        self._lock = Lock()
        self._kept: deque[bytes] = deque()
        self._kept_size = 0
        self.dropped_bytes = 0
        """What was thrown away because it came too late and was too much."""
        self._is_handed_over = False
        self._is_closed = False
        self._is_over = False
        self._is_drained = False
        self._is_notified = False
        """Whether the reader has been notified and has not looked since."""
        self._wakeup = WakeupFd()
        self._readiness = Readiness()
        self._readiness.add(number)
        self._readiness.add(self._wakeup.fileno())

    @property
    def is_closed(self) -> bool:
        """Whether the child, and all that had it from the child, has closed it."""
        return self._is_closed

    @property
    def is_handed_over(self) -> bool:
        return self._is_handed_over

    @property
    def is_drained(self) -> bool:
        """Whether the last read took all there was: what has to be read next has to be waited for."""
        return self._is_drained

    def fileno(self) -> int:
        """The number while the pipe is open, then -1."""
        return self._number

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
            if self._is_drained:
                # To look again at once would be a call of the system for nothing.
                self._is_drained = False
            elif not (self._is_handed_over or self._is_closed) and (read := self._read()):
                self._is_drained = len(read) < READ_SIZE
                return read
            if self._is_notified:
                self._is_notified = False
                self._wakeup.clear()
            return None

    async def wait(self) -> None:
        """Wait until `take` may have something."""
        await self._readiness.wait()

    def watch(
        self, loop: AbstractEventLoop, take: Callable[[bytes], bool], leave: Callable[[], None]
    ) -> Callable[[], None]:
        """Have the event loop itself read, and give `take` what came, until that returns False or the end is
        in sight. Then `leave` is called, and the rest is for `take` and `wait`. Gives what ends it earlier.
        """
        number = self._readiness.fileno()
        is_watching = True

        def stop() -> None:
            nonlocal is_watching
            if is_watching:
                is_watching = False
                loop.remove_reader(number)

        def read() -> None:
            with self._lock:
                is_ending = self._kept or self._is_over or self._is_handed_over or self._is_closed
                data = b"" if is_ending else self._read()
                self._is_drained = False
            # None: somebody else was faster.
            if data is not None and not (data and take(data)):
                stop()
                leave()

        loop.add_reader(number, read)
        return stop

    # The supervisor's side.

    def hand_over(self) -> None:
        """From now on the supervisor reads."""
        with self._lock:
            self._is_handed_over = True
            if self._number >= 0:
                self._readiness.discard(self._number)

    def drain(self) -> bool:
        """Read once into what is kept; says whether there may be more."""
        with self._lock:
            data = self._read() if not self._is_closed else b""
            if data:
                self._keep(data)
            return bool(data)

    def finish(self) -> None:
        """The child is gone: keep what is left in the pipe, and let `take` come to an end."""
        self.hand_over()
        left = LEFT_LIMIT
        while left > 0 and self.drain():
            left -= READ_SIZE
        with self._lock:
            self._close()
            self._is_over = True
            self._notify()

    def forget(self) -> None:
        """Close all of it, in a forked process, where the thread that may have held the lock is not."""
        self._lock = Lock()
        if self._number >= 0:
            os.close(self._number)
            self._number = -1
        self._is_over = True

    def _read(self) -> bytes | None:
        """Read once; None if there is nothing to read now, and nothing ever if it is closed."""
        try:
            data = os.read(self._number, READ_SIZE)
        except BlockingIOError:
            return None
        if not data:
            self._close()
        return data

    def _keep(self, data: bytes) -> None:
        # Once there is a gap, what comes after it would be taken for the rest of what came before.
        if self.dropped_bytes or self._kept_size + len(data) > ENDING_LIMIT:
            self.dropped_bytes += len(data)
            return
        self._kept.append(data)
        self._kept_size += len(data)
        self._notify()

    def _notify(self) -> None:
        self._is_notified = True
        self._wakeup.notify()

    def _close(self) -> None:
        number, self._number = self._number, -1
        if number >= 0:
            self._is_closed = True
            self._readiness.discard(number)
            os.close(number)


class LoopPipes:
    """Both pipes, for a reader and writer on asyncio that uses the event loop itself."""

    def __init__(self, input: Input, output: Output) -> None:
        self.try_put = input.try_put
        self.watch = output.watch
        self._input = input

    def put(self, data: bytes) -> None:
        """Send without waiting. What can no longer be sent is dropped: whoever reads is told why."""
        with suppress(InputClosed):
            self._input.put(data)


class Readiness:
    """One descriptor that is readable when any of several is, so that a task waits for one thing only."""

    def __init__(self) -> None:
        if sys.platform == "linux":
            self._poller = select.epoll()
        else:
            self._poller = select.kqueue()
        forget_in_forks(self)

    def add(self, number: int) -> None:
        if sys.platform == "linux":
            self._poller.register(number, select.EPOLLIN)
        else:
            self._poller.control([select.kevent(number, select.KQ_FILTER_READ, select.KQ_EV_ADD)], 0)

    def discard(self, number: int) -> None:
        try:
            if sys.platform == "linux":
                self._poller.unregister(number)
            else:
                self._poller.control([select.kevent(number, select.KQ_FILTER_READ, select.KQ_EV_DELETE)], 0)
        except (OSError, ValueError):  # the last: it is closed
            pass

    def forget(self) -> None:
        """Close it in a forked process: the kernel has one for both, and taken out of here is taken out
        there."""
        self._poller.close()

    def fileno(self) -> int:
        return self._poller.fileno()

    async def wait(self) -> None:
        await wait_readable(self._poller.fileno())

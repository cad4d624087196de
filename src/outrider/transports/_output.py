"""The child's stdout: read in the event loop while all is well, and by the keeper thread while the child
ends.

Whoever reads, the bytes come out once and in order. Does not look into them.
"""

from __future__ import annotations

import os
import select
import sys
from collections import deque
from threading import Lock
from typing import Final

from anyio import wait_readable

from outrider.transports._flags import Bell
from outrider.transports._forks import forget_in_forks
from outrider.transports._keeper import ENDING_LIMIT, READ_SIZE

# Not for Windows: there, type checkers need not look further.
assert sys.platform != "win32"

_LEFT_LIMIT: Final = 1024 * 1024
"""So much is read after the exit at most: no pipe holds more, so the rest is not the child's."""


class Output:
    """The reading end of the child's stdout. `take` is the event loop's, all else the keeper's."""

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
        self._is_news = False
        """Whether the bell has been rung and not been cleared."""
        self._news = Bell()
        self._readiness = Readiness()
        self._readiness.add(number)
        self._readiness.add(self._news.fileno())

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
            if self._is_news:
                self._is_news = False
                self._news.clear()
            return None

    async def wait(self) -> None:
        """Wait until `take` may have something."""
        await self._readiness.wait()

    # The keeper's side.

    def hand_over(self) -> None:
        """From now on the keeper reads."""
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
        left = _LEFT_LIMIT
        while left > 0 and self.drain():
            left -= READ_SIZE
        with self._lock:
            self._close()
            self._is_over = True
            self._ring()

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
        self._ring()

    def _ring(self) -> None:
        self._is_news = True
        self._news.ring()

    def _close(self) -> None:
        number, self._number = self._number, -1
        if number >= 0:
            self._is_closed = True
            self._readiness.discard(number)
            os.close(number)


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

    async def wait(self) -> None:
        await wait_readable(self._poller.fileno())

"""One-way events between threads and event loops, by descriptors: no loop has to be alive to set one.

Does not know who waits: any thread, any number of tasks, on any event loop.
"""

from __future__ import annotations

import os
import select
import sys
from typing import TYPE_CHECKING, Final

from anyio import wait_readable
from anyio.lowlevel import checkpoint

if TYPE_CHECKING:
    from typing import Self

_HAS_EVENTFD: Final = hasattr(os, "eventfd")


class Descriptor:
    """Owns a file descriptor. It is closed with the last reference, so that no number is reused under a
    waiter."""

    __slots__ = ("_number",)

    def __init__(self, number: int) -> None:
        self._number = number

    def fileno(self) -> int:
        """The number; -1 after `close`."""
        return self._number

    def close(self) -> None:
        """Close it now. Safe to call again."""
        number, self._number = self._number, -1
        if number >= 0:
            os.close(number)

    def duplicate(self) -> Descriptor:
        return Descriptor(os.dup(self._number))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __del__(self) -> None:
        try:
            self.close()
        except (AttributeError, OSError, TypeError):  # half made, or the interpreter is going
            pass


class Flag:
    """An event that is set once and stays set. `set` never blocks and may be called anywhere."""

    def __init__(self) -> None:
        self._is_set = False
        if _HAS_EVENTFD:
            self._readable = self._writable = Descriptor(os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK))
        else:
            readable, writable = os.pipe()
            os.set_blocking(writable, False)
            self._readable, self._writable = Descriptor(readable), Descriptor(writable)

    @property
    def is_set(self) -> bool:
        return self._is_set

    def fileno(self) -> int:
        """Readable from the moment on when the flag is set."""
        return self._readable.fileno()

    def set(self) -> None:
        if not self._is_set:
            self._is_set = True
            os.write(self._writable.fileno(), b"\1\0\0\0\0\0\0\0")

    async def wait(self) -> None:
        """Wait in a task. Several may wait at once."""
        if self._is_set:
            await checkpoint()
            return
        # A loop takes one waiter for each number, so each waiter has its own.
        with self._readable.duplicate() as own:
            await wait_readable(own.fileno())

    def wait_blocking(self, timeout: float | None = None) -> bool:
        """Wait in a thread; says whether it is set."""
        if not self._is_set:
            poll = select.poll()
            poll.register(self._readable.fileno(), select.POLLIN)
            poll.poll(None if timeout is None else timeout * 1000)
        return self._is_set

    def close(self) -> None:
        """Give the descriptors back now; nobody may be waiting. Else they go with the last reference."""
        self._readable.close()
        self._writable.close()


class Bell:
    """Wakes a thread that polls. Rung any number of times, it is heard at least once."""

    def __init__(self) -> None:
        if _HAS_EVENTFD:
            self._hears = self._rings = Descriptor(os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK))
        else:
            hears, rings = os.pipe()
            os.set_blocking(hears, False)
            os.set_blocking(rings, False)
            self._hears, self._rings = Descriptor(hears), Descriptor(rings)

    def fileno(self) -> int:
        return self._hears.fileno()

    def ring(self) -> None:
        try:
            os.write(self._rings.fileno(), b"\1\0\0\0\0\0\0\0")
        except (BlockingIOError, OSError):  # full: it rings already; closed: nobody is there
            pass

    def clear(self) -> None:
        try:
            while os.read(self._hears.fileno(), 4096) and not _HAS_EVENTFD:
                pass
        except BlockingIOError:
            pass

    def close(self) -> None:
        self._hears.close()
        self._rings.close()


class Readiness:
    """One descriptor that is readable when any of several is, so that a task waits for one thing only."""

    def __init__(self) -> None:
        if sys.platform == "linux":
            self._poller = select.epoll()
        else:
            self._poller = select.kqueue()

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
        except OSError:
            pass

    async def wait(self) -> None:
        await wait_readable(self._poller.fileno())

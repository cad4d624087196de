"""One-way events between threads and event loops, by descriptors: no loop has to be alive to set one.

Does not know who waits: any thread, any number of tasks, on any event loop.
"""

from __future__ import annotations

import math
import os
import select
import time
from threading import Lock
from typing import TYPE_CHECKING, Final, Protocol
from weakref import WeakSet

from anyio import sleep, wait_readable
from anyio.lowlevel import checkpoint

if TYPE_CHECKING:
    from typing import Self


class Inherited(Protocol):
    """What is to be forgotten in a forked process."""

    def forget(self) -> None:
        """Called there, where nothing else runs yet. It must neither wait nor say a word to anybody."""
        ...


_all: WeakSet[Inherited] = WeakSet()


def forget_in_forks(one: Inherited) -> None:
    """Have it forgotten in every process that is forked while it is there."""
    _all.add(one)


class FreshLock:
    """A lock that is open in a forked process, whichever thread of the other one held it."""

    __slots__ = ("__weakref__", "_lock")

    def __init__(self) -> None:
        self._lock = Lock()
        forget_in_forks(self)

    def __enter__(self) -> None:
        self._lock.acquire()

    def __exit__(self, *_: object) -> None:
        self._lock.release()

    def forget(self) -> None:
        self._lock = Lock()


def _forget_all() -> None:
    for one in tuple(_all):
        one.forget()
    _all.clear()


if hasattr(os, "register_at_fork"):  # not on Windows
    os.register_at_fork(after_in_child=_forget_all)


_MARK: Final = b"\1\0\0\0\0\0\0\0"
"""What an eventfd takes; for the others any byte would do."""
_POLL_SECONDS: Final = 0.02
"""Between two looks at an event for which there is no descriptor."""


class Descriptor:
    """Owns a file descriptor. It is closed with the last reference, so that no number is reused under a
    waiter; and in a forked process."""

    __slots__ = ("__weakref__", "_number")

    def __init__(self, number: int) -> None:
        self._number = number
        forget_in_forks(self)

    def fileno(self) -> int:
        """The number; -1 after `close`."""
        return self._number

    def close(self) -> None:
        """Close it now. Safe to call again."""
        number, self._number = self._number, -1
        if number >= 0:
            os.close(number)

    def forget(self) -> None:
        self.close()

    def duplicate(self) -> Descriptor:
        return Descriptor(os.dup(self._number))

    def read(self, size: int) -> bytes:
        return os.read(self._number, size)

    def write(self, data: bytes) -> int:
        return os.write(self._number, data)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __del__(self) -> None:
        try:
            self.close()
        except (AttributeError, OSError, TypeError):  # half made, or the interpreter is going
            pass


def _open_pair() -> tuple[Descriptor, Descriptor]:
    """Two ends: what is written to the second makes the first readable."""
    if hasattr(os, "eventfd"):
        both = Descriptor(os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK))
        return both, both
    readable, writable = os.pipe()
    os.set_blocking(readable, False)
    os.set_blocking(writable, False)
    return Descriptor(readable), Descriptor(writable)


class EventFd:
    """An event that is set once and stays set. `set` never blocks and may be called anywhere.

    Where no more files can be opened, those who wait for it look at it now and then.
    """

    def __init__(self) -> None:
        self._is_set = False
        try:
            self._readable, self._writable = _open_pair()
        except OSError:
            self._readable = self._writable = Descriptor(-1)

    @property
    def is_set(self) -> bool:
        return self._is_set

    def fileno(self) -> int:
        """Readable from the moment on when the event is set."""
        return self._readable.fileno()

    def set(self) -> None:
        if not self._is_set:
            self._is_set = True
            if self._writable.fileno() >= 0:
                self._writable.write(_MARK)

    async def wait(self) -> None:
        """Wait in a task. Several may wait at once."""
        if self._is_set:
            await checkpoint()
            return
        try:
            # A loop takes one waiter for each number, so each waiter has its own.
            own = self._readable.duplicate()
        except OSError:
            while not self.is_set:  # noqa: ASYNC110 - there is nothing else to wait for
                await sleep(_POLL_SECONDS)
            return
        with own:
            await wait_readable(own.fileno())

    def wait_blocking(self, timeout: float | None = None) -> bool:
        """Wait in a thread; says whether it is set."""
        if self._readable.fileno() < 0:
            deadline = time.monotonic() + (math.inf if timeout is None else timeout)
            while not self._is_set and time.monotonic() < deadline:
                time.sleep(_POLL_SECONDS)
        elif not self._is_set:
            poll = select.poll()
            poll.register(self._readable.fileno(), select.POLLIN)
            poll.poll(None if timeout is None else timeout * 1000)
        return self._is_set


class WakeupFd:
    """Wakes a thread that polls. However often it is notified, the thread wakes at least once."""

    def __init__(self) -> None:
        self._readable, self._writable = _open_pair()

    def fileno(self) -> int:
        return self._readable.fileno()

    def notify(self) -> None:
        try:
            self._writable.write(_MARK)
        except (BlockingIOError, OSError):  # full: it is readable already; closed: nobody is there
            pass

    def clear(self) -> None:
        try:
            while len(self._readable.read(4096)) == 4096:
                pass
        except BlockingIOError:
            pass

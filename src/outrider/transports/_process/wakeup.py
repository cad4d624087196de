"""Events between threads and event loops, wake-ups, and a poller. No loop has to be alive to set one.

Does not know who waits: any thread, any number of tasks, on any event loop.
"""

from __future__ import annotations

import os
import select
from collections import deque
from contextlib import suppress
from functools import partial
from threading import Event, Lock
from typing import TYPE_CHECKING, Final, Protocol, cast
from weakref import ReferenceType, WeakKeyDictionary, WeakSet, ref

import anyio
from anyio.lowlevel import checkpoint, current_token

if TYPE_CHECKING:
    from asyncio import AbstractEventLoop, Future
    from collections.abc import Callable


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
"""What an eventfd takes; for a pipe any byte would do."""


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

    def __del__(self) -> None:
        try:
            self.close()
        except (AttributeError, OSError, TypeError):  # half made, or the interpreter is going
            pass


class ThreadEvent:
    """An event that is set once and stays set. `set` never blocks and may be called in any thread.

    Has no descriptor: tasks are woken by their event loop, and one that is closed is passed over.
    """

    __slots__ = ("_is_set", "_wakers")

    def __init__(self) -> None:
        self._is_set = False
        self._wakers: deque[Callable[[], object]] = deque()

    @property
    def is_set(self) -> bool:
        return self._is_set

    def set(self) -> None:
        self._is_set = True
        while self._wakers:
            try:
                self._wakers.pop()()
            except (IndexError, RuntimeError):  # it was taken back this moment; its loop is closed
                pass

    async def wait(self) -> None:
        """Wait in a task. Several may wait at once."""
        if self._is_set:
            await checkpoint()
            return
        wakers: list[Callable[[], object]] = []

        def begin(wake: Callable[[], object]) -> None:
            wakers.append(wake)
            self._wakers.append(wake)
            # Looked at again: it may have been set before the waker was there.
            if self._is_set:
                wake()

        try:
            await wait_until_woken(begin)
        finally:
            with suppress(ValueError):  # `set` has taken it
                self._wakers.remove(wakers[0])

    def wait_blocking(self, timeout: float | None = None) -> bool:
        """Wait in a thread; says whether it is set."""
        event = Event()
        self._wakers.append(event.set)
        if not self._is_set:
            event.wait(timeout)
        return self._is_set

    def forget(self) -> None:
        """Set it in a forked process, where the loops of those who wait are still the other one's."""
        self._wakers.clear()
        self._is_set = True


class WakeupFd:
    """Wakes a thread that polls. However often it is notified, the thread wakes at least once."""

    def __init__(self) -> None:
        if hasattr(os, "eventfd"):
            self._readable = self._writable = Descriptor(os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK))
        else:
            self._readable, self._writable = map(Descriptor, os.pipe())
            os.set_blocking(self._readable.fileno(), False)
            os.set_blocking(self._writable.fileno(), False)

    def fileno(self) -> int:
        return self._readable.fileno()

    def notify(self) -> None:
        try:
            os.write(self._writable.fileno(), _MARK)
        except OSError:  # full: it is readable already; closed: nobody is there
            pass

    def clear(self) -> None:
        try:
            while len(os.read(self._readable.fileno(), 4096)) == 4096:
                pass
        except BlockingIOError:
            pass


class LoopWaker:
    """Calls functions in an event loop of asyncio, for any thread.

    The loop's own way to do that ends for both when a forked process leaves the loop that it was forked in.
    """

    def __init__(self, loop: AbstractEventLoop) -> None:
        self._wakeup = WakeupFd()
        self._calls: deque[Callable[[], object]] = deque()
        # The loop holds this object, and this object does not hold the loop.
        loop.add_reader(self._wakeup.fileno(), self._run)

    @property
    def is_open(self) -> bool:
        """Not in a forked process."""
        return self._wakeup.fileno() >= 0

    def call(self, function: Callable[[], object]) -> None:
        self._calls.append(function)
        self._wakeup.notify()

    def _run(self) -> None:
        self._wakeup.clear()
        while self._calls:
            self._calls.popleft()()


_wakers: WeakKeyDictionary[AbstractEventLoop, ReferenceType[LoopWaker]] = WeakKeyDictionary()
"""Each belongs to its loop, and goes when that is closed, whoever still holds it."""


async def wait_until_woken(begin: Callable[[Callable[[], object]], object], number: int = -1) -> None:
    """Wait until a descriptor is readable, if there is one, or a function is called that `begin` gets. It may
    be called in any thread, and may raise `RuntimeError` if the loop is closed by then."""
    token = current_token().native_token
    if (run := getattr(token, "run_sync_soon", None)) is not None:  # trio
        event = anyio.Event()
        begin(partial(run, event.set if number < 0 else partial(anyio.notify_closing, number)))
        if number < 0:
            await event.wait()
        else:
            with suppress(anyio.ClosedResourceError):
                await anyio.wait_readable(number)
        return
    loop = cast("AbstractEventLoop", token)
    future: Future[None] = loop.create_future()

    def finish() -> None:
        if not future.done():
            future.set_result(None)

    begin(partial(caller_in(loop), finish))
    if number >= 0:
        loop.add_reader(number, finish)
    try:
        await future
    finally:
        if number >= 0:
            loop.remove_reader(number)


def caller_in(loop: AbstractEventLoop) -> Callable[[Callable[[], object]], object]:
    """A function that has another called in an event loop of asyncio, from any thread."""
    found = _wakers.get(loop)
    waker = None if found is None else found()
    if waker is None or not waker.is_open:
        try:
            waker = LoopWaker(loop)
        except OSError:  # no more files can be opened
            return loop.call_soon_threadsafe
        _wakers[loop] = ref(waker)
    return waker.call


class Poller:
    """Says which descriptors are ready. Each is reported once and then has to be registered again, so one
    that was closed meanwhile, of which another process may hold a copy, is never reported on and on."""

    def __init__(self) -> None:
        self._epoll = select.epoll() if hasattr(select, "epoll") else None
        self._poll = select.poll()
        """Where there is no epoll: macOS."""
        forget_in_forks(self)

    def register(self, number: int, events: int) -> None:
        """Report a descriptor once, when it is ready for `select.POLLIN` or `select.POLLOUT`, or is broken.
        Takes effect at once, in a call of `wait` that another thread has begun too; not without epoll."""
        if self._epoll is None:
            self._poll.register(number, events)
            return
        try:
            self._epoll.register(number, events | select.EPOLLONESHOT)
        except FileExistsError:
            self._epoll.modify(number, events | select.EPOLLONESHOT)

    def wait(self, seconds: float | None) -> list[int]:
        """Wait until some are ready, or the time is up."""
        if self._epoll is not None:
            return [number for number, _ in self._epoll.poll(seconds)]
        ready = [number for number, _ in self._poll.poll(None if seconds is None else seconds * 1000)]
        for number in ready:
            self._poll.unregister(number)
        return ready

    def forget(self) -> None:
        """Close it in a forked process: the kernel has one for both, and taken out of here is taken out
        there."""
        if self._epoll is not None:
            self._epoll.close()

"""Events between threads and event loops, wake-ups, a poller, and a log for a thread that must not wait.

No loop has to be alive to set an event. Does not know who waits: any thread, any number of tasks, on any
event loop.
"""

from __future__ import annotations

import logging
import os
import select
import sys
from collections import deque
from contextlib import suppress
from functools import partial
from threading import Event, Lock, Thread
from typing import TYPE_CHECKING, Final, Protocol, cast
from weakref import ReferenceType, WeakKeyDictionary, WeakSet, ref

import anyio
from anyio.lowlevel import checkpoint, current_token

if TYPE_CHECKING:
    from asyncio import AbstractEventLoop, Future
    from collections.abc import Callable
    from typing import Any


class Inherited(Protocol):
    """Something that a forked process has to forget."""

    def forget(self) -> None:
        """Called there before anything else runs. It must neither wait nor send anything."""
        ...


_all: WeakSet[Inherited] = WeakSet()


def forget_in_forks(one: Inherited) -> None:
    """Call its `forget` in every process that is forked while it exists."""
    _all.add(one)


class FreshLock:
    """A lock that is open in a forked process, even if a thread of the parent held it."""

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
    """Owns a file descriptor. It is closed with the last reference, so that its number is not reused while
    something waits for it, and in a forked process."""

    __slots__ = ("__weakref__", "number")

    def __init__(self, number: int) -> None:
        self.number = number
        """-1 after `close`."""
        forget_in_forks(self)

    def close(self) -> None:
        """Close it now. Safe to call again."""
        number, self.number = self.number, -1
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

    Has no descriptor: event loops wake the waiting tasks, and closed loops are skipped.
    """

    __slots__ = ("_wakers", "is_set")

    def __init__(self) -> None:
        self.is_set = False
        self._wakers: deque[Callable[[], object]] = deque()

    def set(self) -> None:
        self.is_set = True
        while self._wakers:
            try:
                self._wakers.pop()()
            except (IndexError, RuntimeError):  # it was taken back this moment; its loop is closed
                pass

    async def wait(self) -> None:
        """Wait in a task. Several may wait at once."""
        if self.is_set:
            await checkpoint()
            return
        wakers: list[Callable[[], object]] = []

        def begin(wake: Callable[[], object]) -> None:
            wakers.append(wake)
            self._wakers.append(wake)
            # Looked at again: it may have been set before the waker was there.
            if self.is_set:
                wake()

        try:
            await wait_until_woken(begin)
        finally:
            with suppress(ValueError):  # `set` has taken it
                self._wakers.remove(wakers[0])

    def wait_blocking(self, timeout: float | None = None) -> bool:
        """Wait in a thread; returns whether it is set."""
        event = Event()
        self._wakers.append(event.set)
        if not self.is_set:
            event.wait(timeout)
        return self.is_set

    def forget(self) -> None:
        """Set it in a forked process, without waking tasks: their loops belong to the parent."""
        self._wakers.clear()
        self.is_set = True


class WakeupFd:
    """Wakes a thread that polls. Any number of notifications wake it at least once."""

    def __init__(self) -> None:
        if hasattr(os, "eventfd"):
            self.readable = self._writable = Descriptor(os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK))
        else:
            self.readable, self._writable = map(Descriptor, os.pipe())
            os.set_blocking(self.readable.number, False)
            os.set_blocking(self._writable.number, False)

    def notify(self) -> None:
        try:
            os.write(self._writable.number, _MARK)
        except OSError:  # full: it is readable already; closed: no one is there
            pass

    def clear(self) -> None:
        try:
            while len(os.read(self.readable.number, 4096)) == 4096:
                pass
        except BlockingIOError:
            pass


class LoopWaker:
    """Calls functions in an event loop of asyncio, for any thread.

    `call_soon_threadsafe` stops working in both processes when a forked one leaves its loop.
    """

    def __init__(self, loop: AbstractEventLoop) -> None:
        self._wakeup = WakeupFd()
        self._calls: deque[Callable[[], object]] = deque()
        # The loop holds this object, and this object does not hold the loop.
        loop.add_reader(self._wakeup.readable.number, self._run)

    @property
    def is_open(self) -> bool:
        """Not in a forked process."""
        return self._wakeup.readable.number >= 0

    def call(self, function: Callable[[], object]) -> None:
        self._calls.append(function)
        self._wakeup.notify()

    def _run(self) -> None:
        self._wakeup.clear()
        while self._calls:
            self._calls.popleft()()


_wakers: WeakKeyDictionary[AbstractEventLoop, ReferenceType[LoopWaker]] = WeakKeyDictionary()
"""Each belongs to its loop, and ends when that is closed."""


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
    """Reports ready descriptors, each once until it is registered again: a closed one, of which another
    process may hold a copy, is not reported endlessly."""

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


class AsideThread:
    """Calls functions, which may block, one after the other in a thread, which exists while there are any."""

    def __init__(self, name: str) -> None:
        self._name = name
        self.forget()

    def forget(self) -> None:
        """Begin again in a forked process: the thread and its calls belong to the parent."""
        self._lock = Lock()
        self.calls: deque[Callable[[], object]] = deque()
        self._thread: Thread | None = None

    def call(self, function: Callable[[], object]) -> None:
        """Call a function in the thread, or here if no thread can be started. Ignores what it raises."""
        self.calls.append(function)
        with self._lock:
            if self._thread is not None:
                return
            self._thread = Thread(target=self._run, name=self._name, daemon=True)
            try:
                self._thread.start()
                return
            except RuntimeError:  # the interpreter is ending, or the system has none left
                pass
        self._run()

    def drain(self, seconds: float) -> None:
        """Wait until all are called, for at most `seconds`."""
        if (thread := self._thread) is not None and thread.is_alive():
            thread.join(seconds)

    def _run(self) -> None:
        while self._has_more():
            with suppress(BaseException):
                self.calls.popleft()()

    def _has_more(self) -> bool:
        with self._lock:
            if not self.calls:
                self._thread = None
            return bool(self.calls)


_MOST_RECORDS: Final = 1000
"""How many records wait for a slow log handler; more are dropped, so that memory stays bounded."""


class AsideLog(logging.LoggerAdapter[logging.Logger]):
    """A logger for a thread that must not block: the handlers are the user's, and may."""

    def __init__(self, name: str) -> None:
        super().__init__(logging.getLogger(name))
        self.thread = AsideThread("outrider-log")

    def log(self, level: int, msg: object, *args: object, **more: Any) -> None:  # noqa: ANN401 - as it has it
        if self.isEnabledFor(level) and len(self.thread.calls) < _MOST_RECORDS:
            if more.get("exc_info") is True:
                more["exc_info"] = sys.exc_info()
            self.thread.call(partial(self.logger.log, level, msg, *args, **more))


process_log: Final = AsideLog("outrider.process")
"""The log of the supervisor, its children and the watchdog."""

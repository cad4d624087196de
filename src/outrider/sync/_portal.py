"""Runs the event loop of `outrider.sync`, one per process in a thread, and wraps the objects that live in it.

The generated modules beside it say what can be called.
"""

from __future__ import annotations

import atexit
import logging
import os
import socket
import sys
from collections import deque
from contextvars import Context, ContextVar, copy_context
from functools import partial
from threading import Lock, RLock, current_thread, get_ident, main_thread
from typing import TYPE_CHECKING, Any, Final, Generic, ParamSpec, TypeVar
from weakref import WeakValueDictionary

import anyio

from outrider._threads import start_thread
from outrider.errors import LaunchError, UsageError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from contextlib import AbstractAsyncContextManager

    from anyio.abc import TaskGroup


P = ParamSpec("P")
T = TypeVar("T")

log = logging.getLogger("outrider.session")

_EXIT_SECONDS: Final = 15.0
"""How long the interpreter waits at its end for what still runs: longer than a session takes to close."""

_SLICE: Final = 0.1
"""Signals are handled in the main thread alone, and do not always wake it: on Windows never, elsewhere not
when they reach another thread, or come at the moment when one starts a process."""


class Portal:
    """An event loop in a thread. It ends with the interpreter, or when `close` is called.

    Signal handlers may raise anywhere in the threads that call. So these share nothing with the loop that
    could be left locked: no `Event`, no `Future`, and not a portal of anyio, which is made of those.
    """

    def __init__(self) -> None:
        self._process = os.getpid()
        self._has_ended = False
        self._inbox: deque[Callable[[], object]] = deque()
        self._at_end: set[Callable[[], None]] = set()
        try:
            self._waker, self._wakeup = socket.socketpair()
        except OSError as error:
            raise _no_loop(error) from error
        self._waker.setblocking(False)
        self._wakeup.setblocking(False)
        self._tasks: TaskGroup | None = None
        self._failure: BaseException | None = None
        """Why the loop has ended, if it was not asked to."""
        self._own: frozenset[ContextVar[object]] = frozenset()
        """Variables of the loop."""
        # A daemon, and so are the threads that it starts: none of them can keep the interpreter from its end.
        try:
            self._thread = start_thread(self._run, name="outrider-sync")
        except LaunchError:
            self.forget()
            raise

    @property
    def is_open(self) -> bool:
        """Whether calls can be made, from this process."""
        return self._process == os.getpid() and not self._has_ended

    def call(self, function: Callable[P, Awaitable[T]], *args: P.args, **kwargs: P.kwargs) -> T:
        """Call an async function and wait for it, in the context of this thread.

        If the wait is interrupted, as by Ctrl-C, the call is cancelled, and the interrupt is raised when it
        has ended; a second interrupt does not wait for that. Raises `UsageError` in the thread of the loop
        itself, and in a process that was forked.
        """
        self._check(function)
        call = _Call(partial(function, *args, **kwargs))
        self._at_end.add(call.abandon)
        try:
            if self._has_ended:
                call.abandon()
            try:
                self._post(partial(self._begin, call))
                call.wait()
            except BaseException:
                call.is_cancelled = True
                if call.has_begun:
                    self._post(call.cancel)
                    call.wait()
                raise
            if self._failure is not None and not call.is_answered:
                raise _no_loop(self._failure) from self._failure
            return call.result()
        finally:
            self._at_end.discard(call.abandon)

    def _post(self, function: Callable[[], object]) -> None:
        """Have the loop call a function, unless it has ended."""
        self._inbox.append(function)
        try:
            self._waker.send(b"!")
        except BlockingIOError:
            # The loop will wake up anyway.
            pass
        except OSError:
            if not self._has_ended:
                raise

    def read(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Call a plain function in the loop, where nothing changes meanwhile; or here, once it has ended."""
        if self._thread.ident == get_ident() or not self.is_open:
            return function(*args, **kwargs)

        async def call() -> T:
            return function(*args, **kwargs)

        return self.call(call)

    def enter(self, manager: AbstractAsyncContextManager[T]) -> T:
        """Enter a context. If the wait is interrupted, it is left again, however far it had come."""
        entered: list[T] = []

        async def call() -> None:
            entered.append(await manager.__aenter__())

        try:
            self.call(call)
        except BaseException:
            if entered:
                self.call(manager.__aexit__, *sys.exc_info())
            raise
        return entered[0]

    def close(self, timeout: float) -> bool:
        """Cancel all that runs, and end the loop; False if it has not ended in time."""
        self._post(self._stop)
        self._thread.join(timeout)
        return not self._thread.is_alive()

    def forget(self) -> None:
        """Close its sockets in a process that was forked and does not have its thread."""
        self._waker.close()
        self._wakeup.close()

    def _check(self, function: Callable[..., object]) -> None:
        if self._process != os.getpid():
            raise UsageError(
                "this belongs to the process that made it, and this one was forked from that",
                hint="Open a session of its own in each process.",
            )
        if self._thread.ident == get_ident():
            name = getattr(function, "__qualname__", "a call")
            raise UsageError(
                f"outrider.sync was used in its own event loop, which cannot wait for itself ({name})",
                hint="In an async function, such as a tool or a hook, await the async form; "
                "a plain function may use `outrider.sync`.",
            )

    # In the loop.

    def _run(self) -> None:
        try:
            # In a context of its own, whichever version of Python hands that of the first caller down.
            Context().run(anyio.run, self._serve)
        except BaseException as error:
            self._failure = error
            log.exception("the event loop of outrider.sync failed")
        finally:
            # First, so that later calls see it.
            self._has_ended = True
            for tell in tuple(self._at_end):
                tell()
            self._waker.close()
            self._wakeup.close()

    async def _serve(self) -> None:
        self._own = frozenset(copy_context())
        async with anyio.create_task_group() as self._tasks:
            while True:
                await anyio.wait_readable(self._wakeup)
                self._wakeup.recv(4096)
                while self._inbox:
                    self._inbox.popleft()()

    def _begin(self, call: _Call[T]) -> None:
        assert self._tasks is not None
        self._tasks.start_soon(call.run, self._own)

    def _stop(self) -> None:
        assert self._tasks is not None
        self._tasks.cancel_scope.cancel()


class _Call(Generic[T]):
    """A call on its way: between the thread that waits and the task that works."""

    def __init__(self, function: Callable[[], Awaitable[T]]) -> None:
        self.is_cancelled = False
        """The caller is gone: if it has not begun, it need not."""
        self.has_begun = False
        self._function = function
        self._context = copy_context()
        self._scope: anyio.CancelScope | None = None
        self._value: list[T] = []
        self._error: BaseException | None = None
        self._has_ended = False
        self._end = Lock()
        self._end.acquire()

    # In the loop.

    async def run(self, own: frozenset[ContextVar[object]]) -> None:
        # Not all: the caller may be in another event loop, which the context tells.
        for variable, value in self._context.items():
            if variable not in own:
                variable.set(value)
        try:
            with anyio.CancelScope() as self._scope:
                self.has_begun = True
                if not self.is_cancelled:
                    self._value.append(await self._function())
        except anyio.get_cancelled_exc_class():
            # Not by our scope: then the loop is going down.
            raise
        except BaseException as error:  # noqa: BLE001 - it is raised where the call was made
            self._error = error
        finally:
            self._scope = None
            self.abandon()

    def cancel(self) -> None:
        if self._scope is not None:
            self._scope.cancel()

    def abandon(self) -> None:
        """Release the caller: nothing works on it any more."""
        if not self._has_ended:
            self._has_ended = True
            self._end.release()

    # In the thread.

    def wait(self) -> None:
        seconds = _SLICE if current_thread() is main_thread() else -1
        while not self._has_ended:
            if self._end.acquire(timeout=seconds):
                # For the next wait.
                self._end.release()

    @property
    def is_answered(self) -> bool:
        """Whether the function has come to its end."""
        return self._error is not None or bool(self._value)

    def result(self) -> T:
        try:
            if self._error is not None:
                raise self._error
            if not self._value:
                raise UsageError(
                    "the call was cancelled, because the event loop of outrider.sync has ended",
                    hint="Do not use outrider.sync while the interpreter is ending.",
                )
            return self._value[0]
        finally:
            # The error's traceback leads here: a cycle, which would keep all that the call held.
            self._error = None


def _no_loop(error: BaseException) -> LaunchError:
    return LaunchError(
        f"the event loop of outrider.sync cannot run: {error}",
        hint="If no more files can be opened, raise the limit (`ulimit -n`), or close some.",
    )


# Reentrant, for a signal handler may call.
_lock = RLock()
_current: Portal | None = None


def portal() -> Portal:
    """The event loop of this process; it is started by the first call."""
    global _current
    with _lock:
        if _current is None or not _current.is_open:
            _current = Portal()
        return _current


def _start_anew() -> None:
    # The lock may have been held by a thread that this process does not have.
    global _current, _lock
    if _current is not None:
        _current.forget()
    _current, _lock = None, RLock()


def _end() -> None:
    if _current is not None and _current.is_open and not _current.close(_EXIT_SECONDS):
        log.warning("the event loop of outrider.sync did not end within %g s", _EXIT_SECONDS)


atexit.register(_end)
if sys.platform != "win32":
    os.register_at_fork(after_in_child=_start_anew)


# Wrappers.

W = TypeVar("W", bound="Wrapper")

# By the address of what is wrapped, which nothing else can have while the wrapper lives.
_wrappers: WeakValueDictionary[int, Wrapper] = WeakValueDictionary()


class Wrapper:
    """An object of an event loop, for use from any thread but that of the loop."""

    _async: Any

    def __init__(self, wrapped: object, loop: Portal) -> None:
        """Made by what gives it."""
        self._async = wrapped
        self._portal = loop
        _wrappers[id(wrapped)] = self

    def _wait(self, function: Callable[P, Awaitable[T]], *args: P.args, **kwargs: P.kwargs) -> T:
        try:
            return self._portal.call(function, *args, **kwargs)
        except StopAsyncIteration:
            raise StopIteration from None

    def _read(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        return self._portal.read(function, *args, **kwargs)

    def _enter(self, manager: AbstractAsyncContextManager[T]) -> T:
        return self._portal.enter(manager)

    def _wrap(self, kind: type[W], wrapped: object) -> W:
        return wrap(kind, wrapped, self._portal)


def wrap(kind: type[W], wrapped: object, loop: Portal) -> W:
    """The wrapper of an object: the same one for the same object, as long as anyone has it."""
    found = _wrappers.get(id(wrapped))
    return found if isinstance(found, kind) else kind(wrapped, loop)

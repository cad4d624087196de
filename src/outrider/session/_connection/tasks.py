"""The event loop for a connection, and tasks that are independent of the user's tasks.

A connection may be opened in one task and closed in another, and no scope of the user's may ever be
cancelled by one, so nothing of it can live in a task group of the user's. Does not know what the tasks do.

`Loop` works on every event loop that anyio knows. `AsyncioLoop` does the same with asyncio itself, for what
is done for each request: by way of anyio each step looks up the library, the task and its scopes.
"""

from __future__ import annotations

import logging
import math
import sys
import threading
import weakref
from contextvars import Context, ContextVar, copy_context
from functools import cache
from typing import TYPE_CHECKING, Any, Final, Generic, TypeAlias, TypeVar, cast

import anyio
from anyio import from_thread
from anyio.lowlevel import EventLoopToken, RunVar, checkpoint, current_token

from outrider._threads import start_thread
from outrider.errors import LaunchError

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Awaitable, Callable, Collection, Coroutine

    from anyio.abc import TaskGroup

    from outrider.session._connection.connection import Connection

    Function: TypeAlias = Callable[..., Coroutine[Any, Any, object]]
    Task: TypeAlias = asyncio.Task[object]

log = logging.getLogger("outrider.session")


T = TypeVar("T")

_serves: ContextVar[weakref.ref[Connection] | None] = ContextVar("outrider connection", default=None)


def enter_connection(connection: Connection) -> None:
    """Have tasks that are started in the current context belong to a connection."""
    _serves.set(weakref.ref(connection))


def current_connection() -> Connection | None:
    """The connection that the current task belongs to."""
    return None if (found := _serves.get()) is None else found()


class Signal(Generic[T]):
    """Something that happens once, perhaps with a value."""

    value: T | None = None

    def __init__(self) -> None:
        self._event = anyio.Event()

    def set(self, value: T | None = None) -> None:
        self.value = value
        self._event.set()

    async def wait(self, timeout: float | None = None) -> None:
        """Wait for it, for at most `timeout` seconds."""
        if timeout is None:
            await self._event.wait()
            return
        with anyio.move_on_after(timeout):
            await self._event.wait()


class AsyncioSignal(Signal[T]):
    """The same with futures."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._is_set = False
        self._waiters: list[asyncio.Future[None]] = []

    def set(self, value: T | None = None) -> None:
        self.value = value
        self._is_set = True
        for waiter in self._waiters:
            _wake(waiter)

    async def wait(self, timeout: float | None = None) -> None:
        if self._is_set:
            return
        waiter = self._loop.create_future()
        self._waiters.append(waiter)
        timer = None if timeout is None else self._loop.call_later(timeout, _wake, waiter)
        try:
            await waiter
        finally:
            if timer is not None:
                timer.cancel()


def _wake(waiter: asyncio.Future[None]) -> None:
    if not waiter.done():
        waiter.set_result(None)


class Loop:
    """The event loop that a connection runs on."""

    def __init__(self, token: EventLoopToken) -> None:
        self.token = token
        self.now: Callable[[], float] = anyio.current_time
        """Its clock."""
        self.make_scope: Callable[[], anyio.CancelScope] = anyio.CancelScope

    @property
    def is_here(self) -> bool:
        """Whether the caller runs in it."""
        try:
            return current_token() == self.token
        except RuntimeError:
            # In a thread that has no event loop, or none any more.
            return False

    @property
    def is_closed(self) -> bool:
        """Whether nothing can run in it any more. Others than asyncio end their tasks before that."""
        return False

    def make_signal(self) -> Signal[Any]:
        return Signal()

    def limit(self, scope: anyio.CancelScope, seconds: float) -> float:
        """Cancel a scope after `seconds`, unless the limit is lifted before. Returns when that is."""
        scope.deadline = self.now() + seconds
        return scope.deadline

    def lift_limit(self, scope: anyio.CancelScope) -> None:
        """A scope was left."""

    def enter(self) -> None:
        """Let callbacks of the loop use anyio in this context."""

    def start(
        self, tasks: TaskGroup, context: Context, function: Function, arguments: tuple[object, ...]
    ) -> Task | None:
        """Start a task in a context. It joins the group, or is returned."""
        _ = context.run(tasks.start_soon, function, *arguments)
        return None

    async def wait_ended(self, tasks: Collection[Task]) -> None:
        """Wait for tasks that `start` returned."""

    def close(self) -> None:
        """Nothing runs in it any more for the connection."""


class AsyncioLoop(Loop):
    """The same, with asyncio itself."""

    def __init__(self, token: EventLoopToken, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(token)
        self.native: Final = loop
        self.now = loop.time
        self.make_scope = _limited_scope()
        self._limits: dict[anyio.CancelScope, float] = {}
        self._timer: asyncio.TimerHandle | None = None
        if (sniffio := sys.modules.get("sniffio")) is not None:
            # Callbacks of the loop run in no task, so sniffio cannot detect the library there.
            self._library: ContextVar[str | None] | None = sniffio.current_async_library_cvar
        else:
            self._library = None

    @property
    def is_here(self) -> bool:
        try:
            return sys.modules["asyncio"].get_running_loop() is self.native
        except RuntimeError:
            return False

    @property
    def is_closed(self) -> bool:
        return self.native.is_closed()

    def make_signal(self) -> Signal[Any]:
        return AsyncioSignal(self.native)

    # One timer for all: nearly every limit is lifted long before it is reached.

    def limit(self, scope: Any, seconds: float) -> float:  # noqa: ANN401 - one that was made here
        at: float = self.now() + seconds
        self._limits[scope] = scope.limit = at
        if self._timer is None or at < self._timer.when():
            self._set_timer(at)
        return at

    def lift_limit(self, scope: anyio.CancelScope) -> None:
        self._limits.pop(scope, None)

    def _set_timer(self, at: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        # In no context: that of a hook may lead to its session, which it would keep from being dropped.
        self._timer = self.native.call_at(at, self._check_limits, context=Context())

    def _check_limits(self) -> None:
        now, self._timer = self.now(), None
        for scope in [scope for scope, at in self._limits.items() if at <= now]:
            del self._limits[scope]
            scope.cancel()
        if self._limits:
            self._set_timer(min(self._limits.values()))

    def start(
        self, tasks: TaskGroup, context: Context, function: Function, arguments: tuple[object, ...]
    ) -> Task | None:
        return self.native.create_task(function(*arguments), context=context)

    async def wait_ended(self, tasks: Collection[Task]) -> None:
        while left := [task for task in tasks if not task.done()]:
            await sys.modules["asyncio"].wait(left)

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def enter(self) -> None:
        if self._library is not None:
            self._library.set("asyncio")


@cache
def _limited_scope() -> type[anyio.CancelScope]:
    """What anyio makes on asyncio, which would be looked up for each scope, with a limit that someone else
    sees to: a timer of its own would take longer than most answers."""
    kind: type[Any] = type(anyio.CancelScope())

    class LimitedScope(kind):  # type: ignore[misc]
        __slots__ = ("limit",)

        @property
        def deadline(self) -> float:
            """For `anyio.current_effective_deadline`."""
            return getattr(self, "limit", math.inf)

    return LimitedScope


def current_loop() -> Loop:
    """The event loop that runs here."""
    token = current_token()
    # Not imported here: on trio it would cost time for nothing.
    library = sys.modules.get("asyncio")
    if library is not None and isinstance(token.native_token, library.AbstractEventLoop):
        return AsyncioLoop(token, cast("asyncio.AbstractEventLoop", token.native_token))
    return Loop(token)


class SystemTasks:
    """Runs such tasks on trio. It exists while one of them runs.

    Its task is started from another thread: that makes it a system task on trio, under no scope at all. The
    thread does nothing but wait for it.
    """

    def __init__(self) -> None:
        self._tasks: TaskGroup | None = None
        self._is_up = anyio.Event()
        self._is_idle = anyio.Event()
        self._count = 0
        self._is_over = False

    async def start(
        self,
        function: Callable[..., Awaitable[object]],
        *arguments: object,
        name: str,
        context: Context | None = None,
    ) -> None:
        """Start a task. If it raises, that is logged and affects nothing else.

        It runs in a copy of `context`, or in that of the caller.
        """
        self._count += 1
        try:
            await self._is_up.wait()
        except BaseException:
            self._leave()
            raise
        tasks = self._tasks
        assert tasks is not None
        if self._is_over:
            # All tasks of the loop were cancelled; another one may still start.
            self._leave()
            await (await background()).start(function, *arguments, name=name, context=context)
            return

        def begin() -> None:
            tasks.start_soon(self._run, function, arguments, name, name=name)

        # Copied, because a context that is entered twice at once raises.
        _copied(context).run(begin)

    async def _run(
        self, function: Callable[..., Awaitable[object]], arguments: tuple[object, ...], name: str
    ) -> None:
        try:
            await _run_logged(function, arguments, name)
        finally:
            self._leave()

    def _leave(self) -> None:
        self._count -= 1
        if not self._count:
            self._retire()
            self._is_idle.set()

    async def serve(self) -> None:
        """Hold the tasks until none is left."""
        try:
            async with anyio.create_task_group() as self._tasks:
                self._is_up.set()
                try:
                    await self._is_idle.wait()
                finally:
                    self._retire()
        except anyio.get_cancelled_exc_class():
            # The loop is shutting down, and no caller is left to handle it.
            pass

    def _retire(self) -> None:
        self._is_over = True
        if _place.get(None) is self:
            _place.set(None)


class PlainTasks:
    """The same on asyncio, where a plain task is under no scope."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop

    async def start(
        self,
        function: Callable[..., Awaitable[object]],
        *arguments: object,
        name: str,
        context: Context | None = None,
    ) -> None:
        own = _copied(context)
        task = self._loop.create_task(_run_logged(function, arguments, name), name=name, context=own)
        _running.add(task)
        # Also in that context: else the task would hold the caller's until it ends.
        task.add_done_callback(_ended, context=own)


Background: TypeAlias = SystemTasks | PlainTasks

_running: Final[set[Task]] = set()
"""Keeps the tasks alive: asyncio itself does not."""


def _ended(task: Task) -> None:
    _running.discard(task)
    if not task.cancelled():
        # Else asyncio would complain about an exit that has ended the program by now.
        task.exception()


_place: RunVar[SystemTasks | None] = RunVar("outrider background", None)


def _copied(context: Context | None) -> Context:
    # Not by its truth: an empty one is false.
    return copy_context() if context is None else context.copy()


async def _run_logged(
    function: Callable[..., Awaitable[object]], arguments: tuple[object, ...], name: str
) -> None:
    try:
        await function(*arguments)
    except Exception:
        log.exception("a background task failed: %s", name)
    except BaseExceptionGroup as error:
        # Of a signal handler, as `sys.exit(3)`. An event loop ends with it only if it is bare.
        raise _crash(error) from None


def _crash(error: BaseException) -> BaseException:
    if not isinstance(error, BaseExceptionGroup):
        return error
    group = cast("BaseExceptionGroup[BaseException]", error)
    return _crash(next(each for each in group.exceptions if not isinstance(each, Exception)))


async def background(loop: Loop | None = None) -> Background:
    """What runs such tasks on this event loop. Raises `LaunchError` if it needs a thread and gets none."""
    await checkpoint()
    loop = loop or current_loop()
    if isinstance(loop, AsyncioLoop):
        return PlainTasks(loop.native)
    place = _place.get(None)
    if place is None:
        place = SystemTasks()
        _place.set(place)
        try:
            start_thread(_hold, place, loop.token, name="outrider-background")
        except LaunchError:
            _place.set(None)
            raise
    return place


def _hold(place: SystemTasks, token: EventLoopToken) -> None:
    try:
        from_thread.run(place.serve, token=token)
    except Exception as error:  # noqa: BLE001 - the loop is closed; there is nobody to tell
        log.debug("the event loop ended under its background tasks: %s", error)


def call_from_outside(function: Callable[[], object], token: EventLoopToken) -> None:
    """Call a function on an event loop, from any thread and at any time, even in a finalizer. Does not wait;
    does nothing if the loop is gone."""

    def call() -> None:
        try:
            from_thread.run_sync(function, token=token)
        except Exception as error:  # noqa: BLE001 - the loop is closed; there is nobody to tell
            log.debug("the event loop ended before an abandoned session: %s", error)

    try:
        threading.Thread(target=call, name="outrider-abandoned", daemon=True).start()
    except RuntimeError as error:
        # The interpreter is shutting down, and all loops with it.
        log.debug("an abandoned session could not be ended: %s", error)

"""The event loop as a connection uses it, and tasks that belong to no task of its user's.

A connection may be opened in one task and closed in another, and no scope of the user's may ever be
cancelled by one, so nothing of it can live in a task group of the user's. Does not know what the tasks do.

`Loop` works on every event loop that anyio knows. `AsyncioLoop` does the same with asyncio itself, for what
is done for each request: by way of anyio each step looks up the library, the task and its scopes.
"""

from __future__ import annotations

import logging
import sys
from contextvars import Context, ContextVar, copy_context
from typing import TYPE_CHECKING, Any, Final, cast

import anyio
from anyio import from_thread
from anyio.lowlevel import EventLoopToken, RunVar, checkpoint, current_token

from outrider._threads import start_thread
from outrider.errors import LaunchError

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Awaitable, Callable, Collection, Coroutine
    from typing import TypeAlias

    from anyio.abc import TaskGroup

    Function: TypeAlias = Callable[..., Coroutine[Any, Any, object]]
    Task: TypeAlias = asyncio.Task[object]

log = logging.getLogger("outrider.session")


class Signal:
    """Something that happens once."""

    def __init__(self) -> None:
        self._event = anyio.Event()

    def set(self) -> None:
        self._event.set()

    async def wait(self, timeout: float | None = None) -> None:
        """Wait for it, for so many seconds at most."""
        if timeout is None:
            await self._event.wait()
            return
        with anyio.move_on_after(timeout):
            await self._event.wait()


class AsyncioSignal(Signal):
    """The same with futures."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._is_set = False
        self._waiters: list[asyncio.Future[None]] = []

    def set(self) -> None:
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

    @property
    def is_here(self) -> bool:
        """Whether whoever asks runs in it."""
        try:
            return current_token() == self.token
        except RuntimeError:
            # In a thread that has no event loop, or none any more.
            return False

    def make_signal(self) -> Signal:
        return Signal()

    def make_scope(self) -> anyio.CancelScope:
        return anyio.CancelScope()

    def enter(self) -> None:
        """Let callbacks of the loop use anyio in this context."""

    def start(
        self, tasks: TaskGroup, context: Context, function: Function, arguments: tuple[object, ...]
    ) -> Task | None:
        """Start a task in a context. It is one of the group, or is given back."""
        _ = context.run(tasks.start_soon, function, *arguments)
        return None

    async def wait_ended(self, tasks: Collection[Task]) -> None:
        """Wait for tasks that `start` gave back."""


class AsyncioLoop(Loop):
    """The same, with asyncio itself."""

    def __init__(self, token: EventLoopToken, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(token)
        self.native: Final = loop
        self.now = loop.time
        self._scope_class = type(anyio.CancelScope())
        """What anyio makes here: it looks up the library for each."""
        if (sniffio := sys.modules.get("sniffio")) is not None:
            # In a callback of the loop there is no task by which it could be told.
            self._library: ContextVar[str | None] | None = sniffio.current_async_library_cvar
        else:
            self._library = None

    @property
    def is_here(self) -> bool:
        try:
            return sys.modules["asyncio"].get_running_loop() is self.native
        except RuntimeError:
            return False

    def make_signal(self) -> Signal:
        return AsyncioSignal(self.native)

    def make_scope(self) -> anyio.CancelScope:
        return self._scope_class()

    def start(
        self, tasks: TaskGroup, context: Context, function: Function, arguments: tuple[object, ...]
    ) -> Task | None:
        return self.native.create_task(function(*arguments), context=context)

    async def wait_ended(self, tasks: Collection[Task]) -> None:
        while left := [task for task in tasks if not task.done()]:
            await sys.modules["asyncio"].wait(left)

    def enter(self) -> None:
        if self._library is not None:
            self._library.set("asyncio")


def current_loop() -> Loop:
    """The event loop that runs here."""
    token = current_token()
    # Not imported here: on trio it is of no use, and takes its time.
    library = sys.modules.get("asyncio")
    if library is not None and isinstance(token.native_token, library.AbstractEventLoop):
        return AsyncioLoop(token, cast("asyncio.AbstractEventLoop", token.native_token))
    return Loop(token)


class Background:
    """The place of an event loop where such tasks run. It is there while one of them is.

    Its task is started from another thread: that makes it a plain task on asyncio and a system task on trio,
    under no scope at all. The thread does nothing but wait for it.
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
        """Start a task. What it raises is logged, and touches nothing else.

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
            # All tasks of the loop were cancelled, which is no reason not to start another.
            self._leave()
            await (await background()).start(function, *arguments, name=name, context=context)
            return

        def begin() -> None:
            tasks.start_soon(self._run, function, arguments, name, name=name)

        # Copied, because a context that is entered twice at once raises.
        (context or copy_context()).copy().run(begin)

    async def _run(
        self, function: Callable[..., Awaitable[object]], arguments: tuple[object, ...], name: str
    ) -> None:
        try:
            await function(*arguments)
        except Exception:
            log.exception("a background task failed: %s", name)
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
            # The loop is going down. There is nobody above who could do anything with it.
            pass

    def _retire(self) -> None:
        self._is_over = True
        if _place.get(None) is self:
            _place.set(None)


_place: RunVar[Background | None] = RunVar("outrider background", None)


async def background() -> Background:
    """The place of this event loop. Raises `LaunchError` if there can be no more threads."""
    await checkpoint()
    place = _place.get(None)
    if place is None:
        place = Background()
        _place.set(place)
        token = current_token()
        try:
            start_thread(_hold, place, token, name="outrider-background")
        except LaunchError:
            _place.set(None)
            raise
    return place


def _hold(place: Background, token: EventLoopToken) -> None:
    try:
        from_thread.run(place.serve, token=token)
    except Exception as error:  # noqa: BLE001 - the loop is closed; there is nobody to tell
        log.debug("the event loop ended under its background tasks: %s", error)

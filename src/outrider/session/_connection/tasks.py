"""Tasks that belong to an event loop and to no task of its user's: those that serve connections.

A connection may be opened in one task and closed in another, and no scope of the user's may ever be
cancelled by one, so nothing of it can live in a task group of the user's. Does not know what the tasks do.
"""

from __future__ import annotations

import logging
from contextvars import Context, copy_context
from typing import TYPE_CHECKING

import anyio
from anyio import from_thread
from anyio.lowlevel import EventLoopToken, RunVar, checkpoint, current_token

from outrider._threads import start_thread
from outrider.errors import LaunchError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from anyio.abc import TaskGroup

log = logging.getLogger("outrider.session")


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

"""Owns the one background thread in which simulated agents of this process run.

Does not know what runs in it.
"""

from __future__ import annotations

import threading
from collections.abc import Awaitable, Callable
from concurrent.futures import Future
from contextvars import Context
from typing import Final

from anyio.from_thread import BlockingPortalProvider

__all__ = ["Lease"]

# Whatever the test runs on: it is another thread.
_provider: Final = BlockingPortalProvider(backend="asyncio")


class Lease:
    """A share in the thread, which starts with the first and ends with the last. Any thread may use it."""

    def __init__(self) -> None:
        self._portal = Context().run(_provider.__enter__)
        self._thread = Context().run(self._portal.call, threading.get_ident)
        self._lock = threading.Lock()
        self._is_over = False

    def start(self, function: Callable[[], Awaitable[int]]) -> Future[int]:
        """Run this in the thread. Cancelling what this gives cancels it."""
        # In a context of its own: that of the caller may say that it runs on another event loop.
        return Context().run(lambda: self._portal.start_task_soon(function, name="simulated agent"))

    def end(self) -> None:
        """Give the share back, once what was started is over or cancelled. A second time does nothing."""
        with self._lock:
            if self._is_over:
                return
            self._is_over = True
        if threading.get_ident() == self._thread:
            # The thread cannot wait for its own end.
            threading.Thread(target=_leave, name="end of simulated agents").start()
        else:
            _leave()


def _leave() -> None:
    Context().run(_provider.__exit__, None, None, None)

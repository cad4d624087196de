"""Time that does not pass by itself: an event loop in which hours take as long as it takes to reckon them.

Knows nothing of what is simulated.
"""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Awaitable, Callable
from random import Random
from typing import TypeVar

import anyio
from anyio.to_thread import current_default_thread_limiter

from outrider.fleet._resilient.retry import Clock

T = TypeVar("T")


class _Jumping(selectors.DefaultSelector):
    """Waits for nothing but threads: if nothing is to be done, it is later."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0
        self.threads: anyio.CapacityLimiter | None = None

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if self.threads is None or self.threads.borrowed_tokens:
            # Whoever waits for a thread waits for no time to pass.
            return super().select(0 if timeout == 0 else None)
        if timeout is None:
            raise RuntimeError("everybody waits for somebody else")
        self.now += timeout
        return []


class SimulatedLoop(asyncio.SelectorEventLoop):
    """An event loop with such a time, which does the same things always in the same order."""

    def __init__(self) -> None:
        self.jumping = _Jumping()
        super().__init__(self.jumping)

    def time(self) -> float:
        return self.jumping.now


class SimulatedClock(Clock):
    """The clock of that loop, for Outrider, with chance that can be repeated."""

    def __init__(self, seed: int) -> None:
        self._random = Random(seed)

    def time(self) -> float:
        return anyio.current_time()

    def random(self) -> float:
        return self._random.random()

    async def sleep(self, seconds: float) -> None:
        await anyio.sleep(max(seconds, 0.0))


def simulate(function: Callable[[], Awaitable[T]]) -> T:
    """Run it in an event loop of its own, from 0 seconds on."""

    async def main() -> T:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, SimulatedLoop)
        loop.jumping.threads = current_default_thread_limiter()
        return await function()

    return anyio.run(main, backend_options={"loop_factory": SimulatedLoop})

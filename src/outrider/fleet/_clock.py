"""Owns the time that policies reckon with: the wall clock, waiting for a moment of it, and chance.

Decides nothing. Tests put another in its place, so that nobody waits.
"""

from __future__ import annotations

import time
from random import random
from typing import Final

import anyio

_LONGEST_SLEEP: Final = 30.0
"""A machine that slept, or whose clock was put right, is noticed after as many seconds."""


class Clock:
    """What a `Gate` and a `LastingSession` tell the time by. Reset times of the API are Unix seconds."""

    def time(self) -> float:
        """Now, in Unix seconds."""
        return time.time()

    def elapsed(self) -> float:
        """Seconds that go on evenly, whatever is done to the clock on the wall."""
        return time.monotonic()

    def random(self) -> float:
        """A number from 0 up to 1."""
        return random()

    async def sleep(self, seconds: float) -> None:
        """Wait for so many seconds on the wall clock; no longer, if that is put back meanwhile."""
        until, end = self.time() + seconds, anyio.current_time() + seconds
        while (left := min(until - self.time(), end - anyio.current_time())) > 0:  # noqa: ASYNC110 - nothing tells that a clock was put right
            await anyio.sleep(min(left, _LONGEST_SLEEP))

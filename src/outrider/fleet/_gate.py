"""Owns `Gate`, which pauses all sessions of an account while its limit is used up.

Does not know why they are paused: whoever meets the limit says until when.
"""

from __future__ import annotations

from itertools import count
from typing import Final

import anyio
from anyio.lowlevel import checkpoint

from outrider.fleet._clock import Clock
from outrider.options._readers import any_text, seconds

_TOLERANCE: Final = 1.0
"""Two clocks do not agree to the second."""


class Gate:
    """Lets sessions through, or makes all of them wait until a moment. One for each account.

        gate = Gate()
        sessions = [LastingSession(cwd=each, gate=gate) for each in folders]

    A session that meets a limit of the account pauses it, so that the others wait for the reset too, instead
    of failing one by one. It belongs to one event loop. `wait`, `pause` and `open` are async so that a gate
    elsewhere can stand in its place.
    """

    def __init__(self, *, jitter: float = 1.0, name: str = "", clock: Clock | None = None) -> None:
        """`jitter`: the seconds over which those that waited are let through. Raises `OptionsError`."""
        self.jitter = seconds("`jitter`", jitter)
        self.name = any_text("`name`", name)
        self.why: str | None = None
        """What it was paused for; None while it is open."""
        self._clock = clock or Clock()
        self._opens_at = self._ends = 0.0
        """When it opens: in Unix seconds, and by time that goes on evenly, for a clock may be put back."""
        self._numbers = count()
        self._waiting: dict[int, anyio.CancelScope] = {}
        """Those that wait, in the order in which they came. To cancel a scope wakes its task."""
        self._crowd: tuple[int, int] | None = None
        """The first of those that waited when it opened, and how many they were."""

    def __repr__(self) -> str:
        name = f" {self.name}" if self.name else ""
        opens_at = self.opens_at
        state = "open" if opens_at is None else f"paused until {opens_at:.0f}"
        return f"<Gate{name}, {state}, {len(self._waiting)} waiting>"

    @property
    def is_open(self) -> bool:
        """Whether a session would be let through at once."""
        return self.opens_at is None

    @property
    def opens_at(self) -> float | None:
        """When it opens, in Unix seconds; None while it is open."""
        if self._left() > 0:
            return min(self._opens_at, self._clock.time() + self._ends - self._clock.elapsed() + _TOLERANCE)
        self.why = None
        return None

    def _left(self) -> float:
        """The seconds until it opens."""
        return min(self._opens_at - self._clock.time(), self._ends - self._clock.elapsed() + _TOLERANCE)

    async def wait(self) -> None:
        """Wait until it is open, and then for one's turn: those that waited go on one after another.

        Cancelling the call leaves nothing behind.
        """
        await checkpoint()
        if self.is_open:
            return
        number = next(self._numbers)
        try:
            while (opens_at := self.opens_at) is not None:
                await self._sleep(number, opens_at - self._clock.time())
                if self._left() <= 0:
                    await self._sleep(number, self._delay(number))
        finally:
            self._waiting.pop(number, None)

    async def _sleep(self, number: int, left: float) -> None:
        with anyio.CancelScope() as scope:
            self._waiting[number] = scope
            await self._clock.sleep(left)

    def _delay(self, number: int) -> float:
        """Each has a part of the time for itself, in the order in which they came."""
        # As it was for the first that asks: those that have gone on already must not move the others up.
        first, size = self._crowd = self._crowd or (next(iter(self._waiting)), len(self._waiting))
        part = (number - first + self._clock.random()) / size
        return min(part, 1.0) * self.jitter

    async def pause(self, until: float, why: str = "") -> None:
        """Let nobody through until then, in Unix seconds. A later moment extends it, an earlier one changes
        nothing."""
        moment = seconds("`until`", until)
        await checkpoint()
        now = self._clock.time()
        if moment > max(self.opens_at or 0.0, now):
            self._opens_at, self._ends = moment, self._clock.elapsed() + moment - now
            self._crowd = None
            self.why = why or None

    async def open(self) -> None:
        """Let all through that wait, one after another, and whoever comes."""
        await checkpoint()
        self._opens_at = 0.0
        self.why = None
        for scope in self._waiting.values():
            scope.cancel()

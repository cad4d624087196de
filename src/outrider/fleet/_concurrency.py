"""Owns how many tasks run at once: a fixed number, or one that follows what the API and the machine bear.

Does not start tasks and has no clock: it is told what became of them.
"""

from __future__ import annotations

from collections import deque
from statistics import median
from typing import Final, cast

import msgspec

from outrider.errors import OptionsError
from outrider.options._readers import fault, whole

__all__ = ["Adaptive", "Width", "read_concurrency"]

_START: Final = 4
_TOLERANCE: Final = 1.5
"""Tasks differ: only when they take this much longer than in better times is the width to blame."""
_REMEMBERED: Final = 8
"""Rounds among which the better times are looked for."""

_count = whole(1, 10_000)


class Adaptive(msgspec.Struct, frozen=True):
    """As many tasks at once as is good for them, within bounds.

    It grows after each round in which tasks took no longer than before and no rate limit was met, to twice as
    many until one of these has happened and by one from then on, and halves when a limit is met. Raises
    `OptionsError`.
    """

    minimum: int = 1
    maximum: int = 16
    start: int | None = None
    """Unset: 4, or what is nearest to it within the bounds."""

    def __post_init__(self) -> None:
        _count("`Adaptive.minimum`", self.minimum)
        _count("`Adaptive.maximum`", self.maximum)
        if self.minimum > self.maximum:
            raise OptionsError(
                f"`Adaptive.minimum` is {self.minimum}, which is over the maximum of {self.maximum}",
                hint="Give the smaller number first: `Adaptive(2, 16)`.",
            )
        if self.start is not None:
            whole(self.minimum, self.maximum)("`Adaptive.start`", self.start)

    @property
    def first(self) -> int:
        """The width to begin with."""
        return min(max(_START, self.minimum), self.maximum) if self.start is None else self.start


def read_concurrency(value: object) -> Adaptive:
    """A number, or an `Adaptive`. Raises `OptionsError`."""
    if isinstance(value, Adaptive):
        return value
    if isinstance(value, bool) or not isinstance(value, int):
        raise fault("`concurrency`", "a whole number of 1 or more, or an `Adaptive`", value)
    number = cast(int, _count("`concurrency`", value))
    return Adaptive(number, number, number)


class Width:
    """How many tasks may run at this moment."""

    def __init__(self, bounds: Adaptive) -> None:
        self._bounds = bounds
        self.now: int = bounds.first
        self._round: list[float] = []
        self._medians: deque[float] = deque(maxlen=_REMEMBERED)
        self._is_probing = True
        """Nothing has been in the way yet. To grow one by one, n at once takes about n²/2 tasks."""
        self._begun = 0
        self._since = 0
        """Tasks with a lower number were begun under another width, and say nothing about this one."""

    def begin(self) -> int:
        """A task is begun; gives the number that it is spoken of by."""
        self._begun += 1
        return self._begun

    def limited(self, number: int) -> None:
        """A task has met a rate limit. Many meet the same one: only the first of them counts."""
        if number > self._since:
            self._is_probing = False
            self._change(max(self._bounds.minimum, self.now // 2))

    def ended(self, number: int, seconds: float) -> None:
        """A task has ended well, after so many seconds."""
        if number <= self._since:
            return
        self._round.append(seconds)
        if len(self._round) < self.now:
            return
        usual = median(self._round)
        self._round.clear()
        # The lower quartile: the very least of some noisy rounds is no measure.
        better = sorted(self._medians)[len(self._medians) // 4] if self._medians else usual
        has_risen = usual > _TOLERANCE * better
        self._medians.append(usual)
        if has_risen:
            self._is_probing = False
        elif self.now < self._bounds.maximum:
            self._change(min(self._bounds.maximum, self.now * 2 if self._is_probing else self.now + 1))

    def _change(self, width: int) -> None:
        if width < self.now:
            self._since = self._begun
        self.now = width
        self._round.clear()

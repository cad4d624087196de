"""How long a lease still runs, in the stores that have no server to tell the time.

The clock of a machine may be put right at any moment. What has passed since it was started goes on evenly,
and is the same for all of its processes; only for a lease of another machine, or from before it was started,
does the clock count.
"""

from __future__ import annotations

import time
from functools import cache
from pathlib import Path
from typing import Final

import msgspec

__all__ = ["LeaseTime"]

_BOOT_ID: Final = Path("/proc/sys/kernel/random/boot_id")


class LeaseTime(msgspec.Struct, frozen=True):
    """When a lease runs out."""

    ends: float
    """By the clock of the machine that wrote it: seconds since 1970."""
    seconds: float = 0.0
    """How long it is; 0 if that was not kept."""
    boot: str = ""
    """From when to when that machine was up, by a name for it; empty if it has none."""
    ends_up: float = 0.0
    """In seconds since that machine was started."""

    @classmethod
    def of(cls, seconds: float) -> LeaseTime:
        """That of a lease that begins now."""
        return cls(time.time() + seconds, seconds, _boot(), _up() + seconds)

    @property
    def left(self) -> float:
        """The seconds that it runs for; below zero if it has run out."""
        if self.boot and self.boot == _boot():
            return self.ends_up - _up()
        left = self.ends - time.time()
        # Nobody gave it so much: since then the clock was put back. Whoever holds it renews it soon.
        return -1.0 if 0 < 2 * self.seconds < left else left


@cache
def _boot() -> str:
    try:
        return _BOOT_ID.read_text(encoding="ascii").strip() if hasattr(time, "CLOCK_BOOTTIME") else ""
    except (OSError, ValueError):
        return ""


def _up() -> float:
    """Sleep included, where there is such a clock."""
    clock = getattr(time, "CLOCK_BOOTTIME", None)
    return time.monotonic() if clock is None else time.clock_gettime(clock)

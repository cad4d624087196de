"""Owns what a pool tells about itself: how it stands, and what it has done since it was opened.

Does not measure anything.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import msgspec

from outrider.fleet._sizes import write_size

if TYPE_CHECKING:
    from outrider.fleet._pool_steward import Steward


class PoolStats(msgspec.Struct, frozen=True, kw_only=True):
    """How a pool stands. A value: ask again for newer figures."""

    processes: int = 0
    """All that hold a place: `starting + warm + busy + idle + closing`. Never more than `max_processes`."""
    max_processes: int = 0
    starting: int = 0
    warm: int = 0
    """Ready, and nobody's."""
    busy: int = 0
    """Handed out, and not known to do nothing: all that were acquired, and lasting sessions in a turn."""
    idle: int = 0
    """Held by lasting sessions that do nothing; parked when somebody needs the place."""
    closing: int = 0
    parked: int = 0
    """Lasting sessions without a process."""
    waiting: Mapping[str, int] = {}
    """How many wait for a process, by tenant."""
    memory: int | None = None
    """Resident bytes of all the processes and what they started, when last measured; None: never."""
    max_memory: int | None = None
    started: int = 0
    """Processes, since the pool was opened; the rest counts from there too."""
    failed: int = 0
    """Starts that came to nothing."""
    hits: int = 0
    """Served with a warm process."""
    misses: int = 0
    """Served with one that had to be started."""
    recycled: int = 0
    """Ended for their age, their turns or their memory."""
    replaced: int = 0
    """Warm ones that had died, or did not answer."""
    evicted: int = 0
    """Warm ones that had to make room."""
    parkings: int = 0
    """How often a lasting session gave up its process."""
    waits: int = 0
    """How often somebody had to wait for a place."""
    waited_seconds: float = 0.0
    """For how long, all together."""
    turned_away: int = 0
    """Ended by the limit or the deadline of the queue."""

    def __str__(self) -> str:
        memory = "" if self.memory is None else f", {write_size(self.memory)}"
        return (
            f"{self.processes} of {self.max_processes} processes ({self.busy} busy, {self.idle} idle, "
            f"{self.warm} warm{memory}), {self.parked} parked, {sum(self.waiting.values())} waiting"
        )


class Counters:
    """What is counted as it happens; see `PoolStats`."""

    def __init__(self) -> None:
        self.started = self.failed = self.hits = self.misses = 0
        self.recycled = self.replaced = self.evicted = self.parkings = 0
        self.waits = self.turned_away = 0
        self.waited_seconds = 0.0


def stats_of(steward: Steward) -> PoolStats:
    """How a pool stands."""
    places, counters = steward.places, steward.counters
    held = places.in_state("held")
    idle = [place for place in held if place.seat is not None and place.seat.idle_seconds() is not None]
    lasting = [seat.lasting for seat in steward.seats]
    return PoolStats(
        processes=len(places),
        max_processes=steward.rules.max_processes,
        starting=len(places.in_state("starting")),
        warm=len(places.in_state("warm")),
        busy=len(held) - len(idle),
        idle=len(idle),
        closing=len(places.in_state("closing")),
        parked=sum(each is not None and each.state == "parked" for each in lasting),
        waiting=steward.queue.counts(),
        memory=places.memory,
        max_memory=steward.rules.max_memory,
        **vars(counters),
    )

"""Measures what a session of the real program takes, and tells how many fit a machine. See docs/capacity.md.

    python -m benchmarks.capacity --idle 60 --memory 8GiB --memory 64GiB

So many sessions are opened at once, left alone for a while, and given a short turn each, with a model on
loopback. Needs Linux: what is counted is what `/proc` says of the processes that the sessions started, and of
nothing else.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import NamedTuple

import anyio

from benchmarks.table import megabytes, milliseconds, note, painted
from outrider import Session
from outrider.fleet._fields import read_size
from outrider.testing import RealAgent, say, use_tool
from scripts.agent_program import program

COUNTS = (1, 2, 4, 8)
MACHINES = ("4GiB", "8GiB", "16GiB", "64GiB")

SETTLE_SECONDS = 5.0
"""What a program still does after it has answered for the first time belongs to its start."""

SPARE = 0.25
"""The share of a machine that is left to the system, to its file cache, and to what tools need."""


class Held(NamedTuple):
    """What some processes hold and have used, together."""

    processes: int
    resident: int
    """Bytes; what processes share counts for each of them."""
    proportional: int
    """Bytes; what processes share is divided among them, strangers that run the same program included."""
    own: int
    """Bytes that no other process can share: all but what is mapped from files."""
    peak: int
    """The most that each of them was ever resident with."""
    cpu: float
    """Seconds since they were started, those of children included that have ended."""


NOTHING = Held(0, 0, 0, 0, 0, 0.0)


@dataclass
class Measured:
    """What so many sessions took, together."""

    sessions: int
    connect_seconds: float = 0.0
    start_cpu: float = 0.0
    idle_cpu_per_minute: float = 0.0
    first_turn_cpu: float = 0.0
    later_turn_cpu: float = 0.0
    host: int = 0
    """By how many bytes this process has grown."""
    idle: Held = NOTHING
    first: Held = NOTHING
    """After a turn."""
    last: Held = NOTHING
    """After all turns."""


class Need(NamedTuple):
    """What sessions need: so many bytes once, for what is mapped from files, and so many for each."""

    shared: float
    each: float

    def sessions(self, memory: int) -> int:
        return max(0, int((memory * (1 - SPARE) - self.shared) / self.each))


def held(home: Path) -> Held:
    """What the processes hold whose environment has this home, wherever they were started from."""
    found = [of for pid in _processes(f"HOME={home}".encode()) if (of := _held_by(pid)) is not None]
    return Held(*map(sum, zip(*found, strict=True))) if found else NOTHING


def _processes(wanted: bytes) -> Iterator[str]:
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            try:
                if wanted in (entry / "environ").read_bytes().split(b"\0"):
                    yield entry.name
            except OSError:
                # Gone, or somebody else's.
                continue


def _held_by(pid: str) -> Held | None:
    place = Path("/proc", pid)
    try:
        rollup, status = _kilobytes(place / "smaps_rollup"), _kilobytes(place / "status")
        # The name is in brackets and may hold anything.
        fields = (place / "stat").read_text(errors="replace").rpartition(")")[2].split()
    except OSError:
        return None
    ticks = sum(int(number) for number in fields[11:15])
    cpu = ticks / os.sysconf("SC_CLK_TCK")
    return Held(1, rollup["Rss"], rollup["Pss"], rollup["Anonymous"], status["VmHWM"], cpu)


def _kilobytes(path: Path) -> dict[str, int]:
    found: dict[str, int] = {}
    for line in path.read_text(errors="replace").splitlines():
        name, _, rest = line.partition(":")
        words = rest.split()
        if len(words) == 2 and words[1] == "kB":
            found[name] = int(words[0]) * 1024
    return found


async def measure(sessions: int, idle: float, turns: int) -> Measured:
    """Open so many at once, wait, and let each do its turns."""
    script = [use_tool("Bash", command="echo hello", description="Say hello"), say("Done.")]
    # One after another they ask a model that answers each of them alike.
    with RealAgent(script * (sessions * turns), otherwise=say("Done."), program=program()) as agent:
        options = agent.options(permission_mode="bypassPermissions")
        measured = Measured(sessions)
        before = _own_resident()
        opened = [Session(options) for _ in range(sessions)]
        try:
            begin = time.perf_counter()
            async with anyio.create_task_group() as tasks:
                for session in opened:
                    tasks.start_soon(session.connect)
            measured.connect_seconds = time.perf_counter() - begin
            await anyio.sleep(SETTLE_SECONDS)
            started = held(agent.home)
            measured.start_cpu = started.cpu / sessions
            await anyio.sleep(idle)
            measured.idle = held(agent.home)
            measured.idle_cpu_per_minute = (measured.idle.cpu - started.cpu) / sessions * 60 / idle
            measured.first, measured.first_turn_cpu = await _turns(agent, opened, 1, measured.idle)
            measured.last, measured.later_turn_cpu = await _turns(agent, opened, turns - 1, measured.first)
            measured.host = _own_resident() - before
        finally:
            async with anyio.create_task_group() as tasks:
                for session in opened:
                    tasks.start_soon(session.close)
        if (left := held(agent.home)).processes:
            raise SystemExit(f"{left.processes} processes outlived their sessions")
        return measured


async def _turns(agent: RealAgent, opened: list[Session], turns: int, before: Held) -> tuple[Held, float]:
    """Let each do so many turns; gives what they hold then, and the CPU seconds of one."""
    if not turns:
        return before, 0.0
    for session in opened:
        for _ in range(turns):
            await session.ask("go")
    await anyio.sleep(SETTLE_SECONDS)
    after = held(agent.home)
    return after, (after.cpu - before.cpu) / len(opened) / turns


def _own_resident() -> int:
    return _kilobytes(Path("/proc/self/status"))["VmRSS"]


def need(rows: list[Measured]) -> Need:
    """What is mapped from files, once; and the most that a session had for itself, in the worst row."""
    shared = max((row.last.resident - row.last.own) / row.last.processes for row in rows)
    return Need(shared, max(row.last.peak / row.sessions - shared for row in rows))


COLUMNS = (
    ("sessions", 8),
    ("processes", 11),
    ("resident", 11),
    ("proportional", 14),
    ("own", 11),
    ("1 turn", 11),
    ("all turns", 11),
    ("peak", 11),
    ("start", 9),
    ("idle/min", 10),
    ("1st turn", 10),
    ("later", 9),
)


def table(rows: list[Measured]) -> Iterator[str]:
    yield painted("a session of the real program: memory, and CPU time of its processes", "bold")
    yield painted("".join(name.rjust(width) for name, width in COLUMNS), "bold")
    for row in rows:
        count = row.sessions
        cells = (
            str(count),
            f"{row.idle.processes / count:g}",
            megabytes(row.idle.resident / count),
            megabytes(row.idle.proportional / count),
            megabytes(row.idle.own / count),
            megabytes(row.first.own / count),
            megabytes(row.last.own / count),
            megabytes(row.last.peak / count),
            milliseconds(row.start_cpu),
            milliseconds(row.idle_cpu_per_minute),
            milliseconds(row.first_turn_cpu),
            milliseconds(row.later_turn_cpu),
        )
        yield "".join(cell.rjust(width) for cell, (_, width) in zip(cells, COLUMNS, strict=True))
    yield note(
        "of each session. Idle: resident; proportional: what processes share is divided among them; own:"
    )
    yield note("what they cannot share. Then its own after a turn and after all; the most that was resident.")
    largest = rows[-1]
    yield note(f"this process grew by {megabytes(largest.host / largest.sessions)} for each of the last row")


def machines(needed: Need, memories: list[str]) -> Iterator[str]:
    yield painted("how many fit a machine", "bold")
    yield note(
        f"{megabytes(needed.shared)} once, for the program itself, and {megabytes(needed.each)} for each, "
        f"the most that one had for itself; {SPARE:.0%} left free"
    )
    for memory in memories:
        sessions = needed.sessions(read_size("a size of a machine", memory))
        yield f"{memory.rjust(10)}{sessions:>8,} sessions"


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Measure what a session of the real program takes.")
    parser.add_argument("--sessions", type=int, action="append", help=f"how many at once; {COUNTS}")
    parser.add_argument(
        "--idle", type=float, default=30.0, metavar="SECONDS", help="how long to watch it rest"
    )
    parser.add_argument("--turns", type=int, default=20, help="how many turns each does")
    parser.add_argument("--memory", action="append", help="a machine to fill, as in 8GiB; may be repeated")
    parser.add_argument("--json", type=Path, metavar="FILE", help="save the figures, in seconds and bytes")
    return parser.parse_args()


def main() -> None:
    given = arguments()
    if sys.platform != "linux":
        raise SystemExit("This reads /proc, so it needs Linux.")
    if not program().exists():
        raise SystemExit("The real program is not here: `make agent` installs it.")
    rows: list[Measured] = []
    for count in given.sessions or COUNTS:
        rows.append(anyio.run(measure, count, given.idle, given.turns))
        print(note(f"{count} measured"), file=sys.stderr, flush=True)
    needed = need(rows)
    for line in (*table(rows), "", *machines(needed, given.memory or list(MACHINES))):
        print(line)
    if given.json:
        saved = {"rows": [asdict(row) for row in rows], "need": needed._asdict()}
        given.json.write_text(json.dumps(saved, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()

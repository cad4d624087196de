"""What both sides share: a child that makes passes over a file on demand and says what they cost.

Orders come as JSON lines on stdin, answers go as JSON lines to stdout. It runs in the environment of either
side, so it imports the standard library only and knows neither library.
"""

from __future__ import annotations

import gc
import json
import platform
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import NamedTuple, TypeVar

T = TypeVar("T")

CHUNK_SIZE = 64 * 1024
"""What both libraries read from the pipe at once."""

CONTROL_TYPES = frozenset(
    ("control_request", "control_response", "control_cancel_request", "keep_alive", "transcript_mirror")
)
"""Frames that are for the library, not for its user."""


SESSION_WORK = ("loop", "batches", "requests", "many", "hooks", "tools", "parallel")
"""What is done with a session: read a turn message by message, or many at a time; ask control requests, one
after the other; open so many sessions at once, each for one turn; answer a hook, or a call of a tool, that
often; answer so many calls at once of a tool that takes its time."""

KEPT_WORK = ("list", "whole", "texts", "last")
"""What is done with sessions on disk: list the ten that were used last; read all messages of one, the same
with their text, or the last ten."""

SLOW_SECONDS = 0.05
"""How long a tool takes that is called many times at once."""


class Seconds(NamedTuple):
    """What something took."""

    cpu: float
    wall: float


@dataclass(frozen=True)
class Side:
    """One library: what it is called, and the passes that it can make over chunks of bytes."""

    name: str
    version: str
    passes: Mapping[str, Callable[[Iterable[bytes]], int]]
    """By name; each gives back how much it delivered, so that the driver sees that both did the same."""
    tally: Callable[[Iterable[bytes]], Counter[str]]
    """How many frames of each type the user of the library gets to see."""
    start: Callable[[str], tuple[float, float]]
    """Runs a program and ends it: wall seconds until its first message is there, and those of the close."""
    flood: Callable[[str, int, bool], float]
    """Takes so many messages from a program, typed, in batches if it can; CPU seconds of this process."""
    session: Callable[[str, int, str], Seconds]
    """Opens a session with a program and does so many of what is named, see `SESSION_WORK`."""
    hold: Callable[[str, int], dict[str, float]]
    """Opens so many sessions with a program at once; `descriptors` and `threads` that one of them holds."""
    kept: Callable[[str, str], int]
    """Does what is named with the sessions in a configuration folder, see `KEPT_WORK`; says what it got."""


def serve(side: Side) -> None:
    """Take orders until stdin ends."""
    _answer({"name": side.name, "version": side.version, "python": platform.python_version()})
    path, chunks = "", list[bytes]()
    for line in sys.stdin:
        order = json.loads(line)
        if order["do"] == "kept":
            _answer(_timed(partial(side.kept, order["file"]), order["pass"]))
            continue
        if order["file"] != path:
            path, chunks = order["file"], list(_read(order["file"]))
        # What runs a program has its path here, and the bytes are of no interest.
        match order["do"]:
            case "time":
                _answer(_timed(side.passes[order["pass"]], chunks))
            case "peak":
                chunks.clear()
                delivered = side.passes[order["pass"]](_read(path))
                _answer({"delivered": delivered, "peak_bytes": peak_bytes()})
            case "tally":
                _answer(side.tally(chunks))
            case "start":
                first, close = side.start(path)
                _answer({"first": first, "close": close})
            case "flood":
                gc.collect()
                _answer({"seconds": side.flood(path, order["count"], order["pass"] == "batches")})
            case "session":
                gc.collect()
                _answer(side.session(path, order["count"], order["pass"])._asdict())
            case "held":
                _answer(side.hold(path, order["count"]))
            case unknown:
                raise ValueError(f"no such order: {unknown!r}")


def started() -> Callable[[], Seconds]:
    """Begin to count; gives what stops it."""
    cpu, wall = time.process_time(), time.perf_counter()
    return lambda: Seconds(time.process_time() - cpu, time.perf_counter() - wall)


def held() -> Callable[[int], dict[str, float]]:
    """Look at what this process holds; gives what says by how much that has grown, for each of so many."""

    def look() -> dict[str, int]:
        descriptors = sum(1 for _ in Path("/proc/self/fd").iterdir()) if Path("/proc/self/fd").exists() else 0
        return {"descriptors": descriptors, "threads": threading.active_count()}

    before = look()
    return lambda count: {key: (now - before[key]) / count for key, now in look().items()}


def _answer(value: object) -> None:
    print(json.dumps(value), flush=True)


def _read(path: str) -> Iterator[bytes]:
    with Path(path).open("rb") as file:
        while chunk := file.read(CHUNK_SIZE):
            yield chunk


def _timed(make_pass: Callable[[T], int], given: T) -> dict[str, float]:
    # What an earlier pass left behind is not this one's cost; its own garbage is, so the collector stays on.
    gc.collect()
    begin = time.process_time()
    delivered = make_pass(given)
    return {"seconds": time.process_time() - begin, "delivered": delivered}


def peak_bytes() -> int | None:
    """The most memory that this process has held; None where the system does not say.

    Not `ru_maxrss`: it survives exec, so a child begins with the figure of its parent.
    """
    try:
        status = Path("/proc/self/status").read_text(encoding="ascii")
    except OSError:
        return None
    for line in status.splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 1024
    return None

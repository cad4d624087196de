"""Runs `warm.py` for both packages, in turns, and gives what they took. Does not print."""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from scripts.agent_program import program

SCRIPT = Path(__file__).with_name("warm.py")
SIDES = (("ours", "outrider", "cold"), ("theirs", "claude_agent_sdk", "cold"), ("ours", "outrider", "pool"))


class Row(NamedTuple):
    """Seconds that something took, at best; of either side, the reference always with a new process."""

    name: str
    title: str
    ours: float
    theirs: float | None
    median: float
    """Of ours."""


def measure(pythons: Mapping[str, str], *, quick: bool) -> Iterator[Row]:
    """The rows; none where the real program is not installed. `pythons` has the interpreter of each side."""
    if not program().exists():
        return
    found = _times(pythons, *((2, 2) if quick else (7, 5)))
    cold, theirs, pool = (found.get((package, what)) for _, package, what in SIDES)
    assert cold is not None
    assert pool is not None
    for name, title, key, ours in (
        ("cold-connect", "a session that is opened now: connect", "connect", cold),
        ("cold-first", "  its first message", "first", cold),
        ("cold-words", "  the first words of the model", "words", cold),
        ("cold-close", "  its close, until the process is gone", "close", cold),
        ("warm-acquire", "one of a pool: acquire", "connect", pool),
        ("warm-first", "  its first message", "first", pool),
        ("warm-words", "  the first words of the model", "words", pool),
    ):
        taken = [times[key] for times in ours]
        other = None if theirs is None else min(times[key] for times in theirs)
        yield Row(name, title, min(taken), other, statistics.median(taken))


def _times(
    pythons: Mapping[str, str], rounds: int, count: int
) -> dict[tuple[str, str], list[dict[str, float]]]:
    from outrider.testing import RealAgent, say

    found: dict[tuple[str, str], list[dict[str, float]]] = {}
    with RealAgent(otherwise=say("Hello."), program=program()) as agent:
        environment = {**agent.environment, "AGENT": str(agent.program)}
        for _ in range(rounds):
            for side, package, what in SIDES:
                if side not in pythons:
                    continue
                # Isolated: neither this folder nor the variables of the user's Python play a part.
                command = [pythons[side], "-I", str(SCRIPT), package, what, str(count)]
                done = subprocess.run(
                    command, env=environment, cwd=agent.folder, stdout=subprocess.PIPE, text=True, check=False
                )
                if done.returncode:
                    sys.exit(f"warm.py {package} {what} failed; what it said is above")
                found.setdefault((package, what), []).extend(json.loads(done.stdout))
    return found

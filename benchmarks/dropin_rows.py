"""Runs `dropin.py` with both packages, in turns, and gives what it took. Does not print."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from benchmarks import work
from benchmarks.agent import UNNAMED_VARIABLE
from scripts.agent_program import program

SCRIPT = Path(__file__).with_name("dropin.py")
PACKAGES = {"ours": "outrider.compat", "theirs": "claude_agent_sdk"}


GOALS = {"events": 12.0, "unnamed": 12.0, "assistants": 6.0, "hooks": 1.2, "tools": 8.0, "requests": 1.5}
"""So many times fewer CPU seconds than the reference."""


class Row(NamedTuple):
    """What a piece of work took either side, in seconds."""

    name: str
    title: str
    best: dict[str, float]

    @property
    def goal(self) -> float | None:
        return GOALS.get(self.name)


def measure(folder: Path, pythons: Mapping[str, str], *, quick: bool) -> Iterator[Row]:
    """The rows, as they are known; `pythons` has the interpreter of each side."""
    events, answers, calls, rounds = (20_000, 4000, 1000, 3) if quick else (100_000, 20_000, 3000, 7)
    turn, _ = work.Work("dropin", "", lambda: work.stream_events(events)).write(folder)
    tools, size = work.Work("dropin-tools", "", lambda: work.tool_turns(answers)).write(folder)
    empty, _ = work.Work("dropin-empty", "", list).write(folder)
    for name, title, count, path in (
        ("events", f"{events:,} stream events of a client", events, turn),
        ("unnamed", "the same, prompts not named", events, turn),
        ("assistants", f"{answers:,} assistant messages, tools", size, tools),
        ("messages", f"{events:,} messages of a query, one by one", events, turn),
        ("texts", "the same, and their text is read", events, turn),
        ("hooks", f"{calls:,} hooks, one after the other", calls, empty),
        ("tools", f"{calls:,} calls of a tool, one after the other", calls, empty),
        ("requests", "1,000 control requests", 1000, empty),
        ("whole", "a whole process, with one short query", 0, empty),
    ):
        agent = {**os.environ, "AGENT": str(work.agent(folder, path))}
        if name == "unnamed":
            agent[UNNAMED_VARIABLE] = "1"
        yield Row(name, title, _best(pythons, name, count, agent, "cpu", rounds))
    for path in (turn, tools, empty):
        path.unlink()
    if program().exists():
        yield Row("first", "the real program's first message (wall)", _first(pythons, rounds))


def _first(pythons: Mapping[str, str], rounds: int) -> dict[str, float]:
    from outrider.testing import RealAgent, say

    with RealAgent(otherwise=say("Hello."), program=program()) as agent:
        environment = {**agent.environment, "AGENT": str(agent.program)}
        return _best(pythons, "first", 3, environment, "wall", rounds, cwd=agent.folder)


def _best(
    pythons: Mapping[str, str],
    name: str,
    count: int,
    environment: Mapping[str, str],
    key: str,
    rounds: int,
    cwd: Path | None = None,
) -> dict[str, float]:
    best: dict[str, float] = {}
    for _ in range(rounds):
        for side, python in pythons.items():
            # Isolated: neither this folder nor the variables of the user's Python play a part.
            command = [python, "-I", str(SCRIPT), PACKAGES[side], name, str(count)]
            done = subprocess.run(
                command, env=environment, cwd=cwd, stdout=subprocess.PIPE, text=True, check=False
            )
            if done.returncode:
                sys.exit(f"dropin.py {name} failed with {PACKAGES[side]}; what it said is above")
            took = json.loads(done.stdout)[key]
            best[side] = min(took, best.get(side, took))
    return best

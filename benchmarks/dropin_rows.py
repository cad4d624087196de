"""Runs `dropin.py` with both packages, in turns, and gives what it took. Does not print."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from benchmarks import work
from benchmarks.agent import PAUSE_VARIABLE, REPEAT_VARIABLE, UNNAMED_VARIABLE
from scripts.agent_program import program

SCRIPT = Path(__file__).with_name("dropin.py")
PACKAGES = {"ours": "outrider.compat", "theirs": "claude_agent_sdk"}


GOALS = {
    "events": 12.0,
    "unnamed": 12.0,
    "trickle": 1.5,
    "assistants": 6.0,
    "hooks": 1.2,
    "tools": 8.0,
    "requests": 1.5,
    "cold": 4.0,
    "first": 1.0,
    "slow": 1.0,
}
"""So many times fewer CPU seconds than the reference; for `cold` and `first`, of wall time, and for `slow`,
bytes."""


SETTINGS = {
    "unnamed": {UNNAMED_VARIABLE: "1"},
    "trickle": {PAUSE_VARIABLE: "0.0003"},
    "slow": {REPEAT_VARIABLE: "10"},
    "kept": {REPEAT_VARIABLE: "4"},
}
"""Variables of the agent."""

MEMORY = ("slow", "kept")
"""The rows that are about the peak of a process, in bytes."""


class Row(NamedTuple):
    """What a piece of work took either side, in seconds or bytes."""

    name: str
    title: str
    best: dict[str, float]

    @property
    def goal(self) -> float | None:
        return GOALS.get(self.name)

    @property
    def unit(self) -> str:
        return "bytes" if self.name in MEMORY else "seconds"


def measure(folder: Path, pythons: Mapping[str, str], *, quick: bool) -> Iterator[Row]:
    """The rows, as they are known; `pythons` has the interpreter of each side."""
    events, answers, calls, rounds = (20_000, 4000, 1000, 3) if quick else (100_000, 20_000, 3000, 7)
    turn, _ = work.Work("dropin", "", lambda: work.stream_events(events)).write(folder)
    few, _ = work.Work("dropin-few", "", lambda: work.stream_events(calls)).write(folder)
    tools, size = work.Work("dropin-tools", "", lambda: work.tool_turns(answers)).write(folder)
    empty, _ = work.Work("dropin-empty", "", list).write(folder)
    for name, title, count, path in (
        ("events", f"{events:,} stream events of a client", events, turn),
        ("unnamed", "the same, prompts not named", events, turn),
        ("trickle", f"{calls:,} of them, each read by itself", calls, few),
        ("assistants", f"{answers:,} assistant messages, tools", size, tools),
        ("messages", f"{events:,} messages of a query, one by one", events, turn),
        ("texts", "the same, and their text is read", events, turn),
        ("hooks", f"{calls:,} hooks, one after the other", calls, empty),
        ("tools", f"{calls:,} calls of a tool, one after the other", calls, empty),
        ("requests", "1,000 control requests", 1000, empty),
        ("whole", "a whole process, with one short query", 0, empty),
        ("slow", f"peak memory, {10 * events:,} events, slowly", 10 * events, turn),
        ("kept", f"peak memory, {4 * size:,} kept messages", 4 * size, tools),
    ):
        agent = {**os.environ, "AGENT": str(work.agent(folder, path)), **SETTINGS.get(name, {})}
        key, times = ("peak", 1) if name in MEMORY else ("cpu", rounds)
        yield Row(name, title, _best(pythons, name, count, agent, key, times))
    agent = {**os.environ, "AGENT": str(work.light_agent(folder, empty))}
    title = "  its wall time, from the start of Python on"
    yield Row("cold", title, _best(pythons, "whole", 0, agent, "process", rounds))
    for path in (turn, few, tools, empty):
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
            begin = time.perf_counter()
            done = subprocess.run(
                command, env=environment, cwd=cwd, stdout=subprocess.PIPE, text=True, check=False
            )
            if done.returncode:
                sys.exit(f"dropin.py {name} failed with {PACKAGES[side]}; what it said is above")
            took = {**json.loads(done.stdout), "process": time.perf_counter() - begin}[key]
            best[side] = min(took, best.get(side, took))
    return best

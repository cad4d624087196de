"""Runs with agents that are no stand-ins of ours, under faults: the simulated one as a program, and the real
one with a scripted model."""

from __future__ import annotations

import os
from collections import Counter
from pathlib import Path
from typing import Any

import anyio
import pytest

from outrider import fleet
from outrider.fleet import Budget, Empty, Journal
from outrider.options import Options
from outrider.testing import RealAgent, Simulator, drop, fail, hang, say, use_tool, when
from tests.fleet.working import AT_ONCE, nobody_left
from tests.real_program import require_program

LONG = bool(os.environ.get("OUTRIDER_LONG"))
"""`make fleet` sets it."""

KINDS = ("plain", "limit", "crash", "hang", "lost")
SCRIPT: list[Any] = [
    when("plain", say("done")),
    when("limit", [fail(429, retry_after=0), say("done")]),
    when("lost", [drop(), say("done")]),
    # The parent of the shell is the agent.
    when("crash", use_tool("Bash", command="kill -9 $PPID", description="Fall over")),
    when("hang", hang()),
    when("You were cut off", say("done")),
]


def unasked(options: Options) -> Options:
    return options.replace(
        permission_mode="bypassPermissions",
        allow_dangerously_skip_permissions=True,
        env={**options.env, "IS_SANDBOX": "1"},
    )


async def check(options: Options, count: int, folder: Path, seconds: float) -> None:
    """Every task ends once, as its kind says, and nothing is left."""
    tasks = [f"{KINDS[number % len(KINDS)]} {number}" for number in range(count)]
    budget = Budget(usd=1000, grace=2.0)
    journal = folder / "run.db"
    async with fleet.map(
        tasks,
        unasked(options),
        journal=journal,
        budget=budget,
        workspace=Empty(),
        concurrency=4,
        task_seconds=seconds,
        **AT_ONCE,
    ) as run:
        outcomes = [outcome async for outcome in run]
    await nobody_left()
    assert sorted(outcome.number for outcome in outcomes) == list(range(count))
    with Journal(journal) as reader:
        assert (reader.counts().ended, len(list(reader.outcomes()))) == (count, count)
        assert reader.spent().usd == pytest.approx(budget.spent.usd)
    found = Counter((tasks[each.number].split()[0], each.error_kind or each.text) for each in outcomes)
    share = count // len(KINDS)
    assert found == {
        **{(kind, "done"): share for kind in ("plain", "limit", "crash", "lost")},
        ("hang", "TurnTimedOut"): share,
    }


@pytest.mark.anyio
@pytest.mark.parametrize("anyio_backend", ["asyncio"])
@pytest.mark.timeout(1200 if LONG else 60)
async def test_the_simulated_agent(anyio_backend: str, tmp_path: Path) -> None:
    with Simulator(SCRIPT, executable=True, folder=tmp_path) as agent, anyio.fail_after(1000 if LONG else 50):
        await check(agent.options(), 500 if LONG else 5, tmp_path, 5 if LONG else 8)


@pytest.mark.real
@pytest.mark.anyio
@pytest.mark.parametrize("anyio_backend", ["asyncio"])
@pytest.mark.timeout(1200)
@pytest.mark.skipif(not LONG, reason="takes minutes: `make fleet`")
async def test_the_real_program(anyio_backend: str, tmp_path: Path) -> None:
    with RealAgent(SCRIPT, program=require_program()) as agent, anyio.fail_after(1000):
        await check(agent.options(), 50, tmp_path, 30)

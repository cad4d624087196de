"""Runs under random faults, and runners that are killed: each task ends once, and none is done twice."""

from __future__ import annotations

import logging
import os
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path
from random import Random

import anyio
import pytest
from anyio.to_thread import run_sync

from outrider.fleet._budget.budget import Budget
from outrider.fleet._journal.journal import Journal
from outrider.fleet._map import map, resume  # noqa: A004
from tests.fleet.working import AT_ONCE, Works, nobody_left, until
from tests.proc import process_ids, stat_of

LONG = bool(os.environ.get("OUTRIDER_LONG"))
"""Thousands of tasks and more kills: `make fleet` sets it."""

CENT = 0.01
AT_A_TIME, SHARE = (8, 0.9) if LONG else (4, 0.75)
"""How many tasks run at once, and for how many the money lasts; more are left than run at once."""
PICKED_UP = "You were cut off"


@pytest.fixture(autouse=True)
def quiet(caplog: pytest.LogCaptureFixture) -> None:
    # Faults are told in thousands of lines.
    caplog.set_level(logging.CRITICAL, logger="outrider")


@pytest.mark.anyio
@pytest.mark.timeout(3000 if LONG else 120)
@pytest.mark.parametrize(
    "anyio_backend, count, seed",
    [("asyncio", 2000, 1)] if LONG else [("asyncio", 40, 97), ("trio", 20, 80)],
)
async def test_every_task_ends_once_whatever_happens_to_agents(
    anyio_backend: str, count: int, seed: int, tmp_path: Path
) -> None:
    works, journal = Works(tmp_path, seed), tmp_path / "run.db"
    limit = count * CENT * SHARE
    budget = Budget(usd=limit, grace=2.0)
    began = anyio.current_time()
    async with map(
        [f"task {number}" for number in range(count)],
        works.options(),
        journal=journal,
        concurrency=AT_A_TIME,
        budget=budget,
        **AT_ONCE,
    ) as run:
        outcomes = [outcome async for outcome in run]
    await nobody_left()
    seconds = anyio.current_time() - began
    statuses = Counter(outcome.status for outcome in outcomes)
    actions = Counter(entry["action"] for entry in works.log if "action" in entry)
    print(f"{count} tasks in {seconds:.0f} s: {dict(statuses)}, {dict(actions)}, {budget.spent}")
    assert sorted(outcome.number for outcome in outcomes) == list(range(count))
    with Journal(journal) as reader:
        written = {outcome.number: outcome for outcome in reader.outcomes()}
        counts, spent = reader.counts(), reader.spent()
    assert {outcome.number: outcome.status for outcome in outcomes} == {
        number: outcome.status for number, outcome in written.items()
    }
    assert (counts.total, counts.ended) == (count, count)
    # A task that is done was answered once, and one that was answered is done.
    answered = Counter(works.answered)
    assert set(answered.values()) <= {1}
    done = {outcome.text for outcome in outcomes if outcome.status == "done"}
    assert done == {f"did {task}" for task in answered}
    # Each that was running when the limit was reached may have ended its turn.
    assert spent.usd == pytest.approx(budget.spent.usd)
    assert spent.usd <= limit + AT_A_TIME * CENT
    assert statuses["over_budget"] > 0
    # If nothing had gone wrong, something else would have been tested.
    assert sum(actions[action] for action in ("die", "act_die", "exit", "fail429", "fail529")) > count * 0.1


# Runners that are killed.


def agents_of(folder: Path) -> list[int]:
    """The processes that work in a folder, whoever started them."""
    wanted = str(folder).encode()
    found = []
    for pid in process_ids():
        try:
            is_one = wanted in Path(f"/proc/{pid}/cmdline").read_bytes()
        except OSError:
            continue
        if is_one and (stat := stat_of(pid)) is not None and stat.is_running:
            found.append(pid)
    return found


async def _until_more(works: Works, entries: int, runner: subprocess.Popen[bytes]) -> None:
    await until(lambda: len(works.log) >= entries or runner.poll() is not None)


@pytest.mark.anyio
@pytest.mark.timeout(600 if LONG else 120)
@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_after_each_kill_of_the_runner_all_goes_on_where_it_was(
    anyio_backend: str, tmp_path: Path
) -> None:
    count, kills = (120, 10) if LONG else (18, 3)
    chance = Random(11)
    works, journal = Works(tmp_path / "agents"), tmp_path / "run.db"
    command = [sys.executable, "-m", "tests.fleet.runner", str(works.folder), str(journal), str(count)]
    ended_before: set[str] = set()
    cut_off: set[str] = set()
    for _ in range(kills):
        already = len(works.log)
        runner = await run_sync(subprocess.Popen, command)
        await _until_more(works, already + chance.randrange(3, max(4, 4 * count // kills)), runner)
        runner.send_signal(signal.SIGKILL)
        await run_sync(runner.wait)
        # Its agents end with it.
        await until(lambda: not agents_of(works.folder))
        log = works.log
        with Journal(journal) as reader:
            ended = {outcome.id: outcome for outcome in reader.outcomes()}
            started = {entry.session_id for entry in reader.started()}
        # What had ended has been left alone since.
        asked = {entry["prompt"] for entry in log[already:] if "prompt" in entry}
        assert not asked & ended_before
        ended_before = {outcome.text.removeprefix("did ") for outcome in ended.values()}
        cut_off |= {str(session) for session in started}
    runner = await run_sync(subprocess.Popen, command)
    assert await run_sync(runner.wait) == 0
    await until(lambda: not agents_of(works.folder))
    with Journal(journal) as reader:
        outcomes = list(reader.outcomes())
    tasks = [f"{'write' if number % 3 else 'act_die'} {number}" for number in range(count)]
    # The union is exact.
    assert [outcome.text for outcome in outcomes] == [f"did {task}" for task in tasks]
    # Those that were cut off were picked up by their sessions: each task was asked for in words once, or had
    # not been asked for at all when its runner was killed.
    log = works.log
    firsts = Counter(entry["prompt"] for entry in log if entry.get("said") == entry.get("prompt", 0))
    assert set(firsts.values()) == {1}
    assert set(firsts) == set(tasks)
    picked_up = {entry["session"] for entry in log if str(entry.get("said", "")).startswith(PICKED_UP)}
    seen = {entry["session"] for entry in log if "prompt" in entry}
    assert cut_off & seen <= picked_up
    print(f"{kills} kills of {count} tasks: {len(cut_off)} cut off, {len(cut_off & seen)} picked up")
    # And their folders are gone.
    assert not journal.with_name("run.db.workspaces").exists()


@pytest.mark.anyio
@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_a_run_that_is_stopped_leaves_no_process(anyio_backend: str, tmp_path: Path) -> None:
    works, journal = Works(tmp_path / "agents"), tmp_path / "run.db"
    async with map(["wait 1", "wait 2"], works.options(), journal=journal, **AT_ONCE):
        await until(lambda: len(works.prompts) == 2)
    await nobody_left()
    works.go()
    outcomes = await resume(journal, works.options(), **AT_ONCE)
    assert [outcome.text for outcome in outcomes] == ["did wait 1", "did wait 2"]
    said = [entry["said"] for entry in works.log if "prompt" in entry]
    assert sorted(said[:2]) == ["wait 1", "wait 2"]
    assert all(words.startswith(PICKED_UP) for words in said[2:])
    assert len({entry["session"] for entry in works.log if "prompt" in entry}) == 2

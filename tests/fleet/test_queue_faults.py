"""Workers of a queue, and its server, are killed at random: each task ends exactly once."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from random import Random
from uuid import uuid4

import anyio
import psycopg
import pytest
from anyio.to_thread import run_sync

from outrider.fleet import Journal, submit
from tests.fleet.stub_engine import CENT
from tests.transcripts.stores import servers

LONG = bool(os.environ.get("OUTRIDER_LONG"))
"""Thousands of tasks: `make fleet` sets it."""
TASKS, WORKERS, KILLS, SERVER_KILLS = (2000, 4, 40, 4) if LONG else (60, 2, 2, 1)
AT_ONCE = 4
"""Tasks of a worker."""


class Crew:
    """Worker processes. What each said that it had ended is kept."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.running: list[subprocess.Popen[bytes]] = []
        self._number = 0

    def start(self, url: str) -> None:
        self._number += 1
        command = [sys.executable, "-m", "tests.fleet.queue_worker", url]
        command += [str(self._folder / "answers"), str(self._number)]
        out, err = (self._folder / f"{self._number}.{kind}" for kind in ("out", "err"))
        with out.open("wb") as said, err.open("wb") as warned:
            self.running.append(
                subprocess.Popen(
                    command, stdin=subprocess.PIPE, stdout=said, stderr=warned, start_new_session=True
                )
            )

    def wait(self) -> None:
        """Until all have ended by themselves."""
        for one in self.running:
            assert one.wait() == 0, self.warnings

    def kill(self, which: int) -> None:
        one = self.running.pop(which)
        assert one.stdin is not None
        one.kill()
        one.wait()
        one.stdin.close()

    def end(self) -> None:
        while self.running:
            self.kill(0)

    @property
    def given(self) -> Counter[str]:
        return Counter(word for path in self._folder.glob("*.out") for word in path.read_text().split())

    @property
    def begun(self) -> list[list[str]]:
        path = self._folder / "answers"
        return [line.split() for line in path.read_text().splitlines()] if path.exists() else []

    @property
    def warnings(self) -> str:
        return "".join(path.read_text() for path in sorted(self._folder.glob("*.err")))


@pytest.fixture
def crew(tmp_path: Path) -> Iterator[Crew]:
    crew = Crew(tmp_path)
    yield crew
    crew.end()


def ended(url: str) -> int:
    try:
        with psycopg.connect(url.partition("?")[0], connect_timeout=2) as link:
            where = "SELECT count(*) FROM outrider_fleet_tasks WHERE state = 'ended' AND batch = %s"
            row = link.execute(where, (url.partition("batch=")[2].partition("&")[0],)).fetchone()
            return 0 if row is None else int(row[0])
    except psycopg.Error:
        return 0


@pytest.mark.anyio
@pytest.mark.timeout(1800 if LONG else 180)
@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_every_task_ends_once_whoever_is_killed(anyio_backend: str, crew: Crew) -> None:
    server, chance = servers.postgres(), Random(5)
    url = f"{server.url()}?batch={uuid4().hex}&lease=2&timeout=5"
    assert await submit([f"task {number}" for number in range(TASKS)], url) == TASKS
    began = time.monotonic()
    faults = [*["worker"] * KILLS, *["server"] * SERVER_KILLS]
    chance.shuffle(faults)
    for _ in range(WORKERS):
        crew.start(url)
    for number, fault in enumerate(faults):
        while await run_sync(ended, url) < TASKS * 0.9 * number / len(faults):  # noqa: ASYNC110
            await anyio.sleep(0.02)
        if fault == "worker":
            crew.kill(chance.randrange(len(crew.running)))
            crew.start(url)
        else:
            await run_sync(server.restart)
    await run_sync(crew.wait)
    seconds = time.monotonic() - began
    with Journal(url) as journal:
        outcomes, counts, spent = list(journal.outcomes()), journal.counts(), journal.spent()
        # One that was killed between two tasks counts as a worker until its lease has run out.
        while journal.runner() is not None:  # noqa: ASYNC110
            await anyio.sleep(0.05)
    assert [outcome.text for outcome in outcomes] == [f"did task {number}" for number in range(TASKS)]
    assert (counts.total, counts.done) == (TASKS, TASKS)
    # One that was not heard of for as long as its lease, on a machine that has much to do, is lost, too.
    lost = KILLS + crew.warnings.count("has run out")
    # No worker was given an outcome that another has. A worker that was lost may not have said the last.
    given = crew.given
    assert set(given.values()) == {1}
    assert TASKS - AT_ONCE * lost <= given.total() <= TASKS
    # Each attempt has a number and, if one was cut off before it, the session of that.
    attempts = Counter((id, attempt) for id, attempt, _, _ in crew.begun)
    assert set(attempts.values()) == {1}
    sessions: dict[str, set[str]] = {}
    for id, _, session, _ in crew.begun:
        sessions.setdefault(id, set()).add(session)
    assert all(len(each) == 1 for each in sessions.values())
    again = len(crew.begun) - TASKS
    assert 0 <= again <= AT_ONCE * lost
    # What was paid for and written down is known, whoever has done it.
    assert spent.usd == pytest.approx(TASKS * CENT.cost_usd)
    killed = f"{KILLS} of them and {SERVER_KILLS} servers killed"
    print(f"{TASKS} tasks, {WORKERS} workers, {killed}: {seconds:.0f} s, {again} tasks begun again")


@pytest.mark.anyio
@pytest.mark.timeout(120)
@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_a_worker_that_slept_beyond_its_lease_wakes_up_and_harms_nothing(
    anyio_backend: str, crew: Crew
) -> None:
    url = f"{servers.postgres().url()}?batch={uuid4().hex}&lease=1&timeout=2"
    await submit([f"task {number}" for number in range(50)], url)
    crew.start(url)
    while not crew.given:  # noqa: ASYNC110
        await anyio.sleep(0.01)
    sleeper = crew.running[0]
    sleeper.send_signal(signal.SIGSTOP)
    crew.start(url)
    # The other one ends all of it, and those that the sleeper had.
    assert await run_sync(crew.running[1].wait) == 0, crew.warnings
    sleeper.send_signal(signal.SIGCONT)
    await run_sync(crew.wait)
    with Journal(url) as journal:
        assert journal.counts().done == 50
    assert set(crew.given.values()) == {1}
    assert crew.given.total() == 50

"""Workers of a queue, and its server, are killed at random: each task ends exactly once."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections import Counter
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
TASKS, WORKERS, KILLS, SERVER_KILLS = (2000, 4, 40, 4) if LONG else (80, 3, 3, 1)


class Crew:
    """Worker processes. What each said that it had ended is kept."""

    def __init__(self, url: str, folder: Path) -> None:
        self._url, self._folder = url, folder
        self.running: list[subprocess.Popen[bytes]] = []
        self._number = 0

    def start(self) -> None:
        self._number += 1
        command = [sys.executable, "-m", "tests.fleet.queue_worker", self._url]
        command += [str(self._folder / "answers"), str(self._number)]
        with (self._folder / f"{self._number}.out").open("wb") as out:
            self.running.append(
                subprocess.Popen(command, stdout=out, stderr=subprocess.DEVNULL, start_new_session=True)
            )

    def kill(self, which: int) -> None:
        one = self.running.pop(which)
        one.kill()
        one.wait()

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


def ended(url: str) -> int:
    try:
        with psycopg.connect(url.partition("?")[0], connect_timeout=2) as link:
            where = "SELECT count(*) FROM outrider_fleet_tasks WHERE state = 'ended' AND batch = %s"
            row = link.execute(where, (url.partition("batch=")[2].partition("&")[0],)).fetchone()
            return 0 if row is None else int(row[0])
    except psycopg.Error:
        return 0


@pytest.mark.anyio
@pytest.mark.timeout(900 if LONG else 180)
@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_every_task_ends_once_whoever_is_killed(anyio_backend: str, tmp_path: Path) -> None:
    server, chance = servers.postgres(), Random(5)
    url = f"{server.url()}?batch={uuid4().hex}&lease=2&timeout=5"
    assert await submit([f"task {number}" for number in range(TASKS)], url) == TASKS
    crew, began = Crew(url, tmp_path), time.monotonic()
    faults = [*["worker"] * KILLS, *["server"] * SERVER_KILLS]
    chance.shuffle(faults)
    try:
        for _ in range(WORKERS):
            await run_sync(crew.start)
        for number, fault in enumerate(faults):
            while await run_sync(ended, url) < TASKS * 0.9 * number / len(faults):  # noqa: ASYNC110
                await anyio.sleep(0.02)
            if fault == "worker":
                await run_sync(crew.kill, chance.randrange(len(crew.running)))
                await run_sync(crew.start)
            else:
                await run_sync(server.restart)
        for one in crew.running:
            assert await run_sync(one.wait) == 0
    finally:
        await run_sync(crew.end)
    seconds = time.monotonic() - began
    with Journal(url) as journal:
        outcomes, counts, spent = list(journal.outcomes()), journal.counts(), journal.spent()
        assert journal.runner() is None
    assert [outcome.text for outcome in outcomes] == [f"did task {number}" for number in range(TASKS)]
    assert (counts.total, counts.done) == (TASKS, TASKS)
    # No worker was given an outcome that another has. A worker that was killed may not have said the last.
    given = crew.given
    assert set(given.values()) == {1}
    assert TASKS - 4 * KILLS <= given.total() <= TASKS
    # Each attempt has a number and, if one was cut off before it, the session of that.
    attempts = Counter((id, attempt) for id, attempt, _, _ in crew.begun)
    assert set(attempts.values()) == {1}
    sessions: dict[str, set[str]] = {}
    for id, _, session, _ in crew.begun:
        sessions.setdefault(id, set()).add(session)
    assert all(len(each) == 1 for each in sessions.values())
    again = len(crew.begun) - TASKS
    assert 0 < again <= 4 * (KILLS + SERVER_KILLS)
    # What was paid for and written down is known, whoever has done it.
    assert spent.usd == pytest.approx(TASKS * CENT.cost_usd)
    killed = f"{KILLS} of them and {SERVER_KILLS} servers killed"
    print(f"{TASKS} tasks, {WORKERS} workers, {killed}: {seconds:.0f} s, {again} tasks begun again")


@pytest.mark.anyio
@pytest.mark.timeout(120)
@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_a_worker_that_slept_beyond_its_lease_wakes_up_and_harms_nothing(
    anyio_backend: str, tmp_path: Path
) -> None:
    url = f"{servers.postgres().url()}?batch={uuid4().hex}&lease=1&timeout=2"
    await submit([f"task {number}" for number in range(200)], url)
    crew = Crew(url, tmp_path)
    try:
        await run_sync(crew.start)
        while not crew.given:  # noqa: ASYNC110
            await anyio.sleep(0.01)
        sleeper = crew.running[0]
        sleeper.send_signal(signal.SIGSTOP)
        await run_sync(crew.start)
        # The other one ends all of it, and those that the sleeper had.
        assert await run_sync(crew.running[1].wait) == 0
        sleeper.send_signal(signal.SIGCONT)
        assert await run_sync(sleeper.wait) == 0
    finally:
        await run_sync(crew.end)
    with Journal(url) as journal:
        assert journal.counts().done == 200
    assert set(crew.given.values()) == {1}
    assert crew.given.total() == 200

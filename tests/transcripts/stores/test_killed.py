"""A writer that is killed loses nothing that was acknowledged, and what it sends again is not there twice."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import anyio
import pytest

from outrider.transcripts import FileStore, SqliteStore
from tests.transcripts.stores.child import BATCH
from tests.transcripts.stores.local import CHILD, KEY, LOCAL, Local, Make, start

WAIT = 30


def entries_of(name: str, batch: int) -> Any:
    return [
        {"type": "x", "writer": name, "number": batch * BATCH + number, "pad": "x" * 500}
        for number in range(BATCH)
    ]


def acknowledged(child: subprocess.Popen[str]) -> int:
    """How many batches a child that has ended had stored."""
    assert child.stdout is not None
    with child:
        said = child.stdout.read().split()
        child.wait(WAIT)
    return len(said)


def check_and_go_on(store: Local, stored: int) -> None:
    async def check() -> None:
        async with store:
            loaded = await store.load(KEY) or []
            # The batch that was on its way may be there, whole.
            assert len(loaded) in (stored * BATCH, (stored + 1) * BATCH)
            for batch in range(stored + 2):
                await store.append_batch(KEY, entries_of("w", batch), f"w {batch}")
            expected = [entry for batch in range(stored + 2) for entry in entries_of("w", batch)]
            assert await store.load(KEY) == expected
            [listed] = await store.list_session_summaries(KEY["project_key"])
            assert listed["session_id"] == KEY["session_id"]

    anyio.run(check)


@LOCAL
@pytest.mark.parametrize("after", [1, 2, 7])
def test_a_writer_is_killed_while_it_writes(make: Make, after: int, tmp_path: Path) -> None:
    store = make(tmp_path)
    child = start(store, "write", "w", 1000)
    assert child.stdout is not None
    for _ in range(after):
        assert child.stdout.readline()
    # It is at the next one now.
    child.send_signal(signal.SIGKILL)
    stored = after + acknowledged(child)
    assert child.returncode == -signal.SIGKILL
    check_and_go_on(store, stored)


def test_a_writer_to_files_is_killed_at_each_of_its_calls(tmp_path: Path) -> None:
    """The first append makes the folders; each then writes entries and log."""
    faults = killed_at_each(f"file://{tmp_path}/%d", last=26, step=1)
    assert len(faults) == 26
    for fault, stored in faults.items():
        check_and_go_on(FileStore(tmp_path / str(fault)), stored)


def test_a_writer_to_sqlite_is_killed_at_each_of_its_statements(tmp_path: Path) -> None:
    """The first makes the tables; each append is then one transaction."""
    faults = killed_at_each(f"sqlite:///{tmp_path}/%d.db", last=38, step=1)
    assert len(faults) == 38
    for fault, stored in faults.items():
        check_and_go_on(SqliteStore(tmp_path / f"{fault}.db"), stored)


def killed_at_each(place: str, *, last: int, step: int) -> dict[int, int]:
    """How many batches were stored when the writer was killed, by when that was."""
    command = [sys.executable, str(CHILD), place, "faults", "4", str(last), str(step)]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True, timeout=50)
    found: dict[int, int] = {}
    for line in done.stdout.splitlines():
        fault, code, stored = map(int, line.split())
        assert code == -signal.SIGKILL, f"at {fault}"
        assert stored < 4, f"at {fault}"
        found[fault] = stored
    return found


@LOCAL
def test_several_processes_write_at_once(make: Make, tmp_path: Path) -> None:
    store = make(tmp_path)
    names = ["a", "b", "c", "d"]
    # Two of each: what one has stored, the other one sends again.
    children = [start(store, "write", name, 10) for name in names for _ in range(2)]
    for child in children:
        assert acknowledged(child) == 10

    async def check() -> None:
        async with store:
            loaded: Any = await store.load(KEY)
        assert len(loaded) == len(names) * 10 * BATCH
        for name in names:
            expected = [entry for batch in range(10) for entry in entries_of(name, batch)]
            assert [entry for entry in loaded if entry["writer"] == name] == expected

    anyio.run(check)


@LOCAL
def test_of_processes_that_race_for_a_lease_one_gets_it(make: Make, tmp_path: Path) -> None:
    store = make(tmp_path)
    children = [start(store, "race", f"number {number}") for number in range(5)]
    for child in children:
        assert child.stdout is not None
        assert child.stdout.readline() == "ready\n"
    for child in children:
        assert child.stdin is not None
        child.stdin.write("go\n")
        child.stdin.flush()
    said: list[str] = []
    for child in children:
        assert child.stdout is not None
        with child:
            said.append(child.stdout.readline().strip())
            child.wait(WAIT)
    won = [one.removeprefix("won ") for one in said if one.startswith("won")]
    assert len(won) == 1
    assert sorted(said) == sorted([f"won {won[0]}", *[f"busy {won[0]}"] * 4])

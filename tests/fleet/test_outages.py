"""What stands around the agents goes away and comes back: no task fails for it, and a run says so."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import anyio
import pytest

from outrider.errors import ApiFailed, OptionsError, StoreError
from outrider.fleet import Journal, JournalInvalid, Ledger, LedgerEntry, Progress, Restart, Retry, map, resume  # noqa: A004
from outrider.fleet._engine import Assignment, Attempted, Tell
from outrider.fleet._journal.sqlite import SqliteJournal
from outrider.fleet._resilient.session import ResilientSession
from outrider.fleet._workspaces import make_root, mark_kept, sweep_abandoned
from outrider.session import Result
from outrider.testing import Simulator, say, use_tool
from tests.fleet.stub_engine import Stub, answer
from tests.fleet.working import Works, until

DEADLINE = 60.0
SOON: Any = {"retry": Retry(backoff=0.01, max_backoff=0.01), "restart": Restart(backoff=0.01)}


class Away:
    """A store that does not answer for a while."""

    def __init__(self, failures: int, *, retryable: bool = True) -> None:
        self.left = failures
        self._retryable = retryable

    async def attempt(self, work: Assignment, tell: Tell) -> Attempted:
        if self.left:
            self.left -= 1
            error = StoreError("postgresql://db", "acquire_lease", "refused", retryable=self._retryable)
            return Attempted(status="failed", error=error, session_id=work.session_id)
        return await answer(work, tell)


@pytest.mark.anyio
async def test_a_task_whose_store_is_away_is_tried_again_and_the_run_says_so() -> None:
    seen: list[Progress] = []
    with anyio.fail_after(DEADLINE):
        outcomes = await map(
            ["one", "two"], engine=Stub(Away(5).attempt), concurrency=1, on_progress=seen.append, **SOON
        )
    assert [(outcome.status, outcome.attempts) for outcome in outcomes] == [("done", 6), ("done", 1)]
    away = {progress.away for progress in seen}
    assert any(
        each is not None and each.startswith("a store is away: The store postgresql://db") for each in away
    )
    assert seen[-1].away is None


@pytest.mark.anyio
@pytest.mark.parametrize(
    "away, policies",
    [
        (Away(9, retryable=False), {}),
        (Away(9), {"retry": None}),
        (Away(9), {"retry": Retry(max_seconds=0)}),
    ],
)
async def test_a_store_that_stays_away_fails_the_task_in_the_end(away: Away, policies: Any) -> None:
    with anyio.fail_after(DEADLINE):
        (outcome,) = await map(["one"], engine=Stub(away.attempt), **{**SOON, **policies})
    assert (outcome.status, outcome.error_kind, outcome.attempts) == ("failed", "StoreError", 1)


@pytest.mark.anyio
async def test_a_run_pauses_while_the_disk_of_its_journal_is_full(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    failures = [7]
    write = SqliteJournal.write

    def full(self: SqliteJournal, changes: Any) -> list[bool]:
        if failures[0]:
            failures[0] -= 1
            raise JournalInvalid(self.path, "the disk is full", retryable=True)
        return write(self, changes)

    monkeypatch.setattr(SqliteJournal, "write", full)
    monkeypatch.setattr("outrider.fleet._source._FIRST_WAIT", 0.001)
    seen: list[str | None] = []
    with anyio.fail_after(DEADLINE):
        outcomes = await map(
            ["one", "two"],
            engine=Stub(),
            journal=tmp_path / "run.db",
            on_progress=lambda progress: seen.append(progress.away),
        )
    assert [outcome.status for outcome in outcomes] == ["done", "done"]
    assert any("the journal is away" in (each or "") for each in seen)
    with Journal(tmp_path / "run.db") as journal:
        assert journal.counts().done == 2


@pytest.mark.anyio
async def test_a_run_whose_journal_stays_away_can_be_stopped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(self: SqliteJournal, changes: Any) -> list[bool]:
        raise JournalInvalid(self.path, "the disk is full", retryable=True)

    monkeypatch.setattr(SqliteJournal, "write", full)
    monkeypatch.setattr("outrider.fleet._source._AFTER_STOP", 0.1)
    with anyio.fail_after(DEADLINE):
        async with map(["one"], engine=Stub(), journal=tmp_path / "run.db") as run:
            while run.progress.away is None:  # noqa: ASYNC110
                await anyio.sleep(0.01)
            run.stop()
            with pytest.raises(JournalInvalid, match="the disk is full"):
                [outcome async for outcome in run]
    monkeypatch.undo()
    assert [outcome.status for outcome in await resume(tmp_path / "run.db", engine=Stub())] == ["done"]


@pytest.mark.anyio
async def test_what_is_written_waits_for_one_transaction_together(tmp_path: Path) -> None:
    sizes: list[int] = []

    class Counted(SqliteJournal):
        def write(self, changes: Any) -> list[bool]:
            sizes.append(len(changes))
            time.sleep(0.02)
            return super().write(changes)

    run = map(
        [f"{number}" for number in range(40)], engine=Stub(), journal=tmp_path / "run.db", concurrency=20
    )
    journal: Any = run._plan.source
    journal._journal = Counted(tmp_path / "run.db", writing=True)
    outcomes = await run
    assert {outcome.status for outcome in outcomes} == {"done"}
    # Each task begins and ends.
    assert sum(sizes) == 80
    assert len(sizes) < 40


class FullLedger(Ledger):
    """A ledger whose disk is full for a while."""

    def __init__(self, path: Path, failures: int) -> None:
        super().__init__(path)
        self.left = failures

    async def add(self, entry: LedgerEntry) -> None:
        if self.left:
            self.left -= 1
            raise StoreError(str(self.path), "add", "the disk is full", retryable=True)
        await super().add(entry)


@pytest.mark.anyio
@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_a_full_ledger_fails_no_task_and_is_written_in_the_end(
    anyio_backend: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("outrider.fleet._source._FIRST_WAIT", 0.001)
    works, seen = Works(tmp_path), list[str | None]()
    async with FullLedger(tmp_path / "ledger.db", 6) as ledger:
        with anyio.fail_after(DEADLINE):
            outcomes = await map(
                ["do 1", "do 2", "do 3"],
                works.options(),
                concurrency=1,
                ledger=ledger,
                on_progress=lambda progress: seen.append(progress.away),
                **SOON,
            )
        assert [outcome.status for outcome in outcomes] == ["done"] * 3
        assert len(await ledger.entries()) == 3
    assert any("the ledger is away" in (each or "") for each in seen)


async def fail(work: Assignment, tell: Tell) -> Attempted:
    return Attempted(status="failed", error=ApiFailed(400, "invalid_request"))


@pytest.mark.anyio
@pytest.mark.parametrize("most, failed", [(3, 3), (0.5, 10), (0.9, 18)])
async def test_a_batch_in_which_everything_fails_is_stopped(most: float, failed: int, tmp_path: Path) -> None:
    run = map([f"{n}" for n in range(100)], engine=Stub(fail), concurrency=1, max_failures=most)
    outcomes = await run
    assert [outcome.status for outcome in outcomes] == ["failed"] * failed + ["skipped"] * (100 - failed)
    assert run.stopped_by == f"{failed} of {failed} tasks failed"


@pytest.mark.anyio
async def test_a_batch_in_which_few_fail_goes_on() -> None:
    async def some(work: Assignment, tell: Tell) -> Attempted:
        return await (fail if work.number % 4 == 0 else answer)(work, tell)

    run = map([f"{n}" for n in range(100)], engine=Stub(some), concurrency=1, max_failures=0.5)
    assert sum(outcome.status == "failed" for outcome in await run) == 25
    assert run.stopped_by is None


@pytest.mark.anyio
@pytest.mark.parametrize("bad", [0, -1, 1.5, True, "many", float("nan")])
def test_what_is_no_number_of_failures_is_refused(bad: Any) -> None:
    with pytest.raises(OptionsError, match="`max_failures` must be"):
        _ = map(["one"], max_failures=bad)


@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_outcomes_of_a_run_with_a_journal_hold_no_messages(anyio_backend: str, tmp_path: Path) -> None:
    works = Works(tmp_path)
    (without,) = await map(["do 1"], works.options(), **SOON)
    (kept,) = await map(["do 1"], works.options(), journal=tmp_path / "a.db", keep_results=True, **SOON)
    (plain,) = await map(["do 1"], works.options(), journal=tmp_path / "b.db", **SOON)
    assert without.result is not None
    assert kept.result is not None
    assert plain.result is None
    assert plain.text == kept.text == without.text


@pytest.mark.anyio
async def test_only_what_this_run_does_not_have_is_read_from_the_journal(tmp_path: Path) -> None:
    place = tmp_path / "run.db"
    async with map(["one", "two", "three"], engine=Stub(), journal=place, concurrency=1) as run:
        assert (await anext(run)).text == "did one"
    again = resume(place, engine=Stub())
    outcomes = await again
    assert [outcome.text for outcome in outcomes] == ["did one", "did two", "did three"]
    assert [outcome.number for outcome in again._written(frozenset((0, 2)))] == [1]


KILLED = """
import anyio, sys
from outrider.fleet._workspaces import make_root
print(make_root()[0], flush=True)
sys.stdin.read()
"""


def test_the_temporary_place_of_a_run_that_was_killed_is_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    made: list[tuple[subprocess.Popen[bytes], Path]] = []
    for _ in range(3):
        process = subprocess.Popen(
            [sys.executable, "-c", KILLED], stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment
        )
        assert process.stdout is not None
        made.append((process, Path(process.stdout.readline().decode().strip())))
    for _, root in made:
        (root / "task").mkdir()
        os.utime(root, (1, 1))
    (lives, first), (kept, second), (killed, _) = made
    mark_kept(second)
    os.utime(second, (1, 1))
    for process in (kept, killed):
        process.send_signal(signal.SIGKILL)
        process.communicate()
    young, lock = make_root()
    sweep_abandoned(tmp_path)
    # One is in use, of one a folder is kept, and one is new.
    assert sorted(tmp_path.iterdir()) == sorted([first, second, young])
    lives.communicate()
    assert lock is not None
    os.close(lock)


@pytest.mark.anyio
async def test_nothing_is_left_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    await map(["one"], engine=Stub(), workspace="empty")
    await until(lambda: not any(tmp_path.iterdir()))


@pytest.mark.anyio
async def test_messages_that_nobody_reads_are_dropped_and_the_answer_is_the_same() -> None:
    steps = [*[use_tool("Bash", command="true", description="Work")] * 60, say("Done.")]
    results: list[Result[object]] = []
    for most in (None, 5):
        with Simulator(steps) as agent, anyio.fail_after(DEADLINE):
            async with ResilientSession(agent.options(permission_mode="bypassPermissions")) as session:
                session.keeps_last = most
                results.append(await session.ask("Go on."))
    whole, short = results
    assert whole.text == short.text == "Done."
    assert whole.usage.total_tokens == short.usage.total_tokens
    assert len(whole.messages) > 100
    assert 5 <= len(short.messages) <= 10

"""Runs of tasks, whatever their engine: what is begun, how many at once, and that each ends once."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Iterator
from pathlib import Path
from threading import Event
from typing import Any

import anyio
import anyio.lowlevel
import anyio.to_thread
import pytest

from outrider.errors import OptionsError, OutriderError, SessionNotFound, TurnFailed, UsageError
from outrider.fleet._budget.budget import Budget, Spent
from outrider.fleet._engine import Assignment, Attempted, Note, Tell
from outrider.fleet._errors import ClusterNotFound, JournalBusy, JournalInvalid, WorkerLost
from outrider.fleet._journal.journal import Journal
from outrider.fleet._map import map, resume  # noqa: A004
from outrider.fleet._progress import Adaptive, Progress
from outrider.fleet._resilient.retry import Gate, Restart
from outrider.fleet._task import Task
from outrider.fleet._workspaces import Empty
from outrider.session import Usage
from tests.fleet.stub_engine import CENT, Doors, Stub, answer
from tests.fleet.working import until

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(60)]


async def test_each_task_has_one_outcome_in_the_order_of_the_tasks() -> None:
    engine = Stub()
    outcomes = await map([f"task {n}" for n in range(20)], engine=engine, concurrency=3)
    assert [outcome.number for outcome in outcomes] == list(range(20))
    assert [outcome.text for outcome in outcomes] == [f"did task {n}" for n in range(20)]
    assert {outcome.status for outcome in outcomes} == {"done"}
    assert len({outcome.id for outcome in outcomes}) == 20
    assert (engine.most <= 3, engine.is_closed) == (True, True)


async def test_outcomes_come_as_tasks_end() -> None:
    doors = Doors()
    async with map(["a", "b", "c"], engine=Stub(doors.attempt), concurrency=3) as run:
        for prompt in ("c", "a", "b"):
            doors.open(prompt)
            with anyio.fail_after(20):
                assert (await anext(run)).text == f"did {prompt}"
        with pytest.raises(StopAsyncIteration):
            await anext(run)


# Tasks as they come.


async def test_tasks_are_taken_when_there_is_room_for_them() -> None:
    doors, taken = Doors(), list[int]()

    def tasks() -> Iterator[str]:
        for number in range(10**9):
            taken.append(number)
            yield str(number)

    engine = Stub(doors.attempt)
    async with map(tasks(), engine=engine, concurrency=2) as run:
        await until(lambda: engine.running == 2)
        assert (taken, run.progress.total) == ([0, 1], None)
        doors.open("0")
        assert (await anext(run)).number == 0
        await until(lambda: len(engine.works) == 3)
        assert taken == [0, 1, 2]
        run.drain()
        doors.open("1", "2")
        assert sorted([outcome.number async for outcome in run]) == [1, 2]
    # Nobody knows what else there would be.
    assert taken == [0, 1, 2]
    assert (run.progress.done, run.progress.skipped) == (3, 0)


def failing() -> Iterator[str]:
    yield "a"
    yield "b"
    raise LookupError("the database is gone")


def repeating() -> Iterator[Task]:
    yield Task("a", id="x")
    yield Task("b")
    yield Task("c", id="x")


def mistaken() -> Iterator[Any]:
    yield from ("a", "b", 3)


@pytest.mark.parametrize(
    "tasks, told",
    [
        (failing, "the database is gone"),
        (repeating, "`tasks[2]` has the id of `tasks[0]`: 'x'"),
        (mistaken, "`tasks[2]`: A task must be a `Task`, or a text, not 3"),
    ],
)
@pytest.mark.parametrize("is_journalled", [False, True], ids=["plain", "journal"])
async def test_a_bad_task_ends_a_run_after_those_before_it_and_a_journal_has_none(
    tasks: Any, told: str, is_journalled: bool, tmp_path: Path
) -> None:
    engine, journal = Stub(), tmp_path / "run.db"
    ended: list[str] = []

    async def run_all() -> None:
        async with map(tasks(), engine=engine, journal=journal if is_journalled else None) as run:
            async for outcome in run:
                ended.append(outcome.text)  # noqa: PERF401 - those before the failure count

    with pytest.raises((LookupError, OptionsError)) as raised:
        await run_all()
    assert told in str(raised.value)
    # With a journal all tasks are written down before the first is begun: all or none.
    assert sorted(ended) == ([] if is_journalled else ["did a", "did b"])
    if is_journalled:
        with Journal(journal) as reader:
            assert reader.counts().total == 0


TWICE = [Task("a", id="x"), Task("b", id="x")]


@pytest.mark.parametrize(
    "tasks, fields, told",
    [
        (TWICE, {}, "`tasks[1]` has the id of `tasks[0]`"),
        (["a", ""], {}, "`tasks[1]`: `prompt`"),
        (["a", Task("b", options={"resume": "x"})], {"continue_conversation": True}, "`tasks[1]`: "),
        ("a task", {}, "`tasks` must be an iterable of tasks"),
        (["a"], {"engine": "Ray"}, "Did you mean 'ray'?"),
        (["a"], {"engine": object()}, "`engine` must be"),
        (["a"], {"concurrency": 0}, "`concurrency`"),
        (["a"], {"budget": 3}, "`budget` must be a `Budget`"),
        (["a"], {"modle": "x"}, "Did you mean `model`?"),
        (["a"], {"workspace": "cpy"}, "the kind of `workspace`"),
        (["a"], {"task_seconds": -1}, "`task_seconds`"),
        (["a"], {"pool": 3}, "`pool` must be a `Pool`"),
        (["a"], {"ledger": "money.db"}, "`ledger` must be a `Ledger`"),
        # They look as if they were made here.
        ([Task("a", id="000000-a"), Task("b", id="000000-a")], {}, "`tasks[1]` has the id of `tasks[0]`"),
        (
            ["a", Task("b", cwd="/etc")],
            {"workspace": "empty"},
            "`tasks[1]`: `cwd` is '/etc', which is not below",
        ),
        (
            [Task("a", cwd="a/../../b", workspace=Empty())],
            {},
            "`tasks[0]`: `cwd` is 'a/../../b', which is not",
        ),
        (["a"], {"transport": object()}, "`transport` cannot be shared"),
        (None, {"retry_failed": "yes"}, "`retry_failed`"),
    ],
    ids=range(18),
)
async def test_what_cannot_work_is_refused_before_anything_begins(tasks: Any, fields: Any, told: str) -> None:
    with pytest.raises(OptionsError) as raised:
        _ = resume("run.db", **fields) if tasks is None else map(tasks, **fields)
    assert told in str(raised.value)


# Attempts.


async def test_a_task_whose_worker_is_lost_is_picked_up_by_its_session(tmp_path: Path) -> None:
    async def attempt(work: Assignment, tell: Tell) -> Attempted:
        if work.attempt <= 2:
            tell(Note(usage=CENT, tool_calls=1, worker=f"node {work.attempt}"))
            raise WorkerLost(f"node {work.attempt}")
        return await answer(work, tell)

    engine = Stub(attempt)
    (outcome,) = await map(
        [Task("a", usd=1.0, tool_calls=9)], engine=engine, journal=tmp_path / "run.db", restart=Restart(max=2)
    )
    assert (outcome.status, outcome.attempts, outcome.usage) == ("done", 3, CENT + CENT + CENT)
    assert len({work.session_id for work in engine.works}) == 1
    assert [work.is_picked_up for work in engine.works] == [False, True, True]
    # What is left of its own limits.
    assert [work.usd for work in engine.works] == [1.0, 0.99, 0.98]
    assert [work.tool_calls for work in engine.works] == [9, 8, 7]
    with Journal(tmp_path / "run.db") as journal:
        assert journal.spent().usd == pytest.approx(0.03)


async def test_a_session_that_is_not_there_is_begun_anew_under_another_id(tmp_path: Path) -> None:
    """Its id is in the journal before it begins, so that it can be picked up in turn."""
    known: list[str | None] = []

    async def attempt(work: Assignment, tell: Tell) -> Attempted:
        with Journal(tmp_path / "run.db") as journal:
            known.extend(entry.session_id for entry in journal.started())
        if work.attempt == 1:
            raise WorkerLost
        if work.is_picked_up:
            return Attempted(status="failed", error=SessionNotFound(work.session_id or ""))
        return await answer(work, tell)

    engine = Stub(attempt)
    (outcome,) = await map(["a"], engine=engine, journal=tmp_path / "run.db")
    assert (outcome.status, outcome.attempts) == ("done", 3)
    ids = [work.session_id for work in engine.works]
    assert ids == known
    assert ids[0] == ids[1] != ids[2] == outcome.session_id


async def test_a_task_whose_worker_is_lost_too_often_fails() -> None:
    async def attempt(work: Assignment, tell: Tell) -> Attempted:
        raise WorkerLost("node")

    (outcome,) = await map(["a"], engine=Stub(attempt), restart=Restart(max=2))
    assert (outcome.status, outcome.error_kind, outcome.attempts) == ("failed", "WorkerLost", 3)


@pytest.mark.parametrize("error", [TurnFailed(), ZeroDivisionError("a bug")], ids=["own", "foreign"])
async def test_an_engine_that_fails_ends_one_task_and_not_the_run(error: Exception) -> None:
    async def attempt(work: Assignment, tell: Tell) -> Attempted:
        if work.number == 1:
            raise error
        return await answer(work, tell)

    outcomes = await map(["a", "b", "c"], engine=Stub(attempt))
    assert [outcome.status for outcome in outcomes] == ["done", "failed", "done"]
    assert outcomes[1].error_kind == "TurnFailed"


async def test_a_rate_limit_halves_what_runs_at_once() -> None:
    doors = Doors()

    async def attempt(work: Assignment, tell: Tell) -> Attempted:
        if work.number < 8:
            await until(lambda: len(engine.works) >= 8)
            tell(Note(is_rate_limited=True))
        return await doors.attempt(work, tell)

    engine = Stub(attempt)
    tasks = [str(number) for number in range(16)]
    async with map(tasks, engine=engine, concurrency=Adaptive(1, 8, start=8)) as run:
        await until(lambda: run.progress.concurrency < 8)
        assert run.progress.concurrency == 4
        doors.open(*tasks)
        assert len([outcome async for outcome in run]) == 16


# Drained, stopped, left.


@pytest.mark.parametrize("times, ended", [(1, ["done", "skipped"]), (2, ["skipped", "skipped"])])
async def test_ctrl_c_drains_and_a_second_one_stops(times: int, ended: list[str]) -> None:
    doors = Doors()
    engine = Stub(doors.attempt)
    async with map(["a", "b"], engine=engine, concurrency=1, drain_on_interrupt=True) as run:
        await until(lambda: engine.running == 1)
        for _ in range(times):
            signal.raise_signal(signal.SIGINT)
            await until(lambda: run.progress.is_draining)
        if times == 1:
            doors.open("a")
        assert [outcome.status async for outcome in run] == ended


async def test_only_the_main_thread_gets_ctrl_c() -> None:
    run = map(["a"], drain_on_interrupt=True)
    with pytest.raises(UsageError, match="main thread"):
        await anyio.to_thread.run_sync(anyio.run, run.finish)


async def test_a_drained_run_ends_what_runs_and_skips_the_rest() -> None:
    doors = Doors()
    engine = Stub(doors.attempt)
    async with map(["a", "b", "c", "d"], engine=engine, concurrency=2) as run:
        await until(lambda: engine.running == 2)
        run.drain()
        assert run.progress.is_draining
        doors.open("a", "b")
        outcomes = [outcome async for outcome in run]
    assert sorted((outcome.number, outcome.status) for outcome in outcomes) == [
        (0, "done"),
        (1, "done"),
        (2, "skipped"),
        (3, "skipped"),
    ]


@pytest.mark.parametrize("how", ["stop", "leave", "raise", "cancel"])
async def test_what_is_stopped_is_picked_up_later(how: str, tmp_path: Path) -> None:
    journal = tmp_path / "run.db"
    doors = Doors()
    engine = Stub(doors.attempt)
    outcomes: list[str] = []
    with anyio.CancelScope() as scope:
        try:
            async with map(["a", "b", "c"], engine=engine, concurrency=2, journal=journal) as run:
                doors.open("a")
                assert (await anext(run)).text == "did a"
                await until(lambda: engine.running == 2)
                if how == "raise":
                    raise LookupError
                if how == "cancel":
                    scope.cancel()
                    await anyio.sleep_forever()
                if how == "stop":
                    run.stop()
                    outcomes = [outcome.status async for outcome in run]
        except LookupError:
            pass
    assert (engine.running, engine.is_closed) == (0, True)
    assert outcomes == (["skipped", "skipped"] if how == "stop" else [])
    with Journal(journal) as reader:
        counts = reader.counts()
        assert (counts.done, counts.started, counts.pending) == (1, 2, 0)
    again = Stub()
    ended = await resume(journal, engine=again)
    assert [outcome.status for outcome in ended] == ["done"] * 3
    cut_off = {(work.id, work.session_id, 2) for work in engine.works if work.task.prompt != "a"}
    assert {(work.id, work.session_id, work.attempt) for work in again.works} == cut_off
    assert all(work.is_picked_up for work in again.works)


async def test_no_task_is_begun_that_comes_after_the_run_was_drained() -> None:
    asked, given = Event(), Event()

    def tasks() -> Iterator[str]:
        yield "a"
        asked.set()
        given.wait(30)
        yield "b"

    def drain(progress: Progress) -> None:
        # Again and again, from where the run tells of it.
        if progress.is_draining:
            run.drain()

    engine = Stub()
    async with map(tasks(), engine=engine, concurrency=2, on_progress=drain) as run:
        await until(asked.is_set)
        run.drain()
        given.set()
        assert sorted([outcome.status async for outcome in run]) == ["done", "skipped"]
    assert len(engine.works) == 1


async def test_a_program_can_be_ended_from_where_progress_is_told() -> None:
    def leave(progress: Progress) -> None:
        if progress.done:
            raise SystemExit(3)

    engine = Stub()
    with pytest.raises(SystemExit):
        await map(["a", "b"], engine=engine, concurrency=1, on_progress=leave)
    assert (engine.is_closed, len(engine.works)) == (True, 1)


@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_a_call_that_asyncio_cancels_while_it_begins_gives_the_journal_back(
    anyio_backend: str, tmp_path: Path
) -> None:
    asked, given = Event(), Event()

    def tasks() -> Iterator[str]:
        asked.set()
        given.wait(30)
        yield "a"

    journal = tmp_path / "run.db"
    call = asyncio.ensure_future(map(tasks(), engine=Stub(), journal=journal).finish())
    await until(asked.is_set)
    call.cancel()
    await anyio.lowlevel.checkpoint()
    given.set()
    with pytest.raises(asyncio.CancelledError):
        await call
    assert [outcome.text for outcome in await map(["a"], engine=Stub(), journal=journal)] == ["did a"]


async def test_a_run_that_waits_at_the_gate_can_be_drained() -> None:
    gate, engine = Gate(), Stub()
    await gate.pause(4_000_000_000, "the limit of the account")
    async with map(["a", "b"], engine=engine, gate=gate) as run:
        await until(lambda: run.progress.waiting_until is not None)
        assert run.progress.waiting_for == "the limit of the account"
        run.drain()
        with anyio.fail_after(20):
            assert [outcome.status async for outcome in run] == ["skipped", "skipped"]
    assert engine.works == []


async def test_a_run_is_used_once_and_inside_its_block() -> None:
    run = map(["a"], engine=Stub())
    with pytest.raises(UsageError, match="has not begun"):
        await anext(run)
    assert len(await run) == 1
    with pytest.raises(UsageError, match="begun before"):
        await run


# Journals.


async def test_the_same_call_goes_on_with_its_journal(tmp_path: Path) -> None:
    journal, tasks = tmp_path / "run.db", [f"task {number}" for number in range(6)]
    async with map(tasks, engine=Stub(), concurrency=1, journal=journal) as run:
        await anext(run)
        run.drain()
        early = 1 + len([outcome async for outcome in run if outcome.is_done])
    engine = Stub()
    outcomes = await map(tasks, engine=engine, journal=journal)
    assert [outcome.text for outcome in outcomes] == [f"did {task}" for task in tasks]
    assert len(engine.works) == 6 - early
    # There is nothing left to do.
    idle = Stub()
    assert [outcome.text for outcome in await map(tasks, engine=idle, journal=journal)] == [
        outcome.text for outcome in outcomes
    ]
    assert idle.works == []


async def test_only_what_is_not_done_is_retried(tmp_path: Path) -> None:
    async def attempt(work: Assignment, tell: Tell) -> Attempted:
        if work.number == 1 and work.attempt == 1:
            return Attempted(status="failed", error=TurnFailed(), usage=CENT, session_id=work.session_id)
        return await answer(work, tell)

    journal = tmp_path / "run.db"
    first = await map(["a", "b"], engine=Stub(attempt), journal=journal)
    assert [outcome.status for outcome in first] == ["done", "failed"]
    assert len(await resume(journal, engine=Stub(attempt))) == 2
    engine = Stub(attempt)
    again = await resume(journal, engine=engine, retry_failed=True)
    assert [(outcome.status, outcome.attempts) for outcome in again] == [("done", 1), ("done", 2)]
    assert again[1].usage == CENT + CENT
    (work,) = engine.works
    # From the start, in a session of its own.
    assert (work.id, work.is_picked_up) == (first[1].id, False)
    assert work.session_id != first[1].session_id


async def test_two_runners_cannot_have_one_journal(tmp_path: Path) -> None:
    journal, doors = tmp_path / "run.db", Doors()
    async with map(["a"], engine=Stub(doors.attempt), journal=journal) as run:
        with pytest.raises(JournalBusy):
            await resume(journal, engine=Stub())
        with pytest.raises(JournalBusy):
            await map(["a"], engine=Stub(), journal=journal)
        doors.open("a")
        assert [outcome.text async for outcome in run] == ["did a"]


async def test_what_is_not_there_is_not_resumed_and_not_made(tmp_path: Path) -> None:
    with pytest.raises(JournalInvalid, match="no such file"):
        await resume(tmp_path / "rum.db", engine=Stub())
    assert list(tmp_path.iterdir()) == []  # noqa: ASYNC240 - a moment


# Money.


async def test_when_the_budget_is_gone_the_rest_is_over_budget(tmp_path: Path) -> None:
    async def spend(work: Assignment, tell: Tell) -> Attempted:
        assert engine.shared is not None
        assert engine.shared.budget is not None
        engine.shared.budget.charge(Spent(usd=0.01))
        return await answer(work, tell)

    journal, tasks = tmp_path / "run.db", [f"task {number}" for number in range(700)]
    engine, budget = Stub(spend), Budget(usd=0.03)
    outcomes = await map(tasks, engine=engine, concurrency=1, budget=budget, journal=journal)
    assert [outcome.status for outcome in outcomes] == ["done"] * 3 + ["over_budget"] * 697
    assert outcomes[-1].error_kind == "LimitReached"
    assert "budget.usd" in (outcomes[-1].error or "")
    # A new budget is told what was spent before; one that saw it is not told twice.
    engine = Stub(spend)
    fresh = Budget(usd=0.05)
    again = await resume(journal, engine=engine, concurrency=1, budget=fresh, retry_failed=True)
    assert len(engine.works) == 2
    assert [outcome.status for outcome in again].count("done") == 5
    await resume(journal, engine=Stub(spend), budget=fresh)
    assert fresh.spent.usd == pytest.approx(0.05)


async def test_the_folder_of_what_was_cut_off_and_is_over_budget_now_is_gone(tmp_path: Path) -> None:
    async def work_there(work: Assignment, tell: Tell) -> Attempted:
        assert work.root is not None
        assert work.workspace is not None
        tell(Note(workspace=str(work.workspace.make(work.id, Path(work.root)))))
        await anyio.sleep_forever()
        raise AssertionError

    journal, engine = tmp_path / "run.db", Stub(work_there)
    tasks = [Task("a", id="a"), Task("b", id="b", workspace=Empty(keep="failed"))]
    async with map(tasks, engine=engine, journal=journal, workspace=Empty()):
        await until(lambda: engine.running == 2)
    budget = Budget(usd=1)
    budget.charge(Spent(usd=2))
    a, b = await resume(journal, engine=Stub(), budget=budget, workspace=Empty())
    root = tmp_path / "run.db.workspaces"
    assert (a.status, a.workspace, b.status, b.workspace) == (
        "over_budget",
        None,
        "over_budget",
        str(root / "b"),
    )
    assert list(root.iterdir()) == [root / "b"]


# What is shown.


async def test_progress_tells_what_is_so(tmp_path: Path) -> None:
    doors, seen = Doors(), list[Progress]()

    def look(progress: Progress) -> None:
        seen.append(progress)
        raise LookupError("this is nobody's business")

    async def attempt(work: Assignment, tell: Tell) -> Attempted:
        tell(Note(usage=Usage(input_tokens=7), session_id="another", worker="node"))
        return await doors.attempt(work, tell)

    engine = Stub(attempt)
    async with map(["a", "b", "c"], engine=engine, concurrency=2, on_progress=look) as run:
        await until(lambda: engine.running == 2)
        now = run.progress
        assert (now.total, now.running, now.ended, now.tokens, now.seconds_left) == (3, 2, 0, 14, None)
        assert [(each.attempt, each.session_id, each.worker) for each in now.current] == [
            (1, "another", "node"),
            (1, "another", "node"),
        ]
        doors.open("a", "b", "c")
        async for _ in run:
            pass
    last = seen[-1]
    assert (last.done, last.running, last.tokens) == (3, 0, 45)
    assert last.cost_usd == pytest.approx(0.03)
    assert last.rate_per_minute > 0
    assert last.seconds_left == 0


async def test_an_error_of_a_task_is_kept_with_its_kind() -> None:
    error = TurnFailed(message="It did not work", hint="Do better.")

    async def attempt(work: Assignment, tell: Tell) -> Attempted:
        return Attempted(status="failed", text="so far", error=error, session_id="s")

    (outcome,) = await map([Task("a", tags={"lang": "de"})], engine=Stub(attempt))
    assert isinstance(error, OutriderError)
    assert (outcome.error, outcome.error_kind) == (str(error), "TurnFailed")
    assert (outcome.text, outcome.session_id, outcome.tags) == ("so far", "s", {"lang": "de"})


async def test_a_cluster_that_is_lost_ends_the_run_and_no_task(tmp_path: Path) -> None:
    async def attempt(work: Assignment, tell: Tell) -> Attempted:
        if work.number == 2:
            raise ClusterNotFound("head:6379", "gone")
        return await answer(work, tell)

    path = tmp_path / "run.db"
    with anyio.fail_after(20):
        with pytest.raises(ClusterNotFound):
            await map(["a", "b", "c", "d"], engine=Stub(attempt), concurrency=1, journal=path)
        outcomes = await resume(path, engine=Stub())
    assert [outcome.status for outcome in outcomes] == ["done"] * 4
    assert [outcome.attempts for outcome in outcomes] == [1, 1, 2, 1]


async def test_an_engine_may_say_how_many_tasks_it_wants() -> None:
    class Sized(Stub):
        async def slots(self) -> int:
            return 7

    doors = Doors()
    engine, prompts = Sized(doors.attempt), [f"{number}" for number in range(9)]
    async with map(prompts, engine=engine) as run:
        while engine.running < 7:
            await anyio.lowlevel.checkpoint()
        assert run.progress.concurrency == 7
        doors.open(*prompts)
        assert len([outcome async for outcome in run]) == 9
    assert engine.most == 7
    fixed = Sized()
    await map(prompts, engine=fixed, concurrency=1)
    assert fixed.most == 1

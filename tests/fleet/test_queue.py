"""A journal in PostgreSQL that workers share: who has a task, who may write, and what they have in common."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import partial
from threading import Thread
from typing import Any, TypeVar
from uuid import uuid4

import anyio
import psycopg
import pytest
from anyio.lowlevel import checkpoint
from anyio.to_thread import run_sync

from outrider.errors import OptionsError, StoreError
from outrider.fleet import (
    Budget,
    Counts,
    Gate,
    Journal,
    JournalInvalid,
    Ledger,
    LedgerEntry,
    Outcome,
    Restart,
    Task,
    map,  # noqa: A004
    resume,
    submit,
)
from outrider.fleet._budget.budget import Spent
from outrider.fleet._engine import Assignment, Attempted, Tell
from outrider.fleet._journal.journal import Begun, Change, Finished, Noted, TasksLost
from outrider.fleet._journal.postgres import PostgresJournal
from tests.fleet.stub_engine import CENT, Doors, Stub, answer
from tests.transcripts.stores import servers
from tests.transcripts.stores.proxy import Proxy
from tests.transcripts.stores.test_postgres import open_connections

T = TypeVar("T")


def ended(id: str, **fields: Any) -> Outcome[Any]:
    return Outcome(id=id, ended_at=1.0, attempts=1, **fields)


@pytest.fixture
def place() -> str:
    """A batch of its own."""
    return f"{servers.postgres().url()}?batch={uuid4().hex}&lease=30"


class Workers:
    """Workers of one journal, all in this process."""

    def __init__(self, place: str, stack: ExitStack) -> None:
        self.place = place
        self._stack = stack

    def join(self) -> PostgresJournal:
        journal = PostgresJournal(self.place, writing=True)
        self._stack.enter_context(journal)
        journal.join()
        return journal

    def sql(self, statement: str, *values: object) -> None:
        address = self.place.partition("?")[0]
        with psycopg.connect(address, autocommit=True) as link:
            link.execute(statement.encode(), values)

    def expire(self, worker: PostgresJournal) -> None:
        """As if its lease had run out."""
        self.sql(
            "UPDATE outrider_fleet_workers SET leased_until = now() - interval '1 s', lease = '0 s'"
            " WHERE id = %s",
            worker.worker,
        )


@pytest.fixture
def workers(place: str) -> Iterator[Workers]:
    with ExitStack() as stack:
        yield Workers(place, stack)


def put(workers: Workers, *ids: str) -> None:
    with PostgresJournal(workers.place, writing=True) as journal:
        journal.add((number, Task(f"do {id}", id=id)) for number, id in enumerate(ids))


def test_each_task_is_taken_by_one_worker_and_ends_once(workers: Workers) -> None:
    put(workers, "a", "b", "c")
    one, two = workers.join(), workers.join()
    assert [entry.task.id for entry in one.take(2).entries] == ["a", "b"]
    taken = two.take(2)
    assert [entry.task.id for entry in taken.entries] == ["c"]
    assert not two.take().entries
    # Only who has a task may write to it.
    assert two.write([Begun("a", 1, "two"), Noted("a", usage=CENT), Finished(ended("a"))]) == [False] * 3
    assert one.write([Begun("a", 1, "one", "s"), Noted("a", usage=CENT, tool_calls=2)]) == [True] * 2
    assert one.write([Finished(ended("a", text="one"), CENT, 2, 5.0)]) == [True]
    assert one.write([Finished(ended("a", text="two"), CENT, 2, 5.0)]) == [False]
    # The answer was lost on the way, and it is written again.
    assert one.write([Finished(ended("a", text="one"), CENT, 2, 5.0)]) == [True]
    pulse = two.sync()
    assert (pulse.total, pulse.counts, pulse.mine) == (3, Counts(done=1), Spent())
    assert pulse.spent == Spent(0.01, 15, 2, 5.0)
    with Journal(workers.place) as reader:
        assert [outcome.text for outcome in reader.outcomes()] == ["one"]
        assert reader.counts() == Counts(pending=2, done=1)
        assert reader.spent() == pulse.spent
        assert (reader.runner() or "").count("(1)") == 2


def test_the_tasks_of_a_lost_worker_go_to_others_and_what_it_writes_is_refused(workers: Workers) -> None:
    put(workers, "a", "b", "c")
    lost, other = workers.join(), workers.join()
    lost.take(2)
    lost.write([Begun("a", 1, "lost", "its session"), Noted("a", usage=CENT, tool_calls=1)])
    workers.expire(lost)
    (first,) = other.take().entries
    # What was begun goes first, with its session and what it has spent.
    assert (first.task.id, first.attempts, first.session_id) == ("a", 1, "its session")
    assert (first.usage, first.tool_calls) == (CENT, 1)
    assert [entry.task.id for entry in other.take(5).entries] == ["b", "c"]
    assert lost.write([Noted("a", usage=CENT + CENT), Finished(ended("a", text="late"))]) == [False] * 2
    for call in (lost.take, lost.sync):
        with pytest.raises(TasksLost, match="The lease on"):
            call()
    # It comes back as another.
    lost.join()
    assert not lost.take().entries
    other.write([Begun("a", 2, "other", "its session"), Finished(ended("a"), CENT, 0, 1.0)])
    assert lost.sync().spent == Spent(0.02, 30, 1, 1.0)


def test_a_worker_that_leaves_frees_what_it_had(workers: Workers) -> None:
    put(workers, "a")
    one, two = workers.join(), workers.join()
    one.take()
    assert not two.take().entries
    one.close()
    assert [entry.task.id for entry in two.take().entries] == ["a"]
    two.write([Begun("a", 1, "two"), Finished(ended("a"), CENT, 0, 1.0)])
    assert two.take().is_over


def test_a_task_whose_answer_was_lost_is_found_again(workers: Workers) -> None:
    put(workers, "a", "b")
    one = workers.join()
    one.take()
    # As after a connection that broke when the task was given.
    one._held.clear()
    one._may_hold_more = True
    assert [entry.task.id for entry in one.take().entries] == ["a"]
    assert [entry.task.id for entry in one.take().entries] == ["b"]


@pytest.mark.parametrize("of, size", [("requests", 4000), ("replies", 1600)])
def test_a_task_is_given_and_ends_once_wherever_the_connection_breaks(
    workers: Workers, of: str, size: int
) -> None:
    server = servers.postgres()
    cuts = range(0, size, size // 25)
    names = [f"{number}" for number in range(len(cuts))]
    put(workers, *names)
    given: list[str] = []
    with Proxy(server.port) as proxy:
        one = PostgresJournal(workers.place.replace(f":{server.port}/", f":{proxy.port}/"), writing=True)
        with one:
            one.join()
            for cut in cuts:
                proxy.cut_after(cut, of=of)
                ids = [entry.task.id for entry in until_it_works(one.take).entries]
                given += ids
                for id in ids:
                    changes: list[list[Change]] = [
                        [Begun(id, 1, "one", "s")],
                        [Noted(id, usage=CENT, tool_calls=1)],
                        [Finished(ended(id, text="one"), CENT, 1, 1.0)],
                    ]
                    for change in changes:
                        assert until_it_works(partial(one.write, change)) == [True]
            pulse = until_it_works(one.sync)
        assert proxy.cuts >= len(cuts) / 2
    assert sorted(given) == sorted(names)
    assert pulse.counts == Counts(done=len(names))
    assert pulse.spent.usd == pytest.approx(0.01 * len(names))
    assert (pulse.spent.tokens, pulse.spent.tool_calls) == (15 * len(names), len(names))


def until_it_works(call: Callable[[], T]) -> T:
    """As a run calls its journal."""
    while True:
        try:
            return call()
        except JournalInvalid as error:
            if not error.retryable:
                raise


@pytest.mark.anyio
async def test_journals_and_ledgers_of_a_process_share_connections(workers: Workers) -> None:
    name = f"n{uuid4().hex[:10]}"
    address = f"{workers.place.partition('?')[0]}?application_name={name}"
    with psycopg.connect(servers.postgres().url(), autocommit=True) as database, ExitStack() as stack:
        places = [f"{address}&batch={name}{number}" for number in range(30)]
        journals = [stack.enter_context(Journal(place, writing=True)) for place in places]
        ledgers = [Ledger(address) for _ in range(30)]
        with anyio.fail_after(60):
            async with anyio.create_task_group() as tasks:
                for journal, ledger in zip(journals, ledgers, strict=True):
                    tasks.start_soon(run_sync, journal.set_meta, "a", "b")
                    tasks.start_soon(ledger.add, LedgerEntry(session_id="s", usage=CENT))
            assert 1 <= open_connections(database, name) <= 8
            stack.close()
            for ledger in ledgers:
                await ledger.close()
            while open_connections(database, name):
                await checkpoint()


def test_a_worker_that_leaves_keeps_no_task_that_it_is_just_given(workers: Workers) -> None:
    put(workers, "a")
    one, two = workers.join(), workers.join()
    address = workers.place.partition("?")[0]
    with psycopg.connect(address) as server, psycopg.connect(address, autocommit=True) as look:
        # As in the server when the connection broke before the answer: the call goes on there.
        server.execute("UPDATE outrider_fleet_workers SET lease = lease WHERE id = %s", (one.worker,))
        server.execute(
            "UPDATE outrider_fleet_tasks SET holder = %s WHERE batch = %s", (one.worker, one.batch)
        )
        leaving = Thread(target=one.close)
        leaving.start()
        blocked = "SELECT FROM pg_stat_activity WHERE %s = ANY (pg_blocking_pids(pid))"
        while look.execute(blocked, (server.info.backend_pid,)).fetchone() is None:
            time.sleep(0.01)
        server.commit()
        leaving.join()
    assert [entry.task.id for entry in two.take().entries] == ["a"]


def test_workers_go_on_while_tasks_are_added_slowly(workers: Workers) -> None:
    put(workers, "a")
    one, two = workers.join(), workers.join()
    assert one.take().entries
    workers.expire(one)

    def slowly() -> Iterator[tuple[int, Task]]:
        yield 0, Task("new", id="b")
        # A worker was lost, and its part of the sums is the batch's now.
        assert [entry.task.id for entry in two.take().entries] == ["a"]

    with PostgresJournal(workers.place, writing=True) as journal:
        assert journal.add(slowly(), append=True) == 1
    assert [entry.task.id for entry in two.take().entries] == ["b"]


def test_after_a_restart_of_the_server_every_worker_has_time_to_come_back(workers: Workers) -> None:
    put(workers, "a")
    one, two = workers.join(), workers.join()
    one.take()
    servers.postgres().restart()
    workers.sql(
        "UPDATE outrider_fleet_workers SET leased_until = now() - interval '1 min' WHERE id = %s", one.worker
    )
    assert not two.take().entries
    one.sync()


def test_what_failed_is_begun_anew_and_counted_once(workers: Workers) -> None:
    put(workers, "a", "b", "c")
    one = workers.join()
    one.take(3)
    for id, status in (("a", "failed"), ("b", "done"), ("c", "waiting")):
        one.write(
            [Begun(id, 1, "one", "s"), Finished(ended(id, status=status, session_id="s"), CENT, 0, 1.0)]
        )
    assert one.sync().counts == Counts(done=1, failed=1, waiting=1)
    assert one.reopen(("failed", "over_budget")) == 1
    one.take_up_waiting()
    assert one.sync().counts == Counts(done=1)
    (first,), (second,) = one.take().entries, one.take().entries
    assert (first.task.id, first.session_id) == ("c", "s")
    assert (second.task.id, second.session_id, second.attempts) == ("a", None, 1)


def test_tasks_are_added_all_or_none_again_or_behind_the_others(workers: Workers) -> None:
    with PostgresJournal(workers.place, writing=True) as journal:
        tasks = [(number, Task(f"do {number}").placed(number)) for number in range(600)]
        assert journal.add(tasks) == 600
        assert journal.add(tasks) == 0
        with pytest.raises(OptionsError, match=r"`tasks\[1\]` differs from the task"):
            journal.add([(600, Task("new").placed(600)), (1, Task("another").placed(1))])
        with pytest.raises(OptionsError, match=r"`tasks\[700\]` has the id of `tasks\[5\]`"):
            journal.add([(700, tasks[5][1])])
        assert journal.counts().total == 600
        assert journal.add([(0, Task("do 0")), (1, Task("x", id="x"))], append=True) == 2
        assert journal.add([(0, Task("x", id="x"))], append=True) == 0
        assert [entry.number for entry in journal.pending()] == list(range(602))


HOSTILE = ["'; DROP TABLE outrider_fleet_tasks; --", "nul \0 in it", "%s %(id)s", "\u202e\ud7ff", "é" * 9000]


@pytest.mark.parametrize("text", HOSTILE)
def test_no_text_of_a_task_does_harm(workers: Workers, text: str) -> None:
    prompt = text.replace("\0", "")
    id = prompt[:200]
    with PostgresJournal(workers.place, writing=True) as journal:
        journal.add([(0, Task(prompt, id=id, tags={"t": prompt}))])
        journal.set_meta("command", text)
    one = workers.join()
    (entry,) = one.take().entries
    assert (entry.task.prompt, entry.task.id) == (prompt, id)
    one.write(
        [Begun(id, 1, text, text), Noted(id, workspace=text), Finished(ended(id, text=text, error=text))]
    )
    assert [outcome.text for outcome in one.outcomes()] == [text]
    assert one.meta("command") == text


@pytest.mark.parametrize(
    "url, said",
    [
        ("postgresql://127.0.0.1:1/x?timeout=2", "refused"),
        ("postgresql://[", "is not the address of a PostgreSQL database"),
        ("postgresql://\x9b.example/d", "invalid address"),
        ("postgresql://h/d?batch=a%20b", "`batch` is 'a b'"),
        ("postgresql://h/d?lease=0", "`lease` is '0'"),
        ("postgresql://h/d?pool_size=0", "`pool_size` is 0"),
        ("postgresql://h/d?batch=a&batch=b", "appears twice"),
    ],
)
def test_an_address_that_cannot_be_used_is_told_at_once(url: str, said: str) -> None:
    with pytest.raises((OptionsError, JournalInvalid), match=said), Journal(url):
        pass


def test_what_is_no_journal_is_told(workers: Workers) -> None:
    with pytest.raises(JournalInvalid, match=r"there is no (batch|journal)"), Journal(workers.place):
        pass
    missing = workers.place.replace("/postgres?", "/nowhere?")
    with pytest.raises(JournalInvalid, match="createdb nowhere"), Journal(missing, writing=True):
        pass
    wrong = workers.place.replace("made-up-word", "another-word")
    with (
        pytest.raises(JournalInvalid, match="check user and password") as caught,
        Journal(wrong, writing=True),
    ):
        pass
    assert "another-word" not in str(caught.value)
    schema = f"s{uuid4().hex[:8]}"
    with Journal(f"{workers.place}&schema={schema}", writing=True):
        pass
    workers.sql(f"UPDATE {schema}.outrider_fleet_version SET version = 99")
    with (
        pytest.raises(JournalInvalid, match="of version 99, and this Outrider knows up to 1"),
        Journal(f"{workers.place}&schema={schema}", writing=True),
    ):
        pass


@pytest.mark.anyio
async def test_a_ledger_in_a_database_has_each_entry_once(workers: Workers) -> None:
    schema = f"s{uuid4().hex[:8]}"
    url = f"{workers.place.partition('?')[0]}?schema={schema}"
    async with Ledger(url) as one, Ledger(url) as two:
        entry = LedgerEntry(session_id="s", usage=CENT, tags={"team": "it's %s"})
        await one.add(entry)
        await two.add(entry)
        await two.add(LedgerEntry(session_id="t", usage=CENT, at=5.0))
        assert [each.session_id for each in await one.entries()] == ["s", "t"]
        assert await one.entries(session_id="s") == [entry]
        assert len(await one.entries(since=10.0)) == 1
        assert (await two.totals("tag:team"))["it's %s"] == CENT
        assert "made-up-word" not in repr(one)
    async with Ledger(url.replace("made-up-word", "another-word")) as wrong:
        with pytest.raises(StoreError, match="check user and password"):
            await wrong.add(entry)


# Runs.


@pytest.mark.anyio
async def test_two_runs_share_the_tasks_and_each_gives_its_own(place: str) -> None:
    assert await submit([f"task {number}" for number in range(20)], place) == 20
    mine: dict[str, list[int]] = {}

    async def work(name: str) -> None:
        async with resume(place, engine=Stub(), concurrency=2) as run:
            mine[name] = [outcome.number async for outcome in run]
            assert run.progress.done == 20

    with anyio.fail_after(60):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(work, "one")
            tasks.start_soon(work, "two")
    assert sorted(mine["one"] + mine["two"]) == list(range(20))
    # To await it gives all.
    outcomes = await map([f"task {number}" for number in range(20)], journal=place, engine=Stub())
    assert [outcome.text for outcome in outcomes] == [f"did task {number}" for number in range(20)]


@pytest.mark.anyio
async def test_a_worker_whose_lease_ran_out_ends_what_it_runs_and_takes_other_tasks(workers: Workers) -> None:
    put(workers, "a", "b")
    doors, engine = Doors(), Stub()
    engine._attempt = doors.attempt
    place = workers.place.replace("lease=30", "lease=1")
    with anyio.fail_after(60):
        async with resume(place, engine=engine, concurrency=1) as run:
            while not engine.running:  # noqa: ASYNC110
                await anyio.sleep(0.01)
            # It was stopped for longer than its lease, and another worker was faster.
            mine: Any = run.journal
            workers.expire(mine)
            other = workers.join()
            assert [entry.task.id for entry in other.take().entries] == ["a"]
            doors.open("do b")
            assert (await anext(run)).id == "b"
            other.write([Begun("a", 2, "other"), Finished(ended("a", text="of the other"), CENT, 0, 1.0)])
            assert [outcome async for outcome in run] == []
        assert engine.running == 0
    assert [work.id for work in engine.works] == ["a", "b"]


@pytest.mark.anyio
async def test_a_task_that_ends_its_workers_is_given_up(workers: Workers) -> None:
    put(workers, "good", "bad", "taken")
    for count in range(1, 4):
        worker = workers.join()
        (bad,) = [entry for entry in worker.take(3).entries if entry.task.id == "bad"]
        assert bad.losses == count - 1
        # The others were taken, and not begun.
        worker.write([Begun("bad", count, "here")])
        workers.expire(worker)
    seen: list[str] = []

    async def attempt(work: Assignment, tell: Tell) -> Attempted:
        seen.append(work.id)
        return await answer(work, tell)

    limits: Any = {"restart": Restart(max=2), "engine": Stub(attempt)}
    with anyio.fail_after(60):
        outcomes = {outcome.id: outcome for outcome in await resume(workers.place, **limits)}
        assert [outcomes[id].status for id in ("good", "bad", "taken")] == ["done", "failed", "done"]
        assert outcomes["bad"].error_kind == "WorkerLost"
        assert "3 workers were lost while they ran the task" in (outcomes["bad"].error or "")
        # It is begun anew when somebody says so.
        await resume(workers.place, retry_failed=True, **limits)
    assert sorted(seen) == ["bad", "good", "taken"]


@pytest.mark.anyio
async def test_a_task_that_lacks_a_secret_fails_and_ends_no_worker_that_stays(
    place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = place.replace("lease=30", "lease=1")
    secret = {"env": {"MY_TOKEN": "sk-ant-made-up"}}
    with anyio.fail_after(60):
        async with resume(place, engine=Stub(), stay=True) as run:
            await submit([Task("one", id="one", options=secret), Task("two", id="two")], place, append=True)
            outcomes = {outcome.id: outcome for outcome in [await anext(run), await anext(run)]}
            run.drain()
    assert (outcomes["one"].status, outcomes["one"].error_kind) == ("failed", "OptionsError")
    assert "had a secret as `env.MY_TOKEN`" in (outcomes["one"].error or "")
    assert outcomes["two"].status == "done"
    monkeypatch.setenv("MY_TOKEN", "sk-ant-made-up")
    again = await resume(place, engine=Stub(), retry_failed=True)
    assert [outcome.status for outcome in again] == ["done", "done"]


@pytest.mark.anyio
async def test_what_a_worker_has_spent_counts_once_after_its_lease_ran_out(workers: Workers) -> None:
    put(workers, *(f"{number}" for number in range(6)))
    budget, doors = Budget(usd=1.0), Doors()

    async def attempt(work: Assignment, tell: Tell) -> Attempted:
        attempted = await doors.attempt(work, tell)
        budget.charge(Spent.of(CENT))
        return attempted

    place = workers.place.replace("lease=30", "lease=1")
    with anyio.fail_after(60):
        async with resume(place, engine=Stub(attempt), concurrency=1, budget=budget) as run:
            mine: Any = run.journal
            doors.open("do 0", "do 1", "do 2")
            for _ in range(3):
                await anext(run)
            lost = mine.worker
            workers.expire(mine)
            workers.join().sync()
            while mine.worker == lost:  # noqa: ASYNC110
                await anyio.sleep(0.01)
            doors.open("do 3", "do 4", "do 5")
            assert len([outcome async for outcome in run]) == 3
    assert budget.spent.usd == pytest.approx(0.06)


@pytest.mark.anyio
async def test_a_budget_is_one_for_all_workers(place: str) -> None:
    await submit([f"task {number}" for number in range(60)], place)
    budgets = [Budget(usd=0.2), Budget(usd=0.2), Budget(usd=0.2)]

    async def work(budget: Budget) -> None:
        async def attempt(work: Assignment, tell: Tell) -> Attempted:
            budget.charge(Spent.of(CENT))
            return await answer(work, tell)

        async with resume(place, engine=Stub(attempt), concurrency=2, budget=budget) as run:
            async for _ in run:
                pass

    with anyio.fail_after(60):
        async with anyio.create_task_group() as tasks:
            for budget in budgets:
                tasks.start_soon(work, budget)
    with Journal(place) as journal:
        counts, spent = journal.counts(), journal.spent()
    assert counts.done + counts.over_budget == 60
    # Each task that was running when it was spent may end: two for each worker.
    assert 20 <= counts.done <= 20 + 6
    assert spent.usd == pytest.approx(0.01 * counts.done)
    # One that comes later has nothing left.
    late = Budget(usd=0.2)
    await resume(place, engine=Stub(), budget=late, retry_failed=True)
    with Journal(place) as journal:
        assert journal.counts() == counts


@pytest.mark.anyio
async def test_a_gate_that_one_worker_closes_stops_all(place: str) -> None:
    place = place.replace("lease=30", "lease=1")
    await submit(["one", "two"], place)
    gates = [Gate(jitter=0), Gate(jitter=0)]
    doors = Doors()
    with anyio.fail_after(60):
        async with (
            resume(place, engine=Stub(doors.attempt), concurrency=1, gate=gates[0]) as one,
            resume(place, engine=Stub(doors.attempt), concurrency=1, gate=gates[1]) as two,
        ):
            await gates[0].pause(time.time() + 3600, "the account is at its limit")
            while gates[1].is_open:  # noqa: ASYNC110
                await anyio.sleep(0.01)
            assert gates[1].why == "the account is at its limit"
            assert two.progress.waiting_for == "the account is at its limit"
            await gates[1].open()
            while not gates[0].is_open:  # noqa: ASYNC110
                await anyio.sleep(0.01)
            doors.open("one", "two")
            found = [outcome async for outcome in one] + [outcome async for outcome in two]
    assert sorted(outcome.text for outcome in found) == ["did one", "did two"]


@pytest.mark.anyio
async def test_a_run_pauses_while_its_journal_is_away(place: str) -> None:
    server, doors, seen = servers.postgres(), Doors(), list[str | None]()
    with anyio.fail_after(90):
        async with map(
            ["one", "two"],
            journal=place,
            engine=Stub(doors.attempt),
            concurrency=1,
            on_progress=lambda progress: seen.append(progress.away),
        ) as run:
            server.kill()
            try:
                doors.open("one", "two")
                while run.progress.away is None:  # noqa: ASYNC110
                    await anyio.sleep(0.01)
            finally:
                server.start()
            assert [outcome.text async for outcome in run] == ["did one", "did two"]
    assert any(away is not None and away.startswith("the journal is away") for away in seen)
    assert seen[-1] is None


@pytest.mark.anyio
async def test_a_worker_may_stay_for_tasks_that_come_later(place: str) -> None:
    place = place.replace("lease=30", "lease=1")
    with anyio.fail_after(60):
        async with resume(place, engine=Stub(), stay=True) as run:
            for number in range(3):
                await submit([Task("more", id=f"{number}")], place, append=True)
                assert (await anext(run)).id == f"{number}"
            run.drain()
            assert [outcome async for outcome in run] == []

"""What was added to a ledger is in it, once, whoever wrote to it at the time and however they ended."""

from __future__ import annotations

import json
import os
import sqlite3
import stat
import subprocess
import sys
import threading
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import anyio
import anyio.lowlevel
import pytest

from outrider.errors import LimitReached, OptionsError, StoreError
from outrider.fleet import Ledger, LedgerEntry
from outrider.fleet._budget.ledger import backlog_of
from outrider.session import Result, Session, Usage
from outrider.testing import Simulator, fail, say, subagent

pytestmark = pytest.mark.anyio

DEADLINE = 30.0
ONE_LOOP = pytest.mark.parametrize("anyio_backend", ["asyncio"])
"""For what the kind of loop does not matter to."""

BOTH = pytest.mark.parametrize("name", ["ledger.db", "ledger.jsonl"])

WRITER = """
import anyio, sys
from outrider.fleet._budget.ledger import Ledger, LedgerEntry
from outrider.session import Usage

async def main(path, name, count):
    ledger = Ledger(path)
    for number in range(int(count)):
        await ledger.add(LedgerEntry(id=f"{name}-{number}", session_id=name, usage=Usage(1, cost_usd=0.5)))
        print(f"{name}-{number}", flush=True)
    await ledger.close()

anyio.run(main, *sys.argv[1:])
"""
"""Adds entries, and says of each that it is added."""


def start_writer(path: Path, name: str, count: int) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", WRITER, str(path), name, str(count)], stdout=subprocess.PIPE, text=True
    )


@pytest.fixture
def ledger(tmp_path: Path, name: str) -> Iterator[Ledger]:
    ledger = Ledger(tmp_path / name)
    yield ledger
    anyio.run(ledger.close)


def entry(session: str = "s", **fields: Any) -> LedgerEntry:
    return LedgerEntry(session_id=session, **fields)


async def ids(ledger: Ledger) -> list[str]:
    return [each.id for each in await ledger.entries()]


# What it says.


@BOTH
async def test_its_sums_are_those_of_the_results(ledger: Ledger) -> None:
    asked = {"input_tokens": 7, "output_tokens": 3, "cache_read_input_tokens": 2}
    look = subagent("look there", say("nothing", usage=asked), model="haiku")
    agent = Simulator([say("one", usage=asked), look, say("two", usage=asked), fail(400), say("four")])
    results: list[Result[Any]] = []
    with anyio.fail_after(DEADLINE):
        async with Session(transport=agent, model="opus") as session:
            for number in range(4):
                turn = await session.send("go on")
                results.append(await turn.result(check=False))
                made = LedgerEntry.of(results[-1], tags={"half": str(number // 2)})
                assert made.turn == turn.uuid
                await ledger.add(made)
        entries = await ledger.entries()
        assert [each.outcome for each in entries] == ["success", "success", "ApiFailed", "success"]
        assert [each.usage for each in entries] == [result.usage for result in results]
        assert [each.duration for each in entries] == [result.duration for result in results]
        total: Usage = sum((result.usage for result in results), Usage())
        assert total.cost_usd > 0
        assert await ledger.totals() == {session.id: total}
        assert total == session.usage
        for by in ("model", "day", "tag:half", "tag:other"):
            parts = await ledger.totals(by)
            together: Usage = sum(parts.values(), Usage())
            assert together.total_tokens == total.total_tokens
            assert together.cost_usd == pytest.approx(total.cost_usd)
        assert await ledger.totals("model") == dict(sorted(total.by_model.items()))
        assert len(total.by_model) == 2
        assert (await ledger.totals("tag:half"))["0"] == results[0].usage + results[1].usage
        assert list(await ledger.totals("tag:other")) == [""]


@BOTH
@ONE_LOOP
async def test_entries_are_found_by_what_they_say(ledger: Ledger) -> None:
    opus, haiku = Usage(5, by_model={"opus": Usage(5)}), Usage(3, by_model={"haiku": Usage(3)})
    first = entry("a", at=1000, usage=opus, tags={"team": "red", "a=b": ""})
    second = entry("b", at=2000, usage=haiku, tags={"team": "blue=1"}, outcome="LimitReached")
    third = entry("a", at=90_000, usage=opus + haiku, duration=1.5, turn="t")
    with anyio.fail_after(DEADLINE):
        for each in (first, second, third):
            await ledger.add(each)
        assert await ledger.entries() == [first, second, third]
        assert await ledger.entries(session_id="a") == [first, third]
        assert await ledger.entries(session_id="c") == []
        assert await ledger.entries(model="haiku") == [second, third]
        assert await ledger.entries(tag="team") == [first, second]
        assert await ledger.entries(tag="team=red") == [first]
        assert await ledger.entries(tag="team=blue=1") == [second]
        assert await ledger.entries(since=2000) == [second, third]
        assert await ledger.entries(since=datetime.fromtimestamp(2001, UTC)) == [third]
        assert await ledger.entries(session_id="a", model="haiku", since=0.0) == [third]
        assert await ledger.totals("day") == {"1970-01-01": opus + haiku, "1970-01-02": opus + haiku}
        assert (await ledger.totals())["a"].input_tokens == 13
        bad: list[dict[str, Any]] = [{"since": "yesterday"}, {"tag": 5}, {"tag": ""}]
        for asked in bad:
            with pytest.raises(OptionsError, match=f"`{next(iter(asked))}` must be"):
                await ledger.entries(**asked)
        wrong: list[Any] = ["tags", "tag:", "", "team", None]
        for by in wrong:
            with pytest.raises(OptionsError, match="`by` must be"):
                await ledger.totals(by)
    assert (third.tokens, third.models, second.usd) == (8, ("opus", "haiku"), 0.0)


@ONE_LOOP
async def test_what_a_failed_turn_used_is_told(tmp_path: Path) -> None:
    error = LimitReached("budget.usd", 1, session_id="s")
    made = LedgerEntry.of(Result[object](usage=Usage(5), error=error, session_id="s"), turn="t")
    assert (made.outcome, made.tokens, made.session_id, made.turn) == ("LimitReached", 5, "s", "t")
    assert LedgerEntry.of(Result[object]()).outcome == "TurnFailed"


@ONE_LOOP
async def test_what_no_model_is_known_of_is_not_forgotten(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path / "ledger.jsonl")
    part, rest = Usage(5, 1, cost_usd=0.1, by_model={"opus": Usage(5, 1, cost_usd=0.1)}), Usage(2, cost_usd=1)
    await ledger.add(entry(usage=part + rest))
    await ledger.add(entry(usage=rest))
    await ledger.add(entry())
    assert await ledger.totals("model") == {"": rest + rest, "opus": part.by_model["opus"]}


# What happens to it.


@BOTH
@ONE_LOOP
async def test_nothing_is_made_before_something_is_added(ledger: Ledger) -> None:
    with anyio.fail_after(DEADLINE):
        assert await ledger.entries() == []
        assert await ledger.totals("model") == {}
        assert not ledger.path.exists()
        await ledger.add(entry())
        assert stat.S_IMODE(ledger.path.stat().st_mode) == 0o600
        await ledger.close()
        await ledger.close()
        # It is opened again by itself.
        await ledger.add(entry())
        assert len(await ledger.entries()) == 2


@BOTH
async def test_an_entry_that_is_added_again_counts_once(ledger: Ledger) -> None:
    made = entry(usage=Usage(5))
    with anyio.fail_after(DEADLINE):
        for _ in range(3):
            await ledger.add(made)
        await Ledger(f"{ledger.path}").add(made)
        assert await ledger.totals() == {"s": Usage(5)}


@BOTH
async def test_many_tasks_and_threads_add_to_it(ledger: Ledger) -> None:
    made = [entry(id=f"{number}", usage=Usage(1)) for number in range(60)]

    def add_in_a_loop_of_its_own() -> None:
        async def add() -> None:
            for each in made[40:]:
                await ledger.add(each)

        anyio.run(add)

    with anyio.fail_after(DEADLINE):
        thread = threading.Thread(target=add_in_a_loop_of_its_own)
        thread.start()
        async with anyio.create_task_group() as tasks:
            for each in made[:40]:
                tasks.start_soon(ledger.add, each)
        await anyio.to_thread.run_sync(thread.join)
        assert sorted(await ids(ledger), key=int) == [each.id for each in made]


@BOTH
def test_several_processes_add_to_it_and_one_is_killed(tmp_path: Path, name: str) -> None:
    ledger = Ledger(tmp_path / name)
    patient = [start_writer(ledger.path, f"w{number}", 40) for number in range(2)]
    victim = start_writer(ledger.path, "victim", 100_000)
    assert victim.stdout is not None
    told = [victim.stdout.readline().strip() for _ in range(20)]
    victim.kill()
    told += [line.strip() for line in victim.stdout if line.endswith("\n")]
    victim.communicate(timeout=DEADLINE)
    for process in patient:
        output, _ = process.communicate(timeout=DEADLINE)
        assert process.returncode == 0
        told += output.split()

    async def look() -> None:
        found = await ids(ledger)
        assert len(found) == len(set(found))
        # What was added and not told of any more may be there.
        assert len(set(told) - set(found)) == 0
        assert len(set(found) - set(told)) <= 1
        assert (await ledger.totals())["w1"] == Usage(40, cost_usd=20.0)
        await ledger.add(entry(id="after"))
        assert (await ids(ledger))[-1] == "after"
        await ledger.close()

    anyio.run(look)


@pytest.mark.parametrize("end", [1, 10, -2, -1])
@ONE_LOOP
async def test_a_line_that_was_cut_off_takes_nothing_else_with_it(
    tmp_path: Path, end: int, caplog: pytest.LogCaptureFixture
) -> None:
    ledger = Ledger(tmp_path / "ledger.jsonl")
    with anyio.fail_after(DEADLINE):
        for name in ("a", "b", "lost"):
            await ledger.add(entry(id=name))
        lines = ledger.path.read_bytes().splitlines(keepends=True)
        ledger.path.write_bytes(b"".join([*lines[:2], lines[2][:end]]))
        assert await ids(ledger) == ["a", "b"]
        assert not caplog.records
        await ledger.add(entry(id="c"))
        # Only the line end was missing: then all of it is there.
        whole = ["lost"] if end == -1 else []
        assert await ids(ledger) == ["a", "b", *whole, "c"]
        assert ["damaged" in record.message for record in caplog.records] == [True] * (not whole)


@pytest.mark.parametrize(
    "line", [b"\xff\xfe", b"{}x", b"[]", b'{"usage": 5}', b'{"tags": {"a": 1}}', b"null", b"\0" * 100]
)
@ONE_LOOP
async def test_a_damaged_line_is_left_out_with_a_warning(
    tmp_path: Path, line: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    ledger = Ledger(tmp_path / "ledger.jsonl")
    with anyio.fail_after(DEADLINE):
        await ledger.add(entry(id="a"))
        with ledger.path.open("ab") as file:
            file.write(line + b"\n\n")
        await ledger.add(entry(id="b"))
        assert await ids(ledger) == ["a", "b"]
    assert "entry 2" in caplog.text


@ONE_LOOP
async def test_fields_of_a_later_version_are_no_damage(tmp_path: Path) -> None:
    path = tmp_path / "ledger.jsonl"
    path.write_text(json.dumps({"id": "a", "at": 1.0, "mood": "good", "usage": {"joules": 5}}) + "\n")
    assert await ids(Ledger(path)) == ["a"]


@ONE_LOOP
async def test_a_database_can_be_asked_by_others(tmp_path: Path) -> None:
    ledger = Ledger(f"sqlite:///{tmp_path}/account.of.all")
    await ledger.add(entry("a", usage=Usage(3, cost_usd=0.5), tags={"team": "red"}))
    await ledger.add(entry("b", usage=Usage(4, cost_usd=1.5), outcome="ApiFailed"))
    with sqlite3.connect(ledger.path) as connection:
        [row] = connection.execute("SELECT sum(usd), sum(tokens), group_concat(outcome) FROM entries")
        assert row == (2.0, 7, "success,ApiFailed")
        [[team]] = connection.execute("SELECT data ->> '$.tags.team' FROM entries WHERE session = 'a'")
        assert team == "red"
    connection.close()
    await ledger.close()


def of_another_program(path: Path) -> None:
    with sqlite3.connect(path) as connection:
        connection.execute("CREATE TABLE notes (text)")
    connection.close()


def of_a_later_version(path: Path) -> None:
    async def add() -> None:
        async with Ledger(path) as ledger:
            await ledger.add(entry())

    anyio.run(add)
    with sqlite3.connect(path) as connection:
        connection.execute("PRAGMA user_version = 99")
    connection.close()


DAMAGE: dict[str, Any] = {
    "database belongs to another program": of_another_program,
    "version 99": of_a_later_version,
    "not a database": lambda path: path.write_bytes(b"not a database" * 100),
    "directory|unable to open": lambda path: path.mkdir(),
}


@pytest.mark.parametrize("why", DAMAGE)
def test_a_file_that_is_no_ledger_is_left_as_it_is(tmp_path: Path, why: str) -> None:
    path = tmp_path / "ledger.db"
    DAMAGE[why](path)
    before = path.read_bytes() if path.is_file() else None

    async def use() -> None:
        ledger = Ledger(path)
        with pytest.raises(StoreError, match=why):
            await ledger.add(entry())
        with pytest.raises(StoreError, match=why):
            await ledger.entries()
        await ledger.close()

    anyio.run(use)
    assert before == (path.read_bytes() if path.is_file() else None)


@BOTH
@ONE_LOOP
async def test_a_folder_that_is_not_there_is_told(tmp_path: Path, name: str) -> None:
    ledger = Ledger(tmp_path / "nowhere" / name)
    with pytest.raises(StoreError, match="No such file"):
        await ledger.add(entry())


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there are no forks on this system")
def test_a_process_that_was_forked_off_adds_to_it_too(tmp_path: Path) -> None:
    # In a process of its own: forks of one with threads are no good.
    program = """
import anyio, os, sys
from outrider.fleet._budget.ledger import Ledger, LedgerEntry
ledger = Ledger(sys.argv[1])
anyio.run(ledger.add, LedgerEntry(id="parent"))
child = os.fork()
anyio.run(ledger.add, LedgerEntry(id="after" if child else "child"))
if child:
    assert os.waitpid(child, 0)[1] == 0
"""
    path = tmp_path / "ledger.db"
    subprocess.run([sys.executable, "-W", "ignore", "-c", program, path], check=True, timeout=DEADLINE)
    assert sorted(anyio.run(ids, Ledger(path))) == ["after", "child", "parent"]


# What it is given.


@pytest.mark.parametrize("path", ["ledger", "ledger.txt", "", 5, None, b"ledger.db", "redis://host/x.db"])
def test_a_name_that_tells_no_format_is_refused(path: Any) -> None:
    with pytest.raises(OptionsError, match="path"):
        Ledger(path)


@pytest.mark.parametrize(
    "bad",
    [
        "entry",
        Result[object](),
        entry(at=float("nan")),
        entry(tags={"team": 5}),
        entry(tags={"": "red"}),
        entry(tags=None),
        entry(at=1.8e12),
        entry(at="now"),
        entry(id=None),
        entry(outcome=5),
        entry(usage=Usage(cost_usd=float("inf"))),
        entry(duration=float("nan")),
    ],
    ids=[
        *("a text", "a result", "no moment", "a number", "no name", "no tags"),
        *("milliseconds", "a word", "no id", "no outcome", "no amount", "no duration"),
    ],
)
@BOTH
@ONE_LOOP
async def test_what_is_no_entry_is_refused(ledger: Ledger, bad: Any) -> None:
    with pytest.raises(OptionsError):
        await ledger.add(bad)
    assert not ledger.path.exists()


def test_it_is_named_by_its_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for given in ("a.db", "sqlite:///a.db", f"sqlite:///{tmp_path}/a.db", tmp_path / "a.db"):
        assert Ledger(given).path == tmp_path / "a.db"
    assert repr(Ledger("a.db")) == f"<Ledger {str(tmp_path / 'a.db')!r}>"


@ONE_LOOP
async def test_turns_that_end_together_write_each_entry_once(tmp_path: Path) -> None:
    path = tmp_path / "ledger.jsonl"
    async with Ledger(path) as ledger:
        backlog = backlog_of(ledger)
        with anyio.fail_after(DEADLINE):
            async with anyio.create_task_group() as tasks:
                for number in range(40):
                    tasks.start_soon(backlog.add, entry(f"{number}"))
        assert len(backlog) == 0
        # Of lines in the file: reading would leave a second one out.
        assert len(path.read_text().splitlines()) == len(await ledger.entries()) == 40


class Full(Ledger):
    is_full = True

    async def add(self, entry: LedgerEntry) -> None:
        await anyio.lowlevel.checkpoint()
        if self.is_full:
            raise StoreError(self.name, "add", "the disk is full", retryable=True)
        await super().add(entry)


@ONE_LOOP
async def test_what_a_full_ledger_could_not_take_is_written_once(tmp_path: Path) -> None:
    path = tmp_path / "ledger.jsonl"
    async with Full(path) as ledger:
        backlog = backlog_of(ledger)
        with anyio.fail_after(DEADLINE):
            for _ in range(2):
                async with anyio.create_task_group() as tasks:
                    for number in range(10):
                        tasks.start_soon(backlog.add, entry(f"{number}"))
                with pytest.raises(StoreError, match="the disk is full"):
                    await backlog.settle()
            assert len(backlog) == 20
            ledger.is_full = False
            async with anyio.create_task_group() as tasks:
                for _ in range(3):
                    tasks.start_soon(backlog.settle)
        assert len(backlog) == 0
        assert len(path.read_text().splitlines()) == 20

"""The journal: what is written down stays, each task ends once, and one runner has it."""

from __future__ import annotations

import os
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from outrider.errors import OptionsError, UsageError
from outrider.fleet._budget.budget import Spent
from outrider.fleet._errors import JournalBusy, JournalInvalid
from outrider.fleet._journal.journal import Counts, Journal
from outrider.fleet._journal.sqlite import SqliteJournal
from outrider.fleet._task import Outcome, Task, numbered
from outrider.session import Usage

USED = Usage(input_tokens=10, output_tokens=5, cost_usd=0.01, by_model={"x": Usage(input_tokens=10)})


def ended(id: str, number: int = 0, **fields: Any) -> Outcome[Any]:
    given: Any = {"status": "done", "attempts": 1, **fields}
    return Outcome(id=id, number=number, **given)


@pytest.fixture
def journal(tmp_path: Path) -> Iterator[SqliteJournal]:
    with SqliteJournal(tmp_path / "run.db", writing=True) as journal:
        journal.add(numbered([Task("a", id="a"), Task("b", id="b"), Task("c", id="c")]))
        yield journal


def test_a_task_goes_from_pending_to_its_end_and_stays_there(journal: SqliteJournal) -> None:
    journal.begin("b", 1, "here", "session-1")
    journal.note("b", workspace="/folder", usage=USED, tool_calls=2)
    (started,) = journal.started()
    assert (started.task.id, started.attempts, started.session_id) == ("b", 1, "session-1")
    assert (started.workspace, started.usage, started.tool_calls) == ("/folder", USED, 2)
    assert [entry.task.id for entry in journal.todo()] == ["b", "a", "c"]
    outcome = ended("b", 1, text="done", raw_output={"n": 1}, output={"n": 1}, usage=USED, tags={"x": "y"})
    journal.end(outcome, usage=USED, tool_calls=3, ran=7.5)
    assert list(journal.outcomes()) == [outcome]
    assert [entry.task.id for entry in journal.todo()] == ["a", "c"]
    assert journal.counts() == Counts(pending=2, done=1)
    assert journal.spent() == Spent(0.01, 15, 3, 7.5)


def test_a_task_ends_exactly_once(journal: SqliteJournal) -> None:
    journal.begin("a", 1, "here")
    journal.end(ended("a", text="first"))
    again: list[Callable[[], None]] = [
        lambda: journal.end(ended("a", text="second")),
        lambda: journal.begin("a", 2, "here"),
        lambda: journal.end(ended("unknown")),
    ]
    for each in again:
        with pytest.raises(UsageError, match="has ended, or is not in"):
            each()
    journal.note("a", session_id="late", usage=USED)
    # What failed has left nothing: `b` has not ended either.
    assert [outcome.text for outcome in journal.outcomes()] == ["first"]
    assert journal.counts() == Counts(pending=2, done=1)
    assert journal.spent() == Spent()


def test_what_failed_can_be_begun_anew(journal: SqliteJournal) -> None:
    for id, status in (("a", "failed"), ("b", "done"), ("c", "over_budget")):
        journal.begin(id, 1, "here", f"session of {id}")
        journal.end(ended(id, status=status), usage=USED)
    assert journal.reopen(("failed", "over_budget")) == 2
    pending = list(journal.pending())
    assert [(entry.task.id, entry.attempts, entry.session_id) for entry in pending] == [
        ("a", 1, None),
        ("c", 1, None),
    ]
    # What the attempts before have used is not forgotten.
    assert pending[0].usage == USED
    journal.begin("a", 2, "here")
    journal.end(ended("a", attempts=2))
    assert journal.counts() == Counts(pending=1, done=2)


def test_the_same_tasks_may_be_added_again_and_others_may_not(journal: SqliteJournal) -> None:
    journal.begin("a", 1, "here")
    journal.end(ended("a"))
    same = [Task("a", id="a"), Task("b", id="b"), Task("c", id="c")]
    assert journal.add(numbered([*same, "d"])) == 1
    wrong: list[tuple[Any, str]] = [
        ([*same, "d", Task("e", id="a")], "`tasks[4]` has the id of `tasks[0]`: 'a'"),
        ([Task("a", id="a"), Task("other", id="b")], "`tasks[1]` differs from the task"),
        ([*same, "other"], "`tasks[3]` differs from the task"),
        ([*same, "d", "e", 3], "`tasks[5]`: A task must be"),
    ]
    for tasks, told in wrong:
        with pytest.raises(OptionsError) as raised:
            journal.add(numbered(tasks))
        assert told in str(raised.value)
    assert journal.counts() == Counts(pending=3, done=1)


def test_many_tasks_are_read_in_parts(tmp_path: Path) -> None:
    with Journal(tmp_path / "run.db", writing=True) as journal:
        assert journal.add(numbered(f"task {number}" for number in range(300))) == 300
        seen = []
        for entry in journal.pending():
            seen.append(entry.number)
            journal.begin(entry.task.id, 1, "here")
            journal.end(ended(entry.task.id, entry.number))
        assert seen == list(range(300))
        assert [outcome.number for outcome in journal.outcomes()] == seen


# One runner.


def test_a_second_runner_is_told_who_has_it_and_a_reader_may_look(journal: SqliteJournal) -> None:
    with pytest.raises(JournalBusy) as raised:
        Journal(journal.path, writing=True).open()
    assert str(os.getpid()) in str(raised.value)
    with Journal(journal.path) as reader:
        assert reader.counts().total == 3
        journal.begin("a", 1, "here")
        assert reader.counts().started == 1
    # Whoever was refused has taken nothing away.
    with pytest.raises(JournalBusy):
        Journal(journal.path, writing=True).open()
    journal.close()
    with Journal(journal.path, writing=True) as after:
        assert after.counts().started == 1


HOLDS = """
import sys
from outrider.fleet._journal.journal import Journal
journal = Journal(sys.argv[1], writing=True)
journal.open()
journal.begin("a", 1, "there", "session")
print("held", flush=True)
sys.stdin.read()
"""


def test_a_runner_that_is_killed_gives_it_back_with_all_it_wrote(journal: SqliteJournal) -> None:
    journal.close()
    command = [sys.executable, "-c", HOLDS, str(journal.path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == b"held\n"
        with pytest.raises(JournalBusy, match=f"process {other.pid}"):
            journal.open()
        other.send_signal(signal.SIGKILL)
        other.wait(30)
    with Journal(journal.path, writing=True) as after:
        assert [entry.session_id for entry in after.started()] == ["session"]


# What is no journal.


def foreign(path: Path) -> None:
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("CREATE TABLE other (x)")


def newer(path: Path) -> None:
    with Journal(path, writing=True):
        pass
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("PRAGMA user_version = 99")


def damaged(path: Path) -> None:
    with Journal(path, writing=True) as journal:
        journal.add(numbered(f"task {number}" for number in range(200)))
    data = bytearray(path.read_bytes())
    data[4096:12288] = b"\xff" * 8192
    path.write_bytes(data)


@pytest.mark.parametrize(
    "spoil, told",
    [
        (
            lambda path: path.write_text("not a database, but long enough to be looked at" * 9),
            "or it is damaged",
        ),
        (foreign, "a database of another program"),
        (newer, "version 99"),
        (damaged, "damaged"),
        (lambda path: path.mkdir(), "a folder"),
    ],
    ids=["text", "foreign", "newer", "damaged", "folder"],
)
@pytest.mark.parametrize("writing", [True, False], ids=["runner", "reader"])
def test_what_is_no_journal_is_told_and_left_as_it_is(
    spoil: Any, told: str, writing: bool, tmp_path: Path
) -> None:
    path = tmp_path / "run.db"
    spoil(path)
    before = None if path.is_dir() else path.read_bytes()
    with pytest.raises(JournalInvalid) as raised, Journal(path, writing=writing) as journal:
        list(journal.todo())
    assert told in str(raised.value)
    assert str(path) in str(raised.value)
    if before is not None and told != "damaged":
        assert path.read_bytes() == before


def test_those_who_look_are_in_nobodys_way(journal: SqliteJournal) -> None:
    journal.close()
    lock = journal.path.with_name("run.db.lock")
    looking = sqlite3.connect(lock)
    looking.execute("BEGIN")
    looking.execute("SELECT 1 FROM sqlite_master").fetchall()
    with Journal(journal.path) as reader:
        assert reader.runner() is None
    looking.close()
    lock.unlink()
    with Journal(journal.path) as reader:
        assert reader.runner() is None
    assert not lock.exists()
    # A lock that cannot be had is not one that another has.
    lock.mkdir()
    with pytest.raises(JournalInvalid, match="Check who may write to it"):
        journal.open()


def test_a_disk_that_is_full_is_told_and_what_was_written_stays(journal: SqliteJournal) -> None:
    connection: Any = journal._connection
    (pages,) = connection.execute("PRAGMA page_count").fetchone()
    connection.execute(f"PRAGMA max_page_count = {pages}")
    with pytest.raises(JournalInvalid, match="Make room on the disk, and resume"):
        journal.end(ended("a", text="x" * 100_000))
    assert journal.counts() == Counts(pending=3)


def test_a_reader_makes_no_file(tmp_path: Path) -> None:
    with pytest.raises(JournalInvalid, match="no such file"):
        Journal(tmp_path / "run.db").open()
    (tmp_path / "empty.db").touch()
    with pytest.raises(JournalInvalid, match="it is empty"):
        Journal(tmp_path / "empty.db").open()
    with pytest.raises(UsageError, match="not open"):
        Journal(tmp_path / "run.db").counts()
    assert [path.name for path in tmp_path.iterdir()] == ["empty.db"]


def test_only_its_owner_can_read_it(journal: SqliteJournal) -> None:
    assert journal.path.stat().st_mode & 0o777 == 0o600

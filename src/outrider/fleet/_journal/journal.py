"""`Journal`: the tasks of a run, with the state and the outcome of each; a file, or a table that many share.

This is the interface, and what both have in common. `sqlite` keeps a file for one runner, `postgres` a queue
that any number of workers take tasks from. Methods block, so a run calls them in threads.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, ClassVar, Final, NamedTuple, TypeAlias, cast

import msgspec

from outrider.errors import OptionsError, OutriderError, UsageError
from outrider.fleet._budget.budget import Spent
from outrider.fleet._errors import JournalInvalid
from outrider.fleet._task import Outcome, Status, Task
from outrider.redaction import preview
from outrider.session import Usage

if TYPE_CHECKING:
    from collections.abc import Generator
    from os import PathLike
    from pathlib import Path
    from typing import Self


AT_ONCE: Final = 256
"""Rows that are read at a time, so that not all tasks are in memory."""

_URLS: Final = ("postgresql://", "postgres://")


def is_queue(place: str | PathLike[str]) -> bool:
    """Whether a journal is in a database that many workers share."""
    return str(place).startswith(_URLS)


class Entry(NamedTuple):
    """A task that has not ended, as the journal knows it."""

    number: int
    task: Task
    attempts: int = 0
    session_id: str | None = None
    """Of the last attempt, if the task was started."""
    workspace: str | None = None
    started_at: float | None = None
    usage: Usage = Usage()
    """Of all attempts so far."""
    tool_calls: int = 0
    not_kept: tuple[str, ...] = ()
    """Where its options had secrets, which a journal does not keep."""
    losses: int = 0
    """How many workers were lost while they ran it."""
    holder: str | None = None
    """The worker that took it."""
    refused: OutriderError | None = None
    """Why no attempt can be made."""


class Counts(msgspec.Struct, frozen=True):
    """How many tasks are in which state."""

    pending: int = 0
    started: int = 0
    """Begun and not ended; running, or cut off with their runner."""
    done: int = 0
    failed: int = 0
    skipped: int = 0
    over_budget: int = 0
    waiting: int = 0

    @property
    def ended(self) -> int:
        return self.done + self.failed + self.skipped + self.over_budget + self.waiting

    @property
    def total(self) -> int:
        return self.pending + self.started + self.ended


# What a runner writes.


class Begun(NamedTuple):
    """An attempt at a task begins."""

    id: str
    attempt: int
    worker: str
    session_id: str | None = None


class Noted(NamedTuple):
    """What is known of the running attempt."""

    id: str
    session_id: str | None = None
    workspace: str | None = None
    worker: str | None = None
    usage: Usage | None = None
    tool_calls: int | None = None


class Finished(NamedTuple):
    """A task has ended. `usage` is that of the last attempt, `outcome.usage` that of all; `ran`, how many
    seconds the journal has been run for, or None if no attempt was made."""

    outcome: Outcome[object]
    usage: Usage | None = None
    tool_calls: int | None = None
    ran: float | None = None

    @property
    def id(self) -> str:
        return self.outcome.id


Change: TypeAlias = Begun | Noted | Finished


class Pulse(NamedTuple):
    """What all workers of a journal have in common, at one moment."""

    total: int
    counts: Counts
    """Of the tasks that have ended."""
    spent: Spent
    """By all workers."""
    mine: Spent
    """By this one, as far as it is written down."""
    gate_seconds: float = 0.0
    """How long nothing is to be begun."""
    gate_why: str = ""


class Taken(NamedTuple):
    """Tasks that this worker may run now."""

    entries: list[Entry]
    pulse: Pulse
    is_over: bool
    """Whether all tasks have ended."""


class TasksLost(OutriderError):
    """This worker was not heard of for longer than its lease, and others have its tasks now."""

    def __init__(self, journal: str) -> None:
        super().__init__()
        self._what = f"the lease on {journal!r} has run out"


class Journal:
    """The tasks of a run and what became of them, in a SQLite file or in a PostgreSQL database.

        with Journal("run.db") as journal:
            print(journal.counts(), [outcome.text for outcome in journal.outcomes()])

    Opened like this it is only read, which is possible at any time. A runner opens it with `writing=True`: a
    file one at a time, until it is closed or its process ends; a database (`postgresql://host/db?batch=name`)
    any number. What a method has written when it returns survives `kill -9` and a loss of power.

    Raises `JournalBusy` if another runner has the file, `JournalInvalid` for what is not a journal.
    """

    lease: ClassVar[bool] = False
    """Whether workers share it: each takes tasks, and keeps them as long as it is heard of."""
    name: str
    """What it is called in messages."""

    def __new__(cls, place: str | PathLike[str], *, writing: bool = False) -> Self:
        if cls is not Journal:
            return super().__new__(cls)
        if is_queue(place):
            from outrider.fleet._journal.postgres import PostgresJournal

            return cast("Self", object.__new__(PostgresJournal))
        from outrider.fleet._journal.sqlite import SqliteJournal

        return cast("Self", object.__new__(SqliteJournal))

    def __init__(self, place: str | PathLike[str], *, writing: bool = False) -> None:
        self._place = place
        self._is_writing = writing

    def __enter__(self) -> Self:
        self.open()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def path(self) -> Path | None:
        """The file; None for a database."""
        return None

    def reader(self) -> Journal:
        """The same journal, to be read."""
        return Journal(self._place)

    def open(self) -> None:
        """Open it; `with` does it."""
        raise NotImplementedError

    def close(self) -> None:
        """Close it. A second call does nothing."""
        raise NotImplementedError

    # What a runner writes.

    def add(self, tasks: Iterable[tuple[int, Task]]) -> int:
        """Add tasks with their numbers: all of them, or none if one is invalid. Returns how many were new.

        Secrets in options are left out. A task that is there already stays as it is. Raises `OptionsError`
        for an id that two tasks share, and for a task that differs from the one in the journal.
        """
        raise NotImplementedError

    def write(self, changes: Sequence[Change]) -> list[bool]:
        """Write all of it, in one transaction. Gives for each change whether it was made: not for a task
        that has ended, or that another worker has."""
        raise NotImplementedError

    def reopen(self, statuses: Sequence[Status]) -> int:
        """Make tasks that ended with one of these statuses pending again. Returns how many."""
        raise NotImplementedError

    def take_up_waiting(self) -> None:
        """Go on with tasks that waited for approval, each in its session."""
        raise NotImplementedError

    def set_meta(self, name: str, value: str) -> None:
        """Keep a fact about the run."""
        raise NotImplementedError

    def begin(self, id: str, attempt: int, worker: str, session_id: str | None = None) -> None:
        """An attempt at a task begins. Raises `UsageError` if the task has ended."""
        self._write_one(Begun(id, attempt, worker, session_id))

    def note(
        self,
        id: str,
        *,
        session_id: str | None = None,
        workspace: str | None = None,
        worker: str | None = None,
        usage: Usage | None = None,
        tool_calls: int | None = None,
    ) -> None:
        """Record what is known of the running attempt. Notes on a task that has ended are ignored."""
        self.write([Noted(id, session_id, workspace, worker, usage, tool_calls)])

    def end(
        self,
        outcome: Outcome[object],
        *,
        usage: Usage | None = None,
        tool_calls: int | None = None,
        ran: float = 0.0,
    ) -> None:
        """A task has ended: once. Raises `UsageError` if it has ended before, or is not in the journal."""
        self._write_one(Finished(outcome, usage, tool_calls, ran))

    def _write_one(self, change: Change) -> None:
        if not all(self.write([change])):
            raise UsageError(f"The task {change.id!r} has ended, or is not in {self.name!r}")

    # What readers use, too.

    def todo(self) -> Iterator[Entry]:
        """The tasks that have not ended: those that were started first, then the others, each in order."""
        yield from self.started()
        yield from self.pending()

    def pending(self) -> Iterator[Entry]:
        """The tasks that have not begun, or will begin anew, in order."""
        return self._entries("pending")

    def started(self) -> Iterator[Entry]:
        """The tasks that have begun and not ended, in order."""
        return self._entries("started")

    def _entries(self, state: str) -> Iterator[Entry]:
        raise NotImplementedError

    def lacking(self) -> Iterator[Entry]:
        """The tasks that have not ended and had secrets in their options."""
        raise NotImplementedError

    def outcomes(self) -> Iterator[Outcome]:
        """The outcomes of the tasks that have ended, in the order of the tasks."""
        raise NotImplementedError

    def counts(self) -> Counts:
        """How many tasks are in which state."""
        raise NotImplementedError

    def spent(self) -> Spent:
        """What all attempts have used, as far as is known; `wall`: for how long the journal was run."""
        raise NotImplementedError

    def runner(self) -> str | None:
        """Who has it open for writing, in any process; None if nobody has."""
        raise NotImplementedError

    def meta(self, name: str) -> str | None:
        """A fact about the run: `id`, `made_at`, `runner`, …"""
        raise NotImplementedError


def read_task(written: bytes) -> tuple[Task, tuple[str, ...]]:
    """A task as it was written, and where it had secrets."""
    plain = msgspec.json.decode(written, type=dict[str, object])
    not_kept = cast("list[str]", plain.pop("not_kept", []))
    return Task.from_json(msgspec.json.encode(plain) if not_kept else written), tuple(not_kept)


def write_task(task: Task) -> bytes:
    """A task as it is written: the same for the same task."""
    return msgspec.json.encode(task.kept(), order="sorted")


def same_id(number: int, first: int, id: str) -> OptionsError:
    """Two tasks have the same id."""
    return OptionsError(
        f"`tasks[{number}]` has the id of `tasks[{first}]`: {id!r}",
        hint="Give each task an id of its own, or leave them all out.",
    )


def other_task(number: int, journal: str) -> OptionsError:
    """A task is not the one that the journal has."""
    return OptionsError(
        f"`tasks[{number}]` differs from the task that {journal!r} has there",
        hint="Resume the journal without tasks, or give another one. To a database, `append` adds them.",
    )


@contextmanager
def undamaged(journal: str) -> Generator[None]:
    """Turn values that no journal has into `JournalInvalid`."""
    try:
        yield
    except JournalInvalid:
        raise
    except (OptionsError, ArithmeticError, RecursionError, TypeError, ValueError) as error:
        raise JournalInvalid(journal, f"it is damaged ({preview(str(error))})") from error

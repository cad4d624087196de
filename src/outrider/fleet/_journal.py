"""`Journal`: the tasks of a run in a file, with the state and the outcome of each.

Its methods wait for the disk, so a run calls them in threads.
"""

from __future__ import annotations

import os
import socket
import sqlite3
import sys
import time
import uuid
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Any, Final, NamedTuple, cast

import msgspec

from outrider._folders import make_private, refuse_planted
from outrider.errors import OptionsError, UsageError
from outrider.fleet._budget.budget import Spent
from outrider.fleet._errors import JournalBusy, JournalInvalid
from outrider.fleet._task import Outcome, Status, Task
from outrider.redaction import preview
from outrider.session import Usage

if TYPE_CHECKING:
    from collections.abc import Generator, Sequence
    from typing import Self


_APPLICATION_ID: Final = 0x4272644A
"""Tells a journal from the databases of other programs."""
_VERSION: Final = 1
_PATIENCE: Final = 30.0
"""Seconds to wait for another writer: a runner adds all its tasks at once."""
_GLANCE: Final = 0.2
"""Seconds to wait for processes that only check whether the lock is taken."""

_TABLES: Final = (
    """CREATE TABLE tasks (
        number INTEGER PRIMARY KEY,
        id TEXT NOT NULL UNIQUE,
        task BLOB NOT NULL,
        state TEXT NOT NULL DEFAULT 'pending' CHECK (state IN ('pending', 'started', 'ended')),
        attempts INTEGER NOT NULL DEFAULT 0,
        session_id TEXT,
        workspace TEXT,
        started_at REAL,
        status TEXT,
        outcome BLOB,
        CHECK ((state = 'ended') = (outcome IS NOT NULL))
    )""",
    "CREATE INDEX tasks_to_do ON tasks (number) WHERE state <> 'ended'",
    "CREATE INDEX tasks_by_status ON tasks (status) WHERE state = 'ended'",
    """CREATE TABLE attempts (
        task INTEGER NOT NULL REFERENCES tasks (number),
        attempt INTEGER NOT NULL,
        worker TEXT NOT NULL,
        began_at REAL NOT NULL,
        ended_at REAL,
        session_id TEXT,
        usage BLOB,
        usd REAL NOT NULL DEFAULT 0,
        tokens INTEGER NOT NULL DEFAULT 0,
        tool_calls INTEGER NOT NULL DEFAULT 0,
        PRIMARY KEY (task, attempt)
    ) WITHOUT ROWID""",
    "CREATE TABLE meta (name TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID",
)


def connected(path: Path, *, writing: bool) -> sqlite3.Connection:
    """A connection to the journal, which is made if it is not there and is to be written to.

    Raises `JournalInvalid` for a file that is none, or is of a later version, and `sqlite3.Error`.
    """
    if not writing and not path.exists():
        raise JournalInvalid(path, "there is no such file", hint="Give the path of a journal.")
    if path.is_dir():
        raise JournalInvalid(path, "it is a folder")
    if writing:
        path.parent.mkdir(parents=True, exist_ok=True)
        # Prompts and answers are private.
        _make(path)
    connection = sqlite3.connect(path, timeout=_PATIENCE, isolation_level=None, check_same_thread=False)
    try:
        _check(connection, path)
        if writing:
            _set_up(connection)
        elif _is_empty(connection):
            raise JournalInvalid(path, "it is empty")
    except BaseException:
        connection.close()
        raise
    return connection


def _make(path: Path) -> None:
    """Make a private file, unless it exists. Raises `PermissionError` if it belongs to another user."""
    if path.exists():
        # Do not open it: closing a file drops the locks that SQLite holds on it in this process.
        refuse_planted(path)
    else:
        with suppress(FileExistsError):
            make_private(path)


def _check(connection: sqlite3.Connection, path: Path) -> None:
    (application,) = connection.execute("PRAGMA application_id").fetchone()
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    if application != _APPLICATION_ID and not _is_empty(connection):
        raise JournalInvalid(path, "it is a database of another program")
    if application == _APPLICATION_ID and version > _VERSION:
        hint = "Update Outrider."
        raise JournalInvalid(path, f"it is of version {version}, and {_VERSION} is known", hint=hint)
    made = {sql for (sql,) in connection.execute("SELECT sql FROM sqlite_master WHERE sql IS NOT NULL")}
    if made and made != set(_TABLES):
        # A foreign view or trigger could do anything to what is read and written.
        raise JournalInvalid(path, "its tables are not those of a journal")


def _is_empty(connection: sqlite3.Connection) -> bool:
    return connection.execute("SELECT 1 FROM sqlite_master LIMIT 1").fetchone() is None


def _set_up(connection: sqlite3.Connection) -> None:
    connection.execute("PRAGMA journal_mode = WAL")
    # Survive a loss of power.
    connection.execute("PRAGMA synchronous = FULL")
    connection.execute("BEGIN IMMEDIATE")
    if _is_empty(connection):
        for table in _TABLES:
            connection.execute(table)
        made = {"id": uuid.uuid4().hex, "made_at": repr(time.time())}
        connection.executemany("INSERT INTO meta VALUES (?, ?)", made.items())
        connection.execute(f"PRAGMA application_id = {_APPLICATION_ID}")
        connection.execute(f"PRAGMA user_version = {_VERSION}")
    connection.execute("COMMIT")


@contextmanager
def explained(path: Path) -> Generator[None]:
    """Turn errors of SQLite and of the disk into `JournalInvalid` or `JournalBusy`."""
    try:
        yield
    except sqlite3.DatabaseError as error:
        code = _code(error)
        if code in _BUSY:
            raise JournalBusy(path, "something that writes to it") from error
        reason = {
            sqlite3.SQLITE_NOTADB: "it is not a journal, or it is damaged",
            sqlite3.SQLITE_CORRUPT: f"it is damaged ({error})",
        }.get(code, str(error))
        raise JournalInvalid(path, reason, hint=_HINTS.get(code, JournalInvalid.hint)) from error
    except OSError as error:
        raise JournalInvalid(path, error.strerror or str(error)) from error


@contextmanager
def undamaged(path: Path) -> Generator[None]:
    """Turn values that no journal has into `JournalInvalid`."""
    try:
        yield
    except JournalInvalid:
        raise
    except (OptionsError, ArithmeticError, RecursionError, TypeError, ValueError) as error:
        raise JournalInvalid(path, f"it is damaged ({preview(str(error))})") from error


def _code(error: sqlite3.Error) -> int:
    return getattr(error, "sqlite_errorcode", 0) & 0xFF


_BUSY: Final = (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)
_NO_ROOM: Final = "Make room on the disk, and resume: what was written before is there."
_NOT_ALLOWED: Final = "Check who may write to it, and into its folder: to read it takes files there, too."
_HINTS: Final = {
    **dict.fromkeys((sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR), _NO_ROOM),
    **dict.fromkeys((sqlite3.SQLITE_READONLY, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_PERM), _NOT_ALLOWED),
}
"""What to do about it, where that is not to give another path."""


def _close_to_others(path: Path) -> None:
    """Keep other users from the lock, which they could hold. Earlier versions made it readable for all."""
    if sys.platform != "win32":
        found = path.stat()
        if found.st_uid == os.geteuid() and found.st_mode & 0o077:
            path.chmod(0o600)


class RunnerLock:
    """Held by the one runner of a journal, as long as its process lives.

    It is SQLite's own lock, on a file beside the journal: it works on every system and between threads, and
    ends with the process, however that ends.
    """

    def __init__(self, journal: Path) -> None:
        self._journal = journal
        self._path = journal.with_name(journal.name + ".lock")
        self._connection: sqlite3.Connection | None = None

    def take(self, holder: str) -> None:
        """Raises `JournalBusy` with the `holder` if it is taken."""
        self._path.parent.mkdir(parents=True, exist_ok=True)
        _make(self._path)
        _close_to_others(self._path)
        connection = sqlite3.connect(
            self._path, timeout=_GLANCE, isolation_level=None, check_same_thread=False
        )
        try:
            connection.execute("BEGIN EXCLUSIVE")
        except sqlite3.OperationalError as error:
            connection.close()
            if _code(error) in _BUSY:
                raise JournalBusy(self._journal, holder) from error
            raise
        self._connection = connection

    def is_taken(self) -> bool:
        """Whether it is taken. Makes no file, and does not disturb others that ask."""
        if not self._path.exists():
            return False
        connection = sqlite3.connect(self._path, timeout=0, isolation_level=None)
        try:
            connection.execute("SELECT 1 FROM sqlite_master").fetchall()
        except sqlite3.OperationalError as error:
            if _code(error) not in _BUSY:
                raise
            return True
        finally:
            connection.close()
        return False

    def free(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None


_AT_ONCE: Final = 256
"""Rows that are read at a time, so that not all tasks are in memory."""


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


class Journal:
    """The tasks of a run and what became of them, in a SQLite file.

        with Journal("run.db") as journal:
            print(journal.counts(), [outcome.text for outcome in journal.outcomes()])

    Opened like this it is only read, which is possible at any time. A runner opens it with `writing=True`:
    one at a time, until it is closed or its process ends. What a method has written when it returns survives
    `kill -9` and a loss of power.

    Raises `JournalBusy` if another runner has it, `JournalInvalid` for a file that is no journal.
    """

    def __init__(self, path: str | os.PathLike[str], *, writing: bool = False) -> None:
        self.path: Path = Path(path).absolute()
        self._is_writing = writing
        self._lock = RunnerLock(self.path)
        self._connection: sqlite3.Connection | None = None
        self._turn = Lock()

    def open(self) -> None:
        """Open it; `with` does it."""
        with explained(self.path):
            if self._is_writing:
                self._lock.take(self._holder())
            try:
                self._connection = connected(self.path, writing=self._is_writing)
                if self._is_writing:
                    self.set_meta("runner", f"process {os.getpid()} on {socket.gethostname()}")
            except BaseException:
                self.close()
                raise

    def close(self) -> None:
        """Close it. A second call does nothing."""
        with self._turn:
            connection, self._connection = self._connection, None
            if connection is not None:
                connection.close()
            self._lock.free()

    def __enter__(self) -> Self:
        self.open()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _holder(self) -> str:
        try:
            with Journal(self.path) as reader:
                return reader.meta("runner") or ""
        except Exception:  # noqa: BLE001 - it is only for a message
            return ""

    # What a runner writes.

    def add(self, tasks: Iterable[tuple[int, Task]]) -> int:
        """Add tasks with their numbers: all of them, or none if one is invalid. Returns how many were new.

        Secrets in options are left out. A task that is there already stays as it is. Raises `OptionsError`
        for an id that two tasks share, and for a task that differs from the one in the journal.
        """
        new = 0
        with self._transaction() as connection:
            for number, task in tasks:
                plain = msgspec.json.encode(task.kept(), order="sorted")
                row = connection.execute(
                    "SELECT number, task FROM tasks WHERE id = ? OR number = ?", (task.id, number)
                ).fetchone()
                if row is None:
                    connection.execute(
                        "INSERT INTO tasks (number, id, task) VALUES (?, ?, ?)", (number, task.id, plain)
                    )
                    new += 1
                elif row[0] != number:
                    raise OptionsError(
                        f"`tasks[{number}]` has the id of `tasks[{row[0]}]`: {task.id!r}",
                        hint="Give each task an id of its own, or leave them all out.",
                    )
                elif row[1] != plain:
                    raise OptionsError(
                        f"`tasks[{number}]` differs from the task that {str(self.path)!r} has there",
                        hint="Resume the journal without tasks, or give another file for other ones.",
                    )
        return new

    def begin(self, id: str, attempt: int, worker: str, session_id: str | None = None) -> None:
        """An attempt at a task begins. Raises `UsageError` if the task has ended."""
        now = time.time()
        with self._transaction() as connection:
            changed = connection.execute(
                "UPDATE tasks SET state = 'started', attempts = ?, session_id = coalesce(?, session_id),"
                " started_at = coalesce(started_at, ?) WHERE id = ? AND state <> 'ended'",
                (attempt, session_id, now, id),
            )
            self._expect_one(changed, id)
            connection.execute(
                "INSERT INTO attempts (task, attempt, worker, began_at, session_id)"
                " SELECT number, ?, ?, ?, ? FROM tasks WHERE id = ?",
                (attempt, worker, now, session_id, id),
            )

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
        with self._transaction() as connection:
            changed = connection.execute(
                "UPDATE tasks SET session_id = coalesce(?, session_id), workspace = coalesce(?, workspace)"
                " WHERE id = ? AND state = 'started'",
                (session_id, workspace, id),
            )
            if changed.rowcount:
                self._spend(connection, id, session_id, worker, usage, tool_calls)

    def end(
        self,
        outcome: Outcome[object],
        *,
        usage: Usage | None = None,
        tool_calls: int | None = None,
        ran: float = 0.0,
    ) -> None:
        """A task has ended: once. `usage` is that of the last attempt, `outcome.usage` that of all; `ran`,
        how many seconds the journal has been run for.

        Raises `UsageError` if it has ended before, or is not in the journal.
        """
        with self._transaction() as connection:
            self._end(connection, outcome)
            self._spend(connection, outcome.id, outcome.session_id, None, usage, tool_calls)
            connection.execute(
                "UPDATE attempts SET ended_at = ? WHERE attempt = ? AND task ="
                " (SELECT number FROM tasks WHERE id = ?)",
                (outcome.ended_at, outcome.attempts, outcome.id),
            )
            connection.execute("INSERT OR REPLACE INTO meta VALUES ('ran', ?)", (repr(ran),))

    def end_all(self, outcomes: Iterable[Outcome[object]]) -> None:
        """Record tasks that ended without another attempt: all of them, or none if one had ended before."""
        with self._transaction() as connection:
            for outcome in outcomes:
                self._end(connection, outcome)

    def reopen(self, statuses: Sequence[Status]) -> int:
        """Make tasks that ended with one of these statuses pending again. Returns how many."""
        marks = ", ".join("?" * len(statuses))
        with self._transaction() as connection:
            return connection.execute(
                "UPDATE tasks SET state = 'pending', status = NULL, outcome = NULL, session_id = NULL"
                f" WHERE state = 'ended' AND status IN ({marks})",
                tuple(statuses),
            ).rowcount

    def take_up_waiting(self) -> None:
        """Go on with tasks that waited for approval, each in its session."""
        with self._transaction() as connection:
            connection.execute(
                "UPDATE tasks SET state = 'started', status = NULL, outcome = NULL"
                " WHERE state = 'ended' AND status = 'waiting'"
            )

    def set_meta(self, name: str, value: str) -> None:
        """Keep a fact about the run."""
        with self._transaction() as connection:
            connection.execute("INSERT OR REPLACE INTO meta VALUES (?, ?)", (name, value))

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
        last = -1
        while rows := self._read(
            "SELECT number, task, attempts, session_id, workspace, started_at FROM tasks"
            " WHERE state = ? AND number > ? ORDER BY number LIMIT ?",
            (state, last, _AT_ONCE),
        ):
            for number, task, attempts, session_id, workspace, started_at in rows:
                with undamaged(self.path):
                    used = self._used(number) if attempts else (Usage(), 0)
                    found, not_kept = _read(task)
                yield Entry(number, found, attempts, session_id, workspace, started_at, *used, not_kept)
                last = number

    def _used(self, number: int) -> tuple[Usage, int]:
        rows = self._read("SELECT usage, tool_calls FROM attempts WHERE task = ?", (number,))
        usages = (msgspec.json.decode(usage, type=Usage) for usage, _ in rows if usage is not None)
        return sum(usages, Usage()), sum(calls for _, calls in rows)

    def lacking(self) -> Iterator[Entry]:
        """The tasks that have not ended and had secrets in their options."""
        for number, task in self._read(
            "SELECT number, task FROM tasks WHERE state <> 'ended' AND instr(task, ?) ORDER BY number",
            (b'"not_kept":',),
        ):
            found, not_kept = _read(task)
            if not_kept:
                yield Entry(number, found, not_kept=not_kept)

    def outcomes(self) -> Iterator[Outcome]:
        """The outcomes of the tasks that have ended, in the order of the tasks."""
        last = -1
        while rows := self._read(
            "SELECT number, outcome FROM tasks WHERE state = 'ended' AND number > ? ORDER BY number LIMIT ?",
            (last, _AT_ONCE),
        ):
            last = rows[-1][0]
            for _, written in rows:
                with undamaged(self.path):
                    outcome: Outcome = Outcome.from_json(msgspec.json.decode(written))
                yield outcome

    def counts(self) -> Counts:
        """How many tasks are in which state."""
        rows = self._read("SELECT coalesce(status, state), count(*) FROM tasks GROUP BY 1", ())
        with undamaged(self.path):
            return Counts(**dict(rows))

    def spent(self) -> Spent:
        """What all attempts have used, as far as is known; `wall`: for how long the journal was run."""
        ((usd, tokens, calls),) = self._read(
            "SELECT coalesce(sum(usd), 0.0), coalesce(sum(tokens), 0), coalesce(sum(tool_calls), 0)"
            " FROM attempts",
            (),
        )
        with undamaged(self.path):
            return Spent(usd, tokens, calls, float(self.meta("ran") or 0.0))

    def runner(self) -> str | None:
        """The runner that has it open for writing, in any process; None if there is none."""
        with explained(self.path):
            is_taken = self._lock.is_taken()
        return (self.meta("runner") or "another process") if is_taken else None

    def meta(self, name: str) -> str | None:
        """A fact about the run: `id`, `made_at`, `runner`, …"""
        rows = self._read("SELECT value FROM meta WHERE name = ?", (name,))
        return str(rows[0][0]) if rows else None

    # How it is done.

    @contextmanager
    def _transaction(self) -> Generator[sqlite3.Connection]:
        with self._turn, explained(self.path):
            connection = self._opened()
            connection.execute("BEGIN IMMEDIATE")
            try:
                yield connection
                connection.execute("COMMIT")
            except BaseException:
                if connection.in_transaction:
                    connection.execute("ROLLBACK")
                raise

    def _read(self, query: str, values: tuple[object, ...]) -> list[tuple[Any, ...]]:
        with self._turn, explained(self.path):
            return self._opened().execute(query, values).fetchall()

    def _opened(self) -> sqlite3.Connection:
        if self._connection is None:
            raise UsageError("The journal is not open", hint="Enter it first: `with journal: …`")
        return self._connection

    def _expect_one(self, changed: sqlite3.Cursor, id: str) -> None:
        if changed.rowcount != 1:
            raise UsageError(f"The task {id!r} has ended, or is not in {str(self.path)!r}")

    def _end(self, connection: sqlite3.Connection, outcome: Outcome[object]) -> None:
        changed = connection.execute(
            "UPDATE tasks SET state = 'ended', status = ?, outcome = ?, session_id = ?, workspace = ?"
            " WHERE id = ? AND state <> 'ended'",
            (
                outcome.status,
                msgspec.json.encode(outcome.to_json()),
                outcome.session_id,
                outcome.workspace,
                outcome.id,
            ),
        )
        self._expect_one(changed, outcome.id)

    def _spend(
        self,
        connection: sqlite3.Connection,
        id: str,
        session_id: str | None,
        worker: str | None,
        usage: Usage | None,
        tool_calls: int | None,
    ) -> None:
        values = {
            "id": id,
            "session_id": session_id,
            "worker": worker,
            "tool_calls": tool_calls,
            "usage": None if usage is None else msgspec.json.encode(usage),
            "usd": None if usage is None else usage.cost_usd,
            "tokens": None if usage is None else usage.total_tokens,
        }
        connection.execute(
            "UPDATE attempts SET session_id = coalesce(:session_id, session_id),"
            " worker = coalesce(:worker, worker), tool_calls = coalesce(:tool_calls, tool_calls),"
            " usage = coalesce(:usage, usage), usd = coalesce(:usd, usd), tokens = coalesce(:tokens, tokens)"
            " WHERE (task, attempt) = (SELECT number, attempts FROM tasks WHERE id = :id)",
            values,
        )


def _read(written: bytes) -> tuple[Task, tuple[str, ...]]:
    plain = msgspec.json.decode(written, type=dict[str, object])
    not_kept = cast("list[str]", plain.pop("not_kept", []))
    return Task.from_json(msgspec.json.encode(plain) if not_kept else written), tuple(not_kept)

"""`SqliteJournal`: a journal in a file, for one runner at a time."""

from __future__ import annotations

import errno
import os
import socket
import sqlite3
import sys
import time
import uuid
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Any, Final

import msgspec

from outrider._folders import make_private, refuse_planted
from outrider.errors import UsageError
from outrider.fleet._budget.budget import Spent
from outrider.fleet._errors import JournalBusy, JournalInvalid
from outrider.fleet._journal.journal import (
    AT_ONCE,
    Begun,
    Change,
    Counts,
    Entry,
    Finished,
    Journal,
    Noted,
    other_task,
    read_task,
    same_id,
    undamaged,
    write_task,
)
from outrider.fleet._task import Outcome, Status, Task
from outrider.session import Usage

if TYPE_CHECKING:
    from collections.abc import Generator


_APPLICATION_ID: Final = 0x4F75744A
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
        may_pass = code in (sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR)
        hint = _HINTS.get(code, JournalInvalid.hint)
        raise JournalInvalid(path, reason, retryable=may_pass, hint=hint) from error
    except OSError as error:
        may_pass = error.errno in NO_ROOM
        raise JournalInvalid(path, error.strerror or str(error), retryable=may_pass) from error


def _code(error: sqlite3.Error) -> int:
    return getattr(error, "sqlite_errorcode", 0) & 0xFF


NO_ROOM: Final = (errno.ENOSPC, errno.EDQUOT, errno.EIO)
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


class SqliteJournal(Journal):
    """A journal in a SQLite file."""

    def __init__(self, place: str | os.PathLike[str], *, writing: bool = False) -> None:
        super().__init__(place, writing=writing)
        self._path = Path(place).absolute()
        self.name = str(self._path)
        self._lock = RunnerLock(self.path)
        self._connection: sqlite3.Connection | None = None
        self._turn = Lock()

    @property
    def path(self) -> Path:
        return self._path

    def open(self) -> None:
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
        with self._turn:
            connection, self._connection = self._connection, None
            if connection is not None:
                connection.close()
            self._lock.free()

    def _holder(self) -> str:
        try:
            with self.reader() as reader:
                return reader.meta("runner") or ""
        except Exception:  # noqa: BLE001 - it is only for a message
            return ""

    # What a runner writes.

    def add(self, tasks: Iterable[tuple[int, Task]]) -> int:
        new = 0
        with self._transaction() as connection:
            for number, task in tasks:
                plain = write_task(task)
                row = connection.execute(
                    "SELECT number, task FROM tasks WHERE id = ? OR number = ?", (task.id, number)
                ).fetchone()
                if row is None:
                    connection.execute(
                        "INSERT INTO tasks (number, id, task) VALUES (?, ?, ?)", (number, task.id, plain)
                    )
                    new += 1
                elif row[0] != number:
                    raise same_id(number, row[0], task.id)
                elif row[1] != plain:
                    raise other_task(number, self.name)
        return new

    def write(self, changes: Sequence[Change]) -> list[bool]:
        with self._transaction() as connection:
            return [self._make(connection, change) for change in changes]

    def _make(self, connection: sqlite3.Connection, change: Change) -> bool:
        if isinstance(change, Begun):
            return self._begin(connection, change)
        if isinstance(change, Noted):
            changed = connection.execute(
                "UPDATE tasks SET session_id = coalesce(?, session_id), workspace = coalesce(?, workspace)"
                " WHERE id = ? AND state = 'started'",
                (change.session_id, change.workspace, change.id),
            )
            if changed.rowcount:
                self._spend(connection, change)
            return changed.rowcount == 1
        return self._end(connection, change)

    def _begin(self, connection: sqlite3.Connection, begun: Begun) -> bool:
        id, attempt, worker, session_id = begun
        now = time.time()
        changed = connection.execute(
            "UPDATE tasks SET state = 'started', attempts = ?, session_id = coalesce(?, session_id),"
            " started_at = coalesce(started_at, ?) WHERE id = ? AND state <> 'ended'",
            (attempt, session_id, now, id),
        )
        if changed.rowcount:
            connection.execute(
                "INSERT INTO attempts (task, attempt, worker, began_at, session_id)"
                " SELECT number, ?, ?, ?, ? FROM tasks WHERE id = ?",
                (attempt, worker, now, session_id, id),
            )
        return changed.rowcount == 1

    def _end(self, connection: sqlite3.Connection, finished: Finished) -> bool:
        outcome = finished.outcome
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
        if changed.rowcount and finished.ran is not None:
            usage, calls = finished.usage, finished.tool_calls
            self._spend(connection, Noted(outcome.id, outcome.session_id, usage=usage, tool_calls=calls))
            connection.execute(
                "UPDATE attempts SET ended_at = ? WHERE attempt = ? AND task ="
                " (SELECT number FROM tasks WHERE id = ?)",
                (outcome.ended_at, outcome.attempts, outcome.id),
            )
            connection.execute("INSERT OR REPLACE INTO meta VALUES ('ran', ?)", (repr(finished.ran),))
        return changed.rowcount == 1

    def reopen(self, statuses: Sequence[Status]) -> int:
        marks = ", ".join("?" * len(statuses))
        with self._transaction() as connection:
            return connection.execute(
                "UPDATE tasks SET state = 'pending', status = NULL, outcome = NULL, session_id = NULL"
                f" WHERE state = 'ended' AND status IN ({marks})",
                tuple(statuses),
            ).rowcount

    def take_up_waiting(self) -> None:
        with self._transaction() as connection:
            connection.execute(
                "UPDATE tasks SET state = 'started', status = NULL, outcome = NULL"
                " WHERE state = 'ended' AND status = 'waiting'"
            )

    def set_meta(self, name: str, value: str) -> None:
        with self._transaction() as connection:
            connection.execute("INSERT OR REPLACE INTO meta VALUES (?, ?)", (name, value))

    # What readers use, too.

    def _entries(self, state: str) -> Iterator[Entry]:
        last = -1
        while rows := self._read(
            "SELECT number, task, attempts, session_id, workspace, started_at FROM tasks"
            " WHERE state = ? AND number > ? ORDER BY number LIMIT ?",
            (state, last, AT_ONCE),
        ):
            for number, task, attempts, session_id, workspace, started_at in rows:
                with undamaged(self.name):
                    used = self._used(number) if attempts else (Usage(), 0)
                    found, not_kept = read_task(task)
                yield Entry(number, found, attempts, session_id, workspace, started_at, *used, not_kept)
                last = number

    def _used(self, number: int) -> tuple[Usage, int]:
        rows = self._read("SELECT usage, tool_calls FROM attempts WHERE task = ?", (number,))
        usages = (msgspec.json.decode(usage, type=Usage) for usage, _ in rows if usage is not None)
        return sum(usages, Usage()), sum(calls for _, calls in rows)

    def lacking(self) -> Iterator[Entry]:
        for number, task in self._read(
            "SELECT number, task FROM tasks WHERE state <> 'ended' AND instr(task, ?) ORDER BY number",
            (b'"not_kept":',),
        ):
            found, not_kept = read_task(task)
            if not_kept:
                yield Entry(number, found, not_kept=not_kept)

    def outcomes(self) -> Iterator[Outcome]:
        last = -1
        while rows := self._read(
            "SELECT number, outcome FROM tasks WHERE state = 'ended' AND number > ? ORDER BY number LIMIT ?",
            (last, AT_ONCE),
        ):
            last = rows[-1][0]
            for _, written in rows:
                with undamaged(self.name):
                    outcome: Outcome = Outcome.from_json(msgspec.json.decode(written))
                yield outcome

    def counts(self) -> Counts:
        rows = self._read("SELECT coalesce(status, state), count(*) FROM tasks GROUP BY 1", ())
        with undamaged(self.name):
            return Counts(**dict(rows))

    def spent(self) -> Spent:
        ((usd, tokens, calls),) = self._read(
            "SELECT coalesce(sum(usd), 0.0), coalesce(sum(tokens), 0), coalesce(sum(tool_calls), 0)"
            " FROM attempts",
            (),
        )
        with undamaged(self.name):
            return Spent(usd, tokens, calls, float(self.meta("ran") or 0.0))

    def runner(self) -> str | None:
        with explained(self.path):
            is_taken = self._lock.is_taken()
        return (self.meta("runner") or "another process") if is_taken else None

    def meta(self, name: str) -> str | None:
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

    def _spend(self, connection: sqlite3.Connection, noted: Noted) -> None:
        usage = noted.usage
        values = {
            "id": noted.id,
            "session_id": noted.session_id,
            "worker": noted.worker,
            "tool_calls": noted.tool_calls,
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

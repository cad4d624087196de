"""Owns the tables of a journal, how a connection to one is opened, and the lock that only one runner has.

Does not read or write what is in them.
"""

from __future__ import annotations

import os
import sqlite3
import sys
import time
import uuid
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final

from outrider._private import make_private, refuse_planted
from outrider.errors import OptionsError
from outrider.fleet._errors import JournalBusy, JournalInvalid
from outrider.redaction import preview

if TYPE_CHECKING:
    from collections.abc import Generator

    from outrider.errors._root import Told

__all__ = ["RunnerLock", "connected", "explained", "undamaged"]

_APPLICATION_ID: Final = 0x4272644A
"""Tells a journal from the databases of other programs."""
_VERSION: Final = 1
_PATIENCE: Final = 30.0
"""Seconds to wait for whoever writes: a runner does so for milliseconds, but takes all its tasks at once."""
_GLANCE: Final = 0.2
"""Seconds in which those who only look whether it is taken are gone."""

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
        raise JournalInvalid(path, "there is no such file")
    if path.is_dir():
        raise JournalInvalid(path, "it is a folder")
    if writing:
        path.parent.mkdir(parents=True, exist_ok=True)
        # Prompts and answers are its owner's business.
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
    """Make a file of its owner's alone, unless it is there. Raises `PermissionError` for another user's."""
    if path.exists():
        # It is not opened here: to close a file takes the locks away that SQLite has on it in this process.
        refuse_planted(path)
    else:
        with suppress(FileExistsError):
            make_private(path)


def _check(connection: sqlite3.Connection, path: Path) -> None:
    (application,) = connection.execute("PRAGMA application_id").fetchone()
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    if application != _APPLICATION_ID and not _is_empty(connection):
        raise JournalInvalid(path, "it is a database of something else")
    if application == _APPLICATION_ID and version > _VERSION:
        hint = "Update Outrider."
        raise JournalInvalid(path, f"it is of version {version}, and {_VERSION} is known", hint=hint)
    made = {sql for (sql,) in connection.execute("SELECT sql FROM sqlite_master WHERE sql IS NOT NULL")}
    if made and made != set(_TABLES):
        # A view or a trigger of somebody else's could do anything to what is read and written.
        raise JournalInvalid(path, "its tables are not those of a journal")


def _is_empty(connection: sqlite3.Connection) -> bool:
    return connection.execute("SELECT 1 FROM sqlite_master LIMIT 1").fetchone() is None


def _set_up(connection: sqlite3.Connection) -> None:
    connection.execute("PRAGMA journal_mode = WAL")
    # What was written down outlives a loss of power, too.
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
    """Makes `JournalInvalid` of what SQLite and the disk have to say."""
    try:
        yield
    except sqlite3.DatabaseError as error:
        code = _code(error)
        if _is_busy(error):
            raise JournalBusy(path, "something that writes to it") from error
        reason = "it is damaged, or something else" if code == sqlite3.SQLITE_NOTADB else str(error)
        if code == sqlite3.SQLITE_CORRUPT:
            reason = f"it is damaged ({error})"
        raise JournalInvalid(path, reason, **_hint(code)) from error
    except OSError as error:
        raise JournalInvalid(path, error.strerror or str(error)) from error


@contextmanager
def undamaged(path: Path) -> Generator[None]:
    """Makes `JournalInvalid` of values that no journal has."""
    try:
        yield
    except JournalInvalid:
        raise
    except (OptionsError, ArithmeticError, RecursionError, TypeError, ValueError) as error:
        raise JournalInvalid(path, f"it is damaged ({preview(str(error))})") from error


def _code(error: sqlite3.Error) -> int:
    return getattr(error, "sqlite_errorcode", 0) & 0xFF


def _is_busy(error: sqlite3.Error) -> bool:
    return _code(error) in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)


def _hint(code: int) -> Told:
    """What to do about it, where that is not to give another path."""
    if code in (sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR):
        return {"hint": "Make room on the disk, and resume: what was written before is there."}
    if code in (sqlite3.SQLITE_READONLY, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_PERM):
        return {"hint": "Check who may write to it, and into its folder: to read it takes files there, too."}
    return {}


def _close_to_others(path: Path) -> None:
    """Whoever can open a lock can take it, and keep a runner out. Earlier versions made it for all to
    read."""
    if sys.platform != "win32":
        found = path.stat()
        if found.st_uid == os.geteuid() and found.st_mode & 0o077:
            path.chmod(0o600)


class RunnerLock:
    """Held by the one runner of a journal, as long as its process lives.

    It is SQLite's own lock, on a file beside the journal: it is there on every system, holds between threads
    of a process too, and is gone with the process, however that ends.
    """

    def __init__(self, journal: Path) -> None:
        self._journal = journal
        self._path = journal.with_name(journal.name + ".lock")
        self._connection: sqlite3.Connection | None = None

    def take(self, holder: str) -> None:
        """Raises `JournalBusy`, with the `holder` that took it, if it is taken."""
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
            if _is_busy(error):
                raise JournalBusy(self._journal, holder) from error
            raise
        self._connection = connection

    def is_taken(self) -> bool:
        """Whether somebody has it. Makes no file, and is not in the way of others who ask."""
        if not self._path.exists():
            return False
        connection = sqlite3.connect(self._path, timeout=0, isolation_level=None)
        try:
            connection.execute("SELECT 1 FROM sqlite_master").fetchall()
        except sqlite3.OperationalError as error:
            if not _is_busy(error):
                raise
            return True
        finally:
            connection.close()
        return False

    def free(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

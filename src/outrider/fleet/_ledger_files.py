"""Owns how a ledger is kept in a file, as JSON lines or in SQLite, so that what was acknowledged is never
lost, whatever happens to the process or to others that write to it.

Does not know what an entry says. Everything here blocks.
"""

from __future__ import annotations

import os
import sqlite3
import sys
import time
from contextlib import contextmanager
from threading import Lock
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

from outrider._private import refuse_planted
from outrider.errors import StoreError
from outrider.transcripts.stores._sqlite_schema import write_ahead

if sys.platform == "win32":
    import msvcrt
else:
    import fcntl

if TYPE_CHECKING:
    from collections.abc import Generator
    from pathlib import Path

_WAIT_SECONDS: Final = 30.0
"""How long others may write before it is a failure. They take milliseconds."""

_PAUSE_SECONDS: Final = 0.002

_CLOSED_BY_EXEC: Final[int] = getattr(os, "O_CLOEXEC", 0)
_AS_BYTES: Final[int] = getattr(os, "O_BINARY", 0)

_APPLICATION_ID: Final = 0x4272644C
"""Tells a ledger from databases of other programs."""

_VERSION: Final = 1

_making = Lock()
"""Held while the file of a database is made."""

_TABLES: Final = (
    """CREATE TABLE entries (
        number INTEGER PRIMARY KEY,
        id TEXT NOT NULL UNIQUE,
        at REAL NOT NULL,
        session TEXT NOT NULL,
        outcome TEXT NOT NULL,
        usd REAL NOT NULL,
        tokens INTEGER NOT NULL,
        data TEXT NOT NULL
    )""",
    "CREATE INDEX entries_by_session ON entries (session)",
    "CREATE INDEX entries_by_time ON entries (at)",
)


class Row(NamedTuple):
    """An entry as it is written: `data` is all of it, as JSON; the rest, what it is found by, here
    or by other programs."""

    id: str
    at: float
    session: str
    outcome: str
    usd: float
    tokens: int
    data: str


class LedgerFile(Protocol):
    """A file that only grows. May be used by any thread, and by several processes."""

    def append(self, row: Row) -> None:
        """Returns when it would outlive a loss of power."""
        ...

    def read(self, session: str | None, since: float | None) -> list[str]:
        """The data of all entries, oldest first. They may be limited, and need not be."""
        ...

    def close(self) -> None:
        """Give back what is held; it is taken again when needed."""
        ...


class JsonLines:
    """A line for each entry. A line that was not written to its end was never acknowledged."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def append(self, row: Row) -> None:
        with _failing(self._path, "add"), _opened(self._path) as number, _locked(number):
            size = os.fstat(number).st_size
            line = row.data.encode() + b"\n"
            if size and not _ends_with_line(number, size):
                # Whoever was at it was killed.
                line = b"\n" + line
            left = memoryview(line)
            while left:
                left = left[os.write(number, left) :]
            os.fsync(number)

    def read(self, session: str | None, since: float | None) -> list[str]:
        with _failing(self._path, "read"):
            try:
                whole = self._path.read_bytes()
            except FileNotFoundError:
                return []
        # What is behind the last line end is being written, or never will be.
        lines = whole.split(b"\n")[:-1]
        return [line.decode("utf-8", "replace") for line in lines if line.strip()]

    def close(self) -> None:
        pass


class SqliteFile:
    """A table of entries."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._connection: sqlite3.Connection | None = None
        self._process = 0
        self._lock = Lock()

    def append(self, row: Row) -> None:
        marks = ", ".join("?" * len(row))
        with self._lock, _failing(self._path, "add"):
            # An entry that was added before, by somebody who could not know it, is not added again.
            self._open().execute(
                f"INSERT OR IGNORE INTO entries ({', '.join(Row._fields)}) VALUES ({marks})", row
            )

    def read(self, session: str | None, since: float | None) -> list[str]:
        # Who only looks makes no database.
        if not self._path.exists():
            return []
        with self._lock, _failing(self._path, "read"):
            wanted = {"session = ?": session, "at >= ?": since}
            where = [clause for clause, value in wanted.items() if value is not None]
            rows = self._open().execute(
                f"SELECT data FROM entries WHERE {' AND '.join(['true', *where])} ORDER BY number",
                [value for value in wanted.values() if value is not None],
            )
            return [data for (data,) in rows]

    def close(self) -> None:
        with self._lock:
            connection, self._connection = self._connection, None
            if connection is not None and self._process == os.getpid():
                connection.close()

    def _open(self) -> sqlite3.Connection:
        if self._connection is not None and self._process == os.getpid():
            return self._connection
        # A connection must not be used, nor closed, in a process that was forked off.
        with _making:
            # To close the file later would take the locks away that SQLite has on it in this process.
            if not self._path.exists():
                with _opened(self._path):
                    pass
        connection = sqlite3.connect(
            self._path, timeout=_WAIT_SECONDS, isolation_level=None, check_same_thread=False
        )
        try:
            _set_up(connection, self._path)
        except BaseException:
            connection.close()
            raise
        self._connection, self._process = connection, os.getpid()
        return connection


def _set_up(connection: sqlite3.Connection, path: Path) -> None:
    # Nothing that was acknowledged is lost when the machine loses power.
    connection.execute("PRAGMA synchronous = FULL")
    connection.execute("BEGIN IMMEDIATE")
    try:
        [application] = connection.execute("PRAGMA application_id").fetchone()
        [version] = connection.execute("PRAGMA user_version").fetchone()
        [tables] = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
        if application != _APPLICATION_ID and (application or version or tables):
            raise StoreError(
                str(path), "open", "it is a database of another program", hint="Give the path of a new one."
            )
        if version > _VERSION:
            raise StoreError(
                str(path),
                "open",
                f"its tables are of version {version}, and this Outrider knows up to {_VERSION}",
                hint="Update Outrider here, or use another file.",
            )
        if not version:
            for statement in _TABLES:
                connection.execute(statement)
            connection.execute(f"PRAGMA application_id = {_APPLICATION_ID}")
            connection.execute(f"PRAGMA user_version = {_VERSION}")
        connection.execute("COMMIT")
    except BaseException:
        connection.rollback()
        raise
    write_ahead(connection, _WAIT_SECONDS)


@contextmanager
def _failing(path: Path, operation: str) -> Generator[None]:
    try:
        yield
    except OSError as error:
        reason = error.strerror or str(error)
        is_passing = isinstance(error, TimeoutError)
        raise StoreError(str(path), operation, reason, retryable=is_passing) from error
    except sqlite3.Error as error:
        # The lower byte is the kind of failure.
        code = (getattr(error, "sqlite_errorcode", None) or 0) & 0xFF
        is_passing = code in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_FULL)
        raise StoreError(str(path), operation, str(error), retryable=is_passing) from error


@contextmanager
def _opened(path: Path) -> Generator[int]:
    """A file that nobody else can read. It is made if it is not there, so that its name outlives a loss of
    power too."""
    flags = os.O_RDWR | os.O_APPEND | _CLOSED_BY_EXEC | _AS_BYTES
    try:
        number = os.open(path, flags)
    except FileNotFoundError:
        number = os.open(path, flags | os.O_CREAT, 0o600)
        _sync_folder(path.parent)
    try:
        refuse_planted(path)
        yield number
    finally:
        os.close(number)


def _sync_folder(folder: Path) -> None:
    if sys.platform == "win32":
        return
    number = os.open(folder, os.O_RDONLY | _CLOSED_BY_EXEC)
    try:
        os.fsync(number)
    finally:
        os.close(number)


@contextmanager
def _locked(number: int) -> Generator[None]:
    """Hold a file among all threads and processes. Raises `TimeoutError` if others do for too long."""
    end = time.monotonic() + _WAIT_SECONDS
    while not _try_to_lock(number):
        if time.monotonic() > end:
            raise TimeoutError("other writers did not finish in time")
        # The system itself would wait without end.
        time.sleep(_PAUSE_SECONDS)
    try:
        yield
    finally:
        # A process that was forked off meanwhile has the file too, and closing it here would not do.
        _unlock(number)


if sys.platform == "win32":
    _LOCKED_AT: Final = 2**62
    """No byte of a ledger: who reads must not be kept from it."""

    def _try_to_lock(number: int) -> bool:
        os.lseek(number, _LOCKED_AT, os.SEEK_SET)
        try:
            msvcrt.locking(number, msvcrt.LK_NBLCK, 1)
        except OSError:
            return False
        return True

    def _unlock(number: int) -> None:
        os.lseek(number, _LOCKED_AT, os.SEEK_SET)
        msvcrt.locking(number, msvcrt.LK_UNLCK, 1)

else:

    def _try_to_lock(number: int) -> bool:
        try:
            fcntl.flock(number, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True

    def _unlock(number: int) -> None:
        fcntl.flock(number, fcntl.LOCK_UN)


def _ends_with_line(number: int, size: int) -> bool:
    os.lseek(number, size - 1, os.SEEK_SET)
    return os.read(number, 1) == b"\n"

"""Defines `SqliteStore`, a session store in a SQLite database, with its tables and connections.

What it shares with other stores is in `_heads`.
"""

from __future__ import annotations

import os
import sqlite3
import time
from contextlib import contextmanager
from functools import partial
from threading import Condition, Lock
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from outrider._folders import refuse_planted, sync_folder
from outrider.errors import StoreError
from outrider.transcripts.stores._base import (
    MAKE_ROOM,
    RESTORE,
    WAIT_LONGER,
    check_version,
    explain_os_error,
    has_room,
    plain,
    restored,
)
from outrider.transcripts.stores._blocking import DEFAULT_TIMEOUT, Explained, raise_if_abandoned
from outrider.transcripts.stores._heads import Batch, Change, Conflict, Head, HeadStore, Part, read_head
from outrider.transcripts.stores._shared import Resource, Share, close_later
from outrider.transcripts.stores._urls import SECONDS, absolute_path, local_path, take_parameters

if TYPE_CHECKING:
    from collections.abc import Generator, Hashable, Sequence
    from pathlib import Path
    from typing import Self

    from outrider.transcripts.stores._base import Place

# Tables.

APPLICATION_ID: Final = 0x4F757431
"""Tells a database of sessions from those of other programs."""

_IS_SESSION: Final = r"substr(project, 1, 6) <> '\u0000'"
"""Of all that is listed: records of Outrider itself are in projects that begin with NUL."""

MIGRATIONS: Sequence[Sequence[str]] = (
    (
        """CREATE TABLE sessions (
            project TEXT NOT NULL,
            session TEXT NOT NULL,
            is_listed INTEGER NOT NULL,
            head BLOB NOT NULL,
            PRIMARY KEY (project, session)
        )""",
        "CREATE INDEX sessions_by_id ON sessions (session)",
        """CREATE TABLE batches (
            generation TEXT NOT NULL,
            number INTEGER NOT NULL,
            mark TEXT NOT NULL,
            data BLOB NOT NULL,
            PRIMARY KEY (generation, number)
        )""",
    ),
    (
        # Lists of the latest sessions read no others. Records of Outrider itself have a time of their own.
        "ALTER TABLE sessions ADD COLUMN mtime INTEGER",
        """UPDATE sessions SET mtime = json_extract(CAST(head AS TEXT), '$.mtime')
            WHERE is_listed AND json_valid(CAST(head AS TEXT))""",
        "CREATE INDEX sessions_by_project_and_time ON sessions (project, mtime) WHERE is_listed",
        f"CREATE INDEX sessions_by_time ON sessions (mtime) WHERE is_listed AND {_IS_SESSION}",
    ),
)
"""The statements that lead from one version to the next, from an empty database on."""


def set_up(
    connection: sqlite3.Connection,
    name: str,
    wait: float,
    application_id: int = APPLICATION_ID,
    migrations: Sequence[Sequence[str]] | None = None,
) -> None:
    """Make a connection ready: its settings, and the tables as they are now.

    Raises `StoreError` if the database is of another program, or of a newer version.
    """
    migrations = MIGRATIONS if migrations is None else migrations
    # Nothing that was acknowledged is lost when the machine loses power.
    connection.execute("PRAGMA synchronous = FULL")
    connection.execute("BEGIN")
    version = _version(connection, name, application_id, len(migrations))
    connection.execute("COMMIT")
    if version < len(migrations):
        connection.execute("BEGIN IMMEDIATE")
        try:
            # Another process may have been faster.
            for statements in migrations[_version(connection, name, application_id, len(migrations)) :]:
                for statement in statements:
                    connection.execute(statement)
            connection.execute(f"PRAGMA application_id = {application_id}")
            connection.execute(f"PRAGMA user_version = {len(migrations)}")
            connection.execute("COMMIT")
        except BaseException:
            connection.rollback()
            raise
    write_ahead(connection, wait)


def _version(connection: sqlite3.Connection, name: str, application_id: int, newest: int) -> int:
    [application] = connection.execute("PRAGMA application_id").fetchone()
    [version] = connection.execute("PRAGMA user_version").fetchone()
    if application != application_id:
        [tables] = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
        if application or version or tables:
            raise StoreError(
                name, "open", "the database belongs to another program", hint="Give the path of a new one."
            )
        return 0
    check_version(name, "its tables are", version, newest, "database")
    if connection.execute("SELECT 1 FROM sqlite_master WHERE type IN ('trigger', 'view')").fetchone():
        # One of somebody else's could do anything to what is read and written.
        raise StoreError(
            name, "open", "it has triggers or views, which are not Outrider's", hint="Use another database."
        )
    return int(version)


def write_ahead(connection: sqlite3.Connection, wait: float) -> None:
    """Let readers and a writer work at the same time. Where the file system does not allow it, they wait for
    each other, which is as safe."""
    end = time.monotonic() + wait
    while connection.execute("PRAGMA journal_mode").fetchone() != ("wal",):
        try:
            connection.execute("PRAGMA journal_mode = WAL")
            return
        except sqlite3.OperationalError as error:
            # SQLite does not wait by itself for this.
            if error.sqlite_errorcode != sqlite3.SQLITE_BUSY or time.monotonic() > end:
                raise
            time.sleep(0.01)


# Connections.

_LONGEST_WAIT_OF_A_FORK: Final = 2.0

_CLOSED_BY_EXEC: Final[int] = getattr(os, "O_CLOEXEC", 0)

_making = Lock()
"""Held while a file is made: to close it would take the locks away that SQLite has on it in this process."""

_lost: set[str] = set()
"""Databases that were in use in another thread when this process was forked off. SQLite takes the parent's
locks on them for its own, so they cannot be opened safely in this process."""


class _Open(NamedTuple):
    connection: sqlite3.Connection
    file: tuple[int, int]
    generation: int


class Connections(Resource):
    """Connections that are used by one thread at a time, and kept for the next."""

    def __init__(self, path: Path, name: str, wait: float) -> None:
        super().__init__()
        self._path, self._name, self._wait = path, name, wait
        self._used_at = 0.0
        self._idle: list[_Open] = []
        self._in_use = 0
        self._generation = 0
        self._changed = Condition(Lock())

    @contextmanager
    def one(self) -> Generator[sqlite3.Connection]:
        """A connection, for which the database is made if it is not there. What it has begun, and not ended,
        is rolled back."""
        with self._changed:
            self._in_use += 1
        kept, is_whole = None, True
        try:
            kept = self._taken()
            yield kept.connection
        except sqlite3.Error:
            is_whole = False
            raise
        finally:
            with self._changed:
                self._in_use -= 1
                self._changed.notify_all()
                if kept is not None:
                    self._put_back(kept, is_whole)
            close_later()

    @contextmanager
    def transaction(self) -> Generator[sqlite3.Connection]:
        """A connection with the only right to write."""
        with self.one() as connection:
            connection.execute("BEGIN IMMEDIATE")
            raise_if_abandoned()
            yield connection
            connection.execute("COMMIT")

    @property
    def has_idle(self) -> bool:
        return bool(self._idle)

    def close_idle(self, seconds: float) -> None:
        with self._changed:
            if time.monotonic() - self._used_at >= seconds:
                self._close_idle()

    def close(self) -> None:
        with self._changed:
            self._generation += 1
            self._close_idle()

    def __del__(self) -> None:
        # From 3.13 on, a connection that is dropped warns. Nobody else has the lock any more.
        self._close_idle()

    def before_fork(self) -> None:
        # SQLite keeps its locks by process, and knows nothing of forks: there must be no connection then.
        self._changed.acquire()
        self._changed.wait_for(lambda: not self._in_use, _LONGEST_WAIT_OF_A_FORK)
        self._close_idle()

    def after_fork(self) -> None:
        self._changed.release()

    def forget(self) -> None:
        if self._in_use:
            _lost.add(os.path.realpath(self._path))
        self._idle, self._in_use, self._changed = [], 0, Condition(Lock())

    def _put_back(self, kept: _Open, is_whole: bool) -> None:
        if kept.connection.in_transaction:
            kept.connection.rollback()
        if is_whole and kept.generation == self._generation:
            self._idle.append(kept)
            self._used_at = time.monotonic()
        else:
            kept.connection.close()

    def _close_idle(self) -> None:
        while self._idle:
            self._idle.pop().connection.close()

    def _taken(self) -> _Open:
        file = _identity(self._path)
        while True:
            with self._changed:
                generation = self._generation
                kept = self._idle.pop() if self._idle else None
            if kept is None:
                return self._opened(generation)
            if kept.file == file:
                return kept
            # The file was removed, or is another one now: what would be written to the old one is lost.
            kept.connection.close()

    def _opened(self, generation: int) -> _Open:
        if os.path.realpath(self._path) in _lost:
            raise StoreError(
                self._name,
                "open",
                "this process was forked while the database was in use in another thread",
                hint="Start processes by `spawn` or `forkserver`, or fork before the store is used.",
            )
        make_database(self._path)
        connection = sqlite3.connect(
            self._path, timeout=self._wait, isolation_level=None, check_same_thread=False
        )
        try:
            set_up(connection, self._name, self._wait)
            file = _identity(self._path)
        except BaseException:
            connection.close()
            raise
        return _Open(connection, file or (0, 0), generation)


def _identity(path: Path) -> tuple[int, int] | None:
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_dev, found.st_ino


def make_database(path: Path) -> None:
    """Make an empty file that nobody else can read, unless there is one: SQLite would make a public one."""
    if path.exists():
        refuse_planted(path)
        return
    with _making:
        try:
            made = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | _CLOSED_BY_EXEC, 0o600)
        except FileExistsError:
            return
        os.close(made)
    # The name has to be on the disk too.
    sync_folder(path.parent)


# The store.

_BUSY: Final = (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED, sqlite3.SQLITE_PROTOCOL)
_DAMAGED: Final = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)
_IO: Final = (sqlite3.SQLITE_IOERR, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_FULL)


_HEAD: Final = "SELECT head FROM sessions WHERE project = ? AND session = ?"


class SqliteStore(HeadStore):
    """Stores sessions in a SQLite database, which is created on first use; only its owner can read it.

    Several processes of one machine may use it at once. What was acknowledged survives a power loss. Do not
    put it on a network file system: SQLite's locks do not work on all of them.
    """

    _is_local = True

    def __init__(self, path: str | os.PathLike[str], *, timeout: float | None = DEFAULT_TIMEOUT) -> None:
        """`timeout` is how many seconds a call may take, the wait for other writers included."""
        given = os.fspath(path)
        hint = "Give the path of a file; `memory:` is a store in memory."
        self._path = absolute_path(given, "a SQLite database", hint)
        super().__init__(f"sqlite:///{given}", timeout=timeout)
        make = partial(Connections, self._path, self.name, self._patience)
        self._connections = Share(("sqlite", self._path, timeout), make)

    @classmethod
    def from_url(cls, url: str) -> Self:
        """`sqlite:///relative.db` or `sqlite:////absolute.db`, with `?timeout=seconds`."""
        url, given = take_parameters(url, {"timeout": SECONDS})
        return cls(local_path(url), **given)

    @property
    def path(self) -> Path:
        """The file of the database."""
        return self._path

    def _read(self, session: Place) -> tuple[Head, bytes | None]:
        rows = self._select(_HEAD, *_names(session))
        data = rows[0][0] if rows else None
        return read_head(session, data), data

    def _replace(self, session: Place, change: Change, version: bytes | None) -> bytes | None:
        names, data = _names(session), change.head.data
        with self._connections.get().transaction() as connection:
            row = connection.execute(_HEAD, names).fetchone()
            if (None if row is None else row[0]) != version:
                raise Conflict
            if change.batch is not None:
                part = change.head.parts[change.name]
                values = (part.generation, part.count - 1, *change.batch)
                connection.execute("INSERT INTO batches VALUES (?, ?, ?, ?)", values)
            for _, gone in change.gone:
                connection.execute("DELETE FROM batches WHERE generation = ?", (gone.generation,))
            if data is None:
                connection.execute("DELETE FROM sessions WHERE project = ? AND session = ?", names)
            else:
                connection.execute(
                    "INSERT OR REPLACE INTO sessions VALUES (?, ?, ?, ?, ?)",
                    (*names, change.head.mtime is not None, data, change.head.mtime),
                )
        return data

    def _read_batches(self, place: Place, part: Part, start: int, stop: int) -> list[Batch]:
        statement = """SELECT mark, data FROM batches
            WHERE generation = ? AND number >= ? AND number < ? ORDER BY number"""
        return [Batch(*row) for row in self._select(statement, part.generation, start, stop)]

    def _find_heads(
        self, *, project: str | None = None, session: str | None = None
    ) -> list[tuple[str, bytes]]:
        given = {"project": project, "session": session}
        name, value = next((name, value) for name, value in given.items() if value is not None)
        statement = f"SELECT session, head FROM sessions WHERE {name} = ? AND is_listed"
        return [(restored(its), data) for its, data in self._select(statement, plain(value))]

    def _find_latest(self, project: str | None, limit: int) -> list[tuple[str, bytes]]:
        which, given = (_IS_SESSION, ()) if project is None else ("project = ?", (plain(project),))
        statement = f"""SELECT session, head FROM sessions WHERE is_listed AND {which}
            ORDER BY mtime DESC LIMIT ?"""
        return [(restored(its), data) for its, data in self._select(statement, *given, limit)]

    def _list_projects(self) -> list[str]:
        rows = self._select("SELECT DISTINCT project FROM sessions WHERE is_listed")
        return [restored(project) for (project,) in rows]

    @property
    def _address(self) -> Hashable:
        return self._connections.key

    def _close(self) -> None:
        self._connections.let_go()

    def _explain(self, error: Exception) -> Explained | None:
        if isinstance(error, OSError):
            return explain_os_error(error)
        if not isinstance(error, sqlite3.Error):
            return None
        # The lower byte is the kind of failure.
        code = (getattr(error, "sqlite_errorcode", None) or 0) & 0xFF
        if code in _BUSY:
            return f"other writers did not finish in time ({error})", True, WAIT_LONGER
        if code in _DAMAGED:
            return f"the database is damaged, or no SQLite database ({error})", False, RESTORE
        if code == sqlite3.SQLITE_CANTOPEN and self._path.is_dir():
            return f"{self._path} is a folder ({error})", False, "Give the path of a file in it."
        if code == sqlite3.SQLITE_READONLY:
            what = f"this process may not write to it, or to its folder ({error})"
            return what, False, "SQLite writes there to read, too: give it the right, or a copy of its own."
        if code in _IO and not has_room(self._path.parent):
            return f"there is no space left on its disk ({error})", True, MAKE_ROOM
        return str(error), code == sqlite3.SQLITE_FULL

    def _select(self, statement: str, *values: object) -> list[tuple[Any, ...]]:
        # Reading creates no database.
        if not self._path.exists():
            return []
        with self._connections.get().one() as connection:
            return connection.execute(statement, values).fetchall()


def _names(session: Place) -> tuple[str, str]:
    return plain(session.project), plain(session.session)

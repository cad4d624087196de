"""Defines `SqliteStore`, a session store in a SQLite database, with its tables and connections.

What it shares with other stores is in `_blocking`.
"""

from __future__ import annotations

import os
import sqlite3
import time
from contextlib import contextmanager
from threading import Condition, Lock
from typing import TYPE_CHECKING, Any, Final, NamedTuple, cast

from msgspec.structs import astuple

from outrider._folders import refuse_planted, sync_folder
from outrider.errors import StoreError
from outrider.transcripts.stores._base import (
    MAKE_ROOM,
    RESTORE,
    WAIT_LONGER,
    Lease,
    LeaseTime,
    Line,
    Place,
    check_version,
    decode,
    explain_os_error,
    fold_summary,
    has_room,
    later,
    plain,
    restored,
)
from outrider.transcripts.stores._blocking import (
    DEFAULT_TIMEOUT,
    BlockingStore,
    Explained,
    Listed,
    raise_if_abandoned,
)
from outrider.transcripts.stores._urls import SECONDS, absolute_path, local_path, take_parameters

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Sequence
    from pathlib import Path
    from typing import Self

    from outrider.transcripts.stores._base import SessionStoreEntry

# Tables.

APPLICATION_ID: Final = 0x42726431
"""Tells a database of sessions from those of other programs."""

MIGRATIONS: Sequence[Sequence[str]] = (
    (
        """CREATE TABLE transcripts (
            id INTEGER PRIMARY KEY,
            project TEXT NOT NULL,
            session TEXT NOT NULL,
            part TEXT NOT NULL,
            UNIQUE (project, session, part)
        )""",
        """CREATE TABLE entries (
            number INTEGER PRIMARY KEY,
            transcript INTEGER NOT NULL,
            uuid TEXT,
            data BLOB NOT NULL
        )""",
        "CREATE INDEX entries_in_order ON entries (transcript, number)",
        "CREATE UNIQUE INDEX entries_once ON entries (transcript, uuid) WHERE uuid IS NOT NULL",
        """CREATE TABLE batches (
            transcript INTEGER NOT NULL,
            batch TEXT NOT NULL,
            PRIMARY KEY (transcript, batch)
        ) WITHOUT ROWID""",
        """CREATE TABLE sessions (
            project TEXT NOT NULL,
            session TEXT NOT NULL,
            mtime INTEGER NOT NULL,
            summary BLOB NOT NULL,
            PRIMARY KEY (project, session)
        ) WITHOUT ROWID""",
        "CREATE INDEX sessions_by_time ON sessions (project, mtime)",
        "CREATE INDEX sessions_by_id ON sessions (session)",
        """CREATE TABLE leases (
            project TEXT NOT NULL,
            session TEXT NOT NULL,
            token TEXT NOT NULL,
            holder TEXT NOT NULL,
            ends REAL NOT NULL,
            PRIMARY KEY (project, session)
        ) WITHOUT ROWID""",
    ),
    (
        "ALTER TABLE leases ADD COLUMN seconds REAL NOT NULL DEFAULT 0",
        "ALTER TABLE leases ADD COLUMN boot TEXT NOT NULL DEFAULT ''",
        "ALTER TABLE leases ADD COLUMN ends_up REAL NOT NULL DEFAULT 0",
    ),
)
"""The statements that lead from one version to the next, from an empty database on."""


def set_up(connection: sqlite3.Connection, name: str, wait: float) -> None:
    """Make a connection ready: its settings, and the tables as they are now.

    Raises `StoreError` if the database is of another program, or of a newer version.
    """
    # Nothing that was acknowledged is lost when the machine loses power.
    connection.execute("PRAGMA synchronous = FULL")
    connection.execute("BEGIN")
    version = _version(connection, name)
    connection.execute("COMMIT")
    if version < len(MIGRATIONS):
        connection.execute("BEGIN IMMEDIATE")
        try:
            # Another process may have been faster.
            for statements in MIGRATIONS[_version(connection, name) :]:
                for statement in statements:
                    connection.execute(statement)
            connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
            connection.execute(f"PRAGMA user_version = {len(MIGRATIONS)}")
            connection.execute("COMMIT")
        except BaseException:
            connection.rollback()
            raise
    write_ahead(connection, wait)


def _version(connection: sqlite3.Connection, name: str) -> int:
    [application] = connection.execute("PRAGMA application_id").fetchone()
    [version] = connection.execute("PRAGMA user_version").fetchone()
    if application != APPLICATION_ID:
        [tables] = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
        if application or version or tables:
            raise StoreError(
                name, "open", "the database belongs to another program", hint="Give the path of a new one."
            )
        return 0
    check_version(name, "its tables are", version, len(MIGRATIONS), "database")
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


class Connections:
    """Connections that are used by one thread at a time, and kept for the next."""

    def __init__(self, path: Path, name: str, wait: float) -> None:
        self._path, self._name, self._wait = path, name, wait
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

    @contextmanager
    def transaction(self) -> Generator[sqlite3.Connection]:
        """A connection with the only right to write."""
        with self.one() as connection:
            connection.execute("BEGIN IMMEDIATE")
            raise_if_abandoned()
            yield connection
            connection.execute("COMMIT")

    def close(self) -> None:
        """Those in use are closed after that."""
        with self._changed:
            self._generation += 1
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
        _make(self._path)
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


def _make(path: Path) -> None:
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


class SqliteStore(BlockingStore):
    """Stores sessions in a SQLite database, which is created on first use; only its owner can read it.

    Several processes of one machine may use it at once. What was acknowledged survives a power loss. Do not
    put it on a network file system: SQLite's locks do not work on all of them.
    """

    def __init__(self, path: str | os.PathLike[str], *, timeout: float | None = DEFAULT_TIMEOUT) -> None:
        """`timeout` is how many seconds a call may take, the wait for other writers included."""
        given = os.fspath(path)
        hint = "Give the path of a file; `memory:` is a store in memory."
        self._path = absolute_path(given, "a SQLite database", hint)
        super().__init__(f"sqlite:///{given}", timeout=timeout)
        self._connections = Connections(self._path, self.name, self._patience)

    @classmethod
    def from_url(cls, url: str) -> Self:
        """`sqlite:///relative.db` or `sqlite:////absolute.db`, with `?timeout=seconds`."""
        url, given = take_parameters(url, {"timeout": SECONDS})
        return cls(local_path(url), **given)

    @property
    def path(self) -> Path:
        """The file of the database."""
        return self._path

    def _append(self, place: Place, lines: list[Line], batch: str | None) -> None:
        with self._connections.transaction() as connection:
            self._check_lease(place, _lease(connection, place))
            transcript = _transcript(connection, place)
            if transcript is None:
                made = connection.execute(
                    "INSERT INTO transcripts (project, session, part) VALUES (?, ?, ?)",
                    (*_names(place), plain(place.part)),
                )
                transcript = cast("int", made.lastrowid)
            if batch is not None and not _added(
                connection,
                "INSERT OR IGNORE INTO batches (transcript, batch) VALUES (?, ?)",
                (transcript, plain(batch)),
            ):
                return
            fresh = [
                line
                for line in lines
                if _added(
                    connection,
                    "INSERT INTO entries (transcript, uuid, data) VALUES (?, ?, ?)"
                    " ON CONFLICT (transcript, uuid) WHERE uuid IS NOT NULL DO NOTHING",
                    (transcript, None if line.uuid is None else plain(line.uuid), line.data),
                )
            ]
            if fresh and place.subpath is None:
                _summarise(connection, place, fresh)

    def _load(self, place: Place) -> list[SessionStoreEntry] | None:
        rows = self._read(
            "SELECT data FROM transcripts JOIN entries ON transcript = id"
            " WHERE project = ? AND session = ? AND part = ? ORDER BY number",
            *_names(place),
            plain(place.part),
        )
        return [decode(data) for (data,) in rows] or None

    def _list_sessions(self, project: str, *, summaries: bool) -> list[Listed]:
        rows = self._read(
            f"SELECT session, mtime, {'summary' if summaries else 'NULL'} FROM sessions WHERE project = ?",
            plain(project),
        )
        return [(restored(session), mtime, summary) for session, mtime, summary in rows]

    def _delete(self, place: Place) -> None:
        with self._connections.transaction() as connection:
            self._check_lease(place, _lease(connection, place))
            rows = connection.execute(
                "SELECT id FROM transcripts WHERE project = ? AND session = ? AND part = coalesce(?, part)",
                (*_names(place), None if place.subpath is None else plain(place.part)),
            ).fetchall()
            for transcript in rows:
                connection.execute("DELETE FROM entries WHERE transcript = ?", transcript)
                connection.execute("DELETE FROM batches WHERE transcript = ?", transcript)
                connection.execute("DELETE FROM transcripts WHERE id = ?", transcript)
            if place.subpath is None:
                connection.execute("DELETE FROM sessions WHERE project = ? AND session = ?", _names(place))

    def _list_subkeys(self, session: Place) -> list[str]:
        rows = self._read(
            "SELECT part FROM transcripts WHERE project = ? AND session = ? AND part <> ''", *_names(session)
        )
        return [Place.subpath_of(restored(part)) or "" for (part,) in rows]

    def _list_projects(self) -> list[str]:
        rows = self._read("SELECT DISTINCT project FROM sessions")
        return [restored(project) for (project,) in rows]

    def _find_session(self, session_id: str) -> list[str]:
        rows = self._read("SELECT project FROM sessions WHERE session = ?", plain(session_id))
        return [restored(project) for (project,) in rows]

    def _change_lease(self, session: Place, change: Callable[[Lease | None], Lease | None]) -> None:
        with self._connections.transaction() as connection:
            kept = _lease(connection, session)
            lease = change(kept)
            if lease is None:
                connection.execute("DELETE FROM leases WHERE project = ? AND session = ?", _names(session))
            elif lease is not kept:
                connection.execute(
                    "INSERT OR REPLACE INTO leases"
                    " (project, session, token, holder, ends, seconds, boot, ends_up)"
                    " VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
                    (
                        *_names(session),
                        plain(lease.token),
                        plain(lease.holder),
                        *astuple(LeaseTime.of(lease.seconds)),
                    ),
                )

    def _close(self) -> None:
        self._connections.close()

    def _before_fork(self) -> None:
        self._connections.before_fork()

    def _after_fork(self) -> None:
        self._connections.after_fork()

    def _forget(self) -> None:
        self._connections.forget()

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

    def _read(self, statement: str, *values: str) -> list[tuple[Any, ...]]:
        # Who only looks makes no database.
        if not self._path.exists():
            return []
        with self._connections.one() as connection:
            return connection.execute(statement, values).fetchall()


def _names(place: Place) -> tuple[str, str]:
    return plain(place.project), plain(place.session)


def _added(connection: sqlite3.Connection, statement: str, values: tuple[object, ...]) -> bool:
    return connection.execute(statement, values).rowcount == 1


def _transcript(connection: sqlite3.Connection, place: Place) -> int | None:
    row = connection.execute(
        "SELECT id FROM transcripts WHERE project = ? AND session = ? AND part = ?",
        (*_names(place), plain(place.part)),
    ).fetchone()
    return None if row is None else cast("int", row[0])


def _lease(connection: sqlite3.Connection, place: Place) -> Lease | None:
    row = connection.execute(
        "SELECT token, holder, ends, seconds, boot, ends_up FROM leases WHERE project = ? AND session = ?",
        _names(place),
    ).fetchone()
    return None if row is None else Lease(restored(row[0]), restored(row[1]), LeaseTime(*row[2:]).left)


def _summarise(connection: sqlite3.Connection, place: Place, fresh: list[Line]) -> None:
    row = connection.execute(
        "SELECT summary FROM sessions WHERE project = ? AND session = ?", _names(place)
    ).fetchone()
    [latest] = connection.execute(
        "SELECT coalesce(max(mtime), 0) FROM sessions WHERE project = ?", (plain(place.project),)
    ).fetchone()
    connection.execute(
        "INSERT OR REPLACE INTO sessions (project, session, mtime, summary) VALUES (?, ?, ?, ?)",
        (*_names(place), later(latest), fold_summary(place, None if row is None else row[0], fresh)),
    )

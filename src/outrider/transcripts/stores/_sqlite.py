"""Owns `SqliteStore`, a session store in a SQLite database.

Its connections are in `_sqlite_connections`, its tables in `_sqlite_schema`.
"""

from __future__ import annotations

import os
import sqlite3
from typing import TYPE_CHECKING, Any, Final, cast

from msgspec.structs import astuple

from outrider.errors import LeaseLost, SessionBusy
from outrider.transcripts._summary import fold_session_summary
from outrider.transcripts.stores._disk_errors import (
    MAKE_ROOM,
    RESTORE,
    WAIT_LONGER,
    explain_os_error,
    has_room,
)
from outrider.transcripts.stores._lease_time import LeaseTime
from outrider.transcripts.stores._records import Line, Place, decode, encode, later, plain, restored
from outrider.transcripts.stores._sqlite_connections import Connections
from outrider.transcripts.stores._threads import DEFAULT_TIMEOUT, BlockingStore, Explained
from outrider.transcripts.stores._urls import (
    absolute_path,
    local_path,
    refuse_parameters,
    take_parameters,
    take_seconds,
)

if TYPE_CHECKING:
    from pathlib import Path
    from typing import Self

    from outrider.transcripts._store import SessionStoreEntry, SessionStoreListEntry, SessionSummaryEntry

__all__ = ["SqliteStore"]

_BUSY: Final = (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED, sqlite3.SQLITE_PROTOCOL)
_DAMAGED: Final = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)
_IO: Final = (sqlite3.SQLITE_IOERR, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_FULL)


class SqliteStore(BlockingStore):
    """Keeps sessions in a SQLite database, which is made if it is not there; only its owner can read it.

    Several processes of one machine may use it at once. What was acknowledged outlives a loss of power. Do
    not put it on a network file system: SQLite's locks do not work on all of them.
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
        url, taken = take_parameters(url, "timeout")
        refuse_parameters(url, ("timeout",))
        return cls(local_path(url), timeout=take_seconds(taken, "timeout", DEFAULT_TIMEOUT))

    @property
    def path(self) -> Path:
        """The file of the database."""
        return self._path

    def _append(self, place: Place, lines: list[Line], batch: str | None) -> None:
        with self._connections.transaction() as connection:
            self._check(connection, place)
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
                line.entry
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

    def _list_sessions(self, project: str) -> list[SessionStoreListEntry]:
        rows = self._read(
            "SELECT session, mtime FROM sessions WHERE project = ? ORDER BY mtime DESC", plain(project)
        )
        return [{"session_id": restored(session), "mtime": mtime} for session, mtime in rows]

    def _list_summaries(self, project: str) -> list[SessionSummaryEntry]:
        rows = self._read(
            "SELECT session, mtime, summary FROM sessions WHERE project = ? ORDER BY mtime DESC",
            plain(project),
        )
        return [_summary(*row) for row in rows]

    def _delete(self, place: Place) -> None:
        with self._connections.transaction() as connection:
            self._check(connection, place)
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

    def _acquire(self, session: Place, token: str, holder: str, seconds: float) -> None:
        with self._connections.transaction() as connection:
            _, other, left = _lease(connection, session)
            if left > 0:
                raise SessionBusy(session.session, other, retry_after=round(left, 3))
            connection.execute(
                "INSERT OR REPLACE INTO leases"
                " (project, session, token, holder, ends, seconds, boot, ends_up)"
                " VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
                (*_names(session), token, plain(holder), *astuple(LeaseTime.of(seconds))),
            )

    def _renew(self, session: Place, token: str, seconds: float) -> None:
        with self._connections.transaction() as connection:
            kept, holder, _ = _lease(connection, session)
            if kept != token:
                raise LeaseLost(session.session, holder)
            connection.execute(
                "UPDATE leases SET ends = ?, seconds = ?, boot = ?, ends_up = ?"
                " WHERE project = ? AND session = ?",
                (*astuple(LeaseTime.of(seconds)), *_names(session)),
            )

    def _release(self, session: Place, token: str) -> None:
        with self._connections.transaction() as connection:
            connection.execute(
                "DELETE FROM leases WHERE project = ? AND session = ? AND token = ?",
                (*_names(session), plain(token)),
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
            what = f"this process has no right to write to it, or to its folder ({error})"
            return what, False, "SQLite writes there to read, too: give it the right, or a copy of its own."
        if code in _IO and not has_room(self._path.parent):
            return f"there is no room left on its disk ({error})", True, MAKE_ROOM
        return str(error), code == sqlite3.SQLITE_FULL

    def _read(self, statement: str, *values: str) -> list[tuple[Any, ...]]:
        # Who only looks makes no database.
        if not self._path.exists():
            return []
        with self._connections.one() as connection:
            return connection.execute(statement, values).fetchall()

    def _check(self, connection: sqlite3.Connection, place: Place) -> None:
        self._check_lease(place, *_lease(connection, place))


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


def _lease(connection: sqlite3.Connection, place: Place) -> tuple[str | None, str, float]:
    """Token, holder, and the seconds that it runs for; below zero if it has run out."""
    row = connection.execute(
        "SELECT token, holder, ends, seconds, boot, ends_up FROM leases WHERE project = ? AND session = ?",
        _names(place),
    ).fetchone()
    return (None, "", -1.0) if row is None else (row[0], restored(row[1]), LeaseTime(*row[2:]).left)


def _summarise(connection: sqlite3.Connection, place: Place, fresh: list[SessionStoreEntry]) -> None:
    row = connection.execute(
        "SELECT session, mtime, summary FROM sessions WHERE project = ? AND session = ?", _names(place)
    ).fetchone()
    summary = fold_session_summary(None if row is None else _summary(*row), place.key, fresh)
    [latest] = connection.execute(
        "SELECT coalesce(max(mtime), 0) FROM sessions WHERE project = ?", (plain(place.project),)
    ).fetchone()
    connection.execute(
        "INSERT OR REPLACE INTO sessions (project, session, mtime, summary) VALUES (?, ?, ?, ?)",
        (*_names(place), later(latest), encode(summary["data"])),
    )


def _summary(session: str, mtime: int, data: bytes) -> SessionSummaryEntry:
    return {
        "session_id": restored(session),
        "mtime": mtime,
        "data": cast("dict[str, object]", decode(data)),
    }

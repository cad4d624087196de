"""Owns the tables of a SQLite database of sessions, their versions, and how an older one becomes the present.

Does not read or write what is in them.
"""

from __future__ import annotations

import sqlite3
import time
from typing import TYPE_CHECKING, Final

from outrider.errors import StoreError

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["APPLICATION_ID", "MIGRATIONS", "set_up", "write_ahead"]

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
                name, "open", "it is a database of another program", hint="Give the path of a new one."
            )
        return 0
    if version > len(MIGRATIONS):
        raise StoreError(
            name,
            "open",
            f"its tables are of version {version}, and this Outrider knows up to {len(MIGRATIONS)}",
            hint="Update Outrider here, or use another database.",
        )
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

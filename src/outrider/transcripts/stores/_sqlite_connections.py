"""Owns the connections to one SQLite database: how they are opened, set up, shared and closed.

Does not know what is asked through them.
"""

from __future__ import annotations

import os
import sqlite3
from contextlib import contextmanager
from threading import Condition, Lock
from typing import TYPE_CHECKING, Final, NamedTuple

from outrider._private import refuse_planted
from outrider.errors import StoreError
from outrider.transcripts.stores._sqlite_schema import set_up
from outrider.transcripts.stores._threads import go_on

if TYPE_CHECKING:
    from collections.abc import Generator
    from pathlib import Path

__all__ = ["Connections"]

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
            go_on()
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
    if os.name == "nt":
        return
    # The name has to be on the disk too.
    folder = os.open(path.parent, os.O_RDONLY | _CLOSED_BY_EXEC)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)

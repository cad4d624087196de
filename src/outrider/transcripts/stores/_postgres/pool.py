"""Pools connections to a PostgreSQL server: opened on demand, used by one thread at a time, with timeouts.

`psycopg_pool.ConnectionPool` is not used because it connects in the background: a caller waits for its whole
timeout and never learns the reason. Here a connection that cannot be made fails at once, with the server's
reason.
"""

from __future__ import annotations

import os
import select
import threading
import time
import weakref
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final, TypeAlias, cast

import psycopg
from psycopg.abc import RV, PQGen
from psycopg.pq import TransactionStatus
from psycopg.rows import TupleRow
from psycopg.waiting import Ready

if TYPE_CHECKING:
    from collections.abc import Generator

__all__ = ["Exhausted", "Link", "NoAnswer", "Pool", "TimedConnection"]

_GRACE: Final = 0.25
"""A connection gives up so much later than the call, which says so better."""

_PATIENCE: Final = 0.8
"""So much of the time of a call is spent on waiting for a free connection; then it is told why."""


class Exhausted(Exception):
    """All connections are in use, and stayed so."""


class NoAnswer(psycopg.OperationalError):
    """The server stopped answering."""


class TimedConnection(psycopg.Connection[TupleRow]):
    """A connection that gives up when its time is up, though the server has stopped answering."""

    give_up_at: float = float("inf")
    has_given_up: bool = False

    def wait(self, gen: PQGen[RV], interval: float = 0.1, timeout: float | None = None) -> RV:
        if self.has_given_up:
            # Left are the ends of transaction and pipeline: the driver would log that it cannot reach them.
            gen.close()
            return cast("RV", None)
        bounded = _bounded(gen, self.give_up_at)
        try:
            # The last argument is newer than the oldest driver that will do.
            if timeout is None:
                return super().wait(bounded, interval)
            return super().wait(bounded, interval, timeout)
        except NoAnswer:
            self.has_given_up = True
            self.close()
            raise


Link: TypeAlias = TimedConnection


class Pool:
    """Lends connections. May be used by several threads."""

    def __init__(self, conninfo: str, size: int, timeout: float | None) -> None:
        self._conninfo, self._size = conninfo, size
        self._patience = None if timeout is None else timeout * _PATIENCE
        self._seconds = None if timeout is None else timeout + _GRACE
        self._slots = threading.Semaphore(size)
        self._idle: list[Link] = []
        self._lock = threading.Lock()
        self._generation = 0
        # A call that was given up may end, and put its connection back, after all was closed.
        weakref.finalize(self, _close_left, self._idle, os.getpid())

    @contextmanager
    def lent(self) -> Generator[Link]:
        """A connection, which goes back when it is free again, and is closed if it is not."""
        if not self._slots.acquire(timeout=self._patience):
            raise Exhausted(f"all {self._size} connections are in use; give a larger `pool_size`")
        generation = self._generation
        try:
            link = self._take() or self._connect()
            link.give_up_at = float("inf") if self._seconds is None else time.monotonic() + self._seconds
            try:
                yield link
            finally:
                self._put_back(link, generation)
        finally:
            self._slots.release()

    def close(self) -> None:
        """Close those that are idle, and the others when they come back."""
        self._generation += 1
        self.drop_idle()

    def drop_idle(self) -> None:
        """Close those that are idle: one of them was found dead, and its like may be too."""
        with self._lock:
            idle = [*self._idle]
            self._idle.clear()
        for link in idle:
            link.close()

    def _take(self) -> Link | None:
        while True:
            with self._lock:
                if not self._idle:
                    return None
                link = self._idle.pop()
            if _is_quiet(link):
                return link
            link.close()

    def _put_back(self, link: Link, generation: int) -> None:
        is_free = not link.closed and link.info.transaction_status == TransactionStatus.IDLE
        if is_free:
            with self._lock:
                if generation == self._generation:
                    self._idle.append(link)
                    return
        link.close()

    def _connect(self) -> Link:
        return TimedConnection.connect(
            self._conninfo,
            autocommit=True,
            # Whole seconds, and the driver takes no less than 2; 0 is for ever.
            connect_timeout=0 if self._seconds is None else max(2, round(self._seconds)),
            fallback_application_name="outrider",
            # For a host that is gone without a word; 0 leaves it to the system.
            tcp_user_timeout=0 if self._seconds is None else round(self._seconds * 1000),
        )


def _close_left(idle: list[Link], process: int) -> None:
    if os.getpid() == process:
        for link in idle:
            link.close()


def _is_quiet(link: Link) -> bool:
    """Whether nothing came while it was idle: what a server says then is that it ends."""
    try:
        poll = select.poll()
        poll.register(link.fileno(), select.POLLIN | select.POLLHUP | select.POLLERR)
        return not link.closed and not poll.poll(0)
    except (OSError, psycopg.Error):
        return False


def _bounded(gen: PQGen[RV], give_up_at: float) -> PQGen[RV]:
    """A driver's generator that ends at its time, which it looks at when nothing came for a while."""
    try:
        wanted = next(gen)
        while True:
            ready = yield wanted
            if ready == Ready.NONE and time.monotonic() >= give_up_at:
                raise NoAnswer("the server stopped answering")
            wanted = gen.send(ready)
    except StopIteration as ended:
        return cast("RV", ended.value)

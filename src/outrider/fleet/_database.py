"""`Database`: a connection to PostgreSQL for a journal or a ledger, made anew when it was lost."""

from __future__ import annotations

import os
import re
import time
from threading import Lock
from typing import TYPE_CHECKING, Any, Final, TypeVar, cast

import psycopg
from psycopg.abc import RV, PQGen
from psycopg.conninfo import conninfo_to_dict
from psycopg.waiting import Ready

from outrider.errors import OptionsError, StoreError
from outrider.redaction import mask
from outrider.transcripts.stores._postgres import Link, NoAnswer, Tables, set_up
from outrider.transcripts.stores._urls import SECONDS, TEXT, Parameter, shown, take_parameters

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence


T = TypeVar("T")

_TIMEOUT: Final = 10.0
_MISSING: Final = re.compile(r'database "(.*)" does not exist')
_LOST: Final = ("08", "57P")
_PASSING: Final = (*_LOST, "40", "53", "55P03", "57014", "25P03")
"""Of SQLSTATE: connection, shutdown, conflict of transactions, out of something, locked, took too long."""


class _Line(Link):
    """A connection whose calls end, whether the server answers or not."""

    ends_at: float = float("inf")

    def wait(self, gen: PQGen[RV], interval: float = 0.1, timeout: float | None = None) -> RV:
        return super().wait(self._bounded(gen), interval, timeout)

    def _bounded(self, gen: PQGen[RV]) -> PQGen[RV]:
        try:
            wanted = next(gen)
            while True:
                ready = yield wanted
                if ready == Ready.NONE and time.monotonic() > self.ends_at:
                    raise NoAnswer("the server stopped answering")
                wanted = gen.send(ready)
        except StopIteration as ended:
            return cast("RV", ended.value)


class Database:
    """The tables of one kind in a database. Its calls are made one after another, each in one transaction."""

    def __init__(
        self,
        url: str,
        tables: type[Tables],
        migrations: Sequence[Callable[[Any], list[str]]],
        parameters: Mapping[str, Parameter],
    ) -> None:
        """`parameters`: those of the URL besides `schema` and `timeout`. Raises `OptionsError`."""
        self.name = shown(url)
        known = {"schema": TEXT, "timeout": SECONDS, **parameters}
        self._address, self.values = take_parameters(url, known, others=True)
        try:
            conninfo_to_dict(self._address)
        except psycopg.ProgrammingError:
            # The driver's text may hold a piece of the password.
            raise OptionsError(
                f"{self.name!r} is not the address of a PostgreSQL database",
                hint="Write postgresql://user:password@host:5432/database.",
            ) from None
        self._timeout: float = self.values.get("timeout", _TIMEOUT)
        self.tables = tables(self.values.get("schema"), "outrider_")
        self._migrations = migrations
        self._line: _Line | None = None
        self._process = 0
        self._lock = Lock()

    def do(self, call: Callable[[Link], T], *, makes_tables: bool = True, seconds: float | None = None) -> T:
        """Call it in a transaction. Raises `psycopg.Error`, and `StoreError` if a newer Outrider made the
        tables. If the connection was lost, whether it was done is not known."""
        with self._lock:
            line = self._connected(makes_tables=makes_tables)
            limit = self._timeout if seconds is None else seconds
            line.ends_at = time.monotonic() + limit + 1
            # Let the server give up, too: a process that is stopped, or a host that vanishes, must not keep
            # its locks. Not in a pipeline: a server that waits for the rest of one takes itself for busy.
            bounds = ("statement_timeout", "lock_timeout", "idle_in_transaction_session_timeout")
            milliseconds = max(1, round(limit * 1000))
            begin = "; ".join(["BEGIN", *(f"SET LOCAL {each} = {milliseconds}" for each in bounds)])
            try:
                line.execute(begin.encode())
                try:
                    result = call(line)
                    line.execute("COMMIT")
                except BaseException:
                    if not line.closed:
                        line.rollback()
                    raise
                return result
            except psycopg.Error as error:
                if line.closed or is_lost(error):
                    self._drop()
                raise

    def _connected(self, *, makes_tables: bool) -> _Line:
        if self._line is not None and self._process == os.getpid() and not self._line.closed:
            return self._line
        try:
            line = _Line.connect(
                self._address,
                autocommit=True,
                # A pooler may give each transaction another connection.
                prepare_threshold=None,
                connect_timeout=max(2, round(self._timeout)),
                fallback_application_name="outrider fleet",
                tcp_user_timeout=round(self._timeout * 1000),
            )
        except (UnicodeError, ValueError) as error:
            # No name of a host.
            hint = "Write postgresql://user:password@host:5432/database."
            raise StoreError(self.name, "open", f"the address is invalid ({error})", hint=hint) from error
        try:
            line.ends_at = time.monotonic() + self._timeout
            if makes_tables:
                set_up(line, self.tables, self.name, self._migrations)
        except BaseException:
            line.close()
            raise
        # One of another process must be neither used nor closed here.
        self._line, self._process = line, os.getpid()
        return line

    def _drop(self) -> None:
        line, self._line = self._line, None
        if line is not None and self._process == os.getpid():
            line.close()

    def close(self) -> None:
        with self._lock:
            self._drop()


def is_lost(error: psycopg.Error) -> bool:
    """Whether the connection is gone."""
    if error.sqlstate is not None:
        return error.sqlstate.startswith(_LOST)
    return isinstance(error, psycopg.OperationalError | psycopg.InterfaceError)


def explain(error: psycopg.Error | StoreError) -> tuple[str, bool]:
    """Why it failed, and whether that may pass."""
    if isinstance(error, StoreError):
        return error.reason, error.retryable
    state = error.sqlstate or ""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    reason = mask(lines[0]) if lines else type(error).__name__
    if missing := _MISSING.search(str(error)):
        name = missing[1]
        return f"there is no database {name!r}; create it with `createdb {name}`, or name another", False
    if state == "42501":
        return f"{reason}; the user needs the rights to create and use tables there", False
    if "authentication failed" in reason or "no pg_hba.conf entry" in reason or state.startswith("28"):
        return f"{reason}; check user and password in the URL", False
    if state:
        return reason, state.startswith(_PASSING)
    if "connection is bad: invalid " in reason:
        return f"{reason}; correct the URL", False
    return reason, isinstance(error, psycopg.OperationalError | psycopg.InterfaceError)

"""`Database`: the tables of a journal or a ledger in PostgreSQL. Those of one address share connections.
`PostgresTable` has the entries of a ledger, which programs on many machines add to.
"""

from __future__ import annotations

import time
from threading import Lock
from typing import TYPE_CHECKING, Any, Final, TypeVar, cast

import psycopg
from psycopg.conninfo import conninfo_to_dict

from outrider.errors import OptionsError, StoreError
from outrider.transcripts.stores._base import to_bytes, to_text
from outrider.transcripts.stores._postgres import (
    POOL_SIZE,
    Exhausted,
    Link,
    Tables,
    explain,
    set_up,
    share_pool,
)
from outrider.transcripts.stores._urls import SECONDS, TEXT, Parameter, shown, take_parameters

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from outrider.fleet._budget.ledger import Row

T = TypeVar("T")

_TIMEOUT: Final = 10.0


class Database:
    """The tables of one kind in a database. Its calls are made one after another, each in one transaction."""

    def __init__(
        self,
        url: str,
        tables: type[Tables],
        migrations: Sequence[Callable[[Any], list[str]]],
        parameters: Mapping[str, Parameter],
    ) -> None:
        """`parameters`: those of the URL that not all kinds have. Raises `OptionsError`."""
        self.name = shown(url)
        known = {"schema": TEXT, "timeout": SECONDS, "pool_size": POOL_SIZE, **parameters}
        address, self.values = take_parameters(url, known, others=True)
        try:
            conninfo_to_dict(address)
        except psycopg.ProgrammingError:
            # The driver's text may hold a piece of the password.
            raise OptionsError(
                f"{self.name!r} is not the address of a PostgreSQL database",
                hint="Write postgresql://user:password@host:5432/database.",
            ) from None
        self._timeout: float = self.values.get("timeout", _TIMEOUT)
        self.tables = tables(self.values.get("schema"), "outrider_")
        self._migrations = migrations
        # A pooler may give each transaction another connection.
        self._pool = share_pool(
            address, size=self.values.get("pool_size", 8), timeout=self._timeout, prepares=False
        )
        self._lock = Lock()

    def do(
        self,
        operation: str,
        call: Callable[[Link], T],
        *,
        makes_tables: bool = True,
        seconds: float | None = None,
    ) -> T:
        """Call it in a transaction. Raises `StoreError`. If the connection was lost, whether it was done is
        not known."""
        limit, pool = self._timeout if seconds is None else seconds, self._pool.get()
        try:
            with self._lock, pool.lent() as link:
                # A server that does not answer has a second to say why.
                link.ends_at = time.monotonic() + limit + 1
                if makes_tables:
                    pool.make_ready(self.tables.key, link, self._set_up)
                return _in_transaction(link, limit, call)
        except psycopg.Error as error:
            if isinstance(error, psycopg.errors.UndefinedTable):
                pool.unmake_ready(self.tables.key)
            raise self._failure(operation, error) from error
        except Exhausted as error:
            raise self._failure(operation, error) from error

    def _set_up(self, link: Link) -> None:
        set_up(link, self.tables, self.name, self._migrations)

    def _failure(self, operation: str, error: psycopg.Error | Exhausted) -> StoreError:
        reason, may_pass = explain(error)
        hint = "Check that the database can be reached."
        if not may_pass:
            hint = "Check the address, and what its user may do there."
        return StoreError(self.name, operation, reason, retryable=may_pass, hint=hint)

    def close(self) -> None:
        self._pool.let_go()


def _in_transaction(link: Link, limit: float, call: Callable[[Link], T]) -> T:
    # Let the server give up, too: a process that is stopped, or a host that vanishes, must not keep its
    # locks. Not in a pipeline: a server that waits for the rest of one takes itself for busy.
    bounds = ("statement_timeout", "lock_timeout", "idle_in_transaction_session_timeout")
    milliseconds = max(1, round(limit * 1000))
    begin = "; ".join(["BEGIN", *(f"SET LOCAL {each} = {milliseconds}" for each in bounds)])
    link.execute(begin.encode())
    try:
        result = call(link)
        link.execute(b"COMMIT")
    except BaseException:
        if not link.closed:
            link.rollback()
        raise
    return result


class _Ledger(Tables):
    """The name of the table."""

    def __init__(self, schema: str | None, prefix: str) -> None:
        super().__init__(schema, f"{prefix}ledger_")
        self.entries = self._named("entries")


def _first(of: _Ledger) -> list[str]:
    return [
        f"""CREATE TABLE {of.entries} (number bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
            id text NOT NULL UNIQUE, at double precision NOT NULL, session bytea NOT NULL,
            outcome text NOT NULL, usd double precision NOT NULL, tokens bigint NOT NULL,
            data bytea NOT NULL)""",
        f'CREATE INDEX "{of.prefix}entries_by_session" ON {of.entries} (session)',
        f'CREATE INDEX "{of.prefix}entries_by_time" ON {of.entries} (at)',
    ]


_MIGRATIONS: Final[Sequence[Callable[[_Ledger], list[str]]]] = (_first,)


class PostgresTable:
    """A table of entries."""

    def __init__(self, url: str) -> None:
        """Raises `OptionsError`."""
        self._database = Database(url, _Ledger, _MIGRATIONS, {})
        self._entries = cast("_Ledger", self._database.tables).entries
        self.name = self._database.name

    def append(self, row: Row) -> None:
        added = f"""INSERT INTO {self._entries} (id, at, session, outcome, usd, tokens, data)
            VALUES (%s, %s, %s, %s, %s, %s, %s) ON CONFLICT (id) DO NOTHING"""
        values = (row.id, row.at, to_bytes(row.session), row.outcome, row.usd, row.tokens, to_bytes(row.data))
        self._database.do("add", lambda link: link.execute(added.encode(), values))

    def read(self, session: str | None, since: float | None) -> list[str]:
        found = f"""SELECT data FROM {self._entries} WHERE coalesce(session = %s, true)
            AND coalesce(at >= %s, true) ORDER BY number"""
        values = (None if session is None else to_bytes(session), since)
        rows = self._database.do(
            "read", lambda link: link.execute(found.encode(), values, binary=True).fetchall(), seconds=600.0
        )
        return [to_text(cast("bytes", data)) for (data,) in rows]

    def close(self) -> None:
        self._database.close()

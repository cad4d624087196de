"""The entries of a ledger in a PostgreSQL database, which programs on many machines add to."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, cast

from outrider.fleet._database import Database
from outrider.transcripts.stores._base import to_bytes, to_text
from outrider.transcripts.stores._postgres import Tables

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from outrider.fleet._budget.ledger import Row


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

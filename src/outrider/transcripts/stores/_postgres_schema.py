"""Owns the tables of `PostgresStore`: how they are made, and brought up to date.

Does not use them.
"""

from __future__ import annotations

import hashlib
import re
from typing import TYPE_CHECKING, Final

from outrider.errors import OptionsError, StoreError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from outrider.transcripts.stores._postgres_pool import Link

__all__ = ["MIGRATIONS", "Tables", "set_up"]

_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,39}")


class Tables:
    """The names of the tables, ready to stand in a statement."""

    def __init__(self, schema: str | None, prefix: str) -> None:
        for what, name in (("schema", schema), ("prefix", prefix)):
            if name is not None and not _NAME.fullmatch(name):
                raise OptionsError(
                    f"`{what}` is {name!r}",
                    hint="Give up to 40 letters, digits and underscores, the first of them no digit.",
                )
        self.schema, self.prefix = schema, prefix
        self.version = self._named("version")
        self.sessions = self._named("sessions")
        self.transcripts = self._named("transcripts")
        self.entries = self._named("entries")
        self.batches = self._named("batches")

    def _named(self, name: str) -> str:
        table = f'"{self.prefix}{name}"'
        return table if self.schema is None else f'"{self.schema}".{table}'

    @property
    def lock(self) -> int:
        """Taken while the tables are changed, by all who do so, whether they name the schema or not."""
        digest = hashlib.sha256(f"outrider {self.prefix}".encode()).digest()
        return int.from_bytes(digest[:8], "big", signed=True)


# Keys are kept as bytes: text of a database can hold neither NUL nor half a surrogate pair, and its order and
# equality depend on the locale. They are looked for by their hash: an index holds no
# more than a third of a page. The main transcript has the empty `part`.
def _first(of: Tables) -> list[str]:
    return [
        f"""CREATE TABLE {of.sessions} (
            id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
            project bytea NOT NULL,
            session bytea NOT NULL,
            mtime bigint,
            summary bytea,
            lease_token text,
            lease_holder bytea,
            lease_until timestamptz
        )""",
        f"""CREATE UNIQUE INDEX "{of.prefix}sessions_by_key" ON {of.sessions}
            (sha256(project), sha256(session))""",
        f'CREATE INDEX "{of.prefix}sessions_by_id" ON {of.sessions} (sha256(session))',
        f"""CREATE TABLE {of.transcripts} (
            id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
            session bigint NOT NULL REFERENCES {of.sessions} ON DELETE CASCADE,
            part bytea NOT NULL,
            length bigint NOT NULL DEFAULT 0
        )""",
        f"""CREATE UNIQUE INDEX "{of.prefix}transcripts_by_key" ON {of.transcripts}
            (session, sha256(part))""",
        f"""CREATE TABLE {of.entries} (
            transcript bigint NOT NULL REFERENCES {of.transcripts} ON DELETE CASCADE,
            position bigint NOT NULL,
            uuid bytea,
            body bytea NOT NULL,
            PRIMARY KEY (transcript, position)
        )""",
        f"""CREATE UNIQUE INDEX "{of.prefix}entries_by_uuid" ON {of.entries} (transcript, uuid)
            WHERE uuid IS NOT NULL""",
        f"""CREATE TABLE {of.batches} (
            transcript bigint NOT NULL REFERENCES {of.transcripts} ON DELETE CASCADE,
            batch bytea NOT NULL,
            PRIMARY KEY (transcript, batch)
        )""",
    ]


MIGRATIONS: Final[Sequence[Callable[[Tables], list[str]]]] = (_first,)
"""What leads from each version to the next one; they are not changed once they are out."""


def set_up(
    link: Link, of: Tables, store: str, migrations: Sequence[Callable[[Tables], list[str]]] = MIGRATIONS
) -> None:
    """Make the tables, or bring them up to date, in one transaction.

    Raises `StoreError` if a newer Outrider made them.
    """
    newest = len(migrations)
    if _version(link, of) == newest:
        return
    with link.transaction():
        link.execute("SELECT pg_advisory_xact_lock(%s)", (of.lock,))
        if of.schema is not None and not _has_schema(link, of.schema):
            link.execute(f'CREATE SCHEMA "{of.schema}"'.encode())
        version = _version(link, of)
        if version > newest:
            raise StoreError(
                store,
                "set up",
                f"its tables have the version {version}, and this Outrider knows up to {newest}",
                hint="Update Outrider, or give another `prefix` or `schema`.",
            )
        if version == 0:
            link.execute(f"CREATE TABLE {of.version} (version int NOT NULL)".encode())
            link.execute(f"INSERT INTO {of.version} VALUES (0)".encode())
        for migration in migrations[version:]:
            for statement in migration(of):
                link.execute(statement.encode())
        link.execute(f"UPDATE {of.version} SET version = %s".encode(), (newest,))


def _version(link: Link, of: Tables) -> int:
    # Not `to_regclass`: its cache does not see what was made while the lock was waited for.
    found = link.execute(
        """SELECT FROM pg_class AS one JOIN pg_namespace AS its ON its.oid = one.relnamespace
           WHERE relname = %s AND CASE WHEN %s::text IS NULL THEN pg_table_is_visible(one.oid)
                                       ELSE nspname = %s END""",
        (f"{of.prefix}version", of.schema, of.schema),
    )
    if found.fetchone() is None:
        return 0
    row = link.execute(f"SELECT version FROM {of.version}".encode()).fetchone()
    return 0 if row is None else int(row[0])


def _has_schema(link: Link, schema: str) -> bool:
    # Not `CREATE … IF NOT EXISTS`: that asks for a right which a user of an existing one need not have.
    row = link.execute("SELECT 1 FROM pg_namespace WHERE nspname = %s", (schema,)).fetchone()
    return row is not None

"""Defines `PostgresStore`, a session store in a PostgreSQL database, with its tables and connections."""

from __future__ import annotations

import hashlib
import os
import re
import select
import threading
import time
import weakref
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final, TypeVar, cast

import psycopg
from psycopg.abc import RV, PQGen
from psycopg.conninfo import conninfo_to_dict
from psycopg.pq import TransactionStatus
from psycopg.rows import TupleRow
from psycopg.waiting import Ready

from outrider.errors import OptionsError
from outrider.redaction import mask
from outrider.transcripts.stores._base import check_version, to_bytes, to_text
from outrider.transcripts.stores._blocking import (
    DEFAULT_TIMEOUT,
    TO_TELL,
    is_abandoned,
    raise_if_abandoned,
)
from outrider.transcripts.stores._heads import Batch, Change, Conflict, Head, HeadStore, Part, read_head
from outrider.transcripts.stores._shared import Resource, Share, close_later
from outrider.transcripts.stores._urls import SECONDS, TEXT, Parameter, shown, take_parameters

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Hashable, Sequence
    from typing import Self

    from outrider.transcripts.stores._base import Place

T = TypeVar("T")

# Connections.

_MISSING_DATABASE: Final = re.compile(r'database "(.*)" does not exist')
_INVALID: Final = "connection is bad: invalid "
_LOST: Final = ("08", "57P")
_MAY_PASS: Final = (*_LOST, "25P03", "40", "53", "55P03", "57014")
"""Of SQLSTATE: connection, shutdown, idle for too long, conflict of transactions, out of something, locked,
took too long."""


class Exhausted(Exception):
    """All connections are in use, and stayed so."""


class NoAnswer(psycopg.OperationalError):
    """The server stopped answering."""


class Link(psycopg.Connection[TupleRow]):
    """A connection that gives up when nobody waits for it any more, also if the server does not answer."""

    has_given_up: bool = False
    ends_at: float = float("inf")
    """When it gives up, on the monotonic clock."""

    def wait(self, gen: PQGen[RV], interval: float = 0.1, timeout: float | None = None) -> RV:
        if self.has_given_up:
            # Left are the ends of transaction and pipeline: the driver would log that it cannot reach them.
            gen.close()
            return cast("RV", None)
        bounded = self._bounded(gen)
        try:
            # The last argument is newer than the oldest driver that will do.
            if timeout is None:
                return super().wait(bounded, interval)
            return super().wait(bounded, interval, timeout)
        except NoAnswer:
            self.has_given_up = True
            self.close()
            raise

    def _bounded(self, gen: PQGen[RV]) -> PQGen[RV]:
        """A driver's generator that ends if its call was given up, or takes too long. It looks when nothing
        came for a while."""
        try:
            wanted = next(gen)
            while True:
                ready = yield wanted
                if ready == Ready.NONE and (is_abandoned() or time.monotonic() > self.ends_at):
                    raise NoAnswer("the server stopped answering")
                wanted = gen.send(ready)
        except StopIteration as ended:
            return cast("RV", ended.value)


class Pool(Resource):
    """Lends connections: opened on demand, used by one thread at a time, closed after a while.

    `psycopg_pool.ConnectionPool` connects in the background: a caller waits for its whole timeout and never
    learns the reason. Here a connection that cannot be made fails at once, with the server's reason.
    """

    def __init__(self, conninfo: str, size: int, timeout: float | None, *, prepares: bool) -> None:
        """`prepares`: the server keeps statements that come often."""
        super().__init__()
        self._conninfo, self._size = conninfo, size
        self._seconds, self._patience = timeout, (timeout or DEFAULT_TIMEOUT) * TO_TELL
        self._prepare_after = 5 if prepares else None
        self._slots = threading.Semaphore(size)
        self._idle: list[tuple[float, Link]] = []
        """Since when, and what; the latest last."""
        self._lock = threading.Lock()
        self._generation = 0
        self._ready: set[object] = set()
        self._making_ready = threading.Lock()
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
            try:
                yield link
            finally:
                self._put_back(link, generation)
        finally:
            self._slots.release()

    def do(self, call: Callable[[Link], T]) -> T:
        """Call it with a connection; once more with a new one if that turns out to be dead."""
        try:
            return self._do_once(call)
        except psycopg.Error as error:
            if not _is_lost(error):
                raise
            # The server may have been started anew: none of the others is alive then.
            self.close_idle(0.0)
            return self._do_once(call)

    def _do_once(self, call: Callable[[Link], T]) -> T:
        with self.lent() as link:
            raise_if_abandoned()
            return call(link)

    def make_ready(self, what: object, link: Link, set_up: Callable[[Link], None]) -> None:
        """Have something set up, such as the tables of a store, unless it was."""
        if what not in self._ready:
            with self._making_ready:
                if what not in self._ready:
                    set_up(link)
                    self._ready.add(what)

    def unmake_ready(self, what: object) -> None:
        """It is gone."""
        self._ready.discard(what)

    def close(self) -> None:
        self._generation += 1
        self.close_idle(0.0)

    @property
    def has_idle(self) -> bool:
        return bool(self._idle)

    def close_idle(self, seconds: float) -> None:
        until = time.monotonic() - seconds
        with self._lock:
            old = [link for since, link in self._idle if since <= until]
            del self._idle[: len(old)]
        for link in old:
            link.close()

    def _take(self) -> Link | None:
        while True:
            with self._lock:
                if not self._idle:
                    return None
                _, link = self._idle.pop()
            if _is_quiet(link):
                return link
            link.close()

    def _put_back(self, link: Link, generation: int) -> None:
        is_kept = not link.closed and link.info.transaction_status == TransactionStatus.IDLE
        if is_kept:
            with self._lock:
                is_kept = generation == self._generation
                if is_kept:
                    self._idle.append((time.monotonic(), link))
        if is_kept:
            close_later()
        else:
            link.close()

    def _connect(self) -> Link:
        try:
            return Link.connect(
                self._conninfo,
                autocommit=True,
                prepare_threshold=self._prepare_after,
                # Whole seconds, and the driver takes no less than 2; 0 is for ever.
                connect_timeout=0 if self._seconds is None else max(2, round(self._seconds)),
                fallback_application_name="outrider",
                # For a host that is gone without a word; 0 leaves it to the system.
                tcp_user_timeout=0 if self._seconds is None else round(self._seconds * 1000),
            )
        except ValueError as error:
            # No name of a host.
            raise psycopg.OperationalError(f"{_INVALID}address ({error})") from error


def _close_left(idle: list[tuple[float, Link]], process: int) -> None:
    if os.getpid() == process:
        for _, link in idle:
            link.close()


def share_pool(
    url: str, *, size: int = 8, timeout: float | None = DEFAULT_TIMEOUT, prepares: bool = True
) -> Share[Pool]:
    """A share of the connections of this process to a database: up to `size` for all that ask alike.

    Raises `OptionsError` if that is none.
    """
    if size < 1:
        raise OptionsError(f"`pool_size` is {size}; give at least 1")
    key = "postgresql", url, size, timeout, prepares
    return Share(key, lambda: Pool(url, size, timeout, prepares=prepares))


POOL_SIZE: Final = Parameter(int, "Give a number of connections.")


def _is_quiet(link: Link) -> bool:
    """Whether nothing came while it was idle: what a server says then is that it ends."""
    try:
        poll = select.poll()
        poll.register(link.fileno(), select.POLLIN | select.POLLHUP | select.POLLERR)
        return not link.closed and not poll.poll(0)
    except (OSError, psycopg.Error):
        return False


def _is_lost(error: psycopg.Error) -> bool:
    if error.sqlstate is not None:
        return error.sqlstate.startswith(_LOST)
    return isinstance(error, psycopg.OperationalError) and not isinstance(error, NoAnswer)


def explain(error: psycopg.Error | Exhausted) -> tuple[str, bool]:
    """Why it failed, without a password, and whether that may pass."""
    if isinstance(error, Exhausted):
        return str(error), True
    state = error.sqlstate or ""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    reason = mask(lines[0]) if lines else type(error).__name__
    if missing := _MISSING_DATABASE.search(str(error)):
        name = missing[1]
        return f"there is no database {name!r}; create it with `createdb {name}`, or name another", False
    if state == "42501":
        return f"{reason}; the user needs the rights to create and use tables there", False
    if "authentication failed" in reason or "no pg_hba.conf entry" in reason or state.startswith("28"):
        return f"{reason}; check user and password in the URL", False
    if state:
        return reason, state.startswith(_MAY_PASS)
    if _INVALID in reason:
        return f"{reason}; correct the URL", False
    return reason, isinstance(error, psycopg.OperationalError | psycopg.InterfaceError)


# Tables.

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
        self.batches = self._named("batches")

    def _named(self, name: str) -> str:
        table = f'"{self.prefix}{name}"'
        return table if self.schema is None else f'"{self.schema}".{table}'

    @property
    def key(self) -> tuple[str | None, str]:
        return self.schema, self.prefix

    @property
    def lock(self) -> int:
        """Taken while the tables are changed, by all who do so, whether they name the schema or not."""
        digest = hashlib.sha256(f"outrider {self.prefix}".encode()).digest()
        return int.from_bytes(digest[:8], "big", signed=True)


# Keys are kept as bytes: text of a database can hold neither NUL nor half a surrogate pair, and its order and
# equality depend on the locale. They are looked for by their hash: an index holds no
# more than a third of a page.
def _first(of: Tables) -> list[str]:
    return [
        f"""CREATE TABLE {of.sessions} (
            project bytea NOT NULL,
            session bytea NOT NULL,
            is_listed boolean NOT NULL,
            head bytea NOT NULL
        )""",
        f"""CREATE UNIQUE INDEX "{of.prefix}sessions_by_key" ON {of.sessions}
            (sha256(project), sha256(session))""",
        f'CREATE INDEX "{of.prefix}sessions_by_id" ON {of.sessions} (sha256(session))',
        f"""CREATE TABLE {of.batches} (
            generation text NOT NULL,
            number bigint NOT NULL,
            mark text NOT NULL,
            data bytea NOT NULL,
            PRIMARY KEY (generation, number)
        )""",
    ]


_IS_SESSION: Final = r"substr(project, 1, 1) <> '\x00'"
"""Of all that is listed: records of Outrider itself are in projects that begin with NUL."""


def _with_times(of: Tables) -> list[str]:
    """So that lists of the latest sessions read no others."""
    return [
        f"ALTER TABLE {of.sessions} ADD COLUMN mtime bigint",
        # Not by a cast to `json`, which fails for a head that is damaged.
        f"""UPDATE {of.sessions} SET mtime =
            substring(encode(head, 'escape') from '"mtime":([0-9]{{1,18}})')::bigint WHERE is_listed""",
        f"""CREATE INDEX "{of.prefix}sessions_by_project_and_time" ON {of.sessions}
            (sha256(project), mtime DESC NULLS LAST) WHERE is_listed""",
        f"""CREATE INDEX "{of.prefix}sessions_by_time" ON {of.sessions} (mtime DESC NULLS LAST)
            WHERE is_listed AND {_IS_SESSION}""",
    ]


MIGRATIONS: Final[Sequence[Callable[[Tables], list[str]]]] = (_first, _with_times)
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
        # Not `CREATE … IF NOT EXISTS`: that asks for a right which a user of an existing one need not have.
        there = link.execute("SELECT FROM pg_namespace WHERE nspname = %s", (of.schema,)).fetchone()
        if of.schema is not None and there is None:
            link.execute(f'CREATE SCHEMA "{of.schema}"'.encode())
        version = _version(link, of)
        check_version(store, "its tables are", version, newest, "`prefix` or `schema`")
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


# The store.

_PARAMETERS: Final = {"schema": TEXT, "prefix": TEXT, "pool_size": POOL_SIZE, "timeout": SECONDS}
_KEY: Final = "sha256(project) = %s AND sha256(session) = %s"


class PostgresStore(HeadStore):
    """Stores sessions in a PostgreSQL database, with psycopg 3.

        PostgresStore("postgresql://user:password@host/database")

    The tables are created on first use. Their names begin with `prefix`; they are in `schema`, by default the
    user's own. Each call writes in one transaction. All stores of a process with the same URL have up to
    `pool_size` connections together; idle ones are closed after a minute. If a connection turns out to be
    dead, the call is tried once more on a new one.

    Raises `StoreError` if it fails; `retryable` says whether a later call may succeed.
    """

    def __init__(
        self,
        url: str,
        *,
        schema: str | None = None,
        prefix: str = "outrider_",
        pool_size: int = 8,
        timeout: float | None = DEFAULT_TIMEOUT,
    ) -> None:
        super().__init__(shown(url), timeout=timeout)
        hint = "Write postgresql://user:password@host:5432/database."
        if not url.startswith(("postgresql://", "postgres://")):
            # What the driver takes besides is not shown: the password in it would not be found.
            raise OptionsError("this is not the URL of a PostgreSQL database", hint=hint)
        try:
            conninfo_to_dict(url)
        except psycopg.ProgrammingError:
            # The driver's text may hold a piece of the password.
            raise OptionsError(
                f"{self._name!r} is not the address of a PostgreSQL database", hint=hint
            ) from None
        self._of = Tables(schema, prefix)
        self._threads = max(self._threads, pool_size)
        self._pool = share_pool(url, size=pool_size, timeout=timeout)

    @classmethod
    def from_url(cls, url: str) -> Self:
        """With `?schema=`, `?prefix=`, `?pool_size=` and `?timeout=`; all else is the driver's."""
        rest, given = take_parameters(url, _PARAMETERS, others=True)
        # The driver does not take a plus for a space.
        place, mark, query = rest.partition("?")
        return cls(f"{place}{mark}{query.replace('+', '%20')}", **given)

    # Heads and batches.

    def _read(self, session: Place) -> tuple[Head, bytes | None]:
        head = f"(SELECT head FROM {self._of.sessions} WHERE {_KEY})"
        [row] = self._select(
            f"SELECT extract(epoch FROM clock_timestamp())::float8, {head}", *_hashes(session)
        )
        now, data = cast("tuple[float, bytes | None]", row)
        self._note_time(now)
        return read_head(session, data), data

    def _replace(self, session: Place, change: Change, version: bytes | None) -> bytes | None:
        data = change.head.data
        self._do(lambda link: self._replace_in(link, session, change, data, version))
        return data

    def _replace_in(
        self, link: Link, session: Place, change: Change, data: bytes | None, version: bytes | None
    ) -> None:
        if (
            version is not None
            and data is not None
            and change.batch is not None
            and self._append_in(link, session, change, data, version)
        ):
            return
        sessions, hashes = self._of.sessions, _hashes(session)
        with link.pipeline(), link.transaction():
            self._bound(link)
            # In a step of its own, so that nothing is written for a call that was given up while it waited.
            locked = f"SELECT head FROM {sessions} WHERE {_KEY} FOR UPDATE"
            row = link.execute(locked.encode(), hashes, binary=True).fetchone()
            raise_if_abandoned()
            if (None if row is None else row[0]) != version:
                raise Conflict
            if version is None:
                keys = to_bytes(session.project), to_bytes(session.session)
                values = (*keys, change.head.mtime is not None, data, change.head.mtime)
                added = (
                    f"INSERT INTO {sessions} VALUES (%s, %s, %s, %s, %s) ON CONFLICT DO NOTHING RETURNING 1"
                )
                made = link.execute(added.encode(), values)
                if made.fetchone() is None:
                    raise Conflict
            elif data is None:
                link.execute(f"DELETE FROM {sessions} WHERE {_KEY}".encode(), hashes)
            else:
                link.execute(
                    f"UPDATE {sessions} SET head = %s, is_listed = %s, mtime = %s WHERE {_KEY}".encode(),
                    (data, change.head.mtime is not None, change.head.mtime, *hashes),
                )
            if change.batch is not None:
                part = change.head.parts[change.name]
                link.execute(
                    f"INSERT INTO {self._of.batches} VALUES (%s, %s, %s, %s)".encode(),
                    (part.generation, part.count - 1, *change.batch),
                )
            if change.gone:
                link.execute(
                    f"DELETE FROM {self._of.batches} WHERE generation = ANY(%s)".encode(),
                    ([part.generation for _, part in change.gone],),
                )

    def _append_in(self, link: Link, session: Place, change: Change, data: bytes, version: bytes) -> bool:
        """Append a batch in one round trip, if that is possible at once: what waits for others needs a step
        in which it can be given up."""
        assert change.batch is not None
        part, sessions = change.head.parts[change.name], self._of.sessions
        statement = f"""WITH
            free AS (SELECT FROM {sessions} WHERE {_KEY} AND head = %s FOR UPDATE SKIP LOCKED),
            made AS (UPDATE {sessions} SET head = %s, is_listed = %s, mtime = %s
                WHERE {_KEY} AND EXISTS (SELECT FROM free) RETURNING 1)
            INSERT INTO {self._of.batches} SELECT %s, %s, %s, %s FROM made RETURNING 1"""
        values = (
            *(*_hashes(session), version),
            *(data, change.head.mtime is not None, change.head.mtime, *_hashes(session)),
            *(part.generation, part.count - 1, *change.batch),
        )
        with link.pipeline(), link.transaction():
            self._bound(link)
            added = link.execute(statement.encode(), values, binary=True)
        return added.fetchone() is not None

    def _read_batches(self, place: Place, part: Part, start: int, stop: int) -> list[Batch]:
        statement = f"""SELECT mark, data FROM {self._of.batches}
            WHERE generation = %s AND number >= %s AND number < %s ORDER BY number"""
        rows = self._select(statement, part.generation, start, stop)
        return [Batch(*cast("tuple[str, bytes]", row)) for row in rows]

    def _find_heads(
        self, *, project: str | None = None, session: str | None = None
    ) -> list[tuple[str, bytes]]:
        given = {"project": project, "session": session}
        name, value = next((name, value) for name, value in given.items() if value is not None)
        statement = f"SELECT session, head FROM {self._of.sessions} WHERE sha256({name}) = %s AND is_listed"
        rows = cast("list[tuple[bytes, bytes]]", self._select(statement, _hash(value)))
        return [(to_text(its), data) for its, data in rows]

    def _find_latest(self, project: str | None, limit: int) -> list[tuple[str, bytes]]:
        which, given = (_IS_SESSION, ()) if project is None else ("sha256(project) = %s", (_hash(project),))
        statement = f"""SELECT session, head FROM {self._of.sessions} WHERE is_listed AND {which}
            ORDER BY mtime DESC NULLS LAST LIMIT %s"""
        rows = cast("list[tuple[bytes, bytes]]", self._select(statement, *given, limit))
        return [(to_text(its), data) for its, data in rows]

    def _list_projects(self) -> list[str]:
        rows = self._select(f"SELECT DISTINCT project FROM {self._of.sessions} WHERE is_listed")
        return [to_text(cast("bytes", project)) for (project,) in rows]

    # Connections.

    def _select(self, statement: str, *values: object) -> list[tuple[object, ...]]:
        def select_in(link: Link) -> list[tuple[object, ...]]:
            with link.pipeline(), link.transaction():
                self._bound(link)
                return link.execute(statement.encode(), values, binary=True).fetchall()

        return self._do(select_in)

    def _bound(self, link: Link) -> None:
        """Let the server give up, too, with what it is asked in this transaction. Not for the connection: a
        pooler between would give that to others."""
        if self._timeout is not None:
            limit = f"{max(1, round(self._timeout * 1000))}ms"
            # The last one: a host that vanishes in the middle must not keep its locks.
            link.execute(
                """SELECT set_config('statement_timeout', %s, true), set_config('lock_timeout', %s, true),
                    set_config('idle_in_transaction_session_timeout', %s, true)""",
                (limit, limit, limit),
            )

    def _do(self, call: Callable[[Link], T]) -> T:
        pool, of = self._pool.get(), self._of

        def call_when_ready(link: Link) -> T:
            pool.make_ready(of.key, link, lambda link: set_up(link, of, self._name))
            return call(link)

        return pool.do(call_when_ready)

    @property
    def _address(self) -> Hashable:
        return self._pool.key

    def _close(self) -> None:
        self._pool.let_go()

    def _explain(self, error: Exception) -> tuple[str, bool] | None:
        if isinstance(error, psycopg.errors.UndefinedTable):
            self._pool.get().unmake_ready(self._of.key)
            return f"{explain(error)[0]}; it was removed, and is made anew by the next call", True
        return explain(error) if isinstance(error, psycopg.Error | Exhausted) else None


def _hashes(session: Place) -> tuple[bytes, bytes]:
    return _hash(session.project), _hash(session.session)


def _hash(text: str) -> bytes:
    return hashlib.sha256(to_bytes(text)).digest()

"""Defines `PostgresStore`, a session store in a PostgreSQL database, with its tables and connections."""

from __future__ import annotations

import hashlib
import os
import re
import select
import threading
import weakref
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final, NamedTuple, TypeVar, cast

import psycopg
from psycopg.abc import RV, PQGen
from psycopg.conninfo import conninfo_to_dict
from psycopg.pq import TransactionStatus
from psycopg.rows import TupleRow
from psycopg.waiting import Ready

from outrider.errors import OptionsError
from outrider.transcripts.stores._base import (
    Lease,
    Place,
    check_version,
    decode,
    fold_summary,
    fresh_lines,
    to_bytes,
    to_text,
)
from outrider.transcripts.stores._blocking import (
    DEFAULT_TIMEOUT,
    BlockingStore,
    Listed,
    is_abandoned,
    raise_if_abandoned,
)
from outrider.transcripts.stores._urls import SECONDS, TEXT, Parameter, shown, take_parameters

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Sequence
    from typing import Self

    from outrider.transcripts.stores._base import Line, SessionStoreEntry

# Connections.


class Exhausted(Exception):
    """All connections are in use, and stayed so."""


class NoAnswer(psycopg.OperationalError):
    """The server stopped answering."""


class Link(psycopg.Connection[TupleRow]):
    """A connection that gives up when nobody waits for it any more, also if the server does not answer."""

    has_given_up: bool = False

    def wait(self, gen: PQGen[RV], interval: float = 0.1, timeout: float | None = None) -> RV:
        if self.has_given_up:
            # Left are the ends of transaction and pipeline: the driver would log that it cannot reach them.
            gen.close()
            return cast("RV", None)
        bounded = _bounded(gen)
        try:
            # The last argument is newer than the oldest driver that will do.
            if timeout is None:
                return super().wait(bounded, interval)
            return super().wait(bounded, interval, timeout)
        except NoAnswer:
            self.has_given_up = True
            self.close()
            raise


class Pool:
    """Lends connections: opened on demand, used by one thread at a time.

    `psycopg_pool.ConnectionPool` connects in the background: a caller waits for its whole timeout and never
    learns the reason. Here a connection that cannot be made fails at once, with the server's reason.
    """

    def __init__(self, conninfo: str, size: int, timeout: float | None, patience: float) -> None:
        """`patience` is how many seconds are spent on waiting for a free connection."""
        self._conninfo, self._size = conninfo, size
        self._seconds, self._patience = timeout, patience
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
        return Link.connect(
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


def _bounded(gen: PQGen[RV]) -> PQGen[RV]:
    """A driver's generator that ends if its call was given up, which it looks at when nothing came for a
    while."""
    try:
        wanted = next(gen)
        while True:
            ready = yield wanted
            if ready == Ready.NONE and is_abandoned():
                raise NoAnswer("the server stopped answering")
            wanted = gen.send(ready)
    except StopIteration as ended:
        return cast("RV", ended.value)


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

T = TypeVar("T")

_PARAMETERS: Final = {
    "schema": TEXT,
    "prefix": TEXT,
    "pool_size": Parameter(int, "Give a number of connections."),
    "timeout": SECONDS,
}
_LONGEST_MARK: Final = 512

_CLOCK: Final = "(extract(epoch FROM clock_timestamp()) * 1000)::bigint"
_MISSING_DATABASE: Final = re.compile(r'database "(.*)" does not exist')
_LOST: Final = ("08", "57P")
_MAY_PASS: Final = (*_LOST, "40", "53", "55P03", "57014")
"""Of SQLSTATE: connection, shutdown, conflict of transactions, out of something, locked, took too long."""


class _Session(NamedTuple):
    """A row of the table of sessions, locked."""

    id: int
    summary: bytes | None
    lease: Lease | None


class PostgresStore(BlockingStore):
    """Stores sessions in a PostgreSQL database, with psycopg 3.

        PostgresStore("postgresql://user:password@host/database")

    The tables are created on first use. Their names begin with `prefix`; they are in `schema`, by default the
    user's own. Each call writes in one transaction. Up to `pool_size` connections are open at once. If a
    connection turns out to be dead, the call is tried once more on a new one, unless it must not be repeated:
    an `append` with entries that have no uuid.

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
        if pool_size < 1:
            raise OptionsError(f"`pool_size` is {pool_size}; give at least 1")
        self._of = Tables(schema, prefix)
        self._url, self._pool_size = url, pool_size
        self._is_set_up = False
        self._forget()

    @classmethod
    def from_url(cls, url: str) -> Self:
        """With `?schema=`, `?prefix=`, `?pool_size=` and `?timeout=`; all else is the driver's."""
        rest, given = take_parameters(url, _PARAMETERS, others=True)
        # The driver does not take a plus for a space.
        place, mark, query = rest.partition("?")
        return cls(f"{place}{mark}{query.replace('+', '%20')}", **given)

    # Writing.

    def _append(self, place: Place, lines: list[Line], batch: str | None) -> None:
        can_repeat = batch is not None or all(line.uuid is not None for line in lines)
        self._do(lambda link: self._append_in(link, place, lines, batch), can_repeat=can_repeat)

    def _append_in(self, link: Link, place: Place, lines: list[Line], batch: str | None) -> None:
        with link.pipeline(), link.transaction():
            session, transcript, length, is_known, kept = self._look(link, place, lines, batch)
            while session is None:
                self._make_session(link, place)
                session, transcript, length, is_known, kept = self._look(link, place, lines, batch)
            self._check_lease(place, session.lease)
            raise_if_abandoned()
            if is_known:
                return
            fresh = fresh_lines(lines, kept, _mark)
            if transcript is None:
                # The session is locked: nobody else makes it now.
                statement = f"INSERT INTO {self._of.transcripts} (session, part) VALUES (%s, %s) RETURNING id"
                made = link.execute(statement.encode(), (session.id, to_bytes(place.part))).fetchone()
                assert made is not None
                transcript = int(made[0])
            if batch is not None:
                link.execute(
                    f"INSERT INTO {self._of.batches} (transcript, batch) VALUES (%s, %s)".encode(),
                    (transcript, _mark(batch)),
                )
            if not fresh:
                return
            link.execute(
                f"""INSERT INTO {self._of.entries} (transcript, position, uuid, body)
                    SELECT %s, %s + number, uuid, body
                    FROM unnest(%s::bytea[], %s::bytea[]) WITH ORDINALITY AS one (uuid, body, number)
                """.encode(),
                (transcript, length, [uuid for _, uuid in fresh], [line.data for line, _ in fresh]),
            )
            link.execute(
                f"UPDATE {self._of.transcripts} SET length = length + %s WHERE id = %s".encode(),
                (len(fresh), transcript),
            )
            if place.subpath is None:
                link.execute(
                    f"""UPDATE {self._of.sessions}
                        SET summary = %s, mtime = greatest({_CLOCK}, coalesce(mtime, 0) + 1) WHERE id = %s
                    """.encode(),
                    (fold_summary(place, session.summary, [line for line, _ in fresh]), session.id),
                )

    def _look(
        self, link: Link, place: Place, lines: list[Line], batch: str | None
    ) -> tuple[_Session | None, int | None, int, bool, set[bytes]]:
        """Locks the session, then looks at the transcript, in one round trip: two statements, because the
        second has to see what was committed while the first one waited. Uuids are looked up one by one
        (`OFFSET 0` is for that): without statistics, the server would look through the whole transcript."""
        locked = self._lock(link, place)
        looked = link.execute(
            f"""SELECT one.id, one.length,
                    EXISTS (SELECT FROM {self._of.batches} WHERE transcript = one.id AND batch = %s),
                    ARRAY (
                        SELECT given.uuid FROM unnest(%s::bytea[]) AS given (uuid), LATERAL (
                            SELECT FROM {self._of.entries}
                            WHERE transcript = one.id AND uuid = given.uuid OFFSET 0
                        ) AS found
                    )
                FROM {self._of.transcripts} AS one JOIN {self._of.sessions} AS its ON its.id = one.session
                WHERE sha256(its.project) = %s AND sha256(its.session) = %s AND sha256(one.part) = %s
            """.encode(),
            (
                None if batch is None else _mark(batch),
                [_mark(line.uuid) for line in lines if line.uuid is not None],
                *_hashes(place),
                _hash(place.part),
            ),
        )
        row = locked.fetchone()
        session = None if row is None else _session(row)
        found = looked.fetchone()
        if session is None or found is None:
            return session, None, 0, False, set()
        return session, int(found[0]), int(found[1]), bool(found[2]), set(found[3])

    def _lock(self, link: Link, place: Place) -> psycopg.Cursor[tuple[object, ...]]:
        self._bound(link)
        return link.execute(
            f"""SELECT id, summary, lease_token, lease_holder,
                    coalesce(extract(epoch FROM lease_until - clock_timestamp()), 0)::float8
                FROM {self._of.sessions} WHERE sha256(project) = %s AND sha256(session) = %s FOR UPDATE
            """.encode(),
            _hashes(place),
        )

    def _locked(self, link: Link, place: Place) -> _Session | None:
        row = self._lock(link, place).fetchone()
        return None if row is None else _session(row)

    def _make_session(self, link: Link, place: Place) -> None:
        """Others may make it at the same time, and remove it: whether it is there has to be seen again."""
        link.execute(
            f"""INSERT INTO {self._of.sessions} (project, session) VALUES (%s, %s)
                ON CONFLICT DO NOTHING""".encode(),
            (to_bytes(place.project), to_bytes(place.session)),
        )

    def _delete(self, place: Place) -> None:
        self._do(lambda link: self._delete_in(link, place))

    def _delete_in(self, link: Link, place: Place) -> None:
        with link.transaction():
            session = self._locked(link, place)
            if session is None:
                return
            self._check_lease(place, session.lease)
            raise_if_abandoned()
            if place.subpath is None:
                link.execute(f"DELETE FROM {self._of.transcripts} WHERE session = %s".encode(), (session.id,))
                link.execute(
                    f"UPDATE {self._of.sessions} SET mtime = NULL, summary = NULL WHERE id = %s".encode(),
                    (session.id,),
                )
            else:
                link.execute(
                    f"DELETE FROM {self._of.transcripts} WHERE session = %s AND sha256(part) = %s".encode(),
                    (session.id, _hash(place.part)),
                )
            self._tidy(link, session.id)

    def _tidy(self, link: Link, session: int) -> None:
        """Remove a session that has neither a transcript nor a lease."""
        link.execute(
            f"""DELETE FROM {self._of.sessions} AS one WHERE id = %s AND lease_token IS NULL
                AND NOT EXISTS (SELECT FROM {self._of.transcripts} WHERE session = one.id)
            """.encode(),
            (session,),
        )

    # Reading.

    def _load(self, place: Place) -> list[SessionStoreEntry] | None:
        bodies = self._read(
            f"""SELECT body FROM {self._of.entries} WHERE transcript = (
                    SELECT one.id FROM {self._of.transcripts} AS one
                    JOIN {self._of.sessions} AS its ON its.id = one.session
                    WHERE sha256(its.project) = %s AND sha256(its.session) = %s AND sha256(one.part) = %s
                ) ORDER BY position""",
            (*_hashes(place), _hash(place.part)),
        )
        return [decode(cast("bytes", body)) for (body,) in bodies] or None

    def _list_sessions(self, project: str, *, summaries: bool) -> list[Listed]:
        rows = self._read(
            f"""SELECT session, mtime, {"summary" if summaries else "NULL"} FROM {self._of.sessions}
                WHERE sha256(project) = %s AND mtime IS NOT NULL""",
            (_hash(project),),
        )
        return [
            (_text(session), cast("int", mtime), cast("bytes | None", summary))
            for session, mtime, summary in rows
        ]

    def _list_subkeys(self, session: Place) -> list[str]:
        rows = self._read(
            f"""SELECT one.part FROM {self._of.transcripts} AS one
                JOIN {self._of.sessions} AS its ON its.id = one.session
                WHERE sha256(its.project) = %s AND sha256(its.session) = %s AND one.part <> ''
                ORDER BY one.id""",
            _hashes(session),
        )
        return [subpath for (part,) in rows if (subpath := Place.subpath_of(_text(part))) is not None]

    def _list_projects(self) -> list[str]:
        rows = self._read(f"SELECT DISTINCT project FROM {self._of.sessions} WHERE mtime IS NOT NULL", ())
        return [_text(project) for (project,) in rows]

    def _find_session(self, session_id: str) -> list[str]:
        rows = self._read(
            f"SELECT project FROM {self._of.sessions} WHERE sha256(session) = %s AND mtime IS NOT NULL",
            (_hash(session_id),),
        )
        return [_text(project) for (project,) in rows]

    # Leases.

    def _change_lease(self, session: Place, change: Callable[[Lease | None], Lease | None]) -> None:
        def change_in(link: Link) -> None:
            with link.transaction():
                row = self._locked(link, session)
                kept = None if row is None else row.lease
                lease = change(kept)
                if lease is kept:
                    return
                while row is None:
                    self._make_session(link, session)
                    row = self._locked(link, session)
                    lease = change(None if row is None else row.lease)
                token, holder, seconds = lease or (None, "", 0.0)
                # By the server's clock, which all writers share.
                link.execute(
                    f"""UPDATE {self._of.sessions} SET lease_token = %s, lease_holder = %s,
                            lease_until = clock_timestamp() + make_interval(secs => %s) WHERE id = %s
                    """.encode(),
                    (token, to_bytes(holder), min(float(seconds), 1e9), row.id),
                )
                if lease is None:
                    self._tidy(link, row.id)

        self._do(change_in)

    # Connections.

    def _read(self, statement: str, values: tuple[object, ...]) -> list[tuple[object, ...]]:
        def read(link: Link) -> list[tuple[object, ...]]:
            with link.transaction():
                self._bound(link)
                return link.execute(statement.encode(), values, binary=True).fetchall()

        return self._do(read)

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

    def _do(self, call: Callable[[Link], T], *, can_repeat: bool = True) -> T:
        try:
            return self._do_once(call)
        except psycopg.Error as error:
            if not can_repeat or not _is_lost(error):
                raise
            # The server may have been started anew: none of the others is alive then.
            self._pool.drop_idle()
            return self._do_once(call)

    def _do_once(self, call: Callable[[Link], T]) -> T:
        with self._pool.lent() as link:
            raise_if_abandoned()
            if not self._is_set_up:
                with self._setting_up:
                    if not self._is_set_up:
                        set_up(link, self._of, self._name)
                        self._is_set_up = True
            return call(link)

    def _close(self) -> None:
        self._pool.close()

    def _forget(self) -> None:
        # Kept: what is dropped after a fork would tell of connections that were not closed.
        self._before = getattr(self, "_pool", None)
        self._pool = Pool(self._url, self._pool_size, self._timeout, self._patience)
        self._setting_up = threading.Lock()
        self._is_set_up = False

    def _explain(self, error: Exception) -> tuple[str, bool] | None:
        if isinstance(error, Exhausted):
            return str(error), True
        if not isinstance(error, psycopg.Error):
            return None
        state = error.sqlstate or ""
        lines = [line.strip() for line in str(error).splitlines() if line.strip()]
        reason = lines[0] if lines else type(error).__name__
        if missing := _MISSING_DATABASE.search(str(error)):
            name = missing[1]
            return f"there is no database {name!r}; create it with `createdb {name}`, or name another", False
        if state == "42P01":
            self._is_set_up = False
            return f"{reason}; it was removed, and is made anew by the next call", True
        if state == "42501":
            return f"{reason}; the user needs the rights to create and use tables there", False
        if "authentication failed" in reason or "no pg_hba.conf entry" in reason or state.startswith("28"):
            return f"{reason}; check user and password in the URL", False
        if state:
            return reason, state.startswith(_MAY_PASS)
        if "connection is bad: invalid " in reason:
            return f"{reason}; correct the URL", False
        return reason, isinstance(error, psycopg.OperationalError)


def _is_lost(error: psycopg.Error) -> bool:
    if error.sqlstate is not None:
        return error.sqlstate.startswith(_LOST)
    return isinstance(error, psycopg.OperationalError) and not isinstance(error, NoAnswer)


def _session(row: tuple[object, ...]) -> _Session:
    id, summary, token, holder, left = cast("tuple[int, bytes | None, str | None, bytes | None, float]", row)
    return _Session(id, summary, None if token is None else Lease(token, to_text(holder or b""), left))


def _hashes(place: Place) -> tuple[bytes, bytes]:
    return _hash(place.project), _hash(place.session)


def _hash(text: str) -> bytes:
    return hashlib.sha256(to_bytes(text)).digest()


def _mark(text: str) -> bytes:
    """What a uuid, or the id of a batch, is known by in an index, whatever its length."""
    data = to_bytes(text)
    return data if len(data) <= _LONGEST_MARK else b"\0" + hashlib.sha256(data).digest()


def _text(data: object) -> str:
    return to_text(cast("bytes", data))

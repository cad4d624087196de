"""`PostgresJournal`: a journal that any number of workers take tasks from, on any number of machines.

A worker has a row, and a lease on it. A task is taken by writing the worker into its row, under a lock that
others skip. When the lease runs out by the clock of the database, whoever notices first frees the tasks of
that worker; what it writes from then on is refused, because the tasks are not its own any more.
"""

from __future__ import annotations

import os
import re
import socket
import uuid
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from itertools import islice
from typing import TYPE_CHECKING, Any, Final, TypeVar, cast

import msgspec

from outrider.errors import OptionsError, StoreError, UsageError
from outrider.fleet._budget.budget import Spent
from outrider.fleet._errors import JournalInvalid
from outrider.fleet._journal.journal import (
    AT_ONCE,
    Begun,
    Change,
    Counts,
    Entry,
    Journal,
    Noted,
    Pulse,
    Taken,
    TasksLost,
    other_task,
    read_task,
    same_id,
    undamaged,
    write_task,
)
from outrider.fleet._task import Outcome, Status, Task
from outrider.session import Usage

try:
    import psycopg

    from outrider.fleet._database import Database
    from outrider.transcripts.stores._base import to_bytes, to_text
    from outrider.transcripts.stores._postgres import Link, Tables
    from outrider.transcripts.stores._urls import Parameter
except ImportError as error:
    if (error.name or "").startswith("outrider"):
        raise
    raise OptionsError(
        "a journal in PostgreSQL needs psycopg, which is not installed",
        hint="Run: pip install 'outrider[postgres]'",
    ) from error

if TYPE_CHECKING:
    from collections.abc import Callable


T = TypeVar("T")

_LEASE: Final = 30.0
_NAME: Final = re.compile(r"[\w.\-]{1,100}", re.ASCII)
_SUMS: Final = ("usd", "tokens", "tool_calls", "done", "failed", "over_budget", "waiting", "skipped")
"""What each worker counts for itself, so that none waits for another; the batch has what is left of those
that are gone."""
_ADDING: Final = 3600.0
"""Seconds that it may take to add all tasks, which may come from a slow iterable."""
_MOST: Final = 2**53
"""The largest number that is added up."""


def _batch(text: str) -> str:
    if not _NAME.fullmatch(text):
        raise ValueError(text)
    return text


def _seconds(text: str) -> float:
    if not 1 <= (seconds := float(text)) <= 86400:
        raise ValueError(text)
    return seconds


_PARAMETERS: Final = {
    "batch": Parameter(_batch, "Give up to 100 letters, digits, dots, dashes and underscores."),
    "lease": Parameter(_seconds, "Give a number of seconds from 1 to 86400."),
}


class _Fleet(Tables):
    """The names of the tables."""

    def __init__(self, schema: str | None, prefix: str) -> None:
        super().__init__(schema, f"{prefix}fleet_")
        self.batches = self._named("batches")
        self.meta = self._named("meta")
        self.tasks = self._named("tasks")
        self.attempts = self._named("attempts")
        self.workers = self._named("workers")


def _first(of: _Fleet) -> list[str]:
    sums = """usd double precision NOT NULL DEFAULT 0, tokens bigint NOT NULL DEFAULT 0,
        tool_calls bigint NOT NULL DEFAULT 0, done bigint NOT NULL DEFAULT 0,
        failed bigint NOT NULL DEFAULT 0, over_budget bigint NOT NULL DEFAULT 0,
        waiting bigint NOT NULL DEFAULT 0,
        skipped bigint NOT NULL DEFAULT 0, ran double precision NOT NULL DEFAULT 0"""
    # Texts of users and agents are bytes: text of a database cannot hold all of them.
    return [
        f"""CREATE TABLE {of.batches} (name text PRIMARY KEY, id text NOT NULL,
            made_at double precision NOT NULL DEFAULT extract(epoch FROM clock_timestamp()),
            total bigint NOT NULL DEFAULT 0, gate_until timestamptz, gate_why bytea, {sums})""",
        f"""CREATE TABLE {of.meta} (batch text NOT NULL, name text NOT NULL, value bytea NOT NULL,
            PRIMARY KEY (batch, name))""",
        f"""CREATE TABLE {of.workers} (id text PRIMARY KEY, batch text NOT NULL, name bytea NOT NULL,
            lease interval NOT NULL, leased_until timestamptz NOT NULL, {sums})""",
        f'CREATE INDEX "{of.prefix}workers_by_batch" ON {of.workers} (batch)',
        f"""CREATE TABLE {of.tasks} (
            batch text NOT NULL, number bigint NOT NULL, id bytea NOT NULL, task bytea NOT NULL,
            state text NOT NULL DEFAULT 'pending' CHECK (state IN ('pending', 'started', 'ended')),
            holder text, attempts int NOT NULL DEFAULT 0, losses int NOT NULL DEFAULT 0,
            session_id bytea, workspace bytea, started_at double precision, status text, outcome bytea,
            PRIMARY KEY (batch, number), UNIQUE (batch, id),
            CHECK ((state = 'ended') = (outcome IS NOT NULL)), CHECK (state <> 'ended' OR holder IS NULL))""",
        # `started` before `pending`: what was cut off goes on first.
        f"""CREATE INDEX "{of.prefix}tasks_free" ON {of.tasks} (batch, state DESC, number)
            WHERE holder IS NULL AND state <> 'ended'""",
        f'CREATE INDEX "{of.prefix}tasks_held" ON {of.tasks} (holder) WHERE holder IS NOT NULL',
        f"""CREATE INDEX "{of.prefix}tasks_ended" ON {of.tasks} (batch, status) WHERE state = 'ended'""",
        f"""CREATE TABLE {of.attempts} (
            batch text NOT NULL, task bigint NOT NULL, attempt int NOT NULL, worker bytea NOT NULL,
            began_at double precision NOT NULL, ended_at double precision, session_id bytea, usage bytea,
            usd double precision NOT NULL DEFAULT 0, tokens bigint NOT NULL DEFAULT 0,
            tool_calls bigint NOT NULL DEFAULT 0, PRIMARY KEY (batch, task, attempt))""",
    ]


_MIGRATIONS: Final = (_first,)


class PostgresJournal(Journal):
    """A journal in a PostgreSQL database: `postgresql://user@host/database?batch=night&lease=30`."""

    lease = True

    def __init__(self, place: str | os.PathLike[str], *, writing: bool = False) -> None:
        super().__init__(place, writing=writing)
        self._database = Database(str(place), _Fleet, _MIGRATIONS, _PARAMETERS)
        self.name = self._database.name
        values = self._database.values
        self.batch: str = values.get("batch", "default")
        self.lease_seconds: float = values.get("lease", _LEASE)
        self._of = cast("_Fleet", self._database.tables)
        self.worker: str | None = None
        self._held: set[bytes] = set()
        """The tasks that this worker was given and has not ended."""
        self._may_hold_more = False
        """Whether the answer to a call for tasks was lost."""
        self._recorded, self._before = Spent(), Spent()
        """What this worker has written down that was spent, and what this process has as earlier ones."""
        self._is_open = False

    # Beginning and end.

    def open(self) -> None:
        self._is_open = True
        try:
            self._find_batch()
        except BaseException:
            self.close()
            raise

    def _find_batch(self) -> None:
        if self._is_writing:
            make = f"INSERT INTO {self._of.batches} (name, id) VALUES (%s, %s) ON CONFLICT DO NOTHING"
            self._execute(make, self.batch, uuid.uuid4().hex)
        elif not self._run(f"SELECT 1 FROM {self._of.batches} WHERE name = %s", self.batch):
            raise JournalInvalid(
                self.name,
                f"there is no batch {self.batch!r} in it",
                hint="Submit one, or name another: ?batch=NAME.",
            )

    def close(self) -> None:
        if self.worker is not None:
            # If it does not answer, the lease runs out.
            with suppress(JournalInvalid):
                self._do(self._leave)
            self.worker = None
        self._is_open = False
        self._database.close()

    def _leave(self, link: Link) -> None:
        # First of all: a call whose connection broke may be under way in the server, and give it tasks.
        if self._renew(link):
            self._free(link, "id = %s", "0", self.worker)

    def join(self) -> None:
        """Be a worker from now on, or a new one after the lease was lost."""
        worker, name = uuid.uuid4().hex, f"{socket.gethostname()}:{os.getpid()}"
        self._held.clear()
        self._before, self._recorded = self._before + self._recorded, Spent()
        self._execute(
            f"""INSERT INTO {self._of.workers} (id, batch, name, lease, leased_until)
                SELECT %s, %s, %s, lease, clock_timestamp() + lease
                FROM (SELECT %s * interval '1 second' AS lease) AS given""",
            *(worker, self.batch, to_bytes(name), self.lease_seconds),
        )
        self.worker = worker

    def take(self, count: int = 1) -> Taken:
        """Take tasks that nobody has. Raises `TasksLost`."""
        # Materialized: as a part of the join it might be run again, and lock more than it should.
        taken = f"""WITH free AS MATERIALIZED (
                SELECT number FROM {self._of.tasks} WHERE batch = %s AND holder IS NULL AND state <> 'ended'
                ORDER BY state DESC, number LIMIT %s FOR UPDATE SKIP LOCKED)
            UPDATE {self._of.tasks} AS task SET holder = %s FROM free
            WHERE task.batch = %s AND task.number = free.number RETURNING task.id"""
        missed = f"SELECT id FROM {self._of.tasks} WHERE holder = %s AND id <> ALL(%s)"
        left = f"SELECT EXISTS (SELECT FROM {self._of.tasks} WHERE batch = %s AND state <> 'ended')"

        def take(link: Link) -> tuple[list[Entry], bool]:
            ids: list[tuple[bytes]] = []
            if self._may_hold_more:
                ids = link.execute(missed.encode(), (self.worker, [*self._held])).fetchall()
            if not ids:
                values = (self.batch, count, self.worker, self.batch)
                ids = link.execute(taken.encode(), values).fetchall()
            if ids:
                return self._find(link, "id = ANY(%s)", [id for (id,) in ids]), False
            (is_left,) = cast("tuple[bool]", link.execute(left.encode(), (self.batch,)).fetchone())
            return [], not is_left

        try:
            pulse, (entries, is_over) = self._as_worker(take)
        except BaseException:
            self._may_hold_more = True
            raise
        self._may_hold_more = False
        self._held.update(to_bytes(entry.task.id) for entry in entries)
        return Taken(entries, pulse, is_over)

    def sync(self, *, paused: tuple[float, str] | None = None, is_opened: bool = False) -> Pulse:
        """Keep the lease, and tell the other workers of a gate that was `paused`, for so many seconds, or was
        opened. Raises `TasksLost`."""

        def tell(link: Link) -> None:
            if paused is not None:
                until = "clock_timestamp() + %s * interval '1 second'"
                link.execute(
                    f"""UPDATE {self._of.batches} SET gate_until = {until}, gate_why = %s
                        WHERE name = %s AND coalesce(gate_until < {until}, true)""".encode(),
                    (paused[0], to_bytes(paused[1]), self.batch, paused[0]),
                )
            elif is_opened:
                opened = f"UPDATE {self._of.batches} SET gate_until = NULL WHERE name = %s"
                link.execute(opened.encode(), (self.batch,))

        return self._as_worker(tell)[0]

    def _as_worker(self, call: Callable[[Link], T]) -> tuple[Pulse, T]:
        def work(link: Link) -> tuple[Pulse, T]:
            if not self._renew(link):
                raise TasksLost(self.name)
            self._sweep(link)
            done = call(link)
            return self._pulse(link), done

        return self._do(work)

    def _renew(self, link: Link) -> bool:
        renewed = f"""UPDATE {self._of.workers} SET leased_until = clock_timestamp() + lease WHERE id = %s
            RETURNING usd, tokens, tool_calls"""
        row = link.execute(renewed.encode(), (self.worker,)).fetchone()
        if row is not None:
            self._recorded = Spent(*row)
        return row is not None

    def _sweep(self, link: Link) -> None:
        """Free the tasks of workers whose lease has run out. After a restart of the server each has the time
        of its lease to come back."""
        self._free(
            link,
            f"""id IN (SELECT id FROM {self._of.workers} WHERE batch = %s AND leased_until < clock_timestamp()
                AND pg_postmaster_start_time() + lease < clock_timestamp() FOR UPDATE SKIP LOCKED)""",
            # What was not begun cannot be why the worker was lost.
            "(state = 'started')::int",
            self.batch,
        )

    def _free(self, link: Link, which: str, losses: str, value: str | None) -> None:
        sums = ", ".join(f"sum({name}) AS {name}" for name in _SUMS)
        added = ", ".join(f"{name} = batch.{name} + gone.{name}" for name in _SUMS)
        link.execute(
            f"""WITH dead AS (DELETE FROM {self._of.workers} WHERE {which} RETURNING *),
                freed AS (UPDATE {self._of.tasks} SET holder = NULL, losses = losses + {losses}
                    WHERE holder IN (SELECT id FROM dead))
                UPDATE {self._of.batches} AS batch SET {added}, ran = greatest(batch.ran, gone.ran)
                FROM (SELECT batch, {sums}, max(ran) AS ran FROM dead GROUP BY batch) AS gone
                WHERE batch.name = gone.batch""".encode(),
            (value,),
        )

    def _pulse(self, link: Link) -> Pulse:
        sums = ", ".join(f"batch.{name} + coalesce(sum(worker.{name}), 0)" for name in _SUMS)
        row = link.execute(
            f"""SELECT batch.total, {sums}, greatest(batch.ran, max(worker.ran)),
                    coalesce(extract(epoch FROM batch.gate_until - clock_timestamp()), 0), batch.gate_why
                FROM {self._of.batches} AS batch LEFT JOIN {self._of.workers} AS worker
                ON worker.batch = batch.name WHERE batch.name = %s GROUP BY batch.name""".encode(),
            (self.batch,),
        ).fetchone()
        if row is None:
            raise UsageError(f"The batch {self.batch!r} was removed from {self.name!r}")
        total, usd, tokens, calls, done, failed, over, waiting, skipped, ran, seconds, why = cast("Any", row)
        return Pulse(
            total=total,
            counts=Counts(0, 0, int(done), int(failed), int(skipped), int(over), int(waiting)),
            spent=Spent(float(usd), int(tokens), int(calls), float(ran)),
            mine=self._before + self._recorded,
            gate_seconds=max(0.0, float(seconds)),
            gate_why=to_text(why or b""),
        )

    # What a runner writes.

    def add(self, tasks: Iterable[tuple[int, Task]], *, append: bool = False) -> int:
        """`append`: number them after those that are there. A task whose id is there already is not added
        again."""
        of = self._of
        known = f"""SELECT number, id, task FROM {of.tasks}
            WHERE batch = %s AND (number = ANY(%s) OR id = ANY(%s))"""
        insert = f"INSERT INTO {of.tasks} (batch, number, id, task) VALUES (%s, %s, %s, %s)"
        locked = b"SELECT pg_advisory_xact_lock(hashtextextended(%s, 0))"
        counted = f"UPDATE {of.batches} SET total = total + %s WHERE name = %s"
        following = f"SELECT coalesce(max(number) + 1, 0) FROM {of.tasks} WHERE batch = %s"

        def put(link: Link) -> int:
            # Others that add wait. Those that work do not, and write to the row of the batch.
            link.execute(locked, (f"{of.tasks} {self.batch}",))
            row = link.execute(following.encode(), (self.batch,)).fetchone() if append else None
            first, new = (0 if row is None else cast("int", row[0])), 0
            rest = iter(tasks)
            while part := list(islice(rest, AT_ONCE)):
                placed = [(first + number, task.placed(first + number)) for number, task in part]
                rows = [(number, to_bytes(task.id), write_task(task)) for number, task in placed]
                keys = self.batch, [row[0] for row in rows], [row[1] for row in rows]
                there = cast("list[tuple[int, bytes, bytes]]", link.execute(known.encode(), keys).fetchall())
                by_number, by_id = {row[0]: row for row in there}, {row[1]: row for row in there}
                fresh: list[tuple[str, int, bytes, bytes]] = []
                for number, id, plain in rows:
                    found = by_id.get(id) or by_number.get(number)
                    if found is None:
                        fresh.append((self.batch, number, id, plain))
                        by_id[id] = number, id, plain
                    elif found[0] != number and not append:
                        raise same_id(number, found[0], to_text(id))
                    elif found[2] != plain:
                        raise other_task(number, self.name)
                if fresh:
                    with link.cursor() as cursor:
                        cursor.executemany(insert.encode(), fresh)
                new += len(fresh)
            link.execute(counted.encode(), (new, self.batch))
            return new

        return self._do(put, seconds=_ADDING)

    def write(self, changes: Sequence[Change]) -> list[bool]:
        def write(link: Link) -> list[bool]:
            # First of all, as in `_sweep`: two that lock the same rows in another order wait for each other.
            if not self._renew(link):
                return [False] * len(changes)
            return [self._make(link, change) for change in changes]

        written = self._do(write) if changes else []
        self._held.difference_update(
            to_bytes(change.id) for change in changes if not isinstance(change, Begun | Noted)
        )
        return written

    def _make(self, link: Link, change: Change) -> bool:
        statement, values = self._statement(change)
        row = link.execute(statement.encode(), values).fetchone()
        if row is not None and row[0] is not None:
            self._recorded = Spent(*row)
        return row is not None

    def _statement(self, change: Change) -> tuple[str, dict[str, object]]:
        """What makes a change, and gives what this worker has recorded with it."""
        of, usage = self._of, None if isinstance(change, Begun) else change.usage
        values: dict[str, object] = {
            "batch": self.batch,
            "me": self.worker,
            "id": to_bytes(change.id),
            "usage": None if usage is None else msgspec.json.encode(usage),
            "usd": None if usage is None else usage.cost_usd,
            "tokens": None if usage is None else min(usage.total_tokens, _MOST),
        }
        mine = "batch = %(batch)s AND id = %(id)s AND holder = %(me)s"
        now = "extract(epoch FROM clock_timestamp())"
        if isinstance(change, Begun):
            values |= {"attempt": change.attempt, "worker": to_bytes(change.worker)}
            values |= {"session": _bytes(change.session_id)}
            statement = f"""WITH one AS (UPDATE {of.tasks} SET state = 'started', attempts = %(attempt)s,
                    session_id = coalesce(%(session)s, session_id), started_at = coalesce(started_at, {now})
                    WHERE {mine} RETURNING number)
                INSERT INTO {of.attempts} (batch, task, attempt, worker, began_at, session_id)
                SELECT %(batch)s, number, %(attempt)s, %(worker)s, {now}, %(session)s FROM one
                ON CONFLICT (batch, task, attempt) DO UPDATE SET worker = excluded.worker RETURNING NULL"""
            return statement, values
        spent = f"""was AS (SELECT usd, tokens, tool_calls FROM {of.attempts} AS a JOIN one
                ON a.task = one.number AND a.attempt = one.attempts WHERE a.batch = %(batch)s),
            now AS (UPDATE {of.attempts} AS a SET session_id = coalesce(%(session)s, a.session_id),
                worker = coalesce(%(worker)s, worker), tool_calls = coalesce(%(calls)s, tool_calls),
                usage = coalesce(%(usage)s, usage), usd = coalesce(%(usd)s, usd),
                tokens = coalesce(%(tokens)s, tokens), ended_at = coalesce(%(ended)s, ended_at) FROM one
                WHERE a.batch = %(batch)s AND a.task = one.number AND a.attempt = one.attempts
                RETURNING a.usd, a.tokens, a.tool_calls)"""
        more = """usd = w.usd + coalesce(now.usd - was.usd, 0),
            tokens = w.tokens + coalesce(now.tokens - was.tokens, 0),
            tool_calls = w.tool_calls + coalesce(now.tool_calls - was.tool_calls, 0)"""
        whose = """FROM one LEFT JOIN was ON true LEFT JOIN now ON true WHERE w.id = %(me)s
            RETURNING w.usd, w.tokens, w.tool_calls"""
        values["calls"] = None if change.tool_calls is None else min(change.tool_calls, _MOST)
        if isinstance(change, Noted):
            values |= {"session": _bytes(change.session_id), "workspace": _bytes(change.workspace)}
            values |= {"worker": _bytes(change.worker), "ended": None}
            statement = f"""WITH one AS (UPDATE {of.tasks} SET session_id = coalesce(%(session)s, session_id),
                    workspace = coalesce(%(workspace)s, workspace) WHERE {mine} AND state = 'started'
                    RETURNING number, attempts), {spent}
                UPDATE {of.workers} AS w SET {more} {whose}"""
            return statement, values
        outcome = change.outcome
        values |= {"session": _bytes(outcome.session_id), "workspace": _bytes(outcome.workspace)}
        values |= {"worker": None, "ended": None if change.ran is None else outcome.ended_at}
        values |= {"status": outcome.status, "outcome": msgspec.json.encode(outcome.to_json())}
        values |= {"ran": change.ran or 0.0}
        # The last part: it was written, and the answer was lost with the connection.
        statement = f"""WITH one AS (UPDATE {of.tasks} SET state = 'ended', holder = NULL,
                status = %(status)s, outcome = %(outcome)s, session_id = %(session)s,
                workspace = %(workspace)s WHERE {mine} RETURNING number, attempts), {spent},
            paid AS (UPDATE {of.workers} AS w SET {more}, {outcome.status} = w.{outcome.status} + 1,
                ran = greatest(w.ran, %(ran)s) {whose})
            SELECT * FROM paid UNION ALL SELECT NULL, NULL, NULL FROM {of.tasks}
            WHERE batch = %(batch)s AND id = %(id)s AND outcome = %(outcome)s"""
        return statement, values

    def reopen(self, statuses: Sequence[Status]) -> int:
        return self._reopen(statuses, "state = 'pending', session_id = NULL, losses = 0")

    def take_up_waiting(self) -> None:
        self._reopen(("waiting",), "state = 'started'")

    def _reopen(self, statuses: Sequence[Status], become: str) -> int:
        of = self._of
        fewer = ", ".join(
            f"{each} = {each} - (SELECT count(*) FROM again WHERE status = '{each}')" for each in statuses
        )
        rows = self._run(
            f"""WITH old AS (SELECT number, status FROM {of.tasks} WHERE batch = %s AND state = 'ended'
                    AND status = ANY(%s) FOR UPDATE),
                again AS (UPDATE {of.tasks} AS task SET {become}, status = NULL, outcome = NULL FROM old
                    WHERE task.batch = %s AND task.number = old.number RETURNING old.status)
                UPDATE {of.batches} SET {fewer} WHERE name = %s AND EXISTS (SELECT FROM again)
                RETURNING (SELECT count(*) FROM again)""",
            *(self.batch, [*statuses], self.batch, self.batch),
        )
        return cast("int", rows[0][0]) if rows else 0

    def set_meta(self, name: str, value: str) -> None:
        self._execute(
            f"""INSERT INTO {self._of.meta} VALUES (%s, %s, %s)
                ON CONFLICT (batch, name) DO UPDATE SET value = excluded.value""",
            *(self.batch, name, to_bytes(value)),
        )

    # What readers use, too.

    def _entries(self, state: str) -> Iterator[Entry]:
        last = -1
        where = "state = %s AND number > %s"
        while found := self._do(
            lambda link: self._find(link, where, state, last, limit=AT_ONCE)  # noqa: B023 - called at once
        ):
            yield from found
            last = found[-1].number

    def _find(self, link: Link, where: str, *values: object, limit: int | None = None) -> list[Entry]:
        of, found = self._of, list[Entry]()
        statement = f"""SELECT number, task, attempts, session_id, workspace, started_at,
                (SELECT array_agg(usage) FROM {of.attempts} AS a WHERE a.batch = task.batch
                    AND a.task = task.number AND usage IS NOT NULL),
                (SELECT coalesce(sum(tool_calls), 0) FROM {of.attempts} AS a WHERE a.batch = task.batch
                    AND a.task = task.number), losses, holder
            FROM {of.tasks} AS task WHERE batch = %s AND {where} ORDER BY number LIMIT %s"""
        rows = link.execute(statement.encode(), (self.batch, *values, limit), binary=True)
        for number, task, attempts, session, workspace, began_at, usages, calls, *state in cast("Any", rows):
            with undamaged(self.name):
                used = sum((msgspec.json.decode(each, type=Usage) for each in usages or ()), Usage())
                read, not_kept = read_task(task)
                before = attempts, _text(session), _text(workspace), began_at, used, int(calls)
                found.append(Entry(number, read, *before, not_kept, *state))
        return found

    def lacking(self) -> Iterator[Entry]:
        entries = self._run(
            f"""SELECT number, task FROM {self._of.tasks} WHERE batch = %s AND state <> 'ended'
                AND position(%s::bytea IN task) > 0 ORDER BY number""",
            *(self.batch, b'"not_kept":'),
        )
        for number, task in entries:
            found, not_kept = read_task(task)
            if not_kept:
                yield Entry(number, found, not_kept=not_kept)

    def outcomes(self) -> Iterator[Outcome]:
        last = -1
        while rows := self._run(
            f"""SELECT number, outcome FROM {self._of.tasks} WHERE batch = %s AND state = 'ended'
                AND number > %s ORDER BY number LIMIT %s""",
            *(self.batch, last, AT_ONCE),
        ):
            last = cast("int", rows[-1][0])
            for _, written in rows:
                with undamaged(self.name):
                    outcome: Outcome = Outcome.from_json(msgspec.json.decode(written))
                yield outcome

    def counts(self) -> Counts:
        rows = self._run(
            f"SELECT coalesce(status, state), count(*) FROM {self._of.tasks} WHERE batch = %s GROUP BY 1",
            self.batch,
        )
        with undamaged(self.name):
            return Counts(**dict(cast("list[tuple[str, int]]", rows)))

    def spent(self) -> Spent:
        return self._do(self._pulse).spent

    def runner(self) -> str | None:
        rows = self._run(
            f"""SELECT name, (SELECT count(*) FROM {self._of.tasks} WHERE holder = worker.id)
                FROM {self._of.workers} AS worker WHERE batch = %s AND leased_until > clock_timestamp()
                ORDER BY name""",
            self.batch,
        )
        names = [f"{to_text(cast('bytes', name))} ({count})" for name, count in rows]
        return ", ".join(names) or None

    def meta(self, name: str) -> str | None:
        if name in ("id", "made_at"):
            of_batch = f"SELECT {name}::text FROM {self._of.batches} WHERE name = %s"
            rows = self._run(of_batch, self.batch)
            return str(rows[0][0]) if rows else None
        kept = f"SELECT value FROM {self._of.meta} WHERE batch = %s AND name = %s"
        rows = self._run(kept, self.batch, name)
        return to_text(cast("bytes", rows[0][0])) if rows else None

    # How it is done.

    def _run(self, statement: str, *values: object) -> list[tuple[Any, ...]]:
        return self._do(lambda link: link.execute(statement.encode(), values, binary=True).fetchall())

    def _execute(self, statement: str, *values: object) -> None:
        self._do(lambda link: link.execute(statement.encode(), values))

    def _do(self, call: Callable[[Link], T], *, seconds: float | None = None) -> T:
        if not self._is_open:
            raise UsageError("The journal is not open", hint="Enter it first: `with journal: …`")
        try:
            return self._database.do("journal", call, makes_tables=self._is_writing, seconds=seconds)
        except StoreError as error:
            reason, hint = error.reason, error.hint
            if isinstance(error.__cause__, psycopg.errors.UndefinedTable):
                reason, hint = "there is no journal in it", "Submit a batch to it first."
            raise JournalInvalid(self.name, reason, retryable=error.retryable, hint=hint) from error


def _bytes(text: str | None) -> bytes | None:
    return None if text is None else to_bytes(text)


def _text(data: bytes | None) -> str | None:
    return None if data is None else to_text(data)

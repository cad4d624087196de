"""`Ledger`, a record of what every turn used, in JSON lines, in SQLite or in PostgreSQL.

What was acknowledged is on disk. `budget` limits spending.
"""

from __future__ import annotations

import errno
import logging
import os
import sqlite3
import time
import weakref
from collections import deque
from collections.abc import Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Final, NamedTuple, TypeVar
from uuid import uuid4
from weakref import WeakKeyDictionary

import anyio
import msgspec
from anyio.lowlevel import RunVar

from outrider._folders import refuse_planted, sync_folder
from outrider._threads import run_sync
from outrider.errors import OptionsError, OutriderError, StoreError
from outrider.options._validators import any_text, invalid_value, mapped, path_text, text
from outrider.session import Result, Usage
from outrider.transcripts.stores._sqlite import make_database, set_up

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator
    from typing import Self

    from outrider.fleet._database import PostgresTable


_WAIT_SECONDS: Final = 30.0
"""How long to wait for other writers, which take milliseconds."""

_PAUSE_SECONDS: Final = 0.002

_APPLICATION_ID: Final = 0x4F75744C
"""Tells a ledger from databases of other programs."""

_TABLES: Final = (
    """CREATE TABLE entries (
        number INTEGER PRIMARY KEY,
        id TEXT NOT NULL UNIQUE,
        at REAL NOT NULL,
        session TEXT NOT NULL,
        outcome TEXT NOT NULL,
        usd REAL NOT NULL,
        tokens INTEGER NOT NULL,
        data TEXT NOT NULL
    )""",
    "CREATE INDEX entries_by_session ON entries (session)",
    "CREATE INDEX entries_by_time ON entries (at)",
)


class Row(NamedTuple):
    """An entry as it is written: `data` is all of it, as JSON; the rest, what it is found by, here
    or by other programs."""

    id: str
    at: float
    session: str
    outcome: str
    usd: float
    tokens: int
    data: str


class JsonLines:
    """A line for each entry. A line that was not written to its end was never acknowledged.

    Like the database, it only grows, and may be used by any thread and by several processes.
    """

    def __init__(self, path: Path) -> None:
        self._path = path

    def append(self, row: Row) -> None:
        """Returns when it would outlive a loss of power."""
        with _failing(self._path, "add"), _opened(self._path) as number, _locked(number):
            size = os.fstat(number).st_size
            line = row.data.encode() + b"\n"
            if size and os.pread(number, 1, size - 1) != b"\n":
                # The last writer was killed.
                line = b"\n" + line
            left = memoryview(line)
            while left:
                left = left[os.write(number, left) :]
            os.fsync(number)

    def read(self, session: str | None, since: float | None) -> list[str]:
        """The data of all entries, oldest first. They may be limited, and need not be."""
        with _failing(self._path, "read"):
            try:
                whole = self._path.read_bytes()
            except FileNotFoundError:
                return []
        # What is behind the last line end is being written, or never will be.
        lines = whole.split(b"\n")[:-1]
        return [line.decode("utf-8", "replace") for line in lines if line.strip()]

    def close(self) -> None:
        """Release what is held; it is opened again when needed."""


class SqliteFile:
    """A table of entries."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._connection: sqlite3.Connection | None = None
        self._process = 0
        self._lock = Lock()

    def append(self, row: Row) -> None:
        marks = ", ".join("?" * len(row))
        with self._lock, _failing(self._path, "add"):
            # An entry is added once, however often the call is repeated.
            self._open().execute(
                f"INSERT OR IGNORE INTO entries ({', '.join(Row._fields)}) VALUES ({marks})", row
            )

    def read(self, session: str | None, since: float | None) -> list[str]:
        # Reading makes no database.
        if not self._path.exists():
            return []
        with self._lock, _failing(self._path, "read"):
            wanted = {"session = ?": session, "at >= ?": since}
            where = [clause for clause, value in wanted.items() if value is not None]
            rows = self._open().execute(
                f"SELECT data FROM entries WHERE {' AND '.join(['true', *where])} ORDER BY number",
                [value for value in wanted.values() if value is not None],
            )
            return [data for (data,) in rows]

    def __del__(self) -> None:
        # From 3.13 on, a connection that is dropped warns.
        self.close()

    def close(self) -> None:
        with self._lock:
            connection, self._connection = self._connection, None
            if connection is not None and self._process == os.getpid():
                connection.close()

    def _open(self) -> sqlite3.Connection:
        if self._connection is not None and self._process == os.getpid():
            return self._connection
        # A connection must not be used, nor closed, in a process that was forked off.
        make_database(self._path)
        connection = sqlite3.connect(
            self._path, timeout=_WAIT_SECONDS, isolation_level=None, check_same_thread=False
        )
        try:
            set_up(connection, str(self._path), _WAIT_SECONDS, _APPLICATION_ID, [_TABLES])
        except BaseException:
            connection.close()
            raise
        self._connection, self._process = connection, os.getpid()
        return connection


@contextmanager
def _failing(path: Path, operation: str) -> Generator[None]:
    try:
        yield
    except OSError as error:
        reason = error.strerror or str(error)
        is_passing = isinstance(error, TimeoutError) or error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EIO)
        raise StoreError(str(path), operation, reason, retryable=is_passing) from error
    except sqlite3.Error as error:
        # The lower byte is the kind of failure.
        code = (getattr(error, "sqlite_errorcode", None) or 0) & 0xFF
        is_passing = code in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR)
        raise StoreError(str(path), operation, str(error), retryable=is_passing) from error


@contextmanager
def _opened(path: Path) -> Generator[int]:
    """Open a private file. It is made if it does not exist, so that its name survives a loss of power."""
    try:
        number = os.open(path, os.O_RDWR | os.O_APPEND)
    except FileNotFoundError:
        number = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT, 0o600)
        sync_folder(path.parent)
    try:
        refuse_planted(path)
        yield number
    finally:
        os.close(number)


@contextmanager
def _locked(number: int) -> Generator[None]:
    """Hold a file among all threads and processes. Raises `TimeoutError` if others do for too long."""
    # Only where sessions run: Windows has none.
    import fcntl

    end = time.monotonic() + _WAIT_SECONDS
    while True:
        try:
            fcntl.flock(number, fcntl.LOCK_EX | fcntl.LOCK_NB)
            break
        except BlockingIOError:
            if time.monotonic() > end:
                raise TimeoutError("other writers did not finish in time") from None
            # A blocking lock has no timeout.
            time.sleep(_PAUSE_SECONDS)
    try:
        yield
    finally:
        # A process that was forked off meanwhile has the file too, and closing it here would not do.
        fcntl.flock(number, fcntl.LOCK_UN)


log = logging.getLogger("outrider.fleet")

T = TypeVar("T")

_URL: Final = "sqlite:///"
_POSTGRES: Final = ("postgresql://", "postgres://")
_SQLITE: Final = (".db", ".sqlite", ".sqlite3")
_LINES: Final = (".jsonl", ".ndjson")

_MOST: Final = 2**63 - 1
"""The largest number of a column."""

_THREADS: Final = 2

_NOTHING_USD: Final = 1e-9

_read_tags = mapped(text, any_text)


class LedgerEntry(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What one turn has used, and how it ended."""

    at: float = msgspec.field(default_factory=time.time)
    """When it was over, in Unix seconds."""
    session_id: str = ""
    turn: str = ""
    """The id of its prompt."""
    usage: Usage = Usage()
    """Of this turn, with that of each model in `usage.by_model`."""
    duration: float = 0.0
    """Seconds on the clock."""
    outcome: str = "success"
    """`success`, or the name of the error's class."""
    tags: Mapping[str, str] = {}
    id: str = msgspec.field(default_factory=lambda: uuid4().hex)
    """An entry that is added twice counts once."""

    @classmethod
    def of(cls, result: Result[T], *, turn: str = "", tags: Mapping[str, str] | None = None) -> LedgerEntry:
        """The entry for the result of a turn, failed or not."""
        named = (result.message and result.message.user_message_uuids) or ()
        failed = "TurnFailed" if result.error is None else type(result.error).__name__
        return cls(
            session_id=result.session_id or "",
            turn=turn or next(iter(named), ""),
            usage=result.usage,
            duration=result.duration,
            outcome="success" if result.is_success else failed,
            tags=dict(tags or {}),
        )

    @property
    def usd(self) -> float:
        """What it has cost."""
        return self.usage.cost_usd

    @property
    def tokens(self) -> int:
        """All of them, cached ones too."""
        return self.usage.total_tokens

    @property
    def models(self) -> tuple[str, ...]:
        """The models that were asked."""
        return tuple(self.usage.by_model)


class Ledger:
    """A record of what every turn used, in an append-only file or table.

        ledger = Ledger("ledger.db")
        await ledger.add(LedgerEntry.of(result, tags={"team": "search"}))
        for team, usage in (await ledger.totals("tag:team")).items(): ...

    `*.db` and `sqlite:///…` is a SQLite database, `*.jsonl` a file of JSON lines. It is made when the first
    entry is added; only its owner can read it. Several tasks, threads and processes of one machine may use it
    at once. `postgresql://host/database` is a table, which programs on many machines may use. What was added
    outlives the process, and a loss of power.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        """Raises `OptionsError` if the name does not tell the format."""
        given = path_text("`path`", path)
        self.path: Path = Path.cwd() / given.removeprefix(_URL)
        """The file; of a table, not a real one."""
        self.name: str = os.fspath(self.path)
        suffix = self.path.suffix.lower()
        is_url = "://" in given
        self._file: SqliteFile | JsonLines | PostgresTable
        if given.startswith(_POSTGRES):
            self._file = _table(given)
            self.name = self._file.name
            self.path = Path(self.name)
        elif given.startswith(_URL) or (suffix in _SQLITE and not is_url):
            self._file = SqliteFile(self.path)
        elif suffix in _LINES and not is_url:
            self._file = JsonLines(self.path)
        else:
            raise OptionsError(
                f"`path` must be the name of a ledger, not {given!r}",
                hint="`ledger.db` is a SQLite database, `ledger.jsonl` a file of JSON lines,"
                " `postgresql://…` a table.",
            )

    def __repr__(self) -> str:
        return f"<Ledger {self.name!r}>"

    async def add(self, entry: LedgerEntry) -> None:
        """Add an entry; returns when it is on the disk.

        Raises `StoreError` if that cannot be done. An entry that was added before is not added again, so a
        call that was cancelled, or that failed, can be repeated.
        """
        if not isinstance(entry, LedgerEntry):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise invalid_value(
                "`entry`", "a `LedgerEntry`", entry, "Of a result, make it with `LedgerEntry.of`."
            )
        row = _row(entry)
        await _in_thread(lambda: self._file.append(row))

    async def entries(
        self,
        *,
        session_id: str | None = None,
        model: str | None = None,
        tag: str | None = None,
        since: float | datetime | None = None,
    ) -> list[LedgerEntry]:
        """The entries that all of these hold for, in the order in which they were added.

        `tag` is the name of one, or `name=value`; `since`, a moment in Unix seconds or a `datetime`. Raises
        `StoreError` if the file cannot be read.
        """
        moment = since.timestamp() if isinstance(since, datetime) else since
        if moment is not None and not isinstance(moment, int | float):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise invalid_value("`since`", "a moment in Unix seconds or a `datetime`", moment)
        if tag is not None:
            text("`tag`", tag)
        name, is_valued, value = (tag or "").partition("=")

        def read() -> list[LedgerEntry]:
            return [
                entry
                for entry in self._decoded(session_id, moment)
                if (session_id is None or entry.session_id == session_id)
                and (moment is None or entry.at >= moment)
                and (model is None or model in entry.usage.by_model)
                and (tag is None or (entry.tags.get(name) == value if is_valued else name in entry.tags))
            ]

        return await _in_thread(read)

    async def totals(self, by: str = "session") -> dict[str, Usage]:
        """What was used by each `session` or `model`, on each `day` (UTC), or for each value of a `tag:NAME`.

        What has no such tag, or no known model, is under the empty text. All of them together are what the
        results say.
        """
        keys = _grouping(by)

        def add_up() -> dict[str, Usage]:
            found: dict[str, Usage] = {}
            for entry in self._decoded(None, None):
                for key, usage in keys(entry):
                    found[key] = found[key] + usage if key in found else usage
            return dict(sorted(found.items()))

        return await _in_thread(add_up)

    async def close(self) -> None:
        """Close the file. It is opened again if the ledger is used again."""
        await _in_thread(self._file.close)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        with anyio.CancelScope(shield=True):
            await self.close()

    def _decoded(self, session_id: str | None, since: float | None) -> Iterator[LedgerEntry]:
        seen: set[str] = set()
        for number, data in enumerate(self._file.read(session_id, since), 1):
            try:
                entry = msgspec.json.decode(data, type=LedgerEntry)
            except (msgspec.MsgspecError, UnicodeError) as error:
                # It was cut off by a crash, before it was acknowledged.
                log.warning("entry %d of %s is damaged, and left out: %s", number, self.name, error)
                continue
            if entry.id not in seen:
                seen.add(entry.id)
                yield entry


class Backlog:
    """Entries that a ledger could not take. What they tell of is paid for, so that it does not fail; nothing
    more is spent until the ledger has them."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._entries: deque[LedgerEntry] = deque()

    def __len__(self) -> int:
        return len(self._entries)

    async def add(self, entry: LedgerEntry) -> None:
        """Add an entry, now or later."""
        try:
            await self._add(entry)
            await self.settle()
        except OutriderError as error:
            log.error("%s: what was spent is kept, and nothing more is spent until it is written", error)  # noqa: TRY400

    async def settle(self) -> None:
        """Add all that was kept. Raises what `Ledger.add` raises."""
        while self._entries:
            # Others settle at the same time: each entry is in the hands of one.
            await self._add(self._entries.popleft())

    async def _add(self, entry: LedgerEntry) -> None:
        try:
            await self._ledger.add(entry)
        except BaseException:
            self._entries.append(entry)
            raise


_backlogs: WeakKeyDictionary[Ledger, Backlog] = WeakKeyDictionary()


def backlog_of(ledger: Ledger) -> Backlog:
    """The one backlog of a ledger."""
    try:
        found = _backlogs.get(ledger)
        if found is None:
            found = _backlogs[ledger] = Backlog(weakref.proxy(ledger))
    except TypeError:
        # One of the user's own, which cannot be remembered.
        return Backlog(ledger)
    return found


def _table(url: str) -> PostgresTable:
    try:
        from outrider.fleet._database import PostgresTable
    except ImportError as error:
        raise OptionsError(
            "a ledger in PostgreSQL needs psycopg, which is not installed",
            hint="Run: pip install 'outrider[postgres]'",
        ) from error
    return PostgresTable(url)


def _row(entry: LedgerEntry) -> Row:
    try:
        datetime.fromtimestamp(entry.at, UTC)
    except (TypeError, ValueError, OverflowError, OSError):
        raise invalid_value("`at`", "a moment in Unix seconds", entry.at) from None
    _read_tags("`tags`", entry.tags)
    try:
        written = msgspec.json.encode(entry)
        # An entry that cannot be read again would be lost silently.
        msgspec.json.decode(written, type=LedgerEntry)
        data = written.decode()
    except (msgspec.MsgspecError, TypeError, ValueError) as error:
        raise OptionsError(f"the entry cannot be written as JSON: {error}") from error
    return Row(
        entry.id, float(entry.at), entry.session_id, entry.outcome, entry.usd, min(entry.tokens, _MOST), data
    )


def _grouping(by: str) -> Callable[[LedgerEntry], list[tuple[str, Usage]]]:
    """What makes of an entry the keys that it counts for, each with its share."""
    if by == "session":
        return lambda entry: [(entry.session_id, entry.usage)]
    if by == "model":
        return _by_model
    if by == "day":
        return lambda entry: [(f"{datetime.fromtimestamp(entry.at, UTC):%Y-%m-%d}", entry.usage)]
    kind, _, name = str(by).partition(":")
    if kind == "tag" and name:
        return lambda entry: [(entry.tags.get(name, ""), entry.usage)]
    raise invalid_value("`by`", "'session', 'model', 'day' or 'tag:NAME'", by)


def _by_model(entry: LedgerEntry) -> list[tuple[str, Usage]]:
    parts = list(entry.usage.by_model.items())
    known: Usage = sum((usage for _, usage in parts), Usage())
    names = Usage.__struct_fields__[:-1]
    rest = {name: max(0, getattr(entry.usage, name) - getattr(known, name)) for name in names}
    # Fractions of money do not add up exactly, and are no usage by themselves.
    is_more = any(rest[name] > _NOTHING_USD for name in names)
    return [*parts, ("", msgspec.convert(rest, Usage))] if is_more else parts


_limiter: RunVar[anyio.CapacityLimiter] = RunVar("outrider ledger")


async def _in_thread(function: Callable[[], T]) -> T:
    # In few threads of its own: writers wait for each other, and would block all other threads.
    limiter = _limiter.get(None)
    if limiter is None:
        limiter = anyio.CapacityLimiter(_THREADS)
        _limiter.set(limiter)
    return await run_sync(function, limiter=limiter)

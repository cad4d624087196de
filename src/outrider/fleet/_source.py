"""Where the tasks of a run come from and where what became of them is written: `Source`.

An iterable, a journal of its own, or one that workers share. What is written goes out together, and waits if
the journal is away. `_run` runs the tasks.
"""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence, Sized
from functools import partial
from itertools import islice
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Final, NamedTuple, TypeVar, cast

import anyio
import msgspec

from outrider._threads import run_sync
from outrider.errors import OptionsError, OutriderError
from outrider.fleet._budget.budget import Spent
from outrider.fleet._errors import JournalInvalid
from outrider.fleet._journal.journal import Change, Counts, Entry, Journal, Pulse, is_queue
from outrider.fleet._task import Status, Task, filled, kept_options, numbered

if TYPE_CHECKING:
    from outrider.fleet._journal.postgres import PostgresJournal


log = logging.getLogger("outrider.fleet")

T = TypeVar("T")

_AT_ONCE: Final = 500
"""How many tasks end together that were never begun."""
_FIRST_WAIT, _LONGEST_WAIT = 0.25, 15.0
"""Seconds before something that is away is tried again."""
_AFTER_STOP: Final = 10.0
"""How long a run that is stopped waits for what is away."""
_TO_CONNECT: Final = 10.0
"""How long a worker that begins waits for a database that does not answer."""
_PACE: Final = 2.0
"""Seconds between two looks at what the other workers do; less if their lease is short."""


class Outages:
    """What is away of all that stands around the agents. As long as anything is, no task begins."""

    def __init__(self, changed: Callable[[], None] = lambda: None) -> None:
        """`changed` is called when something goes away or is back."""
        self._away: dict[str, str] = {}
        self._changed = changed
        self._stopping = anyio.Event()
        self._stops_at: float | None = None

    @property
    def why(self) -> str | None:
        """What is away, and why; None if all is well."""
        return "; ".join(self._away.values()) or None

    def begin(self, what: str, error: OutriderError) -> None:
        """Something is away."""
        if what not in self._away:
            log.warning("the run pauses: %s is away: %s", what, error)
            self._away[what] = f"{what} is away: {str(error).partition(chr(10))[0]}"
            self._changed()

    def end(self, what: str) -> None:
        """It is back."""
        if self._away.pop(what, None) is not None:
            log.warning("the run goes on: %s is back", what)
            self._changed()

    def stop(self) -> None:
        """Wait for nothing much longer."""
        if self._stops_at is None:
            self._stops_at = anyio.current_time() + _AFTER_STOP
        self._stopping.set()

    async def outlast(
        self, what: str, call: Callable[[], Awaitable[T]], longest_wait: float = _LONGEST_WAIT
    ) -> T:
        """Call it, again and again as long as it fails for a reason that may pass. Raises what it raises."""
        wait = _FIRST_WAIT
        while True:
            try:
                result = await call()
            except OutriderError as error:
                if not error.retryable or not await self.sleep(wait, partial(self.begin, what, error)):
                    raise
                wait = min(wait * 2, longest_wait)
            else:
                self.end(what)
                return result

    async def sleep(self, seconds: float, begin: Callable[[], None]) -> bool:
        """Wait before the next try; False if there is to be none."""
        if self._stops_at is not None and anyio.current_time() >= self._stops_at:
            return False
        begin()
        if self._stops_at is not None:
            await anyio.sleep(min(seconds, 1.0))
            return True
        with anyio.move_on_after(seconds):
            await self._stopping.wait()
        return True


class Known(NamedTuple):
    """What is known of the tasks when a run begins."""

    counts: Counts | None
    """None if their number is not known."""
    spent: Spent = Spent()
    journal_id: str | None = None


class Source:
    """Where the tasks of a run come from. This one takes them from an iterable, one at a time, and records
    nothing."""

    has_more: bool = False
    """Whether tasks may come after there was none."""
    pulse: Pulse | None = None
    """How it stands with all workers, as of the last task."""

    def __init__(
        self, tasks: Iterable[Task | str] = (), check: Callable[[Task], None] = lambda _: None
    ) -> None:
        """Raises `OptionsError` for one of a list that is wrong; of others, when it is taken."""
        entries = (Entry(number, task) for number, task in numbered(tasks, check))
        self._tasks = iter(list(entries)) if isinstance(tasks, Sequence) else entries
        self._total = len(tasks) if isinstance(tasks, Sized) else None
        """None if their number is not known."""
        self.outages = Outages()

    @property
    def journal(self) -> Journal | None:
        return None

    async def open(self) -> Known:
        """Open the source. Returns what is known of its tasks."""
        return Known(None if self._total is None else Counts(pending=self._total))

    async def next(self) -> Entry | None:
        """The next task; None if there is none. Raises `OptionsError` for one that is wrong."""
        # In a thread, because the iterable may block.
        return await run_sync(next, self._tasks, None)

    async def rest(self) -> list[Entry]:
        """Some of the tasks that are left; none at the end, or if their number is not known."""
        if self._total is None:
            return []
        return await run_sync(lambda: list(islice(self._tasks, _AT_ONCE)))

    async def write(self, *changes: Change) -> list[bool]:
        """Write something down, if there is a journal. Gives for each whether it was to be changed; returns
        when it is on the disk."""
        return [True] * len(changes)

    def note(self, change: Change) -> None:
        """Have something written down with what is written next."""

    async def flush(self) -> None:
        """Write down what was noted."""

    async def close(self) -> None:
        pass


class Given(NamedTuple):
    """What a run gives its journal."""

    tasks: Iterable[Task | str] | None
    """None: those of an earlier run."""
    check: Callable[[Task], None]
    retry: tuple[Status, ...]
    """Tasks that ended so are begun anew."""
    env: Mapping[str, str]
    """Has secrets that tasks had as variables and the journal has not."""
    needs: Mapping[str, bool]
    """Arguments of the run that tasks need and do not have themselves."""
    stays: bool
    """Whether to wait for more tasks after the last one."""


class _Waiting:
    """A change that is to be written."""

    __slots__ = ("change", "is_made")

    def __init__(self, change: Change) -> None:
        self.change = change
        self.is_made: bool | None = None


class JournalSource(Source):
    """Tasks of a journal. Those that are given are written into it first, all or none."""

    _longest_wait: float = _LONGEST_WAIT

    def __init__(self, journal: Journal, given: Given) -> None:
        super().__init__()
        self._journal = journal
        self._given = given
        self._options: dict[str, Mapping[str, object]] = {}
        """Of the tasks that were given now and have secrets in them."""
        self._new = None if given.tasks is None else self._remembered(numbered(given.tasks, given.check))
        self._is_taken = False
        """Whether any of these was taken, which is possible once."""
        self._opening = Lock()
        self._is_closed = False
        self._waiting: deque[_Waiting] = deque()
        self._writing = anyio.Lock()

    @property
    def journal(self) -> Journal:
        return self._journal

    async def open(self) -> Known:
        return await run_sync(self._open)

    def _open(self) -> Known:
        # asyncio can cancel the call while the thread goes ahead: `close` waits for it.
        with self._opening:
            if self._is_closed:
                return Known(None)
            self._begin()
            try:
                self._fill()
                for entry in self._journal.lacking():
                    self._whole(entry)
                self._start()
                return Known(self._journal.counts(), self._journal.spent(), self._journal.meta("id"))
            except BaseException:
                self._journal.close()
                raise

    def _begin(self) -> None:
        if self._new is None:
            # A mistyped path must not make a new journal.
            with self._journal.reader():
                pass
        self._journal.open()

    def _fill(self) -> None:
        if self._new is not None:
            self._journal.add(self._new)
            self._journal.set_meta("needs", msgspec.json.encode(self._given.needs).decode())
            self._journal.set_meta("folder", str(Path.cwd()))
            self._new = None
        elif not self._journal.counts().total:
            hint = "Its runner was ended too early: call `map` again, with the tasks."
            raise JournalInvalid(self._journal.name, "there is no task in it", hint=hint)
        if self._given.retry:
            self._journal.reopen(self._given.retry)
        self._journal.take_up_waiting()

    def _start(self) -> None:
        self._tasks = (self._whole(entry) for entry in self._journal.todo())

    def _remembered(self, tasks: Iterator[tuple[int, Task]]) -> Iterator[tuple[int, Task]]:
        self._is_taken = True
        for number, task in tasks:
            if task.options and kept_options(task.options)[1]:
                self._options[task.id] = task.options
            yield number, task

    def _whole(self, entry: Entry) -> Entry:
        """A task with the secrets that the journal does not keep. Raises `OptionsError` if one is missing."""
        if not entry.not_kept:
            return entry
        options = self._options.get(entry.task.id)
        if options is None:
            options, missing = filled(entry.task.options, entry.not_kept, self._given.env)
            if missing:
                raise OptionsError(
                    f"The task {entry.task.id!r} had a secret as `{missing[0]}` of its options, and the"
                    " journal does not keep secrets",
                    hint="Give it again: call `map` with the same tasks and journal; a variable may also be"
                    " in `env` of the run, or in the environment of this process.",
                )
        return entry._replace(task=msgspec.structs.replace(entry.task, options=options))

    # Writing: all that wait together, in one transaction.

    async def write(self, *changes: Change) -> list[bool]:
        mine = [_Waiting(change) for change in changes]
        self._waiting.extend(mine)
        with anyio.CancelScope(shield=True):
            async with self._writing:
                # Whoever had the lock before may have written it.
                if any(each.is_made is None for each in mine):
                    await self._write_waiting()
        return [each.is_made is True for each in mine]

    def note(self, change: Change) -> None:
        self._waiting.append(_Waiting(change))

    async def flush(self) -> None:
        async with self._writing:
            await self._write_waiting()

    async def _write_waiting(self) -> None:
        batch = list(self._waiting)
        if not batch:
            return
        changes, made = [each.change for each in batch], list[bool]()
        # If this fails, it was not written, or can be written again.
        with anyio.CancelScope(shield=True):
            made = await self._outlast(lambda: self._journal.write(changes))
        for each, is_made in zip(batch, made, strict=True):
            each.is_made = is_made
            self._waiting.popleft()

    async def _outlast(self, call: Callable[[], T]) -> T:
        return await self.outages.outlast("the journal", lambda: run_sync(call), self._longest_wait)

    async def close(self) -> None:
        self._is_closed = True
        await run_sync(self._close)

    def _close(self) -> None:
        with self._opening:
            self._journal.close()


class SharedSource(JournalSource):
    """Tasks of a journal that workers share: each task is taken when there is room for it."""

    def __init__(self, journal: PostgresJournal, given: Given) -> None:
        super().__init__(journal, given)
        self._queue = journal
        # So that a worker is heard of in time when the database is back.
        self._longest_wait = min(_LONGEST_WAIT, self._queue.lease_seconds / 3)
        self._taken: deque[Entry] = deque()
        self.has_more = True
        self.generation = 0
        """Counts how often this worker has begun anew."""

    @property
    def pace(self) -> float:
        """Seconds between two looks at what the others do."""
        return min(_PACE, self._queue.lease_seconds / 6)

    def _open(self) -> Known:
        # A worker may be started while the server is.
        ends_at, wait = time.monotonic() + _TO_CONNECT, _FIRST_WAIT
        while True:
            try:
                return super()._open()
            except JournalInvalid as error:
                if not error.retryable or self._is_taken or time.monotonic() > ends_at:
                    raise
                time.sleep(wait)
                wait *= 2

    def _begin(self) -> None:
        if self._given.stays:
            self._journal.open()
        else:
            super()._begin()

    def _fill(self) -> None:
        if self._new is not None or not self._given.stays:
            super()._fill()

    def _start(self) -> None:
        self._queue.join()

    async def next(self) -> Entry | None:
        """Raises `TasksLost` if the lease has run out. A task that lacks a secret is `refused`."""
        if not self._taken:
            await self._take(1)
        return self._taken.popleft() if self._taken else None

    async def rest(self) -> list[Entry]:
        await self._take(_AT_ONCE)
        rest = [*self._taken]
        self._taken.clear()
        return rest

    async def _take(self, count: int) -> None:
        found = await self._outlast(lambda: self._queue.take(count))
        self.pulse = found.pulse
        self.has_more = self._given.stays or not found.is_over
        self._taken.extend(map(self._checked, found.entries))

    def has_lost(self, entry: Entry) -> bool:
        """Whether a task was taken before this worker began anew."""
        return entry.holder != self._queue.worker

    def _checked(self, entry: Entry) -> Entry:
        try:
            return self._whole(entry)
        except OptionsError as error:
            # It was added after this worker had begun, which is there for others, too.
            return entry._replace(refused=error)

    async def sync(self, paused: tuple[float, str] | None, *, is_opened: bool) -> Pulse:
        """Keep the lease. Raises `TasksLost`."""
        return await self._outlast(lambda: self._queue.sync(paused=paused, is_opened=is_opened))

    async def begin_anew(self) -> None:
        """Be a new worker, after the lease has run out."""
        self._taken.clear()
        await self._outlast(self._queue.join)
        self.generation += 1


def open_source(place: str, given: Given) -> JournalSource:
    """The source for a journal, by its path or URL. Raises `OptionsError`."""
    journal = Journal(place, writing=True)
    if is_queue(place):
        return SharedSource(cast("PostgresJournal", journal), given)
    if given.stays:
        raise OptionsError(
            "`stay` needs a journal that others can add tasks to",
            hint="Give a URL: postgresql://host/database.",
        )
    return JournalSource(journal, given)

"""Owns where the tasks of a run come from, and where it is written down what becomes of them.

`IterableSource` takes them from an iterable and writes nothing; `JournalSource` has a journal between.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sized
from itertools import islice
from threading import Lock
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

import msgspec

from outrider._threads import run_sync
from outrider.errors import OptionsError
from outrider.fleet._budget.account import Spent
from outrider.fleet._errors import JournalInvalid
from outrider.fleet._journal import Counts, Entry, Journal
from outrider.fleet._task import Task, filled, kept_options, numbered

if TYPE_CHECKING:
    from pathlib import Path

    from outrider.fleet._engine import Note
    from outrider.fleet._task import Outcome, Status
    from outrider.session import Usage

__all__ = ["IterableSource", "JournalSource", "Source", "check_unique_ids"]

_AT_ONCE: Final = 500
"""Tasks that end together without having been begun."""


class Known(NamedTuple):
    """What is known of the tasks when a run begins."""

    counts: Counts | None
    """None if nobody knows how many there are."""
    spent: Spent = Spent()
    journal_id: str | None = None


class Source(Protocol):
    """What a run asks for tasks, and tells what becomes of them."""

    @property
    def journal(self) -> Journal | None:
        """None if nothing is written down."""
        ...

    async def open(self) -> Known:
        """Make ready; gives what there is already."""
        ...

    async def next(self) -> Entry | None:
        """The next task; None if there is none. Raises `OptionsError` for one that is wrong."""
        ...

    async def rest(self) -> list[Entry]:
        """Some of the tasks that are left; none if there is none, or nobody knows how many there are."""
        ...

    async def begin(self, id: str, attempt: int, worker: str, session_id: str | None) -> None: ...

    async def note(self, id: str, note: Note) -> None: ...

    async def end(self, outcome: Outcome[object], usage: Usage, tool_calls: int, ran: float) -> None: ...

    async def end_all(self, outcomes: list[Outcome[object]]) -> None: ...

    async def close(self) -> None: ...


class IterableSource:
    """Tasks of an iterable, which is asked for one at a time, in a thread, because it may block."""

    journal: Journal | None = None

    def __init__(self, tasks: Iterable[Task | str], check: Callable[[Task], None] = lambda _: None) -> None:
        self._total = len(tasks) if isinstance(tasks, Sized) else None
        self._tasks = check_unique_ids(numbered(tasks, check))

    async def open(self) -> Known:
        return Known(None if self._total is None else Counts(pending=self._total))

    async def next(self) -> Entry | None:
        return await run_sync(next, self._tasks, None)

    async def rest(self) -> list[Entry]:
        if self._total is None:
            return []
        return await run_sync(lambda: list(islice(self._tasks, _AT_ONCE)))

    async def begin(self, id: str, attempt: int, worker: str, session_id: str | None) -> None:
        pass

    async def note(self, id: str, note: Note) -> None:
        pass

    async def end(self, outcome: Outcome[object], usage: Usage, tool_calls: int, ran: float) -> None:
        pass

    async def end_all(self, outcomes: list[Outcome[object]]) -> None:
        pass

    async def close(self) -> None:
        pass


def check_unique_ids(tasks: Iterator[tuple[int, Task]]) -> Iterator[Entry]:
    """Tasks as entries. Raises `OptionsError` where one has the id of another, and names both."""
    seen: dict[str, int] = {}
    for number, task in tasks:
        # Ids that were made are not remembered: there may be millions, and none is made twice.
        if not _is_made(task, number) and (first := seen.setdefault(task.id, number)) != number:
            raise OptionsError(
                f"`tasks[{number}]` has the id of `tasks[{first}]`: {task.id!r}",
                hint="Give each task an id of its own, or leave them all out.",
            )
        yield Entry(number, task)


def _is_made(task: Task, number: int) -> bool:
    is_likely = task.id.startswith(f"{number:06d}-")
    return is_likely and msgspec.structs.replace(task, id="").placed(number).id == task.id


class JournalSource:
    """Tasks of a journal. Those that are given are written into it first, all or none."""

    def __init__(
        self,
        path: str | Path,
        tasks: Iterable[Task | str] | None,
        check: Callable[[Task], None],
        retry: tuple[Status, ...] = (),
        env: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        """`tasks`: None for those of an earlier run; `retry`: tasks that ended so are begun anew; `env`: has
        secrets that tasks had as variables and the journal has not."""
        self.journal: Journal = Journal(path, writing=True)
        self._env = env
        self._options: dict[int, Mapping[str, object]] = {}
        """Of the tasks that were given now and have secrets in them."""
        self._tasks = None if tasks is None else self._remembered(numbered(tasks, check))
        self._retry = retry
        self._todo: Iterator[Entry] = iter(())
        self._opening = Lock()
        self._is_closed = False

    async def open(self) -> Known:
        return await run_sync(self._open_unless_closed)

    def _open_unless_closed(self) -> Known:
        # asyncio can cancel the call and leave the thread to itself: who closes it then waits for this.
        with self._opening:
            return Known(None) if self._is_closed else self._open()

    def _open(self) -> Known:
        if self._tasks is None:
            # A mistyped path must not make a new journal.
            with Journal(self.journal.path):
                pass
        self.journal.open()
        try:
            if self._tasks is not None:
                self.journal.add(self._tasks)
                self._tasks = None
            elif not self.journal.counts().total:
                hint = "Its runner was ended too early: call `map` again, with the tasks."
                raise JournalInvalid(self.journal.path, "there is no task in it", hint=hint)
            if self._retry:
                self.journal.reopen(self._retry)
            for entry in self.journal.lacking():
                self._whole(entry)
            self._todo = map(self._whole, self.journal.todo())
            return Known(self.journal.counts(), self.journal.spent(), self.journal.meta("id"))
        except BaseException:
            self.journal.close()
            raise

    def _remembered(self, tasks: Iterator[tuple[int, Task]]) -> Iterator[tuple[int, Task]]:
        for number, task in tasks:
            if task.options and kept_options(task.options)[1]:
                self._options[number] = task.options
            yield number, task

    def _whole(self, entry: Entry) -> Entry:
        """A task with the secrets that the journal has not. Raises `OptionsError` if nobody gave them."""
        if not entry.not_kept:
            return entry
        options = self._options.get(entry.number)
        if options is None:
            options, missing = filled(entry.task.options, entry.not_kept, self._env)
            if missing:
                raise OptionsError(
                    f"The task {entry.task.id!r} had a secret as `{missing[0]}` of its options, and the"
                    " journal does not keep secrets",
                    hint="Give it again: call `map` with the same tasks and journal; a variable may also be"
                    " in `env` of the run, or in the environment of this process.",
                )
        return entry._replace(task=msgspec.structs.replace(entry.task, options=options))

    async def next(self) -> Entry | None:
        return await run_sync(next, self._todo, None)

    async def rest(self) -> list[Entry]:
        return await run_sync(lambda: list(islice(self._todo, _AT_ONCE)))

    async def begin(self, id: str, attempt: int, worker: str, session_id: str | None) -> None:
        await run_sync(self.journal.begin, id, attempt, worker, session_id)

    async def note(self, id: str, note: Note) -> None:
        await run_sync(
            lambda: self.journal.note(
                id,
                session_id=note.session_id,
                workspace=note.workspace,
                worker=note.worker,
                usage=note.usage,
                tool_calls=note.tool_calls,
            )
        )

    async def end(self, outcome: Outcome[object], usage: Usage, tool_calls: int, ran: float) -> None:
        await run_sync(lambda: self.journal.end(outcome, usage=usage, tool_calls=tool_calls, ran=ran))

    async def end_all(self, outcomes: list[Outcome[object]]) -> None:
        await run_sync(self.journal.end_all, outcomes)

    async def close(self) -> None:
        self._is_closed = True
        await run_sync(self._close)

    def _close(self) -> None:
        with self._opening:
            self.journal.close()

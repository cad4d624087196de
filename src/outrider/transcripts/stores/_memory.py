"""Defines `MemoryStore`, a session store in the memory of this process.

Writes nothing to disk: its contents end with the process.
"""

from __future__ import annotations

from copy import deepcopy
from threading import Lock
from typing import TYPE_CHECKING, TypeVar

from outrider.transcripts.stores._base import RESERVED, Place
from outrider.transcripts.stores._heads import Batch, Change, Conflict, Head, HeadStore, Part, read_head
from outrider.transcripts.stores._urls import take_parameters

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Self

    from outrider.transcripts.stores._base import SessionKey, SessionStoreEntry

T = TypeVar("T")


class _Data:
    def __init__(self) -> None:
        self.heads: dict[Place, bytes] = {}
        self.batches: dict[str, list[Batch]] = {}
        """By the generation of their part."""
        self.lock = Lock()

    def __deepcopy__(self, memo: dict[int, object]) -> _Data:
        copied = _Data()
        with self.lock:
            copied.heads, copied.batches = deepcopy((self.heads, self.batches), memo)
        return copied


class MemoryStore(HeadStore):
    """A complete `SessionStore` for tests, and for sessions that need not outlive the process.

    May be used from several tasks and threads. `MemoryStore(store)` is another object with the same data, as
    another process would have for a database: for leases they are two writers.
    """

    _is_local = True

    def __init__(self, same_as: MemoryStore | None = None, /) -> None:
        super().__init__(type(self).__name__, timeout=None)
        self._data: _Data = _Data() if same_as is None else same_as._data

    @classmethod
    def from_url(cls, url: str) -> Self:
        """`memory:` is an empty one; `memory://name` has the same data wherever this process names it."""
        take_parameters(url, {})
        name = url.partition(":")[2].strip("/")
        if not name:
            return cls()
        with _naming:
            return cls(_named.setdefault(name, MemoryStore()))

    def __repr__(self) -> str:
        return f"{type(self).__name__}()"

    def __deepcopy__(self, memo: dict[int, object]) -> Self:
        copied = type(self)()
        copied._data = deepcopy(self._data, memo)
        copied._tokens = dict(self._tokens)
        return copied

    # For tests.

    def get_entries(self, key: SessionKey) -> list[SessionStoreEntry]:
        """The entries of a transcript; none if it is not there."""
        return self._load(Place.of(key)) or []

    @property
    def size(self) -> int:
        """How many sessions there are, their parts not counted."""
        projects = [project for project in self._list_projects() if not project.startswith(RESERVED)]
        return sum(len(self._list_summaries(project)) for project in projects)

    def clear(self) -> None:
        """Remove everything, leases too."""
        with self._data.lock:
            self._data.heads.clear()
            self._data.batches.clear()

    # What a driver does.

    async def _run(self, operation: str, call: Callable[..., T], *arguments: object) -> T:
        # Nothing blocks: no thread is needed.
        return call(*arguments)

    def _read(self, session: Place) -> tuple[Head, bytes | None]:
        data = self._data.heads.get(session)
        return read_head(session, data), data

    def _replace(self, session: Place, change: Change, version: bytes | None) -> bytes | None:
        kept, data = self._data, change.head.data
        with kept.lock:
            if kept.heads.get(session) != version:
                raise Conflict
            if change.batch is not None:
                kept.batches.setdefault(change.head.parts[change.name].generation, []).append(change.batch)
            for _, part in change.gone:
                kept.batches.pop(part.generation, None)
            if data is None:
                kept.heads.pop(session, None)
            else:
                kept.heads[session] = data
        return data

    def _read_batches(self, place: Place, part: Part, start: int, stop: int) -> list[Batch]:
        return self._data.batches.get(part.generation, [])[start:stop]

    def _find_heads(
        self, *, project: str | None = None, session: str | None = None
    ) -> list[tuple[str, bytes]]:
        with self._data.lock:
            return [
                (place.session, data)
                for place, data in self._data.heads.items()
                if place.project == project or place.session == session
            ]

    def _list_projects(self) -> list[str]:
        projects = sorted({place.project for place in [*self._data.heads]})
        return [project for project in projects if self._list_summaries(project)]

    def _close(self) -> None:
        """Nothing: what is kept stays."""

    def _explain(self, error: Exception) -> None:
        return None


_named: dict[str, MemoryStore] = {}
_naming = Lock()

"""Each store that needs no server does what a model of it in plain dicts does."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from outrider.transcripts import (
    FileStore,
    MemoryStore,
    SessionKey,
    SessionStore,
    SessionStoreEntry,
    SqliteStore,
)
from outrider.transcripts.stores._base import Line, Place, fold_summary
from tests.transcripts.stores.model import StoreMachine, check_model


def _memory(_: Path) -> Callable[[], SessionStore]:
    first = MemoryStore()
    return lambda: MemoryStore(first)


def _file(folder: Path) -> Callable[[], SessionStore]:
    return lambda: FileStore(folder / "store")


def _sqlite(folder: Path) -> Callable[[], SessionStore]:
    return lambda: SqliteStore(folder / "store.db")


@pytest.mark.timeout(180)
@pytest.mark.parametrize("make", [_memory, _file, _sqlite], ids=["memory", "file", "sqlite"])
def test_a_store_does_what_its_model_does(
    make: Callable[[Path], Callable[[], SessionStore]], tmp_path: Path
) -> None:
    opener = make(tmp_path)

    class Machine(StoreMachine):
        def open(self) -> SessionStore:
            return opener()

    check_model(Machine)


class IgnoresBatches(MemoryStore):
    async def append_batch(self, key: SessionKey, entries: list[SessionStoreEntry], batch: str) -> None:
        await self.append(key, entries)


class LetsAllDelete(MemoryStore):
    def _delete(self, place: Place) -> None:
        self._tokens[place.main] = lease.token if (lease := self._read(place.main)[0].lease) else ""
        super()._delete(place)


class FoldsAgain(MemoryStore):
    """A summary of what was sent, not of what was added."""

    def _append(self, place: Place, lines: list[Line], batch: str | None) -> None:
        super()._append(place, lines, batch)
        head, _ = self._read(place.main)
        if place.subpath is None and head.mtime is not None:
            summary = fold_summary(place, head.summary, lines).decode()
            self._data.heads[place] = msgspec.structs.replace(head, summary=summary).data or b""


@pytest.mark.parametrize("kind", [IgnoresBatches, LetsAllDelete, FoldsAgain])
def test_the_model_finds_what_is_wrong(kind: type[MemoryStore]) -> None:
    shared = kind()

    class Machine(StoreMachine):
        def open(self) -> SessionStore:
            return kind(shared)

    with pytest.raises(AssertionError):
        check_model(Machine, examples=500, shrink=False)

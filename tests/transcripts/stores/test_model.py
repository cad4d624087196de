"""Each store that needs no server does what a model of it in plain dicts does."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from outrider.transcripts import (
    FileStore,
    MemoryStore,
    SessionKey,
    SessionStore,
    SessionStoreEntry,
    SqliteStore,
)
from outrider.transcripts.stores._base import Place
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
    async def delete(self, key: SessionKey) -> None:
        leases = dict(self._leases)
        self._leases.clear()
        await super().delete(key)
        self._leases.update(leases)


class FoldsAgain(MemoryStore):
    """A summary of what was sent, not of what was added."""

    def _add(self, key: SessionKey, entries: list[SessionStoreEntry]) -> None:
        super()._add(key, entries)
        if "subpath" not in key and self._transcripts.get(Place.of(key)):
            self._summarise(key, entries)


@pytest.mark.parametrize("kind", [IgnoresBatches, LetsAllDelete, FoldsAgain])
def test_the_model_finds_what_is_wrong(kind: type[MemoryStore]) -> None:
    shared = kind()

    class Machine(StoreMachine):
        def open(self) -> SessionStore:
            return kind(shared)

    with pytest.raises(AssertionError):
        check_model(Machine, examples=500, shrink=False)

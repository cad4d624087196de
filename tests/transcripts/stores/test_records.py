"""Records: small values beside the sessions, changed one step at a time, in every store."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, cast
from uuid import uuid4

import anyio
import pytest

from outrider.errors import SessionBusy
from outrider.transcripts import FileStore, MemoryStore, SessionStoreEntry, SqliteStore
from outrider.transcripts.stores._blocking import to_key
from outrider.transcripts.stores._heads import HeadStore, Record, record_place
from tests.transcripts.stores.remote import REMOTES

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


def _remote(name: str, _: Path) -> HeadStore:
    return cast("HeadStore", REMOTES[name].make())


def _always(record: Record, _: str | None) -> Record:
    return record


FIVE = '{"n":5}'
MAKES: dict[str, Callable[[Path], HeadStore]] = {
    "memory": lambda _: MemoryStore(),
    "file": lambda folder: FileStore(folder / "store"),
    "sqlite": lambda folder: SqliteStore(folder / "store.db"),
    **{name: partial(_remote, name) for name in REMOTES},
}


@pytest.mark.parametrize("name", MAKES)
async def test_a_record_is_changed_by_one_at_a_time_and_no_session_shows_it(
    name: str, tmp_path: Path
) -> None:
    store = MAKES[name](tmp_path)
    kind, id = uuid4().hex, uuid4().hex
    assert await store.read_record(kind, id) is None
    before = sorted(await store.list_projects())

    def add(data: str | None) -> Record:
        return Record(f'{{"n":{json.loads(data or "{}").get("n", 0) + 1}}}', is_listed=True)

    async with anyio.create_task_group() as tasks:
        for _ in range(5):
            tasks.start_soon(store.change_record, kind, id, add)
    assert await store.read_record(kind, id) == FIVE
    assert await store.list_records(kind) == [FIVE]
    assert await store.find_session(id) == []
    assert sorted(await store.list_projects()) == before
    await store.change_record(kind, id, lambda _: None)
    assert await store.read_record(kind, id) == FIVE
    # A session of the same id is another matter.
    entry = cast("list[SessionStoreEntry]", [{"type": "x", "uuid": "1"}])
    key: Any = {"project_key": kind, "session_id": id}
    await store.append(key, entry)
    assert await store.find_session(id) == [kind]
    await store.delete(key)
    assert await store.read_record(kind, id) == FIVE
    await store.change_record(kind, id, lambda data: Record(str(data), is_listed=False))
    assert await store.list_records(kind) == []
    assert await store.read_record(kind, id) == FIVE
    await store.close()


@pytest.mark.parametrize("name", MAKES)
async def test_a_record_is_deleted_unless_somebody_has_its_lease(name: str, tmp_path: Path) -> None:
    store = MAKES[name](tmp_path)
    other = MemoryStore(store) if isinstance(store, MemoryStore) else MAKES[name](tmp_path)
    kind, id = uuid4().hex, uuid4().hex
    place = record_place(kind, id)
    for record in (Record(FIVE, is_listed=True), Record(FIVE, is_listed=False)):
        await store.change_record(kind, id, partial(_always, record))
        lease = await store.acquire_lease(to_key(place.project, place.session), "me", 60.0)
        with pytest.raises(SessionBusy):
            await other.delete_record(kind, id)
        assert await other.read_record(kind, id) == FIVE
        await store.release_lease(to_key(place.project, place.session), lease)
        for _ in range(2):
            await other.delete_record(kind, id)
            assert await store.read_record(kind, id) is None
            assert await store.list_records(kind) == []
    await other.close()
    await store.close()

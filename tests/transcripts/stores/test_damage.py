"""A session whose head is damaged harms no other, and can be deleted. All stores share this."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any, cast
from uuid import uuid4

import psycopg
import pytest

from outrider.errors import SessionBusy, StoreError
from outrider.transcripts import FileStore, MemoryStore, SessionKey, SqliteStore
from outrider.transcripts.stores._base import Place
from outrider.transcripts.stores._blocking import BlockingStore
from outrider.transcripts.stores._redis import RedisStore
from outrider.transcripts.stores._s3 import S3Store
from tests.transcripts.stores import servers
from tests.transcripts.stores.local import KEY, numbered
from tests.transcripts.stores.remote import REMOTES

pytestmark = pytest.mark.anyio

OTHER: SessionKey = {"project_key": "p", "session_id": "other"}
PART: SessionKey = {**KEY, "subpath": "part"}


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


class Kept:
    """A store, and what lies in it."""

    def __init__(self, kind: str, folder: Path) -> None:
        self.kind, self.folder = kind, folder
        self.name = f"d{uuid4().hex}"
        match kind:
            case "memory":
                self.store: BlockingStore = MemoryStore()
            case "file":
                self.store = FileStore(folder)
            case "sqlite":
                self.store = SqliteStore(folder / "store.db")
            case _:
                self.store = REMOTES[kind].make(prefix=self.name)

    def damage_head(self) -> None:
        """Cut off its end."""
        place = Place.of(KEY)
        match self.store:
            case MemoryStore() as store:
                store._data.heads[place] = store._data.heads[place][:-1]
            case FileStore():
                log = self.folder / "p" / "s" / "session.log"
                log.write_bytes(log.read_bytes()[:-2] + b"\n")
            case SqliteStore():
                self._sqlite(
                    "UPDATE sessions SET head = substr(head, 1, length(head) - 1) WHERE session = 's'"
                )
            case RedisStore() as store:
                with closing(servers.redis().client()) as client:
                    client.set(store._key(place), client.get(store._key(place))[:-1])
            case S3Store() as store:
                where = {"Bucket": servers.s3().bucket, "Key": store._names.head(place)}
                data = servers.s3().client().get_object(**where)["Body"].read()
                servers.s3().client().put_object(**where, Body=data[:-1])
            case _:
                self._postgres(
                    "UPDATE {}sessions SET head = substr(head, 1, length(head) - 1) WHERE session = 's'"
                )

    def count_transcripts(self) -> int:
        match self.store:
            case MemoryStore() as store:
                return len(store._data.batches)
            case FileStore():
                return len([*self.folder.glob("**/*.jsonl")])
            case SqliteStore():
                return self._sqlite("SELECT count(*) FROM batches")
            case RedisStore():
                with closing(servers.redis().client()) as client:
                    return len(client.keys(f"{self.name}:{{*}}:*"))
            case S3Store():
                found = (
                    servers.s3()
                    .client()
                    .list_objects_v2(Bucket=servers.s3().bucket, Prefix=f"{self.name}/batches/")
                )
                return int(found["KeyCount"])
            case _:
                return self._postgres("SELECT count(*) FROM {}batches")

    def _sqlite(self, statement: str) -> int:
        with closing(sqlite3.connect(self.folder / "store.db")) as database, database:
            return _number(database.execute(statement).fetchone())

    def _postgres(self, statement: str) -> int:
        with psycopg.connect(servers.postgres().url()) as database:
            cursor = database.execute(statement.format(self.name).encode())
            return _number(cursor.fetchone() if cursor.description else None)


def _number(row: Any) -> int:
    return 0 if row is None else cast("int", row[0])


@pytest.fixture
def kept(request: pytest.FixtureRequest, tmp_path: Path) -> Kept:
    return Kept(request.param, tmp_path)


@pytest.mark.parametrize("kept", ["memory", "file", "sqlite", "postgres", "redis", "s3"], indirect=True)
async def test_a_damaged_head_costs_one_session_which_can_be_deleted(
    kept: Kept, caplog: pytest.LogCaptureFixture
) -> None:
    async with kept.store as store:
        for key in (KEY, PART, OTHER):
            await store.append(key, numbered(0, 1))
        kept.damage_head()
        for _ in range(2):
            assert [one["session_id"] for one in await store.list_sessions("p")] == ["other"]
        assert await store.list_projects() == ["p"]
        assert await store.find_session("s") == []
        [warning] = caplog.messages
        assert f"{store.name}: the session" in warning
        assert "s is damaged, so lists leave it out" in warning
        for call in (store.load(KEY), store.append(PART, numbered(1, 1)), store.delete(PART)):
            # A store in memory has no layer that would explain it.
            with pytest.raises((StoreError, ValueError)):
                await call
        await store.delete(KEY)
        assert await store.load(KEY) is None
        assert kept.count_transcripts() == 1
        await store.append(KEY, numbered(2, 1))
        assert await store.load(KEY) == numbered(2, 1)
        assert {one["session_id"] for one in await store.list_sessions("p")} == {"other", "s"}


@pytest.mark.parametrize("kept", ["file"], indirect=True)
async def test_a_lease_protects_a_damaged_session(kept: Kept) -> None:
    async with kept.store as store, FileStore(kept.folder) as other:
        await store.append(KEY, numbered(0, 1))
        await store.acquire_lease(KEY, "me", 60)
        kept.damage_head()
        with pytest.raises(SessionBusy):
            await other.delete(KEY)
        await store.delete(KEY)
        assert await store.load(KEY) is None


@pytest.mark.parametrize("kept", ["file"], indirect=True)
async def test_a_damaged_lease_goes_with_its_session(kept: Kept) -> None:
    async with kept.store as store:
        await store.acquire_lease(KEY, "me", 60)
        [lease] = (kept.folder / ".leases").iterdir()
        lease.write_text("nonsense")
        await store.delete(KEY)
        await store.append(KEY, numbered(0, 1))
        assert await store.load(KEY) == numbered(0, 1)

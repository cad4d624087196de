"""What a list costs, in rows and requests: not more for more sessions."""

from __future__ import annotations

import sqlite3
from importlib import import_module
from pathlib import Path
from typing import Any
from uuid import uuid4

import anyio
import anyio.lowlevel
import psycopg
import pytest

from outrider import Sessions
from outrider.transcripts import FileStore, MemoryStore, S3Store, SessionKey, SessionStore, SqliteStore
from outrider.transcripts.stores import _sqlite
from outrider.transcripts.stores._base import offers
from outrider.transcripts.stores._heads import HeadStore, Record
from tests.transcripts.stores import servers
from tests.transcripts.stores.remote import REMOTES

pytestmark = pytest.mark.anyio

KINDS = ["memory", "file", "sqlite", "postgres", "redis", "redis cluster", "s3"]
COUNT = 40
LATEST = 3


@pytest.fixture(params=KINDS)
def store(request: pytest.FixtureRequest, tmp_path: Path) -> HeadStore:
    return make(request.param, tmp_path)


def make(kind: str, folder: Path, prefix: str = "") -> HeadStore:
    store: SessionStore
    match kind:
        case "memory":
            store = MemoryStore()
        case "file":
            store = FileStore(folder / "files")
        case "sqlite":
            store = SqliteStore(folder / "store.db")
        case _:
            store = REMOTES[kind].make(prefix=prefix or f"t{uuid4().hex[:10]}")
    assert isinstance(store, HeadStore)
    return store


def prompt(text: str) -> Any:
    message = {"role": "user", "content": text}
    return {"type": "user", "uuid": str(uuid4()), "message": message, "timestamp": "2026-01-02T03:04:05Z"}


async def fill(store: SessionStore, project: str, count: int = COUNT) -> list[str]:
    """Their ids, the oldest first."""
    ids = [str(uuid4()) for _ in range(count)]
    for number, id in enumerate(ids):
        await store.append({"project_key": project, "session_id": id}, [prompt(f"prompt {number}")])
    return ids


async def test_the_latest_sessions_are_listed(store: HeadStore) -> None:
    ids = {name: await fill(store, name, 6) for name in ("one", "two")}
    sessions = Sessions(store)
    assert [info.id for info in await sessions.list(limit=4)] == ids["two"][:1:-1]
    assert [info.id for info in await sessions.list(limit=3, offset=5)] == [ids["two"][0], *ids["one"][:3:-1]]
    again: SessionKey = {"project_key": "one", "session_id": ids["one"][0]}
    await store.append(again, [prompt("again")])
    first, second = await sessions.list(limit=2)
    assert (first.id, second.id) == (ids["one"][0], ids["two"][-1])
    assert first == await sessions.info(first.id)
    assert [info.id for info in await sessions.list(title="prompt 3", limit=9)] == [
        ids["two"][3],
        ids["one"][3],
    ]
    assert [info.id for info in await sessions.list(limit=100)] == [info.id for info in await sessions.list()]
    latest = await store.list_latest_sessions("two", 2)
    assert [one["session_id"] for one in latest] == ids["two"][:-3:-1]
    assert latest == (await store.list_latest_sessions(None, 3))[1:]
    await store.delete({"project_key": "two", "session_id": ids["two"][-1]})
    assert [info.id for info in await sessions.list(limit=2)] == [ids["one"][0], ids["two"][-2]]
    assert await store.get_session_summary({"project_key": "two", "session_id": ids["two"][-1]}) is None
    # Records of Outrider itself are no sessions.
    await store.change_record("kind", "id", lambda _: Record("{}", True))
    assert [info.id for info in await sessions.list(limit=2)] == [ids["one"][0], ids["two"][-2]]
    assert [info.id for info in await sessions.list(limit=100)] == [info.id for info in await sessions.list()]
    await store.close()


@pytest.mark.parametrize("kind", ["sqlite", "postgres", "redis", "redis cluster"])
async def test_no_more_heads_are_read_than_are_wanted(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = make(kind, tmp_path)
    project = f"project {uuid4()}"
    ids = await fill(store, project)
    read: list[str] = []
    listed = store._listed

    def count(found: Any) -> Any:
        found = list(found)
        read.extend(name for name, _ in found)
        return listed(found)

    monkeypatch.setattr(store, "_listed", count)
    sessions = Sessions(store)
    assert [info.id for info in await sessions.list(limit=LATEST)] == ids[: -LATEST - 1 : -1]
    assert len(read) == LATEST
    read.clear()
    # Where it is, and its summary.
    await sessions.info(ids[0])
    assert read == [ids[0]]
    await store.close()


async def test_sqlite_reads_no_other_rows(tmp_path: Path) -> None:
    async with SqliteStore(tmp_path / "store.db") as store:
        await fill(store, "project", 3)
    plans: list[str] = []
    with sqlite3.connect(tmp_path / "store.db") as connection:
        for which in ("project = 'project'", _sqlite._IS_SESSION):
            query = (
                f"SELECT session, head FROM sessions WHERE is_listed AND {which} ORDER BY mtime DESC LIMIT 3"
            )
            plans += [row[3] for row in connection.execute(f"EXPLAIN QUERY PLAN {query}")]
    connection.close()
    assert "sessions_by_project_and_time" in plans[0]
    assert "sessions_by_time" in plans[1]
    assert not any("TEMP B-TREE" in plan for plan in plans)


async def test_postgres_reads_no_other_rows(tmp_path: Path) -> None:
    prefix = f"t{uuid4().hex[:10]}"
    async with make("postgres", tmp_path, prefix) as store:
        await fill(store, "project", 3)
    with psycopg.connect(servers.postgres().url()) as database:
        database.execute("SET enable_seqscan = off")
        database.execute("SET enable_sort = off")
        order = "ORDER BY mtime DESC NULLS LAST LIMIT 3"
        query = f"SELECT head FROM {prefix}sessions WHERE is_listed AND {{}} {order}"
        for which, index in (
            ("sha256(project) = sha256('x')", "sessions_by_project_and_time"),
            (r"substr(project, 1, 1) <> '\x00'", "sessions_by_time"),
        ):
            rows = database.execute(f"EXPLAIN {query.format(which)}".encode()).fetchall()
            plan = "\n".join(row[0] for row in rows)
            assert f"Index Scan using {prefix}{index}" in plan
            assert "Sort" not in plan


# The index of a project in S3.


class Requests:
    """Counts those of a store."""

    def __init__(self, store: Any) -> None:
        self.all: list[str] = []
        store._bucket()._client.meta.events.register("before-send.s3", self._count)

    def _count(self, request: Any, **_: object) -> None:
        self.all.append(f"{request.method} {'LIST' if 'list-type' in request.url else ''}".strip())

    def taken(self) -> list[str]:
        taken = sorted(self.all)
        self.all.clear()
        return taken


async def test_a_list_in_s3_reads_what_has_changed(tmp_path: Path) -> None:
    store = make("s3", tmp_path)
    ids = await fill(store, "project")
    requests, sessions = Requests(store), Sessions(store)
    keys: list[SessionKey] = [{"project_key": "project", "session_id": id} for id in ids]

    async def list_latest() -> list[str]:
        return [one["session_id"] for one in await store.list_latest_sessions("project", 3)]

    assert await list_latest() == ids[:-4:-1]
    # All of them once, and then the index.
    assert requests.taken() == ["GET"] * (COUNT + 1) + ["GET LIST", "PUT"]
    assert await list_latest() == ids[:-4:-1]
    assert requests.taken() == ["GET", "GET LIST"]
    await store.append(keys[0], [prompt("again")])
    await store.delete(keys[-1])
    requests.taken()
    assert await list_latest() == [ids[0], ids[-2], ids[-3]]
    # A deleted session leaves its head.
    assert requests.taken() == ["GET"] * 3 + ["GET LIST"]
    # Whatever is left of the index.
    assert isinstance(store, S3Store)
    bucket, name = store._bucket(), store._names.index("project")
    found = bucket.get(name)
    assert found is not None
    whole = found.data
    for damage in (b"", b"no JSON", b"\xff", b"{}", b'{"version": 7, "heads": {}}', whole[:-9], b"[]"):
        bucket.put(name, damage)
        assert await list_latest() == [ids[0], ids[-2], ids[-3]]
    bucket.put(name, whole)
    requests.taken()
    info = await sessions.info(ids[5])
    assert info.id == ids[5]
    assert requests.taken() == ["GET", "GET", "GET LIST"]
    await store.close()


async def test_who_may_not_write_the_index_lists_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store: Any = make("s3", tmp_path)
    ids = await fill(store, "project", 12)
    client_error = import_module("botocore.exceptions").ClientError

    def refuse(*_: object) -> None:
        raise client_error({"Error": {"Code": "AccessDenied", "Message": "no"}}, "PutObject")

    monkeypatch.setattr(store._bucket(), "put", refuse)
    assert [one["session_id"] for one in await store.list_latest_sessions("project", 3)] == ids[:-4:-1]
    await store.close()


# While others write.


async def test_lists_while_others_append_and_delete(store: HeadStore) -> None:
    """What was there before and is after it is in each list."""
    stays = await fill(store, "project", 5)
    is_over = anyio.Event()
    failed: list[object] = []

    async def write() -> None:
        for _ in range(6):
            for id in await fill(store, "project", 2):
                await store.delete({"project_key": "project", "session_id": id})
        is_over.set()

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(write)
        while not is_over.is_set():
            # The store in memory waits for nothing.
            await anyio.lowlevel.checkpoint()
            found = [one["session_id"] for one in await store.list_latest_sessions("project", 8)]
            if [id for id in found if id in stays] != stays[::-1]:
                failed.append(found)
    assert not failed
    assert {one["session_id"] for one in await store.list_latest_sessions(None, 8)} == set(stays)
    await store.close()


# What older versions wrote.


async def test_a_database_of_the_first_version_gets_times(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "store.db"
    async with SqliteStore(path) as store:
        ids = await fill(store, "project", 4)
    with sqlite3.connect(path) as connection:
        for name in ("sessions_by_project_and_time", "sessions_by_time"):
            connection.execute(f"DROP INDEX {name}")
        connection.execute("ALTER TABLE sessions DROP COLUMN mtime")
        connection.execute("UPDATE sessions SET head = 'damaged' WHERE session = ?", [ids[1]])
        connection.execute("PRAGMA user_version = 1")
    connection.close()
    async with SqliteStore(path) as store:
        latest = await store.list_latest_sessions("project", 3)
        assert [one["session_id"] for one in latest] == [ids[3], ids[2], ids[0]]


async def test_tables_of_the_first_version_get_times(tmp_path: Path) -> None:
    prefix = f"t{uuid4().hex[:10]}"
    async with make("postgres", tmp_path, prefix) as store:
        ids = await fill(store, 'pro"mtime":1ject', 4)
    with psycopg.connect(servers.postgres().url()) as database:
        for statement in (
            "ALTER TABLE {}sessions DROP COLUMN mtime",
            "UPDATE {}version SET version = 1",
            f"UPDATE {{}}sessions SET head = 'damaged' WHERE session = '{ids[1]}'",
        ):
            database.execute(statement.format(prefix).encode())
    async with make("postgres", tmp_path, prefix) as store:
        latest = await store.list_latest_sessions(None, 3)
        assert [one["session_id"] for one in latest] == [ids[3], ids[2], ids[0]]


async def test_keys_of_the_first_version_get_times(tmp_path: Path) -> None:
    prefix, client = f"t{uuid4().hex[:10]}", servers.redis().client()
    async with make("redis", tmp_path, prefix) as store:
        ids = await fill(store, "a project", 4)
    [times] = client.keys(f"{prefix}:times:*")
    client.delete(times, f"{prefix}:times")
    client.sadd(times.replace(b":times:", b":project:"), *ids)
    client.set(f"{prefix}:version", "1")
    async with make("redis", tmp_path, prefix) as store:
        for project in ("a project", None):
            latest = await store.list_latest_sessions(project, 3)
            assert [one["session_id"] for one in latest] == ids[:0:-1]
    assert not client.keys(f"{prefix}:project:*")
    client.close()


# Stores of the user's own.


async def test_a_store_with_lists_of_its_own_is_asked_for_these() -> None:
    class Fewer(MemoryStore):
        async def list_session_summaries(self, project_key: str) -> Any:
            return (await super().list_session_summaries(project_key))[:1]

        async def list_sessions(self, project_key: str) -> Any:
            return (await super().list_sessions(project_key))[:1]

    store = Fewer()
    assert not offers(store, "list_latest_sessions")
    await fill(store, "project", 3)
    assert len(await Sessions(store).list(limit=3)) == 1

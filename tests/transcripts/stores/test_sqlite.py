"""The store in SQLite: its file, its versions, and what can be wrong with it."""

# ruff: noqa: ASYNC240 - nothing else runs while a test looks at a file

from __future__ import annotations

import os
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from outrider.errors import StoreError
from outrider.transcripts import SqliteStore
from outrider.transcripts.stores import _sqlite
from tests.transcripts.stores.local import KEY, numbered

pytestmark = pytest.mark.anyio


def execute(path: Path, *statements: str) -> list[object]:
    with closing(sqlite3.connect(path)) as connection:
        rows: list[object] = []
        for statement in statements:
            rows = connection.execute(statement).fetchall()
        connection.commit()
        return rows


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "store.db"


async def test_only_its_owner_can_read_it(path: Path) -> None:
    before = os.umask(0)
    try:
        async with SqliteStore(path) as store:
            await store.append(KEY, numbered(0, 1))
            modes = {one.name: one.stat().st_mode & 0o777 for one in path.parent.iterdir()}
    finally:
        os.umask(before)
    assert modes == {"store.db": 0o600, "store.db-wal": 0o600, "store.db-shm": 0o600}
    assert [one.name for one in path.parent.iterdir()] == ["store.db"]


async def test_what_is_acknowledged_is_on_the_disk(path: Path) -> None:
    async with SqliteStore(path) as store:
        await store.append(KEY, numbered(0, 1))
        with store._connections.get().one() as connection:
            assert connection.execute("PRAGMA synchronous").fetchone() == (2,)
            assert connection.execute("PRAGMA journal_mode").fetchone() == ("wal",)
    assert execute(path, "PRAGMA application_id") == [(_sqlite.APPLICATION_ID,)]


async def test_an_older_database_is_brought_up_to_date(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with SqliteStore(path) as store:
        await store.append(KEY, numbered(0, 2))
    newer = ("CREATE TABLE made_up (word TEXT)", "INSERT INTO made_up VALUES ('yes')")
    first = _sqlite.MIGRATIONS
    monkeypatch.setattr(_sqlite, "MIGRATIONS", (*first, newer))
    async with SqliteStore(path) as store:
        assert await store.load(KEY) == numbered(0, 2)
        await store.append_batch(KEY, numbered(2, 1), "one")
    assert execute(path, "PRAGMA user_version") == [(len(first) + 1,)]
    # A failing step leaves what was there.
    broken = ("ALTER TABLE batches ADD COLUMN made_up TEXT", "UPDATE absent SET made_up = 'yes'")
    monkeypatch.setattr(_sqlite, "MIGRATIONS", (*first, newer, broken))
    async with SqliteStore(path) as store:
        with pytest.raises(StoreError, match="no such table: absent"):
            await store.load(KEY)
    assert execute(path, "PRAGMA user_version") == [(len(first) + 1,)]
    monkeypatch.setattr(_sqlite, "MIGRATIONS", (*first, newer))
    async with SqliteStore(path) as store:
        assert await store.load(KEY) == numbered(0, 3)
    # And an older Outrider does not touch it.
    monkeypatch.setattr(_sqlite, "MIGRATIONS", first)
    with pytest.raises(
        StoreError, match=f"version {len(first) + 1}, and this Outrider knows up to {len(first)}"
    ):
        await SqliteStore(path).append(KEY, numbered(3, 1))


@pytest.mark.parametrize(
    "statement", ["CREATE TABLE theirs (x)", "PRAGMA user_version = 7", "PRAGMA application_id = 7"]
)
async def test_a_database_of_another_program_is_left_alone(statement: str, path: Path) -> None:
    execute(path, statement)
    before = path.read_bytes()
    with pytest.raises(StoreError, match="the database belongs to another program") as caught:
        await SqliteStore(path).append(KEY, numbered(0, 1))
    assert not caught.value.retryable
    assert path.read_bytes() == before


async def test_an_empty_file_is_an_empty_store(path: Path) -> None:
    path.touch()
    async with SqliteStore(path) as store:
        assert await store.load(KEY) is None
        await store.append(KEY, numbered(0, 1))
        assert await store.load(KEY) == numbered(0, 1)


async def test_what_is_no_database_is_told(path: Path) -> None:
    path.write_bytes(b"not a database, whatever it is " * 100)
    with pytest.raises(StoreError, match="damaged, or no SQLite database") as caught:
        await SqliteStore(path).append(KEY, numbered(0, 1))
    assert not caught.value.retryable
    assert isinstance(caught.value.__cause__, sqlite3.DatabaseError)


async def test_a_damaged_database_is_told(path: Path) -> None:
    async with SqliteStore(path) as store:
        await store.append(KEY, numbered(0, 100))
    data = bytearray(path.read_bytes())
    data[8192 : len(data) - 4096] = b"\xff" * (len(data) - 4096 - 8192)
    path.write_bytes(data)
    with pytest.raises(StoreError, match="damaged"):
        await SqliteStore(path).load(KEY)


async def test_a_damaged_entry_is_told(path: Path) -> None:
    async with SqliteStore(path) as store:
        await store.append(KEY, numbered(0, 2))
        execute(path, "UPDATE batches SET data = CAST('{' AS BLOB)")
        with pytest.raises(StoreError, match=r"what is in it is damaged .*Restore it"):
            await store.load(KEY)


async def test_a_folder_is_no_database(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match=r"is a folder .* Give the path of a file in it"):
        await SqliteStore(tmp_path).load(KEY)


async def test_a_writer_that_does_not_finish_is_told(path: Path) -> None:
    async with SqliteStore(path) as store, SqliteStore(path, timeout=0.2) as hasty:
        await store.append(KEY, numbered(0, 1))
        with closing(sqlite3.connect(path, isolation_level=None)) as other:
            other.execute("BEGIN IMMEDIATE")
            with pytest.raises(StoreError) as caught:
                await hasty.append(KEY, numbered(1, 1))
            assert caught.value.retryable
            # Readers need not wait.
            assert await store.load(KEY) == numbered(0, 1)
            other.execute("ROLLBACK")
        await store.append(KEY, numbered(1, 1))
        assert await store.load(KEY) == numbered(0, 2)


async def test_a_file_that_was_removed_is_made_anew(path: Path) -> None:
    """Nothing is written to a file that nobody can find any more."""
    async with SqliteStore(path) as store:
        await store.append(KEY, numbered(0, 1))
        for one in path.parent.iterdir():
            one.unlink()
        await store.append(KEY, numbered(1, 1))
        async with SqliteStore(path) as other:
            assert await other.load(KEY) == numbered(1, 1)


async def test_the_current_folder_may_change(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    store = SqliteStore("store.db")
    monkeypatch.chdir("/")
    async with store:
        await store.append(KEY, numbered(0, 1))
    assert (tmp_path / "store.db").exists()


async def test_who_only_looks_makes_no_database(path: Path) -> None:
    async with SqliteStore(path) as store:
        assert await store.load(KEY) is None
        assert await store.list_sessions("p") == []
        assert await store.list_session_summaries("p") == []
        assert await store.list_subkeys(KEY) == []
        assert await store.list_projects() == []
        assert await store.find_session("s") == []
    assert [*path.parent.iterdir()] == []

"""What is particular to the store in PostgreSQL: its tables, its connections, and what it says."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Iterator
from typing import Any
from uuid import uuid4

import anyio
import anyio.lowlevel
import anyio.to_thread
import psycopg
import pytest

from outrider.errors import OptionsError, StoreError
from outrider.transcripts import open_store
from outrider.transcripts.stores import _postgres as schema
from outrider.transcripts.stores._postgres import PostgresStore
from tests.transcripts.stores import servers
from tests.transcripts.stores.local import noted
from tests.transcripts.stores.remote import make_batch, make_key
from tests.transcripts.stores.test_server_stores import connect

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture
def server() -> servers.Postgres:
    return servers.postgres()


@pytest.fixture
def prefix() -> str:
    return f"t{uuid4().hex[:10]}_"


@pytest.fixture
def database(server: servers.Postgres) -> Iterator[psycopg.Connection[Any]]:
    with psycopg.connect(server.url(), autocommit=True) as connection:
        yield connection


def tables(database: psycopg.Connection[Any], prefix: str) -> set[str]:
    rows = database.execute(
        "SELECT tablename FROM pg_tables WHERE starts_with(tablename, %s)", (prefix,)
    ).fetchall()
    return {name.removeprefix(prefix) for (name,) in rows}


# Tables.


async def test_many_that_set_up_the_same_tables_at_once_do_so_once(
    server: servers.Postgres, prefix: str
) -> None:
    stores = [PostgresStore(server.url(), prefix=prefix) for _ in range(6)]
    key = make_key()
    async with anyio.create_task_group() as tasks:
        for number, store in enumerate(stores):
            tasks.start_soon(store.append, key, make_batch(number, size=1))
    assert len(await stores[0].load(key) or []) == 6
    for store in stores:
        await store.close()


async def test_older_tables_are_brought_up_to_date_and_keep_what_they_have(
    server: servers.Postgres,
    prefix: str,
    database: psycopg.Connection[Any],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    key = make_key()
    async with PostgresStore(server.url(), prefix=prefix) as store:
        await store.append(key, make_batch(0))

    def second(of: schema.Tables) -> list[str]:
        return [f"ALTER TABLE {of.sessions} ADD COLUMN colour text NOT NULL DEFAULT 'red'"]

    use_migrations(monkeypatch, *schema.MIGRATIONS, second)
    async with PostgresStore(server.url(), prefix=prefix) as store:
        await store.append(key, make_batch(1))
        assert await store.load(key) == make_batch(0) + make_batch(1)
    assert database.execute(f"SELECT colour FROM {prefix}sessions".encode()).fetchall() == [("red",)]
    assert database.execute(f"SELECT version FROM {prefix}version".encode()).fetchall() == [
        (len(schema.MIGRATIONS) + 1,)
    ]


async def test_an_update_of_the_tables_that_fails_leaves_them_as_they_were(
    server: servers.Postgres,
    prefix: str,
    database: psycopg.Connection[Any],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with PostgresStore(server.url(), prefix=prefix) as store:
        await store.append(make_key(), make_batch(0))
    before = tables(database, prefix)

    def second(of: schema.Tables) -> list[str]:
        return [f"DROP TABLE {of.batches}", "SELECT 1 / 0"]

    use_migrations(monkeypatch, *schema.MIGRATIONS, second)
    async with PostgresStore(server.url(), prefix=prefix) as store:
        with pytest.raises(StoreError, match="division by zero"):
            await store.append(make_key(), make_batch(0))
    assert tables(database, prefix) == before
    (version,) = database.execute(f"SELECT version FROM {prefix}version".encode()).fetchall()
    assert version == (len(schema.MIGRATIONS),)


def use_migrations(
    monkeypatch: pytest.MonkeyPatch, *migrations: Callable[[schema.Tables], list[str]]
) -> None:
    set_up = schema.set_up
    monkeypatch.setattr(schema, "set_up", lambda link, of, name: set_up(link, of, name, migrations))


async def test_tables_of_a_newer_version_are_refused(
    server: servers.Postgres, prefix: str, database: psycopg.Connection[Any]
) -> None:
    async with PostgresStore(server.url(), prefix=prefix) as store:
        await store.append(make_key(), make_batch(0))
    database.execute(f"UPDATE {prefix}version SET version = 99".encode())
    async with PostgresStore(server.url(), prefix=prefix) as store:
        with pytest.raises(StoreError, match=r"version 99.* Update Outrider"):
            await store.load(make_key())


async def test_tables_are_made_in_the_schema_that_is_named(
    server: servers.Postgres, prefix: str, database: psycopg.Connection[Any]
) -> None:
    name, key = f"s{uuid4().hex[:10]}", make_key()
    async with (
        PostgresStore(server.url(), schema=name, prefix=prefix) as inside,
        PostgresStore(server.url(), prefix=prefix) as outside,
    ):
        await inside.append(key, make_batch(0))
        assert await outside.load(key) is None
        assert await inside.load(key) == make_batch(0)
    rows = database.execute(
        "SELECT DISTINCT schemaname FROM pg_tables WHERE starts_with(tablename, %s)", [prefix]
    )
    assert {one for (one,) in rows} == {name, "public"}


async def test_tables_that_were_removed_are_made_anew(
    server: servers.Postgres, prefix: str, database: psycopg.Connection[Any]
) -> None:
    key = make_key()
    async with PostgresStore(server.url(), prefix=prefix) as store:
        await store.append(key, make_batch(0))
        for name in tables(database, prefix):
            database.execute(f"DROP TABLE {prefix}{name} CASCADE".encode())
        with pytest.raises(StoreError, match="was removed"):
            await store.append(key, make_batch(1))
        await store.append(key, make_batch(1))
        assert await store.load(key) == make_batch(1)


async def test_nothing_is_left_of_a_session_that_is_deleted(
    server: servers.Postgres, prefix: str, database: psycopg.Connection[Any]
) -> None:
    key = make_key()
    async with PostgresStore(server.url(), prefix=prefix) as store:
        token = await store.acquire_lease(key, "me", 60)
        await store.append_batch(key, make_batch(0), "one")
        await store.append_batch({**key, "subpath": "a"}, make_batch(1), "one")
        await store.delete(key)
        await store.release_lease(key, token)
    for name in ("sessions", "batches"):
        assert database.execute(f"SELECT count(*) FROM {prefix}{name}".encode()).fetchone() == (0,), name


# What it says.


async def test_a_wrong_password_is_told_at_once_and_not_shown(server: servers.Postgres) -> None:
    async with PostgresStore(server.url(password="secret-of-mine")) as store:
        with pytest.raises(
            StoreError, match=r"password authentication failed.*check user and password"
        ) as told:
            await store.load(make_key())
        assert not told.value.retryable
        assert "secret-of-mine" not in f"{told.value} {told.value!r} {store!r} {store.name}"


async def test_a_database_that_is_not_there_is_told_with_what_to_do(server: servers.Postgres) -> None:
    async with PostgresStore(server.url(database="nowhere")) as store:
        with pytest.raises(
            StoreError, match=r"no database 'nowhere'; create it with `createdb nowhere`"
        ) as told:
            await store.load(make_key())
        assert not told.value.retryable


async def test_a_user_without_rights_is_told_so(
    server: servers.Postgres, prefix: str, database: psycopg.Connection[Any]
) -> None:
    name = f"u{uuid4().hex[:10]}"
    database.execute(f"CREATE USER {name} PASSWORD 'made-up-word'".encode())
    database.execute("REVOKE CREATE ON SCHEMA public FROM PUBLIC")
    url = server.url().replace("outrider:", f"{name}:")
    async with PostgresStore(url, prefix=prefix) as store:
        with pytest.raises(StoreError, match="needs the rights to create and use tables"):
            await store.append(make_key(), make_batch(0))


@pytest.mark.parametrize(
    "url, told",
    [
        ("postgresql://host/db?prefix=a%20b", "`prefix` is 'a b'"),
        ("postgresql://host/db?schema=1", "`schema` is '1'"),
        ("postgresql://host/db?pool_size=many", "`pool_size` is 'many'"),
        ("postgresql://host/db?pool_size=0", "`pool_size` is 0"),
        ("postgresql://host/db?timeout=-1", "`timeout` is '-1'"),
        ("postgresql://me:secret-of-mine@host/db?no_such=1", "not the address of a PostgreSQL database"),
    ],
)
async def test_a_url_that_is_not_right_is_refused_before_anything_is_done(url: str, told: str) -> None:
    with pytest.raises(OptionsError, match=told) as caught:
        open_store(url)
    assert "secret-of-mine" not in str(caught.value)


async def test_what_is_the_drivers_in_a_url_gets_there(server: servers.Postgres, prefix: str) -> None:
    store: Any = open_store(
        f"{server.url()}?prefix={prefix}&options=-c%20search_path%3Dpg_temp,public&timeout=5"
    )
    assert store.timeout == 5
    await store.append(make_key(), make_batch(0))
    with store._pool.get().lent() as link:
        assert link.execute("SHOW search_path").fetchone() == ("pg_temp,public",)
    await store.close()


# Connections.


async def test_when_all_connections_are_in_use_it_says_so(server: servers.Postgres) -> None:
    async with PostgresStore(server.url(), pool_size=1, timeout=2) as store:
        await store.load(make_key())
        with (
            store._pool.get().lent(),
            pytest.raises(StoreError, match=r"all 1 connections .* larger `pool_size`") as told,
        ):
            await store.load(make_key())
        assert told.value.retryable
        assert await store.load(make_key()) is None


async def test_no_more_connections_are_open_than_it_may_have(
    server: servers.Postgres, database: psycopg.Connection[Any], prefix: str
) -> None:
    url = f"{server.url()}?application_name={prefix}"
    async with PostgresStore(url, prefix=prefix, pool_size=3) as store:
        async with anyio.create_task_group() as tasks:
            for number in range(12):
                tasks.start_soon(store.append, make_key(), make_batch(number))
        assert 1 <= open_connections(database, prefix) <= 3
    with anyio.fail_after(10):
        while open_connections(database, prefix):
            await anyio.lowlevel.checkpoint()


def open_connections(database: psycopg.Connection[Any], name: str) -> int:
    row = database.execute(
        "SELECT count(*) FROM pg_stat_activity WHERE application_name = %s", [name]
    ).fetchone()
    assert row is not None
    return int(row[0])


async def test_a_child_after_a_fork_has_connections_of_its_own(server: servers.Postgres, prefix: str) -> None:
    key = make_key()
    async with PostgresStore(server.url(), prefix=prefix) as store:
        await store.append(key, make_batch(0))

        def fork() -> int:
            child = os.fork()
            if child == 0:
                try:
                    store._do(lambda link: link.execute("SELECT 1"))
                    store._close()
                    os._exit(0)
                finally:
                    os._exit(1)
            return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])

        with warnings.catch_warnings():
            # Newer Pythons warn of forks beside threads; this one is what is tested.
            warnings.simplefilter("ignore", DeprecationWarning)
            assert fork() == 0
        await store.append(key, make_batch(1))
        assert await store.load(key) == make_batch(0) + make_batch(1)


async def test_what_waits_for_a_lock_is_given_up_by_the_server_too(
    server: servers.Postgres, prefix: str, database: psycopg.Connection[Any]
) -> None:
    key = make_key()
    async with (
        PostgresStore(server.url(), prefix=prefix, timeout=0.5) as store,
        PostgresStore(server.url(), prefix=prefix) as patient,
    ):
        await patient.append(key, make_batch(0))
        await connect(store)
        with database.transaction():
            database.execute(f"LOCK TABLE {prefix}sessions".encode())
            with pytest.raises(StoreError) as told:
                await store.append_batch(key, make_batch(1), "one")
            assert told.value.retryable
        await patient.append_batch(key, make_batch(1), "one")
        assert await patient.load(key) == make_batch(0) + make_batch(1)


async def test_damage_is_told(
    server: servers.Postgres, prefix: str, database: psycopg.Connection[Any]
) -> None:
    key = make_key()
    async with PostgresStore(server.url(), prefix=prefix) as store:
        await store.append(key, make_batch(0))
        database.execute(f"UPDATE {prefix}batches SET data = 'nonsense'".encode())
        with pytest.raises(StoreError, match="what is in it is damaged"):
            await store.load(key)


def somebody_waits(database: psycopg.Connection[Any]) -> bool:
    """Whether another connection waits for what this one has locked."""
    waiting = "SELECT FROM pg_locks WHERE NOT granted AND pg_backend_pid() = ANY (pg_blocking_pids(pid))"
    return database.execute(waiting.encode()).fetchone() is not None


async def test_what_was_given_up_while_it_waited_is_not_done_later(
    server: servers.Postgres, prefix: str, database: psycopg.Connection[Any]
) -> None:
    key = make_key()
    async with PostgresStore(server.url(), prefix=prefix) as store:
        await store.append(key, make_batch(0))
        _, ended = noted(store, "_append")
        with anyio.fail_after(20):
            with database.transaction():
                database.execute(f"SELECT FROM {prefix}sessions FOR UPDATE".encode())
                async with anyio.create_task_group() as tasks:
                    tasks.start_soon(store.append, key, make_batch(1))
                    while not somebody_waits(database):
                        await anyio.lowlevel.checkpoint()
                    tasks.cancel_scope.cancel()
            assert await anyio.to_thread.run_sync(ended.wait, 20)
        assert await store.load(key) == make_batch(0)


@pytest.mark.parametrize("text", ["host=127.0.0.1 password=hush", "", "127.0.0.1"])
def test_only_a_url_is_taken(text: str) -> None:
    """The password in anything else would not be found, and shown."""
    with pytest.raises(OptionsError, match="not the URL of a PostgreSQL database") as caught:
        PostgresStore(text)
    assert "hush" not in str(caught.value)


@pytest.mark.parametrize("given", ["sslmode=perhaps", "target_session_attrs=perhaps"])
async def test_what_cannot_pass_is_not_tried_again(server: servers.Postgres, given: str) -> None:
    async with PostgresStore(f"{server.url()}?{given}") as store:
        with pytest.raises(StoreError, match="correct the URL") as caught:
            await store.load(make_key())
        assert not caught.value.retryable


def test_all_who_set_up_the_same_tables_take_the_same_lock() -> None:
    assert schema.Tables(None, "a_").lock == schema.Tables("public", "a_").lock
    assert schema.Tables(None, "a_").lock != schema.Tables(None, "b_").lock

"""Stores of one address in one process share connections, and nothing else."""

from __future__ import annotations

import gc
import os
from collections.abc import Iterator
from pathlib import Path
from threading import Thread
from threading import enumerate as threads
from typing import Any
from uuid import uuid4

import anyio
import anyio.lowlevel
import psycopg
import pytest

import outrider
from outrider.approvals import Approvals
from outrider.errors import SessionBusy, StoreError
from outrider.testing import Simulator, say
from outrider.transcripts import SessionStore, SqliteStore, open_store
from outrider.transcripts.stores import _shared
from outrider.transcripts.stores._blocking import BlockingStore
from tests.transcripts.stores import servers
from tests.transcripts.stores.remote import REMOTES, make_batch, make_key
from tests.transcripts.stores.test_postgres import open_connections

pytestmark = pytest.mark.anyio


@pytest.fixture
def name() -> str:
    return f"t{uuid4().hex[:10]}_"


@pytest.fixture
def url(name: str) -> str:
    return f"{servers.postgres().url()}?application_name={name}&prefix={name}"


@pytest.fixture
def database() -> Iterator[psycopg.Connection[Any]]:
    with psycopg.connect(servers.postgres().url(), autocommit=True) as connection:
        yield connection


async def none_left(database: psycopg.Connection[Any], name: str) -> None:
    """The server notices a little later."""
    with anyio.fail_after(20):
        while open_connections(database, name):
            await anyio.lowlevel.checkpoint()


async def use(store: SessionStore) -> None:
    """As a session does."""
    key = make_key()
    token = await store.acquire_lease(key, "me", 60)
    for number in range(3):
        await store.append_batch(key, make_batch(number), str(number))
    await store.release_lease(key, token)
    loaded = await store.load(key)
    assert loaded is not None
    assert len(loaded) == 9


async def test_many_stores_of_one_url_have_few_connections(
    url: str, name: str, database: psycopg.Connection[Any]
) -> None:
    """More than the server allows at once."""
    most = 0
    stores = [open_store(url) for _ in range(100)]

    async def use_one(store: SessionStore) -> None:
        nonlocal most
        await use(store)
        most = max(most, open_connections(database, name))
        await store.close()

    with anyio.fail_after(60):
        async with anyio.create_task_group() as tasks:
            for store in stores:
                tasks.start_soon(use_one, store)
    assert 1 <= most <= 8
    await none_left(database, name)


async def test_sessions_with_one_url_share_connections(
    url: str, name: str, database: psycopg.Connection[Any]
) -> None:
    most = 0

    async def run() -> None:
        nonlocal most
        async with outrider.Session(session_store=url) as session:
            assert (await session.ask("Hello")).text == "Hello yourself."
            most = max(most, open_connections(database, name))

    with Simulator([say("Hello yourself.")] * 12) as agent, agent.stand_in(), anyio.fail_after(60):
        async with anyio.create_task_group() as tasks:
            for _ in range(12):
                tasks.start_soon(run)
    assert 1 <= most <= 8
    await none_left(database, name)


async def test_closing_one_store_leaves_the_connections_of_the_others(
    url: str, name: str, database: psycopg.Connection[Any]
) -> None:
    one, other, approvals = open_store(url), open_store(url), Approvals(url)
    for store in (one, other):
        await use(store)
    assert await approvals.list() == ()
    assert isinstance(other, BlockingStore)
    before = backends(database, name)
    assert len(before) == 1
    await one.close()
    await one.close()
    await approvals.close()
    await use(other)
    assert backends(database, name) == before
    # A closed one can be used again.
    await use(one)
    assert backends(database, name) == before
    for store in (one, other):
        await store.close()
    await none_left(database, name)


def backends(database: psycopg.Connection[Any], name: str) -> set[int]:
    rows = database.execute("SELECT pid FROM pg_stat_activity WHERE application_name = %s", [name])
    return {pid for (pid,) in rows.fetchall()}


async def test_a_store_that_is_dropped_has_no_share_any_more(
    url: str, name: str, database: psycopg.Connection[Any]
) -> None:
    await use(open_store(url))
    gc.collect()
    await none_left(database, name)


async def test_for_leases_they_are_different_writers(url: str) -> None:
    key, one, other = make_key(), open_store(url), open_store(url)
    await one.acquire_lease(key, "the first", 60)
    await one.append(key, make_batch(0))
    for call in (other.append(key, make_batch(1)), other.delete(key), other.acquire_lease(key, "it", 1)):
        with pytest.raises(SessionBusy, match="the first"):
            await call
    for store in (one, other):
        await store.close()


async def test_idle_connections_are_closed(
    url: str, name: str, database: psycopg.Connection[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_shared, "IDLE_SECONDS", 0.01)
    # Another test's connections may have begun a wait of half a minute.
    _shared._state.is_less.set()
    store = open_store(url)
    for _ in range(2):
        await use(store)
        # By a thread, though the store is used no more.
        await none_left(database, name)
    await store.close()
    with anyio.fail_after(20):
        while any(one.name == "outrider-idle-connections" for one in threads()):
            await anyio.lowlevel.checkpoint()


@pytest.mark.parametrize("kind", ["postgres", "redis", "redis cluster", "s3"])
async def test_what_was_idle_is_connected_again(kind: str) -> None:
    store = REMOTES[kind].make()
    await use(store)
    _shared.close_idle(0.0)
    await use(store)
    await store.close()
    await use(store)
    await store.close()


async def test_a_server_that_was_started_anew_is_found_by_all(url: str) -> None:
    server, stores = servers.postgres(), [open_store(url) for _ in range(5)]
    for store in stores:
        await use(store)
    server.restart()
    with anyio.fail_after(60):
        async with anyio.create_task_group() as tasks:
            for store in stores:
                tasks.start_soon(use, store)
    for store in stores:
        await store.close()


def test_event_loops_of_several_threads_share_them(url: str, name: str) -> None:
    """Also of different kinds."""
    failed: list[BaseException] = []

    def run(backend: str) -> None:
        async def use_several() -> None:
            with anyio.fail_after(60):
                for _ in range(3):
                    async with anyio.create_task_group() as tasks:
                        for _ in range(4):
                            tasks.start_soon(use_one)

        async def use_one() -> None:
            store = open_store(url)
            await use(store)
            await store.close()

        try:
            anyio.run(use_several, backend=backend)
        except BaseException as error:  # noqa: BLE001 - raised below
            failed.append(error)

    running = [Thread(target=run, args=[backend]) for backend in ("asyncio", "trio") * 2]
    for thread in running:
        thread.start()
    for thread in running:
        thread.join(60)
    for error in failed:
        raise error
    with psycopg.connect(servers.postgres().url(), autocommit=True) as database:
        anyio.run(none_left, database, name)


@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")
@pytest.mark.parametrize("kind", ["postgres", "redis", "s3", "sqlite"])
def test_a_forked_process_has_its_own(kind: str, tmp_path: Path) -> None:
    def make() -> SessionStore:
        return open_store(tmp_path / "store.db") if kind == "sqlite" else REMOTES[kind].make()

    one, other = make(), make()
    for store in (one, other):
        anyio.run(use, store)
    child = os.fork()
    if not child:
        code = 1
        try:
            for store in (one, other, make()):
                anyio.run(use, store)
            anyio.run(one.close)
            anyio.run(use, other)
            code = 0
        finally:
            os._exit(code)
    assert os.waitpid(child, 0)[1] == 0
    for store in (one, other):
        anyio.run(use, store)
        anyio.run(store.close)


async def test_stores_in_one_file_share_connections(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    stores = [open_store(path) for _ in range(60)]
    async with anyio.create_task_group() as tasks:
        for store in stores:
            tasks.start_soon(use, store)
    assert all(isinstance(store, SqliteStore) for store in stores)
    assert len({id(store._connections.get()) for store in stores if isinstance(store, SqliteStore)}) == 1
    for store in stores:
        await store.close()


async def test_a_password_is_in_no_error() -> None:
    """Though it is what connections are found by."""
    store = open_store("postgresql://me:secret-of-mine@127.0.0.1:1/none?timeout=5")
    with pytest.raises(StoreError) as caught:
        await store.load(make_key())
    assert "secret-of-mine" not in f"{caught.value!r} {caught.value} {store!r} {caught.value.__cause__}"
    await store.close()

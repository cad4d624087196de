"""What is particular to the store in Redis: its keys and scripts, and what it says."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from uuid import uuid4

import anyio
import pytest

from outrider.errors import OptionsError, SessionBusy, StoreError
from outrider.transcripts import SessionKey, open_store
from outrider.transcripts.stores._base import Line, Place
from outrider.transcripts.stores._redis import RedisStore
from tests.transcripts.stores import servers
from tests.transcripts.stores.remote import make_batch, make_key

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture
def server() -> servers.Redis:
    return servers.redis()


@pytest.fixture
def client(server: servers.Redis) -> Iterator[Any]:
    client = server.client()
    yield client
    client.close()


@pytest.fixture
def prefix() -> str:
    return f"t{uuid4().hex[:10]}"


async def test_all_keys_begin_with_the_prefix_and_those_of_a_session_share_a_slot(
    server: servers.Redis, client: Any, prefix: str
) -> None:
    key = make_key()
    before = set(client.keys("*"))
    async with RedisStore(server.url(), prefix=prefix) as store:
        await store.append_batch(key, make_batch(0, has_uuid=True), "one")
        await store.append_batch({**key, "subpath": "a}{b"}, make_batch(1, has_uuid=True), "one")
    keys = set(client.keys("*")) - before
    assert all(name.startswith(prefix.encode() + b":") for name in keys)
    tags = {name.partition(b"{")[2].partition(b"}")[0] for name in keys if b"{" in name}
    assert len(tags) == 1
    # The head, the batches of both transcripts, the version, and four lists.
    assert len(keys) == 1 + 2 + 1 + 4


async def test_all_that_can_be_asked_works_on_a_cluster(prefix: str) -> None:
    """Which refuses what is about keys in several slots."""
    server, key = servers.redis(is_cluster=True), make_key()
    part: SessionKey = {**key, "subpath": "subagents/a"}
    async with RedisStore(server.url(), prefix=prefix, cluster=True) as store:
        token = await store.acquire_lease(key, "me", 60)
        for _ in range(2):
            await store.append_batch(key, make_batch(0), "one")
            await store.append_batch(part, make_batch(1), "one")
        await store.append(make_key(), make_batch(2))
        assert await store.load(key) == make_batch(0)
        assert await store.load(part) == make_batch(1)
        assert await store.list_subkeys(key) == ["subagents/a"]
        assert [one["session_id"] for one in await store.list_sessions(key["project_key"])] == [
            key["session_id"]
        ]
        assert len(await store.list_session_summaries(key["project_key"])) == 1
        assert len(await store.list_projects()) == 2
        assert await store.find_session(key["session_id"]) == [key["project_key"]]
        await store.renew_lease(key, token, 60)
        async with RedisStore(server.url(), prefix=prefix, cluster=True) as other:
            with pytest.raises(SessionBusy):
                await other.append(key, make_batch(3))
        await store.delete(part)
        await store.delete(key)
        await store.release_lease(key, token)
        assert await store.load(key) is None
        assert len(await store.list_projects()) == 1


async def test_nothing_is_left_of_a_session_that_is_deleted(
    server: servers.Redis, client: Any, prefix: str
) -> None:
    key = make_key()
    async with RedisStore(server.url(), prefix=prefix) as store:
        token = await store.acquire_lease(key, "me", 60)
        await store.append_batch(key, make_batch(0, has_uuid=True), "one")
        await store.append_batch({**key, "subpath": "a"}, make_batch(1, has_uuid=True), "one")
        await store.delete(key)
        await store.release_lease(key, token)
    assert client.keys(f"{prefix}:*") == [f"{prefix}:version".encode()]


async def test_scripts_that_the_server_forgot_are_sent_again(
    server: servers.Redis, client: Any, prefix: str
) -> None:
    key = make_key()
    async with RedisStore(server.url(), prefix=prefix) as store:
        await store.append(key, make_batch(0))
        client.script_flush()
        await store.append(key, make_batch(1))
        assert await store.load(key) == make_batch(0) + make_batch(1)


async def test_a_session_that_is_deleted_while_it_is_written_to_is_listed_if_it_is_there(
    server: servers.Redis, prefix: str
) -> None:
    key = make_key()
    async with RedisStore(server.url(), prefix=prefix) as one, RedisStore(server.url(), prefix=prefix) as two:

        async def write() -> None:
            for number in range(40):
                await one.append(key, make_batch(number))

        async def delete() -> None:
            for _ in range(40):
                await two.delete(key)

        with anyio.fail_after(40):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(write)
                tasks.start_soon(delete)
        is_there = await one.load(key) is not None
        assert len(await one.list_sessions(key["project_key"])) == is_there
        assert await one.list_projects() == [key["project_key"]] * is_there
        assert await one.find_session(key["session_id"]) == [key["project_key"]] * is_there


async def test_what_a_newer_version_wrote_is_refused(server: servers.Redis, client: Any, prefix: str) -> None:
    client.set(f"{prefix}:version", "99")
    async with RedisStore(server.url(), prefix=prefix) as store:
        with pytest.raises(StoreError, match=r"version 99.* Update Outrider"):
            await store.load(make_key())


async def test_a_wrong_password_is_told_and_not_shown(server: servers.Redis) -> None:
    async with RedisStore(server.url(password="secret-of-mine")) as store:
        with pytest.raises(StoreError, match="check user and password") as told:
            await store.load(make_key())
        assert not told.value.retryable
        assert "secret-of-mine" not in f"{told.value} {told.value!r} {store!r} {store.name}"


async def test_a_database_that_is_not_there_is_told_with_what_to_do(server: servers.Redis) -> None:
    async with RedisStore(server.url(database=99)) as store:
        with pytest.raises(StoreError, match=r"no such database.* another number at the end") as told:
            await store.load(make_key())
        assert not told.value.retryable


async def test_a_server_without_room_is_told_and_can_be_used_again(
    server: servers.Redis, client: Any, prefix: str
) -> None:
    key = make_key()
    async with RedisStore(server.url(), prefix=prefix) as store:
        await store.append_batch(key, make_batch(0), "one")
        client.config_set("maxmemory", "1")
        try:
            with pytest.raises(StoreError, match="raise `maxmemory`"):
                await store.append_batch(key, make_batch(1), "two")
        finally:
            client.config_set("maxmemory", "0")
        await store.append_batch(key, make_batch(1), "two")
        assert await store.load(key) == make_batch(0) + make_batch(1)


@pytest.mark.parametrize(
    "url, told",
    [
        ("redis://host/0?prefix=a{b", "`prefix` is 'a{b'"),
        ("redis://host/0?cluster=yes", "`cluster` is 'yes'"),
        ("redis://host/0?timeout=never", "`timeout` is 'never'"),
        ("redis://:secret-of-mine@host:port/0", "not the address of a Redis server"),
    ],
)
async def test_a_url_that_is_not_right_is_refused_before_anything_is_done(url: str, told: str) -> None:
    with pytest.raises(OptionsError, match=told) as caught:
        open_store(url)
    assert "secret-of-mine" not in str(caught.value)


async def test_a_url_says_all_that_can_be_said(server: servers.Redis, prefix: str, client: Any) -> None:
    store: Any = open_store(f"{server.url()}?prefix={prefix}&timeout=5&client_name={prefix}")
    assert store.timeout == 5
    await store.append(make_key(), make_batch(0))
    assert prefix in {one["name"] for one in client.client_list()}
    await store.close()
    assert client.keys(f"{prefix}:*")


class OnSocket(servers.Redis):
    def command(self) -> list[str]:
        return [*super().command(), "--unixsocket", str(self.folder / "socket")]


async def test_a_server_on_a_socket_of_this_machine(server: servers.Redis) -> None:
    local = OnSocket(server.program)
    local.start()
    try:
        store = open_store(f"unix://:{local.password}@{local.folder}/socket?db=0")
        await store.append(key := make_key(), make_batch(0))
        assert await store.load(key) == make_batch(0)
        await store.close()
    finally:
        local.end()


async def test_a_cluster_that_is_not_there_is_told(server: servers.Redis) -> None:
    async with RedisStore(f"redis://127.0.0.1:{servers.free_port()}", cluster=True) as store:
        with pytest.raises(StoreError, match="cannot be connected") as caught:
            await store.load(make_key())
        assert caught.value.retryable


async def test_an_append_that_the_driver_sends_again_is_there_once(
    server: servers.Redis, prefix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its first answer was lost, and somebody else appended before it was sent again."""
    key = make_key()
    async with (
        RedisStore(server.url(), prefix=prefix) as store,
        RedisStore(server.url(), prefix=prefix) as other,
    ):
        redis = store._connected()
        replace = redis.replace

        def replace_twice(*given: Any) -> Any:
            monkeypatch.setattr(redis, "replace", replace)
            replace(*given)
            other._append(Place.of(key), [Line.of(one) for one in make_batch(1)], None)
            return replace(*given)

        monkeypatch.setattr(redis, "replace", replace_twice)
        await store.append(key, make_batch(0))
        assert await store.load(key) == make_batch(0) + make_batch(1)


@pytest.mark.parametrize("data", ["", "nonsense", "{}"])
async def test_damage_is_told(server: servers.Redis, client: Any, prefix: str, data: str) -> None:
    key = make_key()
    async with RedisStore(server.url(), prefix=prefix) as store:
        await store.append(key, make_batch(0))
        client.set(store._key(Place.of(key)), data)
        with pytest.raises(StoreError, match="what is in it is damaged"):
            await store.load(key)

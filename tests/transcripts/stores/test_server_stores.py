"""The stores that have a server, with real ones: that they keep to the contract, and what they do when the
server fails."""

from __future__ import annotations

import json
import logging
import subprocess
import sys
import threading
from collections import Counter
from typing import Any
from uuid import uuid4

import anyio
import anyio.to_thread
import pytest

from outrider.errors import SessionBusy, StoreError, StoreTimedOut
from outrider.testing import check_store
from outrider.testing._contracts.store import ALL_CLAUSES
from outrider.transcripts import SessionKey, SessionStoreEntry
from outrider.transcripts.stores._blocking import BlockingStore
from tests.transcripts.stores.proxy import Proxy
from tests.transcripts.stores.remote import REMOTES, Remote, make_batch, make_key

pytestmark = pytest.mark.anyio

EVERY = [clause.text for clauses in ALL_CLAUSES.values() for clause in clauses]


@pytest.fixture
def anyio_backend() -> str:
    # What differs between the two is in what all stores share, and is tested with the ones without a server.
    return "asyncio"


@pytest.fixture
def remote(request: pytest.FixtureRequest) -> Remote:
    return REMOTES[request.param]


every = pytest.mark.parametrize("remote", ["postgres", "redis", "s3"], indirect=True)
lasting = pytest.mark.parametrize("remote", ["postgres", "redis"], indirect=True)
"""Those whose server keeps what it has when it is killed."""


@pytest.mark.timeout(180)
@pytest.mark.parametrize(
    "remote, anyio_backend",
    [("postgres", "asyncio"), ("redis", "trio"), ("s3", "asyncio")],
    indirect=["remote"],
)
async def test_it_keeps_to_the_contract(remote: Remote) -> None:
    remote.server()
    if remote.name != "s3":
        assert await check_store(remote.make, deadline=60) == EVERY
        return
    # Not all in one place: to list its projects takes a request for each.
    prefixes: dict[int, str] = {}

    def make(prefix: str = "") -> BlockingStore:
        prefix = prefix or uuid4().hex
        store = remote.make(prefix=prefix)
        prefixes[id(store)] = prefix
        kept.append(store)
        return store

    kept: list[BlockingStore] = []
    again = await check_store(make, again=lambda store: make(prefixes[id(store)]), deadline=60)
    assert again == EVERY


async def stored(store: BlockingStore, key: SessionKey) -> list[SessionStoreEntry]:
    return await store.load(key) or []


def expect_passing(error: StoreError) -> None:
    assert error.retryable, error


async def append_until_kept(
    store: BlockingStore, key: SessionKey, entries: list[SessionStoreEntry], batch: str, tries: int = 5
) -> int:
    """As a mirror does: the same batch again, under its id. Gives how often it failed."""
    for failures in range(tries):
        try:
            await store.append_batch(key, entries, batch)
        except StoreError as error:
            expect_passing(error)
            continue
        return failures
    raise AssertionError(f"it failed {tries} times")


@lasting
async def test_nothing_is_lost_and_nothing_is_there_twice_when_the_server_is_killed(remote: Remote) -> None:
    server, writers, batches = remote.server(), 4, 12
    keys = [make_key() for _ in range(writers)]
    written: Counter[int] = Counter()
    failed: list[StoreError] = []
    killed = anyio.Event()

    async with remote.make(timeout=20) as store:

        async def write(writer: int) -> None:
            for number in range(batches):
                entries, batch = make_batch(number), f"batch {number}"
                while True:
                    try:
                        await store.append_batch(keys[writer], entries, batch)
                        break
                    except StoreError as error:
                        expect_passing(error)
                        failed.append(error)
                        with anyio.fail_after(30):
                            await back.wait()
                written[writer] += 1
                if written.total() == writers * 3:
                    killed.set()

        back = anyio.Event()
        with anyio.fail_after(50):
            async with anyio.create_task_group() as tasks:
                for writer in range(writers):
                    tasks.start_soon(write, writer)
                await killed.wait()
                # All of them write on meanwhile.
                await anyio.to_thread.run_sync(server.kill)
                acknowledged = Counter(written)
                await anyio.to_thread.run_sync(server.start)
                for writer, key in enumerate(keys):
                    there = {one["batch"] for one in await loaded_raw(store, key)}
                    assert there >= set(range(acknowledged[writer]))
                back.set()
        assert failed
        for key in keys:
            expected = [entry for number in range(batches) for entry in make_batch(number)]
            assert await stored(store, key) == expected


async def loaded_raw(store: BlockingStore, key: SessionKey) -> list[dict[str, Any]]:
    loaded: Any = await stored(store, key)
    return list(loaded)


@pytest.mark.parametrize("of", ["requests", "replies"])
@every
async def test_a_batch_is_stored_once_wherever_the_connection_is_cut(remote: Remote, of: str) -> None:
    key, expected = make_key(), list[SessionStoreEntry]()
    with Proxy(remote.server().port) as proxy:
        async with remote.make(port=proxy.port, timeout=20) as store, remote.make() as reader:
            await store.append_batch(key, make_batch(0), "first")
            expected += make_batch(0)
            for number, count in enumerate((0, 1, 7, 30, 90, 200, 400, 700, 1100), 1):
                proxy.cut_after(count, of=of)
                await append_until_kept(store, key, make_batch(number), f"batch {number}")
                expected += make_batch(number)
                assert await stored(reader, key) == expected, f"cut after {count} bytes"
            assert proxy.cuts >= 4


@pytest.mark.parametrize("of", ["requests", "replies"])
@every
async def test_entries_without_uuid_are_stored_no_more_than_once_by_an_append(
    remote: Remote, of: str
) -> None:
    with Proxy(remote.server().port) as proxy:
        async with remote.make(port=proxy.port, timeout=20) as store, remote.make() as reader:
            await store.append(make_key(), make_batch(0))
            for count in (1, 60, 150, 300, 500, 900):
                key, is_kept = make_key(), False
                proxy.cut_after(count, of=of)
                try:
                    await store.append(key, make_batch(1))
                    is_kept = True
                except StoreError as error:
                    expect_passing(error)
                found = await stored(reader, key)
                assert found == make_batch(1) or (not is_kept and found == []), f"cut after {count} bytes"


@every
async def test_connections_that_were_dropped_while_idle_are_made_anew(remote: Remote) -> None:
    key = make_key()
    with Proxy(remote.server().port) as proxy:
        async with remote.make(port=proxy.port, timeout=20) as store:
            for number in range(3):
                await store.append(key, make_batch(number))
                proxy.cut_all()
            assert len(await stored(store, key)) == 9


async def connect(store: BlockingStore) -> None:
    """Connect, and set up, while the server answers; on a busy machine not at the first try."""
    for _ in range(40):
        try:
            await store.load(make_key())
            return
        except StoreTimedOut:
            pass
    raise AssertionError("it never answers in time")


@every
async def test_a_server_that_stops_answering_is_given_up_in_time(remote: Remote) -> None:
    key, server = make_key(), remote.server()
    async with remote.make(timeout=0.5) as store, remote.make() as patient:
        await patient.append_batch(key, make_batch(0), "one")
        await connect(store)
        server.stop_answering()
        try:
            with anyio.fail_after(20):
                for call in (
                    lambda: store.append_batch(key, make_batch(1), "two"),
                    lambda: store.load(key),
                    lambda: store.acquire_lease(make_key(), "nobody", 5),
                ):
                    with pytest.raises(StoreTimedOut) as caught:
                        await call()
                    assert caught.value.timeout == 0.5
                    assert caught.value.retryable
        finally:
            server.go_on()
        await patient.append_batch(key, make_batch(1), "two")
        assert await stored(patient, key) == make_batch(0) + make_batch(1)


@every
async def test_no_thread_waits_on_for_a_server_that_does_not_answer(
    remote: Remote, caplog: pytest.LogCaptureFixture
) -> None:
    server = remote.server()
    async with remote.make(timeout=0.5) as store:
        await connect(store)
        server.stop_answering()
        try:
            ended = threading.Event()
            store._load = ended_by(store._load, ended)  # type: ignore[method-assign]
            store._append = ended_by(store._append, appended := threading.Event())  # type: ignore[method-assign]
            with pytest.raises(StoreTimedOut):
                await store.load(make_key())
            with pytest.raises(StoreTimedOut):
                await store.append(make_key(), make_batch(0))
            for one in (ended, appended):
                assert await anyio.to_thread.run_sync(one.wait, 20)
        finally:
            server.go_on()
    assert [record for record in caplog.records if record.levelno >= logging.WARNING] == []


def ended_by(call: Any, ended: threading.Event) -> Any:
    def wrapped(*arguments: Any) -> Any:
        try:
            return call(*arguments)
        finally:
            ended.set()

    return wrapped


@every
async def test_a_server_that_is_not_there_is_told_at_once(remote: Remote) -> None:
    with Proxy(remote.server().port) as proxy:
        port = proxy.port
    async with remote.make(port=port, timeout=20) as store:
        with pytest.raises(StoreError) as caught:
            await store.append(make_key(), make_batch(0))
        assert caught.value.retryable
        assert not isinstance(caught.value, StoreTimedOut)
        assert "made-up-word" not in f"{caught.value} {caught.value!r} {store!r}"


@every
async def test_writers_with_objects_of_their_own_do_not_lose_or_repeat_anything(remote: Remote) -> None:
    key, batches = make_key(), 4 if remote.name == "s3" else 10
    async with remote.make() as one, remote.make() as two:

        async def write(store: BlockingStore, writer: int) -> None:
            for number in range(batches):
                entries = make_batch(writer * 100 + number, size=2)
                await append_until_kept(store, key, entries, f"{writer} {number}")
                await store.append_batch(key, entries, f"{writer} {number}")

        with anyio.fail_after(50):
            async with anyio.create_task_group() as tasks:
                for writer in range(4):
                    tasks.start_soon(write, (one, two)[writer % 2], writer)
        found = await loaded_raw(one, key)
        for writer in range(4):
            mine = [entry["batch"] for entry in found if entry["batch"] // 100 == writer]
            assert mine == [writer * 100 + number for number in range(batches) for _ in range(2)]


RIVAL = """
import sys, json, anyio
sys.path.insert(0, {root!r})
from outrider.errors import SessionBusy
from outrider.transcripts import open_store

async def main():
    store = open_store(sys.argv[1])
    await store.list_sessions("nothing")
    print("ready", flush=True)
    sys.stdin.readline()
    won = []
    for number in range(10):
        key = {{"project_key": sys.argv[2], "session_id": str(number)}}
        try:
            await store.acquire_lease(key, sys.argv[3], 60)
            await store.append(key, [{{"type": "user", "holder": sys.argv[3]}}])
            won.append(number)
        except SessionBusy as busy:
            assert busy.holder != sys.argv[3], busy
    print(json.dumps(won), flush=True)
    await store.close()

anyio.run(main)
"""


@every
async def test_of_two_processes_that_want_a_lease_one_gets_it(
    remote: Remote, monkeypatch: pytest.MonkeyPatch, pytestconfig: pytest.Config
) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "made-up")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "made-up-word")
    server, project = remote.server(), make_key()["project_key"]
    url = server.url(prefix="tests") if remote.name == "s3" else server.url()
    code = RIVAL.format(root=str(pytestconfig.rootpath))

    def run() -> list[list[int]]:
        rivals = [
            subprocess.Popen(
                [sys.executable, "-c", code, url, project, name],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
            )
            for name in ("one", "two")
        ]
        try:
            for rival in rivals:
                assert rival.stdout is not None
                assert rival.stdout.readline() == "ready\n"
            for rival in rivals:
                assert rival.stdin is not None
                rival.stdin.write("go\n")
                rival.stdin.flush()
            return [json.loads(rival.communicate(timeout=40)[0]) for rival in rivals]
        finally:
            for rival in rivals:
                rival.kill()
                rival.communicate()

    one, two = await anyio.to_thread.run_sync(run)
    assert sorted(one + two) == list(range(10))
    async with remote.make() as store:
        for number in range(10):
            key: SessionKey = {"project_key": project, "session_id": str(number)}
            (entry,) = await loaded_raw(store, key)
            assert (entry["holder"] == "one") == (number in one)
            with pytest.raises(SessionBusy):
                await store.append(key, make_batch(0))

"""What all stores with a blocking driver share: threads, time limits, errors, loops and forks."""

from __future__ import annotations

import os
import sqlite3
import sys
import threading
from collections.abc import Generator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import anyio
import anyio.to_thread
import pytest

from outrider.errors import OptionsError, SessionBusy, StoreError, StoreTimedOut, UsageError
from outrider.transcripts import FileStore, SqliteStore, open_store
from outrider.transcripts.stores._base import Place
from outrider.transcripts.stores._file import locked
from tests.transcripts.stores.local import KEY, LOCAL, Local, Make, noted, numbered

pytestmark = pytest.mark.anyio


class Stuck(SqliteStore):
    """Does nothing until it may."""

    def __init__(self, folder: Path, timeout: float = 30.0) -> None:
        super().__init__(folder / "store.db", timeout=timeout)
        self.may, self.begun, self.ended = threading.Event(), threading.Semaphore(0), threading.Event()
        self.done = threading.Event()

    async def _run(self, operation: str, call: Any, *arguments: object) -> Any:
        def noted() -> Any:
            try:
                return call(*arguments)
            finally:
                self.done.set()

        return await super()._run(operation, noted)

    def _load(self, place: Place) -> Any:
        self.begun.release()
        self.may.wait(30)
        self.ended.set()

    def _acquire(self, session: Place, token: str, holder: str, seconds: float) -> None:
        super()._acquire(session, token, holder, seconds)
        self.begun.release()
        self.may.wait(30)

    def _release(self, session: Place, token: str) -> None:
        super()._release(session, token)
        self.ended.set()


async def test_a_call_that_takes_too_long_is_given_up(tmp_path: Path) -> None:
    store = Stuck(tmp_path, timeout=0.05)
    with pytest.raises(StoreTimedOut) as caught, anyio.fail_after(20):
        await store.load(KEY)
    assert (caught.value.operation, caught.value.timeout, caught.value.retryable) == ("load", 0.05, True)
    assert caught.value.store == f"sqlite:///{tmp_path}/store.db"
    assert not store.ended.is_set()
    store.may.set()
    assert store.ended.wait(20)


async def test_cancelling_returns_at_once(tmp_path: Path) -> None:
    store = Stuck(tmp_path)
    with anyio.fail_after(20):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(store.load, KEY)
            await anyio.to_thread.run_sync(store.begun.acquire)
            tasks.cancel_scope.cancel()
    assert not store.ended.is_set()
    store.may.set()
    assert store.ended.wait(20)


async def test_a_store_that_hangs_leaves_threads_for_others(tmp_path: Path) -> None:
    store = Stuck(tmp_path)
    other = SqliteStore(tmp_path / "other.db")
    with anyio.fail_after(20):
        async with other, anyio.create_task_group() as tasks:
            for _ in range(100):
                tasks.start_soon(store.load, KEY)
            for _ in range(8):
                await anyio.to_thread.run_sync(store.begun.acquire)
            await other.append(KEY, numbered(0, 1))
            limiter = anyio.to_thread.current_default_thread_limiter()
            assert limiter.borrowed_tokens == 0
            store.may.set()


async def test_a_lease_that_comes_too_late_is_given_back(tmp_path: Path) -> None:
    store = Stuck(tmp_path)
    with anyio.fail_after(20):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(store.acquire_lease, KEY, "me", 60)
            await anyio.to_thread.run_sync(store.begun.acquire)
            tasks.cancel_scope.cancel()
    store.may.set()
    assert await anyio.to_thread.run_sync(store.ended.wait, 20)
    async with SqliteStore(store.path) as other:
        await other.acquire_lease(KEY, "another", 60)


async def test_a_lease_that_came_while_it_was_given_up_is_given_back(tmp_path: Path) -> None:
    """The thread has ended, and saw nothing of it; its caller was not told of the lease any more."""
    store = Stuck(tmp_path)
    with anyio.fail_after(20):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(store.acquire_lease, KEY, "me", 60)
            await anyio.to_thread.run_sync(store.begun.acquire)
            tasks.cancel_scope.cancel()
            store.may.set()
            # Nothing else runs in this loop until the thread is done.
            assert store.done.wait(20)
    assert await anyio.to_thread.run_sync(store.ended.wait, 20)
    async with SqliteStore(store.path) as other:
        await other.acquire_lease(KEY, "another", 60)


@contextmanager
def in_use(store: Local) -> Generator[None]:
    """Another writer has it."""
    if isinstance(store, FileStore):
        with locked(store._layout.lock(Place.of(KEY)), wait=0):
            yield
        return
    with closing(sqlite3.connect(store.path, isolation_level=None)) as connection:
        connection.execute("BEGIN IMMEDIATE")
        yield


@LOCAL
@pytest.mark.parametrize("what", ["append", "delete", "acquire_lease"])
async def test_what_was_given_up_while_it_waited_is_not_done_later(
    make: Make, what: str, tmp_path: Path
) -> None:
    """It would come after what was written since."""
    store = make(tmp_path)
    calls: dict[str, Any] = {
        "append": (store.append, numbered(1, 1)),
        "delete": (store.delete,),
        "acquire_lease": (store.acquire_lease, "me", 60),
    }
    call, *rest = calls[what]
    async with store:
        await store.append(KEY, numbered(0, 1))
        done = [noted(store, f"_{name}") for name in ("append", "delete", "acquire")]
        with anyio.fail_after(20):
            with in_use(store):
                async with anyio.create_task_group() as tasks:
                    tasks.start_soon(call, KEY, *rest)
                    begun = done[[*calls].index(what)][0]
                    await anyio.to_thread.run_sync(begun.wait, 20)
                    tasks.cancel_scope.cancel()
            ended = done[[*calls].index(what)][1]
            assert await anyio.to_thread.run_sync(ended.wait, 20)
        assert await store.load(KEY) == numbered(0, 1)
        async with make(tmp_path) as other:
            await other.append(KEY, numbered(2, 1))


@pytest.mark.parametrize(
    "key", [None, {}, {"project_key": "p"}, {"project_key": 1, "session_id": "s"}, {**KEY, "subpath": b"x"}]
)
@pytest.mark.parametrize("kind", ["sqlite", "memory"])
async def test_what_is_no_key_is_refused(kind: str, key: Any, tmp_path: Path) -> None:
    store = open_store("memory:" if kind == "memory" else tmp_path / "store.db")
    with pytest.raises(UsageError, match="is not the key of a transcript"):
        await store.load(key)


async def test_what_the_driver_raises_is_told(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "nowhere" / "store.db")
    with pytest.raises(StoreError) as caught:
        await store.append(KEY, numbered(0, 1))
    assert isinstance(caught.value.__cause__, FileNotFoundError)
    assert caught.value.operation == "append"
    assert "no such file or directory" in caught.value.reason


class Broken(SqliteStore):
    def _load(self, place: Place) -> Any:
        raise KeyError("a mistake in the store")


async def test_a_mistake_is_no_failure_of_the_store(tmp_path: Path) -> None:
    with pytest.raises(KeyError):
        await Broken(tmp_path / "store.db").load(KEY)


@pytest.mark.parametrize("value", [float("nan"), {1, 2}, b"bytes"], ids=["not a number", "a set", "bytes"])
@LOCAL
async def test_what_is_no_json_is_refused(make: Make, value: object, tmp_path: Path) -> None:
    entries: Any = [{"type": "x", "value": value}]
    async with make(tmp_path) as store:
        with pytest.raises(UsageError, match="is not JSON"):
            await store.append(KEY, [*numbered(0, 1), *entries])
        assert await store.load(KEY) is None


@LOCAL
async def test_after_it_is_closed_a_store_opens_again(make: Make, tmp_path: Path) -> None:
    store = make(tmp_path)
    async with store:
        await store.append(KEY, numbered(0, 1))
    await store.close()
    assert await store.load(KEY) == numbered(0, 1)
    await store.append(KEY, numbered(1, 1))
    assert await store.load(KEY) == numbered(0, 2)
    await store.close()


@LOCAL
@pytest.mark.parametrize("seconds", [0, -1, float("inf"), float("nan")])
async def test_a_lease_has_a_length(make: Make, seconds: float, tmp_path: Path) -> None:
    async with make(tmp_path) as store:
        with pytest.raises(OptionsError, match="a lease of"):
            await store.acquire_lease(KEY, "me", seconds)
        with pytest.raises(OptionsError, match="a lease of"):
            await store.renew_lease(KEY, "token", seconds)


@LOCAL
def test_one_object_serves_several_loops_and_threads(make: Make, tmp_path: Path) -> None:
    store = make(tmp_path)

    async def write(number: int) -> None:
        for batch in range(5):
            await store.append_batch(KEY, numbered(batch, 1), f"{number} {batch}")

    threads = [
        threading.Thread(target=anyio.run, args=(write, number), kwargs={"backend": backend})
        for number, backend in enumerate(["asyncio", "trio", "asyncio", "trio"])
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert len(anyio.run(store.load, KEY) or []) == 20
    anyio.run(store.close)


@LOCAL
def test_what_is_shown_of_a_store(make: Make, tmp_path: Path) -> None:
    store = make(tmp_path, timeout=None)
    assert repr(store) == f"{type(store).__name__}({store.name!r})"
    assert str(tmp_path) in store.name
    assert store.timeout is None


@LOCAL
@pytest.mark.parametrize("timeout", [0, -1, float("inf"), float("nan")])
def test_a_timeout_is_a_number_of_seconds(make: Make, timeout: float, tmp_path: Path) -> None:
    with pytest.raises(OptionsError, match="`timeout` is"):
        make(tmp_path, timeout=timeout)


# Python warns of a fork while threads run, which is what this is about.
@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")
@LOCAL
def test_a_process_that_is_forked_off_goes_on_by_itself(make: Make, tmp_path: Path) -> None:
    store = make(tmp_path)
    key: Any = {"project_key": "p", "session_id": "leased"}

    async def prepare() -> None:
        await store.append(KEY, numbered(0, 1))
        await store.acquire_lease(key, "the parent", 60)

    async def in_child() -> str:
        await store.append(KEY, numbered(1, 1))
        try:
            await store.append(key, numbered(0, 1))
        except SessionBusy as busy:
            return busy.holder
        return "nobody"

    anyio.run(prepare)
    reading, writing = os.pipe()
    child = os.fork()
    if not child:
        said = "failed"
        try:
            said = anyio.run(in_child)
        finally:
            os.write(writing, said.encode())
            os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as told:
        assert told.read() == "the parent"
    assert os.waitpid(child, 0)[1] == 0

    async def check() -> None:
        async with store:
            await store.append(KEY, numbered(2, 1))
            await store.append(key, numbered(0, 1))
            assert await store.load(KEY) == numbered(0, 3)

    anyio.run(check)
    assert anyio.run(make(tmp_path).load, KEY) == numbered(0, 3)


@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")
def test_a_database_in_use_during_a_fork_is_refused_in_the_new_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SQLite would take the parent's locks for its own there, and could lose what it writes."""
    monkeypatch.setattr("outrider.transcripts.stores._sqlite._LONGEST_WAIT_OF_A_FORK", 0.05)
    store = SqliteStore(tmp_path / "store.db")
    anyio.run(store.append, KEY, numbered(0, 1))
    reading, writing = os.pipe()
    with store._connections.get().one():
        child = os.fork()
        if not child:
            said = "nothing was refused"
            try:
                anyio.run(SqliteStore(tmp_path / "store.db").load, KEY)
            except StoreError as error:
                said = str(error)
            finally:
                os.write(writing, said.encode())
                os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as told:
        assert "was forked while the database was in use" in told.read()
    assert os.waitpid(child, 0)[1] == 0
    assert anyio.run(store.load, KEY) == numbered(0, 1)
    anyio.run(store.close)


def test_stores_do_not_keep_the_program_light_from_starting() -> None:
    """`import outrider.transcripts` loads no driver."""
    import subprocess

    code = "import sys, outrider.transcripts; print([n for n in ('sqlite3', 'psycopg') if n in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"

"""Whatever a store does, its caller gets an answer or one of Outrider's errors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import anyio
import pytest

from outrider.errors import SessionBusy, StoreError, StoreTimedOut
from outrider.transcripts import MemoryStore, SessionKey, SessionListSubkeysKey, StoreCalls
from tests.cases import every_case

pytestmark = pytest.mark.anyio

DEADLINE = 10
KEY: SessionKey = {"project_key": "-srv", "session_id": "s"}


@pytest.fixture(params=["asyncio", "trio"])
def anyio_backend(request: pytest.FixtureRequest) -> str:
    return str(request.param)


class Crash(BaseException):
    """As Ctrl-C, but nobody else looks at it."""


class Unspeakable(Exception):
    def __str__(self) -> str:
        raise RuntimeError("it has no text")


class Raising(MemoryStore):
    def __init__(self, error: BaseException) -> None:
        super().__init__()
        self.error = error

    async def load(self, key: SessionKey) -> Any:
        raise self.error


def cancellation() -> BaseException:
    """As what comes out of a function when something that it waited for was cancelled."""
    kind: Any = anyio.get_cancelled_exc_class()
    # Trio lets nobody else make one.
    return kind() if kind.__module__.startswith("asyncio") else GeneratorExit()


@every_case(
    "make, reason, retryable",
    [
        (lambda: ValueError("no"), "ValueError: no", False),
        (ValueError, "ValueError", False),
        (Unspeakable, "Unspeakable", False),
        (lambda: ConnectionError("gone"), "ConnectionError: gone", True),
        (lambda: TimeoutError("late"), "TimeoutError: late", True),
        (cancellation, "", False),
        (
            lambda: BaseExceptionGroup("both", [cancellation(), ValueError()]),
            "BaseExceptionGroup: both",
            False,
        ),
    ],
    ids=["error", "no words", "no text", "connection", "timeout", "cancellation", "group"],
)
async def test_what_a_store_raises_is_its_failure(
    make: Callable[[], BaseException], reason: str, retryable: bool
) -> None:
    error = make()
    with anyio.fail_after(DEADLINE), pytest.raises(StoreError) as caught:
        await StoreCalls(Raising(error)).load(KEY)
    assert (caught.value.store, caught.value.operation) == ("Raising", "load")
    assert caught.value.reason.startswith(reason)
    assert caught.value.retryable is retryable
    assert caught.value.__cause__ is error


@pytest.mark.parametrize(
    "error",
    [SessionBusy("s"), Crash(), BaseExceptionGroup("", [ValueError(), Crash()])],
    ids=["one of Outrider's", "of the program", "of the program in a group"],
)
async def test_what_is_not_the_stores_own_is_raised_as_it_is(error: BaseException) -> None:
    with anyio.fail_after(DEADLINE), pytest.raises(type(error)) as caught:
        await StoreCalls(Raising(error)).load(KEY)
    assert caught.value is error


class Slow(MemoryStore):
    async def load(self, key: SessionKey) -> Any:
        await anyio.sleep_forever()


async def test_a_store_that_does_not_answer_is_given_up() -> None:
    with anyio.fail_after(DEADLINE), pytest.raises(StoreTimedOut) as caught:
        await StoreCalls(Slow(), timeout=0.01).load(KEY)
    assert (caught.value.operation, caught.value.timeout, caught.value.retryable) == ("load", 0.01, True)


async def test_the_callers_cancellation_is_no_failure_of_the_store() -> None:
    with anyio.fail_after(DEADLINE), anyio.CancelScope() as scope:
        scope.cancel()
        await StoreCalls(Slow()).load(KEY)
    assert scope.cancelled_caught


class Changing(MemoryStore):
    """Changes all that it gets."""

    async def append(self, key: SessionKey, entries: Any) -> None:
        inner = entries[0]
        while isinstance(inner, dict):
            inner["type"] = "changed"
            inner = inner["in"][0]
        entries.clear()

    async def append_batch(self, key: SessionKey, entries: Any, batch: str) -> None:
        await self.append(key, entries)


@every_case("batch", [None, "b"])
@every_case("depth", [1, 3, 20_000])
async def test_what_a_store_does_with_entries_is_not_seen_by_others(batch: str | None, depth: int) -> None:
    inner: Any = None
    kept: list[dict[str, Any]] = []
    for _ in range(depth):
        inner = {"type": "user", "in": [inner]}
        kept.append(inner)
    entries = [inner]
    await StoreCalls(Changing()).append(KEY, entries, batch)
    assert len(entries) == 1
    assert {entry["type"] for entry in kept} == {"user"}


async def test_a_batch_is_kept_once() -> None:
    store = MemoryStore()
    calls = StoreCalls(store)
    for batch in ("one", "one", None, None):
        await calls.append(KEY, [{"type": "note"}], batch)
    assert len(await calls.load(KEY)) == 3


async def test_a_transcript_that_is_not_there_has_no_entries() -> None:
    assert await StoreCalls(MemoryStore()).load(KEY) == []


class Tokenless(MemoryStore):
    async def acquire_lease(self, key: SessionListSubkeysKey, holder: str, seconds: float) -> Any:
        return None


async def test_a_lease_without_a_token_is_none() -> None:
    with pytest.raises(StoreError, match="`acquire_lease`: it returned something unexpected"):
        await StoreCalls(Tokenless()).acquire_lease(KEY, "me", 1)

"""What a worker makes of an attempt, before anything of it is sent back: without a cluster."""

from __future__ import annotations

import pickle
from threading import Lock

import pytest

from outrider.errors import OutriderError
from outrider.fleet import Attempted, Task
from outrider.fleet._engine import Assignment
from outrider.fleet._ray.worker import _sendable, _with_password
from outrider.options import Options

pytestmark = pytest.mark.anyio


class Odd(OutriderError):
    """Can be written, but not read."""

    def __init__(self, what: str, why: str) -> None:
        super().__init__(f"{what}: {why}")

    def __reduce__(self) -> tuple[object, ...]:
        return Odd, ()


class Holding(OutriderError):
    """Cannot be written."""

    def __init__(self) -> None:
        super().__init__("it holds")
        self.lock = Lock()


@pytest.mark.parametrize("error", [Odd("no", "because"), Holding()])
async def test_errors_that_cannot_travel_are_told_in_words(error: OutriderError) -> None:
    sent = _sendable(Attempted(status="failed", error=error))
    read = pickle.loads(pickle.dumps(sent))
    assert type(read.error) is OutriderError
    assert read.error.message == error.message


@pytest.mark.parametrize(
    "store, used",
    [
        ("redis://db:6379/0", "redis://:p%40ss@db:6379/0"),
        ("rediss://agents@db/1?timeout=5", "rediss://agents:p%40ss@db/1?timeout=5"),
        ("redis://:given@db/0", "redis://:given@db/0"),
        ("postgresql://agents@db/x", "postgresql://agents@db/x"),
    ],
)
async def test_the_password_of_redis_comes_from_the_worker(
    store: str, used: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    work = Assignment(id="a", number=0, attempt=1, task=Task("a"), options=Options(session_store=store))
    assert _with_password(work) is work
    monkeypatch.setenv("REDIS_PASSWORD", "p@ss")
    assert _with_password(work).options.session_store == used

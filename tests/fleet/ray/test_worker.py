"""What a worker makes of an attempt, before anything of it is sent back: without a cluster."""

from __future__ import annotations

import pickle
from threading import Lock

import pytest

from outrider.errors import OutriderError
from outrider.fleet._engine import Attempted
from outrider.fleet._ray.worker import _sendable

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

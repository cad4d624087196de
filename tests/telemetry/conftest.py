"""Set-up for the tests of telemetry."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from outrider.telemetry import uninstrument
from tests.telemetry.recorder import Recorder


@pytest.fixture
def anyio_backend() -> str:
    """Telemetry has no tasks of its own: what it needs of an event loop is the same on all."""
    return "asyncio"


@pytest.fixture
def recorder() -> Recorder:
    return Recorder()


@pytest.fixture(autouse=True)
def no_default() -> Iterator[None]:
    yield
    uninstrument()

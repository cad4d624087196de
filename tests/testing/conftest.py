"""Every test here is held to this: no thread or socket of a scripted API is left behind."""

from __future__ import annotations

import gc
import threading
from collections.abc import Iterator

import pytest


@pytest.fixture(autouse=True)
def nothing_is_left() -> Iterator[None]:
    yield
    assert [thread.name for thread in threading.enumerate() if "messages-api" in thread.name] == []
    # A socket that is still open says so, and warnings are errors.
    gc.collect()

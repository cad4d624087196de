"""Every test here is held to this: no process, thread, descriptor or file of its own is left behind."""

from __future__ import annotations

import pytest

from tests.transports.conftest import nothing_is_left

__all__ = ["anyio_backend", "nothing_is_left"]


@pytest.fixture
def anyio_backend() -> str:
    """One is enough: this is about agents, and the real one takes its time."""
    return "asyncio"

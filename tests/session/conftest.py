"""Set-up for the tests of sessions."""

from __future__ import annotations

from importlib.util import find_spec

import pytest

BACKENDS: list[object] = [
    pytest.param(("asyncio", {"use_uvloop": False}), id="asyncio"),
    pytest.param(("trio", {}), id="trio"),
]
if find_spec("uvloop") is not None:
    BACKENDS.append(pytest.param(("asyncio", {"use_uvloop": True}), id="uvloop"))


@pytest.fixture(params=BACKENDS)
def anyio_backend(request: pytest.FixtureRequest) -> object:
    return request.param

"""Set-up for the tests of sessions."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.session.surroundings import Program, make_program

BACKENDS: list[object] = [
    pytest.param(("asyncio", {"use_uvloop": False}), id="asyncio"),
    pytest.param(("trio", {}), id="trio"),
]
if find_spec("uvloop") is not None:
    BACKENDS.append(pytest.param(("asyncio", {"use_uvloop": True}), id="uvloop"))


@pytest.fixture(params=BACKENDS)
def anyio_backend(request: pytest.FixtureRequest) -> object:
    return request.param


@pytest.fixture
def program(tmp_path: Path) -> Program:
    """Makes an executable of one of the children."""
    return lambda name: make_program(tmp_path, name)

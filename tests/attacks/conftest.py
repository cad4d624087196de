"""Set-up for attacks: those that start processes leave none behind, and no folder too deep for pytest."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from outrider._folders import remove_folder


@pytest.fixture(params=["asyncio", "trio"])
def anyio_backend(request: pytest.FixtureRequest) -> object:
    return request.param


@pytest.fixture(autouse=True)
def nothing_deep_is_left(request: pytest.FixtureRequest) -> Iterator[None]:
    """pytest removes folders of earlier runs by recursion, and fails at those that some attacks make."""
    folder = request.getfixturevalue("tmp_path") if "tmp_path" in request.fixturenames else None
    yield
    if folder is not None:
        remove_folder(folder)

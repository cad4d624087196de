"""Each store that needs no server keeps to the whole contract, on asyncio and trio."""

from __future__ import annotations

from itertools import count
from pathlib import Path

import pytest

from outrider.testing import check_store
from outrider.testing._contracts.store import ALL_CLAUSES
from outrider.transcripts import MemoryStore
from tests.transcripts.stores.local import LOCAL, Local, Make

pytestmark = pytest.mark.anyio

EVERY = [clause.text for clauses in ALL_CLAUSES.values() for clause in clauses]


@LOCAL
async def test_a_store_on_disk_keeps_to_the_contract(make: Make, tmp_path: Path) -> None:
    """All objects are on the same data."""
    assert await check_store(lambda: make(tmp_path)) == EVERY


@LOCAL
@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_a_new_store_keeps_to_the_contract(make: Make, tmp_path: Path) -> None:
    numbers = count()

    def fresh() -> Local:
        folder = tmp_path / str(next(numbers))
        folder.mkdir()
        return make(folder)

    clauses = await check_store(fresh)
    assert {*EVERY} > {*clauses}


async def test_the_store_in_memory_keeps_to_the_contract() -> None:
    assert await check_store(MemoryStore, again=MemoryStore) == EVERY

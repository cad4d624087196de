"""What a process has no right to is told."""

# ruff: noqa: ASYNC240 - nothing else runs while a test looks at a file

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from pathlib import Path

import anyio
import pytest

from outrider.errors import StoreError
from outrider.transcripts import FileStore, SessionKey, SqliteStore
from tests.transcripts.stores.local import KEY, LOCAL, Make, numbered

pytestmark = pytest.mark.anyio
NOBODY = 65534


@pytest.fixture
def forbidden(tmp_path: Path) -> Iterator[Path]:
    """A folder that this process cannot write to, though it be root."""
    tmp_path.chmod(0o500)
    before = os.geteuid()
    if not before:
        os.seteuid(NOBODY)
    yield tmp_path
    os.seteuid(before)
    tmp_path.chmod(0o700)


@LOCAL
async def test_no_permission(make: Make, forbidden: Path) -> None:
    # Not in a thread of the pool: those that are made under another user stay.
    store = make(forbidden)
    with anyio.fail_after(20), pytest.raises(StoreError) as caught:
        await store.append(KEY, numbered(0, 1))
    assert not caught.value.retryable
    assert "may not access it (permission denied)" in str(caught.value)
    assert str(forbidden) in str(caught.value)


@pytest.fixture
def shared() -> Iterator[Path]:
    """A folder that others can reach, unlike those of the test run."""
    folder = Path(tempfile.mkdtemp(prefix="outrider-"))
    folder.chmod(0o755)
    yield folder
    shutil.rmtree(folder)


@contextmanager
def only_reading(folder: Path) -> Generator[None]:
    for path in (folder, *folder.rglob("*")):
        path.chmod(0o555 if path.is_dir() else 0o444)
    before = os.geteuid()
    if not before:
        os.seteuid(NOBODY)
    try:
        yield
    finally:
        os.seteuid(before)
        for path in (folder, *folder.rglob("*")):
            path.chmod(0o755)


async def test_who_may_only_read_files_can(shared: Path) -> None:
    part: SessionKey = {**KEY, "subpath": "a"}
    async with FileStore(shared / "store") as store:
        for key in (KEY, part):
            await store.append(key, numbered(0, 2))
    reader = FileStore(shared / "store")
    with anyio.fail_after(20), only_reading(shared):
        for key in (KEY, part):
            assert await reader.load(key) == numbered(0, 2)
        assert [one["session_id"] for one in await reader.list_sessions("p")] == ["s"]
        assert await reader.list_subkeys(KEY) == ["a"]
        with pytest.raises(StoreError, match="may not access it"):
            await reader.append(KEY, numbered(2, 1))


async def test_who_may_only_read_a_database_is_told_what_it_takes(shared: Path) -> None:
    async with SqliteStore(shared / "store.db") as store:
        await store.append(KEY, numbered(0, 2))
    with anyio.fail_after(20), only_reading(shared):
        with pytest.raises(StoreError, match="may not write to it, or to its folder") as caught:
            await SqliteStore(shared / "store.db").load(KEY)
        assert not caught.value.retryable
        assert [path.name for path in shared.iterdir()] == ["store.db"]

"""A disk without room is told, loses nothing, and works again when there is room."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from outrider.errors import StoreError
from tests.transcripts.stores.local import KEY, LOCAL, Make, numbered

pytestmark = pytest.mark.anyio


@pytest.fixture
def small(tmp_path: Path) -> Iterator[Path]:
    """A file system of two megabytes."""
    place = tmp_path / "small"
    place.mkdir()
    try:
        done = subprocess.run(
            ["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", str(place)], capture_output=True, check=False
        )
    except FileNotFoundError:
        pytest.skip("there is no `mount`: a full disk cannot be shown")
    if done.returncode:
        pytest.skip("no file system can be mounted here: a full disk cannot be shown (run it as root)")
    yield place
    subprocess.run(["umount", "--lazy", str(place)], check=True)


@LOCAL
async def test_a_full_disk(make: Make, small: Path) -> None:
    other, store = small / "other", make(small)
    async with store:
        await store.append_batch(KEY, numbered(0, 3), "first")
        with other.open("wb", buffering=0) as file:
            fill(file.write)
        sent = 3

        async def send() -> None:
            await store.append_batch(KEY, numbered(sent, 100), f"from {sent}")

        async def send_all() -> None:
            nonlocal sent
            # What little is left may do for some.
            while sent < 3000:
                await send()
                sent += 100

        with pytest.raises(StoreError) as caught:
            await send_all()
        assert "no space left" in str(caught.value)
        assert caught.value.retryable
        assert caught.value.operation == "append_batch"
        assert await store.load(KEY) == numbered(0, sent)
        with pytest.raises(StoreError):
            await send()
        other.unlink()
        await send()
        await store.append_batch(KEY, numbered(0, 3), "first")
        assert await store.load(KEY) == numbered(0, sent + 100)
        [listed] = await store.list_sessions("p")
    # Also to who did not see it.
    async with make(small) as again:
        assert await again.load(KEY) == numbered(0, sent + 100)
        assert await again.list_sessions("p") == [listed]


@LOCAL
async def test_a_disk_that_is_full_from_the_beginning(make: Make, small: Path) -> None:
    other = small / "other"
    with other.open("wb", buffering=0) as file:
        fill(file.write)
    async with make(small) as store:
        with pytest.raises(StoreError):
            await store.append(KEY, numbered(0, 1))
        other.unlink()
        await store.append(KEY, numbered(0, 1))
        assert await store.load(KEY) == numbered(0, 1)


def fill(write: object) -> None:
    size = 1 << 16
    while size:
        try:
            write(b"x" * size)  # type: ignore[operator]  # pyright: ignore[reportCallIssue]
        except OSError:
            size //= 2

"""A clock that is put back or forward: nothing is locked for longer than it was meant to be, or lost."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeAlias

import anyio
import pytest

from outrider.errors import LeaseLost, SessionBusy
from outrider.fleet import Clock, Gate
from outrider.transcripts import FileStore, SessionKey, SqliteStore
from outrider.transcripts.stores import _base as _records
from tests.transcripts.stores.remote import REMOTES, Remote, make_key

Store: TypeAlias = FileStore | SqliteStore
Make: TypeAlias = Callable[[], Store]

KEY: SessionKey = {"project_key": "p", "session_id": "5e551011-0000-4000-8000-000000000002"}
DAY = 86_400.0

pytestmark = pytest.mark.anyio


@pytest.fixture(params=[FileStore, SqliteStore])
def make(request: pytest.FixtureRequest, tmp_path: Path) -> Make:
    """Makes stores in one place, each as another process would have it."""
    return lambda: request.param(tmp_path / "kept")


@pytest.fixture
def shift(monkeypatch: pytest.MonkeyPatch) -> Callable[[float], None]:
    """Puts the clock of this machine forward, or back."""
    clock = time.time

    def change(seconds: float) -> None:
        monkeypatch.setattr(time, "time", lambda: clock() + seconds)

    return change


@pytest.fixture
def elsewhere(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """As if this were another machine, or the same after it was started anew."""

    def change(name: str) -> None:
        monkeypatch.setattr(_records, "boot", lambda: name)

    return change


@pytest.mark.parametrize("change", [-DAY, -1.0, 1.0, DAY])
async def test_a_lease_is_held_and_runs_out_whatever_is_done_to_the_clock(
    make: Make, shift: Callable[[float], None], change: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with make() as one, make() as other:
        token = await one.acquire_lease(KEY, "one", 30)
        shift(change)
        with pytest.raises(SessionBusy) as raised:
            await other.acquire_lease(KEY, "other", 30)
        assert 0 < (raised.value.retry_after or 0) <= 30
        with pytest.raises(SessionBusy):
            await other.append(KEY, [{"type": "user"}])
        # And so it is after as many seconds.
        up = _records.up
        monkeypatch.setattr(_records, "up", lambda: up() + 31)
        await other.acquire_lease(KEY, "other", 30)
        with pytest.raises(LeaseLost):
            await one.renew_lease(KEY, token, 30)


async def test_a_lease_of_another_machine_does_not_outlast_a_clock_that_was_put_back(
    make: Make, shift: Callable[[float], None], elsewhere: Callable[[str], None]
) -> None:
    """Its length is known: so long nobody was given it."""
    elsewhere("one")
    async with make() as one, make() as other:
        token = await one.acquire_lease(KEY, "one", 30)
        elsewhere("other")
        with pytest.raises(SessionBusy):
            await other.acquire_lease(KEY, "other", 30)
        # A little more or less is usual between machines.
        shift(-20)
        with pytest.raises(SessionBusy) as raised:
            await other.acquire_lease(KEY, "other", 30)
        assert 30 < (raised.value.retry_after or 0) <= 60
        shift(-DAY)
        # Whoever has it renews it, by the clock as it is now.
        elsewhere("one")
        await one.renew_lease(KEY, token, 30)
        elsewhere("other")
        with pytest.raises(SessionBusy):
            await other.acquire_lease(KEY, "other", 30)
        shift(-2 * DAY)
        await other.acquire_lease(KEY, "other", 30)


@pytest.mark.parametrize(
    "remote", [REMOTES[name] for name in ("postgres", "redis", "s3")], ids=lambda remote: remote.name
)
@pytest.mark.parametrize("change", [-600.0, 600.0])
async def test_where_there_is_a_server_its_clock_counts(
    remote: Remote, shift: Callable[[float], None], change: float
) -> None:
    """However long a store was open before the clock of its machine was changed, and though there is nothing
    of the session yet. It is told in whole seconds, where it is told beside an answer."""
    async with remote.make() as one, remote.make() as other:
        for store in (one, other):
            await store.append(make_key(), [{"type": "user"}])
        key = make_key()
        shift(change)
        await one.acquire_lease(key, "one", 30)
        shift(0)
        with pytest.raises(SessionBusy) as raised:
            await other.acquire_lease(key, "other", 30)
        assert 15 < (raised.value.retry_after or 0) <= 33


async def test_a_lease_of_an_older_version_is_understood(
    make: Make, elsewhere: Callable[[str], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has nothing but its end."""
    with monkeypatch.context() as patched:
        patched.setattr(
            _records.LeaseTime,
            "of",
            lambda seconds: _records.LeaseTime(time.time() + seconds),
        )
        async with make() as one:
            await one.acquire_lease(KEY, "one", 30)
    async with make() as other:
        with pytest.raises(SessionBusy):
            await other.acquire_lease(KEY, "other", 30)


async def test_a_gate_opens_in_time_when_the_clock_is_put_back() -> None:
    class Shifted(Clock):
        wall, evenly = 1_000_000.0, 5.0

        def time(self) -> float:
            return self.wall

        def elapsed(self) -> float:
            return self.evenly

        async def sleep(self, seconds: float) -> None:
            slept.append(seconds)
            self.evenly += seconds
            await anyio.lowlevel.checkpoint()

    slept: list[float] = []
    clock = Shifted()
    gate = Gate(jitter=0, clock=clock)
    await gate.pause(clock.wall + 60)
    clock.wall -= DAY
    assert 60 <= (gate.opens_at or 0) - clock.wall < 62
    with anyio.fail_after(10):
        await gate.wait()
    assert sum(slept) < 62
    assert gate.is_open

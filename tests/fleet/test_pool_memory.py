"""Pools whose processes grow: nothing is started past the limit, and what does not work has to go."""

from __future__ import annotations

import anyio
import pytest

from outrider.fleet import QueueTimedOut
from outrider.session import Session
from outrider.testing import Simulator
from tests.fleet.pool_agents import Agents, agents, anyio_backend, pooled, until
from tests.transports.conftest import own_processes

__all__ = ["agents", "anyio_backend"]

pytestmark = pytest.mark.anyio

MIB = 1024 * 1024


async def test_a_session_tells_the_memory_of_its_tree(agents: Agents) -> None:
    session = Session(agents.options())
    assert session.resident_bytes() is None
    with anyio.fail_after(20):
        async with session:
            before = session.resident_bytes()
            await session.ask("grow 40")
            after = session.resident_bytes()
            assert before is not None
            assert after is not None
            assert after - before > 40 * MIB
        assert session.resident_bytes() == 0
        async with Session(transport=Simulator()) as simulated:
            assert simulated.resident_bytes() is None


async def test_nothing_is_started_past_the_limit(agents: Agents) -> None:
    async with pooled(agents, warm=0, max_processes=8, max_memory="170MiB") as pool:
        sessions: list[Session] = []
        for _ in range(2):
            sessions.append(await pool.acquire())
            await sessions[-1].ask("grow 40")
        await until(lambda: (pool.stats().memory or 0) > 100 * MIB)
        # Two of 60 MiB, and the third would come to that as well.
        with pytest.raises(QueueTimedOut):
            await pool.acquire(timeout=0.5)
        total = sum(session.resident_bytes() or 0 for session in sessions)
        assert 90 * MIB < total <= 170 * MIB
        assert len(own_processes()) == 2 * len(sessions)  # each with the child that has grown
        await pool.release(sessions.pop())
        # As soon as there is room again.
        sessions.append(await pool.acquire(timeout=20))
        stats = pool.stats()
        assert stats.memory is not None
        assert stats.max_memory == 170 * MIB
        assert stats.memory <= 170 * MIB
        for session in sessions:
            await pool.release(session)


async def test_warm_ones_go_when_others_grow_and_come_back(agents: Agents) -> None:
    async with pooled(agents, warm=2, max_processes=4, max_memory="150MiB") as pool:
        await pool.wait_warm()
        # Before one has been seen at work, it is taken to need more than these do.
        assert agents.started == 1
        session = await pool.acquire()
        await until(lambda: pool.stats().warm == 2)
        await session.ask("grow 150")
        await until(lambda: pool.stats().warm == 0 and pool.stats().processes == 1)
        assert pool.stats().evicted == 2
        # With those, it was too much before it had grown.
        await until(lambda: (pool.stats().memory or 0) > 150 * MIB)
        await pool.release(session)
        await until(lambda: pool.stats().warm >= 1)


async def test_a_session_that_has_grown_gets_a_new_process(agents: Agents) -> None:
    async with pooled(agents, warm=0, max_processes=4, max_process_memory="50MiB") as pool:
        session = pool.session()
        await session.ask("grow 60")
        await until(lambda: session.state == "parked" and pool.stats().recycled == 1)
        assert (await session.ask("more")).text == "grow 60 more"


async def test_idle_sessions_are_parked_when_others_grow(agents: Agents) -> None:
    async with pooled(agents, warm=0, max_processes=4, max_memory="150MiB", park_after=None) as pool:
        idle = pool.session()
        await idle.ask("grow 60")
        async with pool.lease() as session:
            await session.ask("grow 100")
            await until(lambda: idle.state == "parked")
        assert (await idle.ask("more")).text == "grow 60 more"

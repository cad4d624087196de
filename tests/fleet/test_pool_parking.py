"""Many resilient sessions on few processes: parked when others need the slot, and back with what was said."""

from __future__ import annotations

import gc
import os
import signal

import anyio
import pytest

from outrider.errors import TurnFailed
from outrider.fleet import Pool, PoolClosed, QueueFull, QueueTimedOut, ResilientSession
from outrider.testing import RealAgent, say
from tests.fleet.pool_agents import Agents, agents, anyio_backend, nobody_left, pooled, until
from tests.real_program import require_program
from tests.transports.conftest import own_processes

__all__ = ["agents", "anyio_backend"]

pytestmark = pytest.mark.anyio

BOTH = pytest.mark.parametrize("anyio_backend", ["asyncio", "trio"])


@BOTH
async def test_many_sessions_share_few_processes(agents: Agents) -> None:
    async def ask(session: ResilientSession, prompt: str, heard: str) -> None:
        assert (await session.ask(prompt)).text == heard

    async with pooled(agents, warm=1, max_processes=2) as pool:
        sessions = {name: pool.session(tenant=name) for name in "abcd"}
        for heard in ("{0}", "{0} {0}"):
            async with anyio.create_task_group() as tasks:
                for name, session in sessions.items():
                    tasks.start_soon(ask, session, name, heard.format(name))
            assert pool.stats().parked >= 2
    assert agents.most_at_once <= 2
    # All but two in the first round, in the second each but perhaps two, and two at the end.
    assert pool.stats().parkings >= 6
    assert {session.state for session in sessions.values()} == {"parked"}


async def test_the_one_that_was_idle_for_longest_makes_room(agents: Agents) -> None:
    async with pooled(agents, warm=0, max_processes=2, park_after=None) as pool:
        first, second, third = (pool.session() for _ in range(3))
        await first.ask("one")
        await second.ask("two")
        assert (pool.stats().idle, pool.stats().busy) == (2, 0)
        await third.ask("three")
        assert [session.state for session in (first, second, third)] == ["parked", "idle", "idle"]
        assert pool.stats().parked == 1
        assert (await first.ask("more")).text == "one more"
        assert [session.state for session in (first, second, third)] == ["idle", "parked", "idle"]


async def test_one_that_works_is_not_parked(agents: Agents) -> None:
    async with pooled(agents, warm=0, max_processes=1, queue_seconds=0.3, park_after=0) as pool:
        session = pool.session()
        turn = await session.send("wait")
        await until(lambda: pool.stats().busy == 1)
        with pytest.raises(QueueTimedOut):
            await pool.acquire()
        with pytest.raises(QueueTimedOut):
            await pool.session().ask("me too")
        agents.set("go")
        assert (await turn.result()).text == "wait"
        async with pool.lease(timeout=20):
            assert session.state == "parked"


@BOTH
@pytest.mark.parametrize("waits_in, processes", [("lease", 1), ("session", 1), ("session", 2)])
async def test_sessions_that_send_without_a_pause_delay_another_tenant_by_one_turn_each(
    agents: Agents, waits_in: str, processes: int
) -> None:
    begun: list[str] = []
    is_served = False

    async def send_on_and_on(session: ResilientSession) -> None:
        while not is_served:
            turn = await session.send("more")
            stats = pool.stats()
            # Once a process is being ended for the other tenant, the rest may go on.
            is_made_room = stats.closing or any(one.is_parking for one in pool._scheduler.starters)
            begun.append("unfair" if stats.waiting.get("b") and not is_made_room else "fair")
            await turn.result()

    async with pooled(agents, warm=0, max_processes=processes, park_after=None) as pool:
        first, second = pool.session(tenant="a"), pool.session(tenant="a")
        for _ in range(3):
            is_served = False
            begun.clear()
            async with anyio.create_task_group() as tasks:
                for session in (first, second):
                    tasks.start_soon(send_on_and_on, session)
                await until(lambda: len(begun) > 4)
                if waits_in == "lease":
                    async with pool.lease(tenant="b"):
                        is_served = True
                else:
                    other = pool.session(tenant="b")
                    await other.ask("me too")
                    is_served = True
                    await other.close()
            assert begun.count("unfair") <= processes


async def test_a_session_keeps_its_process_if_nobody_waits(agents: Agents) -> None:
    async with pooled(agents, warm=0, max_processes=1, park_after=None) as pool:
        session = pool.session()
        for _ in range(4):
            await session.ask("more")
        assert (agents.started, pool.stats().parkings) == (1, 0)


async def test_a_full_queue_is_an_error_of_send_itself(agents: Agents) -> None:
    async with pooled(agents, warm=0, max_processes=1, queue_limit=0) as pool:
        first, second = pool.session(), pool.session()
        turn = await first.send("wait")
        with pytest.raises(QueueFull, match="nobody may wait"):
            await second.send("me too")
        assert second.state == "new"
        agents.set("go")
        assert (await turn.result()).text == "wait"
        await first.close()
        assert (await second.ask("now")).text == "now"


async def test_idle_ones_are_parked_in_time(agents: Agents) -> None:
    async with pooled(agents, warm=0, max_processes=4, park_after=0.1) as pool:
        session = pool.session()
        await session.ask("one")
        await until(lambda: session.state == "parked" and pool.stats().processes == 0)
        assert own_processes() == []
        assert (await session.ask("two")).text == "one two"


async def test_a_process_is_exchanged_after_its_turns(agents: Agents) -> None:
    async with pooled(agents, warm=0, max_processes=4, max_turns=2) as pool:
        session = pool.session()
        await session.ask("one")
        before = own_processes()
        await session.ask("two")
        await until(lambda: pool.stats().recycled == 1 and session.state == "parked")
        assert (await session.ask("three")).text == "one two three"
        assert before != own_processes()


@BOTH
async def test_a_session_whose_process_dies_gets_another_within_the_limit(agents: Agents) -> None:
    async with pooled(agents, warm=0, max_processes=1) as pool:
        session = pool.session()
        await session.ask("one")
        turn = await session.send("wait")
        await until(lambda: any("wait" in path.read_text() for path in agents.folder.glob("session-*")))
        (pid,) = own_processes()
        os.kill(pid, signal.SIGKILL)
        # Only now: else it may answer before it dies.
        agents.set("go")
        assert (await turn.result()).text.startswith("one wait")
        assert (agents.started, agents.most_at_once) == (2, 1)
        # Between turns nobody notices.
        (pid,) = own_processes()
        os.kill(pid, signal.SIGKILL)
        await until(lambda: pool.stats().processes == 0)
        assert (await session.ask("again")).text.endswith("again")


@BOTH
async def test_the_end_waits_for_running_turns(agents: Agents) -> None:
    with anyio.fail_after(40):
        pool = Pool(agents.options(), warm=1, max_processes=2)
        await pool.open()
        busy, idle = pool.session(), pool.session()
        await idle.ask("one")
        turn = await busy.send("wait")
        await until(lambda: pool.stats().busy == 1)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(pool.close)
            await until(lambda: idle.state == "parked")
            assert not turn.is_over
            agents.set("go")
        assert (await turn.result()).text == "wait"
        assert own_processes() == []
        with pytest.raises(PoolClosed):
            await busy.ask("too late")
        await busy.close()


@BOTH
async def test_an_end_that_is_cancelled_ends_running_turns(agents: Agents) -> None:
    with anyio.fail_after(40):
        pool = Pool(agents.options(), warm=1, max_processes=2)
        await pool.open()
        session = pool.session()
        turn = await session.send("wait")
        await until(lambda: pool.stats().busy == 1)
        with anyio.move_on_after(0.05):
            await pool.close()
        await nobody_left()
        result = await turn.result(check=False)
        assert result.error is not None
        assert not isinstance(result.error, TurnFailed)


async def test_what_nobody_has_any_more_gives_up_its_place(agents: Agents) -> None:
    async with pooled(agents, warm=0, max_processes=1) as pool:
        session: ResilientSession | None = pool.session()
        assert session is not None
        await session.ask("one")
        session = None
        gc.collect()
        async with pool.lease():
            pass


async def test_a_resilient_session_may_be_given_a_pool(agents: Agents) -> None:
    async with pooled(agents, warm=1, max_processes=1) as pool:
        await pool.wait_warm()
        async with ResilientSession(agents.options(), starter=pool) as session:
            assert (await session.ask("one")).text == "one"
            await session.park()
            assert (await session.ask("two")).text == "one two"
        assert pool.stats().hits == 1


@pytest.mark.real
@pytest.mark.outrider_real
async def test_the_real_program_comes_back_with_what_was_said() -> None:
    with RealAgent([say("Hello."), say("Other."), say("Ada.")], program=require_program()) as agent:
        with anyio.fail_after(50):
            async with Pool(agent.options(), warm=1, max_processes=1) as pool:
                await pool.wait_warm()
                first, second = pool.session(), pool.session()
                assert (await first.ask("My name is Ada.")).text == "Hello."
                assert pool.stats().hits == 1
                assert (await second.ask("Something else.")).text == "Other."
                assert (first.state, second.state) == ("parked", "idle")
                assert (await first.ask("What is my name?")).text == "Ada."
            assert own_processes() == []
        asked = str(agent.api.main_requests[2].messages)
        assert "My name is Ada." in asked
        assert "Something else." not in asked

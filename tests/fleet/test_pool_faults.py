"""Pools under which something gives way: starts that hang, programs that are missing, calls that are
cancelled at any moment, figures that are wrong, and event loops that end."""

from __future__ import annotations

import asyncio
import os
import signal
from contextlib import suppress
from typing import Any, cast

import anyio
import pytest
from anyio import to_thread

from outrider.errors import AgentNotFound, UsageError
from outrider.fleet import Pool, ResilientSession
from outrider.options import Options
from outrider.testing import Simulator
from tests.fleet.pool_agents import Agents, agents, anyio_backend, nobody_left, pooled, until
from tests.transports.conftest import own_processes

__all__ = ["agents", "anyio_backend"]

pytestmark = pytest.mark.anyio

MIB = 1024 * 1024


# Opening and closing.


async def test_an_opening_that_is_cancelled_at_any_moment_leaves_nothing(agents: Agents) -> None:
    async def enter(pool: Pool) -> None:
        async with pool:
            await anyio.sleep_forever()

    with anyio.fail_after(40):
        for steps in range(8):
            pool = Pool(agents.options(), warm=1, max_processes=1)
            task = asyncio.create_task(enter(pool))
            for _ in range(steps):
                await asyncio.sleep(0)
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task
            # Does not wait for what was never begun.
            await pool.close()
            await nobody_left()
            assert pool.stats().processes == 0


async def test_an_opening_that_was_cancelled_can_be_repeated(agents: Agents) -> None:
    pool = Pool(agents.options(), warm=0, max_processes=1)
    with anyio.CancelScope() as scope:
        scope.cancel()
        await pool.open()
    with anyio.fail_after(20):
        await pool.open()
        assert (await pool.run("one")).text == "one"
        await pool.close()


async def test_a_start_that_hangs_delays_no_end(agents: Agents) -> None:
    agents.set("slow")
    async with pooled(agents, options=agents.options(), warm=1, max_processes=1):
        await until(lambda: agents.started == 1)
    assert (agents.folder / "slow").exists()


def test_an_event_loop_may_end_under_an_open_pool(agents: Agents) -> None:
    async def hold(pool: Pool, seconds: float) -> None:
        async with pool.lease():
            try:
                await anyio.sleep_forever()
            finally:
                # The pool may be gone before it is released.
                await asyncio.sleep(seconds)

    async def use() -> list[asyncio.Task[None]]:
        pool = Pool(agents.options(), warm=1, max_processes=3)
        await pool.open()
        tasks = [asyncio.create_task(hold(pool, seconds)) for seconds in (0, 0.3)]
        await until(lambda: pool.stats().busy == 2)
        return tasks

    tasks = asyncio.run(use())
    assert all(task.cancelled() for task in tasks)
    anyio.run(nobody_left)


async def test_a_pool_of_another_loop_or_of_none_is_refused(agents: Agents) -> None:
    def elsewhere(function: Any, *arguments: object) -> None:
        with pytest.raises(UsageError, match="another event loop"):
            anyio.run(function, *arguments)

    pool = Pool(agents.options(), warm=0, max_processes=1)
    with pytest.raises(UsageError, match="not open"):
        await pool.session().ask("one")
    with anyio.fail_after(30):
        async with pool:
            session = await pool.acquire()
            for call in (pool.open, pool.close, pool.wait_warm, pool.session().connect):
                await to_thread.run_sync(elsewhere, call)
            await to_thread.run_sync(elsewhere, pool.release, session)
            for wrong in (None, pool.session()):
                with pytest.raises(UsageError, match="close a resilient session"):
                    await pool.release(cast("Any", wrong))
            await pool.release(session)


# Starting.


async def test_a_missing_program_is_told_and_not_looked_for_all_the_time() -> None:
    with anyio.fail_after(30):
        async with Pool(Options(cli_path="/nowhere/claude"), warm=4, max_processes=8) as pool:
            with pytest.raises(AgentNotFound, match="/nowhere/claude"):
                await pool.wait_warm()
            with pytest.raises(AgentNotFound, match="/nowhere/claude"):
                await pool.acquire()
            # Four that fail together are one failure, and then one alone is tried.
            await until(lambda: pool.stats().failed > 5)
            assert pool.stats().failed == 6
            assert pool.stats().processes == 0


async def test_a_start_that_nobody_else_can_use_ends_with_its_caller(agents: Agents) -> None:
    async with pooled(agents, warm=1, max_processes=2) as pool:
        await pool.wait_warm()
        agents.set("slow")
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(pool.acquire, agents.options(model="opus"))
            await until(lambda: agents.started == 2)
            # What others start is no reason to wait.
            await pool.wait_warm()
            tasks.cancel_scope.cancel()
        await until(lambda: pool.stats().processes == 1)
        assert (agents.folder / "slow").exists()


async def test_a_start_that_hangs_keeps_no_room_from_others(agents: Agents) -> None:
    one, other = agents.options(model="opus"), agents.options(model="haiku")
    async with pooled(agents, options=[one, other], warm=1, max_processes=2) as pool:
        await pool.wait_warm()
        agents.set("slow")
        os.kill(own_processes()[0], signal.SIGKILL)
        await until(lambda: agents.started == 3)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(pool.run, "three", agents.options(model="sonnet"))
            await until(lambda: pool.stats().evicted == 1)
            (agents.folder / "slow").unlink()


# Memory.


async def test_what_has_too_much_memory_from_the_start_is_not_exchanged_for_its_like(agents: Agents) -> None:
    """Exchanged, it would be started again and again."""
    async with pooled(agents, warm=2, max_processes=2, max_memory=MIB, max_process_memory=MIB) as pool:
        await until(lambda: (pool.stats().memory or 0) > MIB)
        await pool.wait_warm()
        stats = pool.stats()
        assert (stats.warm, stats.evicted, stats.recycled, agents.started) == (1, 0, 0, 1)


async def test_figures_that_cannot_be_had_harm_nobody(agents: Agents) -> None:
    class Broken(Simulator):
        def resident_bytes(self) -> int:
            raise OSError("no figures here")

    async with (
        pooled(agents, warm=0, max_processes=4, max_memory="1GiB") as pool,
        pool.lease(Options(transport=Broken())),
        # There is room, which takes a measurement to know, and no waiting.
        pool.lease(timeout=0) as session,
    ):
        assert (await session.ask("one")).text == "one"


# Cancelled anywhere.


async def test_calls_that_are_cancelled_anywhere_leave_the_limit_as_it_is(agents: Agents) -> None:
    """By `Task.cancel`, which heeds no scope and no shield."""

    async def use(pool: Pool, session: ResilientSession, number: int) -> None:
        if number % 2:
            await session.ask("one")
        else:
            async with pool.lease():
                pass

    async with pooled(agents, warm=1, max_processes=2, park_after=0) as pool:
        session = pool.session()
        tasks = [asyncio.create_task(use(pool, session, number)) for number in range(24)]
        for number, task in enumerate(tasks):
            for _ in range(number):
                await asyncio.sleep(0)
            if number % 3:
                task.cancel()
        outcomes = await asyncio.gather(*tasks, return_exceptions=True)
        assert [each for each in outcomes if isinstance(each, Exception)] == []
        assert outcomes.count(None) >= 8
        await until(lambda: pool.stats().busy == 0)
    assert agents.most_at_once <= 2

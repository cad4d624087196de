"""Pools of real processes: what is ready, how many there may be, who is served, and that none is left."""

from __future__ import annotations

import os
import random
import signal
from typing import Any, cast

import anyio
import pytest
from anyio import to_thread

from outrider.errors import OptionsError, ProcessExited, UsageError
from outrider.fleet import Pool, PoolClosed, QueueFull, QueueTimedOut
from outrider.session import Session, SessionState
from tests.fleet.pool_agents import Agents, agents, anyio_backend, nobody_left, pooled, until
from tests.transports.conftest import own_processes

__all__ = ["agents", "anyio_backend"]

pytestmark = pytest.mark.anyio

BOTH = pytest.mark.parametrize("anyio_backend", ["asyncio", "trio"])
"""For what depends on how tasks are cancelled and scheduled."""


# Ready.


@BOTH
async def test_what_is_ready_is_handed_out_without_a_start(agents: Agents) -> None:
    async with pooled(agents, warm=2, max_processes=2) as pool:
        await pool.wait_warm()
        assert (agents.started, pool.stats().warm) == (2, 2)
        first, second = await pool.acquire(), await pool.acquire()
        assert agents.started == 2
        assert first.pid != second.pid
        assert (await first.ask("hello")).text == "hello"
        stats = pool.stats()
        assert (stats.hits, stats.misses, stats.busy, stats.warm) == (2, 0, 2, 0)
        await pool.release(first)
        await pool.wait_warm()
        # Its slot is filled again, with a process that has heard nothing.
        third = await pool.acquire()
        assert (await third.ask("who?")).text == "who?"
        assert (agents.started, pool.stats().hits) == (3, 3)
        assert third.pid != first.pid
        await pool.release(second)
        await pool.release(third)


async def test_each_of_several_options_has_processes_ready(agents: Agents) -> None:
    opus, haiku = agents.options(model="opus"), agents.options(model="haiku")
    async with pooled(agents, options=[opus, haiku], warm=1, max_processes=3) as pool:
        await pool.wait_warm()
        async with pool.lease(haiku) as one, pool.lease() as two:
            assert (one.options, two.options) == (haiku, opus)
            assert pool.stats().hits == 2
            async with pool.lease(agents.options(model="sonnet")) as three:
                assert three.options.model == "sonnet"
            assert (pool.stats().hits, pool.stats().misses) == (2, 1)
    assert agents.most_at_once <= 3


async def test_one_prompt_in_a_session_of_its_own(agents: Agents) -> None:
    async with pooled(agents, warm=1, max_processes=1) as pool:
        assert [(await pool.run(prompt)).text for prompt in ("one", "two")] == ["one", "two"]


async def test_a_process_that_died_is_not_handed_out_but_replaced(agents: Agents) -> None:
    async with pooled(agents, warm=2, max_processes=3) as pool:
        await pool.wait_warm()
        before = own_processes()
        for pid in before:
            os.kill(pid, signal.SIGKILL)
        await until(lambda: pool.stats().replaced == 2)
        await pool.wait_warm()
        assert not {*before} & {*own_processes()}
        async with pool.lease() as session:
            assert (await session.ask("alive")).text == "alive"


async def test_a_process_that_does_not_answer_is_replaced(agents: Agents) -> None:
    agents.set("deaf")
    async with pooled(agents, warm=1, max_processes=1, health_seconds=0.3) as pool:
        await pool.wait_warm()
        before = own_processes()
        await until(lambda: pool.stats().replaced >= 1)
        (agents.folder / "deaf").unlink()
        await until(lambda: pool.stats().warm == 1 and own_processes() != before)


async def test_a_process_that_is_too_old_is_exchanged(agents: Agents) -> None:
    async with pooled(agents, warm=1, max_processes=1, max_age=0.2) as pool:
        await until(lambda: pool.stats().recycled >= 1 and agents.started >= 2)


# Never too many.


@pytest.mark.parametrize("anyio_backend, count", [("asyncio", 200), ("trio", 28)])
async def test_there_are_never_more_than_may_be(agents: Agents, count: int) -> None:
    """Many at once, of which some fail to start, some are cancelled, and half will not wait for long."""
    agents.set("every", "7")
    chance = random.Random(1)
    ended: list[str] = []

    async def use(pool: Pool, number: int) -> None:
        with anyio.CancelScope() as scope:
            if number % 5 == 0:
                scope.deadline = anyio.current_time() + chance.random() / 4
            patience = chance.random() if number % 2 else None
            try:
                session = await pool.acquire(tenant=str(number % 3), timeout=patience)
            except ProcessExited:
                ended.append("failed")
                return
            except QueueTimedOut:
                ended.append("late")
                return
            # Each of them looks from within, too.
            assert number % 10 or len(own_processes()) <= 6
            await pool.release(session)
            ended.append("served")
        if scope.cancelled_caught:
            ended.append("cancelled")

    async with pooled(agents, warm=2, max_processes=6) as pool, anyio.create_task_group() as tasks:
        for number in range(count):
            tasks.start_soon(use, pool, number)
    assert len(ended) == count
    assert ended.count("served") >= count // 4
    assert ended.count("failed") > 0
    assert ended.count("cancelled") > 0
    assert 2 <= agents.most_at_once <= 6
    stats = pool.stats()
    assert stats.hits + stats.misses <= count
    assert stats.started + stats.failed == agents.started


@BOTH
async def test_a_start_that_nobody_waits_for_any_more_serves_the_next(agents: Agents) -> None:
    served: list[str] = []

    async def use(pool: Pool) -> None:
        async with pool.lease():
            served.append("next")

    agents.set("slow")
    async with pooled(agents, warm=0, max_processes=1) as pool, anyio.create_task_group() as tasks:
        async with anyio.create_task_group() as cancelled:
            cancelled.start_soon(pool.acquire)
            await until(lambda: agents.started == 1)
            tasks.start_soon(use, pool)
            await until(lambda: pool.stats().waiting == {"": 1})
            cancelled.cancel_scope.cancel()
        (agents.folder / "slow").unlink()
    assert (served, agents.started, pool.stats().hits) == (["next"], 1, 1)


async def test_a_start_that_fails_is_told_and_its_place_is_free(agents: Agents) -> None:
    agents.set("every", "1")
    async with pooled(agents, warm=1, max_processes=1) as pool:
        with pytest.raises(ProcessExited, match="not this time"):
            await pool.wait_warm()
        with pytest.raises(ProcessExited, match="not this time"):
            await pool.acquire()
        agents.set("every", "1000")
        async with pool.lease() as session:
            assert (await session.ask("now")).text == "now"
        assert pool.stats().failed == 2
        # It is tried again by itself.
        await until(lambda: pool.stats().warm == 1)


async def test_warm_ones_make_room_for_others(agents: Agents) -> None:
    async with pooled(agents, warm=2, max_processes=2) as pool:
        await pool.wait_warm()
        async with pool.lease(agents.options(model="opus")) as session:
            assert session.options.model == "opus"
            assert pool.stats().evicted == 1
    assert agents.most_at_once == 2


# Who is served.


@BOTH
async def test_tenants_are_served_in_turn(agents: Agents) -> None:
    served: list[str] = []

    async def use(pool: Pool, tenant: str) -> None:
        async with pool.lease(tenant=tenant):
            served.append(tenant)

    async with pooled(agents, warm=0, max_processes=1) as pool:
        async with anyio.create_task_group() as tasks, pool.lease():
            for tenant in "aaabbc":
                tasks.start_soon(use, pool, tenant)
            await until(lambda: sum(pool.stats().waiting.values()) == 6)
            assert pool.stats().waiting == {"a": 3, "b": 2, "c": 1}
        assert sorted(served[:3]) == ["a", "b", "c"]
        assert sorted(served[3:5]) == ["a", "b"]
        assert served[5:] == ["a"]
        assert pool.stats().waits == 6
        assert pool.stats().waited_seconds > 0


async def test_a_full_queue_sends_away_and_a_deadline_ends_the_waiting(agents: Agents) -> None:
    async with pooled(agents, warm=0, max_processes=1, queue_limit=1, queue_seconds=30) as pool:
        async with pool.lease(tenant="ada"), anyio.create_task_group() as tasks:
            tasks.start_soon(pool.acquire, None)
            await until(lambda: pool.stats().waiting == {"": 1})
            with pytest.raises(QueueFull, match="1 caller already waits for a process") as full:
                await pool.acquire()
            assert (full.value.limit, full.value.tenant) == (1, "")
            # Others have a queue of their own.
            with pytest.raises(QueueTimedOut, match=r"'ada' within 0\.05 s") as late:
                await pool.acquire(tenant="ada", timeout=0.05)
            assert (late.value.timeout, late.value.tenant) == (0.05, "ada")
            tasks.cancel_scope.cancel()
        assert pool.stats().turned_away == 2
        async with pool.lease():
            pass


async def test_with_no_queue_nobody_waits(agents: Agents) -> None:
    async with pooled(agents, warm=0, max_processes=1, queue_limit=0, max_memory="1TiB") as pool:
        async with pool.lease():
            with pytest.raises(QueueFull):
                await pool.acquire()
        async with pool.lease():
            pass


# The end.


@BOTH
async def test_the_end_waits_for_what_is_handed_out_and_for_nobody_else(agents: Agents) -> None:
    with anyio.fail_after(30):
        pool = Pool(agents.options(), warm=1, max_processes=2)
        await pool.open()
        session, other = await pool.acquire(), await pool.acquire()
        done: list[str] = []

        async def wait_in_vain() -> None:
            with pytest.raises(PoolClosed):
                await pool.acquire()
            done.append("waited")

        async def close() -> None:
            await pool.close()
            done.append("closed")

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(wait_in_vain)
            await until(lambda: pool.stats().waiting == {"": 1})
            tasks.start_soon(close)
            await until(lambda: done == ["waited"])
            with pytest.raises(PoolClosed):
                await pool.acquire()
            assert (await session.ask("still there")).text == "still there"
            await pool.release(session)
            assert done == ["waited"]
            # Closed by hand is as good as released.
            await other.close()
        assert done == ["waited", "closed"]
        assert own_processes() == []
        await pool.close()


@BOTH
@pytest.mark.parametrize("how", ["timeout", "no drain", "cancelled", "exception"])
async def test_an_end_that_does_not_wait_leaves_no_process(agents: Agents, how: str) -> None:
    with anyio.fail_after(30):
        pool = Pool(agents.options(), warm=2, max_processes=4)
        await pool.open()
        await pool.wait_warm()
        session = await pool.acquire()
        turn = await session.send("wait")
        with anyio.CancelScope() as scope:
            try:
                async with pool:
                    if how == "timeout":
                        await pool.close(timeout=0.05)
                    elif how == "no drain":
                        await pool.close(drain=False)
                    elif how == "cancelled":
                        scope.cancel()
                        await pool.close()
                    else:
                        raise LookupError
            except LookupError:
                assert how == "exception"
        await nobody_left()
        assert session.state is SessionState.CLOSED
        assert (await turn.result(check=False)).error is not None
        await until(lambda: pool.stats().processes == 0)


async def test_a_pool_is_used_as_it_should_be(agents: Agents) -> None:
    pool = Pool(agents.options(), warm=0)
    with pytest.raises(UsageError, match="not open"):
        await pool.acquire()
    with anyio.fail_after(30):
        async with pool:
            await pool.open()
            stranger = Session(agents.options())
            with pytest.raises(UsageError, match="not from this pool"):
                await pool.release(stranger)
            session = await pool.acquire()
            await pool.release(session)
            await pool.release(session)
            with pytest.raises(OptionsError, match="`timeout`"):
                await pool.acquire(timeout=-1)
            with pytest.raises(OptionsError, match="`options`"):
                await pool.acquire(cast("Any", "opus"))
            with pytest.raises(OptionsError, match="`tenant`"):
                await pool.acquire(tenant=cast("Any", 7))
        with pytest.raises(PoolClosed):
            await pool.open()
        closed = Pool(agents.options())
        await closed.close()
        with pytest.raises(PoolClosed):
            await closed.open()
    assert own_processes() == []


def test_a_pool_may_be_made_before_there_is_a_loop_and_belongs_to_one(agents: Agents) -> None:
    pool = Pool(agents.options(), warm=0, max_processes=1)

    async def use() -> str:
        with anyio.fail_after(30):
            async with pool:
                with pytest.raises(UsageError, match="another event loop"):
                    await to_thread.run_sync(lambda: anyio.run(pool.acquire))
                return (await pool.run("one")).text

    assert anyio.run(use) == "one"
    assert own_processes() == []

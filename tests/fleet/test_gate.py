"""A gate lets sessions through, or makes all of an account wait, and then lets them go on one by one."""

from __future__ import annotations

import asyncio
from typing import Any

import anyio
import anyio.lowlevel
import pytest

from outrider.errors import OptionsError
from outrider.fleet import Clock, Gate
from tests.fleet.resilient import NOW, FakeClock, until

pytestmark = pytest.mark.anyio


async def test_an_open_gate_lets_everybody_through_at_once() -> None:
    clock = FakeClock()
    gate = Gate(clock=clock, name="team")
    assert gate.is_open
    assert (gate.opens_at, gate.why) == (None, None)
    await gate.wait()
    await gate.pause(NOW - 1, "long ago")
    await gate.wait()
    assert clock.slept == []
    assert repr(gate) == "<Gate team, open, 0 waiting>"


async def test_a_later_pause_extends_and_an_earlier_one_does_not_shorten() -> None:
    gate = Gate(clock=FakeClock())
    await gate.pause(NOW + 100, "the account's limit")
    await gate.pause(NOW + 50, "less")
    assert (gate.is_open, gate.opens_at, gate.why) == (False, NOW + 100, "the account's limit")
    await gate.pause(NOW + 200, "more")
    assert (gate.opens_at, gate.why) == (NOW + 200, "more")
    assert repr(gate) == f"<Gate, paused until {NOW + 200:.0f}, 0 waiting>"


async def test_those_that_waited_are_let_through_one_after_another() -> None:
    clock = FakeClock(is_held=True)
    gate = Gate(jitter=10.0, clock=clock)
    await gate.pause(NOW + 3600)
    passed: list[tuple[int, float]] = []

    async def come(number: int) -> None:
        await gate.wait()
        passed.append((number, clock.now - NOW))

    with anyio.fail_after(10):
        async with anyio.create_task_group() as tasks:
            for number in range(5):
                tasks.start_soon(come, number)
                await until(lambda: len(clock.slept) > number)  # noqa: B023 - used before it changes
            clock.advance(3599)
            await anyio.lowlevel.checkpoint()
            assert passed == []
            clock.advance(1)
            for number in range(5):
                await until(lambda: len(passed) == number + 1)  # noqa: B023
                clock.advance(2)
    assert passed == [(0, 3600.0), (1, 3602.0), (2, 3604.0), (3, 3606.0), (4, 3608.0)]


async def test_who_is_gone_already_does_not_move_the_others_up() -> None:
    gate = Gate(jitter=10.0, clock=FakeClock())
    gate._waiting = {number: anyio.CancelScope() for number in range(5)}
    delays: list[float] = []
    for number in range(5):
        delays.append(gate._delay(number))
        del gate._waiting[number]
    assert delays == [0.0, 2.0, 4.0, 6.0, 8.0]


async def test_who_is_let_through_first_and_meets_the_limit_again_keeps_the_others_waiting() -> None:
    clock = FakeClock(is_held=True)
    gate = Gate(jitter=10.0, clock=clock)
    await gate.pause(NOW + 60)
    passed: list[float] = []

    async def come() -> None:
        await gate.wait()
        passed.append(clock.now - NOW)

    with anyio.fail_after(10):
        async with anyio.create_task_group() as tasks:
            for _ in range(3):
                tasks.start_soon(come)
            await until(lambda: len(clock.slept) == 3)
            clock.advance(60)
            await until(lambda: len(clock.slept) == 6)
            await until(lambda: len(passed) == 1)
            await gate.pause(NOW + 1000, "again")
            clock.advance(11)
            await until(lambda: len(clock.slept) == 8)
            assert len(passed) == 1
            clock.advance(1000)
            await until(lambda: len(clock.slept) == 10)
            clock.advance(10)
    assert len(passed) == 3


async def test_opening_wakes_those_that_wait() -> None:
    clock = FakeClock(is_held=True)
    gate = Gate(jitter=0.0, clock=clock)
    await gate.pause(NOW + 3600, "limit")
    with anyio.fail_after(10):
        async with anyio.create_task_group() as tasks:
            for _ in range(100):
                tasks.start_soon(gate.wait)
            await until(lambda: len(clock.slept) == 100)
            await gate.open()
    assert (gate.is_open, gate.why) == (True, None)


async def test_a_waiter_that_is_cancelled_leaves_nothing_behind() -> None:
    clock = FakeClock(is_held=True)
    gate = Gate(clock=clock)
    await gate.pause(NOW + 3600)
    with anyio.move_on_after(0.01) as scope:
        await gate.wait()
    assert scope.cancelled_caught
    assert repr(gate).endswith("0 waiting>")


@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_a_bare_cancel_of_asyncio_leaves_nothing_behind() -> None:
    gate = Gate(clock=FakeClock(is_held=True))
    await gate.pause(NOW + 3600)
    task = asyncio.ensure_future(gate.wait())
    await asyncio.sleep(0.01)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert repr(gate).endswith("0 waiting>")


async def test_the_clock_on_the_wall_is_waited_for() -> None:
    gate = Gate(jitter=0.01)
    now = gate._clock.time()
    await gate.pause(now + 0.03)
    with anyio.fail_after(10):
        await gate.wait()
    assert gate._clock.time() >= now + 0.03


@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_a_clock_that_is_put_back_makes_no_wait_longer() -> None:
    class Back(Clock):
        now = NOW

        def time(self) -> float:
            self.now -= 3600
            return self.now

    with anyio.fail_after(10):
        await Back().sleep(0.01)


@pytest.mark.parametrize(
    "fields", [{"jitter": -1}, {"jitter": "1"}, {"jitter": float("inf")}, {"name": 1}], ids=str
)
@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_values_are_checked(fields: dict[str, Any]) -> None:
    with pytest.raises(OptionsError, match=f"`{next(iter(fields))}`"):
        Gate(**fields)
    with pytest.raises(OptionsError, match="`until`"):
        await Gate().pause(float("nan"))

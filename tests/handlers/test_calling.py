"""How the user's functions are called."""

from __future__ import annotations

import threading
from collections.abc import Awaitable, Callable, Generator
from contextvars import ContextVar
from functools import partial
from typing import Any

import anyio
import pytest

from outrider.handlers import CallContext, CallTimedOut, call
from outrider.handlers._calls import attempt, attempt_call, is_async
from tests.cases import every_case
from tests.handlers.hooking import Unlimited

pytestmark = pytest.mark.anyio

WHO: ContextVar[str] = ContextVar("WHO", default="nobody")


async def waiting(value: object) -> object:
    await anyio.lowlevel.checkpoint()
    return value


def plain(value: object) -> object:
    return value


def returns_a_coroutine(value: object) -> Awaitable[object]:
    return waiting(value)


class Oracle:
    async def __call__(self, value: object) -> object:
        return value

    async def method(self, value: object) -> object:
        return value

    def plain_method(self, value: object) -> object:
        return value


FUNCTIONS: list[tuple[str, Callable[..., object], bool]] = [
    ("async function", waiting, True),
    ("function", plain, False),
    ("function that gives a coroutine", returns_a_coroutine, False),
    ("object", Oracle(), True),
    ("async method", Oracle().method, True),
    ("method", Oracle().plain_method, False),
    ("partial of an async one", partial(partial(waiting)), True),
    ("partial", partial(plain), False),
    ("builtin", list, False),
]


@every_case("function, is_async_", [each[1:] for each in FUNCTIONS], ids=[each[0] for each in FUNCTIONS])
async def test_any_kind_of_function_is_called(function: Callable[..., object], is_async_: bool) -> None:
    assert is_async(function) is is_async_
    assert await call(function, [5]) == [5]


async def test_one_that_may_block_runs_in_a_thread_with_the_context_of_the_caller() -> None:
    def look() -> tuple[str, bool]:
        return WHO.get(), threading.current_thread() is threading.main_thread()

    token = WHO.set("me")
    assert await call(look) == ("me", False)
    WHO.reset(token)


async def test_any_number_may_block_at_once() -> None:
    """More than the threads that anyio has for all."""
    count = 60
    barrier = threading.Barrier(count)

    def meet() -> None:
        barrier.wait(20)

    async with anyio.create_task_group() as tasks:
        for _ in range(count):
            tasks.start_soon(call, meet)


class Nowhere(Unlimited):
    session: Any = None
    turn: Any = None
    tool_names: Any = None


async def test_one_that_takes_too_long_is_given_up() -> None:
    context = CallContext(Nowhere())
    with pytest.raises(CallTimedOut, match=r"within 0\.01 s") as caught:
        await call(anyio.sleep_forever, timeout=0.01, context=context)
    assert isinstance(caught.value, TimeoutError)
    assert context.is_cancelled


async def test_one_in_a_thread_that_is_given_up_can_see_it() -> None:
    context = CallContext(Nowhere())
    begun, go, seen = threading.Event(), threading.Event(), threading.Event()

    def block() -> None:
        begun.set()
        go.wait(20)
        if context.is_cancelled:
            seen.set()

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(partial(call, block, context=context))
        assert await anyio.to_thread.run_sync(begun.wait, 20)
        tasks.cancel_scope.cancel()
    go.set()
    assert await anyio.to_thread.run_sync(seen.wait, 20)


async def test_one_that_is_done_just_in_time_is_not_given_up() -> None:
    async def finish() -> str:
        with anyio.CancelScope(shield=True):
            await anyio.sleep(0.02)
        return "done"

    context = CallContext(Nowhere())
    assert await call(finish, timeout=0.01, context=context) == "done"
    assert not context.is_cancelled


async def test_a_cancelled_caller_cancels_it() -> None:
    context = CallContext(Nowhere())
    with anyio.CancelScope() as scope:
        scope.cancel()
        await call(anyio.sleep_forever, context=context)
    assert scope.cancelled_caught
    assert context.is_cancelled


async def test_what_it_raises_comes_out_but_for_what_ends_generators() -> None:
    def ends() -> None:
        raise StopIteration(5)

    async def ends_too() -> None:
        next(iter(()))

    def fails() -> None:
        raise LookupError("no such thing")

    def timed_out() -> None:
        raise TimeoutError("the database")

    context = CallContext(Nowhere())
    for function in (ends, ends_too):
        with pytest.raises(RuntimeError, match="StopIteration"):
            await call(function)
    with pytest.raises(LookupError, match="no such thing"):
        await call(fails, context=context)
    with pytest.raises(TimeoutError, match="the database"):
        await call(timed_out, timeout=5)


async def test_a_generator_is_no_answer() -> None:
    """It is given back as it is: whoever asked says what they can take."""

    def generate() -> Generator[int]:
        yield 5

    made = await call(generate)
    assert isinstance(made, Generator)
    assert list(made) == [5]


async def test_a_request_is_cancelled_before_others_have_their_turn() -> None:
    request = CallContext(Nowhere())
    seen: list[bool] = []

    async def look() -> None:
        seen.append(request.is_cancelled)

    async def wait(_: object) -> None:
        began.set()
        try:
            await anyio.sleep_forever()
        finally:
            others.start_soon(look)

    began = anyio.Event()
    async with anyio.create_task_group() as others, anyio.create_task_group() as tasks:
        tasks.start_soon(attempt, wait, request)
        await began.wait()
        tasks.cancel_scope.cancel()
    assert seen == [True]


class OnCoarseClock(Nowhere):
    """Its loop counts in whole milliseconds, as uvloop does: it may cancel a call that little too early."""

    def __init__(self) -> None:
        self.scope = anyio.CancelScope()

    def limit(self, seconds: float) -> bool:
        self.is_cancelled = self.is_late = True
        self.scope.cancel()
        return True


async def test_a_limit_that_is_reached_a_little_early_is_reached() -> None:
    origin = OnCoarseClock()
    context = CallContext(origin)
    outcomes: list[str] = []
    with origin.scope:
        tried = await attempt_call(anyio.sleep_forever, (), context, 60.0, origin)
        outcomes.append(tried.outcome)
    assert outcomes == ["timed_out"]
    assert context.is_cancelled

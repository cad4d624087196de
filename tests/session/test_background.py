"""Tasks of an event loop that no scope of a user's reaches."""

from __future__ import annotations

import asyncio
import contextvars
import threading
import time
from typing import Any

import anyio
import pytest

from outrider.session import background

variable: contextvars.ContextVar[str] = contextvars.ContextVar("variable", default="unset")


class Work:
    """A task that says where it is."""

    def __init__(self) -> None:
        self.has_begun = anyio.Event()
        self.may_end = anyio.Event()
        self.ended = anyio.Event()
        self.was_cancelled = False
        self.saw = ""

    async def run(self) -> None:
        self.saw = variable.get()
        self.has_begun.set()
        try:
            await self.may_end.wait()
        except anyio.get_cancelled_exc_class():
            self.was_cancelled = True
            raise
        finally:
            self.ended.set()


async def started(**options: Any) -> Work:
    work = Work()
    await (await background()).start(work.run, name="work", **options)
    await work.has_begun.wait()
    return work


def no_thread_is_left() -> bool:
    deadline = time.monotonic() + 30
    while any(thread.name == "outrider-background" for thread in threading.enumerate()):
        if time.monotonic() > deadline:
            return False
        time.sleep(0.005)
    return True


@pytest.mark.anyio
async def test_a_cancelled_scope_does_not_reach_it() -> None:
    works: list[Work] = []
    with anyio.CancelScope() as scope:
        works.append(await started())
        scope.cancel()
    (work,) = works
    async with anyio.create_task_group() as tasks:
        tasks.cancel_scope.cancel()
    assert not work.ended.is_set()
    work.may_end.set()
    await work.ended.wait()
    assert not work.was_cancelled


@pytest.mark.anyio
async def test_one_that_fails_is_logged_and_the_others_go_on(caplog: pytest.LogCaptureFixture) -> None:
    work = await started()

    async def fail() -> None:
        raise LookupError("no such thing")

    await (await background()).start(fail, name="a task that fails")
    await anyio.wait_all_tasks_blocked()
    assert "a task that fails" in caplog.text
    assert "no such thing" in caplog.text
    assert not work.ended.is_set()
    work.may_end.set()
    await work.ended.wait()


@pytest.mark.anyio
async def test_it_runs_in_the_context_that_it_is_given() -> None:
    variable.set("the caller's")
    other = contextvars.copy_context()
    other.run(variable.set, "another")
    works = [await started(), await started(context=other), await started(context=other)]
    assert [work.saw for work in works] == ["the caller's", "another", "another"]
    for work in works:
        work.may_end.set()
        await work.ended.wait()


def run(backend: Any, main: Any) -> Any:
    return anyio.run(main, backend=backend[0], backend_options=backend[1])


def test_on_trio_the_place_is_there_while_a_task_is() -> None:
    async def main() -> None:
        one = await started()
        place = await background()
        two = await started()
        assert await background() is place
        one.may_end.set()
        await one.ended.wait()
        assert await background() is place
        two.may_end.set()
        await two.ended.wait()
        await anyio.wait_all_tasks_blocked()
        three = await started()
        assert await background() is not place
        three.may_end.set()
        await three.ended.wait()

    run(("trio", {}), main)
    assert no_thread_is_left()


def test_a_loop_that_ends_ends_its_tasks(anyio_backend: Any) -> None:
    works: list[Work] = []

    async def main() -> None:
        works.append(await started())

    run(anyio_backend, main)
    assert works[0].was_cancelled
    assert no_thread_is_left()


def test_an_error_of_the_users_is_raised_as_it_is(anyio_backend: Any) -> None:
    async def main() -> None:
        await started()
        raise LookupError("mine")

    with pytest.raises(LookupError, match="mine"):
        run(anyio_backend, main)
    assert no_thread_is_left()


def test_loops_in_threads_have_places_of_their_own(anyio_backend: Any) -> None:
    places: list[object] = []
    barrier = threading.Barrier(4)

    async def main() -> None:
        work = await started()
        places.append(await background())
        await anyio.to_thread.run_sync(barrier.wait)
        work.may_end.set()
        await work.ended.wait()

    threads = [threading.Thread(target=run, args=(anyio_backend, main)) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(set(map(id, places))) == 4
    assert no_thread_is_left()


def test_a_start_that_is_cancelled_leaves_nothing(anyio_backend: Any) -> None:
    async def main() -> None:
        with anyio.CancelScope() as scope:
            place = await background()
            scope.cancel()
            await place.start(anyio.sleep_forever, name="never started")

    run(anyio_backend, main)
    assert no_thread_is_left()


def test_a_raw_cancel_of_everything_ends_it() -> None:
    async def main() -> None:
        work = await started()
        for task in asyncio.all_tasks() - {asyncio.current_task()}:
            task.cancel()
        await work.ended.wait()
        assert work.was_cancelled

    asyncio.run(main())
    assert no_thread_is_left()


def test_after_a_raw_cancel_of_everything_another_can_be_started_at_once() -> None:
    async def main() -> None:
        may_end = anyio.Event()

        async def end_slowly() -> None:
            try:
                await anyio.sleep_forever()
            finally:
                with anyio.CancelScope(shield=True):
                    await may_end.wait()

        await (await background()).start(end_slowly, name="slow")
        await anyio.wait_all_tasks_blocked()
        for task in asyncio.all_tasks() - {asyncio.current_task()}:
            task.cancel()
        await anyio.wait_all_tasks_blocked()
        with anyio.fail_after(5):
            another = await started()
        may_end.set()
        await anyio.wait_all_tasks_blocked()
        assert not another.was_cancelled
        another.may_end.set()
        await another.ended.wait()

    asyncio.run(main())
    assert no_thread_is_left()


def test_an_exit_in_a_task_group_of_one_ends_the_loop_with_its_code() -> None:
    """As a signal handler raises it, wherever the program is at that moment."""

    async def leave() -> None:
        async with anyio.create_task_group():
            raise SystemExit(3)

    async def main() -> None:
        await (await background()).start(leave, name="work")
        await anyio.sleep_forever()

    with pytest.raises(SystemExit) as left:
        asyncio.run(main())
    assert left.value.code == 3

"""One event loop for all calls of a process, whatever the process does."""

from __future__ import annotations

import asyncio
import gc
import os
import signal
import subprocess
import sys
import threading
import weakref
from concurrent.futures import ThreadPoolExecutor
from contextvars import ContextVar
from textwrap import dedent

import anyio
import anyio.lowlevel
import pytest

from outrider.errors import UsageError
from outrider.sync import _portal
from outrider.sync._portal import Portal, portal

name: ContextVar[str] = ContextVar("name", default="nobody")


async def add(one: int, *, other: int) -> int:
    await anyio.lowlevel.checkpoint()
    return one + other


async def loop_thread() -> int:
    return threading.get_ident()


# What a call is.


def test_a_call_gives_back_what_the_function_does() -> None:
    assert portal().call(add, 1, other=2) == 3


def test_a_call_raises_what_the_function_does() -> None:
    error = LookupError("not here")

    async def fail() -> None:
        raise error

    with pytest.raises(LookupError) as raised:
        portal().call(fail)
    assert raised.value is error


@pytest.mark.parametrize("kind", [SystemExit, KeyboardInterrupt, GeneratorExit])
def test_what_ends_a_program_does_not_end_the_loop(kind: type[BaseException]) -> None:
    async def fail() -> None:
        raise kind

    before = portal()
    with pytest.raises(kind):
        before.call(fail)
    assert portal() is before
    assert portal().call(add, 1, other=2) == 3


def test_the_end_of_an_iteration_can_be_raised() -> None:
    async def end() -> None:
        raise StopAsyncIteration

    with pytest.raises(StopAsyncIteration):
        portal().call(end)


def test_the_context_of_the_thread_is_that_of_the_call() -> None:
    async def exchange() -> str:
        before = name.get()
        name.set("loop")
        return before

    token = name.set("caller")
    try:
        assert portal().call(exchange) == "caller"
        assert name.get() == "caller"
    finally:
        name.reset(token)
    assert portal().call(exchange) == "nobody"


def test_nothing_of_a_call_is_kept() -> None:
    class Thing:
        pass

    async def fail(thing: Thing) -> None:
        raise LookupError(str(thing))

    thing = Thing()
    gone = weakref.ref(thing)
    gc.disable()
    try:
        with pytest.raises(LookupError):
            portal().call(fail, thing)
        del thing
        assert portal().call(add, 1, other=2) == 3
        assert gone() is None
    finally:
        gc.enable()


def test_what_is_read_is_read_in_the_loop() -> None:
    assert portal().read(threading.get_ident) == portal().call(loop_thread)

    async def read() -> int:
        return portal().read(threading.get_ident)

    assert portal().call(read) == portal().call(loop_thread)


# Who calls.


def test_all_calls_share_one_loop() -> None:
    with ThreadPoolExecutor(8) as pool:
        threads = {each.result() for each in [pool.submit(portal().call, loop_thread) for _ in range(32)]}
    assert threads == {portal().call(loop_thread)}
    assert threading.get_ident() not in threads


def test_calls_of_many_threads_run_at_once() -> None:
    count = 20
    here = 0
    all_here = portal().call(make_event)

    async def meet(number: int) -> int:
        nonlocal here
        here += 1
        if here == count:
            all_here.set()
        await all_here.wait()
        return number

    with ThreadPoolExecutor(count) as pool:
        met = [pool.submit(portal().call, meet, number) for number in range(count)]
        assert [each.result() for each in met] == list(range(count))


async def make_event() -> anyio.Event:
    return anyio.Event()


def test_a_call_in_the_loop_itself_is_refused_at_once() -> None:
    async def call() -> None:
        portal().call(add, 1, other=2)

    with pytest.raises(UsageError, match="used in its own event loop") as error:
        portal().call(call)
    assert "await the async form" in str(error.value)


def test_a_call_in_a_thread_of_the_loop_works() -> None:
    async def call() -> int:
        return await anyio.to_thread.run_sync(lambda: portal().call(add, 1, other=2))

    assert portal().call(call) == 3


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_a_call_inside_another_loop_works(backend: str) -> None:
    async def main() -> int:
        return portal().call(add, 1, other=2)

    assert anyio.run(main, backend=backend) == 3


def test_loops_may_come_and_go_around_it() -> None:
    async def main() -> int:
        return await add(1, other=2)

    assert asyncio.run(main()) == 3
    assert portal().call(add, 1, other=2) == 3
    assert asyncio.run(main()) == 3
    assert portal().call(add, 1, other=2) == 3


# Interrupts.


def interrupt() -> None:
    signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)


@pytest.mark.skipif(sys.platform == "win32", reason="no signal can be sent to one thread")
def test_an_interrupt_cancels_the_call_and_waits_until_it_has_ended() -> None:
    steps: list[str] = []

    async def work() -> None:
        interrupt()
        try:
            await anyio.sleep_forever()
        finally:
            with anyio.CancelScope(shield=True):
                await anyio.sleep(0.05)
            steps.append("cleaned up")

    with pytest.raises(KeyboardInterrupt):
        portal().call(work)
    assert steps == ["cleaned up"]
    assert portal().call(add, 1, other=2) == 3


@pytest.mark.skipif(sys.platform == "win32", reason="no signal can be sent to one thread")
def test_a_second_interrupt_does_not_wait() -> None:
    release = portal().call(make_event)
    ended = threading.Event()

    async def work() -> None:
        interrupt()
        try:
            await anyio.sleep_forever()
        finally:
            interrupt()
            with anyio.CancelScope(shield=True):
                await release.wait()
            ended.set()

    with pytest.raises(KeyboardInterrupt):
        portal().call(work)
    assert not ended.is_set()

    async def let_go() -> None:
        release.set()

    portal().call(let_go)
    assert ended.wait(10)


@pytest.mark.skipif(sys.platform == "win32", reason="no signal can be sent to one thread")
@pytest.mark.parametrize("base", [Exception, RuntimeError, SystemExit])
def test_whatever_a_signal_handler_raises_cancels_the_call(base: type[BaseException]) -> None:
    class TimeLimit(base):  # type: ignore[misc, valid-type]
        """As Celery's soft time limit."""

    def expire(*_: object) -> None:
        raise TimeLimit

    steps: list[str] = []

    async def work() -> None:
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGUSR1)
        try:
            await anyio.sleep_forever()
        finally:
            steps.append("cleaned up")

    before = signal.signal(signal.SIGUSR1, expire)
    try:
        with pytest.raises(TimeLimit):
            portal().call(work)
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert steps == ["cleaned up"]


@pytest.mark.skipif(sys.platform == "win32", reason="no signal can be sent to one thread")
def test_interrupts_at_any_moment_leave_it_in_order() -> None:
    assert run("""
        import random, signal

        running, is_armed, is_done, caught = 0, False, False, 0

        async def work():
            global running
            running += 1
            try:
                await anyio.sleep(0.0003)
            finally:
                running -= 1

        def shoot():
            while not is_done:
                time.sleep(random.random() / 1000)
                if is_armed:
                    signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)

        async def count():
            return running

        shooter = threading.Thread(target=shoot)
        shooter.start()
        while caught < 1000:
            try:
                try:
                    is_armed = True
                    portal().call(work)
                finally:
                    is_armed = False
            except KeyboardInterrupt:
                caught += 1
        try:
            is_done = True
            shooter.join()
        except KeyboardInterrupt:
            shooter.join()
        while portal().call(count):
            pass
        print("nothing runs")
    """) == ["nothing runs"]


def test_a_call_that_was_cancelled_before_it_began_does_not_begin() -> None:
    began: list[int] = []

    async def work() -> None:
        began.append(1)

    call = _portal._Call(work)
    call.is_cancelled = True
    portal().call(call.run, frozenset())
    assert call.has_begun
    assert began == []


# The end of a loop.


def test_calls_do_not_outlive_their_loop() -> None:
    own = Portal()
    steps: list[str] = []

    async def work() -> None:
        steps.append("began")
        began.set()
        try:
            await anyio.sleep_forever()
        finally:
            steps.append("ended")

    began = threading.Event()
    with ThreadPoolExecutor(1) as pool:
        call = pool.submit(own.call, work)
        assert began.wait(10)
        assert own.close(10)
        with pytest.raises(UsageError, match=r"event loop of outrider\.sync has ended"):
            call.result(10)
    assert steps == ["began", "ended"]
    assert not own.is_open
    with pytest.raises(UsageError, match="has ended"):
        own.call(add, 1, other=2)
    # What is known can still be read.
    assert own.read(threading.get_ident) == threading.get_ident()
    assert own.close(10)


def test_a_loop_that_has_ended_is_replaced() -> None:
    before = portal()
    assert before.close(10)
    assert portal() is not before
    assert portal().call(add, 1, other=2) == 3


def test_a_loop_that_does_not_end_is_not_waited_for() -> None:
    own = Portal()
    began, release = threading.Event(), threading.Event()

    async def cling() -> None:
        began.set()
        await anyio.to_thread.run_sync(release.wait)

    with ThreadPoolExecutor(1) as pool:
        call = pool.submit(own.call, cling)
        assert began.wait(10)
        assert not own.close(0.05)
        release.set()
        call.exception(10)
    assert own.close(10)


def run(script: str, *, code: int = 0) -> list[str]:
    """What a script prints, in an interpreter of its own."""
    head = """
        import os, sys, threading, time
        import anyio
        from outrider.errors import UsageError
        from outrider.sync import _portal
        from outrider.sync._portal import portal

        async def add(one, other):
            await anyio.sleep(0)
            return one + other
    """
    done = subprocess.run(
        [sys.executable, "-c", dedent(head) + dedent(script)],
        capture_output=True,
        text=True,
        timeout=50,
        check=False,
    )
    assert done.returncode == code, done.stderr
    assert "Traceback" not in done.stderr
    return done.stdout.splitlines()


def test_the_interpreter_ends_with_a_loop_that_is_idle() -> None:
    assert run("print(portal().call(add, 1, 2))") == ["3"]


def test_what_runs_at_the_end_of_the_interpreter_is_cancelled() -> None:
    assert run("""
        began = threading.Event()

        async def work():
            began.set()
            try:
                await anyio.sleep_forever()
            finally:
                print("cleaned up", flush=True)

        def call():
            try:
                portal().call(work)
            except UsageError:
                pass

        threading.Thread(target=call, daemon=True).start()
        began.wait()
        print("the end")
    """) == ["the end", "cleaned up"]


def test_threads_that_outlive_the_main_one_may_go_on() -> None:
    assert run("""
        def call():
            threading.main_thread().join()
            print(portal().call(add, 1, 2))

        portal().call(add, 1, 2)
        threading.Thread(target=call).start()
    """) == ["3"]


def test_what_clings_to_its_life_does_not_keep_the_interpreter() -> None:
    assert run("""
        began = threading.Event()
        _portal._EXIT_SECONDS = 0.1

        async def cling():
            began.set()
            with anyio.CancelScope(shield=True):
                await anyio.sleep_forever()

        threading.Thread(target=portal().call, args=(cling,), daemon=True).start()
        began.wait()
        print("the end")
    """) == ["the end"]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_a_process_that_was_forked_has_a_loop_of_its_own() -> None:
    assert run("""
        before = portal()
        before.call(add, 1, 2)
        pid = os.fork()
        if not pid:
            try:
                before.call(add, 1, 2)
            except UsageError as error:
                print("refused:", error.message)
            print(portal() is before, before.is_open, portal().call(add, 3, 4), flush=True)
            sys.exit()
        print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), portal() is before, before.call(add, 5, 6))
    """) == [
        "refused: this belongs to the process that made it, and this one was forked from that",
        "False False 7",
        "0 True 11",
    ]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_a_fork_at_any_time_leaves_nothing_locked() -> None:
    assert run("""
        held, forked = threading.Event(), threading.Event()

        def hold():
            with _portal._lock:
                held.set()
                forked.wait()

        thread = threading.Thread(target=hold)
        thread.start()
        held.wait()
        pid = os.fork()
        if not pid:
            print(portal().call(add, 1, 2), flush=True)
            os._exit(0)
        forked.set()
        thread.join()
        os.waitpid(pid, 0)
        print(portal().call(add, 3, 4))
    """) == ["3", "7"]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_workers_of_a_pool_of_processes_each_have_one() -> None:
    assert run("""
        from multiprocessing import get_context

        def work(number):
            return portal().call(add, number, 1)

        portal().call(add, 1, 2)
        with get_context("fork").Pool(2) as pool:
            print(pool.map(work, range(6)))
    """) == ["[1, 2, 3, 4, 5, 6]"]

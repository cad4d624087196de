"""What the application does meanwhile, in callbacks, signals, other threads and forks: the promises hold."""

from __future__ import annotations

import fcntl
import gc
import math
import os
import signal
import subprocess
import sys
import threading
import weakref
from pathlib import Path
from typing import Any

import anyio
import pytest

from outrider.command import Command
from outrider.errors import ConnectionLost, ProcessExited, TransportClosed, UsageError
from outrider.transports import ProcessTransport, Transport, live_processes
from outrider.transports._process import child as _child
from outrider.transports._process import pipes as _output
from outrider.transports._process import spawn as _starting
from outrider.transports._process import transport as _process
from outrider.transports._process.child import Child, StderrLog
from outrider.transports._process.pipes import Output
from outrider.transports._process.spawn import run_uninterrupted
from outrider.transports._process.supervisor import Supervisor
from outrider.wire import Arrival, KeepAlive, MalformedLine, UnknownMessage
from tests.transports.conftest import child, impatient, logged, own_processes, wait_for

pytestmark = pytest.mark.anyio

KEEP_ALIVE = b'{"type":"keep_alive"}\n'


# Reading.


async def test_to_read_before_connect_does_not_end_the_messages() -> None:
    transport = impatient("polite")
    messages = transport.messages()
    with pytest.raises(TransportClosed):
        await anext(messages)
    await transport.connect()
    assert isinstance(await anext(messages), UnknownMessage)
    await transport.close()


async def test_a_second_reader_that_is_refused_takes_nothing_from_the_first() -> None:
    async with impatient("polite") as transport:
        messages = transport.messages()
        await anext(messages)
        await transport.send(b'{"type":"keep')
        received: list[Arrival] = []

        async def read() -> None:
            received.append(await anext(messages))

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(read)
            await anyio.lowlevel.checkpoint()
            await anyio.lowlevel.checkpoint()
            with pytest.raises(UsageError):
                await anext(messages)
            await transport.send(b'_alive"}\n')
        assert received == [KeepAlive()]
        await transport.send(KEEP_ALIVE)
        assert await anext(messages) == KeepAlive()


class Scripted(Transport):
    """Gives out what it was given, and raises what is an exception."""

    def __init__(self, *script: bytes | Exception) -> None:
        self._script = list(script)

    async def connect(self) -> None: ...
    async def send(self, data: bytes) -> None: ...
    async def end_input(self) -> None: ...
    async def close(self) -> None: ...

    @property
    def is_ready(self) -> bool:
        return True

    async def receive(self) -> bytes:
        # The last one again and again, as the contract says.
        step = self._script.pop(0) if len(self._script) > 1 else self._script[0]
        if isinstance(step, Exception):
            raise step
        return step


async def test_an_exception_that_is_no_end_loses_nothing() -> None:
    messages = Scripted(b'{"type":"keep', TimeoutError(), b'_alive"}\n', b"").messages()
    with pytest.raises(TimeoutError):
        await anext(messages)
    assert [message async for message in messages] == [KeepAlive()]


async def test_a_lost_connection_is_raised_after_what_came_before_and_again() -> None:
    messages = Scripted(KEEP_ALIVE + b"half", ConnectionLost("gone")).messages()
    assert await anext(messages) == KeepAlive()
    assert isinstance(await anext(messages), MalformedLine)
    for _ in range(2):
        with pytest.raises(ConnectionLost, match="gone"):
            await anext(messages)


def test_after_a_gap_in_what_is_kept_nothing_more_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_output, "ENDING_LIMIT", 4)
    reading, writing = os.pipe()
    output = Output(reading)
    output.hand_over()
    for piece in (b"abc", b"def"):
        os.write(writing, piece)
        output.drain()
    assert output.take() == b"abc"
    os.write(writing, b"g")
    os.close(writing)
    output.finish()
    assert output.take() == b""
    assert output.dropped_bytes == 4


# Writing.


async def test_ending_the_input_does_not_wait_for_a_write_that_was_given_up() -> None:
    async with impatient("never_reads", write_timeout=None) as transport:
        await anext(transport.messages())
        assert transport._child is not None
        stdin = transport._child.input
        await transport.send(b"x" * fcntl.fcntl(stdin.number, fcntl.F_GETPIPE_SZ))
        scope = anyio.CancelScope()

        async def write() -> None:
            with scope:
                await transport.send(b"never\n")

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(write)
            await anyio.wait_all_tasks_blocked()
            tasks.start_soon(transport.end_input)
            await anyio.wait_all_tasks_blocked()
            scope.cancel()
        assert stdin.number == -1


async def test_a_program_that_reads_slowly_is_not_taken_for_one_that_does_not_read() -> None:
    async with impatient("reads_slowly", write_timeout=0.25) as transport:
        await anext(transport.messages())
        assert transport.pid is not None
        is_sent = anyio.Event()

        async def write() -> None:
            await transport.send(b"x" * 1_000_000)
            is_sent.set()

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(write)
            while not is_sent.is_set():
                os.kill(transport.pid, signal.SIGUSR1)
                await anyio.sleep(0.002)


async def test_a_program_that_is_gone_before_the_preamble_was_sent_is_reported_to_the_reader(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    take = Supervisor.take

    def take_slowly(self: Supervisor, child: Child, folder: str | None) -> None:
        take(self, child, folder)
        wait_for(lambda: child.has_exited)

    monkeypatch.setattr(Supervisor, "take", take_slowly)
    command = Command(child("fails_at_once").argv, preamble=b"secret\n")
    async with ProcessTransport(command) as transport:
        with pytest.raises(ProcessExited, match="code 3"):
            await transport.receive()


# Callbacks.


@pytest.mark.requirement("F1")
@pytest.mark.parametrize("error", [SystemExit, KeyboardInterrupt])
async def test_a_callback_that_wants_to_exit_is_called_again(error: type[BaseException]) -> None:
    lines: list[str] = []

    def note(line: str) -> None:
        lines.append(line)
        raise error

    async with impatient("writes_to_stderr", "a\n", "b\n", stderr=note) as transport:
        await anext(transport.messages())
    assert lines == ["a", "b"]


async def test_a_callback_that_is_stuck_takes_bounded_memory(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(_child, "_WAITING_LIMIT", 10)
    goes_on = threading.Event()
    lines: list[str] = []

    def note(line: str) -> None:
        goes_on.wait()
        lines.append(line)

    log = StderrLog(note)
    log.feed(b"0123456789\n" * 100)
    goes_on.set()
    is_finished = threading.Event()
    log.finish(is_finished.set)
    assert is_finished.wait(30)
    assert 1 <= len(lines) <= 3
    assert f"{100 - len(lines)} lines were not given to the stderr callback" in logged(caplog)


@pytest.mark.requirement("F4")
async def test_a_callback_that_holds_the_transport_does_not_keep_it_from_being_collected() -> None:
    class Application:
        def __init__(self) -> None:
            self.transport = impatient("polite", stderr=self.note)

        def note(self, line: str) -> None: ...

    application = Application()
    await application.transport.connect()
    await anext(application.transport.messages())
    gone = weakref.ref(application)
    del application
    gc.collect()
    assert gone() is None
    wait_for(lambda: not own_processes())


async def test_a_callback_without_weak_references_is_called() -> None:
    class Strong:
        __slots__ = ("lines",)

        def __init__(self) -> None:
            self.lines: list[str] = []

        def __call__(self, line: str) -> None:
            self.lines.append(line)

    note = Strong()
    async with impatient("writes_to_stderr", "a\n", stderr=note) as transport:
        await anext(transport.messages())
    assert note.lines == ["a"]


async def test_a_clean_up_that_wants_to_exit_does_not_keep_close_from_returning(
    caplog: pytest.LogCaptureFixture,
) -> None:
    def leave() -> None:
        raise SystemExit

    listed: list[int] = []
    async with impatient("polite") as transport:
        transport.on_cleanup(leave)
        # Until then the end of the interpreter has to wait for it.
        transport.on_cleanup(lambda: listed.append(len(live_processes())))
    assert listed == [1]
    assert live_processes() == []
    caplog.clear()


async def test_a_shutdown_that_cannot_even_kill_lets_everybody_go(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    transport = impatient("ignores_everything")
    await transport.connect()
    await anext(transport.messages())
    assert transport._child is not None

    def fail() -> bool:
        raise LookupError("a bug")

    monkeypatch.setattr(transport._child, "_kill", fail)
    await transport.close()
    with pytest.raises(ConnectionLost, match="supervisor of the process failed"):
        await transport.receive()
    assert "could not be killed either" in logged(caplog)
    assert transport.pid is not None
    os.kill(transport.pid, signal.SIGKILL)
    wait_for(lambda: os.waitpid(transport.pid or 0, os.WNOHANG)[0] != 0)
    caplog.clear()


# Time.


@pytest.mark.parametrize("grace", [math.inf, 1e9])
async def test_grace_may_be_for_ever(grace: float) -> None:
    async with ProcessTransport(child("polite"), grace=grace, terminate=grace) as transport:
        await anext(transport.messages())
    assert transport.returncode == 0
    assert transport.exit_error is None


# Signals, threads, forks.


def test_ctrl_c_does_not_get_into_a_start_and_is_heard_after_it() -> None:
    has_finished: list[bool] = []

    def begin() -> None:
        signal.raise_signal(signal.SIGINT)
        has_finished.append(True)

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGINT, interrupt)
    try:
        with pytest.raises(KeyboardInterrupt):
            run_uninterrupted(begin)
    finally:
        signal.signal(signal.SIGINT, before)
    assert has_finished == [True]


async def test_a_transport_that_is_ended_while_it_starts_does_not_start(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As by another thread, or by a handler for a signal."""
    transport = impatient("ignores_everything")
    start = _starting.start

    def end_and_start(*arguments: Any) -> Any:
        transport.end(kill=True)
        return start(*arguments)

    monkeypatch.setattr(_process, "start", end_and_start)
    with pytest.raises(TransportClosed):
        await transport.connect()
    wait_for(lambda: not own_processes())


def test_in_a_forked_process_nobody_waits_for_the_child_of_the_other() -> None:
    host = Path(__file__).with_name("hosts.py")
    done = subprocess.run(
        [sys.executable, str(host), "leaves_the_block_in_a_forked_process"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout.split() == ["7", "still_there"], done.stderr

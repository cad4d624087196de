"""Systems that lack something, and hosts that do something unusual: the promises are the same."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator

import anyio
import pytest

from outrider.errors import LaunchError, ProcessExited
from outrider.transports import ProcessTransport
from outrider.transports._process import child as _child
from outrider.transports._process import processes as _processes
from outrider.transports._process.processes import ProcessTable, PsutilTable
from outrider.wire import KeepAlive, UnknownMessage
from tests.transports.conftest import impatient, logged, own_processes, wait_for

pytestmark = pytest.mark.anyio


@pytest.fixture(params=["no eventfd", "no pidfd", "no /proc", "psutil", "macOS"])
def old_system(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.param == "no /proc":
        if "leaves_an_escaped_one" in request.node.name:
            pytest.skip("without /proc and psutil, what leaves the group is not found")
        monkeypatch.setattr(_processes, "_table", ProcessTable())
    if request.param in ("psutil", "macOS"):
        monkeypatch.setattr(_processes, "_table", PsutilTable())
    if request.param in ("no eventfd", "macOS"):
        monkeypatch.delattr(os, "eventfd")
    if request.param in ("no pidfd", "macOS"):
        monkeypatch.delattr(os, "pidfd_open")
    if request.param == "macOS":  # before Python 3.13
        monkeypatch.delattr(os, "waitid")


@pytest.mark.usefixtures("old_system")
@pytest.mark.parametrize("name", ["polite", "ignores_everything", "leaves_a_holder", "leaves_an_escaped_one"])
async def test_children_end(name: str) -> None:
    transport = impatient(name)
    await transport.connect()
    await anext(transport.messages())
    await transport.close()
    assert own_processes() == []
    assert transport.returncode == (-9 if name == "ignores_everything" else 0)


@pytest.mark.usefixtures("old_system")
async def test_a_failure_is_reported() -> None:
    async with impatient("fails_at_once") as transport:
        with pytest.raises(ProcessExited, match="code 3"):
            await anext(transport.messages())


@pytest.mark.usefixtures("old_system")
async def test_large_messages_go_both_ways() -> None:
    async with impatient("polite") as transport:
        messages = transport.messages()
        await anext(messages)
        async with anyio.create_task_group() as tasks:
            for _ in range(5):
                tasks.start_soon(transport.write, {"type": "note", "text": "x" * 300_000})
            for _ in range(5):
                note = await anext(messages)
                assert isinstance(note, UnknownMessage)
                assert len(note.data["text"]) == 300_000


async def test_a_system_on_which_no_exit_can_be_noticed_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_processes, "_table", ProcessTable())
    monkeypatch.delattr(os, "waitid")
    with pytest.raises(LaunchError, match="needs psutil") as raised:
        await impatient("polite").connect()
    assert "pip install psutil" in raised.value.hint


@pytest.fixture
def ignored_sigchld() -> Iterator[None]:
    """What some servers do: the system then reaps their children, and no status is left."""
    before = signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    yield
    signal.signal(signal.SIGCHLD, before)


@pytest.mark.usefixtures("ignored_sigchld")
async def test_an_exit_code_that_somebody_else_took_is_unknown_and_no_success() -> None:
    async with impatient("fails_at_once") as transport:
        with pytest.raises(ProcessExited, match="unknown code") as raised:
            await anext(transport.messages())
        assert raised.value.returncode is None
        assert raised.value.stderr_tail == "cannot go on"


@pytest.mark.usefixtures("ignored_sigchld")
@pytest.mark.parametrize("name", ["polite", "ignores_everything", "leaves_an_escaped_one"])
async def test_without_zombies_everything_still_ends(name: str) -> None:
    transport = impatient(name)
    await transport.connect()
    await anext(transport.messages())
    await transport.close()
    assert own_processes() == []


async def test_a_process_that_cannot_be_killed_does_not_keep_close_from_returning(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """As one in an uninterruptible wait: signals are sent, and nothing happens."""
    monkeypatch.setattr(_child, "KILL_SECONDS", 0.05)
    transport = impatient("ignores_everything")
    await transport.connect()
    await anext(transport.messages())
    with monkeypatch.context() as patched:
        patched.setattr(os, "killpg", lambda *_: None)
        await transport.close()
    assert "cannot be killed" in logged(caplog)
    assert transport.returncode is None
    assert transport.pid is not None
    os.kill(transport.pid, signal.SIGKILL)
    wait_for(lambda: os.waitpid(transport.pid or 0, os.WNOHANG)[0] != 0)


async def test_a_shutdown_that_fails_kills_its_child(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    transport = impatient("ignores_everything")
    await transport.connect()
    await anext(transport.messages())
    assert transport._child is not None

    def fail() -> None:
        raise LookupError("a bug")

    monkeypatch.setattr(transport._child, "_shut_down", fail)
    await transport.close()
    assert "the supervisor failed for process" in logged(caplog)
    assert "a bug" in logged(caplog)
    assert "supervisor of the process failed" in str(transport.exit_error)
    wait_for(lambda: not own_processes())
    caplog.clear()


async def test_a_batch_has_all_that_is_there() -> None:
    async with ProcessTransport(impatient("polite").command) as transport:
        messages = transport.messages()
        await anext(messages)
        await transport.send(b'{"type":"keep_alive"}\n' * 100)
        received = [await anext(messages)]
        while len(received) < 100:
            received += await messages.batch()
        assert received == [KeepAlive()] * 100
        await transport.end_input()
        with pytest.raises(StopAsyncIteration):
            await messages.batch()

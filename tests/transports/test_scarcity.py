"""Where something has run out, or was never there: errors are typed, lines are whole, nothing is left."""

from __future__ import annotations

import errno
import fcntl
import logging
import os
import re
import resource
import signal
import tempfile
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import anyio
import pytest

from outrider.command import FOLDER, Command, File
from outrider.errors import LaunchError
from outrider.transports import ProcessTransport
from outrider.transports._process import watchdog_main as _watchdog_main
from outrider.transports._process.pipes import Input
from outrider.transports._process.spawn import remove_folder
from outrider.transports._process.supervisor import Watchdog, supervisor
from outrider.wire import Arrival, UnknownMessage
from tests.transports.conftest import child, impatient, logged, own_processes
from tests.transports.test_tree import Stranger, by_marks, is_alive, marked, stranger, tree_of

__all__ = ["marked", "stranger"]

TOO_MANY = OSError(errno.EMFILE, os.strerror(errno.EMFILE))


@contextmanager
def few_files(free: int = 0) -> Generator[None]:
    """So many files can be opened and no more."""
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    taken: list[int] = []
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(limits[0], 256), limits[1]))
    try:
        try:
            while True:
                taken.append(os.dup(0))
        except OSError:
            pass
        for _ in range(free):
            os.close(taken.pop())
        yield
    finally:
        for number in taken:
            os.close(number)
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)


@contextmanager
def many_files() -> Generator[None]:
    """So many files are open that the next one has a number that `select` does not take."""
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(4096, limits[1]), limits[1]))
    taken = [os.dup(0) for _ in range(1100)]
    try:
        yield
    finally:
        for number in taken:
            os.close(number)
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)


# Descriptors.


@pytest.mark.anyio
async def test_a_host_with_more_than_a_thousand_open_files_ends_what_left_the_group() -> None:
    with many_files():
        async with impatient("leaves_an_escaped_one", grace=10) as transport:
            await anext(transport.messages())
        assert own_processes() == []
        assert transport.returncode == 0


@pytest.mark.anyio
@pytest.mark.parametrize("free", range(16))
async def test_whatever_of_a_start_fails_for_want_of_files_nothing_is_left(free: int) -> None:
    """What is left is looked for after each test."""
    command = Command(child("polite").argv, files=(File("a/b/secret", b"x"),), folders=("c",))
    transport = ProcessTransport(command, grace=0.1, terminate=0.1)
    with few_files(free):
        try:
            await transport.connect()
        except LaunchError as error:
            failure = str(error)
        else:
            failure = ""
    await transport.close()
    assert "Too many open files" in failure or (free >= 6 and not failure)


@pytest.mark.anyio
async def test_with_no_file_left_to_open_close_ends_everything_and_waits_for_it() -> None:
    transport = impatient("leaves_an_escaped_one", grace=10)
    await transport.connect()
    await anext(transport.messages())
    with few_files():
        await transport.close()
        assert transport.returncode == 0
    assert own_processes() == []


@pytest.mark.anyio
async def test_with_no_file_left_to_open_a_long_line_is_sent_whole() -> None:
    async with impatient("polite") as transport:
        messages = transport.messages()
        await anext(messages)
        received: list[Arrival] = []
        with few_files():
            async with anyio.create_task_group() as tasks:
                for name in ("one", "two"):
                    tasks.start_soon(transport.write, {"type": name, "text": "x" * 300_000})
                received = [await anext(messages), await anext(messages)]
        assert {one.type for one in received if isinstance(one, UnknownMessage)} == {"one", "two"}


def test_what_cannot_be_looked_at_counts_as_being_there(marked: Stranger) -> None:
    tree, leader = tree_of(os.getpid())
    with few_files():
        with pytest.raises(OSError, match="Too many open files"):
            list(tree.find([1]))
        with pytest.raises(OSError, match="Too many open files"):
            tree.signal(marked.pid, signal.SIGKILL)
        assert _watchdog_main.signal_all(tree, signal.SIGKILL) == 1
        assert tree.resident_bytes(leader) == 0
        leader.signalled[marked.pid] = 0
        leader.reap_orphans()
        assert not leader.keeps_its_number()
    assert is_alive(marked)


@by_marks
def test_with_a_single_file_to_open_it_is_looked_at_before_it_is_signalled(
    stranger: Stranger, marked: Stranger
) -> None:
    tree, _ = tree_of(os.getpid())
    with few_files(1):
        tree.signal(stranger.pid, signal.SIGKILL)
        tree.signal(marked.pid, signal.SIGKILL)
    assert marked.process.wait() == -signal.SIGKILL
    assert is_alive(stranger)


def test_a_piece_that_has_begun_stays_in_the_queue_when_no_file_can_be_opened() -> None:
    reading, writing = os.pipe()
    size = fcntl.fcntl(writing, fcntl.F_GETPIPE_SZ)
    end = Input(writing, lambda: None)
    with few_files():
        ticket = end.put(b"x" * (size + 1))
    assert ticket is not None
    assert end.waiting_bytes == 1
    os.read(reading, size)
    end.pump()
    assert ticket.was_sent
    end.close("")
    os.close(reading)


def test_a_watchdog_that_cannot_be_started_is_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    with few_files(1):
        Watchdog("test").start()
    assert "the watchdog cannot be started" in logged(caplog)


# The temporary folder.


@pytest.mark.anyio
async def test_a_machine_without_any_temporary_folder_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    def find_none() -> str:
        raise FileNotFoundError(errno.ENOENT, "No usable temporary directory found")

    monkeypatch.setattr(tempfile, "tempdir", None)
    monkeypatch.setattr(tempfile, "_get_default_tempdir", find_none)
    transport = ProcessTransport(Command(("cat", FOLDER)))
    with pytest.raises(LaunchError, match="No usable temporary directory"):
        await transport.connect()


@pytest.mark.anyio
async def test_a_folder_that_cannot_be_removed_does_not_keep_close_from_returning(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise PermissionError

    transport = ProcessTransport(Command(("cat",), folders=("a",)))
    await transport.connect()
    with monkeypatch.context() as patched:
        patched.setattr(os, "rmdir", refuse)
        await transport.close()
    assert transport.returncode == 0
    (left,) = re.findall("the private folder (.*) could not be removed", logged(caplog))
    remove_folder(Path(left))


# The kernel.


@pytest.mark.parametrize("number", [errno.ENOSYS, errno.EPERM])
def test_where_the_kernel_cannot_hold_a_number_what_is_ours_is_signalled_all_the_same(
    number: int, stranger: Stranger, marked: Stranger, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An old kernel has no such call, and some containers forbid what they do not know."""

    def refuse(_: int) -> int:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, "pidfd_open", refuse)
    tree, _ = tree_of(os.getpid())
    for pid in (stranger.pid, marked.pid, 2**22 + 1):
        tree.signal(pid, signal.SIGSTOP, signal.SIGKILL)
    assert marked.process.wait() == -signal.SIGKILL
    assert is_alive(stranger)


@pytest.mark.anyio
async def test_one_that_forks_on_and_on_does_not_get_away(tmp_path: Path) -> None:
    lock = tmp_path / "lock"
    async with impatient("leaves_one_that_forks_on_and_on", str(lock)) as transport:
        await anext(transport.messages())
        assert is_locked(lock)
    assert not is_locked(lock)


def test_the_watchdog_catches_one_that_forks_on_and_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_watchdog_main, "POLITE_SECONDS", 0.05)
    monkeypatch.setattr(_watchdog_main, "TERM_SECONDS", 0.05)
    lock = tmp_path / "lock"
    command = child("leaves_one_that_forks_on_and_on", str(lock))

    async def start() -> ProcessTransport:
        transport = ProcessTransport(command)
        await transport.connect()
        await anext(transport.messages())
        return transport

    transport = anyio.run(start)
    assert is_locked(lock)
    assert transport._child is not None
    _watchdog_main.clean_up(supervisor().id, {})
    assert not is_locked(lock)


def is_locked(path: Path) -> bool:
    number = os.open(path, os.O_RDWR)
    try:
        fcntl.flock(number, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    else:
        return False
    finally:
        os.close(number)


def test_a_note_that_the_watchdog_cannot_read_is_passed_over(monkeypatch: pytest.MonkeyPatch) -> None:
    reading, writing = os.pipe()
    os.write(writing, b"1 1\x002 1 1 \0")
    os.close(writing)
    try:
        assert set(_watchdog_main.wait_for_death(os.getppid(), reading)) == {2}
    finally:
        os.close(reading)


@pytest.fixture(autouse=True)
def warnings_are_seen(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING)

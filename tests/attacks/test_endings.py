"""However the end comes about, and whatever is missing on the machine: nothing of an agent is left."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import anyio
import pexpect
import pytest

from outrider.testing import hang, say
from outrider.transports._process import processes as _processes
from outrider.transports._process import watchdog_main as _watchdog_main
from outrider.transports._process.processes import ProcessTable, processes, put_tag
from outrider.transports._process.spawn import run_uninterrupted
from outrider.transports._process.supervisor import Watchdog
from tests.app.machines import COMMAND, DEADLINE, clean, machine
from tests.proc import environment_of, process_ids, stat_of, tag_of
from tests.session.surroundings import make_program
from tests.transports.conftest import (
    impatient,
    libraries_are_warm,
    logged,
    marked_processes,
    nothing_is_left,
    own_processes,
    wait_for,
)
from tests.transports.test_hosts import Started, started

# Autouse, and so in force for this module; and a fixture.
__all__ = ["libraries_are_warm", "nothing_is_left", "started"]

HANGING_UP = Path(__file__).with_name("hanging_up.py")
ROOT = Path(__file__).parents[2]


def is_running(pid: int) -> bool:
    stat = stat_of(pid)
    return stat is not None and stat.is_running


# A daemon that has left the group, the session, its parent and its environment.


needs_tags = pytest.mark.skipif(not processes().has_tags, reason="nothing else marks a daemon")


@needs_tags
@pytest.mark.anyio
async def test_a_daemon_without_an_environment_ends_with_its_agent() -> None:
    async with impatient("leaves_a_daemon") as transport:
        message: Any = await anext(transport.messages())
        daemon = message.data["pid"]
        wait_for(lambda: environment_of(daemon) == b"\0")
        stat = stat_of(daemon)
        assert stat is not None
        assert transport.pid not in (stat.group, stat.session)
        assert transport.resident_bytes()
    assert not is_running(daemon)


@needs_tags
def test_a_daemon_without_an_environment_ends_with_the_host(started: list[Started]) -> None:
    one = Started("waits_with_a_daemon")
    started.append(one)
    daemon = one.worker
    wait_for(lambda: environment_of(daemon) == b"\0")
    one.process.kill()
    wait_for(lambda: not is_running(daemon))
    wait_for(lambda: not one.watchdog_is_there())
    assert one.left() == []


@needs_tags
@pytest.mark.anyio
async def test_a_tag_is_for_one_child_alone() -> None:
    async with impatient("leaves_a_daemon") as first, impatient("leaves_a_daemon") as second:
        messages: list[Any] = [await anext(one.messages()) for one in (first, second)]
        daemons = [message.data["pid"] for message in messages]
        await first.close()
        assert [is_running(pid) for pid in daemons] == [False, True]
        assert tag_of(daemons[1]) == tag_of(second.pid or 0) != 0
    assert tag_of(os.getpid()) == 0


@pytest.mark.skipif(sys.platform != "linux", reason="there are no tags elsewhere")
def test_what_an_agent_starts_before_it_is_marked_is_marked_with_it() -> None:
    """A shell that begins with a daemon is faster than its host."""
    shell = ["env", "-i", "sh", "-c", "setsid sh -c 'echo $$; read line; true'; true"]
    with subprocess.Popen(shell, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        inner = int(process.stdout.readline())
        assert tag_of(inner) == 0
        put_tag(process.pid, 7)
        assert [tag_of(pid) for pid in (process.pid, inner)] == [7, 7]
        process.communicate(b"\n")


# A system that tells nothing of its processes.


@pytest.fixture
def no_proc(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_processes, "_table", ProcessTable())


@pytest.mark.anyio
@pytest.mark.usefixtures("no_proc")
@pytest.mark.parametrize(
    "name", ["leaves_one_in_its_group", "leaves_a_holder", "polite", "ignores_everything", "floods"]
)
async def test_without_proc_the_group_goes_however_the_agent_ends(name: str) -> None:
    transport = impatient(name)
    await transport.connect()
    await anext(transport.messages())
    with anyio.fail_after(transport.bound):
        await transport.close()
    # Nothing tells when what was killed is gone.
    wait_for(lambda: not own_processes())
    assert transport.returncode == (0 if name not in ("ignores_everything", "floods") else -signal.SIGKILL)
    assert transport.resident_bytes() == 0


@pytest.mark.anyio
@pytest.mark.usefixtures("no_proc")
async def test_without_proc_and_without_zombies_no_group_of_another_is_signalled(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """An application that ignores SIGCHLD: the number of a child that has ended is free at once."""
    before = signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    signalled: list[tuple[int, int]] = []
    try:
        transport = impatient("polite")
        await transport.connect()
        await anext(transport.messages())
        monkeypatch.setattr(os, "killpg", lambda *call: signalled.append(call))
        await transport.close()
    finally:
        signal.signal(signal.SIGCHLD, before)
    assert signalled == []


@pytest.mark.usefixtures("no_proc")
def test_without_proc_the_watchdog_ends_the_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_watchdog_main, "POLITE_SECONDS", 0.05)
    monkeypatch.setattr(_watchdog_main, "TERM_SECONDS", 0.05)
    # Of a host that has died, init reaps at once; here the system does.
    before = signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    try:
        transports = [impatient(name) for name in ("leaves_one_in_its_group", "ignores_everything")]

        async def start() -> None:
            for one in transports:
                await one.connect()
                await anext(one.messages())

        anyio.run(start)
        groups = [*(one.pid for one in transports), 2**22 + 1]
        notes = {number: (group or 0, 0, "") for number, group in enumerate(groups)}
        _watchdog_main.clean_up(f"test{os.getpid()}", notes)
        assert own_processes() == []
        wait_for(lambda: not any(one.is_alive for one in transports))
    finally:
        signal.signal(signal.SIGCHLD, before)


# The watchdog is killed.


def watchdogs_of(one: Started) -> list[int]:
    marker = f"\0{one.first_line.split()[0]}\0".encode()
    found: list[int] = []
    for pid in process_ids():
        with suppress(OSError):
            if is_running(pid) and marker in (Path("/proc") / str(pid) / "cmdline").read_bytes():
                found.append(pid)
    return found


def test_a_watchdog_that_is_killed_is_there_again_and_knows_everything(started: list[Started]) -> None:
    one = Started("waits_to_be_killed")
    started.append(one)
    for _ in range(2):
        (watchdog,) = watchdogs_of(one)
        os.kill(watchdog, signal.SIGKILL)
        wait_for(lambda killed=watchdog: [killed] != watchdogs_of(one) != [])  # type: ignore[misc]
    assert len(one.folders()) == 3
    one.process.kill()
    one.process.wait()
    wait_for(lambda: not one.left())
    wait_for(lambda: not watchdogs_of(one))
    assert one.folders() == []


@pytest.fixture
def watchdog() -> Iterator[Watchdog]:
    one = Watchdog("test")
    one.start()
    yield one
    one.stop()


def test_a_new_watchdog_is_told_of_more_children_than_a_pipe_holds(
    watchdog: Watchdog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that is stopped reads nothing, and is replaced by one that does."""
    from outrider.transports._process import supervisor as _supervisor

    monkeypatch.setattr(_supervisor, "_BEHIND_LIMIT", 100_000)
    monkeypatch.setattr(_supervisor, "_AGAIN_SECONDS", 0.0)
    first = watchdog.pid
    assert first is not None
    os.kill(first, signal.SIGSTOP)
    for number in range(3000):
        watchdog.watch(number, 2**22 + 1 + number, 1, str(tmp_path / str(number)))
    for number in range(3000):
        watchdog.release(number)
    for number in range(1000):
        (tmp_path / str(number)).mkdir()
        watchdog.watch(number, 2**22 + 1 + number, 1, str(tmp_path / str(number)))
    wait_for(lambda: not is_running(first))

    def has_told() -> bool:
        watchdog.maintain()
        return watchdog.pid != first and not watchdog._unsent

    wait_for(has_told)
    second = watchdog.pid
    assert second is not None
    watchdog.stop()
    wait_for(lambda: not is_running(second))
    assert list(tmp_path.iterdir()) == []


def test_a_watchdog_that_dies_at_once_is_not_started_again_at_once(
    watchdog: Watchdog, caplog: pytest.LogCaptureFixture
) -> None:
    first = watchdog.pid
    assert first is not None
    os.kill(first, signal.SIGKILL)
    wait_for(lambda: not is_running(first))
    watchdog.maintain()
    assert watchdog.pid == first
    assert 0 < (watchdog.due_in() or 0) <= 1
    assert logged(caplog) == ""


# SIGHUP: the terminal is gone, or somebody says so.


@pytest.mark.parametrize("way", ["kill", "hang up"])
@pytest.mark.parametrize("command", ["run", "fleet"])
@pytest.mark.parametrize("when", ["connect", "turn"])
def test_sighup_ends_a_command_and_its_agent_in_order(command: str, when: str, way: str) -> None:
    with machine(otherwise=hang()) as here:
        program = here.folder / "program"
        wait = "cat >/dev/null" if when == "connect" else 'exec claude "$@"'
        program.write_text(f"#!/bin/sh\necho began >begun\n{wait}\necho in order >end\n")
        program.chmod(0o755)
        os.mkfifo(here.folder / "begun")
        (here.folder / "tasks.jsonl").write_text('{"id":"a","prompt":"Hi"}\n')
        given = ("run", "Hi") if command == "run" else ("fleet", "run", "tasks.jsonl")
        with here.child(*given, "--program", str(program)) as screen:
            assert (here.folder / "begun").read_text() == "began\n"
            if when == "turn":
                screen.see("working" if command == "run" else "1 running")
            if way == "kill":
                screen.process.kill(signal.SIGHUP)
                screen.process.expect(pexpect.EOF)
                assert "Traceback" not in screen.text
                screen.process.close()
                assert screen.process.signalstatus == signal.SIGHUP
            else:
                terminal: Any = vars(screen.process)["ptyproc"]
                terminal.fileobj.close()
                terminal.closed = terminal.terminated = True
                _, status = os.waitpid(terminal.pid, 0)
                assert os.WIFSIGNALED(status) or os.WEXITSTATUS(status)
        assert here.is_empty()
        if when == "connect":
            # It saw the end of its input, and was not killed by a watchdog.
            assert (here.folder / "end").read_text() == "in order\n"


def test_a_command_under_nohup_goes_on() -> None:
    with machine(say("Done.")) as here:
        program = here.folder / "program"
        program.write_text('#!/bin/sh\necho began >begun\ncat go >/dev/null\nexec claude "$@"\n')
        program.chmod(0o755)
        for name in ("begun", "go"):
            os.mkfifo(here.folder / name)
        before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
        try:
            process = subprocess.Popen(
                [*COMMAND, "run", "Hi", "--program", str(program)],
                env=clean(here.child_environment()),
                cwd=here.folder,
                stdout=subprocess.PIPE,
                stdin=subprocess.DEVNULL,
            )
        finally:
            signal.signal(signal.SIGHUP, before)
        assert (here.folder / "begun").read_text() == "began\n"
        process.send_signal(signal.SIGHUP)
        (here.folder / "go").write_text("go")
        out, _ = process.communicate(timeout=DEADLINE)
        assert (out, process.returncode) == (b"Done.\n", 0)


@pytest.mark.parametrize("handler", ["default", "exit", "raise"])
@pytest.mark.parametrize(
    "way, when",
    [
        ("asyncio", "connect"),
        ("asyncio", "turn"),
        ("sync", "connect"),
        ("sync", "turn"),
        ("another thread", "connect"),
    ],
)
def test_sighup_ends_a_host_and_its_agent(way: str, when: str, handler: str, tmp_path: Path) -> None:
    """With a handler that raises, wherever the program is at that moment, and without one; and when it is
    another thread that the system gives it to."""
    program = make_program(tmp_path, "works_on_and_on" if when == "turn" else "hangs_at_the_start")
    done = subprocess.Popen(
        [sys.executable, str(HANGING_UP), way, when, handler, program],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        text=True,
    )
    assert done.stdout is not None
    marker = done.stdout.readline().strip()
    try:
        if way != "another thread":
            wait_for(lambda: marked_processes(marker) != [])
            os.kill(done.pid, signal.SIGHUP)
        assert done.wait(DEADLINE) == {"default": -signal.SIGHUP, "exit": 3, "raise": 1}[handler]
        wait_for(lambda: not marked_processes(marker))
    finally:
        done.kill()
        done.communicate()


@pytest.mark.parametrize("number", [signal.SIGHUP, signal.SIGTERM, signal.SIGUSR1])
def test_a_handler_that_raises_does_not_get_into_a_start(number: signal.Signals) -> None:
    heard: list[int] = []

    def begin() -> None:
        signal.raise_signal(number)
        signal.raise_signal(signal.SIGALRM)
        heard.append(0)

    def handle(number: int, _: object) -> None:
        heard.append(number)
        raise LookupError

    kept = {each: signal.signal(each, handle) for each in (number, signal.SIGALRM)}
    try:
        with pytest.raises(LookupError):
            run_uninterrupted(begin)
        assert heard[0] == 0
        assert set(heard[1:]) == {number, signal.SIGALRM}
        assert signal.getsignal(number) is handle
    finally:
        for each, before in kept.items():
            signal.signal(each, before)

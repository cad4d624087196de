"""A system without `/proc`, as macOS: processes are found by psutil, and what is promised is the same.

Here `/proc` says whether it was kept. `make test-psutil` runs all tests of endings in this way.
"""

from __future__ import annotations

import gc
import os
import signal
import subprocess
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import anyio
import pytest

from outrider.transports import ProcessTransport
from outrider.transports._process import processes as _processes
from outrider.transports._process.processes import SWITCH, ProcessTable, ProcTable, PsutilTable
from tests.proc import environment_of, process_ids, stat_of
from tests.transports.conftest import child, impatient, own_processes, wait_for
from tests.transports.test_endings import LIVE, by_close, by_close_in_a_cancelled_scope, by_kill, first
from tests.transports.test_hosts import Started, started
from tests.transports.test_scarcity import is_locked

__all__ = ["started"]


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(autouse=True)
def psutil(monkeypatch: pytest.MonkeyPatch) -> PsutilTable:
    table = PsutilTable()
    monkeypatch.setattr(_processes, "_table", table)
    # For the hosts that are started.
    monkeypatch.setenv(SWITCH, "psutil")
    return table


def is_running(pid: int) -> bool:
    stat = stat_of(pid)
    return stat is not None and stat.is_running


@pytest.mark.anyio
@pytest.mark.requirement("F2")
@pytest.mark.requirement("F3")
@pytest.mark.parametrize("way", [by_close, by_kill, by_close_in_a_cancelled_scope])
async def test_nothing_is_left(way: Callable[[ProcessTransport], Awaitable[None]]) -> None:
    async def end_one(name: str) -> None:
        transport = impatient(name)
        await transport.connect()
        await first(transport)
        await way(transport)
        assert not transport.is_alive

    async with anyio.create_task_group() as tasks:
        for name in LIVE:
            tasks.start_soon(end_one, name)
    assert own_processes() == []


@pytest.mark.anyio
@pytest.mark.requirement("F4")
async def test_transports_that_nobody_has_any_more_end_their_children() -> None:
    async def start_one(name: str) -> ProcessTransport:
        transport = impatient(name)
        await transport.connect()
        await first(transport)
        return transport

    transports = [await start_one(name) for name in LIVE]
    transports.clear()
    gc.collect()
    wait_for(lambda: not own_processes())


@pytest.mark.requirement("F4")
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_when_the_host_is_killed_everything_goes(number: signal.Signals, started: list[Started]) -> None:
    one = Started("waits_to_be_killed")
    started.append(one)
    assert len(one.left()) >= 4
    one.process.send_signal(number)
    one.process.wait()
    wait_for(lambda: not one.left())
    wait_for(lambda: not one.watchdog_is_there())
    assert one.folders() == []


@pytest.mark.anyio
@pytest.mark.parametrize("way", ["close", "kill"])
async def test_what_has_only_its_parent_to_show_for_it_ends_with_the_agent(way: str) -> None:
    """macOS shows the environment of none of its own programs, and they have no tag."""
    async with impatient("leaves_a_hidden_one") as transport:
        pid = (await first(transport)).data["pid"]
        wait_for(lambda: environment_of(pid) == b"\0")
        assert transport.resident_bytes() > 1_000_000
        await (transport.close() if way == "close" else transport.kill())
        assert not is_running(pid)


def test_what_has_only_its_parent_to_show_for_it_ends_with_the_host(started: list[Started]) -> None:
    one = Started("waits_with_a_hidden_one")
    started.append(one)
    wait_for(lambda: environment_of(one.worker) == b"\0")
    one.process.kill()
    wait_for(lambda: not is_running(one.worker))
    wait_for(lambda: not one.watchdog_is_there())


@pytest.mark.anyio
async def test_one_that_forks_on_and_on_does_not_get_away(tmp_path: Path) -> None:
    lock = tmp_path / "lock"
    async with impatient("leaves_one_that_forks_on_and_on", str(lock)) as transport:
        await first(transport)
        assert is_locked(lock)
    assert not is_locked(lock)


# The table.


def test_both_tables_say_the_same(psutil: PsutilTable) -> None:
    argv = [*child("polite").argv]
    env = {"A": "1", "B": "ä\n"}
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=env) as process:
        assert process.stdout is not None
        process.stdout.readline()
        proc = ProcTable()
        mine, theirs = psutil.stat_of(process.pid), proc.stat_of(process.pid)
        assert mine is not None
        assert theirs is not None
        for name in ("is_running", "parent", "group", "session"):
            assert getattr(mine, name) == getattr(theirs, name)
        assert mine.started == theirs.started * 1_000_000 // os.sysconf("SC_CLK_TCK")
        assert set(psutil.environment_of(process.pid).split(b"\0")) >= {b"A=1", b"B=\xc3\xa4\n"}
        assert psutil.resident_bytes_of(process.pid) > 1_000_000
        assert {os.getpid(), process.pid} <= {pid for pid, _ in psutil.entries()} & set(process_ids())
        process.kill()
        wait_for(lambda: not is_running(process.pid))
        zombie = psutil.stat_of(process.pid)
        assert zombie is not None
        assert (zombie.is_running, zombie.started) == (False, mine.started)
        assert psutil.environment_of(process.pid) == b""
    assert psutil.stat_of(process.pid) is None
    assert psutil.environment_of(process.pid) == b""
    assert psutil.resident_bytes_of(process.pid) == 0


def test_which_table_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    assert type(_processes._choose()) is PsutilTable
    monkeypatch.delenv(SWITCH)
    assert type(_processes._choose()) is ProcTable
    monkeypatch.setattr(ProcTable, "stat_of", lambda *_: None)
    assert type(_processes._choose()) is PsutilTable
    monkeypatch.setitem(sys.modules, "psutil", None)
    assert type(_processes._choose()) is ProcessTable


def test_a_watchdog_whose_psutil_is_gone_goes_on_with_what_it_has(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table: Any = ProcessTable()
    monkeypatch.setattr(_processes, "_table", table)
    monkeypatch.setitem(sys.modules, "psutil", None)
    path = list(sys.path)
    _processes.use_psutil(str(tmp_path))
    assert _processes.processes() is table
    assert sys.path == path

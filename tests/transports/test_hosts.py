"""Whatever becomes of the host: no process and no file of a child is left."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.proc import stat_of
from tests.transports.conftest import logged, marked_processes, wait_for

HOSTS = Path(__file__).with_name("hosts.py")


class Started:
    """A host in a process of its own, and what it says of itself."""

    def __init__(self, name: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, str(HOSTS), name], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        assert self.process.stdout is not None
        self.first_line = self.process.stdout.readline()

    @property
    def marker(self) -> str:
        return f"OUTRIDER_{self.first_line.split()[0]}="

    @property
    def watchdog(self) -> int:
        return int(self.first_line.split()[1])

    @property
    def worker(self) -> int:
        return int(self.first_line.split()[2])

    def left(self) -> list[int]:
        return marked_processes(self.marker)

    def folders(self) -> list[Path]:
        return list(Path(tempfile.gettempdir()).glob(f"outrider-{self.process.pid}-*"))

    def watchdog_is_there(self) -> bool:
        stat = stat_of(self.watchdog)
        return stat is not None and stat.is_running


@pytest.fixture
def started() -> Iterator[list[Started]]:
    hosts: list[Started] = []
    yield hosts
    for one in hosts:
        one.process.kill()
        one.process.communicate()


@pytest.mark.requirement("F4")
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
@pytest.mark.parametrize("name", ["waits_to_be_killed", "is_killed_while_its_worker_lives"])
def test_when_the_host_is_killed_everything_goes(
    name: str, number: signal.Signals, started: list[Started]
) -> None:
    one = Started(name)
    started.append(one)
    assert len(one.left()) >= 4
    assert len(one.folders()) == 3
    one.process.send_signal(number)
    one.process.wait()
    wait_for(lambda: not one.left())
    wait_for(lambda: not one.watchdog_is_there())
    assert one.folders() == []
    if one.worker:
        os.kill(one.worker, signal.SIGKILL)


@pytest.mark.requirement("F4")
@pytest.mark.parametrize(
    "name, code",
    [
        ("ends_without_closing", 0),
        ("ends_with_an_error", 1),
        ("ends_with_the_loop_in_a_thread", 0),
        ("ends_with_the_loop_running", 0),
    ],
)
def test_when_the_interpreter_ends_everything_is_gone_already(
    name: str, code: int, started: list[Started]
) -> None:
    one = Started(name)
    started.append(one)
    _, errors = one.process.communicate()
    assert one.process.returncode == code, errors
    assert ("Traceback" in errors) == bool(code), errors
    assert one.left() == []
    assert one.folders() == []
    wait_for(lambda: not one.watchdog_is_there())


def test_a_forked_process_leaves_the_children_of_its_parent_alone(started: list[Started]) -> None:
    one = Started("forks")
    started.append(one)
    assert one.process.stdout is not None
    # Not by `communicate`, which knows nothing of what was read together with the first line.
    assert one.process.stdout.read() == "still_there\n"
    _, errors = one.process.communicate()
    assert one.process.returncode == 0, errors
    assert one.left() == []


def test_orphans_that_become_children_of_the_host_are_reaped(started: list[Started]) -> None:
    one = Started("is_given_orphans")
    started.append(one)
    assert one.worker == 0


def test_a_watchdog_that_was_killed_is_replaced_with_the_next_child(started: list[Started]) -> None:
    from outrider.transports._process.supervisor import Supervisor

    owner = Supervisor()
    try:
        owner.watchdog.start()
        first = owner.watchdog.pid
        assert first is not None
        os.kill(first, signal.SIGKILL)
        wait_for(lambda: (stat := stat_of(first)) is None or not stat.is_running)
        owner.watchdog.start()
        assert owner.watchdog.pid not in (None, first)
    finally:
        owner.watchdog.stop()


def test_without_an_interpreter_there_is_no_watchdog_and_a_warning(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    from outrider.transports._process.supervisor import Supervisor

    monkeypatch.setattr(sys, "frozen", True, raising=False)
    owner = Supervisor()
    owner.watchdog.start()
    owner.watchdog.start()
    assert owner.watchdog.pid is None
    assert logged(caplog).count("no Python to start a watchdog with") == 1

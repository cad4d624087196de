"""What belongs to a child is found, and nothing else is ever signalled."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from outrider.transports import ProcessTransport
from outrider.transports._process import processes as _processes
from outrider.transports._process import watchdog_main as _watchdog_main
from outrider.transports._process.processes import environment_of, processes, stat_of
from outrider.transports._process.tree import Tree
from outrider.transports._process.watchdog_main import Marked
from tests.transports.conftest import child, wait_for

MARKER = "OUTRIDER_test=1"
by_marks = pytest.mark.skipif(
    not processes().has_tags, reason="what this process starts is of its tree, then"
)


class Stranger:
    """A process that is not ours, or that is if it is told to carry a marker."""

    def __init__(self, **env: str) -> None:
        self.process = subprocess.Popen(["sleep", "3600"], env=dict(os.environ) | env, start_new_session=True)
        # Before exec a new process still has the environment of its parent.
        wait_for(lambda: b"sleep" in Path(f"/proc/{self.pid}/cmdline").read_bytes())

    @property
    def pid(self) -> int:
        return self.process.pid


@pytest.fixture
def stranger() -> Iterator[Stranger]:
    one = Stranger()
    yield one
    one.process.kill()
    one.process.wait()


@pytest.fixture
def marked() -> Iterator[Stranger]:
    one = Stranger(OUTRIDER_test="1")
    yield one
    one.process.kill()
    one.process.wait()


def is_alive(one: Stranger) -> bool:
    return one.process.poll() is None


def test_members_are_those_of_the_group_and_those_with_the_marker(
    stranger: Stranger, marked: Stranger
) -> None:
    assert Tree(stranger.pid, "OUTRIDER_other=1").members() == [stranger.pid]
    assert set(Tree(stranger.pid, MARKER).members()) == {stranger.pid, marked.pid}
    assert Tree(stranger.pid, MARKER).others() == [marked.pid]


def test_a_marker_must_be_whole(marked: Stranger) -> None:
    assert marked.pid not in Tree(os.getpid(), "OUTRIDER_test=").others()
    assert marked.pid not in Tree(os.getpid(), "RIDLE_test=1").others()
    assert marked.pid not in Tree(os.getpid(), "OUTRIDER_test=11").others()


@by_marks
def test_a_number_that_went_to_another_process_is_not_signalled(
    stranger: Stranger, marked: Stranger, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As if a member had ended after it was found, and its number been given to a stranger."""
    tree = Tree(os.getpid(), MARKER)
    monkeypatch.setattr(tree, "_find_others", lambda: iter([stranger.pid, marked.pid, 2**22 + 1]))
    assert tree.signal_others(signal.SIGKILL) == 3
    assert marked.process.wait() == -signal.SIGKILL
    assert is_alive(stranger)


def test_what_started_before_the_child_is_not_of_its_making(
    stranger: Stranger, marked: Stranger, monkeypatch: pytest.MonkeyPatch
) -> None:
    tree = Tree(stranger.pid, MARKER)
    started = processes().stat_of(marked.pid)
    assert started is not None
    monkeypatch.setattr(tree, "started", started.started + 1)
    assert tree.others() == []


def test_a_process_that_is_gone_has_nothing() -> None:
    assert stat_of(2**22 + 1) is None
    assert environment_of(2**22 + 1) == b""
    Tree(2**22 + 1, MARKER).signal_group(signal.SIGKILL)
    assert Tree(2**22 + 1, MARKER).resident_bytes() == 0


def test_a_name_with_brackets_and_spaces_is_read(tmp_path: Path) -> None:
    program = tmp_path / "a) b (c"
    program.symlink_to("/bin/sleep")
    process = subprocess.Popen([program, "3600"])
    try:
        wait_for(lambda: b"a) b" in Path(f"/proc/{process.pid}/stat").read_bytes())
        stat = stat_of(process.pid)
        assert stat is not None
        assert stat.group == os.getpgrp()
        assert stat.is_running
    finally:
        process.kill()
        process.wait()


def test_where_there_is_no_proc_there_are_no_others(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_: object) -> list[str]:
        raise FileNotFoundError

    monkeypatch.setattr(os, "listdir", refuse)
    assert list(_processes.process_ids()) == []


@pytest.mark.anyio
async def test_nothing_is_signalled_after_the_child_was_reaped(monkeypatch: pytest.MonkeyPatch) -> None:
    """Until then its number, and that of its group, is nobody else's."""
    calls: list[str] = []

    def recorded(name: str, function: Any) -> Any:
        def call(*arguments: Any) -> Any:
            calls.append(name)
            return function(*arguments)

        return call

    monkeypatch.setattr(os, "killpg", recorded("signal", os.killpg))
    monkeypatch.setattr(signal, "pidfd_send_signal", recorded("signal", signal.pidfd_send_signal))
    monkeypatch.setattr(os, "waitid", recorded("reap", os.waitid))
    transport = ProcessTransport(child("leaves_a_shell_in_a_session"), grace=0.05, terminate=0.05)
    await transport.connect()
    await anext(transport.messages())
    await transport.close()
    assert calls.count("signal") >= 3
    assert calls == sorted(calls, reverse=True)


# What the watchdog finds. It knows no child, only the host.


def test_the_watchdog_knows_what_is_ours(stranger: Stranger, marked: Stranger) -> None:
    marker = b"OUTRIDER_test="
    stat = processes().stat_of(stranger.pid)
    assert stat is not None
    assert Marked(marker, {}).has(marked.pid)
    assert not Marked(marker, {}).has(stranger.pid)
    assert Marked(marker, {stranger.pid: stat.started}).has(stranger.pid)
    assert not Marked(marker, {stranger.pid: 12}).has(stranger.pid)
    assert not Marked(marker, {}).has(2**22 + 1)


def test_the_watchdog_ends_what_is_ours_and_removes_the_folders(
    stranger: Stranger, marked: Stranger, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_watchdog_main, "POLITE_SECONDS", 0.05)
    folder = tmp_path / "folder"
    folder.mkdir()
    children: dict[int, dict[str, object]] = {
        1: {"group": marked.pid, "started": 0, "folder": str(folder)},
        2: {"group": stranger.pid, "started": 0, "folder": None},
    }
    _watchdog_main.clean_up(b"OUTRIDER_test=", children)
    assert marked.process.wait() == -signal.SIGTERM
    assert is_alive(stranger)
    assert not folder.exists()


def test_the_watchdog_does_not_signal_a_number_that_went_to_another(stranger: Stranger) -> None:
    for pid in (stranger.pid, 2**22 + 1):
        Marked(b"OUTRIDER_test=", {}).signal_one(pid, signal.SIGKILL)
    assert is_alive(stranger)


def test_the_watchdog_hears_of_children_until_the_host_is_dead(
    stranger: Stranger, monkeypatch: pytest.MonkeyPatch
) -> None:
    reading, writing = os.pipe()
    watch = b'{"do":"watch","number":%d,"group":1,"started":1,"folder":null}\n'
    os.write(writing, watch % 1 + watch % 2 + b'{"do":"release","number":1}\n')
    # The pipe stays open, as if a worker of the host held it: its death alone tells.
    monkeypatch.setattr(os, "getppid", lambda: stranger.pid)
    stranger.process.kill()
    try:
        assert set(_watchdog_main.wait_for_death(stranger.pid, reading)) == {2}
    finally:
        os.close(reading)
        os.close(writing)


@pytest.mark.parametrize("is_held", [False, True])
def test_the_watchdog_of_a_host_that_is_dead_already_does_not_wait(
    is_held: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_watchdog_main, "LOOK_SECONDS", 0.01)
    reading, writing = os.pipe()
    if not is_held:
        os.close(writing)
    try:
        assert _watchdog_main.wait_for_death(2**22 + 1, reading) == {}
    finally:
        os.close(reading)
        if is_held:
            os.close(writing)

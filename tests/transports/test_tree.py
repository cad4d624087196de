"""What belongs to a child is found, and nothing else is ever signalled."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from outrider.transports import ProcessTransport
from outrider.transports._process import watchdog_main as _watchdog_main
from outrider.transports._process.processes import Leader, ProcTable, Tree, processes
from tests.proc import environment_of, process_ids, stat_of
from tests.transports.conftest import child, wait_for

by_marks = pytest.mark.skipif(
    not processes().has_tags, reason="what this process starts is of its tree, then"
)


HOST = f"test{os.getpid()}"
"""Not the same in any two processes: other tests that run now end what is theirs."""


class Stranger:
    """A process that is not ours, or that is if it carries our marker, for the child of a number."""

    def __init__(self, number: int | None = None) -> None:
        marker = {} if number is None else {f"OUTRIDER_{HOST}": str(number)}
        command = ["sleep", "3600"]
        self.process = subprocess.Popen(command, env=dict(os.environ) | marker, start_new_session=True)
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
    one = Stranger(1)
    yield one
    one.process.kill()
    one.process.wait()


def is_alive(one: Stranger) -> bool:
    return one.process.poll() is None


def tree_of(pid: int, host_id: str = HOST, number: int = 1) -> tuple[Tree, Leader]:
    """A tree with one child, which is this process, or one that is not ours."""
    tree, leader = Tree(host_id), Leader(number, pid)
    tree.add(leader)
    return tree, leader


def found(tree: Tree, numbers: list[int]) -> list[tuple[int, int]]:
    """What a search finds, in order; repeated, as sessions do, where many processes come and go."""
    while True:
        with suppress(BlockingIOError):
            return sorted(tree.find(numbers))


def test_members_are_those_of_the_group_and_those_with_the_marker(
    stranger: Stranger, marked: Stranger
) -> None:
    tree, leader = tree_of(stranger.pid, "other")
    assert tree.members(leader) == [stranger.pid]
    tree, leader = tree_of(stranger.pid)
    assert set(tree.members(leader)) == {stranger.pid, marked.pid}
    assert found(tree, [1]) == [(1, marked.pid)]
    assert set(tree.find()) == {(1, marked.pid), (1, stranger.pid)}


@pytest.mark.parametrize(
    "host_id, number",
    [(HOST[:-1], 1), (HOST[1:], 1), (HOST, 11), (f"{HOST}=1", 1)],
    ids=["start", "end", "longer", "value"],
)
def test_a_marker_must_be_whole(host_id: str, number: int, stranger: Stranger, marked: Stranger) -> None:
    tree, leader = tree_of(stranger.pid, host_id, number)
    assert marked.pid not in tree.members(leader)
    assert found(tree, [number]) == []


def test_one_search_finds_what_belongs_to_each_child(stranger: Stranger, marked: Stranger) -> None:
    other = Stranger(2)
    try:
        tree, _ = tree_of(stranger.pid)
        second = Leader(2, 2**22 + 1)
        tree.add(second)
        assert found(tree, [1, 2]) == [(1, marked.pid), (2, other.pid)]
        assert found(tree, [2]) == [(2, other.pid)]
        tree.remove(second)
        assert found(tree, [1]) == [(1, marked.pid)]
    finally:
        other.process.kill()
        other.process.wait()


@by_marks
def test_a_process_that_is_known_is_not_looked_at_again(
    stranger: Stranger, marked: Stranger, monkeypatch: pytest.MonkeyPatch
) -> None:
    tree, _ = tree_of(os.getpid())
    assert (1, marked.pid) in found(tree, [1])
    looked_at: list[int] = []

    def look(_: ProcTable, pid: int) -> bytes:
        looked_at.append(pid)
        return environment_of(pid)

    monkeypatch.setattr(ProcTable, "environment_of", look)
    assert (1, marked.pid) in found(tree, [1])
    assert stranger.pid not in looked_at
    assert marked.pid not in looked_at


def test_a_search_that_never_comes_to_an_end_is_given_up(
    stranger: Stranger, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As where processes come and go: each that was gone when its turn came may have started another."""
    tree, _ = tree_of(stranger.pid)
    monkeypatch.setattr(type(processes()), "entries", lambda _: [(2**22 + 1, 0)])
    with pytest.raises(OSError, match="come and go"):
        list(tree.find([1]))


@by_marks
def test_a_number_that_went_to_another_process_is_not_signalled(stranger: Stranger, marked: Stranger) -> None:
    """As if a member had ended after it was found, and its number been given to a stranger."""
    tree, leader = tree_of(os.getpid())
    for pid in (stranger.pid, marked.pid, 2**22 + 1):
        tree.signal(pid, signal.SIGKILL)
    assert marked.process.wait() == -signal.SIGKILL
    assert is_alive(stranger)
    assert list(leader.signalled) == [marked.pid]


def test_what_started_before_the_child_is_not_of_its_making(stranger: Stranger, marked: Stranger) -> None:
    started = processes().stat_of(marked.pid)
    assert started is not None
    tree = Tree(HOST)
    tree.add(Leader(1, stranger.pid, started.started + 1))
    assert found(tree, [1]) == []


def test_a_process_that_is_gone_has_nothing() -> None:
    assert stat_of(2**22 + 1) is None
    assert environment_of(2**22 + 1) == b""
    tree, leader = tree_of(2**22 + 1)
    leader.signal_group(signal.SIGKILL)
    assert tree.resident_bytes(leader) == 0


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

    monkeypatch.setattr(os, "scandir", refuse)
    assert process_ids() == []


@pytest.mark.anyio
async def test_nothing_is_signalled_after_the_child_was_reaped(monkeypatch: pytest.MonkeyPatch) -> None:
    """Until then its number, and that of its group, is nobody else's."""
    calls: list[str] = []

    def recorded(name: str, function: Any) -> Any:
        def call(*arguments: Any) -> Any:
            if not (name == "reap" and arguments[2] & os.WNOWAIT):
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


def test_a_group_is_ours_while_its_leader_is_the_one_that_was_reported(stranger: Stranger) -> None:
    stat = processes().stat_of(stranger.pid)
    assert stat is not None
    for started, found in ((stat.started, [(3, stranger.pid)]), (12, [])):
        tree = Tree("other")
        tree.add(Leader(3, stranger.pid, started))
        assert list(tree.find()) == found


def test_the_watchdog_ends_what_is_ours_and_removes_the_folders(
    stranger: Stranger, marked: Stranger, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_watchdog_main, "POLITE_SECONDS", 0.05)
    folder = tmp_path / "folder"
    folder.mkdir()
    children = {1: (marked.pid, 0, str(folder)), 2: (stranger.pid, 0, "")}
    _watchdog_main.clean_up(HOST, children)
    assert marked.process.wait() == -signal.SIGTERM
    assert is_alive(stranger)
    assert not folder.exists()


def test_the_watchdog_hears_of_children_until_the_host_is_dead(
    stranger: Stranger, monkeypatch: pytest.MonkeyPatch
) -> None:
    reading, writing = os.pipe()
    watch = b"%d 1 1 \0"
    os.write(writing, watch % 1 + watch % 2 + b"1\0")
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

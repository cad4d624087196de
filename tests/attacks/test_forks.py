"""A process that forks: agents stay with the parent, which goes on with them; the child can have its own."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

HOSTS = Path(__file__).with_name("forking_hosts.py")
ROOT = Path(__file__).parents[2]
LOOPS = ["asyncio", *(["uvloop"] if find_spec("uvloop") else [])]
"""Not trio: a child that unwinds its loop takes the loop's own waits back and hangs, without Outrider too."""


def said_by(name: str, backend: str, folder: Path) -> list[str]:
    """What a host prints; it must not fail, nor hang."""
    done = subprocess.run(
        [sys.executable, str(HOSTS), name, backend, str(folder)],
        env={**os.environ, "PYTHONPATH": str(ROOT), "HOME": str(folder)},
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=50,
        check=False,
    )
    assert done.returncode == 0, (done.returncode, done.stdout, done.stderr)
    return done.stdout.splitlines()


@pytest.mark.parametrize("backend", LOOPS)
def test_a_child_that_leaves_the_event_loop_does_not_cut_the_parent_off(backend: str, tmp_path: Path) -> None:
    said = said_by("unwinds_while_a_task_reads", backend, tmp_path)
    assert said == ["the child: ended", "the parent: still_there 0"]


@pytest.mark.parametrize("backend", LOOPS)
def test_a_child_that_leaves_a_session_leaves_the_parents_lease_and_agent_alone(
    backend: str, tmp_path: Path
) -> None:
    said = said_by("unwinds_an_open_session", backend, tmp_path)
    assert said == ["the child: ended", "the lease is held", "the parent: done"]


@pytest.mark.parametrize(
    "module",
    [
        "outrider.sync._surface",
        "outrider.session._turn",
        "outrider.transports._process.supervisor",
        "outrider.wire.control",
    ],
)
def test_a_fork_while_a_thread_loads_outrider_spoils_nothing(module: str, tmp_path: Path) -> None:
    said = said_by("forks_while_a_thread_imports", module, tmp_path)
    assert sorted(said) == ["done", "done", "the child: ended"]


def test_workers_are_forked_while_threads_are_at_work(tmp_path: Path) -> None:
    said = said_by("forks_while_threads_work", "", tmp_path)
    assert said == ["the children: 0 0"] * 5 + ["the parent: done", "its threads: done"]

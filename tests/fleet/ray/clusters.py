"""Starts a Ray cluster of several nodes on this machine, and programs that stand for agents.

Knows nothing of what the tests want to see.
"""

from __future__ import annotations

import os
import secrets
import shutil
import subprocess
import sys
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from outrider.options import Options, Timeouts
from outrider.testing._simulator.program import write_launcher

AGENT = Path(__file__).with_name("far_agent.py")
QUICK = Timeouts(connect=60, close=0.5, terminate=0.5, interrupt=5)
SMALL: dict[str, Any] = {"include_log_monitor": False, "object_store_memory": 80_000_000}
SYSTEM = {
    # Each worker takes a second of a processor to start: those that there are stay.
    "idle_worker_killing_time_threshold_ms": 600_000,
    # A node that is gone is missed after two seconds, not after twenty.
    "health_check_initial_delay_ms": 0,
    "health_check_period_ms": 500,
    "health_check_timeout_ms": 5000,
    "health_check_failure_threshold": 3,
}


class Cluster:
    """A head, which has the mailbox, and nodes beside it. All of them have workers."""

    def __init__(self, folder: Path, nodes: int, cpus: float, memory: int) -> None:
        # Nothing goes out; nobody else is let in, and nothing is written to the home folder for that.
        token = folder / "token"
        token.touch(0o600)
        token.write_text(secrets.token_hex(32))
        os.environ |= {"RAY_USAGE_STATS_ENABLED": "0", "RAY_AUTH_MODE": "token"}
        os.environ["RAY_AUTH_TOKEN_PATH"] = str(token)
        from ray.cluster_utils import Cluster as Made

        size = {"num_cpus": cpus, "memory": memory, **SMALL}
        head = {
            **size,
            "include_dashboard": False,
            "no_monitor": True,
            "_system_config": SYSTEM,
        }
        self._made: Any = Made(initialize_head=True, head_node_args=head)
        self.address: str = self._made.address
        added = [self._made.add_node(wait=False, **size) for _ in range(nodes)]
        raylets = {node.node_id: node.all_processes["raylet"][0].process for node in added}
        self._raylets: dict[str, subprocess.Popen[bytes]] = raylets

    @property
    def processes(self) -> dict[str, int]:
        """What each node that is not the head is lost with, by its id."""
        return {id: raylet.pid for id, raylet in self._raylets.items()}

    def tend(self) -> None:
        """Take note of nodes that were killed: until then their workers believe them to be alive."""
        for raylet in self._raylets.values():
            raylet.poll()

    def close(self) -> None:
        # Its logs and sockets: their paths would be too long in the folder of a test.
        place = self._made.head_node.get_session_dir_path()
        self._made.shutdown()
        shutil.rmtree(place, ignore_errors=True)


@contextmanager
def cluster(folder: Path, nodes: int = 1, cpus: float = 1, memory: int = 2**30) -> Generator[Cluster]:
    made = Cluster(folder, nodes, cpus, memory)
    try:
        yield made
    finally:
        made.close()


def far_options(folder: Path, **fields: Any) -> Options:
    """Options that start the agent for workers."""
    path = folder / "far"
    path.write_text(f'#!/bin/sh\nexec {sys.executable} -I -S {AGENT} {folder} "$@"\n')
    path.chmod(0o755)
    return Options(cli_path=path, timeouts=QUICK, **fields)


def simulated_options(folder: Path, script: str, **fields: Any) -> Options:
    """Options that start the simulated agent, with a script in JSON."""
    (folder / "script.json").write_text(script)
    path = write_launcher(folder)
    return Options(
        cli_path=path, env={"OUTRIDER_AGENT_SCRIPT": str(folder / "script.json")}, timeouts=QUICK, **fields
    )

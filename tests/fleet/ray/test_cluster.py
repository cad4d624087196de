"""A run on a cluster ends as one on this machine does, also when a node is lost, and leaves nothing."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.proc import environment_of, process_ids

pytest.importorskip("ray")

ROOT = Path(__file__).parents[3]


LONG = pytest.mark.skipif(not os.environ.get("OUTRIDER_LONG"), reason="takes minutes: `make fleet`")


def played(folder: Path, *scenes: str, tasks: int = 20, timeout: float = 220) -> dict[str, Any]:
    """What came of each scene; proves that no process of it is left, after its driver was killed."""
    mark = f"FAR_PLACE={folder}"
    env = {**os.environ, "FAR_PLACE": str(folder), "FAR_TASKS": str(tasks), "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-m", "tests.fleet.ray.scenario", str(folder), *scenes]
    done = subprocess.run(
        command, cwd=ROOT, env=env, timeout=timeout, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-5000:]
    left = [pid for pid in process_ids() if mark.encode() in environment_of(pid)]
    assert left == []
    facts = dict(json.loads(line) for line in done.stdout.splitlines() if line.startswith("["))
    assert facts.pop("the_driver_is_killed")
    return facts


def has_lost_nothing(facts: dict[str, Any], tasks: int) -> None:
    assert facts["statuses"] == {"done": tasks}, facts["errors"]
    assert facts["ids"] == tasks
    assert facts["gone"]
    # The one that held was cut off, and perhaps its neighbour on the node; no other task was begun twice.
    again = facts["attempts"] - tasks
    assert 1 <= again <= 2
    # The other one that held was asked again by its worker.
    assert tasks + 1 < facts["asked"] <= tasks + again + 1
    # What a lost worker had spent is charged, if not all of it was noted; a turn costs a cent.
    assert facts["cost"] <= facts["budget"] <= facts["cost"] + 0.01 * again
    assert tasks <= facts["entries"] <= tasks + again + 1
    assert facts["report"] == [tasks, facts["attempts"]]


@pytest.mark.timeout(240)
def test_runs_on_a_cluster(tmp_path: Path) -> None:
    scenes = played(tmp_path, "a_node_is_lost", "much_happens_in_a_run", "agents_crash")
    has_lost_nothing(scenes["a_node_is_lost"], 20)
    facts = scenes["much_happens_in_a_run"]
    assert facts["gone"] == [True, True]
    assert facts["attempts"] == 2
    assert set(facts["said"]) == {"mailbox", "asks", "rate", "huge", "key"}
    assert facts["said"]["asks"] == "Over."
    assert facts["called"] == ["mcp__tools__lookup", 7, "hook", "Bash"]
    assert facts["traced"]
    assert facts["parent"] == "outrider.attempt"
    assert facts["rating"] == ["Rating", 5]
    assert "want less" in facts["said"]["huge"]
    # What the nodes have, and nothing of the driver's.
    assert facts["said"]["key"] == "FAR_FROM_NODES,FAR_PLACE,FAR_TASKS"
    # There was no room for it beside the one that held.
    assert "say large" not in facts["asked"]
    crashes = scenes["agents_crash"]
    assert crashes["statuses"] == {"failed": 6}
    # With three restarts, whoever was lost, and two tries when the API fails, in whatever workers.
    assert crashes["asked"] == {
        "start": 4,
        "agent": 4,
        "worker": 4,
        "agent worker": 4,
        "api": 2,
        "api worker": 3,
    }


@LONG
@pytest.mark.timeout(240)
def test_what_workers_share(tmp_path: Path) -> None:
    scenes = played(tmp_path, "a_budget_is_shared", "a_worker_is_lost_with_a_session")
    budget = scenes["a_budget_is_shared"]
    # One turn too many for each that ran when the last cent was spent.
    assert 5 <= budget["asked"] <= 7
    assert budget["spent"] == pytest.approx(budget["asked"] / 100)
    assert sum(budget["statuses"].values()) == 12
    assert set(budget["statuses"]) == {"done", "over_budget"}
    lost = scenes["a_worker_is_lost_with_a_session"]
    # It went on in its session as soon as that was no longer the lost worker's.
    assert lost["outcome"] == ["done", 2, None]
    assert lost["asked"] == ["keep it", "You wer"]
    assert lost["sessions"] == 1


@LONG
@pytest.mark.timeout(1200)
def test_500_tasks_and_a_node_that_is_lost(tmp_path: Path) -> None:
    has_lost_nothing(played(tmp_path, "a_node_is_lost", tasks=500, timeout=1100)["a_node_is_lost"], 500)

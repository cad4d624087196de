"""Runs of tasks with the real program, and a scripted model."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import anyio
import msgspec
import pytest
from anyio.to_thread import run_sync

from outrider.fleet._journal.journal import Journal
from outrider.fleet._map import map, resume  # noqa: A004
from outrider.fleet._task import Task
from outrider.fleet._workspaces import Empty
from outrider.testing import RealAgent, hang, say, structured, use_tool
from tests.fleet.working import nobody_left, until
from tests.proc import environment_of, process_ids, stat_of
from tests.real_program import require_program

pytestmark = [
    pytest.mark.real,
    pytest.mark.anyio,
    pytest.mark.outrider_real,
    pytest.mark.timeout(120),
    pytest.mark.parametrize("anyio_backend", ["asyncio"]),
]

RUNNER = """
import sys
import anyio, msgspec
from outrider.fleet._map import map
from outrider.fleet._workspaces import Empty

async def main():
    told = msgspec.json.decode(sys.argv[1])
    await map(["Do it"], journal=told.pop("journal"), workspace=Empty(), **told)

anyio.run(main)
"""


def agents_at(home: Path) -> list[int]:
    """The processes whose home this is, whoever started them."""
    wanted = str(home).encode()
    found = [pid for pid in process_ids() if wanted in environment_of(pid)]
    return [pid for pid in found if (stat := stat_of(pid)) is not None and stat.is_running]


class Count(msgspec.Struct):
    files: int


async def test_tasks_work_in_folders_of_their_own_and_give_what_was_asked_for(
    anyio_backend: str, tmp_path: Path
) -> None:
    script = [use_tool("Write", file_path="made.txt", content="made"), structured({"files": 1})]
    with RealAgent(script, program=require_program()) as agent:
        options = agent.options(permission_mode="bypassPermissions")
        (outcome,) = await map(
            [Task("Write a file", workspace=Empty(keep="always"))],
            options,
            output=Count,
            journal=tmp_path / "run.db",
        )
        await nobody_left()
    assert (outcome.status, outcome.error) == ("done", None)
    assert outcome.output == Count(1)
    assert outcome.workspace is not None
    assert outcome.usage.total_tokens > 0


async def test_a_task_is_picked_up_by_its_session_after_the_runner_was_killed(
    anyio_backend: str, tmp_path: Path
) -> None:
    journal = tmp_path / "run.db"
    script: list[Any] = [use_tool("Bash", command="echo worked > half.txt"), hang(), say("It is done.")]
    with RealAgent(script, program=require_program()) as agent:
        options = agent.options(permission_mode="bypassPermissions")
        told = {"cli_path": agent.program, "env": dict(options.env), "env_policy": ["PATH"]}
        told |= {"permission_mode": "bypassPermissions", "journal": str(journal)}
        command = [sys.executable, "-c", RUNNER, msgspec.json.encode(told).decode()]
        runner = await run_sync(subprocess.Popen, command)
        await run_sync(agent.api.wait_for, 2)
        runner.send_signal(signal.SIGKILL)
        await run_sync(runner.wait)
        await until(lambda: not agents_at(agent.home))
        with Journal(journal) as reader:
            (started,) = reader.started()
        with anyio.fail_after(60):
            (outcome,) = await resume(journal, options, workspace=Empty(keep="always"))
        await nobody_left()
        requests = agent.api.main_requests
    assert (outcome.status, outcome.text, outcome.attempts) == ("done", "It is done.", 2)
    assert outcome.session_id == started.session_id
    # The model was shown what had been done, and was not asked to do it again.
    assert "worked > half.txt" in str(requests[2].body["messages"])
    assert requests[2].prompt.startswith("You were cut off")
    assert outcome.workspace == started.workspace
    assert (Path(outcome.workspace or "") / "half.txt").read_text() == "worked\n"

"""Spans of fleets and pools: runs, tasks, attempts and waits, in one trace or in one of each task."""

from __future__ import annotations

from pathlib import Path

import anyio
import pytest

import outrider
from outrider import Approvals, Policy, fleet
from outrider.fleet import Task
from outrider.options import Options
from outrider.telemetry import Telemetry, _spans
from outrider.testing import Simulator, say, use_tool
from outrider.transcripts import MemoryStore
from tests.fleet.pool_agents import Agents
from tests.fleet.working import AT_ONCE, Works
from tests.telemetry.recorder import Metrics, Recorder

pytestmark = pytest.mark.anyio


async def test_a_run_its_tasks_and_attempts_are_one_trace(recorder: Recorder, tmp_path: Path) -> None:
    options = Works(tmp_path / "agents").options(telemetry=recorder.telemetry)
    with recorder.tracer.start_as_current_span("request"):
        tasks = [Task("one", id="a"), Task("fail400 two", id="b")]
        await fleet.map(tasks, options, concurrency=1, journal=tmp_path / "run.db", **AT_ONCE)
    recorder.check()
    tree = [line.split(" [")[0] for line in recorder.tree().splitlines()]
    task = [
        "    outrider.task",
        "      outrider.attempt",
        "        outrider.agent.start",
        "        invoke_agent Claude Code",
    ]
    assert [line for line in tree if "chat" not in line] == [
        "request",
        "  invoke_workflow fleet.map",
        *task,
        *task,
    ]
    shown = recorder.tree()
    assert "[workflow.name=fleet.map, engine=local, run.done=1, run.failed=1, run.journal_id=" in shown
    assert "outrider.task [status=done, task.attempts=1, task.id=a, task.index=0]" in shown
    assert "outrider.task [error.type=ApiFailed, status=failed, task.attempts=1, task.id=b" in shown
    assert "outrider.attempt [error.type=ApiFailed, attempt.number=1, status=failed]" in shown
    assert recorder.total("gen_ai.invoke_workflow.duration") == 1


async def test_what_waits_for_a_person_has_not_failed(recorder: Recorder) -> None:
    with Simulator([use_tool("Bash", command="true"), say("done")]) as agent, agent.stand_in():
        options = Options(
            cwd=agent.folder,
            permission=Policy.of({"ask": "Bash"}),
            approvals=Approvals(MemoryStore(), patience=0),
            telemetry=recorder.telemetry,
        )
        (outcome,) = await fleet.map(["go"], options)
    recorder.check()
    assert outcome.status == "waiting"
    assert "execute_tool Bash" in recorder.names
    assert "error.type" not in recorder.tree()


async def test_a_call_that_waits_has_one_name_before_and_after(recorder: Recorder) -> None:
    approvals = Approvals(MemoryStore(), patience=0)
    with Simulator([use_tool("Bash", command="true"), say("done")]) as agent, agent.stand_in():
        options = Options(
            cwd=agent.folder,
            permission=Policy.of({"ask": "Bash"}),
            approvals=approvals,
            telemetry=recorder.telemetry,
        )
        (pending,) = (await outrider.run("go", options)).pending
        await approvals.decide(pending.id, True)
        await outrider.go_on(pending.session_id, options)
    recorder.check()
    named = [
        facts["outrider.decision"]
        for span in recorder.started
        for facts in (span.attributes or {}, *(event.attributes or {} for event in span.events))
        if facts.get("outrider.approval.id") == pending.id
    ]
    assert named == ["pending", "allow"]


async def test_each_task_of_a_large_run_has_a_trace(
    recorder: Recorder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_spans, "_LARGE", 1)
    options = Works(tmp_path / "agents").options(telemetry=recorder.telemetry)
    await fleet.map(["one", "two"], options)
    recorder.check()
    run = recorder.span("invoke_workflow fleet.map").get_span_context()
    tasks = [span for span in recorder.started if span.name == "outrider.task"]
    assert [span.parent for span in tasks] == [None, None]
    assert [link.context for span in tasks for link in span.links] == [run, run]


async def test_waits_for_a_pool_and_its_processes_are_seen(recorder: Recorder, tmp_path: Path) -> None:
    # Not the first of these providers: an SDK asks only the first gauge of each name.
    second = Telemetry(tracer_provider=recorder.tracers, meter_provider=recorder.meters)
    options = Agents(tmp_path).options(telemetry=second)

    async def work(pool: fleet.Pool) -> None:
        with recorder.tracer.start_as_current_span("request"):
            await pool.run("hello")

    metrics: Metrics = {}
    async with fleet.Pool(options, warm=0, max_processes=1) as pool:
        async with anyio.create_task_group() as tasks, pool.lease():
            tasks.start_soon(work, pool)
            while not pool.stats().waiting:  # noqa: ASYNC110
                await anyio.sleep(0.001)
            metrics = recorder.metrics()
        assert metrics["outrider.pool.waiting"] == {(): 1}
        states = metrics["outrider.pool.processes"]
        assert states[(("outrider.pool.state", "busy"),)] == 1
        assert sum(states.values()) == 1
        assert metrics["outrider.process.count"] == {(): 1}
        assert metrics["outrider.process.memory"][()] > 0
    recorder.check()
    wait = recorder.span("outrider.pool.acquire")
    assert (recorder.parent(wait.name), dict(wait.attributes or {})["outrider.pool.hit"]) == (
        "request",
        False,
    )
    assert recorder.parent("invoke_agent Claude Code") == "request"


def test_a_trace_goes_on_in_another_process(recorder: Recorder) -> None:
    with recorder.tracer.start_as_current_span("here"):
        carrier = recorder.telemetry.carrier()

    async def work() -> None:
        recorder.telemetry.resume(carrier)
        with recorder.telemetry.attempt(1, None):
            pass

    anyio.run(work)
    assert recorder.parent("outrider.attempt") == "here"

"""Plays runs on a cluster, and prints what came of each: `scenario.py FOLDER SCENE…`.

The cluster and the driver of the runs are programs of their own: a cluster leaves threads in the process that
started it, and the driver is killed in the end.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from functools import partial
from pathlib import Path
from threading import Event
from typing import Any

import anyio
import msgspec
from anyio import to_thread

import outrider
from outrider import fleet
from outrider.fleet import Budget, Gate, Ledger, RayEngine, Running, Task
from tests.fleet.ray.clusters import Cluster, cluster, far_options, simulated_options
from tests.proc import stat_of
from tests.telemetry.recorder import Recorder

TASKS = int(os.environ.get("FAR_TASKS", "20"))
DEADLINE = 40.0 + TASKS
NODES = 1 if TASKS <= 20 else 2
BUSY = 120.0
"""Seconds that the first worker may take to start on a machine that has much to do."""


class Rating(msgspec.Struct):
    """Of a module that workers do not have under its name."""

    title: str
    stars: int


def told(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "log.jsonl").read_text().splitlines()]


def held_now(folder: Path, name: str) -> int | None:
    """The process that holds, if there is one."""
    path = folder / f"held-{name}"
    return int(path.read_text()) if path.exists() else None


async def held(folder: Path, name: str) -> int:
    while (pid := held_now(folder, name)) is None:  # noqa: ASYNC110 - another process makes it
        await anyio.sleep(0.05)
    return pid


def is_kept(folder: Path) -> bool:
    """Whether there is a session in the store."""
    return any(folder.glob("sessions/*/*/main.jsonl"))


def is_gone(pid: int) -> bool:
    """Whether it ends in time."""
    late = time.monotonic() + DEADLINE
    while (stat := stat_of(pid)) is not None and stat.is_running:
        if time.monotonic() > late:
            return False
        time.sleep(0.05)
    return True


def running(run: fleet.Run[Any]) -> Iterable[Running]:
    return run._tally.running.values()


# One after another.


async def a_node_is_lost(folder: Path, nodes: dict[str, int]) -> dict[str, Any]:
    """Two tasks hold, each on its node, because no node has room for both. One that is not the head is killed
    in the middle of the run, and the agent of the other task."""
    budget, ledger = Budget(usd=1000), Ledger(folder / "ledger.jsonl")
    cpus = 0.6 if NODES == 1 else 0.3
    tasks = [Task(f"say {n}", id=f"{n}", memory=2**26, cpus=cpus) for n in range(TASKS)]
    holding = (TASKS // 2, TASKS // 2 + 1)
    for n in holding:
        tasks[n] = Task(f"hold {n}", id=f"{n}", memory=2**26, cpus=0.6)
    began = time.monotonic()
    async with fleet.map(
        tasks,
        far_options(folder),
        engine=RayEngine(connect_seconds=BUSY),
        concurrency=4 * NODES,
        budget=budget,
        ledger=ledger,
        gate=Gate(),
        journal=folder / "run.db",
    ) as run:
        agents = {f"{n}": await held(folder, f"{n}") for n in holding}
        places = {each.id: each.worker or "" for each in running(run) if each.id in agents}
        lost = next(node for node in nodes if any(node[:8] in place for place in places.values()))
        os.kill(nodes[lost], signal.SIGKILL)
        for id, place in places.items():
            if lost[:8] not in place:
                os.kill(agents[id], signal.SIGKILL)
        outcomes = [outcome async for outcome in run]
    await ledger.close()
    return {
        "statuses": Counter(outcome.status for outcome in outcomes),
        "errors": sorted({str(outcome.error) for outcome in outcomes if outcome.error}),
        "ids": len({outcome.id for outcome in outcomes}),
        "attempts": sum(outcome.attempts for outcome in outcomes),
        "asked": len(told(folder)),
        "gone": all([await to_thread.run_sync(is_gone, pid) for pid in agents.values()]),
        "seconds": time.monotonic() - began,
        "cost": round(sum(outcome.cost_usd for outcome in outcomes), 6),
        "budget": round(budget.spent.usd, 6),
        "entries": len((folder / "ledger.jsonl").read_text().splitlines()),
        "report": [run.report().total, run.report().attempts],
    }


async def much_happens_in_a_run(folder: Path, nodes: dict[str, int]) -> dict[str, Any]:
    """The mailbox is lost; then an agent asks for a tool, a hook and a permission callback of this process;
    then the run is stopped, when two tasks want most of the memory of the one node that is left."""
    import ray

    called: list[object] = []

    @outrider.tool
    async def lookup(ticket: int) -> str:
        """Fetch a ticket."""
        called.append(ticket)
        return f"Ticket {ticket} is {os.getpid()}'s."

    @outrider.hook("PreToolUse", matcher="Bash")
    async def watch(told: object) -> None:
        called.append("hook")

    async def permit(request: outrider.PermissionRequest) -> bool:
        called.append(request.tool_name)
        return request.tool_name != "Bash"

    script = [
        {"use_tool": "lookup", "input": {"ticket": 7}},
        {"use_tool": "Bash", "input": {"command": "touch no", "description": "Touch"}},
        "Over.",
    ]
    (folder / "traces").mkdir()
    other = simulated_options(folder, json.dumps(script))
    may_go_on = Event()

    def tasks() -> Iterator[Task]:
        task = partial(Task, cpus=0.2)
        yield task("hold mailbox", id="mailbox")
        may_go_on.wait(DEADLINE)
        yield task(
            "Go.", id="asks", options={"cli_path": other.cli_path, "env": other.env}, workspace=fleet.Empty()
        )
        yield task("rate it", id="rate", output=Rating)
        yield task("hold stop", id="stop", memory="700MiB")
        late = time.monotonic() + DEADLINE
        while held_now(folder, "stop") is None and time.monotonic() < late:
            time.sleep(0.05)
        yield task("say large", id="large", memory="700MiB")
        yield task("say huge", id="huge", memory="2TiB")
        yield task("key", id="key", memory="64MiB")

    recorder = Recorder()
    options = far_options(folder, tools=[lookup], hooks=[watch], permission=permit, trace=f"{folder}/traces")
    options = options.replace(telemetry=recorder.telemetry)
    engine = RayEngine(node_seconds=0.1, connect_seconds=BUSY)
    ended: dict[str, fleet.Outcome[Any]] = {}
    async with fleet.map(tasks(), options, engine=engine, concurrency=5) as run:
        first = await held(folder, "mailbox")
        ray.kill(engine._mailbox)
        while len(ended) < 5:
            outcome = await anext(run)
            ended[outcome.id] = outcome
            may_go_on.set()
        second = await held(folder, "stop")
        run.stop()
    rating = ended["rate"].output
    # Workers have no SDK: the span that agents are told of is the last one here.
    (parent,) = (each["parent"].split("-")[2] for each in told(folder) if each["prompt"] == "rate it")
    spans = {f"{span.get_span_context().span_id:016x}": span for span in recorder.started}
    return {
        "parent": spans[parent].name,
        "gone": [await to_thread.run_sync(is_gone, pid) for pid in (first, second)],
        "said": {id: outcome.error or outcome.text for id, outcome in ended.items()},
        "attempts": ended["mailbox"].attempts,
        "rating": [type(rating).__name__, isinstance(rating, Rating) and rating.stars],
        "asked": [each["prompt"] for each in told(folder)],
        "called": called,
        "traced": any("Ticket 7" in trace.read_text() for trace in (folder / "traces").iterdir()),
    }


async def a_budget_is_shared(folder: Path, nodes: dict[str, int]) -> dict[str, Any]:
    """A turn costs a cent, and there are five."""
    budget = Budget(usd=0.05)
    tasks = [Task(f"say {n}", cpus=0.5) for n in range(12)]
    outcomes = await fleet.map(tasks, far_options(folder), engine="ray", concurrency=4, budget=budget)
    return {
        "statuses": Counter(outcome.status for outcome in outcomes),
        "asked": len(told(folder)),
        "spent": round(budget.spent.usd, 6),
    }


async def agents_crash(folder: Path, nodes: dict[str, int]) -> dict[str, Any]:
    """Each time that it is started or asked: the agent, its worker, the API, or one and then another."""
    tasks = [
        Task("go", id=victims, cpus=0.2, options={"env": {"FAR_CRASH": victims}})
        for victims in ("start", "agent", "worker", "agent worker", "api", "api worker")
    ]
    restart = fleet.Restart(max=3, backoff=0.01)
    retry = fleet.Retry(max_tries=2, backoff=0.01)
    outcomes = await fleet.map(
        tasks, far_options(folder), engine="ray", concurrency=1, restart=restart, retry=retry
    )
    return {
        "statuses": Counter(outcome.status for outcome in outcomes),
        "asked": Counter(each["crash"] for each in told(folder)),
    }


async def a_worker_is_lost_with_a_session(folder: Path, nodes: dict[str, int]) -> dict[str, Any]:
    """What the agent keeps itself is on the worker's disk; what it told is in the store that all share."""
    options = far_options(
        folder, env={"CLAUDE_CONFIG_DIR": f"{folder}/config"}, session_store=f"file://{folder}/sessions"
    )
    options = options.replace(session_store_flush="eager")
    async with fleet.map([Task("keep it", cpus=0.2)], options, engine="ray") as run:
        await held(folder, "it")
        while not is_kept(folder):  # noqa: ASYNC110 - another process makes it
            await anyio.sleep(0.05)
        (each,) = running(run)
        os.kill(int(str(each.worker).partition(":")[2].partition(" ")[0]), signal.SIGKILL)
        outcome = await anext(run)
    return {
        "outcome": [outcome.status, outcome.attempts, outcome.error],
        "sessions": len({each["session"] for each in told(folder)}),
        "asked": [each["prompt"][:7] for each in told(folder)],
    }


SCENES = (
    *(a_node_is_lost, much_happens_in_a_run, agents_crash, a_budget_is_shared),
    a_worker_is_lost_with_a_session,
)


async def play(folder: Path, names: list[str]) -> None:
    nodes: dict[str, int] = json.loads((folder / "nodes.json").read_text())
    for scene in SCENES:
        if scene.__name__ in names:
            place = folder / scene.__name__
            place.mkdir()
            with anyio.fail_after(DEADLINE):
                print(json.dumps([scene.__name__, await scene(place, nodes)]), flush=True)
    # In the end it is killed.
    await fleet.map([Task("hold driver", cpus=0.2)], far_options(folder), engine="ray")


def drive(address: str, folder: Path, names: list[str]) -> None:
    # Who may use a cluster is read when Ray is imported.
    import ray

    # Once for all scenes: each connection has workers of its own, which take their time to start.
    ray.init(address, log_to_driver=False)
    anyio.run(play, folder, names)


def watch(made: Cluster, folder: Path, names: list[str]) -> int:
    """Start the driver, and kill it when it holds; its exit code, if it ends before."""
    (folder / "nodes.json").write_text(json.dumps(made.processes))
    command = [sys.executable, "-m", __spec__.name, "--drive", made.address, str(folder), *names]
    with subprocess.Popen(command, env={**os.environ, "FAR_FROM_DRIVER": "1"}) as driver:
        while (agent := held_now(folder, "driver")) is None:
            if driver.poll() is not None:
                return driver.returncode or 1
            made.tend()
            time.sleep(0.05)
        driver.kill()
    print(json.dumps(["the_driver_is_killed", is_gone(agent)]), flush=True)
    return 0


def main(folder: Path, names: list[str]) -> int:
    os.environ["FAR_FROM_NODES"] = "1"
    with cluster(folder, NODES) as made:
        del os.environ["FAR_FROM_NODES"]
        return watch(made, folder, names)


if __name__ == "__main__":
    if sys.argv[1] == "--drive":
        drive(sys.argv[2], Path(sys.argv[3]), sys.argv[4:])
    else:
        sys.exit(main(Path(sys.argv[1]), sys.argv[2:]))

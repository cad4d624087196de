"""Runs thousands of tasks on a cluster that is only reckoned, and shows what limits and lost nodes do to it.

    python -m benchmarks.cluster                          # 10,000 tasks, some minutes
    python -m benchmarks.cluster --tasks 1000 --nodes 4   # a first look

The nodes and the account are made up, see `cluster_model.py`; what is done about their failures is Outrider's
own: `fleet.map` with `Retry`, `Gate` and `Adaptive`. The same seed gives the same figures.
"""

from __future__ import annotations

import argparse
import json
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import NamedTuple

import anyio

from benchmarks.cluster_model import SimulatedCluster, Spent, World
from benchmarks.simulated_time import SimulatedClock, simulate
from benchmarks.table import note, painted
from outrider import fleet

NODES = (1, 4, 8, 16)


@dataclass(frozen=True)
class Setting:
    """One row: a cluster, and how it is used."""

    nodes: int
    is_adaptive: bool = True
    shares_gate: bool = True
    start: int | None = None
    """How many sessions an adaptive one begins with."""


@dataclass(frozen=True)
class Figures:
    """What a run came to."""

    setting: Setting
    world: World
    seconds: float
    """Until the last task had ended, in the time of the cluster."""
    statuses: dict[str, int]
    attempts: int
    ids: int
    """Tasks that ended, each counted once."""
    calls: int
    refused: int
    served: int
    """Tokens."""
    spent: Spent
    reckoned: float = field(default=0.0, compare=False)
    """How long it took to reckon this, in CPU seconds."""

    @property
    def per_hour(self) -> float:
        return self.statuses.get("done", 0) / self.seconds * 3600

    @property
    def waste(self) -> float:
        """The share of the tokens that came to nothing."""
        return 1 - self.spent.useful / max(self.served, 1)

    @property
    def waiting(self) -> float:
        """The share of the time in which places were taken and nothing was done in them."""
        return 1 - self.spent.working / max(self.spent.held, 1e-9)


def run(world: World, setting: Setting) -> Figures:
    """Reckon one run."""
    begin = time.process_time()
    return replace(simulate(lambda: _run(world, setting)), reckoned=time.process_time() - begin)


async def _run(world: World, setting: Setting) -> Figures:
    clock = SimulatedClock(world.seed)
    cluster = SimulatedCluster(world, setting.nodes, clock, shares_gate=setting.shares_gate)
    places = setting.nodes * world.places
    concurrency = fleet.Adaptive(1, places, setting.start) if setting.is_adaptive else places
    running = fleet.map(
        [f"task {number}" for number in range(world.tasks)],
        engine=cluster,
        concurrency=concurrency,
        gate=fleet.Gate(clock=clock),
    )
    ended: list[fleet.Outcome] = []
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(cluster.fail_nodes)
        ended += await running.finish()
        tasks.cancel_scope.cancel()
    seconds = anyio.current_time()
    cluster.settle(ended)
    return Figures(
        setting=setting,
        world=world,
        seconds=seconds,
        statuses=dict(Counter(outcome.status for outcome in ended)),
        attempts=sum(outcome.attempts for outcome in ended),
        ids=len({outcome.id for outcome in ended}),
        calls=cluster.account.calls,
        refused=cluster.account.refused,
        served=cluster.account.served,
        spent=cluster.spent,
    )


COLUMNS = (
    ("nodes", 5),
    ("sessions", 10),
    ("gate", 8),
    ("hours", 8),
    ("tasks/h", 9),
    ("failed", 8),
    ("429s", 9),
    ("lost nodes", 12),
    ("attempts", 10),
    ("waste", 8),
    ("waiting", 9),
)


def row(figures: Figures) -> str:
    setting = figures.setting
    places = setting.nodes * figures.world.places
    cells = (
        str(setting.nodes),
        f"{setting.start or ''}..{places}" if setting.is_adaptive else str(places),
        "shared" if setting.shares_gate else "-",
        f"{figures.seconds / 3600:.2f}",
        f"{figures.per_hour:,.0f}",
        f"{figures.statuses.get('failed', 0):,}",
        f"{figures.refused:,}",
        str(figures.spent.lost_nodes),
        f"{figures.attempts:,}",
        f"{figures.waste:.2%}",
        f"{figures.waiting:.1%}",
    )
    return "".join(cell.rjust(width) for cell, (_, width) in zip(cells, COLUMNS, strict=True))


class Table(NamedTuple):
    """Rows that are to be compared."""

    title: str
    rows: list[tuple[World, Setting]]


def tables(world: World, nodes: Sequence[int]) -> Iterator[Table]:
    """All that is shown."""
    large = max(nodes)
    half = large * world.places // 2
    yield Table(
        "the program itself tries a refused call again, ten times",
        [
            (world, setting)
            for count in nodes
            for setting in (
                Setting(count, is_adaptive=False),
                Setting(count),
                Setting(count, start=count * world.places // 2),
            )
        ],
    )
    each = (
        Setting(large, is_adaptive=False, shares_gate=False),
        Setting(large, is_adaptive=False),
        Setting(large, start=half, shares_gate=False),
        Setting(large, start=half),
    )
    yield Table(
        "the program leaves that to Outrider: CLAUDE_CODE_MAX_RETRIES=0",
        [(replace(world, own_retries=0), setting) for setting in each],
    )
    allowance = world.tokens_per_minute * 30
    yield Table(
        f"as in the first table, with no more than {allowance / 1e6:.0f} million tokens in an hour",
        [(replace(world, allowance=allowance), setting) for setting in each],
    )
    hours = world.failure_hours / 8
    yield Table(
        f"nodes that last {hours:g} hours; in the second row, sessions are lost with their node",
        [
            (
                replace(world, failure_hours=hours, keeps_sessions=keeps),
                Setting(large // 2, is_adaptive=False),
            )
            for keeps in (True, False)
        ],
    )


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Simulate a cluster with limits and lost nodes.")
    parser.add_argument("--tasks", type=int, default=World.tasks)
    parser.add_argument("--nodes", type=int, action="append", help=f"may be repeated; {NODES}")
    parser.add_argument("--table", type=int, action="append", help="only this one, from 1; may be repeated")
    parser.add_argument("--seed", type=int, default=World.seed)
    parser.add_argument("--failure-hours", type=float, default=World.failure_hours)
    parser.add_argument("--json", type=Path, metavar="FILE", help="save the figures, in seconds and tokens")
    return parser.parse_args()


def main() -> None:
    given = arguments()
    base = World(tasks=given.tasks, seed=given.seed, failure_hours=given.failure_hours)
    saved: list[Figures] = []
    tokens = sum(step.tokens for steps in base.work() for step in steps)
    print(
        note(
            f"{base.tasks:,} tasks, {tokens / 1e6:,.0f} million tokens; the account gets "
            f"{base.tokens_per_minute / 1e6:g} million a minute, so it takes no less than "
            f"{(tokens / base.tokens_per_minute - 1) / 60:.2f} hours"
        )
    )
    for number, table in enumerate(tables(base, given.nodes or NODES), 1):
        if number not in (given.table or [number]):
            continue
        print(painted(f"\n{table.title}", "bold"))
        print(painted("".join(name.rjust(width) for name, width in COLUMNS), "bold"))
        for world, setting in table.rows:
            saved.append(run(world, setting))
            print(row(saved[-1]), flush=True)
    print(note(f"reckoned in {sum(figures.reckoned for figures in saved):.0f} CPU seconds"))
    if given.json:
        given.json.write_text(json.dumps([asdict(one) for one in saved], indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()

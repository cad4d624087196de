"""The simulation of a cluster: nothing is lost in it, nothing counted twice, and it can be repeated.

It runs the real `fleet.map`, `Retry`, `Gate` and `Adaptive`, with hours of a cluster in a second.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from benchmarks.cluster import Figures, Setting, run
from benchmarks.cluster_model import START_SECONDS, World

CALM = World(tasks=80, places=4, tokens_per_minute=1e9, failure_hours=1e6)
HARSH = World(tasks=80, places=4, tokens_per_minute=200_000, failure_hours=0.1)
"""Ten nodes use up a minute's tokens in some seconds, and one is lost every 36 s."""


def tokens_of(world: World) -> int:
    return sum(step.tokens for steps in world.work() for step in steps)


def check(figures: Figures) -> None:
    """Every task ends once, and every token that the account served went somewhere."""
    spent, world = figures.spent, figures.world
    assert figures.ids == sum(figures.statuses.values()) == world.tasks
    assert figures.statuses.keys() <= {"done", "failed"}
    assert figures.served == spent.useful + spent.repeated + spent.cut + spent.thrown
    assert spent.useful + spent.thrown <= tokens_of(world)
    if "failed" not in figures.statuses:
        assert spent.useful == tokens_of(world)
    assert spent.working <= spent.held * 1.000001
    # An account gives what it gives, however it is asked.
    assert figures.served <= world.tokens_per_minute * (1 + figures.seconds / 60)


@pytest.mark.parametrize("is_adaptive", [False, True])
def test_without_limits_and_failures_nothing_is_wasted(is_adaptive: bool) -> None:
    figures = run(CALM, Setting(5, is_adaptive))
    check(figures)
    assert (figures.refused, figures.attempts, figures.statuses) == (0, CALM.tasks, {"done": CALM.tasks})
    assert figures.waste == 0.0
    seconds = sum(step.seconds + step.tool_seconds for steps in CALM.work() for step in steps)
    seconds += START_SECONDS * CALM.tasks
    assert figures.spent.working == pytest.approx(seconds) == figures.spent.held
    assert seconds <= figures.seconds * 5 * CALM.places


@pytest.mark.parametrize("own_retries", [10, 0])
@pytest.mark.parametrize("keeps_sessions", [True, False])
@pytest.mark.parametrize(
    "setting", [Setting(10, False, False), Setting(10, False, True), Setting(10, True, True)], ids=str
)
def test_with_limits_and_lost_nodes_every_task_ends_once(
    setting: Setting, keeps_sessions: bool, own_retries: int
) -> None:
    figures = run(replace(HARSH, keeps_sessions=keeps_sessions, own_retries=own_retries), setting)
    check(figures)
    assert figures.spent.lost_nodes
    assert figures.attempts > HARSH.tasks
    assert (figures.spent.repeated > 0) == (not keeps_sessions)


def test_a_shared_gate_spares_calls_and_tasks() -> None:
    world = replace(HARSH, own_retries=0, failure_hours=1e6)
    alone, together = (run(world, Setting(10, False, shares_gate)) for shares_gate in (False, True))
    check(alone)
    check(together)
    assert together.refused < alone.refused
    assert together.statuses["done"] > alone.statuses["done"]


def test_all_wait_for_the_reset_of_an_allowance() -> None:
    world = replace(CALM, allowance=tokens_of(CALM) / 2, window=3600.0)
    figures = run(world, Setting(5, False))
    check(figures)
    assert figures.statuses == {"done": CALM.tasks}
    assert 7200 < figures.seconds < 10800


def test_the_same_seed_gives_the_same_figures() -> None:
    first, again = (run(HARSH, Setting(10)) for _ in range(2))
    assert first == again
    assert run(replace(HARSH, seed=2), Setting(10)) != first

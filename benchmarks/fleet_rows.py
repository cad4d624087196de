"""Tasks run by `fleet.map`, against a bare gather of `run()` with the same concurrency. Does not print.

The reference has no such thing, so nothing of it is here.
"""

from __future__ import annotations

import asyncio
import importlib.util
import logging
from collections.abc import Awaitable, Callable, Iterator
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any, NamedTuple

import anyio

from benchmarks import work
from benchmarks.side import Seconds, started
from outrider import Options, fleet, run

CONCURRENCY = 8

has_ray = importlib.util.find_spec("ray") is not None


class Row(NamedTuple):
    """What a task took at best, of the fleet and of the bare loop."""

    name: str
    title: str
    ours: Seconds
    bare: Seconds


def measure(folder: Path, *, quick: bool) -> Iterator[Row]:
    """The rows, as they are known. Those of Ray come last, if it is installed."""
    tasks, rounds = (60, 2) if quick else (200, 5)
    empty, _ = work.Work("fleet", "", list).write(folder)
    options = Options(cli_path=str(work.agent(folder, empty)))
    numbers = count()
    ways: dict[str, Callable[[], Awaitable[Seconds]]] = {
        "bare": partial(_gathered, options, tasks),
        "local": partial(_mapped, options, tasks),
        "journal": lambda: _mapped(options, tasks, journal=folder / f"run-{next(numbers)}.db"),
    }
    best = _best(ways, rounds, tasks)
    yield Row("local", f"{tasks} tasks, {CONCURRENCY} at once", best["local"], best["bare"])
    yield Row("journal", "the same, with a journal", best["journal"], best["bare"])
    if has_ray:
        best = _best_with_ray(options, tasks, rounds)
        yield Row("ray", "the same on Ray, on this machine", best["ray"], best["bare"])
        title = "one task more on Ray, against a remote function that calls `run()`"
        yield Row("ray-more", title, best["ray-more"], best["remote-more"])
    empty.unlink()


def _best(ways: dict[str, Callable[[], Awaitable[Seconds]]], rounds: int, tasks: int) -> dict[str, Seconds]:
    """Of one task. The ways take turns; what is loaded and made once is not counted."""
    best: dict[str, Seconds] = {}
    for number in range(rounds + 1):
        for name, way in ways.items():
            took = anyio.run(way)
            if number:
                one = Seconds(took.cpu / tasks, took.wall / tasks)
                known = best.get(name, one)
                best[name] = Seconds(min(one.cpu, known.cpu), min(one.wall, known.wall))
    return best


async def _gathered(options: Options, tasks: int) -> Seconds:
    places = asyncio.Semaphore(CONCURRENCY)

    async def one() -> None:
        async with places:
            await run("go", options=options)

    begin = started()
    await asyncio.gather(*(one() for _ in range(tasks)))
    return begin()


async def _mapped(
    options: Options, tasks: int, *, journal: Path | None = None, engine: str | fleet.Engine = "local"
) -> Seconds:
    prompts = ["go"] * tasks
    begin = started()
    outcomes = await fleet.map(
        prompts, options, concurrency=CONCURRENCY, journal=journal, engine=engine
    ).finish()
    took = begin()
    assert [outcome.status for outcome in outcomes] == ["done"] * tasks, outcomes[0]
    return took


async def _remote(options: Options, tasks: int) -> Seconds:
    """What a user of Ray would write: as many at once as there are processors."""
    import ray

    function: Any = ray.remote(_ask)
    begin = started()
    texts = await asyncio.gather(*(function.remote(options) for _ in range(tasks)))
    took = begin()
    assert len(texts) == tasks
    return took


async def _more(way: Callable[[int], Awaitable[Seconds]], tasks: int) -> Seconds:
    few, many = await way(tasks // 4), await way(tasks // 4 + tasks)
    return Seconds(many.cpu - few.cpu, many.wall - few.wall)


def _ask(options: Options) -> str:
    return anyio.run(partial(run, "go", options=options)).text


def _best_with_ray(options: Options, tasks: int, rounds: int) -> dict[str, Seconds]:
    """The cluster is there before, and each run finds it. CPU is that of this process alone."""
    import ray

    # One of its own: not whichever runs on this machine.
    ray.init(
        address="local",
        num_cpus=CONCURRENCY,
        include_dashboard=False,
        logging_level=logging.ERROR,
        log_to_driver=False,
    )
    try:
        ways: dict[str, Callable[[], Awaitable[Seconds]]] = {
            "bare": partial(_gathered, options, tasks),
            "ray": partial(_mapped, options, tasks, engine="ray"),
            # Without what a run takes to begin: about a second for the process of the mailbox.
            "ray-more": partial(_more, lambda count: _mapped(options, count, engine="ray"), tasks),
            "remote-more": partial(_more, partial(_remote, options), tasks),
        }
        return _best(ways, rounds, tasks)
    finally:
        ray.shutdown()

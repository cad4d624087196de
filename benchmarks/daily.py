"""Reckons what so many sessions a day need: tokens, sessions at once, nodes, and what the queue has to do.

    python -m benchmarks.daily            # 10 thousand, 100 thousand and a million a day

Simulates an hour of each, with the tasks of `cluster_model.py` on as many nodes as the figures ask for.
"""

from __future__ import annotations

import argparse
from dataclasses import replace
from math import ceil

from benchmarks.cluster import Setting, run
from benchmarks.cluster_model import START_SECONDS, World

HEADROOM = 1.25
"""More than the average: tasks differ, and nodes fail."""
TRANSACTIONS = 3
"""Of the queue, for each task: taken, begun, ended."""
NOTES_EVERY = 2.0
"""Seconds between two notes of a session that runs; those of one worker are written together."""
PER_WORKER = 16


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--daily", type=int, nargs="+", default=[10_000, 100_000, 1_000_000])
    given = parser.parse_args()
    for daily in given.daily:
        print(figures(daily), flush=True)


def figures(daily: int) -> str:
    world = World(tasks=ceil(daily / 24))
    work = world.work()
    seconds = START_SECONDS + sum(step.seconds + step.tool_seconds for steps in work for step in steps) / len(
        work
    )
    tokens = sum(step.tokens for steps in work for step in steps) / len(work)
    rate = daily / 86_400
    sessions = ceil(rate * seconds * HEADROOM)
    nodes = ceil(sessions / world.places)
    per_minute = rate * 60 * tokens * HEADROOM
    found = run(replace(world, tokens_per_minute=per_minute), Setting(nodes, is_adaptive=False))
    workers = ceil(sessions / PER_WORKER)
    transactions = rate * TRANSACTIONS + workers / NOTES_EVERY * 2
    starts = rate * found.attempts / world.tasks
    return (
        f"{daily:,} a day: {rate:.2f} a second of {seconds:.0f} s; {sessions:,} sessions on {nodes} nodes,"
        f" {per_minute / 1e6:.1f} million tokens a minute; {starts:.2f} starts and {transactions:.0f}"
        f" transactions a second; an hour's tasks took {found.seconds / 3600:.2f} hours,"
        f" {found.statuses.get('failed', 0)} failed, {found.refused:,} 429s, {found.waste:.2%} wasted"
        f" ({found.reckoned:.0f} s to reckon)"
    )


if __name__ == "__main__":
    main()

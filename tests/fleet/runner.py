"""A runner of its own process, which a test kills: `python -m tests.fleet.runner FOLDER JOURNAL TASKS`.

Goes on with the journal, if there is one. Each task works in a folder of its own.
"""

from __future__ import annotations

import sys
from pathlib import Path

import anyio

from outrider.fleet import Empty, map  # noqa: A004
from tests.fleet.working import AT_ONCE, Works


async def main(folder: str, journal: str, count: str) -> None:
    tasks = [f"{'write' if number % 3 else 'act_die'} {number}" for number in range(int(count))]
    works = Works(Path(folder))
    async with map(
        tasks, works.options(), journal=journal, concurrency=4, workspace=Empty(), **AT_ONCE
    ) as run:
        async for _ in run:
            pass


if __name__ == "__main__":
    anyio.run(main, sys.argv[1], sys.argv[2], sys.argv[3])

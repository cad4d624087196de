"""A worker of its own process, which a test kills: `python -m tests.fleet.queue_worker URL ANSWERS SEED`.

Its engine has no agents: it writes down that it begins a task, waits a moment, and answers.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from random import Random

import anyio

from outrider.fleet import resume
from outrider.fleet._engine import Assignment, Attempted, Tell
from tests.fleet.stub_engine import CENT, Stub


async def main(url: str, answers: str, seed: str) -> None:
    chance = Random(int(seed))
    log = os.open(Path(answers), os.O_WRONLY | os.O_APPEND | os.O_CREAT)

    async def attempt(work: Assignment, tell: Tell) -> Attempted:
        os.write(log, f"{work.id} {work.attempt} {work.session_id} {int(work.is_picked_up)}\n".encode())
        await anyio.sleep(chance.random() * 0.05)
        return Attempted(
            status="done",
            text=f"did {work.task.prompt}",
            usage=CENT,
            duration=0.01,
            session_id=work.session_id,
        )

    async with resume(url, engine=Stub(attempt), concurrency=4) as run:
        async for outcome in run:
            print(outcome.id, flush=True)


if __name__ == "__main__":
    anyio.run(main, sys.argv[1], sys.argv[2], sys.argv[3])

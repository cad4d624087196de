"""A worker of its own process, which a test kills: `python -m tests.fleet.queue_worker URL ANSWERS SEED`.

Its engine has no agents: it writes down that it begins a task, waits a moment, and answers. It ends when its
standard input does, so that it never outlives the test.
"""

from __future__ import annotations

import logging
import os
import sys
from pathlib import Path
from random import Random
from threading import Thread

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


def end_with_the_test() -> None:
    while os.read(0, 4096):
        pass
    os._exit(1)


if __name__ == "__main__":
    logging.basicConfig()
    Thread(target=end_with_the_test, daemon=True).start()
    anyio.run(main, sys.argv[1], sys.argv[2], sys.argv[3])

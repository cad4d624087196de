"""Measures the queue in PostgreSQL: what a task costs, and that it costs the same among many.

python -m benchmarks.task_queue            # starts a server of its own, as the tests do
"""

from __future__ import annotations

import time
from uuid import uuid4

from outrider.fleet import Outcome, Task
from outrider.fleet._journal.journal import Begun, Finished
from outrider.fleet._journal.postgres import PostgresJournal
from tests.transcripts.stores import servers

TAKEN = 300
"""How many are taken and ended among all."""


def main() -> None:
    for count in (1_000, 10_000, 100_000):
        with PostgresJournal(f"{servers.postgres().url()}?batch={uuid4().hex}", writing=True) as journal:
            began = time.perf_counter()
            journal.add((number, Task(f"task {number}").placed(number)) for number in range(count))
            added = time.perf_counter() - began
            journal.join()
            began = time.perf_counter()
            for _ in range(TAKEN):
                (entry,) = journal.take().entries
                journal.write([Begun(entry.task.id, 1, "here")])
                journal.write([Finished(Outcome(id=entry.task.id, ended_at=1.0), None, None, 1.0)])
            each = (time.perf_counter() - began) / TAKEN
        print(f"{count:>7,} tasks: {added / count * 1e6:.0f} µs to add one, {each * 1e3:.2f} ms to run one")


if __name__ == "__main__":
    main()

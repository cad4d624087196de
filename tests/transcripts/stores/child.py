"""A program that uses a store, for tests that end it, or that run several.

write NAME COUNT: appends COUNT batches of three entries, and says the number of each when it is stored.
faults COUNT LAST STEP: that, in a process of its own for each FAULT up to LAST, which ends it by SIGKILL at
this call of one that changes the disk, half done. Says the FAULT, the exit code, and how many batches were
stored. The place has a %d for the FAULT.
race NAME: waits for a line, then wants the lease, and says who has it.
"""

from __future__ import annotations

import os
import signal
import sqlite3
import sys
from pathlib import Path
from typing import Any

import anyio

from outrider.errors import SessionBusy
from outrider.transcripts import SessionKey, open_store

KEY: SessionKey = {"project_key": "p", "session_id": "s"}
BATCH = 3


async def write(place: str, name: str, count: int) -> None:
    store = open_store(place)
    for batch in range(count):
        entries: Any = [
            {"type": "x", "writer": name, "number": batch * BATCH + number, "pad": "x" * 500}
            for number in range(BATCH)
        ]
        await store.append_batch(KEY, entries, f"{name} {batch}")
        print(batch, flush=True)


async def race(place: str, name: str) -> None:
    store = open_store(place)
    print("ready", flush=True)
    sys.stdin.readline()
    try:
        await store.acquire_lease(KEY, name, 60)
    except SessionBusy as busy:
        print(f"busy {busy.holder}", flush=True)
    else:
        print(f"won {name}", flush=True)


def arm(number: int) -> None:
    """Let the process end at a call that changes the disk."""
    left = number

    def is_time() -> bool:
        nonlocal left
        left -= 1
        return left == 0

    def end() -> None:
        os.kill(os.getpid(), signal.SIGKILL)

    real_write, real_sync, real_replace = os.pwrite, os.fsync, Path.replace

    def pwrite(file: int, data: memoryview, offset: int) -> int:
        if is_time():
            real_write(file, data[: len(data) // 2], offset)
            end()
        return real_write(file, data, offset)

    def fsync(file: int) -> None:
        if is_time():
            end()
        real_sync(file)

    def replace(path: Path, target: Path) -> Path:
        if is_time():
            end()
        return real_replace(path, target)

    os.fdatasync = fsync  # type: ignore[assignment]
    os.pwrite, os.fsync, Path.replace = pwrite, fsync, replace  # type: ignore[assignment,method-assign]  # pyright: ignore[reportAttributeAccessIssue]


def arm_sqlite(number: int) -> None:
    """Let the process end before a statement."""
    left, connect = number, sqlite3.connect

    def count(_: str) -> None:
        nonlocal left
        left -= 1
        if not left:
            os.kill(os.getpid(), signal.SIGKILL)

    def connected(*given: Any, **options: Any) -> sqlite3.Connection:
        connection: sqlite3.Connection = connect(*given, **options)
        connection.set_trace_callback(count)
        return connection

    sqlite3.connect = connected  # type: ignore[assignment]


def die_at_each(place: str, count: int, last: int, step: int) -> None:
    """By forks: to start as many interpreters takes longer than all else that they do."""
    for fault in range(1, last + 1, step):
        reading, writing = os.pipe()
        pid = os.fork()
        if not pid:
            os.dup2(writing, 1)
            os.close(writing)
            (arm_sqlite if place.startswith("sqlite:") else arm)(fault)
            anyio.run(write, place % fault, "w", count)
            os._exit(0)
        os.close(writing)
        with os.fdopen(reading) as said:
            stored = len(said.read().split())
        code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        print(fault, code, stored, flush=True)


def main() -> None:
    place, what, name, *rest = sys.argv[1:]
    if what == "faults":
        die_at_each(place, int(name), int(rest[0]), int(rest[1]))
        return
    if what == "race":
        anyio.run(race, place, name)
        return
    anyio.run(write, place, name, int(rest[0]))


if __name__ == "__main__":
    main()

"""The memory that it takes to read a long session from a store: each in a process of its own."""

from __future__ import annotations

import resource
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import anyio

from outrider import Sessions
from outrider.transcripts import SessionKey, SqliteStore, project_key

WAYS = {
    "load": "`load`, which returns all of it",
    "last": "`read(last=10)`",
    "search": "`search`",
    "export": "`export` as JSON, which returns all of it",
}
_ID = "00000000-0000-4000-8000-000000000000"
_TEXT = "x" * 9_600
_IN_A_BATCH = 100


class Peak(NamedTuple):
    """How much more memory a process had at its peak than before, and the size of the session."""

    way: str
    bytes: float
    size: float


def measure(folder: Path, *, quick: bool) -> Iterator[Peak]:
    path, batches = folder / "long.db", 10 if quick else 100
    anyio.run(_fill, path, batches)
    for way in WAYS:
        command = [sys.executable, "-m", "benchmarks.store_memory", way, str(path)]
        done = subprocess.run(command, check=True, capture_output=True, text=True)
        yield Peak(way, float(done.stdout), batches * _IN_A_BATCH * 1e4)


async def _fill(path: Path, batches: int) -> None:
    parent: str | None = None
    async with SqliteStore(path) as store:
        for batch in range(batches):
            entries: list[Any] = []
            for number in range(_IN_A_BATCH):
                uuid = f"{batch:08x}-0000-4000-8000-{number:012x}"
                role = "assistant" if number % 2 else "user"
                content = [{"type": "text", "text": _TEXT}] if number % 2 else _TEXT
                message = {"role": role, "content": content, "id": f"msg_{uuid}"}
                entry = {"type": role, "uuid": uuid, "parentUuid": parent, "sessionId": _ID}
                entries.append({**entry, "timestamp": "2026-01-02T03:04:05.000Z", "message": message})
                parent = uuid
            await store.append_batch(_key(), entries, str(batch))


def _key() -> SessionKey:
    return {"project_key": project_key("/work"), "session_id": _ID}


async def _read(way: str, path: str) -> None:
    async with Sessions(path) as sessions, SqliteStore(path) as store:
        # Loads what is needed to read.
        await sessions.info(_ID)
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        kept: object = None
        match way:
            case "load":
                kept = await store.load(_key())
            case "last":
                kept = await sessions.read(_ID, last=10)
            case "search":
                kept = [hit async for hit in sessions.search("nowhere")]
            case _:
                kept = await sessions.export(_ID, "json")
        assert kept is not None
        print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * 1024)


if __name__ == "__main__":
    anyio.run(_read, sys.argv[1], sys.argv[2])

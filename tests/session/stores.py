"""Session stores that do what a test tells them to, and what an agent says that mirrors its transcript.

Knows nothing of what the tests want to see.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any
from uuid import uuid4

import anyio
import pytest

from outrider.session._store import mirror
from outrider.transcripts import MemoryStore, project_key
from outrider.wire import JsonObject, MirrorErrorMessage
from tests.session.other_end import SESSION

PROJECT = "-project"
MAIN: Any = {"project_key": PROJECT, "session_id": SESSION}


class Told(MemoryStore):
    """A store whose writes wait, or fail, as long as it is told to."""

    def __init__(self, *failures: BaseException) -> None:
        super().__init__()
        self.failures = list(failures)
        """Raised by the next writes, one each."""
        self.failing: Callable[[], BaseException] | None = None
        """Makes what all writes raise."""
        self.barrier: anyio.Event | None = None
        """What writes wait for."""
        self.calls: list[tuple[str, int]] = []
        """The batches that came, and how many entries each had."""
        self.asked = anyio.Event()
        """Set when a write comes."""
        self.is_closed = False

    async def append_batch(self, key: Any, entries: Any, batch: str) -> None:
        self.calls.append((batch, len(entries)))
        self.asked.set()
        if self.barrier is not None:
            await self.barrier.wait()
        if self.failing is not None:
            raise self.failing()
        if self.failures:
            raise self.failures.pop(0)
        await super().append_batch(key, entries, batch)

    async def close(self) -> None:
        self.is_closed = True

    def numbers(self, key: Any = MAIN) -> list[int]:
        """The entries of a transcript, by their numbers."""
        entries: list[Any] = self.get_entries(key)
        return [entry["number"] for entry in entries]

    @property
    def is_free(self) -> bool:
        """Whether nobody has a lease."""
        return not has_lease(self)


def has_lease(store: MemoryStore) -> bool:
    return any(store._decode_head(data).lease for data in store._data.heads.values())


def entry(number: int, **fields: Any) -> JsonObject:
    return {"type": "user", "uuid": str(uuid4()), "number": number, **fields}


def mirrored(*numbers: int, part: str = "", session: str = SESSION, config: str = "/config") -> JsonObject:
    """A frame with entries of these numbers."""
    inside = f"/{part}" if part else ""
    path = f"{config}/projects/{PROJECT}/{session}{inside}.jsonl"
    return {"type": "transcript_mirror", "filePath": path, "entries": [entry(number) for number in numbers]}


def errors_of(messages: Any) -> list[str]:
    """What was told about the store."""
    return [message.error for message in messages if isinstance(message, MirrorErrorMessage)]


def on_disk(config: Path, cwd: Path, session_id: str) -> Path:
    return config / "projects" / project_key(cwd) / f"{session_id}.jsonl"


def hurried(patch: pytest.MonkeyPatch) -> None:
    """Let no time pass between tries."""
    patch.setattr(mirror, "_QUICK_SECONDS", (0.0, 0.0))
    patch.setattr(mirror, "_SLOW_SECONDS", (0.001,))

"""A folder of sessions for tests, laid out as the program does it."""

from __future__ import annotations

import os
from datetime import UTC, datetime
from pathlib import Path

from outrider.transcripts import project_key
from outrider.transcripts._disk.read import Disk
from outrider.wire import JsonObject
from tests.transcripts.lines import answer, prompt, session_id, written

__all__ = ["TALK", "Shelf"]

TALK = [prompt("u1"), answer("a1", "u1"), prompt("u2", "a1"), answer("a2", "u2")]


class Shelf:
    """Writes sessions; `disk` reads them."""

    def __init__(self, config: Path) -> None:
        self.config = config
        self.projects = config / "projects"
        self.disk = Disk(config)

    def path(self, number: int = 1, project: str | Path = "/srv/project") -> Path:
        return self.projects / project_key(project) / f"{session_id(number)}.jsonl"

    def write(
        self,
        number: int = 1,
        lines: list[JsonObject] | bytes | None = None,
        *,
        project: str | Path = "/srv/project",
        hour: int | None = None,
    ) -> Path:
        """Write a session, which was used last at an hour of a day in 2026."""
        path = self.path(number, project)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(lines if isinstance(lines, bytes) else written(TALK if lines is None else lines))
        if hour is not None:
            time = at(hour).timestamp()
            os.utime(path, (time, time))
        return path

    def write_part(self, subpath: str, lines: list[JsonObject] | bytes, number: int = 1) -> Path:
        path = self.path(number).with_suffix("") / subpath
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(lines if isinstance(lines, bytes) else written(lines))
        return path


def at(hour: int) -> datetime:
    return datetime(2026, 3, 1, hour, tzinfo=UTC)

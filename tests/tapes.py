"""Reads the recordings of the real program in `tests/recordings/`."""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from outrider.transports import read_trace

FOLDER = Path(__file__).parent / "recordings"

NAMES = sorted(path.name.removesuffix(".jsonl.gz") for path in FOLDER.glob("*.jsonl.gz"))


class Recorded(NamedTuple):
    """A line that one side sent, or something that happened to the process."""

    direction: str
    frame: Any
    text: str | None
    event: str | None

    @property
    def line(self) -> bytes:
        """The frame as a line of compact JSON, with no line end."""
        return json.dumps(self.frame, ensure_ascii=False, separators=(",", ":")).encode()


@cache
def read(name: str) -> tuple[Recorded, ...]:
    """What is in a recording, in order; notes are left out. Shared by all tests: not to be changed."""
    records = read_trace(FOLDER / f"{name}.jsonl.gz").records
    return tuple(
        Recorded(record.direction, record.frame, record.text if record.frame is None else None, record.event)
        for record in records
        if record.direction != "note"
    )


def runs(name: str) -> Iterator[list[Recorded]]:
    """The runs of the program in a recording."""
    run: list[Recorded] = []
    for record in read(name):
        if record.event == "start" and run:
            yield run
            run = []
        run.append(record)
    if run:
        yield run


def frames(name: str, direction: str) -> Iterator[dict[str, Any]]:
    """The frames that one side sent."""
    for record in read(name):
        if record.direction == direction and isinstance(record.frame, dict):
            yield record.frame

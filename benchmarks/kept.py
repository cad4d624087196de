"""Sessions on disk, to be listed and read: made from lines that the real program wrote. Measures nothing."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any
from uuid import UUID

RECORDED = Path(__file__).parent.parent / "tests/transcripts/disk/recordings/projects/-srv-project"
PROJECT = "-srv-project"

LINE_SIZE = 2700
"""Bytes of a line; a large transcript has some of them."""

LONG = str(UUID(int=0, version=4))
"""The session that is read."""


def shelf(folder: Path, *, sessions: int) -> Path:
    """A configuration folder with so many sessions of 50 to 300 KB, each used later than the one before."""
    random = Random(1)
    place = _project(folder)
    for number in range(1, sessions + 1):
        path = place / f"{UUID(int=number, version=4)}.jsonl"
        _write(path, random.randrange(50_000, 300_000), random)
        os.utime(path, (1_700_000_000 + number, 1_700_000_000 + number))
    return folder


def long_one(folder: Path, *, megabytes: int) -> Path:
    """A configuration folder with one large session, whose id is `LONG`."""
    _write(_project(folder) / f"{LONG}.jsonl", megabytes * 1_000_000, Random(2))
    return folder


def _project(folder: Path) -> Path:
    place = folder / "projects" / PROJECT
    place.mkdir(parents=True)
    return place


def _write(path: Path, size: int, random: Random) -> None:
    with path.open("wb") as file:
        for line in _lines(path.stem, random):
            file.write(line)
            size -= len(line)
            if size <= 0:
                break
        last = {"type": "last-prompt", "lastPrompt": "And now?", "sessionId": path.stem}
        file.write(json.dumps(last, separators=(",", ":")).encode() + b"\n")


def _lines(session_id: str, random: Random) -> Iterator[bytes]:
    asked, said = _recorded("user"), _recorded("assistant")
    words = " ".join(random.choices(_WORDS, k=LINE_SIZE))
    parent = None
    number = 0
    while True:
        number += 1
        line = asked if number % 2 else said
        start = random.randrange(len(words) // 2)
        text = words[start : start + LINE_SIZE - 700]
        line["message"]["content"] = text if line is asked else [{"type": "text", "text": text}]
        uuid = str(UUID(int=random.getrandbits(128), version=4))
        line |= {"parentUuid": parent, "uuid": uuid, "sessionId": session_id}
        if line is said:
            line["message"]["id"] = f"msg_{number}"
        parent = uuid
        yield json.dumps(line, ensure_ascii=False, separators=(",", ":")).encode() + b"\n"


def _recorded(kind: str) -> dict[str, Any]:
    (path,) = RECORDED.glob("*.jsonl")
    lines = (json.loads(line) for line in path.read_text(encoding="utf-8").splitlines())
    found: dict[str, Any] = next(line for line in lines if line["type"] == kind)
    return found


_TEXT = 'the agent reads a file, writes it again and says so. café "done" \\ 日本'
_WORDS = _TEXT.split()

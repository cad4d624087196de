"""How long the viewer takes to answer, and whether that grows with what there is. Does not print."""

from __future__ import annotations

import json
import os
import re
import resource
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from time import perf_counter
from typing import NamedTuple
from uuid import UUID

from starlette.testclient import TestClient

from benchmarks import kept
from outrider import Sessions
from outrider.view import app


class Row(NamedTuple):
    """Wall seconds at best (or bytes), of much and of little."""

    name: str
    title: str
    unit: str
    much: float
    little: float
    goal: float
    """At most this; seconds or bytes."""


def measure(folder: Path, *, quick: bool) -> Iterator[Row]:
    """The rows, as they are known."""
    entries, sessions = (20_000, 2_000) if quick else (100_000, 10_000)
    long, short = (
        _session(folder / name, count) for name, count in (("view-long", entries), ("view-short", 200))
    )
    page = f"/s/{kept.LONG}"
    for name, title, path, goal in (
        ("open", f"a session of {entries:,} entries opens", page, 1.0),
        ("begin", "  its beginning", f"{page}?start=1", 1.0),
        ("scroll", "  a window in its middle", f"{page}/rows?before={{middle}}", 0.25),
    ):
        yield Row(f"view-{name}", title, "seconds", _best(long, path), _best(short, path), goal)
    many, few = (_shelf(folder / name, count) for name, count in (("view-many", sessions), ("view-few", 100)))
    yield Row(
        "view-list", f"a list of {sessions:,} sessions", "seconds", _best(many, "/"), _best(few, "/"), 1.0
    )
    much, little = (_peak(config) for config in (long, short))
    yield Row("view-memory", "peak memory, all of it scrolled", "bytes", much, little, little + 40e6)


def _best(config: Path, path: str) -> float:
    """The first answer counts: nobody has looked before."""
    taken: list[float] = []
    middle = sum(each.stat().st_size for each in config.rglob(f"{kept.LONG}.jsonl")) // 2
    for _ in range(5):
        view = app(Sessions(config=config), guard=False)
        looking = TestClient(view, base_url="http://127.0.0.1")
        begin = perf_counter()
        answer = looking.get(path.format(middle=middle))
        taken.append(perf_counter() - begin)
        assert answer.status_code == 200, answer.text[:200]
    return min(taken)


def _peak(config: Path) -> float:
    """The peak of a process that reads a session to its end, with its outline."""
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.view_rows", str(config)],
        check=True,
        capture_output=True,
        text=True,
        cwd=Path(__file__).parents[1],
    )
    return float(done.stdout)


def _scroll(config: Path) -> None:
    looking = TestClient(app(Sessions(config=config), guard=False), base_url="http://127.0.0.1")
    page = f"/s/{kept.LONG}"
    looking.get(f"{page}/outline")
    answer = looking.get(f"{page}?start=1").text
    while "data-last" not in answer:
        end = re.findall(r'data-end="(\d+)"', answer)[0]
        answer = looking.get(f"{page}/rows?after={end}").text
    print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024)


def _session(config: Path, entries: int) -> Path:
    """A configuration folder with one session of so many entries: prompts, answers, calls with results."""
    place = config / "projects" / kept.PROJECT
    place.mkdir(parents=True)
    with (place / f"{kept.LONG}.jsonl").open("wb") as file:
        parent, began = None, datetime(2026, 11, 1, tzinfo=UTC)
        for number in range(entries):
            step, call = number % 20, f"toolu_{number - number % 2}"
            message: dict[str, object]
            if step == 0:
                message = {"role": "user", "content": f"Prompt {number}: go on with the next part, please."}
            elif number % 2:
                block = {
                    "type": "tool_use",
                    "id": f"toolu_{number + 1}",
                    "name": "Bash",
                    "input": {"command": "make"},
                }
                usage = {"input_tokens": 5, "output_tokens": 80, "cache_read_input_tokens": 20_000}
                said: dict[str, object] = {"type": "text", "text": "Some words of an answer. " * 12}
                is_call = step < 19
                message = {
                    "role": "assistant",
                    "id": f"m{number}",
                    "content": [block if is_call else said],
                    "usage": usage,
                }
            else:
                result = {"type": "tool_result", "tool_use_id": call, "content": "a line of output\n" * 20}
                message = {"role": "user", "content": [result]}
            uuid = str(UUID(int=number + 1))
            line = {
                "type": message["role"],
                "uuid": uuid,
                "parentUuid": parent,
                "timestamp": (began + timedelta(seconds=number)).isoformat(),
                "sessionId": kept.LONG,
                "cwd": "/srv/project",
                "message": message,
            }
            parent = uuid
            file.write(json.dumps(line, separators=(",", ":")).encode() + b"\n")
    return config


def _shelf(config: Path, sessions: int) -> Path:
    place = config / "projects" / kept.PROJECT
    place.mkdir(parents=True)
    for number in range(sessions):
        id = str(UUID(int=number + 1, version=4))
        line = {
            "type": "user",
            "uuid": id,
            "sessionId": id,
            "cwd": "/srv/project",
            "message": {"content": f"Prompt {number}"},
        }
        path = place / f"{id}.jsonl"
        path.write_bytes(json.dumps(line).encode() + b"\n")
        os.utime(path, (1_700_000_000 + number, 1_700_000_000 + number))
    return config


if __name__ == "__main__":
    _scroll(Path(sys.argv[1]))

"""Fleets of real processes, for tests: a program that starts fast, and what it wrote down about its work.

Knows nothing of what the tests want to see.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import anyio

from outrider.fleet import Restart, Retry
from outrider.options import Options, Timeouts
from tests.transports.conftest import own_processes

PROGRAM = Path(__file__).with_name("working_agent.py")
QUICK = Timeouts(connect=60, close=1, terminate=0.5, silence=1.0, first_event=30, interrupt=2)
AT_ONCE: Any = {"retry": Retry(backoff=0.001, max_tries=8), "restart": Restart(max=5, backoff=0.001)}
"""Policies that do not wait, so that tests do not."""


class Works:
    """The processes of one program, and what they did."""

    def __init__(self, folder: Path, seed: int | None = None) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder = folder
        self._program = folder / "claude"
        self._program.write_text(f'#!/bin/sh\nexec {sys.executable} -I -S {PROGRAM} {folder} "$@"\n')
        self._program.chmod(0o755)
        if seed is not None:
            (folder / "seed").write_text(str(seed))

    def options(self, **fields: Any) -> Options:
        given: Any = {"cli_path": str(self._program), "cwd": str(self.folder), "timeouts": QUICK, **fields}
        return Options(**given)

    def go(self) -> None:
        """Let the agents go on that wait."""
        (self.folder / "go").touch()

    @property
    def log(self) -> list[dict[str, Any]]:
        path = self.folder / "log.jsonl"
        lines = path.read_bytes().splitlines(keepends=True) if path.exists() else []
        return [json.loads(line) for line in lines if line.endswith(b"\n")]

    @property
    def prompts(self) -> list[str]:
        """The tasks that were asked for, each as often as it was."""
        return [entry["prompt"] for entry in self.log if "prompt" in entry]

    @property
    def answered(self) -> list[str]:
        return [entry["answered"] for entry in self.log if "answered" in entry]


async def until(is_so: Callable[[], bool]) -> None:
    """Wait until something is true that nothing announces."""
    with anyio.fail_after(60):
        while not is_so():  # noqa: ASYNC110
            await anyio.sleep(0.005)


async def nobody_left() -> None:
    """Wait until no process of this test is left."""
    await until(lambda: not own_processes())

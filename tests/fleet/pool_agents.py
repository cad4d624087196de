"""Pools of real processes, for tests: a program that starts fast, and what it wrote down about its starts.

Knows nothing of what the tests want to see.
"""

from __future__ import annotations

import sys
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest

from outrider.fleet import Pool
from outrider.options import Options, Timeouts
from tests.transports.conftest import own_processes

PROGRAM = Path(__file__).with_name("pool_agent.py")
QUICK = Timeouts(connect=30, close=2, terminate=0.5)


class Agents:
    """The processes of one program."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._program = folder / "claude"
        self._program.write_text(f'#!/bin/sh\nexec {sys.executable} -I -S {PROGRAM} {folder} "$@"\n')
        self._program.chmod(0o755)

    def options(self, **fields: Any) -> Options:
        return Options(cli_path=str(self._program), timeouts=QUICK).replace(**fields)

    @property
    def started(self) -> int:
        """How many processes there were."""
        return len(list(self.folder.glob("start-*")))

    @property
    def most_at_once(self) -> int:
        """How many there were at one moment, each counted by those that were there when it started."""
        return max(int(path.read_text() or 0) for path in self.folder.glob("start-*"))

    def set(self, name: str, value: str = "") -> None:
        """Tell all processes something."""
        (self.folder / name).write_text(value)


async def until(is_so: Callable[[], bool], *, every: float = 0.005) -> None:
    """Wait until something is true that nothing announces."""
    with anyio.fail_after(30):
        while not is_so():  # noqa: ASYNC110
            await anyio.sleep(every)


async def nobody_left() -> None:
    """Wait until no process of this test is left."""
    # To look costs more than most of what is looked at.
    await until(lambda: not own_processes(), every=0.05)


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture
def agents(tmp_path: Path) -> Agents:
    return Agents(tmp_path)


@asynccontextmanager
async def pooled(agents: Agents, **rules: Any) -> AsyncGenerator[Pool]:
    """A pool of these agents, after which nothing is left."""
    with anyio.fail_after(50):
        async with Pool(rules.pop("options", None) or agents.options(), **rules) as pool:
            yield pool
        assert own_processes() == []
        stats = pool.stats()
        assert (stats.processes, stats.waiting) == (0, {})

"""What the tests of resilient sessions are played with: a frail agent, and a clock on which nobody waits.

Knows nothing of what the tests want to see.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import anyio
import pytest
from anyio.lowlevel import checkpoint

from outrider.fleet import Clock, ResilientSession, ResilientTurn
from outrider.options import Options, Timeouts
from outrider.wire import AssistantMessage, Json

AGENT = Path(__file__).with_name("frail_agent.py")
QUICK = Timeouts(connect=10, close=0.2, terminate=0.2, interrupt=5)
NOW = 1_800_000_000.0
ONE_LOOP = pytest.mark.parametrize("anyio_backend", ["asyncio"])
"""For what the kind of loop does not matter to."""


class FakeClock(Clock):
    """Goes on when somebody sleeps, by as much."""

    def __init__(self, now: float = NOW, *, is_held: bool = False) -> None:
        """`is_held`: sleepers wait until it is set on by `advance`."""
        self.now = now
        self.slept: list[float] = []
        self._is_held = is_held
        self._moved = anyio.Event()

    def time(self) -> float:
        return self.now

    def random(self) -> float:
        return 0.0

    async def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        until = self.now + seconds
        await checkpoint()
        if not self._is_held:
            self.now += max(0.0, seconds)
            return
        while self.now < until:
            await self._moved.wait()

    def advance(self, seconds: float) -> None:
        self.now += seconds
        self._moved.set()
        self._moved = anyio.Event()


class Frail:
    """A frail agent: what it is to do, and what it has been asked."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.timeouts = QUICK
        self.path = folder / "frail"
        self.path.write_text(f'#!/bin/sh\nexec {sys.executable} -I -S {AGENT} {folder} "$@"\n')
        self.path.chmod(0o755)
        self.plan()

    def plan(self, *starts: list[str] | str) -> None:
        """For each start, what it does at each prompt."""
        (self.folder / "plan.json").write_text(json.dumps(starts))

    @property
    def log(self) -> list[dict[str, Any]]:
        path = self.folder / "log.jsonl"
        return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []

    @property
    def starts(self) -> list[dict[str, Any]]:
        return [entry for entry in self.log if "resume" in entry]

    @property
    def prompts(self) -> list[Any]:
        """What it was asked, as far as it is text."""
        found = [entry["prompt"] for entry in self.log if "prompt" in entry]
        return [each if isinstance(each, str) else each[0]["text"] for each in found]

    def options(self, **fields: Any) -> Options:
        whole: dict[str, Any] = {"timeouts": self.timeouts, **fields}
        return Options(cli_path=self.path, cwd=self.folder, **whole)

    def session(self, **fields: Any) -> ResilientSession[Json]:
        policies = {name: fields.pop(name) for name in list(fields) if name in _POLICIES}
        clock = policies.pop("clock", None) or FakeClock()
        return ResilientSession(self.options(**fields), clock=clock, **policies)


_POLICIES = ("restart", "retry", "gate", "budget", "ledger", "tags", "starter", "clock")


def state_of(session: ResilientSession[Any]) -> str:
    """Its state, of which type checkers do not think that it stays."""
    return session.state


async def begun(turn: ResilientTurn[Any]) -> None:
    """Wait until the agent has said something in it."""
    async for message in turn:
        if isinstance(message, AssistantMessage):
            return


async def kinds_of(turn: ResilientTurn[Any], *wanted: type) -> list[Any]:
    """What came in it that is of such a kind, up to its end, good or bad."""
    found: list[Any] = []
    try:
        async for item in turn:
            if isinstance(item, wanted):
                found.append(item)  # noqa: PERF401 - what came before the error counts
    except Exception:  # noqa: BLE001 - the result tells
        return found
    return found


async def until(condition: Callable[[], bool]) -> None:
    """Let others run until something is so."""
    while not condition():  # noqa: ASYNC110 - what is waited for tells nobody
        await anyio.sleep(0.001)

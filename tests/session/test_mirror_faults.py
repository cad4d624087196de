"""A store that fails and stalls at random: whatever it does, what the agent wrote is in it once, in order."""

from __future__ import annotations

import random
from typing import Any

import anyio
import pytest

from outrider.errors import StoreError, StoreTimedOut
from outrider.session._store import mirror
from outrider.transcripts import MemoryStore
from outrider.wire import ResultMessage, UserMessage
from tests.session.other_end import OtherEnd, init, playing, result
from tests.session.stores import MAIN, hurried, mirrored

pytestmark = pytest.mark.anyio

TURNS = 12
PARTS = ("", "subagents/agent-a", "subagents/agent-b")


class Moody(MemoryStore):
    """Fails before it writes, after it has written, takes its time, or does not answer in time."""

    def __init__(self, chance: random.Random) -> None:
        super().__init__()
        self._chance = chance
        self.mood = 0.6
        """How many of its answers are bad."""

    async def append_batch(self, key: Any, entries: Any, batch: str) -> None:
        kind = self._chance.choice(["before", "after", "slow", "odd", "late"])
        if self._chance.random() > self.mood:
            kind = "well"
        if kind == "before":
            raise StoreError("Moody", "append_batch", retryable=True)
        if kind == "odd":
            raise ZeroDivisionError
        if kind == "slow":
            for _ in range(self._chance.randrange(50)):
                await anyio.lowlevel.checkpoint()
        await super().append_batch(key, entries, batch)
        if kind == "after":
            raise OSError("the answer was lost")
        if kind == "late":
            raise StoreTimedOut("Moody", "append_batch", 1)


@pytest.mark.parametrize("flush", ["batched", "eager"])
@pytest.mark.parametrize("seed", range(6))
async def test_nothing_is_lost_and_nothing_is_there_twice(
    monkeypatch: pytest.MonkeyPatch, flush: Any, seed: int
) -> None:
    hurried(monkeypatch)
    monkeypatch.setattr(mirror, "HOLD_SECONDS", 0.05)
    chance = random.Random(seed)
    store = Moody(chance)
    said: dict[str, list[int]] = {part: [] for part in PARTS}

    def some() -> list[Any]:
        frames: list[Any] = []
        for _ in range(chance.randrange(8)):
            part = chance.choice(PARTS)
            numbers = [len(said[part]) + index for index in range(chance.randrange(1, 4))]
            said[part] += numbers
            frame = mirrored(*numbers, part=part)
            for entry in frame["entries"] if chance.random() < 0.3 else ():
                # A batch that is sent again is known by its id alone then.
                del entry["uuid"]
            frames.append(frame)
        return frames

    async def play(agent: OtherEnd) -> None:
        while (event := await agent.next()) is not None:
            if isinstance(event, UserMessage):
                uuid = event.uuid or ""
                await agent.say(init(uuid), *some(), result(uuid), *some())

    async with playing(play, deadline=40, session_store=store, session_store_flush=flush) as session:
        for _ in range(TURNS):
            turn = await session.send("go")
            messages = [message async for message in turn]
            assert isinstance(messages[-1], ResultMessage)
        store.mood = 0.0
    for part, numbers in said.items():
        key: Any = {**MAIN, "subpath": part} if part else MAIN
        entries: list[Any] = store.get_entries(key)
        assert [entry["number"] for entry in entries] == numbers

"""Sessions under random faults: none hangs, leaks, or loses what arrived. `scripts/soak.py` runs more."""

from __future__ import annotations

import logging
import os
from collections import Counter
from collections.abc import Iterator
from typing import Any

import anyio
import pytest
from anyio.lowlevel import checkpoint

from outrider.testing import Fault, Faulty
from outrider.transports import memory_pair
from outrider.wire import decode
from scripts import soak
from scripts.soak import Outcome, Soak, Tap, is_harmful, run_one

FIRST = {"asyncio": 0, "trio": 1_000_000}
"""Other sessions on each: they follow from their numbers."""


@pytest.fixture(autouse=True)
def quiet(caplog: pytest.LogCaptureFixture) -> None:
    # Faults are told in thousands of lines.
    caplog.set_level(logging.CRITICAL, logger="outrider")


@pytest.mark.anyio
@pytest.mark.timeout(180)
@pytest.mark.parametrize("agent, count", [("memory", 60), ("process", 10)])
async def test_no_session_hangs_leaks_or_loses_what_arrived(
    agent: str, count: int, anyio_backend_name: str
) -> None:
    ran = Soak(agent, at_once=25 if agent == "memory" else 4)
    first = FIRST[anyio_backend_name]
    await ran.run(range(first, first + count))
    assert ran.problems == []
    assert len(ran.outcomes) == count
    ended = Counter(outcome.ended for outcome in ran.outcomes)
    # If all went well, or none, something else than sessions was tested.
    assert count * 0.3 < ended["ok"] < count
    assert len(ended) >= 3


@pytest.mark.anyio
async def test_a_session_can_be_repeated_by_its_number() -> None:
    first, second = [await run_one(number) for number in (58, 58)]
    assert [str(fault) for fault in first.faults] == ["inbound 16: kill"]
    assert (first.ended, first.faults) == (second.ended, second.faults)
    assert "seed=58" in first.told


# It would notice.


async def lines(*frames: bytes, shown: list[bytes], done: list[Fault] | None = None) -> list[str]:
    """What is found if all of these were said and arrived, and some were shown."""
    host, agent = memory_pair()
    inner = Tap(host)
    faulty = Faulty(inner, seed=1)
    faulty.done.extend(done or [])
    outer = Tap(faulty)
    await outer.connect()
    await agent.connect()
    await agent.send(b"".join(frame + b"\n" for frame in frames))
    await outer.receive()
    return list(soak._lost([inner, outer], [faulty], [decode(frame) for frame in shown]))


ONE, TWO, ASK = b'{"type":"a","n":1}', b'{"type":"a","n":2}', b'{"type":"control_request","n":1}'


@pytest.mark.anyio
@pytest.mark.parametrize(
    "shown, problem",
    [
        ([ONE, TWO], None),
        ([ONE], "1 of 2 messages are missing"),
        ([TWO, ONE], "out of order"),
        ([ONE, ONE, TWO], "1 messages are there more often"),
    ],
    ids=["all", "one lost", "swapped", "twice"],
)
async def test_what_is_lost_or_repeated_is_found(shown: list[bytes], problem: str | None) -> None:
    found = await lines(ONE, ASK, TWO, shown=shown)
    assert (found == []) if problem is None else (problem in found[0])


@pytest.mark.anyio
async def test_what_is_found_inside_of_a_line_is_no_repetition() -> None:
    cut = Fault("inbound", 1, "truncate", "3 of 9 bytes, without the line end")
    assert await lines(ONE, TWO, shown=[ONE, ONE, TWO], done=[cut]) == []


@pytest.fixture
def descriptors() -> Iterator[list[int]]:
    made: list[int] = []
    yield made
    for descriptor in made:
        os.close(descriptor)


@pytest.mark.anyio
async def test_what_is_left_behind_is_found(monkeypatch: pytest.MonkeyPatch, descriptors: list[int]) -> None:
    async def leak(number: int, *_: object) -> Outcome:
        await checkpoint()
        descriptors.extend(os.pipe())
        return Outcome(number, "ok", 0, (), (), "")

    monkeypatch.setattr(soak, "run_one", leak)
    monkeypatch.setattr(soak, "PATIENCE", 0.05)
    ran = Soak(at_once=2)
    await ran.run(range(3))
    assert ran.problems == ["sessions 0 to 2 left 6 descriptors"]


@pytest.mark.anyio
async def test_an_error_of_another_kind_and_a_hang_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    async def fail(*_: Any) -> None:
        await checkpoint()
        raise KeyError("not typed")

    monkeypatch.setattr(soak, "_talk", fail)
    [problem, *_] = (await run_one(1)).problems
    assert problem == "an error that is no OutriderError: KeyError('not typed')"

    async def hang(*_: Any) -> None:
        await anyio.sleep_forever()

    monkeypatch.setattr(soak, "_talk", hang)
    monkeypatch.setattr(soak, "DEADLINE", 0.01)
    assert (await run_one(1)).problems == ("it hung for 0.01 s",)


@pytest.mark.parametrize(
    "fault, expected",
    [
        (Fault("inbound", 1, "noise"), False),
        (Fault("inbound", 1, "duplicate"), False),
        (Fault("outbound", 1, "noise"), True),
        (Fault("outbound", 1, "split"), False),
        (Fault("inbound", 1, "drop"), True),
    ],
    ids=str,
)
def test_which_faults_excuse_a_failure(fault: Fault, expected: bool) -> None:
    assert is_harmful(fault) is expected


def test_the_table_counts_how_sessions_ended() -> None:
    ran = Soak()
    drop = (Fault("inbound", 1, "drop"),)
    ran.outcomes = [
        Outcome(n, end, 0, drop if n else (), (), "") for n, end in enumerate(["ok", "ok", "Lost"])
    ]
    assert [line.split() for line in ran.table().splitlines()] == [
        ["ok", "Lost"],
        ["inbound", "drop", "1", "1"],
        ["no", "fault", "1", "·"],
    ]

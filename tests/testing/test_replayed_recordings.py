"""Every recording of the real program that a session could have made is replayed through a session."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from functools import cache
from typing import Any, get_args

import anyio
import pytest
from anyio.lowlevel import checkpoint

from outrider.errors import OutriderError
from outrider.options import Timeouts
from outrider.session import Session
from outrider.testing import replay
from outrider.transports import Recording, TraceRun, read_trace
from outrider.wire import Message, decode
from tests import tapes

pytestmark = pytest.mark.anyio

_MESSAGES = get_args(Message)

NOT_A_SESSION = {
    # A prompt on the command line, or lines of the driver with no first request.
    "01-no-initialize": [1],
    "01-oneshot-print-modes": [1, 2, 3, 4, 5, 6, 7],
    "08-end-session-and-await-initialize": [3],
    "17-exit-codes": [5, 6],
    "18-bad-flags": [3, 40, 41],
}
"""Runs that no session can drive: it always says `initialize` first, and these have none."""


@cache
def recording(name: str) -> Recording:
    return read_trace(tapes.FOLDER / f"{name}.jsonl.gz")


def every_run() -> Iterator[tuple[str, TraceRun]]:
    for name in tapes.NAMES:
        for run in recording(name).runs:
            yield name, run


def frames(run: TraceRun, direction: str) -> list[dict[str, Any]]:
    return [r.frame for r in run.records if r.direction == direction and r.frame is not None]


def first_request(run: TraceRun) -> str | None:
    """The id of the request to begin."""
    asked = (f for f in frames(run, "host->cli") if f.get("type") == "control_request")
    found = (f["request_id"] for f in asked if f["request"].get("subtype") == "initialize")
    return next(found, None)


def is_welcome(run: TraceRun) -> bool:
    """Whether the program accepted that request."""
    outcomes = (f["response"] for f in frames(run, "cli->host") if f.get("type") == "control_response")
    asked = first_request(run)
    return any(o.get("request_id") == asked and o.get("subtype") == "success" for o in outcomes)


def driven() -> list[tuple[str, int]]:
    return [(name, run.number) for name, run in every_run() if run.number not in NOT_A_SESSION.get(name, ())]


def test_only_runs_without_a_first_request_are_left_out() -> None:
    without = [(name, run.number) for name, run in every_run() if first_request(run) is None]
    assert without == [(name, number) for name, numbers in NOT_A_SESSION.items() for number in numbers]


@pytest.mark.parametrize("name, number", driven(), ids=str)
async def test_a_session_gets_what_the_program_said(name: str, number: int) -> None:
    path = tapes.FOLDER / f"{name}.jsonl.gz"
    run = recording(name).runs[number - 1]
    said = [record.data for record in run.records if record.direction == "cli->host" and record.frame]
    messages = [message for message in map(decode, said) if isinstance(message, _MESSAGES)]
    expected = [getattr(message, "uuid", None) for message in messages]
    player = replay(path, run=number, strict=False)
    session = Session(
        transport=player, timeouts=Timeouts(connect=20, turn=20), permission=lambda call: True, give_up_on=[]
    )
    got: list[object] = []

    async def read() -> None:
        # It may end as the program did: with an error.
        with suppress(OutriderError):
            async for message in session:
                got.append(getattr(message, "uuid", None))  # noqa: PERF401 - what came before the error counts

    with anyio.fail_after(30):
        if not is_welcome(run):
            with pytest.raises(OutriderError):
                await session.connect()
            return
        async with session, anyio.create_task_group() as tasks:
            tasks.start_soon(read)
            for prompt in frames(run, "host->cli"):
                if prompt.get("type") == "user":
                    try:
                        await session.send(prompt | {"uuid": None})
                    except OutriderError:
                        # It was more than the program waited for.
                        break
            while not (player._is_at_rest or player._is_over) or player._output:
                await checkpoint()
            await session.close()
    # A prompt that the program says back has the uuid that this session gave it.
    prompts = {frame.get("uuid") for frame in frames(run, "host->cli") if frame.get("type") == "user"}
    known = set(expected) - prompts
    assert [uuid if uuid in known else None for uuid in got] == [
        uuid if uuid in known else None for uuid in expected
    ]

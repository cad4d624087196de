"""Rate limits that the program itself waits for make a run narrower."""

from __future__ import annotations

from typing import Any

import anyio
import pytest

from outrider import fleet
from outrider.fleet import Adaptive
from outrider.testing import Simulator, fail, say


@pytest.mark.anyio
async def test_a_call_that_the_program_tries_again_counts() -> None:
    script: list[Any] = [fail(429, retry_after=0), say("done")]
    with Simulator(script) as agent, agent.stand_in(), anyio.fail_after(30):
        async with fleet.map(["go"], concurrency=Adaptive(1, 16, start=8)) as run:
            assert [outcome.text async for outcome in run] == ["done"]
            assert run.progress.concurrency == 4

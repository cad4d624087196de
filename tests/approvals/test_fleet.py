"""Tasks of a batch that wait for a person, and are gone on with."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from outrider import Approvals, Policy, fleet
from outrider.testing import say, use_tool
from outrider.transcripts import MemoryStore
from tests.approvals.test_sessions import AGENTS

pytestmark = pytest.mark.anyio


@AGENTS
async def test_a_task_that_waits_is_gone_on_with_once_it_is_decided(playing: Any, tmp_path: Path) -> None:
    approvals = Approvals(MemoryStore(), patience=0)
    journal = tmp_path / "run.db"
    async with playing(use_tool("Bash", command="echo x >> made"), say("All done.")) as (make, folder):
        options = make(permission=Policy.of({"ask": "Bash"}), approvals=approvals)
        made = folder / "made"

        async with fleet.map(["Make it"], options=options, journal=journal) as run:
            (waiting,) = [each async for each in run]
        assert (waiting.status, waiting.error) == ("waiting", None)
        assert waiting.result is not None
        (pending,) = waiting.result.pending

        # Nothing is decided, so nothing is started.
        async with fleet.resume(journal, options=options) as run:
            (still,) = [each async for each in run]
        assert (still.status, made.exists()) == ("waiting", False)

        await approvals.decide(pending.id, True)
        async with fleet.resume(journal, options=options) as run:
            (done,) = [each async for each in run]
            assert run.progress.done == 1
        assert (done.status, done.text, done.session_id) == ("done", "All done.", waiting.session_id)
        assert made.read_text() == "x\n"

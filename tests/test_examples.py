"""The programs in `examples/` run."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests import tapes

REPLAY = Path(__file__).parents[1] / "examples" / "replay.py"


def replay(*arguments: str) -> str:
    environment = {**os.environ, "PYTHONIOENCODING": "utf-8", "COLUMNS": "100"}
    done = subprocess.run(
        [sys.executable, REPLAY, *arguments],
        capture_output=True,
        encoding="utf-8",
        check=True,
        env=environment,
    )
    assert done.stderr == ""
    return done.stdout


def test_the_demo_shows_a_conversation() -> None:
    shown = replay()
    assert "may I use ExitPlanMode?" in shown
    assert "BashInput(command='touch z', description='t')" in shown
    assert "\033" not in shown
    assert shown.endswith("every one typed, none lost.\n")


@pytest.mark.parametrize("name", ["02-partial-text-and-tool", "11-subagent-background", "12-api-401"])
def test_any_recording_can_be_played(name: str) -> None:
    assert "every one typed" in replay(str(tapes.FOLDER / f"{name}.jsonl.gz"))

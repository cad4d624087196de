"""The simulated agent writes what the program wrote, in its order: the recordings are the measure."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.tapes import runs
from tests.testing.simulator.recorded_host import kind, kinds, play

# The program opens a socket for other programs; nobody here would listen on it.
NOT_SIMULATED = {"messaging_socket_path"}

# Two conversations go on at once, and nothing says which speaks first.
CONCURRENT = {"11-subagent-background"}

ANSWER = "control_response/success"

RUNS = [
    ("01-message-before-init-response", 0),
    ("01-no-initialize", 0),
    ("01-no-initialize", 1),
    ("01-oneshot-client", 0),
    ("01-oneshot-query", 0),
    ("01-session-state-events", 0),
    ("01-session-state-events", 1),
    ("03-thinking", 0),
    ("04-can-use-tool-allow", 0),
    ("04-can-use-tool-callback-raises", 0),
    ("04-can-use-tool-deny", 0),
    ("04-can-use-tool-parallel", 0),
    ("04-can-use-tool-updated-input", 0),
    ("04-can-use-tool-updated-permissions", 0),
    ("05-hooks-init-variants", 0),
    ("05-hooks-parallel-callbacks", 0),
    ("05-hooks-posttooluse-outputs", 0),
    ("05-hooks-posttoolusefailure-and-batch", 0),
    ("05-hooks-sdk", 0),
    ("05-hooks-userpromptsubmit-outputs", 0),
    ("08-control-sdk-client", 0),
    ("09-structured-output-ok", 0),
    ("09-structured-output-variants", 0),
    ("09-structured-output-variants", 1),
    ("09-structured-output-variants", 2),
    ("10-multi-turn-query-stream", 0),
    ("11-subagent", 0),
    ("11-subagent-background", 0),
    ("11-subagent-forward-text", 0),
    ("13-max-turns", 0),
    ("13-max-turns-raw-continue", 0),
    ("19-ask-user-question", 0),
    ("19-todo-and-task-tools", 0),
]


@pytest.mark.anyio
@pytest.mark.parametrize("anyio_backend", ["asyncio"])
@pytest.mark.parametrize("name, number", RUNS, ids=[f"{name} {number}" for name, number in RUNS])
async def test_it_says_what_the_program_said(name: str, number: int, tmp_path: Path) -> None:
    folder = tmp_path / "project"
    folder.mkdir()
    recorded = [
        record.frame
        for record in list(runs(name))[number]
        if record.direction == "cli->host" and isinstance(record.frame, dict)
    ]
    said = await play(name, number, folder)
    if name in CONCURRENT:
        assert sorted(without_answers(said)) == sorted(without_answers(recorded))
    else:
        assert without_answers(said) == without_answers(recorded)
    assert kinds(said).count(ANSWER) == kinds(recorded).count(ANSWER)
    assert fields(said) == fields(recorded)


def without_answers(frames: list[dict[str, Any]]) -> list[str]:
    """Answers to the host stand anywhere between other frames."""
    return [name for name in kinds(frames) if name != ANSWER]


def fields(frames: list[dict[str, Any]]) -> dict[str, list[str]]:
    """The fields of each kind of frame."""
    found: dict[str, set[str]] = {}
    for frame in frames:
        found.setdefault(kind(frame), set()).update(frame)
    return {name: sorted(names - NOT_SIMULATED) for name, names in found.items()}

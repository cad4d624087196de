"""What the agent's own tools give back is typed."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest

from outrider.session import run
from outrider.testing import say, use_tool
from outrider.wire.tools import EditOutput, ToolOutput
from tests.session.real.talking import real_agent

pytestmark = pytest.mark.anyio

PNG = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
CELL = {"cell_type": "markdown", "id": "a1", "metadata": {}, "source": ["1"]}
NOTEBOOK: dict[str, Any] = {"cells": [CELL], "metadata": {}, "nbformat": 4, "nbformat_minor": 5}

CALLS: list[tuple[str, dict[str, Any]]] = [
    ("Read", {"file_path": "a.txt"}),
    ("Read", {"file_path": "p.png"}),
    ("Read", {"file_path": "n.ipynb"}),
    ("Edit", {"file_path": "a.txt", "old_string": "two", "new_string": "2"}),
    ("Write", {"file_path": "b.txt", "content": "x"}),
    ("NotebookEdit", {"notebook_path": "n.ipynb", "new_source": "2", "cell_id": "a1"}),
    ("Glob", {"pattern": "*.txt"}),
    ("Grep", {"pattern": "one"}),
    ("Bash", {"command": "echo hi", "description": "Greet"}),
    ("Bash", {"command": "sleep 60", "run_in_background": True}),
    ("CronCreate", {"cron": "0 0 1 1 *", "prompt": "p"}),
    ("CronList", {}),
    ("ScheduleWakeup", {"stop": True}),
    ("Monitor", {"command": "sleep 60", "description": "m", "timeout_ms": 5000}),
    ("ReportFindings", {"findings": [{"file": "a", "summary": "s", "failure_scenario": "f"}]}),
    ("Agent", {"description": "d", "prompt": "p", "run_in_background": False}),
]


async def test_every_result_of_a_tool_has_its_type() -> None:
    with real_agent(subagents=[say("looked")]) as agent:
        folder = agent.folder
        for name, fields in CALLS:
            paths = {
                key: str(folder / fields[key]) for key in ("file_path", "notebook_path") if key in fields
            }
            agent.api.add(use_tool(name, **(fields | paths)))
        (folder / "a.txt").write_text("one\ntwo\n", encoding="utf-8")
        (folder / "p.png").write_bytes(base64.b64decode(PNG))
        (folder / "n.ipynb").write_text(json.dumps(NOTEBOOK), encoding="utf-8")
        named = sorted({name for name, _ in CALLS})
        options = agent.options(tools=named, permission_mode="bypassPermissions")
        result = await run("go", options, until="result")
    runs = result.tool_calls
    assert [run.name for run in runs] == [name for name, _ in CALLS]
    untyped = [(run.name, run.output) for run in runs if not isinstance(run.output, ToolOutput)]
    assert untyped == []
    (edit,) = (run.output for run in runs if isinstance(run.output, EditOutput))
    assert edit.structured_patch[0].lines == [" one", "-two", "+2"]

"""docs/command.md, docs/migrating.md and docs/batches.md say what the command does."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
from pathlib import Path

import pytest

from outrider.app._main import carry_out
from outrider.fleet import Journal, Outcome, Task
from outrider.session import Usage
from outrider.testing import Request, Step, say, use_tool
from outrider.transcripts import Bundle
from scripts import command_page, demo_picture, report_picture, trace_picture
from tests import tapes
from tests.app.machines import Machine, machine
from tests.transcripts.keeping import KEY, put_on_disk
from tests.transcripts.lines import answer, line, prompt

PAGE = command_page.PAGE.read_text(encoding="utf-8")
MIGRATING = command_page.PAGE.with_name("migrating.md").read_text(encoding="utf-8")
BATCHES = command_page.BATCHES.read_text(encoding="utf-8")
SAMPLES = [
    sample
    for block in re.findall(r"```console\n(.*?)```", PAGE + MIGRATING + BATCHES, re.DOTALL)
    for sample in re.findall(r"^\$ (.*)\n((?:(?!\$ ).*\n)*)", block, re.MULTILINE)
]
ANSWERS: dict[str, tuple[Step, ...]] = {
    "When do we ship?": (say("It says **Friday**."),),
    "Write a commit message": (say("Parse tabs"),),
    "What is 6 times 7?": (say("42"),),
    "How many TODOs are there?": (use_tool("StructuredOutput", count=2), say("Counted.")),
    "Make a file": (use_tool("Bash", command="touch file", description="Make it"), say("I may not.")),
}
VARYING = re.compile(
    r"\d+\.\d s (?:· | )|\d:\d\d · |session [0-9a-f-]{36}| +$|^  pip install /.*\n", re.MULTILINE
)
TASKS = """\
{"prompt": "When do we ship?", "id": "ship", "tags": {"team": "core"}}
{"prompt": "How many TODOs are there?", "id": "todos", "options": {"max_turns": 1}}
"What is 6 times 7?"
"""
OLDER = {
    "src/agent.py": "from claude_agent_sdk import query\n",
    "agent.py": """\
import asyncio
from claude_agent_sdk import ClaudeAgentOptions, ClaudeSDKClient


async def main():
    async with ClaudeSDKClient(ClaudeAgentOptions()) as client:
        await client.query("Hello")
        print("Asked with claude_agent_sdk.")
""",
}
"""Files of a program that was written for another SDK."""


def model(request: Request) -> Step:
    (prompt,) = [prompt for prompt in ANSWERS if prompt in request.prompt]
    rounds = len([message for message in request.messages if message.get("role") == "assistant"])
    return ANSWERS[prompt][rounds]


def keep_sessions(config: Path) -> None:
    """Two conversations, the second of which was used last."""
    for number, (begins, title, question, told) in enumerate(
        [
            ("c0ffee11", "Find the leak", "Where is the memory leak?", "In the cache."),
            ("7b1f3a52", "Release notes", "What is new?", "Tabs."),
        ]
    ):
        id = f"{begins}-8c1e-4f7e-9d55-2f3f5e6a7b8c"
        said = answer("u2", "u1")
        said["message"]["content"] = [{"type": "text", "text": told}]
        lines = [prompt("u1", None, question), said, line("custom-title", customTitle=title)]
        path = put_on_disk(config, Bundle(session_id=id, project=KEY, entries=lines, parts={}))
        os.utime(path, (number, number))


def keep_batch(folder: Path) -> None:
    """A batch that was interrupted before its last task."""
    ends = [
        Outcome(id="ship", duration=2.5, attempts=1, usage=Usage(80, 10, cost_usd=0.0011)),
        Outcome(
            id="todos",
            number=1,
            status="failed",
            duration=4.25,
            attempts=2,
            error="No.",
            error_kind="ApiFailed",
            usage=Usage(80, 10, cost_usd=0.001),
        ),
    ]
    with Journal(folder / "tasks.journal", writing=True) as journal:
        tasks = [Task.from_json(line) for line in TASKS.splitlines()]
        journal.add((number, task.placed(number)) for number, task in enumerate(tasks))
        for end in ends:
            journal.begin(end.id, 1, "here")
            journal.end(end, usage=end.usage)


@pytest.mark.parametrize("command, shown", SAMPLES, ids=[command for command, _ in SAMPLES])
def test_a_sample_prints_what_is_shown(command: str, shown: str) -> None:
    with machine(otherwise=model) as here:
        schema = {"type": "object", "properties": {"count": {"type": "integer"}}, "required": ["count"]}
        (here.folder / "schema.json").write_text(json.dumps(schema))
        (here.folder / "change.diff").write_text("+ tabs\n")
        (here.folder / "src").mkdir(exist_ok=True)
        for name, text in OLDER.items():
            (here.folder / name).write_text(text)
        shutil.copy(tapes.FOLDER / "04-can-use-tool-deny.jsonl.gz", here.folder / "session.jsonl.gz")
        keep_sessions(Path(here.environment["CLAUDE_CONFIG_DIR"]))
        (here.folder / "tasks.jsonl").write_text(TASKS)
        if "tasks.journal" in command:
            keep_batch(here.folder)
        printed = play(command, here)
    assert VARYING.sub("", printed) == VARYING.sub("", shown)


PARTS = re.compile(r"(?:(.*) \| )?outrider (.*?)(?: \| (.*))?")
"""A sample: what is piped into the command, the command, and what its output is piped into."""


def play(command: str, here: Machine) -> str:
    if (parts := PARTS.fullmatch(command)) is None:
        return shell(command, here.folder)
    before, line, after = parts.groups()
    done = here.run(*shlex.split(line), stdin=shell(before, here.folder) if before else None, is_merged=True)
    # A batch of which a task failed is no success.
    assert done.code == 0 or "fleet run" in command
    return shell(after, here.folder, done.out) if after else done.out


def shell(line: str, cwd: Path, stdin: str = "") -> str:
    done = subprocess.run(
        ["bash", "-c", line], input=stdin, capture_output=True, encoding="utf-8", cwd=cwd, check=True
    )
    return done.stdout


def test_the_tables_are_those_of_the_code() -> None:
    assert command_page.page() == PAGE, "run `.venv/bin/python scripts/command_page.py`"
    assert command_page.page(command_page.BATCHES) == BATCHES, (
        "run `.venv/bin/python scripts/command_page.py`"
    )


def test_every_command_is_on_the_page(capsys: pytest.CaptureFixture[str]) -> None:
    carry_out(["--help"])
    commands = re.findall(r"^  (\w+)  ", capsys.readouterr().out.partition("Commands:")[2], re.MULTILINE)
    assert len(commands) == 13
    assert [name for name in commands if f"| `outrider {name}" not in PAGE] == []


def test_the_plot_is_that_of_a_report() -> None:
    drawn = report_picture.PICTURE.read_text(encoding="utf-8")
    assert report_picture.report().to_svg() == drawn, "run `.venv/bin/python scripts/report_picture.py`"


def test_the_picture_of_a_trace_has_the_names_of_spans() -> None:
    drawn = trace_picture.PICTURE.read_text(encoding="utf-8")
    assert trace_picture.picture() == drawn, "run `.venv/bin/python scripts/trace_picture.py`"


def test_the_picture_is_that_of_the_demo(tmp_path: Path) -> None:
    path = tmp_path / "demo.svg"
    demo_picture.make(path)
    assert _words(path) == _words(demo_picture.PICTURE), "run `.venv/bin/python scripts/demo_picture.py`"


def _words(path: Path) -> list[str]:
    """What is on a picture, whatever the numbers are: versions and sums change."""
    words = re.findall(r">([^<\n]+)</text>", path.read_text(encoding="utf-8"))
    return [re.sub(r"[\d.,]+", "0", word) for word in words]

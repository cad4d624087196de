"""The agent that the examples of the README and of `docs/` talk to, simulated or real: its model is a table.

Does not know the examples: each prompt that they send is a line of the table.
"""

from __future__ import annotations

import os
import struct
import zlib
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, cast

import msgspec
import pytest

from outrider.session import Prompt, Queued, Turn
from outrider.testing import (
    Answer,
    Gate,
    MessagesApi,
    Request,
    Simulator,
    Step,
    answer,
    clean_environment,
    fail,
    hang,
    say,
    use_tool,
)
from outrider.wire import JsonObject
from tests.real_program import require_program

SUBAGENT_REQUESTS: Final = 100
"""More than any example leads to."""

STEERED: Final = ".steered"
"""A pipe: who reads a line of it waits until the example has steered its turn."""

ANSWERS: Final[Mapping[str, tuple[Step, ...]]] = {
    # The tour.
    "Explain the build": (
        answer(say("Let me look."), use_tool("Bash", command="ls", description="Look")),
        say("There is none: src is run as it is."),
    ),
    "Summarise ticket 7": (say("Tabs are not parsed."),),
    "Write a long report": (hang(),),
    "Only the title, then": (say("On tabs"),),
    "Think for ever": (hang(),),
    # Turns.
    "How many TODOs are in src?": (
        use_tool("Bash", command="grep -c TODO src/* | sort", description="Count them"),
        say("There are ", "2 TODOs ", "in src."),
    ),
    "My name is Ada.": (say("Hello, Ada."),),
    "What is my name?": (say("Ada."),),
    "What does it show?": (say("A white square."),),
    "Compare them.": (say("The first is shorter."),),
    "Have somebody look at notes.txt.": (
        use_tool("Agent", description="Look at it", prompt="Read notes.txt to the end."),
        say("Somebody looks at it."),
    ),
    "Read notes.txt to the end.": (say("It says to ship on Friday."),),
    "<task-notification>": (say("They say: ship on Friday."),),
    "Go through the code.": (say("This will take a while, line by line."),),
    "Then write the tests.": (say("Written."),),
    "Then write the docs.": (say("Never."),),
    "Clean up, step by step.": (
        use_tool("Bash", command=f"head -n 1 {STEERED}", description="Take a step"),
        say("Done, and the changelog too."),
    ),
    "Keep a changelog.": (say("Done, and the changelog too."),),
    "Think about everything.": (hang(),),
    "Go on.": (say("Here I am."),),
    # Errors.
    "Tell me everything.": (fail(429, retry_after=0),),
    "Tidy up.": (
        answer(say("Looking first."), use_tool("Bash", command="ls", description="Look")),
        say("Tidy now."),
    ),
    "Are we there yet?": (hang(),),
    # Control requests.
    "What is the time?": (say("Late."),),
    # Usage.
    "Write a haiku.": (say("An old silent pond", usage={"input_tokens": 1200, "output_tokens": 30}),),
    "Another one.": (
        say(
            "A frog jumps in",
            usage={"input_tokens": 40, "output_tokens": 20, "cache_read_input_tokens": 1200},
        ),
    ),
    "Ask the reviewer.": (
        use_tool(
            "Agent",
            subagent_type="reviewer",
            description="Review",
            prompt="Review src.",
            run_in_background=False,
        ),
        say("No complaints."),
    ),
    "Review src.": (say("Fine.", usage={"input_tokens": 500, "output_tokens": 7}),),
    # Tools.
    "Who works on ticket 7?": (
        use_tool("mcp__tools__lookup", ticket=7, fields=["owner"]),
        say("Ada does."),
    ),
    "Order a large shirt.": (
        use_tool("mcp__tools__order", items=[{"name": "shirt", "size": "large"}]),
        use_tool("mcp__tools__order", items=[{"name": "shirt", "size": "L"}], how="courier"),
        say("It comes by courier."),
    ),
    "Measure the kitchen.": (use_tool("mcp__tools__measure", room="kitchen"), say("Done.")),
    "Which books are there?": (use_tool("mcp__library__titles"), say("Only Emma.")),
    "Add Ulysses.": (use_tool("mcp__library__add", title="Ulysses"), say("It is on the shelf.")),
    "List the owners.": (use_tool("StructuredOutput", value=["Ada", "Grace"]), say("Listed.")),
    # Structured output.
    "Read invoice.txt.": (
        use_tool("StructuredOutput", number=12, lines=[{"item": "tea", "price": 4.5}]),
        say("Read."),
    ),
    "Is it safe?": (use_tool("StructuredOutput", value="yes"), say("Said.")),
    "Is it really safe?": (say("That depends."),),
    # Approvals.
    "Deploy it.": (
        use_tool("Bash", command="./deploy.sh", description="Deploy"),
        say("It is deployed."),
    ),
    # Hooks.
    "Empty the folder.": (
        use_tool("Bash", command="rm -r src", description="Delete it"),
        use_tool("Bash", command="ls", description="Look"),
        say("I may not delete anything."),
    ),
    "Write a note, then list the folder.": (
        use_tool("Write", file_path="note.txt", content="hello"),
        use_tool("Bash", command="ls", description="Look"),
        say("Neither was allowed."),
    ),
    # Permissions.
    "Write hello.txt.": (
        use_tool("Bash", command="echo hello > hello.txt", description="Write it"),
        use_tool("Write", file_path="hello.txt", content="hello"),
        say("Written."),
    ),
    "Which database should we use? Ask me.": (
        use_tool(
            "AskUserQuestion",
            questions=[
                {
                    "question": "Which database?",
                    "header": "Database",
                    "multiSelect": False,
                    "options": [
                        {"label": "SQLite", "description": "A file"},
                        {"label": "PostgreSQL", "description": "A server"},
                    ],
                }
            ],
        ),
        say("SQLite it is."),
    ),
    # MCP.
    "What is the weather in Rome?": (use_tool("mcp__weather__forecast", city="Rome"), say("Sunny.")),
}
"""What the model answers to a prompt that has this in it, round by round; the last one again and again."""

MISSING_MODEL: Final = "claude-of-tomorrow"

FILES: Final = {
    "src/parser.py": "def parse(text):  # TODO: tabs\n    return text.split()\n",
    "src/report.py": "def report(rows):\n    return rows  # TODO: sort\n",
    "notes.txt": "Ship on Friday.\n",
}


def model(request: Request) -> Step:
    """The answer to a request."""
    if request.body.get("model") == MISSING_MODEL:
        return fail(404, message=f"model: {MISSING_MODEL}")
    rounds = 0
    for message in reversed(request.messages):
        if message.get("role") == "assistant":
            rounds += 1
            continue
        text = _text(message)
        # Prompts that come together are one message: the last of them counts.
        prompt = max(ANSWERS, key=text.rfind)
        if prompt in text:
            return _held(prompt, ANSWERS[prompt][min(rounds, len(ANSWERS[prompt]) - 1)])
    asked = [_text(message)[-300:] for message in request.messages if message.get("role") == "user"]
    raise LookupError(f"`ANSWERS` has no line for any of {asked}")


def _held(prompt: str, step: Step) -> Step:
    """The step, but not before the example has done what it shows meanwhile."""
    if prompt == "Clean up, step by step.":
        _meanwhile.make_pipe()
    gates = {
        "Go through the code.": _meanwhile.withdrawn,
        "Read notes.txt to the end.": _meanwhile.has_result,
    }
    if prompt in gates and isinstance(step, Answer):
        return msgspec.structs.replace(step, gate=gates[prompt])
    return step


class _Meanwhile:
    """What an example does while a turn runs."""

    def __init__(self) -> None:
        self.withdrawn = Gate(after=0)
        self.has_result = Gate(after=0)
        self._steered = -1

    def make_pipe(self) -> None:
        if self._steered < 0:
            os.mkfifo(STEERED)
            # Both ends, so that neither waits for the other.
            self._steered = os.open(STEERED, os.O_RDWR)

    @contextmanager
    def watched(self, monkeypatch: pytest.MonkeyPatch) -> Generator[None]:
        self.withdrawn, self.has_result = Gate(after=0), Gate(after=0)
        steer, withdraw, result = Turn.steer, Queued.withdraw, Turn.result

        async def noted_steer(turn: Turn[Any], prompt: Prompt) -> Queued:
            queued = await steer(turn, prompt)
            if self._steered >= 0:
                os.write(self._steered, b"\n")
            return queued

        async def noted_withdraw(queued: Queued) -> bool:
            try:
                return await withdraw(queued)
            finally:
                self.withdrawn.open()

        async def noted_result(turn: Turn[Any], **given: Any) -> Any:
            try:
                return await result(turn, **given)
            finally:
                self.has_result.open()

        monkeypatch.setattr(Turn, "result", noted_result)
        monkeypatch.setattr(Turn, "steer", noted_steer)
        monkeypatch.setattr(Queued, "withdraw", noted_withdraw)
        try:
            yield
        finally:
            if self._steered >= 0:
                os.close(self._steered)
                self._steered = -1


_meanwhile: Final = _Meanwhile()


def _text(message: JsonObject) -> str:
    content = message.get("content")
    if isinstance(content, str):
        return content
    blocks = cast("list[JsonObject]", content or [])
    return "\n".join(str(block["text"]) for block in blocks if block.get("type") == "text")


@contextmanager
def documented_agent(folder: Path, monkeypatch: pytest.MonkeyPatch, *, is_real: bool) -> Generator[None]:
    """A machine on which an agent is installed, with a small project as the current folder.

    Skips the test if it is to be the real program, and that is not there.
    """
    home, project = folder / "home", folder / "project"
    for name, text in FILES.items():
        path = project / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    (project / "diagram.png").write_bytes(_png())
    home.mkdir()
    for name in list(os.environ):
        if name.startswith(("ANTHROPIC_", "CLAUDE")) or name.upper().endswith("_PROXY"):
            monkeypatch.delenv(name)
    monkeypatch.chdir(project)
    agent = _real(folder, monkeypatch) if is_real else _simulated(home, project, monkeypatch)
    with _meanwhile.watched(monkeypatch), agent:
        yield


@contextmanager
def _real(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Generator[None]:
    programs = folder / "bin"
    programs.mkdir()
    (programs / "claude").symlink_to(require_program())
    with MessagesApi(otherwise=model, subagents=[model] * SUBAGENT_REQUESTS) as api:
        for name, value in clean_environment(folder / "home", url=api.url).items():
            monkeypatch.setenv(name, value)
        monkeypatch.setenv("PATH", str(programs), prepend=os.pathsep)
        yield


@contextmanager
def _simulated(home: Path, project: Path, monkeypatch: pytest.MonkeyPatch) -> Generator[None]:
    for name, value in clean_environment(home).items():
        monkeypatch.setenv(name, value)
    subagents = [model] * SUBAGENT_REQUESTS
    agent = Simulator([], otherwise=model, subagents=subagents, folder=project, config_dir=home / ".claude")

    with agent, agent.stand_in(everywhere=True):
        yield


def _png() -> bytes:
    """A white square."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    side = 16
    rows = (b"\0" + b"\xff" * 3 * side) * side
    header = struct.pack(">IIBBBBB", side, side, 8, 2, 0, 0, 0)
    return (
        b"\x89PNG\r\n\x1a\n"
        + chunk(b"IHDR", header)
        + chunk(b"IDAT", zlib.compress(rows))
        + chunk(b"IEND", b"")
    )

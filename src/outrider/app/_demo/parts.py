"""Defines what the demo runs: a tool, a hook and a type as a user would write them, and the script.

The demo shows the source of the first part, so keep it readable. Shows nothing itself: `demo` does.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec

import outrider
from outrider.testing import answer, say, use_tool
from outrider.wire.hooks import PreToolUseInput

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from outrider.testing import Request, Step

__all__ = ["FILES", "PROMPT", "Report", "careful", "script", "ticket"]

TICKETS: Final = {7: {"title": "Tabs are not parsed", "owner": "Ada", "file": "parser.py"}}


@outrider.tool
def ticket(number: int) -> dict[str, str]:
    """Look a ticket up."""
    return TICKETS[number]


@outrider.hook("PreToolUse", matcher="Bash")
def careful(call: PreToolUseInput) -> outrider.Answer | None:
    if "rm " in call.tool_input["command"]:
        return outrider.deny("Nothing is deleted here.")
    return None


class Report(msgspec.Struct):
    """The form of the answer."""

    ticket: int
    is_fixed: bool
    files: list[str]


PROMPT: Final = "Fix ticket 7, clean up, and report."

_BEFORE, _AFTER = 'line.split(" ")', "line.split()"

FILES: Final[Mapping[str, str]] = {
    "parser.py": f"def fields(line):\n    return {_BEFORE}\n",
    "build/parser.pyc": "",
}
"""What is in the folder in which the agent works."""

_USAGE: Final = {"input_tokens": 180, "cache_read_input_tokens": 2400, "output_tokens": 45}


def script(delay: float) -> list[Step | Callable[[Request], Step]]:
    """What the model says, with so many seconds for each word."""
    changed: list[str] = []

    def words(text: str) -> outrider.testing.Answer:
        return say(text, delay=delay, usage=_USAGE)

    def clean_up(request: Request) -> Step:
        is_done = not any(result.get("is_error") for result in request.tool_results)
        changed.extend(["parser.py"] if is_done else [])
        text = "Done. Now what was built:" if is_done else "I leave it as it is. Now what was built:"
        return answer(
            words(text), use_tool("Bash", command="rm -rf build", description="Remove what was built")
        )

    def report(_: Request) -> Step:
        filled_in = use_tool("StructuredOutput", ticket=7, is_fixed=bool(changed), files=changed)
        return answer(words("Then it stays. Here is the report."), filled_in)

    return [
        answer(words("Let me look the ticket up."), use_tool("mcp__tools__ticket", number=7)),
        use_tool("Read", file_path="parser.py"),
        answer(
            words(f"`{_BEFORE}` takes a tab for a letter. One line changes that:"),
            use_tool("Edit", file_path="parser.py", old_string=_BEFORE, new_string=_AFTER),
        ),
        clean_up,
        report,
        words("That is all."),
    ]

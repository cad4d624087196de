"""Owns the automatic script: each tool of the user's once, then an answer.

Does not make the inputs: `_samples` does.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Final

from outrider.testing._requests import Request, blocks_of, text_of
from outrider.testing._samples import sample
from outrider.testing._steps import Answer, say, use_tool

if TYPE_CHECKING:
    from outrider.wire import JsonObject

__all__ = ["OUTPUT_TOOL", "Automatic"]

OUTPUT_TOOL: Final = "StructuredOutput"
"""What the model calls to answer in a form that was asked for."""

_SHOWN: Final = 200


class Automatic:
    """Chooses the answers of a model that tries out what it is offered.

    It calls each tool of an MCP server, those of the user's among them, once in a session, one in a message.
    Then it says what they gave in this turn, or what it was asked if it had none to call. If
    `StructuredOutput` is offered, it ends with a call of that, with a value that fits.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._called: dict[str | None, set[str]] = {}

    def __call__(self, request: Request) -> Answer:
        with self._lock:
            called = self._called.setdefault(request.session_id, set())
            # A session may have begun with another script.
            called |= {name for message in request.messages for name in _calls(message).values()}
            left = [name for name in request.tools if name.startswith("mcp__") and name not in called]
            called |= set(left[:1])
        if left:
            return use_tool(left[0], _input(request.tools[left[0]]))
        if OUTPUT_TOOL in request.tools:
            return use_tool(OUTPUT_TOOL, _input(request.tools[OUTPUT_TOOL]))
        return say(_report(request) or f"You said: {request.prompt}")


def _input(tool: JsonObject) -> JsonObject:
    made = sample(tool.get("input_schema"))
    return made if isinstance(made, dict) else {}


def _report(request: Request) -> str:
    """What the tools gave in this turn, a line for each."""
    lines: list[str] = []
    names: dict[str, str] = {}
    for message in request.since_prompt:
        names |= _calls(message)
        for block in blocks_of(message):
            if block.get("type") == "tool_result":
                name = names.get(str(block.get("tool_use_id")), "a tool")
                text = " ".join(text_of(block.get("content")).split()) or "(no text)"
                text = text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"
                lines.append(f"{name} {'failed' if block.get('is_error') is True else 'gave'}: {text}")
    return "\n".join(lines)


def _calls(message: JsonObject) -> dict[str, str]:
    """The tools that a message calls, by the id of the call."""
    if message.get("role") != "assistant":
        return {}
    calls = [block for block in blocks_of(message) if block.get("type") == "tool_use"]
    return {str(block.get("id")): str(block.get("name")) for block in calls}

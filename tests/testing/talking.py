"""Requests as the agent makes them, for tests of scripts that start no agent."""

from __future__ import annotations

from typing import Any

from outrider.testing import Answer, Request, Step, Text

REMINDER = "<system-reminder>\nMind the gap.\n</system-reminder>\n"


def user(*content: Any) -> dict[str, Any]:
    """A message of the user's: of texts, or of blocks."""
    blocks = [{"type": "text", "text": each} if isinstance(each, str) else each for each in content]
    return {"role": "user", "content": blocks}


def called(name: str = "A", id: str = "t1", **given: Any) -> dict[str, Any]:
    """A message of the model's that calls a tool."""
    return {"role": "assistant", "content": [{"type": "tool_use", "id": id, "name": name, "input": given}]}


def said(text: str) -> dict[str, Any]:
    return {"role": "assistant", "content": [{"type": "text", "text": text}]}


def result(text: Any = "out", id: str = "t1", **more: Any) -> dict[str, Any]:
    return {"type": "tool_result", "tool_use_id": id, "content": text, **more}


def asked(
    *messages: Any,
    tools: dict[str, Any] | None = None,
    agent: str | None = None,
    session: str = "s1",
    model: str = "some-model",
) -> Request:
    """A request with these messages; a text is a prompt of the user's."""
    headers = {"x-claude-code-session-id": session}
    if agent is not None:
        headers["x-claude-code-agent-id"] = agent
    offered = [{"name": name, "input_schema": schema} for name, schema in (tools or {}).items()]
    talk = [user(REMINDER, each) if isinstance(each, str) else each for each in messages]
    body = {"model": model, "messages": talk, "tools": offered}
    return Request(kind="main" if agent is None else "subagent", headers=headers, body=body)


def text(step: Step) -> str:
    """What a step says, the names of the tools that it calls among it, and of errors their text."""
    if not isinstance(step, Answer):
        return str(getattr(step, "message", step))
    return " ".join(
        "".join(block.pieces) if isinstance(block, Text) else str(getattr(block, "name", block))
        for block in step.blocks
    )

"""Owns how a step is fitted to the request that it answers: the full names of its tools, a plan's file.

Does not choose the step.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

import msgspec

from outrider.options._tool_names import ambiguous, names_in, tools_named
from outrider.testing._requests import Request, text_of
from outrider.testing._steps import Answer, Block, Hang, Step, ToolUse

if TYPE_CHECKING:
    from collections.abc import Iterator

    from outrider.testing._script import Item

__all__ = ["resolved", "started"]

# The agent tells the model where it will look for the plan.
_PLAN_FILE: Final = re.compile(r"\S*[/\\]plans[/\\]\S+\.md")


def resolved(step: Step, request: Request) -> Step:
    """The step as this request needs it.

    Raises `OptionsError` for a short name that several tools have.
    """
    match step:
        case Answer(blocks=blocks):
            fitted = tuple(block for each in blocks for block in _fitted(each, request))
            return step if fitted == blocks else msgspec.structs.replace(step, blocks=fitted)
        case Hang(then=Answer() as then):
            return Hang(_answer(resolved(then, request)))
        case _:
            return step


def started(step: Step) -> Iterator[tuple[str, tuple[Item, ...]]]:
    """The subagents that a step starts, by prompt, and what they answer."""
    answer = step.then if isinstance(step, Hang) else step
    for block in answer.blocks if isinstance(answer, Answer) else ():
        if isinstance(block, ToolUse) and block.steps is not None:
            yield str(block.input.get("prompt", "")), block.steps


def _answer(step: Step) -> Answer | None:
    return step if isinstance(step, Answer) else None


def _fitted(block: Block, request: Request) -> Iterator[Block]:
    if not isinstance(block, ToolUse):
        yield block
        return
    if block.writes_plan and (path := _plan_file(request)) is not None:
        yield ToolUse("Write", {"file_path": path, "content": block.input.get("plan", "")})
    names = tools_named(block.name, names_in(request.tools).own)
    if len(names) > 1:
        raise ambiguous("a step", block.name, names)
    yield block if names in ([], [block.name]) else msgspec.structs.replace(block, name=names[0])


def _plan_file(request: Request) -> str | None:
    for message in reversed(request.messages):
        if message.get("role") != "assistant" and (
            paths := _PLAN_FILE.findall(text_of(message.get("content")))
        ):
            return str(paths[-1])
    return None

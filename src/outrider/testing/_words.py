"""Owns the words of a script for what an agent does with tools of its own: questions, plans, subagents.

Does not do it: each is a call of a tool, as a model makes it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, cast

import msgspec

from outrider.errors import OptionsError
from outrider.testing._matching import checked_items
from outrider.testing._steps import Answer, ToolUse, use_tool

if TYPE_CHECKING:
    from outrider.testing._script import Item

__all__ = ["ask_question", "background_task", "exit_plan_mode", "structured", "subagent"]


def ask_question(
    text: str,
    options: Iterable[str] | Mapping[str, str],
    *,
    header: str = "Question",
    multiple: bool = False,
) -> Answer:
    """The model asks the user, who may choose one of these options, or several if `multiple` are allowed.

    A mapping gives each option a description. The agent wants two to four.
    """
    told = (
        cast("Mapping[str, str]", options)
        if isinstance(options, Mapping)
        else {each: each for each in options}
    )
    question = {
        "question": text,
        "header": header,
        "multiSelect": multiple,
        "options": [{"label": label, "description": text} for label, text in told.items()],
    }
    return use_tool("AskUserQuestion", questions=[question])


def exit_plan_mode(plan: str) -> Answer:
    """The model has a plan and asks whether it may go on with it.

    The plan is written first to the file that the agent reads it from, if the request tells of one.
    """
    return Answer(blocks=(ToolUse("ExitPlanMode", {"plan": plan}, writes_plan=True),))


def subagent(
    prompt: str,
    *steps: Item,
    type: str | None = None,
    background: bool = False,
    description: str | None = None,
    model: str | None = None,
) -> Answer:
    """The model starts a subagent, which answers with these steps; its first request is told by the prompt.

    With `background`, the agent does not wait for it, and starts a turn of its own when it is done.
    Several in one message, which run side by side, are an `answer()` of several: give them different prompts.

    Raises `OptionsError` for an empty prompt, and for a step that is none.
    """
    if not prompt.strip():
        raise OptionsError(
            "The prompt of a subagent is empty", hint="Say what it has to do: it is told by that."
        )
    given: dict[str, object] = {
        "description": description or " ".join(prompt.split()[:5]),
        "prompt": prompt,
        "run_in_background": background,
    }
    if type is not None:
        given["subagent_type"] = type
    if model is not None:
        given["model"] = model
    return Answer(blocks=(ToolUse("Agent", given, steps=tuple(checked_items(steps)) or None),))


def background_task(command: str, *, description: str | None = None, timeout: float | None = None) -> Answer:
    """The model runs a command that goes on while the conversation does; `timeout` is in seconds."""
    given: dict[str, object] = {"description": description or command[:60], "run_in_background": True}
    if timeout is not None:
        given["timeout"] = timeout * 1000
    return use_tool("Bash", given, command=command)


def structured(value: object) -> Answer:
    """The model answers in the form that was asked for. It ends the turn.

    Takes anything that msgspec or pydantic can make JSON of. What is no object becomes the property `value`
    of one, as `output=` does it.

    Raises `OptionsError` for what cannot be JSON.
    """
    dump = getattr(value, "model_dump", None)
    try:
        plain: object = dump(mode="json") if callable(dump) else msgspec.to_builtins(value, str_keys=True)
    except (TypeError, ValueError) as error:
        raise OptionsError(f"`structured` was given what cannot be JSON: {error}") from error
    given = cast("Mapping[str, object]", plain if isinstance(plain, dict) else {"value": plain})
    return use_tool("StructuredOutput", given)

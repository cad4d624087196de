"""The words of a script for an agent's own tools."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date
from typing import Any

import msgspec
import pydantic
import pytest

from outrider.errors import OptionsError
from outrider.testing import (
    Answer,
    ToolUse,
    ask_question,
    background_task,
    exit_plan_mode,
    say,
    structured,
    subagent,
)


def block(step: Answer) -> ToolUse:
    (only,) = step.blocks
    assert isinstance(only, ToolUse)
    return only


def given(step: Answer) -> tuple[str, Any]:
    return block(step).name, dict(block(step).input)


@pytest.mark.parametrize(
    "options, listed",
    [
        (["A", "B"], [{"label": "A", "description": "A"}, {"label": "B", "description": "B"}]),
        ({"A": "first"}, [{"label": "A", "description": "first"}]),
    ],
)
def test_a_question_has_its_options(options: Any, listed: Any) -> None:
    name, input = given(ask_question("Which?", options, header="H", multiple=True))
    assert name == "AskUserQuestion"
    assert input["questions"] == [
        {"question": "Which?", "header": "H", "multiSelect": True, "options": listed}
    ]


def test_a_plan_is_to_be_written_where_the_agent_reads_it() -> None:
    assert given(exit_plan_mode("p")) == ("ExitPlanMode", {"plan": "p"})
    assert block(exit_plan_mode("p")).writes_plan


def test_a_subagent_is_waited_for_unless_it_is_in_the_background() -> None:
    step = subagent("Look at all of the files there.", say("x"))
    assert given(step) == (
        "Agent",
        {
            "prompt": "Look at all of the files there.",
            "description": "Look at all of the",
            "run_in_background": False,
        },
    )
    assert block(step).steps == (say("x"),)
    step = subagent("Look.", type="scout", background=True, description="d", model="haiku")
    assert block(step).steps is None
    assert block(step).input == {
        "prompt": "Look.",
        "description": "d",
        "run_in_background": True,
        "subagent_type": "scout",
        "model": "haiku",
    }


def test_a_subagent_needs_a_prompt() -> None:
    with pytest.raises(OptionsError, match="empty"):
        subagent(" ", say("x"))


def test_a_task_in_the_background_is_a_command() -> None:
    assert given(background_task("make all", timeout=1.5)) == (
        "Bash",
        {"command": "make all", "description": "make all", "run_in_background": True, "timeout": 1500.0},
    )
    assert given(background_task("x", description="d"))[1]["description"] == "d"


@dataclass
class Plain:
    day: date


class Struct(msgspec.Struct):
    day: date


class Model(pydantic.BaseModel):
    day: date


@pytest.mark.parametrize(
    "value, input",
    [
        ({"a": 1}, {"a": 1}),
        ([1, 2], {"value": [1, 2]}),
        ("x", {"value": "x"}),
        (None, {"value": None}),
        (Plain(date(2026, 1, 2)), {"day": "2026-01-02"}),
        (Struct(date(2026, 1, 2)), {"day": "2026-01-02"}),
        (Model(day=date(2026, 1, 2)), {"day": "2026-01-02"}),
    ],
    ids=["object", "list", "text", "nothing", "dataclass", "msgspec", "pydantic"],
)
def test_a_structured_answer_is_an_object(value: Any, input: Any) -> None:
    assert given(structured(value)) == ("StructuredOutput", input)


def test_what_can_not_be_json_is_refused() -> None:
    with pytest.raises(OptionsError, match="cannot be JSON"):
        structured(object())

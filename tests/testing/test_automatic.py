"""A script that nobody has written tries out what is offered."""

from __future__ import annotations

from typing import Any

import pytest

from outrider.testing import Answer, Failure, Request, Script, Step, ToolUse
from tests.testing.talking import asked, called, result, said, text, user

NUMBER = {"type": "object", "properties": {"ticket": {"type": "integer"}}, "required": ["ticket"]}
TOOLS: dict[str, Any] = {"Bash": {"type": "object"}, "mcp__tools__lookup": NUMBER, "mcp__x__ping": {}}


def call(step: Step) -> tuple[str, Any]:
    assert isinstance(step, Answer)
    (block,) = step.blocks
    assert isinstance(block, ToolUse)
    return block.name, dict(block.input)


def played(script: Script, request: Request) -> Request:
    """The request that follows when the tool that is called gives a text."""
    name, given = call(script.take(request))
    more = [called(name, name, **given), user(result(f"{name} ran", id=name))]
    return asked(*request.messages, *more, tools=TOOLS)


def test_each_tool_of_the_users_is_called_once_and_then_told_of() -> None:
    script = Script()
    first = asked("go", tools=TOOLS)
    second = played(script, first)
    assert second.messages[-2]["content"][0]["input"] == {"ticket": 1}
    third = played(script, second)
    said_at_last = text(script.take(third))
    assert said_at_last.splitlines() == [
        "mcp__tools__lookup gave: mcp__tools__lookup ran",
        "mcp__x__ping gave: mcp__x__ping ran",
    ]
    later = asked(*third.messages, said(said_at_last), "and now?", tools=TOOLS)
    assert text(script.take(later)) == "You said: and now?"


def test_a_tool_that_comes_later_is_called_then() -> None:
    script = Script(None)
    assert text(script.take(asked("go", tools={"Bash": {}}))) == "You said: go"
    later = asked("go", said("You said: go"), "again", tools={"mcp__new__one": {}})
    assert call(script.take(later)) == ("mcp__new__one", {})


def test_another_session_has_its_own_calls() -> None:
    script = Script(None)
    for session in ("s1", "s2"):
        assert call(script.take(asked("go", tools=TOOLS, session=session)))[0] == "mcp__tools__lookup"


def test_a_session_that_is_resumed_does_not_call_them_again() -> None:
    talk = asked("go", called("mcp__tools__lookup"), user(result()), said("done"), "on", tools=TOOLS)
    assert call(Script(None).take(talk))[0] == "mcp__x__ping"


def test_what_failed_is_told() -> None:
    talk = asked(
        "go", called("mcp__x__ping"), user(result("no\n luck", is_error=True)), tools={"mcp__x__ping": {}}
    )
    assert text(Script(None).take(talk)) == "mcp__x__ping failed: no luck"


@pytest.mark.parametrize("content, shown", [("x" * 500, "x" * 200 + "…"), ([{"type": "image"}], "(no text)")])
def test_what_a_tool_gives_is_shown_in_short(content: Any, shown: str) -> None:
    talk = asked("go", called("mcp__x__ping"), user(result(content)), tools={"mcp__x__ping": {}})
    assert text(Script(None).take(talk)) == f"mcp__x__ping gave: {shown}"


def test_an_answer_has_the_form_that_is_asked_for() -> None:
    tools = {"mcp__x__ping": {}, "StructuredOutput": NUMBER}
    script = Script(None)
    assert call(script.take(asked("go", tools=tools))) == ("mcp__x__ping", {})
    talk = asked("go", called("mcp__x__ping"), user(result()), tools=tools)
    assert call(script.take(talk)) == ("StructuredOutput", {"ticket": 1})
    later = asked(*talk.messages, called("StructuredOutput"), user(result()), "again", tools=tools)
    assert call(script.take(later)) == ("StructuredOutput", {"ticket": 1})


def test_a_schema_that_nothing_fits_fails_the_turn() -> None:
    script = Script(None)
    step = script.take(asked("go", tools={"mcp__x__odd": False}))
    assert isinstance(step, Failure)
    assert "No value was found" in step.message
    assert len(script.errors) == 1


def test_added_steps_come_first() -> None:
    script = Script(None)
    script.add(lambda request: Answer(blocks=()))
    assert script.take(asked("go", tools=TOOLS)) == Answer(blocks=())
    assert call(script.take(asked("go", tools=TOOLS)))[0] == "mcp__tools__lookup"


def test_subagents_only_answer() -> None:
    assert text(Script(None).take(asked("go", tools=TOOLS, agent="a"))) == "subagent done"

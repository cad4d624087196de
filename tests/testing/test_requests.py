"""What a request tells of the turn that it belongs to."""

from __future__ import annotations

from typing import Any

import pytest

from outrider.testing import Request
from outrider.testing._api.requests import text_of
from tests.cases import every_case
from tests.testing.talking import REMINDER, asked, called, result, said, user

NOTICE = "<task-notification>\n<status>completed</status>\n</task-notification>"
SYSTEM = {"role": "system", "content": "# Environment"}


@every_case(
    "messages, prompt, is_first",
    [
        pytest.param([{"role": "user", "content": "hi"}], "hi", True, id="a text"),
        pytest.param([user(REMINDER, "hi")], "hi", True, id="a reminder before"),
        pytest.param([user("hi " + REMINDER)], "hi", True, id="a reminder within"),
        pytest.param([user("hi"), SYSTEM], "hi", True, id="a note after"),
        pytest.param([user(REMINDER, "one", "two")], "one\ntwo", True, id="several blocks"),
        pytest.param([user("line\n")], "line\n", True, id="a line break at the end"),
        pytest.param([user("one\n", "two")], "two", True, id="two prompts, the first without an answer"),
        pytest.param([user("one"), user("two")], "two", True, id="two messages"),
        pytest.param([user("one"), said("1"), user("two")], "two", True, id="a second turn"),
        pytest.param([user("one"), called(), user(result())], "one", False, id="a result"),
        pytest.param(
            [user("one"), called(), user(result()), SYSTEM], "one", False, id="a note after a result"
        ),
        pytest.param(
            [user("one"), called(), user(result(), REMINDER)], "one", False, id="a result, a reminder"
        ),
        pytest.param(
            [user("one"), called(), user(result(), "more\n", "x")], "one", False, id="a result, texts"
        ),
        pytest.param([user("one"), said("1"), user(REMINDER)], "one", False, id="only a reminder"),
        pytest.param(
            [user("one\n", "[Request interrupted by user]\n", "two")], "two", True, id="an interrupt"
        ),
        pytest.param(
            [user("one"), called(), user(result(), "[Request interrupted by user for tool use]\n", "two")],
            "two",
            True,
            id="an interrupted tool",
        ),
        pytest.param(
            [user("one"), said("1"), user(f"<system-reminder>{NOTICE}</system-reminder>")],
            NOTICE,
            True,
            id="a notice",
        ),
        pytest.param([user("one"), said("1"), user("Stop hook feedback:\ngo on")], "one", False, id="a hook"),
        pytest.param(
            [user("one"), said("1"), user("[structured-output-enforce] You MUST")], "one", False, id="a nudge"
        ),
        pytest.param(
            [user("one"), said("1"), user("Output token limit hit. Resume")], "one", False, id="a cut answer"
        ),
        pytest.param([user("")], "", True, id="an empty prompt"),
        pytest.param([user()], "", True, id="no blocks"),
        pytest.param([user({"type": "image"})], "", True, id="an image"),
        pytest.param([user("one"), said("1")], "one", False, id="the model's own word last"),
        pytest.param([], "", False, id="nothing"),
    ],
)
def test_the_prompt_of_a_turn_is_the_users_own_words(
    messages: list[Any], prompt: str, is_first: bool
) -> None:
    request = asked(*messages)
    assert (request.prompt, request.starts_turn) == (prompt, is_first)


def test_the_messages_of_a_turn_begin_with_its_prompt() -> None:
    request = asked("one", said("1"), "two", called(), user(result()))
    assert request.since_prompt == request.messages[2:]
    assert asked().since_prompt == []


def test_a_request_has_the_calls_of_the_last_message_and_what_they_gave() -> None:
    talk = [called("A", "t0"), user(result("old", "t0")), called("B", "t1", x=1), user(result("new"))]
    request = asked("go", *talk)
    assert [(block["name"], block["input"]) for block in request.tool_uses] == [("B", {"x": 1})]
    assert [block["content"] for block in request.tool_results] == ["new"]
    assert asked("go").tool_uses == []


def test_a_request_tells_who_asks_and_what_is_offered() -> None:
    request = asked("hi", tools={"A": {}, "mcp__x__b": {"type": "object"}}, agent="a1", session="s9")
    assert (request.kind, request.agent_id, request.session_id) == ("subagent", "a1", "s9")
    assert request.model == "some-model"
    assert list(request.tools) == ["A", "mcp__x__b"]
    assert request.tools["mcp__x__b"]["input_schema"] == {"type": "object"}


@pytest.mark.parametrize("body", [{}, {"messages": 5, "tools": "x"}, {"messages": [7], "tools": [None]}])
def test_a_request_of_any_form_can_be_looked_at(body: Any) -> None:
    request = Request(kind="main", body=body)
    assert (request.prompt, request.starts_turn, request.tools, request.messages) == ("", False, {}, [])
    assert (request.tool_results, request.model, request.session_id) == ([], "", None)


@pytest.mark.parametrize(
    "content, text",
    [
        ("a", "a"),
        ([{"type": "text", "text": "a"}, {"type": "image"}, {"type": "text", "text": "b"}], "a\nb"),
        (None, ""),
    ],
)
def test_the_text_of_a_content_is_that_of_its_blocks(content: Any, text: str) -> None:
    assert text_of(content) == text

"""The words of a script make plain values."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pytest

from outrider.errors import OptionsError
from outrider.testing import (
    Answer,
    Gate,
    Text,
    Thinking,
    ToolUse,
    answer,
    fail,
    hang,
    refuse,
    say,
    think,
    use_tool,
)
from tests.cases import every_case


@every_case(
    "step, pieces",
    [
        (say("a b c"), ("a b c",)),
        (say("a ", "b"), ("a ", "b")),
        (say("abcdefg", chunks=3), ("abc", "def", "g")),
        (say("ab", "cd", chunks=4), ("a", "b", "c", "d")),
        (say("ab", chunks=9), ("a", "b")),
        (say("", chunks=2), ("",)),
        (say("a b  c", gate=Gate()), ("a ", "b  ", "c")),
        (say("a b", delay=0.1), ("a ", "b")),
        (say(" a\nb", gate=Gate()), (" a\n", "b")),
        (say("", gate=Gate()), ("",)),
    ],
)
def test_a_text_is_streamed_in_the_pieces_that_were_asked_for(step: Answer, pieces: tuple[str, ...]) -> None:
    assert step.blocks == (Text(pieces),)


def test_parts_become_one_message_in_their_order() -> None:
    gate = Gate()
    whole = answer(
        think("hm"), say("text", model="m", gate=gate), use_tool("A", x=1), use_tool("B", {"y": 2})
    )
    assert whole.blocks == (
        Thinking(("hm",)),
        Text(("text",)),
        ToolUse("A", {"x": 1}),
        ToolUse("B", {"y": 2}),
    )
    assert (whole.model, whole.gate) == ("m", gate)
    assert answer(say("a", model="m"), say("b", model="n")).model == "n"
    assert answer(say("a", model="m"), model="o").model == "o"


def test_a_thought_goes_on_with_the_rest_of_the_message() -> None:
    assert think("hm", then=say("x", stop_reason="max_tokens")) == Answer(
        blocks=(Thinking(("hm",)), Text(("x",))), stop_reason="max_tokens"
    )


def test_the_input_of_a_tool_may_have_any_name() -> None:
    (block,) = use_tool("T", {"name": 1, "tool_use_id": 2}, given=3, tool_use_id="id").blocks
    assert block == ToolUse("T", {"name": 1, "tool_use_id": 2, "given": 3}, "id")


def test_a_refusal_may_come_after_a_text() -> None:
    assert refuse().blocks == ()
    assert refuse("so far", category="bio").blocks == (Text(("so far",)),)


@every_case(
    "status, type",
    [
        (400, "invalid_request_error"),
        (401, "authentication_error"),
        (403, "permission_error"),
        (404, "not_found_error"),
        (413, "request_too_large"),
        (418, "invalid_request_error"),
        (429, "rate_limit_error"),
        (500, "api_error"),
        (503, "api_error"),
        (529, "overloaded_error"),
    ],
)
def test_the_type_of_an_error_follows_from_its_status(status: int, type: str) -> None:
    assert fail(status).type == type
    assert fail(status, type="other", message="text").type == "other"


def test_a_rate_limit_says_when_it_ends() -> None:
    headers = fail(429, retry_after=7, headers={"anthropic-ratelimit-requests-limit": "5"}).headers
    assert headers["retry-after"] == "7"
    assert headers["anthropic-ratelimit-requests-remaining"] == "0"
    assert headers["anthropic-ratelimit-requests-limit"] == "5"
    reset = datetime.fromisoformat(headers["anthropic-ratelimit-requests-reset"])
    assert 0 < (reset - datetime.now(UTC)).total_seconds() < 8


@pytest.mark.parametrize("status", [200, 399, 600])
def test_a_status_that_is_no_error_is_refused(status: int) -> None:
    with pytest.raises(OptionsError, match=str(status)):
        fail(status)


def test_no_chunks_are_refused() -> None:
    with pytest.raises(OptionsError, match="chunks"):
        say("x", chunks=0)


def test_a_message_is_streamed_in_chunks_of_one_size() -> None:
    whole = answer(think("abcd"), say("ab", "cdef"), use_tool("A", x=1), chunks=2)
    assert whole.blocks == (Thinking(("ab", "cd")), Text(("abc", "def")), ToolUse("A", {"x": 1}, chunks=2))
    with pytest.raises(OptionsError, match="chunks"):
        answer(use_tool("A"), chunks=0)


NO_STEPS: dict[str, tuple[Callable[..., object], tuple[Any, ...], str]] = {
    "say a number": (say, (5,), "texts, and no int"),
    "think a list": (think, (["a"],), "texts, and no list"),
    "no tool": (use_tool, ("",), "name of a tool"),
    "a list as input": (use_tool, ("A", [1]), "Give a mapping"),
    "a set in an input": (use_tool, ("A", {"x": {1}}), "cannot be JSON"),
    "no number in an input": (use_tool, ("A", {"x": float("nan")}), "cannot be JSON"),
    "a text in a message": (answer, ("hello",), "not part of a message"),
    "a failure in a message": (answer, (fail(429),), "not part of a message"),
    "hang, then a text": (hang, ("hello",), "What follows a `hang`"),
}


@every_case("make, given, match", NO_STEPS.values(), ids=NO_STEPS)
def test_what_no_model_says_is_refused_where_it_is_written(
    make: Callable[..., object], given: tuple[Any, ...], match: str
) -> None:
    with pytest.raises(OptionsError, match=match):
        make(*given)


@pytest.mark.parametrize("delay", [-1, float("nan"), "1"])
def test_a_delay_is_a_number_of_seconds(delay: Any) -> None:
    with pytest.raises(OptionsError, match="`delay`"):
        say("x", delay=delay)

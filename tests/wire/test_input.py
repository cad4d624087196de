"""What a user may say, and the user message that comes of it."""

from __future__ import annotations

from decimal import Decimal
from pathlib import PurePosixPath
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from outrider.errors import MessageInvalid
from outrider.wire import ImageBlock, TextBlock, UserMessage, decode, encode, user_message
from outrider.wire.tools import BashInput
from tests.cases import every_case

BLOCK = {"type": "text", "text": "hi"}


def frame(content: Any, **more: Any) -> dict[str, Any]:
    return {
        "type": "user",
        "message": {"role": "user", "content": content},
        "parent_tool_use_id": None,
        "session_id": "default",
        **more,
    }


@pytest.mark.requirement("E4")
@every_case(
    "prompt, expected",
    [
        pytest.param("hello", frame("hello"), id="text"),
        pytest.param("", frame(""), id="empty text"),
        pytest.param([BLOCK], frame([BLOCK]), id="blocks as dicts"),
        pytest.param(
            (TextBlock("hi"), "plain"), frame([BLOCK, {"type": "text", "text": "plain"}]), id="typed blocks"
        ),
        pytest.param([], frame([]), id="no blocks"),
        pytest.param(TextBlock("hi"), frame([BLOCK]), id="one typed block"),
        pytest.param(BLOCK, frame([BLOCK]), id="one block as a dict"),
        pytest.param(ImageBlock({"a": 1}), frame([{"type": "image", "source": {"a": 1}}]), id="an image"),
        pytest.param(
            {"type": "user", "message": {"role": "user", "content": "x"}}, frame("x"), id="a whole message"
        ),
        pytest.param({"message": {"content": "x"}}, frame("x"), id="without type and role"),
        pytest.param({"message": "x"}, frame("x"), id="message is a text"),
        pytest.param({"role": "user", "content": "x"}, frame("x"), id="the inside of a message"),
        pytest.param({"content": [TextBlock("hi")]}, frame([BLOCK]), id="content alone"),
        pytest.param(
            {
                "message": {"content": "x"},
                "session_id": "s",
                "uuid": "u",
                "priority": "now",
                "parent_tool_use_id": "t",
            },
            frame("x", session_id="s", uuid="u", priority="now", parent_tool_use_id="t"),
            id="further fields stay",
        ),
        pytest.param(
            UserMessage("x", uuid="u", should_query=False),
            frame("x", uuid="u", shouldQuery=False),
            id="a typed message",
        ),
        pytest.param(b"caf\xc3\xa9 \xff", frame("café \ufffd"), id="bytes"),
        pytest.param(42, frame("42"), id="a number"),
        pytest.param(None, frame("None"), id="nothing"),
        pytest.param(Decimal("1.5"), frame("1.5"), id="a decimal"),
        pytest.param(PurePosixPath("/a"), frame("/a"), id="a path"),
    ],
)
def test_a_prompt_is_completed(prompt: object, expected: dict[str, Any]) -> None:
    given_before = repr(prompt)
    assert user_message(prompt) == expected
    assert repr(prompt) == given_before


@pytest.mark.requirement("E4")
def test_what_is_stamped_and_what_is_given() -> None:
    assert user_message("x", uuid="u", session_id="s", parent_tool_use_id="t") == frame(
        "x", uuid="u", session_id="s", parent_tool_use_id="t"
    )
    assert user_message({"message": {"content": "x"}, "uuid": "mine"}, uuid="u")["uuid"] == "mine"
    assert user_message({"message": {"content": "x"}, "uuid": None, "session_id": None}, uuid="u") == frame(
        "x", uuid="u"
    )


@pytest.mark.requirement("E4")
def test_a_frame_of_another_type_is_left_alone() -> None:
    keep_alive = {"type": "keep_alive"}
    assert user_message(keep_alive) == keep_alive


@pytest.mark.requirement("E4")
@pytest.mark.parametrize(
    "prompt",
    [{}, {"foo": 1}, {"type": "user"}, {"type": "user", "message": {"role": "user"}}, {"message": None}],
)
def test_a_dict_without_content_is_refused_because_the_agent_would_stop(prompt: dict[str, Any]) -> None:
    with pytest.raises(MessageInvalid, match="content") as refused:
        user_message(prompt)
    assert refused.value.data == prompt


@given(prompt=st.one_of(st.text(), st.integers(), st.lists(st.text() | st.just(BashInput("ls")))))
def test_whatever_is_said_the_agent_can_read_it(prompt: object) -> None:
    assert isinstance(decode(encode(user_message(prompt)), strict=False), UserMessage)

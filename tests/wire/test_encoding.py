"""Values to lines: compact, one line, nothing that is not JSON."""

from __future__ import annotations

import datetime as dt
import json
import math
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bridle.errors import MessageInvalid
from bridle.wire import (
    AssistantMessage,
    ControlCancelRequest,
    ImageBlock,
    SessionStateChangedMessage,
    SystemMessage,
    TaskUpdatedMessage,
    TextBlock,
    ToolUseBlock,
    UserMessage,
    decode,
    encode,
    to_wire,
)
from bridle.wire.tools import BashInput


@pytest.mark.parametrize(
    "value, expected",
    [
        ({"a": [1, 2.5, None, True, "x"]}, b'{"a":[1,2.5,null,true,"x"]}'),
        ({"t": "häß € 😀 \u2028"}, '{"t":"häß € 😀 \u2028"}'.encode()),
        ({"t": "a\nb\r\n\x00"}, b'{"t":"a\\nb\\r\\n\\u0000"}'),
        (("a", "b"), b'["a","b"]'),
        ({1: "x"}, b'{"1":"x"}'),
        (TextBlock("hi"), b'{"type":"text","text":"hi"}'),
        ([TextBlock("hi"), {"x": BashInput("ls")}], b'[{"type":"text","text":"hi"},{"x":{"command":"ls"}}]'),
        (ControlCancelRequest("r"), b'{"type":"control_cancel_request","request_id":"r"}'),
        ({"d": dt.date(2026, 1, 2)}, b'{"d":"2026-01-02"}'),
    ],
)
def test_lines_are_compact_and_in_utf8(value: object, expected: bytes) -> None:
    assert encode(value) == expected


@pytest.mark.parametrize("number", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize(
    "place, make",
    [
        (r"\$", lambda number: number),
        (r"\$\.a", lambda number: {"a": number}),
        (r"\$\.a\[1\]\.b", lambda number: {"a": [None, {"b": number}]}),
        (
            r"\$\.message\.content\[0\]\.input\.x",
            lambda n: AssistantMessage([ToolUseBlock("t", "n", {"x": n})], "m"),
        ),
    ],
)
def test_numbers_that_json_cannot_say_are_refused_by_place(number: float, place: str, make: Any) -> None:
    with pytest.raises(MessageInvalid, match=place):
        encode(make(number))


def test_texts_that_look_like_such_numbers_are_not() -> None:
    assert encode({"a": "NaN", "b": "Infinity", "c": None}) == b'{"a":"NaN","b":"Infinity","c":null}'


@pytest.mark.parametrize("value", [object(), {"a": object()}, [{"b": [Path]}], {"f": print}])
def test_what_has_no_form_in_json_is_refused(value: object) -> None:
    with pytest.raises(MessageInvalid, match="no form in JSON"):
        encode(value)


def test_a_lone_surrogate_travels_as_an_escape() -> None:
    line = encode({"a": "x\ud800y", "b": "é"})
    assert json.loads(line) == {"a": "x\ud800y", "b": "é"}
    assert b"\\ud800" in line
    with pytest.raises(MessageInvalid):
        encode({"a": "\ud800", "b": math.nan})


TEXT = st.text(st.characters(codec=None), max_size=10)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=10,
)


@given(value=JSON)
def test_any_json_value_is_one_line_that_says_the_same(value: Any) -> None:
    line = encode(value)
    assert b"\n" not in line
    assert json.loads(line) == value


# Frames.


def test_a_changed_field_is_what_is_sent() -> None:
    message = decode(
        b'{"type":"assistant","message":{"id":"m1","role":"assistant","content":[{"type":"text","text":"a","new":1}],'
        b'"model":"m","stop_reason":null},"parent_tool_use_id":null,"brand_new":{"x":1}}'
    )
    assert isinstance(message, AssistantMessage)
    (block,) = message.content
    assert isinstance(block, TextBlock)
    block.text = "b"
    message.session_id = "s"
    assert to_wire(message) == {
        "type": "assistant",
        "message": {
            "id": "m1",
            "role": "assistant",
            "content": [{"type": "text", "text": "b", "new": 1}],
            "model": "m",
            "stop_reason": None,
        },
        "parent_tool_use_id": None,
        "session_id": "s",
        "brand_new": {"x": 1},
    }


def test_a_field_that_was_taken_away_is_not_sent() -> None:
    message = decode(b'{"type":"user","message":{"role":"user","content":"a"},"uuid":"u","new":1}')
    assert isinstance(message, UserMessage)
    message.uuid = None
    assert to_wire(message) == {"type": "user", "message": {"role": "user", "content": "a"}, "new": 1}


def test_what_a_damaged_frame_lacked_is_not_made_up() -> None:
    frame = decode(b'{"type":"result","num_turns":"many"}')
    assert to_wire(frame) == {"type": "result", "num_turns": "many"}


def test_more_blocks_take_the_place_of_fewer() -> None:
    message = decode(
        b'{"type":"user","message":{"role":"user","content":[{"type":"text","text":"a","new":1}]}}'
    )
    assert isinstance(message, UserMessage)
    message.content = [TextBlock("x"), ImageBlock({"type": "url", "url": "u"})]
    assert to_wire(message)["message"]["content"] == [
        {"type": "text", "text": "x"},
        {"type": "image", "source": {"type": "url", "url": "u"}},
    ]


@pytest.mark.parametrize(
    "message, expected",
    [
        (
            UserMessage("hi", is_synthetic=True),
            {"type": "user", "message": {"role": "user", "content": "hi"}, "isSynthetic": True},
        ),
        (
            SessionStateChangedMessage("session_state_changed", {}, "idle"),
            {"type": "system", "subtype": "session_state_changed", "state": "idle"},
        ),
        (
            TaskUpdatedMessage("task_updated", {}, "t", {"status": "killed"}, "killed"),
            {"type": "system", "subtype": "task_updated", "task_id": "t", "patch": {"status": "killed"}},
        ),
        (SystemMessage("new", {"x": 1}), {"type": "system", "subtype": "new", "x": 1}),
    ],
)
def test_frames_made_by_hand_are_spelled_as_the_agent_does(message: object, expected: object) -> None:
    assert to_wire(message) == expected
    assert decode(encode(message)) == decode(json.dumps(expected))

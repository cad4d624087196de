"""Values to lines: compact, one line, nothing that is not JSON."""

from __future__ import annotations

import datetime as dt
import enum
import json
import math
import sys
from pathlib import Path
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from outrider.errors import MessageInvalid
from outrider.wire import (
    AssistantMessage,
    AttachmentMessage,
    ControlCancelRequest,
    ImageBlock,
    RateLimitEvent,
    SessionStateChangedMessage,
    StreamEvent,
    SystemMessage,
    TaskUpdatedMessage,
    TextBlock,
    ToolProgressMessage,
    ToolUseBlock,
    ToolUseSummaryMessage,
    UnknownBlock,
    UnknownMessage,
    UserMessage,
    decode,
    encode,
    to_wire,
)
from outrider.wire.tools import BashInput
from tests.cases import every_case


@every_case(
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


@every_case("number", [math.nan, math.inf, -math.inf])
@every_case(
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


def nested(depth: int) -> list[Any]:
    value: list[Any] = []
    for _ in range(depth):
        value = [value]
    return value


def inside_itself() -> dict[str, Any]:
    value: dict[str, Any] = {}
    value["a"] = [value]
    return value


@pytest.mark.parametrize(
    "value, reason",
    [
        pytest.param(inside_itself(), "nested too deeply, or inside itself", id="inside itself"),
        pytest.param({"a": nested(100_000)}, "nested too deeply", id="deep"),
        pytest.param(UserMessage(cast("Any", nested(100_000))), "nested too deeply", id="deep in a frame"),
        pytest.param({None: 1}, "keys", id="a key that is not text"),
        pytest.param({"a": [{(1, 2): 3}]}, "keys", id="a key that is not text, inside"),
        pytest.param({"a": 10**5000}, "4300 digits", id="a number of too many digits"),
        pytest.param({"\ud800": 10**5000}, "4300 digits", id="such a number beside a surrogate"),
    ],
)
def test_what_json_cannot_say_is_refused_by_the_same_error(value: object, reason: str) -> None:
    with pytest.raises(MessageInvalid, match=reason):
        encode(value)


def test_a_frame_that_was_received_too_deep_to_be_written_is_refused_not_fatal() -> None:
    # Less than the parser allows, more than Python code that walks through it.
    depth = 700 if sys.version_info < (3, 12) else 1200
    frame = decode(b'{"type":"system","subtype":"init","x":' + b"[" * depth + b"]" * depth + b"}")
    with pytest.raises(MessageInvalid, match="nested too deeply"):
        encode(frame)


class Text(str):
    __slots__ = ()


class Whole(int):
    pass


class Real(float):
    pass


class Colour(enum.StrEnum):
    RED = "red"

    def __str__(self) -> str:
        return "not this"


def test_values_of_a_derived_class_are_what_they_are_derived_from() -> None:
    value = {"a": Text("t"), "b": Whole(7), "c": Real(0.5), "d": Colour.RED, "e": True}
    assert encode(value) == b'{"a":"t","b":7,"c":0.5,"d":"red","e":true}'
    with pytest.raises(MessageInvalid, match=r"\$\.x is nan"):
        encode({"x": Real("nan")})


def test_a_lone_surrogate_travels_as_an_escape() -> None:
    line = encode({"a": "x\ud800y", "b": "é"})
    assert json.loads(line) == {"a": "x\ud800y", "b": "é"}
    assert b"\\ud800" in line
    for number in (math.nan, math.inf, -math.inf):
        with pytest.raises(MessageInvalid, match=r"\$\.b"):
            encode({"a": "\ud800", "b": number})


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


def test_text_in_the_place_of_blocks_is_sent_as_blocks_once_it_was_changed() -> None:
    message = decode(b'{"type":"assistant","message":{"content":"a","model":"m","new":1}}')
    assert isinstance(message, AssistantMessage)
    assert to_wire(message)["message"]["content"] == "a"
    message.content = [TextBlock("b")]
    assert to_wire(message)["message"] == {"content": [{"type": "text", "text": "b"}], "model": "m", "new": 1}


@every_case(
    "before, after",
    [
        ({"a": 1}, "text"),
        ("text", {"a": 1}),
        ({"a": 1}, [1]),
        ([1, 2], "ab"),
        ("ab", [1, 2]),
        ([{"a": 1}], [{"a": 2}]),
        ([{"a": 1}], [3]),
        ({"a": {"b": 1}}, {"a": None}),
    ],
)
def test_a_value_of_another_kind_takes_the_place_of_the_old_one(before: Any, after: Any) -> None:
    line = {"type": "user", "message": {"role": "user", "content": "a"}, "tool_use_result": before}
    message = decode(json.dumps(line))
    assert isinstance(message, UserMessage)
    message.tool_use_result = after
    assert to_wire(message) == {**line, "tool_use_result": after}


def test_what_a_damaged_frame_lacked_is_not_made_up() -> None:
    frame = decode(b'{"type":"result","num_turns":"many"}')
    assert to_wire(frame) == {"type": "result", "num_turns": "many"}


def test_a_block_that_takes_the_place_of_another_inherits_nothing_from_it() -> None:
    message = decode(
        b'{"type":"user","message":{"role":"user","content":[{"type":"text","text":"a","new":1},'
        b'{"type":"brand_new","text":"b"}]}}'
    )
    assert isinstance(message, UserMessage)
    assert isinstance(message.content, list)
    message.content.reverse()
    assert to_wire(message)["message"]["content"] == [
        {"type": "brand_new", "text": "b"},
        {"type": "text", "text": "a"},
    ]


def test_an_unknown_frame_is_sent_as_it_was_changed() -> None:
    frame = decode(b'{"type":"brand_new","x":1}')
    assert isinstance(frame, UnknownMessage)
    frame.data["x"] = 2
    assert to_wire(frame) == {"type": "brand_new", "x": 2}
    frame.type = "newer"
    assert to_wire(frame) == {"type": "newer", "x": 2}
    assert to_wire(UnknownMessage("brand_new", {"x": 1})) == {"type": "brand_new", "x": 1}
    assert to_wire(UnknownMessage("", {"x": 1})) == {"x": 1}
    assert to_wire(decode(b'{"type":5}')) == {"type": 5}


def test_an_unknown_block_is_sent_as_it_was_changed() -> None:
    message = decode(b'{"type":"user","message":{"role":"user","content":[{"type":"new","x":1}]}}')
    assert isinstance(message, UserMessage)
    block = message.content[0]
    assert isinstance(block, UnknownBlock)
    cast("dict[str, Any]", block.raw)["x"] = 2
    assert to_wire(message)["message"]["content"] == [{"type": "new", "x": 2}]
    assert to_wire(UnknownBlock("new", {"type": "new", "y": 1})) == {"type": "new", "y": 1}


def test_a_stream_event_is_sent_as_it_was_changed() -> None:
    frame = decode(b'{"type":"stream_event","uuid":"u","session_id":"s","event":{"a":1,"b":2},"new":1}')
    assert isinstance(frame, StreamEvent)
    cast("dict[str, Any]", frame.event)["a"] = 3
    frame.uuid = "v"
    assert to_wire(frame) == {
        "type": "stream_event",
        "uuid": "v",
        "session_id": "s",
        "event": {"a": 3, "b": 2},
        "new": 1,
    }


def test_a_rate_limit_is_sent_as_it_was_changed() -> None:
    frame = decode(b'{"type":"rate_limit_event","rate_limit_info":{"status":"allowed","resetsAt":5,"new":1}}')
    assert isinstance(frame, RateLimitEvent)
    frame.rate_limit_info.status = "rejected"
    assert to_wire(frame)["rate_limit_info"] == {"status": "rejected", "resetsAt": 5, "new": 1}


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
        (
            ToolProgressMessage("t", "Bash"),
            {"type": "tool_progress", "tool_use_id": "t", "tool_name": "Bash"},
        ),
        (ToolUseSummaryMessage("s"), {"type": "tool_use_summary", "summary": "s"}),
        (
            AttachmentMessage({"type": "hook_success"}),
            {"type": "attachment", "attachment": {"type": "hook_success"}},
        ),
    ],
)
def test_frames_made_by_hand_are_spelled_as_the_agent_does(message: object, expected: object) -> None:
    assert to_wire(message) == expected
    assert decode(encode(message)) == decode(json.dumps(expected))

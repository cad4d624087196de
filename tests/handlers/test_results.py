"""What a tool gives back, of any kind, as a result of MCP."""

from __future__ import annotations

import collections
import dataclasses
import datetime as dt
import enum
import json
import math
from pathlib import PurePosixPath
from types import MappingProxyType
from typing import Any, NamedTuple, TypedDict
from unittest.mock import Mock
from uuid import UUID

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from mcp import types

from outrider.handlers import Audio, Image, Resource, ResourceLink, ToolResult
from outrider.handlers._tools.content import NotSendable, as_result
from outrider.wire._framing import Framer
from tests.cases import every_case
from tests.handlers.tooling import named

PNG = b"\x89PNG\r\n\x1a\n"
WAV = b"RIFF\x24\x00\x00\x00WAVEfmt "


class Level(enum.Enum):
    LOW = "low"


class Name(str):
    __slots__ = ()


class Count(int):
    pass


class Ratio(float):
    pass


@dataclasses.dataclass
class Point:
    x: int
    when: dt.date = dt.date(2025, 1, 31)


class Struct(msgspec.Struct):
    x: int


class Row(NamedTuple):
    x: int
    y: str


class Typed(TypedDict):
    x: int


class Array:
    """As numpy's are."""

    def tolist(self) -> list[int]:
        return [1, 2]


def text(value: str) -> dict[str, Any]:
    return {"content": [{"type": "text", "text": value}]}


@every_case(
    "value, expected",
    [
        ("hello", "hello"),
        ("", ""),
        (Name("n"), "n"),
        (Level.LOW, "low"),
        (5, "5"),
        (Count(5), "5"),
        (2**80, str(2**80)),
        (1.5, "1.5"),
        (Ratio(1.5), "1.5"),
        (math.nan, "nan"),
        (-math.inf, "-inf"),
        (True, "true"),
        (False, "false"),
        ([1, "a", None], '[1,"a",null]'),
        (["a", "b"], '["a","b"]'),
        ([], "[]"),
        ((1, 2), "[1,2]"),
        (Row(1, "a"), '[1,"a"]'),
        ({3}, "[3]"),
        (range(3), "[0,1,2]"),
        (collections.deque([1]), "[1]"),
        (Array(), "[1,2]"),
        (PurePosixPath("a/b"), "a/b"),
        (dt.datetime(2025, 1, 31, 12, tzinfo=dt.UTC), "2025-01-31T12:00:00Z"),
        (UUID(int=1), "00000000-0000-0000-0000-000000000001"),
        ([Point(1)], '[{"x":1,"when":"2025-01-31"}]'),
        ("\ud800", "\ud800"),
        (["\ud800"], '["\ud800"]'),
    ],
    ids=named,
)
def test_data_is_one_text(value: object, expected: str) -> None:
    assert as_result(value) == text(expected)


@every_case(
    "value, expected",
    [
        ({"a": 1, 2: "b"}, {"a": 1, "2": "b"}),
        ({}, {}),
        (MappingProxyType({"a": Name("b")}), {"a": "b"}),
        (collections.OrderedDict(a=1), {"a": 1}),
        (Point(1), {"x": 1, "when": "2025-01-31"}),
        (Struct(1), {"x": 1}),
        (Typed(x=1), {"x": 1}),
        ({"content": "text"}, {"content": "text"}),
        ({"content": [1]}, {"content": [1]}),
        ({"content": [{"type": "text"}]}, {"content": [{"type": "text"}]}),
        ({"content": [], "more": 1}, {"content": [], "more": 1}),
        ({"data": b"\0"}, {"data": "AA=="}),
        ({"nan": math.inf}, {"nan": math.inf}),
    ],
    ids=named,
)
def test_an_object_is_text_and_structured(value: object, expected: dict[str, Any]) -> None:
    result = as_result(value)
    assert result["structuredContent"] == expected
    assert result["content"] == [{"type": "text", "text": msgspec.json.encode(expected).decode()}]


def test_nothing_is_no_content() -> None:
    assert as_result(None) == {"content": []}


@every_case(
    "value, kinds",
    [
        (PNG, ["image"]),
        (bytearray(WAV), ["audio"]),
        (memoryview(b"\0"), ["resource"]),
        (Image(PNG), ["image"]),
        (Audio(WAV), ["audio"]),
        (Resource("db:7", "x"), ["resource"]),
        (ResourceLink("db:7"), ["resource_link"]),
        (["see", PNG], ["text", "image"]),
        ((PNG, None, 5, {"a": 1}, [1, 2]), ["image", "text", "text", "text"]),
        ([["a", [PNG]], "b"], ["text", "image", "text"]),
        ([{"type": "text", "text": "a"}, "b"], ["text", "text"]),
        ({"type": "resource_link", "uri": "db:1", "name": "n"}, ["resource_link"]),
    ],
    ids=named,
)
def test_content_of_each_kind_keeps_its_order(value: object, kinds: list[str]) -> None:
    result = as_result(value)
    assert [part["type"] for part in result["content"]] == kinds
    assert "structuredContent" not in result


@pytest.mark.parametrize(
    "value",
    [
        {"type": "text", "text": None},
        {"type": "image", "data": {"width": 1}},
        {"type": "resource", "resource": "cpu"},
        {"type": "resource_link", "uri": 5},
        {"content": [{"type": "text", "text": 5}]},
    ],
    ids=named,
)
def test_data_that_only_looks_like_content_is_data(value: dict[str, Any]) -> None:
    result = as_result(value)
    assert result["structuredContent"] == value
    assert json.loads(result["content"][0]["text"]) == value


def test_a_result_as_mcp_writes_it_passes_through() -> None:
    given = {
        "content": [{"type": "text", "text": "a", "annotations": {"audience": ["user"]}}],
        "structuredContent": {"a": 1},
        "isError": True,
        "_meta": {"k": "v"},
    }
    assert as_result(given) == given
    assert as_result({"content": []}) == {"content": []}


@pytest.mark.parametrize("spelling", ["isError", "is_error"])
def test_an_error_is_one_in_both_spellings(spelling: str) -> None:
    given = {"content": [{"type": "text", "text": "no"}], spelling: True}
    assert as_result(given) == {"content": [{"type": "text", "text": "no"}], "isError": True}


def test_bytes_in_what_passes_through_are_encoded() -> None:
    given = {"content": [{"type": "image", "data": b"\0", "mimeType": "image/png"}]}
    assert as_result(given)["content"][0]["data"] == "AA=="


def test_a_full_result() -> None:
    result = as_result(ToolResult(["a", Image(PNG)], structured=Point(1), is_error=True, meta={"k": 1}))
    assert [part["type"] for part in result["content"]] == ["text", "image"]
    assert result["structuredContent"] == {"x": 1, "when": "2025-01-31"}
    assert (result["isError"], result["_meta"]) == (True, {"k": 1})


def test_a_result_of_structured_data_alone_says_it_too() -> None:
    assert as_result(ToolResult(structured={"a": 1})) == text('{"a":1}') | {"structuredContent": {"a": 1}}
    assert as_result(ToolResult()) == {"content": []}
    assert as_result(ToolResult({"a": 1}))["structuredContent"] == {"a": 1}


@pytest.mark.parametrize(
    "inner",
    [ToolResult("no", is_error=True, meta={"k": 1}), text("no") | {"isError": True, "_meta": {"k": 1}}],
)
def test_a_result_in_a_full_result_stays_the_error_that_it_is(inner: object) -> None:
    assert as_result(ToolResult(inner)) == text("no") | {"isError": True, "_meta": {"k": 1}}
    assert as_result(ToolResult(inner, meta={"k": 2}))["_meta"] == {"k": 2}


@pytest.mark.parametrize("field", ["structured", "meta"])
def test_structured_data_and_meta_are_objects(field: str) -> None:
    given: dict[str, Any] = {field: [1]}
    with pytest.raises(NotSendable, match=f"`{field}` must be an object, not a value of type `list`"):
        as_result(ToolResult("a", **given))


def test_values_of_the_mcp_library_are_what_they_say() -> None:
    text_part = types.TextContent(type="text", text="a")
    link = types.ResourceLink.model_validate({"type": "resource_link", "uri": "db:1", "name": "n"})
    assert as_result(text_part) == text("a")
    mixed = as_result(["b", text_part, link])
    assert [part["type"] for part in mixed["content"]] == ["text", "text", "resource_link"]
    whole = types.CallToolResult.model_validate({"content": [text_part], "isError": True})
    assert as_result(whole) == text("a") | {"isError": True}


def endless() -> list[object]:
    items: list[object] = []
    items.append(items)
    return items


class Broken:
    def tolist(self) -> object:
        raise ValueError("broken")


@every_case(
    "value, said",
    [
        (object(), "`object`"),
        (iter([1]), "list_iterator"),
        (lambda: 1, "`function`"),
        (Point, "`type`"),
        ({"a": object()}, "`object`"),
        ([object(), PNG], "`object`"),
        (3j, "`complex`"),
        ({(1, 2): 3}, "`dict`"),
        ({"a": Image(PNG)}, "must be the result itself or an item of a list"),
        ({"a": ToolResult("x")}, "must be the result itself"),
        ([ToolResult("x")], "must be the result itself$"),
        (Mock(), "`Mock` cannot be sent"),
        (endless(), "nested too deeply"),
        (Broken(), "`Broken` cannot be sent .ValueError: broken."),
        (ToolResult(object()), "`object`"),
        (ToolResult("a", meta={"a": object()}), "type `object` cannot be sent"),
    ],
    ids=named,
)
def test_what_cannot_be_sent_is_named(value: object, said: str) -> None:
    with pytest.raises(NotSendable, match=said):
        as_result(value)


KINDS = {"text", "image", "audio", "resource", "resource_link"}
JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


@given(JSON)
def test_any_json_has_a_result_that_can_be_sent(value: Any) -> None:
    result = as_result(value)
    # As the wire is written.
    json.dumps(result)
    assert all(
        part["type"] in ("text", "image", "audio", "resource", "resource_link") for part in result["content"]
    )
    if isinstance(value, dict) and "structuredContent" in result:
        assert result["structuredContent"] == value


def test_a_message_of_an_agent_that_nobody_has_looked_at() -> None:
    answer = {"id": "m", "type": "message", "role": "assistant", "model": "x", "usage": {"input_tokens": 1}}
    line = json.dumps({"type": "assistant", "message": answer | {"content": []}}).encode()
    sent = as_result(Framer().feed(line + b"\n")[0])["structuredContent"]
    assert sent["usage"] == {"input_tokens": 1}

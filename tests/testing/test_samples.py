"""Values that are made from a schema are valid by it."""

from __future__ import annotations

import functools
import json
import operator
import re
import sys
from dataclasses import dataclass, field
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum
from types import GenericAlias
from typing import Annotated, Any, Literal, TypedDict, Union
from uuid import UUID

import msgspec
import pydantic
import pytest
from hypothesis import given
from hypothesis import strategies as st
from jsonschema import Draft202012Validator  # type: ignore[import-untyped]

import outrider
from outrider.errors import OptionsError
from outrider.handlers import Shape
from outrider.testing._script.samples import sample, text_for
from tests.cases import every_case

NAMES = st.sampled_from(["a", "b", "c", "d"])
PATTERNS = [
    r"^[a-z]{3}-\d+$",
    r"^\w+@\w+\.com$",
    "^(foo|bar)$",
    "[A-F0-9]{8}",
    r"^\+?\d{2,4}( \d{3})*$",
    "^.{4,}$",
    "x",
    r"^[^a]\S$",
    r"^(?P<name>a+)(?:b|c)?$",
    r"^\x41\.\\$",
    r"^[\d\-\]]+?$",
    r"\bword\b",
    "^$",
]

# Each leaf has values, and so has all that is made of them.
LEAVES = st.one_of(
    st.sampled_from([{}, True, {"type": "null"}, {"type": "boolean"}, {"type": ["string", "null"]}]),
    st.builds(
        lambda kind, least, size: {"type": kind, "minimum": least, "maximum": least + size},
        st.sampled_from(["integer", "number"]),
        st.integers(-1000, 1000),
        st.integers(0, 20),
    ),
    st.builds(
        lambda least: {"type": "number", "exclusiveMinimum": least, "exclusiveMaximum": least + 1},
        st.integers(-9, 9),
    ),
    st.builds(
        lambda of, least: {"type": "integer", "multipleOf": of, "minimum": least},
        st.integers(1, 30),
        st.integers(-40, 40),
    ),
    st.builds(
        lambda least, size: {"type": "string", "minLength": least, "maxLength": least + size},
        st.integers(0, 30),
        st.integers(0, 5),
    ),
    st.builds(lambda pattern: {"type": "string", "pattern": pattern}, st.sampled_from(PATTERNS)),
    st.builds(
        lambda values: {"enum": values},
        st.lists(st.integers() | st.text(max_size=3) | st.booleans() | st.none(), min_size=1, max_size=4),
    ),
    st.builds(lambda value: {"const": value}, st.integers() | st.text(max_size=3)),
)


def _grown(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.one_of(
        st.builds(
            lambda properties, required, rest: {
                "type": "object",
                "properties": properties,
                "required": sorted(required),
                "additionalProperties": rest,
            },
            st.dictionaries(NAMES, inner, max_size=3),
            st.sets(NAMES, max_size=2),
            inner,
        ),
        st.builds(
            lambda rest, least: {"type": "object", "additionalProperties": rest, "minProperties": least},
            inner,
            st.integers(0, 3),
        ),
        st.builds(
            lambda items, least: {"type": "array", "items": items, "minItems": least, "maxItems": least + 1},
            inner,
            st.integers(0, 3),
        ),
        st.builds(
            lambda items: {"type": "array", "prefixItems": items, "minItems": len(items), "items": False},
            st.lists(inner, min_size=1, max_size=3),
        ),
        st.builds(
            lambda kind, least: {"type": "array", "items": kind, "minItems": least, "uniqueItems": True},
            st.sampled_from([{"type": "integer"}, {"type": "string", "maxLength": 3}]),
            st.integers(0, 5),
        ),
        st.builds(lambda choices: {"anyOf": choices}, st.lists(inner, min_size=1, max_size=3)),
        st.builds(lambda each: {"allOf": [each, {"title": "x"}]}, inner),
        st.builds(
            lambda each: {"oneOf": [{"type": "array", "items": each}, {"type": "null"}, {"const": "c"}]},
            inner,
        ),
    )


SCHEMAS = st.recursive(LEAVES, _grown, max_leaves=8)


@given(SCHEMAS)
def test_a_value_that_is_made_fits_its_schema(schema: Any) -> None:
    value = sample(schema)
    assert Draft202012Validator(schema).is_valid(value)
    assert json.loads(json.dumps(value)) == value
    assert sample({"$ref": "#/$defs/it", "$defs": {"it": schema}}) == value


# Types, by way of the schemas that Outrider makes of them.


class Colour(Enum):
    RED = "red"
    BLUE = "blue"


@dataclass
class Node:
    """A recursive one."""

    name: str
    at: datetime
    children: list[Node] = field(default_factory=list["Node"])
    parent: Node | None = None


class Line(TypedDict, total=False):
    item: str
    price: float


class Model(pydantic.BaseModel):
    name: str = pydantic.Field(pattern="^[A-Z][a-z]+$")
    amount: int = pydantic.Field(gt=10, lt=13)
    tags: set[str] = pydantic.Field(min_length=2)


KINDS = st.recursive(
    st.sampled_from(
        [
            int,
            float,
            str,
            bool,
            type(None),
            bytes,
            datetime,
            date,
            time,
            timedelta,
            UUID,
            Decimal,
            Colour,
            Node,
            Line,
            Literal["a", "b", 3],
            set[int],
            Annotated[int, msgspec.Meta(ge=3, le=4)],
            Annotated[int, msgspec.Meta(gt=100, multiple_of=7)],
            Annotated[float, msgspec.Meta(gt=0, lt=0.001)],
            Annotated[str, msgspec.Meta(min_length=40)],
            Annotated[str, msgspec.Meta(max_length=0)],
            Annotated[str, msgspec.Meta(pattern=r"^\d{3}-[a-f]+$")],
            Annotated[list[bool], msgspec.Meta(min_length=3)],
        ]
    ),
    lambda inner: st.one_of(
        inner.map(lambda kind: GenericAlias(list, (kind,))),
        inner.map(lambda kind: GenericAlias(dict, (str, kind))),
        st.tuples(inner, inner).map(lambda kinds: GenericAlias(tuple, kinds)),
        inner.map(lambda kind: Union[kind, None]),  # noqa: UP007 - not every type knows `|`
    ),
    max_leaves=4,
)


@given(KINDS)
def test_a_value_that_is_made_for_a_type_can_be_read_as_it(kind: Any) -> None:
    shape: Shape[Any] = Shape(kind)
    value = sample(shape.schema)
    assert Draft202012Validator(shape.schema).is_valid(value)
    shape.convert(value)


@pytest.mark.parametrize("kind", [Node, Model, list[Model], dict[str, Node], Colour], ids=str)
def test_a_value_is_made_for_nested_types(kind: Any) -> None:
    shape: Shape[Any] = Shape(kind)
    shape.convert(sample(shape.schema))


@outrider.tool
async def order(
    items: list[Line],
    how: Literal["post", "courier"] = "courier",
    colour: Colour = Colour.BLUE,
    due: date | None = None,
    urgent: bool = False,
    notes: tuple[int, str] = (1, "a"),
    limits: dict[str, int] | None = None,
    **more: str,
) -> str:
    """Order something."""
    return "ordered"


def test_the_input_of_a_tool_is_one_that_it_takes() -> None:
    value: Any = sample(order.input_schema)
    assert functools.reduce(operator.or_, [value, order.arguments.bind(value)[1]]).keys() >= {"items", "due"}
    # A default is what its author holds to be sensible, and nothing says little.
    assert (value["how"], value["urgent"], value["colour"]) == ("courier", False, "blue")
    assert value["due"] == "2026-01-31"


# One by one.


@every_case(
    "schema, value",
    [
        ({"type": "string"}, "text"),
        ({"type": "string", "examples": ["Ada"]}, "Ada"),
        ({"type": "string", "examples": [5]}, "text"),
        ({"type": "string", "default": "d"}, "d"),
        ({"type": "integer"}, 1),
        ({"type": "integer", "minimum": 7}, 7),
        ({"type": "integer", "maximum": -7}, -7),
        ({"type": "number"}, 1.5),
        ({"type": "array", "items": {"type": "integer"}}, [1]),
        ({"type": "array", "items": {"type": "integer"}, "minItems": 2, "uniqueItems": True}, [1, 2]),
        ({"type": "array", "items": [{"const": 1}, {"const": 2}]}, [1, 2]),
        ({"type": "object", "properties": {"a": {"type": "integer"}}}, {"a": 1}),
        ({"type": "object", "properties": {"a": False}}, {}),
        (
            {"type": "object", "properties": {"a": {}, "b": {}}, "maxProperties": 1, "required": ["b"]},
            {"b": "text"},
        ),
        ({"type": "object", "additionalProperties": {"type": "integer"}}, {"text": 1}),
        ({"type": "object", "propertyNames": {"enum": ["k"]}, "minProperties": 1}, {"k": "text"}),
        (
            {
                "type": "object",
                "required": ["a"],
                "dependentRequired": {"a": ["b"]},
                "properties": {"b": {"const": 2}},
            },
            {"b": 2, "a": "text"},
        ),
        ({"anyOf": [False, {"const": 2}]}, 2),
        ({"oneOf": [{"type": "integer"}, {"type": "number"}]}, 1.5),
        ({"allOf": [{"minimum": 3}, {"maximum": 3}], "type": "integer"}, 3),
        ({"allOf": [{"type": ["integer", "string"]}, {"type": "number"}]}, 1),
        ({"allOf": [{"required": ["a"]}, {"properties": {"a": {"const": 1}}}], "type": "object"}, {"a": 1}),
        ({"allOf": [{"enum": [1, 2]}, {"enum": [2, 3]}]}, 2),
        ({"allOf": [{"multipleOf": 4}, {"multipleOf": 6}], "type": "integer"}, 12),
        ({"allOf": [{"anyOf": [{"const": 1}, {"const": 2}]}, {"anyOf": [{"const": 2}, {"const": 3}]}]}, 2),
        ({"anyOf": [{"const": 1}, {"const": 2}], "allOf": [{"anyOf": [{"const": 2}]}, {"allOf": [True]}]}, 2),
        (
            {
                "$ref": "#/$defs/a",
                "oneOf": [{"const": 1}, {"const": 3}],
                "allOf": [{"not": {"const": 1}}],
                "$defs": {"a": {"oneOf": [{"type": "integer"}, {"type": "null"}], "allOf": [{"maximum": 9}]}},
            },
            3,
        ),
        ({"type": "array", "items": {"minimum": 3}, "allOf": [{"items": {"type": "integer"}}]}, [3]),
        ({"type": "array", "items": {"const": 3}, "allOf": [{"items": True}]}, [3]),
        ({"type": "number", "allOf": [{"type": "integer"}, {"maximum": 0}], "maximum": 5}, 0),
        ({"allOf": [{"multipleOf": 0.5}, {"multipleOf": 0.25}], "type": "number", "minimum": 0.7}, 1.0),
        ({"type": "integer", "minimum": 0, "exclusiveMinimum": True}, 1),
        ({"type": "integer", "required": ["a"]}, 1),
        ({"type": "object", "maxProperties": 0, "properties": {"a": {}}}, {}),
        ({"$ref": "#/allOf/1", "allOf": [True, {"const": 4}]}, 4),
        ({"type": "string", "not": {"const": "text"}}, "text2"),
        ({"$ref": "#/$defs/a~1b", "$defs": {"a/b": {"const": 9}}}, 9),
        ({"$ref": "#/$defs/missing"}, "text"),
        ({"type": "string", "pattern": r"^\p{L}+$"}, "text"),
        ({"type": "string", "format": "email"}, "ada@example.com"),
        ({"type": "string", "format": "date", "minLength": 12}, "textxxxxxxxx"),
        (
            {
                "$ref": "#/$defs/n",
                "$defs": {
                    "n": {
                        "type": "object",
                        "properties": {
                            "v": {"const": 1},
                            "next": {"anyOf": [{"$ref": "#/$defs/n"}, {"type": "null"}]},
                        },
                        "required": ["v", "next"],
                    }
                },
            },
            {"v": 1, "next": {"v": 1, "next": {"v": 1, "next": None}}},
        ),
    ],
)
def test_a_value_is_the_first_that_comes_to_mind(schema: Any, value: Any) -> None:
    assert sample(schema) == value


@pytest.mark.parametrize(
    "schema",
    [
        False,
        {"type": "string", "pattern": "(?=a)(?!a)"},
        {"type": "integer", "if": {"minimum": 0}, "then": {"minimum": 50}},
        {"type": "array", "contains": {"const": 5}, "minItems": 2},
        {"type": "integer", "minimum": 2, "maximum": 1},
        {"allOf": [{"type": "string"}, {"type": "integer"}]},
        {"$ref": "#"},
        {"type": "object", "properties": {"a": {"$ref": "#"}}, "required": ["a"]},
    ],
)
def test_a_schema_that_nothing_fits_is_told(schema: Any) -> None:
    with pytest.raises(OptionsError, match="No value was found"):
        sample(schema)


def test_the_library_for_schemas_is_needed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "jsonschema", None)
    with pytest.raises(OptionsError, match=re.escape("pip install 'outrider[testing]'")):
        sample({"type": "string"})


@every_case("pattern", PATTERNS)
@every_case("length", [0, 1, 12])
def test_a_text_is_made_that_a_pattern_is_found_in(pattern: str, length: int) -> None:
    made = text_for(pattern, length)
    assert made is not None
    assert re.search(pattern, made)


def test_repetitions_make_a_text_as_long_as_is_wished() -> None:
    assert text_for("^[a-z]*$", 30) == "a" * 30
    assert text_for("^a{2,3}$", 30) == "aaa"


@every_case("pattern", [r"(a)\1", "(?i:a)", "(", "[a", "a{9999}", "*", r"\p{L}", "\\"])
def test_a_pattern_that_is_not_simple_is_left_alone(pattern: str) -> None:
    assert text_for(pattern) is None

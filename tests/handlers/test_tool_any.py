"""Any signature and any values: what fits reaches the function as it was, what does not never gets there."""

from __future__ import annotations

import dataclasses
import datetime as dt
import decimal
import enum
import uuid
from collections.abc import Callable
from functools import reduce
from itertools import count
from operator import or_
from typing import Annotated, Any, Literal, NamedTuple, NotRequired, TypedDict, cast

import msgspec
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from outrider.errors import OptionsError
from outrider.handlers import Shape, ShapeError, as_tool
from outrider.handlers._tools.content import as_result
from outrider.handlers._tools.shape import Native, make_converter


class Letters(enum.Enum):
    A = "a"
    B = "b"


class Numbers(enum.IntEnum):
    ONE = 1
    TWO = 2


Kind = tuple[Any, st.SearchStrategy[Any]]
"""A type, and values of it."""

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)

LEAVES: list[Kind] = [
    (int, st.integers(-(2**63), 2**64 - 1)),
    (float, st.floats(allow_nan=False, allow_infinity=False)),
    (str, TEXT),
    (bool, st.booleans()),
    (None, st.none()),
    (bytes, st.binary(max_size=8)),
    (dt.date, st.dates()),
    (dt.datetime, st.datetimes(timezones=st.just(dt.UTC))),
    (dt.datetime, st.datetimes()),
    (dt.time, st.times()),
    (dt.timedelta, st.timedeltas(dt.timedelta(-1000), dt.timedelta(1000))),
    (decimal.Decimal, st.decimals(allow_nan=False, allow_infinity=False)),
    (uuid.UUID, st.uuids()),
    (Letters, st.sampled_from(Letters)),
    (Numbers, st.sampled_from(Numbers)),
    (Literal["x", "y", 3], st.sampled_from(["x", "y", 3])),
    (Annotated[int, msgspec.Meta(ge=0, le=9)], st.integers(0, 9)),
    (Annotated[str, "a text"], TEXT),
]
NAMES = st.sampled_from(["a", "b", "c", "query", "timeout", "context", "function", "self_", "type"])


def of(kinds: st.SearchStrategy[Kind]) -> st.SearchStrategy[Kind]:
    """Types that are made of others."""
    fields = st.dictionaries(NAMES, kinds, max_size=3)
    return st.one_of(
        kinds.map(lambda kind: (generic(list, kind[0]), st.lists(kind[1], max_size=3))),
        kinds.map(lambda kind: (generic(dict, str, kind[0]), st.dictionaries(TEXT, kind[1], max_size=3))),
        kinds.map(lambda kind: (generic(tuple, kind[0], ...), st.lists(kind[1], max_size=3).map(tuple))),
        kinds.map(lambda kind: (kind[0] | None if kind[0] is not None else None, kind[1] | st.none())),
        st.lists(kinds, max_size=3).map(fixed),
        st.lists(kinds, min_size=2, max_size=3).map(union),
        fields.map(record),
        fields.map(struct),
        fields.map(typed),
        fields.map(row),
    )


def generic(kind: Any, *arguments: Any) -> Any:
    return kind[arguments]


def fixed(kinds: list[Kind]) -> Kind:
    return generic(tuple, *(kind for kind, _ in kinds)), st.tuples(*(values for _, values in kinds))


def union(kinds: list[Kind]) -> Kind:
    return reduce(or_, [Annotated[kind, "member"] for kind, _ in kinds]), st.one_of(
        *(each for _, each in kinds)
    )


def unique(name: str) -> str:
    return f"{name}{next(_numbers)}"


_numbers = count()


def record(fields: dict[str, Kind]) -> Kind:
    made = dataclasses.make_dataclass(unique("Record"), [(name, kind) for name, (kind, _) in fields.items()])
    return made, st.builds(made, **{name: values for name, (_, values) in fields.items()})


def struct(fields: dict[str, Kind]) -> Kind:
    made = msgspec.defstruct(
        unique("Struct"), [(name, kind) for name, (kind, _) in fields.items()], rename="camel"
    )
    return made, st.builds(made, **{name: values for name, (_, values) in fields.items()})


def typed(fields: dict[str, Kind]) -> Kind:
    made = cast(Any, TypedDict)(
        unique("Typed"), {name: NotRequired[kind] for name, (kind, _) in fields.items()}
    )
    return made, st.fixed_dictionaries({}, optional={name: values for name, (_, values) in fields.items()})


def row(fields: dict[str, Kind]) -> Kind:
    made = cast(Any, NamedTuple)(unique("Row"), [(name, kind) for name, (kind, _) in fields.items()])
    return made, st.builds(made, **{name: values for name, (_, values) in fields.items()})


def is_native(kind: Kind) -> bool:
    """Whether msgspec can read it: not every union."""
    try:
        return isinstance(make_converter(kind[0]), Native)
    except OptionsError:
        return False


KINDS = st.recursive(st.sampled_from(LEAVES), of, max_leaves=5).filter(is_native)


@st.composite
def signatures(draw: st.DrawFn) -> tuple[Callable[..., object], dict[str, Any], list[Any]]:
    """A function that notes what it is called with, arguments for it, and where it notes them."""
    parameters = draw(st.dictionaries(NAMES, KINDS, max_size=4))
    optional = {name: draw(st.booleans()) for name in parameters}
    names = sorted(parameters, key=lambda name: optional[name])
    split = draw(st.integers(0, len(names)))
    style = draw(st.sampled_from(["/", "*", ""]))
    written = [f"{name}=MISSING" if optional[name] else name for name in names]
    if style and (split or style == "*") and split < len(names) + (style == "/"):
        written.insert(split, style)
    space: dict[str, Any] = {"MISSING": ..., "seen": []}
    exec(f"def function({', '.join(written)}): seen.append(dict(locals()))", space)
    space["function"].__annotations__ = {name: kind for name, (kind, _) in parameters.items()}
    values = {name: draw(parameters[name][1]) for name in names if not optional[name] or draw(st.booleans())}
    return space["function"], values, space["seen"]


def as_json(value: object) -> Any:
    return msgspec.json.decode(msgspec.json.encode(value))


@given(KINDS, st.data())
def test_values_of_any_type_come_back_as_they_were(kind: Kind, data: st.DataObject) -> None:
    value = data.draw(kind[1])
    shape = Shape[Any](kind[0])
    assert shape.convert(as_json(value)) == value
    wrapped = Shape.for_output(kind[0])
    assert wrapped.schema["type"] == "object"
    sent = as_json(value) if wrapped.schema == shape.schema else {"value": as_json(value)}
    assert wrapped.convert(sent) == value
    msgspec.json.encode(shape.schema)


@given(KINDS)
def test_the_schema_is_msgspecs_and_more(kind: Kind) -> None:
    ours = make_converter(kind[0]).schema
    assert without_additions(ours) == without_additions(msgspec.json.schema(kind[0]))


def without_additions(schema: Any) -> Any:
    """A schema without what is not msgspec's."""
    if isinstance(schema, list):
        # Unions in lists and tuples come in any order: for Python they are equal.
        return sorted((without_additions(each) for each in schema), key=repr)
    if not isinstance(schema, dict):
        return schema
    return {
        key: without_additions(value)
        for key, value in schema.items()
        if not (key == "description" or (key == "format" and value in ("date-time", "time")))
    }


@given(signatures())
def test_arguments_of_any_signature_reach_the_function(made: tuple[Any, dict[str, Any], list[Any]]) -> None:
    function, values, seen = made
    arguments = as_tool(function).arguments
    positional, named = arguments.bind({name: as_json(value) for name, value in values.items()})
    function(*positional, **named)
    assert seen == [{name: values.get(name, ...) for name in seen[0]}]
    assert set(arguments.schema["required"]) <= set(values) <= set(arguments.schema["properties"])


KEYS = NAMES | st.text(max_size=3)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(NAMES | st.text(max_size=3), inner, max_size=3)
    ),
    max_leaves=6,
)


@given(signatures(), st.dictionaries(KEYS, JSON, max_size=4))
def test_bad_arguments_never_reach_the_function(
    made: tuple[Any, dict[str, Any], list[Any]], noise: dict[str, Any]
) -> None:
    function, values, seen = made
    arguments = as_tool(function).arguments
    mixed = {name: as_json(value) for name, value in values.items()} | noise
    kinds = function.__annotations__
    try:
        positional, named = arguments.bind(mixed)
    except ShapeError as error:
        faults = error.errors
        assert faults, "there must be a reason"
        return
    # What gets through is what msgspec takes for each, all that is required, and nothing else.
    assert set(mixed) <= set(kinds)
    assert set(arguments.schema["required"]) <= set(mixed)
    function(*positional, **named)
    for name, value in mixed.items():
        expected = msgspec.convert(value, kinds[name], str_keys=True)
        assert seen[0][name] == expected
        assert type(seen[0][name]) is type(expected)


@given(KINDS, JSON)
def test_whatever_does_not_fit_has_a_reason(kind: Kind, value: Any) -> None:
    try:
        expected = msgspec.convert(value, kind[0], str_keys=True)
    except msgspec.ValidationError:
        faults = make_converter(kind[0]).errors(value, "it")
        assert faults
        assert all("it" in fault for fault in faults)
    else:
        assert make_converter(kind[0]).errors(value, "it") == []
        assert make_converter(kind[0]).convert(value) == expected


@given(KINDS, st.data())
def test_any_value_can_be_the_result_of_a_tool(kind: Kind, data: st.DataObject) -> None:
    value = data.draw(kind[1])
    result = as_result(value)
    msgspec.json.encode(result)
    assume(not isinstance(value, (str, bytes, float, type(None), enum.Enum)))
    if len(result["content"]) == 1 and result["content"][0]["type"] == "text" and "{" in str(as_json(value)):
        assert msgspec.json.decode(result["content"][0]["text"].encode()) == as_json(value)


class Opaque:
    pass


@given(KINDS)
def test_types_that_hold_what_cannot_be_read_are_refused(kind: Kind) -> None:
    for each in (list[Opaque], generic(tuple, Opaque, kind[0]), dict[str, list[Opaque]]):
        with pytest.raises(OptionsError, match="Opaque"):
            make_converter(each)


def test_two_classes_of_one_name_within_a_type_are_refused() -> None:
    one, two = (msgspec.defstruct("Same", [("x", int)]) for _ in range(2))
    with pytest.raises(OptionsError, match="it holds two classes of one name"):
        make_converter(generic(tuple, one, two))

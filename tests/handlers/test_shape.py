"""Types as shapes: their schemas, what fits and what does not, with which library, and outputs."""

from __future__ import annotations

import dataclasses
import datetime as dt
import decimal
import enum
import functools
import subprocess
import sys
import uuid
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path, PurePosixPath
from types import ModuleType
from typing import (
    Annotated,
    Any,
    Generic,
    Literal,
    LiteralString,
    NamedTuple,
    NewType,
    NotRequired,
    Optional,
    Required,
    TypedDict,
    TypeVar,
    Union,
)

import msgspec
import pytest

from outrider.errors import OptionsError
from outrider.handlers import Shape, ShapeError, as_tool
from outrider.handlers._tools.shape import Native, make_converter
from tests.cases import every_case
from tests.handlers.tooling import named

T = TypeVar("T")
UserId = NewType("UserId", int)


class Level(enum.Enum):
    LOW = "low"
    HIGH = "high"


class Bits(enum.IntEnum):
    ONE = 1


@dataclasses.dataclass
class Point:
    """Where something is.

    Attributes:
        x: How far to the right.
        label: Never seen, because the annotation says more.
    """

    x: int
    y: int = 0
    label: Annotated[str, "What it is called"] = ""
    seen: dt.datetime | None = None


@dataclasses.dataclass
class Tree:
    name: str
    children: list[Tree] = dataclasses.field(default_factory=list)


class Struct(msgspec.Struct, rename="camel"):
    first_name: Annotated[str, msgspec.Meta(min_length=1, description="The first")]
    born: dt.date | None = None


class Cat(msgspec.Struct, tag="cat"):
    lives: int


class Dog(msgspec.Struct, tag="dog"):
    name: str


class Strict(msgspec.Struct, forbid_unknown_fields=True):
    a: int


class Array(msgspec.Struct, array_like=True):
    a: int
    b: str = ""


class Typed(TypedDict, total=False):
    a: Required[Annotated[int, "The a"]]
    b: NotRequired[list[str]]
    when: dt.time


class Row(NamedTuple):
    a: int
    b: str = "x"


class Box(msgspec.Struct, Generic[T]):
    inside: T


@dataclasses.dataclass
class Checked:
    a: int

    def __post_init__(self) -> None:
        if self.a < 0:
            raise ValueError("a must not be negative")


@dataclasses.dataclass
class Keyed:
    key: str

    def __post_init__(self) -> None:
        self.value = {"a": "b"}[self.key]


CASES: list[tuple[Any, Any, Any]] = [
    # type, JSON, value
    (int, 5, 5),
    (float, 5, 5.0),
    (str, "a", "a"),
    (bool, True, True),
    (None, None, None),
    (Any, {"a": [1]}, {"a": [1]}),
    (object, [1], [1]),
    (bytes, "aGk=", b"hi"),
    (dt.datetime, "2025-01-31T12:00:00Z", dt.datetime(2025, 1, 31, 12, tzinfo=dt.UTC)),
    (dt.datetime, "2025-01-31T12:00:00", dt.datetime(2025, 1, 31, 12)),  # noqa: DTZ001 - that is the point
    (dt.date, "2025-01-31", dt.date(2025, 1, 31)),
    (dt.time, "12:30:00", dt.time(12, 30)),
    (dt.timedelta, "PT90S", dt.timedelta(seconds=90)),
    (decimal.Decimal, "1.50", decimal.Decimal("1.50")),
    (decimal.Decimal, 1.5, decimal.Decimal("1.5")),
    (uuid.UUID, "00000000-0000-0000-0000-000000000001", uuid.UUID(int=1)),
    (PurePosixPath, "a/b", PurePosixPath("a/b")),
    (Path | None, "a", Path("a")),
    (Literal["a", 1], "a", "a"),
    (LiteralString, "a", "a"),
    (Level, "low", Level.LOW),
    (Bits, 1, Bits.ONE),
    (UserId, 5, 5),
    (Optional[int], None, None),  # noqa: UP045 - the older forms
    (Union[int, str], "a", "a"),  # noqa: UP007 - the older forms
    (int | list[int] | None, [1], [1]),
    (list[int], [1, 2], [1, 2]),
    (list, [1, "a"], [1, "a"]),
    (Sequence[str], ["a"], ["a"]),
    (Iterable[str], ["a"], ["a"]),
    (Iterable, ["a"], ["a"]),
    (set[int], [1, 1], {1}),
    (frozenset[str], ["a"], frozenset("a")),
    (tuple[int, str], [1, "a"], (1, "a")),
    (tuple[int, ...], [1, 2], (1, 2)),
    (dict[str, int], {"a": 1}, {"a": 1}),
    (dict[int, list[str]], {"1": ["a"]}, {1: ["a"]}),
    (Mapping[str, object], {"a": None}, {"a": None}),
    (Point, {"x": 1, "seen": None}, Point(1)),
    (Tree, {"name": "a", "children": [{"name": "b"}]}, Tree("a", [Tree("b")])),
    (Struct, {"firstName": "a", "born": "2025-01-31"}, Struct("a", dt.date(2025, 1, 31))),
    (Cat | Dog, {"type": "dog", "name": "x"}, Dog("x")),
    (Cat | Dog | int | None, 5, 5),
    (Array, [1], Array(1)),
    (Typed, {"a": 1, "unknown": 2}, {"a": 1}),
    (Row, [1], Row(1)),
    (Box[int], {"inside": 1}, Box(1)),
    (list[Box[Point]], [{"inside": {"x": 1}}], [Box(Point(1))]),
    (Annotated[int, "how many"], 5, 5),
    (Annotated[list[Annotated[str, msgspec.Meta(max_length=3)]], "names"], ["abc"], ["abc"]),
]


@every_case("kind, given, expected", CASES, ids=named)
def test_a_value_that_fits_becomes_one_of_the_type(kind: Any, given: Any, expected: Any) -> None:
    shape = Shape[Any](kind)
    assert shape.convert(given) == expected
    assert type(shape.convert(given)) is type(expected)
    assert isinstance(make_converter(kind), Native)


@every_case("kind, given, expected", CASES, ids=named)
def test_and_back(kind: Any, given: Any, expected: Any) -> None:
    reader = make_converter(kind)
    assert reader.convert(reader.dump(expected)) == expected


MISFITS: list[tuple[Any, Any, list[str]]] = [
    (int, "5", ['expected a whole number, got "5"']),
    (int, 5.5, ["expected a whole number, got 5.5"]),
    (int, True, ["expected a whole number, got true"]),
    (float, "x", ['expected a number, got "x"']),
    (str, 5, ["expected text, got 5"]),
    (bool, 1, ["expected true or false, got 1"]),
    (None, 0, ["expected null, got 0"]),
    (bytes, "*", ['expected bytes as base64 text, got "*"']),
    (dt.datetime, "now", ['expected a date and time such as "2025-01-31T12:00:00Z", got "now"']),
    (dt.date, 5, ['expected a date such as "2025-01-31", got 5']),
    (dt.time, 5, ['expected a time such as "12:00:00", got 5']),
    (dt.timedelta, 5, ['expected a duration such as "PT1H30M", got 5']),
    (uuid.UUID, "x", ['expected a UUID, got "x"']),
    (decimal.Decimal, "x", ['expected a decimal number as text, such as "1.50", got "x"']),
    (PurePosixPath, 5, ["expected a path, got 5"]),
    (Literal["a", "b"], "c", ['expected one of "a", "b", got "c"']),
    (Literal["a"], "c", ['expected "a", got "c"']),
    (Level, "x", ['expected one of "low", "high", got "x"']),
    (int | None, "x", ['expected a whole number or null, got "x"']),
    (int | str, [], ["expected a whole number or text, got []"]),
    (list[int], 5, ["expected a list of whole numbers, got 5"]),
    (list[int], [1, "a", 2, "b"],
     ['`[1]`: expected a whole number, got "a"', '`[3]`: expected a whole number, got "b"']),
    (list[int] | None, ["a"], ['`[0]`: expected a whole number, got "a"']),
    (tuple[int, str], [1], ["expected 2 items, got 1"]),
    (tuple[int, str], ["a", "b"], ['`[0]`: expected a whole number, got "a"']),
    (tuple[int, str], {}, ["expected a list of 2 items, got {}"]),
    (dict[str, int], {"a": "b", "c": 1}, ['`["a"]`: expected a whole number, got "b"']),
    (dict[int, int], {"a": 1}, ['the key "a" is not a whole number']),
    (dict[str, int], 5, ["expected an object, got 5"]),
    (Point, {}, ["`x`: missing, expected a whole number"]),
    (Point, {"x": "1", "y": "2"},
     ['`x`: expected a whole number, got "1"', '`y`: expected a whole number, got "2"']),
    (Point, [1], ["expected an object, got [1]"]),
    (Tree, {"name": "a", "children": [{"name": 1}]}, ["`children[0].name`: expected text, got 1"]),
    (Struct, {"first_name": "a"}, ["`firstName`: missing, expected text, at least 1 long"]),
    (Struct, {"firstName": ""}, ['`firstName`: expected text, at least 1 long, got ""']),
    (Cat | Dog, {"type": "cow"}, ['`type`: expected one of "cat", "dog", got "cow"']),
    (Cat | Dog, {}, ['`type`: expected one of "cat", "dog", got null']),
    (Cat | Dog, {"type": "cat", "lives": "x"}, ['`lives`: expected a whole number, got "x"']),
    (Cat, {"type": "dog", "lives": 1}, ['`type`: expected "cat", got "dog"']),
    (Cat | Dog | None, 5, ["expected an object or null, got 5"]),
    (Strict, {"a": 1, "b": 2}, ["`b`: unknown"]),
    (Array, ["x"], ['`[0]`: expected a whole number, got "x"']),
    (Array, [], ["expected at least 1 items, got 0"]),
    (Array, {}, ["expected a list, got {}"]),
    (Row, ["x"], ['`[0]`: expected a whole number, got "x"']),
    (Typed, {"b": 5}, ["`a`: missing, expected a whole number", "`b`: expected a list of texts, got 5"]),
    (Box[int], {"inside": "x"}, ['`inside`: expected a whole number, got "x"']),
    (Checked, {"a": -1}, ["a must not be negative"]),
    (list[Checked], [{"a": 1}, {"a": -1}], ["`[1]`: a must not be negative"]),
    (Annotated[int, msgspec.Meta(ge=3, lt=9)], 1,
     ["expected a whole number, at least 3 and less than 9, got 1"]),
    (Annotated[int, msgspec.Meta(multiple_of=3)], 1, ["expected a whole number, a multiple of 3, got 1"]),
    (Annotated[str, msgspec.Meta(pattern="^a")], "b", ["expected text, matching '^a', got \"b\""]),
    (Annotated[list[int], msgspec.Meta(min_length=2)], [1], ["expected at least 2 items, got 1"]),
    (Annotated[list[int], msgspec.Meta(max_length=1)], [1, 2], ["expected at most 1 items, got 2"]),
    (Annotated[dict[str, int], msgspec.Meta(min_length=1)], {}, ["expected at least 1 keys, got 0"]),
    (Annotated[dt.datetime, msgspec.Meta(tz=True)], "2025-01-31T12:00:00",
     ['expected a date and time with a time zone such as "2025-01-31T12:00:00Z", got "2025-01-31T12:00:00"']),
    (str, ["x" * 200], ['expected text, got ["' + "x" * 77 + "…"]),
    (int, "x" * 200, ['expected a whole number, got "' + "x" * 78 + "…"]),
    # Half of a pair of surrogates.
    (int, "\ud800", ['expected a whole number, got "\ud800"']),
    (Literal["a"], "\ud800", ['expected "a", got "\ud800"']),
    (Tree, {"name": "a", "\ud800": 1}, ["a text in it is not Unicode"]),
    (Keyed, {"key": "no"}, ["KeyError: 'no'"]),
    (list[Keyed], [{"key": "a"}, {"key": "no"}], ["KeyError: 'no'"]),
    (dict[str, int], {"k" * 500: "x"}, ['`["' + "k" * 78 + '…]`: expected a whole number, got "x"']),
]  # fmt: skip


@every_case("kind, given, faults", MISFITS, ids=named)
def test_what_does_not_fit_is_told_place_by_place(kind: Any, given: Any, faults: list[str]) -> None:
    with pytest.raises(ShapeError) as caught:
        Shape[Any](kind).convert(given)
    assert list(caught.value.errors) == faults
    assert str(caught.value) == "; ".join(faults)


@pytest.mark.parametrize(
    "kind, leaf, around, fault",
    [
        (int, 1, lambda inner: [inner], "expected a whole number, got " + "[" * 79 + "…"),
        (Tree, {"name": 5}, lambda inner: {"name": "a", "children": [inner]}, "nested too deeply"),
    ],
    ids=["elsewhere", "as the type is"],
)
def test_what_is_nested_without_end_does_not_fit(kind: Any, leaf: Any, around: Any, fault: str) -> None:
    value = functools.reduce(lambda inner, _: around(inner), range(10_000), leaf)
    with pytest.raises(ShapeError) as caught:
        Shape[Any](kind).convert(value)
    assert caught.value.errors == (fault,)


def test_choices_and_faults_are_not_told_without_end() -> None:
    many = Literal[tuple(range(30))]  # type: ignore[valid-type]
    with pytest.raises(ShapeError, match=r"18, 19, 10 more, got 99"):
        Shape(many).convert(99)
    with pytest.raises(ShapeError) as caught:
        Shape(list[int]).convert(["x"] * 1000)
    assert len(caught.value.errors) == 20


SCHEMAS: list[tuple[Any, Any]] = [
    (int, {"type": "integer"}),
    (Any, {}),
    (dt.datetime, {"type": "string", "format": "date-time"}),
    (dt.datetime | None, {"anyOf": [{"type": "string", "format": "date-time"}, {"type": "null"}]}),
    (list[dt.time], {"type": "array", "items": {"type": "string", "format": "time"}}),
    (Path, {"type": "string", "format": "path"}),
    (Annotated[int, "how many"], {"type": "integer", "description": "how many"}),
    (
        list[Annotated[str, "a name"]],
        {"type": "array", "items": {"type": "string", "description": "a name"}},
    ),
    (
        Annotated[int, "other", msgspec.Meta(ge=1, description="how many")],
        {"type": "integer", "description": "how many", "minimum": 1},
    ),
    (
        Point,
        {
            "title": "Point",
            "description": "Where something is.",
            "type": "object",
            "properties": {
                "x": {"type": "integer", "description": "How far to the right."},
                "y": {"type": "integer", "default": 0},
                "label": {"type": "string", "description": "What it is called", "default": ""},
                "seen": {
                    "anyOf": [{"type": "string", "format": "date-time"}, {"type": "null"}],
                    "default": None,
                },
            },
            "required": ["x"],
        },
    ),
    (
        Typed,
        {
            "title": "Typed",
            "type": "object",
            "properties": {
                "a": {"type": "integer", "description": "The a"},
                "b": {"type": "array", "items": {"type": "string"}},
                "when": {"type": "string", "format": "time"},
            },
            "required": ["a"],
        },
    ),
]


@every_case("kind, schema", SCHEMAS, ids=named)
def test_the_schema_says_what_a_model_wants_to_know(kind: Any, schema: Any) -> None:
    assert Shape[Any](kind).schema == schema


def test_the_schema_of_a_type_that_mentions_itself() -> None:
    schema = Shape(Tree).schema
    assert schema["type"] == "object"
    assert schema["properties"]["children"] == {"type": "array", "items": {"$ref": "#/$defs/Tree"}}
    assert list(schema["$defs"]) == ["Tree"]


# Types that were made within a function, whose annotations are texts.


def test_local_types_are_found_by_their_names() -> None:
    @dataclasses.dataclass
    class Inner:
        x: Annotated[int, "The x"]

    class Outer(TypedDict):
        inner: Inner
        more: NotRequired[list[Inner]]

    shape = Shape(Outer)
    assert shape.convert({"inner": {"x": 1}}) == {"inner": Inner(1)}
    assert shape.schema["$defs"]["Inner"]["properties"]["x"]["description"] == "The x"


def test_names_that_are_nowhere_are_an_error() -> None:
    @dataclasses.dataclass
    class Lost:
        x: Nowhere  # type: ignore[name-defined] # noqa: F821 # pyright: ignore[reportUndefinedVariable]

    with pytest.raises(OptionsError, match=r"Lost` cannot be used as a type: name 'Nowhere'"):
        Shape(Lost)


def test_a_class_that_says_nothing_of_itself_is_refused_also_with_a_description() -> None:
    class Own:
        pass

    for kind in (Own, Annotated[Own, "what it is"], list[Annotated[Own, "what it is"]]):
        with pytest.raises(OptionsError, match="its form in JSON is not known"):
            Shape(kind)


Limited = Annotated[int, msgspec.Meta(ge=1)]


@pytest.mark.parametrize(
    "kind, said",
    [
        # Accepted, the first ones destroy memory.
        (Limited | tuple[int, str], "tuple of fixed length"),
        (Annotated[Limited | None, "x"] | tuple[()], "tuple of fixed length"),
        (list[tuple[int] | Annotated[str, msgspec.Meta(min_length=1)]], "tuple of fixed length"),
        (Limited | Annotated[int, msgspec.Meta(le=-1)], "one type twice"),
        (int | str | Limited, "one type twice"),
    ],
    ids=named,
)
def test_unions_that_msgspec_gets_wrong_are_refused(kind: Any, said: str) -> None:
    with pytest.raises(OptionsError, match=said):
        Shape(kind)


def test_unions_with_limits_that_it_gets_right_are_not() -> None:
    assert Shape(Limited | tuple[int, ...] | None).convert([1]) == (1,)
    assert Shape(Annotated[int, "a"] | tuple[int, str]).convert([1, "a"]) == (1, "a")


# Outputs.


@pytest.mark.parametrize(
    "kind, inner, given, expected",
    [
        (int, {"type": "integer"}, 5, 5),
        (list[int], {"type": "array", "items": {"type": "integer"}}, [1], [1]),
        (Literal["a", "b"], {"enum": ["a", "b"]}, "a", "a"),
        (int | None, {"anyOf": [{"type": "integer"}, {"type": "null"}]}, None, None),
        (Any, {}, {"x": 1}, {"x": 1}),
        ({"type": "array"}, {"type": "array"}, [1], [1]),
    ],
    ids=named,
)
def test_an_output_that_is_no_object_is_wrapped_in_one(
    kind: Any, inner: Any, given: Any, expected: Any
) -> None:
    shape = Shape.for_output(kind)
    assert shape.schema == {
        "type": "object",
        "properties": {"value": inner},
        "required": ["value"],
        "additionalProperties": False,
    }
    assert shape.convert({"value": given}) == expected


@pytest.mark.parametrize(
    "kind, given, expected",
    [
        (Point, {"x": 1}, Point(1)),
        (Typed, {"a": 1}, {"a": 1}),
        (dict[str, int], {"a": 1}, {"a": 1}),
        ({"type": "object", "properties": {"a": {}}}, {"a": 1}, {"a": 1}),
    ],
    ids=named,
)
def test_an_output_that_is_an_object_stays_one(kind: Any, given: Any, expected: Any) -> None:
    shape = Shape.for_output(kind)
    assert shape.schema["type"] == "object"
    assert shape.schema == Shape[Any](kind).schema
    assert shape.convert(given) == expected


def test_what_a_wrapped_output_refers_to_is_at_the_top() -> None:
    schema = Shape.for_output(list[Tree]).schema
    assert schema["properties"]["value"] == {"type": "array", "items": {"$ref": "#/$defs/Tree"}}
    assert list(schema["$defs"]) == ["Tree"]
    old = {"type": "array", "items": {"$ref": "#/definitions/A"}, "definitions": {"A": {}}}
    assert Shape.for_output(old).schema["definitions"] == {"A": {}}


@pytest.mark.parametrize("given", [5, {}, {"other": 1}, None, []])
def test_an_output_without_its_wrapping_does_not_fit(given: object) -> None:
    with pytest.raises(ShapeError, match="expected an object with `value`"):
        Shape.for_output(int).convert(given)


# Schemas of the user.


@every_case(
    "schema, value, faults",
    [
        ({}, 5, []),
        ({"type": "object"}, {"a": 1}, []),
        ({"type": "object"}, [], ["expected object, got []"]),
        ({"type": "object", "required": ["a", "b"]}, {"b": 1}, ["`a`: missing"]),
        ({"type": ["integer", "null"]}, "x", ['expected integer or null, got "x"']),
        ({"type": "integer"}, 5.0, []),
        ({"type": "integer"}, 5.5, ["expected integer, got 5.5"]),
        ({"type": "number"}, 5, []),
        ({"type": "number"}, True, ["expected number, got true"]),
        ({"type": "boolean"}, True, []),
        ({"type": "nonsense"}, 5, []),
        ({"type": "object", "required": "a"}, {}, []),
    ],
    ids=named,
)
def test_a_schema_in_place_of_a_type_is_checked_at_its_top(
    schema: Any, value: Any, faults: list[str]
) -> None:
    shape = Shape[Any](schema)
    if faults:
        with pytest.raises(ShapeError) as caught:
            shape.convert(value)
        assert list(caught.value.errors) == faults
    else:
        assert shape.convert(value) is value


def test_a_schema_is_copied() -> None:
    given: dict[str, Any] = {"type": "object", "properties": {"a": {}}}
    shape = Shape[Any](given)
    given["properties"]["b"] = {}
    assert shape.schema == {"type": "object", "properties": {"a": {}}}


def test_a_schema_must_be_json() -> None:
    with pytest.raises(OptionsError, match="is not valid JSON"):
        Shape({"default": object()})


# What msgspec cannot read, in a program that has no pydantic.

WITHOUT_PYDANTIC = """
import sys
sys.modules["pydantic"] = None
import dataclasses
from outrider.errors import OptionsError
from outrider.handlers._tools.shape import Shape

@dataclasses.dataclass
class A: a: int
@dataclasses.dataclass
class B: b: int
class Own: pass
@dataclasses.dataclass
class Filled:
    a: int
    b: int = dataclasses.field(init=False)

assert Shape(A).convert({"a": 1}) == A(1)
for kind, said in (
    (A | B, "one dataclass"), (Own, "not known"), (list["A"], "not supported"), (Filled, "init=False")
):
    try:
        Shape(kind)
    except OptionsError as error:
        assert said in str(error), error
        assert "outrider[pydantic]" in error.hint, error.hint
    else:
        raise AssertionError(kind)
"""


def test_without_pydantic_an_error_says_what_to_do() -> None:
    subprocess.run([sys.executable, "-c", WITHOUT_PYDANTIC], check=True, timeout=30)


LIGHT = """
import sys
from outrider.handlers._tools.shape import Shape
from outrider.handlers._tools.server import ToolServer

def f(a: int) -> list[str]: ...

Shape(dict[str, list[int]])
ToolServer("s", [f])
assert not {"pydantic", "mcp"} & set(sys.modules)
"""


def test_pydantic_is_not_loaded_for_what_msgspec_reads() -> None:
    subprocess.run([sys.executable, "-c", LIGHT], check=True, timeout=30)


# The forms of Python 3.12.

NEW_FORMS = """
import dataclasses
from typing import TypedDict

type Name = str
type Names = list[Name]
type Maybe[T] = T | None
type Json = None | bool | int | str | list[Json] | dict[str, Json]

@dataclasses.dataclass
class Box[T]:
    inside: T

class Typed[T](TypedDict):
    inside: T

def function[T: int](
    name: Name, names: Names, maybe: Maybe[int], box: Box[int], typed: Typed[str], t: T
) -> T:
    return t
"""


@pytest.mark.skipif(sys.version_info < (3, 12), reason="the syntax is newer")
@pytest.mark.parametrize("future", ["", "from __future__ import annotations\n"])
def test_aliases_and_type_parameters(future: str, monkeypatch: pytest.MonkeyPatch) -> None:

    module = ModuleType("new_forms")
    monkeypatch.setitem(sys.modules, "new_forms", module)
    exec(compile(future + NEW_FORMS, "new_forms", "exec", dont_inherit=True), vars(module))
    made = as_tool(vars(module)["function"])
    properties = made.input_schema["properties"]
    assert properties["name"] == {"type": "string"}
    assert properties["names"] == {"type": "array", "items": {"type": "string"}}
    assert properties["maybe"] == {"anyOf": [{"type": "integer"}, {"type": "null"}]}
    assert properties["t"] == {"type": "integer"}
    given = {"name": "a", "names": ["b"], "maybe": None, "box": {"inside": 1}, "typed": {"inside": "x"}} | {
        "t": 5
    }
    _, bound = made.arguments.bind(given)
    assert bound["box"] == vars(module)["Box"](1)
    # One that mentions itself is for pydantic.
    shape = Shape(vars(module)["Json"])
    assert shape.convert([1, {"a": None}]) == [1, {"a": None}]

"""Types of pydantic, and those that only pydantic can read."""

from __future__ import annotations

import dataclasses
import datetime as dt
import enum
from pathlib import Path
from typing import Annotated, Any, Generic, Literal, TypeVar

import annotated_types
import msgspec
import pydantic
import pytest
from typing_extensions import TypedDict

from outrider.errors import OptionsError
from outrider.handlers import Shape, ShapeError
from outrider.handlers._tools.content import as_result
from outrider.handlers._tools.shape import Native, Pydantic, make_converter
from tests.cases import every_case
from tests.handlers.tooling import named

T = TypeVar("T")


class Line(pydantic.BaseModel):
    """One line.

    Of an invoice.
    """

    text: str
    amount: float = pydantic.Field(gt=0, description="In euros", alias="amountEur")


class Invoice(pydantic.BaseModel):
    number: int
    lines: list[Line] = []
    due: dt.date | None = None


class Node(pydantic.BaseModel):
    name: str
    next: Node | None = None


class Box(pydantic.BaseModel, Generic[T]):
    inside: T


@pydantic.dataclasses.dataclass
class PydanticData:
    x: int = pydantic.Field(ge=1)


@dataclasses.dataclass
class Holder:
    line: Line


class HolderDict(TypedDict):
    invoice: Invoice


@dataclasses.dataclass
class A:
    a: int


@dataclasses.dataclass
class B:
    b: Annotated[int, "The b"]
    kind: Literal["b"] = "b"


class Mixed(enum.Enum):
    ONE = 1
    TWO = "two"


class Both(msgspec.Struct):
    line: Line


LINE = {"text": "a", "amountEur": 2}

CASES: list[tuple[Any, Any, Any]] = [
    (Line, LINE, Line(text="a", amountEur=2)),
    (Invoice, {"number": 1, "lines": [LINE], "due": "2025-01-31"},
     Invoice(number=1, lines=[Line(text="a", amountEur=2)], due=dt.date(2025, 1, 31))),
    (list[Line], [LINE], [Line(text="a", amountEur=2)]),
    (Line | None, None, None),
    (Node, {"name": "a", "next": {"name": "b"}}, Node(name="a", next=Node(name="b"))),
    (Box[int], {"inside": 1}, Box[int](inside=1)),
    (PydanticData, {"x": 1}, PydanticData(1)),
    (Holder, {"line": LINE}, Holder(Line(text="a", amountEur=2))),
    (HolderDict, {"invoice": {"number": 1}}, {"invoice": Invoice(number=1)}),
    (Annotated[int, pydantic.Field(gt=3)], 5, 5),
    (Annotated[int, annotated_types.Gt(3)], 5, 5),
    (list[pydantic.PositiveInt], [1], [1]),
    (pydantic.HttpUrl, "https://example.com/", pydantic.HttpUrl("https://example.com/")),
    # Only pydantic can.
    (A | B, {"b": 1}, B(1)),
    (str | bytes, "a", "a"),
    (Mixed, "two", Mixed.TWO),
    (Path | int, "a", Path("a")),
    (dict[str, A] | A, {"a": 1}, A(1)),
]  # fmt: skip


@every_case("kind, given, expected", CASES, ids=named)
def test_a_value_that_fits_becomes_one_of_the_type(kind: Any, given: Any, expected: Any) -> None:
    assert isinstance(make_converter(kind), Pydantic)
    shape = Shape[Any](kind)
    assert shape.convert(given) == expected
    assert type(shape.convert(given)) is type(expected)


class Keyed(pydantic.BaseModel):
    key: str

    @pydantic.field_validator("key")
    @classmethod
    def known(cls, key: str) -> str:
        return {"a": "b"}[key]


MISFITS: list[tuple[Any, Any, list[str]]] = [
    (Line, {"text": 5}, ["`text`: Input should be a valid string, got 5", "`amountEur`: missing"]),
    (Line, {"text": "a", "amountEur": "2"}, ['`amountEur`: Input should be a valid number, got "2"']),
    (Line, {"text": "a", "amountEur": 0}, ["`amountEur`: Input should be greater than 0, got 0"]),
    (Invoice, {"number": "1", "lines": [{}]},
     ['`number`: Input should be a valid integer, got "1"', "`lines[0].text`: missing",
      "`lines[0].amountEur`: missing"]),
    (list[Line], 5, ["Input should be a valid array, got 5"]),
    (Annotated[int, annotated_types.Gt(3)], 3, ["Input should be greater than 3, got 3"]),
    (A | B, {"a": "x"}, ['`A.a`: Input should be a valid integer, got "x"', "`B.b`: missing"]),
    (Keyed, {"key": "no"}, ["KeyError: 'no'"]),
    (str | bytes, 5,
     ["`str`: Input should be a valid string, got 5", "`bytes`: Input should be a valid bytes, got 5"]),
]  # fmt: skip


@every_case("kind, given, faults", MISFITS, ids=named)
def test_what_does_not_fit_is_told_place_by_place(kind: Any, given: Any, faults: list[str]) -> None:
    with pytest.raises(ShapeError) as caught:
        Shape[Any](kind).convert(given)
    assert list(caught.value.errors) == faults


def test_the_place_of_a_fault_goes_on_from_where_it_is() -> None:
    assert make_converter(Invoice).errors({"number": "1"}, "bill") == [
        '`bill.number`: Input should be a valid integer, got "1"'
    ]
    assert make_converter(Invoice).errors({"number": 1}, "bill") == []


def test_what_is_nested_without_end_does_not_fit() -> None:
    value: Any = "text"
    for _ in range(10_000):
        value = [value]
    with pytest.raises(ShapeError, match="nested too deeply"):
        Shape(Line).convert({"text": value, "amountEur": 1})


def test_faults_are_not_told_without_end() -> None:
    with pytest.raises(ShapeError) as caught:
        Shape(list[Line]).convert([{}] * 1000)
    assert len(caught.value.errors) == 20


def test_fields_that_a_dataclass_fills_itself_are_not_for_the_model() -> None:
    @dataclasses.dataclass
    class Filled:
        a: int
        b: int = dataclasses.field(init=False)

        def __post_init__(self) -> None:
            self.b = self.a * 2

    shape = Shape(Filled)
    assert (list(shape.schema["properties"]), shape.schema["required"]) == (["a"], ["a"])
    assert shape.convert({"a": 2}).b == 4


def test_the_schema_is_the_models() -> None:
    schema = Shape(Invoice).schema
    assert schema["properties"]["lines"]["items"] == {"$ref": "#/$defs/Line"}
    assert schema["$defs"]["Line"]["properties"]["amountEur"] == {
        "description": "In euros",
        "exclusiveMinimum": 0,
        "title": "Amounteur",
        "type": "number",
    }
    # Names that refer to themselves are at the top all the same.
    assert Shape(Node).schema["type"] == "object"


def test_an_output_of_a_model_and_of_many() -> None:
    assert Shape.for_output(Invoice).convert({"number": 1}) == Invoice(number=1)
    many = Shape.for_output(list[Invoice])
    assert many.convert({"value": [{"number": 1}]}) == [Invoice(number=1)]
    assert set(many.schema["$defs"]) == {"Invoice", "Line"}


def test_local_models_and_local_dataclasses_together() -> None:
    class Inner(pydantic.BaseModel):
        x: int

    @dataclasses.dataclass
    class Outer:
        inner: Inner
        more: list[Inner] | None = None

    assert Shape(Outer).convert({"inner": {"x": 1}}) == Outer(Inner(x=1))


def test_names_that_are_nowhere_are_an_error() -> None:
    class Lost(pydantic.BaseModel):
        x: Nowhere  # type: ignore[name-defined] # noqa: F821 # pyright: ignore[reportUndefinedVariable]

    with pytest.raises(OptionsError, match="Lost` cannot be used as a type"):
        Shape(Lost)


def test_the_two_libraries_do_not_mix() -> None:
    with pytest.raises(OptionsError, match="Both` cannot be used as a type") as caught:
        Shape(Both)
    assert "use one library" in caught.value.hint


def test_limits_of_one_library_are_not_lost_in_the_other() -> None:
    @dataclasses.dataclass
    class Limited:
        a: Annotated[int, msgspec.Meta(ge=1)]

    for kind in (Limited | A, Annotated[int, msgspec.Meta(ge=1), pydantic.Field(le=5)]):
        with pytest.raises(OptionsError):
            Shape(kind)


def test_what_neither_can_read() -> None:
    class Own:
        pass

    with pytest.raises(OptionsError, match=r"Own` cannot be used as a type: its form") as caught:
        Shape(Own)
    assert "pydantic model" in caught.value.hint


def test_plain_types_are_msgspecs_also_when_pydantic_is_there() -> None:
    assert isinstance(make_converter(A), Native)
    assert isinstance(make_converter(Annotated[int, "text", msgspec.Meta(ge=1)]), Native)


def test_models_are_sent_as_they_write_themselves() -> None:
    line = Line(text="a", amountEur=2)
    assert as_result(line)["structuredContent"] == {"text": "a", "amount": 2.0}
    nested = as_result({"all": [Invoice(number=1, due=dt.date(2025, 1, 31))], "data": PydanticData(3)})
    assert nested["structuredContent"] == {
        "all": [{"number": 1, "lines": [], "due": "2025-01-31"}],
        "data": {"x": 3},
    }


@pytest.mark.parametrize("value", ["\ud800", {"text": "\ud800", "amountEur": 1}])
def test_texts_that_no_utf8_can_hold_are_no_crash(value: object) -> None:
    with pytest.raises(ShapeError):
        Shape(Line).convert(value)

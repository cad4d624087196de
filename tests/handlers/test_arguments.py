"""Arguments of a model as those of a function: what gets through, what does not, and what it is told."""

from __future__ import annotations

import dataclasses
import datetime as dt
from collections.abc import Callable
from typing import Annotated, Any, Literal

import msgspec
import pydantic
import pytest

from outrider.handlers import ShapeError, ToolContext, as_tool, tool
from outrider.wire import JsonObject
from tests.cases import every_case
from tests.handlers.tooling import Asker, named


@dataclasses.dataclass
class Point:
    x: int
    y: int = 0


class Model(pydantic.BaseModel):
    n: int


def search(
    query: str, limit: int = 10, *, near: Point | None = None, order: Literal["up", "down"] = "up"
) -> object:
    return query, limit, near, order


def positional(a: int, b: int = 2, /, c: int = 3) -> object:
    return a, b, c


def all_optional(a: int = 1, b: int = 2, /) -> object:
    return a, b


def with_others(a: int, **others: dt.date) -> object:
    return a, others


def anything(**others: Any) -> object:
    return others


def with_model(model: Model, points: list[Point], models: list[Model] | None = None) -> object:
    return model, points, models


def context_first(ctx: ToolContext, /, a: int) -> object:
    return ctx.tool_name, a


def context_later(a: int, *, tools: ToolContext | None = None, **others: int) -> object:
    assert tools is not None
    return tools.tool_name, a, others


def odd_default(a: int = None) -> object:  # type: ignore[assignment] # noqa: RUF013 # pyright: ignore[reportArgumentType]
    return a


def nothing() -> object:
    return "nothing"


def called(function: Callable[..., object], given: JsonObject) -> object:
    """What a function gives for arguments of a model."""
    context = ToolContext(Asker(), tool_name="the tool")
    positional, named = as_tool(function).arguments.bind(given, context)
    return function(*positional, **named)


FITTING: list[tuple[Any, JsonObject, Any]] = [
    (search, {"query": "a"}, ("a", 10, None, "up")),
    (search, {"order": "down", "near": {"x": 1}, "query": "a", "limit": 5}, ("a", 5, Point(1), "down")),
    (search, {"query": "a", "near": None}, ("a", 10, None, "up")),
    (positional, {"a": 1}, (1, 2, 3)),
    (positional, {"c": 9, "a": 1, "b": 8}, (1, 8, 9)),
    (all_optional, {}, (1, 2)),
    (all_optional, {"b": 5}, (1, 5)),
    (with_others, {"a": 1}, (1, {})),
    (with_others, {"a": 1, "x": "2025-01-31"}, (1, {"x": dt.date(2025, 1, 31)})),
    (anything, {"a": 1, "self": [2], "function": None}, {"a": 1, "self": [2], "function": None}),
    (with_model, {"model": {"n": 1}, "points": [{"x": 1}]}, (Model(n=1), [Point(1)], None)),
    (with_model, {"model": {"n": 1}, "points": [], "models": [{"n": 2}]}, (Model(n=1), [], [Model(n=2)])),
    (context_first, {"a": 1}, ("the tool", 1)),
    (context_later, {"a": 1, "b": 2}, ("the tool", 1, {"b": 2})),
    (odd_default, {}, None),
    (odd_default, {"a": None}, None),
    (odd_default, {"a": 5}, 5),
    (nothing, {}, "nothing"),
]


@every_case("function, given, expected", FITTING, ids=range(len(FITTING)))
def test_what_fits_reaches_the_function(function: Any, given: JsonObject, expected: object) -> None:
    before = msgspec.json.encode(given)
    assert called(function, given) == expected
    # What the model gave is reported as it was.
    assert msgspec.json.encode(given) == before


MISFITS: list[tuple[Any, JsonObject, list[str]]] = [
    (search, {}, ["`query`: missing"]),
    (search, {"query": 5}, ["`query`: expected text, got 5"]),
    (search, {"query": "a", "limit": "5"}, ['`limit`: expected a whole number, got "5"']),
    (search, {"query": "a", "limit": None},
     ["`limit`: expected a whole number, got null (leave it out to get 10)"]),
    (search, {"query": 5, "limit": "x", "near": {"x": "y"}, "order": "left"},
     ["`query`: expected text, got 5", '`limit`: expected a whole number, got "x"',
      '`near.x`: expected a whole number, got "y"', '`order`: expected one of "down", "up", got "left"']),
    (search, {"qurey": "a"}, ["`qurey`: unknown; did you mean `query`?", "`query`: missing"]),
    (search, {"query": "a", "zzz": 1}, ["`zzz`: unknown; known are `query`, `limit`, `near`, `order`"]),
    # What is given already is not proposed.
    (search, {"query": "a", "query2": 1}, ["`query2`: unknown; known are `query`, `limit`, `near`, `order`"]),
    (nothing, {"a": 1}, ["`a`: unknown; there are no parameters"]),
    (positional, {"a": "x"}, ['`a`: expected a whole number, got "x"']),
    (positional, {"b": 1}, ["`a`: missing"]),
    (positional, {"a": 1, "d": 1}, ["`d`: unknown; known are `a`, `b`, `c`"]),
    (with_others, {"a": 1, "x": "soon"}, ['`x`: expected a date such as "2025-01-31", got "soon"']),
    (with_model, {"model": {"n": "1"}, "points": []},
     ['`model.n`: Input should be a valid integer, got "1"']),
    (with_model, {"model": {"n": "1"}, "points": 5, "modles": []},
     ['`model.n`: Input should be a valid integer, got "1"', "`points`: expected a list, got 5",
      "`modles`: unknown; did you mean `models`?"]),
    # The context is nothing that a model could give.
    (context_first, {"a": 1, "ctx": {}}, ["`ctx`: unknown; known are `a`"]),
]  # fmt: skip


@every_case("function, given, faults", MISFITS, ids=range(len(MISFITS)))
def test_what_does_not_fit_is_told_parameter_by_parameter(
    function: Any, given: JsonObject, faults: list[str]
) -> None:
    with pytest.raises(ShapeError) as caught:
        called(function, given)
    assert list(caught.value.errors) == faults


def test_many_and_long_unknown_names_are_not_told_without_end() -> None:
    with pytest.raises(ShapeError) as caught:
        called(search, {"x" * 100_000: 1} | {f"name{number}": 1 for number in range(1000)})
    assert len(caught.value.errors) == 20
    assert caught.value.errors[0].startswith(f"`{'x' * 199}…`: unknown")


@pytest.mark.parametrize("value", [5, None, "x"])
def test_a_model_cannot_give_the_context_among_the_others(value: object) -> None:
    with pytest.raises(ShapeError, match="`tools`: unknown; known are `a`"):
        as_tool(context_later).arguments.bind({"a": 1, "tools": value}, None)


def test_a_function_that_refuses_what_fits_is_still_told_so() -> None:
    @dataclasses.dataclass
    class Even:
        n: int

        def __post_init__(self) -> None:
            if self.n % 2:
                raise ValueError("n must be even")

    @tool
    def function(even: Even) -> None: ...

    with pytest.raises(ShapeError) as caught:
        function.arguments.bind({"even": {"n": 1}})
    assert caught.value.errors == ("`even`: n must be even",)


@pytest.mark.parametrize(
    "kind, value, expected",
    [
        (float, 5, 5.0),
        (int, 5, 5),
        (complex | None, None, None),
    ],
    ids=named,
)
def test_numbers_that_are_whole_are_taken_for_others(kind: Any, value: Any, expected: Any) -> None:
    def function(a: Any) -> None: ...

    function.__annotations__["a"] = kind
    _, given = as_tool(function).arguments.bind({"a": value})
    assert given == {"a": expected}
    assert type(given["a"]) is type(expected)


def test_a_limit_on_a_parameter_is_kept() -> None:
    def function(
        a: Annotated[int, msgspec.Meta(ge=1, le=5)], b: Annotated[str, pydantic.Field(max_length=2)]
    ) -> None: ...

    arguments = as_tool(function).arguments
    assert arguments.bind({"a": 5, "b": "ab"}) == ((), {"a": 5, "b": "ab"})
    with pytest.raises(ShapeError, match="at least 1 and at most 5"):
        arguments.bind({"a": 6, "b": ""})
    with pytest.raises(ShapeError, match="at most 2 characters"):
        arguments.bind({"a": 5, "b": "abc"})

"""What type checkers see of tools: checked by mypy and pyright in strict mode, run here as well."""

from __future__ import annotations

import functools
from collections.abc import Coroutine
from typing import Any, Literal, assert_type

import pytest

from outrider.handlers import Shape, Tool, ToolContext, ToolServer, as_tool, tool


@tool
def plain(a: int, b: str = "x") -> list[int]:
    return [a, len(b)]


@tool(timeout=5, read_only=True)
def with_options(a: int, *, b: str = "x") -> list[int]:
    return [a, len(b)]


@tool
async def later(a: int, ctx: ToolContext | None = None) -> str:
    return str(a)


class Shop:
    @tool
    def method(self, a: int) -> str:
        return str(a)

    @tool(name="other")
    async def async_method(self, a: int, *, b: int = 1) -> str:
        return str(a + b)

    @tool
    @classmethod
    def inner_class(cls, a: int) -> str:
        return str(a)

    @classmethod
    @tool
    def outer_class(cls, a: int) -> str:
        return str(a)

    @tool
    @staticmethod
    def inner_static(a: int) -> str:
        return str(a)

    @staticmethod
    @tool
    def outer_static(a: int) -> str:
        return str(a)


def test_functions_keep_their_signatures() -> None:
    assert_type(plain(1), list[int])
    assert_type(plain(1, b="y"), list[int])
    assert_type(with_options(1, b="y"), list[int])
    assert_type(plain.name, str)
    with pytest.raises(TypeError):
        plain("a", 1)  # type: ignore[arg-type] # pyright: ignore[reportArgumentType]
    with pytest.raises(TypeError):
        with_options(1, "y")  # type: ignore[call-arg] # pyright: ignore[reportCallIssue]


@pytest.mark.anyio
async def test_async_functions_are_awaited_as_before() -> None:
    assert_type(await later(1), str)
    call: Coroutine[Any, Any, str] = later(1)
    assert await call == "1"
    assert_type(await Shop().async_method(1, b=2), str)


def test_methods_are_bound() -> None:
    shop = Shop()
    assert_type(shop.method(1), str)
    # mypy takes what is not bound for a class method.
    assert_type(Shop.method(shop, 1), str)  # type: ignore[call-arg,arg-type]
    assert_type(shop.method.name, str)
    with pytest.raises(TypeError):
        shop.method()  # type: ignore[call-arg] # pyright: ignore[reportCallIssue]


def test_methods_of_classes_are_bound_to_the_class() -> None:
    assert_type(Shop.inner_class(1), str)
    assert_type(Shop().inner_class(1), str)
    assert_type(Shop.outer_class(1), str)
    assert_type(Shop().outer_class(1), str)
    # As above.
    assert_type(Shop.inner_static(1), str)  # type: ignore[call-arg]
    assert_type(Shop.outer_static(1), str)  # type: ignore[call-arg]
    assert_type(Shop().outer_static(1), str)  # type: ignore[call-arg]


def test_other_things_that_can_be_called() -> None:
    made = tool(name="half")(functools.partial(plain, 1))
    assert_type(made(), list[int])
    assert_type(as_tool(made), Tool[..., object])


def test_servers_take_functions_and_tools() -> None:
    def function(a: int) -> int:
        return a

    server = ToolServer("s", [plain, later, function, Shop().method, Shop.inner_class])
    server.add(with_options)
    assert len(server.tools) == 6
    assert_type(server.tools[0], Tool[..., object])


def test_shapes_know_their_types() -> None:
    assert_type(Shape(int).convert(5), int)
    assert_type(Shape(list[str]).convert([]), list[str])
    assert_type(Shape(Literal["a"]).convert("a"), Any)
    assert_type(Shape({"type": "object"}).convert({}), Any)
    assert_type(Shape.for_output(Shop.__name__ and int).convert({"value": 1}), Any)

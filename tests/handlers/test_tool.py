"""`@tool` on everything that can be called: names, descriptions, schemas, and what is refused."""

from __future__ import annotations

import dataclasses
import enum
import functools
import inspect
from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypedDict, cast

import msgspec
import pytest

from outrider.errors import OptionsError
from outrider.handlers import CallContext, Tool, ToolContext, ToolServer, as_tool, tool
from outrider.handlers._tools.tool import AttachedTool
from tests.cases import every_case
from tests.handlers.tooling import Serving, named, text_of

if TYPE_CHECKING:
    from outrider.handlers import CallContext as OnlyForCheckers

Level = Literal["low", "high"]


class Color(enum.Enum):
    RED = "red"


@dataclasses.dataclass
class Point:
    x: int


class Query(TypedDict, total=False):
    text: str


@tool
async def lookup(ticket: int, *, fields: list[str] | None = None) -> str:
    """Fetch a ticket.

    Args:
        ticket: The number.
        fields: Which ones.
    """
    return f"{ticket} {fields}"


@tool
def plain(a: int, b: int = 2) -> int:
    return a + b


class Shop:
    """Tools of each kind that a class can have."""

    name = "shop"

    class Mode(enum.Enum):
        FAST = "fast"

    def __init__(self, owner: str = "me") -> None:
        self.owner = owner

    @tool
    def method(self, item: str, mode: Mode = Mode.FAST) -> str:
        """Buy something."""
        return f"{self.owner} {item} {mode.value}"

    @tool(name="async-method")
    async def async_method(self, item: str) -> str:
        return f"{self.owner} {item}"

    @tool
    @classmethod
    def inner_class(cls, item: str) -> str:
        return f"{cls.name} {item}"

    @classmethod
    @tool
    def outer_class(cls, item: str) -> str:
        return f"{cls.name} {item}"

    @tool
    @staticmethod
    def inner_static(item: str) -> str:
        return item

    @staticmethod
    @tool
    def outer_static(item: str) -> str:
        return item

    @tool
    def unusual(this, item: str) -> str:  # noqa: N805 - a name that nobody uses, on purpose
        return f"{this.owner} {item}"

    @tool
    def itself(self, other: Shop | None = None) -> str:
        raise NotImplementedError


class Caller:
    """Can be called."""

    def __call__(self, item: str) -> str:
        """Call it."""
        return f"called {item}"


def wrapped(function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        return function(*args, **kwargs)

    return wrapper


@wrapped
def decorated(item: str) -> str:
    """Decorated."""
    return f"decorated {item}"


def free(prefix: str, item: str, *, secret: str = "x") -> str:
    """Freely."""
    return f"{prefix} {item} {secret}"


# A tool is still what it was.


@pytest.mark.anyio
async def test_it_can_be_called_as_before() -> None:
    assert plain(1) == 3
    assert plain(1, b=5) == 6
    assert await lookup(7, fields=["a"]) == "7 ['a']"
    assert Shop("you").method("tea") == "you tea fast"
    assert Shop.inner_class("tea") == Shop().outer_class("tea") == "shop tea"
    assert Shop.inner_static("tea") == Shop().outer_static("tea") == "tea"  # type: ignore[call-arg]
    with pytest.raises(TypeError):
        plain()  # type: ignore[call-arg] # pyright: ignore[reportCallIssue]


def test_it_looks_like_the_function() -> None:
    assert isinstance(lookup, Tool)
    assert getattr(lookup, "__name__", None) == "lookup"
    assert lookup.__doc__ is not None
    assert lookup.__doc__.startswith("Fetch a ticket.")
    assert list(inspect.signature(lookup).parameters) == ["ticket", "fields"]
    assert inspect.iscoroutinefunction(lookup.function)
    assert repr(lookup) == "<Tool 'lookup'>"


def test_name_description_and_schema_come_from_the_function() -> None:
    assert lookup.name == "lookup"
    assert lookup.description == "Fetch a ticket."
    assert lookup.input_schema == {
        "type": "object",
        "properties": {
            "ticket": {"type": "integer", "description": "The number."},
            "fields": {
                "anyOf": [{"type": "array", "items": {"type": "string"}}, {"type": "null"}],
                "description": "Which ones.",
                "default": None,
            },
        },
        "required": ["ticket"],
        "additionalProperties": False,
    }
    assert lookup.definition == {
        "name": "lookup",
        "description": "Fetch a ticket.",
        "inputSchema": lookup.input_schema,
    }


def test_what_is_said_of_it_wins_over_the_function() -> None:
    made = tool(
        name="other-name",
        description="Other.",
        title="Title",
        timeout=1.5,
        concurrency=2,
        read_only=True,
        max_result_chars=1000,
        always_load=True,
        search_hint="words",
        meta={"x": 1},
    )(plain.function)
    assert (made.name, made.description, made.title) == ("other-name", "Other.", "Title")
    assert (made.timeout, made.concurrency) == (1.5, 2)
    assert made.definition == {
        "name": "other-name",
        "description": "Other.",
        "title": "Title",
        "inputSchema": plain.input_schema,
        "annotations": {"title": "Title", "readOnlyHint": True},
        "_meta": {
            "anthropic/maxResultSizeChars": 1000,
            "anthropic/alwaysLoad": True,
            "anthropic/searchHint": "words",
            "x": 1,
        },
    }


@pytest.mark.parametrize("value", [True, False])
def test_hints_that_are_false_are_told_as_well(value: bool) -> None:
    made = tool(read_only=value, destructive=value, idempotent=value, open_world=value)(plain.function)
    assert made.annotations == {
        "readOnlyHint": value,
        "destructiveHint": value,
        "idempotentHint": value,
        "openWorldHint": value,
    }
    assert made.definition["annotations"] == made.annotations


def test_hints_that_are_unknown_are_left_out() -> None:
    assert plain.annotations == {}
    assert "annotations" not in plain.definition


def test_a_tool_can_be_made_again_with_another_name() -> None:
    again = tool(name="again")(lookup)
    assert isinstance(again, Tool)
    assert (again.name, again.input_schema) == ("again", lookup.input_schema)
    assert lookup.name == "lookup"


# Each thing that can be called.

FORMS: list[tuple[Any, str, str]] = [
    # thing, name, what it gives for "tea"
    (Shop("you").method, "method", "you tea fast"),
    (Shop("you").async_method, "async-method", "you tea"),
    (Shop.inner_class, "inner_class", "shop tea"),
    (Shop().inner_class, "inner_class", "shop tea"),
    (Shop.outer_class, "outer_class", "shop tea"),
    (Shop().outer_class, "outer_class", "shop tea"),
    (Shop.inner_static, "inner_static", "tea"),
    (Shop().inner_static, "inner_static", "tea"),
    (Shop.outer_static, "outer_static", "tea"),
    (Shop().unusual, "unusual", "me tea"),
    (Caller(), "Caller", "called tea"),
    (decorated, "decorated", "decorated tea"),
    (functools.partial(free, "given", secret="hidden"), "free", "given tea hidden"),
    (functools.partial(functools.partial(free, "a"), secret="b"), "free", "a tea b"),
    (Shop("x").method.function, "method", "x tea fast"),
]


@pytest.mark.anyio
@every_case("thing, name, expected", FORMS, ids=range(len(FORMS)))
async def test_each_form_serves(thing: Any, name: str, expected: str) -> None:
    made = as_tool(thing)
    assert made.name == name
    assert next(iter(made.input_schema["properties"])) == "item"
    assert made.input_schema["required"] == ["item"]
    assert "prefix" not in made.input_schema["properties"]
    assert "secret" not in made.input_schema["properties"]
    assert text_of(await Serving(thing).call(name, item="tea")) == expected


def test_what_a_partial_has_fixed_is_no_business_of_the_model() -> None:
    made = as_tool(functools.partial(free, "given", secret="hidden"))
    assert "hidden" not in str(made.definition)
    with pytest.raises(Exception, match="unknown"):
        made.arguments.bind({"item": "a", "secret": "mine"})


def test_a_method_is_used_through_an_instance() -> None:
    with pytest.raises(OptionsError, match=r"`method` is a method") as caught:
        as_tool(Shop.method)
    assert "thing.method" in caught.value.hint
    # What it takes can be seen all the same.
    assert list(Shop.method.input_schema["properties"]) == ["item", "mode"]


def test_a_class_method_by_itself_is_no_tool() -> None:
    attached = Shop.__dict__["inner_class"]
    assert isinstance(attached, AttachedTool)
    things: list[Any] = [attached, Shop.__dict__["outer_class"]]
    for thing in things:
        with pytest.raises(OptionsError):
            as_tool(thing)


def test_each_instance_has_its_own() -> None:
    one, two = Shop("one"), Shop("two")
    assert (one.method("a"), two.method("a")) == ("one a fast", "two a fast")
    assert one.method.arguments is two.method.arguments


def test_a_tool_in_an_instance_is_not_bound() -> None:
    class Holder:
        static: Any = as_tool(functools.partial(free, "p"))

    assert Holder().static("tea") == "p tea x"


# Parameters.


def schema_of(function: Callable[..., object]) -> Any:
    return as_tool(function).input_schema


def test_types_and_defaults_are_in_the_schema() -> None:
    def function(
        a: Level,
        b: Color = Color.RED,
        c: Point = Point(5),  # noqa: B008 - as users write it
        d: Query | None = None,
        e: Annotated[int, "The e"] = 5,
        f: Annotated[int, msgspec.Meta(ge=1, description="The f")] = 1,
        g: Any = "x",
        h: tuple[int, ...] = (),
    ) -> None: ...

    schema = schema_of(function)
    assert schema["required"] == ["a"]
    assert schema["properties"] == {
        "a": {"enum": ["high", "low"]},
        "b": {"$ref": "#/$defs/Color", "default": "red"},
        "c": {"$ref": "#/$defs/Point", "default": {"x": 5}},
        "d": {"anyOf": [{"$ref": "#/$defs/Query"}, {"type": "null"}], "default": None},
        "e": {"type": "integer", "description": "The e", "default": 5},
        "f": {"type": "integer", "minimum": 1, "description": "The f", "default": 1},
        "g": {"default": "x"},
        "h": {"type": "array", "items": {"type": "integer"}, "default": []},
    }
    assert set(schema["$defs"]) == {"Color", "Point", "Query"}


def test_what_is_not_annotated_takes_anything() -> None:
    made = tool(name="f")(lambda a, b=1: (a, b))
    assert made.input_schema["properties"] == {"a": {}, "b": {"default": 1}}


def test_an_annotation_wins_over_the_docstring() -> None:
    def function(a: Annotated[int, "from the annotation"], b: Annotated[int | None, "b"] = None) -> None:
        """Do it.

        :param a: from the docstring
        :param b: from the docstring
        """

    properties = schema_of(function)["properties"]
    assert properties["a"]["description"] == "from the annotation"
    assert properties["b"]["description"] == "b"


def test_defaults_that_no_model_could_give_are_not_told() -> None:
    missing: Any = object()
    wrong: Any = "no int"

    def function(a: Any = missing, b: int = wrong, c: list[Any] = [missing]) -> None: ...  # noqa: B006

    schema = schema_of(function)
    assert schema["required"] == []
    assert not any("default" in each for each in schema["properties"].values())


def test_other_arguments_are_additional_properties() -> None:
    def some(**others: int) -> None: ...
    def points(**others: Point) -> None: ...
    def any_kind(**others: Any) -> None: ...

    assert schema_of(some)["additionalProperties"] == {"type": "integer"}
    assert schema_of(points)["additionalProperties"] == {"$ref": "#/$defs/Point"}
    assert schema_of(any_kind)["additionalProperties"] is True


def test_positional_parameters_are_named_like_others() -> None:
    def function(a: int, /, b: int, *, c: int) -> None: ...

    assert schema_of(function)["required"] == ["a", "b", "c"]


def test_two_types_of_one_name_are_told_apart() -> None:
    def make(kind: Any) -> Any:
        @dataclasses.dataclass
        class Same:
            x: kind  # pyright: ignore[reportInvalidTypeForm]

        return Same

    one, two = make(int), make(str)
    one.__annotations__["x"], two.__annotations__["x"] = int, str

    def function(a: Any, b: Any) -> None: ...

    function.__annotations__ = {"a": one, "b": two}
    schema = schema_of(function)
    kinds = [schema["$defs"][each["$ref"].rpartition("/")[2]] for each in schema["properties"].values()]
    assert [kind["properties"]["x"]["type"] for kind in kinds] == ["integer", "string"]


# The context.


def test_the_context_is_not_in_the_schema() -> None:
    def by_type(a: int, context: ToolContext) -> None: ...
    def by_base(a: int, context: CallContext) -> None: ...
    def maybe(a: int, context: ToolContext | None = None) -> None: ...
    def described(a: int, context: Annotated[ToolContext | None, "of the call"] = None) -> None: ...
    def for_checkers(a: int, context: OnlyForCheckers) -> None: ...

    by_name = tool(name="by_name")(lambda a, ctx: None)
    functions: list[Callable[..., object]] = [by_type, by_base, maybe, described, by_name]
    for function in functions:
        assert list(schema_of(function)["properties"]) == ["a"]
        assert as_tool(function).arguments.takes_context
    assert not plain.arguments.takes_context
    # Another name for it cannot be known.
    with pytest.raises(OptionsError, match="OnlyForCheckers"):
        as_tool(for_checkers).input_schema  # noqa: B018


def test_a_context_that_is_imported_for_checkers_alone_is_known_by_its_name() -> None:
    def function(a: int, context: Any) -> None: ...

    function.__annotations__["context"] = "outrider.ToolContext"
    assert list(schema_of(function)["properties"]) == ["a"]


def test_a_parameter_named_ctx_that_has_a_type_is_for_the_model() -> None:
    def function(ctx: int) -> None: ...

    assert list(schema_of(function)["properties"]) == ["ctx"]


# Names in annotations.


def test_local_types_are_found() -> None:
    class Local(TypedDict):
        x: Point

    @dataclasses.dataclass
    class Deep:
        local: Local

    @tool
    def function(local: Local, deep: list[Deep]) -> None: ...

    assert set(function.input_schema["$defs"]) == {"Local", "Point", "Deep"}


def test_a_type_that_is_defined_later_is_found_when_it_is_there() -> None:
    @tool
    def function(later: Later) -> None: ...

    with pytest.raises(OptionsError, match=r"tool `test_.*function`: an annotation names .*'Later'"):
        ToolServer("s", [function])
    globals()["Later"] = int
    try:
        assert function.input_schema["properties"] == {"later": {"type": "integer"}}
    finally:
        del globals()["Later"]


if TYPE_CHECKING:
    Later = int


def test_a_class_may_mention_itself_and_is_looked_at_when_it_is_whole() -> None:
    with pytest.raises(OptionsError, match=r"tool `Shop.itself`: parameter `other`: .*Shop"):
        ToolServer("s", [Shop().itself])


def test_what_it_gives_back_need_not_be_known() -> None:
    def function(a: int) -> None: ...

    function.__annotations__["return"] = "Nowhere"
    assert as_tool(function).input_schema["required"] == ["a"]


# A schema of the user's.


def test_a_schema_of_the_users_is_shown_as_it_is() -> None:
    schema = {"type": "object", "oneOf": [{"required": ["a"]}, {"required": ["b"]}], "title": "T"}

    @tool(schema=schema)
    def function(a: int = 0, b: int = 0) -> None: ...

    assert function.input_schema == schema


def test_a_schema_without_a_type_is_that_of_an_object() -> None:
    @tool(schema={"properties": {"a": {"type": "integer"}}})
    def function(**given: Any) -> None: ...

    assert function.input_schema == {"type": "object", "properties": {"a": {"type": "integer"}}}


@pytest.mark.parametrize(
    "schema, said",
    [
        ({"type": "array"}, "must be that of an object"),
        ({"properties": {"a": {}, "c": {}}}, "has `c`, which the function does not take"),
        ({"properties": {}}, "does not have the parameter `a`"),
        ({"default": object()}, "not valid JSON"),
        ([], "`schema`: expected an object or null"),
    ],
)
def test_a_schema_that_does_not_go_with_the_function_is_refused(schema: Any, said: str) -> None:
    with pytest.raises(OptionsError, match=said):

        @tool(schema=schema)
        def function(a: int, b: int = 0) -> None: ...


# What cannot be a tool.


def with_star(*items: str) -> None: ...
def with_own_type(a: Callable[[], None]) -> None: ...
def with_nonsense(a: int) -> None: ...
def generator() -> Any:
    yield 1


async def async_generator() -> Any:
    yield 1


with_nonsense.__annotations__["a"] = "1 +"


class Proxy:
    """Answers to any name, as clients of remote calls do."""

    def __getattr__(self, name: str) -> Proxy:
        return Proxy()

    def __call__(self, *args: object) -> None: ...


def test_an_object_that_answers_to_any_name_is_refused_and_does_not_hang() -> None:
    with pytest.raises(OptionsError, match="cannot be read"):
        tool(name="remote")(Proxy())


@every_case(
    "thing, said, hint",
    [
        (with_star, r"tool `with_star`: parameter `items` takes any number", r"list\[…\]"),
        (with_own_type, r"tool `with_own_type`: parameter `a`: .*Callable", "annotated fields"),
        (
            with_nonsense,
            r"tool `with_nonsense`: the annotation of parameter `a` cannot be read: 1 \+",
            "type",
        ),
        (generator, r"tool `generator` is a generator", "list"),
        (async_generator, r"tool `async_generator` is a generator", "list"),
        (lambda: 1, r"'<lambda>' cannot be the name", "name="),
        (5, r"5 cannot be a tool", "Decorate a function"),
        ("lookup", r"'lookup' cannot be a tool", "Decorate a function"),
        (None, r"None cannot be a tool", "Decorate a function"),
        (Shop, r"Shop'> cannot be a tool", "Decorate a function"),
        (max, r"cannot be read", "annotated parameters"),
    ],
    ids=named,
)
def test_what_cannot_be_a_tool_is_refused_at_once(thing: Any, said: str, hint: str) -> None:
    for make in (lambda: as_tool(thing), lambda: tool()(thing), lambda: ToolServer("s", [thing])):
        with pytest.raises(OptionsError, match=said) as caught:
            make()
        assert hint.replace("\\", "") in caught.value.hint or hint in caught.value.hint


@every_case(
    "field, value",
    [
        ("name", ""),
        ("name", "a b"),
        ("name", "ä"),
        ("name", "x" * 65),
        ("name", 5),
        ("timeout", 0),
        ("timeout", -1),
        ("timeout", float("inf")),
        ("timeout", float("nan")),
        ("timeout", 10**400),
        ("timeout", "5"),
        ("timeout", True),
        ("concurrency", 0),
        ("concurrency", 1.5),
        ("max_result_chars", 0),
        ("max_result_chars", "many"),
        ("read_only", "yes"),
        ("destructive", 1),
        ("always_load", "no"),
        ("search_hint", ["a"]),
        ("description", 5),
        ("title", 5),
        ("meta", 5),
        ("schema", "{}"),
    ],
)
def test_options_that_cannot_work_are_refused_at_once(field: str, value: Any) -> None:
    with pytest.raises(OptionsError, match=r"tool `free`: .*") as caught:
        tool(**{field: value})(free)
    assert repr(value) in str(caught.value) or field in str(caught.value)


def test_unknown_options_are_an_error() -> None:
    with pytest.raises(TypeError):
        cast(Any, tool)(tiemout=5)

"""`convert_leniently`: any JSON object becomes the asked-for class, and loses as little as possible."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Generic, Literal, TypeAlias, TypedDict, TypeVar

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from outrider.wire._tolerant import convert_leniently
from outrider.wire._value import Value


class Point(Value):
    x: int
    y: float = 0.0
    label: str = "origin"


class Circle(Value, tag_field="kind", tag="circle"):
    radius: float
    centre: Point | None = None


class Square(Value, tag_field="kind", tag="square"):
    side: float


class Renamed(Value, rename={"from_": "from", "max_turns": "maxTurns"}):
    from_: str = ""
    max_turns: int | None = None


class Note(TypedDict):
    text: str


NO_NOTE: Any = {}
Choice: TypeAlias = Literal["red", "green"]
OpenChoice: TypeAlias = Choice | str
First: TypeAlias = Literal["a"]
Second: TypeAlias = Literal[1]


class Everything(Value):
    text: str
    count: int
    ratio: float
    flag: bool
    items: list[str]
    table: dict[str, int]
    anything: Any
    maybe: str | None
    point: Point
    choice: Literal["red", "green"]
    nullable_choice: Literal["red", None]  # noqa: PYI061
    shape: Circle | Square
    payload: bytes
    pair: tuple[int, ...]
    unique: set[int]
    numbers: Sequence[int]
    lookup: Mapping[str, Point]
    bare_list: list  # type: ignore[type-arg]  # pyright: ignore[reportMissingTypeArgument]
    bare_dict: dict  # type: ignore[type-arg]  # pyright: ignore[reportMissingTypeArgument]
    note: Note
    raw: msgspec.Raw
    unset: int | msgspec.UnsetType
    level: Annotated[int, msgspec.Meta(ge=0)]
    text_or_points: str | list[Point]
    open_choice: OpenChoice
    two_choices: First | Second


class Drawing(Value):
    shapes: list[Circle | Square] = msgspec.field(default_factory=list[Circle | Square])
    points: list[Point] = msgspec.field(default_factory=list[Point])
    by_name: dict[str, Point] = msgspec.field(default_factory=dict[str, Point])
    background: Circle | str | None = None
    frame: Square | None = None
    mixed: int | list[int] | None = None
    level: Annotated[int, msgspec.Meta(ge=0)] = 5
    tags: Annotated[list[str], msgspec.Meta(max_length=9)] = msgspec.field(default_factory=list[str])
    whole: dict[int, str] = msgspec.field(default_factory=dict[int, str])
    meta: dict[str, Any] = msgspec.field(default_factory=dict[str, Any])
    anything: Any = "default"


class Noted(Value):
    note: Note | None = None
    raw: msgspec.Raw | None = None
    level: int = 0


class Tree(Value):
    name: str = ""
    children: list[Tree] = msgspec.field(default_factory=list["Tree"])
    value: Any = None


T = TypeVar("T")


class Box(Value, Generic[T]):
    content: T
    count: int = 1


class Parcel(Value):
    box: Box[int]
    free: Box[Any] | None = None


def vars_of(value: Value, *names: str) -> list[Any]:
    return [getattr(value, name) for name in names]


class TestExactFit:
    def test_equals_plain_conversion(self) -> None:
        data = {"x": 1, "y": 2, "label": "a", "unknown": [1]}
        assert convert_leniently(Point, data) == msgspec.convert(data, Point) == Point(1, 2.0, "a")

    def test_wire_names(self) -> None:
        assert convert_leniently(Renamed, {"from": "a", "maxTurns": 3.0}) == Renamed("a", 3)
        assert convert_leniently(Renamed, {"from_": "a", "max_turns": "x"}) == Renamed()


class TestOneBadField:
    """Each of these has one field that plain conversion refuses; the others survive."""

    @pytest.mark.parametrize("number, whole", [(1.5, 2), (2.4, 2), (-0.4, 0), (1e300, int(1e300))])
    def test_required_number_is_rounded(self, number: float, whole: int) -> None:
        assert convert_leniently(Point, {"x": number, "label": "kept"}) == Point(whole, 0.0, "kept")

    @pytest.mark.parametrize("bad", [None, "7", [7], {}, True, float("nan"), float("inf")])
    def test_required_number_becomes_zero(self, bad: object) -> None:
        assert convert_leniently(Point, {"x": bad, "label": "kept"}) == Point(0, 0.0, "kept")

    def test_whole_float_is_an_int(self) -> None:
        point = convert_leniently(Point, {"x": 7.0})
        assert point == Point(7)
        assert type(point.x) is int

    def test_missing_required_field(self) -> None:
        assert convert_leniently(Point, {"y": 1.5}) == Point(0, 1.5)

    @pytest.mark.parametrize("bad", [None, 7, [], {}])
    def test_mistyped_field_takes_its_default(self, bad: object) -> None:
        assert convert_leniently(Point, {"x": 1, "label": bad}) == Point(1)

    def test_number_too_large_for_a_float(self) -> None:
        assert convert_leniently(Point, {"x": 1, "y": 10**400}) == Point(1)

    def test_number_of_any_size_is_an_int(self) -> None:
        assert convert_leniently(Point, {"x": 10**30, "label": None}) == Point(10**30)

    def test_defaults_are_not_shared(self) -> None:
        first = convert_leniently(Drawing, {"level": "x"})
        first.points.append(Point(1))
        assert convert_leniently(Drawing, {"level": "x"}).points == []

    def test_lone_surrogates(self) -> None:
        assert convert_leniently(Point, {"x": 1, "\ud800": 1, "label": "\ud800"}).label == "\ud800"
        data = {"text": "kept", "choice": "\ud800"}
        assert convert_leniently(Everything, data).text == "kept"

    def test_keys_that_are_no_text(self) -> None:
        data: Any = {None: 1, 2: 3, "x": 4}
        assert convert_leniently(Point, data) == Point(4)


class TestNothingThere:
    def test_each_type_has_its_empty_value(self) -> None:
        assert convert_leniently(Everything, {}) == Everything(
            text="",
            count=0,
            ratio=0.0,
            flag=False,
            items=[],
            table={},
            anything=None,
            maybe=None,
            point=Point(0),
            choice="red",
            nullable_choice=None,
            shape=Circle(0.0),
            payload=b"",
            pair=(),
            unique=set(),
            numbers=[],
            lookup={},
            bare_list=[],
            bare_dict={},
            note=NO_NOTE,
            raw=msgspec.Raw(b"null"),
            unset=0,
            level=0,
            text_or_points="",
            open_choice="",
            two_choices="a",
        )

    def test_what_is_there_is_kept(self) -> None:
        data: dict[str, Any] = {
            "text": "t",
            "flag": True,
            "table": {"a": 1, "b": "no", "c": 2.0},
            "items": ["a", 1, "b", None],
            "anything": {"deep": [1]},
            "point": {"x": "no", "label": "kept"},
            "shape": {"kind": "square", "side": "no"},
            "pair": [1, "no", 2.0],
            "lookup": {"p": {"x": 3}, "q": 3},
            "bare_list": [1, "a"],
            "bare_dict": {"a": 1},
            "note": {"other": 1},
            "raw": {"a": [1]},
            "level": -1,
            "open_choice": "a new one",
            "text_or_points": [{"x": 1}, {"label": "p"}, 3],
        }
        got = convert_leniently(Everything, data)
        assert got.text == "t"
        assert got.flag is True
        assert got.table == {"a": 1, "c": 2}
        assert got.items == ["a", "b"]
        assert got.anything == {"deep": [1]}
        assert got.point == Point(0, 0.0, "kept")
        assert got.shape == Square(0.0)
        assert got.pair == (1, 2)
        assert got.lookup == {"p": Point(3)}
        assert vars_of(got, "bare_list", "bare_dict", "note") == [[1, "a"], {"a": 1}, {"other": 1}]
        assert bytes(got.raw) == b'{"a":[1]}'
        assert got.level == 0
        assert got.open_choice == "a new one"
        assert got.text_or_points == [Point(1), Point(0, 0.0, "p")]


class TestNested:
    def test_tagged_union_in_a_list(self) -> None:
        data = {
            "shapes": [
                {"kind": "circle", "radius": "no", "centre": {"x": 1}},
                {"kind": "square", "side": 2},
                {"kind": "triangle", "side": 2},
                {"side": 2},
                {"kind": ["square"]},
                None,
                "square",
            ]
        }
        assert convert_leniently(Drawing, data).shapes == [Circle(0.0, Point(1)), Square(2.0)]

    def test_a_class_alone_stands_for_every_object(self) -> None:
        assert convert_leniently(Drawing, {"frame": {"side": 2}}).frame == Square(2.0)
        assert convert_leniently(Drawing, {"frame": {"kind": "circle", "side": 2}}).frame == Square(2.0)
        assert convert_leniently(Drawing, {"frame": 3}).frame is None

    def test_the_asked_for_class_wins_over_the_tag(self) -> None:
        assert convert_leniently(Square, {"kind": "circle", "side": 2}) == Square(2.0)
        assert convert_leniently(Square, {"side": 2}) == Square(2.0)

    @pytest.mark.parametrize(
        "given_value, expected",
        [("blue", "blue"), ({"radius": 1}, Circle(1.0)), (None, None), (3, None), ([], None)],
    )
    def test_union_of_object_and_text(self, given_value: object, expected: object) -> None:
        got = convert_leniently(Drawing, {"background": given_value, "level": "x"})
        assert got.background == expected

    @pytest.mark.parametrize(
        "given_value, expected",
        [(2.0, 2), ([1, "a", 2.0], [1, 2]), ("a", None), (True, None), ("7", None), (["7"], [])],
    )
    def test_union_of_number_and_list(self, given_value: object, expected: object) -> None:
        assert convert_leniently(Drawing, {"mixed": given_value}).mixed == expected

    def test_items_are_mended_before_they_are_dropped(self) -> None:
        data = {"points": [{"x": 1}, {"x": "no", "label": "b"}, 3], "by_name": {"a": {"x": None}, "b": 1}}
        got = convert_leniently(Drawing, data)
        assert got.points == [Point(1), Point(0, 0.0, "b")]
        assert got.by_name == {"a": Point(0)}
        assert convert_leniently(Drawing, {"points": 5, "by_name": [5]}) == Drawing()

    def test_constraints(self) -> None:
        assert convert_leniently(Drawing, {"level": -1}).level == 5
        assert convert_leniently(Drawing, {"level": 3.0}).level == 3
        assert convert_leniently(Drawing, {"tags": ["a", 1]}).tags == ["a"]
        assert convert_leniently(Drawing, {"level": [3]}).level == 5
        # Of a container too much is kept rather than nothing.
        assert convert_leniently(Drawing, {"tags": ["a"] * 10}).tags == ["a"] * 10

    def test_untyped_parts_are_kept_as_they_are(self) -> None:
        meta = {"a": [1, {"b": None}]}
        got = convert_leniently(Drawing, {"meta": meta, "anything": meta, "level": "x"})
        assert vars_of(got, "meta", "anything") == [meta, meta]
        assert vars_of(convert_leniently(Noted, {"note": {"x": 1}, "level": "x"}), "note") == [{"x": 1}]
        assert convert_leniently(Noted, {"note": 7}).note is None
        assert convert_leniently(Drawing, {"anything": None, "level": "x"}).anything is None

    def test_keys_that_are_numbers(self) -> None:
        assert convert_leniently(Drawing, {"whole": {"a": "b"}, "level": 1}).whole == {}

    def test_raw(self) -> None:
        raw = convert_leniently(Noted, {"raw": {"a": 1}}).raw
        assert raw is not None
        assert bytes(raw) == b'{"a":1}'
        assert convert_leniently(Noted, {"raw": "\ud800"}).raw is None
        assert convert_leniently(Everything, {"raw": "\ud800"}).raw == msgspec.Raw(b"null")

    def test_generic_class(self) -> None:
        got = convert_leniently(Parcel, {"box": {"content": "no"}, "free": {"content": "yes", "count": "no"}})
        assert got == Parcel(Box(0), Box("yes"))


def nested(depth: int, leaf: object) -> Any:
    tree: Any = leaf
    for _ in range(depth):
        tree = {"name": "n", "children": [tree]}
    return tree


class TestDepth:
    def test_untyped_depth_does_not_matter(self) -> None:
        deep: Any = []
        for _ in range(100_000):
            deep = [deep]
        got = convert_leniently(Tree, {"name": 1, "value": deep})
        assert got.value is deep

    @pytest.mark.parametrize("leaf", [{"name": "leaf"}, {"name": 7}, 7])
    def test_typed_depth_is_cut_not_raised(self, leaf: object) -> None:
        got = convert_leniently(Tree, nested(20 * sys.getrecursionlimit(), leaf))
        depth = 0
        while got.children:
            got, depth = got.children[0], depth + 1
            assert got.name == "n"
        assert depth > 10

    def test_damage_far_down_costs_nothing_above(self) -> None:
        got = convert_leniently(Tree, nested(20, {"name": 7, "value": "kept"}))
        for _ in range(20):
            assert got.name == "n"
            (got,) = got.children
        assert got == Tree(value="kept")


json_values: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=5,
)
KINDS: list[type[Value]] = [Point, Circle, Renamed, Everything, Drawing, Tree, Parcel]


@st.composite
def near_misses(draw: st.DrawFn) -> tuple[type[Value], dict[str, Any]]:
    """Objects with the right keys and any values."""
    kind = draw(st.sampled_from(KINDS))
    names = [field.encode_name for field in msgspec.structs.fields(kind)]
    shapes = st.fixed_dictionaries(
        {"kind": st.sampled_from(["circle", "square", "triangle"])},
        optional={"radius": json_values, "side": json_values, "x": json_values, "centre": json_values},
    )
    values = json_values | shapes | st.lists(shapes, max_size=3)
    return kind, draw(st.dictionaries(st.sampled_from(names), values, max_size=8))


@given(near_misses())
def test_never_raises_and_the_result_is_well_typed(case: tuple[type[Value], dict[str, Any]]) -> None:
    kind, data = case
    got = convert_leniently(kind, data)
    assert type(got) is kind
    again = msgspec.to_builtins(got, builtin_types=(bytes, msgspec.Raw))
    if kind is not Everything:  # the empty value of a TypedDict is not one that it would accept
        assert repr(msgspec.convert(again, kind)) == repr(got)


@given(near_misses())
def test_agrees_with_plain_conversion(case: tuple[type[Value], dict[str, Any]]) -> None:
    kind, data = case
    try:
        expected = msgspec.convert(data, kind)
    except (msgspec.ValidationError, ValueError):
        return
    assert repr(convert_leniently(kind, data)) == repr(expected)

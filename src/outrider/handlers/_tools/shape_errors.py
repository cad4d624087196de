"""Explains why a JSON value does not fit a type or a schema: every place, what was expected, what was found.

msgspec names only the first error, so a value that it rejects is examined again here. `jsonschema` checks
values against schemas; it is loaded on first use, checks no formats and fetches nothing. Also merges the
definitions of schemas. Does not convert values: `shape` does.
"""

from __future__ import annotations

import datetime as dt
import decimal
import json
import re
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property
from importlib import import_module
from importlib.util import find_spec
from itertools import islice
from typing import Annotated, Any, Final, Literal, Protocol, Self, TypeAlias, cast

import msgspec
from msgspec import inspect as nodes

from outrider.errors import OptionsError
from outrider.options._validators import is_list
from outrider.wire import JsonObject
from outrider.wire._tolerant import is_object


class ValidationError(Protocol):
    """What the library says of a value that is not valid."""

    message: str
    """What is wrong, without the place."""
    absolute_path: Sequence[str | int]
    """The place: names and positions, from the whole value downwards."""
    validator: str | None
    """The keyword that is not met, such as `required`."""
    validator_value: Any
    """What the schema says there."""
    instance: Any
    """The part of the value that is not valid."""


class _Validator(Protocol):
    def iter_errors(self, instance: object, /) -> Iterator[ValidationError]: ...

    def evolve(self, *, schema: object) -> Self: ...


class JsonSchema:
    """A JSON Schema, compiled when the first value is checked.

    Where a schema is not valid itself, values are: what cannot be decided is left to whoever takes them.
    `extra` is what brings the library; raises `OptionsError` where it is missing.
    """

    def __init__(self, schema: object, *, extra: str) -> None:
        if find_spec("jsonschema") is None:
            raise OptionsError(
                "Checking a value against a JSON Schema needs jsonschema, which is not installed",
                hint=f"Run: pip install 'outrider[{extra}]'",
            )
        self._schema = schema

    def is_valid(self, value: object, part: object = None) -> bool:
        """Whether a value is as the schema says, or as a part of it says."""
        return next(self._errors(value, part), None) is None

    def errors(self, value: object) -> list[ValidationError]:
        """All that is wrong with a value."""
        return list(self._errors(value))

    def best_error(self, value: object) -> ValidationError | None:
        """The one error that says most. One near the top says more than those below it."""
        library = import_module("jsonschema.exceptions")
        return cast("ValidationError | None", library.best_match(self._errors(value)))

    def _errors(self, value: object, part: object = None) -> Iterator[ValidationError]:
        validator = self._validator
        if validator is None:
            return
        unresolvable: type[Exception] = import_module("referencing.exceptions").Unresolvable
        try:
            yield from (validator if part is None else validator.evolve(schema=part)).iter_errors(value)
        except (re.error, unresolvable):
            # A pattern of another language, or a reference to nothing.
            return

    @cached_property
    def _validator(self) -> _Validator | None:
        """For the draft that the schema names, or the first one by which it is valid."""
        schema = self._schema
        if not isinstance(schema, bool | dict):
            return None
        library, registry = import_module("jsonschema"), import_module("referencing").Registry()
        newest, seventh, fourth = (
            getattr(library, f"Draft{draft}Validator") for draft in ("202012", "7", "4")
        )
        named = newest
        if isinstance(schema, dict) and isinstance(cast("JsonObject", schema).get("$schema"), str):
            named = library.validators.validator_for(schema, default=newest)
        for draft in (named, seventh, fourth):
            try:
                draft.check_schema(schema, format_checker=None)
            except library.SchemaError:
                continue
            # With a registry of its own it does not look for schemas on the network.
            return cast("_Validator", draft(schema, registry=registry))
        return None


# Definitions of JSON Schemas.

_REF: Final = "#/$defs/"
_DATA: Final = frozenset(("const", "default", "enum", "example", "examples"))
"""What is not a schema in a schema."""
_NAMED: Final = frozenset(("properties", "patternProperties", "$defs", "definitions", "dependentSchemas"))
"""What holds schemas by names that anybody may choose."""


def unfolded(schema: JsonObject) -> JsonObject:
    """The schema with what it is at its top, where it would only refer to it."""
    reference = schema.get("$ref")
    if not isinstance(reference, str) or not reference.startswith(_REF):
        return schema
    name = reference.removeprefix(_REF)
    definitions = dict(schema["$defs"])
    body = definitions[name]
    rest = {key: value for key, value in schema.items() if key not in ("$ref", "$defs")}
    if not any(reference in references(each) for each in definitions.values()):
        del definitions[name]
    top = {**body, **rest}
    return {**top, "$defs": definitions} if definitions else top


def references(schema: object) -> set[str]:
    """All that a schema refers to."""
    found: set[str] = set()

    def note(reference: str) -> str:
        found.add(reference)
        return reference

    _rewritten(schema, note)
    return found


class Definitions:
    """The definitions of several schemas in one place; those that share a name without being equal get
    names of their own."""

    def __init__(self) -> None:
        self.all: Final[dict[str, Any]] = {}

    def hoist(self, schema: JsonObject) -> JsonObject:
        """Take the definitions of a schema; gives the rest of it, which refers to them here."""
        renamed = {name: self._place(name, body) for name, body in schema.get("$defs", {}).items()}

        def moved(reference: str) -> str:
            name = reference.removeprefix(_REF)
            return _REF + renamed.get(name, name) if reference.startswith(_REF) else reference

        for name, new in renamed.items():
            self.all[new] = _rewritten(schema["$defs"][name], moved)
        rest = {key: value for key, value in schema.items() if key != "$defs"}
        moved_rest: JsonObject = _rewritten(rest, moved)
        return moved_rest

    def _place(self, name: str, body: object) -> str:
        new, number = name, 2
        while new in self.all and self.all[new] != body:
            new, number = f"{name}_{number}", number + 1
        self.all.setdefault(new, body)
        return new


def _rewritten(schema: Any, change: Callable[[str], str], *, is_names: bool = False) -> Any:  # noqa: ANN401 - any part of a schema
    """A copy of a schema with its references changed."""
    if isinstance(schema, list):
        return [_rewritten(each, change) for each in cast("list[object]", schema)]
    if not is_object(schema):
        return schema
    copy: JsonObject = {}
    for key, value in schema.items():
        if is_names:
            copy[key] = _rewritten(value, change)
        elif key == "$ref" and isinstance(value, str):
            copy[key] = change(value)
        elif key in _DATA:
            copy[key] = value
        else:
            copy[key] = _rewritten(value, change, is_names=key in _NAMED)
    return copy


# Errors.

_SHOWN: Final = 80
"""Characters of a value that are shown."""
_LISTED: Final = 20
"""Choices that are named."""
_MOST: Final = 20
"""Errors that are listed: more of them have another cause."""
_LONGEST_PATH: Final = 200
"""Characters of a place that are shown: models choose the names in it."""
_ENCODER: Final = json.JSONEncoder(ensure_ascii=False, default=str)

_Record: TypeAlias = nodes.StructType | nodes.DataclassType | nodes.TypedDictType
_AT: Final = re.compile(r"(?s)(.*?)(?: - at `(?:(key)` in `)?\$(.*)`)?")


class ShapeError(ValueError):
    """A JSON value does not fit a type; `errors` says where and why, one text for each place, twenty at the
    most."""

    def __init__(self, errors: list[str]) -> None:
        self.errors: Final = tuple(errors[:_MOST])
        super().__init__("; ".join(self.errors))


def named(path: str, what: str) -> str:
    """An error, with its place if it has one."""
    return f"`{_cut(path, _LONGEST_PATH)}`: {what}" if path else what


def shown(value: object) -> str:
    """A JSON value, cut if it is long."""
    text = ""
    # Piece by piece: the rest of it may be very long, or very deep.
    for piece in _ENCODER.iterencode(value[:_SHOWN] if isinstance(value, str) else value):
        text += piece
        if len(text) > _SHOWN:
            break
    return _cut(text, _SHOWN)


def _cut(text: str, most: int) -> str:
    return text if len(text) <= most else f"{text[: most - 1]}…"


def native_errors(
    kind: object, value: object, path: str, error: Exception, convert: Callable[[object, Any], object]
) -> list[str]:
    """All that is wrong with a value that msgspec has refused with this error, at most twenty."""
    finder = _Finder(convert)
    try:
        found = finder.all(nodes.type_info(kind), value, path)
    except (TypeError, RecursionError, NameError):
        found = []
    return found or [_said(error, path)]


def _said(error: Exception, path: str) -> str:
    """What msgspec says, with its place in our words."""
    match = _AT.fullmatch(str(error))
    assert match is not None
    return named((path + (match[3] or "")).lstrip("."), match[1])


class _Finder:
    def __init__(self, convert: Callable[[object, Any], object]) -> None:
        self._convert = convert

    def all(self, node: nodes.Type, value: object, path: str) -> list[str]:
        return list(islice(self._find(node, value, path), _MOST))

    def _find(self, node: nodes.Type, value: object, path: str) -> Iterator[str]:
        node = _bare(node)
        match node:
            case nodes.UnionType():
                yield from self._union(node, value, path)
            case nodes.TupleType() if isinstance(value, list):
                yield from self._tuple(node, cast("list[object]", value), path)
            case nodes.CollectionType() if isinstance(value, list):
                yield from self._items(node, cast("list[object]", value), path)
            case nodes.DictType() if isinstance(value, dict):
                yield from self._mapping(node, cast("dict[str, object]", value), path)
            case nodes.StructType(array_like=True) | nodes.NamedTupleType() if isinstance(value, list):
                yield from self._row(node, cast("list[object]", value), path)
            case nodes.StructType(array_like=True):
                yield named(path, f"expected {described(node)}, got {shown(value)}")
            case nodes.StructType() | nodes.DataclassType() | nodes.TypedDictType() if isinstance(
                value, dict
            ):
                yield from self._record(node, cast("dict[str, object]", value), path)
            case _ if not self._fits(node, value):
                yield named(path, f"expected {described(node)}, got {shown(value)}")
            case _:
                pass

    def _fits(self, node: nodes.Type, value: object) -> bool:
        kind = _leaf(node)
        if kind is None:
            return False
        try:
            self._convert(value, kind)
        except msgspec.ValidationError:
            return False
        return True

    def _union(self, node: nodes.UnionType, value: object, path: str) -> Iterator[str]:
        members = [_bare(each) for each in node.types]
        alike: Sequence[nodes.Type]
        # The one that is built like the value, if there is just one; records are told apart by their tags.
        kind = "object" if is_object(value) else "array" if is_list(value) else "other"
        alike = [each for each in members if _json_kind(each) == kind]
        records = [each for each in alike if isinstance(each, nodes.StructType)]
        if len(records) > 1 and is_object(value):
            field = records[0].tag_field or ""
            tag: object = value.get(field)
            alike = [each for each in records if each.tag == tag]
            if not alike:
                tags = ", ".join(shown(each.tag) for each in records)
                yield named(f"{path}.{field}".lstrip("."), f"expected one of {tags}, got {shown(tag)}")
                return
        if len(alike) == 1 and isinstance(value, (dict, list)):
            yield from self._find(alike[0], cast(object, value), path)
        elif not any(self._fits(each, value) for each in members):
            yield named(path, f"expected {described(node)}, got {shown(value)}")

    def _items(self, node: nodes.CollectionType, value: list[object], path: str) -> Iterator[str]:
        yield from _length_errors(node.min_length, node.max_length, "items", len(value), path)
        for index, item in enumerate(value):
            yield from self._find(node.item_type, item, f"{path}[{index}]")

    def _tuple(self, node: nodes.TupleType, value: list[object], path: str) -> Iterator[str]:
        if len(node.item_types) != len(value):
            yield named(path, f"expected {len(node.item_types)} items, got {len(value)}")
            return
        for index, (inner, item) in enumerate(zip(node.item_types, value, strict=True)):
            yield from self._find(inner, item, f"{path}[{index}]")

    def _mapping(self, node: nodes.DictType, value: dict[str, object], path: str) -> Iterator[str]:
        yield from _length_errors(node.min_length, node.max_length, "keys", len(value), path)
        key_kind = _leaf(_bare(node.key_type))
        for key, item in value.items():
            at = f"{path}[{shown(key)}]"
            try:
                self._convert({key: None}, dict[key_kind, None])  # type: ignore[valid-type]
            except msgspec.ValidationError:
                yield named(path, f"the key {shown(key)} is not {described(node.key_type)}")
                continue
            yield from self._find(node.value_type, item, at)

    def _row(
        self, node: nodes.StructType | nodes.NamedTupleType, value: list[object], path: str
    ) -> Iterator[str]:
        least = sum(field.required for field in node.fields)
        if len(value) < least:
            yield named(path, f"expected at least {least} items, got {len(value)}")
        for index, (field, item) in enumerate(zip(node.fields, value, strict=False)):
            yield from self._find(field.type, item, f"{path}[{index}]")

    def _record(self, node: _Record, value: dict[str, object], path: str) -> Iterator[str]:
        for field in node.fields:
            at = f"{path}.{field.encode_name}".lstrip(".")
            if field.encode_name in value:
                yield from self._find(field.type, value[field.encode_name], at)
            elif field.required:
                yield named(at, f"missing, expected {described(field.type)}")
        if isinstance(node, nodes.StructType):
            tag = value.get(node.tag_field) if node.tag_field else node.tag
            if tag != node.tag:
                yield named(
                    f"{path}.{node.tag_field}".lstrip("."), f"expected {shown(node.tag)}, got {shown(tag)}"
                )
            if node.forbid_unknown_fields:
                known = {field.encode_name for field in node.fields} | {node.tag_field}
                for key in value:
                    if key not in known:
                        yield named(f"{path}.{key}".lstrip("."), "unknown")


def _bare(node: nodes.Type) -> nodes.Type:
    while isinstance(node, nodes.Metadata):
        node = node.type
    return node


def _length_errors(least: int | None, most: int | None, what: str, length: int, path: str) -> Iterator[str]:
    if least is not None and length < least:
        yield named(path, f"expected at least {least} {what}, got {length}")
    if most is not None and length > most:
        yield named(path, f"expected at most {most} {what}, got {length}")


# A type that has nothing inside, made again from what is known of it.

_KINDS: Final[Mapping[type[nodes.Type], Any]] = {
    nodes.AnyType: Any,
    nodes.NoneType: type(None),
    nodes.BoolType: bool,
    nodes.IntType: int,
    nodes.FloatType: float,
    nodes.StrType: str,
    nodes.BytesType: bytes,
    nodes.ByteArrayType: bytes,
    nodes.MemoryViewType: bytes,
    nodes.DateTimeType: dt.datetime,
    nodes.TimeType: dt.time,
    nodes.DateType: dt.date,
    nodes.TimeDeltaType: dt.timedelta,
    nodes.UUIDType: uuid.UUID,
    nodes.DecimalType: decimal.Decimal,
}


def _leaf(node: nodes.Type) -> Any:  # noqa: ANN401 - a type, or a form of one
    """The type; None if it is made of others, for a value that has not their form."""
    if isinstance(node, nodes.EnumType | nodes.CustomType):
        return node.cls
    if isinstance(node, nodes.LiteralType):
        return Literal[node.values]
    kind = _KINDS.get(type(node))
    names = (*(name for name, _ in _LIMITS), "tz")
    limits = {name: limit for name in names if (limit := getattr(node, name, None)) is not None}
    return Annotated[kind, msgspec.Meta(**limits)] if limits and kind is not None else kind


# The same in words.

_WORDS: Final[dict[type[nodes.Type], str]] = {
    nodes.AnyType: "any value",
    nodes.NoneType: "null",
    nodes.BoolType: "true or false",
    nodes.IntType: "a whole number",
    nodes.FloatType: "a number",
    nodes.StrType: "text",
    nodes.BytesType: "bytes as base64 text",
    nodes.ByteArrayType: "bytes as base64 text",
    nodes.MemoryViewType: "bytes as base64 text",
    nodes.DateType: 'a date such as "2025-01-31"',
    nodes.TimeDeltaType: 'a duration such as "PT1H30M"',
    nodes.UUIDType: "a UUID",
    nodes.DecimalType: 'a decimal number as text, such as "1.50"',
    nodes.TypedDictType: "an object",
    nodes.DataclassType: "an object",
    nodes.NamedTupleType: "a list",
}
_MANY: Final[Mapping[type[nodes.Type], str]] = {
    nodes.StrType: "texts",
    nodes.IntType: "whole numbers",
    nodes.FloatType: "numbers",
}
_LIMITS: Final = (
    ("ge", "at least {}"),
    ("gt", "more than {}"),
    ("le", "at most {}"),
    ("lt", "less than {}"),
    ("multiple_of", "a multiple of {}"),
    ("min_length", "at least {} long"),
    ("max_length", "at most {} long"),
    ("pattern", "matching {}"),
)


def described(node: nodes.Type) -> str:
    """What belongs there, in words."""
    node = _bare(node)
    match node:
        case nodes.DateTimeType():
            zone = {True: " with a time zone", False: " without a time zone"}.get(cast(bool, node.tz), "")
            example = "2025-01-31T12:00:00" + ("" if node.tz is False else "Z")
            return f'a date and time{zone} such as "{example}"'
        case nodes.TimeType():
            return 'a time such as "12:00:00"'
        case nodes.EnumType():
            return _choice([each.value for each in node.cls])
        case nodes.LiteralType():
            return _choice(list(node.values))
        case nodes.UnionType():
            words = list(dict.fromkeys(described(each) for each in node.types))
            return " or ".join(words)
        case nodes.CollectionType():
            many = _MANY.get(type(_bare(node.item_type)))
            return "a list" if many is None else f"a list of {many}"
        case nodes.TupleType():
            return f"a list of {len(node.item_types)} items"
        case nodes.DictType():
            return "an object"
        case nodes.StructType():
            return "a list" if node.array_like else "an object"
        case nodes.CustomType():
            return "a path" if node.cls.__name__.endswith("Path") else f"a {node.cls.__name__}"
        case _:
            return _with_limits(_WORDS.get(type(node), type(node).__name__), node)


def _choice(values: list[Any]) -> str:
    choices = [shown(value) for value in values[:_LISTED]]
    more = [f"{len(values) - _LISTED} more"] if len(values) > _LISTED else []
    return choices[0] if len(values) == 1 else f"one of {', '.join(choices + more)}"


def _with_limits(what: str, node: nodes.Type) -> str:
    limits = [
        text.format(repr(limit) if name == "pattern" else limit)
        for name, text in _LIMITS
        if (limit := getattr(node, name, None)) is not None
    ]
    return f"{what}, {' and '.join(limits)}" if limits else what


# Which of the six kinds of JSON values a type is written as.


def _json_kind(node: nodes.Type) -> str:
    match node:
        case nodes.DictType() | nodes.TypedDictType() | nodes.DataclassType():
            return "object"
        case nodes.StructType():
            return "array" if node.array_like else "object"
        case nodes.CollectionType() | nodes.TupleType() | nodes.NamedTupleType():
            return "array"
        case _:
            return "other"

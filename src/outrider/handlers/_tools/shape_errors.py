"""Explains why a JSON value does not fit a type or a schema: every place, what was expected, what was found.

msgspec names only the first error, so a value that it rejects is examined again here.
"""

from __future__ import annotations

import datetime as dt
import decimal
import json
import re
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from importlib import import_module
from itertools import islice, repeat
from typing import Annotated, Any, Final, Literal, Protocol, Self, TypeAlias, cast

import msgspec
from msgspec import inspect as nodes

from outrider.errors import OptionsError
from outrider.options._validators import is_list
from outrider.wire import JsonObject
from outrider.wire._tolerant import is_object


class ValidationError(Protocol):
    message: str
    """The error, without the place."""
    absolute_path: Sequence[str | int]
    """The place: names and indexes, from the whole value downwards."""
    validator: str | None
    """The keyword that failed, such as `required`."""
    validator_value: Any
    """The value of that keyword."""
    instance: Any
    """The invalid part of the value."""


class _Validator(Protocol):
    def iter_errors(self, instance: object, /) -> Iterator[ValidationError]: ...

    def evolve(self, *, schema: object) -> Self: ...


class JsonSchema:
    """A JSON Schema, compiled when the first value is checked. If the schema itself is invalid, every value
    is valid: the receiver decides. `extra` names the extra with the library; raises `OptionsError` if that is
    not installed."""

    def __init__(self, schema: object, *, extra: str) -> None:
        # Here: a program that only defines tools gets by without it.
        from importlib.util import find_spec

        if find_spec("jsonschema") is None:
            raise OptionsError(
                "Checking a value against a JSON Schema needs jsonschema, which is not installed",
                hint=f"Run: pip install 'outrider[{extra}]'",
            )
        self._schema = schema

    def is_valid(self, value: object, part: object = None) -> bool:
        """Whether a value is valid by the schema, or by a part of it."""
        return next(self._errors(value, part), None) is None

    def errors(self, value: object) -> list[ValidationError]:
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
        """For the draft that the schema names, or the first draft by which it is valid."""
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
            # An empty registry keeps it from fetching schemas.
            return cast("_Validator", draft(schema, registry=registry))
        return None


# Definitions of JSON Schemas.

_REF: Final = "#/$defs/"
_DATA: Final = frozenset(("const", "default", "enum", "example", "examples"))
"""Keywords whose values are data."""
_NAMED: Final = frozenset(("properties", "patternProperties", "$defs", "definitions", "dependentSchemas"))
"""Keywords whose values hold schemas by free names."""


def unfolded(schema: JsonObject) -> JsonObject:
    """The schema with its definition at the top, if it is only a reference to it."""
    reference = schema.get("$ref")
    if not isinstance(reference, str) or not reference.startswith(_REF):
        return schema
    name = reference.removeprefix(_REF)
    definitions = dict(schema["$defs"])
    body = definitions[name]
    rest = {key: value for key, value in schema.items() if key not in ("$ref", "$defs")}
    if f'"{reference}"'.encode() not in msgspec.json.encode(definitions):
        del definitions[name]
    top = {**body, **rest}
    return {**top, "$defs": definitions} if definitions else top


class Definitions:
    """The definitions of several schemas in one place; different ones with the same name are renamed."""

    def __init__(self) -> None:
        self.all: Final[dict[str, Any]] = {}

    def hoist(self, schema: JsonObject) -> JsonObject:
        """Move the definitions of a schema here, and return the rest of it."""
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
"""How many choices are listed."""
_MOST: Final = 20
"""How many errors are listed."""
_LONGEST_PATH: Final = 200
"""Characters of a path that are shown: models choose the names in it."""
_ENCODER: Final = json.JSONEncoder(ensure_ascii=False, default=str)

_AT: Final = re.compile(r"(?s)(.*?)(?: - at `(?:(key)` in `)?\$(.*)`)?")


class ShapeError(ValueError):
    """A JSON value does not fit a type. `errors` has a text for each place, at most twenty."""

    def __init__(self, errors: list[str]) -> None:
        self.errors: Final = tuple(errors[:_MOST])
        super().__init__("; ".join(self.errors))


def named(path: str, what: str) -> str:
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
    """The errors of a value that msgspec rejected with this one, at most twenty."""
    try:
        found = list(islice(_Finder(convert).find(nodes.type_info(kind), value, path), _MOST))
    except (TypeError, RecursionError, NameError):
        found = []
    return found or [_said(error, path)]


def _said(error: Exception, path: str) -> str:
    """The message of msgspec, with the place as it is written here."""
    match = _AT.fullmatch(str(error))
    assert match is not None
    return named((path + (match[3] or "")).lstrip("."), match[1])


class _Finder:
    def __init__(self, convert: Callable[[object, Any], object]) -> None:
        self._convert = convert

    def find(self, node: nodes.Type, value: object, path: str) -> Iterator[str]:
        node = _bare(node)
        row = _row(node)
        if isinstance(node, nodes.UnionType):
            yield from self._union(node, value, path)
        elif row is not None and is_list(value):
            kinds, least, most = row
            yield from _length_errors(least, most, "items", len(value), path)
            for index, (inner, item) in enumerate(zip(kinds, value, strict=False)):
                yield from self.find(inner, item, f"{path}[{index}]")
        elif row is None and isinstance(node, _RECORDS) and is_object(value):
            yield from self._record(node, value, path)
        elif isinstance(node, nodes.DictType) and is_object(value):
            yield from self._mapping(node, value, path)
        elif not self._fits(node, value):
            yield named(path, f"expected {described(node)}, got {shown(value)}")

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
        if is_object(value) or is_list(value):
            # The member that is built like the value, if there is just one; records differ in their tags.
            alike = [each for each in members if _is_built_like(each, value)]
            records = [each for each in alike if isinstance(each, nodes.StructType)]
            if len(records) > 1 and is_object(value):
                field = records[0].tag_field or ""
                tag: object = value.get(field)
                alike = [each for each in records if each.tag == tag]
                if not alike:
                    tags = ", ".join(shown(each.tag) for each in records)
                    yield named(_joined(path, field), f"expected one of {tags}, got {shown(tag)}")
                    return
            if len(alike) == 1:
                yield from self.find(alike[0], value, path)
                return
        if not any(self._fits(each, value) for each in members):
            yield named(path, f"expected {described(node)}, got {shown(value)}")

    def _mapping(self, node: nodes.DictType, value: JsonObject, path: str) -> Iterator[str]:
        yield from _length_errors(node.min_length, node.max_length, "keys", len(value), path)
        key_kind = _leaf(_bare(node.key_type))
        for key, item in value.items():
            try:
                self._convert({key: None}, dict[key_kind, None])  # type: ignore[valid-type]
            except msgspec.ValidationError:
                yield named(path, f"the key {shown(key)} is not {described(node.key_type)}")
            else:
                yield from self.find(node.value_type, item, f"{path}[{shown(key)}]")

    def _record(self, node: _Record, value: JsonObject, path: str) -> Iterator[str]:
        for field in node.fields:
            at = _joined(path, field.encode_name)
            if field.encode_name in value:
                yield from self.find(field.type, value[field.encode_name], at)
            elif field.required:
                yield named(at, f"missing, expected {described(field.type)}")
        if not isinstance(node, nodes.StructType):
            return
        if node.tag_field and (tag := value.get(node.tag_field)) != node.tag:
            yield named(_joined(path, node.tag_field), f"expected {shown(node.tag)}, got {shown(tag)}")
        if node.forbid_unknown_fields:
            known = {field.encode_name for field in node.fields} | {node.tag_field}
            yield from (named(_joined(path, key), "unknown") for key in value if key not in known)


def _joined(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name


def _length_errors(least: int | None, most: int | None, what: str, length: int, path: str) -> Iterator[str]:
    if least is not None and least == most != length:
        yield named(path, f"expected {least} {what}, got {length}")
    elif least is not None and length < least:
        yield named(path, f"expected at least {least} {what}, got {length}")
    elif most is not None and length > most:
        yield named(path, f"expected at most {most} {what}, got {length}")


# Types, as msgspec describes them.

_Record: TypeAlias = nodes.StructType | nodes.DataclassType | nodes.TypedDictType
_RECORDS: Final = (nodes.StructType, nodes.DataclassType, nodes.TypedDictType)

_LEAVES: Final[Mapping[type[nodes.Type], tuple[Any, str]]] = {
    nodes.AnyType: (Any, "any value"),
    nodes.NoneType: (type(None), "null"),
    nodes.BoolType: (bool, "true or false"),
    nodes.IntType: (int, "a whole number"),
    nodes.FloatType: (float, "a number"),
    nodes.StrType: (str, "text"),
    nodes.BytesType: (bytes, "bytes as base64 text"),
    nodes.ByteArrayType: (bytes, "bytes as base64 text"),
    nodes.MemoryViewType: (bytes, "bytes as base64 text"),
    nodes.DateTimeType: (dt.datetime, "a date and time"),
    nodes.TimeType: (dt.time, 'a time such as "12:00:00"'),
    nodes.DateType: (dt.date, 'a date such as "2025-01-31"'),
    nodes.TimeDeltaType: (dt.timedelta, 'a duration such as "PT1H30M"'),
    nodes.UUIDType: (uuid.UUID, "a UUID"),
    nodes.DecimalType: (decimal.Decimal, 'a decimal number as text, such as "1.50"'),
}
"""Types with nothing inside, and what they are called."""
_MANY: Final[Mapping[type[nodes.Type], str]] = {
    nodes.StrType: "texts",
    nodes.IntType: "whole numbers",
    nodes.FloatType: "numbers",
}
_LIMITS: Final = {
    "ge": "at least {}",
    "gt": "more than {}",
    "le": "at most {}",
    "lt": "less than {}",
    "multiple_of": "a multiple of {}",
    "min_length": "at least {} long",
    "max_length": "at most {} long",
    "pattern": "matching {!r}",
}


def _bare(node: nodes.Type) -> nodes.Type:
    while isinstance(node, nodes.Metadata):
        node = node.type
    return node


def _row(node: nodes.Type) -> tuple[Iterable[nodes.Type], int | None, int | None] | None:
    """The types of the items of what JSON writes as a list, and how many there may be; None for the rest."""
    match node:
        case nodes.TupleType():
            return node.item_types, len(node.item_types), len(node.item_types)
        case nodes.CollectionType():
            return repeat(node.item_type), node.min_length, node.max_length
        case nodes.NamedTupleType() | nodes.StructType(array_like=True):
            return [each.type for each in node.fields], sum(each.required for each in node.fields), None
        case _:
            return None


def _is_built_like(node: nodes.Type, value: object) -> bool:
    is_row = _row(node) is not None
    return is_row if is_list(value) else not is_row and isinstance(node, (nodes.DictType, *_RECORDS))


def _leaf(node: nodes.Type) -> Any:  # noqa: ANN401 - a type, or a form of one
    """A type with nothing inside, made again from its description; None for any other."""
    if isinstance(node, nodes.EnumType | nodes.CustomType):
        return node.cls
    if isinstance(node, nodes.LiteralType):
        return Literal[node.values]
    kind, _ = _LEAVES.get(type(node), (None, ""))
    limits = {name: limit for name in (*_LIMITS, "tz") if (limit := getattr(node, name, None)) is not None}
    return Annotated[kind, msgspec.Meta(**limits)] if limits and kind is not None else kind


def described(node: nodes.Type) -> str:
    node = _bare(node)
    match node:
        case nodes.DateTimeType():
            zone = {True: " with a time zone", False: " without a time zone"}.get(cast(bool, node.tz), "")
            example = "2025-01-31T12:00:00" + ("" if node.tz is False else "Z")
            return f'a date and time{zone} such as "{example}"'
        case nodes.EnumType():
            return _choice([each.value for each in node.cls])
        case nodes.LiteralType():
            return _choice(list(node.values))
        case nodes.UnionType():
            return " or ".join(dict.fromkeys(described(each) for each in node.types))
        case nodes.CollectionType():
            many = _MANY.get(type(_bare(node.item_type)))
            return "a list" if many is None else f"a list of {many}"
        case nodes.TupleType():
            return f"a list of {len(node.item_types)} items"
        case nodes.CustomType():
            return "a path" if node.cls.__name__.endswith("Path") else f"a {node.cls.__name__}"
        case _ if type(node) in _LEAVES:
            limits = [
                words.format(limit)
                for name, words in _LIMITS.items()
                if (limit := getattr(node, name, None)) is not None
            ]
            return ", ".join(filter(None, (_LEAVES[type(node)][1], " and ".join(limits))))
        case _:
            return "an object" if _row(node) is None else "a list"


def _choice(values: list[Any]) -> str:
    choices = [shown(value) for value in values[:_LISTED]]
    more = [f"{len(values) - _LISTED} more"] if len(values) > _LISTED else []
    return choices[0] if len(values) == 1 else f"one of {', '.join(choices + more)}"

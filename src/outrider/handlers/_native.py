"""Types that msgspec knows: their JSON Schema, and values of them from JSON and to JSON.

Adds to msgspec what a model wants to know (formats of dates, descriptions of fields), paths, and a few names
for what it has already. Does not know pydantic.
"""

from __future__ import annotations

import collections.abc
import types
import typing
from collections.abc import Iterator, Mapping
from datetime import datetime, time
from functools import partial
from pathlib import PurePath
from typing import Annotated, Any, Final, Literal, TypeAlias, Union, cast, get_args, get_origin

import msgspec
from msgspec import inspect as nodes

from outrider.handlers._docstring import read_docstring
from outrider.handlers._faults import Misfit, native_faults
from outrider.handlers._hints import class_hints, description_in, is_described, parts, settle
from outrider.wire import Json, JsonObject

_Record: TypeAlias = nodes.StructType | nodes.DataclassType | nodes.TypedDictType
_SAME: Final[Mapping[object, object]] = {
    # What msgspec has under another name.
    object: Any,
    typing.LiteralString: str,
    collections.abc.Iterable: list,
    # What it calls a text, and a model should know more of.
    datetime: Annotated[datetime, msgspec.Meta(extra_json_schema={"format": "date-time"})],
    time: Annotated[time, msgspec.Meta(extra_json_schema={"format": "time"})],
}
_LIMITS: Final = ("gt", "ge", "lt", "le", "multiple_of", "min_length", "max_length", "pattern", "tz")
_QUALIFIERS: Final = (typing.Required, typing.NotRequired, getattr(typing, "ReadOnly", None))
_GENERIC: Final[Mapping[object, type]] = {collections.abc.Iterable: list}


class Native:
    """A type as msgspec reads it. Raises TypeError for one that it cannot read."""

    def __init__(self, kind: object) -> None:
        try:
            self._prepare(kind)
        except NameError:
            settle(kind)
            self._prepare(kind)

    def _prepare(self, kind: object) -> None:
        _check_dataclasses(kind)
        _check_unions(kind)
        self.kind = plain(kind)
        self.schema = _schema(self.kind)
        # Refuses what only the reader refuses, now and not at the first call.
        try:
            _convert(object(), self.kind)
        except msgspec.ValidationError:
            pass

    def convert(self, value: object) -> object:
        """The value that JSON means. Raises `Misfit`."""
        try:
            return convert(value, self.kind)
        except msgspec.ValidationError as error:
            raise Misfit(self.faults(value, "", error)) from None

    def faults(self, value: object, path: str, error: Exception | None = None) -> list[str]:
        """What is wrong with a value; empty if nothing is."""
        if error is None:
            try:
                convert(value, self.kind)
            except msgspec.ValidationError as refused:
                error = refused
            else:
                return []
        return native_faults(self.kind, value, path, error, convert)

    def dump(self, value: object) -> Json:
        """A value of the type as JSON. Raises TypeError or ValueError for what cannot be."""
        return cast(Json, msgspec.json.decode(msgspec.json.encode(value, enc_hook=_dump_custom)))


def convert(value: object, kind: Any) -> object:  # noqa: ANN401 - a type, or a form of one
    """As `msgspec.convert` does for JSON. Nothing is bent: but for whole numbers where any number will do,
    and numbers where a decimal will, the kinds of JSON must be right.

    Raises `msgspec.ValidationError`, also for whatever a class of the user's raises when it is made."""
    try:
        return _convert(value, kind)
    except msgspec.ValidationError:
        raise
    except UnicodeEncodeError as error:
        # Half of a pair of surrogates, which JavaScript lets be, where it is not simply passed on.
        raise msgspec.ValidationError("a text in it is not Unicode") from error
    except RecursionError as error:
        raise msgspec.ValidationError("nested too deeply") from error
    except Exception as error:
        raise msgspec.ValidationError(f"{type(error).__name__}: {error}") from error


def plain(kind: object) -> object:
    """The type with what msgspec does not know written as what it knows."""
    if get_origin(kind) is Annotated:
        inner, *metadata = get_args(kind)
        text = description_in(kind)
        if text is not None and not is_described(kind):
            metadata.append(msgspec.Meta(description=text))
        return Annotated[(plain(inner), *metadata)]
    try:
        if kind in _SAME:
            return _SAME[kind]
    except TypeError:
        return kind
    origin, arguments = get_origin(kind), get_args(kind)
    if not arguments or origin is Literal:
        return kind
    same = tuple(plain(each) for each in arguments)
    if origin in _GENERIC:
        return cast(Any, _GENERIC[origin])[same]
    if same == arguments:
        return kind
    if _is_union(kind):
        return Union[same]  # noqa: UP007 - there are as many as there are
    return cast(Any, origin)[same]


def _check_dataclasses(kind: object) -> None:
    """Refuse what msgspec reads otherwise than Python: it takes fields that `__init__` does not."""
    for each in parts(kind):
        for field in getattr(each, "__dataclass_fields__", {}).values():
            if not field.init:
                raise TypeError(f"the field `{field.name}` cannot be given, it has `init=False`")


def _check_unions(kind: object) -> None:
    """Refuse what msgspec accepts and should not: it takes the limits of a member for those of all members of
    the same type, and next to a tuple of fixed length they destroy memory (seen with 0.22.0)."""
    for each in parts(kind):
        if not _is_union(each):
            continue
        members = list(_members(each, is_limited=False))
        limited = {base for base, is_limited in members if is_limited}
        if limited and any(
            get_origin(base) is tuple and Ellipsis not in get_args(base) for base, _ in members
        ):
            raise TypeError("a union of a tuple of fixed length and of a type with limits cannot be read")
        bases = [base for base, _ in members]
        if any(bases.count(base) > 1 for base in limited):
            raise TypeError("a union has one type twice, with different limits")


def _members(kind: object, *, is_limited: bool) -> Iterator[tuple[object, bool]]:
    """The types that a union is made of, however they are nested, and whether each has limits."""
    if get_origin(kind) is Annotated:
        inner, *metadata = get_args(kind)
        yield from _members(inner, is_limited=is_limited or any(map(has_limits, metadata)))
    elif _is_union(kind):
        for member in get_args(kind):
            yield from _members(member, is_limited=is_limited)
    else:
        yield kind, is_limited


def has_limits(metadata: object) -> bool:
    """Whether it is what msgspec reads limits from."""
    return isinstance(metadata, msgspec.Meta) and any(getattr(metadata, name) is not None for name in _LIMITS)


def _is_union(kind: object) -> bool:
    return get_origin(kind) in (Union, types.UnionType)


def _custom_schema(kind: type) -> JsonObject:
    if issubclass(kind, PurePath):
        return {"type": "string", "format": "path"}
    # No NotImplementedError: with `Annotated` around it msgspec would take that for any value.
    raise TypeError("nothing is known of what it looks like in JSON")


def _read_custom(kind: type, value: object) -> object:
    if issubclass(kind, PurePath) and isinstance(value, str):
        return kind(value)
    raise TypeError(f"Expected `{kind.__name__}`")


_convert: Final = partial(msgspec.convert, str_keys=True, dec_hook=_read_custom)


def _dump_custom(value: object) -> object:
    if isinstance(value, PurePath):
        return str(value)
    raise NotImplementedError


def _schema(kind: object) -> JsonObject:
    """As msgspec writes it, with what it leaves out of the fields of classes."""
    records = list(_records(nodes.type_info(kind)))
    fields = [
        (index, field, _unwrapped(hint))
        for index, record in enumerate(records)
        for field, hint in _field_hints(record)
    ]
    try:
        (schema, *rest), definitions = msgspec.json.schema_components(
            (kind, *(record.cls for record in records), *(plain(hint) for _, _, hint in fields)),
            schema_hook=_custom_schema,
        )
    except KeyError as error:
        raise TypeError(f"it holds two classes of one name, {error}") from error
    bodies = [definitions[each["$ref"].removeprefix("#/$defs/")] for each in rest[: len(records)]]
    for (index, field, _), better in zip(fields, rest[len(records) :], strict=True):
        properties = bodies[index]["properties"]
        properties[field] = better | {k: v for k, v in properties[field].items() if k == "default"}
    for record, body in zip(records, bodies, strict=True):
        _describe(record, body)
    return {**schema, "$defs": definitions} if definitions else schema


def _records(node: nodes.Type) -> Iterator[_Record]:
    """All classes with named fields that a type is made of."""
    seen: set[object] = set()
    waiting = [node]
    while waiting:
        match each := waiting.pop():
            case nodes.Metadata():
                waiting.append(each.type)
            case nodes.UnionType():
                waiting.extend(each.types)
            case nodes.TupleType():
                waiting.extend(each.item_types)
            case nodes.CollectionType():
                waiting.append(each.item_type)
            case nodes.DictType():
                waiting += [each.key_type, each.value_type]
            case nodes.StructType() | nodes.DataclassType() | nodes.TypedDictType() | nodes.NamedTupleType():
                if each.cls in seen:
                    continue
                seen.add(each.cls)
                waiting.extend(field.type for field in each.fields)
                if not isinstance(each, nodes.NamedTupleType) and not getattr(each, "array_like", False):
                    yield each
            case _:
                pass


def _field_hints(record: _Record) -> Iterator[tuple[str, object]]:
    """The fields whose annotations say more than msgspec reads, by the names that JSON has for them."""
    # What the fields of a generic class mean is known to msgspec alone.
    parameters: object = getattr(record.cls, "__parameters__", None)
    if get_origin(record.cls) is not None or parameters:
        return
    hints = class_hints(record.cls)
    for field in record.fields:
        hint = hints.get(field.name)
        if hint is not None and plain(_unwrapped(hint)) != _unwrapped(hint):
            yield field.encode_name, hint


def _unwrapped(hint: object) -> object:
    while (origin := get_origin(hint)) is not None and origin in _QUALIFIERS:
        (hint,) = get_args(hint)
    return hint


def _describe(record: _Record, body: JsonObject) -> None:
    """What the docstring of a class says of its fields, at the fields."""
    text, fields = read_docstring(getattr(record.cls, "__doc__", None))
    if "description" in body:
        body["description"] = text
    for field in record.fields:
        schema = body["properties"].get(field.encode_name)
        if schema is not None and field.name in fields:
            schema.setdefault("description", fields[field.name])

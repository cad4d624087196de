"""Converts JSON to typed values, by msgspec or pydantic, and makes the JSON Schema of a type: `Shape`."""

from __future__ import annotations

import collections.abc
import sys
import types
import typing
from collections.abc import Iterator, Mapping
from datetime import datetime, time
from functools import partial
from pathlib import PurePath
from typing import (
    Annotated,
    Any,
    Final,
    Generic,
    Literal,
    TypeAlias,
    TypeVar,
    Union,
    cast,
    get_args,
    get_origin,
    overload,
)

import msgspec
from msgspec import inspect as nodes

from outrider.errors import OptionsError
from outrider.handlers._tools.shape_errors import ShapeError, named, native_errors, shown, unfolded
from outrider.handlers._tools.signature import (
    class_hints,
    description_in,
    is_described,
    parts,
    read_docstring,
    settle,
)
from outrider.options._validators import is_list
from outrider.redaction import preview
from outrider.wire import Json, JsonObject, Value
from outrider.wire._tolerant import is_object
from outrider.wire._value import dumps

# Types as msgspec reads them.

_Record: TypeAlias = nodes.StructType | nodes.DataclassType | nodes.TypedDictType
_SAME: Final[Mapping[object, object]] = {
    # Types that msgspec has under another name.
    object: Any,
    typing.LiteralString: str,
    collections.abc.Iterable: list,
    # Types that it describes as text only.
    datetime: Annotated[datetime, msgspec.Meta(extra_json_schema={"format": "date-time"})],
    time: Annotated[time, msgspec.Meta(extra_json_schema={"format": "time"})],
}
_LIMITS: Final = ("gt", "ge", "lt", "le", "multiple_of", "min_length", "max_length", "pattern", "tz")
_QUALIFIERS: Final = (typing.Required, typing.NotRequired, getattr(typing, "ReadOnly", None))
_GENERIC: Final[Mapping[object, type]] = {collections.abc.Iterable: list}


class Converter:
    """A type as one library reads it."""

    kind: object
    schema: JsonObject

    def convert(self, value: object, path: str = "") -> object:
        """The value that JSON means. Raises `ShapeError`, whose errors name places below `path`."""
        raise NotImplementedError

    def errors(self, value: object, path: str) -> list[str]:
        """The errors in a value; none if it is valid."""
        try:
            self.convert(value, path)
        except ShapeError as error:
            return list(error.errors)
        return []

    def dump(self, value: object) -> Json:
        """A value of the type as JSON. Raises TypeError or ValueError for one that JSON cannot hold."""
        raise NotImplementedError


class Native(Converter):
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
        # Some types are rejected by the converter only: now, not at the first call.
        try:
            _convert(object(), self.kind)
        except msgspec.ValidationError:
            pass

    def convert(self, value: object, path: str = "") -> object:
        try:
            return convert(value, self.kind)
        except msgspec.ValidationError as error:
            raise ShapeError(native_errors(self.kind, value, path, error, convert)) from None

    def dump(self, value: object) -> Json:
        return cast(Json, msgspec.json.decode(msgspec.json.encode(value, enc_hook=_dump_custom)))


def convert(value: object, kind: Any) -> object:  # noqa: ANN401 - a type, or a form of one
    """Convert as `msgspec.convert` does for JSON: types must match, but whole numbers are accepted as
    `float`, and numbers as `Decimal`. Raises `msgspec.ValidationError`, also if a class of the user raises
    while it is made."""
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
    """The type with parts that msgspec does not know replaced by equivalent ones."""
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
    """Reject fields that `__init__` does not take, but msgspec does."""
    for each in parts(kind):
        for field in getattr(each, "__dataclass_fields__", {}).values():
            if not field.init:
                raise TypeError(f"the field `{field.name}` cannot be given, it has `init=False`")


def _check_unions(kind: object) -> None:
    """Reject unions that msgspec gets wrong: it applies the limits of a member to all members of the same
    type, and beside a tuple of fixed length they corrupt memory (seen with 0.22.0)."""
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
    """The members of a union, nested ones included, and whether each has limits."""
    if get_origin(kind) is Annotated:
        inner, *metadata = get_args(kind)
        yield from _members(inner, is_limited=is_limited or any(map(has_limits, metadata)))
    elif _is_union(kind):
        for member in get_args(kind):
            yield from _members(member, is_limited=is_limited)
    else:
        yield kind, is_limited


def has_limits(metadata: object) -> bool:
    """Whether it is a `Meta` with limits."""
    return isinstance(metadata, msgspec.Meta) and any(getattr(metadata, name) is not None for name in _LIMITS)


def _is_union(kind: object) -> bool:
    return get_origin(kind) in (Union, types.UnionType)


def _custom_schema(kind: type) -> JsonObject:
    if issubclass(kind, PurePath):
        return {"type": "string", "format": "path"}
    # No NotImplementedError: with `Annotated` around it msgspec would take that for any value.
    raise TypeError("its form in JSON is not known")


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
    """The schema of msgspec, with descriptions of fields that it leaves out."""
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
    """All classes with named fields in a type."""
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
    """The fields whose annotations say more than msgspec reads, by their names in JSON."""
    # Only msgspec knows the types of the fields of a generic class.
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
    """Copy descriptions from the docstring of a class to its fields."""
    text, fields = read_docstring(getattr(record.cls, "__doc__", None))
    if "description" in body:
        body["description"] = text
    for field in record.fields:
        schema = body["properties"].get(field.encode_name)
        if schema is not None and field.name in fields:
            schema.setdefault("description", fields[field.name])


# Shapes.

T = TypeVar("T")

_VALUE: Final = "value"
"""The only property of the object that wraps an output which is not an object."""
_PYDANTIC: Final = frozenset(("pydantic", "pydantic_core", "pydantic_extra_types", "annotated_types"))
_JSON_TYPES: Final[Mapping[str, tuple[type, ...]]] = {
    "object": (dict,),
    "array": (list,),
    "string": (str,),
    "integer": (int,),
    "number": (int, float),
    "boolean": (bool,),
    "null": (type(None),),
}


class Shape(Generic[T]):
    """Converts JSON values to a type, or checks them against a JSON Schema.

    msgspec reads the type if it can; pydantic, if installed, reads its own types and those that msgspec
    rejects. With a schema in place of a type, values stay as they are, and only the JSON type of the whole
    and its required properties are checked.

    JSON types must match: no text is read as a number. Whole numbers are accepted as `float`, any number as
    `Decimal`.

    Raises `OptionsError` for an unsupported type.
    """

    @overload
    def __init__(self, kind: type[T]) -> None: ...
    @overload
    def __init__(self: Shape[Any], kind: object) -> None: ...
    def __init__(self, kind: object) -> None:
        try:
            converter = make_converter(kind)
        except NameError as error:
            raise OptionsError(
                f"{_type_name(kind)} cannot be used as a type: {error}",
                hint="Define or import every name in its annotations before it is used.",
            ) from error
        self._converter = converter
        self._is_wrapped = False
        self.schema: JsonObject = unfolded(converter.schema)
        """The JSON Schema, with its definitions in `$defs`."""

    @classmethod
    def for_output(cls, kind: object) -> Shape[Any]:
        """The shape of an agent's structured output, which must be an object: another type becomes the
        property `value` of an object in the schema, and `convert` unwraps it."""
        shape: Shape[Any] = Shape(kind)
        if shape.schema.get("type") != "object":
            shape._wrap()
        return shape

    def _wrap(self) -> None:
        self._is_wrapped = True
        names = ("$defs", "definitions")
        definitions = {key: value for key, value in self.schema.items() if key in names}
        inner = {key: value for key, value in self.schema.items() if key not in names}
        self.schema = {
            "type": "object",
            "properties": {_VALUE: inner},
            "required": [_VALUE],
            "additionalProperties": False,
            **definitions,
        }

    def convert(self, value: object) -> T:
        """The typed value. Raises `ShapeError` with every error."""
        if self._is_wrapped:
            if not is_object(value) or _VALUE not in value:
                raise ShapeError([f"expected an object with `{_VALUE}`, got {shown(value)}"])
            value = value[_VALUE]
        return cast(T, self._converter.convert(value))


def make_converter(kind: object) -> Converter:
    """The converter of a type or of a schema. Raises `OptionsError` for unsupported types, and NameError for
    undefined names."""
    if isinstance(kind, Mapping):
        return _Raw(cast("Mapping[str, Any]", kind))
    if "pydantic" in sys.modules and any(_is_pydantic(each) for each in parts(kind)):
        try:
            return Pydantic(kind)
        except TypeError as error:
            raise OptionsError(
                f"{_type_name(kind)} cannot be used as a type: {error}",
                hint="Types of pydantic and of msgspec do not mix: use one library for all of it.",
            ) from error
    try:
        return Native(kind)
    except (TypeError, RecursionError) as error:
        return _second_choice(kind, error)


def _second_choice(kind: object, error: Exception) -> Converter:
    why = str(error).splitlines()[0].partition(" - type `")[0] if isinstance(error, TypeError) else str(error)
    try:
        return Pydantic(kind)
    except ImportError:
        hint = (
            "Use a class with annotated fields (a dataclass, TypedDict or msgspec.Struct), or give the "
            "members of a union different tags, or install `outrider[pydantic]`, which can read more."
        )
    except TypeError:
        hint = "Use a class with annotated fields (a dataclass, TypedDict, msgspec.Struct or pydantic model)."
    raise OptionsError(f"{_type_name(kind)} cannot be used as a type: {why}", hint=hint) from error


def _is_pydantic(part: object) -> bool:
    kind: type[object] = part if isinstance(part, type) else type(part)
    if issubclass(kind, Value):
        # Pydantic could read it, too, but msgspec does.
        return False
    return kind.__module__.partition(".")[0] in _PYDANTIC or hasattr(kind, "__get_pydantic_core_schema__")


def _type_name(kind: object) -> str:
    name = kind.__qualname__ if isinstance(kind, type) and not hasattr(kind, "__args__") else repr(kind)
    return f"`{preview(name.replace('typing.', ''), 200)}`"


class Pydantic(Converter):
    """A type as pydantic reads it. Raises TypeError for one that it cannot read, ImportError without it."""

    def __init__(self, kind: object) -> None:
        from pydantic.errors import PydanticUserError

        self.kind = kind
        if any(map(has_limits, parts(kind))):
            raise TypeError("pydantic does not know the limits in `msgspec.Meta`")
        if values := [each for each in parts(kind) if isinstance(each, type) and issubclass(each, Value)]:
            # It would read the fields, but not the kind of a message.
            raise TypeError(f"pydantic does not know the kind of a message `{values[0].__name__}`")
        try:
            try:
                self._prepare()
            except (NameError, PydanticUserError):
                settle(kind)
                self._prepare()
        except PydanticUserError as error:
            if error.code == "class-not-fully-defined":
                raise NameError(str(error).splitlines()[0]) from error
            raise TypeError(str(error).splitlines()[0]) from error

    def _prepare(self) -> None:
        from pydantic import TypeAdapter

        self._adapter: TypeAdapter[Any] = TypeAdapter(cast(Any, self.kind))
        self.schema = self._adapter.json_schema(mode="validation")

    def dump(self, value: object) -> Json:
        return cast(Json, self._adapter.dump_python(value, mode="json", warnings="error"))

    def convert(self, value: object, path: str = "") -> object:
        from pydantic import ValidationError

        try:
            # From JSON, where strict means types of JSON: of Python values, a date must be a date.
            return self._adapter.validate_json(dumps(value), strict=True)
        except ValidationError as error:
            found = error.errors(include_url=False, include_context=False)
            raise ShapeError([_pydantic_error(cast("JsonObject", each), path) for each in found]) from None
        except RecursionError:
            raise ShapeError([named(path, "nested too deeply")]) from None
        except Exception as error:
            # Raised by a class of the user.
            raise ShapeError([named(path, f"{type(error).__name__}: {error}")]) from error


def _pydantic_error(error: JsonObject, path: str) -> str:
    for part in error["loc"]:
        path += f"[{part}]" if isinstance(part, int) else f".{part}" if path else part
    is_missing = error["type"] == "missing"
    return named(path, "missing" if is_missing else f"{error['msg']}, got {shown(error['input'])}")


class _Raw(Converter):
    """A JSON Schema of the user: only the JSON type and required properties are checked."""

    def __init__(self, schema: Mapping[str, Any]) -> None:
        try:
            self.schema = msgspec.json.decode(msgspec.json.encode(dict(schema)))
        except (TypeError, ValueError) as error:
            raise OptionsError(
                f"the JSON Schema is not valid JSON: {error}", hint="Use texts, numbers, lists and dicts."
            ) from error
        self.kind = Any

    def convert(self, value: object, path: str = "") -> object:
        given: object = self.schema.get("type")
        options = given if is_list(given) else [given]
        names = [each for each in options if isinstance(each, str) and each in _JSON_TYPES]
        if names and not any(_is_of(value, name) for name in names):
            raise ShapeError([named(path, f"expected {' or '.join(names)}, got {shown(value)}")])
        required: object = self.schema.get("required")
        if is_object(value) and is_list(required):
            prefix = f"{path}." if path else ""
            if missing := [named(f"{prefix}{name}", "missing") for name in required if name not in value]:
                raise ShapeError(missing)
        return value

    def dump(self, value: object) -> Json:
        return cast(Json, msgspec.to_builtins(value, str_keys=True))


def _is_of(value: object, name: str) -> bool:
    # In JSON, 1 and 1.0 are equal, and true is not a number.
    if isinstance(value, bool):
        return name == "boolean"
    if name == "integer" and isinstance(value, float):
        return value.is_integer()
    return isinstance(value, _JSON_TYPES[name])

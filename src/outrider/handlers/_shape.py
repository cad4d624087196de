"""What a JSON value should look like, from a type or a schema, and the way from JSON to a typed value.

Decides which library reads a type; does not know what the value is for.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any, Final, Generic, Protocol, TypeVar, cast, overload

import msgspec

from outrider.errors import OptionsError
from outrider.handlers._faults import Misfit, named, shown
from outrider.handlers._hints import parts
from outrider.handlers._native import Native
from outrider.handlers._schema import is_object, unfolded
from outrider.redaction import preview
from outrider.wire import Json, JsonObject, Value

T = TypeVar("T")

_VALUE: Final = "value"
"""The only property of the object that an output is wrapped in if it is none itself."""
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


class Reader(Protocol):
    """A type as one library reads it."""

    @property
    def kind(self) -> object: ...

    @property
    def schema(self) -> JsonObject: ...

    def convert(self, value: object) -> object:
        """Raises `Misfit`."""
        ...

    def faults(self, value: object, path: str) -> list[str]: ...

    def dump(self, value: object) -> Json:
        """Raises TypeError or ValueError for what cannot be JSON."""
        ...


class Shape(Generic[T]):
    """A type, or a JSON Schema, that JSON values are checked against and converted to.

    msgspec reads the type if it can; pydantic reads what is its own, and what msgspec refuses, if it is
    installed. With a schema in place of a type values stay as they are, and only the kind of the whole and
    the presence of its required properties are checked.

    Kinds must be right: no text is read as a number. Whole numbers are taken for `float`, any number for
    `Decimal`.

    Raises `OptionsError` for a type that cannot be read.
    """

    @overload
    def __init__(self, kind: type[T]) -> None: ...
    @overload
    def __init__(self: Shape[Any], kind: object) -> None: ...
    def __init__(self, kind: object) -> None:
        try:
            reader = make_reader(kind)
        except NameError as error:
            raise OptionsError(
                f"{told(kind)} cannot be used as a type: {error}",
                hint="Define or import every name in its annotations before it is used.",
            ) from error
        self._reader = reader
        self._is_wrapped = False
        self.schema: JsonObject = unfolded(reader.schema)
        """The JSON Schema. What it refers to is in its `$defs`."""

    @classmethod
    def for_output(cls, kind: object) -> Shape[Any]:
        """The shape of an agent's structured output, which must be an object: what is none becomes the
        property `value` of one in the schema, and comes out of it in `convert`."""
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
        """The typed value. Raises `Misfit`, with all that is wrong with it."""
        if self._is_wrapped:
            if not is_object(value) or _VALUE not in value:
                raise Misfit([f"expected an object with `{_VALUE}`, got {shown(value)}"])
            value = value[_VALUE]
        return cast(T, self._reader.convert(value))


def make_reader(kind: object) -> Reader:
    """The reader of a type or of a schema. Raises `OptionsError` for what cannot be read, and NameError where
    it mentions what is not there (yet)."""
    if isinstance(kind, Mapping):
        return _Raw(cast("Mapping[str, Any]", kind))
    if "pydantic" in sys.modules and any(_is_pydantic(each) for each in parts(kind)):
        try:
            return _pydantic(kind)
        except TypeError as error:
            raise OptionsError(
                f"{told(kind)} cannot be used as a type: {error}",
                hint="Types of pydantic and of msgspec do not mix: use one library for all of it.",
            ) from error
    try:
        return Native(kind)
    except (TypeError, RecursionError) as error:
        return _second_choice(kind, error)


def _second_choice(kind: object, error: Exception) -> Reader:
    why = str(error).splitlines()[0].partition(" - type `")[0] if isinstance(error, TypeError) else str(error)
    try:
        return _pydantic(kind)
    except ImportError:
        hint = (
            "Use a class with annotated fields (a dataclass, TypedDict or msgspec.Struct), or give the "
            "members of a union different tags, or install `outrider[pydantic]`, which can read more."
        )
    except TypeError:
        hint = "Use a class with annotated fields (a dataclass, TypedDict, msgspec.Struct or pydantic model)."
    raise OptionsError(f"{told(kind)} cannot be used as a type: {why}", hint=hint) from error


def _pydantic(kind: object) -> Reader:
    from outrider.handlers._pydantic import Pydantic

    return Pydantic(kind)


def _is_pydantic(part: object) -> bool:
    kind: type[object] = part if isinstance(part, type) else type(part)
    if issubclass(kind, Value):
        # Pydantic could read it, too, but it is not needed for that.
        return False
    return kind.__module__.partition(".")[0] in _PYDANTIC or hasattr(kind, "__get_pydantic_core_schema__")


def told(kind: object) -> str:
    """A type as it is written."""
    name = kind.__qualname__ if isinstance(kind, type) and not hasattr(kind, "__args__") else repr(kind)
    return f"`{preview(name.replace('typing.', ''), 200)}`"


class _Raw:
    """A JSON Schema of the user's, which values are hardly checked against."""

    def __init__(self, schema: Mapping[str, Any]) -> None:
        try:
            self.schema: Final[JsonObject] = msgspec.json.decode(msgspec.json.encode(dict(schema)))
        except (TypeError, ValueError) as error:
            raise OptionsError(
                f"the JSON Schema holds what is no JSON: {error}", hint="Use texts, numbers, lists and dicts."
            ) from error
        self.kind: Final = Any

    def convert(self, value: object) -> object:
        if faults := self.faults(value, ""):
            raise Misfit(faults)
        return value

    def faults(self, value: object, path: str) -> list[str]:
        given: object = self.schema.get("type")
        options = cast("list[object]", given) if isinstance(given, list) else [given]
        names = [each for each in options if isinstance(each, str) and each in _JSON_TYPES]
        if names and not any(_is_of(value, name) for name in names):
            return [named(path, f"expected {' or '.join(names)}, got {shown(value)}")]
        required: object = self.schema.get("required")
        if not is_object(value) or not isinstance(required, list):
            return []
        prefix = f"{path}." if path else ""
        names = [str(each) for each in cast("list[object]", required)]
        return [named(f"{prefix}{name}", "missing") for name in names if name not in value]

    def dump(self, value: object) -> Json:
        return cast(Json, msgspec.to_builtins(value, str_keys=True))


def _is_of(value: object, name: str) -> bool:
    # JSON knows no difference between 1 and 1.0, and true is no number.
    if isinstance(value, bool):
        return name == "boolean"
    if name == "integer" and isinstance(value, float):
        return value.is_integer()
    return isinstance(value, _JSON_TYPES[name])

"""Defines the base classes of wire values, the types of JSON, and how JSON text is read and written.

`Value` is any of them, `Received` one read from an object inside a frame, `Frame` one that is a line of its
own. Knows no particular message: those are in `_messages` and `_system`.
"""

from __future__ import annotations

import json
from functools import cache
from operator import attrgetter
from typing import TYPE_CHECKING, Any, ClassVar, TypeAlias, cast

import msgspec

from outrider.wire._tolerant import convert_leniently

if TYPE_CHECKING:
    from collections.abc import Callable
    from dataclasses import Field
    from typing import Self

    from pydantic import GetCoreSchemaHandler
    from pydantic_core import CoreSchema


Json: TypeAlias = str | int | float | bool | list[Any] | dict[str, Any] | None
"""A JSON value. What is inside lists and objects is not typed further."""

JsonObject: TypeAlias = dict[str, Any]
"""A JSON object whose keys the program is free to choose."""


Number: TypeAlias = int | float
"""A JSON number: whole numbers stay whole."""


class _OfDataclass:
    """An attribute that dataclasses have, made for each class when someone asks for it."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __get__(self, instance: object, owner: type[Value]) -> object:
        return getattr(_as_dataclass(owner), self._name)


class Value(msgspec.Struct, omit_defaults=True, repr_omit_defaults=True, gc=False):
    """A typed JSON object: positional or keyword construction, `==`, `match`, a `repr` without defaults.

    Left-out fields stay out of the encoded form. Values hold data, never a reference back to what holds
    them, so the garbage collector need not track them (`gc=False`); that keeps long histories cheap.

    `dataclasses.is_dataclass`, `fields`, `asdict`, `astuple` and `replace` take it for a dataclass; `vars`
    gives its fields. Pydantic takes it for one, too.
    """

    @classmethod
    def __get_pydantic_core_schema__(cls, source: object, handler: GetCoreSchemaHandler) -> CoreSchema:
        return _pydantic_schema(cls, handler)

    if TYPE_CHECKING:
        __dataclass_fields__: ClassVar[dict[str, Field[Any]]]
    else:
        __dataclass_fields__ = _OfDataclass("__dataclass_fields__")
        # `pprint` looks at it.
        __dataclass_params__ = _OfDataclass("__dataclass_params__")

        @property
        def __dict__(self) -> dict[str, object]:
            """The fields, made again at each use: many write `json.dumps(value, default=vars)`."""
            return {name: getattr(self, name) for name in self.__struct_fields__}


class Line:
    """Adds a place for the bytes that a frame was decoded from; they take no part in `==` and `repr`."""

    __slots__ = ("wire_line",)

    if TYPE_CHECKING:
        wire_line: bytes
        """Set when a line is decoded; absent from what was made by hand."""


class Frame(Line, Value):
    """A value that travels as one line. `raw` and `raw_json` are that line, with all that no field names."""

    @property
    def raw_json(self) -> bytes:
        """The line as it was sent, or the frame encoded if it was made by hand."""
        try:
            return self.wire_line.strip()
        except AttributeError:
            from outrider.wire._encoding import encode

            return encode(self)

    @property
    def raw(self) -> JsonObject:
        """The frame as sent, decoded again at each use: changing it changes nothing else."""
        from outrider.wire._decoding import decode_object

        return decode_object(self.raw_json)

    def __copy__(self) -> Self:
        return self._with_line(msgspec.structs.replace(self))

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        values = tuple(getattr(self, name) for name in self.__struct_fields__)
        return _rebuild, (type(self), values, getattr(self, "wire_line", None))

    def _with_line(self, other: Self) -> Self:
        """Give `other` the line of this frame, if there is one."""
        if (line := getattr(self, "wire_line", None)) is not None:
            other.wire_line = line
        return other


def _rebuild(kind: type[Frame], values: tuple[Any, ...], line: bytes | None) -> Frame:
    frame = kind(**dict(zip(kind.__struct_fields__, values, strict=True)))
    if line is not None:
        frame.wire_line = line
    return frame


class PartlyDecoded(Frame):
    """A frame with fields that stay undecoded until they are used: most readers never look at them."""

    undecoded: ClassVar[tuple[str, ...]]

    # Comparing and printing in C would look at the undecoded fields, so they are decoded first.

    def __eq__(self, other: object) -> bool:
        if isinstance(other, PartlyDecoded):
            self._decode()
            other._decode()
        return super().__eq__(other)

    # Like every value: not to be hashed, it can be changed.
    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        self._decode()
        return super().__repr__()

    def __rich_repr__(self) -> list[tuple[str, Any]]:
        self._decode()
        return super().__rich_repr__()

    def _decode(self) -> None:
        for name in self.undecoded:
            getattr(self, name)


def decode_on_use(kind: type[PartlyDecoded], **fields: Callable[[Json], Json]) -> None:
    """Have fields decoded when they are first used, by functions that make what was sent fit the field.

    As `undecoded_…` they are what they are until then. Only after the class is made: msgspec fills the slots
    itself when it decodes, past the properties.
    """
    kind.undecoded = tuple(fields)
    for name, fit in fields.items():
        setattr(kind, f"undecoded_{name}", vars(kind)[name])
        setattr(kind, name, _decoded_on_use(f"undecoded_{name}", fit))


def _decoded_on_use(name: str, fit: Callable[[Json], Json]) -> property:
    look = attrgetter(name)

    def read(frame: Frame) -> object:
        value: object = look(frame)
        if type(value) is msgspec.Raw:
            value = fit(loads(bytes(value)))
            setattr(frame, name, value)
        return value

    def write(frame: Frame, value: object) -> None:
        setattr(frame, name, value)

    return property(read, write)


@cache
def _as_dataclass(kind: type[Value]) -> type:
    """A dataclass with the fields of a value, which is only looked at."""
    # Seldom wanted, and slow to import.
    from dataclasses import field, make_dataclass

    none = msgspec.NODEFAULT
    fields: list[tuple[str, Any, Any]] = []
    for each in msgspec.structs.fields(kind):
        # What is decoded when it is first used is an object to those who use it.
        hint = JsonObject if each.type is msgspec.Raw else each.type
        if each.default is not none:
            default = field(default=each.default)
        elif each.default_factory is not none:
            default = field(default_factory=cast("Callable[[], Any]", each.default_factory))
        else:
            default = field()
        fields.append((each.name, hint, default))
    # As `init=False` no code is made, and a field without a default may follow one that has some.
    return make_dataclass(kind.__name__, fields, init=False, repr=False, eq=False, match_args=False)


class PlainObject(dict[str, Any]):
    """An object known to hold nothing but texts, truth values, and objects of these: it is written as it is,
    without a look at what is in it."""

    __slots__ = ()


# JSON text: read leniently, written compactly.

_encoder = msgspec.json.Encoder()


def loads(text: bytes) -> Json:
    """Decode JSON, and what is nearly JSON: NaN, control characters and bad bytes in texts, lone surrogates.

    Bytes and surrogates that are not characters become U+FFFD, so that every text can be printed. What
    is not even that raises a ValueError, a `JSONDecodeError` where it has no meaning at all.
    """
    try:
        return cast("Json", msgspec.json.decode(text))
    except (ValueError, RecursionError):
        pass
    try:
        value: Json = json.loads(text.decode("utf-8", "replace"), strict=False)
        return _printable(value) if b"\\u" in text else value
    except RecursionError as error:
        raise ValueError("nested too deeply") from error


def _printable(value: Json) -> Json:
    """The value with every lone surrogate replaced."""
    if isinstance(value, str):
        return _printable_text(value)
    if isinstance(value, list):
        return [_printable(item) for item in value]
    if isinstance(value, dict):
        return {_printable_text(key): _printable(item) for key, item in value.items()}
    return value


def _printable_text(text: str) -> str:
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def dumps(value: Any) -> bytes:  # noqa: ANN401 - anything made of JSON types
    """Compact JSON in UTF-8, on one line. NaN and infinity become null: look for them before, if need be."""
    try:
        return _encoder.encode(value)
    except UnicodeEncodeError:
        # A lone surrogate has no UTF-8 form, but an escape.
        return json.dumps(value, separators=(",", ":")).encode()


class _Source:
    """Adds a place for the object that a value was read from; it takes no part in `==` and `repr`."""

    __slots__ = ("_raw",)

    if TYPE_CHECKING:
        _raw: JsonObject


class Received(_Source, Value):
    """A value read from a JSON object inside a frame. `raw` is that object, with all that no field names."""

    @classmethod
    def from_wire(cls, data: JsonObject) -> Self:
        """Read an object; never raises. What is missing or mistyped takes its default or an empty value."""
        value = convert_leniently(cls, data)
        value._raw = data
        return value

    @property
    def raw(self) -> JsonObject:
        """The object as received, not a copy of it; for a value made by hand, its wire form."""
        try:
            return self._raw
        except AttributeError:
            return self.to_wire()

    def to_wire(self) -> JsonObject:
        """The fields as a JSON object, keys as the agent spells them."""
        return cast(JsonObject, msgspec.to_builtins(self))

    def __copy__(self) -> Self:
        return self._rebuilt(self._values(), getattr(self, "_raw", None))

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        return self._rebuilt, (self._values(), getattr(self, "_raw", None))

    def _values(self) -> dict[str, object]:
        return {name: getattr(self, name) for name in self.__struct_fields__}

    @classmethod
    def _rebuilt(cls, values: dict[str, object], raw: JsonObject | None) -> Self:
        value = cls(**values)
        if raw is not None:
            value._raw = raw
        return value


def _pydantic_schema(kind: type[Value], handler: GetCoreSchemaHandler) -> CoreSchema:
    """A value of that class, or its fields as a dict; it is written as a dict."""
    from pydantic_core import core_schema  # only pydantic asks for this

    required = {each.name: each.required for each in msgspec.structs.fields(kind)}
    content = core_schema.typed_dict_schema(
        {
            name: core_schema.typed_dict_field(handler.generate_schema(each.type), required=required[name])
            for name, each in kind.__dataclass_fields__.items()
        },
        cls_name=kind.__name__,
    )

    def read(given: object, to_fields: Callable[[object], JsonObject]) -> Value:
        return given if isinstance(given, kind) else kind(**to_fields(given))

    def written(value: Value) -> JsonObject:
        return vars(value)

    return core_schema.no_info_wrap_validator_function(
        read,
        content,
        serialization=core_schema.plain_serializer_function_ser_schema(written, return_schema=content),
    )

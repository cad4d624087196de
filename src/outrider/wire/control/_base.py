"""Defines what all requests to the agent share: `Request`, its fields on the wire, and `Payload` for answers.

The requests are in `_session`, `_settings`, `_mcp` and `_files`; `_request_table` finds them by name.
"""

from __future__ import annotations

from functools import cache
from typing import (
    TYPE_CHECKING,
    Annotated,
    Any,
    ClassVar,
    Final,
    Generic,
    NamedTuple,
    TypeAlias,
    TypeVar,
    cast,
    get_args,
    get_origin,
)

import msgspec

from outrider.wire._value import JsonObject, Received, Value

if TYPE_CHECKING:
    from typing import Self


T = TypeVar("T")

_NULL: Final = "null"

Nullable: TypeAlias = Annotated[T | None, _NULL]
"""`T | None` where None travels as null. In other fields that may be None, it means: left out."""


class Payload(Received):
    """What the agent answers, or an object in it. Every field has a default; each object has its `raw`."""

    @classmethod
    def from_wire(cls, data: object) -> Self:
        """Read what was received; never raises.

        What is missing or of the wrong type takes its default, and items that do not fit are left out of
        lists; `raw` has everything.
        """
        payload = super().from_wire(cast(JsonObject, data) if isinstance(data, dict) else {})
        payload._remember_sources()
        return payload

    def to_wire(self) -> JsonObject:
        """The object as it travels: the fields, then what was received beside them."""
        fields = _fields_of(type(self))
        wire: JsonObject = {}
        for field in fields:
            value: object = getattr(self, field.name)
            if value is not None or field.keeps_null:
                wire[field.wire_name] = _spell(value) if field.has_parts else value
        known = {field.wire_name for field in fields}
        received: JsonObject = getattr(self, "_raw", {})
        return wire | {key: value for key, value in received.items() if key not in known}

    def _remember_sources(self) -> None:
        """Give every payload in this one the object that it was read from."""
        pending: list[tuple[object, object]] = [(self, self._raw)]
        while pending:
            value, source = pending.pop()
            if isinstance(value, Payload) and isinstance(source, dict):
                value._raw = cast(JsonObject, source)
                if fields := _fields_with_parts(type(value)):
                    pending += [
                        (getattr(value, name), value._raw.get(wire_name)) for name, wire_name in fields
                    ]
            elif isinstance(value, dict) and isinstance(source, dict):
                sources = cast(JsonObject, source)
                for key, item in cast(JsonObject, value).items():
                    pending.append((item, sources.get(key)))
            elif isinstance(value, list) and isinstance(source, list) and value:
                items = cast(list[object], value)
                # An object fits wherever objects are wanted, and a list likewise: anything else was left out.
                wanted = list if isinstance(items[0], list) else dict
                taken: list[object] = [
                    entry for entry in cast(list[object], source) if isinstance(entry, wanted)
                ]
                pending.extend(zip(items, taken, strict=False))


class Acknowledged(Payload):
    """The agent did as it was asked and has nothing to tell."""


class Undocumented(Payload):
    """An answer whose fields are published nowhere: `raw` has them."""


class _Field(NamedTuple):
    """How a field of a payload travels."""

    name: str
    wire_name: str
    keeps_null: bool
    has_parts: bool
    """There are payloads in it."""


@cache
def _fields_of(kind: type[Payload]) -> tuple[_Field, ...]:
    return tuple(
        _Field(field.name, field.encode_name, _NULL in get_args(field.type), _has_parts(field.type))
        for field in msgspec.structs.fields(kind)
    )


@cache
def _fields_with_parts(kind: type[Payload]) -> tuple[tuple[str, str], ...]:
    """Their names, here and on the wire."""
    return tuple((field.name, field.wire_name) for field in _fields_of(kind) if field.has_parts)


def _has_parts(annotation: object) -> bool:
    if isinstance(annotation, type) and issubclass(annotation, Payload):
        return True
    return any(_has_parts(argument) for argument in get_args(annotation))


def _spell(value: object) -> object:
    if isinstance(value, Payload):
        return value.to_wire()
    if isinstance(value, dict):
        return {key: _spell(item) for key, item in cast(JsonObject, value).items()}
    if isinstance(value, list):
        return [_spell(item) for item in cast(list[object], value)]
    return value


R_co = TypeVar("R_co", covariant=True)


class Request(Value, Generic[R_co], tag_field="subtype"):
    """A question to the agent. `answer` is the class that its success payload is read into.

    Fields that may be None are left out when they are. Where the agent tells null from absent, the default
    is `msgspec.UNSET`, which is left out, and None is sent as null.
    """

    answer: ClassVar[type[Any]] = Acknowledged

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        # `class GetUsage(Request[UsageReport])` names it already.
        for base in cast(Any, cls).__orig_bases__:
            for kind in get_args(base):
                if isinstance(answer := get_origin(kind) or kind, type):
                    cls.answer = answer

    @property
    def subtype(self) -> str:
        """The name of the request on the wire."""
        return cast(str, self.__struct_config__.tag)

    def to_wire(self) -> JsonObject:
        """The `request` object of a control request, made of plain JSON types."""
        return cast(JsonObject, msgspec.to_builtins(self))

    @classmethod
    def from_wire(cls, data: JsonObject) -> Self:
        """Read a `request` object of this subtype. Raises `msgspec.ValidationError` if it does not fit."""
        return msgspec.convert(data, cls)

    def read_answer(self, payload: object) -> R_co:
        """Type the success payload; never raises. What is missing or mistyped takes its default."""
        return cast(R_co, self.answer.from_wire(payload))


class OpenRequest(Request[R_co], Generic[R_co]):
    """A request whose fields are published nowhere: `fields` are sent beside `subtype` as they are."""

    fields: JsonObject = {}

    def to_wire(self) -> JsonObject:
        return {"subtype": self.subtype, **self.fields}

    @classmethod
    def from_wire(cls, data: JsonObject) -> Self:
        return cls({key: value for key, value in data.items() if key != "subtype"})


class GenericRequest(Request[JsonObject], tag=False):
    """A request that has no class of its own (yet); its answer stays a dict."""

    # A field of the same name: a stored text may stand in for a computed one.
    subtype: str  # pyright: ignore[reportIncompatibleMethodOverride]
    fields: JsonObject = {}
    """Sent beside `subtype` as they are."""

    def to_wire(self) -> JsonObject:
        return {"subtype": self.subtype, **self.fields}

    @classmethod
    def from_wire(cls, data: JsonObject) -> Self:
        """Any object will do; a subtype that is not text stays among the fields."""
        subtype = data.get("subtype")
        if isinstance(subtype, str):
            return cls(subtype, {key: value for key, value in data.items() if key != "subtype"})
        return cls("", dict(data))

    def read_answer(self, payload: object) -> JsonObject:
        return cast(JsonObject, payload) if isinstance(payload, dict) else {}

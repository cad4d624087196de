"""What all answers of the agent have in common: every part may be missing, every object keeps its source.

The answers themselves are in the `_answers_*` modules; which request is given which, the requests say.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Annotated, Final, NamedTuple, TypeAlias, TypeVar, cast, get_args

import msgspec

from outrider.wire._received import Received
from outrider.wire._value import JsonObject

if TYPE_CHECKING:
    from collections.abc import Iterator
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
        for field in _fields_of(type(self)):
            if field.has_parts:
                for part, source in _parts(getattr(self, field.name), self._raw.get(field.wire_name)):
                    part._raw = source
                    part._remember_sources()


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


def _has_parts(annotation: object) -> bool:
    if isinstance(annotation, type) and issubclass(annotation, Payload):
        return True
    return any(_has_parts(argument) for argument in get_args(annotation))


def _parts(value: object, source: object) -> Iterator[tuple[Payload, JsonObject]]:
    """The payloads that `value` consists of, each with the object that it was read from."""
    if isinstance(value, Payload) and isinstance(source, dict):
        yield value, cast(JsonObject, source)
    elif isinstance(value, dict) and isinstance(source, dict):
        for key, item in cast(JsonObject, value).items():
            yield from _parts(item, cast(JsonObject, source).get(key))
    elif isinstance(value, list) and isinstance(source, list) and value:
        items, sources = cast(list[object], value), cast(list[object], source)
        # An object fits wherever objects are wanted, and a list likewise: anything else was left out.
        wanted = list if isinstance(items[0], list) else dict
        taken: list[object] = [entry for entry in sources if isinstance(entry, wanted)]
        for item, entry in zip(items, taken, strict=False):
            yield from _parts(item, entry)


def _spell(value: object) -> object:
    if isinstance(value, Payload):
        return value.to_wire()
    if isinstance(value, dict):
        return {key: _spell(item) for key, item in cast(JsonObject, value).items()}
    if isinstance(value, list):
        return [_spell(item) for item in cast(list[object], value)]
    return value

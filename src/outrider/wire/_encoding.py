"""Typed values to lines: compact JSON in UTF-8, one line each, nothing that is not JSON.

Does not add the line end, and does not decide what is sent.
"""

from __future__ import annotations

import math
from functools import cache
from typing import TYPE_CHECKING, Any, Final, cast

import msgspec

from outrider.wire._blocks import UnknownBlock
from outrider.wire._decoding import NESTED, decode_object, typed_frame
from outrider.wire._json import dumps
from outrider.wire._messages import RateLimitEvent, UnknownMessage
from outrider.wire._system_message import SystemMessage
from outrider.wire._value import Frame, Json, JsonObject, Value

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


def encode(value: object) -> bytes:
    """One line of JSON for a frame, another value of the wire, or anything made of JSON types; no line end.

    Frames come out in the agent's spelling, with every field of the line they came from that has not been
    changed. Raises `MessageInvalid` for what JSON cannot say: NaN and infinity (it names the place), keys
    and objects of other classes, what is nested too deeply.
    """
    wire = to_wire(value)
    try:
        line = dumps(wire)
    except (TypeError, ValueError, RecursionError) as error:
        from outrider.errors import MessageInvalid

        raise MessageInvalid(wire, str(error)) from error
    if b"null" in line or b"NaN" in line or b"Infinity" in line:
        # The encoder writes null for NaN and infinity: look for the real thing.
        _refuse_non_finite(wire)
    return line


def to_wire(value: object) -> Any:  # noqa: ANN401 - as many shapes as there are values
    """The value in JSON types, spelled as on the wire. Raises `MessageInvalid` like `encode`."""
    try:
        return _to_wire(value)
    except RecursionError:
        from outrider.errors import MessageInvalid

        raise MessageInvalid(value, "nested too deeply, or inside itself") from None


def _to_wire(value: object) -> Any:  # noqa: ANN401 - as many shapes as there are values
    # First what most of it is made of.
    kind = type(value)
    if kind in _AS_THEY_ARE:
        return value
    if kind is dict:
        return {key: _to_wire(item) for key, item in cast("dict[Any, object]", value).items()}
    if isinstance(value, Frame):
        return _frame_to_wire(value)
    if isinstance(value, UnknownBlock):
        return value.raw
    if isinstance(value, Value):
        # Some know their own spelling, also where they are inside another value.
        spell = getattr(value, "to_wire", None)
        return _to_wire(spell()) if spell is not None else _tag(value) | _fields(value)
    if isinstance(value, dict):
        return {key: _to_wire(item) for key, item in cast("dict[Any, object]", value).items()}
    if isinstance(value, list | tuple):
        return [_to_wire(item) for item in cast("list[object]", value)]
    try:
        return msgspec.to_builtins(value)
    except (TypeError, ValueError) as error:
        for kind, plain in _PLAIN.items():
            if isinstance(value, kind):
                return plain(value)
        from outrider.errors import MessageInvalid

        raise MessageInvalid(repr(value), f"{type(value).__name__} has no form in JSON: {error}") from error


_AS_THEY_ARE: Final[frozenset[type]] = frozenset((str, int, float, bool, type(None)))

_PLAIN: Final[dict[type, Callable[[Any], str | int | float]]] = {
    str: str.__str__,
    int: int.__int__,
    float: float.__float__,
}
"""What makes a plain value of one whose class is derived from a plain one, as the numbers of numpy are."""


def _frame_to_wire(frame: Frame) -> JsonObject:
    """A frame as the object that travels: the line it came from, if any, with what has changed since."""
    wire = _fields_to_wire(frame)
    line = getattr(frame, "wire_line", None)
    if line is None:
        return wire
    sent = decode_object(line)
    return cast("JsonObject", _changed(sent, _fields_to_wire(typed_frame(sent)), wire))


def _fields_to_wire(frame: Frame) -> JsonObject:
    if isinstance(frame, UnknownMessage):
        return {**frame.data, "type": frame.type} if frame.type else dict(frame.data)
    fields = _fields(frame)
    if isinstance(frame, SystemMessage):
        data = cast("JsonObject", fields.pop("data"))
        named = {key: value for key, value in fields.items() if key not in frame.inferred}
        return {"type": "system", **data, **named}
    if isinstance(frame, RateLimitEvent):
        info = fields["rate_limit_info"]
        fields["rate_limit_info"] = {**info.pop("raw", {}), **info}
    kind: str = cast("Any", frame).type
    if kind in NESTED:
        return {"type": kind, "message": _body(kind, fields), **fields}
    return {"type": kind, **fields}


def _tag(value: Value) -> JsonObject:
    config = value.__struct_config__
    return {config.tag_field: config.tag} if config.tag_field else {}


def _fields(value: Value) -> JsonObject:
    """The fields that have been set, spelled as on the wire."""
    return {
        field.encode_name: _to_wire(item)
        for field in _fields_of(type(value))
        if (item := getattr(value, field.name)) != _default(field)
    }


@cache
def _fields_of(kind: type[Value]) -> tuple[msgspec.structs.FieldInfo, ...]:
    return msgspec.structs.fields(kind)


def _default(field: msgspec.structs.FieldInfo) -> object:
    if field.default_factory is not msgspec.NODEFAULT:
        return field.default_factory()
    return field.default


def _body(kind: str, fields: JsonObject) -> JsonObject:
    """Move what sits in `message` out of the fields."""
    body: JsonObject = {"role": kind}
    if kind == "assistant":
        body["type"] = "message"
    for name, inner in NESTED[kind].inner.items():
        if name in fields:
            body[inner] = fields.pop(name)
    return body


def _changed(sent: Json, before: Json, after: Json) -> Json:
    """What was sent, but for what is other in `after` than in `before`: all else stays, known or not."""
    if before == after:
        return sent
    if isinstance(sent, dict) and isinstance(before, dict) and isinstance(after, dict):
        if before.get("type") != after.get("type"):
            # Another thing in the same place: what its predecessor had besides is not its own.
            return after
        kept = {key: value for key, value in sent.items() if key in after or key not in before}
        return kept | {
            key: _changed(sent.get(key), before.get(key), value)
            for key, value in after.items()
            if key not in before or before[key] != value
        }
    if (
        isinstance(sent, list)
        and isinstance(before, list)
        and isinstance(after, list)
        and (len(sent) == len(before) == len(after))
    ):
        return [_changed(*items) for items in zip(sent, before, after, strict=True)]
    return after


def _refuse_non_finite(wire: Json) -> None:
    for path, number in _numbers(wire, "$"):
        if not math.isfinite(number):
            from outrider.errors import MessageInvalid

            raise MessageInvalid(
                wire, f"{path} is {number}, which JSON cannot say; send a number, a text or null"
            )


def _numbers(value: Json, path: str) -> Iterator[tuple[str, float]]:
    if isinstance(value, float):
        yield path, value
    elif isinstance(value, dict):
        for key, item in value.items():
            yield from _numbers(item, f"{path}.{key}")
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from _numbers(item, f"{path}[{index}]")

"""Encodes typed values as lines of compact JSON in UTF-8, and makes user messages from prompts.

Raises `MessageInvalid` for what JSON cannot express. Does not add the line end.
"""

from __future__ import annotations

import math
from functools import cache
from typing import TYPE_CHECKING, Any, Final, cast

import msgspec

from outrider.errors import MessageInvalid
from outrider.wire._blocks import UnknownBlock
from outrider.wire._decoding import FRAME_TYPES, NESTED, decode_object, typed_frame
from outrider.wire._messages import RateLimitEvent, UnknownMessage, UserMessage
from outrider.wire._system import SystemMessage
from outrider.wire._value import Frame, Json, JsonObject, PlainObject, Value, dumps

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable


def encode(value: object) -> bytes:
    """One line of JSON for a frame, another value of the wire, or anything made of JSON types; no line end.

    Frames come out in the agent's spelling, with every field of the line they came from that has not been
    changed. Raises `MessageInvalid` for what JSON cannot say: NaN and infinity (it names the place), keys
    and objects of other classes, what is nested too deeply.
    """
    if type(value) is PlainObject:
        return dumps(value)
    wire = to_wire(value)
    try:
        line = dumps(wire)
    except (TypeError, ValueError, RecursionError) as error:
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
        raise MessageInvalid(value, "nested too deeply, or inside itself") from None


def _to_wire(value: object) -> Any:  # noqa: ANN401 - as many shapes as there are values
    # First what most of it is made of.
    kind = type(value)
    if kind in _AS_THEY_ARE:
        return value
    if kind is dict:
        return {
            key: item if type(item) in _AS_THEY_ARE else _to_wire(item)
            for key, item in cast("dict[Any, object]", value).items()
        }
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
    pending: list[tuple[str, Json]] = [("$", wire)]
    while pending:
        path, value = pending.pop()
        if isinstance(value, dict):
            pending += [(f"{path}.{key}", item) for key, item in value.items()]
        elif isinstance(value, list):
            pending += [(f"{path}[{index}]", item) for index, item in enumerate(value)]
        elif isinstance(value, float) and not math.isfinite(value):
            raise MessageInvalid(
                wire, f"{path} is {value}, which JSON cannot say; send a number, a text or null"
            )


DEFAULT_SESSION = "default"
"""Stands for "this session"; the agent looks at no other."""


def user_message(
    prompt: object,
    *,
    uuid: str | None = None,
    session_id: str = DEFAULT_SESSION,
    parent_tool_use_id: str | None = None,
) -> JsonObject:
    """The frame for a prompt.

    Text becomes the content, and so does a list of blocks (typed or dicts) or a single block. A `UserMessage`
    or a dict is completed with what it lacks; a dict that is a frame of another type stays as it is.
    Anything else is said as its `str()`. Raises `MessageInvalid` for a dict that has no content.
    """
    frame: JsonObject = {
        "type": "user",
        "message": {"role": "user"},
        "parent_tool_use_id": parent_tool_use_id,
        "session_id": session_id,
    }
    if uuid is not None:
        frame["uuid"] = uuid
    if isinstance(prompt, UserMessage):
        return _complete(cast("JsonObject", to_wire(prompt)), frame)
    if isinstance(prompt, dict):
        return _from_dict(cast("JsonObject", to_wire(cast("object", prompt))), frame)
    frame["message"]["content"] = _content(prompt)
    return frame


def _content(prompt: object) -> str | list[Any]:
    if isinstance(prompt, str):
        return prompt
    if isinstance(prompt, bytes | bytearray):
        return prompt.decode("utf-8", "replace")
    if isinstance(prompt, Value):
        return [to_wire(prompt)]
    if isinstance(prompt, list | tuple):
        return [_block(item) for item in cast("Iterable[object]", prompt)]
    return str(prompt)


def _block(item: object) -> JsonObject:
    if isinstance(item, Value | dict):
        return cast("JsonObject", to_wire(cast("object", item)))
    return {"type": "text", "text": _content(item) if isinstance(item, bytes | bytearray) else str(item)}


def _from_dict(given: JsonObject, frame: JsonObject) -> JsonObject:
    kind = given.get("type")
    if kind == "user" or (kind is None and "message" in given):
        return _complete(given, frame)
    if kind in FRAME_TYPES:
        return given
    if isinstance(kind, str):
        frame["message"]["content"] = [given]
        return frame
    if "content" in given:
        # The inside of a message: role and content.
        frame["message"] |= given
        return frame
    raise MessageInvalid(given, "it has neither `message` nor `content`; the agent would stop at such a line")


def _complete(given: JsonObject, frame: JsonObject) -> JsonObject:
    message = given.get("message")
    body = {"content": _content(message)} if not isinstance(message, dict) else cast("JsonObject", message)
    if message is None or body.get("content") is None:
        raise MessageInvalid(given, "its `message` has no `content`; the agent would stop at such a line")
    whole = {**frame, **{key: value for key, value in given.items() if value is not None}}
    whole["message"] = {"role": "user", **{key: value for key, value in body.items() if value is not None}}
    return whole

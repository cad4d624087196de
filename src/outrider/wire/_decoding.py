"""Decodes lines into typed frames: a fast path for the exact shapes, a tolerant one for everything else.

The fast path decodes a line straight into its class. A line that it rejects (an unknown type, a field of
another type) becomes the closest typed value, with `_tolerant`. Both agree on every line that the fast path
accepts. `_framing` finds where lines begin and end.
"""

from __future__ import annotations

import json
import re
from functools import cached_property, lru_cache
from itertools import islice
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Final, TypeAlias, TypeVar, Union, cast, get_args

import msgspec

from outrider.errors import MalformedFrame, MessageInvalid
from outrider.wire._blocks import BLOCK_TYPES, ContentBlock, TextBlock, UnknownBlock
from outrider.wire._messages import (
    AnyFrame,
    AssistantMessage,
    RateLimitEvent,
    UnknownMessage,
    UserMessage,
)
from outrider.wire._system import SYSTEM_SUBTYPES, UnknownSystemMessage
from outrider.wire._tolerant import convert_leniently, fields_of
from outrider.wire._value import Frame, Json, JsonObject, dumps, loads

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    _Undecoded: TypeAlias = Any
    _KnownBlock: TypeAlias = ContentBlock
else:
    _Undecoded = msgspec.Raw
    _KnownBlock = Union[tuple(BLOCK_TYPES.values())]  # noqa: UP007 - computed members


S = TypeVar("S", bound=msgspec.Struct)

FLAT: Final[dict[str, type[Frame]]] = {
    str(tag): kind for kind in get_args(AnyFrame) if (tag := kind.__struct_config__.tag) is not None
}
"""The frames whose class is their shape on the wire, by type."""

FRAME_TYPES: Final[frozenset[str]] = frozenset((*FLAT, "user", "assistant", "system", "rate_limit_event"))
"""Every frame type that has a class."""


class Nesting:
    """A message that is flat here and nested on the wire; the nested shapes are derived from the class."""

    def __init__(self, kind: type[UserMessage | AssistantMessage], content: object, **inner: str) -> None:
        self.kind = kind
        self.inner = {"content": "content", **inner}
        """Which fields sit in `message`, and by which name."""
        self._content = content
        names = kind.__struct_fields__
        self._values = attrgetter(
            *(f"message.{self.inner[name]}" if name in self.inner else name for name in names)
        )

    @cached_property
    def line(self) -> type[msgspec.Struct]:
        """The nested shape."""
        body: list[tuple[str, Any, Any]] = []
        rest: list[tuple[str, Any, Any]] = []
        fields = msgspec.structs.fields(self.kind)
        for field in fields:
            default = msgspec.field() if field.required else msgspec.field(default=None)
            if field.name in self.inner:
                inner = self.inner[field.name]
                body.append((inner, self._content if inner == "content" else field.type, default))
            else:
                rest.append((field.name, field.type, default))
        message = msgspec.defstruct(f"{self.kind.__name__}Body", body, gc=False)
        return msgspec.defstruct(
            f"{self.kind.__name__}Line",
            [("message", message), *rest],
            tag_field="type",
            tag=self.kind.type,
            rename={field.name: field.encode_name for field in fields},
            gc=False,
        )

    def flatten(self, nested: msgspec.Struct) -> UserMessage | AssistantMessage:
        """The flat message, from an instance of `line`."""
        return self.kind(*self._values(nested))

    def finish(self, nested: msgspec.Struct, line: bytes) -> AnyFrame:
        """The same, with its line."""
        frame = self.flatten(nested)
        frame.wire_line = line
        return frame


NESTED: Final[dict[str, Nesting]] = {
    "user": Nesting(UserMessage, str | list[_KnownBlock]),
    "assistant": Nesting(
        AssistantMessage,
        list[_KnownBlock],
        model="model",
        usage="usage",
        message_id="id",
        stop_reason="stop_reason",
        stop_sequence="stop_sequence",
        stop_details="stop_details",
        container="container",
        context_management="context_management",
        diagnostics="diagnostics",
    ),
}
"""The messages that are nested on the wire, by type."""


# The fields that nearly every message has, in the order in which they are sent. Lines that have no others are
# decoded in two thirds of the time.


class _UsualAnswer(msgspec.Struct, forbid_unknown_fields=True, gc=False):
    id: str
    type: str
    role: str
    model: str
    content: list[_KnownBlock]
    stop_reason: str | None = None
    stop_sequence: None = None
    usage: _Undecoded = None
    context_management: None = None


class _UsualAssistantLine(
    msgspec.Struct, tag_field="type", tag="assistant", forbid_unknown_fields=True, gc=False
):
    message: _UsualAnswer
    parent_tool_use_id: str | None = None
    session_id: str | None = None
    uuid: str | None = None
    timestamp: str | None = None
    request_id: str | None = None


class _UsualPrompt(msgspec.Struct, forbid_unknown_fields=True, gc=False):
    role: str
    content: str | list[_KnownBlock]


class _UsualUserLine(msgspec.Struct, tag_field="type", tag="user", forbid_unknown_fields=True, gc=False):
    message: _UsualPrompt
    parent_tool_use_id: str | None = None
    session_id: str | None = None
    uuid: str | None = None
    timestamp: str | None = None
    tool_use_result: _Undecoded = None
    tool_result_meta: _Undecoded = None


_USUAL: Final[frozenset[type[msgspec.Struct]]] = frozenset((_UsualAssistantLine, _UsualUserLine))


class _SystemLine(msgspec.Struct, tag_field="type", tag="system"):
    subtype: str


class _RateLimitLine(msgspec.Struct, tag_field="type", tag="rate_limit_event"):
    rate_limit_info: JsonObject
    uuid: str | None = None
    session_id: str | None = None


def _finish_system(decoded: _SystemLine, line: bytes) -> AnyFrame:
    frame = _system_message(decoded.subtype, cast("JsonObject", loads(line)), strict=False)
    frame.wire_line = line
    return frame


def _finish_rate_limit(_: _RateLimitLine, line: bytes) -> AnyFrame:
    frame = _rate_limit_event(cast("JsonObject", loads(line)), strict=False)
    frame.wire_line = line
    return frame


_FINISH: Final[dict[type, Callable[[Any, bytes], AnyFrame]]] = {
    _SystemLine: _finish_system,
    _RateLimitLine: _finish_rate_limit,
}
"""What completes a shape that the fast path decoded, but for the usual ones."""

_INCOMPLETE: Final[set[type]] = {*_USUAL, *_FINISH}
"""All of these shapes; other frames are complete."""


@lru_cache(maxsize=1)
def fast_decoder() -> Callable[[bytes], AnyFrame]:
    """What decodes a line into its class, or into a shape that `finished` completes. ValueError: neither.

    Made on first use: it takes longer than all else that an import of this package does.
    """
    lines = {nesting.line: nesting.finish for nesting in NESTED.values()}
    _FINISH.update(lines)
    _INCOMPLETE.update(lines)
    return _decoder(lines)


@lru_cache(maxsize=1)
def _usual_decoder() -> Callable[[bytes], AnyFrame]:
    """The same, and faster, for messages that have none of the rarer fields. ValueError: they have some."""
    return _decoder(_USUAL)


def _decoder(lines: Iterable[type[msgspec.Struct]]) -> Callable[[bytes], AnyFrame]:
    kinds = (*FLAT.values(), _SystemLine, _RateLimitLine, *lines)
    return msgspec.json.Decoder[Any](Union[kinds]).decode  # noqa: UP007 - computed members


def known_frames(lines: list[bytes]) -> list[AnyFrame] | None:
    """The frames on lines that the fast path takes; None if there is an odd one among them.

    Nearly all messages go through this, and most of them are stream events, which are complete: each step
    here is paid for a million times.
    """
    frames: list[AnyFrame] = []
    rest, decode_usual = iter(lines), _usual_decoder()
    while len(frames) < len(lines):
        try:
            frames.extend(map(decode_usual, rest))
        except (ValueError, RecursionError):
            # Those before it are in the list, and those after it are still to come.
            try:
                frames.append(fast_decoder()(lines[len(frames)]))
            except (ValueError, RecursionError):
                return None
    if _INCOMPLETE.isdisjoint(map(type, frames)):
        for frame, line in zip(frames, lines, strict=False):
            frame.wire_line = line
        return frames
    return _all_finished(frames, lines)


def _all_finished(frames: list[Any], lines: list[bytes]) -> list[AnyFrame]:
    """Complete what the decoders made of these lines. In one function, since a call takes as long as half of
    what is done for a message here."""
    finish_of = _FINISH.get
    done: list[AnyFrame] = []
    for nested, line in zip(frames, lines, strict=False):
        kind: type[object] = type(nested)  # pyright: ignore[reportUnknownVariableType] - of anything
        frame: AnyFrame = nested
        if kind is _UsualAssistantLine:
            answer = nested.message
            frame = AssistantMessage(
                answer.content,
                answer.model,
                nested.parent_tool_use_id,
                None,
                answer.usage,
                answer.id,
                answer.stop_reason,
                nested.session_id,
                nested.uuid,
                None,
                None,
                nested.timestamp,
                nested.request_id,
            )
        elif kind is _UsualUserLine:
            frame = UserMessage(
                nested.message.content,
                nested.uuid,
                nested.parent_tool_use_id,
                nested.tool_use_result,
                None,
                nested.session_id,
                nested.timestamp,
                None,
                None,
                None,
                None,
                None,
                nested.tool_result_meta,
            )
        elif (finish := finish_of(kind)) is not None:
            frame = finish(nested, line)
        frame.wire_line = line
        done.append(frame)
    return done


def decode(line: bytes | bytearray | memoryview | str, *, strict: bool = False) -> AnyFrame:
    """Decode one line.

    Raises `MalformedFrame` for what is not a JSON object. With `strict`, raises `MessageInvalid` for an
    unknown type or block and for a field that is missing or of another type; otherwise such frames come
    out as the nearest thing that is true.
    """
    data = line.encode("utf-8", "surrogatepass") if isinstance(line, str) else bytes(line)
    try:
        return decode_frame(opening(data).rstrip(BLANK), strict=strict)
    except ValueError as error:
        raise MalformedFrame(data, str(error)) from error


BLANK: Final = b" \t\r\n\x00"
"""Around a frame these mean nothing: white space and NUL bytes."""

_BYTE_ORDER_MARK: Final = b"\xef\xbb\xbf"


def opening(line: bytes) -> bytes:
    """The line without what means nothing before a frame; its end is kept, it may be the middle of a text."""
    return line.lstrip(BLANK).removeprefix(_BYTE_ORDER_MARK).lstrip(BLANK)


def decode_frame(line: bytes, *, strict: bool = False) -> AnyFrame:
    """Decode the bytes of one frame; a plain ValueError says that they are not a JSON object."""
    try:
        decoded: AnyFrame = fast_decoder()(line)
    except (ValueError, RecursionError):
        return decode_tolerantly(line, strict=strict)
    if strict and type(decoded) in _FINISH:
        return decode_tolerantly(line, strict=True)
    return finished(decoded, line)


def finished(decoded: AnyFrame, line: bytes) -> AnyFrame:
    """Complete what the fast path decoded, and let it keep its line."""
    finish = _FINISH.get(type(decoded))
    if finish is not None:
        return finish(decoded, line)
    decoded.wire_line = line
    return decoded


def decode_tolerantly(line: bytes, *, strict: bool = False) -> AnyFrame:
    """Decode without the fast path."""
    frame = typed_frame(decode_object(line), strict=strict)
    frame.wire_line = line
    return frame


def frame_from_wire(data: JsonObject, *, strict: bool = False) -> AnyFrame:
    """The typed frame for a decoded one. Never raises for a dict of JSON, unless it is to be `strict`."""
    frame = typed_frame(data, strict=strict)
    frame.wire_line = dumps(data)
    return frame


def typed_frame(data: JsonObject, *, strict: bool = False) -> AnyFrame:
    """The typed frame for a decoded one, without a line to keep."""
    kind = data.get("type")
    if not isinstance(kind, str):
        return _unknown("", data, "it has no `type`", strict)
    if kind == "system":
        return _system_message(data.get("subtype"), data, strict=strict)
    if kind == "rate_limit_event":
        return _rate_limit_event(data, strict=strict)
    if kind in NESTED:
        return _nested_message(NESTED[kind], data, strict=strict)
    if kind == "result" and not strict and not isinstance(data.get("is_error"), bool):
        # A verdict that cannot be read is not a good one.
        data = {**data, "is_error": True}
    if kind == "stream_event" and "event" in data:
        data = {**data, "event": msgspec.Raw(dumps(data["event"]))}
    if kind in FLAT:
        return cast("AnyFrame", _convert(FLAT[kind], data, strict=strict))
    return _unknown(kind, data, f"its type is {kind!r}", strict)


def _unknown(kind: str, data: JsonObject, reason: str, strict: bool) -> AnyFrame:
    if strict:
        _refuse(data, reason)
    return UnknownMessage(kind, data)


def _refuse(data: Json, reason: str) -> None:
    raise MessageInvalid(data, reason)


def _convert(kind: type[S], data: JsonObject, *, strict: bool) -> S:
    if not strict:
        return convert_leniently(kind, data)
    try:
        return msgspec.convert(data, kind)
    except msgspec.ValidationError as error:
        raise MessageInvalid(data, str(error)) from error


def _system_message(subtype: object, data: JsonObject, *, strict: bool) -> AnyFrame:
    if not isinstance(subtype, str):
        return _unknown("system", data, "it has no `subtype`", strict)
    kind = SYSTEM_SUBTYPES.get(subtype)
    if kind is None:
        if strict:
            _refuse(data, f"its subtype is {subtype!r}")
        return UnknownSystemMessage(subtype, data)
    return _convert(kind, {**data, **kind.derive(data), "data": data}, strict=strict)


def _rate_limit_event(data: JsonObject, *, strict: bool) -> AnyFrame:
    info = data.get("rate_limit_info")
    if isinstance(info, dict):
        data = {**data, "rate_limit_info": {**info, "raw": info}}
    return _convert(RateLimitEvent, data, strict=strict)


def _nested_message(nesting: Nesting, data: JsonObject, *, strict: bool) -> AnyFrame:
    message = data.get("message")
    if not isinstance(message, dict):
        return _unknown(nesting.kind.type, data, "its `message` is not an object", strict)
    body = cast("JsonObject", message)
    content = body.get("content")
    line = _convert(nesting.line, {**data, "message": {**body, "content": []}}, strict=strict)
    frame = nesting.flatten(line)
    if isinstance(frame, UserMessage) and isinstance(content, str):
        frame.content = content
    else:
        frame.content = _blocks(content, data, strict)
    return frame


def _blocks(content: object, data: JsonObject, strict: bool) -> list[ContentBlock]:
    if isinstance(content, list):
        return [decode_block(block, strict=strict) for block in cast("list[Json]", content)]
    if strict:
        _refuse(data, "its `content` is not a list")
    if isinstance(content, str):
        return [TextBlock(content)]
    return [] if content is None else [UnknownBlock("", cast("Json", content))]


def decode_block(data: Json, *, strict: bool = False) -> ContentBlock:
    """The typed block for a decoded one.

    A known block that lacks a field gets an empty one; with a field of another type it is an
    `UnknownBlock`, since half of its content would be missing. Raises `MessageInvalid` if `strict`.
    """
    kind = data.get("type") if isinstance(data, dict) else None
    if not isinstance(kind, str):
        if strict:
            _refuse(data, "a content block has no `type`")
        return UnknownBlock("", data)
    fields, known = cast("JsonObject", data), BLOCK_TYPES.get(kind)
    if known is None:
        if strict:
            _refuse(data, f"a content block is of type {kind!r}")
        return UnknownBlock(kind, data)
    try:
        return cast("ContentBlock", msgspec.convert(fields, known))
    except (ValueError, RecursionError) as error:
        if strict:
            _refuse(data, str(error))
    block = convert_leniently(known, fields)
    for field in fields_of(known):
        value = fields.get(field.wire_name)
        if value is not None and getattr(block, field.name) != value:
            return UnknownBlock(kind, data)
    return cast("ContentBlock", block)


def decode_object(line: bytes) -> JsonObject:
    """The JSON object on a line, untyped; a ValueError says why there is none."""
    value = loads(line)
    if not isinstance(value, dict):
        # One kind of error for all that is not a frame.
        raise ValueError(f"a JSON {_JSON_NAMES[type(value)]}, not an object")  # noqa: TRY004
    return value


_JSON_NAMES: Final = {
    list: "array",
    str: "string",
    int: "number",
    float: "number",
    bool: "boolean",
    type(None): "null",
}


_LOOKED_AT: Final = 65536
"""So many bytes are looked through: an agent says first who asks, and what else there is may be very long."""

_TOKENS: Final = 16384
"""The same, in tokens."""

_TAIL: Final = 4096
"""So many bytes are looked through at the end, where the search begins again at each id."""

# Patterns that `re` compiles when it first needs them: most programs never do.

_TOKEN: Final = rb'(?s)"[^"\\]*(?:\\.[^"\\]*)*"?|[{}\[\]:,]|-?\d[^\s",:{}\[\]]*'
"""What an object is made of, as far as it matters here. None of these can be inside of another. Each is taken
whole, also a text that has no end and a number that is none: a search that failed and began again inside of
it would take the square of its length."""

_LAST: Final = rb'[{,]\s*"request_id"\s*:\s*("(?:[^"\\]|\\.)*"|-?\d+)\s*(?:,\s*"type"[^{}\[\]]*)?\}\s*\Z'
"""The id as one of the last fields of a frame. Inside a JSON string the quotation marks would be escaped."""

_LAST_TYPE: Final = rb'[{,]\s*"type"\s*:\s*"control_request"\s*(?:,\s*"request_id"[^{}\[\]]*)?\}\s*\Z'
"""The same of the type."""


def asker_of(head: bytes, tail: bytes = b"") -> str | int | None:
    """The id of the control request that begins, or ends, with these bytes; None if it is none, or has
    none."""
    head, tail = head[:_LOOKED_AT], tail[-_TAIL:]
    if b"control_request" not in head and b"control_request" not in tail:
        # By far the most.
        return None
    kind, id = _first_fields(head)
    if kind != "control_request" and not (kind is None and re.search(_LAST_TYPE, tail)):
        return None
    if id is None and (found := re.search(_LAST, tail)) is not None:
        id = _value(found[1])
    return id if isinstance(id, (str, int)) and id != "" else None


def _first_fields(data: bytes) -> tuple[object, object]:
    """`type` and `request_id` of the object itself, not of anything in it."""
    depth = 0
    fields: dict[bytes, object] = {}
    key = last = b""
    for found in islice(re.finditer(_TOKEN, data), _TOKENS):
        token = found[0]
        if token in b"{[":
            depth += 1
        elif token in b"}]":
            depth -= 1
            if depth <= 0:
                break
        elif depth == 1:
            if token == b":":
                key = last
            elif token == b",":
                key = b""
            elif key and (token.startswith(b'"') or found.end() < len(data)):
                # A number at the very end may continue.
                fields.setdefault(key, _value(token))
            last = token
    return fields.get(b'"type"'), fields.get(b'"request_id"')


def _value(token: bytes) -> object:
    try:
        return cast("object", json.loads(token))
    except ValueError:
        return None

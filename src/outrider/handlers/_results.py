"""What a tool gave back, as the result that MCP has for it.

Does not call tools, nor send results.
"""

from __future__ import annotations

import enum
import json
import os
from collections.abc import Callable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from operator import attrgetter
from typing import Any, Final, TypeGuard, cast

import msgspec

from outrider.handlers._content import Audio, Image, Resource, ResourceLink, ToolResult, bytes_content
from outrider.handlers._schema import is_object
from outrider.wire import Json, JsonObject

_CONTENT: Final = (Image, Audio, Resource, ResourceLink)
_BYTES: Final = (bytes, bytearray, memoryview)
_OWN: Final = (*_CONTENT, *_BYTES)
_NEEDED: Final[Mapping[str, tuple[str, tuple[type, ...]]]] = {
    "text": ("text", (str,)),
    "image": ("data", (str, *_BYTES)),
    "audio": ("data", (str, *_BYTES)),
    "resource": ("resource", (dict,)),
    "resource_link": ("uri", (str,)),
}
"""The kinds of content that there are, and what each must have."""
_ATOMS: Final = frozenset((str, int, float, bool, type(None)))
"""What is no content and holds none, to be told apart fast."""
_MCP: Final = ("mcp", "mcp_types")
_RESULT_KEYS: Final = frozenset(("content", "structuredContent", "isError", "is_error", "_meta"))


class NotSendable(TypeError):
    """A tool gave back what cannot be sent."""


def as_result(value: object) -> JsonObject:
    """The result for the agent. Raises `NotSendable`, which says what is in the way."""
    if type(value) is str:
        return {"content": [{"type": "text", "text": value}]}
    try:
        if isinstance(value, ToolResult):
            return _full(value)
        if _is_of_mcp(value):
            value = _dumped(value)
        if _is_result(value):
            return _passed(value)
        return _simple(value)
    except NotSendable:
        raise
    except RecursionError as error:
        raise NotSendable(f"a value of type `{type(value).__name__}` is nested too deeply to send") from error
    except Exception as error:
        raise NotSendable(
            f"a value of type `{type(value).__name__}` cannot be sent ({type(error).__name__}: {error})"
        ) from error


def error_result(text: str) -> JsonObject:
    """A result that says what went wrong."""
    return {"content": [{"type": "text", "text": text}], "isError": True}


def _full(value: ToolResult) -> JsonObject:
    content = value.content
    if content is None and value.structured is not None:
        content = value.structured
    result = as_result(content)
    if value.structured is not None:
        result["structuredContent"] = _object("structured", value.structured)
    if value.is_error:
        result["isError"] = True
    if value.meta is not None:
        result["_meta"] = _object("meta", value.meta)
    return result


def _object(name: str, value: object) -> JsonObject:
    data = _data(value)
    if not is_object(data):
        raise NotSendable(f"`{name}` must be an object, not a value of type `{type(value).__name__}`")
    return data


def _passed(value: JsonObject) -> JsonObject:
    """What is written as MCP writes it. Many spell `is_error` as Python would."""
    result = cast(JsonObject, _data(value))
    if "is_error" in result:
        result.setdefault("isError", result.pop("is_error"))
    return result


def _simple(value: object) -> JsonObject:
    if value is None:
        return {"content": []}
    if _is_content(value):
        return {"content": [_part(value)]}
    if _is_list(value) and _has_content(value):
        return {"content": _parts(value)}
    data = _data(value)
    result: JsonObject = {"content": [_text(data)]}
    if is_object(data):
        result["structuredContent"] = data
    return result


def _parts(values: Sequence[object]) -> list[JsonObject]:
    parts: list[JsonObject] = []
    for each in values:
        if _is_list(each) and _has_content(each):
            parts += _parts(each)
        elif each is not None:
            parts.append(_part(each) if _is_content(each) else _text(_data(each)))
    return parts


def _part(value: object) -> JsonObject:
    if isinstance(value, _CONTENT):
        return value.to_wire()
    if isinstance(value, _BYTES):
        return bytes_content(bytes(cast(bytes, value)))
    return cast(JsonObject, _dumped(value) if _is_of_mcp(value) else _data(value))


def _text(data: Json) -> JsonObject:
    text = data if isinstance(data, str) else str(data) if _is_odd_float(data) else _encoded(data)
    return {"type": "text", "text": text}


def _is_odd_float(data: Json) -> bool:
    """Whether it is a number that JSON has no form for."""
    return isinstance(data, float) and (data != data or data in (float("inf"), float("-inf")))


def _encoded(data: Json) -> str:
    try:
        return msgspec.json.encode(data).decode()
    except UnicodeEncodeError:
        return json.dumps(data, ensure_ascii=False)


# What is what.


def _is_content(value: object) -> bool:
    return isinstance(value, _OWN) or _is_content_object(value) or _is_of_mcp(value)


def _has_content(values: Sequence[object]) -> bool:
    return any(
        _is_content(each) or (_is_list(each) and _has_content(each))
        for each in values
        if type(each) not in _ATOMS
    )


def _is_list(value: object) -> TypeGuard[Sequence[object]]:
    return isinstance(value, (list, tuple))


def _is_content_object(value: object) -> TypeGuard[JsonObject]:
    """Whether it is content as MCP writes it."""
    if not is_object(value):
        return False
    kind: object = value.get("type")
    if not isinstance(kind, str) or kind not in _NEEDED:
        return False
    name, kinds = _NEEDED[kind]
    return isinstance(value.get(name), kinds)


def _is_result(value: object) -> TypeGuard[JsonObject]:
    """Whether it is a result as MCP writes it."""
    if not is_object(value) or "content" not in value or not value.keys() <= _RESULT_KEYS:
        return False
    content: object = value["content"]
    return isinstance(content, list) and all(
        _is_content_object(each) for each in cast("list[object]", content)
    )


def _is_of_mcp(value: Any) -> TypeGuard[Any]:  # noqa: ANN401 - its classes are not known here
    """Whether it is a value of the `mcp` library, which writes itself."""
    return type(value).__module__.partition(".")[0] in _MCP and hasattr(value, "model_dump")


def _dumped(value: Any) -> JsonObject:  # noqa: ANN401 - a value of the `mcp` library
    dumped: JsonObject = value.model_dump(mode="json", by_alias=True, exclude_none=True)
    # Newer versions of it add what the agent does not know to whole results.
    is_whole = isinstance(dumped.get("content"), list)
    return {key: each for key, each in dumped.items() if not is_whole or key in _RESULT_KEYS}


# Data.


def _data(value: object) -> Json:
    """As JSON has it."""
    return cast(Json, msgspec.to_builtins(value, str_keys=True, enc_hook=_unusual))


def _unusual(value: object) -> object:
    """What somebody made of a kind that msgspec knows, or pydantic, or numpy."""
    if isinstance(value, ToolResult):
        raise NotSendable("`ToolResult` must be the result itself")
    if isinstance(value, _CONTENT):
        raise NotSendable(f"`{type(value).__name__}` must be the result itself or an item of a list of them")
    serializer: Any = getattr(type(value), "__pydantic_serializer__", None)
    if serializer is not None:
        return serializer.to_python(value, mode="json")
    for kind, plain in _PLAIN:
        if isinstance(value, kind):
            return plain(value)
    to_list: Any = getattr(value, "tolist", None)
    # What answers to any name, as mocks do, would go on without end.
    if callable(to_list) and not hasattr(listed := to_list(), "tolist"):
        return listed
    raise NotSendable(f"a value of type `{type(value).__name__}` cannot be sent")


_PLAIN: Final[tuple[tuple[Any, Callable[[Any], object]], ...]] = (
    (enum.Enum, attrgetter("value")),
    (str, str.__str__),
    (int, int),
    (float, float),
    (os.PathLike, os.fspath),
    (Mapping, dict),
    (Sequence, list),
    (AbstractSet, list),
)

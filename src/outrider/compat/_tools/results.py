"""Owns how what a tool's handler gives back becomes a result as MCP has it.

Does not call handlers.
"""

from __future__ import annotations

import logging
import types
from collections.abc import Mapping
from typing import (
    TYPE_CHECKING,
    Annotated,
    Any,
    Final,
    NotRequired,
    Required,
    Union,
    cast,
    get_args,
    get_origin,
    get_type_hints,
    is_typeddict,
)

if TYPE_CHECKING:
    from collections.abc import Sequence


log = logging.getLogger("outrider.compat")

_TEXT: Final = ("text",)
_DATA: Final = ("data", "mimeType")
_PASSED: Final = {"text": _TEXT, "image": _DATA, "audio": _DATA}
"""What stays as it is, and the keys that it has."""
_RESULT: Final = frozenset(("content", "is_error", "isError"))


def as_result(given: object) -> object:
    """The result; what is not a dict with content is left to Outrider, which sends texts and data as well.

    Raises ValueError for content that lacks what its kind has to have.
    """
    if not isinstance(given, dict):
        return given
    result = cast("dict[str, Any]", given)
    if result and not _RESULT & result.keys():
        return result
    content: object = result.get("content", [])
    if not isinstance(content, list | tuple):
        raise ValueError(f"`content` must be a list, not {type(content).__name__}")  # noqa: TRY004 - as others
    parts = [_part(each) for each in cast("Sequence[object]", content)]
    is_error = result.get("is_error", result.get("isError", False))
    return {"content": [part for part in parts if part is not None], "isError": bool(is_error)}


def _part(given: object) -> dict[str, Any] | None:
    """One part of the content; None for what the agent has no use for."""
    if isinstance(given, str):
        return _as_text(given)
    if not isinstance(given, dict):
        raise ValueError(f"a part of `content` must be a dict, not {type(given).__name__}")  # noqa: TRY004
    part = cast("dict[str, Any]", given)
    kind = part.get("type")
    if keys := _PASSED.get(str(kind)):
        return {"type": kind, **{key: _text(part, key) for key in keys}}
    if kind == "resource_link":
        told = (part.get("name"), part.get("uri"), part.get("description"))
        return _as_text("\n".join(str(each) for each in told if each) or "Resource link")
    if kind == "resource":
        resource: object = part.get("resource")
        inner = cast("dict[str, Any]", resource) if isinstance(resource, dict) else {}
        if isinstance(inner.get("text"), str):
            return _as_text(inner["text"])
        if isinstance(inner.get("blob"), str) and inner.get("uri"):
            return part
    log.warning("a tool gave content of the type %r, which is left out", kind)
    return None


def _text(part: dict[str, Any], key: str) -> str:
    value = part.get(key)
    if isinstance(value, bytes):
        # `base64.b64encode` gives them.
        return value.decode()
    if not isinstance(value, str):
        raise ValueError(f"content of the type {part['type']!r} must have a text as {key!r}")  # noqa: TRY004
    return value


def _as_text(text: str) -> dict[str, Any]:
    return {"type": "text", "text": text}


_NAMES: Final[Mapping[object, str]] = {
    str: "string",
    int: "integer",
    float: "number",
    bool: "boolean",
    list: "array",
    dict: "object",
}
_MARKS: Final = frozenset(("NotRequired", "Required", "ReadOnly"))
"""What says something of a key, and nothing of its type. The last is newer than the oldest Python here."""


def json_schema(given: object) -> dict[str, Any]:
    """The JSON Schema of a tool's arguments."""
    if isinstance(given, dict):
        schema = cast("dict[str, Any]", given)
        if isinstance(schema.get("type"), str) and "properties" in schema:
            return schema
        properties = {name: _of_type(kind) for name, kind in schema.items()}
        return {"type": "object", "properties": properties, "required": list(properties)}
    if is_typeddict(given):
        return _of_typed_dict(cast(type, given))
    return {"type": "object", "properties": {}}


def _of_typed_dict(kind: Any) -> dict[str, Any]:  # noqa: ANN401 - TypedDicts have no type
    hints = get_type_hints(kind, include_extras=True)
    schema: dict[str, Any] = {
        "type": "object",
        "properties": {name: _of_type(hint) for name, hint in hints.items()},
    }
    if required := sorted(kind.__required_keys__):
        schema["required"] = required
    return schema


def _of_type(kind: object) -> dict[str, Any]:
    origin, arguments = get_origin(kind), get_args(kind)
    if origin is Annotated:
        inner, *notes = arguments
        text = next((note for note in notes if isinstance(note, str)), None)
        return _of_type(inner) if text is None else {**_of_type(inner), "description": text}
    if origin in (NotRequired, Required) or getattr(origin, "_name", None) in _MARKS:
        return _of_type(arguments[0])
    if origin in (Union, types.UnionType):
        members = [_of_type(each) for each in arguments if each is not type(None)]
        return members[0] if len(members) == 1 else {"anyOf": members}
    if origin is list and arguments:
        return {"type": "array", "items": _of_type(arguments[0])}
    if is_typeddict(kind):
        return _of_typed_dict(kind)
    try:
        return {"type": _NAMES.get(origin or kind, "string")}
    except TypeError:
        # What cannot be hashed is no type that is known.
        return {"type": "string"}

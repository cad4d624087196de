"""Owns how what a tool's handler gives back becomes a result as MCP has it.

Does not call handlers.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, Final, cast

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

"""Shim: the reference SDK's `parse_message`, for programs that read frames themselves."""

from __future__ import annotations

from typing import Any, Final, cast

from outrider.compat._errors import MessageParseError
from outrider.compat._reading import as_in_reference
from outrider.wire import Message, frame_from_wire

__all__ = ["parse_message"]

_IDS: Final = ("uuid", "session_id")
_TASK: Final = ("task_id", "description", *_IDS)
_REQUIRED: Final[dict[str, tuple[str, ...]]] = {
    "user": ("message",),
    "assistant": ("message",),
    "system": ("subtype",),
    "result": ("subtype", "duration_ms", "duration_api_ms", "is_error", "num_turns", "session_id"),
    "stream_event": (*_IDS, "event"),
    "rate_limit_event": ("rate_limit_info", *_IDS),
    "conversation_reset": ("new_conversation_id", *_IDS),
}
"""What a message of each type has to have. Others are not messages to the reference."""
_OF_SYSTEM: Final[dict[str, tuple[str, ...]]] = {
    "task_started": _TASK,
    "task_progress": (*_TASK, "usage"),
    "task_notification": ("task_id", "status", "output_file", "summary", *_IDS),
}
_CALL: Final = ("id", "name", "input")
_OF_BLOCKS: Final[dict[str, dict[str, tuple[str, ...]]]] = {
    "user": {"text": ("text",), "tool_use": _CALL, "tool_result": ("tool_use_id",)},
}
_OF_BLOCKS["assistant"] = {
    **_OF_BLOCKS["user"],
    "thinking": ("thinking", "signature"),
    "server_tool_use": _CALL,
    "advisor_tool_result": ("tool_use_id", "content"),
}
"""The blocks that the reference has classes for, by the message that they are in. It drops all others."""


def parse_message(data: dict[str, Any]) -> Message | None:
    """The message of a frame, or None for a type that the reference does not know.

    Raises `MessageParseError` for what is not a message, and for one that lacks something.
    """
    if not isinstance(cast("object", data), dict):
        raise MessageParseError(
            f"Invalid message data type (expected dict, got {type(data).__name__})", cast("Any", data)
        )
    kind: object = data.get("type")
    if not kind:
        raise MessageParseError("Message missing 'type' field", data)
    if not isinstance(kind, str) or kind not in _REQUIRED:
        return None
    try:
        frame = _checked(kind, data)
    except KeyError as missing:
        raise MessageParseError(f"Missing required field in {kind} message: {missing}", data) from missing
    if not _is_origin(frame.get("origin")):
        frame = {name: value for name, value in frame.items() if name != "origin"}
    return as_in_reference(cast("Message", frame_from_wire(frame)))


def _checked(kind: str, data: dict[str, Any]) -> dict[str, Any]:
    """The frame without the blocks that the reference drops. Raises `KeyError` for what is missing."""
    _require(data, _REQUIRED[kind])
    if kind == "system":
        _require(data, _OF_SYSTEM.get(str(data["subtype"]), ()))
    elif kind == "rate_limit_event":
        _require(data["rate_limit_info"], ("status",))
    elif kind == "result" and data.get("deferred_tool_use"):
        _require(data["deferred_tool_use"], _CALL)
    elif kind in _OF_BLOCKS:
        return {**data, "message": {**data["message"], "content": _blocks(kind, data)}}
    return data


def _blocks(kind: str, data: dict[str, Any]) -> object:
    content: object = data["message"]["content"]
    if kind == "assistant":
        _require(data["message"], ("model",))
        if not isinstance(content, list):
            said = f"Invalid assistant content (expected list, got {type(content).__name__})"
            raise MessageParseError(said, data)
    if not isinstance(content, list):
        return content
    kept: list[dict[str, Any]] = []
    for each in cast("list[object]", content):
        if not isinstance(each, dict):
            said = f"Invalid content block (expected dict, got {type(each).__name__})"
            raise MessageParseError(said, data)
        block = cast("dict[str, Any]", each)
        fields = _OF_BLOCKS[kind].get(str(block["type"]))
        if fields is not None:
            _require(block, fields)
            kept.append(block)
    return kept


def _is_origin(value: object) -> bool:
    return isinstance(value, dict) and isinstance(cast("dict[str, Any]", value).get("kind"), str)


def _require(data: dict[str, Any], names: tuple[str, ...]) -> None:
    for name in names:
        data[name]

"""What a user may say, completed to the user message that the agent expects.

Does not send anything, and does not read files: what a prompt refers to is resolved above.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from outrider.wire._decoding import FRAME_TYPES
from outrider.wire._encoding import to_wire
from outrider.wire._messages import UserMessage
from outrider.wire._value import JsonObject, Value

if TYPE_CHECKING:
    from collections.abc import Iterable

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
    from outrider.errors import MessageInvalid

    raise MessageInvalid(given, "it has neither `message` nor `content`; the agent would stop at such a line")


def _complete(given: JsonObject, frame: JsonObject) -> JsonObject:
    message = given.get("message")
    body = {"content": _content(message)} if not isinstance(message, dict) else cast("JsonObject", message)
    if message is None or body.get("content") is None:
        from outrider.errors import MessageInvalid

        raise MessageInvalid(given, "its `message` has no `content`; the agent would stop at such a line")
    whole = {**frame, **{key: value for key, value in given.items() if value is not None}}
    whole["message"] = {"role": "user", **{key: value for key, value in body.items() if value is not None}}
    return whole

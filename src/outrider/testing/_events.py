"""An answer in the forms of the Messages API: one JSON object, or the events that it is streamed in.

Does not know how these travel.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Final, NamedTuple

from outrider.testing._steps import Answer, Block, Failure, Text, Thinking, ToolUse, split

if TYPE_CHECKING:
    from collections.abc import Iterator

    from outrider.wire import JsonObject

__all__ = ["Event", "count_pieces", "error_body", "error_event", "event_stream", "message_body"]

_USAGE: Final[JsonObject] = {
    "input_tokens": 10,
    "cache_creation_input_tokens": 0,
    "cache_read_input_tokens": 0,
    "output_tokens": 5,
}


class Event(NamedTuple):
    """A server-sent event."""

    data: bytes
    is_piece: bool = False
    """Whether it carries a piece of a block: gates and delays are counted by these."""


def message_body(answer: Answer, *, id: str, model: str) -> JsonObject:
    """The answer as one JSON object. Calls of tools that have no id get one that follows from this one."""
    blocks = [_block(block, f"{id.replace('msg', 'toolu')}_{at}") for at, block in enumerate(answer.blocks)]
    uses_tool = any(isinstance(block, ToolUse) for block in answer.blocks)
    body: JsonObject = {
        "id": id,
        "type": "message",
        "role": "assistant",
        "model": answer.model or model,
        "content": blocks,
        "stop_reason": answer.stop_reason or ("tool_use" if uses_tool else "end_turn"),
        "stop_sequence": None,
        "usage": {**_USAGE, **answer.usage},
    }
    if answer.stop_details is not None:
        body["stop_details"] = dict(answer.stop_details)
    return body


def _block(block: Block, id: str) -> JsonObject:
    match block:
        case Text(pieces):
            return {"type": "text", "text": "".join(pieces)}
        case Thinking(pieces, signature):
            return {"type": "thinking", "thinking": "".join(pieces), "signature": signature}
        case ToolUse(name, given, chosen):
            return {"type": "tool_use", "id": chosen or id, "name": name, "input": dict(given)}


def event_stream(answer: Answer, body: JsonObject) -> Iterator[Event]:
    """The events that a message is streamed in; `body` is the same message whole."""
    usage: JsonObject = body["usage"]
    opening = {key: value for key, value in body.items() if key != "stop_details"}
    # Before it has written anything, the model has counted one token.
    opening |= {"content": [], "stop_reason": None, "usage": {**usage, "output_tokens": 1}}
    yield _event("message_start", message=opening)
    for index, block in enumerate(answer.blocks):
        whole: JsonObject = body["content"][index]
        yield _event("content_block_start", index=index, content_block=_empty(whole))
        for delta in _deltas(block):
            is_piece = delta["type"] != "signature_delta"
            yield _event("content_block_delta", is_piece, index=index, delta=delta)
        yield _event("content_block_stop", index=index)
    ending = {key: body[key] for key in ("stop_reason", "stop_sequence", "stop_details") if key in body}
    yield _event("message_delta", delta=ending, usage=usage)
    yield _event("message_stop")


def count_pieces(answer: Answer) -> int:
    """How many pieces there are in its stream."""
    return sum(
        len(_input_pieces(block)) if isinstance(block, ToolUse) else len(block.pieces)
        for block in answer.blocks
    )


def _empty(block: JsonObject) -> JsonObject:
    """The block as it starts."""
    blank: JsonObject = {"text": "", "thinking": "", "signature": "", "input": {}}
    return {key: blank.get(key, value) for key, value in block.items()}


def _deltas(block: Block) -> Iterator[JsonObject]:
    match block:
        case Text(pieces):
            for piece in pieces:
                yield {"type": "text_delta", "text": piece}
        case Thinking(pieces, signature):
            for piece in pieces:
                yield {"type": "thinking_delta", "thinking": piece}
            yield {"type": "signature_delta", "signature": signature}
        case ToolUse():
            for piece in _input_pieces(block):
                yield {"type": "input_json_delta", "partial_json": piece}


def _input_pieces(block: ToolUse) -> tuple[str, ...]:
    return split(json.dumps(dict(block.input)), block.chunks)


def error_body(failure: Failure, *, request_id: str) -> JsonObject:
    error = {"type": failure.type, "message": failure.message}
    return {"type": "error", "error": error, "request_id": request_id}


def error_event(failure: Failure) -> bytes:
    """The error in the middle of a stream."""
    return _event("error", error={"type": failure.type, "message": failure.message}).data


def _event(type: str, is_piece: bool = False, /, **fields: object) -> Event:
    data = json.dumps({"type": type, **fields})
    return Event(f"event: {type}\ndata: {data}\n\n".encode(), is_piece)

"""Owns a scripted answer as the Messages API gives it: the whole message, and the events of its stream.

Does not send anything.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Final, NamedTuple

from outrider.testing._script.steps import Answer, Block, Text, Thinking, ToolUse, split
from outrider.wire import JsonObject

__all__ = ["Event", "count_pieces", "events_of", "message_of"]

_USAGE: Final[JsonObject] = {
    "input_tokens": 10,
    "cache_creation_input_tokens": 0,
    "cache_read_input_tokens": 0,
    "output_tokens": 5,
}
_BLANK: Final[JsonObject] = {"text": "", "thinking": "", "signature": "", "input": {}}


class Event(NamedTuple):
    """An event of a stream."""

    data: JsonObject
    is_piece: bool = False
    """Whether it carries a piece of a block: gates and delays are counted by these."""


def message_of(answer: Answer, *, id: str, model: str) -> JsonObject:
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


def events_of(answer: Answer, body: JsonObject) -> Iterator[Event]:
    """The events that a message is streamed in; `body` is the same message whole."""
    usage: JsonObject = body["usage"]
    opening = {key: value for key, value in body.items() if key != "stop_details"}
    # Before it has written anything, the model has counted one token.
    opening |= {"content": [], "stop_reason": None, "usage": {**usage, "output_tokens": 1}}
    yield Event({"type": "message_start", "message": opening})
    for index, block in enumerate(answer.blocks):
        blank = {key: _BLANK.get(key, value) for key, value in body["content"][index].items()}
        yield Event({"type": "content_block_start", "index": index, "content_block": blank})
        for delta in _deltas(block):
            data: JsonObject = {"type": "content_block_delta", "index": index, "delta": delta}
            yield Event(data, delta["type"] != "signature_delta")
        yield Event({"type": "content_block_stop", "index": index})
    ending = {key: body[key] for key in ("stop_reason", "stop_sequence", "stop_details") if key in body}
    yield Event({"type": "message_delta", "delta": ending, "usage": usage})
    yield Event({"type": "message_stop"})


def count_pieces(answer: Answer) -> int:
    """How many pieces there are in its stream."""
    return sum(
        len(_input_pieces(block)) if isinstance(block, ToolUse) else len(block.pieces)
        for block in answer.blocks
    )


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
    return split(json.dumps(dict(block.input), ensure_ascii=False), block.chunks)

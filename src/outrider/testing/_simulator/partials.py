"""Owns the events in which a message of the model is streamed.

Does not write them.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import NamedTuple

from outrider.testing._script.steps import Answer, Block, Text, Thinking, ToolUse
from outrider.wire import JsonObject

__all__ = ["Delta", "block_start", "deltas", "message_cut", "message_end", "message_of", "message_start"]

_USAGE: JsonObject = {
    "input_tokens": 10,
    "cache_creation_input_tokens": 0,
    "cache_read_input_tokens": 0,
    "output_tokens": 5,
}


class Delta(NamedTuple):
    """A piece of a block."""

    event: JsonObject
    is_piece: bool
    """Whether gates and delays count it."""


def message_of(answer: Answer, *, id: str, model: str) -> JsonObject:
    """The whole message."""
    uses_tool = any(isinstance(block, ToolUse) for block in answer.blocks)
    call = f"toolu_{id.removeprefix('msg_')}"
    return {
        "id": id,
        "type": "message",
        "role": "assistant",
        "model": answer.model or model,
        "content": [_block(block, f"{call}{at}") for at, block in enumerate(answer.blocks)],
        "stop_reason": answer.stop_reason or ("tool_use" if uses_tool else "end_turn"),
        "stop_sequence": None,
        "usage": {**_USAGE, **answer.usage},
    }


def _block(block: Block, id: str) -> JsonObject:
    match block:
        case Text(pieces):
            return {"type": "text", "text": "".join(pieces)}
        case Thinking(pieces, signature):
            return {"type": "thinking", "thinking": "".join(pieces), "signature": signature}
        case ToolUse(name=name, input=given, id=chosen):
            return {"type": "tool_use", "id": chosen or id, "name": name, "input": dict(given)}


def message_start(body: JsonObject) -> JsonObject:
    # Before it has written anything, the model has counted one token.
    opening: JsonObject = {
        **body,
        "content": [],
        "stop_reason": None,
        "usage": {**body["usage"], "output_tokens": 1},
    }
    return {"type": "message_start", "message": opening}


def block_start(whole: JsonObject, index: int) -> JsonObject:
    blank: JsonObject = {"text": "", "thinking": "", "signature": "", "input": {}}
    return {
        "type": "content_block_start",
        "index": index,
        "content_block": {key: blank.get(key, value) for key, value in whole.items()},
    }


def deltas(block: Block, whole: JsonObject, index: int) -> Iterator[Delta]:
    """The pieces of a block."""

    def event(delta: JsonObject) -> JsonObject:
        return {"type": "content_block_delta", "index": index, "delta": delta}

    match block:
        case Text(pieces):
            for piece in pieces:
                yield Delta(event({"type": "text_delta", "text": piece}), True)
        case Thinking(pieces, signature):
            for piece in pieces:
                yield Delta(event({"type": "thinking_delta", "thinking": piece}), True)
            yield Delta(event({"type": "signature_delta", "signature": signature}), False)
        case ToolUse():
            text = json.dumps(whole["input"], ensure_ascii=False)
            yield Delta(event({"type": "input_json_delta", "partial_json": text}), True)


def message_cut(usage: JsonObject) -> list[JsonObject]:
    """The end of a message that was cut off, which the program makes up."""
    names = ("container", "stop_details", "stop_reason", "stop_sequence")
    delta: JsonObject = dict.fromkeys(names)
    return [
        {"type": "message_delta", "context_management": None, "delta": delta, "usage": usage},
        {"type": "message_stop"},
    ]


def message_end(body: JsonObject) -> list[JsonObject]:
    ending = {key: body[key] for key in ("stop_reason", "stop_sequence", "stop_details") if key in body}
    return [
        {"type": "message_delta", "delta": ending, "usage": body["usage"]},
        {"type": "message_stop"},
    ]

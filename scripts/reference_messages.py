"""Writes down what the reference SDK makes of the agent's frames.

    python scripts/reference_messages.py | gzip -9n > tests/compat/reference/messages.jsonl.gz

runs in the reference's environment. It prints a JSON object a line: which frame it was, and the message as
the reference parses it. Of frames of one shape the shortest is taken; `--all` takes every recorded frame.
"""

from __future__ import annotations

import dataclasses
import gzip
import json
import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any, cast

RECORDINGS = Path(__file__).parents[1] / "tests" / "recordings"

Json = dict[str, Any]


def _assistant(*content: Any, **more: Any) -> Json:  # noqa: ANN401 - blocks of all kinds
    return {"type": "assistant", "message": {"model": "m", "content": list(content)}, **more}


def _user(*content: Any, **more: Any) -> Json:  # noqa: ANN401 - the same
    return {"type": "user", "message": {"role": "user", "content": list(content)}, **more}


_TASK: Json = {"type": "system", "task_id": "t", "uuid": "u", "session_id": "s"}
_RESULT: Json = {
    "type": "result",
    "subtype": "success",
    "duration_ms": 1,
    "duration_api_ms": 1,
    "is_error": False,
    "num_turns": 1,
    "session_id": "s",
}
_LIMIT: Json = {"status": "rejected", "resetsAt": 5, "rateLimitType": "five_hour", "utilization": 0.5}

MADE: dict[str, Json] = {
    "user with text": {"type": "user", "message": {"role": "user", "content": "hello"}},
    "user with much": _user({"type": "text", "text": "x"}, uuid="u", origin={"kind": "peer", "from": "a"}),
    "user with odd origin": _user(origin="nobody"),
    "user with origin without kind": _user(origin={"server": "x"}),
    "user with an image": _user(
        {"type": "image", "source": {"type": "base64"}}, {"type": "text", "text": "x"}
    ),
    "user without content": {"type": "user", "message": {"role": "user"}},
    "user whose result is a text": _user(tool_use_result="Error: no"),
    "tool result": _user({"type": "tool_result", "tool_use_id": "i", "content": "x", "is_error": True}),
    "tool result without content": _user({"type": "tool_result", "tool_use_id": "i"}),
    "thinking": _assistant({"type": "thinking", "thinking": "t", "signature": "s"}),
    "thinking without signature": _assistant({"type": "thinking", "thinking": "t"}),
    "redacted thinking": _assistant({"type": "redacted_thinking", "data": "d"}),
    "server tool": _assistant(
        {"type": "server_tool_use", "id": "i", "name": "web_search", "input": {"q": 1}}
    ),
    "advisor": _assistant({"type": "advisor_tool_result", "tool_use_id": "i", "content": {"type": "x"}}),
    "web search": _assistant({"type": "web_search_tool_result", "tool_use_id": "i", "content": []}),
    "unknown block": _assistant({"type": "hologram", "x": 1}, {"type": "text", "text": "x"}),
    "block that is no object": _assistant("x"),
    "assistant with text": {"type": "assistant", "message": {"model": "m", "content": "x"}},
    "assistant without model": {"type": "assistant", "message": {"content": []}},
    "assistant that failed": _assistant({"type": "text", "text": "x"}, error="rate_limit", uuid="u"),
    "assistant of a subagent": _assistant(parent_tool_use_id="p", session_id="s"),
    "new subtype": {"type": "system", "subtype": "brand_new", "x": 1},
    "system without subtype": {"type": "system", "x": 1},
    "task started": {**_TASK, "subtype": "task_started", "description": "d", "task_type": "local_bash"},
    "task started without description": {**_TASK, "subtype": "task_started"},
    "task updated": {**_TASK, "subtype": "task_updated", "patch": {"status": "killed"}},
    "task updated with odd patch": {**_TASK, "subtype": "task_updated", "patch": 5},
    "task updated without patch": {**_TASK, "subtype": "task_updated"},
    "hook response": {"type": "system", "subtype": "hook_response", "hook_name": "n", "hook_event": "Stop"},
    "hook started": {"type": "system", "subtype": "hook_started", "hook_name": "n", "uuid": "u"},
    "result": {**_RESULT, "result": "r", "total_cost_usd": 1, "modelUsage": {"m": {"inputTokens": 1}}},
    "result with much": {
        **_RESULT,
        "structured_output": [1],
        "errors": ["e"],
        "api_error_status": 529,
        "terminal_reason": "x",
        "deferred_tool_use": {"id": "i", "name": "n", "input": {}},
        "origin": {"kind": "human"},
        "permission_denials": [{"tool_name": "t"}],
        "uuid": "u",
        "usage": {"input_tokens": 1},
    },
    "result without turns": {"type": "result", "subtype": "success", "is_error": False, "session_id": "s"},
    "stream event": {"type": "stream_event", "uuid": "u", "session_id": "s", "event": {"type": "ping"}},
    "stream event without event": {"type": "stream_event", "uuid": "u", "session_id": "s"},
    "rate limit": {"type": "rate_limit_event", "uuid": "u", "session_id": "s", "rate_limit_info": _LIMIT},
    "rate limit with overage": {
        "type": "rate_limit_event",
        "uuid": "u",
        "session_id": "s",
        "rate_limit_info": {
            "status": "allowed",
            "overageStatus": "rejected",
            "overageResetsAt": 7,
            "overageDisabledReason": "why",
            "isUsingOverage": False,
        },
    },
    "rate limit without id": {"type": "rate_limit_event", "rate_limit_info": {"status": "allowed"}},
    "reset": {"type": "conversation_reset", "new_conversation_id": "n", "uuid": "u", "session_id": "s"},
    "reset without id": {"type": "conversation_reset", "new_conversation_id": "n"},
    "new type": {"type": "brand_new", "x": 1},
    "no type": {"x": 1},
}
"""Frames that the recordings do not have."""


def recorded() -> Iterator[tuple[str, int, Json]]:
    """The messages of the recordings: the recording, the number of its line, and the frame."""
    for path in sorted(RECORDINGS.glob("*.jsonl.gz")):
        with gzip.open(path, "rt", encoding="utf-8") as lines:
            for number, line in enumerate(lines):
                record = json.loads(line)
                frame = record.get("json")
                if record.get("dir") == "cli->host" and isinstance(frame, dict) and _is_message(frame):
                    yield path.name.removesuffix(".jsonl.gz"), number, frame


def _is_message(frame: Json) -> bool:
    kind = str(frame.get("type"))
    return not kind.startswith("control_") and kind not in ("keep_alive", "transcript_mirror")


def chosen() -> list[tuple[str, int, Json]]:
    """Of the frames of each shape, the shortest."""
    shortest: dict[str, tuple[int, tuple[str, int, Json]]] = {}
    for each in recorded():
        shape, size = _shape(each[2]), len(json.dumps(each[2]))
        if shape not in shortest or size < shortest[shape][0]:
            shortest[shape] = (size, each)
    return [each for _, each in shortest.values()]


def _shape(frame: Json) -> str:
    """What kind of frame it is, which keys it has, and of which kinds its blocks are."""
    inner, event = _object(frame.get("message")), _object(frame.get("event"))
    content = inner.get("content")
    blocks = [[each.get("type"), *sorted(each)] for each in content] if isinstance(content, list) else None
    kinds = [
        frame.get("type"),
        frame.get("subtype"),
        event.get("type"),
        _object(event.get("delta")).get("type"),
    ]
    return json.dumps([kinds, sorted(frame), sorted(inner), blocks])


def _object(value: object) -> Json:
    return cast(Json, value) if isinstance(value, dict) else {}


def parsed(frame: Json) -> Json:
    """What the reference makes of a frame."""
    parser = import_module("claude_agent_sdk._internal.message_parser")
    try:
        return {"message": told(parser.parse_message(frame))}
    except Exception as error:  # noqa: BLE001 - whatever it raises
        return {"error": type(error).__name__}


def told(value: Any) -> Any:  # noqa: ANN401 - any part of a message
    """A message as JSON: objects of classes by their names."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = {each.name: told(getattr(value, each.name)) for each in dataclasses.fields(value)}
        return {"class": type(value).__name__, "fields": fields}
    if isinstance(value, list):
        return [told(each) for each in value]
    return value


def main() -> None:
    """Print a line for each frame."""
    for recording, number, frame in recorded() if "--all" in sys.argv else chosen():
        print(json.dumps({"at": [recording, number], **parsed(frame)}, separators=(",", ":")))
    for name, frame in MADE.items():
        print(json.dumps({"at": name, **parsed(frame)}, separators=(",", ":")))


if __name__ == "__main__":
    main()

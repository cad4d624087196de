"""The program that both sides drive: an agent that answers at once, with a file for each turn.

Started with the arguments of either library, of which it heeds none. The file is named by a variable. It
costs
the sides nothing: only their own CPU time is counted.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

TURN_VARIABLE = "BENCH_TURN"
"""Names a file with the lines of a turn, between its `init` and its result."""

_IDS = {"uuid": "00000000-0000-4000-8000-000000000001", "session_id": "00000000-0000-4000-8000-000000000002"}
_INIT: dict[str, Any] = {
    "type": "system",
    "subtype": "init",
    "cwd": "/",
    "model": "none",
    "tools": [],
    "mcp_servers": [],
    "permissionMode": "default",
    "slash_commands": [],
    "claude_code_version": "2.1.325",
    **_IDS,
}
_RESULT: dict[str, Any] = {
    "type": "result",
    "subtype": "success",
    "is_error": False,
    "duration_ms": 1,
    "duration_api_ms": 1,
    "num_turns": 1,
    "result": "done",
    "total_cost_usd": 0.0,
    "terminal_reason": "completed",
    **_IDS,
}


def main() -> None:
    turn = Path(os.environ[TURN_VARIABLE]).read_bytes()
    for line in sys.stdin.buffer:
        frame = json.loads(line)
        if frame["type"] == "user":
            uuids = {"user_message_uuids": [frame["uuid"]]} if frame.get("uuid") else {}
            _write(_line(_INIT | uuids) + turn + _line(_RESULT | uuids))
        elif frame["type"] == "control_request":
            _write(_line({"type": "control_response", "response": _answer(frame)}))


def _answer(frame: dict[str, Any]) -> dict[str, Any]:
    answer = {"claude_code_version": "2.1.325", "commands": [], "mcpServers": []}
    return {"subtype": "success", "request_id": frame["request_id"], "response": answer}


def _line(frame: dict[str, Any]) -> bytes:
    return json.dumps(frame).encode() + b"\n"


def _write(data: bytes) -> None:
    sys.stdout.buffer.write(data)
    sys.stdout.buffer.flush()


if __name__ == "__main__":
    main()

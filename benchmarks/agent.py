"""The program that both sides drive: an agent that answers at once, with a file for each turn.

Started with the arguments of either library, of which it heeds none. The file is named by a variable. A
prompt such as `hooks 1000` makes it ask the host that often before it answers: see `ASKED`. It costs the
sides nothing: only their own CPU time is counted.
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path
from typing import Any

TURN_VARIABLE = "BENCH_TURN"
"""Names a file with the lines of a turn, between its `init` and its result."""

UNNAMED_VARIABLE = "BENCH_UNNAMED"
"""If it is set, the prompts that a turn answers are not named, as with an older program."""

PAUSE_VARIABLE = "BENCH_PAUSE"
"""If it is set, each line of a turn is written by itself, so many seconds after the one before."""

REPEAT_VARIABLE = "BENCH_REPEAT"
"""How often the lines of a turn are written."""

_IDS = {"uuid": "00000000-0000-4000-8000-000000000001", "session_id": "00000000-0000-4000-8000-000000000002"}
INIT: dict[str, Any] = {
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
RESULT: dict[str, Any] = {
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

ANSWER: dict[str, Any] = {"claude_code_version": "2.1.325", "commands": [], "mcpServers": []}
"""To a control request, whatever it asks."""

SERVER = "bench"
"""The server whose tool it calls."""

ASKED = ("hooks", "tools", "parallel")
"""What it asks: a hook, or a tool, each as soon as the last is answered; the tool, all at once."""


def main() -> None:
    turn = Path(os.environ[TURN_VARIABLE]).read_bytes()
    hook = ""
    for line in sys.stdin.buffer:
        frame = json.loads(line)
        if frame["type"] == "user":
            what, _, count = str(frame["message"]["content"]).partition(" ")
            is_named = frame.get("uuid") and UNNAMED_VARIABLE not in os.environ
            uuids = {"user_message_uuids": [frame["uuid"]]} if is_named else {}
            _write(_line(INIT | uuids))
            if what in ASKED:
                _ask(what, int(count), hook)
            pause = float(os.environ.get(PAUSE_VARIABLE, "0"))
            for _ in range(int(os.environ.get(REPEAT_VARIABLE, "1")) - 1):
                _write(turn)
            for piece in turn.splitlines(keepends=True) if pause else ():
                _write(piece)
                time.sleep(pause)
            _write((b"" if pause else turn) + _line(RESULT | uuids))
        elif frame["type"] == "control_request":
            if hooks := frame["request"].get("hooks"):
                hook = hooks["PreToolUse"][0]["hookCallbackIds"][0]
            _write(_line({"type": "control_response", "response": _answer(frame)}))


def _ask(what: str, count: int, hook: str) -> None:
    if what != "hooks":
        for number, method in enumerate(("initialize", "notifications/initialized", "tools/list")):
            _write(_question(-1 - number, _rpc(method, number, _SETUP if method == "initialize" else {})))
            sys.stdin.buffer.readline()
    at_once = count if what == "parallel" else 1
    for first in range(0, count, at_once):
        numbers = range(first, first + at_once)
        _write(b"".join(_question(n, _hook(n, hook) if what == "hooks" else _call(n)) for n in numbers))
        for _ in numbers:
            answer = json.loads(sys.stdin.buffer.readline())["response"]
            assert answer["subtype"] == "success", answer
            if what != "hooks":
                assert answer["response"]["mcp_response"]["result"]["content"], answer


def _question(number: int, request: dict[str, Any]) -> bytes:
    return _line({"type": "control_request", "request_id": f"agent-{number}", "request": request})


def _hook(number: int, callback_id: str) -> dict[str, Any]:
    return {"subtype": "hook_callback", "callback_id": callback_id, "tool_use_id": f"toolu_{number}"} | {
        "input": {
            **_IDS,
            "transcript_path": "/transcript.jsonl",
            "cwd": "/",
            "permission_mode": "default",
            "hook_event_name": "PreToolUse",
            "tool_name": "Bash",
            "tool_input": {"command": "true", "description": "Do nothing"},
            "tool_use_id": f"toolu_{number}",
        }
    }


def _call(number: int) -> dict[str, Any]:
    arguments = {"text": "hello", "count": 3, "tags": ["a", "b"]}
    meta = {"claudecode/toolUseId": f"toolu_{number}", "progressToken": number}
    return _rpc("tools/call", number, {"name": "work", "arguments": arguments, "_meta": meta})


def _rpc(method: str, number: int, params: dict[str, Any]) -> dict[str, Any]:
    message: dict[str, Any] = {"jsonrpc": "2.0", "method": method, "params": params}
    if not method.startswith("notifications/"):
        message["id"] = number
    return {"subtype": "mcp_message", "server_name": SERVER, "message": message}


_SETUP: dict[str, Any] = {
    "protocolVersion": "2025-11-25",
    "capabilities": {},
    "clientInfo": {"name": "bench", "version": "1"},
}


def _answer(frame: dict[str, Any]) -> dict[str, Any]:
    return {"subtype": "success", "request_id": frame["request_id"], "response": ANSWER}


def _line(frame: dict[str, Any]) -> bytes:
    return json.dumps(frame).encode() + b"\n"


def _write(data: bytes) -> None:
    sys.stdout.buffer.write(data)
    sys.stdout.buffer.flush()


if __name__ == "__main__":
    main()

"""An agent that works on a prompt without end and gives in late: `python stubborn.py PATIENCE`.

PATIENCE is what ends the turn or the program: `interrupt`, `eof`, `sigterm`, or `kill`; each but the first
ignores those before it. Its exit code tells what did. Nothing of Outrider is imported here.
"""

import json
import os
import signal
import sys
import time
from typing import Any, NoReturn

EOF_CODE, SIGTERM_CODE = 7, 8


def say(**frame: Any) -> None:
    data = json.dumps({"session_id": "s", "uuid": "u", **frame}).encode() + b"\n"
    while data:
        data = data[os.write(1, data) :]


def say_result(uuid: str, **fields: Any) -> None:
    result = {"subtype": "success", "is_error": False, "result": "done", "terminal_reason": "completed"}
    result |= {"num_turns": 1, "duration_ms": 1, "duration_api_ms": 1, "user_message_uuids": [uuid]}
    say(type="result", **result | fields)


def answer(frame: dict[str, Any], **payload: Any) -> None:
    response = {"subtype": "success", "request_id": frame["request_id"], "response": payload}
    say(type="control_response", response=response)


def talk(uuid: str) -> None:
    """Say a hundred thousand things, looking at nothing else, and end the turn."""
    event = {"type": "stream_event", "event": {"type": "ping", "number": 0}, "parent_tool_use_id": None}
    line = json.dumps({"session_id": "s", "uuid": "u", **event}).encode() + b"\n"
    before, after = line.split(b"0", 1)
    for start in range(0, 100_000, 1000):
        data = b"".join(before + b"%d" % number + after for number in range(start, start + 1000))
        while data:
            data = data[os.write(1, data) :]
    say(type="control_request", request_id="h", request={"subtype": "hook_callback", "callback_id": "1"})
    say_result(uuid)


def on_sigterm(*_: object) -> NoReturn:
    os._exit(SIGTERM_CODE)


def main(patience: str, behaviour: str = "") -> None:
    if patience == "kill":
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    else:
        signal.signal(signal.SIGTERM, on_sigterm)
    current = ""
    for line in sys.stdin.buffer:
        frame = json.loads(line)
        request = frame.get("request", {}).get("subtype")
        if request == "initialize":
            answer(frame, claude_code_version="2.1.325")
        elif request == "interrupt":
            answer(frame, still_queued=[])
            if patience == "interrupt":
                reason = {"subtype": "error_during_execution", "is_error": True}
                say_result(current, **reason, terminal_reason="aborted_streaming", errors=["cut off"])
        elif frame["type"] == "user" and frame["message"]["content"] == "answer":
            say(type="system", subtype="init", user_message_uuids=[frame["uuid"]])
            say_result(frame["uuid"])
        elif frame["type"] == "user":
            current = frame["uuid"]
            say(type="system", subtype="init", user_message_uuids=[current])
            say(type="stream_event", event={"type": "message_start"}, parent_tool_use_id=None)
            if behaviour == "talks":
                talk(current)
            if behaviour == "dies":
                os.write(2, b"out of cheese\n")
                os._exit(3)
            while behaviour == "floods":
                say(type="stream_event", event={"type": "ping"}, parent_tool_use_id=None)
            if behaviour == "stops":
                os.kill(os.getpid(), signal.SIGSTOP)
    if patience in ("interrupt", "eof"):
        sys.exit(EOF_CODE)
    while True:
        time.sleep(3600)


if __name__ == "__main__":
    main(*sys.argv[1:])

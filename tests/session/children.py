"""Agents that are real programs, one function each: `python children.py NAME [FLAGS…]`.

They speak the protocol as far as a test needs it, and then behave as no agent should. Run with the bare
interpreter, so that they start fast. Nothing of Outrider is imported here.
"""

import json
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NoReturn

VERSION = "2.1.325"
SESSION = "5e551011-0000-4000-8000-000000000002"


def say(*frames: dict[str, Any]) -> None:
    write(b"".join(json.dumps(frame).encode() + b"\n" for frame in frames))


def write(data: bytes) -> None:
    while data:
        data = data[os.write(1, data) :]


def heard() -> Iterator[dict[str, Any]]:
    """What the host says."""
    for line in sys.stdin.buffer:
        yield json.loads(line)


def answer(frame: dict[str, Any], **payload: Any) -> None:
    outcome = {"subtype": "success", "request_id": frame["request_id"], "response": payload}
    say({"type": "control_response", "response": outcome})


def sleep_forever() -> NoReturn:
    while True:
        time.sleep(3600)


def assistant(text: str) -> dict[str, Any]:
    message: dict[str, Any] = {"role": "assistant", "type": "message", "id": "msg_1", "model": "claude-test"}
    message |= {"content": [{"type": "text", "text": text}], "usage": {}}
    return {"type": "assistant", "message": message, "parent_tool_use_id": None, "session_id": SESSION}


def init(uuid: str) -> dict[str, Any]:
    frame = {"type": "system", "subtype": "init", "session_id": SESSION, "user_message_uuids": [uuid]}
    frame |= {"cwd": "/", "model": "claude-test", "tools": [], "mcp_servers": [], "slash_commands": []}
    return frame | {"permissionMode": "default", "claude_code_version": VERSION}


def result(uuid: str, text: str, **fields: Any) -> dict[str, Any]:
    frame = {"type": "result", "subtype": "success", "is_error": False, "result": text, "num_turns": 1}
    frame |= {"duration_ms": 1, "duration_api_ms": 1, "session_id": SESSION, "user_message_uuids": [uuid]}
    return {**frame, "terminal_reason": "completed", "total_cost_usd": 0.01, **fields}


def serve(on_prompt: Callable[[str], object], *, before: Callable[[], object] = lambda: None) -> None:
    """Answer every request but one, and do something for each prompt."""
    for frame in heard():
        if frame["type"] == "control_request":
            if frame["request"]["subtype"] == "initialize":
                before()
            if frame["request"]["subtype"] != "mcp_status":
                answer(frame, claude_code_version=VERSION)
        elif frame["type"] == "user":
            on_prompt(frame["uuid"])


def reply(uuid: str) -> None:
    say(init(uuid), assistant("done"), result(uuid, "done"))


def begin(uuid: str) -> None:
    say(init(uuid), assistant("begun"))


# Behaviours.


def answers() -> None:
    """An agent as it should be."""
    serve(reply)


def fails_at_the_end() -> None:
    """Does all it is asked, and then says that it has failed."""
    serve(reply)
    os.write(2, b"last words\n")
    os._exit(3)


def stays() -> None:
    """Does not end with its input."""
    serve(reply)
    sleep_forever()


def works_on_and_on() -> None:
    """Begins turns and never ends one; the rest as it should be."""
    serve(begin)


def ignores_everything() -> None:
    """Neither the end of its input nor SIGTERM moves it."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    serve(begin)
    sleep_forever()


def leaves_when_interrupted() -> None:
    """Begins turns, and nothing but an interrupt ends them."""
    for frame in heard():
        if frame["type"] == "user":
            begin(frame["uuid"])
        elif frame["request"]["subtype"] == "interrupt":
            os._exit(0)
        else:
            answer(frame, claude_code_version=VERSION)
    sleep_forever()


def asks_in_a_turn() -> None:
    """Begins turns, and asks for a permission in each."""

    def ask(uuid: str) -> None:
        begin(uuid)
        request = {"subtype": "can_use_tool", "tool_name": "Bash", "input": {}, "tool_use_id": "toolu_1"}
        say({"type": "control_request", "request_id": uuid, "request": request})

    serve(ask)


def exits_in_a_turn() -> None:
    """With 0: as if all were well."""

    def leave(uuid: str) -> None:
        begin(uuid)
        os.write(2, b"had enough\n")
        os._exit(0)

    serve(leave)


def fails_in_a_turn() -> None:
    def fail(uuid: str) -> None:
        begin(uuid)
        os.write(2, b"out of cheese\n")
        os._exit(1)

    serve(fail)


def dies_in_a_turn() -> None:
    def die(uuid: str) -> None:
        begin(uuid)
        os.kill(os.getpid(), signal.SIGKILL)

    serve(die)


def closes_its_output_in_a_turn() -> None:
    def close(uuid: str) -> None:
        begin(uuid)
        os.close(1)
        sleep_forever()

    serve(close)


def fails_after_an_error_result() -> None:
    """What the agent does when the API fails: an error result, a sign of life, and exit code 1."""

    def fail(uuid: str) -> None:
        begin(uuid)
        say(result(uuid, "API Error: 500", is_error=True, api_error_status=500))
        say({"type": "keep_alive"})
        os._exit(1)

    serve(fail)


def talks_rubbish() -> None:
    """Noise of all kinds around a good answer."""

    def rubbish(uuid: str) -> None:
        say(init(uuid))
        write(b"Warning: something\n\xff\xfe\xff\nnull\n[]\n{half\n")
        say({"type": "control_request"}, {"type": "control_response"}, {"no": "type"}, {"type": 7})
        say({"type": "transcript_mirror"}, {"type": "brand_new", "x": 1})
        say(assistant("done"), result(uuid, "done"))

    serve(rubbish)


def talks_before_it_is_ready() -> None:
    """200 frames before the first answer."""
    serve(reply, before=lambda: say(*(assistant(f"early {number}") for number in range(200))))


def hangs_at_the_start() -> None:
    for _ in heard():
        pass


def hangs_and_ignores_everything() -> None:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    sleep_forever()


def exits_at_the_start() -> None:
    next(heard())


def fails_at_the_start() -> None:
    os.write(2, b"no such luck\n")
    sys.exit(3)


def refuses_to_start() -> None:
    for frame in heard():
        outcome = {"subtype": "error", "request_id": frame["request_id"], "error": "not today"}
        say({"type": "control_response", "response": outcome})


def is_too_old() -> None:
    for frame in heard():
        answer(frame, claude_code_version="1.0.3")


def is_an_old_one() -> None:
    """As 2.0.0: says its version only when asked for it, leaves requests that it does not know unanswered,
    and exits when one is withdrawn. Writes down its arguments."""
    with Path(os.environ["CHILD_LOG"]).open("a", encoding="utf-8") as log:
        log.write(json.dumps(sys.argv[2:]) + "\n")
    if "-v" in sys.argv:
        print("2.0.0 (Claude Code)")
        return
    if unknown := [flag for flag in sys.argv if flag.startswith(("--effort", "--bare"))]:
        sys.exit(f"error: unknown option '{unknown[0]}'")
    for frame in heard():
        subtype = frame.get("request", {}).get("subtype")
        if subtype == "initialize":
            answer(frame, commands=[], models=[])
        elif subtype == "interrupt":
            answer(frame)
            said = [{"type": "text", "text": "[Request interrupted by user for tool use]"}]
            say({"type": "user", "message": {"role": "user", "content": said}, "session_id": SESSION})
            end = result("", "", subtype="error_during_execution", terminal_reason=None)
            say({key: end[key] for key in end if key not in ("result", "user_message_uuids")})
        elif frame["type"] == "user":
            flags = [flag.partition("=") for flag in sys.argv]
            files = [value for name, _, value in flags if name == "--system-prompt-file"]
            say(
                {key: value for key, value in init("").items() if "uuids" not in key and "version" not in key}
            )
            say(assistant(Path(files[0]).read_text(encoding="utf-8") if files else "no prompt"))
        elif frame["type"] == "control_cancel_request":
            sys.exit("Error: Expected message type 'user' or 'control', got 'control_cancel_request'")


def stops_reading() -> None:
    """Reads nothing after the first request."""
    answer(next(heard()), claude_code_version=VERSION)
    sleep_forever()


def talks_at_the_end() -> None:
    """Says 200 KB once its input has ended, more than a pipe holds."""
    serve(begin)
    say(*(assistant(f"late {number} {'x' * 100}") for number in range(1000)))


def talks_much() -> None:
    """150 messages before the answer, written as fast as it can."""

    def talk(uuid: str) -> None:
        say(init(uuid), *(assistant(f"message {number}") for number in range(150)), result(uuid, "done"))

    serve(talk)


def question(id: str, hook: str) -> dict[str, Any]:
    told: dict[str, Any] = {
        "hook_event_name": "PreToolUse",
        "session_id": SESSION,
        "cwd": "/",
        "transcript_path": "/t",
    }
    told |= {"tool_name": "Bash", "tool_use_id": id, "permission_mode": "default"}
    request: dict[str, Any] = {"subtype": "hook_callback", "callback_id": hook, "tool_use_id": id}
    request["input"] = {**told, "tool_input": {"command": "true"}}
    return {"type": "control_request", "request_id": id, "request": request}


def withdrawal(id: str) -> dict[str, Any]:
    return {"type": "control_cancel_request", "request_id": id}


def asks_a_hook(ask: Callable[[str, str], None]) -> None:
    """Calls a function with the uuid of each prompt and the id of the hook."""
    hook = ""
    for frame in heard():
        if frame["type"] == "control_request":
            if hooks := frame["request"].get("hooks"):
                hook = hooks["PreToolUse"][0]["hookCallbackIds"][0]
            answer(frame, claude_code_version=VERSION)
        elif frame["type"] == "user":
            ask(frame["uuid"], hook)


def asks_many_at_once() -> None:
    """Asks a hook 40 times in one breath, and takes the last question back."""

    def ask(uuid: str, hook: str) -> None:
        ids = [f"ask-{number}" for number in range(40)]
        say(init(uuid), *(question(id, hook) for id in ids), withdrawal(ids[-1]))
        replies = [json.loads(sys.stdin.buffer.readline())["response"] for _ in ids[:-1]]
        say(result(uuid, " ".join(sorted(reply["request_id"] for reply in replies))))

    asks_a_hook(ask)


def takes_a_question_back() -> None:
    """Asks a hook, and takes that back as soon as it is asked something itself."""

    def ask(uuid: str, hook: str) -> None:
        say(init(uuid), question("ask", hook))
        request = json.loads(sys.stdin.buffer.readline())
        say(withdrawal("ask"))
        answer(request, mcpServers=[])
        say(result(uuid, "done"))

    asks_a_hook(ask)


def is_refused_by_the_api() -> None:
    """Tries again and again with a key that is wrong, until it is interrupted."""
    asked = ""
    for frame in heard():
        if frame["type"] == "control_request":
            answer(frame, claude_code_version=VERSION)
            if frame["request"]["subtype"] == "interrupt":
                say(result(asked, "", subtype="error_during_execution", terminal_reason="aborted_streaming"))
        elif frame["type"] == "user":
            asked = frame["uuid"]
            retry: dict[str, Any] = {
                "type": "system",
                "subtype": "api_retry",
                "session_id": SESSION,
                "uuid": "u",
            }
            retry |= {"attempt": 1, "max_retries": 10, "retry_delay_ms": 1, "error_status": 401}
            say(init(asked), {**retry, "error": "authentication_failed"})


if __name__ == "__main__":
    if "-v" in sys.argv[2:] and sys.argv[1] != "is_an_old_one":
        print(f"{VERSION} (Claude Code)")
    else:
        globals()[sys.argv[1]]()

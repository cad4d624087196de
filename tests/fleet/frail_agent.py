"""An agent that fails as it is told, as a real program that starts fast: `frail_agent.py FOLDER [FLAGS…]`.

`plan.json` in the folder has a list for each start, and in it a word for each prompt; `log.jsonl` gets what
it was started with and asked. Nothing of Outrider is imported here.
"""

import json
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any
from uuid import uuid4

VERSION = "2.1.325"
FOLDER = Path(sys.argv[1])
FLAGS = sys.argv[2:]


def say(*frames: dict[str, Any]) -> None:
    data = b"".join(json.dumps(frame).encode() + b"\n" for frame in frames)
    while data:
        data = data[os.write(1, data) :]


def log(**entry: Any) -> None:
    with (FOLDER / "log.jsonl").open("a", encoding="utf-8") as file:
        file.write(json.dumps(entry) + "\n")


def started() -> int:
    number = 0
    while True:
        try:
            os.close(os.open(FOLDER / f"start-{number}", os.O_CREAT | os.O_EXCL))
        except FileExistsError:
            number += 1
        else:
            return number


def flag(name: str) -> str | None:
    joined = [each.partition("=")[2] for each in FLAGS if each.startswith(f"{name}=")]
    return FLAGS[FLAGS.index(name) + 1] if name in FLAGS else next(iter(joined), None)


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


class Agent:
    def __init__(self, number: int, words: list[str]) -> None:
        self.number = number
        self.words = words
        self.session = flag("--resume") or flag("--session-id") or str(uuid4())
        self.hanging = ""
        self.asked = 0

    def init(self, uuid: str) -> None:
        frame = {
            "type": "system",
            "subtype": "init",
            "session_id": self.session,
            "user_message_uuids": [uuid],
        }
        frame |= {"cwd": "/", "model": "claude-x", "tools": [], "mcp_servers": [], "slash_commands": []}
        say(frame | {"permissionMode": "default", "claude_code_version": VERSION})

    def assistant(self, *content: dict[str, Any], parent: str | None = None, **more: Any) -> None:
        usage = {"input_tokens": 10, "output_tokens": 5}
        message: dict[str, Any] = {"role": "assistant", "type": "message"}
        message |= {"id": f"msg_{uuid4().hex}", "model": "claude-x"}
        message |= {"content": list(content), "usage": usage}
        frame = {"type": "assistant", "message": message, "parent_tool_use_id": parent, **more}
        say(frame | {"session_id": self.session, "uuid": str(uuid4())})

    def text(self, text: str, **more: Any) -> None:
        self.assistant({"type": "text", "text": text}, **more)

    def call(self, parent: str | None = None) -> None:
        block = {
            "type": "tool_use",
            "id": f"toolu_{uuid4().hex}",
            "name": "Bash",
            "input": {"command": "true"},
        }
        self.assistant(block, parent=parent)

    def result(self, uuid: str, text: str, **fields: Any) -> None:
        frame = {"type": "result", "subtype": "success", "is_error": False, "result": text, "num_turns": 1}
        frame |= {"duration_ms": 1, "duration_api_ms": 1, "user_message_uuids": [uuid], "uuid": str(uuid4())}
        frame |= {"terminal_reason": "completed", "total_cost_usd": 0.01, "session_id": self.session}
        say({**frame, "usage": {"input_tokens": 10, "output_tokens": 5}, **fields})

    def api_failure(self, uuid: str, status: int) -> None:
        word = "rate_limit" if status == 429 else "authentication_failed" if status == 401 else "server_error"
        self.text(f"API Error: {status}", error=word, isApiErrorMessage=True)
        self.result(uuid, f"API Error: {status}", is_error=True, api_error_status=status)

    def on_prompt(self, uuid: str, prompt: object) -> None:
        word = self.words[self.asked] if self.asked < len(self.words) else "answer"
        self.asked += 1
        log(start=self.number, prompt=prompt, word=word)
        action, _, value = word.partition(":")
        if action == "die_unheard":
            die()
        self.init(uuid)
        getattr(self, f"do_{action}")(uuid, value)

    def do_answer(self, uuid: str, value: str) -> None:
        self.text("done")
        self.result(uuid, value or "done")

    def do_act(self, uuid: str, _: str) -> None:
        self.call()
        self.do_answer(uuid, "acted")

    def do_ramble(self, uuid: str, _: str) -> None:
        self.text("x" * 100_000)
        self.do_answer(uuid, "")

    def do_answer_die(self, uuid: str, _: str) -> None:
        self.do_answer(uuid, "last words")
        die()

    def do_die(self, _uuid: str, _: str) -> None:
        self.text("begun")
        die()

    def do_act_die(self, _uuid: str, _: str) -> None:
        self.call()
        die()

    def do_subagent_die(self, _uuid: str, _: str) -> None:
        self.call(parent="toolu_of_the_subagent")
        die()

    def do_exit(self, _uuid: str, value: str) -> None:
        os.write(2, b"had enough\n")
        os._exit(int(value))

    def do_signal(self, _uuid: str, value: str) -> None:
        os.kill(os.getpid(), int(value))

    def do_hang(self, uuid: str, _: str) -> None:
        self.text("begun")
        self.hanging = uuid

    def do_stick(self, _uuid: str, _: str) -> None:
        self.text("begun")
        while True:
            time.sleep(3600)

    def do_fail(self, uuid: str, value: str) -> None:
        self.api_failure(uuid, int(value))

    def do_act_fail(self, uuid: str, value: str) -> None:
        self.call()
        self.api_failure(uuid, int(value))

    def do_limit_die(self, uuid: str, value: str) -> None:
        self.do_limit(uuid, value)
        die()

    def do_limit(self, uuid: str, value: str) -> None:
        info = {"status": "rejected", "resetsAt": int(value), "rateLimitType": "five_hour"}
        say({"type": "rate_limit_event", "rate_limit_info": info, "session_id": self.session})
        self.api_failure(uuid, 429)

    def on_request(self, frame: dict[str, Any]) -> None:
        request = frame["request"]
        if request["subtype"] == "set_model":
            log(start=self.number, model=request.get("model"))
            if request.get("model") == "unknown":
                refused = {"subtype": "error", "request_id": frame["request_id"], "error": "no such model"}
                say({"type": "control_response", "response": refused})
                return
        outcome = {"subtype": "success", "request_id": frame["request_id"]}
        payload = {"claude_code_version": VERSION, "model": request.get("model") or "claude-x"}
        say({"type": "control_response", "response": outcome | {"response": payload}})
        if request["subtype"] == "interrupt" and self.hanging:
            uuid, self.hanging = self.hanging, ""
            aborted = {"is_error": True, "terminal_reason": "aborted_streaming"}
            self.result(uuid, "", subtype="error_during_execution", errors=["cut off"], **aborted)

    def serve(self) -> None:
        for line in sys.stdin.buffer:
            frame = json.loads(line)
            if frame["type"] == "control_request":
                self.on_request(frame)
            elif frame["type"] == "user":
                self.on_prompt(frame["uuid"], frame["message"]["content"])


def main() -> None:
    plan = json.loads((FOLDER / "plan.json").read_text(encoding="utf-8"))
    number = started()
    words = plan[number] if number < len(plan) else []
    log(start=number, resume=flag("--resume"), session_id=flag("--session-id"), model=flag("--model"))
    if words == "dead":
        die()
    if words == "mute":
        time.sleep(3600)
    if words == "missing":
        os.write(2, f"No conversation found with session ID: {flag('--resume')}\n".encode())
        sys.exit(1)
    Agent(number, list(words)).serve()


if __name__ == "__main__":
    if "-v" in FLAGS:
        print(f"{VERSION} (Claude Code)")
    else:
        main()

"""An agent for tasks, as a real program that starts fast: `python working_agent.py FOLDER [FLAGS…]`.

What it does with a task follows from the seed in `seed`, the task and how often it was asked, and nothing
else. A session is a file in `sessions`; `log.jsonl` gets each start and each prompt. An answer costs a cent.
Nothing of Outrider is imported here.
"""

import json
import os
import signal
import sys
import time
from pathlib import Path
from random import Random
from typing import Any
from uuid import uuid4

VERSION = "2.1.325"
FOLDER = Path(sys.argv[1])
FLAGS = sys.argv[2:]
CENT = 0.01
# What may happen to a prompt, in the order in which chance goes through them.
CHANCES = {"die": 0.06, "act_die": 0.05, "exit": 0.03, "hang": 0.02, "fail429": 0.06, "fail529": 0.04}
CHANCES["limit"] = 0.005


def say(*frames: dict[str, Any]) -> None:
    data = b"".join(json.dumps(frame).encode() + b"\n" for frame in frames)
    while data:
        data = data[os.write(1, data) :]


def log(**entry: Any) -> None:
    # One write to a file that is only added to: others write at the same time.
    number = os.open(FOLDER / "log.jsonl", os.O_APPEND | os.O_CREAT | os.O_WRONLY, 0o600)
    os.write(number, json.dumps({"pid": os.getpid(), **entry}).encode() + b"\n")
    os.close(number)


def flag(name: str) -> str | None:
    joined = [each.partition("=")[2] for each in FLAGS if each.startswith(f"{name}=")]
    return FLAGS[FLAGS.index(name) + 1] if name in FLAGS else next(iter(joined), None)


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


class Agent:
    def __init__(self) -> None:
        self.session = flag("--resume") or flag("--session-id") or str(uuid4())
        self.file = FOLDER / "sessions" / self.session
        self.hanging = ""

    def init(self, uuid: str) -> None:
        frame: dict[str, Any] = {
            "type": "system",
            "subtype": "init",
            "session_id": self.session,
            "cwd": str(Path.cwd()),
        }
        frame |= {"model": "claude-x", "tools": [], "mcp_servers": [], "slash_commands": []}
        frame |= {"user_message_uuids": [uuid]}
        say(frame | {"permissionMode": "default", "claude_code_version": VERSION})

    def assistant(self, *content: dict[str, Any], **more: Any) -> None:
        usage = {"input_tokens": 10, "output_tokens": 5}
        message: dict[str, Any] = {
            "role": "assistant",
            "type": "message",
            "id": f"msg_{uuid4().hex}",
            "model": "claude-x",
        }
        message |= {"content": list(content), "usage": usage}
        frame = {"type": "assistant", "message": message, "parent_tool_use_id": None, **more}
        say(frame | {"session_id": self.session, "uuid": str(uuid4())})

    def text(self, text: str, **more: Any) -> None:
        self.assistant({"type": "text", "text": text}, **more)

    def act(self) -> None:
        use = {"name": "Bash", "input": {"command": "true"}}
        self.assistant({"type": "tool_use", "id": f"toolu_{uuid4().hex}", **use})

    def result(self, uuid: str, text: str, cost: float = CENT, **fields: Any) -> None:
        frame: dict[str, Any] = {
            "type": "result",
            "subtype": "success",
            "is_error": False,
            "result": text,
            "num_turns": 1,
        }
        frame |= {"duration_ms": 1, "duration_api_ms": 1, "user_message_uuids": [uuid], "uuid": str(uuid4())}
        used = {"inputTokens": 10, "outputTokens": 5, "costUSD": cost}
        frame |= {"terminal_reason": "completed", "session_id": self.session, "total_cost_usd": cost}
        frame |= {"model_usage_since_last_result": {"claude-x": used}}
        frame |= {"usage": {"input_tokens": 10, "output_tokens": 5}}
        say({**frame, **fields})

    def api_failure(self, uuid: str, status: int) -> None:
        word = "rate_limit" if status == 429 else "server_error"
        self.text(f"API Error: {status}", error=word, isApiErrorMessage=True)
        self.result(uuid, f"API Error: {status}", 0.0, is_error=True, api_error_status=status)

    def on_prompt(self, uuid: str, prompt: object) -> None:
        asked = self.file.read_text().splitlines() if self.file.exists() else []
        task = asked[0] if asked else json.dumps(prompt)
        with self.file.open("a") as file:
            file.write(json.dumps(prompt) + "\n")
        action = chosen(json.loads(task), len(asked))
        log(prompt=json.loads(task), said=prompt, action=action, session=self.session, cwd=str(Path.cwd()))
        self.init(uuid)
        getattr(self, f"do_{action}")(uuid, json.loads(task))

    def do_answer(self, uuid: str, task: str) -> None:
        output = json.loads(task.partition(" as ")[2]) if " as " in task else None
        self.text(f"did {task}")
        log(answered=task)
        self.result(uuid, f"did {task}", structured_output=output)

    def do_write(self, uuid: str, task: str) -> None:
        self.act()
        Path("written.txt").write_text(task)
        self.do_answer(uuid, task)

    def do_wait(self, uuid: str, task: str) -> None:
        """Until the test says so."""
        self.act()
        while not (FOLDER / "go").exists():
            time.sleep(0.005)
        self.do_answer(uuid, task)

    def do_die(self, _uuid: str, _task: str) -> None:
        self.text("begun")
        die()

    def do_act_die(self, _uuid: str, _task: str) -> None:
        self.act()
        die()

    def do_exit(self, _uuid: str, _task: str) -> None:
        os.write(2, b"had enough\n")
        os._exit(3)

    def do_hang(self, uuid: str, _task: str) -> None:
        self.text("begun")
        self.hanging = uuid

    def do_fail429(self, uuid: str, _task: str) -> None:
        self.api_failure(uuid, 429)

    def do_fail529(self, uuid: str, _task: str) -> None:
        self.act()
        self.api_failure(uuid, 529)

    def do_fail400(self, uuid: str, _task: str) -> None:
        self.api_failure(uuid, 400)

    def do_limit(self, uuid: str, _task: str) -> None:
        info = {"status": "rejected", "resetsAt": int(time.time()) + 1, "rateLimitType": "five_hour"}
        say({"type": "rate_limit_event", "rate_limit_info": info, "session_id": self.session})
        self.api_failure(uuid, 429)

    def on_request(self, frame: dict[str, Any]) -> None:
        outcome = {"subtype": "success", "request_id": frame["request_id"]}
        payload = {"claude_code_version": VERSION, "model": "claude-x"}
        say({"type": "control_response", "response": outcome | {"response": payload}})
        if frame["request"]["subtype"] == "interrupt" and self.hanging:
            uuid, self.hanging = self.hanging, ""
            aborted: dict[str, Any] = {"is_error": True, "terminal_reason": "aborted_streaming"}
            self.result(uuid, "", subtype="error_during_execution", errors=["cut off"], **aborted)

    def serve(self) -> None:
        for line in sys.stdin.buffer:
            frame = json.loads(line)
            if frame["type"] == "control_request":
                self.on_request(frame)
            elif frame["type"] == "user":
                content = frame["message"]["content"]
                self.on_prompt(frame["uuid"], content if isinstance(content, str) else content[0]["text"])


def chosen(task: str, asked: int) -> str:
    """A task whose first word is an action means it, once: what goes on after it is an answer."""
    word = task.partition(" ")[0]
    if hasattr(Agent, f"do_{word}"):
        return "answer" if asked else word
    seed = FOLDER / "seed"
    drawn = Random(f"{seed.read_text()} {task} {asked}").random() if seed.exists() else 1.0
    for action, chance in CHANCES.items():
        drawn -= chance
        if drawn < 0:
            return action
    return "answer"


def main() -> None:
    (FOLDER / "sessions").mkdir(exist_ok=True)
    resumed = flag("--resume")
    log(start=flag("--session-id") or resumed, resumed=resumed is not None)
    if resumed is not None and not (FOLDER / "sessions" / resumed).exists():
        os.write(2, f"No conversation found with session ID: {resumed}\n".encode())
        sys.exit(1)
    Agent().serve()


if __name__ == "__main__":
    if "-v" in FLAGS:
        print(f"{VERSION} (Claude Code)")
    else:
        main()

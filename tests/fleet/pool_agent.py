"""An agent for tests of pools, as a real program that starts fast: `python pool_agent.py FOLDER [FLAGS…]`.

Each process holds a lock of its own in the folder as long as it lives, and writes down how many others do
when it starts. Nothing of Outrider is imported here, and little else: the imports are most of what a start
costs, and there are hundreds of them.
"""

# ruff: noqa: PTH123 - `pathlib` is one of those imports

from __future__ import annotations

import fcntl
import json
import os
import sys
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

VERSION = "2.1.325"
FOLDER = sys.argv[1]


def path(name: str) -> str:
    return f"{FOLDER}/{name}"


def is_set(name: str) -> bool:
    return os.access(path(name), os.F_OK)


def read(name: str) -> str:
    with open(path(name)) as file:
        return file.read()


def say(*frames: dict[str, Any]) -> None:
    data = b"".join(json.dumps(frame).encode() + b"\n" for frame in frames)
    while data:
        data = data[os.write(1, data) :]


def enter() -> int:
    """Gives which start this is. Those that begin to count wait for each other; the end of a process gives up
    its lock at once."""
    with open(path("door"), "a+") as door:
        fcntl.flock(door, fcntl.LOCK_EX)
        door.seek(0)
        # Which start was the last, and those that were alive then.
        number, *before = [int(word) for word in door.read().split()] or [0]
        alive = [other for other in before if is_alive(other)]
        number += 1
        own = os.open(path(f"start-{number}"), os.O_RDWR | os.O_CREAT)
        fcntl.flock(own, fcntl.LOCK_EX)
        os.write(own, str(len(alive) + 1).encode())
        door.truncate(0)
        door.write(" ".join(map(str, (number, *alive, number))))
        return number


def is_alive(number: int) -> bool:
    with open(path(f"start-{number}")) as other:
        try:
            fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return False


def tell(uuid: str, session: str, text: str) -> None:
    usage = {"input_tokens": 1, "output_tokens": 1}
    message: dict[str, Any] = {
        "role": "assistant",
        "type": "message",
        "id": f"msg_{uuid}",
        "model": "claude-x",
    }
    message |= {"content": [{"type": "text", "text": text}], "usage": usage}
    init = {"type": "system", "subtype": "init", "session_id": session, "user_message_uuids": [uuid]}
    init |= {"cwd": "/", "model": "claude-x", "tools": [], "mcp_servers": [], "slash_commands": []}
    result = {"type": "result", "subtype": "success", "is_error": False, "result": text, "num_turns": 1}
    result |= {"duration_ms": 1, "duration_api_ms": 1, "session_id": session, "user_message_uuids": [uuid]}
    say(
        init | {"permissionMode": "default", "claude_code_version": VERSION},
        {"type": "assistant", "message": message, "parent_tool_use_id": None, "session_id": session},
        result | {"terminal_reason": "completed", "total_cost_usd": 0.01},
    )


def main() -> None:
    if sys.argv[2:] in (["--version"], ["-v"]):
        # Asked of a program that failed, in the place of the process that did.
        print(VERSION)
        return
    number = enter()
    while is_set("slow"):
        time.sleep(0.01)
    if is_set("every") and number % int(read("every")) == 0:
        os.write(2, b"not this time\n")
        os._exit(3)
    resumed = next((flag.partition("=")[2] for flag in sys.argv if flag.startswith("--resume=")), None)
    session = resumed or f"5e551011-0000-4000-8000-{os.urandom(6).hex()}"
    history = f"session-{session}"
    if resumed and not is_set(history):
        os.write(2, f"No conversation found with session ID: {session}\n".encode())
        os._exit(1)
    children: list[Any] = []
    for line in sys.stdin.buffer:
        frame = json.loads(line)
        if frame["type"] == "control_request":
            kind = frame["request"]["subtype"]
            if kind == "mcp_status" and is_set("deaf"):
                continue
            answer: dict[str, Any] = {"claude_code_version": VERSION}
            if kind == "mcp_status":
                answer = {"mcpServers": []}
            outcome = {"subtype": "success", "request_id": frame["request_id"], "response": answer}
            say({"type": "control_response", "response": outcome})
        elif frame["type"] == "user":
            content = frame["message"]["content"]
            prompt = content if isinstance(content, str) else "".join(block["text"] for block in content)
            with open(path(history), "a") as file:
                file.write(prompt + "\n")
            if prompt.startswith("grow "):
                # In a child: what counts is the tree.
                import subprocess

                code = f"b = b'x' * ({prompt.split()[1]} << 20); print(1, flush=True); input()"
                child = subprocess.Popen(
                    [sys.executable, "-I", "-S", "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE
                )
                assert child.stdout is not None
                child.stdout.readline()
                children.append(child)
            if prompt == "wait":
                while not is_set("go"):
                    time.sleep(0.01)
            tell(frame["uuid"], session, " ".join(read(history).split("\n")).strip())
    for child in children:
        child.kill()
        child.wait()


main()

"""Stands in for Claude Code: writes down all that reaches it, and answers each prompt.

An executable is made of it, with a first line that names an interpreter. What it writes goes into a file
beside that executable: lines of JSON as they come, and Python's literals for the rest. It is started hundreds
of times, and so does without `json` and `pathlib`, which take longer to import than all else.
"""

# ruff: noqa: PTH109, PTH113, PTH123

from __future__ import annotations

import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

SESSION = "11111111-1111-4111-8111-111111111111"
INITIALIZED: dict[str, object] = {
    "commands": [{"name": "compact", "description": "Sum up", "argumentHint": ""}],
    "agents": [],
    "output_style": "default",
    "available_output_styles": ["default"],
    "models": [],
    "account": {"tokenSource": "none", "apiKeySource": "none", "apiProvider": "firstParty"},
    "pid": os.getpid(),
    "claude_code_version": "2.1.325",
    "current_permission_mode": "default",
    "hooks_applied": True,
    "hook_on_failure_supported": True,
    "session_state": "idle",
}
TOOL_USE = {"tool_name": "Bash", "input": {"command": "ls"}, "tool_use_id": "toolu_1"}


# What a program that is older does not say.
INITIALIZED.pop(os.environ.get("CHILD_WITHOUT", ""), None)


class Child:
    """One run."""

    def __init__(self) -> None:
        self.record = open(f"{sys.argv[0]}.jsonl", "a", encoding="utf-8")  # noqa: SIM115 - as long as it runs
        self.initialize: dict[str, Any] = {}
        self.asked = 0

    def note(self, kind: str, value: str) -> None:
        self.record.write(f"{kind} {value}\n")
        self.record.flush()

    def say(self, **frame: object) -> None:
        # Not by `print`, which writes a line in two parts.
        sys.stdout.write(encoded(frame) + "\n")
        sys.stdout.flush()

    def run(self) -> None:
        words = sys.argv[1:]
        self.note("argv", ascii(words))
        self.note("env", ascii(dict(os.environ)))
        self.note("cwd", ascii(os.getcwd()))
        self.note("files", ascii({name: content for word in words for name, content in contents(word)}))
        while (line := self.read()) is not None:
            kind = line.get("type")
            if kind == "control_request":
                self.answer(line["request_id"], line["request"])
            elif kind == "user":
                self.turn()

    def read(self) -> dict[str, Any] | None:
        line = sys.stdin.readline()
        if not line:
            return None
        self.note("frame", line.rstrip("\n"))
        frame: dict[str, Any] = eval(line, {"true": True, "false": False, "null": None})
        return frame

    def answer(self, request_id: str, request: dict[str, Any]) -> None:
        is_first = request["subtype"] == "initialize"
        if is_first:
            self.initialize = request
        response: object = INITIALIZED if is_first else {}
        answer = {"subtype": "success", "request_id": request_id, "response": response}
        self.say(type="control_response", response=answer)

    def ask(self, **request: object) -> None:
        """Ask, and wait for the answer, with whatever comes before it."""
        self.asked += 1
        request_id = f"ask-{self.asked}"
        self.say(type="control_request", request_id=request_id, request=request)
        while (line := self.read()) is not None:
            if line.get("type") == "control_response" and line["response"]["request_id"] == request_id:
                return
            if line.get("type") == "control_request":
                self.answer(line["request_id"], line["request"])

    def turn(self) -> None:
        self.state("running")
        self.say(
            type="system",
            subtype="init",
            session_id=SESSION,
            uuid="u1",
            cwd=os.getcwd(),
            tools=[],
            mcp_servers=[],
            model="m",
            permissionMode="default",
            slash_commands=[],
            apiKeySource="none",
            claude_code_version="2.1.325",
            output_style="default",
        )
        for event, matchers in (self.initialize.get("hooks") or {}).items():
            told = {"session_id": SESSION, "transcript_path": "t", "cwd": "c", "hook_event_name": event}
            for name in [each for matcher in matchers for each in matcher["hookCallbackIds"]]:
                self.ask(subtype="hook_callback", callback_id=name, input=told, tool_use_id="toolu_1")
        if "--permission-prompt-tool=stdio" in "=".join(sys.argv):
            self.ask(subtype="can_use_tool", **TOOL_USE)
        content = [{"type": "text", "text": "hello"}]
        message = {"id": "m1", "type": "message", "role": "assistant", "model": "m", "content": content}
        ids = {"session_id": SESSION, "uuid": "u2"}
        self.say(type="assistant", message=message, parent_tool_use_id=None, **ids)
        self.say(
            type="result",
            subtype="success",
            is_error=False,
            duration_ms=1,
            duration_api_ms=1,
            num_turns=1,
            result="hello",
            total_cost_usd=0.0,
            usage={},
            session_id=SESSION,
            uuid="u3",
        )
        self.state("idle")

    def state(self, state: str) -> None:
        ids = {"session_id": SESSION, "uuid": f"s-{state}"}
        self.say(type="system", subtype="session_state_changed", state=state, sdk_host_only=True, **ids)


def contents(word: str) -> Iterator[tuple[str, str]]:
    """The file that an argument, or the part after its `=`, is the path of."""
    for name in (word, word.partition("=")[2]):
        if 0 < len(name) < 1000 and "\0" not in name and os.path.isfile(name):
            with open(name, encoding="utf-8-sig") as file:
                yield name, file.read()


def encoded(value: object) -> str:
    """JSON, for what is said here: no text has a character that would have to be escaped but these."""
    if isinstance(value, str):
        return '"' + value.replace("\\", "\\\\").replace('"', '\\"') + '"'
    if isinstance(value, dict):
        return "{" + ", ".join(f"{encoded(name)}: {encoded(item)}" for name, item in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(encoded, value)) + "]"
    return {"True": "true", "False": "false", "None": "null"}.get(str(value), str(value))


if __name__ == "__main__":
    Child().run()

"""Plays the host of a recording to the simulated agent, request by request, and compares what both said.

Each request of the agent gets the answer that the same request got in the recording: the first of its kind
that of the first, and so on. One that was withdrawn or left open there is left open here.
"""

from __future__ import annotations

import gzip
import json
import re
from collections import defaultdict, deque
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import anyio

from outrider.command import Command
from outrider.errors import ProcessExited
from outrider.testing import Script, Simulator
from tests.tapes import FOLDER, Recorded, runs
from tests.testing.simulator.recorded_host import answers_in, kind

SECONDS = 30.0

_PACED = ("result", "control_response", "control_request")
_ID = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_CUT = re.compile(r"(.{0,30}).* … \(\d+ characters\)", re.DOTALL)
# What depends on the machine and the moment.
_VARYING = frozenset({"duration_ms", "uuid", "timestamp", "session_id", "request_id"})


class _Host:
    def __init__(self, run: list[Recorded], agent: Simulator) -> None:
        self._agent = agent
        self._lines: deque[tuple[int, dict[str, Any] | None]] = deque()
        self._answers: dict[str, deque[dict[str, Any] | None]] = defaultdict(deque)
        self.said: list[dict[str, Any]] = []
        answers, paced = _answers(run), 0
        for record in run:
            frame = record.frame
            if record.event == "stdin_eof":
                self._lines.append((paced, None))
            elif record.direction == "cli->host" and isinstance(frame, dict):
                paced += frame["type"] in _PACED
                if frame["type"] == "control_request":
                    self._answers[_key(frame)].append(answers.get(frame["request_id"]))
            elif record.direction == "host->cli" and frame["type"] != "control_response":
                self._lines.append((paced, frame))

    async def play(self) -> None:
        paced, rest = 0, b""
        await self._agent.connect()
        while True:
            while self._lines and self._lines[0][0] <= paced:
                _, line = self._lines.popleft()
                if line is None:
                    await self._agent.end_input()
                else:
                    await self._send(line)
            data = await self._agent.receive()
            if not data:
                return
            *whole, rest = (rest + data).split(b"\n")
            for text in whole:
                frame = json.loads(text)
                self.said.append(frame)
                paced += frame["type"] in _PACED
                if frame["type"] == "control_request":
                    await self._answer(frame)

    async def _answer(self, frame: dict[str, Any]) -> None:
        waiting = self._answers[_key(frame)]
        answer = waiting.popleft() if waiting else None
        if answer is not None:
            response = {**answer, "request_id": frame["request_id"]}
            await self._send({"type": "control_response", "response": response})

    async def _send(self, line: dict[str, Any]) -> None:
        await self._agent.send(json.dumps(line).encode() + b"\n")


def _answers(run: list[Recorded]) -> dict[str, dict[str, Any]]:
    """The answers of the recorded host that still mattered, by the id of the request."""
    found: dict[str, dict[str, Any]] = {}
    withdrawn: set[str] = set()
    for record in run:
        frame = record.frame
        if not isinstance(frame, dict):
            continue
        if record.direction == "cli->host" and frame["type"] == "control_cancel_request":
            withdrawn.add(frame["request_id"])
        elif record.direction == "host->cli" and frame["type"] == "control_response":
            id = frame["response"]["request_id"]
            if id not in withdrawn:
                found.setdefault(id, frame["response"])
    return found


def _key(frame: dict[str, Any]) -> str:
    request = frame["request"]
    message = request.get("message") or {}
    return f"{request['subtype']} {request.get('callback_id', '')}{message.get('method', '')}"


async def replay(
    name: str, number: int, folder: Path, environment: Mapping[str, str] | None = None
) -> list[dict[str, Any]]:
    """What the simulated agent says in this run of a recording, in the paths and ids of the recording."""
    run = list(runs(name))[number]
    start = _starts(name)[number]
    main, subagents = answers_in(run)
    config = folder.parent / "config"
    given = {"ANTHROPIC_API_KEY": "made-up", "CLAUDE_CONFIG_DIR": str(config), **(environment or {})}
    agent = Simulator(Script(main, subagents=subagents))
    agent.prepare(Command(("claude", *start["argv"]), env={**start["env"], **given}, cwd=str(folder)))
    host = _Host(run, agent)
    try:
        with anyio.fail_after(SECONDS):
            await host.play()
    except ProcessExited:
        pass
    finally:
        await agent.close()
    text = json.dumps(host.said, ensure_ascii=False).replace(str(folder), start["cwd"])
    said: list[dict[str, Any]] = json.loads(text.replace(str(config), "/home/dev/.claude"))
    return said


def recorded(name: str, number: int) -> list[dict[str, Any]]:
    """What the real agent said in this run."""
    run = list(runs(name))[number]
    return [
        record.frame for record in run if record.direction == "cli->host" and isinstance(record.frame, dict)
    ]


def _starts(name: str) -> list[dict[str, Any]]:
    with gzip.open(FOLDER / f"{name}.jsonl.gz", "rt", encoding="utf-8") as file:
        records = [json.loads(line) for line in file]
    return [record for record in records if record.get("event") == "start"]


_JUDGEMENT = ("blocked_path", "decision_reason", "decision_reason_type", "permission_suggestions")


def shown(frames: list[dict[str, Any]]) -> list[tuple[str, Any]]:
    """The part of each frame that is about asking: the kind, and what is in it.

    Without the state of the session: when it begins to run is not in step with the handshakes.
    """
    return [
        (kind(frame), _plain(_part(frame)))
        for frame in frames
        if frame.get("subtype") != "session_state_changed"
    ]


def _part(frame: dict[str, Any]) -> object:
    match frame["type"]:
        case "control_request":
            request = dict(frame["request"])
            message = request.get("message")
            if isinstance(message, dict) and message.get("method") == "initialize":
                # Who asks is not told in the same words.
                request["message"] = {"method": "initialize", "id": message["id"]}
            # Why a command is asked about is the program's own judgement.
            input = request.get("input") or {}
            if "Bash" in (request.get("tool_name"), input.get("tool_name")):
                request = {key: value for key, value in request.items() if key not in _JUDGEMENT}
                request["input"] = {key: value for key, value in input.items() if key not in _JUDGEMENT}
            return request
        case "user":
            return {key: frame.get(key) for key in ("message", "tool_use_result", "tool_result_meta")}
        case "assistant":
            return {"content": frame["message"]["content"], "tool_use_meta": frame.get("tool_use_meta")}
        case "result":
            kept = ("is_error", "num_turns", "result", "permission_denials", "terminal_reason", "stop_reason")
            return {key: frame.get(key) for key in (*kept, "deferred_tool_use", "errors")}
        case "system" if frame["subtype"] == "init":
            tools = [name for name in frame["tools"] if name.startswith("mcp__")]
            return {"mcp_servers": frame["mcp_servers"], "tools": tools, "mode": frame["permissionMode"]}
        case "system":
            return frame
        case "control_response":
            payload = frame["response"].get("response") or {}
            return payload.get("mcpServers", frame["response"].get("error"))
        case _:
            return None


def _plain(value: object) -> object:
    if isinstance(value, dict):
        return {key: _plain(inner) for key, inner in value.items() if key not in _VARYING}
    if isinstance(value, list):
        return [_plain(inner) for inner in value]
    if isinstance(value, str):
        return _ID.sub("ID", re.sub(r"/projects/[^/]+/", "/projects/P/", value))
    return value


class Alike:
    """Equal to what is the same but for texts that the recording has cut short: their beginning counts."""

    def __init__(self, recorded: object) -> None:
        self._recorded = recorded

    def __eq__(self, other: object) -> bool:
        return _alike(self._recorded, other)

    def __hash__(self) -> int:
        return 0

    def __repr__(self) -> str:
        return repr(self._recorded)


def _alike(recorded: object, other: object) -> bool:
    if isinstance(recorded, dict) and isinstance(other, dict):
        return recorded.keys() == other.keys() and all(_alike(recorded[key], other[key]) for key in recorded)
    if isinstance(recorded, list | tuple) and isinstance(other, list | tuple):
        return len(recorded) == len(other) and all(map(_alike, recorded, other))
    if isinstance(recorded, str) and isinstance(other, str) and (cut := _CUT.fullmatch(recorded)):
        return other.startswith(cut[1].rstrip())
    return recorded == other

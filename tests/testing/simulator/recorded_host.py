"""Plays the host of a recording to the simulated agent, whose script is what the model said there."""

from __future__ import annotations

import gzip
import json
from collections import defaultdict, deque
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import anyio

from outrider.command import Command
from outrider.errors import ProcessExited
from outrider.testing import Answer, Block, Script, Simulator, Text, Thinking, ToolUse
from outrider.transports import Transport
from tests.tapes import FOLDER, Recorded, runs

SECONDS = 20.0


def answers_in(run: list[Recorded]) -> tuple[list[Answer], list[Answer]]:
    """What the model said, to the main conversation and to subagents, message by message."""
    blocks: dict[str, list[Block]] = {}
    subagents: set[str] = set()
    for record in run:
        frame = record.frame
        if record.direction != "cli->host" or frame.get("type") != "assistant":
            continue
        message = frame["message"]
        if message["model"] == "<synthetic>":
            continue
        if frame["parent_tool_use_id"] is not None:
            subagents.add(message["id"])
        blocks.setdefault(message["id"], []).extend(map(_block, message["content"]))
    found = {id: Answer(blocks=tuple(parts)) for id, parts in blocks.items()}
    main = [answer for id, answer in found.items() if id not in subagents]
    return main, [answer for id, answer in found.items() if id in subagents]


def _block(block: dict[str, Any]) -> Block:
    match block["type"]:
        case "text":
            return Text((block["text"],))
        case "thinking":
            return Thinking((block["thinking"],), block["signature"])
        case _:
            return ToolUse(block["name"], block["input"], block["id"])


class Host:
    """The recorded host. It sends each line when as many results and steps of tasks have come as had then."""

    def __init__(self, run: list[Recorded], transport: Transport) -> None:
        self._transport = transport
        self._lines: list[tuple[int, dict[str, Any] | None]] = []
        self._answers: dict[str, deque[dict[str, Any]]] = defaultdict(deque)
        self.said: list[dict[str, Any]] = []
        self._tasks: list[str] = []
        subtypes: dict[str, str] = {}
        results = 0
        for record in run:
            frame = record.frame
            if record.event == "stdin_eof":
                self._lines.append((results, None))
            elif not isinstance(frame, dict):
                continue
            elif record.direction == "cli->host":
                results += _is_due(frame)
                self._tasks += _started(frame)
                if frame["type"] == "control_request":
                    subtypes[frame["request_id"]] = _asked(frame)
            elif record.direction != "host->cli":
                continue
            elif frame["type"] == "control_response":
                id = frame["response"]["request_id"]
                self._answers[subtypes.get(id, "")].append(frame["response"])
            else:
                self._lines.append((results, frame))

    async def play(self) -> list[dict[str, Any]]:
        """All that the agent said."""
        due = 0
        lines = deque(self._lines)
        rest = b""
        await self._transport.connect()
        while True:
            while lines and lines[0][0] <= due:
                _, line = lines.popleft()
                if line is None:
                    await self._transport.end_input()
                else:
                    await self._transport.send(self._translated(json.dumps(line)).encode() + b"\n")
            data = await self._transport.receive()
            if not data:
                return self.said
            *whole, rest = (rest + data).split(b"\n")
            for text in whole:
                frame = json.loads(text)
                self.said.append(frame)
                due += _is_due(frame)
                if frame["type"] == "control_request":
                    await self._answer(frame)

    def _translated(self, line: str) -> str:
        """The line with the ids of tasks that the simulated agent has chosen."""
        chosen = [id for frame in self.said for id in _started(frame)]
        for recorded, id in zip(self._tasks, chosen, strict=False):
            line = line.replace(recorded, id)
        return line

    async def _answer(self, frame: dict[str, Any]) -> None:
        waiting = self._answers[_asked(frame)]
        if waiting:
            response = {**waiting.popleft(), "request_id": frame["request_id"]}
            message = frame["request"].get("message", {})
            if (
                isinstance(answer := response.get("response", {}).get("mcp_response"), dict)
                and "id" in message
            ):
                answer["id"] = message["id"]
            line = {"type": "control_response", "response": response}
            await self._transport.send(json.dumps(line).encode() + b"\n")


def _is_due(frame: dict[str, Any]) -> bool:
    """Whether the host waits for frames like this one."""
    # A task that was stopped before its first step would not be the one of the recording.
    return frame["type"] in ("result", "control_response") or frame.get("subtype") == "task_progress"


def _started(frame: dict[str, Any]) -> list[str]:
    """The task that a frame tells of, if it is the first to do so."""
    return [frame["task_id"]] if frame.get("subtype") == "task_started" else []


def _asked(frame: dict[str, Any]) -> str:
    request = frame["request"]
    message = request.get("message") or {}
    return f"{request['subtype']} {request.get('tool_name', '')}{message.get('method', '')}"


async def play(name: str, number: int, folder: Path) -> list[dict[str, Any]]:
    """What the simulated agent says where the real one said what is in this run of a recording."""
    run = list(runs(name))[number]
    start = _starts(name)[number]
    main, subagents = answers_in(run)
    env = {**start["env"], "ANTHROPIC_API_KEY": "made-up"}
    config = folder.parent / "config"
    env["CLAUDE_CONFIG_DIR"] = str(config)
    agent = Simulator(Script(main, subagents=subagents))
    agent.prepare(Command(("claude", *start["argv"]), env=env, cwd=str(folder)))
    with anyio.fail_after(SECONDS):
        host = Host(run, agent)
        try:
            return await host.play()
        except ProcessExited:
            return host.said
        finally:
            await agent.close()


def _starts(name: str) -> list[dict[str, Any]]:
    with gzip.open(FOLDER / f"{name}.jsonl.gz", "rt", encoding="utf-8") as file:
        records = [json.loads(line) for line in file]
    return [record for record in records if record.get("event") == "start"]


def kinds(frames: Iterable[dict[str, Any]]) -> list[str]:
    """What is there, one word for a frame."""
    return [kind(frame) for frame in frames]


def kind(frame: dict[str, Any]) -> str:
    match frame["type"]:
        case "system" | "result":
            detail = frame["subtype"]
            if detail == "session_state_changed":
                detail += f" {frame['state']}"
            return f"{frame['type']}/{detail}"
        case "control_request":
            return f"control_request/{_asked(frame).strip()}"
        case "control_response":
            return f"control_response/{frame['response']['subtype']}"
        case "assistant" | "user":
            content = frame["message"]["content"]
            parts = [block["type"] for block in content] if isinstance(content, list) else ["text"]
            marks = [mark for mark in ("isReplay", "isSynthetic", "aborted", "error") if frame.get(mark)]
            return f"{frame['type']}[{','.join(parts)}]{' '.join(['', *marks])}"
        case "stream_event":
            return f"stream_event/{frame['event']['type']}"
        case "command_lifecycle":
            return f"command_lifecycle/{frame['state']}"
        case other:
            return str(other)

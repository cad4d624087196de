"""What is measured: files of lines, made from lines that the real program sent. Measures nothing itself."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from random import Random
from shlex import quote
from typing import Any
from uuid import UUID

from benchmarks.agent import ANSWER, INIT, RESULT, TURN_VARIABLE, UNNAMED_VARIABLE
from tests import tapes

REPEATS = 10
"""How often the recording is in its file: a single pass is too short to be timed well."""

LONG_RECORDING = "05-hooks-all-events"


@dataclass(frozen=True)
class Work:
    """One row of the table: a file, and what is done with it."""

    name: str
    title: str
    lines: Callable[[], Iterable[bytes]]
    pass_name: str = "messages"

    def write(self, folder: Path) -> tuple[Path, int]:
        """Write the file; says where it is and how many lines it has."""
        path = folder / f"{self.name}.jsonl"
        count = 0
        with path.open("wb") as file:
            for line in self.lines():
                file.write(line + b"\n")
                count += 1
        return path, count


def small(*, quick: bool) -> list[Work]:
    """Many messages each, for the cost of one."""
    share = 5 if quick else 1
    return [
        Work("stream", "stream events, 10 characters", lambda: stream_events(100_000 // share)),
        Work("text", "the same, and their text is read", lambda: stream_events(100_000 // share), "texts"),
        Work("assistant", "assistant messages, 200 characters", lambda: assistant_messages(20_000 // share)),
        Work("result", "result messages", lambda: result_messages(10_000 // share)),
        Work("recording", f"recording {LONG_RECORDING}", long_recording, "routed"),
    ]


def large(size_mb: int) -> Work:
    """A single message."""
    return Work(
        f"large-{size_mb}", f"one message of {size_mb} MB", lambda: [tool_result(size_mb * 1_000_000)]
    )


def greeter(folder: Path) -> Path:
    """A program that says one thing and waits for its input to end."""
    return _program(folder / "greeter", 'echo \'{"type":"keep_alive"}\'')


def flooder(folder: Path, file: Path) -> Path:
    """A program that writes a file as fast as it is read and waits for its input to end."""
    return _program(folder / "flooder", f"cat '{file}'")


def agent(folder: Path, turn: Path, *, unnamed: bool = False) -> Path:
    """An agent that answers each prompt with the lines of a file, and names the prompt or not."""
    script = Path(__file__).with_name("agent.py")
    name, more = ("unnamed-agent", f"{UNNAMED_VARIABLE}=1 ") if unnamed else ("agent", "")
    return _script(
        folder / f"{name}-{turn.stem}",
        f"{more}{TURN_VARIABLE}='{turn}' exec '{sys.executable}' -I -S '{script}'",
    )


def light_agent(folder: Path, turn: Path) -> Path:
    """The same as a shell script, which asks nothing: see `light_agent.sh`."""
    script = Path(__file__).with_name("light_agent.sh")
    values = {
        "init": json.dumps(INIT)[:-1],
        "turn": turn.read_text(encoding="utf-8"),
        "result": json.dumps(RESULT)[:-1],
        "answer": json.dumps(ANSWER),
    }
    lines = [f"{name}={quote(value)}" for name, value in values.items()]
    return _script(folder / f"light-agent-{turn.stem}", "\n".join([*lines, f". '{script}'"]))


def _program(path: Path, line: str) -> Path:
    return _script(path, f"{line}\nexec cat >/dev/null")


def _script(path: Path, text: str) -> Path:
    path.write_text(f"#!/bin/sh\n{text}\n", encoding="utf-8")
    path.chmod(0o755)
    return path


def stream_events(count: int) -> Iterator[bytes]:
    random = Random(1)
    event = _recorded("02-partial-text-and-tool", _is_text_delta)
    for _ in range(count):
        event["event"]["delta"]["text"] = _text(random, 10)
        event["uuid"] = _uuid(random)
        yield _line(event)


def assistant_messages(count: int) -> Iterator[bytes]:
    random = Random(2)
    message = _recorded("01-oneshot-query", lambda frame: frame["type"] == "assistant")
    for _ in range(count):
        message["message"]["content"][0]["text"] = _text(random, 200)
        message["uuid"] = _uuid(random)
        yield _line(message)


def tool_turns(count: int) -> Iterator[bytes]:
    """So many assistant messages, half of them calls of a tool, and the results of these."""
    random = Random(4)
    name = "02-partial-text-and-tool"
    text = _recorded(name, lambda frame: _is_assistant(frame, "text"))
    call = _recorded(name, lambda frame: _is_assistant(frame, "tool_use"))
    result = _recorded(name, _is_tool_result)
    for number in range(count // 2):
        text["message"]["content"][0]["text"] = _text(random, 200)
        result["message"]["content"][0]["content"] = _text(random, 200)
        call["message"]["content"][0]["id"] = f"toolu_{number}"
        result["message"]["content"][0]["tool_use_id"] = f"toolu_{number}"
        result["tool_result_meta"][0]["id"] = f"toolu_{number}"
        for message in (text, call):
            message["message"]["id"] = f"msg_{number}"
            message["request_id"] = f"req_{number}"
            message["message"]["usage"]["input_tokens"] = number
        for message in (text, call, result):
            message["uuid"] = _uuid(random)
            yield _line(message)


def result_messages(count: int) -> Iterator[bytes]:
    random = Random(3)
    message = _recorded("01-oneshot-query", lambda frame: frame["type"] == "result")
    for _ in range(count):
        message["uuid"] = _uuid(random)
        yield _line(message)


def long_recording() -> Iterator[bytes]:
    return (line for _ in range(REPEATS) for line in _sent_lines(LONG_RECORDING))


def every_recording() -> Iterator[bytes]:
    """All frames of all recordings, without the noise: some of it ends a session of the reference."""
    return (line for name in tapes.NAMES for line in _sent_lines(name))


def tool_result(size: int) -> bytes:
    """A line of so many bytes: the result of reading a file, as numbered lines of code."""
    message = _recorded("15-big-tool-results", _is_tool_result)
    message.pop("tool_use_result", None)
    block = message["message"]["content"][0]
    block["content"] = ""
    code, room = list[str](), size - len(_line(message))
    while room > 0:
        row = f'{len(code) + 1:>6}\tprint(f"the {len(code)}th row — {{value!r}}")\n'
        code.append(row)
        room -= len(json.dumps(row, ensure_ascii=False).encode()) - 2
    block["content"] = "".join(code)
    return _line(message)


def _recorded(name: str, is_wanted: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
    return next(frame for frame in tapes.frames(name, "cli->host") if is_wanted(frame))


def _sent_lines(name: str) -> Iterator[bytes]:
    return (_line(frame) for frame in tapes.frames(name, "cli->host"))


def _is_text_delta(frame: dict[str, Any]) -> bool:
    return bool(
        frame["type"] == "stream_event" and frame["event"].get("delta", {}).get("type") == "text_delta"
    )


def _is_assistant(frame: dict[str, Any], kind: str) -> bool:
    return bool(frame["type"] == "assistant" and frame["message"]["content"][0]["type"] == kind)


def _is_tool_result(frame: dict[str, Any]) -> bool:
    return bool(frame["type"] == "user" and frame["message"]["content"][0]["type"] == "tool_result")


def _line(frame: dict[str, Any]) -> bytes:
    """As the program spells it: compact, and characters as themselves."""
    return json.dumps(frame, ensure_ascii=False, separators=(",", ":")).encode()


def _text(random: Random, length: int) -> str:
    return " ".join(random.choices(_WORDS, k=length))[:length]


def _uuid(random: Random) -> str:
    return str(UUID(int=random.getrandbits(128), version=4))


_WORDS = (
    "the",
    "agent",
    "reads",
    "a",
    "file,",
    "writes",
    "it",
    "again",
    "and",
    "says",
    "so.",
    "café",
    '"done"',
)

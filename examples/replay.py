"""Play a recording of the real program through the codec and print it as a conversation.

python examples/replay.py [RECORDING]
"""

from __future__ import annotations

import gzip
import json
import os
import shutil
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from bridle.wire import (
    AssistantMessage,
    ContentBlock,
    ControlRequest,
    ControlResponse,
    Frame,
    InitMessage,
    ResultMessage,
    SystemMessage,
    TextBlock,
    ThinkingBlock,
    ToolResultBlock,
    ToolUseBlock,
    UserMessage,
    Value,
    decode,
)
from bridle.wire.control import CanUseTool, ask_from_wire, request_from_wire

RECORDINGS = Path(__file__).parents[1] / "tests" / "recordings"

BOLD, FAINT, RED, GREEN, YELLOW, BLUE, PURPLE, CYAN = 1, 2, 31, 32, 33, 34, 35, 36
LABEL = 9


class Said(NamedTuple):
    """Who said what."""

    who: str
    text: str
    colour: int


def conversation(frame: Frame, is_from_agent: bool) -> Iterator[Said]:
    """What there is to show of a frame."""
    match frame:
        case UserMessage(content=str(text)) if not is_from_agent:
            yield Said("user", text, CYAN)
        case UserMessage(content=list(blocks)) | AssistantMessage(content=list(blocks)):
            for block in blocks:
                yield from block_said(block)
        case ControlRequest(request=request):
            typed = ask_from_wire(request) if is_from_agent else request_from_wire(request)
            if isinstance(typed, CanUseTool):
                yield Said("asks", f"may I use {typed.tool_name}?", YELLOW)
            elif not is_from_agent:
                yield Said("request", typed.subtype, FAINT)
        case ControlResponse(response=outcome):
            answer = outcome.response if isinstance(outcome.response, dict) else {}
            if not is_from_agent:
                reason = answer.get("message", "")
                yield Said("answer", f"{answer.get('behavior', outcome.subtype)} {reason}".strip(), YELLOW)
            elif outcome.error:
                yield Said("refused", outcome.error, RED)
        case InitMessage(model=model, tools=tools, permission_mode=mode):
            yield Said("starts", f"{model}, {len(tools)} tools, permission mode {mode}", FAINT)
        case SystemMessage(subtype=subtype):
            yield Said("system", subtype, FAINT)
        case ResultMessage():
            how = f"{frame.subtype} in {frame.duration_ms / 1000:.2f} s, {frame.cost_usd:.4f} USD so far"
            yield Said("done", how, GREEN if frame.is_success else RED)
        case _:
            pass


def block_said(block: ContentBlock) -> Iterator[Said]:
    """What there is to show of a content block."""
    match block:
        case TextBlock(text):
            yield Said("agent", text, BOLD)
        case ThinkingBlock(thinking):
            yield Said("thinks", thinking, FAINT)
        case ToolUseBlock(name=name):
            typed = block.typed()
            yield Said("tool", repr(typed) if isinstance(typed, Value) else f"{name} {typed}", BLUE)
        case ToolResultBlock():
            yield Said("returns", block.text or "(nothing)", RED if block.is_error else PURPLE)
        case _:
            yield Said("block", repr(block), FAINT)


def main(path: Path) -> None:
    """Print the conversation in a recording."""
    in_colour = sys.stdout.isatty() and "NO_COLOR" not in os.environ
    width = min(shutil.get_terminal_size((100, 24)).columns, 110)

    def paint(text: str, colour: int) -> str:
        return f"\033[{colour}m{text}\033[0m" if in_colour else text

    count = size = 0
    print(paint(path.name.partition(".")[0], BOLD), paint("— a recording of the real program\n", FAINT))
    for record in records(path):
        line = json.dumps(record["json"], ensure_ascii=False).encode()
        count, size = count + 1, size + len(line)
        for who, text, colour in conversation(decode(line), record["dir"] == "cli->host"):
            if who == "user":
                print()
            stamp = paint(f"{record['t']:6.2f}", FAINT)
            label = paint(f"{who:>{LABEL}}", colour)
            first, *rest = textwrap.wrap(text, width - LABEL - 10, max_lines=4, placeholder=" …") or [""]
            print(stamp, label, paint(first, FAINT) if colour == FAINT else first)
            for more in rest:
                print(" " * (LABEL + 7), paint(more, FAINT) if colour == FAINT else more)
    print(paint(f"\n{count} frames, {size / 1024:.0f} KiB: every one typed, none lost.", FAINT))


def records(path: Path) -> Iterator[dict[str, Any]]:
    """The lines that the two sides sent."""
    data = path.read_bytes()
    for line in (gzip.decompress(data) if path.suffix == ".gz" else data).splitlines():
        record = json.loads(line)
        if isinstance(record.get("json"), dict) and record["dir"] in ("cli->host", "host->cli"):
            yield record


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else RECORDINGS / "19-plan-mode.jsonl.gz")

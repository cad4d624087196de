"""Sums up a transcript in one pass: its turns, what they took, and what ran when.

The pass goes on where it ended when the file has grown. What is kept is a few bytes an entry.
"""

from __future__ import annotations

import os
from array import array
from typing import TYPE_CHECKING, Final

import msgspec

from outrider.transcripts._disk.files import open_file
from outrider.transcripts._entries import to_time
from outrider.view._sources.transcript import typed

if TYPE_CHECKING:
    from pathlib import Path

LANES: Final = ("model", "files", "edits", "shell", "web", "agents", "other")
"""What can run, as the timeline shows it."""

_LANE_OF: Final = {
    **dict.fromkeys(("Read", "Glob", "Grep", "LS", "LSP", "NotebookRead", "ToolSearch"), 1),
    **dict.fromkeys(("Edit", "MultiEdit", "Write", "NotebookEdit"), 2),
    **dict.fromkeys(("Bash", "PowerShell", "BashOutput", "KillShell", "Monitor"), 3),
    **dict.fromkeys(("WebFetch", "WebSearch"), 4),
    **dict.fromkeys(("Task", "Agent", "Workflow", "SendMessage"), 5),
}
_EDITS: Final = 2
_OTHER: Final = 6
_MOST_NAMES: Final = 1_000
_LONGEST_TITLE: Final = 140
_LONGEST_LINE: Final = 1 << 24


class _Usage(msgspec.Struct, gc=False):
    input_tokens: int = 0
    output_tokens: int = 0
    cache_read_input_tokens: int | None = 0
    cache_creation_input_tokens: int | None = 0


class _Block(msgspec.Struct, gc=False):
    type: str = ""
    id: str = ""
    name: str = ""
    tool_use_id: str = ""
    is_error: bool | None = None
    text: msgspec.Raw = msgspec.Raw(b'""')


class _Message(msgspec.Struct, gc=False):
    id: str | None = None
    model: str | None = None
    usage: _Usage | None = None
    content: str | list[_Block] = ""


class _Line(msgspec.Struct, gc=False, rename="camel"):
    type: str = ""
    subtype: str | None = None
    timestamp: str | None = None
    is_meta: bool = False
    is_compact_summary: bool = False
    is_api_error_message: bool = False
    message: _Message | None = None
    total_cost: float | None = msgspec.field(default=None, name="totalCostUSD")


_decode: Final = msgspec.json.Decoder(_Line).decode


class TurnFigures(msgspec.Struct, gc=False):
    """A prompt, and what came of it."""

    offset: int
    title: str
    began: float | None = None
    ended: float | None = None
    calls: int = 0
    errors: int = 0
    context: int = 0
    """Tokens that the model was given last."""
    output: int = 0
    cost_usd: float | None = None

    @property
    def seconds(self) -> float | None:
        return None if self.began is None or self.ended is None else max(self.ended - self.began, 0.0)


class Outline:
    """What there is to say of a whole transcript. `read` blocks, and is called by one thread at a time."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.offset = 0
        self.entries = 0
        self.turns: list[TurnFigures] = []
        self.models: dict[str, None] = {}
        self.input = self.output = self.cached = self.context = self.calls = self.errors = self.retries = 0
        self.cost_usd: float | None = None
        self.began: float | None = None
        self.ended: float | None = None
        # What ran: when it began and ended, where it is in the file, its lane, and whether it failed.
        self.starts, self.ends = array("d"), array("d")
        self.offsets, self.lanes = array("Q"), array("B")
        self.tools = array("H")
        """Which of the names."""
        self.names: dict[str, int] = {"": 0}
        self.edits: list[tuple[int, int]] = []
        """Where a call is that has changed a file, and where its result is."""
        # How much the model was given, and when.
        self.given_at, self.given = array("d"), array("L")
        self.marks: list[tuple[float, int]] = []
        """Where it was compacted."""
        self._open: dict[str, int] = {}
        """By the id of a call, its place in the arrays."""
        self._message: str | None = None
        self._before: float | None = None
        self._prompts = 0
        self._paid = 0.0

    def read(self) -> None:
        """Read what is new. Raises `OSError`."""
        with open_file(self.path, 1 << 20) as file:
            if os.fstat(file.fileno()).st_size < self.offset:
                self.__init__(self.path)  # type: ignore[misc] # it is another file now
            file.seek(self.offset)
            while data := file.readline(_LONGEST_LINE):
                if not data.endswith(b"\n"):
                    if len(data) < _LONGEST_LINE:
                        break
                elif len(data) > 1:
                    self._line(self.offset, data)
                self.offset += len(data)

    def _line(self, offset: int, data: bytes) -> None:
        try:
            line = _decode(data)
        except (ValueError, RecursionError):
            return
        self.entries += 1
        if line.type == "cost-state" and line.total_cost is not None:
            if self._prompts == 1 and self.turns:
                self.turns[-1].cost_usd = max(line.total_cost - self._paid, 0.0)
            self._prompts, self._paid, self.cost_usd = 0, line.total_cost, line.total_cost
        if line.type not in ("user", "assistant", "system") or line.is_meta:
            return
        time = to_time(line.timestamp)
        at = None if time is None else time.timestamp()
        if at is not None:
            self.began = at if self.began is None else min(self.began, at)
            self.ended = at if self.ended is None else max(self.ended, at)
        if line.type == "system":
            if line.subtype == "compact_boundary" and at is not None:
                self.marks.append((at, offset))
            self.retries += line.subtype in ("api_error", "api_retry")
        elif line.type == "user":
            self._user(offset, line, at)
        else:
            self._assistant(offset, line, at)
        if at is not None:
            self._before = at
            if self.turns and line.type == "assistant":
                self.turns[-1].ended = at

    def _user(self, offset: int, line: _Line, at: float | None) -> None:
        message = line.message
        if message is None or line.is_compact_summary:
            return
        blocks = message.content
        if isinstance(blocks, list):
            answers = [block for block in blocks if block.type.endswith("tool_result")]
            for block in answers:
                place = self._open.pop(block.tool_use_id, None)
                if place is not None:
                    self.ends[place] = at or self.ends[place]
                    if self.lanes[place] == _EDITS and not block.is_error:
                        self.edits.append((self.offsets[place], offset))
                    if block.is_error:
                        self.lanes[place] |= 128
                        self.errors += 1
                        if self.turns:
                            self.turns[-1].errors += 1
            if answers:
                return
        title = _title(blocks)
        if title is not None:
            self._prompts += 1
            self._open.clear()
            self.turns.append(TurnFigures(offset, title, at, at))

    def _assistant(self, offset: int, line: _Line, at: float | None) -> None:
        message = line.message
        if message is None:
            return
        turn = self.turns[-1] if self.turns else None
        if line.is_api_error_message:
            self.errors += 1
            if turn:
                turn.errors += 1
        if message.model and not message.model.startswith("<"):
            self.models[message.model] = None
        if at is not None and self._before is not None and at > self._before:
            self._span(self._before, at, offset, 0)
        if message.id is None or message.id != self._message:
            self._message = message.id
            if (usage := message.usage) is not None:
                cached = (usage.cache_read_input_tokens or 0) + (usage.cache_creation_input_tokens or 0)
                self.input += usage.input_tokens
                self.cached += cached
                self.output += usage.output_tokens
                self.context = usage.input_tokens + cached
                if at is not None and 0 < self.context < 1 << 32:
                    self.given_at.append(at)
                    self.given.append(self.context)
                if turn:
                    turn.context = self.context
                    turn.output += usage.output_tokens
        for block in message.content if isinstance(message.content, list) else ():
            if block.type.endswith("tool_use"):
                self.calls += 1
                if turn:
                    turn.calls += 1
                if at is not None:
                    self._open[block.id] = len(self.starts)
                    self._span(at, at, offset, _LANE_OF.get(block.name, _OTHER), block.name)

    def _span(self, start: float, end: float, offset: int, lane: int, tool: str = "") -> None:
        if len(self.names) < _MOST_NAMES:
            self.names.setdefault(tool, len(self.names))
        self.tools.append(self.names.get(tool, 0))
        self.starts.append(start)
        self.ends.append(end)
        self.offsets.append(offset)
        self.lanes.append(lane)


def _title(content: str | list[_Block]) -> str | None:
    """What a prompt says, in a line; None if it is none of the user's."""
    if isinstance(content, str):
        words = content
    else:
        texts = [block for block in content if block.type == "text"]
        try:
            words = " ".join(str(msgspec.json.decode(block.text)) for block in texts)
        except (ValueError, RecursionError):
            words = ""
        if not words.strip():
            words = "(picture)" if any(block.type == "image" for block in content) else ""
    line = " ".join((typed(words[: 40 * _LONGEST_TITLE].strip()) or "").split())
    if not line:
        return None
    return line if len(line) <= _LONGEST_TITLE else f"{line[:_LONGEST_TITLE]}…"

"""Implements `outrider replay` and `outrider trace show`, for traces, cassettes and recordings.

`outrider.transports` reads the files and makes the timeline.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final

from rich.text import Text

from outrider._display import one_line, printable
from outrider.app._flags import Code, Failed
from outrider.app._render import DisplayLine, Page, counted, describe, shortened
from outrider.app._terminal import Terminal
from outrider.errors import MalformedFrame
from outrider.transports import read_trace, timeline
from outrider.wire import InitMessage, StreamEvent, UnknownMessage, decode

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from outrider.transports import Recording, TimelineEntry, TraceRecord


# Replay.

_LONGEST_PAUSE: Final = 3.0
"""Longer pauses are cut."""


def replay_file(path: Path, *, no_color: bool, speed: float) -> int:
    """Print the conversation in a recording; gives the exit code."""
    terminal = Terminal(no_color=no_color)
    recording = read_recording(path)
    name = path.name.partition(".")[0]
    terminal.print(Text.assemble((one_line(name), "bold"), (_about(recording), "dim")))
    player = _Player(Page(terminal, with_times=True), speed)
    try:
        for record in recording.records:
            player.play(record)
    finally:
        terminal.clear()
    terminal.print()
    terminal.print(Text(player.totals(), style="dim"))
    return _finish(terminal, recording)


def read_recording(path: Path) -> Recording:
    """Read a recording. Raises `Failed` if it is empty, and what `read_trace` raises."""
    recording = read_trace(path)
    if not recording.records:
        raise Failed(f"{path} is empty.", Code.USAGE)
    return recording


def _finish(terminal: Terminal, recording: Recording) -> int:
    if recording.is_cut_short:
        terminal.note(Text("The last line is incomplete: the recording was interrupted.", style="yellow"))
    return Code.OK


def _about(recording: Recording) -> str:
    return f" — {counted(len(recording.runs), 'run')} of Claude Code"


class _Player:
    """Prints one record after the other."""

    def __init__(self, page: Page, speed: float) -> None:
        self._page = page
        self._speed = speed
        self._run = 0
        self._time = 0.0
        self._text = ""
        self._cwd: str | None = None
        self.frames = self.size = self.unknown = 0

    def play(self, record: TraceRecord) -> None:
        self._keep_time(record)
        if record.is_line:
            self._line(record)
        elif record.direction == "stderr" and record.text.strip():
            self._page.say(
                DisplayLine("note", printable(record.text.rstrip())), label="stderr", at=record.time
            )
        elif record.event == "exit":
            code = record.facts.get("returncode")
            self._page.say(
                DisplayLine("note", f"code {one_line(str(code))}"),
                label="exit",
                at=record.time,
            )

    def _keep_time(self, record: TraceRecord) -> None:
        if record.run != self._run:
            self._run, self._time = record.run, record.time
            self._page.print()
        elif self._speed and record.time > self._time:
            time.sleep(min(record.time - self._time, _LONGEST_PAUSE) / self._speed)
        self._time = max(self._time, record.time)

    def _line(self, record: TraceRecord) -> None:
        self.frames += 1
        self.size += record.size
        try:
            frame = decode(record.data)
        except MalformedFrame:
            line = shortened(one_line(record.text))
            self._page.say(DisplayLine("note", line), label="noise", at=record.time)
            return
        self.unknown += isinstance(frame, UnknownMessage)
        if isinstance(frame, StreamEvent):
            self._text += frame.text
            if self._speed and self._text.strip():
                self._page.draw(DisplayLine("agent", printable(self._text.strip("\n"))), at=record.time)
            return
        self._text = ""
        if isinstance(frame, InitMessage):
            self._cwd = frame.cwd
        is_from_agent = record.direction == "cli->host"
        for each in describe(frame, cwd=self._cwd, is_from_agent=is_from_agent, with_requests=True):
            if each.kind == "user":
                self._page.print()
            label = "starts" if isinstance(frame, InitMessage) else None
            self._page.say(each, label=label, at=record.time)

    def totals(self) -> str:
        types = f"{self.unknown} of an unknown type" if self.unknown else "every one typed"
        return f"{self.frames} frames, {self.size / 1024:,.0f} KiB: {types}, none lost."


# Timeline.

_KIND: Final = 28
_SHORT_KIND: Final = 20
_WIDE: Final = 100
_PIPED_WIDTH: Final = 160

_SIGNS: Final[Mapping[str, tuple[str, str]]] = {
    "host->cli": ("->", "cyan"),
    "cli->host": ("<-", "green"),
    "stderr": ("!", "yellow"),
    "meta": ("*", "dim"),
    "note": ("#", "dim"),
}
"""The symbol and style of each direction."""


def show_trace(path: Path, *, no_color: bool, with_partials: bool) -> int:
    """Print the timeline of a trace; gives the exit code."""
    terminal = Terminal(no_color=no_color)
    recording = read_recording(path)
    is_terminal = terminal.out.is_terminal
    width = terminal.out.width if is_terminal else _PIPED_WIDTH
    run = 0
    for entry in timeline(recording, width=max(width, 60), partials=with_partials):
        if entry.run != run:
            run = entry.run
            terminal.print(Text(f"run {run}", style="bold"))
        line = _line(entry, _KIND if width >= _WIDE else _SHORT_KIND)
        if is_terminal:
            line.truncate(width, overflow="ellipsis")
        terminal.print(line)
    return _finish(terminal, recording)


def _line(entry: TimelineEntry, width: int) -> Text:
    sign, style = _SIGNS[entry.direction]
    took = "" if entry.duration is None else f"({entry.duration:.2f} s) "
    turn = "" if entry.turn is None else f"#{entry.turn}"
    is_failure = entry.kind.startswith("answer") and entry.summary.startswith("error")
    text = Text(f"{entry.time:8.3f}  ", style="dim")
    text.append(f"{turn:<4}", style="dim").append(f"{sign:<2} ", style=style)
    text.append(f"{entry.kind:<{width}} ", style="red" if is_failure else style)
    text.append(took, style="dim").append(entry.summary)
    text.rstrip()
    return text

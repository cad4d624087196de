"""Owns `outrider trace show`: what travelled, line by line, with times.

Does not read files, and does not decide what is told of a frame: `outrider.transports` does.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from rich.text import Text

from outrider.app._failing import Code
from outrider.app._replay import read_recording
from outrider.app._terminal import Terminal
from outrider.transports import timeline

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from outrider.transports import TimelineEntry

__all__ = ["show_trace"]

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
"""Who said it: this side, the agent, the agent on stderr; what happened, and remarks."""


def show_trace(path: Path, *, no_color: bool, with_partials: bool) -> int:
    """Print the timeline of a trace; gives the exit code.

    Raises `OSError`, `TranscriptDamaged` or `UsageError` for what cannot be read.
    """
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
    if recording.is_cut_short:
        terminal.note(Text("Its last line is not whole: whoever wrote it was stopped.", style="yellow"))
    return Code.OK


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

"""Owns `conversation`, what was said in a trace, as text for the report of a test.

Does not read the format of traces: `outrider.transports` does.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from outrider.transports import read_trace, timeline

if TYPE_CHECKING:
    import os

    from outrider.transports import TimelineEntry

__all__ = ["conversation"]

_SIDES: Final = {"host->cli": "▶", "cli->host": "◀", "stderr": "!", "meta": "·", "note": "·"}


def conversation(path: str | os.PathLike[str], *, lines: int = 60, width: int = 110) -> str:
    """What was said in a trace, a line for each thing, with the middle left out if it is long.

        ▶ user                      Who owns ticket 7?
        ◀ assistant                 mcp__tools__lookup {"ticket": 7}

    ▶ is what this process said, ◀ what the agent did. Raises what `read_trace` raises.
    """
    entries = list(timeline(read_trace(path), width=width, partials=False))
    runs = len({entry.run for entry in entries})
    told = [_line(entry, several=runs > 1) for entry in entries]
    if len(told) > lines:
        first = lines // 2
        left_out = len(told) - lines
        told[first : first + left_out] = [f"  … {left_out} more …"]
    return "\n".join(told)


def _line(entry: TimelineEntry, *, several: bool) -> str:
    run = f"{entry.run} " if several else ""
    return f"{run}{_SIDES[entry.direction]} {entry.kind:<25} {entry.summary}".rstrip()

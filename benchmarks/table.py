"""How figures look in a terminal. Knows nothing of how they were measured."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from dataclasses import dataclass

TIMES = "\N{MULTIPLICATION SIGN}"

COLUMNS = (38, 14, 14, 10)
"""The row's title, both sides, their ratio; the goal takes what it needs."""


@dataclass(frozen=True)
class Figure:
    """One row: what either side took, less is better, and what was asked for."""

    name: str
    title: str
    unit: str
    ours: float
    theirs: float | None
    goal: str = ""
    is_met: bool | None = None
    """None where there is no goal, or nothing to hold it against."""

    @property
    def ratio(self) -> float | None:
        """How many times less ours took."""
        return self.theirs / self.ours if self.theirs is not None and self.ours > 0 else None


def has_colour() -> bool:
    return sys.stdout.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def painted(text: str, colour: str) -> str:
    return f"\x1b[{_COLOURS[colour]}m{text}\x1b[0m" if has_colour() else text


_COLOURS = {"bold": "1", "dim": "2", "red": "31", "green": "32"}


def header(title: str, theirs: str) -> str:
    width, *rest = COLUMNS
    cells = [cell.rjust(size) for cell, size in zip(("Outrider", theirs, "ratio"), rest, strict=True)]
    return painted(title.ljust(width) + "".join(cells) + "   goal", "bold")


def row(figure: Figure, spelled: Callable[[float], str]) -> str:
    width, ours, theirs, ratio = COLUMNS
    line = f"  {figure.title}".ljust(width) + spelled(figure.ours).rjust(ours)
    line += ("-" if figure.theirs is None else spelled(figure.theirs)).rjust(theirs)
    line += ("-" if figure.ratio is None else _spelled_ratio(figure.ratio)).rjust(ratio)
    if figure.goal:
        line += f"   {figure.goal} {_MARKS[figure.is_met]()}"
    return line


def _spelled_ratio(ratio: float) -> str:
    return f"{ratio:,.0f}{TIMES}" if ratio >= 100 else f"{ratio:.1f}{TIMES}"


_MARKS: dict[bool | None, Callable[[], str]] = {
    True: lambda: painted("✓", "green"),
    False: lambda: painted("✗", "red"),
    None: lambda: painted("?", "dim"),
}


def note(text: str) -> str:
    return painted(f"  {text}", "dim")


def microseconds(seconds: float) -> str:
    figure = seconds * 1e6
    return f"{figure:.2f} µs" if figure < 10 else f"{figure:.1f} µs" if figure < 100 else f"{figure:,.0f} µs"


def milliseconds(seconds: float) -> str:
    figure = seconds * 1e3
    return f"{figure:.2f} ms" if figure < 10 else f"{figure:.1f} ms" if figure < 100 else f"{figure:,.0f} ms"


def megabytes(size: float) -> str:
    return f"{size / 1e6:,.1f} MB"

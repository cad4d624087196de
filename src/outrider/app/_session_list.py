"""Owns how sessions look in a list: in columns at a terminal, with tabs in a pipe.

Does not choose them.
"""

from __future__ import annotations

import os
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final, Literal

from rich.text import Text

from outrider.app._saying import shortened
from outrider.app._terminal import Terminal, one_line

if TYPE_CHECKING:
    from collections.abc import Sequence

    from outrider.transcripts import StoredSession

__all__ = ["columns", "size_of", "table", "title_of"]

_SHORT_ID: Final = 8
"""As much of an id as tells sessions apart; more where it does not."""

_LONGEST_TITLE: Final = 60
_SHORTEST_TITLE: Final = 24
"""So many of its characters are shown before anything else is."""
_BETWEEN: Final = 2
"""So many spaces are between two columns."""
_LONGEST_ASIDE: Final = 24
_STEPS: Final = ((60, "second"), (60, "minute"), (24, "hour"), (14, "day"))


def table(terminal: Terminal, infos: list[StoredSession], *, with_folder: bool) -> list[Text | str]:
    """Lines for people at a terminal; for a pipe, fields with tabs between them."""
    if not terminal.out.is_terminal:
        return [
            "\t".join(
                (
                    one_line(info.id),
                    info.last_modified.isoformat(timespec="seconds"),
                    title_of(info),
                    one_line(info.cwd or ""),
                )
            )
            for info in infos
        ]
    return columns(infos, terminal.out.width, with_folder=with_folder)


def columns(infos: Sequence[StoredSession], width: int, *, with_folder: bool) -> list[Text | str]:
    """A line for each session, none longer than there is room for."""
    length = _telling_length([info.id for info in infos])
    now = datetime.now(UTC)
    ids = [Text(one_line(info.id[:length]), "cyan") for info in infos]
    ages = _Column([Text(_ago(info.last_modified, now), "dim") for info in infos], justify="right")
    titles = _Column([Text(title_of(info), "bold") for info in infos])
    asides = [
        _Column([Text(f"#{one_line(info.tag)}" if info.tag else "", "magenta") for info in infos]),
        _Column([Text(_folder(info) if with_folder else "", "dim") for info in infos]),
        _Column([Text(_branch(info), "dim") for info in infos]),
        _Column([Text(size_of(info.size) if info.size else "", "dim") for info in infos], justify="right"),
    ]
    asides = [column for column in asides if column.width]
    left = width - length - ages.width - 2 * _BETWEEN
    # What tells least goes first where there is no room: the size, then the branch, then the folder.
    while asides and left - sum(column.width + _BETWEEN for column in asides) < min(
        titles.width, _SHORTEST_TITLE
    ):
        asides.pop()
    titles.width = max(min(titles.width, left - sum(column.width + _BETWEEN for column in asides)), 1)
    lines: list[Text | str] = []
    for row, id in enumerate(ids):
        cells = (id, *(column.cell(row) for column in (ages, titles, *asides)))
        line = Text(" " * _BETWEEN).join(cells)
        line.rstrip()
        line.truncate(width, overflow="ellipsis")
        lines.append(line)
    return lines


class _Column:
    """A column of a list, as wide as it has to be."""

    def __init__(self, texts: list[Text], *, justify: Literal["left", "right"] = "left") -> None:
        self._texts = texts
        self._justify: Literal["left", "right"] = justify
        self.width = max((text.cell_len for text in texts), default=0)

    def cell(self, row: int) -> Text:
        text = self._texts[row]
        text.truncate(self.width, overflow="ellipsis")
        text.align(self._justify, self.width)
        return text


def _branch(info: StoredSession) -> str:
    return shortened(one_line(info.git_branch or ""), _LONGEST_ASIDE)


def _folder(info: StoredSession) -> str:
    folder = one_line(info.cwd or "")
    home = os.environ.get("HOME")
    is_below = home and (folder == home or folder.startswith(home.rstrip(os.sep) + os.sep))
    return f"~{folder.removeprefix(home.rstrip(os.sep))}" if home and is_below else folder


def _telling_length(ids: list[str]) -> int:
    length = _SHORT_ID
    while len({id[:length] for id in ids}) < len(ids) and length < 36:
        length += 1
    return length


def title_of(info: StoredSession) -> str:
    return shortened(one_line(info.title), _LONGEST_TITLE) or "(no title)"


def _ago(then: datetime, now: datetime) -> str:
    number = max((now - then).total_seconds(), 0)
    for most, unit in _STEPS:
        if number < most:
            whole = int(number)
            return f"{whole} {unit}{'' if whole == 1 else 's'} ago"
        number /= most if unit != "day" else 1
    return then.astimezone().strftime("%Y-%m-%d")


def size_of(size: int) -> str:
    return f"{size / 1024:,.0f} KB" if size < 1024 * 1024 else f"{size / 1024 / 1024:,.1f} MB"

"""Lays out a turn as it runs: the answer as it is written, and a short line for each tool call.

Does not ask anything (`outrider.app._ask` does), and does not decide what is said (`describe` does).
"""

from __future__ import annotations

import unicodedata
from typing import TYPE_CHECKING, Final

import anyio
from rich.cells import cell_len
from rich.segment import Segment, SegmentLines
from rich.style import Style
from rich.text import Text

from outrider.app._render.describe import Said, said, shortened
from outrider.app._terminal import INDENT, printable
from outrider.wire import AssistantMessage, InitMessage, StreamEvent

if TYPE_CHECKING:
    from outrider.app._terminal import Terminal

__all__ = ["Stream", "split_finished"]

_CALL_LENGTH: Final = 300

_PATIENCE: Final = 1.0
"""How long a question waits for what it is about to be on the screen."""


class Stream:
    """Shows the messages of a turn as they come.

    On a terminal the answer is rendered as Markdown, paragraph by paragraph, and what is under way is drawn
    below. Elsewhere nothing of the answer is printed here: whoever reads a pipe wants the whole of it.
    """

    def __init__(self, terminal: Terminal, *, cwd: str | None = None, is_quiet: bool = False) -> None:
        self.terminal = terminal
        self._cwd = cwd
        self._is_quiet = is_quiet
        self._text = ""
        """What was said since the last thing that is no text."""
        self._printed = 0
        """Lines of it that are printed."""
        self._is_streamed = False
        self._shown_calls: set[str] = set()

    def show(self, message: object) -> None:
        """Show a message."""
        if isinstance(message, StreamEvent):
            if message.parent_tool_use_id is None:
                self._grow(message.text)
            return
        if isinstance(message, AssistantMessage) and message.parent_tool_use_id is None and message.text:
            # The whole of what came in pieces says nothing new.
            if not self._is_streamed and message.error is None:
                self._grow(message.text)
            self.finish()
        # How it begins is said where it is started.
        if not isinstance(message, InitMessage):
            for each in said(message, cwd=self._cwd):
                self._line(each)
        self.remember(message)
        self._wait()

    def remember(self, message: object) -> None:
        """Take note that a message is on the screen."""
        if isinstance(message, AssistantMessage):
            self._shown_calls.update(call.id for call in message.tool_uses)

    async def wait_for(self, tool_use_id: str | None) -> None:
        """Wait until a tool call is on the screen; not for long, because it may be shown to nobody."""
        with anyio.move_on_after(_PATIENCE):
            # Another thread shows messages.
            while tool_use_id and tool_use_id not in self._shown_calls:  # noqa: ASYNC110
                await anyio.sleep(0.01)

    def finish(self) -> None:
        """Print what is left of the answer."""
        text, self._text, self._is_streamed = self._text, "", False
        if text.strip() and self.terminal.is_live:
            self._print(printable(text))
        self._printed = 0

    def _grow(self, text: str) -> None:
        if not text:
            return
        self._is_streamed = True
        self._text += text
        if not self.terminal.is_live:
            return
        # Markdown that is finished cannot look different any more; the rest is drawn for the moment.
        shown = printable(self._text)
        done, rest = split_finished(shown)
        if done.strip():
            self._print(done)
        if rest.strip():
            self.terminal.show(SegmentLines(self._lines(shown), new_lines=True))

    def _lines(self, text: str) -> list[list[Segment]]:
        """The lines that are not printed yet, as they look within the whole."""
        # Not before it is needed: it takes longer to load than all the rest.
        from rich.markdown import Markdown

        console = self.terminal.out
        options = console.options.update_width(max(console.width - len(INDENT), 20))
        drawn = console.render_lines(Markdown(text, hyperlinks=False), options, pad=False)
        rows = [row for line in drawn for row in _fitting(_without_margin(line), options.max_width)]
        return [_indented(row) for row in rows[self._printed :]]

    def _print(self, text: str) -> None:
        lines = self._lines(text)
        if lines:
            self._printed += len(lines)
            self.terminal.print(SegmentLines(lines, new_lines=True), end="")

    def _line(self, each: Said) -> None:
        if self._is_quiet:
            return
        signs = self.terminal.glyphs
        indent = "  " if each.is_aside else ""
        match each.kind:
            case "tool":
                head = Text.assemble(indent, (f"{signs.tool} ", "blue"), (each.name, "bold"), " ")
                self._note(head.append(shortened(each.text, _CALL_LENGTH)))
            case "returns" | "fails":
                style = "red" if each.kind == "fails" else "dim"
                self._note(Text(f"{indent}  {signs.returns} {_head(each.text)}", style=style))
            case "note":
                self._note(Text(f"{indent}{signs.dot} {each.text}", style="dim"))
            case _:
                pass

    def _note(self, line: Text) -> None:
        self.finish()
        if self.terminal.err.is_terminal:
            line.truncate(max(self.terminal.err.width, 20), overflow="ellipsis")
        self.terminal.note(line)

    def _wait(self) -> None:
        if not self._text:
            self.terminal.wait("working")


def _indented(line: list[Segment]) -> list[Segment]:
    return [Segment(INDENT), *line] if line else line


def _fitting(line: list[Segment], width: int) -> list[list[Segment]]:
    """A line as rows that have room. Vowels of Indian words take columns of which Rich does not know, and
    what does not fit would not be seen."""
    if all(segment.text.isascii() for segment in line):
        return [line]
    rows: list[list[Segment]] = [[]]
    used = 0
    for segment in line:
        begun = 0
        for number, sign in enumerate(segment.text):
            size = max(cell_len(sign), unicodedata.category(sign) == "Mc")
            if used + size > width:
                rows[-1].append(segment._replace(text=segment.text[begun:number]))
                rows.append([])
                begun, used = number, 0
            used += size
        rows[-1].append(segment._replace(text=segment.text[begun:]))
    return rows


def _without_margin(line: list[Segment]) -> list[Segment]:
    """A line without the blanks at its end: they would be copied, and at the edge `^C` breaks the line."""
    kept = list(line)
    while kept and not (kept[-1].style or Style()).bgcolor:
        last = kept.pop()
        if text := last.text.rstrip():
            return [*kept, last._replace(text=text)]
    return kept


def _head(text: str) -> str:
    """The first line, and how many follow."""
    lines = text.splitlines()
    more = len(lines) - 1
    return lines[0] + (f"  (and {more} more line{'s' if more > 1 else ''})" if more else "")


def split_finished(text: str) -> tuple[str, str]:
    """Markdown that is written to its end, and the rest: cut after the last empty line outside of code."""
    is_code = False
    cut = position = 0
    for line in text.splitlines(keepends=True):
        position += len(line)
        if line.lstrip().startswith(("```", "~~~")):
            is_code = not is_code
        elif not line.strip() and line.endswith("\n") and not is_code:
            cut = position
    return text[:cut], text[cut:]

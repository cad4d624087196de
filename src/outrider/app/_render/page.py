"""Lays out a conversation with labels: who speaks on the left, the words beside. Also draws it as SVG.

Does not decide what is said: `describe` does.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from rich.console import Console, Group
from rich.terminal_theme import TerminalTheme
from rich.text import Text

from outrider.app._render.describe import Kind, Said

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rich.console import RenderableType

    from outrider.app._terminal import Terminal

__all__ = ["LABEL", "Page", "picture"]


LABEL: Final = 8
"""Columns of the label."""

_MARGIN: Final = 2
_WIDEST: Final = 100
"""Columns that are used at most: longer lines are hard to read."""

_LOOKS: Final[Mapping[Kind, tuple[str, str]]] = {
    "user": ("bold cyan", "bold"),
    "agent": ("bold green", ""),
    "thinks": ("dim", "dim italic"),
    "tool": ("bold blue", ""),
    "returns": ("dim", "dim"),
    "fails": ("red", "red"),
    "asks": ("bold yellow", ""),
    "answer": ("yellow", ""),
    "request": ("dim", "dim"),
    "refused": ("red", "red"),
    "note": ("dim", "dim"),
    "done": ("bold green", ""),
    "failed": ("bold red", "red"),
}
"""How the label and the words of each kind look."""

_MOST_LINES: Final[Mapping[Kind, int]] = {"returns": 3, "fails": 3, "thinks": 3, "note": 2, "answer": 3}
"""What is cut after so many lines."""


class Page:
    """A conversation, line under line. What is printed can be copied to a second console, to keep it."""

    def __init__(self, terminal: Terminal, *, with_times: bool = False, copy: Console | None = None) -> None:
        self.terminal = terminal
        self._with_times = with_times
        self._copy = copy

    def print(self, renderable: RenderableType = "") -> None:
        """Print anything, across the page."""
        self.terminal.print(renderable)
        if self._copy is not None:
            self._copy.print(renderable, highlight=False)

    def say(self, said: Said, *, label: str | None = None, at: float | None = None) -> None:
        """Print what was said."""
        self.terminal.print(self._block(said, label, at, self.terminal.out))
        if self._copy is not None:
            self._copy.print(self._block(said, label, at, self._copy), highlight=False)

    def draw(self, said: Said, *, at: float | None = None) -> None:
        """Show what is being said, until the next thing is printed."""
        self.terminal.show(self._block(said, None, at, self.terminal.out))

    def code(self, source: str) -> None:
        """Print Python."""
        from rich.syntax import Syntax

        drawn = Syntax(
            source, "python", theme="ansi_dark", background_color="default", padding=(0, 2), word_wrap=True
        )
        plain = Text("\n".join(f"  {line}".rstrip() for line in source.splitlines()))
        self.terminal.print(drawn if self.terminal.out.is_terminal else plain)
        if self._copy is not None:
            self._copy.print(drawn, highlight=False)

    def indented(self, text: Text) -> Text:
        """A line that begins where the words do."""
        return Text(" " * self._left()).append_text(text)

    def _left(self) -> int:
        return LABEL + _MARGIN + (8 if self._with_times else 0)

    def _block(self, said: Said, label: str | None, at: float | None, console: Console) -> RenderableType:
        label_style, style = _LOOKS[said.kind]
        words = Text(said.text, style=style)
        if said.name:
            words = Text.assemble((said.name, "bold"), " ", words)
        if said.is_aside:
            label_style, words.style = "dim", "dim"
        lines = self._wrapped(words, said.kind, console)
        stamp = (
            f"{at:6.2f}  " if self._with_times and at is not None else " " * (self._left() - LABEL - _MARGIN)
        )
        head = Text.assemble((stamp, "dim"), (f"{label or said.kind:>{LABEL}}", label_style), " " * _MARGIN)
        made = [head.append_text(lines[0])]
        made += [self.indented(line) for line in lines[1:]]
        for line in made:
            line.rstrip()
        return Group(*made)

    def _wrapped(self, words: Text, kind: Kind, console: Console) -> list[Text]:
        most = _MOST_LINES.get(kind)
        lines: list[Text] = []
        for line in words.split("\n", allow_blank=True):
            if console.is_terminal:
                width = min(console.width, _WIDEST) - self._left()
                lines += line.wrap(console, max(width, 20))
            else:
                lines.append(line)
            if most is not None and len(lines) > most:
                break
        if most is not None and len(lines) > most:
            lines = lines[:most]
            lines[-1].rstrip()
            lines[-1].append(" …", style="dim")
        return lines or [Text()]


# Pictures.

_COLOURS: Final = TerminalTheme(
    (22, 27, 34),
    (201, 209, 217),
    [
        (72, 79, 88),
        (255, 123, 114),
        (86, 211, 100),
        (227, 179, 65),
        (121, 192, 255),
        (210, 168, 255),
        (86, 212, 221),
        (177, 186, 196),
    ],
    [
        (110, 118, 129),
        (255, 161, 152),
        (126, 231, 135),
        (242, 204, 96),
        (165, 214, 255),
        (226, 197, 255),
        (179, 240, 255),
        (240, 246, 252),
    ],
)

# Like rich's own, but with fonts that machines have: a picture in a README loads none.
_FORM: Final = """\
<svg class="rich-terminal" viewBox="0 0 {width} {height}" xmlns="http://www.w3.org/2000/svg">
<style>
.{unique_id}-matrix {{
  font-family: ui-monospace, SFMono-Regular, Menlo, Consolas, "DejaVu Sans Mono", monospace;
  font-size: {char_height}px;
  line-height: {line_height}px;
  font-variant-east-asian: full-width;
  white-space: pre;
}}
.{unique_id}-title {{ font-size: 18px; font-weight: bold; font-family: system-ui, sans-serif; }}
{styles}
</style>
<defs>
<clipPath id="{unique_id}-clip-terminal">
<rect x="0" y="0" width="{terminal_width}" height="{terminal_height}" />
</clipPath>
{lines}
</defs>
{chrome}
<g transform="translate({terminal_x}, {terminal_y})" clip-path="url(#{unique_id}-clip-terminal)">
{backgrounds}
<g class="{unique_id}-matrix" xml:space="preserve">
{matrix}
</g>
</g>
</svg>
"""


def picture(console: Console) -> str:
    """What a recording console has printed, as an SVG."""
    return console.export_svg(
        title="outrider demo",
        theme=_COLOURS,
        code_format=_FORM,
        unique_id="outrider-demo",
        font_aspect_ratio=0.61,
    )

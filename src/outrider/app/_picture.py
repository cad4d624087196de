"""Owns the picture of a terminal: what was printed, as an SVG that stands for itself.

Does not print.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from rich.terminal_theme import TerminalTheme

if TYPE_CHECKING:
    from rich.console import Console

__all__ = ["picture"]

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

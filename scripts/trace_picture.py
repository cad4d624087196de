"""Draw docs/pictures/trace.svg: the spans of a turn as a backend shows them. Their times are made up."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple
from xml.sax.saxutils import escape

from outrider.telemetry import _names as n

PICTURE = Path(__file__).parents[1] / "docs" / "pictures" / "trace.svg"
WIDTH, LEFT, ROW, TOP = 980, 330, 26, 46
SECONDS = 13.0

STYLE = """
text { font: 12px ui-monospace, SFMono-Regular, Menlo, Consolas, monospace; fill: #1f2328; }
.page { fill: #ffffff; } .time { fill: #59636e; } .grid { stroke: #e4e7eb; }
.agent { fill: #7b61c9; } .chat { fill: #2f81c7; } .tool { fill: #2da06f; } .own { fill: #9aa4ae; }
.theirs { fill: #dd9d22; }
@media (prefers-color-scheme: dark) {
  text { fill: #e6edf3; } .page { fill: #0d1117; } .time { fill: #9198a1; } .grid { stroke: #262c36; }
}
"""


class Bar(NamedTuple):
    """A span: how deep it is, its name, its colour, and when it begins and ends."""

    depth: int
    name: str
    kind: str
    begin: float
    end: float


BARS = [
    Bar(0, "POST /tickets", "theirs", 0.0, 13.0),
    Bar(1, n.AGENT_START, "own", 0.1, 0.9),
    Bar(1, f"{n.INVOKE_AGENT} Claude Code", "agent", 0.9, 12.9),
    Bar(2, f"{n.CHAT} claude-opus-5-5", "chat", 0.95, 2.6),
    Bar(2, f"{n.EXECUTE_TOOL} mcp__tools__lookup", "tool", 2.6, 4.1),
    Bar(3, f"{n.PERMISSION} mcp__tools__lookup", "own", 2.65, 3.2),
    Bar(3, "SELECT tickets", "theirs", 3.3, 3.9),
    Bar(2, f"{n.CHAT} claude-opus-5-5", "chat", 4.1, 5.4),
    Bar(2, f"{n.EXECUTE_TOOL} Agent", "tool", 5.4, 10.8),
    Bar(3, f"{n.INVOKE_AGENT} general-purpose", "agent", 5.5, 10.7),
    Bar(4, f"{n.CHAT} claude-sonnet-5-5", "chat", 5.55, 7.0),
    Bar(4, f"{n.EXECUTE_TOOL} Bash", "tool", 7.0, 8.8),
    Bar(4, f"{n.CHAT} claude-sonnet-5-5", "chat", 8.8, 10.65),
    Bar(2, f"{n.CHAT} claude-opus-5-5", "chat", 10.8, 12.85),
]


def picture() -> str:
    """The picture as SVG."""
    height, scale = TOP + ROW * len(BARS) + 12, (WIDTH - LEFT - 70) / SECONDS
    parts = [f'<rect class="page" width="{WIDTH}" height="{height}" rx="6"/>']
    for second in range(0, int(SECONDS) + 1, 2):
        x = LEFT + second * scale
        parts.append(f'<line class="grid" x1="{x:.1f}" x2="{x:.1f}" y1="{TOP - 8}" y2="{height - 10}"/>')
        parts.append(f'<text class="time" x="{x:.1f}" y="{TOP - 16}" text-anchor="middle">{second} s</text>')
    for row, bar in enumerate(BARS):
        y, x, width = TOP + row * ROW, LEFT + bar.begin * scale, (bar.end - bar.begin) * scale
        parts.append(f'<text x="{16 + 14 * bar.depth}" y="{y + 13}">{escape(bar.name)}</text>')
        parts.append(
            f'<rect class="{bar.kind}" x="{x:.1f}" y="{y}" width="{width:.1f}" height="18" rx="3"/>'
            f'<text class="time" x="{x + width + 6:.1f}" y="{y + 13}">{bar.end - bar.begin:.1f} s</text>'
        )
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" role="img">'
    title = "<title>The spans of a turn</title>"
    return "\n".join([head, title, f"<style>{STYLE}</style>", *parts, "</svg>"]) + "\n"


if __name__ == "__main__":
    PICTURE.write_text(picture(), encoding="utf-8")

"""Owns the plot of a report: tasks that ended over the time of the work, and how long they took, as one SVG.

Does not work out the figures. Nothing that a task or an agent wrote is in it.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import accumulate
from typing import TYPE_CHECKING, Final, NamedTuple

from outrider.fleet._report.text import in_words, money

if TYPE_CHECKING:
    from outrider.fleet._report.report import Latency, Report
    from outrider.fleet._task import Outcome

__all__ = ["svg"]

_WIDTH, _HEIGHT = 880, 616
_STATUSES: Final = ("done", "failed", "over_budget", "skipped")
"""As they are piled up, from the bottom."""
_STEPS: Final = (
    *(0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 15, 30),
    *(60, 120, 300, 600, 900, 1800, 3600, 7200, 14400, 28800, 86400, 172800, 432000, 864000),
)
"""Seconds between the lines of an axis of time: what people reckon in."""
_BARS: Final = 32
_TAIL: Final = 2.0
"""A time that is so many times the 99th percentile would leave no room for the others."""

# As classes and not as variables: more programs know them. A page that is dark shows the second set.
_STYLE: Final = """\
text { font: 12px system-ui, -apple-system, "Segoe UI", Roboto, Helvetica, Arial, sans-serif; fill: #59636e; }
.page { fill: #ffffff; }
.head { font-size: 20px; font-weight: 600; fill: #1f2328; }
.name { font-size: 13px; font-weight: 600; fill: #1f2328; }
.grid { stroke: #e4e7eb; }
.axis { stroke: #afb8c1; }
.mark { stroke: #59636e; stroke-dasharray: 3 3; }
.done { fill: #2da06f; }
.failed { fill: #d4493f; }
.over_budget { fill: #dd9d22; }
.skipped { fill: #9aa4ae; }
@media (prefers-color-scheme: dark) {
  text { fill: #9198a1; }
  .page { fill: #0d1117; }
  .head, .name { fill: #f0f6fc; }
  .grid { stroke: #21262d; }
  .axis { stroke: #4d5560; }
  .mark { stroke: #9198a1; }
  .done { fill: #35a877; }
  .failed { fill: #ee6a5f; }
  .over_budget { fill: #e0ac3e; }
  .skipped { fill: #6e7781; }
}"""


class _Panel(NamedTuple):
    """Where something is drawn, and what its edges mean."""

    left: float
    top: float
    width: float
    height: float
    across: float
    """The value at the right edge; 0 is at the left one."""
    up: float
    """The value at the top."""

    def x(self, value: float) -> float:
        return self.left + self.width * value / self.across

    def y(self, value: float) -> float:
        return self.top + self.height * (1 - value / self.up)

    @property
    def right(self) -> float:
        return self.left + self.width

    @property
    def bottom(self) -> float:
        return self.top + self.height


def svg(report: Report, spans: Sequence[tuple[float, float]]) -> str:
    """The plot of a report. `spans`: when it was at work."""
    title = f"{report.sums.done:,} of {report.total:,} tasks done"
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img">',
        f"<title>{title}</title>",
        f"<style>\n{_STYLE}\n</style>",
        f'<rect class="page" width="{_WIDTH}" height="{_HEIGHT}" rx="8"/>',
        _text(40, 46, title, "head"),
        _text(40, 70, " · ".join(_figures(report))),
        _legend(report),
    ]
    ran = [outcome for outcome in report.outcomes if outcome.attempts]
    if ran and report.latency is not None:
        lines += _over_time(ran, report.total, spans)
        lines += _durations(ran, report.latency)
    else:
        lines.append(_text(_WIDTH / 2, _HEIGHT / 2, "No task has been run yet.", anchor="middle"))
    return "\n".join((*lines, "</svg>", ""))


def _figures(report: Report) -> Iterator[str]:
    yield f"{in_words(report.active_seconds)} at work"
    if report.rate_per_minute is not None:
        yield f"{report.rate_per_minute:,.1f} tasks a minute"
    yield money(report.sums.usage.cost_usd)
    yield f"{report.sums.usage.total_tokens:,} tokens"


def _legend(report: Report) -> str:
    """What the colours are: as one text, so that it is whoever draws it that knows its width."""
    shown = [
        f'<tspan class="{status}">■</tspan> {status.replace("_", " ")} {count:,}'
        for status in _STATUSES
        if (count := getattr(report.sums, status))
    ]
    return _text(_WIDTH - 40, 46, "&#160;&#160;&#160;&#160;".join(shown), anchor="end")


def _over_time(
    ran: Sequence[Outcome[object]], total: int, spans: Sequence[tuple[float, float]]
) -> Iterator[str]:
    work = _Work(spans)
    whole = max(work.seconds, 0.001)
    # A little wider than the work was long: the last task is to be seen, too.
    panel = _Panel(72, 128, _WIDTH - 112, 180, whole * 1.02, total)
    yield _text(40, 108, "Tasks that have ended", "name")
    yield from _counts(panel, total)
    if len(ran) < total:
        yield _line(panel.left, panel.top, panel.right, panel.top, "mark")
        yield _text(panel.right, panel.top - 6, f"all {total:,}", anchor="end")
    yield from _times(panel, _step(whole / 8), whole)
    below: list[float] = []
    for status in _STATUSES:
        if times := [work.at(each.ended_at) for each in ran if each.status == status]:
            above = sorted((*below, *times))
            yield _area(panel, status, above, below)
            below = above
    yield _line(panel.left, panel.bottom, panel.right, panel.bottom, "axis")


def _area(panel: _Panel, status: str, upper: Sequence[float], lower: Sequence[float]) -> str:
    """What lies between two counts that grow."""
    points = [*_stairs(panel, upper), *reversed(_stairs(panel, lower))]
    path = "L".join(f"{x:g} {y:.1f}" for x, y in points)
    return f'<path class="{status}" d="M{path}Z"/>'


def _stairs(panel: _Panel, times: Sequence[float]) -> list[tuple[int, float]]:
    """The corners of a count that grows by one at each of these times; a pixel has one of them at most."""
    heights: dict[int, int] = {}
    for count, time in enumerate(times, 1):
        heights[round(panel.x(time))] = count
    points, before = [(round(panel.left), panel.bottom)], 0
    for x, count in heights.items():
        points += [(x, panel.y(before)), (x, panel.y(count))]
        before = count
    return [*points, (round(panel.right), panel.y(before))]


def _durations(ran: Sequence[Outcome[object]], latency: Latency) -> Iterator[str]:
    most = latency.p99 * 1.05 if latency.max > latency.p99 * _TAIL else latency.max
    step = _step(max(most, 0.001) / _BARS)
    bars = int(most / step) + 1
    limit = bars * step
    piles: list[Counter[str]] = [Counter() for _ in range(bars)]
    over = 0
    for outcome in ran:
        if outcome.duration > limit:
            over += 1
        else:
            piles[min(int(outcome.duration / step), bars - 1)][outcome.status] += 1
    highest = max(pile.total() for pile in piles)
    # Above the bars, there is a row for each percentile.
    panel = _Panel(72, 430, _WIDTH - 112, 138, limit, highest)
    yield _text(40, 364, "How long they took", "name")
    if over:
        longest = f"{over:,} took longer, up to {in_words(latency.max)}"
        yield _text(panel.right, 364, longest, anchor="end")
    yield from _counts(panel, highest)
    yield from _times(panel, _step(limit / 8), limit)
    for number, pile in enumerate(piles):
        left, right = panel.x(number * step), panel.x((number + 1) * step)
        heights = list(accumulate((pile[status] for status in _STATUSES), initial=0))
        for status, low, high in zip(_STATUSES, heights, heights[1:], strict=False):
            if high > low:
                yield (
                    f'<rect class="{status}" x="{left + 0.75:.1f}" y="{panel.y(high):.1f}" '
                    f'width="{right - left - 1.5:.1f}" height="{panel.y(low) - panel.y(high):.1f}"/>'
                )
    yield _line(panel.left, panel.bottom, panel.right, panel.bottom, "axis")
    before = None
    for row, (name, value) in enumerate(
        (("50 %", latency.p50), ("90 %", latency.p90), ("99 %", latency.p99))
    ):
        x, y = round(panel.x(min(value, limit))), 388 + 15 * row
        # Dashes upon dashes are a line.
        if x != before:
            yield _line(x, y - 9, x, panel.bottom, "mark")
        before = x
        side, anchor = (-6, "end") if x > panel.right - 140 else (6, "")
        yield _text(x + side, y, f"{name} in {in_words(value)}", anchor=anchor)


# Axes.


def _counts(panel: _Panel, most: int) -> Iterator[str]:
    step = max(most // 4, 1)
    size = 10 ** (len(str(step)) - 1)
    step = max(step // size * size, 1)
    for count in range(0, most + 1, step):
        y = panel.y(count)
        if count:
            yield _line(panel.left, y, panel.right, y, "grid")
        yield _text(panel.left - 8, y + 4, f"{count:,}", anchor="end")


def _times(panel: _Panel, step: float, most: float) -> Iterator[str]:
    size, unit = (1, "s") if step < 60 else (60, "min") if step < 3600 else (3600, "h")
    for number in range(int(most / step + 1e-9) + 1):
        x = panel.x(number * step)
        yield _line(x, panel.bottom, x, panel.bottom + 4, "axis")
        label = f"{number * step / size:g} {unit}" if number else "0"
        yield _text(x, panel.bottom + 19, label, anchor="middle")


def _step(least: float) -> float:
    """What lies between two marks of time: the first that is enough."""
    return _STEPS[min(bisect_left(_STEPS, least), len(_STEPS) - 1)]


class _Work:
    """The clock that stands still while no task is at work."""

    def __init__(self, spans: Sequence[tuple[float, float]]) -> None:
        self._spans = spans
        self._starts = [start for start, _ in spans]
        self._before = list(accumulate((end - start for start, end in spans), initial=0.0))

    @property
    def seconds(self) -> float:
        return self._before[-1]

    def at(self, moment: float) -> float:
        """How many seconds of work had been done by then."""
        number = bisect_right(self._starts, moment) - 1
        if number < 0:
            return 0.0
        start, end = self._spans[number]
        return self._before[number] + min(moment, end) - start


# Shapes.


def _text(x: float, y: float, text: str, kind: str = "", *, anchor: str = "") -> str:
    extra = (f' class="{kind}"' if kind else "") + (f' text-anchor="{anchor}"' if anchor else "")
    return f'<text x="{x:.0f}" y="{y:.0f}"{extra}>{text}</text>'


def _line(x1: float, y1: float, x2: float, y2: float, kind: str) -> str:
    return f'<line class="{kind}" x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}"/>'

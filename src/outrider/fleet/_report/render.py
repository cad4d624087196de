"""Writes a report: Markdown for readers, CSV for spreadsheets, JSON for programs, and a plot as SVG.

`report` works out the figures. Nothing that a task or an agent wrote is in the plot.
"""

from __future__ import annotations

import csv as tables
import io
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Container, Iterable, Iterator, Sequence
from datetime import UTC, datetime
from itertools import accumulate
from typing import TYPE_CHECKING, Final, NamedTuple

import msgspec

from outrider._display import escaped_json, one_line, plain
from outrider.fleet._task import Outcome
from outrider.redaction import mask

if TYPE_CHECKING:
    from outrider.fleet._report.report import FailureKind, Latency, Part, Report


_LONGEST_ERROR: Final = 160
_FORMULAS: Final = ("=", "+", "-", "@", "\t", "\r", "\uff1d", "\uff0b", "\uff0d", "\uff20")
"""What a formula begins with, for some programs in their wide forms too."""
_BLANKS: Final = " \n\N{NO-BREAK SPACE}"
"""What some programs leave out before it."""


# Markdown.


def markdown(report: Report) -> str:
    """A report as a page."""
    return "\n".join(_page(report))


def _page(report: Report) -> Iterator[str]:
    yield f"# {report.sums.done:,} of {report.total:,} tasks done\n"
    yield from _table(("", ""), _figures(report))
    if report.latency is not None:
        times = report.latency
        yield "\n## How long tasks took\n"
        figures = [in_words(each) for each in (times.p50, times.p90, times.p99, times.max)]
        yield from _table(("half", "90 %", "99 %", "all"), [figures], numbers=range(4))
        yield "\nThe slowest:\n"
        yield from _table(
            ("task", "time", "tries", "cost", "status"),
            map(_slow, report.slowest),
            numbers=range(1, 4),
        )
    if report.failures:
        yield "\n## What failed\n"
        yield from _table(("error", "tasks", "for example", "what it says"), map(_failure, report.failures))
    for name, parts in report.by_tag.items():
        yield f"\n## By {_text(name)}\n"
        yield from _table(
            (_text(name), "done", "failed", "over budget", "cost", "tokens"),
            [(_text(value), *_part(part)) for value, part in parts.items()],
            numbers=range(1, 6),
        )
    yield ""


def _figures(report: Report) -> Iterator[tuple[str, str]]:
    sums, usage = report.sums, report.sums.usage
    yield "done", f"{sums.done:,}"
    for name, count in (
        ("failed", sums.failed),
        ("over budget", sums.over_budget),
        ("waiting", sums.waiting),
        ("skipped", sums.skipped),
        ("not ended", report.pending),
    ):
        if count:
            yield name, f"{count:,}"
    yield "cost", money(usage.cost_usd)
    yield "tokens", f"{usage.total_tokens:,}"
    yield "tries", f"{report.attempts:,}"
    yield "time at work", in_words(report.active_seconds)
    if report.rate_per_minute is not None:
        yield "tasks a minute", f"{report.rate_per_minute:,.1f}"
    for name, moment in (("began", report.began_at), ("ended", report.ended_at)):
        if moment is not None:
            yield name, _moment(moment).strftime("%Y-%m-%d %H:%M:%S UTC")


def _failure(failure: FailureKind) -> tuple[str, ...]:
    # The lines below the first are details.
    error = mask(failure.error).strip().partition("\n")[0]
    if len(error) > _LONGEST_ERROR:
        error = f"{error[: _LONGEST_ERROR - 1]}…"
    return _code(failure.kind), f"{failure.count:,}", ", ".join(map(_code, failure.ids)), _text(error)


def _slow(outcome: Outcome[object]) -> tuple[str, ...]:
    cost, status = money(outcome.cost_usd), outcome.status.replace("_", " ")
    return _code(outcome.id), in_words(outcome.duration), str(outcome.attempts), cost, status


def _part(part: Part) -> tuple[str, ...]:
    counts = [f"{each:,}" for each in (part.done, part.failed, part.over_budget)]
    return *counts, money(part.usage.cost_usd), f"{part.usage.total_tokens:,}"


def _table(
    heads: Sequence[str], rows: Iterable[Sequence[str]], *, numbers: Container[int] = (1,)
) -> Iterator[str]:
    """A table that is one in the source, too; `numbers`: the columns that stand at the right."""
    cells = [tuple(heads), *(tuple(row) for row in rows)]
    widths = [max(3, *(len(row[column]) for row in cells)) for column in range(len(heads))]
    rules = ["-" * (width - 1) + (":" if column in numbers else "-") for column, width in enumerate(widths)]
    for number, row in enumerate(cells):
        yield _row(
            cell.rjust(width) if column in numbers else cell.ljust(width)
            for column, (cell, width) in enumerate(zip(row, widths, strict=True))
        )
        if number == 0:
            yield _row(rules)


def _row(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _text(text: str) -> str:
    """Foreign text for a cell of a table: neither markup nor a further cell."""
    text = one_line(text)
    for sign in "\\`*_[]<>|#":
        text = text.replace(sign, f"\\{sign}")
    return text


def _code(text: str) -> str:
    shown = one_line(text).replace("`", "'").replace("|", "\\|")
    return f"`{shown or ' '}`"


# Tables and values.


def csv(report: Report) -> str:
    """A line for each outcome, and one for the names of the columns; a column for each tag."""
    written = io.StringIO()
    # Otherwise a carriage return alone would stand without quotes.
    writer = tables.writer(written, lineterminator="\n", quoting=tables.QUOTE_NONNUMERIC)
    tags = list(report.by_tag)
    columns = _fields(Outcome(id=""))
    writer.writerow((*columns, *(plain(f"tag:{name}") for name in tags)))
    for outcome in report.outcomes:
        cells = (*_fields(outcome).values(), *(outcome.tags.get(name) for name in tags))
        writer.writerow(map(_no_formula, cells))
    return written.getvalue()


def _no_formula(cell: object) -> object:
    """A cell that a spreadsheet shows and does not compute: a quote before it makes it text. Characters that
    cannot be shown are replaced, because CSV cannot escape them."""
    if not isinstance(cell, str):
        return cell
    return f"'{plain(cell)}" if cell.lstrip(_BLANKS).startswith(_FORMULAS) else plain(cell)


def json(report: Report) -> str:
    """An object."""
    value = {
        "total": report.total,
        "pending": report.pending,
        **_sums(report.sums),
        "attempts": report.attempts,
        "began_at": _iso(report.began_at),
        "ended_at": _iso(report.ended_at),
        "active_seconds": report.active_seconds,
        "rate_per_minute": report.rate_per_minute,
        "latency": report.latency,
        "slowest": [outcome.id for outcome in report.slowest],
        "failures": report.failures,
        "by_tag": {
            name: {value: _sums(part) for value, part in parts.items()}
            for name, parts in report.by_tag.items()
        },
        "outcomes": [outcome.to_json() for outcome in report.outcomes],
    }
    return escaped_json(msgspec.json.format(msgspec.json.encode(value)).decode()) + "\n"


def _sums(part: Part) -> dict[str, object]:
    return {
        **{name: getattr(part, name) for name in ("done", "failed", "over_budget", "skipped", "waiting")},
        **_usage(part),
    }


def _usage(used: Part | Outcome[object]) -> dict[str, object]:
    names = ("cost_usd", "input_tokens", "output_tokens", "cache_read_tokens", "cache_creation_tokens")
    return {name: getattr(used.usage, name) for name in names}


def _fields(outcome: Outcome[object]) -> dict[str, object]:
    output = outcome.raw_output
    return {
        "number": outcome.number,
        "id": outcome.id,
        "status": outcome.status,
        "duration": round(outcome.duration, 3),
        "attempts": outcome.attempts,
        **_usage(outcome),
        "started_at": _iso(outcome.started_at),
        "ended_at": _iso(outcome.ended_at),
        "session_id": outcome.session_id,
        "workspace": outcome.workspace,
        "error_kind": outcome.error_kind,
        "error": outcome.error,
        "text": outcome.text,
        "output": None if output is None else msgspec.json.encode(output).decode(),
    }


def _iso(moment: float | None) -> str | None:
    return None if moment is None else _moment(moment).isoformat(timespec="milliseconds")


def _moment(seconds: float) -> datetime:
    return datetime.fromtimestamp(seconds, UTC)


# Words.


def in_words(seconds: float) -> str:
    """A time: `0.4 s`, `2 min 5 s`, `3 h 20 min`."""
    if seconds < 59.95:
        return f"{seconds:.1f} s"
    whole = round(seconds)
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s"
    minutes = round(seconds / 60)
    return f"{minutes // 60:,} h {minutes % 60} min"


def money(usd: float) -> str:
    """An amount, with as many digits as say something."""
    return f"${usd:,.2f}" if usd >= 0.995 or usd == 0 else f"${usd:.4f}"


_WIDTH, _HEIGHT = 880, 616
_LEFT, _RIGHT = 72, _WIDTH - 40
_STATUSES: Final = ("done", "failed", "over_budget", "skipped", "waiting")
"""As they are piled up, from the bottom."""
_STEPS: Final = (
    *(0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 15, 30),
    *(60, 120, 300, 600, 900, 1800, 3600, 7200, 14400, 28800, 86400, 172800, 432000, 864000),
)
"""Seconds between the marks of an axis of time."""
_BARS: Final = 32
_TAIL: Final = 2.0
"""A time that is this many times the 99th percentile would leave no room for the others."""

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
.waiting { fill: #4a7fd4; }
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
  .waiting { fill: #6f9ce8; }
  .skipped { fill: #6e7781; }
}"""


class _Panel(NamedTuple):
    """Where something is drawn, and what its edges mean."""

    top: float
    bottom: float
    across: float
    """The value at the right edge; 0 is at the left one."""
    up: float
    """The value at the top."""

    def x(self, value: float) -> float:
        return _LEFT + (_RIGHT - _LEFT) * value / self.across

    def y(self, value: float) -> float:
        return self.bottom - (self.bottom - self.top) * value / self.up


def svg(report: Report, spans: Sequence[tuple[float, float]]) -> str:
    """The plot of a report. `spans`: when it was at work."""
    title = f"{report.sums.done:,} of {report.total:,} tasks done"
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img">',
        f"<title>{title}</title>",
        f"<style>\n{_STYLE}\n</style>",
        f'<rect class="page" width="{_WIDTH}" height="{_HEIGHT}" rx="8"/>',
        _label(40, 46, title, "head"),
        _label(40, 70, " · ".join(_headline(report))),
        _legend(report),
    ]
    ran = [outcome for outcome in report.outcomes if outcome.attempts]
    if ran and report.latency is not None:
        lines += _over_time(ran, report.total, spans)
        lines += _durations(ran, report.latency)
    else:
        lines.append(_label(_WIDTH / 2, _HEIGHT / 2, "No task has been run yet.", anchor="middle"))
    return "\n".join((*lines, "</svg>", ""))


def _headline(report: Report) -> Iterator[str]:
    yield f"{in_words(report.active_seconds)} at work"
    if report.rate_per_minute is not None:
        yield f"{report.rate_per_minute:,.1f} tasks a minute"
    yield money(report.sums.usage.cost_usd)
    yield f"{report.sums.usage.total_tokens:,} tokens"


def _legend(report: Report) -> str:
    """The legend of colours, as one text: only the renderer knows its width."""
    shown = [
        f'<tspan class="{status}">■</tspan> {status.replace("_", " ")} {count:,}'
        for status in _STATUSES
        if (count := getattr(report.sums, status))
    ]
    return _label(_WIDTH - 40, 46, "&#160;&#160;&#160;&#160;".join(shown), anchor="end")


def _over_time(
    ran: Sequence[Outcome[object]], total: int, spans: Sequence[tuple[float, float]]
) -> Iterator[str]:
    work = _Work(spans)
    whole = max(work.seconds, 0.001)
    # A little wider than the work was long: the last task is to be seen, too.
    panel = _Panel(128, 308, whole * 1.02, total)
    yield _label(40, 108, "Tasks that have ended", "name")
    yield from _counts(panel, total)
    if len(ran) < total:
        yield _line(_LEFT, panel.top, _RIGHT, panel.top, "mark")
        yield _label(_RIGHT, panel.top - 6, f"all {total:,}", anchor="end")
    yield from _times(panel, _step(whole / 8), whole)
    below: list[float] = []
    for status in _STATUSES:
        if times := [work.at(each.ended_at) for each in ran if each.status == status]:
            above = sorted((*below, *times))
            yield _area(panel, status, above, below)
            below = above
    yield _line(_LEFT, panel.bottom, _RIGHT, panel.bottom, "axis")


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
    points, before = [(_LEFT, panel.bottom)], 0
    for x, count in heights.items():
        points += [(x, panel.y(before)), (x, panel.y(count))]
        before = count
    return [*points, (_RIGHT, panel.y(before))]


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
    panel = _Panel(430, 568, limit, highest)
    yield _label(40, 364, "How long they took", "name")
    if over:
        longest = f"{over:,} took longer, up to {in_words(latency.max)}"
        yield _label(_RIGHT, 364, longest, anchor="end")
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
    yield _line(_LEFT, panel.bottom, _RIGHT, panel.bottom, "axis")
    before = None
    for row, (name, value) in enumerate(
        (("50 %", latency.p50), ("90 %", latency.p90), ("99 %", latency.p99))
    ):
        x, y = round(panel.x(min(value, limit))), 388 + 15 * row
        # Dashes upon dashes are a line.
        if x != before:
            yield _line(x, y - 9, x, panel.bottom, "mark")
        before = x
        side, anchor = (-6, "end") if x > _RIGHT - 140 else (6, "")
        yield _label(x + side, y, f"{name} in {in_words(value)}", anchor=anchor)


# Axes.


def _counts(panel: _Panel, most: int) -> Iterator[str]:
    step = max(most // 4, 1)
    size = 10 ** (len(str(step)) - 1)
    step = max(step // size * size, 1)
    for count in range(0, most + 1, step):
        y = panel.y(count)
        if count:
            yield _line(_LEFT, y, _RIGHT, y, "grid")
        yield _label(_LEFT - 8, y + 4, f"{count:,}", anchor="end")


def _times(panel: _Panel, step: float, most: float) -> Iterator[str]:
    size, unit = (1, "s") if step < 60 else (60, "min") if step < 3600 else (3600, "h")
    for number in range(int(most / step + 1e-9) + 1):
        x = panel.x(number * step)
        yield _line(x, panel.bottom, x, panel.bottom + 4, "axis")
        label = f"{number * step / size:g} {unit}" if number else "0"
        yield _label(x, panel.bottom + 19, label, anchor="middle")


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


def _label(x: float, y: float, text: str, kind: str = "", *, anchor: str = "") -> str:
    extra = (f' class="{kind}"' if kind else "") + (f' text-anchor="{anchor}"' if anchor else "")
    return f'<text x="{x:.0f}" y="{y:.0f}"{extra}>{text}</text>'


def _line(x1: float, y1: float, x2: float, y2: float, kind: str) -> str:
    return f'<line class="{kind}" x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}"/>'

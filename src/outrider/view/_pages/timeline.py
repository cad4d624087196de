"""Draws what ran when, as SVG: a lane for the model and for each kind of tool, and a link to each of them."""

from __future__ import annotations

from bisect import bisect_right
from math import ceil
from typing import TYPE_CHECKING, Final

from outrider.view._pages.layout import button
from outrider.view._pages.markup import Markup, amount, h, lasting
from outrider.view._sources.outline import LANES

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from outrider.view._sources.outline import Outline

_WIDTH, _LEFT, _RIGHT, _LANE, _CONTEXT = 1000, 56, 8, 15, 34
_SHORTEST: Final = 0.5
"""Seconds that can be looked at by themselves."""
_PAUSE: Final = 120.0
"""Seconds. When nothing runs for longer, the clock of the timeline stands still."""
_SHORT_PAUSE: Final = 4.0
"""What such a pause takes on it."""
_STEPS: Final = (1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14400, 28800, 86400, 432000)


class _Clock:
    """The time at work: pauses are cut short."""

    def __init__(self, spans: list[tuple[float, float]]) -> None:
        self._starts: list[float] = []
        self._shifts: list[float] = []
        shift, end = spans[0][0], spans[0][0]
        for start, stop in sorted(spans):
            if start - end > _PAUSE:
                shift += start - end - _SHORT_PAUSE
            if not self._starts or start - end > _PAUSE:
                self._starts.append(start)
                self._shifts.append(shift)
            end = max(end, stop)
        self.seconds = max(end - shift, 0.001)

    def at(self, time: float) -> float:
        place = max(bisect_right(self._starts, time) - 1, 0)
        end = self.seconds
        if place + 1 < len(self._starts):
            # In a pause: it is all at one place.
            end = self._starts[place + 1] - self._shifts[place + 1]
        return min(max(time - self._shifts[place], 0.0), end)


def timeline(outline: Outline, link: str, first: float = 0.0, last: float | None = None) -> Markup:
    """The plot; `link` is the address of an entry, up to its offset. Empty if nothing has run. Of a part of
    it, from second to second at work, if that is asked for."""
    spans = list(zip(outline.starts, outline.ends, strict=True))
    if not spans:
        return Markup("")
    clock = _Clock(spans)
    last = clock.seconds if last is None else min(last, clock.seconds)
    first = max(min(first, last - _SHORTEST), 0.0)
    lanes = [number for number in range(len(LANES)) if any(each & 127 == number for each in outline.lanes)]
    top = _CONTEXT if outline.given else 0
    height = top + _LANE * len(lanes) + 22
    scale = (_WIDTH - _LEFT - _RIGHT) / max(last - first, _SHORTEST)

    def x(time: float) -> float:
        return _LEFT + (clock.at(time) - first) * scale

    def plotted() -> Iterator[Markup]:
        if top:
            yield _context(outline, x)
        for row, lane in enumerate(lanes):
            y = top + row * _LANE
            yield h("line.grid", x1=0, x2=_WIDTH, y1=y + _LANE - 0.5, y2=y + _LANE - 0.5)
            yield from _bars(outline, lane, y, x, link)
        for time, offset in outline.marks:
            place = f"{x(time):.1f}"
            mark = h("line.compacted", x1=place, x2=place, y1=0, y2=height - 20)
            yield h("a", mark, href=f"{link}{offset}#e{offset}", aria_label="The conversation was compacted")
        for turn in outline.turns[-400:]:
            if turn.began is not None:
                yield h("circle.asked", cx=f"{x(turn.began):.1f}", cy=height - 19, r=2)

    def labels() -> Iterator[Markup]:
        names = [("context", top - 6)] if top else []
        names += [(LANES[lane], top + row * _LANE + 11) for row, lane in enumerate(lanes)]
        yield from (h("text.lane", name, x=_LEFT - 8, y=y, text_anchor="end") for name, y in names)
        if top:
            yield h("text.tick", amount(max(outline.given)), x=_WIDTH - 10, y=10, text_anchor="end")
        yield from _axis(first, last, scale, height)

    width = _WIDTH - _LEFT - _RIGHT
    plot = h(
        "svg", list(plotted()), x=_LEFT, width=width, height=height, viewBox=f"{_LEFT} 0 {width} {height}"
    )
    drawn = h(
        "svg.timeline",
        plot,
        list(labels()),
        viewBox=f"0 0 {_WIDTH} {height}",
        # Not a picture: there are links in it.
        role="group",
        aria_label=f"What ran when: {lasting(clock.seconds)} at work",
        data_first=f"{first:.2f}",
        data_last=f"{last:.2f}",
    )
    is_part = first > 0 or last < clock.seconds
    return Markup(drawn + (button("Show all", id="unzoom") if is_part else ""))


def _bars(outline: Outline, lane: int, y: int, x: Callable[[float], float], link: str) -> Iterator[Markup]:
    """The bars of a lane; those that would touch are one."""
    left = right = -1.0
    first, count, failed, took, tool = 0, 0, False, 0.0, 0
    names = list(outline.names)

    def bar() -> Markup:
        kind = f"{LANES[lane]} failed" if failed else LANES[lane]
        name = names[tool] or LANES[lane]
        says = f"{name}, {lasting(took)}" if count == 1 else f"{LANES[lane]}: {count:,}"
        width = f"{max(right - left, 1.6):.1f}"
        shape = h("rect", x=f"{left:.1f}", y=y + 2, width=width, height=_LANE - 5, rx=2, class_=kind)
        link_to = f"{link}{first}#e{first}"
        return h("a", shape, href=link_to, aria_label=f"{says}, failed" if failed else says, data_at=first)

    for start, end, offset, kind, name in zip(
        outline.starts, outline.ends, outline.offsets, outline.lanes, outline.tools, strict=True
    ):
        if kind & 127 != lane:
            continue
        begins, ends = x(start), x(end)
        if ends < _LEFT or begins > _WIDTH:
            continue
        is_failed = bool(kind & 128)
        if count and begins - right < 0.8 and is_failed == failed:
            right, count = max(right, ends, left + 1.6), count + 1
            continue
        if count:
            yield bar()
        left, right, first, count, failed = begins, max(ends, begins + 1.6), offset, 1, is_failed
        took, tool = end - start, name
    if count:
        yield bar()


def _context(outline: Outline, x: Callable[[float], float]) -> Markup:
    """How full the context was: what the model was given, at most once for each point."""
    most, base = max(outline.given), _CONTEXT - 3
    peaks: dict[int, int] = {}
    for time, given in zip(outline.given_at, outline.given, strict=True):
        place = min(max(round(x(time)), 0), _WIDTH)
        peaks[place] = max(peaks.get(place, 0), given)
    steps = "".join(
        f"H{place}V{base - given / most * (base - 4):.1f}" for place, given in sorted(peaks.items())
    )
    path = f"M{min(peaks)} {base}{steps}H{_WIDTH}V{base}Z"
    return h("path.context", h("title", f"Context, at most {most:,} tokens"), d=path)


def _axis(first: float, last: float, scale: float, height: int) -> Iterator[Markup]:
    step = next((each for each in _STEPS if each * scale >= 90), _STEPS[-1])
    for number in range(ceil(first / step), int(last / step) + 1):
        place = _LEFT + (number * step - first) * scale
        label = (
            (lasting(number * step) if number else "0 s")
            .replace(".0 s", " s")
            .replace(" 0 s", "")
            .replace(" 0 m", "")
        )
        anchor = "start" if place < _LEFT + 10 else "end" if place > _WIDTH - 30 else "middle"
        yield h("text.tick", label, x=f"{place:.0f}", y=height - 4, text_anchor=anchor)

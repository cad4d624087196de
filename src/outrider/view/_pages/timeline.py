"""Draws what ran when, as SVG: a lane for the model and for each kind of tool, and a link to each of them."""

from __future__ import annotations

from bisect import bisect_right
from typing import TYPE_CHECKING, Final

from outrider.view._pages.markup import Markup, amount, h, lasting
from outrider.view._sources.outline import LANES

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from outrider.view._sources.outline import Outline

_WIDTH, _LEFT, _LANE, _CONTEXT = 1000, 56, 15, 34
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
        self.breaks: list[float] = []
        shift, end = spans[0][0], spans[0][0]
        for start, stop in sorted(spans):
            if start - end > _PAUSE:
                shift += start - end - _SHORT_PAUSE
                self.breaks.append(end + _SHORT_PAUSE / 2)
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


def timeline(outline: Outline, link: str) -> Markup:
    """The plot; `link` is the address of an entry, up to its offset. Empty if nothing has run."""
    spans = list(zip(outline.starts, outline.ends, strict=True))
    if not spans:
        return Markup("")
    clock = _Clock(spans)
    lanes = [number for number in range(len(LANES)) if any(each & 127 == number for each in outline.lanes)]
    top = _CONTEXT if outline.given else 0
    height = top + _LANE * len(lanes) + 22
    scale = (_WIDTH - _LEFT - 8) / clock.seconds

    def x(time: float) -> float:
        return _LEFT + clock.at(time) * scale

    def parts() -> Iterator[Markup]:
        if top:
            yield from _context(outline, x)
        for row, lane in enumerate(lanes):
            y = top + row * _LANE
            yield h("text", LANES[lane], x=_LEFT - 8, y=y + 11, class_="lane", text_anchor="end")
            yield h("line", x1=_LEFT, x2=_WIDTH - 8, y1=y + _LANE - 0.5, y2=y + _LANE - 0.5, class_="grid")
            yield from _bars(outline, lane, y, x, link)
        for time, offset in outline.marks:
            mark = h(
                "line", x1=f"{x(time):.1f}", x2=f"{x(time):.1f}", y1=0, y2=height - 20, class_="compacted"
            )
            yield h("a", h("title", "The conversation was compacted"), mark, href=f"{link}{offset}#e{offset}")
        for turn in outline.turns[-400:]:
            if turn.began is not None:
                yield h("circle", cx=f"{x(turn.began):.1f}", cy=height - 19, r=2, class_="asked")
        yield from _axis(clock, scale, height)

    return h(
        "svg",
        list(parts()),
        viewBox=f"0 0 {_WIDTH} {height}",
        # Not a picture: there are links in it.
        role="group",
        aria_label=f"What ran when: {lasting(clock.seconds)} at work",
        class_="timeline",
    )


def _bars(outline: Outline, lane: int, y: int, x: Callable[[float], float], link: str) -> Iterator[Markup]:
    """The bars of a lane; those that would touch are one."""
    left = right = -1.0
    first, count, failed, took = 0, 0, False, 0.0

    def bar() -> Markup:
        kind = f"{LANES[lane]} failed" if failed else LANES[lane]
        says = f"{LANES[lane]}, {lasting(took)}" if count == 1 else f"{LANES[lane]}: {count:,}"
        shape = h(
            "rect",
            x=f"{left:.1f}",
            y=y + 2,
            width=f"{max(right - left, 1.6):.1f}",
            height=_LANE - 5,
            rx=2,
            class_=kind,
        )
        return h("a", h("title", says), shape, href=f"{link}{first}#e{first}")

    for start, end, offset, kind in zip(
        outline.starts, outline.ends, outline.offsets, outline.lanes, strict=True
    ):
        if kind & 127 != lane:
            continue
        begins, ends = x(start), x(end)
        is_failed = bool(kind & 128)
        if count and begins - right < 0.8 and is_failed == failed:
            right, count = max(right, ends, left + 1.6), count + 1
            continue
        if count:
            yield bar()
        left, right, first, count, failed = begins, max(ends, begins + 1.6), offset, 1, is_failed
        took = end - start
    if count:
        yield bar()


def _context(outline: Outline, x: Callable[[float], float]) -> Iterator[Markup]:
    """How full the context was: what the model was given, at most once for each point."""
    most, base = max(outline.given), _CONTEXT - 3
    peaks: dict[int, int] = {}
    for time, given in zip(outline.given_at, outline.given, strict=True):
        place = round(x(time))
        peaks[place] = max(peaks.get(place, 0), given)
    steps = "".join(
        f"H{place}V{base - given / most * (base - 4):.1f}" for place, given in sorted(peaks.items())
    )
    says = f"Context, at most {most:,} tokens"
    yield h("text", "context", x=_LEFT - 8, y=base - 3, class_="lane", text_anchor="end")
    path = f"M{min(peaks)} {base}{steps}H{_WIDTH - 8}V{base}Z"
    yield h("path", h("title", says), d=path, class_="context")
    yield h("text", amount(most), x=_WIDTH - 10, y=10, class_="tick", text_anchor="end")


def _axis(clock: _Clock, scale: float, height: int) -> Iterator[Markup]:
    step = next((each for each in _STEPS if each * scale >= 90), _STEPS[-1])
    for number in range(int(clock.seconds / step) + 1):
        place = _LEFT + number * step * scale
        label = lasting(number * step).replace(".0 s", " s").replace(" 0 s", "").replace(" 0 m", "")
        anchor = "start" if number == 0 else "end" if place > _WIDTH - 30 else "middle"
        yield h("text", label, x=f"{place:.0f}", y=height - 4, class_="tick", text_anchor=anchor)

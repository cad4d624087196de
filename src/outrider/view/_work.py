"""The pages of a batch and of a pool: how they stand, renewed as that changes."""

from __future__ import annotations

import time
from collections import deque
from typing import TYPE_CHECKING, Final
from urllib.parse import urlencode

from starlette.responses import Response

from outrider._threads import run_sync
from outrider.redaction import mask
from outrider.view._live import renewed, root_of
from outrider.view._pages.layout import figures, table
from outrider.view._pages.markup import Child, Markup, amount, h, lasting, moment, money, size
from outrider.view._sources.batch import chosen

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from starlette.requests import Request

    from outrider.fleet import Outcome, Pool, PoolStats, Report
    from outrider.view._live import Answer, Clients, Tabs
    from outrider.view._sources.batch import Batch, BatchState

_SECONDS: Final = 1.0
_PAGE: Final = 100
_REMEMBERED: Final = 300
_STATUSES: Final = ("done", "failed", "over_budget", "skipped", "waiting")
_SVG_POLICY: Final = "default-src 'none'; style-src 'unsafe-inline'"


class BatchPages:
    """The page of a batch."""

    def __init__(self, batch: Batch, clients: Clients, tabs: Callable[[], Awaitable[Tabs]]) -> None:
        self._batch = batch
        self._clients = clients
        self._tabs = tabs

    def routes(self) -> dict[str, Answer]:
        return {"/fleet": self._page, "/fleet/plot.svg": self._plot, "/watch/fleet": self._watch}

    async def tabs(self) -> Tabs:
        return [("Fleet", "/fleet", 0)]

    async def _page(self, request: Request) -> Response:
        root, params = root_of(request), request.query_params
        state, report = await self._batch.state(), await self._batch.report()
        status, error = params.get("status", ""), params.get("error", "")
        number = params.get("page", "0")
        first = int(number) * _PAGE if number.isdigit() and len(number) < 9 else 0
        found = await run_sync(chosen, report.outcomes, status, error)
        region = Markup(
            _standing(state, report)
            + _running(root, state)
            + _failures(root, report)
            + (_plot(root, state) if report.outcomes else "")
            + _tasks(root, found, status, error, first)
        )
        return await renewed(request, "Fleet", region, self._tabs, heading=state.name)

    async def _plot(self, _: Request) -> Response:
        drawn = await run_sync((await self._batch.report()).to_svg)
        return Response(drawn, media_type="image/svg+xml", headers={"content-security-policy": _SVG_POLICY})

    async def _watch(self, _: Request) -> Response:
        return self._clients.watch(self._batch.state, _SECONDS)


class PoolPages:
    """The page of a pool."""

    def __init__(self, pool: Pool, clients: Clients, tabs: Callable[[], Awaitable[Tabs]]) -> None:
        self._pool = pool
        self._clients = clients
        self._tabs = tabs
        self._history: deque[tuple[float, PoolStats]] = deque(maxlen=_REMEMBERED)

    def routes(self) -> dict[str, Answer]:
        return {"/pool": self._page, "/watch/pool": self._watch}

    async def tabs(self) -> Tabs:
        return [("Pool", "/pool", 0)]

    async def _page(self, request: Request) -> Response:
        stats = await self._look()
        region = Markup(
            _pool_figures(stats) + _pool_plot(list(self._history)) + self._slots(root_of(request))
        )
        return await renewed(request, "Pool", region, self._tabs)

    async def _watch(self, _: Request) -> Response:
        return self._clients.watch(self._look, _SECONDS)

    async def _look(self) -> PoolStats:
        # A pool without a limit of memory looks at it now and then only.
        self._pool._scheduler.wants_figures = True  # pyright: ignore[reportPrivateUsage]
        stats, now = self._pool.stats(), time.time()
        if not self._history or now - self._history[-1][0] >= _SECONDS / 2:
            self._history.append((now, stats))
        return stats

    def _slots(self, root: str) -> Markup:
        scheduler = self._pool._scheduler  # pyright: ignore[reportPrivateUsage]
        slots = scheduler.slots.in_state("held", "warm", "starting", "closing")
        rows: list[list[Child]] = []
        for slot in slots:
            session, state = slot.session, "in use" if slot.state == "held" else slot.state
            rows.append(
                [
                    h("span", state, class_=f"badge {slot.state}"),
                    str(session.pid) if session is not None and session.pid else "",
                    size(slot.size) if slot.size else "",
                    f"{slot.turns:,}",
                    _session_link(root, None if session is None else session.id),
                ]
            )
        columns = {"state": "", "process": "", "memory": "num", "turns": "num", "session": ""}
        return table(columns, rows, empty="No process runs.")


# A batch, in parts.


def _standing(state: BatchState, report: Report) -> Markup:
    total = state.total or state.ended
    bar: list[Markup] = []
    for status in _STATUSES if total else ():
        x, width = (part / total * 1000 for part in (_before(state, status), state.counts[status]))
        bar.append(h("rect", x=f"{x:.1f}", y=0, width=f"{width:.1f}", height=12, class_=f"st-{status}"))
    says = f"{state.ended:,} of {total:,} tasks ended"
    waits = None
    if state.waiting_until is not None and state.waiting_until > time.time():
        waits = h(
            "p.problem",
            f"Waiting for {lasting(state.waiting_until - time.time())}: {state.waiting_for or 'a limit'}",
        )
    numbers = figures(
        ("done", f"{state.counts['done']:,} of {total:,}", ""),
        ("failed", f"{state.counts['failed']:,}" if state.counts["failed"] else "", "bad"),
        ("over budget", f"{state.counts['over_budget']:,}" if state.counts["over_budget"] else "", "warn"),
        ("waiting", f"{state.counts['waiting']:,}" if state.counts["waiting"] else "", "warn"),
        ("skipped", f"{state.counts['skipped']:,}" if state.counts["skipped"] else "", ""),
        ("running", f"{len(state.running):,}" if state.is_running else "", ""),
        ("tasks a minute", f"{state.rate_per_minute:,.1f}" if state.rate_per_minute else "", ""),
        ("time left", lasting(state.seconds_left) if state.is_running and state.seconds_left else "", ""),
        ("cost", money(state.cost_usd), ""),
        ("tokens", amount(state.tokens), ""),
        ("median", lasting(report.latency.p50) if report.latency else "", ""),
        ("99 % under", lasting(report.latency.p99) if report.latency else "", ""),
    )
    sign = h(
        "p.note",
        h("span", class_="dot live" if state.is_running else "dot done"),
        f"running{f', by {state.runner}' if state.runner else ''}" if state.is_running else "not running",
    )
    drawn = h("svg.bar", h("title", says), bar, viewBox="0 0 1000 12", preserveAspectRatio="none", role="img")
    return Markup(sign + drawn + numbers + (waits or ""))


def _plot(root: str, state: BatchState) -> Markup:
    says = "Tasks over time, and how long they took"
    picture = h("img.plot", src=f"{root}/fleet/plot.svg?n={state.ended}", alt=says)
    return h("details.plot-of", h("summary", says), picture, id="plot", open=True)


def _before(state: BatchState, status: str) -> int:
    return sum(state.counts[each] for each in _STATUSES[: _STATUSES.index(status)])


def _failures(root: str, report: Report) -> Markup:
    if not report.failures:
        return Markup("")
    rows = [
        [
            h("a", failure.kind, href=f"{root}/fleet?{urlencode({'error': failure.kind})}"),
            f"{failure.count:,}",
            mask(failure.error).strip().partition("\n")[0][:300],
        ]
        for failure in report.failures
    ]
    columns = {"error": "", "tasks": "num", "what the first one says": "wide"}
    return Markup(h("h2", "What failed") + table(columns, rows))


def _running(root: str, state: BatchState) -> Markup:
    if not state.running:
        return Markup("")
    now = time.time()
    rows = [
        [
            [h("span.dot.live"), task.id],
            lasting(now - task.since) if task.since else "",
            f"{task.attempt:,}",
            _session_link(root, task.session_id),
        ]
        for task in state.running[:_PAGE]
    ]
    return table({"running": "", "for": "num", "attempt": "num", "session": ""}, rows)


def _tasks(root: str, found: Sequence[Outcome[object]], status: str, error: str, first: int) -> Markup:
    def address(**changes: str) -> str:
        told = urlencode(
            {name: value for name, value in {"status": status, "error": error, **changes}.items() if value}
        )
        return f"{root}/fleet{'?' if told else ''}{told}"

    def tab(name: str) -> Markup:
        here = "true" if name == status and not error else None
        says = (name or "all").replace("_", " ")
        return h("a", says, href=address(status=name, error=""), aria_current=here)

    rows = [
        [
            h("span", outcome.status.replace("_", " "), class_=f"badge st-{outcome.status}"),
            outcome.id,
            mask(outcome.error or outcome.text or "").strip().partition("\n")[0][:160],
            lasting(outcome.duration),
            money(outcome.cost_usd),
            f"{outcome.attempts:,}",
            moment(outcome.ended_at, short=True),
            _session_link(root, outcome.session_id),
        ]
        for outcome in found[first : first + _PAGE]
    ]
    columns = {"status": "", "task": "", "answer": "wide"}
    columns |= {"took": "num", "cost": "num", "tries": "num", "ended": "num", "session": ""}
    older = h("a.more", "More", href=address(page=str(first // _PAGE + 1)))
    made = table(columns, rows, empty="None.")
    return Markup(
        h("h2", "Tasks")
        + h("div.chips", map(tab, ("", *_STATUSES)))
        + made
        + (older if len(found) > first + _PAGE else "")
    )


def _session_link(root: str, session_id: str | None) -> Markup:
    return h("a", session_id[:8], href=f"{root}/s/{session_id}") if session_id else Markup("")


# A pool, in parts.


def _pool_figures(stats: PoolStats) -> Markup:
    waiting = sum(stats.waiting.values())
    most = f" of {size(stats.max_memory)}" if stats.max_memory else ""
    memory = f"{size(stats.memory)}{most}" if stats.memory else ""
    served = stats.hits + stats.misses
    numbers = figures(
        ("processes", f"{stats.processes} of {stats.max_processes}", ""),
        ("busy", f"{stats.busy}", ""),
        ("idle", f"{stats.idle}", ""),
        ("warm", f"{stats.warm}", ""),
        ("starting", f"{stats.starting}" if stats.starting else "", ""),
        ("waiting", f"{waiting}", "warn" if waiting else ""),
        ("parked", f"{stats.parked}" if stats.parked else "", ""),
        ("memory", memory, ""),
        ("served warm", f"{stats.hits / served:.0%}" if served else "", ""),
        ("waited", lasting(stats.waited_seconds) if stats.waits else "", ""),
        ("turned away", f"{stats.turned_away:,}" if stats.turned_away else "", "bad"),
        ("failed starts", f"{stats.failed:,}" if stats.failed else "", "bad"),
        ("recycled", f"{stats.recycled:,}" if stats.recycled else "", ""),
        ("started", f"{stats.started:,}", ""),
    )
    tenants = [h("li", h("b", tenant or "(none)"), f" {count:,}") for tenant, count in stats.waiting.items()]
    queue = Markup(h("h2", "Queue") + h("ul.tenants", tenants)) if tenants else Markup("")
    return Markup(numbers + queue)


def _pool_plot(history: Sequence[tuple[float, PoolStats]]) -> Markup:
    """Processes and the queue, in the last minutes that somebody looked."""
    if len(history) < 2:
        return Markup("")
    began, ended = history[0][0], max(history[-1][0], history[0][0] + 10)
    most = max(max(stats.max_processes, sum(stats.waiting.values())) for _, stats in history) or 1

    def points(value: Callable[[PoolStats], int]) -> str:
        made: list[str] = []
        before: float | None = None
        for at, stats in history:
            x, y = (at - began) / (ended - began) * 1000, 118 - value(stats) / most * 110
            if before is not None:
                made.append(f"L{x:.1f} {before:.1f}")
            made.append(f"{'L' if made else 'M'}{x:.1f} {y:.1f}")
            before = y
        return "".join(made)

    limit = 118 - history[-1][1].max_processes / most * 110
    drawn = h(
        "svg.pool-plot",
        h("title", f"The last {lasting(ended - began)}: processes, those that are busy, callers that wait"),
        h("line.grid", x1=0, x2=1000, y1=f"{limit:.1f}", y2=f"{limit:.1f}"),
        h("path.line.processes", d=points(lambda stats: stats.processes)),
        h("path.line.busy", d=points(lambda stats: stats.busy)),
        h("path.line.queue", d=points(lambda stats: sum(stats.waiting.values()))),
        viewBox="0 0 1000 120",
        preserveAspectRatio="none",
        role="img",
    )
    names = (("processes", "processes"), ("busy", "busy"), ("waiting", "queue"))
    legend = h("p.note", [h("span", name, class_=f"legend {kind}") for name, kind in names])
    top = h("p.note.scale", f"{most:,}")
    return Markup(top + drawn + legend)

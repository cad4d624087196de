"""What telemetry adds to a turn, to each hook and to each call of a tool. Does not print.

Spans and metrics are made by OpenTelemetry's own SDK, and are recorded but not exported.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import anyio

from benchmarks import work
from benchmarks.agent import SERVER
from benchmarks.side import started
from benchmarks.side_outrider import let_pass, server
from outrider import Options, Session
from outrider.telemetry import Telemetry


class Row(NamedTuple):
    """CPU seconds at best, with telemetry and without."""

    name: str
    title: str
    number: int
    """Of messages, hooks or calls."""
    on: float
    off: float


def measure(folder: Path, *, quick: bool) -> Iterator[Row]:
    """The rows, as they are known."""
    share, rounds = (5, 5) if quick else (1, 9)
    events, asked = 100_000 // share, 5000 // share
    turn, _ = work.Work("turn", "", lambda: work.stream_events(events)).write(folder)
    empty, _ = work.Work("empty", "", list).write(folder)
    for name, title, file, count in (
        ("stream", f"{events:,} messages of a turn", turn, events),
        ("hooks", f"{asked:,} hooks", empty, asked),
        ("tools", f"{asked:,} calls of a tool", empty, asked),
    ):
        options = Options(cli_path=str(work.agent(folder, file)), hooks=[let_pass])
        options = options.replace(mcp_servers={SERVER: server(name)})
        on: list[float] = []
        off: list[float] = []
        for _ in range(rounds):
            off.append(anyio.run(_turn, options.replace(telemetry=False), name, count))
            on.append(anyio.run(_turn, options.replace(telemetry=_telemetry()), name, count))
        yield Row(name, title, count, min(on), min(off))
    turn.unlink()
    empty.unlink()


async def _turn(options: Options, name: str, count: int) -> float:
    async with Session(options) as session:
        gc.collect()
        begin = started()
        async for _ in await session.send("go" if name == "stream" else f"{name} {count}"):
            pass
        return begin().cpu


def _telemetry() -> Telemetry:
    from opentelemetry.sdk.metrics import MeterProvider
    from opentelemetry.sdk.metrics.export import InMemoryMetricReader
    from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
    from opentelemetry.sdk.trace.export import SimpleSpanProcessor, SpanExporter, SpanExportResult

    class Dropped(SpanExporter):
        def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
            return SpanExportResult.SUCCESS

    provider = TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(SimpleSpanProcessor(Dropped()))
    meters = MeterProvider([InMemoryMetricReader()], shutdown_on_exit=False)
    return Telemetry(tracer_provider=provider, meter_provider=meters)

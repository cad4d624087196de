"""Records what telemetry makes, with OpenTelemetry's own SDK, and shows it as a tree."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, TypeAlias

from opentelemetry.context import Context
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import ReadableSpan, Span, SpanProcessor, TracerProvider

from outrider.telemetry import Telemetry

Metrics: TypeAlias = dict[str, dict[tuple[tuple[str, Any], ...], Any]]
"""Values by the names of metrics, and by labels."""

HIDDEN = (
    "gen_ai.operation.name",
    "gen_ai.conversation.id",
    "gen_ai.response.id",
    "gen_ai.request.model",
    "outrider.message.uuid",
    "outrider.cli.version",
    "outrider.agent.id",
    "gen_ai.agent.name",
    "gen_ai.provider.name",
    "gen_ai.response.model",
    "gen_ai.tool.name",
    "gen_ai.tool.type",
    "outrider.hook.name",
    "outrider.permission.tool",
)
"""Attributes that are everywhere, different each time, or in the names of spans."""


class Recorder(SpanProcessor):
    """The spans in the order in which they began, and the metrics."""

    def __init__(self, **fields: Any) -> None:
        self.started: list[Span] = []
        self.ended: list[ReadableSpan] = []
        self.tracers = TracerProvider(shutdown_on_exit=False)
        self.tracers.add_span_processor(self)
        self._reader = InMemoryMetricReader()
        self.meters = MeterProvider([self._reader], shutdown_on_exit=False)
        self.telemetry = Telemetry(tracer_provider=self.tracers, meter_provider=self.meters, **fields)
        self.tracer = self.tracers.get_tracer("the user's")

    def on_start(self, span: Span, parent_context: Context | None = None) -> None:
        self.started.append(span)

    def on_end(self, span: ReadableSpan) -> None:
        self.ended.append(span)

    # Spans.

    @property
    def names(self) -> list[str]:
        return [span.name for span in self.started]

    def span(self, name: str) -> Span:
        """The only one of this name."""
        (found,) = (span for span in self.started if span.name == name)
        return found

    def parent(self, name: str) -> str | None:
        """The name of the parent of the only span of this name."""
        return self._parent_of(self.span(name))

    def _parent_of(self, span: ReadableSpan) -> str | None:
        if span.parent is None:
            return None
        by_id = {_id(each): each.name for each in self.started}
        return by_id[span.parent.span_id]

    def check(self) -> None:
        """Every span that began has ended, once, and within the time of its parent; only a subagent may go on
        in the background when the call that began it has ended."""
        assert sorted(map(_id, self.started)) == sorted(map(_id, self.ended))
        by_id = {_id(span): span for span in self.started}
        for span in self.started:
            assert span.start_time is not None
            assert span.end_time is not None
            assert span.start_time <= span.end_time, span.name
            parent = None if span.parent is None else by_id.get(span.parent.span_id)
            if parent is not None:
                assert parent.start_time is not None
                assert parent.end_time is not None
                assert parent.start_time <= span.start_time, (parent.name, span.name)
                is_subagent = span.name.startswith("invoke_agent") and parent.name.startswith("execute_tool")
                assert is_subagent or span.end_time <= parent.end_time, (parent.name, span.name)

    def tree(self, hidden: Iterable[str] = HIDDEN) -> str:
        """All spans, each with what is under it, in the order in which they began."""
        return "\n".join(self._lines(None, 0, frozenset(hidden)))

    def _lines(self, parent: int | None, depth: int, hidden: frozenset[str]) -> Iterator[str]:
        known = {_id(span) for span in self.started}
        inside = [span for span in self.started if _parent_id(span, known) == parent]
        for span in sorted(inside, key=lambda span: span.start_time or 0):
            yield "  " * depth + span.name + _facts(span.attributes, hidden)
            for event in span.events:
                yield "  " * (depth + 1) + "* " + event.name + _facts(event.attributes, hidden)
            yield from self._lines(_id(span), depth + 1, hidden)

    # Metrics.

    def metrics(self) -> Metrics:
        """The value of each metric, or the count of a histogram, by its labels."""
        found: Metrics = {}
        for name, point in self.points():
            labels = tuple(sorted((point.attributes or {}).items()))
            found.setdefault(name, {})[labels] = point.value if hasattr(point, "value") else point.count
        return found

    def points(self) -> Iterator[tuple[str, Any]]:
        """The data points of all metrics, each with the name of its metric."""
        data = self._reader.get_metrics_data()
        for resource in data.resource_metrics if data is not None else ():
            for scope in resource.scope_metrics:
                for metric in scope.metrics:
                    for point in metric.data.data_points:
                        yield metric.name, point

    def total(self, name: str) -> Any:
        """The sum over all labels."""
        return sum(self.metrics().get(name, {}).values())


def _id(span: ReadableSpan) -> int:
    context = span.get_span_context()
    assert context is not None
    return context.span_id


def _parent_id(span: ReadableSpan, known: set[int]) -> int | None:
    return span.parent.span_id if span.parent is not None and span.parent.span_id in known else None


def _facts(attributes: Any, hidden: frozenset[str]) -> str:
    parts: list[str] = []
    for name, value in sorted((attributes or {}).items()):
        if name not in hidden and not isinstance(value, float) and value != "answered":
            short = name.removeprefix("outrider.").removeprefix("gen_ai.")
            parts.append(f"{short}={','.join(value) if isinstance(value, tuple) else value}")
    return f" [{', '.join(parts)}]" if parts else ""

"""The spans of fleets: runs and tasks, and how a trace continues in another process."""

from __future__ import annotations

import logging
from contextlib import contextmanager
from time import time_ns
from typing import TYPE_CHECKING, Final

from opentelemetry import context as otel
from opentelemetry import propagate
from opentelemetry.trace import Link, get_current_span

from outrider.telemetry import _names as n
from outrider.telemetry._spans import SpanFollower, current_span

if TYPE_CHECKING:
    from collections.abc import Generator, Mapping
    from contextlib import AbstractContextManager

    from outrider.telemetry._telemetry import Telemetry

log = logging.getLogger("outrider.telemetry")

_NAME: Final = "fleet.map"

_LARGE: Final = 1000
"""Tasks of a run, beyond which each has a trace of its own: backends do not show larger ones."""


@contextmanager
def run_span(telemetry: Telemetry, engine: str) -> Generator[SpanFollower]:
    """Around a run."""
    facts = {n.OPERATION: n.INVOKE_WORKFLOW, n.WORKFLOW_NAME: _NAME, n.ENGINE: engine}
    began, metrics = time_ns(), telemetry.metrics
    with current_span(telemetry.tracer, f"{n.INVOKE_WORKFLOW} {_NAME}", facts) as follower:
        try:
            yield follower
        finally:
            metrics.took(metrics.run_seconds, began, time_ns(), facts, follower.error)


def task_span(
    telemetry: Telemetry, id: str, number: int, total: int | None
) -> AbstractContextManager[SpanFollower]:
    """Around a task. Of a large run, it begins a trace, which is linked to that of the run."""
    is_large = (total or 0) > _LARGE or number >= _LARGE
    links = [Link(get_current_span().get_span_context())] if is_large else []
    return current_span(telemetry.tracer, n.TASK, {n.TASK_ID: id, n.TASK_INDEX: number}, links)


def carrier() -> dict[str, str]:
    """The current trace, for another process."""
    found: dict[str, str] = {}
    try:
        propagate.inject(found)
    except Exception:
        log.exception("the trace could not be handed on")
    return found


def resume(carrier: Mapping[str, str]) -> None:
    """Continue a trace of another process, in the current context."""
    try:
        otel.attach(propagate.extract(carrier))
    except Exception:
        log.exception("the trace could not be continued")

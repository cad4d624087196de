"""How spans begin and end, and what they are about: a turn or a subagent, a call of the model, one of a tool.

Nothing that goes wrong in telemetry goes beyond it: neither here nor in what the user's SDK does with a span.
Runs and tasks have theirs at the end, with how a trace continues in another process.
"""

from __future__ import annotations

import logging
from contextlib import contextmanager
from functools import wraps
from time import time_ns
from typing import TYPE_CHECKING, Any, Concatenate, Final, ParamSpec, TypeAlias, TypeVar

from opentelemetry import context as otel
from opentelemetry import propagate
from opentelemetry.trace import (
    INVALID_SPAN,
    Link,
    SpanKind,
    Status,
    StatusCode,
    get_current_span,
    set_span_in_context,
)
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from outrider.telemetry import _names as n

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Mapping, Sequence
    from contextlib import AbstractContextManager

    from opentelemetry.trace import Span, SpanContext, Tracer

    from outrider.session import Usage
    from outrider.session._connection.observers import Facts
    from outrider.telemetry._telemetry import Telemetry
    from outrider.wire import ContentBlock, JsonObject

log = logging.getLogger("outrider.telemetry")

P = ParamSpec("P")
S = TypeVar("S")

Attributes: TypeAlias = dict[str, Any]
"""What is known of a span. None: it is not known, and left out."""

Labels: TypeAlias = dict[str, str]
"""Those of a metric."""


def harmless(method: Callable[Concatenate[S, P], None]) -> Callable[Concatenate[S, P], None]:
    """Log what a method raises."""

    @wraps(method)
    def call(self: S, /, *args: P.args, **fields: P.kwargs) -> None:
        try:
            method(self, *args, **fields)
        except Exception:
            log.exception("telemetry failed, and goes on")

    return call


def start_span(
    tracer: Tracer,
    name: str,
    facts: Attributes,
    *,
    parent: otel.Context | None = None,
    at: int | None = None,
    kind: SpanKind = SpanKind.INTERNAL,
    links: Sequence[Link] = (),
) -> Span:
    """Start a span, by default under the current one. What the user's SDK raises is logged."""
    try:
        span = tracer.start_span(name, parent, kind, known(facts), links, at)
        span.get_span_context()  # Here, because all else relies on it.
        return span
    except Exception:
        log.exception("a span could not be started: %s", name)
        return INVALID_SPAN


def end_span(span: Span, error: str | None = None, *, at: int | None = None, said: str | None = None) -> None:
    """End a span, with the class of an error and perhaps what it says."""
    try:
        if error is not None:
            span.set_attribute(n.ERROR_TYPE, error)
            span.set_status(Status(StatusCode.ERROR, said))
        span.end(at)
    except Exception:
        log.exception("a span could not be ended")


def describe(span: Span, facts: Mapping[str, object]) -> None:
    """Add what is known now to a span."""
    try:
        span.set_attributes(known(facts))
    except Exception:
        log.exception("a span could not be described")


def add_event(span: Span, name: str, facts: Mapping[str, object]) -> None:
    """Add an event to a span."""
    try:
        span.add_event(name, known(facts))
    except Exception:
        log.exception("an event could not be added: %s", name)


def known(facts: Mapping[str, Any]) -> Attributes:
    """Those that are known."""
    return {name: value for name, value in facts.items() if value is not None}


def error_type(error: BaseException | None) -> str | None:
    """What telemetry calls an error."""
    return None if error is None else type(error).__name__


_TRACEPARENT: Final = "traceparent"


def write_trace(span: Span) -> str:
    """A span as text, to be linked to from anywhere; empty if it is none. Raises nothing."""
    carrier: dict[str, str] = {}
    try:
        TraceContextTextMapPropagator().inject(carrier, set_span_in_context(span))
    except Exception:
        log.exception("a span could not be named")
    return carrier.get(_TRACEPARENT, "")


def read_trace(text: str) -> SpanContext | None:
    """The span that `write_trace` wrote; None if it is none."""
    context = TraceContextTextMapPropagator().extract({_TRACEPARENT: text}, otel.Context())
    found = get_current_span(context).get_span_context()
    return found if found.is_valid else None


class SpanFollower:
    """A span that is current in a block, which may say what became of it."""

    def __init__(self, span: Span) -> None:
        self.span = span
        self.error: str | None = None

    def end(self, status: str, error: str | None, facts: Facts) -> None:
        self.error = error or (None if status in ("done", "skipped", "waiting") else status)
        describe(self.span, {n.STATUS: status, **facts})


@contextmanager
def current_span(
    tracer: Tracer, name: str, facts: Attributes, links: Sequence[Link] = ()
) -> Generator[SpanFollower]:
    """A span that is current in a block. With links, it begins a trace."""
    parent = otel.Context() if links else None
    follower = SpanFollower(start_span(tracer, name, facts, parent=parent, links=links))
    token = otel.attach(set_span_in_context(follower.span))
    try:
        yield follower
    except BaseException as failed:
        follower.error = follower.error or type(failed).__name__
        raise
    finally:
        otel.detach(token)
        end_span(follower.span, follower.error)


# What spans of a session are about.


class Branch:
    """A turn or a subagent: what calls of the model and of tools hang under."""

    def __init__(self, span: Span, name: str, began: int, parent: Branch | None = None) -> None:
        self.span = span
        self.name = name
        """The agent's."""
        self.parent = parent
        """Of a subagent: the branch that called it."""
        self.context = set_span_in_context(span, otel.Context())
        self.began = self.ready = began
        """`ready`: since when the model can be at work on its next message."""
        self.chat: Chat | None = None
        self.inferences = self.tool_calls = 0
        """How often it has called the model and tools by itself."""
        self.is_background = False
        """Whether it continues when the call that began it has ended."""
        self.is_continued = False
        """Whether it continues with the call that another turn was parked with."""
        self.task: str | None = None
        """The id of its task, if it is a subagent and has one."""
        self.usage: Usage | None = None
        """What it has used, as far as that is known."""
        self.said: list[JsonObject] = []
        """What was sent for it, if content is wanted."""


class Chat:
    """A call of the model."""

    def __init__(self, id: str, span: Span, began: int, labels: Labels) -> None:
        self.id = id
        self.span = span
        self.began = self.last = began
        """`last`: when the last of it came."""
        self.labels = labels
        self.finish: str | None = None
        """Why the model stopped, if that is known."""
        self.is_partial = False
        """Whether its end will be told."""
        self.blocks: list[ContentBlock] = []
        """What it said, if content is wanted."""


class Call:
    """A call of a tool."""

    def __init__(self, id: str, span: Span, branch: Branch | None, began: int, labels: Labels) -> None:
        self.id = id
        self.span = span
        self.branch = branch
        """None if it is known only by the request to this process."""
        self.context = set_span_in_context(span, otel.Context())
        self.began = began
        self.labels = labels
        self.is_announced = branch is not None
        """Whether the model's message with it has come, so that its result will."""
        self.error: str | None = None
        """What went wrong in this process."""


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

"""`Telemetry`: what is to be made of sessions, pools and runs, and where it goes.

`instrument` has it made of everything in this process. What is made is in `_session` and `_spans`.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Final, TypedDict, cast

from outrider._version import __version__
from outrider.errors import OptionsError
from outrider.options._validators import choice, function, invalid_value, optional, switch, text
from outrider.redaction import DEFAULT
from outrider.session._connection import observers
from outrider.telemetry import _names as n

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from contextlib import AbstractContextManager
    from typing import Unpack

    from opentelemetry.metrics import MeterProvider
    from opentelemetry.trace import TracerProvider

    from outrider.fleet import Pool
    from outrider.options import Options
    from outrider.redaction import Redaction
    from outrider.session._connection.conversation import Conversation
    from outrider.session._connection.observers import SessionFollower, TaskFollower


class TelemetryFields(TypedDict, total=False):
    """What `Telemetry` and `instrument` take."""

    tracer_provider: TracerProvider | None
    meter_provider: MeterProvider | None
    content: bool | None
    scrub: Callable[[str], str] | None
    redaction: Redaction
    agent_name: str | None
    semconv: n.Semconv
    agent_spans: bool


_DEFAULTS: Final[dict[str, object]] = {
    "content": None,
    "scrub": None,
    "redaction": DEFAULT,
    "agent_name": None,
    "semconv": "latest",
    "agent_spans": False,
}

_AGENT_SPANS: Final = {
    "CLAUDE_CODE_ENABLE_TELEMETRY": "1",
    "CLAUDE_CODE_ENHANCED_TELEMETRY_BETA": "1",
    # Anything else could write to stdout, which is the protocol's.
    "OTEL_TRACES_EXPORTER": "otlp",
    "OTEL_METRICS_EXPORTER": "none",
    "OTEL_LOGS_EXPORTER": "none",
}
"""Variables that make Claude Code export spans of its own."""


class Telemetry:
    """OpenTelemetry spans and metrics of sessions, pools and runs: `Options(telemetry=Telemetry())`.

    Only the API of OpenTelemetry is used; what becomes of the spans is up to the SDK that you set up. Without
    one, nothing is recorded. One object may serve any number of sessions.
    """

    def __init__(
        self,
        *,
        tracer_provider: TracerProvider | None = None,
        meter_provider: MeterProvider | None = None,
        content: bool | None = None,
        scrub: Callable[[str], str] | None = None,
        redaction: Redaction = DEFAULT,
        agent_name: str | None = None,
        semconv: n.Semconv = "latest",
        agent_spans: bool = False,
    ) -> None:
        """`tracer_provider`, `meter_provider`: unset, the global ones.

        `content`: whether prompts, answers, arguments and results are recorded; unset, the variable
        OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT decides, and without it nothing of them is.
        `redaction` hides secrets in content, and `scrub`, called with each text, whatever else it should.

        `agent_name`: that of the agent in spans. `semconv="1.41"`: the older names of the conventions.
        `agent_spans`: Claude Code exports spans of its own, too, to the endpoint in OTEL_EXPORTER_OTLP_….

        Raises `OptionsError` for what cannot be, and if OpenTelemetry is not installed.
        """
        self._given = cast(
            "TelemetryFields",
            {
                "content": optional(switch)("`content`", content),
                "scrub": optional(function)("`scrub`", scrub),
                "redaction": redaction,
                "agent_name": optional(text)("`agent_name`", agent_name),
                "semconv": choice(*n.SEMCONVS)("`semconv`", semconv),
                "agent_spans": switch("`agent_spans`", agent_spans),
            },
        )
        for place, given, method in (
            ("`tracer_provider`", tracer_provider, "get_tracer"),
            ("`meter_provider`", meter_provider, "get_meter"),
            ("`redaction`", redaction, "mask_json"),
        ):
            if given is not None and not hasattr(given, method):
                raise invalid_value(place, f"an object with `{method}`", given)
        try:
            from opentelemetry import metrics, trace
        except ImportError as error:
            hint = "Run: pip install 'outrider[otel]'"
            raise OptionsError("Telemetry needs a package that is not installed", hint=hint) from error

        # Here: they import the API of OpenTelemetry.
        from outrider.telemetry import _spans
        from outrider.telemetry._content import Content
        from outrider.telemetry._metrics import Metrics

        self._spans: Final = _spans
        self.agent_name: Final = agent_name
        self.agent_spans: Final = agent_spans
        self.names: Final = n.NAMES[semconv]
        self.content: Final = Content(content, redaction, scrub)
        self.tracer: Final = trace.get_tracer(n.SCOPE, __version__, tracer_provider)
        self.metrics: Final = Metrics(meter_provider or metrics.get_meter_provider(), self.names)

    def __repr__(self) -> str:
        shown = ", ".join(f"{name}={value!r}" for name, value in self._changed().items())
        return f"Telemetry({shown})"

    def __reduce__(self) -> tuple[Callable[..., Telemetry], tuple[Mapping[str, object]]]:
        # Another process has providers of its own.
        return _made_from, (self._changed(),)

    def _changed(self) -> dict[str, object]:
        return {name: value for name, value in self._given.items() if value != _DEFAULTS[name]}

    # What sessions, pools and runs call.

    def follow(self, conversation: Conversation) -> SessionFollower:
        from outrider.telemetry._session import SessionSpans

        return SessionSpans(self, conversation)

    def agent_variables(self, options: Options) -> dict[str, str]:
        """The variables that Claude Code needs for spans of its own."""
        if not self.agent_spans:
            return {}
        given = {**os.environ, **options.env}
        endpoint = {name: value for name, value in given.items() if name.startswith("OTEL_EXPORTER_OTLP_")}
        return {"OTEL_EXPORTER_OTLP_PROTOCOL": "http/protobuf", **_AGENT_SPANS, **endpoint}

    def run(self, engine: str) -> AbstractContextManager[TaskFollower]:
        return self._spans.run_span(self, engine)

    def task(self, id: str, number: int, total: int | None) -> AbstractContextManager[TaskFollower]:
        return self._spans.task_span(self, id, number, total)

    def attempt(self, number: int, session_id: str | None) -> AbstractContextManager[TaskFollower]:
        return self._spans.current_span(
            self.tracer, n.ATTEMPT, {n.ATTEMPT_NUMBER: number, n.CONVERSATION: session_id}
        )

    def carrier(self) -> dict[str, str]:
        return self._spans.carrier()

    def resume(self, carrier: Mapping[str, str]) -> None:
        self._spans.resume(carrier)

    def pool_opened(self, pool: Pool) -> None:
        self.metrics.pool_opened(pool)

    def pool_wait(self) -> AbstractContextManager[TaskFollower]:
        return self._spans.current_span(self.tracer, n.POOL_ACQUIRE, {})


def _made_from(fields: Mapping[str, object]) -> Telemetry:
    return Telemetry(**cast("TelemetryFields", fields))


def instrument(**fields: Unpack[TelemetryFields]) -> Telemetry:
    """Make telemetry of all sessions, pools and runs of this process whose options have none, from now on;
    those of `outrider.compat` and `outrider.sync` included. Takes what `Telemetry` takes.

        outrider.telemetry.instrument()

    A second call replaces the first. Raises what `Telemetry` raises.
    """
    made = Telemetry(**fields)
    observers.default_instrument = made
    return made


def uninstrument() -> None:
    """Undo `instrument`. Sessions that exist keep what they have."""
    observers.default_instrument = None

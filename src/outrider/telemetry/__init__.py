"""OpenTelemetry spans and metrics of what sessions, pools and fleets do, and logs that go with them.

Needs the extra `otel`, for spans and metrics. Names are loaded on first use.
"""

from typing import TYPE_CHECKING

from outrider._lazy import lazily

if TYPE_CHECKING:
    from outrider.telemetry._logs import JsonFormatter as JsonFormatter
    from outrider.telemetry._logs import LogContext as LogContext
    from outrider.telemetry._telemetry import Telemetry as Telemetry
    from outrider.telemetry._telemetry import TelemetryFields as TelemetryFields
    from outrider.telemetry._telemetry import instrument as instrument
    from outrider.telemetry._telemetry import uninstrument as uninstrument
else:
    __getattr__, __dir__, __all__ = lazily(__name__)

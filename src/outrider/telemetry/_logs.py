"""Logs that go with telemetry: the ids of trace and session on each record, and lines of JSON.

Works without OpenTelemetry, too; then there are no ids of traces.
"""

from __future__ import annotations

import json
import logging
import sys
from datetime import UTC, datetime
from typing import Final, cast

from outrider.redaction import mask, mask_json
from outrider.session._connection.tasks import current_connection

_STANDARD: Final = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}
"""The fields that every record has. Others are those of `extra`, and of filters."""


class LogContext(logging.Filter):
    """Gives each record the fields `trace_id`, `span_id` and `session_id`: those of the span and of the
    session in which it was logged, or empty text.

        handler.addFilter(LogContext())

    Add it to a handler: what a logger filters are only its own records. Records of your tools, hooks and
    callbacks have them, too.
    """

    def filter(self, record: logging.LogRecord) -> bool:
        record.trace_id, record.span_id = _trace_ids()
        connection = current_connection()
        record.session_id = "" if connection is None else connection.info.session_id or ""
        return True


def _trace_ids() -> tuple[str, str]:
    if "opentelemetry.trace" not in sys.modules:
        return "", ""
    from opentelemetry.trace import format_span_id, format_trace_id, get_current_span

    context = get_current_span().get_span_context()
    if not context.is_valid:
        return "", ""
    return format_trace_id(context.trace_id), format_span_id(context.span_id)


class JsonFormatter(logging.Formatter):
    """Formats each record as one line of JSON, with its `extra` and what `LogContext` adds, and with secrets
    hidden.

        handler.setFormatter(JsonFormatter())
    """

    def format(self, record: logging.LogRecord) -> str:
        fields: dict[str, object] = {
            "timestamp": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname,
            "logger": record.name,
            "message": mask(record.getMessage()),
        }
        if record.exc_info:
            fields["exception"] = mask(self.formatException(record.exc_info))
        if record.stack_info:
            fields["stack"] = mask(self.formatStack(record.stack_info))
        for name, value in vars(record).items():
            if name in _STANDARD or name.startswith("_") or (isinstance(value, str) and not value):
                continue
            fields |= _shown(f"extra_{name}" if name in fields else name, value)
        # Half a surrogate pair is not text, and could not be written.
        return json.dumps(fields, ensure_ascii=False).encode(errors="replace").decode()


def _shown(name: str, value: object) -> dict[str, object]:
    """A field that can be written as JSON, whatever was given; its name may say that it is a secret."""
    try:
        masked = mask_json({name: value})
        shown: object = json.loads(json.dumps(masked, default=_as_text, allow_nan=False))
    except (TypeError, ValueError, RecursionError):
        # Not JSON: a loop, a number that is none, a key that is no text.
        shown = None
    return cast("dict[str, object]", shown) if isinstance(shown, dict) else mask_json({name: _as_text(value)})


def _as_text(value: object) -> str:
    try:
        return mask(str(value))
    except Exception:  # noqa: BLE001 - of the user's own class
        return f"<{type(value).__name__}>"

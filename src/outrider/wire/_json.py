"""JSON text: read with patience, written strictly.

Knows nothing of frames, lines or types.
"""

from __future__ import annotations

import json
from typing import Any, cast

import msgspec

from outrider.wire._value import Json

_encoder = msgspec.json.Encoder()


def loads(text: bytes) -> Json:
    """Decode JSON, and what is nearly JSON: NaN, control characters and bad bytes in texts, lone surrogates.

    Bytes and surrogates that are no character come out as U+FFFD, so that every text can be printed. What
    is not even that raises a ValueError, a `JSONDecodeError` where it has no meaning at all.
    """
    try:
        return cast("Json", msgspec.json.decode(text))
    except (ValueError, RecursionError):
        pass
    try:
        value: Json = json.loads(text.decode("utf-8", "replace"), strict=False)
        return _printable(value) if b"\\u" in text else value
    except RecursionError as error:
        raise ValueError("nested too deeply") from error


def _printable(value: Json) -> Json:
    """The value with every lone surrogate replaced."""
    if isinstance(value, str):
        return _printable_text(value)
    if isinstance(value, list):
        return [_printable(item) for item in value]
    if isinstance(value, dict):
        return {_printable_text(key): _printable(item) for key, item in value.items()}
    return value


def _printable_text(text: str) -> str:
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def dumps(value: Any) -> bytes:  # noqa: ANN401 - anything made of JSON types
    """Compact JSON in UTF-8, on one line. NaN and infinity become null: look for them before, if need be."""
    try:
        return _encoder.encode(value)
    except UnicodeEncodeError:
        # A lone surrogate has no UTF-8 form, but an escape.
        return json.dumps(value, separators=(",", ":")).encode()

"""Who asks, in a control request that cannot be read: nested too deeply, too large, cut off, or damaged.

An agent waits for the answer to each, so what can be refused is. Does not repair anything.
"""

from __future__ import annotations

import json
import re
from typing import Final, cast

_LOOKED_AT: Final = 65536
"""So many bytes are looked through: an agent says first who asks, and what else there is may be very long."""

_TOKEN: Final = re.compile(rb'"(?:[^"\\]|\\.)*"|[{}\[\]:,]|-?\d+(?=[\s,}])', re.DOTALL)
"""What an object is made of, as far as it matters here. None of these can be inside of another."""

_LAST: Final = re.compile(
    rb'[{,]\s*"request_id"\s*:\s*("(?:[^"\\]|\\.)*"|-?\d+)\s*(?:,\s*"type"[^{}\[\]]*)?\}\s*\Z'
)
"""The id as one of the last fields of a frame. Inside a JSON string the quotation marks would be escaped."""


def asker_of(head: bytes, tail: bytes = b"") -> str | int | None:
    """The id of the control request that begins, or ends, with these bytes; None if it is none, or has
    none."""
    kind, id = _first_fields(head[:_LOOKED_AT])
    if kind != "control_request":
        return None
    if id is None and (found := _LAST.search(tail[-_LOOKED_AT:])) is not None:
        id = _value(found[1])
    return id if isinstance(id, (str, int)) and id != "" else None


def _first_fields(data: bytes) -> tuple[object, object]:
    """`type` and `request_id` of the object itself, not of anything in it."""
    depth = 0
    fields: dict[bytes, object] = {}
    key = last = b""
    for found in _TOKEN.finditer(data):
        token = found[0]
        if token in b"{[":
            depth += 1
        elif token in b"}]":
            depth -= 1
            if depth <= 0:
                break
        elif depth == 1:
            if token == b":":
                key = last
            elif token == b",":
                key = b""
            elif key:
                fields.setdefault(key, _value(token))
            last = token
    return fields.get(b'"type"'), fields.get(b'"request_id"')


def _value(token: bytes) -> object:
    try:
        return cast("object", json.loads(token))
    except ValueError:
        return None

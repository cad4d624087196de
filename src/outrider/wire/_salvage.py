"""Who asks, in a control request that cannot be read: nested too deeply, too large, cut off, or damaged.

An agent waits for the answer to each, so what can be refused is. Does not repair anything.
"""

from __future__ import annotations

import json
import re
from itertools import islice
from typing import Final, cast

_LOOKED_AT: Final = 65536
"""So many bytes are looked through: an agent says first who asks, and what else there is may be very long."""

_TOKENS: Final = 16384
"""The same, in tokens."""

_TAIL: Final = 4096
"""So many bytes are looked through at the end, where the search begins anew at each id."""

_TOKEN: Final = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"?|[{}\[\]:,]|-?\d[^\s",:{}\[\]]*', re.DOTALL)
"""What an object is made of, as far as it matters here. None of these can be inside of another. Each is taken
whole, also a text that has no end and a number that is none: a search that failed and began again inside of
it would take the square of its length."""

_LAST: Final = re.compile(
    rb'[{,]\s*"request_id"\s*:\s*("(?:[^"\\]|\\.)*"|-?\d+)\s*(?:,\s*"type"[^{}\[\]]*)?\}\s*\Z'
)
"""The id as one of the last fields of a frame. Inside a JSON string the quotation marks would be escaped."""


def asker_of(head: bytes, tail: bytes = b"") -> str | int | None:
    """The id of the control request that begins, or ends, with these bytes; None if it is none, or has
    none."""
    head = head[:_LOOKED_AT]
    if b"control_request" not in head:
        # By far the most.
        return None
    kind, id = _first_fields(head)
    if kind != "control_request":
        return None
    if id is None and (found := _LAST.search(tail[-_TAIL:])) is not None:
        id = _value(found[1])
    return id if isinstance(id, (str, int)) and id != "" else None


def _first_fields(data: bytes) -> tuple[object, object]:
    """`type` and `request_id` of the object itself, not of anything in it."""
    depth = 0
    fields: dict[bytes, object] = {}
    key = last = b""
    for found in islice(_TOKEN.finditer(data), _TOKENS):
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
            elif key and (token.startswith(b'"') or found.end() < len(data)):
                # A number at the very end may go on.
                fields.setdefault(key, _value(token))
            last = token
    return fields.get(b'"type"'), fields.get(b'"request_id"')


def _value(token: bytes) -> object:
    try:
        return cast("object", json.loads(token))
    except ValueError:
        return None

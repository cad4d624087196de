"""Owns the head of a session in `S3Store`: what it holds, and how a batch changes it.

Does not read or write it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

import msgspec

from outrider.transcripts._summary import fold_session_summary
from outrider.transcripts.stores._records import decode, encode, plain
from outrider.transcripts.stores._s3_names import START

if TYPE_CHECKING:
    from outrider.transcripts._store import SessionSummaryEntry
    from outrider.transcripts.stores._records import Line, Place
    from outrider.transcripts.stores._s3_names import Batch

__all__ = ["Head", "Lease", "Part", "fresh_lines", "read_head", "with_batch"]


class Lease(msgspec.Struct):
    token: str
    holder: str
    until: float


class Part(msgspec.Struct):
    """A transcript: which of its batches count."""

    generation: str
    """Its name from one deletion to the next."""
    count: int = 0
    link: str = START


class Head(msgspec.Struct):
    """What is known of a session. Names are `plain`: JSON cannot hold half a surrogate pair."""

    project: str
    session: str
    parts: dict[str, Part] = {}
    """The main transcript has the empty name."""
    mtime: int | None = None
    summary: str | None = None
    lease: Lease | None = None


def with_batch(head: Head, place: Place, part: Part, batch: Batch, fresh: list[Line], now: float) -> Head:
    parts = {
        **head.parts,
        plain(place.part): msgspec.structs.replace(part, count=batch.number + 1, link=batch.link),
    }
    if place.subpath is not None or not fresh:
        return msgspec.structs.replace(head, parts=parts)
    previous: SessionSummaryEntry | None = None
    if head.summary is not None:
        data = cast("dict[str, object]", decode(head.summary))
        previous = {"session_id": place.session, "mtime": 0, "data": data}
    summary = fold_session_summary(previous, place.key, [line.entry for line in fresh])
    return msgspec.structs.replace(
        head,
        parts=parts,
        summary=encode(summary["data"]).decode(),
        mtime=max(int(now * 1000), (head.mtime or 0) + 1),
    )


def fresh_lines(lines: list[Line], known: set[str]) -> list[Line]:
    seen: set[str] = set()
    fresh: list[Line] = []
    for line in lines:
        if line.uuid is None:
            fresh.append(line)
        elif line.uuid not in known and line.uuid not in seen:
            seen.add(line.uuid)
            fresh.append(line)
    return fresh


def read_head(data: bytes) -> Head:
    return msgspec.json.decode(data, type=Head)

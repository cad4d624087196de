"""Owns what a list says of a session: from the beginning and the end of its file, or from a store's summary.

Does not read files.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Final

import msgspec

from outrider.transcripts._entry import decode_line
from outrider.transcripts._summary import ARCHIVED, Facts, fold_facts, to_facts
from outrider.transcripts._values import StoredSession

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

    from outrider.transcripts._store import SessionSummaryEntry

__all__ = ["describe_data", "describe_entries", "describe_summary", "fold_lines", "from_milliseconds"]

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


class _Line(Facts, gc=False):
    """Decoded from a line: what is said in it stays as it is."""

    message: msgspec.Raw = msgspec.Raw(b"")


_decode: Final = msgspec.json.Decoder(_Line).decode


def describe_summary(summary: SessionSummaryEntry, project: str) -> StoredSession | None:
    """The session that a store remembers so; None for one that has no place in lists: a subagent's, or one
    in which nothing was said."""
    return describe_data(
        summary["data"],
        session_id=summary["session_id"],
        project=project,
        last_modified=from_milliseconds(summary["mtime"]),
    )


def describe_entries(
    entries: Iterable[Mapping[str, object]], *, session_id: str, project: str, last_modified: datetime
) -> StoredSession | None:
    """The session that has these entries, for a store that remembers nothing; None as `describe_summary`."""
    data: dict[str, object] = {}
    for entry in entries:
        fold_facts(data, to_facts(entry))
    return describe_data(data, session_id=session_id, project=project, last_modified=last_modified)


def describe_data(
    data: Mapping[str, object],
    *,
    session_id: str,
    project: str,
    last_modified: datetime,
    size: int | None = None,
    path: Path | None = None,
    in_lists: bool = True,
) -> StoredSession | None:
    """The session of which this is remembered; None as `describe_summary`, unless it is not for a list."""

    def text(name: str) -> str | None:
        value = data.get(name)
        return value if isinstance(value, str) and value.strip() else None

    first_prompt = text("first_prompt") or text("command_fallback")
    named = text("custom_title")
    title = named or text("ai_title") or text("last_prompt") or text("summary_hint") or first_prompt
    if in_lists and (data.get("is_sidechain") is True or title is None):
        return None
    created = data.get("created_at")
    return StoredSession(
        id=session_id,
        project=project,
        title=" ".join((title or "").split()),
        custom_title=named,
        first_prompt=first_prompt,
        tag=text("tag"),
        cwd=text("cwd"),
        git_branch=text("git_branch"),
        created_at=from_milliseconds(created) if isinstance(created, int) else None,
        last_modified=last_modified,
        size=size,
        is_archived=data.get(ARCHIVED) is True,
        path=path,
    )


def fold_lines(data: dict[str, object], lines: Iterable[bytes]) -> None:
    """Add what lines say to the data of a summary; damaged ones say nothing."""
    for line in lines:
        try:
            facts: Facts = _decode(line)
        except (ValueError, RecursionError):
            try:
                facts = to_facts(decode_line(line))
            except ValueError:
                continue
        fold_facts(data, facts)


def from_milliseconds(number: float) -> datetime:
    """A time in milliseconds since 1970; one that no calendar has is taken for 1970."""
    try:
        return _EPOCH + timedelta(milliseconds=number)
    except (OverflowError, ValueError):
        return _EPOCH

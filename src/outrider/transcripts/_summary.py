"""Owns what is remembered of a session for lists: a summary that grows with each batch of entries.

Does not store it, and does not know when it was made; `_describing` reads it.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final, cast

import msgspec

from outrider.transcripts._entry import decode_line, to_time

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from outrider.transcripts._store import SessionKey, SessionStoreEntry, SessionSummaryEntry

__all__ = ["ARCHIVED", "Facts", "fold_facts", "fold_session_summary", "to_facts"]

ARCHIVED: Final = "archived"
"""The type, and the field, of an entry that says whether its session is archived; the last one counts. On
disk, a note beside the file says it (`_disk`): lists do not see what is in the middle of a file."""

_LONGEST_PROMPT: Final = 200

_NO_PROMPT: Final = re.compile(
    r"\s*(?:<(?:local-command-stdout|session-start-hook|tick|goal)>|\[Request interrupted by user)"
)
"""What the program puts where a prompt of the user would be."""

_FROM_EDITOR: Final = ("ide_opened_file", "ide_selection")
"""What an editor tells; the user's own words may come after it."""

_COMMAND: Final = ("<command-name>", "</command-name>")

_LATEST: Final[Mapping[str, str]] = {
    "customTitle": "custom_title",
    "aiTitle": "ai_title",
    "lastPrompt": "last_prompt",
    "summary": "summary_hint",
}
"""Fields of entries of which the last one counts, and what they are called here."""


class Facts(msgspec.Struct, gc=False):
    """What counts of an entry. A line is decoded into it without the rest of what it says."""

    type: str | None = None
    timestamp: str | None = None
    cwd: str | None = None
    customTitle: str | None = None  # noqa: N815 - the names of the fields in the file
    aiTitle: str | None = None  # noqa: N815
    lastPrompt: str | None = None  # noqa: N815
    summary: str | None = None
    gitBranch: str | None = None  # noqa: N815
    tag: str | None = None
    archived: bool | None = None
    isSidechain: bool | None = None  # noqa: N815
    isMeta: bool | None = None  # noqa: N815
    isCompactSummary: bool | None = None  # noqa: N815
    message: Any = None
    """A JSON value, or `msgspec.Raw` of one: it is decoded only where a prompt is looked for."""


_TEXTS: Final = ("type", "timestamp", "cwd", "gitBranch", "tag", *_LATEST)
_FLAGS: Final = ("archived", "isSidechain", "isMeta", "isCompactSummary")


def to_facts(entry: Mapping[str, object]) -> Facts:
    """What counts of an entry; a field of another type counts for nothing."""
    facts = Facts(message=entry.get("message"))
    for name in _TEXTS:
        if isinstance(value := entry.get(name), str):
            setattr(facts, name, value)
    for name in _FLAGS:
        if isinstance(value := entry.get(name), bool):
            setattr(facts, name, value)
    return facts


def fold_session_summary(
    previous: SessionSummaryEntry | None, key: SessionKey, entries: Sequence[SessionStoreEntry]
) -> SessionSummaryEntry:
    """The summary of a session with more entries of its main transcript, from the one before, which stays as
    it is. `mtime` is the store's business: it is taken over, or 0."""
    data: dict[str, object] = {} if previous is None else dict(previous["data"])
    for entry in entries:
        fold_facts(data, to_facts(cast("Mapping[str, object]", entry)))
    mtime = 0 if previous is None else previous["mtime"]
    return {"session_id": key["session_id"], "mtime": mtime, "data": data}


def fold_facts(data: dict[str, object], facts: Facts) -> None:
    """Add what an entry says to the data of a summary."""
    data.setdefault("is_sidechain", facts.isSidechain is True)
    if "created_at" not in data and (created := _milliseconds(facts.timestamp)) is not None:
        data["created_at"] = created
    if "cwd" not in data and facts.cwd:
        data["cwd"] = facts.cwd
    for theirs, ours in _LATEST.items():
        if (value := getattr(facts, theirs)) is not None:
            # Empty: it was taken away.
            data[ours] = value
    if facts.gitBranch:
        data["git_branch"] = facts.gitBranch
    if facts.type == "tag":
        if facts.tag:
            data["tag"] = facts.tag
        else:
            data.pop("tag", None)
    elif facts.type == ARCHIVED and facts.archived is not None:
        data[ARCHIVED] = facts.archived
    if facts.type == "user" and not data.get("first_prompt_locked"):
        _look_for_prompt(data, facts)


def _look_for_prompt(data: dict[str, object], facts: Facts) -> None:
    if facts.isMeta or facts.isCompactSummary:
        return
    for text in _texts(facts.message):
        if (command := _command_in(text)) is not None:
            data.setdefault("command_fallback", command)
        elif text.strip() and not _NO_PROMPT.match(text) and not _is_from_editor(text.strip()):
            prompt = text.replace("\n", " ").strip()
            cut = len(prompt) > _LONGEST_PROMPT
            data["first_prompt"] = prompt[:_LONGEST_PROMPT].rstrip() + "…" if cut else prompt
            data["first_prompt_locked"] = True
            return


def _is_from_editor(text: str) -> bool:
    return any(text.startswith(f"<{name}>") and text.endswith(f"</{name}>") for name in _FROM_EDITOR)


def _command_in(text: str) -> str | None:
    # No regular expression: where there is no end, it would look for one from each beginning.
    _, begun, rest = text.partition(_COMMAND[0])
    command, ended, _ = rest.partition(_COMMAND[1])
    return command.strip() if begun and ended else None


def _texts(message: object) -> Iterator[str]:
    """The texts of a user's message; none if it answers the agent's tools."""
    if isinstance(message, msgspec.Raw):
        try:
            message = decode_line(bytes(message))
        except ValueError:
            return
    content = cast("Mapping[str, object]", message).get("content") if isinstance(message, dict) else None
    if isinstance(content, str):
        yield content
    elif isinstance(content, list):
        blocks = [
            cast("Mapping[str, object]", block)
            for block in cast("list[object]", content)
            if isinstance(block, dict)
        ]
        if not any(block.get("type") == "tool_result" for block in blocks):
            yield from (text for block in blocks if isinstance(text := block.get("text"), str) and text)


def _milliseconds(timestamp: str | None) -> int | None:
    time = to_time(timestamp)
    return None if time is None else int(time.timestamp() * 1000)

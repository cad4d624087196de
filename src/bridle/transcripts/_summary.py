"""Owns what is remembered of a session for lists: a summary that grows with each batch of entries.

Does not store it, and does not know when it was made.
"""

from __future__ import annotations

import re
from datetime import datetime
from typing import TYPE_CHECKING, Final, cast

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from bridle.transcripts._store import SessionKey, SessionStoreEntry, SessionSummaryEntry

__all__ = ["fold_session_summary"]

_LONGEST_PROMPT: Final = 200

_NO_PROMPT: Final = re.compile(
    r"\s*(?:<(?:local-command-stdout|session-start-hook|tick|goal|ide_opened_file|ide_selection)>"
    r"|\[Request interrupted by user)"
)
"""What the program puts where a prompt of the user would be."""

_COMMAND: Final = re.compile(r"<command-name>(.*?)</command-name>", re.DOTALL)

_LATEST: Final[Mapping[str, str]] = {
    "customTitle": "custom_title",
    "aiTitle": "ai_title",
    "lastPrompt": "last_prompt",
    "summary": "summary_hint",
    "gitBranch": "git_branch",
}
"""Fields of entries of which the last one counts, and what they are called here."""


def fold_session_summary(
    previous: SessionSummaryEntry | None, key: SessionKey, entries: Sequence[SessionStoreEntry]
) -> SessionSummaryEntry:
    """The summary of a session with more entries of its main transcript, from the one before, which stays as
    it is. `mtime` is the store's business: it is taken over, or 0."""
    data: dict[str, object] = {} if previous is None else dict(previous["data"])
    for entry in entries:
        _fold(data, cast("Mapping[str, object]", entry))
    mtime = 0 if previous is None else previous["mtime"]
    return {"session_id": key["session_id"], "mtime": mtime, "data": data}


def _fold(data: dict[str, object], entry: Mapping[str, object]) -> None:
    data.setdefault("is_sidechain", entry.get("isSidechain") is True)
    if "created_at" not in data and (created := _milliseconds(entry.get("timestamp"))) is not None:
        data["created_at"] = created
    if "cwd" not in data and (cwd := _text(entry.get("cwd"))):
        data["cwd"] = cwd
    for theirs, ours in _LATEST.items():
        if value := _text(entry.get(theirs)):
            data[ours] = value
    if entry.get("type") == "tag":
        if tag := _text(entry.get("tag")):
            data["tag"] = tag
        else:
            data.pop("tag", None)
    if not data.get("first_prompt_locked"):
        _look_for_prompt(data, entry)


def _look_for_prompt(data: dict[str, object], entry: Mapping[str, object]) -> None:
    if entry.get("type") != "user" or entry.get("isMeta") or entry.get("isCompactSummary"):
        return
    for text in _texts(entry.get("message")):
        if found := _COMMAND.search(text):
            data.setdefault("command_fallback", found[1].strip())
        elif text.strip() and not _NO_PROMPT.match(text):
            prompt = text.replace("\n", " ").strip()
            cut = len(prompt) > _LONGEST_PROMPT
            data["first_prompt"] = prompt[:_LONGEST_PROMPT].rstrip() + "…" if cut else prompt
            data["first_prompt_locked"] = True
            return


def _texts(message: object) -> Iterator[str]:
    """The texts of a user's message; none if it answers the agent's tools."""
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
            yield from (text for block in blocks if (text := _text(block.get("text"))))


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""


def _milliseconds(timestamp: object) -> int | None:
    try:
        return int(datetime.fromisoformat(_text(timestamp)).timestamp() * 1000)
    except (ValueError, OverflowError):
        return None

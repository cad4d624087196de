"""Describes sessions for lists, from entries or a store's summary, and makes the entries that rename them.

Does not read files: `_disk.read` does.
"""

from __future__ import annotations

import re
import unicodedata
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final, cast
from uuid import uuid4

import msgspec

from outrider.errors import OptionsError
from outrider.transcripts._entries import decode_line, to_time
from outrider.transcripts._values import Bundle, StoredSession

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

    from outrider.transcripts.stores._base import SessionKey, SessionStoreEntry, SessionSummaryEntry
    from outrider.wire import JsonObject

# Facts of a session, entry by entry.

ARCHIVED: Final = "archived"
"""The type, and the field, of an entry that says whether its session is archived; the last one counts. On
disk, a note beside the file says it (`_disk`): lists do not see what is in the middle of a file."""

_LONGEST_PROMPT: Final = 200

_NO_PROMPT: Final = re.compile(
    r"\s*(?:<(?:local-command-stdout|session-start-hook|tick|goal)>|\[Request interrupted by user)"
)
"""What the program puts where a prompt of the user would be."""

_FROM_EDITOR: Final = ("ide_opened_file", "ide_selection")
"""What an editor adds; the user's own words may come after it."""

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


# Descriptions.

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


class _Line(Facts, gc=False):
    """Decoded from a line: what is said in it stays as it is."""

    message: msgspec.Raw = msgspec.Raw(b"")


_decode: Final = msgspec.json.Decoder(_Line).decode


def describe_entries(
    entries: Iterable[Mapping[str, object]],
    *,
    session_id: str,
    project: str,
    last_modified: datetime,
    in_lists: bool = True,
) -> StoredSession | None:
    """The session that has these entries, for a store that remembers nothing; None as `describe_data`."""
    data: dict[str, object] = {}
    for entry in entries:
        fold_facts(data, to_facts(entry))
    return describe_data(
        data, session_id=session_id, project=project, last_modified=last_modified, in_lists=in_lists
    )


def title_of(source: Bundle) -> str:
    """What a session is called: its title, or the first thing that was asked; empty if there is nothing."""
    described = describe_entries(
        source.entries, session_id=source.session_id, project=source.project, last_modified=_EPOCH
    )
    return "" if described is None else described.title


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
    """The session of which this is remembered. None for one that lists leave out, unless it is not for a
    list: a subagent's, or one in which nothing was said."""

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


# Titles, tags and notes.

_NOT_SHOWN: Final = ("Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp")
"""Kinds of characters that no one sees: control, format, half of a pair, private, unassigned, line ends."""

_PASSES: Final = 10


def check_title(title: object) -> str:
    """The title without space around it. Raises `OptionsError` if nothing is left."""
    if not isinstance(title, str):
        raise OptionsError(f"a title is a string, not {title!r}", hint="Give a str.")
    # A lone surrogate cannot be written.
    stripped = title.encode("utf-8", "replace").decode().strip()
    if not stripped:
        raise OptionsError(f"a title needs a visible character, unlike {title!r}", hint="Give some text.")
    return stripped


def check_tag(tag: object) -> str | None:
    """The tag in its plain form, without characters that cannot be seen; None clears it.

    Raises `OptionsError` if nothing is left.
    """
    if tag is None:
        return None
    if not isinstance(tag, str):
        raise OptionsError(f"a tag is a string, not {tag!r}", hint="Give a str, or None to clear it.")
    plain = without_unseen(tag, _NOT_SHOWN)
    if not plain:
        raise OptionsError(f"a tag needs a visible character, unlike {tag!r}", hint="Give None to clear it.")
    return plain


def without_unseen(text: str, categories: tuple[str, ...]) -> str:
    """The text in its plain form (NFKC), without space around it and characters of these categories."""
    for _ in range(_PASSES):
        # What is left may combine again.
        before = text
        text = unicodedata.normalize("NFKC", text)
        text = "".join(char for char in text if unicodedata.category(char) not in categories).strip()
        if text == before:
            break
    return text


def title_entry(session_id: str, title: str) -> JsonObject:
    return {"type": "custom-title", "customTitle": title, "sessionId": session_id}


def tag_entry(session_id: str, tag: str | None) -> JsonObject:
    return {"type": "tag", "tag": tag or "", "sessionId": session_id}


def archive_entry(session_id: str, *, archived: bool) -> JsonObject:
    """For stores; the program ignores it. On disk, `archived.json` in the session's folder says it."""
    return {"type": ARCHIVED, ARCHIVED: archived, "sessionId": session_id}


def dated(entry: JsonObject) -> JsonObject:
    """The entry with an id and a time, for stores: one that is sent again is kept once."""
    return {**entry, "uuid": str(uuid4()), "timestamp": now()}


def now() -> str:
    """The time as the program writes it."""
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%f")[:-3] + "Z"

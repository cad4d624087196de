"""Owns the entries that tell something about a session: title, tag, archive; and what may be in them.

Does not write them anywhere.
"""

from __future__ import annotations

import unicodedata
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final
from uuid import uuid4

from outrider.errors import OptionsError
from outrider.transcripts._summary import ARCHIVED

if TYPE_CHECKING:
    from outrider.wire import JsonObject

__all__ = [
    "archive_entry",
    "check_tag",
    "check_title",
    "dated",
    "now",
    "tag_entry",
    "title_entry",
]

_NOT_SHOWN: Final = ("Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp")
"""Kinds of characters that nobody sees: control, format, half of a pair, private, unassigned, line ends."""

_TAG_PASSES: Final = 10


def check_title(title: object) -> str:
    """The title without space around it. Raises `OptionsError` if nothing is left."""
    if not isinstance(title, str):
        raise OptionsError(f"a title is text, not {title!r}", hint="Give a str.")
    # A lone surrogate cannot be written.
    stripped = title.encode("utf-8", "replace").decode().strip()
    if not stripped:
        raise OptionsError(
            f"a title has to have a character that can be seen, unlike {title!r}", hint="Give some text."
        )
    return stripped


def check_tag(tag: object) -> str | None:
    """The tag in its plain form, without characters that cannot be seen; None clears it.

    Raises `OptionsError` if nothing is left.
    """
    if tag is None:
        return None
    if not isinstance(tag, str):
        raise OptionsError(f"a tag is text, not {tag!r}", hint="Give a str, or None to clear it.")
    plain = tag
    for _ in range(_TAG_PASSES):
        # What is left may combine anew.
        before = plain
        plain = unicodedata.normalize("NFKC", plain)
        plain = "".join(char for char in plain if unicodedata.category(char) not in _NOT_SHOWN).strip()
        if plain == before:
            break
    if not plain:
        raise OptionsError(
            f"a tag has to have a character that can be seen, unlike {tag!r}", hint="Give None to clear it."
        )
    return plain


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

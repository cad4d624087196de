"""Searches transcripts for the words that people see, not for their JSON.

Does not choose the sessions: `Disk.search` and `StoreSearch` do.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Final, cast

from outrider.errors import OptionsError
from outrider.transcripts._disk.files import SessionFile, agent_files, chunks, open_file
from outrider.transcripts._entries import TranscriptEntry, read_entry
from outrider.transcripts._values import SearchHit, StoredSession

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from outrider.wire import JsonObject

__all__ = ["Search", "words"]

_AROUND: Final = 40
"""So many characters of an excerpt are before what was found, and after it."""
_LONGEST: Final = 160
"""So many of what was found are in it."""

_TITLES: Final = {
    "custom-title": "customTitle",
    "ai-title": "aiTitle",
    "summary": "summary",
    "tag": "tag",
}
"""Where the words are in lines that are no messages."""

_PLAIN: Final = re.compile(r"[A-Za-z0-9 ,.;:!?()\[\]{}_=+*#@~^|$%-]+")
"""Characters that stand for themselves in JSON, but for those that somebody chose to escape."""

_ESCAPE: Final = b"\\u"
_OTHER_LETTERS: Final = tuple(letter.encode() for letter in "\u017f\u212a\u0131\u0130")
"""Those that are `s`, `k` or `i` where capitals do not count. Lines with one of these, or with an escape,
cannot be passed over by their bytes."""


class Search:
    """A text to look for. Raises `OptionsError` if there is none, or no regular expression."""

    def __init__(self, text: str, *, regex: bool, case_sensitive: bool, agents: bool) -> None:
        if not text:
            raise OptionsError("there is no text to search for", hint="Give one.")
        flags = re.NOFLAG if case_sensitive else re.IGNORECASE
        try:
            self._pattern = re.compile(text if regex else re.escape(text), flags)
        except (re.error, RecursionError, OverflowError) as error:
            raise OptionsError(
                f"{text!r} is no regular expression: {error}",
                hint="Correct it, or search for it as it is, with regex=False.",
            ) from error
        plain = [] if regex else _PLAIN.findall(text)
        self._bytes = max(plain, key=len, default="").encode()
        self._is_exact = case_sensitive
        if not case_sensitive:
            self._bytes = self._bytes.lower()
        self._with_agents = agents

    def run(
        self, sessions: Iterable[StoredSession], limit: int | None, is_over: Callable[[], bool]
    ) -> Iterator[SearchHit]:
        """The hits in sessions, no more than the limit, until it is over. What cannot be read is passed
        over."""
        if limit == 0:
            return
        count = 0
        for session in sessions:
            if is_over():
                return
            for hit in self._in_session(session, is_over):
                yield hit
                count += 1
                if count == limit:
                    return

    def _in_session(self, session: StoredSession, is_over: Callable[[], bool]) -> Iterator[SearchHit]:
        assert session.path is not None
        yield from self._in_file(session, session.path, None, is_over)
        if self._with_agents:
            file = SessionFile(session_id=session.id, project=session.project, path=session.path)
            for agent, path in agent_files(file).items():
                if is_over():
                    return
                yield from self._in_file(session, path, agent, is_over)

    def _in_file(
        self, session: StoredSession, path: Path, agent: str | None, is_over: Callable[[], bool]
    ) -> Iterator[SearchHit]:
        number = 0
        try:
            with open_file(path) as stream:
                for chunk in chunks(stream):
                    if is_over():
                        return
                    if not self.may_be_in(chunk):
                        number += chunk.count(b"\n")
                        continue
                    for line in chunk.removesuffix(b"\n").split(b"\n"):
                        number += 1
                        if self.may_be_in(line) and (hit := self.in_line(line)) is not None:
                            entry, excerpt = hit
                            yield SearchHit(
                                session=session,
                                entry=entry,
                                line_number=number,
                                excerpt=excerpt,
                                agent_id=agent,
                            )
        except OSError:
            return

    def may_be_in(self, data: bytes) -> bool:
        """Whether lines may hold it: a quick look at their bytes."""
        if not self._bytes or self._bytes in (data if self._is_exact else data.lower()) or _ESCAPE in data:
            return True
        if self._is_exact or data.isascii():
            return False
        # A single byte is found ten times as fast.
        return any(letter[:1] in data and letter in data for letter in _OTHER_LETTERS)

    def in_line(self, line: bytes) -> tuple[TranscriptEntry, str] | None:
        """The entry on a line, with the words around what was found in it."""
        entry = read_entry(line)
        excerpt = None if entry is None else self.excerpt(entry)
        return None if entry is None or excerpt is None else (entry, excerpt)

    def excerpt(self, entry: TranscriptEntry) -> str | None:
        """The words around what was found in an entry; None if it is not in it."""
        for text in words(entry):
            if found := self._pattern.search(text):
                return _excerpt(text, *found.span())
        return None


def words(entry: TranscriptEntry) -> Iterator[str]:
    """What people see of an entry: text, thoughts, what tools were given and what they said; titles."""
    if entry.is_meta:
        return
    if entry.type in _TITLES:
        if isinstance(title := entry.raw.get(_TITLES[entry.type]), str):
            yield title
    elif entry.type in ("user", "assistant"):
        message = entry.raw.get("message")
        if isinstance(message, dict):
            yield from _of_content(cast("JsonObject", message).get("content"))
    elif entry.type == "system":
        yield from _of_content(entry.raw.get("content"))


def _of_content(content: object) -> Iterator[str]:
    if isinstance(content, str):
        yield content
    elif isinstance(content, list):
        for block in cast("list[object]", content):
            if isinstance(block, dict):
                yield from _of_block(cast("JsonObject", block))


def _of_block(block: JsonObject) -> Iterator[str]:
    for name in ("text", "thinking", "name"):
        if isinstance(value := block.get(name), str):
            yield value
    yield from _texts(block.get("input"))
    yield from _of_content(block.get("content"))


def _texts(value: object) -> Iterator[str]:
    """All texts in what a tool was given; its own names for them are not words."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for item in cast("JsonObject", value).values():
            yield from _texts(item)
    elif isinstance(value, list):
        for item in cast("list[object]", value):
            yield from _texts(item)


def _excerpt(text: str, start: int, end: int) -> str:
    shown = min(end, start + _LONGEST)
    first, last = max(0, start - _AROUND), min(len(text), shown + _AROUND)
    before, after = "…" if first else "", "…" if last < len(text) else ""
    return before + " ".join(text[first:last].split()) + after

"""Defines `StoredSession`, `SessionQuery` and `SearchHit`, and validates the arguments of `Sessions`.

A line of a transcript is in `_entries`.
"""

from __future__ import annotations

import os
from collections import deque
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Literal, TypeAlias, TypeVar, cast
from uuid import UUID

import msgspec

from outrider.errors import OptionsError
from outrider.wire import JsonObject

if TYPE_CHECKING:
    from typing import NoReturn, Self

    from outrider.transcripts._entries import TranscriptEntry
    from outrider.transcripts._library.disk import DiskSearch
    from outrider.transcripts._library.store import StoreSearch
else:
    # For type checkers only: values can be made without loading entries.
    TranscriptEntry = object

StrPath: TypeAlias = str | os.PathLike[str]
T = TypeVar("T")


# Arguments.


def check_count(name: str, number: object, least: int = 0) -> None:
    if number is not None and (type(number) is not int or number < least):
        _refuse(name, number, f"Give a whole number, {least} or more.")


def check_text(name: str, text: object) -> None:
    if text is not None and not isinstance(text, str):
        _refuse(name, text, "Give a str.")


def check_choices(**values: object) -> None:
    """Each has to be True, False or None."""
    for name, value in values.items():
        if value is not None and not isinstance(value, bool):
            _refuse(name, value, "Give True, False or None.")


def check_time(name: str, time: object) -> None:
    if time is not None and not isinstance(time, datetime):
        _refuse(name, time, "Give a datetime.")


def check_folder(name: str, folder: StrPath | None) -> StrPath | None:
    """The folder, which need not be there."""
    if folder is None:
        return None
    try:
        path = cast("object", os.fspath(folder))
        is_path = isinstance(path, str) and path and b"\x00" not in os.fsencode(path)
    except (TypeError, UnicodeEncodeError):
        is_path = False
    if not is_path:
        _refuse(name, folder, "Give the path of a folder, '.' for this one.")
    return folder


def checked_id(session_id: str) -> str:
    """The id in lower case. Raises `OptionsError` if it is invalid: it becomes part of a path."""
    try:
        if str(UUID(session_id)) == session_id.lower():
            return session_id.lower()
    except (ValueError, AttributeError, TypeError):
        # Of no type that an id can have, or not in its form.
        pass
    raise OptionsError(
        f"the session's id cannot be {_shown(session_id)}",
        hint="Give a UUID, as `list` shows it (`info.id`).",
    )


def in_utc(time: datetime) -> datetime:
    """The time with a zone; local time if it has none."""
    try:
        return time.astimezone(UTC)
    except (OverflowError, ValueError, OSError):
        # The first and the last day that there is, for "always".
        return time.replace(tzinfo=UTC)


def _refuse(name: str, value: object, hint: str) -> NoReturn:
    raise OptionsError(f"{name} cannot be {_shown(value)}", hint=hint)


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 100 else f"{text[:100]}…"


# Values.


class StoredSession(msgspec.Struct, frozen=True, kw_only=True, repr_omit_defaults=True):
    """A session that is kept, on the agent's disk or in a store."""

    id: str
    project: str
    """The key of the project, as `project_key()` makes it from a folder."""
    title: str
    """What it is called in lists: the name that it was given, else one that the agent made up, else the last
    prompt, else a summary, else the first prompt."""
    custom_title: str | None = None
    """The name that it was given."""
    first_prompt: str | None = None
    """The beginning of it, on one line."""
    tag: str | None = None
    cwd: str | None = None
    """The folder that it was started in."""
    git_branch: str | None = None
    created_at: datetime | None = None
    """In UTC."""
    last_modified: datetime
    """In UTC."""
    size: int | None = None
    """In bytes; None in a store."""
    is_archived: bool = False
    path: Path | None = None
    """Its file; None in a store."""


class SessionQuery(msgspec.Struct, frozen=True, kw_only=True):
    """Filters for a list of sessions. Raises `OptionsError` for an invalid value."""

    project: StrPath | None = None
    """The folder that they were started in; None: any."""
    title: str | None = None
    """A part of the title, in capitals or not."""
    tag: str | None = None
    branch: str | None = None
    since: datetime | None = None
    """Not used last before this; local time if no zone is given."""
    until: datetime | None = None
    """Not used last after this."""
    archived: bool | None = False
    """True: only those that are; None: these too."""
    worktrees: bool = True
    """Those of the other git worktrees of the project's repository too."""
    limit: int | None = None
    offset: int = 0

    def __post_init__(self) -> None:
        check_folder("project", self.project)
        for name, text in (("title", self.title), ("tag", self.tag), ("branch", self.branch)):
            check_text(name, text)
        check_choices(archived=self.archived, worktrees=self.worktrees)
        check_count("limit", self.limit)
        check_count("offset", self.offset)
        check_time("since", self.since)
        check_time("until", self.until)
        if self.since is not None and self.until is not None and in_utc(self.since) > in_utc(self.until):
            raise OptionsError(
                f"since ({self.since}) is after until ({self.until})", hint="Give the earlier time as since."
            )

    def matches(self, info: StoredSession) -> bool:
        """Whether a session passes all filters but that for its project."""
        return (
            (self.archived is None or info.is_archived is self.archived)
            and (self.title is None or self.title.casefold() in info.title.casefold())
            and (self.tag is None or info.tag == self.tag)
            and (self.branch is None or info.git_branch == self.branch)
            and self.is_in_time(info.last_modified)
        )

    def is_in_time(self, last_modified: datetime) -> bool:
        """Whether a session that was last used at this time passes."""
        return (self.since is None or last_modified >= in_utc(self.since)) and (
            self.until is None or last_modified <= in_utc(self.until)
        )

    def page(self, found: list[StoredSession]) -> list[StoredSession]:
        """Of all that match, in order, those between `offset` and `limit`."""
        return found[self.offset : None if self.limit is None else self.offset + self.limit]


class MessageRange(msgspec.Struct, frozen=True, kw_only=True):
    """Selects messages of a session. Raises `OptionsError` for an invalid value."""

    agent: str | None = None
    """The subagent whose messages they are; None: the main conversation's."""
    history: Literal["compacted", "full"] = "compacted"
    last: int | None = None
    """So many from the end."""
    limit: int | None = None
    offset: int = 0
    """Both count from the beginning."""

    def __post_init__(self) -> None:
        check_text("agent", self.agent)
        check_count("last", self.last, 1)
        check_count("limit", self.limit)
        check_count("offset", self.offset)
        if self.last is not None and (self.limit is not None or self.offset):
            raise OptionsError("last cannot be given with limit or offset", hint="Give one or the other.")
        if self.history not in ("compacted", "full"):
            _refuse("history", self.history, "Give 'compacted' or 'full'.")

    def cut(self, found: list[T]) -> list[T]:
        """Of all messages, in order, those that are asked for."""
        if self.last is not None:
            return found[-self.last :]
        return found[self.offset : None if self.limit is None else self.offset + self.limit]


class SearchHit(msgspec.Struct, frozen=True, kw_only=True):
    """A line of a transcript in which a text was found."""

    session: StoredSession
    entry: TranscriptEntry
    line_number: int
    """In the file of the transcript, counted from 1."""
    excerpt: str
    """The words around it, on one line."""
    agent_id: str | None = None
    """The subagent in whose transcript it is; None: the main one."""


class Bundle(msgspec.Struct, kw_only=True):
    """Everything of one session."""

    session_id: str
    project: str
    """The key of the project."""
    entries: list[JsonObject]
    """The main transcript."""
    parts: dict[str, list[JsonObject]] = {}
    """The other transcripts, by subpath (`subagents/agent-a1`). The metadata of a subagent is an entry of the
    type `agent_metadata`, before its others."""


class Hits:
    """The hits of a search, as they are found: `async for hit in sessions.search("TODO")`.

    You may leave the loop early. If a wait is cancelled, the search is over.
    """

    def __init__(self, search: DiskSearch | StoreSearch) -> None:
        """Made by `Sessions.search`."""
        self._search = search
        self._found: deque[SearchHit] = deque()
        self._has_ended = False

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> SearchHit:
        if not self._found:
            self._found += await self._pulled()
        return self._found.popleft()

    def __del__(self) -> None:
        self._end()

    async def _pulled(self) -> list[SearchHit]:
        if self._has_ended:
            raise StopAsyncIteration
        # A search cannot continue after a failure or a cancellation.
        self._has_ended = True
        try:
            found = await self._search.pull()
        except BaseException:
            self._search.stop()
            raise
        if not found:
            raise StopAsyncIteration
        self._has_ended = False
        return found

    def _end(self) -> None:
        self._has_ended = True
        self._search.stop()

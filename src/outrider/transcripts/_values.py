"""Owns what is told of kept sessions: what a list says of one, a hit of a search, all of one, what to list.

Does not read anything; one line of a transcript is in `_entry`.
"""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from outrider.errors import OptionsError
from outrider.transcripts._arguments import (
    StrPath,
    check_choices,
    check_count,
    check_folder,
    check_text,
    check_time,
    in_utc,
)
from outrider.wire import JsonObject

if TYPE_CHECKING:
    from outrider.transcripts._entry import TranscriptEntry
else:
    TranscriptEntry = object

__all__ = ["Bundle", "SearchHit", "SessionQuery", "StoredSession"]


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
    """Which sessions are asked for. Raises `OptionsError` for a value that cannot be."""

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
        """Whether a session is asked for, by all but its project."""
        return (
            (self.archived is None or info.is_archived is self.archived)
            and (self.title is None or self.title.casefold() in info.title.casefold())
            and (self.tag is None or info.tag == self.tag)
            and (self.branch is None or info.git_branch == self.branch)
            and self.is_in_time(info.last_modified)
        )

    def is_in_time(self, last_modified: datetime) -> bool:
        """Whether a session that was used last at this time can be asked for."""
        return (self.since is None or last_modified >= in_utc(self.since)) and (
            self.until is None or last_modified <= in_utc(self.until)
        )

    def page(self, found: list[StoredSession]) -> list[StoredSession]:
        """Of all that match, in order, those between `offset` and `limit`."""
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
    """The other transcripts, by subpath (`subagents/agent-a1`). What is told of a subagent is an entry of the
    type `agent_metadata`, before its others."""

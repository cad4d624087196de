"""Owns what `Sessions` needs of a place that keeps sessions.

Does not keep any: the disk and the stores each have a form of it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from outrider.transcripts._arguments import StrPath
    from outrider.transcripts._chain import History
    from outrider.transcripts._entry import TranscriptEntry
    from outrider.transcripts._values import Bundle, SearchHit, SessionQuery, StoredSession
    from outrider.wire import JsonObject

__all__ = ["Library", "Puller"]


class Puller(Protocol):
    """Where hits of a search come from."""

    async def pull(self) -> list[SearchHit] | None:
        """Some more, at least one; None at the end."""
        ...

    def stop(self) -> None:
        """No more are wanted."""


class Library(Protocol):
    """A place that keeps sessions. Ids and values are checked by those who call.

    What is not there raises `SessionNotFound`. A project is a folder; None: wherever it is.
    """

    @property
    def place(self) -> str:
        """Which it is, for people to read."""
        ...

    async def list(self, query: SessionQuery) -> Sessions: ...

    async def info(self, session_id: str, project: StrPath | None) -> StoredSession: ...

    async def read(
        self,
        session_id: str,
        project: StrPath | None,
        *,
        agent: str | None,
        history: History,
        last: int | None,
        limit: int | None,
        offset: int,
    ) -> Entries: ...

    async def agents(self, session_id: str, project: StrPath | None) -> Names: ...

    def search(
        self,
        text: str,
        query: SessionQuery,
        *,
        regex: bool,
        case_sensitive: bool,
        agents: bool,
        limit: int | None,
    ) -> Puller: ...

    async def load(self, session_id: str, project: StrPath | None) -> Bundle:
        """All of it."""
        ...

    async def note(self, session_id: str, project: StrPath | None, entry: JsonObject) -> None:
        """Add an entry that tells something about the session."""
        ...

    async def archive(self, session_id: str, project: StrPath | None, *, archived: bool) -> None: ...

    async def delete(self, session_id: str, project: StrPath | None) -> None: ...

    async def put(self, bundle: Bundle, *, resume: bool = False, archived: bool = False) -> None:
        """Keep a new session, in the project that it names. Raises `SessionExists` if there is one of its id;
        to `resume`, if there is another one: what an earlier call could not finish is finished."""
        ...

    async def close(self) -> None: ...


if TYPE_CHECKING:
    # Within the class, `list` is a method.
    Sessions = list[StoredSession]
    Entries = list[TranscriptEntry]
    Names = list[str]

"""Defines `Sessions`, the API for kept sessions, wherever they are kept.

Does not read or write them: the libraries in `_library` do.
"""

from __future__ import annotations

import os
from datetime import datetime
from typing import TYPE_CHECKING, TypeAlias
from uuid import uuid4

from msgspec.structs import replace

from outrider._threads import run_sync
from outrider.errors import OptionsError, TranscriptError
from outrider.transcripts._chain import History
from outrider.transcripts._copies import forked, imported, renamed
from outrider.transcripts._describe import check_tag, check_title, tag_entry, title_entry
from outrider.transcripts._disk.files import project_key
from outrider.transcripts._disk.read import Search
from outrider.transcripts._entries import TranscriptEntry
from outrider.transcripts._export.turns import ExportFormat, check_format, exported
from outrider.transcripts._library.disk import DiskLibrary
from outrider.transcripts._values import (
    Bundle,
    Hits,
    MessageRange,
    SessionQuery,
    StoredSession,
    StrPath,
    check_choices,
    check_count,
    check_folder,
    check_text,
    checked_id,
)
from outrider.transcripts.stores._base import SessionStore

if TYPE_CHECKING:
    from types import TracebackType
    from typing import Self

    from outrider.transcripts._library.store import StoreLibrary

# Within the class, `list` is a method.
StoredSessions: TypeAlias = list[StoredSession]
TranscriptEntries: TypeAlias = list[TranscriptEntry]
AgentIds: TypeAlias = list[str]


class Sessions:
    """The sessions that Claude Code keeps on this machine, or those in a store.

        sessions = outrider.Sessions()
        for info in await sessions.list(project=".", limit=10):
            print(info.id, info.title)

    A session is named by its `info.id`. `project` is the folder that it was started in; it can be left out
    where the id is enough. A session that does not exist raises `SessionNotFound`, an invalid id
    `OptionsError`, and a store that fails `StoreError`. Sessions on disk can be read and changed while the
    agent writes to them: no line is lost. In a store, a session that an agent is writing to can only be read;
    changing it raises `SessionBusy`.

    May be used from several tasks. A store that was given as a URL or path is closed by `close`, or at the
    end of `async with Sessions(…)`; the disk needs neither.
    """

    def __init__(self, place: SessionStore | StrPath | None = None, *, config: StrPath | None = None) -> None:
        """`place` is a `SessionStore`, or a URL or path of one (see `open_store`).

        Without it, these are the sessions on this machine: in the folder `config`, by default the one that
        Claude Code would use. Raises `OptionsError` if there is no such store.
        """
        self._is_ours = False
        self._library: DiskLibrary | StoreLibrary
        if place is None:
            self._library = DiskLibrary(check_folder("config", config))
            return
        if config is not None:
            raise OptionsError(
                f"sessions are in a store or in a folder of Claude Code, not in both ({place!r}, {config!r})",
                hint="Give one of the two.",
            )
        from outrider.transcripts._library.store import StoreLibrary
        from outrider.transcripts.stores._urls import open_store

        self._library = StoreLibrary(open_store(place))
        self._is_ours = isinstance(place, (str, os.PathLike))

    def __repr__(self) -> str:
        return f"<Sessions in {self._library.place}>"

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Close the store, if it was given as a URL or path. May be called again."""
        if self._is_ours:
            await self._library.close()

    # Reading

    async def list(
        self,
        *,
        project: StrPath | None = None,
        title: str | None = None,
        tag: str | None = None,
        branch: str | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
        archived: bool | None = False,
        worktrees: bool = True,
        limit: int | None = None,
        offset: int = 0,
    ) -> StoredSessions:
        """List the sessions that match all filters, the most recently used first.

        `title` is a part of the title, in any case; `since` and `until` bound the time of last use, in local
        time unless they have a time zone. Archived sessions are left out; `archived=True` lists only them,
        and None lists all. `worktrees` includes the project's other git worktrees.

        Raises `OptionsError` for an invalid value, and for a store that cannot list sessions.
        """
        query = SessionQuery(
            project=project,
            title=title,
            tag=tag,
            branch=branch,
            since=since,
            until=until,
            archived=archived,
            worktrees=worktrees,
            limit=limit,
            offset=offset,
        )
        return await self._library.list(query)

    async def info(self, session_id: str, *, project: StrPath | None = None) -> StoredSession:
        """Return what `list` says about one session."""
        return await self._library.info(*_checked(session_id, project))

    async def read(
        self,
        session_id: str,
        *,
        agent: str | None = None,
        history: History = "compacted",
        last: int | None = None,
        limit: int | None = None,
        offset: int = 0,
        project: StrPath | None = None,
    ) -> TranscriptEntries:
        """Return the messages of a session, or of its subagent `agent`, in order.

        `last` takes that many from the end; `limit` and `offset` count from the beginning. If the
        conversation was compacted, a summary replaces what came before; `history="full"` includes that too.

        Raises `TranscriptError` if there is no such subagent.
        """
        wanted = MessageRange(agent=agent, history=history, last=last, limit=limit, offset=offset)
        return await self._library.read(*_checked(session_id, project), wanted)

    async def agents(self, session_id: str, *, project: StrPath | None = None) -> AgentIds:
        """Return the ids of a session's subagents."""
        return await self._library.agents(*_checked(session_id, project))

    def search(
        self,
        text: str,
        *,
        regex: bool = False,
        case_sensitive: bool = False,
        agents: bool = True,
        project: StrPath | None = None,
        title: str | None = None,
        tag: str | None = None,
        branch: str | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
        archived: bool | None = False,
        worktrees: bool = True,
        limit: int | None = None,
    ) -> Hits:
        """Search messages, tool calls, tool results and titles for a text or a regular expression. Sessions
        are chosen as by `list`, the most recently used first. `agents` includes the transcripts of subagents;
        `limit` is the number of hits.

            async for hit in sessions.search("TODO"):
                print(hit.session.title, hit.excerpt)

        Raises `OptionsError` for an invalid search.
        """
        if not isinstance(text, str):  # pyright: ignore[reportUnnecessaryIsInstance] - callers need not be typed
            raise OptionsError(f"there is nothing to search for in {text!r}", hint="Give some text.")
        query = SessionQuery(
            project=project,
            title=title,
            tag=tag,
            branch=branch,
            since=since,
            until=until,
            archived=archived,
            worktrees=worktrees,
        )
        check_count("limit", limit)
        search = Search(text, regex=regex, case_sensitive=case_sensitive, agents=agents)
        return Hits(self._library.search(search, query, limit))

    async def export(
        self,
        session_id: str,
        format: ExportFormat = "markdown",
        *,
        redact: bool | None = None,
        project: StrPath | None = None,
    ) -> str:
        """Export a session as `"markdown"`, `"html"` (one `article`, for a page of yours) or `"json"`, which
        `import_` reads.

        Markdown and HTML have secrets masked that are recognised by their shape or name, unless `redact` is
        False. JSON is the complete session, unless `redact` is True.
        """
        check_format(format)
        check_choices(redact=redact)
        if format == "json" and not isinstance(self._library, DiskLibrary):
            return await self._library.export_json(*_checked(session_id, project), redact=bool(redact))
        bundle = await self._library.load(*_checked(session_id, project))
        return await run_sync(lambda: exported(bundle, format, redact=redact), abandon_on_cancel=True)

    # Changing

    async def rename(self, session_id: str, title: str, *, project: StrPath | None = None) -> None:
        """Change the title of a session. Raises `OptionsError` for an empty title."""
        session_id, project = _checked(session_id, project)
        await self._library.note(session_id, project, title_entry(session_id, check_title(title)))

    async def tag(self, session_id: str, tag: str | None, *, project: StrPath | None = None) -> None:
        """Set the tag of a session; None removes it.

        The tag is normalized (NFKC), and invisible characters are removed. Raises `OptionsError` if nothing
        is left.
        """
        session_id, project = _checked(session_id, project)
        await self._library.note(session_id, project, tag_entry(session_id, check_tag(tag)))

    async def archive(self, session_id: str, *, project: StrPath | None = None) -> None:
        """Archive a session, so that lists leave it out. It can still be read and resumed; resuming it takes
        it out of the archive."""
        await self._library.archive(*_checked(session_id, project), archived=True)

    async def unarchive(self, session_id: str, *, project: StrPath | None = None) -> None:
        """Take a session out of the archive."""
        await self._library.archive(*_checked(session_id, project), archived=False)

    async def delete(self, session_id: str, *, project: StrPath | None = None) -> None:
        """Delete a session and its subagents' transcripts.

        Raises `TranscriptError` naming what is left if not everything could be deleted, and `UsageError` for
        a store that cannot delete.
        """
        await self._library.delete(*_checked(session_id, project))

    # Making

    async def fork(
        self,
        session_id: str,
        *,
        at: str | None = None,
        title: str | None = None,
        project: StrPath | None = None,
    ) -> str:
        """Copy a conversation to a new session, and return its id. The original does not change.

        The copy ends with the message `at` (the `uuid` of an entry), or has all messages. By default the
        title is that of the original with `(fork)`. Raises `OptionsError` if there is no such message.
        """
        name = None if title is None else check_title(title)
        check_text("at", at)
        new = str(uuid4())
        bundle = await self._library.load(*_checked(session_id, project))
        made = await run_sync(lambda: forked(bundle, new, at=at, title=name), abandon_on_cancel=True)
        await self._library.put(made)
        return new

    async def import_(self, source: StrPath, *, as_new: bool = False, project: StrPath | None = None) -> str:
        """Import a session and return its id. `source` is the path, or the text, of a JSON export or of a
        `.jsonl` transcript of Claude Code; its subagents are imported if their folder is beside it.

        The session belongs to the folder `project`, by default to the one that it was started in. `as_new`
        gives it a new id. Raises `SessionExists` if the id is taken, `OptionsError` if the source is not a
        session, and `TranscriptDamaged` if it cannot be read.
        """
        check_folder("project", project)
        bundle = await run_sync(imported, source, abandon_on_cancel=True)
        if as_new or not bundle.session_id:
            bundle = renamed(bundle, str(uuid4()))
        await self._library.put(_moved(bundle, project))
        return bundle.session_id

    async def copy(
        self,
        session_id: str,
        to: Sessions,
        *,
        project: StrPath | None = None,
        to_project: StrPath | None = None,
    ) -> None:
        """Copy a session and its subagents' transcripts to another place, such as a store.

            await sessions.copy(id, to=outrider.Sessions("postgresql://host/agents"))

        The copy belongs to the folder `to_project`, by default to the same project. If a copy was
        interrupted, calling this again completes it; a complete copy is left as it is. Raises `SessionExists`
        if there is another session with this id.
        """
        if not isinstance(to, Sessions):  # pyright: ignore[reportUnnecessaryIsInstance] - callers need not be typed
            raise OptionsError(
                f"a session cannot be copied to {to!r}", hint="Give Sessions(…) of that place."
            )
        session_id, project = _checked(session_id, project)
        check_folder("to_project", to_project)
        bundle = await self._library.load(session_id, project)
        is_archived = (await self._library.info(session_id, project)).is_archived
        moved = _moved(bundle, to_project)
        await to._library.put(moved, resume=True, archived=is_archived)


def _checked(session_id: str, project: StrPath | None) -> tuple[str, StrPath | None]:
    return checked_id(session_id), check_folder("project", project)


def _moved(bundle: Bundle, project: StrPath | None) -> Bundle:
    key = bundle.project if project is None else project_key(project)
    if not key:
        raise OptionsError("the folder that the session was started in is not known", hint="Give project=.")
    if not bundle.entries:
        raise TranscriptError(
            f"the session {bundle.session_id} has nothing in it", hint="Choose a session that has messages."
        )
    return replace(bundle, project=key)

"""Defines `Sessions`, the API for kept sessions, wherever they are kept.

Does not read or write them: the libraries in `_library` do.
"""

from __future__ import annotations

import os
from datetime import datetime
from typing import TYPE_CHECKING, TypeAlias
from uuid import uuid4

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
    """Sessions that are kept: on this machine, by the agent's program, or in a store.

        sessions = outrider.Sessions()
        for info in await sessions.list(project=".", limit=10):
            print(info.id, info.title)

    An id is that of `info.id`; `project` is a folder, that in which a session was started, and need not be
    given where the id is enough. What is not there raises `SessionNotFound`, an id that is none
    `OptionsError`, and what a store cannot do `StoreError`. On disk, reading and writing may go on while the
    agent writes: no line is lost. In a store, a session that an agent is writing to is only read: the rest
    raises `SessionBusy`.

    May be used from several tasks. A store that was given as URL or path is closed by `close`, or by leaving
    the block `async with Sessions(…)`; the disk needs neither.
    """

    def __init__(self, place: SessionStore | StrPath | None = None, *, config: StrPath | None = None) -> None:
        """Sessions in a `SessionStore`, or in the one that a URL or a path stands for (see `open_store`).

        With no place, those on this machine: in the folder `config`, or in the one that the program would
        use. Raises `OptionsError` if there is no such store.
        """
        self._is_ours = False
        self._library: DiskLibrary | StoreLibrary
        if place is None:
            self._library = DiskLibrary(check_folder("config", config))
            return
        if config is not None:
            raise OptionsError(
                f"sessions are in a store or in a folder of the program, not in both ({place!r}, {config!r})",
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
        """Close the store, if it was given as URL or path. A second time does nothing."""
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
        """The sessions that match all that is given, those used last first.

        `title` is a part of the title, in capitals or not; `since` and `until` are about the last use, in
        local time if no zone is given. Archived ones are left out; with `archived=True` they are listed
        alone, with None among the others. `worktrees`: those of the project's other git worktrees too.

        Raises `OptionsError` for a value that cannot be, and for a store that cannot list.
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
        """What a list says of a session."""
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
        """The messages of a session, first to last; of its subagent, if one is given as `agent`.

        `last`: that many from the end; `limit` and `offset` count from the beginning. Where the conversation
        was compacted, a summary stands for what came before; with `history="full"` that is there too.

        Raises `TranscriptError` if there is no such subagent.
        """
        wanted = MessageRange(agent=agent, history=history, last=last, limit=limit, offset=offset)
        return await self._library.read(*_checked(session_id, project), wanted)

    async def agents(self, session_id: str, *, project: StrPath | None = None) -> AgentIds:
        """The ids of the subagents that a session had."""
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
        """Look for a text, or for what a regular expression matches, in what was said, in calls of tools and
        their results, in titles. Sessions are chosen as by `list`, and those used last come first; `agents`:
        in what subagents said too; `limit`: so many hits.

            async for hit in sessions.search("TODO"):
                print(hit.session.title, hit.excerpt)

        Raises `OptionsError` for what cannot be searched for.
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
        """A session as text: `"markdown"`, `"html"` (one `article`, for a page of yours) or `"json"`, which
        `import_` reads.

        In Markdown and HTML, secrets are masked that are known by their shape or their name, unless `redact`
        is False; JSON is the whole session as it is, unless `redact` is True.
        """
        check_format(format)
        check_choices(redact=redact)
        bundle = await self._library.load(*_checked(session_id, project))
        return await run_sync(lambda: exported(bundle, format, redact=redact), abandon_on_cancel=True)

    # Changing

    async def rename(self, session_id: str, title: str, *, project: StrPath | None = None) -> None:
        """Give a session another title. Raises `OptionsError` for an empty one."""
        session_id, project = _checked(session_id, project)
        await self._library.note(session_id, project, title_entry(session_id, check_title(title)))

    async def tag(self, session_id: str, tag: str | None, *, project: StrPath | None = None) -> None:
        """Give a session a tag, in place of the one that it has; None: none.

        It is kept in the plainest form of its characters (NFKC), without those that cannot be seen. Raises
        `OptionsError` if nothing is left of it.
        """
        session_id, project = _checked(session_id, project)
        await self._library.note(session_id, project, tag_entry(session_id, check_tag(tag)))

    async def archive(self, session_id: str, *, project: StrPath | None = None) -> None:
        """Put a session away: lists leave it out. It can be read and resumed as before; the program takes one
        out again that it goes on with."""
        await self._library.archive(*_checked(session_id, project), archived=True)

    async def unarchive(self, session_id: str, *, project: StrPath | None = None) -> None:
        """Have a session in lists again."""
        await self._library.archive(*_checked(session_id, project), archived=False)

    async def delete(self, session_id: str, *, project: StrPath | None = None) -> None:
        """Remove a session, with its subagents' transcripts.

        Raises `TranscriptError` with what is left if not all could be removed, and `UsageError` for a store
        that cannot delete.
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
        """Make a new session with the conversation of another one, which stays as it is; gives the new id.

        The conversation goes up to the message `at` (the `uuid` of an entry) and with it, or is all of it.
        The title is that of the other with `(fork)`, if none is given. Raises `OptionsError` if there is no
        such message.
        """
        name = None if title is None else check_title(title)
        check_text("at", at)
        new = str(uuid4())
        bundle = await self._library.load(*_checked(session_id, project))
        made = await run_sync(lambda: forked(bundle, new, at=at, title=name), abandon_on_cancel=True)
        await self._library.put(made)
        return new

    async def import_(self, source: StrPath, *, as_new: bool = False, project: StrPath | None = None) -> str:
        """Take a session in, and give its id: a JSON export, or a `.jsonl` transcript of the program, with
        the folder of its subagents if that is beside it. `source` is a path, or the text itself.

        It becomes a session of the folder `project`, else of the one that it was of. With `as_new` it gets an
        id of its own. Raises `SessionExists` if there is one of its id, `OptionsError` for what is no
        session, and `TranscriptDamaged` for one that cannot be read.
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
        """Copy a session to another place, with its subagents' transcripts: to a store, and from there to
        another machine.

            await sessions.copy(id, to=outrider.Sessions("postgresql://host/agents"))

        There it is of the folder `to_project`, else of the same project as here. A copy that was cut short is
        finished by another call; one that is there already is left as it is. Raises `SessionExists` if there
        is another session of this id.
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
        raise OptionsError("it is not told which folder the session was started in", hint="Give project=.")
    if not bundle.entries:
        raise TranscriptError(
            f"the session {bundle.session_id} has nothing in it", hint="Take one that something was said in."
        )
    return Bundle(session_id=bundle.session_id, project=key, entries=bundle.entries, parts=bundle.parts)

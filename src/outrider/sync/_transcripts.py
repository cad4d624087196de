"""Sessions that are kept, without `await`.

Written by `scripts/sync_surface.py`: run that instead of changing it.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from types import TracebackType
from typing import Self, cast

from outrider.sync._portal import Wrapper, portal, wrap
from outrider.transcripts import _sessions, _values
from outrider.transcripts._chain import History
from outrider.transcripts._export.turns import ExportFormat
from outrider.transcripts._sessions import AgentIds, StoredSessions, TranscriptEntries
from outrider.transcripts._values import SearchHit, StoredSession, StrPath
from outrider.transcripts.stores._base import SessionStore


class Hits(Wrapper):
    """The hits of a search, as they are found: `for hit in sessions.search("TODO")`.

    Whoever leaves the loop early has nothing to do. If a wait is cancelled, the search is over.
    """

    @property
    def _async(self) -> _values.Hits:
        return cast(_values.Hits, self._wrapped)

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> SearchHit:
        return self._wait(self._async.__anext__)


class Sessions(Wrapper):
    """Sessions that are kept: on this machine, by the agent's program, or in a store.

        sessions = outrider.sync.Sessions()
        for info in sessions.list(project=".", limit=10):
            print(info.id, info.title)

    An id is that of `info.id`; `project` is a folder, that in which a session was started, and need not be
    given where the id is enough. What is not there raises `SessionNotFound`, an id that is none
    `OptionsError`, and what a store cannot do `StoreError`. On disk, reading and writing may go on while the
    agent writes: no line is lost. In a store, a session that an agent is writing to is only read: the rest
    raises `SessionBusy`.

    May be used from several threads. A store that was given as URL or path is closed by `close`, or by
    leaving the block `with Sessions(…)`; the disk needs neither.
    """

    @property
    def _async(self) -> _sessions.Sessions:
        return cast(_sessions.Sessions, self._wrapped)

    def __init__(self, place: SessionStore | StrPath | None = None, *, config: StrPath | None = None) -> None:
        """Sessions in a `SessionStore`, or in the one that a URL or a path stands for (see `open_store`).

        With no place, those on this machine: in the folder `config`, or in the one that the program would
        use. Raises `OptionsError` if there is no such store.
        """
        loop = portal()
        super().__init__(
            loop.read(cast("Callable[..., object]", _sessions.Sessions), place, config=config), loop
        )

    def __repr__(self) -> str:
        return self._read(self._async.__repr__)

    def __enter__(self) -> Self:
        self._enter(self._async)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._wait(self._async.__aexit__, kind, error, trace)

    def close(self) -> None:
        """Close the store, if it was given as URL or path. A second time does nothing."""
        self._wait(self._async.close)

    def list(
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
        return self._wait(
            self._async.list,
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

    def info(self, session_id: str, *, project: StrPath | None = None) -> StoredSession:
        """What a list says of a session."""
        return self._wait(self._async.info, session_id, project=project)

    def read(
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
        return self._wait(
            self._async.read,
            session_id,
            agent=agent,
            history=history,
            last=last,
            limit=limit,
            offset=offset,
            project=project,
        )

    def agents(self, session_id: str, *, project: StrPath | None = None) -> AgentIds:
        """The ids of the subagents that a session had."""
        return self._wait(self._async.agents, session_id, project=project)

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

            for hit in sessions.search("TODO"):
                print(hit.session.title, hit.excerpt)

        Raises `OptionsError` for what cannot be searched for.
        """
        return wrap(
            Hits,
            self._read(
                self._async.search,
                text,
                regex=regex,
                case_sensitive=case_sensitive,
                agents=agents,
                project=project,
                title=title,
                tag=tag,
                branch=branch,
                since=since,
                until=until,
                archived=archived,
                worktrees=worktrees,
                limit=limit,
            ),
            self._portal,
        )

    def export(
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
        return self._wait(self._async.export, session_id, format, redact=redact, project=project)

    def rename(self, session_id: str, title: str, *, project: StrPath | None = None) -> None:
        """Give a session another title. Raises `OptionsError` for an empty one."""
        self._wait(self._async.rename, session_id, title, project=project)

    def tag(self, session_id: str, tag: str | None, *, project: StrPath | None = None) -> None:
        """Give a session a tag, in place of the one that it has; None: none.

        It is kept in the plainest form of its characters (NFKC), without those that cannot be seen. Raises
        `OptionsError` if nothing is left of it.
        """
        self._wait(self._async.tag, session_id, tag, project=project)

    def archive(self, session_id: str, *, project: StrPath | None = None) -> None:
        """Put a session away: lists leave it out. It can be read and resumed as before; the program takes one
        out again that it goes on with.
        """
        self._wait(self._async.archive, session_id, project=project)

    def unarchive(self, session_id: str, *, project: StrPath | None = None) -> None:
        """Have a session in lists again."""
        self._wait(self._async.unarchive, session_id, project=project)

    def delete(self, session_id: str, *, project: StrPath | None = None) -> None:
        """Remove a session, with its subagents' transcripts.

        Raises `TranscriptError` with what is left if not all could be removed, and `UsageError` for a store
        that cannot delete.
        """
        self._wait(self._async.delete, session_id, project=project)

    def fork(
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
        return self._wait(self._async.fork, session_id, at=at, title=title, project=project)

    def import_(self, source: StrPath, *, as_new: bool = False, project: StrPath | None = None) -> str:
        """Take a session in, and give its id: a JSON export, or a `.jsonl` transcript of the program, with
        the folder of its subagents if that is beside it. `source` is a path, or the text itself.

        It becomes a session of the folder `project`, else of the one that it was of. With `as_new` it gets an
        id of its own. Raises `SessionExists` if there is one of its id, `OptionsError` for what is no
        session, and `TranscriptDamaged` for one that cannot be read.
        """
        return self._wait(self._async.import_, source, as_new=as_new, project=project)

    def copy(
        self,
        session_id: str,
        to: Sessions,
        *,
        project: StrPath | None = None,
        to_project: StrPath | None = None,
    ) -> None:
        """Copy a session to another place, with its subagents' transcripts: to a store, and from there to
        another machine.

            sessions.copy(id, to=outrider.sync.Sessions("postgresql://host/agents"))

        There it is of the folder `to_project`, else of the same project as here. A copy that was cut short is
        finished by another call; one that is there already is left as it is. Raises `SessionExists` if there
        is another session of this id.
        """
        self._wait(self._async.copy, session_id, to._async, project=project, to_project=to_project)

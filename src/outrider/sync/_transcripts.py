"""Sessions that are kept, without `await`.

Written by `scripts/sync_surface.py`: run that instead of changing it.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from types import TracebackType
from typing import Self, cast

from outrider.sync._portal import Wrapper, portal
from outrider.transcripts import _sessions, _values
from outrider.transcripts._chain import History
from outrider.transcripts._export.turns import ExportFormat
from outrider.transcripts._sessions import AgentIds, StoredSessions, TranscriptEntries
from outrider.transcripts._values import SearchHit, StoredSession, StrPath
from outrider.transcripts.stores._base import SessionStore


class Hits(Wrapper):
    """The hits of a search, as they are found: `for hit in sessions.search("TODO")`.

    You may leave the loop early. If a wait is cancelled, the search is over.
    """

    _async: _values.Hits

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> SearchHit:
        return self._wait(self._async.__anext__)


class Sessions(Wrapper):
    """The sessions that Claude Code keeps on this machine, or those in a store.

        sessions = outrider.sync.Sessions()
        for info in sessions.list(project=".", limit=10):
            print(info.id, info.title)

    A session is named by its `info.id`. `project` is the folder that it was started in; it can be left out
    where the id is enough. A session that does not exist raises `SessionNotFound`, an invalid id
    `OptionsError`, and a store that fails `StoreError`. Sessions on disk can be read and changed while the
    agent writes to them: no line is lost. In a store, a session that an agent is writing to can only be read;
    changing it raises `SessionBusy`.

    May be used from several threads. A store that was given as a URL or path is closed by `close`, or at the
    end of `with Sessions(…)`; the disk needs neither.
    """

    _async: _sessions.Sessions

    def __init__(self, place: SessionStore | StrPath | None = None, *, config: StrPath | None = None) -> None:
        """`place` is a `SessionStore`, or a URL or path of one (see `open_store`).

        Without it, these are the sessions on this machine: in the folder `config`, by default the one that
        Claude Code would use. Raises `OptionsError` if there is no such store.
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
        """Close the store, if it was given as a URL or path. May be called again."""
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
        """List the sessions that match all filters, the most recently used first.

        `title` is a part of the title, in any case; `since` and `until` bound the time of last use, in local
        time unless they have a time zone. Archived sessions are left out; `archived=True` lists only them,
        and None lists all. `worktrees` includes the project's other git worktrees.

        Raises `OptionsError` for an invalid value, and for a store that cannot list sessions.
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
        """Return what `list` says about one session."""
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
        """Return the messages of a session, or of its subagent `agent`, in order.

        `last` takes that many from the end; `limit` and `offset` count from the beginning. If the
        conversation was compacted, a summary replaces what came before; `history="full"` includes that too.

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
        """Return the ids of a session's subagents."""
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
        """Search messages, tool calls, tool results and titles for a text or a regular expression. Sessions
        are chosen as by `list`, the most recently used first. `agents` includes the transcripts of subagents;
        `limit` is the number of hits.

            for hit in sessions.search("TODO"):
                print(hit.session.title, hit.excerpt)

        Raises `OptionsError` for an invalid search.
        """
        return self._wrap(
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
        )

    def export(
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
        return self._wait(self._async.export, session_id, format, redact=redact, project=project)

    def rename(self, session_id: str, title: str, *, project: StrPath | None = None) -> None:
        """Change the title of a session. Raises `OptionsError` for an empty title."""
        self._wait(self._async.rename, session_id, title, project=project)

    def tag(self, session_id: str, tag: str | None, *, project: StrPath | None = None) -> None:
        """Set the tag of a session; None removes it.

        The tag is normalized (NFKC), and invisible characters are removed. Raises `OptionsError` if nothing
        is left.
        """
        self._wait(self._async.tag, session_id, tag, project=project)

    def archive(self, session_id: str, *, project: StrPath | None = None) -> None:
        """Archive a session, so that lists leave it out. It can still be read and resumed; resuming it takes
        it out of the archive.
        """
        self._wait(self._async.archive, session_id, project=project)

    def unarchive(self, session_id: str, *, project: StrPath | None = None) -> None:
        """Take a session out of the archive."""
        self._wait(self._async.unarchive, session_id, project=project)

    def delete(self, session_id: str, *, project: StrPath | None = None) -> None:
        """Delete a session and its subagents' transcripts.

        Raises `TranscriptError` naming what is left if not everything could be deleted, and `UsageError` for
        a store that cannot delete.
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
        """Copy a conversation to a new session, and return its id. The original does not change.

        The copy ends with the message `at` (the `uuid` of an entry), or has all messages. By default the
        title is that of the original with `(fork)`. Raises `OptionsError` if there is no such message.
        """
        return self._wait(self._async.fork, session_id, at=at, title=title, project=project)

    def import_(self, source: StrPath, *, as_new: bool = False, project: StrPath | None = None) -> str:
        """Import a session and return its id. `source` is the path, or the text, of a JSON export or of a
        `.jsonl` transcript of Claude Code; its subagents are imported if their folder is beside it.

        The session belongs to the folder `project`, by default to the one that it was started in. `as_new`
        gives it a new id. Raises `SessionExists` if the id is taken, `OptionsError` if the source is not a
        session, and `TranscriptDamaged` if it cannot be read.
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
        """Copy a session and its subagents' transcripts to another place, such as a store.

            sessions.copy(id, to=outrider.sync.Sessions("postgresql://host/agents"))

        The copy belongs to the folder `to_project`, by default to the same project. If a copy was
        interrupted, calling this again completes it; a complete copy is left as it is. Raises `SessionExists`
        if there is another session with this id.
        """
        self._wait(self._async.copy, session_id, to._async, project=project, to_project=to_project)

"""Owns the sessions in a store: what can be done with a few methods of one, with few calls.

Does not keep anything; the store does. Lists are in `_store_listing`.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

from outrider._threads import run_sync
from outrider.errors import OptionsError, SessionNotFound, TranscriptError, UsageError
from outrider.transcripts._chain import conversation
from outrider.transcripts._describing import describe_data
from outrider.transcripts._disk._searching import Search
from outrider.transcripts._entry import to_entry, to_time
from outrider.transcripts._forking import agents_in
from outrider.transcripts._metadata import archive_entry, dated
from outrider.transcripts._places import project_key
from outrider.transcripts._same import says_archived
from outrider.transcripts._store_calls import StoreCalls, to_key
from outrider.transcripts._store_listing import describe, listed, rows_of
from outrider.transcripts._store_putting import put
from outrider.transcripts._store_search import StoreSearch
from outrider.transcripts._summary import fold_facts, to_facts
from outrider.transcripts._values import Bundle
from outrider.transcripts._worktrees import worktrees

if TYPE_CHECKING:
    from outrider.transcripts._arguments import StrPath
    from outrider.transcripts._chain import History
    from outrider.transcripts._entry import TranscriptEntry
    from outrider.transcripts._store import SessionStore
    from outrider.transcripts._values import SessionQuery, StoredSession
    from outrider.wire import JsonObject

__all__ = ["StoreLibrary"]

_AGENTS: Final = "subagents/"


class StoreLibrary:
    """The sessions in a store."""

    def __init__(self, store: SessionStore) -> None:
        self._store = StoreCalls(store)

    @property
    def place(self) -> str:
        return self._store.name

    async def list(self, query: SessionQuery) -> _Sessions:
        return await listed(self._store, await self._projects(query), query)

    async def info(self, session_id: str, project: StrPath | None) -> StoredSession:
        key = await self._find(session_id, project)
        if self._store.offers("list_sessions") or self._store.offers("list_session_summaries"):
            for row in await rows_of(self._store, key):
                if row.session_id == session_id and (info := await describe(self._store, row)) is not None:
                    return info
        entries = await self._load(key, session_id)
        told = [time for entry in reversed(entries) if (time := to_time(entry.get("timestamp"))) is not None]
        last = told[0] if told else datetime.fromtimestamp(0, UTC)
        data: dict[str, object] = {}
        for entry in entries:
            fold_facts(data, to_facts(entry))
        info = describe_data(data, session_id=session_id, project=key, last_modified=last, in_lists=False)
        assert info is not None
        return info

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
    ) -> _Entries:
        key = await self._find(session_id, project)
        if agent is None:
            entries = await self._load(key, session_id)
        else:
            entries = await self._load_agent(key, session_id, agent)

        def chained() -> _Entries:
            told = (to_entry(entry) for entry in entries)
            found = conversation(told, history=history, agent=agent is not None)
            if last is not None:
                found = found[len(found) - last if last < len(found) else 0 :]
            return found[offset : None if limit is None else offset + limit]

        return await run_sync(chained, abandon_on_cancel=True)

    async def agents(self, session_id: str, project: StrPath | None) -> _Names:
        key = await self._find(session_id, project)
        parts = await self._subpaths(key, session_id)
        return sorted(_agent_of(part) for part in parts if part.startswith(_AGENTS))

    def search(
        self,
        text: str,
        query: SessionQuery,
        *,
        regex: bool,
        case_sensitive: bool,
        agents: bool,
        limit: int | None,
    ) -> StoreSearch:
        search = Search(text, regex=regex, case_sensitive=case_sensitive, agents=agents)
        return StoreSearch(self, search, query, agents=agents, limit=limit)

    async def load(self, session_id: str, project: StrPath | None) -> Bundle:
        return await self.load_at(await self._find(session_id, project), session_id)

    async def load_at(self, key: str, session_id: str) -> Bundle:
        """All of a session whose project is known by its key."""
        entries = await self._load(key, session_id)
        subpaths = await self._subpaths(key, session_id, entries)
        parts = await self._store.each(lambda part: self._store.load(to_key(key, session_id, part)), subpaths)
        return Bundle(
            session_id=session_id,
            project=key,
            entries=entries,
            parts={subpath: part for subpath, part in zip(subpaths, parts, strict=True) if part},
        )

    async def note(self, session_id: str, project: StrPath | None, entry: JsonObject) -> None:
        key = await self._find(session_id, project, strict=True)
        await self._store.append(to_key(key, session_id), [dated(entry)])

    async def archive(self, session_id: str, project: StrPath | None, *, archived: bool) -> None:
        await self.note(session_id, project, archive_entry(session_id, archived=archived))

    async def delete(self, session_id: str, project: StrPath | None) -> None:
        if not self._store.offers("delete"):
            raise UsageError(
                f"the store {self._store.name} cannot delete sessions", hint="Give it a method `delete`."
            )
        key = await self._find(session_id, project, strict=True)
        await self._store.delete(to_key(key, session_id))

    async def put(self, bundle: Bundle, *, resume: bool = False, archived: bool = False) -> None:
        await put(self._store, bundle, resume=resume)
        if archived:
            entries = await self._load(bundle.project, bundle.session_id)
            if not says_archived(entries):
                note = archive_entry(bundle.session_id, archived=True)
                await self._store.append(to_key(bundle.project, bundle.session_id), [dated(note)])

    async def close(self) -> None:
        await self._store.close()

    # Finding

    async def _projects(self, query: SessionQuery) -> _Names:
        if query.project is not None:
            others = await _other_worktrees(query.project) if query.worktrees else []
            return sorted({project_key(query.project), *others})
        if not self._store.offers("list_projects"):
            raise OptionsError(
                f"the store {self._store.name} cannot tell which projects there are", hint="Give project=."
            )
        return await self._store.list_projects()

    async def _find(self, session_id: str, project: StrPath | None, *, strict: bool = False) -> str:
        """The key of the project that a session is in; with `strict` there may be one only."""
        if project is not None:
            key = project_key(project)
            if await self._exists(key, session_id):
                return key
            others = await _other_worktrees(project)
            for other in others:
                if await self._exists(other, session_id):
                    return other
            raise SessionNotFound(session_id, searched=[key, *others])
        found = await self._everywhere(session_id)
        if not found:
            raise SessionNotFound(session_id, searched=[self._store.name])
        if len(found) == 1:
            return found[0]
        if strict or not self._store.offers("list_sessions"):
            raise OptionsError(
                f"the session {session_id} is in several projects: {', '.join(sorted(found))}",
                hint="Give project=.",
            )
        times = {
            row["mtime"]: key
            for key in found
            for row in await self._store.list_sessions(key)
            if row["session_id"] == session_id
        }
        return times[max(times)] if times else found[0]

    async def _everywhere(self, session_id: str) -> _Names:
        if self._store.offers("find_session"):
            return await self._store.find_session(session_id)
        if not (self._store.offers("list_projects") and self._store.offers("list_sessions")):
            raise OptionsError(
                f"the store {self._store.name} cannot find a session without its project",
                hint="Give project=, the folder that it was started in.",
            )
        keys = await self._store.list_projects()
        found = await self._store.each(lambda key: self._exists(key, session_id), keys)
        return [key for key, is_there in zip(keys, found, strict=True) if is_there]

    async def _exists(self, key: str, session_id: str) -> bool:
        if self._store.offers("find_session"):
            return key in await self._store.find_session(session_id)
        if self._store.offers("list_sessions"):
            return any(row["session_id"] == session_id for row in await self._store.list_sessions(key))
        return bool(await self._store.load(to_key(key, session_id)))

    # Loading

    async def _load(self, key: str, session_id: str) -> _Objects:
        entries = await self._store.load(to_key(key, session_id))
        if not entries:
            raise SessionNotFound(session_id, searched=[key])
        return entries

    async def _load_agent(self, key: str, session_id: str, agent: str) -> _Objects:
        parts = await self._subpaths(key, session_id)
        for part in parts:
            if part.startswith(_AGENTS) and _agent_of(part) == agent:
                return await self._store.load(to_key(key, session_id, part))
        known = ", ".join(sorted(map(_agent_of, parts))) or "it has none"
        raise TranscriptError(
            f"the session has no subagent {agent!r}",
            hint=f"Its subagents: {known}.",
            session_id=session_id,
        )

    async def _subpaths(self, key: str, session_id: str, entries: _Objects | None = None) -> _Names:
        if self._store.offers("list_subkeys"):
            return sorted(await self._store.list_subkeys(to_key(key, session_id)))
        # What can be known without: those whose results are in the transcript.
        told = entries if entries is not None else await self._load(key, session_id)
        parts = [f"{_AGENTS}agent-{agent}" for agent in sorted(agents_in(told))]
        loaded = await self._store.each(lambda part: self._store.load(to_key(key, session_id, part)), parts)
        return [part for part, found in zip(parts, loaded, strict=True) if found]


async def _other_worktrees(project: StrPath) -> list[str]:
    """The keys of the projects that are other worktrees of the same repository."""
    folders = await run_sync(worktrees, project, abandon_on_cancel=True)
    return sorted({project_key(folder) for folder in folders} - {project_key(project)})


def _agent_of(subpath: str) -> str:
    return subpath.rpartition("/")[2].removeprefix("agent-")


if TYPE_CHECKING:
    # Within the class, `list` is a method.
    _Sessions = list[StoredSession]
    _Entries = list[TranscriptEntry]
    _Names = list[str]
    _Objects = list[JsonObject]

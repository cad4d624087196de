"""Gives access to the sessions in a store, with as few calls as its methods allow.

Does not keep anything: the stores in `outrider.transcripts.stores` do.
"""

from __future__ import annotations

import hashlib
import logging
import os
import socket
from contextlib import aclosing, asynccontextmanager, suppress
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Final
from uuid import UUID, uuid5

import anyio
import msgspec

from outrider._threads import run_sync
from outrider.errors import (
    OptionsError,
    OutriderError,
    SessionExists,
    SessionNotFound,
    TranscriptError,
    UsageError,
)
from outrider.transcripts._chain import conversation, is_chained, last_messages
from outrider.transcripts._copies import agents_in, left_of, says_archived
from outrider.transcripts._describe import (
    archive_entry,
    dated,
    describe_data,
    describe_entries,
    from_milliseconds,
)
from outrider.transcripts._disk.files import check_subpath, project_key, worktrees
from outrider.transcripts._disk.read import Search
from outrider.transcripts._entries import to_entry, to_line, to_time
from outrider.transcripts._export.turns import JsonExport
from outrider.transcripts._values import Bundle, SearchHit, StoredSession, in_utc
from outrider.transcripts.stores._blocking import StoreCalls, to_key

if TYPE_CHECKING:
    from collections.abc import (
        AsyncGenerator,
        Awaitable,
        Callable,
        Iterator,
        Mapping,
        Sequence,
    )

    from outrider.transcripts._entries import TranscriptEntry
    from outrider.transcripts._values import MessageRange, SessionQuery, StrPath
    from outrider.transcripts.stores._base import SessionStore
    from outrider.wire import JsonObject

    # In the library, `list` is a method.
    _Sessions = list[StoredSession]
    _Entries = list[TranscriptEntry]
    _Names = list[str]
    _Objects = list[JsonObject]

log = logging.getLogger("outrider.transcripts")


# Lists.


class Row(msgspec.Struct, frozen=True):
    """A session in a list that may not be described yet."""

    project: str
    session_id: str
    mtime: float
    data: Mapping[str, object] | None
    """What the store remembers of it."""
    is_fresh: bool

    @property
    def last_modified(self) -> datetime:
        return from_milliseconds(self.mtime)


async def listed(
    store: StoreCalls, projects: Sequence[str] | None, query: SessionQuery
) -> list[StoredSession]:
    """The sessions of these projects, or of all, that are asked for, newest first.

    One that cannot be loaded is listed with what is known of it. Raises `OptionsError` if the store cannot
    list.
    """
    if query.limit is not None and store.offers("list_latest_sessions"):
        return await _listed_latest(store, projects, query, query.offset + query.limit)
    if projects is None:
        projects = await store.list_projects()
    newest: dict[str, Row] = {}
    for project in projects:
        for row in await rows_of(store, project):
            there = newest.get(row.session_id)
            if query.is_in_time(row.last_modified) and (there is None or row.mtime > there.mtime):
                newest[row.session_id] = row
    rows = sorted(newest.values(), key=lambda row: (-row.mtime, row.session_id))
    wanted = len(rows) if query.limit is None else query.offset + query.limit
    found: list[StoredSession] = []
    while rows and len(found) < wanted:
        some, rows = rows[: wanted - len(found)], rows[wanted - len(found) :]
        described = await store.each(lambda row: describe(store, row), some)
        found += [info for info in described if info is not None and query.matches(info)]
    return query.page(found)


async def _listed_latest(
    store: StoreCalls, projects: Sequence[str] | None, query: SessionQuery, wanted: int
) -> list[StoredSession]:
    """The same with as few summaries as will do."""
    found: list[StoredSession] = []
    seen: set[str] = set()
    async with aclosing(latest_rows(store, projects, max(1, wanted))) as rows:
        async for row in rows:
            if row.session_id not in seen:
                seen.add(row.session_id)
                info = await describe(store, row) if query.is_in_time(row.last_modified) else None
                if info is not None and query.matches(info):
                    found.append(info)
            is_too_old = query.since is not None and row.last_modified < in_utc(query.since)
            if len(found) >= wanted or is_too_old:
                break
    return query.page(found)


async def latest_rows(
    store: StoreCalls, projects: Sequence[str] | None, count: int
) -> AsyncGenerator[Row, None]:
    """The sessions of these projects, or of all, newest first: first so many, and then more. The store has to
    offer `list_latest_sessions`."""
    given: set[tuple[str, str]] = set()
    is_all = False
    while not is_all:
        asked = [None] if projects is None else projects
        pages = await store.each(lambda project: store.list_latest_sessions(project, count), asked)  # noqa: B023 - awaited within the turn of the loop
        is_all = all(len(page) < count for page in pages)
        rows = [
            Row(one["project_key"], one["session_id"], one["mtime"], one["data"], True)
            for page in pages
            for one in page
        ]
        # Behind those, another project may have some that are newer.
        for row in sorted(rows, key=lambda row: (-row.mtime, row.session_id))[: None if is_all else count]:
            if (key := (row.project, row.session_id)) not in given:
                given.add(key)
                yield row
        count *= 4


async def rows_of(store: StoreCalls, project: str) -> list[Row]:
    """The sessions of a project, in any order. Raises `OptionsError` if the store cannot list."""
    if not (store.offers("list_sessions") or store.offers("list_session_summaries")):
        raise OptionsError(
            f"the store {store.name} cannot list sessions",
            hint="Give it `list_sessions` or `list_session_summaries`.",
        )
    summaries = await store.list_session_summaries(project) if store.offers("list_session_summaries") else []
    known = {summary["session_id"]: summary for summary in summaries}
    if not store.offers("list_sessions"):
        return [Row(project, id, summary["mtime"], summary["data"], True) for id, summary in known.items()]
    rows: list[Row] = []
    for entry in await store.list_sessions(project):
        id, mtime = entry["session_id"], entry["mtime"]
        summary = known.get(id)
        if summary is None:
            rows.append(Row(project, id, mtime, None, False))
        else:
            rows.append(Row(project, id, mtime, summary["data"], summary["mtime"] >= mtime))
    return rows


async def describe(store: StoreCalls, row: Row) -> StoredSession | None:
    """What there is to say of a session; None if it has no place in lists."""
    if not row.is_fresh or row.data is None:
        try:
            entries = await store.load(to_key(row.project, row.session_id))
        except OutriderError as error:
            log.warning("the session %s could not be loaded for a list: %s", row.session_id, error)
            if row.data is None:
                return StoredSession(
                    id=row.session_id,
                    project=row.project,
                    title=row.session_id,
                    last_modified=row.last_modified,
                )
        else:
            return describe_entries(
                entries,
                session_id=row.session_id,
                project=row.project,
                last_modified=row.last_modified,
            )
    return describe_data(
        row.data, session_id=row.session_id, project=row.project, last_modified=row.last_modified
    )


# New sessions.

_IN_ONE_BATCH: Final = 500
_NAMESPACE: Final = UUID("6f0f3c9e-3f1b-4b53-9c43-0d6f6a2f7a10")
_HELD_SECONDS: Final = 60.0
"""For how long the session is held while it is written; longer than a batch takes."""
_RELEASE_SECONDS: Final = 5.0


async def put(store: StoreCalls, bundle: Bundle, *, resume: bool) -> None:
    """Write a session that is not there, its main transcript last: until then it is in no list.

    Raises `SessionExists` if one of its id is there; to `resume`, if that is another one. What fails, or is
    cancelled, is taken back, unless it can be resumed.
    """
    project, session_id = bundle.project, bundle.session_id
    transcripts: list[tuple[str | None, list[JsonObject]]] = [
        *((check_subpath(subpath), part) for subpath, part in bundle.parts.items() if part),
        (None, bundle.entries),
    ]
    async with _held(store, project, session_id) as renew:
        left: list[tuple[str | None, list[JsonObject], int]] = []
        for subpath, entries in transcripts:
            there = await store.load(to_key(project, session_id, subpath))
            rest = left_of(entries, there)
            if rest is None or (there and subpath is None and not resume):
                raise SessionExists(session_id, where=f"{store.name}: {project}")
            left.append((subpath, rest, len(there)))
        try:
            for subpath, entries, start in left:
                for index in range(0, len(entries), _IN_ONE_BATCH):
                    some = entries[index : index + _IN_ONE_BATCH]
                    batch = _batch(bundle, subpath, start + index, some)
                    await store.append(to_key(project, session_id, subpath), some, batch)
                    await renew()
        except BaseException:
            if not resume and not any(start for _, _, start in left):
                await _take_back(store, project, session_id)
            raise


async def _take_back(store: StoreCalls, project: str, session_id: str) -> None:
    """Remove half of a session that no one will finish; where that fails, it stays."""
    if store.offers("delete"):
        with anyio.move_on_after(_RELEASE_SECONDS, shield=True), suppress(OutriderError):
            await store.delete(to_key(project, session_id))


def _batch(bundle: Bundle, subpath: str | None, start: int, entries: list[JsonObject]) -> str:
    """An id that is the same for the same entries at the same place."""
    content = hashlib.sha256("\n".join(map(to_line, entries)).encode()).hexdigest()
    place = [bundle.project, bundle.session_id, subpath or "", str(start), content]
    return str(uuid5(_NAMESPACE, "\0".join(place)))


@asynccontextmanager
async def _held(
    store: StoreCalls, project: str, session_id: str
) -> AsyncGenerator[Callable[[], Awaitable[None]], None]:
    """Be the only one who writes to a session, if the store has a way to be."""

    async def renew() -> None:
        if token:
            await store.renew_lease(key, token, _HELD_SECONDS)

    key, token = to_key(project, session_id), ""
    if store.has_leases:
        holder = f"a copy by process {os.getpid()} on {socket.gethostname()}"
        token = await store.acquire_lease(key, holder, _HELD_SECONDS)
    try:
        yield renew
    finally:
        if token:
            # If it fails, the hold runs out by itself.
            with anyio.move_on_after(_RELEASE_SECONDS, shield=True), suppress(OutriderError):
                await store.release_lease(key, token)


class StoreSearch:
    """A search that is on its way."""

    def __init__(
        self, sessions: StoreLibrary, search: Search, query: SessionQuery, limit: int | None
    ) -> None:
        self._sessions = sessions
        self._search, self._query = search, query
        self._left = limit
        self._to_do: list[StoredSession] | None = None

    async def pull(self) -> list[SearchHit] | None:
        """The hits in the next session that has any."""
        if self._to_do is None:
            self._to_do = (await self._sessions.list(self._query))[::-1]
        while self._to_do and self._left != 0:
            info = self._to_do.pop()
            found: list[SearchHit] = []
            try:
                await self._search_in(info, found)
            except TranscriptError as error:
                # As on disk: one that cannot be read, or was deleted meanwhile, does not end the search.
                log.warning("the session %s could not be searched: %s", info.id, error)
                continue
            if self._left is not None:
                self._left -= len(found)
            if found:
                return found
        return None

    async def _search_in(self, info: StoredSession, found: list[SearchHit]) -> None:
        subpaths = await self._sessions.subpaths(info.project, info.id) if self._search.with_agents else []
        for subpath in (None, *subpaths):
            agent, number = None if subpath is None else _agent_of(subpath), 0
            async with aclosing(self._sessions.pages(info.project, info.id, subpath)) as pages:
                async for page in pages:
                    found += await run_sync(
                        lambda: list(self._in_entries(info, page, agent, number)),  # noqa: B023 - awaited within the turn of the loop
                        abandon_on_cancel=True,
                    )
                    number += len(page)
                    if self._left is not None and len(found) >= self._left:
                        del found[self._left :]
                        return

    def stop(self) -> None:
        self._to_do = []

    def _in_entries(
        self, info: StoredSession, entries: list[JsonObject], agent: str | None, before: int
    ) -> Iterator[SearchHit]:
        for number, data in enumerate(entries, before + 1):
            entry = to_entry(data)
            if (excerpt := self._search.excerpt(entry)) is not None:
                yield SearchHit(
                    session=info, entry=entry, line_number=number, excerpt=excerpt, agent_id=agent
                )


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
        if self._store.offers("get_session_summary"):
            if (summary := await self._store.get_session_summary(key, session_id)) is not None:
                row = Row(key, session_id, summary["mtime"], summary["data"], True)
                if (info := await describe(self._store, row)) is not None:
                    return info
        elif self._store.offers("list_sessions") or self._store.offers("list_session_summaries"):
            for row in await rows_of(self._store, key):
                if row.session_id == session_id and (info := await describe(self._store, row)) is not None:
                    return info
        entries = await self._load(key, session_id)
        times = [time for entry in reversed(entries) if (time := to_time(entry.get("timestamp"))) is not None]
        last = times[0] if times else datetime.fromtimestamp(0, UTC)
        info = describe_entries(
            entries, session_id=session_id, project=key, last_modified=last, in_lists=False
        )
        assert info is not None
        return info

    async def read(self, session_id: str, project: StrPath | None, wanted: MessageRange) -> _Entries:
        key = await self._find(session_id, project)
        is_agent = wanted.agent is not None
        subpath = None if wanted.agent is None else await self._agent_path(key, session_id, wanted.agent)
        known: _Entries = []
        looked_at = 0
        async with aclosing(self.pages(key, session_id, subpath, backwards=True)) as pages:
            async for page in pages:
                known[:0] = await run_sync(_chained, page, abandon_on_cancel=True)
                # Each look costs as much as all that is known.
                if wanted.last is not None and len(known) >= 2 * looked_at:
                    looked_at = len(known)
                    last = partial(last_messages, history=wanted.history, agent=is_agent)
                    found = await run_sync(last, known, wanted.last, abandon_on_cancel=True)
                    if found is not None:
                        return found
        whole = partial(conversation, history=wanted.history, agent=is_agent)
        return wanted.cut(await run_sync(whole, known, abandon_on_cancel=True))

    async def pages(
        self, key: str, session_id: str, subpath: str | None = None, *, backwards: bool = False
    ) -> AsyncGenerator[_Objects, None]:
        """The entries of a transcript, piece by piece. Raises `SessionNotFound` if the session has none."""
        is_there = False
        store_key = to_key(key, session_id, subpath)
        async with aclosing(self._store.pages(store_key, backwards=backwards)) as pages:
            async for page in pages:
                is_there = True
                yield page
        if not is_there and subpath is None:
            raise SessionNotFound(session_id, searched=[key])

    async def agents(self, session_id: str, project: StrPath | None) -> _Names:
        key = await self._find(session_id, project)
        parts = await self.subpaths(key, session_id)
        return sorted(_agent_of(part) for part in parts if part.startswith(_AGENTS))

    def search(self, search: Search, query: SessionQuery, limit: int | None) -> StoreSearch:
        return StoreSearch(self, search, query, limit)

    async def export_json(self, session_id: str, project: StrPath | None, *, redact: bool) -> str:
        """As `exported` does it, without all of it in memory as objects."""
        key = await self._find(session_id, project)
        export = JsonExport(session_id, key, redact=redact)
        for subpath in (None, *await self.subpaths(key, session_id)):
            is_begun = subpath is None
            async with aclosing(self.pages(key, session_id, subpath)) as pages:
                async for page in pages:
                    if not is_begun and subpath is not None:
                        export.begin_part(subpath)
                        is_begun = True
                    await run_sync(export.add, page, abandon_on_cancel=True)
        return await run_sync(export.text, abandon_on_cancel=True)

    async def load(self, session_id: str, project: StrPath | None) -> Bundle:
        return await self.load_at(await self._find(session_id, project), session_id)

    async def load_at(self, key: str, session_id: str) -> Bundle:
        """All of a session whose project is known by its key."""
        entries = await self._load(key, session_id)
        subpaths = await self.subpaths(key, session_id, entries)
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

    async def _projects(self, query: SessionQuery) -> _Names | None:
        if query.project is not None:
            others = await _other_worktrees(query.project) if query.worktrees else []
            return sorted({project_key(query.project), *others})
        if not (self._store.offers("list_projects") or self._store.offers("list_latest_sessions")):
            raise OptionsError(
                f"the store {self._store.name} cannot tell which projects there are", hint="Give project=."
            )
        return None

    async def _find(self, session_id: str, project: StrPath | None, *, strict: bool = False) -> str:
        """The key of the project that a session is in; with `strict` there may be one only."""
        wanted: _Names | None = None
        if project is not None:
            wanted = [project_key(project), *await _other_worktrees(project)]
        found = await self._projects_of(session_id, wanted)
        if not found:
            raise SessionNotFound(session_id, searched=wanted or [self._store.name])
        if len(found) == 1 or wanted is not None:
            return found[0]
        if strict or not self._store.offers("list_sessions"):
            raise OptionsError(
                f"the session {session_id} is in several projects: {', '.join(sorted(found))}",
                hint="Give project=.",
            )
        return await newest_project(self._store, session_id, found)

    async def _projects_of(self, session_id: str, wanted: _Names | None) -> _Names:
        """The projects that have a session, of those that are wanted."""
        if self._store.offers("find_session"):
            found = await self._store.find_session(session_id)
            return found if wanted is None else [key for key in wanted if key in found]
        if wanted is None and not (
            self._store.offers("list_projects") and self._store.offers("list_sessions")
        ):
            raise OptionsError(
                f"the store {self._store.name} cannot find a session without its project",
                hint="Give project=, the folder that it was started in.",
            )
        keys = await self._store.list_projects() if wanted is None else wanted
        are_there = await self._store.each(lambda key: self._exists(key, session_id), keys)
        return [key for key, is_there in zip(keys, are_there, strict=True) if is_there]

    async def _exists(self, key: str, session_id: str) -> bool:
        if self._store.offers("list_sessions"):
            return any(row["session_id"] == session_id for row in await self._store.list_sessions(key))
        return bool(await self._store.load(to_key(key, session_id)))

    # Loading

    async def _load(self, key: str, session_id: str) -> _Objects:
        entries = await self._store.load(to_key(key, session_id))
        if not entries:
            raise SessionNotFound(session_id, searched=[key])
        return entries

    async def _agent_path(self, key: str, session_id: str, agent: str) -> str:
        parts = await self.subpaths(key, session_id)
        for part in parts:
            if part.startswith(_AGENTS) and _agent_of(part) == agent:
                return part
        known = ", ".join(sorted(map(_agent_of, parts))) or "it has none"
        raise TranscriptError(
            f"the session has no subagent {agent!r}",
            hint=f"Its subagents: {known}.",
            session_id=session_id,
        )

    async def subpaths(self, key: str, session_id: str, entries: _Objects | None = None) -> _Names:
        if self._store.offers("list_subkeys"):
            return sorted(await self._store.list_subkeys(to_key(key, session_id)))
        # What can be known without: those whose results are in the transcript.
        known = entries if entries is not None else await self._load(key, session_id)
        parts = [f"{_AGENTS}agent-{agent}" for agent in sorted(agents_in(known))]
        loaded = await self._store.each(lambda part: self._store.load(to_key(key, session_id, part)), parts)
        return [part for part, found in zip(parts, loaded, strict=True) if found]


async def newest_project(store: StoreCalls, session_id: str, projects: _Names) -> str:
    """Of several projects that have a session, the one that wrote to it last."""
    times: dict[str, float] = {}
    for project in sorted(projects):
        if store.offers("get_session_summary"):
            summary = await store.get_session_summary(project, session_id)
            times[project] = 0 if summary is None else summary["mtime"]
            continue
        listed = await store.list_sessions(project)
        times[project] = max((one["mtime"] for one in listed if one["session_id"] == session_id), default=0)
    return max(times, key=lambda project: times[project])


async def _other_worktrees(project: StrPath) -> list[str]:
    """The keys of the projects that are other worktrees of the same repository."""
    folders = await run_sync(worktrees, project, abandon_on_cancel=True)
    return sorted({project_key(folder) for folder in folders} - {project_key(project)})


def _chained(entries: _Objects) -> _Entries:
    return [entry for one in entries if is_chained(entry := to_entry(one))]


def _agent_of(subpath: str) -> str:
    return subpath.rpartition("/")[2].removeprefix("agent-")

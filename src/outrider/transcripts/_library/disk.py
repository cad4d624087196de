"""Gives access to the sessions on this machine's disk: blocking, and async in threads.

A call that reads can be cancelled at once; one that writes is finished first. `_disk` reads and writes.
"""

from __future__ import annotations

from functools import partial
from threading import Event
from time import monotonic
from typing import TYPE_CHECKING, Final

from outrider._threads import run_sync
from outrider.errors import SessionExists, TranscriptError
from outrider.transcripts._copies import is_same, says_archived, without_notes
from outrider.transcripts._disk.files import (
    METADATA,
    Found,
    SessionFile,
    agent_files,
    append,
    archive,
    delete,
    open_file,
    put,
)
from outrider.transcripts._disk.read import Disk, describe_facts, load_bundle, read_facts
from outrider.transcripts._entries import fields_of, read_json
from outrider.transcripts._values import MessageRange

if TYPE_CHECKING:
    from collections.abc import Iterator

    from outrider.transcripts._disk.read import Search
    from outrider.transcripts._entries import TranscriptEntry
    from outrider.transcripts._values import Bundle, SearchHit, SessionQuery, StoredSession, StrPath
    from outrider.wire import JsonObject

    # In the library, `list` is a method.
    _Sessions = list[StoredSession]
    _Entries = list[TranscriptEntry]
    _Names = list[str]

_PULL_SECONDS: Final = 0.1
"""How long hits are gathered before they are handed over."""


class BlockingSessions(Disk):
    """What Claude Code keeps on this machine, in the folder that it would use.

    Each call blocks, and may be made in any thread. Errors are those of `Sessions`. Facts of a session are
    what a store's summary would say of it (`fold_session_summary`).
    """

    def facts_of(
        self, session_id: str, project: StrPath | None = None
    ) -> tuple[StoredSession, dict[str, object]] | None:
        """One session; None if lists leave it out, as nothing was said in it."""
        found = Found.of(self.find(session_id, project))
        data = read_facts(found)
        session = describe_facts(found, data)
        return None if session is None else (session, data)

    def read_agent(
        self, session_id: str, agent: str, project: StrPath | None = None
    ) -> tuple[list[TranscriptEntry], JsonObject]:
        """The messages of a subagent, and its metadata: the call that started it (`toolUseId`) …

        Raises `TranscriptError` if there is no such subagent.
        """
        messages = self.read(session_id, project, MessageRange(agent=agent))
        path = agent_files(self.find(session_id, project))[agent]
        try:
            with open_file(path.with_suffix(METADATA)) as stream:
                metadata = fields_of(read_json(stream.read().decode()))
        except (OSError, ValueError):
            metadata = {}
        return messages, metadata

    def note(self, session_id: str, entry: JsonObject, project: StrPath | None = None) -> None:
        """Add an entry about a session, such as its title."""
        append(self.find(session_id, project), [entry])

    def delete(self, session_id: str, project: StrPath | None = None) -> None:
        """Remove a session, with its subagents' transcripts."""
        delete(self.find(session_id, project))

    def put(self, bundle: Bundle, *, resume: bool = False, archived: bool = False) -> None:
        """Keep a new session, in the project that it names. Raises `SessionExists` if its id is taken; to
        `resume`, if by another session."""
        if self.config is None:
            raise TranscriptError(
                "this user has no home folder that sessions could be in",
                hint="Set CLAUDE_CONFIG_DIR, or give the folder as `config`.",
            )
        archived |= says_archived(bundle.entries)
        bundle = without_notes(bundle)
        path = self.config / "projects" / bundle.project / f"{bundle.session_id}.jsonl"
        file = SessionFile(session_id=bundle.session_id, project=bundle.project, path=path)
        try:
            put(self.config, bundle, bundle.project)
        except SessionExists:
            if not resume or not path.exists() or not is_same(bundle, load_bundle(file)):
                raise
        if archived:
            archive(file, archived=True)


class DiskLibrary:
    """What Claude Code keeps in a configuration folder. `StoreLibrary` has the same methods.

    Ids and values are checked by those who call. What is not there raises `SessionNotFound`. A project is a
    folder; None: wherever it is.
    """

    def __init__(self, config: StrPath | None = None) -> None:
        self._disk = BlockingSessions(config)

    @property
    def place(self) -> str:
        return str(self._disk.config or "no folder")

    async def list(self, query: SessionQuery) -> _Sessions:
        return await run_sync(self._disk.list, query, abandon_on_cancel=True)

    async def info(self, session_id: str, project: StrPath | None) -> StoredSession:
        return await run_sync(self._disk.info, session_id, project, abandon_on_cancel=True)

    async def read(self, session_id: str, project: StrPath | None, wanted: MessageRange) -> _Entries:
        return await run_sync(self._disk.read, session_id, project, wanted, abandon_on_cancel=True)

    async def agents(self, session_id: str, project: StrPath | None) -> _Names:
        return await run_sync(self._disk.agents, session_id, project, abandon_on_cancel=True)

    def search(self, search: Search, query: SessionQuery, limit: int | None) -> DiskSearch:
        stopped = Event()
        return DiskSearch(self._disk.search(search, query, limit=limit, is_over=stopped.is_set), stopped)

    async def load(self, session_id: str, project: StrPath | None) -> Bundle:
        return await run_sync(self._disk.load, session_id, project, abandon_on_cancel=True)

    async def note(self, session_id: str, project: StrPath | None, entry: JsonObject) -> None:
        await run_sync(self._disk.note, session_id, entry, project)

    async def archive(self, session_id: str, project: StrPath | None, *, archived: bool) -> None:
        await run_sync(lambda: archive(self._disk.find(session_id, project), archived=archived))

    async def delete(self, session_id: str, project: StrPath | None) -> None:
        await run_sync(self._disk.delete, session_id, project)

    async def put(self, bundle: Bundle, *, resume: bool = False, archived: bool = False) -> None:
        await run_sync(partial(self._disk.put, bundle, resume=resume, archived=archived))

    async def close(self) -> None:
        """Nothing is open between calls."""


class DiskSearch:
    """A search that is on its way, in threads, one at a time."""

    def __init__(self, hits: Iterator[SearchHit], stopped: Event) -> None:
        self._hits = hits
        self._stopped = stopped

    async def pull(self) -> list[SearchHit] | None:
        """Some more hits, at least one; None at the end."""
        return await run_sync(self._next, abandon_on_cancel=True)

    def stop(self) -> None:
        self._stopped.set()

    def _next(self) -> list[SearchHit] | None:
        found: list[SearchHit] = []
        until = monotonic() + _PULL_SECONDS
        for hit in self._hits:
            if self._stopped.is_set():
                break
            found.append(hit)
            if monotonic() >= until:
                break
        return found or None

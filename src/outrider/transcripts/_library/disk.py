"""Gives access to the sessions on this machine's disk: blocking, and async in threads.

A call that reads can be cancelled at once; one that writes is finished first. `_disk` reads and writes.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from threading import Event
from time import monotonic
from typing import TYPE_CHECKING, Final, TypeVar

from outrider._threads import run_sync
from outrider.errors import SessionExists, TranscriptError
from outrider.transcripts._copies import is_same, says_archived, without_notes
from outrider.transcripts._disk.files import METADATA, Found, SessionFile, agent_files, open_file
from outrider.transcripts._disk.read import Disk, describe_facts, load_bundle, read_facts
from outrider.transcripts._disk.write import append, archive, delete, put
from outrider.transcripts._entries import fields_of, read_json
from outrider.transcripts._values import MessageRange

if TYPE_CHECKING:
    from collections.abc import Iterator

    from outrider.transcripts._disk.read import Search
    from outrider.transcripts._entries import TranscriptEntry
    from outrider.transcripts._values import Bundle, SearchHit, SessionQuery, StoredSession, StrPath
    from outrider.wire import JsonObject

if TYPE_CHECKING:
    from outrider.transcripts._disk.read import Search

    # In `Library`, `list` is a method.
    Sessions = list[StoredSession]
    Entries = list[TranscriptEntry]
    Names = list[str]


class BlockingSessions:
    """What the agent's program keeps on this machine, in the folder that it would use.

    Each call blocks, and may be made in any thread. Errors are those of `Sessions`. Facts of a session are
    what a store's summary would say of it (`fold_session_summary`).
    """

    def __init__(self, config: StrPath | None = None) -> None:
        self._disk = Disk(None if config is None else Path(config))

    @property
    def projects(self) -> Path | None:
        """Where each project has a folder, which need not be there; None for a user without a home."""
        return self._disk.projects

    def facts(self, query: SessionQuery) -> Iterator[tuple[StoredSession, dict[str, object]]]:
        """The sessions that match, newest first, each read when it is its turn. Limits are not looked at."""
        return self._disk.facts(query)

    def facts_of(
        self, session_id: str, project: StrPath | None = None
    ) -> tuple[StoredSession, dict[str, object]] | None:
        """One session; None if lists leave it out, as nothing was said in it."""
        found = Found.of(self.find(session_id, project))
        data = read_facts(found)
        session = describe_facts(found, data)
        return None if session is None else (session, data)

    def find(self, session_id: str, project: StrPath | None = None) -> SessionFile:
        """Where a session is."""
        return self._disk.find(session_id, project)

    def read(self, session_id: str, project: StrPath | None = None) -> list[TranscriptEntry]:
        """The messages of a session, first to last."""
        return self._disk.read(session_id, project)

    def agents(self, session_id: str, project: StrPath | None = None) -> list[str]:
        """The ids of its subagents that have a transcript, in the order of their files."""
        return list(agent_files(self.find(session_id, project)))

    def read_agent(
        self, session_id: str, agent: str, project: StrPath | None = None
    ) -> tuple[list[TranscriptEntry], JsonObject]:
        """The messages of a subagent, and what is told of it: the call that started it (`toolUseId`) …

        Raises `TranscriptError` if there is no such subagent.
        """
        messages = self._disk.read(session_id, project, MessageRange(agent=agent))
        path = agent_files(self.find(session_id, project))[agent]
        try:
            with open_file(path.with_suffix(METADATA)) as stream:
                told = fields_of(read_json(stream.read().decode()))
        except (OSError, ValueError):
            told = {}
        return messages, told

    def load(self, session_id: str, project: StrPath | None = None) -> Bundle:
        """Everything of a session."""
        return self._disk.load(session_id, project)

    def note(self, session_id: str, entry: JsonObject, project: StrPath | None = None) -> None:
        """Add an entry that tells something about a session."""
        append(self.find(session_id, project), [entry])

    def delete(self, session_id: str, project: StrPath | None = None) -> None:
        """Remove a session, with its subagents' transcripts."""
        delete(self.find(session_id, project))

    def put(self, bundle: Bundle) -> None:
        """Keep a new session, in the project that it names. Raises `SessionExists` if its id is taken."""
        if self._disk.config is None:
            raise TranscriptError(
                "this user has no home folder that sessions could be in", hint="Set CLAUDE_CONFIG_DIR."
            )
        put(self._disk.config, bundle, bundle.project)


if TYPE_CHECKING:
    from outrider.transcripts._disk.read import Search

    # In the library, `list` is a method.
    _Sessions = list[StoredSession]
    _Entries = list[TranscriptEntry]
    _Names = list[str]


T = TypeVar("T")

_PULL_SECONDS: Final = 0.1
"""How long hits are gathered before they are handed over."""


class DiskLibrary:
    """What Claude Code keeps in a configuration folder. `StoreLibrary` has the same methods.

    Ids and values are checked by those who call. What is not there raises `SessionNotFound`. A project is a
    folder; None: wherever it is.
    """

    def __init__(self, config: StrPath | None = None) -> None:
        self._disk = Disk(None if config is None else Path(config))

    @property
    def place(self) -> str:
        return str(self._disk.config or "no folder")

    async def list(self, query: SessionQuery) -> _Sessions:
        return await _reading(partial(self._disk.list, query))

    async def info(self, session_id: str, project: StrPath | None) -> StoredSession:
        return await _reading(partial(self._disk.info, session_id, project))

    async def read(self, session_id: str, project: StrPath | None, wanted: MessageRange) -> _Entries:
        return await _reading(partial(self._disk.read, session_id, project, wanted))

    async def agents(self, session_id: str, project: StrPath | None) -> _Names:
        return await _reading(partial(self._disk.agents, session_id, project))

    def search(self, search: Search, query: SessionQuery, limit: int | None) -> DiskSearch:
        stopped = Event()
        return DiskSearch(self._disk.search(search, query, limit=limit, is_over=stopped.is_set), stopped)

    async def load(self, session_id: str, project: StrPath | None) -> Bundle:
        return await _reading(partial(self._disk.load, session_id, project))

    async def note(self, session_id: str, project: StrPath | None, entry: JsonObject) -> None:
        await _writing(lambda: append(self._disk.find(session_id, project), [entry]))

    async def archive(self, session_id: str, project: StrPath | None, *, archived: bool) -> None:
        await _writing(lambda: archive(self._disk.find(session_id, project), archived=archived))

    async def delete(self, session_id: str, project: StrPath | None) -> None:
        await _writing(lambda: delete(self._disk.find(session_id, project)))

    async def put(self, bundle: Bundle, *, resume: bool = False, archived: bool = False) -> None:
        away = archived or says_archived(bundle.entries)
        await _writing(partial(self._put, without_notes(bundle), resume=resume, archived=away))

    async def close(self) -> None:
        """Nothing is open between calls."""

    def _put(self, bundle: Bundle, *, resume: bool, archived: bool) -> None:
        config = self._disk.config
        if config is None:
            raise TranscriptError(
                "this user has no home folder that sessions could be in", hint="Give the folder as `config`."
            )
        path = config / "projects" / bundle.project / f"{bundle.session_id}.jsonl"
        file = SessionFile(session_id=bundle.session_id, project=bundle.project, path=path)
        try:
            put(config, bundle, bundle.project)
        except SessionExists:
            if not resume or not path.exists() or not is_same(bundle, load_bundle(file)):
                raise
        if archived:
            archive(file, archived=True)


class DiskSearch:
    """A search that is on its way, in threads, one at a time."""

    def __init__(self, hits: Iterator[SearchHit], stopped: Event) -> None:
        self._hits = hits
        self._stopped = stopped

    async def pull(self) -> list[SearchHit] | None:
        """Some more hits, at least one; None at the end."""
        return await _reading(self._next)

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


async def _reading(function: Callable[[], T]) -> T:
    return await run_sync(function, abandon_on_cancel=True)


async def _writing(function: Callable[[], T]) -> T:
    return await run_sync(function)

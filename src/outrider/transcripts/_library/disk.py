"""Gives async access to the sessions on this machine's disk: what blocks runs in a thread.

A call that reads can be cancelled at once; one that writes is finished first. `_disk` does the reading and
writing.
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
from outrider.transcripts._disk import Disk, SessionFile
from outrider.transcripts._disk.read import load_bundle
from outrider.transcripts._disk.write import append, archive, delete, put
from outrider.transcripts._import import is_same, says_archived, without_notes

if TYPE_CHECKING:
    from collections.abc import Iterator

    from outrider.transcripts._chain import History
    from outrider.transcripts._entries import TranscriptEntry
    from outrider.transcripts._values import Bundle, SearchHit, SessionQuery, StoredSession, StrPath
    from outrider.wire import JsonObject

    # In the library, `list` is a method.
    _Sessions = list[StoredSession]
    _Entries = list[TranscriptEntry]
    _Names = list[str]

__all__ = ["DiskLibrary"]

T = TypeVar("T")

_PULL_SECONDS: Final = 0.1
"""How long hits are gathered before they are handed over."""


class DiskLibrary:
    """What the agent's program keeps in a configuration folder."""

    def __init__(self, config: StrPath | None = None) -> None:
        self._disk = Disk(None if config is None else Path(config))

    @property
    def place(self) -> str:
        return str(self._disk.config or "no folder")

    async def list(self, query: SessionQuery) -> _Sessions:
        return await _reading(partial(self._disk.list, query))

    async def info(self, session_id: str, project: StrPath | None) -> StoredSession:
        return await _reading(partial(self._disk.info, session_id, project))

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
        return await _reading(
            partial(
                self._disk.read,
                session_id,
                project,
                agent=agent,
                history=history,
                last=last,
                limit=limit,
                offset=offset,
            )
        )

    async def agents(self, session_id: str, project: StrPath | None) -> _Names:
        return await _reading(partial(self._disk.agents, session_id, project))

    def search(
        self,
        text: str,
        query: SessionQuery,
        *,
        regex: bool,
        case_sensitive: bool,
        agents: bool,
        limit: int | None,
    ) -> _Pulling:
        stopped = Event()
        hits = self._disk.search(
            text,
            query,
            regex=regex,
            case_sensitive=case_sensitive,
            agents=agents,
            limit=limit,
            is_over=stopped.is_set,
        )
        return _Pulling(hits, stopped)

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


class _Pulling:
    """Hits of a search that goes on in threads, one at a time."""

    def __init__(self, hits: Iterator[SearchHit], stopped: Event) -> None:
        self._hits = hits
        self._stopped = stopped

    async def pull(self) -> list[SearchHit] | None:
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

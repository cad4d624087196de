"""A session store in dicts, written as plainly as can be: what tests break to see whether it is noticed."""

from __future__ import annotations

import time
from copy import deepcopy
from threading import Lock
from typing import TYPE_CHECKING, NamedTuple, TypeAlias
from uuid import uuid4

from outrider.errors import LeaseLost, SessionBusy
from outrider.transcripts import fold_session_summary
from outrider.transcripts.stores._base import Place, later
from outrider.transcripts.stores._blocking import check_seconds

if TYPE_CHECKING:
    from types import TracebackType
    from typing import Self

    from outrider.transcripts.stores._base import (
        LatestSessionEntry,
        SessionKey,
        SessionListSubkeysKey,
        SessionStoreEntry,
        SessionStoreListEntry,
        SessionSummaryEntry,
    )

_Session: TypeAlias = tuple[str, str]
"""Project, session."""


class _Lease(NamedTuple):
    token: str
    holder: str
    end: float


class DictStore:
    """A complete `SessionStore` for tests, and for sessions that need not outlive the process.

    May be used from several tasks and threads. `DictStore(store)` is another object with the same data, as
    another process would have for a database: for leases they are two writers.
    """

    def __init__(self, same_as: DictStore | None = None, /) -> None:
        of = same_as
        self._transcripts: dict[Place, list[SessionStoreEntry]] = {} if of is None else of._transcripts
        self._uuids: dict[Place, set[str]] = {} if of is None else of._uuids
        self._summaries: dict[_Session, SessionSummaryEntry] = {} if of is None else of._summaries
        self._latest: dict[str, int] = {} if of is None else of._latest
        self._batches: dict[Place, set[str]] = {} if of is None else of._batches
        self._leases: dict[_Session, _Lease] = {} if of is None else of._leases
        self._lock: Lock = Lock() if of is None else of._lock
        self._tokens: dict[_Session, str] = {}

    def __repr__(self) -> str:
        return f"{type(self).__name__}()"

    def __deepcopy__(self, memo: dict[int, object]) -> Self:
        copied = type(self).__new__(type(self))
        with self._lock:
            kept = {name: value for name, value in vars(self).items() if name != "_lock"}
            vars(copied).update(deepcopy(kept, memo), _lock=Lock())
        return copied

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def append(self, key: SessionKey, entries: list[SessionStoreEntry]) -> None:
        with self._lock:
            self._add(key, entries)

    async def append_batch(self, key: SessionKey, entries: list[SessionStoreEntry], batch: str) -> None:
        place = Place.of(key)
        with self._lock:
            if batch in self._batches.get(place, ()):
                self._check_lease(place)
            elif entries:
                self._add(key, entries)
                self._batches.setdefault(place, set()).add(batch)

    async def load(self, key: SessionKey) -> list[SessionStoreEntry] | None:
        with self._lock:
            return deepcopy(self._transcripts.get(Place.of(key)))

    async def list_sessions(self, project_key: str) -> list[SessionStoreListEntry]:
        """The sessions of a project, newest first."""
        with self._lock:
            return [
                {"session_id": summary["session_id"], "mtime": summary["mtime"]}
                for summary in self._of_project(project_key)
            ]

    async def get_session_summary(self, key: SessionListSubkeysKey) -> SessionSummaryEntry | None:
        return deepcopy(self._summaries.get((key["project_key"], key["session_id"])))

    async def list_latest_sessions(self, project_key: str | None, limit: int) -> list[LatestSessionEntry]:
        found: list[LatestSessionEntry] = [
            {**deepcopy(one), "project_key": project}
            for (project, _), one in self._summaries.items()
            if project_key in (None, project)
        ]
        return sorted(found, key=lambda one: one["mtime"], reverse=True)[:limit]

    async def list_session_summaries(self, project_key: str) -> list[SessionSummaryEntry]:
        """What is known about the sessions of a project, newest first."""
        with self._lock:
            return deepcopy(self._of_project(project_key))

    async def delete(self, key: SessionKey) -> None:
        wanted = Place.of(key)
        with self._lock:
            self._check_lease(wanted)
            for place in [*self._uuids]:
                if place[:2] == wanted[:2] and wanted.subpath in (None, place[2]):
                    del self._uuids[place]
                    self._transcripts.pop(place, None)
                    self._batches.pop(place, None)
            if wanted.subpath is None:
                self._summaries.pop(wanted[:2], None)

    async def list_subkeys(self, key: SessionListSubkeysKey) -> list[str]:
        session = Place.of(key)[:2]
        with self._lock:
            found = (place[2] for place in self._transcripts if place[:2] == session)
            return [subpath for subpath in found if subpath is not None]

    async def list_projects(self) -> list[str]:
        with self._lock:
            return sorted({project for project, _ in self._summaries})

    async def find_session(self, session_id: str) -> list[str]:
        with self._lock:
            return [project for project, session in self._summaries if session == session_id]

    async def acquire_lease(self, key: SessionListSubkeysKey, holder: str, seconds: float) -> str:
        check_seconds(seconds)
        session, token = Place.of(key)[:2], uuid4().hex
        with self._lock:
            self._raise_if_busy(session, None)
            self._leases[session] = _Lease(token, holder, time.monotonic() + seconds)
            self._tokens[session] = token
        return token

    async def renew_lease(self, key: SessionListSubkeysKey, token: str, seconds: float) -> None:
        check_seconds(seconds)
        session = Place.of(key)[:2]
        with self._lock:
            lease = self._leases.get(session)
            if lease is None or lease.token != token:
                raise LeaseLost(key["session_id"], lease.holder if lease else "")
            self._leases[session] = lease._replace(end=time.monotonic() + seconds)

    async def release_lease(self, key: SessionListSubkeysKey, token: str) -> None:
        session = Place.of(key)[:2]
        with self._lock:
            lease = self._leases.get(session)
            if lease is not None and lease.token == token:
                del self._leases[session]

    async def close(self) -> None:
        """Nothing: what is kept stays."""

    # Within; the lock is held.

    def _add(self, key: SessionKey, entries: list[SessionStoreEntry]) -> None:
        place = Place.of(key)
        self._check_lease(place)
        uuids = self._uuids.setdefault(place, set())
        fresh: list[SessionStoreEntry] = []
        for entry in entries:
            uuid: object = entry.get("uuid")
            if isinstance(uuid, str):
                if uuid in uuids:
                    continue
                uuids.add(uuid)
            fresh.append(deepcopy(entry))
        if not fresh:
            return
        self._transcripts.setdefault(place, []).extend(fresh)
        if place.subpath is None:
            self._summarise(key, fresh)

    def _summarise(self, key: SessionKey, entries: list[SessionStoreEntry]) -> None:
        place = Place.of(key)[:2]
        summary = fold_session_summary(self._summaries.get(place), key, entries)
        summary["mtime"] = self._latest[place[0]] = later(self._latest.get(place[0], 0))
        self._summaries[place] = deepcopy(summary)

    def _of_project(self, project_key: str) -> list[SessionSummaryEntry]:
        found = [summary for place, summary in self._summaries.items() if place[0] == project_key]
        return sorted(found, key=lambda summary: summary["mtime"], reverse=True)

    def _check_lease(self, place: Place) -> None:
        self._raise_if_busy(place[:2], self._tokens.get(place[:2]))

    def _raise_if_busy(self, session: _Session, token: str | None) -> None:
        lease = self._leases.get(session)
        if lease is None or lease.token == token:
            return
        left = lease.end - time.monotonic()
        if left > 0:
            raise SessionBusy(session[1], lease.holder, retry_after=round(left, 3))

"""Owns `MemoryStore`, a session store in the memory of this process.

Does not write to disk: what is in it ends with the process.
"""

from __future__ import annotations

import time
from copy import deepcopy
from threading import Lock
from typing import TYPE_CHECKING, Final, TypeAlias

from bridle.transcripts._summary import fold_session_summary

if TYPE_CHECKING:
    from bridle.transcripts._store import (
        SessionKey,
        SessionListSubkeysKey,
        SessionStoreEntry,
        SessionStoreListEntry,
        SessionSummaryEntry,
    )

__all__ = ["MemoryStore"]

_Place: TypeAlias = tuple[str, str, str | None]
"""Project, session, subpath."""

_MAIN: Final = None


class MemoryStore:
    """A complete `SessionStore` for tests, and for sessions that need not outlive the process.

    May be used from several tasks and threads.
    """

    def __init__(self) -> None:
        self._transcripts: dict[_Place, list[SessionStoreEntry]] = {}
        self._uuids: dict[_Place, set[str]] = {}
        self._summaries: dict[tuple[str, str], SessionSummaryEntry] = {}
        self._latest = 0
        self._lock = Lock()

    async def append(self, key: SessionKey, entries: list[SessionStoreEntry]) -> None:
        place = _place(key)
        with self._lock:
            uuids = self._uuids.setdefault(place, set())
            fresh: list[SessionStoreEntry] = []
            for entry in entries:
                uuid = entry.get("uuid")
                if uuid is None or uuid not in uuids:
                    fresh.append(deepcopy(entry))
                if uuid is not None:
                    uuids.add(uuid)
            if not fresh:
                return
            self._transcripts.setdefault(place, []).extend(fresh)
            if place[2] is _MAIN:
                self._summarise(key, fresh)

    async def load(self, key: SessionKey) -> list[SessionStoreEntry] | None:
        return deepcopy(self._transcripts.get(_place(key)))

    async def list_sessions(self, project_key: str) -> list[SessionStoreListEntry]:
        """The sessions of a project, newest first."""
        with self._lock:
            return [
                {"session_id": summary["session_id"], "mtime": summary["mtime"]}
                for summary in self._of_project(project_key)
            ]

    async def list_session_summaries(self, project_key: str) -> list[SessionSummaryEntry]:
        """What is known about the sessions of a project, newest first."""
        with self._lock:
            return deepcopy(self._of_project(project_key))

    async def delete(self, key: SessionKey) -> None:
        project, session, subpath = _place(key)
        with self._lock:
            gone = [
                place
                for place in self._uuids
                if place[:2] == (project, session) and subpath in (_MAIN, place[2])
            ]
            for place in gone:
                del self._uuids[place]
                self._transcripts.pop(place, None)
            if subpath is _MAIN:
                self._summaries.pop((project, session), None)

    async def list_subkeys(self, key: SessionListSubkeysKey) -> list[str]:
        session = key["project_key"], key["session_id"]
        with self._lock:
            return [place[2] for place in self._transcripts if place[:2] == session and place[2] is not None]

    # For tests.

    def get_entries(self, key: SessionKey) -> list[SessionStoreEntry]:
        """The entries of a transcript; none if it is not there."""
        return deepcopy(self._transcripts.get(_place(key), []))

    @property
    def size(self) -> int:
        """How many sessions there are, their parts not counted."""
        return len(self._summaries)

    def clear(self) -> None:
        """Remove everything."""
        with self._lock:
            self._transcripts.clear()
            self._uuids.clear()
            self._summaries.clear()

    def _summarise(self, key: SessionKey, entries: list[SessionStoreEntry]) -> None:
        # Two within a millisecond have an order too.
        self._latest = max(time.time_ns() // 1_000_000, self._latest + 1)
        place = key["project_key"], key["session_id"]
        summary = fold_session_summary(self._summaries.get(place), key, entries)
        summary["mtime"] = self._latest
        self._summaries[place] = summary

    def _of_project(self, project_key: str) -> list[SessionSummaryEntry]:
        found = [summary for place, summary in self._summaries.items() if place[0] == project_key]
        return sorted(found, key=lambda summary: summary["mtime"], reverse=True)


def _place(key: SessionKey) -> _Place:
    return key["project_key"], key["session_id"], key.get("subpath")

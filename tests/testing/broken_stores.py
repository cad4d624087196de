"""Stores that break one clause of the contract each."""

from __future__ import annotations

import json
import time
from copy import deepcopy
from typing import Any

from anyio.lowlevel import checkpoint

from outrider.errors import LeaseLost, SessionBusy
from outrider.transcripts import SessionKey, SessionStoreEntry
from outrider.transcripts.stores._base import Place
from tests.testing.dict_store import DictStore


class Forgets(DictStore):
    async def append(self, key: SessionKey, entries: list[SessionStoreEntry]) -> None:
        return


class Reverses(DictStore):
    async def load(self, key: SessionKey) -> Any:
        loaded = await super().load(key)
        return loaded and loaded[::-1]


class EmptyForNone(DictStore):
    async def load(self, key: SessionKey) -> Any:
        return await super().load(key) or []


class KeepsNothing(DictStore):
    """Makes a transcript of no entries."""

    async def append(self, key: SessionKey, entries: list[SessionStoreEntry]) -> None:
        await super().append(key, entries)
        self._transcripts.setdefault(Place.of(key), [])


class Repeats(DictStore):
    async def append(self, key: SessionKey, entries: list[SessionStoreEntry]) -> None:
        self._uuids.clear()
        await super().append(key, entries)


class KnowsAllUuids(DictStore):
    """Takes a `uuid` to be one for all sessions."""

    seen: set[str]

    async def append(self, key: SessionKey, entries: list[SessionStoreEntry]) -> None:
        seen = self.__dict__.setdefault("seen", set())
        fresh = [entry for entry in entries if entry.get("uuid") is None or entry.get("uuid") not in seen]
        seen.update(entry.get("uuid") for entry in entries)
        await super().append(key, fresh)


class DropsRepeated(DictStore):
    """Takes two entries that say the same for one."""

    async def append(self, key: SessionKey, entries: list[SessionStoreEntry]) -> None:
        known = await super().load(key) or []
        await super().append(key, [entry for entry in entries if entry not in known])


class JoinsKeys(DictStore):
    """Keeps transcripts under the parts of their key, joined."""

    def _joined(self, key: SessionKey) -> SessionKey:
        joined = "/".join(
            [key["project_key"], key["session_id"], *([key["subpath"]] if "subpath" in key else [])]
        )
        return {"project_key": "all", "session_id": joined}

    async def append(self, key: SessionKey, entries: list[SessionStoreEntry]) -> None:
        await super().append(self._joined(key), entries)

    async def load(self, key: SessionKey) -> Any:
        return await super().load(self._joined(key))

    async def delete(self, key: SessionKey) -> None:
        await super().delete(self._joined(key))


class FoldsCase(DictStore):
    async def append(self, key: SessionKey, entries: list[SessionStoreEntry]) -> None:
        folded: Any = {name: str(value).lower() for name, value in key.items()}
        await super().append(folded, entries)

    async def load(self, key: SessionKey) -> Any:
        folded: Any = {name: str(value).lower() for name, value in key.items()}
        return await super().load(folded)


class EncodesText(DictStore):
    """Cannot store what is no Unicode."""

    async def append(self, key: SessionKey, entries: list[SessionStoreEntry]) -> None:
        json.dumps(entries, ensure_ascii=False).encode()
        await super().append(key, entries)


class RoundsNumbers(DictStore):
    """Makes a float of every large number, as JavaScript does."""

    async def load(self, key: SessionKey) -> Any:
        text = json.dumps(await super().load(key))
        return json.loads(text, parse_int=lambda digits: int(float(digits)))


class CutsBatches(DictStore):
    async def append(self, key: SessionKey, entries: list[SessionStoreEntry]) -> None:
        await super().append(key, entries[:1000])


class LosesUpdates(DictStore):
    """Reads, waits, and writes all of it."""

    async def append(self, key: SessionKey, entries: list[SessionStoreEntry]) -> None:
        before = await super().load(key) or []
        await checkpoint()
        place = Place.of(key)
        self._transcripts.pop(place, None)
        self._uuids.pop(place, None)
        await super().append(key, [*before, *entries])


class GivesItself(DictStore):
    async def load(self, key: SessionKey) -> Any:
        return self._transcripts.get(Place.of(key))


class TakesItself(DictStore):
    async def append(self, key: SessionKey, entries: list[SessionStoreEntry]) -> None:
        before = len(await super().load(key) or [])
        await super().append(key, entries)
        kept = self._transcripts.get(Place.of(key), [])
        kept[before:] = entries[: len(kept) - before]


class MarksEntries(DictStore):
    async def append(self, key: SessionKey, entries: list[SessionStoreEntry]) -> None:
        await super().append(key, entries)
        for entry in entries:
            entry["stored"] = True  # type: ignore[typeddict-unknown-key]  # pyright: ignore[reportGeneralTypeIssues]


class ListsParts(DictStore):
    async def list_sessions(self, project_key: str) -> Any:
        listed = await super().list_sessions(project_key)
        known = {one["session_id"] for one in listed}
        parts = {place[1] for place in self._transcripts if place[0] == project_key} - known
        return [*listed, *({"session_id": part, "mtime": 1} for part in parts)]


class ListsByPrefix(DictStore):
    async def list_sessions(self, project_key: str) -> Any:
        listed: list[object] = []
        for project in {place[0] for place in self._transcripts if place[0].startswith(project_key)}:
            listed += await super().list_sessions(project)
        return listed


class ListsSeconds(DictStore):
    async def list_sessions(self, project_key: str) -> Any:
        return [{**one, "mtime": one["mtime"] / 1000} for one in await super().list_sessions(project_key)]


class KeepsFirstTime(DictStore):
    async def list_sessions(self, project_key: str) -> Any:
        first = self.__dict__.setdefault("first", {})
        listed = await super().list_sessions(project_key)
        return [{**one, "mtime": first.setdefault(one["session_id"], one["mtime"])} for one in listed]


class ListsMainPart(DictStore):
    async def list_subkeys(self, key: Any) -> list[str]:
        return ["", *await super().list_subkeys(key)]


class LeavesParts(DictStore):
    async def delete(self, key: SessionKey) -> None:
        kept = {place: entries for place, entries in self._transcripts.items() if place[2] is not None}
        await super().delete(key)
        if "subpath" not in key:
            self._transcripts.update(kept)


class DeletesByPrefix(DictStore):
    async def delete(self, key: SessionKey) -> None:
        for place in list(self._transcripts):
            project, session, subpath = place
            if project == key["project_key"] and session.startswith(key["session_id"]):
                if "subpath" in key and not (subpath or "").startswith(key["subpath"]):
                    continue
                self._transcripts.pop(place)
                self._uuids.pop(place)
                self._summaries.pop((project, session), None)


class DeletesWhatIsThere(DictStore):
    async def delete(self, key: SessionKey) -> None:
        if await self.load(key) is None:
            raise KeyError(key["session_id"])
        await super().delete(key)


class RemembersUuids(DictStore):
    async def delete(self, key: SessionKey) -> None:
        uuids = deepcopy(self._uuids)
        await super().delete(key)
        self._uuids.update(uuids)


class ListsDeleted(DictStore):
    async def delete(self, key: SessionKey) -> None:
        summaries = deepcopy(self._summaries)
        await super().delete(key)
        self._summaries.update(summaries)


class ListsDeletedParts(DictStore):
    async def list_subkeys(self, key: Any) -> list[str]:
        known: set[str] = self.__dict__.setdefault("known", set())
        known.update(place[2] or "" for place in self._transcripts if place[1] == key["session_id"])
        return sorted({*await super().list_subkeys(key)} | (known - {""}))

    async def delete(self, key: SessionKey) -> None:
        await self.list_subkeys(key)
        await super().delete(key)


class SummariesOfAll(DictStore):
    async def list_session_summaries(self, project_key: str) -> Any:
        return list(self._summaries.values())


class SummariesWithoutData(DictStore):
    async def list_session_summaries(self, project_key: str) -> Any:
        return [{**one, "data": None} for one in await super().list_session_summaries(project_key)]


class OldSummary(DictStore):
    async def get_session_summary(self, key: Any) -> Any:
        found: Any = await super().get_session_summary(key)
        return found and {**found, "mtime": 1}


class OldestFirst(DictStore):
    async def list_latest_sessions(self, project_key: str | None, limit: int) -> Any:
        return (await super().list_latest_sessions(project_key, limit))[::-1]


class IgnoresBatches(DictStore):
    async def append_batch(self, key: SessionKey, entries: list[SessionStoreEntry], batch: str) -> None:
        await self.append(key, entries)


class MarksBatches(DictStore):
    async def append_batch(self, key: SessionKey, entries: list[SessionStoreEntry], batch: str) -> None:
        await super().append_batch(key, entries, batch)
        entries.clear()


class BatchesOfAll(DictStore):
    """Takes an id to be one for all transcripts."""

    async def append_batch(self, key: SessionKey, entries: list[SessionStoreEntry], batch: str) -> None:
        if not any(batch in batches for batches in self._batches.values()):
            await super().append_batch(key, entries, batch)


class BatchesAreNew(DictStore):
    """Looks at the id only."""

    async def append_batch(self, key: SessionKey, entries: list[SessionStoreEntry], batch: str) -> None:
        if batch not in self._batches.get(Place.of(key), ()):
            self._uuids.pop(Place.of(key), None)
        await super().append_batch(key, entries, batch)


class LosesBatches(DictStore):
    """Looks, waits, and writes."""

    async def append_batch(self, key: SessionKey, entries: list[SessionStoreEntry], batch: str) -> None:
        is_known = batch in self._batches.get(Place.of(key), ())
        await checkpoint()
        if not is_known:
            await super().append_batch(key, entries, f"{batch} {len(await self.load(key) or [])}")
            self._batches.setdefault(Place.of(key), set()).add(batch)


class RemembersBatches(DictStore):
    async def delete(self, key: SessionKey) -> None:
        batches = dict(self._batches)
        await super().delete(key)
        self._batches.update(batches)


class BatchesOfOneObject(DictStore):
    def __init__(self, same_as: DictStore | None = None) -> None:
        super().__init__(same_as)
        self._batches = {}


class ListsProjectsOfParts(DictStore):
    async def list_projects(self) -> list[str]:
        return sorted({place.project for place in self._transcripts})


class ListsProjectsTwice(DictStore):
    async def list_projects(self) -> list[str]:
        return [project for project, _ in self._summaries]


class FoldsProjects(DictStore):
    async def list_projects(self) -> list[str]:
        return sorted({project.lower() for project in await super().list_projects()})


class FindsParts(DictStore):
    async def find_session(self, session_id: str) -> list[str]:
        return sorted({place.project for place in self._transcripts if place.session == session_id})


class LeasesToAll(DictStore):
    async def acquire_lease(self, key: Any, holder: str, seconds: float) -> str:
        self._leases.pop(Place.of(key)[:2], None)
        return await super().acquire_lease(key, holder, seconds)


class TellsNoHolder(DictStore):
    async def acquire_lease(self, key: Any, holder: str, seconds: float) -> str:
        return await super().acquire_lease(key, "", seconds)


class LeasesAreSessions(DictStore):
    async def acquire_lease(self, key: Any, holder: str, seconds: float) -> str:
        self._transcripts.setdefault(Place.of(key), [])
        return await super().acquire_lease(key, holder, seconds)


class ReleasesAny(DictStore):
    async def release_lease(self, key: Any, token: str) -> None:
        self._leases.pop(Place.of(key)[:2], None)


class LeasesForEver(DictStore):
    async def acquire_lease(self, key: Any, holder: str, seconds: float) -> str:
        return await super().acquire_lease(key, holder, 1e6)


class RenewsLost(DictStore):
    """Takes a lease back from who has it now."""

    async def renew_lease(self, key: Any, token: str, seconds: float) -> None:
        lease = self._leases.get(Place.of(key)[:2])
        if lease is not None:
            self._leases[Place.of(key)[:2]] = lease._replace(token=token)
        await super().renew_lease(key, token, seconds)


class LosesWhatRanOut(DictStore):
    async def renew_lease(self, key: Any, token: str, seconds: float) -> None:
        lease = self._leases.get(Place.of(key)[:2])
        if lease is not None and lease.end < time.monotonic():
            raise LeaseLost(key["session_id"])
        await super().renew_lease(key, token, seconds)


class RenewsNothing(DictStore):
    async def renew_lease(self, key: Any, token: str, seconds: float) -> None:
        await super().renew_lease(key, token, 0.01)


class RenewsAny(DictStore):
    async def renew_lease(self, key: Any, token: str, seconds: float) -> None:
        try:
            await super().renew_lease(key, token, seconds)
        except LeaseLost:
            return


class LeasesSlowly(DictStore):
    """Looks, waits, and takes it."""

    async def acquire_lease(self, key: Any, holder: str, seconds: float) -> str:
        token = await super().acquire_lease(key, holder, seconds)
        lease = self._leases.pop(Place.of(key)[:2])
        await checkpoint()
        self._leases[Place.of(key)[:2]] = lease
        return token


class LeasesOfOneObject(DictStore):
    def __init__(self, same_as: DictStore | None = None) -> None:
        super().__init__(same_as)
        self._leases = {}


class LetsAllWrite(DictStore):
    async def append(self, key: SessionKey, entries: list[SessionStoreEntry]) -> None:
        try:
            await super().append(key, entries)
        except SessionBusy:
            self._transcripts.setdefault(Place.of(key), []).extend(entries)


class LetsBatchesIn(DictStore):
    async def append_batch(self, key: SessionKey, entries: list[SessionStoreEntry], batch: str) -> None:
        try:
            await super().append_batch(key, entries, batch)
        except SessionBusy:
            self._transcripts.setdefault(Place.of(key), []).extend(entries)


class RefusesWhoRanOut(DictStore):
    async def append(self, key: SessionKey, entries: list[SessionStoreEntry]) -> None:
        lease = self._leases.get(Place.of(key)[:2])
        if lease is not None and lease.end < time.monotonic():
            raise SessionBusy(key["session_id"])
        await super().append(key, entries)


class LetsAllDelete(DictStore):
    async def delete(self, key: SessionKey) -> None:
        lease = self._leases.pop(Place.of(key)[:2], None)
        await super().delete(key)
        if lease is not None:
            self._leases[Place.of(key)[:2]] = lease


class DeletesLeases(DictStore):
    async def delete(self, key: SessionKey) -> None:
        await super().delete(key)
        self._leases.pop(Place.of(key)[:2], None)

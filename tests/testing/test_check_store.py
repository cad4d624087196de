"""The check passes stores that keep to the contract, and names each clause that is broken."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from copy import deepcopy
from typing import Any

import pytest
from anyio.lowlevel import checkpoint

from bridle.errors import OptionsError
from bridle.testing._check_store import check_store
from bridle.testing._contract import ContractBroken
from bridle.testing._store_clauses import CLAUSES
from bridle.transcripts import MemoryStore, SessionKey, SessionStore, SessionStoreEntry

pytestmark = pytest.mark.anyio

EVERY = [clause.text for clauses in CLAUSES.values() for clause in clauses]


async def test_the_store_in_memory_keeps_to_the_contract() -> None:
    assert await check_store(MemoryStore) == EVERY


async def test_a_store_that_others_use_too_is_as_good() -> None:
    shared = MemoryStore()
    for _ in range(2):
        await check_store(lambda: shared)


async def test_a_store_may_be_made_in_other_ways() -> None:
    async def make() -> MemoryStore:
        await checkpoint()
        return MemoryStore()

    @asynccontextmanager
    async def opened() -> AsyncGenerator[MemoryStore]:
        yield MemoryStore()

    assert await check_store(make) == await check_store(opened) == EVERY


class Minimal:
    """The two methods that have to be there, and no more."""

    def __init__(self) -> None:
        self._store = MemoryStore()

    async def append(self, key: SessionKey, entries: list[SessionStoreEntry]) -> None:
        await self._store.append(key, entries)

    async def load(self, key: SessionKey) -> list[SessionStoreEntry] | None:
        return await self._store.load(key)


class Inheriting(Minimal, SessionStore):
    """Has the others from the contract, where they say that they are not there."""


class Refusing(Minimal):
    """Says itself that they are not there, as a class does that inherits them from elsewhere."""

    async def _refuse(self, _: object) -> Any:
        raise NotImplementedError

    list_sessions = list_session_summaries = delete = list_subkeys = _refuse


@pytest.mark.parametrize("kind", [Minimal, Inheriting, Refusing])
async def test_optional_methods_are_checked_only_if_they_are_there(kind: Any) -> None:
    assert await check_store(kind) == [clause.text for clause in CLAUSES[()]]


# What does not keep to it.


class Forgets(MemoryStore):
    async def append(self, key: SessionKey, entries: list[SessionStoreEntry]) -> None:
        return


class Reverses(MemoryStore):
    async def load(self, key: SessionKey) -> Any:
        loaded = await super().load(key)
        return loaded and loaded[::-1]


class EmptyForNone(MemoryStore):
    async def load(self, key: SessionKey) -> Any:
        return await super().load(key) or []


class KeepsNothing(MemoryStore):
    """Makes a transcript of no entries."""

    async def append(self, key: SessionKey, entries: list[SessionStoreEntry]) -> None:
        await super().append(key, entries)
        self._transcripts.setdefault((key["project_key"], key["session_id"], key.get("subpath")), [])


class Repeats(MemoryStore):
    async def append(self, key: SessionKey, entries: list[SessionStoreEntry]) -> None:
        self._uuids.clear()
        await super().append(key, entries)


class KnowsAllUuids(MemoryStore):
    """Takes a `uuid` to be one for all sessions."""

    seen: set[str]

    async def append(self, key: SessionKey, entries: list[SessionStoreEntry]) -> None:
        seen = self.__dict__.setdefault("seen", set())
        fresh = [entry for entry in entries if entry.get("uuid") is None or entry.get("uuid") not in seen]
        seen.update(entry.get("uuid") for entry in entries)
        await super().append(key, fresh)


class DropsRepeated(MemoryStore):
    """Takes two entries that say the same for one."""

    async def append(self, key: SessionKey, entries: list[SessionStoreEntry]) -> None:
        known = await super().load(key) or []
        await super().append(key, [entry for entry in entries if entry not in known])


class JoinsKeys(MemoryStore):
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


class FoldsCase(MemoryStore):
    async def append(self, key: SessionKey, entries: list[SessionStoreEntry]) -> None:
        folded: Any = {name: str(value).lower() for name, value in key.items()}
        await super().append(folded, entries)

    async def load(self, key: SessionKey) -> Any:
        folded: Any = {name: str(value).lower() for name, value in key.items()}
        return await super().load(folded)


class EncodesText(MemoryStore):
    """Cannot store what is no Unicode."""

    async def append(self, key: SessionKey, entries: list[SessionStoreEntry]) -> None:
        json.dumps(entries, ensure_ascii=False).encode()
        await super().append(key, entries)


class RoundsNumbers(MemoryStore):
    """Makes a float of every large number, as JavaScript does."""

    async def load(self, key: SessionKey) -> Any:
        text = json.dumps(await super().load(key))
        return json.loads(text, parse_int=lambda digits: int(float(digits)))


class CutsBatches(MemoryStore):
    async def append(self, key: SessionKey, entries: list[SessionStoreEntry]) -> None:
        await super().append(key, entries[:1000])


class LosesUpdates(MemoryStore):
    """Reads, waits, and writes all of it."""

    async def append(self, key: SessionKey, entries: list[SessionStoreEntry]) -> None:
        before = await super().load(key) or []
        await checkpoint()
        place = (key["project_key"], key["session_id"], key.get("subpath"))
        self._transcripts.pop(place, None)
        self._uuids.pop(place, None)
        await super().append(key, [*before, *entries])


class GivesItself(MemoryStore):
    async def load(self, key: SessionKey) -> Any:
        return self._transcripts.get((key["project_key"], key["session_id"], key.get("subpath")))


class TakesItself(MemoryStore):
    async def append(self, key: SessionKey, entries: list[SessionStoreEntry]) -> None:
        before = len(await super().load(key) or [])
        await super().append(key, entries)
        kept = self._transcripts.get((key["project_key"], key["session_id"], key.get("subpath")), [])
        kept[before:] = entries[: len(kept) - before]


class MarksEntries(MemoryStore):
    async def append(self, key: SessionKey, entries: list[SessionStoreEntry]) -> None:
        await super().append(key, entries)
        for entry in entries:
            entry["stored"] = True  # type: ignore[typeddict-unknown-key]  # pyright: ignore[reportGeneralTypeIssues]


class ListsParts(MemoryStore):
    async def list_sessions(self, project_key: str) -> Any:
        listed = await super().list_sessions(project_key)
        known = {one["session_id"] for one in listed}
        parts = {place[1] for place in self._transcripts if place[0] == project_key} - known
        return [*listed, *({"session_id": part, "mtime": 1} for part in parts)]


class ListsByPrefix(MemoryStore):
    async def list_sessions(self, project_key: str) -> Any:
        listed: list[object] = []
        for project in {place[0] for place in self._transcripts if place[0].startswith(project_key)}:
            listed += await super().list_sessions(project)
        return listed


class ListsSeconds(MemoryStore):
    async def list_sessions(self, project_key: str) -> Any:
        return [{**one, "mtime": one["mtime"] / 1000} for one in await super().list_sessions(project_key)]


class KeepsFirstTime(MemoryStore):
    async def list_sessions(self, project_key: str) -> Any:
        first = self.__dict__.setdefault("first", {})
        listed = await super().list_sessions(project_key)
        return [{**one, "mtime": first.setdefault(one["session_id"], one["mtime"])} for one in listed]


class ListsMainPart(MemoryStore):
    async def list_subkeys(self, key: Any) -> list[str]:
        return ["", *await super().list_subkeys(key)]


class LeavesParts(MemoryStore):
    async def delete(self, key: SessionKey) -> None:
        kept = {place: entries for place, entries in self._transcripts.items() if place[2] is not None}
        await super().delete(key)
        if "subpath" not in key:
            self._transcripts.update(kept)


class DeletesByPrefix(MemoryStore):
    async def delete(self, key: SessionKey) -> None:
        for place in list(self._transcripts):
            project, session, subpath = place
            if project == key["project_key"] and session.startswith(key["session_id"]):
                if "subpath" in key and not (subpath or "").startswith(key["subpath"]):
                    continue
                self._transcripts.pop(place)
                self._uuids.pop(place)
                self._summaries.pop((project, session), None)


class DeletesWhatIsThere(MemoryStore):
    async def delete(self, key: SessionKey) -> None:
        if await self.load(key) is None:
            raise KeyError(key["session_id"])
        await super().delete(key)


class RemembersUuids(MemoryStore):
    async def delete(self, key: SessionKey) -> None:
        uuids = deepcopy(self._uuids)
        await super().delete(key)
        self._uuids.update(uuids)


class ListsDeleted(MemoryStore):
    async def delete(self, key: SessionKey) -> None:
        summaries = deepcopy(self._summaries)
        await super().delete(key)
        self._summaries.update(summaries)


class ListsDeletedParts(MemoryStore):
    async def list_subkeys(self, key: Any) -> list[str]:
        known: set[str] = self.__dict__.setdefault("known", set())
        known.update(place[2] or "" for place in self._transcripts if place[1] == key["session_id"])
        return sorted({*await super().list_subkeys(key)} | (known - {""}))

    async def delete(self, key: SessionKey) -> None:
        await self.list_subkeys(key)
        await super().delete(key)


class SummariesOfAll(MemoryStore):
    async def list_session_summaries(self, project_key: str) -> Any:
        return list(self._summaries.values())


class SummariesWithoutData(MemoryStore):
    async def list_session_summaries(self, project_key: str) -> Any:
        return [{**one, "data": None} for one in await super().list_session_summaries(project_key)]


@pytest.mark.parametrize("anyio_backend", ["asyncio"])
@pytest.mark.parametrize(
    "kind, clause, seen",
    [
        (Forgets, "What was appended is loaded", "3 entries should be there, and `load` gave None"),
        (Reverses, "What was appended is loaded", "came back as"),
        (EmptyForNone, "`load` gives None", "[] for a session that was never stored"),
        (KeepsNothing, "Appending no entries", "[] for a session that has no entries"),
        (Repeats, "A batch that is appended again", "sent twice: 3 entries should be there, and 6 came back"),
        (KnowsAllUuids, "A batch that is appended again", "sent to another session too"),
        (DropsRepeated, "Entries without a `uuid`", "3 entries should be there, and 2 came back"),
        (JoinsKeys, "Each key is a transcript of its own", "1 entries should be there, and 3 came back"),
        (FoldsCase, "Each key is a transcript of its own", "and 2 came back"),
        (EncodesText, "Any JSON comes back", "a lone surrogate: UnicodeEncodeError"),
        (RoundsNumbers, "Any JSON comes back", "a negative one: "),
        (CutsBatches, "Large batches", "5000 entries should be there, and 1000 came back"),
        (LosesUpdates, "Appends at the same time", "200 entries were appended, and"),
        (GivesItself, "What is given out", "what was given out was changed"),
        (TakesItself, "What is given out", "what was given was changed afterwards"),
        (MarksEntries, "What is given out", "`append` changed the entries"),
        (ListsParts, "`list_sessions` gives", "'only a part'"),
        (ListsByPrefix, "`list_sessions` gives", "'three'"),
        (ListsSeconds, "`mtime` tells", "whole `mtime`"),
        (KeepsFirstTime, "`mtime` tells", "'one' was appended to last, and newest is ['three']"),
        (ListsMainPart, "`list_subkeys` gives", "a session that was never stored has parts"),
        (LeavesParts, "`delete` of a session", "is still there"),
        (DeletesByPrefix, "`delete` of a session", "another session: 2 entries should be there"),
        (DeletesByPrefix, "`delete` of a subpath", "2 entries should be there, and `load` gave None"),
        (DeletesWhatIsThere, "`delete` of what is not there", "KeyError"),
        (RemembersUuids, "`delete` of what is not there", "stored again after `delete`"),
        (ListsDeleted, "A session that was deleted is not listed", "'one'"),
        (ListsDeletedParts, "A subpath that was deleted", "'a' was deleted, and ['a', 'b'] are listed"),
        (SummariesOfAll, "`list_session_summaries` has", "'three'"),
        (SummariesWithoutData, "`list_session_summaries` has", "object `data`"),
        (ListsDeleted, "A session that was deleted has no summary", "there are summaries of"),
    ],
    ids=lambda value: value.__name__ if isinstance(value, type) else None,
)
async def test_a_broken_clause_is_named_with_what_was_seen(kind: Any, clause: str, seen: str) -> None:
    with pytest.raises(ContractBroken) as caught:
        await check_store(kind)
    broken = [one for one in caught.value.broken if one.clause.startswith(clause)]
    assert broken, caught.value
    assert seen in broken[0].seen
    assert str(caught.value).startswith(f"{kind.__name__} breaks {len(caught.value.broken)} of 20 clauses:")


def test_there_is_a_broken_one_for_each_clause() -> None:
    test: Any = test_a_broken_clause_is_named_with_what_was_seen
    [rows] = [mark.args[1] for mark in test.pytestmark if mark.args and mark.args[0].startswith("kind")]
    assert {text for text in EVERY for _, begin, _ in rows if text.startswith(begin)} == {*EVERY}


@pytest.mark.parametrize("make", [lambda: None, dict], ids=["none", "dict"])
async def test_what_makes_no_stores_is_refused(make: Any) -> None:
    with pytest.raises(OptionsError, match="which is no store"):
        await check_store(make)


async def test_a_deadline_is_needed() -> None:
    with pytest.raises(OptionsError, match="`deadline` is -1"):
        await check_store(MemoryStore, deadline=-1)

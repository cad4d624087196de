"""The check passes stores that keep to the contract, and names each clause that is broken."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from anyio.lowlevel import checkpoint

from outrider.errors import OptionsError
from outrider.testing import ContractBroken, check_store
from outrider.testing._contracts import store_strict
from outrider.testing._contracts.contract import ANOTHER
from outrider.testing._contracts.store import ALL_CLAUSES
from outrider.transcripts import MemoryStore, SessionKey, SessionStore, SessionStoreEntry
from outrider.transcripts.stores._base import offers
from tests.testing.broken_stores import (
    BatchesAreNew,
    BatchesOfAll,
    BatchesOfOneObject,
    CutsBatches,
    DeletesByPrefix,
    DeletesLeases,
    DeletesWhatIsThere,
    DropsRepeated,
    EmptyForNone,
    EncodesText,
    FindsParts,
    FoldsCase,
    FoldsProjects,
    Forgets,
    GivesItself,
    IgnoresBatches,
    JoinsKeys,
    KeepsFirstTime,
    KeepsNothing,
    KnowsAllUuids,
    LeasesAreSessions,
    LeasesForEver,
    LeasesOfOneObject,
    LeasesSlowly,
    LeasesToAll,
    LeavesParts,
    LetsAllDelete,
    LetsAllWrite,
    LetsBatchesIn,
    ListsByPrefix,
    ListsDeleted,
    ListsDeletedParts,
    ListsMainPart,
    ListsParts,
    ListsProjectsOfParts,
    ListsProjectsTwice,
    ListsSeconds,
    LosesBatches,
    LosesUpdates,
    LosesWhatRanOut,
    MarksBatches,
    MarksEntries,
    OldestFirst,
    OldSummary,
    RefusesWhoRanOut,
    ReleasesAny,
    RemembersBatches,
    RemembersUuids,
    RenewsAny,
    RenewsLost,
    RenewsNothing,
    Repeats,
    Reverses,
    RoundsNumbers,
    SummariesOfAll,
    SummariesWithoutData,
    TakesItself,
    TellsNoHolder,
)
from tests.testing.dict_store import DictStore

pytestmark = pytest.mark.anyio

EVERY = [clause.text for clauses in ALL_CLAUSES.values() for clause in clauses]
OF_ONE = [
    clause.text for needed, clauses in ALL_CLAUSES.items() if ANOTHER not in needed for clause in clauses
]


async def test_the_store_in_memory_keeps_to_the_contract() -> None:
    assert await check_store(MemoryStore, again=MemoryStore) == EVERY


async def test_what_two_objects_share_is_checked_if_there_are_two() -> None:
    assert await check_store(MemoryStore) == OF_ONE
    shared = MemoryStore()
    # The same object each time, and another one on the same data each time.
    assert await check_store(lambda: shared) == OF_ONE
    assert await check_store(lambda: MemoryStore(shared)) == EVERY


async def test_a_store_may_be_made_in_other_ways() -> None:
    async def make() -> MemoryStore:
        await checkpoint()
        return MemoryStore()

    @asynccontextmanager
    async def opened() -> AsyncGenerator[MemoryStore]:
        yield MemoryStore()

    assert await check_store(make) == await check_store(opened) == OF_ONE

    @asynccontextmanager
    async def another(store: MemoryStore) -> AsyncGenerator[MemoryStore]:
        yield MemoryStore(store)

    assert await check_store(opened, again=another) == EVERY


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

    async def _refuse(self, *_: object) -> Any:
        raise NotImplementedError

    list_sessions = list_session_summaries = delete = list_subkeys = _refuse
    append_batch = list_projects = find_session = acquire_lease = renew_lease = release_lease = _refuse


@pytest.mark.parametrize("kind", [Minimal, Inheriting, Refusing])
async def test_optional_methods_are_checked_only_if_they_are_there(kind: Any) -> None:
    assert await check_store(kind) == [clause.text for clause in ALL_CLAUSES[()]]


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
        (LosesUpdates, "Appends at the same time", "120 entries were appended, and"),
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
        (OldSummary, "`get_session_summary` has", "after an append the time is 1, as before"),
        (OldestFirst, "`list_latest_sessions` has", "the latest 2 are ['three', 'one']"),
        (IgnoresBatches, "A batch that comes again", "sent twice: 3 entries should be there, and 6 came"),
        (MarksBatches, "A batch that comes again", "`append_batch` changed the entries"),
        (BatchesOfAll, "The id of a batch is one", "2 entries should be there, and `load` gave None"),
        (BatchesAreNew, "`append_batch` keeps each `uuid`", "two of three were there: 3 entries should be"),
        (LosesBatches, "A batch that comes several times", "3 entries should be there, and"),
        (RemembersBatches, "The ids of batches are deleted", "stored again after `delete`"),
        (BatchesOfOneObject, "Another object on the same data has", "after both had written: 6 entries"),
        (ListsProjectsOfParts, "`list_projects` has", "['parts only'] had none, and are listed"),
        (ListsProjectsTwice, "`list_projects` has", "a project is listed twice"),
        (FoldsProjects, "`list_projects` has", "['A'] had sessions, and are not listed"),
        (ListsDeleted, "A project is listed until", "all its sessions were deleted, and it is listed"),
        (FindsParts, "`find_session` gives", " part'"),
        (ListsDeleted, "A session that was deleted is not found", "and found in"),
        (LeasesToAll, "One has the lease", "another has the lease, and there was no SessionBusy"),
        (TellsNoHolder, "One has the lease", "`holder` is ''"),
        (LeasesAreSessions, "The holder of a lease", "for a session that has a lease only"),
        (ReleasesAny, "A lease that is released", "after another token was released"),
        (LeasesForEver, "A lease that has run out", "nothing for 1 s"),
        (RenewsLost, "A lease that has run out", "there was no LeaseLost"),
        (LosesWhatRanOut, "A lease that is renewed", "LeaseLost"),
        (RenewsNothing, "A lease that is renewed", "after it was renewed: another has the lease"),
        (RenewsAny, "To renew what was released", "there was no LeaseLost"),
        (LeasesSlowly, "Of several who want a lease", "8 wanted it, and ["),
        (LeasesOfOneObject, "Of two objects that want a lease", "8 wanted it, and ["),
        (LetsAllWrite, "While a lease runs, another object cannot write", "`append`: another has the lease"),
        (LetsBatchesIn, "While a lease runs, another object cannot write", "`append_batch`: another has the"),
        (RefusesWhoRanOut, "A writer whose lease has run out", "SessionBusy"),
        (LetsAllWrite, "A writer whose lease has run out", "`append`: another has the lease"),
        (LetsAllDelete, "While a lease runs, another object cannot delete", "`delete`: another has the"),
        (
            DeletesLeases,
            "While a lease runs, another object cannot delete",
            "after who has the lease deleted",
        ),
    ],
    ids=lambda value: value.__name__ if isinstance(value, type) else None,
)
async def test_a_broken_clause_is_named_with_what_was_seen(
    kind: Any, clause: str, seen: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Nothing but the memory is slow here.
    monkeypatch.setattr(store_strict, "_SHORT", 0.05)
    with pytest.raises(ContractBroken) as caught:
        await check_store(kind, again=kind, deadline=1 if kind is LeasesForEver else 30)
    broken = [one for one in caught.value.broken if one.clause.startswith(clause)]
    assert broken, caught.value
    assert seen in broken[0].seen
    # A store that lists in its own way is not asked in the faster one that it inherits.
    faster = sum(offers(DictStore(), one) and not offers(kind(), one) for one in FASTER)
    assert str(caught.value).startswith(
        f"{kind.__name__} breaks {len(caught.value.broken)} of {len(EVERY) - faster} clauses:"
    )


FASTER = ("get_session_summary", "list_latest_sessions")


def test_there_is_a_broken_one_for_each_clause() -> None:
    test: Any = test_a_broken_clause_is_named_with_what_was_seen
    [rows] = [mark.args[1] for mark in test.pytestmark if mark.args and mark.args[0].startswith("kind")]
    assert {text for text in EVERY for _, begin, _ in rows if text.startswith(begin)} == {*EVERY}


@pytest.mark.parametrize("make", [lambda: None, dict], ids=["none", "dict"])
async def test_what_makes_no_stores_is_refused(make: Any) -> None:
    with pytest.raises(OptionsError, match="which is not a store"):
        await check_store(make)


async def test_a_deadline_is_needed() -> None:
    with pytest.raises(OptionsError, match="`deadline` is -1"):
        await check_store(MemoryStore, deadline=-1)

"""`run_session_store_conformance`: passes for stores that keep to the contracts, else names one."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest

from outrider.compat._sessions.stores import InMemorySessionStore
from outrider.compat.testing import run_session_store_conformance
from outrider.transcripts import MemoryStore, SessionStore, SqliteStore
from tests.cases import every_case

Kept = dict[tuple[str, str, str | None], list[Any]]


class Plain:
    """The least that a store has to have; not even what is given twice is noticed."""

    def __init__(self) -> None:
        self.kept: Kept = {}

    @staticmethod
    def place(key: Any) -> tuple[str, str, str | None]:
        return key["project_key"], key["session_id"], key.get("subpath")

    async def append(self, key: Any, entries: Any) -> None:
        if entries:
            self.kept.setdefault(self.place(key), []).extend(deepcopy(entries))

    async def load(self, key: Any) -> Any:
        return deepcopy(self.kept.get(self.place(key)))


class Loose(Plain):
    """Has all methods, and takes what the contracts leave open: times that are the same, fractions of them,
    more fields than it should, summaries that say nothing."""

    async def list_sessions(self, project_key: str) -> Any:
        return [
            {"session_id": session, "mtime": 1_772_000_000_000.5, "more": 1}
            for project, session, subpath in self.kept
            if project == project_key and subpath is None
        ]

    async def list_session_summaries(self, project_key: str) -> Any:
        return [
            {**row, "mtime": row["mtime"] + 1, "data": {}} for row in await self.list_sessions(project_key)
        ]

    async def delete(self, key: Any) -> None:
        wanted = self.place(key)
        for place in [*self.kept]:
            if place[:2] == wanted[:2] and wanted[2] in (None, place[2]):
                del self.kept[place]

    async def list_subkeys(self, key: Any) -> Any:
        return [place[2] for place in self.kept if place[:2] == self.place(key)[:2] and place[2]][::-1]


@every_case("make", [Plain, Loose, InMemorySessionStore, MemoryStore])
@pytest.mark.anyio
async def test_a_store_that_keeps_to_them_passes(make: Callable[[], Any]) -> None:
    await run_session_store_conformance(make)


@pytest.mark.anyio
async def test_a_database_passes_and_may_be_made_in_a_coroutine(tmp_path: Path) -> None:
    made: list[SqliteStore] = []

    async def make() -> Any:
        made.append(SqliteStore(tmp_path / f"{len(made)}.db"))
        return made[-1]

    await run_session_store_conformance(make)
    for store in made:
        await store.close()
    assert len(made) == 1 + 14


# Each breaks one of them


class ForgetsOrder(Loose):
    async def load(self, key: Any) -> Any:
        found = await super().load(key)
        return found and found[::-1]


class GivesNoneAsEmpty(Loose):
    async def load(self, key: Any) -> Any:
        return await super().load(key) or []


class SortsBatches(Loose):
    async def load(self, key: Any) -> Any:
        found = await super().load(key)
        return found if not found or len(found) < 3 else sorted(found, key=lambda entry: str(entry["uuid"]))


class ClearsOnNothing(Loose):
    async def append(self, key: Any, entries: Any) -> None:
        if not entries:
            self.kept.pop(self.place(key), None)
        await super().append(key, entries)


class IgnoresSubpaths(Loose):
    async def append(self, key: Any, entries: Any) -> None:
        await super().append({**key, "subpath": None}, entries)

    async def load(self, key: Any) -> Any:
        known = self.kept.get(self.place({**key, "subpath": None}))
        return deepcopy(known) if key.get("subpath") != "nothing" else None


class MixesProjects(Loose):
    @staticmethod
    def place(key: Any) -> tuple[str, str, str | None]:
        return "all", key["session_id"], key.get("subpath")


class TellsSeconds(Loose):
    async def list_sessions(self, project_key: str) -> Any:
        return [{**row, "mtime": row["mtime"] // 1000} for row in await super().list_sessions(project_key)]


class ListsTwice(Loose):
    async def list_sessions(self, project_key: str) -> Any:
        return 2 * await super().list_sessions(project_key)


class ListsParts(Loose):
    async def list_sessions(self, project_key: str) -> Any:
        found = [place[1] for place in self.kept if place[0] == project_key]
        return [{"session_id": session, "mtime": 1_772_000_000_000} for session in found]


class SummarisesLate(Loose):
    async def list_session_summaries(self, project_key: str) -> Any:
        return [{**row, "mtime": 1} for row in await super().list_session_summaries(project_key)]


class SummarisesInText(Loose):
    async def list_session_summaries(self, project_key: str) -> Any:
        return [{**row, "data": "{}"} for row in await super().list_session_summaries(project_key)]


class SummarisesParts(Loose):
    async def list_session_summaries(self, project_key: str) -> Any:
        told = await super().list_session_summaries(project_key)
        return [{**row, "data": {"transcripts": len(self.kept)}} for row in told]


class RemembersDeleted(Loose):
    def __init__(self) -> None:
        super().__init__()
        self.told: dict[str, Any] = {}

    async def list_session_summaries(self, project_key: str) -> Any:
        told = await super().list_session_summaries(project_key)
        self.told |= {row["session_id"]: row for row in told}
        return [*self.told.values()] if project_key == "project" else told


class RefusesToDeleteNothing(Loose):
    async def delete(self, key: Any) -> None:
        del self.kept[self.place(key)]


class LeavesParts(Loose):
    async def delete(self, key: Any) -> None:
        self.kept.pop(self.place(key), None)


class DeletesAll(Loose):
    async def delete(self, key: Any) -> None:
        await super().delete({**key, "subpath": None})


class DeletesEverybody(Loose):
    async def delete(self, key: Any) -> None:
        self.kept.clear()


class ListsOthersParts(Loose):
    async def list_subkeys(self, key: Any) -> Any:
        return [place[2] for place in self.kept if place[2]]


class ListsTheMain(Loose):
    async def list_subkeys(self, key: Any) -> Any:
        found = await super().list_subkeys(key)
        return found or [""]


class GivesATuple(Loose):
    async def list_sessions(self, project_key: str) -> Any:
        return tuple(await super().list_sessions(project_key))


BROKEN: dict[type[Loose], str] = {
    ForgetsOrder: "What was appended is loaded",
    GivesNoneAsEmpty: "`load` gives None",
    SortsBatches: "Batches are loaded in the order",
    ClearsOnNothing: "Appending no entries",
    IgnoresSubpaths: "A subpath is a transcript of its own",
    MixesProjects: "A project's sessions are its own",
    TellsSeconds: "with a time in milliseconds",
    ListsTwice: "A project's sessions are its own",
    GivesATuple: "A project's sessions are its own",
    ListsParts: "leaves out the parts of sessions",
    SummarisesLate: "one summary for each session",
    SummarisesInText: "one summary for each session",
    SummarisesParts: "one summary for each session",
    RemembersDeleted: "one summary for each session",
    LeavesParts: "`delete` of a session removes its parts",
    DeletesEverybody: "`delete` of a session removes its parts, and nothing else",
    DeletesAll: "`delete` of a subpath removes that alone",
    ListsOthersParts: "`list_subkeys` gives the subpaths",
    ListsTheMain: "`delete` of a session removes its parts|`list_subkeys`",
}


@every_case("make", BROKEN)
@pytest.mark.anyio
async def test_a_store_that_breaks_one_is_told_which(make: type[Loose]) -> None:
    with pytest.raises(AssertionError, match=f"^{make.__name__}: .*(?:{BROKEN[make]})"):
        await run_session_store_conformance(make)


@pytest.mark.anyio
async def test_what_a_store_raises_comes_out() -> None:
    with pytest.raises(KeyError):
        await run_session_store_conformance(RefusesToDeleteNothing)


@every_case(
    "make,method",
    [
        (TellsSeconds, "list_sessions"),
        (SummarisesLate, "list_session_summaries"),
        (LeavesParts, "delete"),
        (ListsOthersParts, "list_subkeys"),
    ],
)
@pytest.mark.anyio
async def test_what_is_skipped_is_not_checked(make: type[Loose], method: str) -> None:
    await run_session_store_conformance(make, skip_optional=frozenset([method]))


@pytest.mark.anyio
async def test_methods_of_the_contract_itself_are_not_taken_for_the_stores() -> None:
    class Derived(Plain, SessionStore):
        pass

    await run_session_store_conformance(Derived)


@pytest.mark.parametrize("name", ["append", "nonsense"])
@pytest.mark.anyio
async def test_only_optional_methods_can_be_skipped(name: str) -> None:
    with pytest.raises(AssertionError, match="unknown optional methods in skip_optional"):
        await run_session_store_conformance(Loose, skip_optional=frozenset([name]))


def test_a_broken_store_is_told_of_where_assert_is_turned_off(tmp_path: Path) -> None:
    code = (
        "import anyio, sys; from outrider.compat.testing import run_session_store_conformance as run\n"
        "from outrider.transcripts import MemoryStore\n"
        "class Broken(MemoryStore):\n"
        "    async def load(self, key): return None\n"
        "try: anyio.run(run, Broken)\n"
        "except AssertionError: sys.exit('pytest' in sys.modules or 7)\n"
    )
    done = subprocess.run([sys.executable, "-O", "-c", code], cwd=tmp_path, check=False, capture_output=True)
    assert done.returncode == 7

"""Sessions in stores that have few methods, are slow, fail, or give odd things."""

from __future__ import annotations

from copy import deepcopy
from pathlib import Path
from typing import Any, cast

import anyio
import pytest

from outrider.errors import OptionsError, SessionBusy, SessionExists, SessionNotFound, StoreError, UsageError
from outrider.transcripts import (
    MemoryStore,
    SessionKey,
    SessionListSubkeysKey,
    Sessions,
    SessionStore,
    SessionStoreEntry,
    SessionStoreListEntry,
    SessionSummaryEntry,
    fold_session_summary,
    project_key,
)
from outrider.transcripts._export.turns import exported
from outrider.transcripts._library import store as _store_library
from tests.cases import every_case
from tests.transcripts.keeping import KEY, PROJECT, bundle, put_on_disk
from tests.transcripts.lines import SESSION, answer, prompt, session_id

pytestmark = pytest.mark.anyio
DEADLINE = 30.0
COUNT = 40


@pytest.fixture(params=["asyncio", "trio"])
def anyio_backend(request: pytest.FixtureRequest) -> str:
    return str(request.param)


class Least(SessionStore):
    """A store with what has to be there only."""

    def __init__(self) -> None:
        self.kept: dict[tuple[str, str, str | None], list[SessionStoreEntry]] = {}

    async def append(self, key: SessionKey, entries: list[SessionStoreEntry]) -> None:
        self.kept.setdefault(place_of(key), []).extend(deepcopy(entries))

    async def load(self, key: SessionKey) -> list[SessionStoreEntry] | None:
        return deepcopy(self.kept.get(place_of(key)))


class Counting(Least):
    """Lists sessions, and counts what is loaded; `summaries` is what it remembers."""

    def __init__(self) -> None:
        super().__init__()
        self.mtimes: dict[str, int] = {}
        self.summaries: list[SessionSummaryEntry] = []
        self.loads: list[str] = []
        self.broken: set[str] = set()
        self.at_once = self.most = 0

    async def load(self, key: SessionKey) -> list[SessionStoreEntry] | None:
        self.loads.append(key["session_id"])
        self.at_once += 1
        self.most = max(self.most, self.at_once)
        try:
            await anyio.lowlevel.checkpoint()
            if key["session_id"] in self.broken:
                raise ConnectionError("gone")
            return await super().load(key)
        finally:
            self.at_once -= 1

    async def list_sessions(self, project_key: str) -> list[SessionStoreListEntry]:
        return [{"session_id": id, "mtime": mtime} for id, mtime in self.mtimes.items()]


class Summing(Counting):
    async def list_session_summaries(self, project_key: str) -> list[SessionSummaryEntry]:
        return self.summaries


def place_of(key: SessionKey) -> tuple[str, str, str | None]:
    return key["project_key"], key["session_id"], key.get("subpath")


def filled(store: Counting, count: int = COUNT) -> Counting:
    """With sessions 1 to count, of which the last is the newest, and fresh summaries."""
    for number in range(1, count + 1):
        id = session_id(number)
        entries = cast(
            "list[SessionStoreEntry]", [prompt("u1", None, f"Prompt {number}"), answer("u2", "u1")]
        )
        key: SessionKey = {"project_key": KEY, "session_id": id}
        store.kept[place_of(key)] = entries
        store.mtimes[id] = number * 1000
        summary = fold_session_summary(None, key, entries)
        summary["mtime"] = number * 1000
        store.summaries.append(summary)
    return store


# Lists


async def test_a_list_from_fresh_summaries_loads_nothing() -> None:
    store = filled(Summing())
    before = deepcopy(store.summaries)
    found = await Sessions(store).list(project=PROJECT, limit=10)
    assert [info.title for info in found] == [f"Prompt {number}" for number in range(COUNT, COUNT - 10, -1)]
    assert store.loads == []
    assert store.summaries == before


async def test_what_is_missing_or_old_is_loaded_for_the_page_only() -> None:
    store = filled(Summing())
    store.summaries = [summary for summary in store.summaries if summary["session_id"] != session_id(COUNT)]
    old = next(summary for summary in store.summaries if summary["session_id"] == session_id(COUNT - 1))
    old["mtime"] -= 1
    old["data"] = {**old["data"], "first_prompt": "Out of date"}
    stale = next(summary for summary in store.summaries if summary["session_id"] == session_id(1))
    stale["mtime"] = 0
    found = await Sessions(store).list(project=PROJECT, limit=3)
    assert [info.title for info in found] == ["Prompt 40", "Prompt 39", "Prompt 38"]
    assert sorted(store.loads) == [session_id(COUNT - 1), session_id(COUNT)]


async def test_without_summaries_the_page_is_loaded_and_not_too_many_at_once() -> None:
    store = filled(Counting())
    assert len(await Sessions(store).list(project=PROJECT, limit=5)) == 5
    assert len(store.loads) == 5
    assert len(await Sessions(store).list(project=PROJECT)) == COUNT
    assert 1 < store.most <= 16


async def test_a_page_is_full_although_some_do_not_match() -> None:
    store = filled(Counting())
    store.kept[KEY, session_id(COUNT), None] = []
    found = await Sessions(store).list(project=PROJECT, limit=3, title="prompt 3")
    assert [info.title for info in found] == ["Prompt 39", "Prompt 38", "Prompt 37"]


async def test_one_that_cannot_be_loaded_is_listed_with_what_is_known() -> None:
    store = filled(Counting(), 3)
    store.broken = {session_id(2)}
    found = await Sessions(store).list(project=PROJECT)
    assert [info.title for info in found] == ["Prompt 3", session_id(2), "Prompt 1"]
    summing = filled(Summing(), 3)
    summing.summaries[1]["mtime"] = 0
    summing.broken = {session_id(2)}
    found = await Sessions(summing).list(project=PROJECT)
    assert [info.title for info in found] == ["Prompt 3", "Prompt 2", "Prompt 1"]


async def test_fields_may_come_back_in_another_order() -> None:
    store = filled(Counting(), 1)
    [place] = store.kept
    entries = cast("list[dict[str, Any]]", store.kept[place])
    store.kept[place] = cast("Any", [dict(sorted(entry.items(), reverse=True)) for entry in entries])
    sessions = Sessions(store)
    assert [info.title for info in await sessions.list(project=PROJECT)] == ["Prompt 1"]
    assert len(await sessions.read(session_id(1), project=PROJECT)) == 2


async def test_a_store_that_cannot_list_says_so() -> None:
    with pytest.raises(OptionsError, match="cannot list"):
        await Sessions(Least()).list(project=PROJECT)
    with pytest.raises(OptionsError, match="which projects"):
        await Sessions(filled(Counting())).list()


# Few methods


async def test_two_methods_are_enough_for_most(tmp_path: Path) -> None:
    store = Least()
    sessions = Sessions(store)
    assert await sessions.import_(exported(bundle(), "json")) == SESSION
    with pytest.raises(OptionsError, match="project="):
        await sessions.read(SESSION)
    assert len(await sessions.read(SESSION, project=PROJECT)) == 8
    await sessions.rename(SESSION, "New", project=PROJECT)
    await sessions.tag(SESSION, "t", project=PROJECT)
    await sessions.archive(SESSION, project=PROJECT)
    info = await sessions.info(SESSION, project=PROJECT)
    assert (info.title, info.tag, info.is_archived) == ("New", "t", True)
    # Only those that the transcript names can be found.
    assert await sessions.agents(SESSION, project=PROJECT) == ["first"]
    new = await sessions.fork(SESSION, project=PROJECT)
    assert len(await sessions.read(new, project=PROJECT)) == 8
    assert await sessions.agents(new, project=PROJECT) == ["first"]
    await sessions.copy(SESSION, to=Sessions(config=tmp_path), project=PROJECT)
    assert "# New" in await sessions.export(SESSION, project=PROJECT)
    with pytest.raises(SessionNotFound):
        await sessions.rename(session_id(9), "x", project=PROJECT)
    assert all(place[1] in (SESSION, new) for place in store.kept)


async def test_what_is_told_of_a_session_has_an_id_and_a_time() -> None:
    store = Least()
    sessions = Sessions(store)
    await sessions.import_(exported(bundle(), "json"))
    await sessions.rename(SESSION, "New", project=PROJECT)
    await sessions.tag(SESSION, None, project=PROJECT)
    await sessions.archive(SESSION, project=PROJECT)
    entries = cast("list[dict[str, Any]]", store.kept[KEY, SESSION, None])[-3:]
    assert [entry["type"] for entry in entries] == ["custom-title", "tag", "archived"]
    assert len({entry["uuid"] for entry in entries}) == 3
    assert all(entry["timestamp"].endswith("Z") and entry["sessionId"] == SESSION for entry in entries)


async def test_a_store_that_cannot_delete_says_so() -> None:
    store = filled(Counting(), 1)
    with pytest.raises(UsageError, match="cannot delete"):
        await Sessions(store).delete(session_id(1), project=PROJECT)
    assert store.kept


async def test_what_a_store_raises_is_told_with_the_method() -> None:
    store = filled(Counting(), 1)
    store.broken = {session_id(1)}
    with pytest.raises(StoreError, match="ConnectionError: gone") as caught:
        await Sessions(store).read(session_id(1), project=PROJECT)
    assert (caught.value.store, caught.value.operation) == ("Counting", "load")


async def test_a_search_goes_on_after_a_session_that_cannot_be_loaded() -> None:
    store = filled(Summing(), 3)
    store.broken = {session_id(3)}
    with anyio.fail_after(DEADLINE):
        hits = [hit async for hit in Sessions(store).search("prompt", project=PROJECT)]
    assert [hit.excerpt for hit in hits] == ["Prompt 2", "Prompt 1"]


async def test_a_session_that_an_agent_writes_to_is_not_renamed() -> None:
    store = MemoryStore()
    sessions = Sessions(store)
    await sessions.import_(exported(bundle(), "json"))
    other = MemoryStore(store)
    key: SessionListSubkeysKey = {"project_key": KEY, "session_id": SESSION}
    await other.acquire_lease(key, "an agent", 60)
    for change in (sessions.rename(SESSION, "x"), sessions.tag(SESSION, "x"), sessions.delete(SESSION)):
        with pytest.raises(SessionBusy, match="an agent"):
            await change
    assert len(await sessions.read(SESSION)) == 8


async def test_a_session_that_is_in_several_projects_is_the_one_used_last(tmp_path: Path) -> None:
    store = MemoryStore()
    sessions = Sessions(store)
    await sessions.import_(exported(bundle(), "json"))
    await sessions.import_(exported(bundle(), "json"), project=tmp_path)
    assert (await sessions.info(SESSION)).project == project_key(tmp_path)
    assert len(await sessions.list()) == 1
    for change in (sessions.rename(SESSION, "x"), sessions.delete(SESSION)):
        with pytest.raises(OptionsError, match="several projects"):
            await change
    await sessions.delete(SESSION, project=tmp_path)
    assert (await sessions.info(SESSION)).project == KEY


async def test_a_store_that_was_given_stays_open_and_one_that_was_opened_is_closed(tmp_path: Path) -> None:
    closed: list[str] = []

    class Closing(Least):
        async def close(self) -> None:
            closed.append("closed")

    async with Sessions(Closing()):
        pass
    assert closed == []
    async with Sessions(tmp_path / "x.db") as sessions:
        await sessions.import_(exported(bundle(), "json"))
    # It can be used again.
    assert len(await sessions.list()) == 1
    await sessions.close()
    await sessions.close()


# Copies


class Batches(MemoryStore):
    """Notes which batches come, and fails after some."""

    def __init__(self, room: int = 1000) -> None:
        super().__init__()
        self.batches: list[tuple[str | None, int, str]] = []
        self.room = room

    async def append_batch(self, key: SessionKey, entries: list[SessionStoreEntry], batch: str) -> None:
        if self.room == 0:
            raise ConnectionError("gone")
        self.room -= 1
        await super().append_batch(key, entries, batch)
        self.batches.append((key.get("subpath"), len(entries), batch))


def long() -> Any:
    kept = bundle()
    kept.entries = [prompt(f"u{number}", f"u{number - 1}") for number in range(1200)]
    # Without ids, nothing but the batch tells whether these have come.
    kept.entries[1:600:7] = [{"type": "tools-used", "tools": []} for _ in kept.entries[1:600:7]]
    return kept


async def test_a_copy_goes_in_batches_the_main_transcript_last() -> None:
    source, target = Sessions(MemoryStore()), Batches()
    await source.import_(exported(long(), "json"))
    await source.copy(SESSION, to=Sessions(target))
    sizes = [(subpath, size) for subpath, size, _ in target.batches]
    assert sizes[-3:] == [(None, 500), (None, 500), (None, 200)]
    assert {subpath for subpath, _ in sizes[:-3]} == {
        "subagents/agent-first",
        "subagents/agent-late",
        "subagents/agent-nested",
    }
    assert len({batch for _, _, batch in target.batches}) == len(target.batches)
    again = Batches()
    await source.copy(SESSION, to=Sessions(again))
    assert again.batches == target.batches


@every_case("room", range(6))
async def test_a_copy_that_was_cut_short_is_finished_by_another(room: int) -> None:
    source, target = Sessions(MemoryStore()), Batches(room)
    await source.import_(exported(long(), "json"))
    with pytest.raises(StoreError, match="gone"):
        await source.copy(SESSION, to=Sessions(target))
    target.room = 1000
    await source.copy(SESSION, to=Sessions(target))
    assert target.get_entries({"project_key": KEY, "session_id": SESSION}) == long().entries
    assert await Sessions(target).agents(SESSION) == ["first", "late", "nested"]


async def test_batches_that_look_the_same_are_all_copied() -> None:
    kept = bundle()
    kept.entries = [prompt("u1"), *({"type": "tools-used", "tools": []} for _ in range(1500))]
    source, target = Sessions(MemoryStore()), Batches()
    await source.import_(exported(kept, "json"))
    await source.copy(SESSION, to=Sessions(target))
    assert len(target.get_entries({"project_key": KEY, "session_id": SESSION})) == 1501


async def test_lines_that_are_there_twice_on_disk_are_the_same_in_a_store(tmp_path: Path) -> None:
    kept = bundle()
    kept.entries = [entry for entry in kept.entries for _ in range(2 if "uuid" in entry else 1)]
    put_on_disk(tmp_path, kept)
    disk, store = Sessions(config=tmp_path), Sessions(MemoryStore())
    await disk.copy(SESSION, to=store)
    await disk.copy(SESSION, to=store)
    await store.copy(SESSION, to=disk)
    assert len(await store.read(SESSION)) == 8


async def test_a_copy_is_not_made_over_somebody_who_writes() -> None:
    source, target = Sessions(MemoryStore()), MemoryStore()
    await source.import_(exported(bundle(), "json"))
    key: SessionListSubkeysKey = {"project_key": KEY, "session_id": SESSION}
    token = await target.acquire_lease(key, "an agent", 60)
    with pytest.raises(SessionBusy, match="an agent"):
        await source.copy(SESSION, to=Sessions(target))
    await target.release_lease(key, token)
    await source.copy(SESSION, to=Sessions(target))
    # And nobody is kept out afterwards.
    await target.release_lease(key, await target.acquire_lease(key, "another", 60))


async def test_a_session_that_went_on_is_another_one() -> None:
    source, target = Sessions(MemoryStore()), Sessions(MemoryStore())
    await source.import_(exported(bundle(), "json"))
    await source.copy(SESSION, to=target)
    await target.rename(SESSION, "Went on")
    with pytest.raises(SessionExists):
        await source.copy(SESSION, to=target)
    # The other way round it is the same with more.
    await target.copy(SESSION, to=source)
    assert (await source.info(SESSION)).title == "Went on"


# Stores that give what they should not


class Odd(Summing):
    """Gives something else for one method."""

    def __init__(self, method: str, gives: Any) -> None:
        super().__init__()
        filled(self, 1)

        async def give(*_: object) -> Any:
            return gives

        self.__dict__[method] = give

    async def list_projects(self) -> list[str]:
        return [KEY]

    async def find_session(self, session_id: str) -> list[str]:
        return [KEY]

    async def list_subkeys(self, key: SessionListSubkeysKey) -> list[str]:
        return []


@every_case(
    "method, gives",
    [
        ("load", "text"),
        ("load", {"type": "user"}),
        ("load", [None]),
        ("load", ["x" * 1000]),
        ("list_projects", None),
        ("list_projects", [5]),
        ("find_session", "-srv"),
        ("find_session", [None]),
        ("list_subkeys", 5),
        ("list_subkeys", [b"x"]),
        ("list_sessions", None),
        ("list_sessions", ["x"]),
        ("list_sessions", [{"session_id": SESSION}]),
        ("list_sessions", [{"session_id": 5, "mtime": 1}]),
        ("list_sessions", [{"session_id": SESSION, "mtime": "now"}]),
        ("list_sessions", [{"session_id": SESSION, "mtime": float("nan")}]),
        ("list_session_summaries", [{"session_id": SESSION, "mtime": 1}]),
        ("list_session_summaries", [{"session_id": SESSION, "mtime": 1, "data": None}]),
    ],
    ids=lambda value: repr(value).replace(SESSION, "id")[:80],
)
async def test_what_a_store_should_not_give_is_told_with_the_method(method: str, gives: Any) -> None:
    sessions = Sessions(Odd(method, gives))

    async def use() -> None:
        await sessions.list()
        await sessions.export(SESSION, "json")

    with anyio.fail_after(DEADLINE), pytest.raises(StoreError) as caught:
        await use()
    assert f"`{method}`: it returned something unexpected" in str(caught.value)
    assert len(str(caught.value)) < 400


async def test_a_session_of_another_worktree_is_found_as_it_is_listed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = str(tmp_path / "other")
    monkeypatch.setattr(_store_library, "worktrees", lambda _: [str(tmp_path), other])
    sessions = Sessions(MemoryStore())
    await sessions.import_(exported(bundle(), "json"), project=other)
    (info,) = await sessions.list(project=tmp_path)
    assert await sessions.info(SESSION, project=tmp_path) == info
    await sessions.rename(SESSION, "Renamed", project=tmp_path)
    assert (await sessions.list())[0].title == "Renamed"
    with pytest.raises(SessionNotFound):
        await sessions.info(session_id(9), project=tmp_path)


class Ending(MemoryStore):
    """Ends at one of its batches, by an error or by waiting for ever."""

    def __init__(self, left: int, *, hangs: bool) -> None:
        super().__init__()
        self.left = left
        self.hangs = hangs

    async def append_batch(self, key: SessionKey, entries: list[SessionStoreEntry], batch: str) -> None:
        self.left -= 1
        if not self.left and self.hangs:
            await anyio.sleep_forever()
        if not self.left:
            raise ConnectionError("gone")
        await super().append_batch(key, entries, batch)


@every_case("hangs", [False, True], ids=["fails", "is cancelled"])
@every_case("batch", [1, 2, 4, 5])
async def test_half_of_a_session_is_not_left_in_a_store(batch: int, hangs: bool) -> None:
    kept = bundle()
    kept.entries += [prompt(f"more{number}", "u8") for number in range(600)]
    store = Ending(batch, hangs=hangs)
    sessions = Sessions(store)
    with anyio.fail_after(DEADLINE):
        async with anyio.create_task_group() as tasks:

            async def bring() -> None:
                with pytest.raises(StoreError, match="gone"):
                    await sessions.import_(exported(kept, "json"))

            tasks.start_soon(bring)
            while store.left:
                await anyio.lowlevel.checkpoint()
            if hangs:
                tasks.cancel_scope.cancel()
        assert await sessions.list() == []
        assert await store.list_subkeys({"project_key": KEY, "session_id": SESSION}) == []
        # It can be brought again.
        assert await sessions.import_(exported(kept, "json")) == SESSION

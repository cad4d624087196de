"""The session functions on stores, where `session_cases` does not reach: copies, order, many at once."""

from __future__ import annotations

from copy import deepcopy
from pathlib import Path
from typing import Any, cast
from unittest.mock import AsyncMock

import anyio
import pytest

from outrider.compat._sessions.disk import project_key_for_directory
from outrider.compat._sessions.stores import (
    InMemorySessionStore,
    delete_session_via_store,
    fold_session_summary,
    fork_session_via_store,
    get_session_info_from_store,
    get_session_messages_from_store,
    get_subagent_messages_from_store,
    import_session_to_store,
    list_sessions_from_store,
    list_subagents_from_store,
    rename_session_via_store,
    tag_session_via_store,
)
from outrider.compat._types.messages import SessionKey, SessionStoreEntry
from outrider.compat._types.options import SessionStore
from outrider.transcripts import MemoryStore, SqliteStore, offers
from outrider.transcripts import SessionStore as NativeStore
from outrider.wire import JsonObject
from tests.transcripts.keeping import PROJECT, put_on_disk
from tests.transcripts.lines import SESSION, answer, prompt, session_id, title

KEY: SessionKey = {"project_key": "-srv-project", "session_id": SESSION}
TALK = [prompt("u1"), answer("a1", "u1"), title("Titled")]


@pytest.fixture(params=["asyncio", "trio"])
def anyio_backend(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def entries(lines: list[JsonObject]) -> list[SessionStoreEntry]:
    return cast("list[SessionStoreEntry]", deepcopy(lines))


def key(number: int) -> SessionKey:
    return {**KEY, "session_id": session_id(number)}


# The store in memory


@pytest.mark.anyio
async def test_times_in_memory_grow_with_each_batch() -> None:
    store = InMemorySessionStore()
    times: list[int] = []
    for number in (1, 2, 3, 1, 2):
        await store.append(key(number), entries([title("T")]))
        told = {row["session_id"]: row["mtime"] for row in await store.list_sessions(KEY["project_key"])}
        times.append(told[session_id(number)])
    assert times == sorted(set(times))


@pytest.mark.anyio
async def test_times_in_memory_are_never_given_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("outrider.transcripts.stores._base.now", lambda: 1)
    store = InMemorySessionStore()
    times: list[int] = []
    for number in (1, 2):
        await store.append(key(number), entries([title("T")]))
        times += [row["mtime"] for row in await store.list_sessions(KEY["project_key"])]
        await store.delete(key(number))
    assert times == sorted(set(times))


@pytest.mark.anyio
async def test_what_is_in_memory_cannot_be_changed_from_outside() -> None:
    store = InMemorySessionStore()
    given = entries(TALK)
    await store.append(KEY, given)
    cast("Any", given[0])["message"]["content"] = "changed"
    cast("Any", store.get_entries(KEY)[0])["message"]["content"] = "changed"
    assert store.get_entries(KEY) == entries(TALK)
    assert store.size == 1
    store.clear()
    assert store.size == 0


def test_the_store_in_memory_is_a_store_for_both_apis() -> None:
    there = ("list_sessions", "list_session_summaries", "delete", "list_subkeys")
    more = ("append_batch", "find_session", "list_projects", "acquire_lease", "renew_lease", "release_lease")
    assert SessionStore is NativeStore
    assert [method for method in (*there, *more) if offers(InMemorySessionStore(), method)] == [*there]


@pytest.mark.anyio
async def test_a_copy_of_the_store_in_memory_is_a_store_of_its_own() -> None:
    store = InMemorySessionStore()
    await store.append(KEY, entries(TALK))
    copied = deepcopy(store)
    await copied.append(KEY, entries([title("Other")]))
    assert store.get_entries(KEY) == entries(TALK)
    assert len(copied.get_entries(KEY)) == len(TALK) + 1


class Wrapper:
    """Passes on what it does not know, as people write it for logs and metrics."""

    def __init__(self, store: Any) -> None:
        self._store = store

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)


@pytest.mark.anyio
async def test_a_wrapper_has_the_methods_of_what_it_wraps() -> None:
    store = InMemorySessionStore()
    wrapper = cast("SessionStore", Wrapper(store))
    place = {**KEY, "project_key": project_key_for_directory("/srv")}
    await store.append(cast("SessionKey", place), entries(TALK))
    assert len(await list_sessions_from_store(wrapper, "/srv")) == 1
    assert await list_subagents_from_store(wrapper, SESSION, "/srv") == []
    await delete_session_via_store(wrapper, SESSION, "/srv")
    assert store.size == 0


@pytest.mark.anyio
async def test_a_mock_is_asked_for_what_the_reference_asks_for() -> None:
    store = AsyncMock()
    store.list_session_summaries.side_effect = NotImplementedError
    store.list_sessions.return_value = []
    assert await list_sessions_from_store(store) == []
    assert not offers(store, "append_batch")


class Junk(InMemorySessionStore):
    """Has something in it that is no entry, as a database may after years."""

    async def load(self, key: Any) -> Any:
        return [None, "text", *(await super().load(key) or []), 5]

    async def list_session_summaries(self, project_key: str) -> Any:
        raise NotImplementedError


@pytest.mark.anyio
async def test_what_is_no_entry_is_passed_over() -> None:
    store = Junk()
    place = {**KEY, "project_key": project_key_for_directory("/srv")}
    await store.append(cast("SessionKey", place), entries(TALK))
    (info,) = await list_sessions_from_store(store, "/srv")
    assert info.summary == "Titled"
    assert await get_session_info_from_store(store, SESSION, "/srv") is not None
    assert len(await get_session_messages_from_store(store, SESSION, "/srv")) == 2
    fork = await fork_session_via_store(store, SESSION, "/srv")
    assert len(await get_session_messages_from_store(store, fork.session_id, "/srv")) == 2


# Summaries


def test_a_fold_leaves_what_it_is_given() -> None:
    before = fold_session_summary(None, KEY, entries(TALK))
    before["mtime"] = 5
    kept, given = deepcopy(before), entries([title("Later")])
    after = fold_session_summary(before, KEY, given)
    assert (before, given) == (kept, entries([title("Later")]))
    assert (after["mtime"], after["data"]["custom_title"]) == (5, "Later")


def test_a_fold_in_parts_is_the_fold_of_all() -> None:
    lines = entries(
        [prompt("u0", None, "<command-name>/x</command-name>"), *TALK, {"type": "tag", "tag": "t"}]
    )
    summary = None
    for line in lines:
        summary = fold_session_summary(summary, KEY, [line])
    assert summary == fold_session_summary(None, KEY, lines)


# Lists


class Slow(MemoryStore):
    """Lists, but has no summaries; counts how many loads run at once."""

    def __init__(self) -> None:
        super().__init__()
        self.running = self.most = self.loads = 0

    list_session_summaries = NativeStore.list_session_summaries

    async def load(self, key: SessionKey) -> list[SessionStoreEntry] | None:
        self.loads += 1
        self.running += 1
        self.most = max(self.most, self.running)
        await anyio.lowlevel.checkpoint()
        self.running -= 1
        return await super().load(key)


@pytest.mark.anyio
async def test_a_list_loads_some_at_once_and_no_more_than_it_needs() -> None:
    store = Slow()
    for number in range(1, 41):
        await store.append(cast("Any", key(number)), cast("Any", entries(TALK)))
    with anyio.fail_after(10):
        found = await list_sessions_from_store(store, PROJECT)
    assert [info.session_id for info in found] == [session_id(number) for number in range(40, 0, -1)]
    assert (store.loads, store.most) == (40, 16)
    store.loads = 0
    assert len(await list_sessions_from_store(store, PROJECT, limit=3, offset=2)) == 3
    assert store.loads == 5


@pytest.mark.anyio
async def test_a_store_whose_summaries_are_not_written_yet_is_listed() -> None:
    class Unfinished(MemoryStore):
        async def list_session_summaries(self, project_key: str) -> Any:
            raise NotImplementedError

    store = Unfinished()
    await store.append(KEY, entries(TALK))
    assert [info.summary for info in await list_sessions_from_store(store, PROJECT)] == ["Titled"]


@pytest.mark.anyio
async def test_a_session_that_a_store_lists_twice_is_there_once_as_it_was_last() -> None:
    class Twice(Slow):
        async def list_sessions(self, project_key: str) -> Any:
            found = await super().list_sessions(project_key)
            return [*found, *({**row, "mtime": 5} for row in found)]

    store = Twice()
    await store.append(KEY, entries(TALK))
    (info,) = await list_sessions_from_store(store, PROJECT)
    assert info.last_modified > 5


@pytest.mark.anyio
async def test_a_list_does_not_change_what_the_store_gives() -> None:
    class Same(MemoryStore):
        async def list_sessions(self, project_key: str) -> Any:
            self.rows: list[Any] = await super().list_sessions(project_key)
            self.was = deepcopy(self.rows)
            return self.rows

    store = Same()
    for number in (2, 1, 3):
        await store.append(cast("Any", key(number)), cast("Any", entries(TALK)))
    await list_sessions_from_store(store, PROJECT, limit=1)
    assert store.rows == store.was


@pytest.mark.anyio
async def test_a_cancelled_list_stops() -> None:
    class Stuck(Slow):
        async def load(self, key: SessionKey) -> list[SessionStoreEntry] | None:
            await anyio.sleep_forever()
            raise AssertionError

    store = Stuck()
    await store.append(cast("Any", KEY), cast("Any", entries(TALK)))
    with anyio.move_on_after(0.01) as scope, anyio.fail_after(10):
        await list_sessions_from_store(store, PROJECT)
    assert scope.cancelled_caught


# All of it, on a store of Outrider's


@pytest.mark.anyio
async def test_a_session_goes_through_a_database(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CLAUDE_CONFIG_DIR", str(tmp_path))
    put_on_disk(tmp_path)
    async with SqliteStore(tmp_path / "sessions.db") as store:
        with anyio.fail_after(20):
            await import_session_to_store(SESSION, store, directory=PROJECT)
            await import_session_to_store(SESSION, store, directory=PROJECT, batch_size=4)
            info = await get_session_info_from_store(store, SESSION, PROJECT)
            assert info is not None
            assert (info.summary, info.tag) == ("Titled", "old")
            messages = await get_session_messages_from_store(store, SESSION, PROJECT)
            assert [message.uuid for message in messages] == ["u1", "u2", "u3", "u4", "u5", "u6", "u7", "u8"]
            assert sorted(await list_subagents_from_store(store, SESSION, PROJECT)) == [
                "first",
                "late",
                "nested",
            ]
            (first, *_) = await get_subagent_messages_from_store(store, SESSION, "first", PROJECT)
            assert (first.uuid, first.parent_tool_use_id) == ("s1", "call-u2")
            await rename_session_via_store(store, SESSION, "Other", PROJECT)
            await tag_session_via_store(store, SESSION, None, PROJECT)
            fork = (await fork_session_via_store(store, SESSION, PROJECT)).session_id
            listed = await list_sessions_from_store(store, PROJECT)
            assert [(one.session_id, one.summary, one.tag) for one in listed] == [
                (fork, "Other (fork)", None),
                (SESSION, "Other", None),
            ]
            await delete_session_via_store(store, SESSION, PROJECT)
            assert await get_session_messages_from_store(store, SESSION, PROJECT) == []
            assert await list_subagents_from_store(store, SESSION, PROJECT) == []

"""Long sessions are read piece by piece."""

from __future__ import annotations

from contextlib import aclosing
from pathlib import Path
from typing import Any

import pytest

from outrider import Sessions
from outrider.errors import StoreError
from outrider.transcripts import MemoryStore, SessionKey
from outrider.transcripts._export.turns import exported
from outrider.transcripts.stores._heads import HeadStore
from tests.transcripts.stores.test_lists import KINDS, make

pytestmark = pytest.mark.anyio

ID = "6b8f6a3e-5d0c-4a39-9d0b-3f1f3f0a7c11"
KEY: SessionKey = {"project_key": "project", "session_id": ID}
PART: SessionKey = {**KEY, "subpath": "subagents/agent-a1"}
COUNT = 24


def entry(number: int) -> Any:
    role = "assistant" if number % 2 else "user"
    text = f"message {number}"
    return {
        "type": role,
        "uuid": f"u{number}",
        "parentUuid": f"u{number - 1}" if number else None,
        "sessionId": ID,
        "timestamp": "2026-01-02T03:04:05Z",
        "message": {"role": role, "content": [{"type": "text", "text": text}] if number % 2 else text},
    }


@pytest.fixture(params=KINDS)
def store(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> HeadStore:
    store = make(request.param, tmp_path)
    monkeypatch.setattr(type(store), "_page_bytes", 500)
    return store


async def fill(store: HeadStore) -> list[Any]:
    entries = [entry(number) for number in range(COUNT)]
    for start in range(0, COUNT, 3):
        await store.append_batch(KEY, entries[start : start + 3], str(start))
    beside: Any = {**entry(0), "isSidechain": True, "agentId": "a1"}
    await store.append(PART, [beside])
    return entries


async def test_pages_are_the_transcript(store: HeadStore) -> None:
    entries = await fill(store)
    async with aclosing(store.load_pages(KEY)) as pages:
        forwards = [page async for page in pages]
    async with aclosing(store.load_pages(KEY, backwards=True)) as pages:
        backwards = [page async for page in pages]
    assert len(forwards) > 3
    assert backwards == forwards[::-1]
    assert [one for page in forwards for one in page] == entries == await store.load(KEY)
    await store.close()


async def test_all_that_reads_pages_finds_the_same(store: HeadStore, monkeypatch: pytest.MonkeyPatch) -> None:
    entries = await fill(store)
    sessions = Sessions(store)
    assert [one.uuid for one in await sessions.read(ID)] == [one["uuid"] for one in entries]
    assert [one.uuid for one in await sessions.read(ID, limit=2, offset=3)] == ["u3", "u4"]
    assert [one.uuid for one in await sessions.read(ID, agent="a1")] == ["u0"]
    hits = [hit async for hit in sessions.search("message 13")]
    assert [(hit.line_number, hit.agent_id) for hit in hits] == [(14, None)]
    hits = [hit async for hit in sessions.search("message 0")]
    assert [(hit.line_number, hit.agent_id) for hit in hits] == [(1, None), (1, "a1")]
    assert len([hit async for hit in sessions.search("message", limit=7)]) == 7
    for redact in (None, True):
        text = await sessions.export(ID, "json", redact=redact)
        bundle = await sessions._library.load(ID, None)
        assert text == exported(bundle, "json", redact=redact)
    # Of the end, no more is read than is needed.
    read: list[int] = []
    load_page = store._load_page

    def count(*given: Any) -> Any:
        page = load_page(*given)
        read.append(len(page))
        return page

    monkeypatch.setattr(store, "_load_page", count)
    assert [one.uuid for one in await sessions.read(ID, last=2)] == ["u22", "u23"]
    assert sum(read) < COUNT / 2
    await store.close()


async def test_a_session_that_is_deleted_while_it_is_read_says_so(store: HeadStore) -> None:
    await fill(store)
    async with aclosing(store.load_pages(KEY)) as pages:
        await anext(pages)
        await store.delete(KEY)
        with pytest.raises(StoreError, match="was deleted while it was read"):
            async for _ in pages:
                pass
    await store.close()


async def test_what_is_appended_meanwhile_is_not_of_it(store: HeadStore) -> None:
    entries = await fill(store)
    found: list[Any] = []
    async with aclosing(store.load_pages(KEY)) as pages:
        async for page in pages:
            found += page
            await store.append(KEY, [entry(COUNT + len(found))])
    assert found == entries
    await store.close()


async def test_a_store_that_loads_in_its_own_way_is_asked_for_all() -> None:
    class Shouting(MemoryStore):
        async def load(self, key: SessionKey) -> Any:
            found: Any = await super().load(key)
            names = ("uuid", "parentUuid")
            return found and [
                {**one, **{name: one[name] and one[name].upper() for name in names}} for one in found
            ]

    store = Shouting()
    await fill(store)
    assert [one.uuid for one in await Sessions(store).read(ID, last=2)] == ["U22", "U23"]

"""The store in memory, and the summaries that stores keep. `check_store` shows the rest of the contract."""

from __future__ import annotations

from copy import deepcopy
from typing import Any, cast

import pytest

from outrider.transcripts import (
    MemoryStore,
    SessionKey,
    SessionStore,
    SessionStoreEntry,
    fold_session_summary,
    offers,
)
from tests.cases import every_case

KEY: SessionKey = {"project_key": "p", "session_id": "s"}


def entries(*fields: dict[str, Any]) -> list[SessionStoreEntry]:
    return cast("list[SessionStoreEntry]", [{"type": "user", **one} for one in fields])


def prompt(text: str | list[Any], **fields: Any) -> dict[str, Any]:
    return {"message": {"role": "user", "content": text}, **fields}


@pytest.mark.anyio
async def test_sessions_are_listed_newest_first() -> None:
    store = MemoryStore()
    for session in ("one", "two", "three", "two"):
        await store.append({"project_key": "p", "session_id": session}, entries({}))
    listed = await store.list_sessions("p")
    assert [one["session_id"] for one in listed] == ["two", "three", "one"]
    times = [one["mtime"] for one in listed]
    assert times == sorted({*times}, reverse=True)
    summaries = await store.list_session_summaries("p")
    assert [one["mtime"] for one in summaries] == times


@pytest.mark.anyio
async def test_a_test_can_look_into_it() -> None:
    store: SessionStore = MemoryStore()
    assert isinstance(store, MemoryStore)
    assert store.size == 0
    assert store.get_entries(KEY) == []
    await store.append(KEY, entries({"uuid": "1"}))
    await store.append({**KEY, "subpath": "subagents/agent-a1"}, entries({"uuid": "2"}))
    assert store.size == 1
    assert store.get_entries(KEY) == [{"type": "user", "uuid": "1"}]
    store.clear()
    assert store.size == 0
    assert await store.load(KEY) is None
    await store.append(KEY, entries({"uuid": "1"}))
    assert store.size == 1


@pytest.mark.anyio
async def test_it_can_be_closed_and_goes_on() -> None:
    async with MemoryStore() as store:
        await store.append(KEY, entries({"uuid": "1"}))
    await store.close()
    assert await store.load(KEY) == [{"type": "user", "uuid": "1"}]
    assert repr(store) == "MemoryStore()"


def test_whether_a_store_has_an_optional_method() -> None:
    class Minimal(SessionStore):
        async def append(self, key: SessionKey, entries: list[SessionStoreEntry]) -> None: ...

        async def load(self, key: SessionKey) -> list[SessionStoreEntry] | None: ...

        async def delete(self, key: SessionKey) -> None: ...

    store = Minimal()
    assert [name for name in ("append", "delete", "list_sessions", "nothing") if offers(store, name)] == [
        "append",
        "delete",
    ]
    assert offers(MemoryStore(), "list_sessions")


@pytest.mark.anyio
@every_case(
    "method, arguments",
    [
        ("list_sessions", ["p"]),
        ("list_session_summaries", ["p"]),
        ("delete", [KEY]),
        ("list_subkeys", [KEY]),
        ("append_batch", [KEY, [], "batch"]),
        ("list_projects", []),
        ("find_session", ["s"]),
        ("acquire_lease", [KEY, "me", 1]),
        ("renew_lease", [KEY, "token", 1]),
        ("release_lease", [KEY, "token"]),
        ("close", []),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
async def test_what_is_not_written_says_so(method: str, arguments: list[Any]) -> None:
    class Minimal(SessionStore):
        async def append(self, key: SessionKey, entries: list[SessionStoreEntry]) -> None: ...

        async def load(self, key: SessionKey) -> list[SessionStoreEntry] | None: ...

    with pytest.raises(NotImplementedError):
        await getattr(Minimal(), method)(*arguments)


@every_case(
    "lines, expected",
    [
        pytest.param([{}], {}, id="nothing"),
        pytest.param([{"isSidechain": True}, {}], {"is_sidechain": True}, id="sidechain"),
        pytest.param([{}, {"isSidechain": True}], {}, id="the first line tells"),
        pytest.param(
            [
                {"timestamp": "no"},
                {"timestamp": "1970-01-01T00:00:01.500Z"},
                {"timestamp": "1971-01-01T00:00:00Z"},
            ],
            {"created_at": 1500},
            id="created",
        ),
        pytest.param([{"cwd": "/a"}, {"cwd": "/b"}], {"cwd": "/a"}, id="folder"),
        pytest.param([{"gitBranch": "a"}, {"gitBranch": "b"}], {"git_branch": "b"}, id="branch"),
        pytest.param(
            [
                {"type": "custom-title", "customTitle": "x"},
                {"aiTitle": "y"},
                {"lastPrompt": "z"},
                {"summary": "w"},
            ],
            {"custom_title": "x", "ai_title": "y", "last_prompt": "z", "summary_hint": "w"},
            id="titles",
        ),
        pytest.param([{"type": "tag", "tag": "a"}], {"tag": "a"}, id="tag"),
        pytest.param([{"type": "tag", "tag": "a"}, {"type": "tag", "tag": ""}], {}, id="tag taken off"),
        pytest.param([{"tag": "a"}], {}, id="a tag elsewhere"),
        pytest.param([prompt("a\nb"), prompt("c")], {"first_prompt": "a b"}, id="prompt"),
        pytest.param([prompt([{"type": "text", "text": "a"}])], {"first_prompt": "a"}, id="blocks"),
        pytest.param([prompt("x" * 300)], {"first_prompt": "x" * 200 + "…"}, id="long prompt"),
        pytest.param(
            [
                prompt("meta", isMeta=True),
                prompt("compact", isCompactSummary=True),
                prompt([{"type": "tool_result", "content": "x"}, {"type": "text", "text": "with it"}]),
                prompt("<local-command-stdout>x"),
                prompt("[Request interrupted by user for tool use]"),
                prompt("   "),
                prompt(cast("Any", None)),
                {"message": "text"},
                {"type": "assistant", "message": {"content": "answer"}},
                prompt("this one"),
            ],
            {"first_prompt": "this one"},
            id="no prompts",
        ),
        pytest.param(
            [prompt("<command-name>/init</command-name>"), prompt("<command-name>/clear</command-name>")],
            {"command_fallback": "/init"},
            id="commands",
        ),
    ],
)
def test_a_summary_is_the_same_however_the_entries_come(
    lines: list[dict[str, Any]], expected: dict[str, Any]
) -> None:
    known = {"is_sidechain": False, **expected}
    if "first_prompt" in expected:
        known["first_prompt_locked"] = True
    whole = fold_session_summary(None, KEY, entries(*lines))
    assert whole == {"session_id": "s", "mtime": 0, "data": known}
    steps: list[Any] = [None]
    for entry in entries(*lines):
        before = deepcopy(steps[-1])
        steps.append(fold_session_summary(steps[-1], KEY, [entry]))
        assert steps[-2] == before
    assert steps[-1] == whole


def test_a_summary_keeps_its_time() -> None:
    before: Any = {"session_id": "s", "mtime": 7, "data": {}}
    assert fold_session_summary(before, KEY, entries({}))["mtime"] == 7

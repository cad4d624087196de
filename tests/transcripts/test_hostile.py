"""Transcripts that nobody would write: whatever is in one, all that can be done with sessions is done."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import anyio
import pytest

from outrider.errors import OptionsError, TranscriptError
from outrider.transcripts import MemoryStore, Sessions
from outrider.transcripts._entries import to_line
from outrider.wire import JsonObject
from tests.transcripts.keeping import KEY
from tests.transcripts.lines import SESSION, answer, called, line, prompt, session_id

pytestmark = pytest.mark.anyio
DEADLINE = 30.0

ODD: tuple[Any, ...] = (None, 5, 1.5, True, [], {}, "", [1], {"a": 1}, "a\x00b", 10**40, "\ud800")
FIELDS = (
    *line("user", "u"),
    "message",
    "subtype",
    "agentId",
    "teamName",
    "isMeta",
    "isCompactSummary",
    "toolUseResult",
    "sourceToolAssistantUUID",
    "logicalParentUuid",
    "customTitle",
    "lastPrompt",
    "summary",
    "compactMetadata",
)
BLOCKS: list[Any] = [
    {"type": type, **dict.fromkeys(("text", "thinking", "id", "name", "input", "content", "source"), value)}
    for type in ("text", "thinking", "tool_use", "tool_result", "image", "server_tool_use", None, 5)
    for value in cast("tuple[Any, ...]", (None, 5, [], {}, "x", [None], [[]], [{"type": "text"}]))
]


def spoken(entry: JsonObject, content: object) -> JsonObject:
    return {**entry, "message": {"id": "m", "role": entry["type"], "content": content}}


def nested(depth: int) -> JsonObject:
    value: Any = "needle"
    for _ in range(depth):
        value = {"a": value}
    call: Any = called("u2", "u1", "m1")
    call["message"]["content"][0]["input"] = value
    return cast("JsonObject", call)


HOSTILE: dict[str, list[JsonObject | bytes]] = {
    "fields of other types": [
        prompt("u1"),
        *({**prompt(f"w{name}{index}", "u1"), name: odd} for name in FIELDS for index, odd in enumerate(ODD)),
        answer("u2", "u1"),
    ],
    "blocks of other types": [
        prompt("u1"),
        spoken(answer("u2", "u1"), BLOCKS),
        spoken(prompt("u3", "u2"), BLOCKS),
    ],
    "messages that are none": [
        prompt("u1"),
        *({**prompt(f"m{index}", "u1"), "message": odd} for index, odd in enumerate(ODD)),
        *(spoken(prompt(f"c{index}", "u1"), odd) for index, odd in enumerate(ODD)),
        answer("u2", "u1"),
    ],
    "times that are none": [
        *(
            {**prompt(f"t{index}", None), "timestamp": odd}
            for index, odd in enumerate((*ODD, "0001-01-01T00:00:00+23:59", "9999-12-31T23:59:59-23:59"))
        ),
        answer("u2", "t1"),
    ],
    "binary": [bytes(range(256)).replace(b"\n", b""), prompt("u1"), b"\x00" * 100, b"\xff\xfe"],
    "numbers": [
        prompt("u1"),
        b'{"type":"user","uuid":"n","parentUuid":"u1","message":{"role":"user","content":"n"},"a":'
        + b"9" * 400
        + b',"b":1e400,"c":-1e400}',
        b'{"type":"system","uuid":"s","parentUuid":"n","d":NaN,"e":Infinity}',
        answer("u2", "n"),
    ],
    "half characters": [
        prompt("u1", None, "lone \ud800"),
        {**answer("u2", "u1"), "cwd": "/\ud800", "gitBranch": "\udfff"},
        {"type": "custom-title", "customTitle": "\ud800", "sessionId": SESSION},
    ],
    "no entries among them": [b'{"a":1}', b"[1]", b"null", prompt("u1"), b'{"type":5}', answer("u2", "u1")],
    "nested": [prompt("u1"), nested(600), answer("u3", "u2")],
    "a command without an end": [prompt("u1", None, "<command-name>" * 50_000)],
    "duplicates": [*[prompt("u1")] * 20, *[answer("u2", "u1")] * 20],
    "several on a line": [
        to_line(prompt("u1")).encode() + to_line(answer("u2", "u1")).encode(),
        prompt("u3"),
    ],
}


@pytest.fixture(params=HOSTILE, ids=[name.replace(" ", "_") for name in HOSTILE])
def disk(request: pytest.FixtureRequest, tmp_path: Path) -> Sessions:
    data = b"".join(
        (each if isinstance(each, bytes) else to_line(each).encode()) + b"\n"
        for each in HOSTILE[request.param]
    )
    path = tmp_path / "projects" / KEY / f"{SESSION}.jsonl"
    agent = path.with_suffix("") / "subagents" / "agent-a1.jsonl"
    agent.parent.mkdir(parents=True)
    path.write_bytes(data)
    agent.write_bytes(data)
    return Sessions(config=tmp_path)


async def used(sessions: Sessions) -> None:
    """Do everything."""
    assert [info.id for info in await sessions.list()] == [SESSION]
    entries = await sessions.read(SESSION, history="full")
    assert entries
    for entry in (*entries, *await sessions.read(SESSION, agent="a1")):
        assert isinstance(entry.text, str)
        assert entry.raw
        assert repr((entry.message, entry.timestamp))
    assert [entry.uuid for entry in await sessions.read(SESSION, last=2)] == [
        entry.uuid for entry in (await sessions.read(SESSION))[-2:]
    ]
    assert [hit async for hit in sessions.search("no such words")] == []
    for format in ("markdown", "html", "json"):
        assert (await sessions.export(SESSION, format)).encode()
    fork = await sessions.fork(SESSION)
    assert [entry.text for entry in await sessions.read(fork)] == [
        entry.text for entry in await sessions.read(SESSION)
    ]
    await sessions.delete(fork)
    await sessions.rename(SESSION, "Renamed")
    assert (await sessions.info(SESSION)).title == "Renamed"


async def test_everything_can_be_done(disk: Sessions) -> None:
    with anyio.fail_after(DEADLINE):
        await used(disk)


async def test_it_is_exported_and_imported(disk: Sessions, tmp_path: Path) -> None:
    text = await disk.export(SESSION, "json")
    there = Sessions(config=tmp_path / "elsewhere")
    await there.import_(text)
    assert await there.export(SESSION, "json") == text


async def test_it_is_copied_there_and_back(disk: Sessions, tmp_path: Path) -> None:
    there, back = Sessions(tmp_path / "x.db"), Sessions(config=tmp_path / "back")
    async with there:
        with anyio.fail_after(DEADLINE):
            for _ in range(2):
                await disk.copy(SESSION, to=there)
                await there.copy(SESSION, to=back)
            await used(there)
    assert (await back.read(SESSION))[-1].text == (await disk.read(SESSION))[-1].text


@pytest.mark.parametrize(
    "make",
    [
        os.mkfifo,
        Path.mkdir,
        lambda path: path.symlink_to(path),
        lambda path: path.symlink_to("/dev/zero"),
    ],
    ids=["pipe", "folder", "circle of links", "device"],
)
async def test_what_is_no_file_is_passed_over(tmp_path: Path, make: Callable[[Path], None]) -> None:
    other = tmp_path / "projects" / KEY / f"{session_id(2)}.jsonl"
    part = other.with_suffix("") / "subagents" / "agent-a1.jsonl"
    part.parent.mkdir(parents=True)
    other.write_bytes(to_line(prompt("u1", None, "words")).encode())
    make(other.with_name(f"{SESSION}.jsonl"))
    sessions, store = Sessions(config=tmp_path), Sessions(MemoryStore())
    with anyio.fail_after(DEADLINE):
        assert [info.id for info in await sessions.list()] == [session_id(2)]
        make(part)
        assert [hit.session.id async for hit in sessions.search("words")] == [session_id(2)]
        if part.is_dir():
            await sessions.copy(session_id(2), to=store)
            return
        # Half of a session is none.
        with pytest.raises(TranscriptError):
            await sessions.copy(session_id(2), to=store)
        with pytest.raises(OptionsError, match="agent-a1"):
            await store.import_(other)


async def test_a_session_with_nothing_in_it_is_neither_imported_nor_copied(tmp_path: Path) -> None:
    path = tmp_path / "projects" / KEY / f"{SESSION}.jsonl"
    path.parent.mkdir(parents=True)
    path.write_text("\n\n")
    disk, store = Sessions(config=tmp_path), Sessions(MemoryStore())
    with pytest.raises(TranscriptError, match="nothing in it"):
        await disk.copy(SESSION, to=store)
    with pytest.raises(TranscriptError, match="nothing in it"):
        await disk.import_(await disk.export(SESSION, "json"), as_new=True)
    assert [each.name for each in path.parent.iterdir()] == [path.name]

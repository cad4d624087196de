"""What was said in a session on disk."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import Any, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from outrider.errors import OptionsError, SessionNotFound, TranscriptError
from outrider.transcripts._disk import files
from outrider.transcripts._disk import read as _reading
from outrider.transcripts._values import MessageRange
from outrider.wire import JsonObject, encode
from tests.transcripts.disk.shelf import TALK, Shelf
from tests.transcripts.lines import SESSION, answer, boundary, prompt, session_id, written
from tests.transcripts.made_up import transcripts


def read(shelf: Shelf, project: str | None = None, **asked: Any) -> str:
    found = shelf.disk.read(SESSION, project, MessageRange(**asked))
    return " ".join(str(entry.uuid) for entry in found)


def test_a_conversation_is_read(shelf: Shelf) -> None:
    shelf.write()
    assert read(shelf) == "u1 a1 u2 a2"
    assert read(shelf, limit=2) == "u1 a1"
    assert read(shelf, limit=2, offset=1) == "a1 u2"
    assert read(shelf, offset=3) == "a2"
    assert read(shelf, limit=0) == ""
    assert read(shelf, last=3) == "a1 u2 a2"
    assert read(shelf, last=30) == "u1 a1 u2 a2"
    assert [entry.text for entry in shelf.disk.read(SESSION, wanted=MessageRange(last=1))] == ["answer a2"]


def test_what_came_before_it_was_compacted_is_read_if_asked_for(shelf: Shelf) -> None:
    shelf.write(1, [*TALK, boundary("b", "a2"), prompt("s", "b", isCompactSummary=True)])
    assert read(shelf) == read(shelf, last=9) == "s"
    assert read(shelf, history="full") == read(shelf, history="full", last=9) == "u1 a1 u2 a2 b s"


DAMAGED = [
    (b'{"type":"user","uuid":"u3","pare', "u1 a1 u2 a2"),
    (b"\x00" * 500, "u1 a1 u2 a2"),
    (b"\n\n\n", "u1 a1 u2 a2"),
    (b"\xff\xfe not text \n" + encode(prompt("u3", "a2")), "u1 a1 u2 a2 u3"),
    (encode(prompt("u3", "a2", text="?")).replace(b"?", b"\xe9\x00"), "u1 a1 u2 a2 u3"),
    (b"\x00\x00" + encode(prompt("u3", "a2")) + b"\r\n", "u1 a1 u2 a2 u3"),
    (b'{"half":' + encode(prompt("u3", "a2")), "u1 a1 u2 a2"),
    (encode(prompt("u3", "a3")) + b"\n" + encode(answer("a3", "u3")), "u3 a3"),
]


@pytest.mark.parametrize("end, expected", DAMAGED, ids=[str(number) for number in range(len(DAMAGED))])
def test_damage_costs_no_more_than_what_is_damaged(shelf: Shelf, end: bytes, expected: str) -> None:
    shelf.write(1, written(TALK) + end)
    assert read(shelf) == read(shelf, last=10) == expected


@given(
    transcripts(),
    st.sampled_from(["compacted", "full"]),
    st.integers(1, 12),
    st.integers(1, 300),
    st.sampled_from([b"", b'{"half', b"\n", b"\x00"]),
    st.sampled_from([b"", b'{"type":"user",}\n', b"\xff\n", b"\n\n"]),
)
def test_the_last_messages_are_the_end_of_all(
    lines: list[JsonObject],
    history: Literal["compacted", "full"],
    count: int,
    block: int,
    end: bytes,
    damage: bytes,
) -> None:
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        # So small that there are many blocks.
        patch.setattr(files, "_END", block)
        shelf = Shelf(Path(folder))
        shelf.write(1, damage.join(written([each]) for each in lines) + end or b"\n")
        whole = shelf.disk.read(SESSION, wanted=MessageRange(history=history))
        assert shelf.disk.read(SESSION, wanted=MessageRange(last=count, history=history)) == whole[-count:]


def test_only_the_end_of_a_large_file_is_read_for_the_last_messages(
    shelf: Shelf, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines = [prompt("e0")]
    for number in range(1, 4000):
        make = answer if number % 2 else prompt
        lines.append(make(f"e{number}", f"e{number - 1}"))
    path = shelf.write(1, lines)
    taken = 0
    real = files.backwards

    def backwards(file: Any) -> Any:
        nonlocal taken
        for some in real(file):
            taken += sum(len(each) + 1 for each in some)
            yield some

    monkeypatch.setattr(_reading, "backwards", backwards)
    assert read(shelf, last=10) == " ".join(f"e{number}" for number in range(3990, 4000))
    assert taken <= 1 << 16 < path.stat().st_size // 10


@pytest.mark.parametrize("block", [1, 2, 7, 64, 5000])
@pytest.mark.parametrize("data", [b"", b"\n", b"a", b"a\n", b"\na", b"ab\ncd\n\nef", b"long" * 300 + b"\nx"])
def test_reading_backwards_gives_the_same_lines(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, data: bytes, block: int
) -> None:
    monkeypatch.setattr(files, "_END", block)
    (tmp_path / "file").write_bytes(data)
    with (tmp_path / "file").open("rb", buffering=0) as file:
        found = [each for some in reversed(list(files.backwards(file))) for each in some if each]
    assert found == [each for each in data.split(b"\n") if each]


@pytest.mark.parametrize("block", [1, 3, 64])
def test_chunks_end_where_lines_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, block: int) -> None:
    data = b"ab\n\nlong long line\nx\nno end"
    monkeypatch.setattr(files, "_BUFFER", block)
    (tmp_path / "file").write_bytes(data)
    with (tmp_path / "file").open("rb") as file:
        found = list(files.chunks(file))
    assert b"".join(found) == data
    assert all(chunk.endswith(b"\n") for chunk in found[:-1])


def test_what_is_written_while_a_file_is_read_does_not_keep_it_from_ending(shelf: Shelf) -> None:
    path = shelf.write()
    more = path.open("ab", buffering=0)
    with path.open("rb") as file, more:
        seen = []
        for each in files.lines(file):
            seen.append(each)
            more.write(each)
    assert len(seen) == len(TALK)


# Which one.


def test_the_copy_that_was_used_last_is_read(shelf: Shelf) -> None:
    shelf.write(1, [prompt("old")], hour=1)
    shelf.write(1, [prompt("new")], project="/srv/other", hour=2)
    shelf.write(1, b"", project="/srv/third", hour=3)
    assert read(shelf) == "new"
    assert read(shelf, project="/srv/project") == "old"
    file = shelf.disk.find(SESSION)
    assert (file.session_id, file.project, file.path) == (SESSION, "-srv-other", shelf.path(1, "/srv/other"))
    assert file.folder == file.path.with_suffix("")


def test_an_id_in_capitals_names_the_same_session(shelf: Shelf) -> None:
    id = "abcdefab-0000-4000-8000-000000000000"
    path = shelf.path().with_name(f"{id}.jsonl")
    path.parent.mkdir(parents=True)
    path.write_bytes(written(TALK))
    assert len(shelf.disk.read(id.upper())) == len(shelf.disk.read(id)) == 4


@pytest.mark.parametrize("what", ["nothing", "stub", "folder", "elsewhere"])
def test_a_session_that_is_not_there_is_not_found(shelf: Shelf, what: str) -> None:
    shelf.write(2)
    if what == "stub":
        shelf.write(1, b"")
    if what == "folder":
        shelf.path(1).mkdir()
    if what == "elsewhere":
        shelf.write(1, project="/srv/other")
    for call in (shelf.disk.read, shelf.disk.info, shelf.disk.find, shelf.disk.agents, shelf.disk.load):
        with pytest.raises(SessionNotFound) as caught:
            call(SESSION, project="/srv/project")
        assert caught.value.searched == (str(shelf.path(1).parent),)
        assert SESSION in str(caught.value)


def test_a_session_that_vanishes_is_not_found(shelf: Shelf, monkeypatch: pytest.MonkeyPatch) -> None:
    path = shelf.write()
    real = files.open_file

    def open_file(*arguments: Any) -> Any:
        path.unlink()
        return real(*arguments)

    monkeypatch.setattr(_reading, "open_file", open_file)
    with pytest.raises(SessionNotFound):
        shelf.disk.read(SESSION)


@pytest.mark.parametrize("what", ["file", "folder", "projects"])
def test_a_session_that_may_not_be_read_is_told(users_shelf: Shelf, what: str) -> None:
    path = users_shelf.write()
    place = {"file": path, "folder": path.parent, "projects": users_shelf.projects}[what]
    place.chmod(0)
    try:
        with pytest.raises(TranscriptError, match="cannot be read: Permission denied") as caught:
            users_shelf.disk.read(SESSION)
    finally:
        place.chmod(0o700)
    assert str(users_shelf.projects) in str(caught.value)
    assert not isinstance(caught.value, SessionNotFound)


def test_half_of_a_session_is_not_loaded(users_shelf: Shelf) -> None:
    users_shelf.write()
    folder = users_shelf.write_part("subagents/agent-a1.jsonl", TALK).parent
    folder.chmod(0)
    try:
        assert users_shelf.disk.agents(SESSION) == []
        with pytest.raises(TranscriptError, match="Permission denied"):
            users_shelf.disk.load(SESSION)
    finally:
        folder.chmod(0o700)


@pytest.mark.parametrize("what", ["file", "projects"])
def test_a_place_that_cannot_be_looked_into_is_told(
    shelf: Shelf, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    path = shelf.write()

    def refuse(*_: Any, **__: Any) -> Any:
        raise PermissionError(13, "Permission denied", str(path))

    if what == "file":
        monkeypatch.setattr(Path, "stat", refuse)
    else:
        monkeypatch.setattr(os, "scandir", refuse)
    with pytest.raises(TranscriptError, match="cannot be read: Permission denied") as caught:
        shelf.disk.read(SESSION)
    assert not isinstance(caught.value, SessionNotFound)


def test_what_cannot_be_opened_is_told(shelf: Shelf, monkeypatch: pytest.MonkeyPatch) -> None:
    path = shelf.write()

    def refuse(*_: Any) -> Any:
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(_reading, "open_file", refuse)
    with pytest.raises(TranscriptError, match="cannot be read: Permission denied") as caught:
        shelf.disk.read(SESSION)
    assert str(path) in str(caught.value)


@pytest.mark.parametrize(
    "asked, told",
    [
        ({"last": 0}, "last cannot be 0"),
        ({"last": True}, "last cannot be True"),
        ({"limit": -1}, "limit cannot be -1"),
        ({"offset": -1}, "offset cannot be -1"),
        ({"last": 1, "limit": 1}, "last cannot be given with limit or offset"),
        ({"history": "all"}, "history cannot be 'all'"),
    ],
    ids=str,
)
def test_what_cannot_be_read_is_refused(shelf: Shelf, asked: dict[str, Any], told: str) -> None:
    with pytest.raises(OptionsError, match=told):
        shelf.disk.read(SESSION, wanted=MessageRange(**asked))


@pytest.mark.parametrize("id", ["", "../x", "x" * 36, "*"])
def test_an_id_that_is_none_is_refused_everywhere(shelf: Shelf, id: str) -> None:
    for call in (shelf.disk.read, shelf.disk.info, shelf.disk.find, shelf.disk.agents, shelf.disk.load):
        with pytest.raises(OptionsError, match="id cannot be"):
            call(id)


# Subagents and everything.


def test_the_conversation_of_a_subagent_is_read(shelf: Shelf) -> None:
    shelf.write()
    own = [{**each, "isSidechain": True, "agentId": "a1"} for each in TALK]
    shelf.write_part("subagents/agent-a1.jsonl", own)
    shelf.write_part("subagents/deeper/agent-b2.jsonl", own[:1])
    shelf.write_part("subagents/notes.jsonl", own)
    assert shelf.disk.agents(SESSION) == ["a1", "b2"]
    assert read(shelf, agent="a1") == "u1 a1 u2 a2"
    assert read(shelf, agent="a1", last=2) == "u2 a2"
    assert read(shelf, agent="b2") == "u1"
    for wrong in ("c3", "", "../a1", "../../" + session_id(2)):
        with pytest.raises(TranscriptError, match="no subagent") as caught:
            read(shelf, agent=wrong)
        assert "a1, b2" in str(caught.value)


def test_everything_of_a_session_is_loaded(shelf: Shelf) -> None:
    big = 2**70 + 1
    odd: JsonObject = {"type": "odd", "text": "nul \x00"}
    shelf.write(1, written([*TALK, odd]) + b'{"type":"big","n":%d}\n{"half' % big)
    shelf.write_part("subagents/agent-a1.jsonl", TALK[:2])
    shelf.write_part("subagents/agent-a1.meta.json", b'{"agentType":"general","type":"its own"}')
    shelf.write_part("subagents/deeper/agent-b2.jsonl", TALK[:1])
    shelf.write_part("subagents/agent-c3.jsonl", b"")
    shelf.write_part("subagents/agent-d4.meta.json", b"damaged")
    shelf.write_part("tool-results/output.txt", b"x")
    bundle = shelf.disk.load(SESSION)
    assert (bundle.session_id, bundle.project) == (SESSION, "-srv-project")
    assert bundle.entries == [*TALK, odd, {"type": "big", "n": big}]
    assert bundle.parts == {
        "subagents/agent-a1": [{"agentType": "general", "type": "agent_metadata"}, *TALK[:2]],
        "subagents/deeper/agent-b2": TALK[:1],
    }

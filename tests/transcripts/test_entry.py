"""One line of a transcript."""

from __future__ import annotations

import copy
import json
import pickle
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from outrider.transcripts import TranscriptEntry, to_entry
from outrider.transcripts._entries import read_entry
from outrider.wire import (
    AssistantMessage,
    CompactBoundaryMessage,
    JsonObject,
    TextBlock,
    ToolResultBlock,
    ToolUseBlock,
    UserMessage,
    encode,
)
from tests.cases import every_case
from tests.transcripts.lines import answer, boundary, called, line, prompt, result, title
from tests.transcripts.made_up import transcripts


def read(data: JsonObject) -> TranscriptEntry:
    entry = read_entry(encode(data))
    assert entry is not None
    return entry


def test_a_line_is_read() -> None:
    entry = read(result("r1", "c1", source="c1", isMeta=True, agentId="a1", teamName="t"))
    assert (entry.type, entry.uuid, entry.parent_uuid, entry.call_uuid) == ("user", "r1", "c1", "c1")
    assert (entry.cwd, entry.git_branch, entry.agent_id, entry.team_name) == (
        "/srv/project",
        "main",
        "a1",
        "t",
    )
    assert (entry.is_meta, entry.is_sidechain, entry.is_compact_summary) == (True, False, False)
    assert entry.timestamp == datetime(2026, 3, 1, 12, tzinfo=UTC)
    assert entry.raw == result("r1", "c1", source="c1", isMeta=True, agentId="a1", teamName="t")


def test_a_line_is_the_message_that_a_session_gave() -> None:
    said = read(answer("a1", "u1")).message
    assert isinstance(said, AssistantMessage)
    assert (said.content, said.model, said.message_id) == ([TextBlock("answer a1")], "m", "msg-a1")
    asked = read(prompt("u1")).message
    assert isinstance(asked, UserMessage)
    assert (asked.text, asked.uuid, asked.is_synthetic) == ("prompt u1", "u1", None)
    call = read(called("c1", "u1", "m1", requestId="req")).message
    assert isinstance(call, AssistantMessage)
    assert isinstance(call.content[0], ToolUseBlock)
    assert call.request_id == "req"
    told = read(result("r1", "c1", toolUseResult={"stdout": "x"})).message
    assert isinstance(told, UserMessage)
    assert isinstance(told.content, list)
    assert isinstance(told.content[0], ToolResultBlock)
    assert told.tool_use_result == {"stdout": "x"}
    edge = read(boundary("b", "a1")).message
    assert isinstance(edge, CompactBoundaryMessage)
    assert edge.compact_metadata == {"trigger": "manual", "pre_tokens": 15}
    summary = read(prompt("s", "b", isCompactSummary=True)).message
    assert isinstance(summary, UserMessage)
    assert summary.is_synthetic
    assert read(title("x")).message is None
    assert read(line("user", "u", message="broken")).message is None


@every_case(
    "data, text",
    [
        (prompt("u1"), "prompt u1"),
        (answer("a1", None), "answer a1"),
        (called("c1", None, "m"), ""),
        (result("r1", None), ""),
        (boundary("b", None) | {"content": "Conversation compacted"}, "Conversation compacted"),
        (title("Named"), "Named"),
        (line("user", "u", message={"content": [{"type": "text", "text": "a"}, 5, {"type": "text"}]}), "a"),
        (line("user", "u", message=None), ""),
        (line("progress", "p"), ""),
    ],
)
def test_the_words_of_a_line(data: JsonObject, text: str) -> None:
    assert read(data).text == text


@every_case(
    "damaged",
    [
        b"",
        b"\n",
        b"   ",
        b"\x00\x00\x00",
        b'{"type":"user","uu',
        b"null",
        b"[]",
        b'"user"',
        b"12",
        b"{}{}",
        b"\xff",
    ],
    ids=repr,
)
def test_what_is_no_entry_is_none(damaged: bytes) -> None:
    assert read_entry(damaged) is None


@pytest.mark.parametrize(
    "wrap",
    [b"%s", b"%s\n", b"%s\r\n", b"\x00\x00%s", b"\xef\xbb\xbf%s", b"  %s  \x00"],
    ids=["bare", "line", "Windows", "NUL bytes", "byte order mark", "blanks"],
)
def test_what_is_around_a_line_means_nothing(wrap: bytes) -> None:
    entry = read_entry(wrap % encode(prompt("u1")))
    assert entry is not None
    assert (entry.uuid, entry.text, entry.raw) == ("u1", "prompt u1", prompt("u1"))


def test_a_text_with_broken_bytes_is_read() -> None:
    entry = read_entry(encode(prompt("u1", text="caf?")).replace(b"caf?", b"caf\xe9\x00"))
    assert entry is not None
    assert (entry.uuid, entry.text) == ("u1", "caf\ufffd\x00")


@pytest.mark.parametrize("depth", [200, 100_000])
def test_a_line_that_is_nested_deeply_is_no_danger(depth: int) -> None:
    line = b'{"type":"user","uuid":"u1","x":' + b"[" * depth + b"]" * depth + b"}"
    entry = read_entry(line)
    assert entry is None or entry.uuid == "u1"


def test_a_field_of_another_type_is_left_out() -> None:
    entry = read({**prompt("u1"), "cwd": 5, "isMeta": "yes", "timestamp": "soon", "gitBranch": None})
    assert (entry.uuid, entry.cwd, entry.is_meta, entry.timestamp, entry.git_branch) == (
        "u1",
        None,
        False,
        None,
        None,
    )


@pytest.mark.parametrize(
    "written, hour",
    [("2026-03-01T12:00:00", 12), ("2026-03-01T12:00:00Z", 12), ("2026-03-01T12:00:00+02:00", 10)],
)
def test_a_time_without_a_zone_is_utc(written: str, hour: int) -> None:
    assert read(prompt("u", timestamp=written)).timestamp == datetime(2026, 3, 1, hour, tzinfo=UTC)


@given(transcripts(longest=8))
def test_a_line_and_the_decoded_entry_say_the_same(lines: list[JsonObject]) -> None:
    for data in lines:
        entry = read(data)
        assert entry == to_entry(data)
        assert entry.raw == data == to_entry(data).raw


@given(
    st.binary()
    | st.text().map(str.encode)
    | st.recursive(st.none() | st.text(), st.lists).map(json.dumps).map(str.encode)
)
def test_no_line_makes_trouble(line: bytes) -> None:
    entry = read_entry(line)
    assert entry is None or isinstance(entry.text, str)


def test_an_entry_can_be_copied_and_sent_elsewhere_and_not_changed() -> None:
    entry = read(prompt("u1"))
    for again in (copy.copy(entry), copy.deepcopy(entry), pickle.loads(pickle.dumps(entry))):
        assert again == entry
        assert again.raw == entry.raw
    made = to_entry(prompt("u1"))
    assert pickle.loads(pickle.dumps(made)).raw == made.raw
    made.raw["uuid"] = "other"
    assert made.raw["uuid"] == "u1"
    with pytest.raises(AttributeError):
        entry.uuid = "other"  # type: ignore[misc] # pyright: ignore[reportAttributeAccessIssue]

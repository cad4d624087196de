"""What lists say of a session, from its file and from a store's summary."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import cast

import pytest
from hypothesis import given

from outrider.transcripts import SessionStoreEntry, StoredSession, fold_session_summary
from outrider.transcripts._describe import (
    describe_data,
    describe_entries,
    fold_lines,
    from_milliseconds,
)
from outrider.wire import JsonObject, encode
from tests.transcripts.lines import SESSION, answer, line, prompt, title
from tests.transcripts.made_up import transcripts

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)
PROJECT = "-srv-project"


def from_lines(lines: list[JsonObject]) -> StoredSession | None:
    data: dict[str, object] = {}
    fold_lines(data, [encode(each) for each in lines])
    return describe_data(data, session_id=SESSION, project=PROJECT, last_modified=NOON)


def from_summary(lines: list[JsonObject]) -> StoredSession | None:
    batch = cast("list[SessionStoreEntry]", lines)
    summary = fold_session_summary(None, {"project_key": PROJECT, "session_id": SESSION}, batch)
    return describe_data(summary["data"], session_id=SESSION, project=PROJECT, last_modified=NOON)


NOTES: list[JsonObject] = [
    title("By hand"),
    {"type": "ai-title", "aiTitle": "By the agent"},
    {"type": "last-prompt", "lastPrompt": "Last\n prompt"},
    {"type": "summary", "summary": "Summed up"},
]


@pytest.mark.parametrize(
    "notes, expected",
    [
        (NOTES, "By hand"),
        (NOTES[1:], "By the agent"),
        (NOTES[2:], "Last prompt"),
        (NOTES[3:], "Summed up"),
        ([], "prompt u1"),
    ],
)
def test_the_title_is_the_best_that_is_known(notes: list[JsonObject], expected: str) -> None:
    session = from_lines([prompt("u1"), answer("a1", "u1"), *notes])
    assert session is not None
    assert session.title == expected
    assert session.custom_title == ("By hand" if notes is NOTES else None)
    assert session.first_prompt == "prompt u1"
    assert (session.cwd, session.git_branch, session.created_at) == ("/srv/project", "main", NOON)


def test_what_has_no_place_in_lists_is_left_out() -> None:
    assert from_lines([line("progress", "p")]) is None
    assert from_lines([prompt("u1", isSidechain=True)]) is None
    data: dict[str, object] = {}
    found = describe_data(data, session_id=SESSION, project=PROJECT, last_modified=NOON, in_lists=False)
    assert found is not None
    assert found.title == ""


NESTED: JsonObject = {
    "type": "user",
    "isSidechain": True,
    "summary": "nested",
    "customTitle": "nested",
    "tag": "nested",
    "cwd": "/nested",
    "message": {"content": "nested"},
    "timestamp": "1999-01-01T00:00:00Z",
}


@pytest.mark.parametrize(
    "inside",
    [
        {"message": {"content": [{"type": "tool_use", "id": "c", "name": "Write", "input": NESTED}]}},
        {"message": {"content": [{"type": "text", "text": encode(NESTED).decode()}]}},
        {"toolUseResult": NESTED},
        {"message": {"content": [{"type": "tool_result", "content": [NESTED]}]}},
    ],
    ids=["tool input", "text", "tool result", "content"],
)
def test_what_is_inside_of_a_message_is_not_taken_for_the_sessions(inside: JsonObject) -> None:
    session = from_lines([{**answer("a0", None), **inside}, prompt("u1"), {**answer("a1", "u1"), **inside}])
    assert session == from_lines([answer("a0", None), prompt("u1")])


@given(transcripts())
def test_a_file_and_a_store_say_the_same(lines: list[JsonObject]) -> None:
    by_entries = describe_entries(lines, session_id=SESSION, project=PROJECT, last_modified=NOON)
    assert from_lines(lines) == from_summary(lines) == by_entries


def test_a_time_that_no_calendar_has_is_no_trouble() -> None:
    assert from_milliseconds(1e300) == from_milliseconds(0) == datetime(1970, 1, 1, tzinfo=UTC)

"""A fork: the same conversation under ids of its own, with nothing of the session that it came from."""

from __future__ import annotations

import json
from collections.abc import Iterator
from copy import deepcopy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from outrider.errors import OptionsError, TranscriptError
from outrider.transcripts import Bundle, conversation, forked, to_entry
from outrider.wire import JsonObject
from tests.transcripts.keeping import KEY, bundle
from tests.transcripts.lines import SESSION, answer, boundary, line, prompt, session_id
from tests.transcripts.made_up import transcripts

NEW = session_id(2)


def texts(entries: list[JsonObject]) -> list[str]:
    told = conversation([to_entry(entry) for entry in entries])
    return [str(entry.raw.get("message")) for entry in told]


def of(entries: list[JsonObject], kind: str) -> list[JsonObject]:
    return [entry for entry in entries if entry.get("type") == kind]


def names_in(value: object) -> Iterator[str]:
    """All texts in what is not said."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, list):
        for item in value:
            yield from names_in(item)
    elif isinstance(value, dict):
        for name, item in value.items():
            if name not in ("message", "toolUseResult", "forkedFrom"):
                yield from names_in(item)


def test_a_fork_is_the_same_conversation() -> None:
    source = bundle()
    before = deepcopy(source)
    fork = forked(source, NEW)
    assert texts(fork.entries) == texts(source.entries)
    assert len(texts(fork.entries)) == 8
    assert (fork.session_id, fork.project) == (NEW, KEY)
    assert source == before


def test_every_id_is_another_one_wherever_it_is_named() -> None:
    source = bundle()
    fork = forked(source, NEW)
    named = set(names_in([fork.entries, fork.parts]))
    old = {entry["uuid"] for entry in source.entries if "uuid" in entry}
    assert named.isdisjoint(old | {SESSION})
    new = {entry["uuid"]: entry for entry in fork.entries if "uuid" in entry}
    first = next(entry for entry in fork.entries if entry.get("turnAttributionKey"))
    assert first["turnAttributionKey"] == first["uuid"]
    for entry in new.values():
        assert entry["sessionId"] == NEW
        assert entry["parentUuid"] is None or entry["parentUuid"] in new
        assert entry.get("sourceToolAssistantUUID", entry["parentUuid"]) in {*new, None}


def test_what_was_said_stays_as_it_is_even_if_it_is_an_id() -> None:
    fork = forked(bundle(), NEW)
    [result] = [entry for entry in fork.entries if entry.get("toolUseResult")]
    assert result["toolUseResult"]["stdout"] == "u1"


def test_what_a_compaction_kept_is_named_by_the_new_ids() -> None:
    kept = {"preservedSegment": {"headUuid": "u1", "tailUuid": "u2"}, "preservedMessages": {"uuids": ["u2"]}}
    told = {**boundary("u3", "u2"), "compactMetadata": kept}
    source = Bundle(session_id=SESSION, project=KEY, entries=[prompt("u1"), answer("u2", "u1"), told])
    first, second, third, _ = forked(source, NEW).entries
    assert third["logicalParentUuid"] == second["uuid"]
    assert third["compactMetadata"] == {
        "preservedSegment": {"headUuid": first["uuid"], "tailUuid": second["uuid"]},
        "preservedMessages": {"uuids": [second["uuid"]]},
    }


def test_each_entry_names_the_one_that_it_came_from() -> None:
    source = bundle()
    fork = forked(source, NEW)
    came = [entry["forkedFrom"] for entry in fork.entries if entry.get("uuid")]
    kept = [entry["uuid"] for entry in source.entries if entry.get("uuid") and entry["type"] != "progress"]
    assert came == [{"sessionId": SESSION, "messageUuid": uuid} for uuid in kept]


def test_progress_is_left_out_and_what_followed_it_follows_what_was_before() -> None:
    fork = forked(bundle(), NEW)
    assert of(fork.entries, "progress") == []
    call, result = fork.entries[1], fork.entries[2]
    assert call["type"] == "assistant"
    assert result["parentUuid"] == result["sourceToolAssistantUUID"] == call["uuid"]


def test_nothing_that_is_told_of_the_session_comes_along_but_what_was_shortened() -> None:
    fork = forked(bundle(), NEW)
    kinds = [entry["type"] for entry in fork.entries if not entry.get("uuid")]
    assert kinds == ["content-replacement", "custom-title"]
    [replaced] = of(fork.entries, "content-replacement")
    assert replaced == {
        "type": "content-replacement",
        "sessionId": NEW,
        "replacements": [{"toolUseId": "call-u2"}],
    }
    assert "brave-plan" not in json.dumps(fork.entries)


@pytest.mark.parametrize(
    "given_title, entries, expected",
    [
        ("Mine", [], "Mine"),
        (None, [{"type": "custom-title", "customTitle": "Titled"}], "Titled (fork)"),
        (None, [], "Begin here (fork)"),
    ],
)
def test_a_fork_has_a_title(given_title: str | None, entries: list[JsonObject], expected: str) -> None:
    said = [prompt("u1", None, "Begin here"), answer("u2", "u1")]
    source = Bundle(session_id=SESSION, project=KEY, entries=[*said, *entries])
    fork = forked(source, NEW, title=given_title)
    assert of(fork.entries, "custom-title") == [
        {"type": "custom-title", "customTitle": expected, "sessionId": NEW}
    ]


# At a message


@pytest.mark.parametrize("at, left", [("u1", 1), ("u2", 2), ("u3", 3), ("u6", 6), ("u8", 8), ("p2", 2)])
def test_a_fork_ends_with_the_message(at: str, left: int) -> None:
    fork = forked(bundle(), NEW, at=at)
    assert len([entry for entry in fork.entries if entry.get("uuid")]) == left
    assert texts(fork.entries) == texts(bundle().entries)[:left]


@pytest.mark.parametrize(
    "at, agents",
    [
        ("u1", []),
        ("u2", ["first", "nested"]),
        ("u8", ["first", "nested"]),
        (None, ["first", "late", "nested"]),
    ],
)
def test_the_subagents_come_along_that_were_called(at: str | None, agents: list[str]) -> None:
    fork = forked(bundle(), NEW, at=at)
    assert sorted(fork.parts) == [f"subagents/agent-{agent}" for agent in agents]
    for part in fork.parts.values():
        assert {entry["sessionId"] for entry in part if "sessionId" in entry} == {NEW}


def test_a_subagent_of_which_nothing_is_told_is_known_by_its_result() -> None:
    source = bundle()
    source.parts = {"subagents/agent-first": [prompt("s1", isSidechain=True)], "subagents/agent-x": []}
    assert list(forked(source, NEW, at="u3").parts) == ["subagents/agent-first"]
    assert list(forked(source, NEW, at="u2").parts) == []


@pytest.mark.parametrize("at", ["nowhere", "", "s1", "msg-u2"])
def test_a_message_that_is_not_there_is_named(at: str) -> None:
    with pytest.raises(OptionsError, match=f"no message '{at}'"):
        forked(bundle(), NEW, at=at)


@pytest.mark.parametrize(
    "entries", [[], [{"type": "custom-title", "customTitle": "x"}], [line("system", "u1")]]
)
def test_a_session_without_messages_cannot_be_forked(entries: list[JsonObject]) -> None:
    with pytest.raises(TranscriptError, match="has no messages"):
        forked(Bundle(session_id=SESSION, project=KEY, entries=entries), NEW)


# Trouble


@pytest.mark.parametrize(
    "entries",
    [
        [prompt("u1", "u2"), answer("u2", "u1")],
        [line("progress", "p1", "p2"), line("progress", "p2", "p1"), prompt("u1", "p2"), answer("u2", "u1")],
        [prompt("u1", "u1")],
        [line("progress", "p1", "p1"), prompt("u1", "p1")],
    ],
    ids=["messages", "progress", "itself", "progress itself"],
)
def test_entries_that_follow_each_other_in_a_circle_are_no_trouble(entries: list[JsonObject]) -> None:
    fork = forked(Bundle(session_id=SESSION, project=KEY, entries=entries), NEW)
    assert texts(fork.entries) == texts(entries)
    there = {entry.get("uuid") for entry in fork.entries}
    assert {entry["parentUuid"] for entry in fork.entries if "parentUuid" in entry} <= {*there, None}


def test_progress_that_has_the_id_of_a_message_is_not_the_message() -> None:
    entries = [prompt("u1", None), prompt("u2", "u1"), line("progress", "u1", "u2")]
    cut = forked(Bundle(session_id=SESSION, project=KEY, entries=entries), NEW, at="u1")
    assert texts(cut.entries) == texts(entries[:1])


def test_a_parent_that_is_not_there_is_none() -> None:
    fork = forked(Bundle(session_id=SESSION, project=KEY, entries=[prompt("u2", "u1")]), NEW)
    assert fork.entries[0]["parentUuid"] is None


def test_what_is_nested_very_deeply_stays_as_it_is() -> None:
    deep: list[Any] = []
    for _ in range(5000):
        deep = [deep]
    entries = [prompt("u1", None, extra=deep)]
    fork = forked(Bundle(session_id=SESSION, project=KEY, entries=entries), NEW)
    assert fork.entries[0]["extra"] is deep


@given(transcripts(), st.data())
def test_a_fork_of_anything_is_the_same_conversation_under_other_ids(
    entries: list[JsonObject], data: st.DataObject
) -> None:
    source = Bundle(session_id=SESSION, project=KEY, entries=entries)
    messages = [
        entry
        for entry in entries
        if entry.get("type") in ("user", "assistant") and isinstance(entry.get("uuid"), str)
    ]
    if not messages:
        with pytest.raises(TranscriptError):
            forked(source, NEW)
        return
    fork = forked(source, NEW)
    kept = {entry["uuid"] for entry in entries if isinstance(entry.get("uuid"), str)}
    assert set(names_in(fork.entries)).isdisjoint(kept)
    # Progress can lead to what comes later in the file; a fork is of no team.
    is_plain = not any(entry.get("type") == "progress" or "teamName" in entry for entry in entries)
    if is_plain:
        assert texts(fork.entries) == texts(entries)
    again = forked(fork, session_id(3))
    assert texts(again.entries) == texts(fork.entries)
    spoken = [entry["uuid"] for entry in messages if not entry.get("isSidechain")]
    if spoken:
        at = data.draw(st.sampled_from(spoken))
        cut = forked(source, NEW, at=at)
        last = [entry for entry in cut.entries if entry.get("uuid")][-1]
        assert last["forkedFrom"]["messageUuid"] == at

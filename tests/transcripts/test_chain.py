"""Which entries of a transcript are the conversation."""

from __future__ import annotations

from typing import Literal

from hypothesis import given
from hypothesis import strategies as st

from outrider.transcripts import conversation
from outrider.transcripts._chain import is_chained, last_messages
from outrider.wire import JsonObject
from tests.cases import every_case
from tests.transcripts.lines import answer, boundary, called, entries, line, prompt, result, title
from tests.transcripts.made_up import transcripts

PLAIN = [prompt("u1"), answer("a1", "u1"), prompt("u2", "a1"), answer("a2", "u2")]


def uuids(lines: list[JsonObject], history: Literal["compacted", "full"] = "compacted") -> str:
    return " ".join(str(entry.uuid) for entry in conversation(entries(lines), history=history))


SIDE_BY_SIDE = [
    prompt("u1"),
    called("c1", "u1", "m1"),
    called("c2", "c1", "m1"),
    called("c3", "c2", "m1"),
    result("r3", "c3", source="c3"),
    result("r2", "c2", source="c2"),
    result("r1", "c1", source="c1"),
    answer("a1", "r1"),
]
"""As the program writes three calls in one answer: what follows goes on from the result that came last."""


@every_case(
    "lines, expected",
    [
        ([], ""),
        (PLAIN, "u1 a1 u2 a2"),
        ([title("x"), *PLAIN, title("y")], "u1 a1 u2 a2"),
        ([*PLAIN, prompt("u3", "a1")], "u1 a1 u3"),
        ([*PLAIN, line("attachment", "x", "a2"), line("system", "y", "x", subtype="s")], "u1 a1 u2 a2"),
        ([prompt("u1"), line("attachment", "x", "u1"), answer("a1", "x")], "u1 a1"),
        ([*PLAIN, line("progress", "x", "a1")], "u1 a1 u2 a2"),
        ([*PLAIN, prompt("u3", "a2", isMeta=True)], "u1 a1 u2 a2"),
        ([*PLAIN, prompt("u3", "a2", isMeta=True), answer("a3", "u3")], "u1 a1 u2 a2 a3"),
        ([*PLAIN, prompt("s1", None, isSidechain=True), answer("s2", "s1", isSidechain=True)], "u1 a1 u2 a2"),
        ([*PLAIN, prompt("t1", "a2", teamName="t")], "u1 a1 u2 a2"),
        ([prompt("u1", isCompactSummary=True), answer("a1", "u1")], "u1 a1"),
        (PLAIN[2:], "u2 a2"),
        ([prompt("u1", "u1")], "u1"),
        ([prompt("u1", "a1"), answer("a1", "u1")], "u1 a1"),
        ([prompt("u1", "a2"), answer("a1", "u1"), prompt("u2", "a1"), answer("a2", "u2")], "u1 a1 u2 a2"),
        ([*PLAIN, *PLAIN[2:]], "u1 a1 u2 a2"),
        ([line("system", "x", None, subtype="s")], ""),
    ],
    ids=[
        "nothing",
        "plain",
        "titles around it",
        "a branch that was begun last",
        "what the program adds at the end",
        "what the program adds in between",
        "late progress of an older call",
        "a note at the end",
        "a note in between",
        "a subagent in the same file",
        "another agent of the team",
        "a summary",
        "a beginning that is missing",
        "its own parent",
        "two that follow each other",
        "a circle",
        "lines that were written again",
        "nothing said",
    ],
)
def test_the_conversation_is_the_branch_that_was_used_last(lines: list[JsonObject], expected: str) -> None:
    assert uuids(lines) == expected


@every_case(
    "lines, expected",
    [
        (SIDE_BY_SIDE, "u1 c1 c2 c3 r2 r3 r1 a1"),
        (SIDE_BY_SIDE[:-1], "u1 c1 c2 c3 r2 r3 r1"),
        ([*SIDE_BY_SIDE, prompt("u2", "a1"), answer("a2", "u2")], "u1 c1 c2 c3 r2 r3 r1 a1 u2 a2"),
        # A hook noted something in between: the result follows that, and names its call.
        (
            [
                *SIDE_BY_SIDE[:4],
                line("progress", "p", "c3"),
                result("r3", "p", "c3", source="c3"),
                *SIDE_BY_SIDE[5:],
            ],
            "u1 c1 c2 c3 r2 r3 r1 a1",
        ),
        # Another result of a call that has one, elsewhere.
        (
            [*SIDE_BY_SIDE[:-1], result("r4", "u1", "c3", source="c3"), answer("a1", "r1")],
            "u1 c1 c2 c3 r2 r3 r1 a1",
        ),
        # What a user said instead of waiting for the result is another branch.
        ([*SIDE_BY_SIDE[:-1], prompt("u2", "c3"), answer("a1", "r1")], "u1 c1 c2 c3 r2 r3 r1 a1"),
        (
            [
                *SIDE_BY_SIDE[:4],
                result("r3", "c3", source="c3", timestamp="2026-03-01T12:00:02Z"),
                result("r2", "c2", source="c2", timestamp="2026-03-01T12:00:03Z"),
                *SIDE_BY_SIDE[6:],
            ],
            "u1 c1 c2 c3 r3 r2 r1 a1",
        ),
        (
            [*SIDE_BY_SIDE[:3], called("s", "c2", "m1", isSidechain=True), *SIDE_BY_SIDE[5:]],
            "u1 c1 c2 r2 r1 a1",
        ),
    ],
    ids=[
        "all answered",
        "at the end",
        "and going on",
        "after a note",
        "answered twice",
        "not waited for",
        "in the order of their times",
        "of a subagent",
    ],
)
def test_calls_that_ran_side_by_side_are_all_there(lines: list[JsonObject], expected: str) -> None:
    assert uuids(lines) == expected


COMPACTED = [
    *PLAIN,
    boundary("b", "a2"),
    prompt("s", "b", isCompactSummary=True),
    prompt("u3", "s"),
    answer("a3", "u3"),
]


def test_a_summary_stands_for_what_came_before_unless_all_is_wanted() -> None:
    assert uuids(COMPACTED) == "s u3 a3"
    assert uuids(COMPACTED, "full") == "u1 a1 u2 a2 b s u3 a3"
    again = [*COMPACTED, boundary("b2", "a3"), prompt("s2", "b2", isCompactSummary=True)]
    assert uuids(again) == "s2"
    assert uuids(again, "full") == "u1 a1 u2 a2 b s u3 a3 b2 s2"
    assert uuids([boundary("b", "gone"), prompt("s", "b")], "full") == "b s"


def test_a_subagents_own_transcript_is_its_conversation() -> None:
    own = [
        {**each, "isSidechain": True, "agentId": "a1"}
        for each in [*SIDE_BY_SIDE, prompt("n", "a1", isMeta=True)]
    ]
    found = conversation(entries(own), agent=True)
    assert [entry.uuid for entry in found] == ["u1", "c1", "c2", "c3", "r2", "r3", "r1", "a1"]
    assert conversation(entries(own)) == []


@given(transcripts(), st.sampled_from(["compacted", "full"]), st.booleans(), st.data())
def test_the_end_of_a_transcript_tells_the_last_messages(
    lines: list[JsonObject], history: Literal["compacted", "full"], agent: bool, data: st.DataObject
) -> None:
    known = [entry for entry in entries(lines) if is_chained(entry)]
    whole = conversation(known, history=history, agent=agent)
    count = data.draw(st.integers(1, 12))
    start = data.draw(st.integers(0, len(known)))
    found = last_messages(known[start:], count, history=history, agent=agent)
    assert found is None or found == whole[-count:]


@given(transcripts(), st.sampled_from(["compacted", "full"]))
def test_no_entry_is_there_twice_and_parents_come_first(
    lines: list[JsonObject], history: Literal["compacted", "full"]
) -> None:
    known = entries(lines)
    places = {id(entry): number for number, entry in enumerate(known)}
    found = conversation(known, history=history)
    assert len({places[id(entry)] for entry in found}) == len(found)
    if known and any(entry.type in ("user", "assistant") and entry.uuid for entry in found):
        spoken = [e for e in known if is_chained(e) and e.type in ("user", "assistant")]
        shown = [e for e in spoken if not (e.is_meta or e.is_sidechain or e.team_name)]
        assert any(entry is shown[-1] for entry in found)


def test_the_last_messages_of_a_long_transcript_need_only_its_end() -> None:
    lines = [prompt("e0")]
    for number in range(1, 1000):
        make = answer if number % 2 else prompt
        lines.append(make(f"e{number}", f"e{number - 1}"))
    known = entries(lines)
    assert last_messages(known[-14:], 10) == known[-10:]
    assert last_messages(known[-5:], 10) is None

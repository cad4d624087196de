"""Where something was said."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from outrider.errors import OptionsError
from outrider.transcripts import SearchHit, SessionQuery, to_entry
from outrider.transcripts._disk.read import Search, words
from outrider.wire import JsonObject, encode
from tests.transcripts.disk.shelf import TALK, Shelf
from tests.transcripts.lines import answer, called, line, prompt, result, session_id, title


def found(shelf: Shelf, text: str, **asked: Any) -> list[tuple[str, int]]:
    return [(hit.excerpt, hit.line_number) for hit in search(shelf, text, **asked)]


def search(
    shelf: Shelf, text: str, query: SessionQuery | None = None, limit: int | None = None, **asked: Any
) -> Iterator[SearchHit]:
    return shelf.disk.search(Search(text, **asked), query, limit=limit)


def holding(role: str, uuid: str, **block: Any) -> JsonObject:
    return line(role, uuid, message={"content": [block]})


SAID: list[JsonObject] = [
    prompt("u1", text="Where is the\n  Moon?"),
    called("c1", "u1", "m1") | {"toolUseResult": {"moon": "key"}},
    holding("user", "r1", type="tool_result", content=[{"type": "text", "text": "It is a moon."}]),
    holding("assistant", "t1", type="thinking", thinking="moon, hm"),
    holding(
        "assistant", "w1", type="tool_use", name="Write", input={"moon": 1, "deep": [{"text": "a MOON"}]}
    ),
    title("About the moon"),
    prompt("n1", "w1", text="moon", isMeta=True),
    {"type": "queue-operation", "content": "moon"},
    line("attachment", "x", attachment={"text": "moon"}),
]


def test_it_is_found_in_all_that_people_see_and_nowhere_else(shelf: Shelf) -> None:
    shelf.write(1, SAID)
    assert found(shelf, "moon") == [
        ("Where is the Moon?", 1),
        ("It is a moon.", 3),
        ("moon, hm", 4),
        ("a MOON", 5),
        ("About the moon", 6),
    ]
    assert found(shelf, "MOON", case_sensitive=True) == [("a MOON", 5)]
    assert found(shelf, "parentUuid") == []
    assert found(shelf, r"m.{2}n\?", regex=True) == [("Where is the Moon?", 1)]
    assert found(shelf, "m.{2}n") == []
    assert found(shelf, "moon", limit=2) == [("Where is the Moon?", 1), ("It is a moon.", 3)]
    assert found(shelf, "moon", limit=0) == []


@pytest.mark.parametrize(
    "text, said",
    [
        ('say "hi"', 'I say "hi" now'),
        ("a\\b", "path a\\b"),
        ("é", "CAFÉ"),
        ("café", "a Café"),
        ("line\nbreak", "a line\nbreak"),
        ("kelvin", "\u212aelvin"),
        ("sun", "\u017fun"),
        ("日本", "in 日本 now"),
        ("</b>", "<b>x</b>"),
        ("\x1b[1m", "\x1b[1mbold"),
    ],
)
@pytest.mark.parametrize("escaped", [False, True])
def test_how_it_is_written_down_does_not_matter(shelf: Shelf, text: str, said: str, escaped: bool) -> None:
    made = prompt("u1", text=said)
    data = json.dumps(made).encode() if escaped else encode(made)
    shelf.write(1, data + b"\n")
    assert len(found(shelf, text)) == 1


def test_a_text_that_somebody_escaped_is_found(shelf: Shelf) -> None:
    shelf.write(1, encode(prompt("u1", text="moon")).replace(b"moon", b"m\\u006f\\u006fn") + b"\n")
    assert found(shelf, "moon") == [("moon", 1)]


@given(
    st.lists(st.text(alphabet='aAsSkKiI"\\/\né\u212a\u017f\u0131\u0130 ', max_size=8), max_size=6),
    st.text(alphabet='aAsSkKiI"\\/\né ', min_size=1, max_size=3),
    st.booleans(),
    st.booleans(),
)
def test_nothing_is_passed_over(said: list[str], text: str, case_sensitive: bool, escaped: bool) -> None:
    search = Search(text, regex=False, case_sensitive=case_sensitive, agents=True)
    pattern = re.compile(re.escape(text), re.NOFLAG if case_sensitive else re.IGNORECASE)
    for each in said:
        made = prompt("u1", text=each)
        data = json.dumps(made).encode() if escaped else encode(made)
        expected = any(pattern.search(word) for word in words(to_entry(made)))
        assert (search.may_be_in(data) and search.in_line(data) is not None) == expected


def test_sessions_that_were_used_last_come_first_and_are_chosen(shelf: Shelf) -> None:
    for number in (1, 2, 3):
        shelf.write(number, [*TALK, {"type": "tag", "tag": f"t{number}"}], hour=number)
    hits = list(shelf.disk.search(Search("prompt u1")))
    assert [hit.session.id for hit in hits] == [session_id(number) for number in (3, 2, 1)]
    assert [hit.session.id for hit in shelf.disk.search(Search("prompt u1"), SessionQuery(tag="t2"))] == [
        session_id(2)
    ]
    chosen = shelf.disk.search(Search("prompt u1"), SessionQuery(limit=1, offset=1))
    assert [hit.session.id for hit in chosen] == [session_id(2)]
    assert hits[0].entry.uuid == "u1"


def test_the_words_of_subagents_are_searched_too(shelf: Shelf) -> None:
    shelf.write(1, [prompt("u1", text="x")])
    shelf.write_part("subagents/agent-a1.jsonl", [answer("a1", None, isSidechain=True)])
    (hit,) = shelf.disk.search(Search("answer a1"))
    assert (hit.agent_id, hit.line_number, hit.entry.uuid) == ("a1", 1, "a1")
    assert list(shelf.disk.search(Search("answer a1", agents=False))) == []


def test_an_excerpt_is_one_line_with_what_was_found_in_it(shelf: Shelf) -> None:
    shelf.write(1, [prompt("u1", text="x" * 500 + "\n the\tMoon \n" + "y" * 500)])
    ((excerpt, _),) = found(shelf, "moon")
    assert "Moon" in excerpt
    assert "\n" not in excerpt
    assert excerpt.startswith("…x")
    assert excerpt.endswith("y…")
    assert len(excerpt) < 120
    ((excerpt, _),) = found(shelf, "x+", regex=True)
    assert len(excerpt) < 260


def test_what_cannot_be_read_is_passed_over(shelf: Shelf) -> None:
    shelf.write(
        1, b'{"type":"user","message":{"content":"moon\n' + encode(prompt("u1", text="moon")) + b"\n\x00moon"
    )
    shelf.write_part("subagents/agent-a1.jsonl/x", b"")
    assert found(shelf, "moon") == [("moon", 2)]


@pytest.mark.parametrize(
    "text, asked, told",
    [
        ("", {}, "no text"),
        ("(", {"regex": True}, "not a regular expression"),
        ("a{99999999999999}", {"regex": True}, "not a regular expression"),
        ("x", {"limit": -1}, "limit cannot be -1"),
    ],
)
def test_what_cannot_be_searched_for_is_refused_at_once(
    shelf: Shelf, text: str, asked: dict[str, Any], told: str
) -> None:
    with pytest.raises(OptionsError, match=told):
        search(shelf, text, **asked)


def test_results_of_tools_are_searched(shelf: Shelf) -> None:
    shelf.write(1, [prompt("u1"), called("c1", "u1", "m"), result("r1", "c1")])
    assert found(shelf, "output r1") == [("output r1", 3)]
    assert found(shelf, "run c1") == [("run c1", 2)]


def test_a_search_ends_when_nobody_waits_for_it(shelf: Shelf) -> None:
    for number in range(1, 6):
        shelf.write(number)
    left = iter([False, False, False, False])
    assert len(list(shelf.disk.search(Search("prompt u1"), is_over=lambda: next(left, True)))) == 2


def test_lines_are_counted_as_the_file_has_them(shelf: Shelf) -> None:
    shelf.write(1, b"\r\r\n\n" + encode(prompt("u1", text="?")).replace(b"?", b"the\rmoon") + b"\r\n")
    assert found(shelf, "moon") == [("the moon", 3)]

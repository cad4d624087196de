"""What is remembered of a session while its entries come in."""

from __future__ import annotations

from typing import Any, cast

from hypothesis import given
from hypothesis import strategies as st

from outrider.transcripts import SessionKey, SessionStoreEntry, SessionSummaryEntry, fold_session_summary
from outrider.wire import JsonObject
from tests.cases import every_case
from tests.transcripts.lines import SESSION, answer, prompt, result, title
from tests.transcripts.made_up import transcripts

KEY: SessionKey = {"project_key": "-srv-project", "session_id": SESSION}


def fold(*batches: list[JsonObject]) -> dict[str, object]:
    summary: SessionSummaryEntry | None = None
    for batch in batches:
        summary = fold_session_summary(summary, KEY, cast("list[SessionStoreEntry]", batch))
    assert summary is not None
    return summary["data"]


def asked(text: str) -> JsonObject:
    return prompt("u", text=text)


@every_case(
    "lines, first",
    [
        ([asked("Hello\nthere")], "Hello there"),
        ([asked("x" * 300)], "x" * 200 + "…"),
        ([prompt("m", text="note", isMeta=True), asked("Hello")], "Hello"),
        ([prompt("s", text="so far", isCompactSummary=True), asked("Hello")], "Hello"),
        ([result("r", "c"), asked("Hello")], "Hello"),
        ([asked("<local-command-stdout>x</local-command-stdout>"), asked("Hello")], "Hello"),
        ([asked("[Request interrupted by user]"), asked("Hello")], "Hello"),
        ([asked("<ide_opened_file>a.py</ide_opened_file>\n"), asked("Hello")], "Hello"),
        ([asked("<ide_opened_file>a</ide_opened_file> Hello")], "<ide_opened_file>a</ide_opened_file> Hello"),
        ([asked("   "), asked("Hello")], "Hello"),
        ([answer("a", None), asked("Hello"), asked("Again")], "Hello"),
        ([{**asked(""), "message": {"content": [{"type": "text", "text": "Hello"}]}}], "Hello"),
        ([{**asked(""), "message": "no object"}], None),
    ],
)
def test_the_first_prompt_is_what_a_person_said_first(lines: list[JsonObject], first: str | None) -> None:
    assert fold(lines).get("first_prompt") == first


def test_a_command_stands_in_where_nothing_else_was_said() -> None:
    assert fold([asked("<command-name>/compact</command-name> x")])["command_fallback"] == "/compact"


def test_an_empty_title_takes_the_one_before_away() -> None:
    lines = [asked("Hello"), title("Named"), {"type": "ai-title", "aiTitle": "Made up"}, title("")]
    assert fold(lines)["custom_title"] == ""


def test_the_last_title_counts_and_an_empty_tag_clears() -> None:
    tag: dict[str, Any] = {"type": "tag", "tag": "ci"}
    assert fold([title("one"), title("two")])["custom_title"] == "two"
    assert fold([tag])["tag"] == "ci"
    assert "tag" not in fold([tag, {"type": "tag", "tag": ""}])
    # Of another type, it is something else.
    assert "tag" not in fold([{"type": "user", "tag": "x"}])
    assert fold([{"type": "archived", "archived": True}])["archived"] is True
    assert (
        fold([{"type": "archived", "archived": True}, {"type": "archived", "archived": False}])["archived"]
        is False
    )


@given(transcripts(longest=12), st.integers(0, 12))
def test_it_does_not_matter_how_entries_are_batched(lines: list[JsonObject], cut: int) -> None:
    assert fold(lines) == fold(lines[:cut], lines[cut:])

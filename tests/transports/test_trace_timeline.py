"""A trace can be read as a story: who said what, in which turn, and how long it took."""

from __future__ import annotations

from outrider.transports import read_trace, timeline
from tests import tapes


def story(name: str, *, width: int = 100, partials: bool = True) -> list[tuple[str, str, int | None]]:
    entries = timeline(read_trace(tapes.FOLDER / f"{name}.jsonl.gz"), width=width, partials=partials)
    return [(entry.kind, entry.summary, entry.turn) for entry in entries]


def test_a_permission_prompt_in_a_turn() -> None:
    told = story("04-can-use-tool-allow", width=40)
    assert ("request initialize", '{"hooks":null}', None) in told
    assert ("user", "Make a file", 1) in told
    assert ("assistant", "Running it.", 1) in told
    assert ("request can_use_tool", "Bash(command=echo hello > made.txt && c…", 1) in told
    assert ("user", "→ hello", 1) in told
    assert ("result", "success $0.0016 Done.", 1) in told
    assert told[-1] == ("exit", "returncode 0", None)


def test_answers_and_results_say_how_long_they_took() -> None:
    entries = list(timeline(read_trace(tapes.FOLDER / "04-can-use-tool-allow.jsonl.gz")))
    took = {entry.kind: round(entry.duration, 3) for entry in entries if entry.duration is not None}
    assert took == {"answer initialize": 0.258, "answer can_use_tool": 0.0, "result": 0.177}


def test_turns_are_counted() -> None:
    turns = [turn for kind, _, turn in story("10-multi-turn-query-stream") if kind == "result"]
    assert turns == list(range(1, len(turns) + 1))
    assert len(turns) > 1


def test_a_request_that_is_taken_back_is_named() -> None:
    assert ("withdrawn", "can_use_tool", 2) in story("05-hooks-permissionrequest-outputs")


def test_pieces_of_messages_can_be_left_out() -> None:
    whole, short = story("02-partial-text-and-tool"), story("02-partial-text-and-tool", partials=False)
    assert [entry for entry in whole if entry[0] != "stream_event"] == short
    assert len(short) < len(whole)


def test_tool_calls_of_own_servers_are_shown() -> None:
    asked = [summary for kind, summary, _ in story("06-mcp-sdk-tools") if kind == "request mcp_message"]
    assert any("tools/list" in summary for summary in asked)
    assert any("tools/call" in summary and "(" in summary for summary in asked)


def test_summaries_are_one_line_of_the_width_that_is_asked_for() -> None:
    for name in tapes.NAMES:
        for _, summary, _ in story(name, width=50):
            assert len(summary) <= 50
            assert "\n" not in summary

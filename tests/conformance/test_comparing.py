"""The comparison itself: what it sees, what it lets pass, and that no listed difference may be idle."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.conformance import golden
from tests.conformance.differences import Difference, judge
from tests.conformance.golden import Deviation, compare, label, read_golden, write_golden
from tests.conformance.host import Run
from tests.conformance.shapes import Reading, kind

PLACES = [("/tmp/x/project", "$FOLDER"), ("/tmp/x", "$ROOT")]


def course(*frames: Any, exit_code: int = 0) -> dict[str, Any]:
    return {"runs": [{"frames": list(frames), "exit_code": exit_code}], "requests": []}


INIT = {"type": "system", "subtype": "init", "model": "m"}
TEXT = {"type": "assistant", "message": {"content": [{"type": "text", "text": "hi"}]}}
RESULT = {"type": "result", "subtype": "success", "result": "hi"}


@pytest.mark.parametrize(
    "actual, places",
    [
        pytest.param(course(INIT, TEXT, RESULT), [], id="the same"),
        pytest.param(course(INIT, RESULT), [("assistant/text", "")], id="a frame is missing"),
        pytest.param(course(INIT, TEXT, TEXT, RESULT), [("assistant/text", "")], id="a frame too many"),
        pytest.param(
            course(TEXT, INIT, RESULT),
            [("assistant/text", ""), ("assistant/text", "")],
            id="in another order",
        ),
        pytest.param(
            course(INIT, TEXT, {**RESULT, "result": "ho"}), [("result/success", "result")], id="another value"
        ),
        pytest.param(
            course(INIT, TEXT, {**RESULT, "more": 1}), [("result/success", "more")], id="a key too many"
        ),
        pytest.param(course(INIT, TEXT, RESULT, exit_code=1), [("run", "exit_code")], id="another exit code"),
    ],
)
def test_all_that_differs_is_found_at_its_place(
    actual: dict[str, Any], places: list[tuple[str, str]]
) -> None:
    found = compare(course(INIT, TEXT, RESULT), actual)
    assert [(each.frame, each.key) for each in found] == places


def test_what_the_model_was_asked_is_compared_where_it_is_known() -> None:
    expected = course(INIT) | {"requests": [{"kind": "main", "tool_results": [{"content": "a"}]}]}
    other = course(INIT) | {"requests": [{"kind": "main", "tool_results": [{"content": "b"}]}]}
    assert [str(each) for each in compare(expected, other)] == [
        'request main tool_results[0].content: expected "a", got "b"'
    ]
    unknown = {"runs": expected["runs"]}
    assert compare(expected, unknown) == []


def test_longer_texts_may_be_said_in_other_words_where_that_is_allowed() -> None:
    long = "Permission to use Bash was refused, and so on" + "." * 60 + "…"
    expected, other = (
        course({**RESULT, "result": long}),
        course({**RESULT, "result": f"{long[:30]} and no more"}),
    )
    assert [each.key for each in compare(expected, other)] == ["result"]
    assert compare(expected, other, in_own_words=True) == []
    another = course({**RESULT, "result": "Something else"})
    assert [each.key for each in compare(expected, another, in_own_words=True)] == ["result"]
    short, shorter = (
        course({**RESULT, "result": "A short text. Yes"}),
        course({**RESULT, "result": "A short text. No"}),
    )
    assert [each.key for each in compare(short, shorter, in_own_words=True)] == ["result"]


def test_a_difference_is_explained_or_told_and_an_idle_explanation_too() -> None:
    found = [
        Deviation("system/init", "tools", [], ["x"]),
        Deviation("result/success", "", "(nothing)", RESULT),
    ]
    known = [
        Difference(("one",), "system/init", "tools", "fewer tools"),
        Difference(("one",), "user*", "*", "gone"),
        Difference(("two",), "*", "*", "elsewhere"),
    ]
    unexplained, unneeded = judge("one", found, known)
    assert [each.frame for each in unexplained] == ["result/success"]
    assert [each.reason for each in unneeded] == ["gone"]
    assert judge("three", found, known) == (found, [])


def run_of(*frames: Any) -> Run:
    run = Run()
    run.frames, run.exit_code = list(frames), 0
    return run


def test_what_differs_from_run_to_run_is_left_out() -> None:
    def frames(mark: str, folder: str) -> list[Any]:
        session = f"{mark * 8}-0000-4000-8000-{mark * 12}"
        message = {"content": [{"type": "tool_use", "id": f"toolu_{mark}", "input": {"path": f"{folder}/x"}}]}
        return [
            {"type": "assistant", "session_id": session, "uuid": session, "message": message},
            {"type": "control_request", "request_id": mark, "request": {"tool_use_id": f"toolu_{mark}"}},
            {"type": "control_cancel_request", "request_id": mark},
        ]

    first = Reading([("/tmp/a", "$FOLDER")]).run(run_of(*frames("a", "/tmp/a")))
    second = Reading([("/tmp/b", "$FOLDER")]).run(run_of(*frames("b", "/tmp/b")))
    assert first == second
    assert first["frames"][1:] == [
        {"type": "control_request", "request_id": "<asked 1>", "request": {"tool_use_id": "<toolu 1>"}},
        {"type": "control_cancel_request", "request_id": "<asked 1>"},
    ]


def test_ids_that_do_not_belong_together_are_told_apart() -> None:
    reading = Reading([])
    read = [reading.frame({"type": "x", "tool_use_id": f"toolu_{id}"})["tool_use_id"] for id in "aba"]
    assert read == ["<toolu 1>", "<toolu 2>", "<toolu 1>"]


def test_usual_keys_are_left_out_and_missed_if_they_are_not_there() -> None:
    usual: dict[str, Any] = {
        "type": "user",
        "uuid": "1",
        "timestamp": "now",
        "parent_tool_use_id": None,
        "message": {},
    }
    reading = Reading([])
    assert reading.frame(usual) == {"type": "user", "message": {}}
    del usual["timestamp"]
    assert reading.frame(usual) == {"type": "user", "lacking": ["timestamp"], "message": {}}
    assert reading.frame({**usual, "timestamp": 5})["timestamp"] == "<number>"
    assert reading.frame({**usual, "parent_tool_use_id": "x"})["parent_tool_use_id"] == "x"


def test_results_may_come_in_any_order_where_that_is_said() -> None:
    first, second = ({"type": "user", "message": {"content": text}} for text in "ab")
    calls = [{"type": "assistant", "message": {"id": "msg_1", "content": text}} for text in "cd"]
    after = {"type": "assistant", "message": {"id": "msg_2", "content": "e"}}

    def read(*frames: Any, loose: bool = True) -> list[str]:
        whole = Reading(PLACES, loose=loose).run(run_of(*frames))
        return [frame["message"]["content"] for frame in whole["frames"]]

    assert read(*calls, first, second, after) == ["c", "d", "a", "b", "e"]
    assert read(calls[0], second, calls[1], first, after) == ["c", "d", "a", "b", "e"]
    assert read(calls[0], second, calls[1], first, after, loose=False) == ["c", "b", "d", "a", "e"]
    assert read(*calls, after, first, second) == ["c", "d", "e", "a", "b"]


@pytest.mark.parametrize(
    "value, name",
    [
        (None, "null"),
        (True, "bool"),
        (1, "number"),
        (1.5, "number"),
        ("x", "string"),
        ([], "list"),
        ({}, "object"),
    ],
)
def test_kinds_are_those_of_json(value: object, name: str) -> None:
    assert kind(value) == name


def test_a_file_is_read_as_it_was_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(golden, "FOLDER", tmp_path)
    whole = course(INIT, {**TEXT, "long": "ä" * 200}, RESULT)
    write_golden("one", whole)
    assert read_golden("one") == whole
    assert len((tmp_path / "one.json").read_text().splitlines()) > 3


@pytest.mark.parametrize(
    "frame, name",
    [
        (INIT, "system/init"),
        (TEXT, "assistant/text"),
        ({**TEXT, "parent_tool_use_id": "x"}, "assistant/text of a subagent"),
        (
            {"type": "control_request", "request": {"subtype": "can_use_tool", "tool_name": "Bash"}},
            "control_request/can_use_tool Bash",
        ),
        (
            {"type": "control_request", "request": {"subtype": "mcp_message", "message": {"method": "ping"}}},
            "control_request/mcp_message ping",
        ),
        ({"type": "control_response", "response": {"request_id": "host-1"}}, "control_response host-1"),
        ({"type": "stream_event", "event": {"type": "message_stop"}}, "stream_event/message_stop"),
        ({"type": "keep_alive"}, "keep_alive"),
    ],
)
def test_frames_are_called_by_what_they_are(frame: dict[str, Any], name: str) -> None:
    assert label(frame) == name

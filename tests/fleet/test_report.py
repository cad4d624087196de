"""What a batch came to: the figures, and the four ways to write them."""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Iterable, Sequence
from typing import Any
from xml.etree import ElementTree as ET

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from markdown_it import MarkdownIt
from markdown_it.token import Token

from outrider._display import plain
from outrider.fleet import Latency, Outcome, Part, Report, Status
from outrider.fleet._task import STATUSES
from outrider.session import Usage
from tests.cases import every_case

BEGAN = 1_780_000_000.0
HOSTILE = "a|b `c` **d** [e](http://f) <img src=x>\n| g |"
SECRET = "sk-ant-api03-abcdefghijklmnopqrstuvwxyz0123456789"


def outcome(number: int, status: Status = "done", **fields: Any) -> Outcome[Any]:
    """The outcome of a task: begun 10 seconds after the one before it, it took its number in seconds."""
    failed: dict[str, Any] = {} if status == "done" else {"error": "It broke.", "error_kind": "ApiFailed"}
    duration = fields.get("duration", float(number))
    given: dict[str, Any] = {
        "id": f"task-{number}",
        "attempts": 1,
        "duration": duration,
        "usage": Usage(10, 5, cost_usd=0.5),
        "ended_at": BEGAN + 10 * number + duration,
        **failed,
        **fields,
    }
    return Outcome(number=number, status=status, **given)


def test_the_figures() -> None:
    outcomes = [
        outcome(3, "failed", attempts=4, tags={"team": "core"}),
        outcome(1, tags={"team": "core"}),
        outcome(2, tags={"team": "docs"}),
        outcome(4, "over_budget", error_kind="LimitReached", tags={"team": "docs", "kind": "new"}),
        outcome(5, "failed"),
        outcome(6, "skipped", attempts=0, usage=Usage(), error=None, error_kind=None),
    ]
    report = Report.from_outcomes(outcomes, total=8)
    assert report.sums == Part(done=2, failed=2, over_budget=1, skipped=1, usage=Usage(50, 25, cost_usd=2.5))
    assert (report.total, report.pending, report.attempts) == (8, 2, 8)
    assert report.active_seconds == pytest.approx(15)
    assert report.rate_per_minute == pytest.approx(20)
    assert report.latency == Latency(3, 5, 5, 5)
    assert [each.number for each in report.slowest] == [5, 4, 3, 2, 1]
    assert [(each.kind, each.count, each.ids) for each in report.failures] == [
        ("ApiFailed", 2, ("task-3", "task-5")),
        ("LimitReached", 1, ("task-4",)),
    ]
    core, docs, new = Usage(20, 10, cost_usd=1), Usage(20, 10, cost_usd=1), Usage(10, 5, cost_usd=0.5)
    assert report.by_tag == {
        "kind": {"new": Part(over_budget=1, usage=new)},
        "team": {
            "core": Part(done=1, failed=1, usage=core),
            "docs": Part(done=1, over_budget=1, usage=docs),
        },
    }
    assert [each.number for each in report.outcomes] == [1, 2, 3, 4, 5, 6]


@every_case(
    "durations, latency",
    [
        (range(1, 101), (50, 90, 99, 100)),
        (range(1, 11), (5, 9, 10, 10)),
        ((7,), (7, 7, 7, 7)),
        ((1, 1, 1, 99), (1, 99, 99, 99)),
    ],
    ids=["hundred", "ten", "one", "an-outlier"],
)
def test_a_percentile_is_the_time_of_a_task(durations: Iterable[int], latency: tuple[int, ...]) -> None:
    assert Latency.of(reversed(list(durations))) == Latency(*latency)


def test_the_pause_between_a_run_and_its_resume_is_no_work() -> None:
    side_by_side = [outcome(number, duration=10, ended_at=BEGAN + 10 + number) for number in range(5)]
    a_night_later = outcome(9, duration=4, ended_at=BEGAN + 40_000)
    report = Report.from_outcomes([*side_by_side, a_night_later])
    assert report.active_seconds == pytest.approx(14 + 4)
    assert "18.0 s at work" in report.to_svg()


def test_markdown_has_the_figures() -> None:
    page = Report.from_outcomes(
        [outcome(1), outcome(2, "failed", tags={"team": "core"})],
        total=3,
        began_at=BEGAN,
        ended_at=BEGAN + 30,
    ).to_markdown()
    assert page.startswith("# 1 of 3 tasks done\n")
    rows = {cells[0]: cells[1] for cells in _rows(page) if len(cells) == 2}
    assert rows["failed"] == "1"
    assert rows["not ended"] == "1"
    assert rows["cost"] == "$1.00"
    assert rows["tokens"] == "30"
    assert rows["time at work"] == "3.0 s"
    assert rows["began"] == "2026-05-28 20:26:40 UTC"
    assert "skipped" not in rows
    assert ["ApiFailed", "1", "task-2", "It broke."] in _rows(page)
    assert ["core", "0", "1", "0", "$0.5000", "15"] in _rows(page)
    # As text it is a table as well.
    assert (
        len({len(line) for line in page.splitlines() if re.match(r"\| (done|failed|cost|tries) ", line)}) == 1
    )


def test_what_tasks_say_is_no_markdown() -> None:
    told = outcome(
        1,
        "failed",
        id=HOSTILE,
        error=f"{HOSTILE} {SECRET}",
        error_kind=HOSTILE,
        tags={HOSTILE: HOSTILE},
    )
    page = Report.from_outcomes([told]).to_markdown()
    assert SECRET not in page
    kinds = {token.type for token in _tokens(page)}
    assert not kinds & {"strong_open", "link_open", "html_inline", "html_block", "image"}
    assert {len(cells) for cells in _rows(page)} == {2, 4, 5, 6}
    assert ["a|b `c` **d** [e](http://f) <img src=x> | g |", "0", "1", "0", "$0.5000", "15"] in _rows(page)


def test_csv_has_a_line_for_each_task() -> None:
    outcomes = [
        outcome(1, text=HOSTILE, raw_output={"count": 2}, session_id="s1", tags={"team": "core"}),
        outcome(2, "failed", error=HOSTILE, workspace="/tmp/w"),
    ]
    one, two = csv.DictReader(io.StringIO(Report.from_outcomes(outcomes, total=3).to_csv()))
    assert (one["id"], one["status"], one["text"], one["tag:team"]) == ("task-1", "done", HOSTILE, "core")
    assert (json.loads(one["output"]), one["session_id"]) == ({"count": 2}, "s1")
    assert (one["cost_usd"], one["input_tokens"], one["duration"]) == ("0.5", "10", "1.0")
    assert one["ended_at"] == "2026-05-28T20:26:51.000+00:00"
    assert (two["error_kind"], two["error"], two["workspace"]) == ("ApiFailed", HOSTILE, "/tmp/w")
    assert (two["tag:team"], two["output"], two["started_at"]) == ("", "", "")


@pytest.mark.parametrize("begin", ["=", "+", "-", "@", "\t", "\r"])
def test_what_tasks_say_is_no_formula_of_a_table(begin: str) -> None:
    hostile = f"{begin}cmd|' /c calc'!A1"
    told = outcome(1, "failed", id=hostile, text=hostile, error=hostile, tags={"team": hostile})
    (row,) = csv.DictReader(io.StringIO(Report.from_outcomes([told]).to_csv(), newline=""))
    assert {row[name] for name in ("id", "text", "error", "tag:team")} == {f"'{plain(hostile)}"}


def test_json_has_all_of_it() -> None:
    outcomes = [outcome(1, raw_output={"count": 2}, result=object()), outcome(2, "failed", tags={"a": "b"})]
    told = json.loads(Report.from_outcomes(outcomes, total=3, began_at=BEGAN).to_json())
    assert (told["total"], told["pending"], told["done"], told["failed"]) == (3, 1, 1, 1)
    assert (told["cost_usd"], told["input_tokens"]) == (1.0, 20)
    assert told["latency"] == {"p50": 1.0, "p90": 2.0, "p99": 2.0, "max": 2.0}
    assert told["by_tag"]["a"]["b"]["failed"] == 1
    assert told["began_at"] == "2026-05-28T20:26:40.000+00:00"
    assert [Outcome[Any].from_json(each).id for each in told["outcomes"]] == ["task-1", "task-2"]
    assert told["outcomes"][0]["output"] == {"count": 2}


def test_a_batch_of_which_nothing_has_ended() -> None:
    report = Report.from_outcomes([], total=3)
    assert (report.pending, report.latency, report.rate_per_minute) == (3, None, None)
    assert report.to_markdown().startswith("# 0 of 3 tasks done\n")
    assert report.to_csv().count("\n") == 1
    assert json.loads(report.to_json())["latency"] is None
    assert "No task has been run yet." in report.to_svg()


# The plot.


def test_the_plot_shows_every_task() -> None:
    outcomes = [outcome(number, "failed" if number % 5 == 0 else "done") for number in range(1, 21)]
    drawn = ET.fromstring(Report.from_outcomes(outcomes).to_svg())
    failed, done = _areas(drawn)["failed"], _areas(drawn)["done"]
    top, bottom = min(y for _, y in failed), max(y for _, y in done)
    height = bottom - top
    assert min(y for _, y in done) == pytest.approx(bottom - height * 16 / 20, abs=0.1)
    bars = [each for each in _named(drawn, "rect") if each.get("class") in STATUSES]
    # Twenty times, all of them different enough for a bar of their own.
    assert len(bars) == 20
    assert {float(bar.get("height", 0)) for bar in bars} == {138.0}
    assert [bar.get("class") for bar in bars].count("failed") == 4


def test_a_task_that_took_far_longer_leaves_room_for_the_others() -> None:
    outcomes = [outcome(number, duration=1 + number % 10) for number in range(200)]
    drawn = ET.fromstring(Report.from_outcomes([*outcomes, outcome(200, duration=9000)]).to_svg())
    assert "1 took longer, up to 2 h 30 min" in [each.text for each in _named(drawn, "text")]
    assert len([each for each in _named(drawn, "rect") if each.get("class") == "done"]) == 10


def test_a_plot_of_ten_thousand_tasks_is_small() -> None:
    outcomes = [outcome(number, duration=1 + number % 37) for number in range(10_000)]
    text = Report.from_outcomes(outcomes).to_svg()
    assert len(text) < 100_000
    assert all(status in text for status in ("prefers-color-scheme: dark", ".over_budget"))


@settings(max_examples=60, deadline=None)
@given(
    st.lists(
        st.tuples(
            st.sampled_from(STATUSES),
            st.floats(0, 1e7),
            st.floats(0, 1e6),
            st.integers(0, 3),
            st.text(max_size=10),
        ),
        max_size=12,
    ),
    st.integers(0, 20),
)
def test_any_batch_can_be_told_of(tasks: Sequence[tuple[Status, float, float, int, str]], more: int) -> None:
    outcomes = [
        outcome(number, status, id=id, ended_at=BEGAN + ended, duration=duration, attempts=attempts)
        for number, (status, ended, duration, attempts, id) in enumerate(tasks)
    ]
    report = Report.from_outcomes(outcomes, total=len(outcomes) + more)
    json.loads(report.to_json())
    assert len(list(csv.reader(io.StringIO(report.to_csv(), newline="")))) == len(outcomes) + 1
    assert _rows(report.to_markdown())
    drawn = ET.fromstring(report.to_svg())
    _, _, width, height = map(float, drawn.get("viewBox", "").split())
    for points in _areas(drawn).values():
        assert all(0 <= x <= width and 0 <= y <= height for x, y in points)
    for each in (*_named(drawn, "rect"), *_named(drawn, "text"), *_named(drawn, "line")):
        for name, value in each.attrib.items():
            if name in ("x", "x1", "x2", "y", "y1", "y2", "width", "height"):
                assert 0 <= float(value) <= (width if name[0] in "xw" else height)


def _named(drawn: ET.Element, name: str) -> list[ET.Element]:
    return drawn.findall(f"{{http://www.w3.org/2000/svg}}{name}")


def _areas(drawn: ET.Element) -> dict[str, list[tuple[float, float]]]:
    return {
        each.get("class", ""): [
            (float(x), float(y)) for x, y in (point.split() for point in each.get("d", "")[1:-1].split("L"))
        ]
        for each in _named(drawn, "path")
    }


def _tokens(page: str) -> list[Token]:
    return [
        inner
        for token in MarkdownIt("commonmark").enable("table").parse(page)
        for inner in (token, *(token.children or ()))
    ]


def _rows(page: str) -> list[list[str]]:
    """The tables of a page, as a reader sees their cells."""
    rows: list[list[str]] = []
    for token in MarkdownIt("commonmark").enable("table").parse(page):
        if token.type == "tr_open":
            rows.append([])
        elif token.type == "inline" and token.level > 2:
            rows[-1].append("".join(child.content for child in token.children or ()))
    return rows

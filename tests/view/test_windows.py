"""Windows of a transcript: each line once, calls with their results, however damaged the file is."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from outrider.view._sources import transcript
from outrider.view._sources.outline import Outline
from outrider.view._sources.transcript import TranscriptFile, Window
from tests.view.sample import Writer, rich, text, use


def forwards(file: TranscriptFile, count: int) -> list[Window]:
    windows = [file.after(0, count)]
    while not windows[-1].is_last:
        windows.append(file.after(windows[-1].end, count))
    return windows


def backwards(file: TranscriptFile, count: int) -> list[Window]:
    windows = [file.last(count)]
    while not windows[-1].is_first:
        windows.append(file.before(windows[-1].start, count))
    return windows[::-1]


def offsets(windows: list[Window]) -> list[int]:
    return [line.offset for window in windows for line in window.lines]


steps = st.lists(
    st.sampled_from(["prompt", "say", "call", "parallel", "note", "damaged", "empty", "lone result"]),
    max_size=40,
)


def write(path: Path, kinds: list[str], *, ended: bool) -> int:
    """A transcript of these steps; gives how many lines can be read."""
    data, good = b"", 0
    w = Writer()
    for number, kind in enumerate(kinds):
        w.lines = []
        if kind == "prompt":
            w.prompt(f"prompt {number}")
        elif kind == "say":
            w.say(text("one"), text("two"))
        elif kind == "call":
            w.say(use(f"c{number}", "Bash", command="ls"))
            w.result(f"c{number}", "x\r\n" * 3)
        elif kind == "parallel":
            w.say(use(f"a{number}", "Bash", command="a"), use(f"b{number}", "Bash", command="b"))
            w.result(f"b{number}", "b")
            w.result(f"a{number}", "a")
        elif kind == "note":
            w.note("file-history-snapshot", snapshot={})
        elif kind == "lone result":
            w.result("nowhere", "x")
        good += len(w.lines)
        data += w.data()
        data += b'{"type":"user","mess\n' if kind == "damaged" else b"\n\r\n" if kind == "empty" else b""
    path.write_bytes(data if ended else data.removesuffix(b"\n"))
    return good


@given(kinds=steps, count=st.integers(1, 12), ended=st.booleans(), block=st.sampled_from([16, 64, 1 << 16]))
@settings(max_examples=80, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_every_line_is_in_one_window_in_both_directions(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kinds: list[str], count: int, ended: bool, block: int
) -> None:
    monkeypatch.setattr(transcript, "_BLOCK", block)
    path = tmp_path / "session.jsonl"
    good = write(path, kinds, ended=ended)
    file = TranscriptFile(path)
    there, back = offsets(forwards(file, count)), offsets(backwards(file, count))
    assert there == back == sorted(set(there))
    assert len(there) == good


@given(kinds=steps, count=st.integers(4, 12))
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_a_call_and_its_result_are_in_the_same_window(tmp_path: Path, kinds: list[str], count: int) -> None:
    path = tmp_path / "session.jsonl"
    write(path, [kind for kind in kinds if kind != "lone result"], ended=True)
    file = TranscriptFile(path)
    for windows in (forwards(file, count), backwards(file, count)):
        for window in windows:
            calls = {id for line in window.lines for id in line.calls}
            answers = {id for line in window.lines for id in line.answers}
            assert calls == answers


def test_a_line_that_is_too_long_is_passed_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transcript, "_LONGEST_LINE", 1 << 16)
    w = Writer()
    w.prompt("before")
    w.prompt("x" * 300_000)
    w.prompt("after")
    path = tmp_path / "session.jsonl"
    path.write_bytes(w.data())
    file = TranscriptFile(path)
    for window in (file.after(0), file.last()):
        assert [line.entry.type for line in window.lines] == ["user", "too-long", "user"]
    assert offsets([file.after(0)]) == offsets([file.last()])


def test_a_line_that_is_being_written_is_not_there_yet(tmp_path: Path) -> None:
    w = Writer()
    w.prompt("one")
    path = tmp_path / "session.jsonl"
    whole = w.data()
    w.lines = []
    w.prompt("two")
    path.write_bytes(whole + w.data()[:50])
    file = TranscriptFile(path)
    assert file.last().end == len(whole)
    assert len(file.after(0).lines) == 1
    path.write_bytes(whole + w.data())
    assert len(file.after(len(whole)).lines) == 1


def test_an_entry_is_found_by_its_id(tmp_path: Path) -> None:
    w = rich()
    path = tmp_path / "session.jsonl"
    path.write_bytes(w.data())
    file = TranscriptFile(path)
    wanted = [line for line in w.lines if "uuid" in line][20]
    offset = file.find(wanted["uuid"])
    assert offset is not None
    line = file.line_at(offset)
    assert line is not None
    assert line.raw == wanted
    assert file.line_at(offset + 1) is None
    window = file.around(offset, 8)
    assert offset in offsets([window])
    assert file.find("nothing") is None


def test_the_outline_goes_on_where_it_ended(tmp_path: Path) -> None:
    data = rich().data()
    path = tmp_path / "session.jsonl"
    whole = Outline(path)
    path.write_bytes(data)
    whole.read()
    pieces = Outline(path)
    for end in range(0, len(data), 1_111):
        path.write_bytes(data[:end])
        pieces.read()
    path.write_bytes(data)
    pieces.read()

    def told(outline: Outline) -> dict[str, Any]:
        return {name: value for name, value in vars(outline).items() if name != "path"}

    assert told(pieces) == told(whole)
    assert (len(whole.turns), whole.calls, whole.errors, whole.retries) == (2, 11, 1, 1)
    assert whole.cost_usd == 0.5231
    assert [turn.cost_usd for turn in whole.turns] == [0.4182, pytest.approx(0.1049)]
    path.write_bytes(data[: len(data) // 2])
    pieces.read()
    assert pieces.offset <= len(data) // 2


@pytest.mark.parametrize(
    "line",
    [
        "null",
        "[1]",
        '"x"',
        "{}",
        '{"type":5}',
        '{"type":"user","message":5}',
        '{"type":"assistant","message":{"content":5,"usage":{"input_tokens":"x"}}}',
        '{"type":"user","message":{"content":[5,null,{"type":"tool_result"}]}}',
    ],
)
def test_odd_lines_do_no_harm(tmp_path: Path, line: str) -> None:
    from outrider.view._pages.conversation import rows
    from outrider.view._pages.tools import Shown

    w = Writer()
    w.prompt("before")
    path = tmp_path / "session.jsonl"
    path.write_bytes(
        w.data() + line.encode() + b"\n" + json.dumps({**w.lines[0], "uuid": "z"}).encode() + b"\n"
    )
    made = rows(TranscriptFile(path).last(), Shown(base="/s/x"), {})
    assert sum("before" in row for row in made) == 2
    outline = Outline(path)
    outline.read()
    assert len(outline.turns) == 2

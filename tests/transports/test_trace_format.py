"""Traces are read whatever has happened to them, and what is none is told apart."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest

from outrider.errors import TranscriptDamaged, UsageError
from outrider.transports import TraceFile, read_trace, timeline
from tests import tapes
from tests.cases import every_case


def made(path: Path, count: int = 3) -> Path:
    file = TraceFile(path)
    run = file.new_run()
    lines = run.lines("cli->host")
    for number in range(count):
        lines.feed(b'{"type":"x","number":%d}\n' % number)
    file.close()
    return path


def test_a_gzipped_trace_is_read_by_what_is_in_it(tmp_path: Path) -> None:
    path = made(tmp_path / "trace.jsonl")
    (tmp_path / "zipped").write_bytes(gzip.compress(path.read_bytes()))
    assert read_trace(tmp_path / "zipped").records == read_trace(path).records


@pytest.mark.parametrize("lost", [1, 5, 20])
def test_a_last_line_that_is_not_whole_is_left_out(tmp_path: Path, lost: int) -> None:
    path = made(tmp_path / "trace.jsonl")
    path.write_bytes(path.read_bytes()[:-lost])
    recording = read_trace(path)
    # A line that lacks nothing but its end is whole.
    assert len(recording.records) == (3 if lost == 1 else 2)
    assert recording.is_cut_short == (lost > 1)


def test_a_zipped_trace_whose_end_is_missing_is_read_as_far_as_it_goes(tmp_path: Path) -> None:
    data = gzip.compress(made(tmp_path / "trace.jsonl", 2000).read_bytes())
    (tmp_path / "zipped").write_bytes(data[: len(data) * 3 // 4])
    recording = read_trace(tmp_path / "zipped")
    assert 100 < len(recording.records) < 2000
    assert recording.is_cut_short


@pytest.mark.parametrize(
    "line",
    [b"no JSON\n", b'{"dir":"elsewhere"}\n', b"[]\n", b'{"t":1}\n', b'{"dir":"stderr","base64":"*"}\n'],
    ids=["text", "direction", "list", "nothing", "base64"],
)
def test_a_line_that_is_none_is_named(tmp_path: Path, line: bytes) -> None:
    path = made(tmp_path / "trace.jsonl")
    path.write_bytes(path.read_bytes() + line)
    with pytest.raises(TranscriptDamaged, match="at line 5") as caught:
        read_trace(path)
    assert caught.value.line_number == 5


def test_what_is_badly_zipped_is_named(tmp_path: Path) -> None:
    (tmp_path / "zipped").write_bytes(b"\x1f\x8b" + b"nonsense" * 9)
    with pytest.raises(TranscriptDamaged, match="cannot be unzipped"):
        read_trace(tmp_path / "zipped")


def test_a_newer_format_is_refused(tmp_path: Path) -> None:
    (tmp_path / "new").write_text('{"outrider_trace":2}\n')
    with pytest.raises(UsageError, match="Update Outrider"):
        read_trace(tmp_path / "new")


def test_a_file_that_is_not_there_is_an_error_of_the_system(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        read_trace(tmp_path / "missing")


def test_further_fields_of_a_line_are_no_error(tmp_path: Path) -> None:
    (tmp_path / "more").write_text(
        '{"outrider_trace":1,"x":1}\n{"run":1,"t":0,"dir":"stderr","text":"a","new":1}\n'
    )
    assert [record.text for record in read_trace(tmp_path / "more").records] == ["a"]


@every_case("name", tapes.NAMES)
def test_recordings_without_a_header_are_read_as_they_are(name: str) -> None:
    path = tapes.FOLDER / f"{name}.jsonl.gz"
    recording = read_trace(path)
    lines = [json.loads(line) for line in gzip.decompress(path.read_bytes()).splitlines()]
    assert recording.version == 0
    assert len(recording.runs) == sum(line.get("event") == "start" for line in lines)
    for record, line in zip(recording.records, lines, strict=True):
        assert (record.direction, record.event) == (line["dir"], line.get("event"))
        assert record.time == line.get("t", record.time)
        if record.is_line and "json" in line:
            assert json.loads(record.data) == line["json"]
            assert record.size == line["n"]
        else:
            assert record.text == line.get("text", "")
    assert len(list(timeline(recording))) == len(recording.records)

"""What a session can be made from, and what is refused, with a word on why."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from outrider.errors import OptionsError, TranscriptDamaged
from outrider.transcripts._copies import imported, renamed
from outrider.transcripts._disk.files import SessionFile
from outrider.transcripts._disk.read import load_bundle
from outrider.transcripts._export.turns import exported
from outrider.wire import JsonObject
from tests.cases import every_case
from tests.transcripts.keeping import KEY, bundle, put_on_disk
from tests.transcripts.lines import SESSION, answer, prompt, session_id, written

TALK = [prompt("u1"), answer("u2", "u1")]


def test_an_export_is_read_from_a_file(tmp_path: Path) -> None:
    path = tmp_path / "session.json"
    path.write_text(exported(bundle(), "json"), encoding="utf-8")
    assert imported(path) == imported(str(path)) == bundle()


def test_an_export_may_have_been_formatted_anew() -> None:
    value = json.loads(exported(bundle(), "json"))
    assert imported(json.dumps(value)) == bundle()
    assert imported(json.dumps(value, indent=4, sort_keys=True)) == bundle()
    assert imported("\ufeff" + json.dumps(value)) == bundle()


def test_a_transcript_is_read_with_those_of_its_subagents(tmp_path: Path) -> None:
    path = put_on_disk(tmp_path)
    assert imported(path) == bundle() == load_bundle(SessionFile(session_id=SESSION, project=KEY, path=path))


def test_a_transcript_is_read_from_text() -> None:
    found = imported(written(TALK).decode())
    assert (found.session_id, found.project, found.entries, found.parts) == (SESSION, KEY, TALK, {})


def test_the_name_of_the_file_is_the_id_if_it_is_one(tmp_path: Path) -> None:
    other = session_id(5)
    for name, expected in ((f"{other}.jsonl", other), ("copy.jsonl", SESSION)):
        path = tmp_path / name
        path.write_bytes(written(TALK))
        assert imported(path).session_id == expected


def test_a_last_line_that_was_not_finished_is_left_out() -> None:
    assert imported(written(TALK).decode() + '{"type":"us').entries == TALK


def test_lines_may_end_in_any_way_and_be_empty() -> None:
    text = written(TALK).decode().replace("\n", "\r\n\n")
    assert imported(text).entries == TALK
    assert imported(written(TALK).decode().rstrip("\n")).entries == TALK


def test_what_is_not_told_is_empty() -> None:
    said: JsonObject = {"type": "user", "uuid": "u1", "message": {}}
    found = imported(json.dumps(said))
    assert (found.session_id, found.project) == ("", "")


def test_a_session_can_have_another_id() -> None:
    other = session_id(7)
    made = renamed(bundle(), other)
    assert made == bundle(other)
    assert made.entries[1]["uuid"] == "u1"


# What is refused


def export_with(**fields: Any) -> str:
    return json.dumps({**json.loads(exported(bundle(), "json")), **fields})


NOT_SESSIONS: dict[str, str] = {
    "text": "Dear diary,\ntoday",
    "other JSON": '{\n "name": "x"\n}',
    "a list": "[1, 2]",
    "no messages": '{"type":"summary","summary":"x"}\n',
    "a later version": export_with(version=2),
    "no version": export_with(version=None),
    "true": export_with(version=True),
    "id": export_with(session_id="../../etc/passwd"),
    "no id": export_with(session_id=None),
    "project": export_with(project=3),
    "entries": export_with(entries={}),
    "an entry": export_with(entries=[1]),
    "an entry without a type": export_with(entries=[{"uuid": "x"}]),
    "parts": export_with(parts=[]),
    "a part": export_with(parts={"subagents/agent-a": {}}),
    "a part outside": export_with(parts={"../../agent-a": []}),
    "an absolute part": export_with(parts={"/etc/cron.d/x": []}),
    "a drive": export_with(parts={"C:\\x": []}),
    "empty": "",
    "blank": "\n\n",
}


@every_case("text", NOT_SESSIONS.values(), ids=NOT_SESSIONS.keys())
def test_what_is_no_session_is_refused(text: str) -> None:
    with pytest.raises(OptionsError) as caught:
        imported(text)
    assert caught.value.hint


DAMAGED: dict[str, tuple[str, int | None]] = {
    "a line": (written(TALK).decode() + "{oops}\n" + written(TALK).decode(), 3),
    "the first line": ('{"type":\n' + written(TALK).decode(), 1),
    "a line that is not an object": (written(TALK).decode() + "[]\n", 3),
    "a line without a type": (written(TALK).decode() + "{}\n", 3),
    "NaN": (written(TALK).decode() + '{"type":"x","n":NaN}\n', 3),
    "depth": (written(TALK).decode() + '{"type":"x","n":' + "[" * 100_000 + "\n", 3),
    "an export": (exported(bundle(), "json")[:-20], 35),
    "an export with NaN": (export_with(version=float("nan")), None),
}


@every_case("text, line", DAMAGED.values(), ids=DAMAGED.keys())
def test_what_is_damaged_is_refused_with_the_line(text: str, line: int | None) -> None:
    with pytest.raises(TranscriptDamaged) as caught:
        imported(text)
    if line != 35:
        assert caught.value.line_number == line
    assert caught.value.line_number is None or caught.value.line_number > 0


@pytest.mark.parametrize("name", ["nowhere.jsonl", ".", "a\x00b"], ids=ascii)
def test_a_file_that_cannot_be_read_is_named(tmp_path: Path, name: str) -> None:
    with pytest.raises(OptionsError, match="cannot be read"):
        imported(tmp_path / name)


@pytest.mark.parametrize("source", ["", None, 3, b"{}"])
def test_what_is_neither_path_nor_text_is_refused(source: Any) -> None:
    with pytest.raises(OptionsError, match="cannot be imported"):
        imported(source)


def test_bytes_that_are_no_text_are_named_with_their_line(tmp_path: Path) -> None:
    path = tmp_path / "x.jsonl"
    path.write_bytes(written(TALK) + b'{"type":"\xff"}\n')
    with pytest.raises(TranscriptDamaged) as caught:
        imported(path)
    assert (caught.value.path, caught.value.line_number) == (str(path), 3)


@pytest.mark.parametrize(
    "name, content",
    [("agent-a.jsonl", b"{oops\n"), ("agent-a.meta.json", b"{oops"), ("agent-a.meta.json", b"[]")],
)
def test_a_damaged_subagent_is_named(tmp_path: Path, name: str, content: bytes) -> None:
    path = tmp_path / f"{SESSION}.jsonl"
    path.write_bytes(written(TALK))
    folder = tmp_path / SESSION / "subagents"
    folder.mkdir(parents=True)
    (folder / name).write_bytes(content)
    with pytest.raises((TranscriptDamaged, OptionsError), match=name):
        imported(path)

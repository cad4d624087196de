"""`outrider replay` and `outrider trace show`: recordings, for people to read."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from outrider.app import main
from outrider.app._trace import replay_file, show_trace
from tests import tapes
from tests.app.machines import Screen, run
from tests.cases import every_case


def recording(name: str) -> str:
    return str(tapes.FOLDER / f"{name}.jsonl.gz")


def test_a_recording_is_shown_as_a_conversation() -> None:
    code, out, err = run("replay", recording("19-plan-mode"))
    assert (code, err) == (0, "")
    lines = out.splitlines()
    assert lines[0] == "19-plan-mode — 1 run of Claude Code"
    assert "  0.36      user  try to write" in lines
    assert "  0.51      asks  may it use Write? a.txt" in lines
    assert "  0.51    answer  deny not in plan mode" in lines
    assert any("may it use ExitPlanMode?" in line for line in lines)
    assert lines[-1].endswith("KiB: every one typed, none lost.")
    assert "\x1b" not in out


@pytest.mark.parametrize(
    "command",
    [partial(replay_file, no_color=False, speed=0), partial(show_trace, no_color=False, with_partials=False)],
    ids=["replay", "trace"],
)
@every_case("name", tapes.NAMES)
def test_any_recording_can_be_shown(
    name: str, command: Callable[[Path], int], capsys: pytest.CaptureFixture[str]
) -> None:
    assert command(Path(recording(name))) == 0
    shown = capsys.readouterr()
    assert shown.err == ""
    assert len(shown.out.splitlines()) > 1


def test_a_recording_is_played_at_a_terminal() -> None:
    with Screen("replay", recording("02-partial-text-and-tool"), "--speed", "5", size=(40, 60)) as screen:
        assert screen.end() == 0
        assert "agent  I will list the files." in screen.text
        assert screen.text.count("I will list the files.") == 1
        assert max(map(len, screen.lines)) <= 60


def test_a_trace_is_shown_line_by_line() -> None:
    code, out, err = run("trace", "show", recording("04-can-use-tool-deny"))
    assert (code, err) == (0, "")
    lines = out.splitlines()
    assert lines[0] == "run 1"
    assert any("<- answer initialize" in line and "(0.26 s)" in line for line in lines)
    assert any("#1  -> user" in line and line.endswith("Make a file") for line in lines)
    assert any("-> answer can_use_tool" in line and "Not on my machine" in line for line in lines)


def test_the_pieces_of_messages_are_shown_if_they_are_wanted() -> None:
    name = recording("02-partial-text-and-tool")
    assert "stream_event" not in run("trace", "show", name).out
    assert "stream_event" in run("trace", "show", "--partials", name).out


def test_lines_of_a_trace_fit_the_terminal() -> None:
    with Screen("trace", "show", recording("04-can-use-tool-deny"), size=(50, 60)) as screen:
        assert screen.end() == 0
        times = [line for line in screen.lines if line.startswith("   0.")]
    assert len(times) == 20


@pytest.mark.parametrize("command", [("replay",), ("trace", "show")], ids=["replay", "trace"])
@pytest.mark.parametrize(
    "text, said",
    [
        ("nothing of the kind\n", "This is not a line of a trace"),
        ('{"dir": "sideways"}\n', "This is not a line of a trace"),
        ("", "file is empty."),
    ],
    ids=["text", "json", "empty"],
)
def test_what_is_no_recording_is_refused(
    command: tuple[str, ...], text: str, said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "file"
    path.write_text(text)
    assert main([*command, str(path)]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("error: ")
    assert said in err
    assert err.count("\n") == 1

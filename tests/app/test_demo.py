"""`outrider demo`: the whole of a session, at a terminal and with a pipe."""

from __future__ import annotations

import io
import xml.dom.minidom
from pathlib import Path

import pytest
from rich.console import Console

from outrider.app._flags import Code
from outrider.app._terminal import Terminal
from tests.app.machines import KINDS, Child, Kind, Screen, run
from tests.real_program import require_program

STORY = (
    "    user  Fix ticket 7, clean up, and report.",
    "   agent  Let me look up the ticket.",
    "    tool  ticket number=7",
    ' returns  {"title":"Tabs are not parsed","owner":"Ada","file":"parser.py"}',
    "    tool  Read parser.py",
    "    tool  Edit parser.py",
    "    asks  May it use Edit? parser.py",
    '          - line.split(" ")',
    "          + line.split()",
    "    tool  Bash rm -rf build",
    "    hook  careful refuses: Nothing is deleted here. It was never run.",
    "     end  the session is closed; processes left: 0",
)


def arguments(kind: Kind) -> tuple[str, ...]:
    return ("demo", "--agent", kind, *(("--program", require_program()) if kind == "real" else ()))


@pytest.mark.parametrize("kind", KINDS)
def test_it_tells_the_story_and_answers_itself_where_nobody_is(kind: Kind, tmp_path: Path) -> None:
    code, out, err = run(*arguments(kind), cwd=tmp_path)
    assert (code, err) == (0, "")
    lines = out.splitlines()
    assert [line for line in STORY if line not in lines] == []
    assert "     you  yes (automatic: no terminal)" in lines
    assert "  output  Report(ticket=7, is_fixed=True, files=['parser.py']), checked" in lines
    assert any(line.startswith("    cost  6 model calls · ") for line in lines)
    assert ("embedded agent" if kind == "simulated" else "Claude Code") in lines[0]
    assert "\x1b" not in out
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("key, is_fixed, columns", [("y", True, 90), ("n", False, 120)])
def test_at_a_terminal_it_asks(key: str, is_fixed: bool, columns: int) -> None:
    with Screen("demo", "--speed", "20", size=(60, columns)) as screen:
        screen.see("May it use Edit?")
        screen.see(" no  ")
        screen.press(key)
        assert screen.end() == 0
        lines = screen.lines
    assert f"     you  {'yes' if is_fixed else 'no'}" in lines
    files = ["parser.py"] if is_fixed else []
    assert f"  output  Report(ticket=7, is_fixed={is_fixed}, files={files}), checked" in lines
    assert "     end  the session is closed; processes left: 0" in lines
    # What was drawn for the moment is gone.
    assert "".join(lines).count("Let me look up the ticket.") == 1
    assert not any("starting Claude Code" in line for line in lines)


def test_it_fits_the_terminal() -> None:
    with Screen("demo", "--speed", "0", size=(80, 60)) as screen:
        screen.see(" no  ")
        screen.press("y")
        assert screen.end() == 0
        told = [line for line in screen.lines if line.startswith(" returns  The file")]
        assert len(told) == 1
        # Words are not cut in two.
        assert all(not line.startswith(("updated", "current")) for line in screen.lines)


def test_ctrl_c_ends_it() -> None:
    with Child("demo") as screen:
        screen.see("Fix ticket 7")
        screen.press("\x03")
        assert screen.end() == Code.INTERRUPTED
        assert "Traceback" not in screen.text
        assert "starting Claude Code" not in screen.text


def test_a_picture_stands_for_itself(tmp_path: Path) -> None:
    path = tmp_path / "demo.svg"
    assert run("demo", "--svg", str(path), cwd=tmp_path).code == 0
    text = path.read_text(encoding="utf-8")
    xml.dom.minidom.parseString(text)
    assert text.count("http") == text.count("http://www.w3.org/2000/svg") == 1
    assert "/tmp" not in text
    assert str(Path.home()) not in text
    assert "&#160;checked" in text


def test_the_real_program_has_to_be_there() -> None:
    code, out, err = run("demo", "--agent", "real", "--program", "/no/claude")
    assert (code, out) == (3, "")
    assert err.startswith("error: `--program` is '/no/claude': no such file")


def test_ctrl_c_while_something_is_first_drawn_leaves_the_cursor(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = Terminal()
    terminal.is_live = True
    terminal.out = Console(file=io.StringIO(), force_terminal=True)

    def press(_: object) -> bool:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(terminal.out, "set_live", press)
        with pytest.raises(KeyboardInterrupt):
            terminal.wait("starting Claude Code")
    terminal.clear()
    assert isinstance(terminal.out.file, io.StringIO)
    assert terminal.out.file.getvalue().endswith("\x1b[?25h")

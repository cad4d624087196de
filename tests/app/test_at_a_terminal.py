"""`outrider run` at a terminal: the answer as it is written, questions, Ctrl-C, colours."""

from __future__ import annotations

import os
import re
from signal import SIGINT, SIGTERM

import pexpect
import pytest

from outrider.app._flags import Code
from outrider.app._terminal import UNICODE
from outrider.testing import answer, ask_question, exit_plan_mode, hang, say, use_tool
from tests.app.machines import KINDS, Kind, machine

TOUCH = use_tool("Bash", command="touch made", description="Make it")
COLOURS = re.compile(rb"\x1b\[[0-9;]*m")


@pytest.mark.parametrize("kind", KINDS)
def test_the_answer_is_rendered_and_the_work_is_told(kind: Kind) -> None:
    script = (
        answer(say("Let me *look*.", delay=0.01), use_tool("Glob", pattern="*.txt")),
        say("# Found\n\n- `notes.txt`\n\nThat is **all**.", chunks=9),
    )
    with machine(*script, kind=kind) as here:
        (here.folder / "notes.txt").touch()
        with here.screen("run", "What is here?") as screen:
            assert screen.end() == Code.OK
            shown = screen.text
    assert [
        line for line in ("Let me look.", "⏺ Glob *.txt", " • notes.txt", "That is all.") if line not in shown
    ] == []
    assert "**" not in shown
    assert shown.index("Let me look.") < shown.index("Glob") < shown.index("notes.txt\n")
    assert "2 model calls" in shown
    assert "working" not in shown


@pytest.mark.parametrize(
    "key, word, is_made",
    [("y", "yes", True), ("\r", "no", False), ("\x1b[A\x1bOA\x1b[1;5Yn", "no", False)],
    ids=["yes", "enter", "arrows-then-no"],
)
def test_a_permission_is_asked_for(key: str, word: str, is_made: bool) -> None:
    with machine(TOUCH, say("Over.")) as here:
        with here.screen("run", "Make it") as screen:
            screen.see("May it use Bash?")
            screen.see("no (Enter)")
            screen.press(key)
            assert screen.end() == Code.OK
            assert f"n no (Enter)   {word}" in re.sub(r"\s+", " ", screen.text).replace(
                "Enter) ", "Enter)   "
            )
        assert (here.folder / "made").exists() is is_made


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_always_allowed_is_asked_for_once(kind: Kind) -> None:
    with machine(TOUCH, TOUCH, say("Over."), kind=kind) as here:
        with here.screen("run", "Make it", size=(40, 120)) as screen:
            screen.see("no (Enter)")
            screen.press("a")
            assert screen.end() == Code.OK
            assert screen.text.count("May it use Bash?") == 1
        assert not list(here.folder.glob(".claude/*"))


def test_what_was_typed_before_a_question_does_not_answer_it() -> None:
    with machine(answer(say("Wait."), TOUCH), say("Over.")) as here:
        with here.screen("run", "Make it") as screen:
            screen.press("yyyy")
            screen.see("no (Enter)")
            screen.press("n")
            assert screen.end() == Code.OK
        assert not (here.folder / "made").exists()


def test_a_question_of_the_agent_is_put() -> None:
    question = ask_question("Which database?", ["SQLite", "PostgreSQL"])
    with machine(question, say("Good choice.")) as here:
        with here.screen("run", "Ask me") as screen:
            screen.see("Which database?")
            screen.see("empty for none")
            screen.see(UNICODE.prompt)
            screen.press("2\n")
            assert screen.end() == Code.OK
        results = here.requests[1].tool_results
    assert "PostgreSQL" in str(results)


@pytest.mark.parametrize("key, said", [("y", "approved"), ("n", "did not approve")])
def test_a_plan_is_approved_or_sent_back(key: str, said: str) -> None:
    with machine(exit_plan_mode("1. Tidy up."), say("Well.")) as here:
        with here.screen("run", "--permission-mode", "plan", "Plan it") as screen:
            screen.see("Carry out this plan?")
            screen.see("no (Enter)")
            screen.press(key)
            assert screen.end() == Code.OK
            assert "│ plan: 1. Tidy up." in screen.text
        assert said in str(here.requests[1].tool_results)


@pytest.mark.parametrize("kind", KINDS)
def test_ctrl_c_interrupts_and_ends(kind: Kind) -> None:
    with machine(hang(), kind=kind) as here, here.child("run", "Think") as screen:
        screen.see("working")
        screen.press("\x03")
        assert screen.end() == Code.INTERRUPTED
        shown = screen.text
    assert "interrupting" in shown
    assert "Traceback" not in shown


def test_a_question_can_be_left_by_ctrl_c() -> None:
    with machine(TOUCH, say("Over.")) as here:
        with here.child("run", "Make it") as screen:
            screen.see("no (Enter)")
            screen.press("\x03")
            assert screen.end() == Code.INTERRUPTED
            assert "interrupting (Ctrl-C again leaves)" in screen.lines
        assert not (here.folder / "made").exists()


def test_sigterm_gives_the_terminal_back() -> None:
    with machine(TOUCH, say("Over.")) as here:
        with here.child("run", "Make it") as screen:
            screen.see("no (Enter)")
            assert not screen.process.getecho()
            screen.process.kill(SIGTERM)
            screen.process.expect(pexpect.EOF)
            assert screen.process.getecho()
            assert screen.raw.rindex(b"\x1b[?25h") > screen.raw.rindex(b"\x1b[?25l")
            screen.process.close()
            assert screen.process.signalstatus == SIGTERM
        assert here.is_empty()


def test_ctrl_c_again_does_not_wait_for_an_agent_that_hangs() -> None:
    with machine() as here:
        program = here.folder / "program"
        program.write_text("#!/bin/sh\ntrap '' INT TERM\necho began >begun\nsleep 1000\n")
        program.chmod(0o755)
        os.mkfifo(here.folder / "begun")
        with here.child("run", "Hi", "--program", str(program)) as screen:
            assert (here.folder / "begun").read_text() == "began\n"
            screen.press("\x03")
            # Two that come at once are one signal.
            while screen.process.expect([pexpect.EOF, pexpect.TIMEOUT], timeout=0.1):
                screen.press("\x03")
            screen.process.close()
            assert screen.process.signalstatus == SIGINT
            assert "Traceback" not in screen.text
        assert here.is_empty()


def test_what_would_be_written_is_shown_before_it_is_allowed() -> None:
    script = use_tool("Write", file_path="made", content="first\nsecond\n"), say("Over.")
    with machine(*script) as here, here.screen("run", "Make it") as screen:
        screen.see("no (Enter)")
        screen.press("n")
        assert screen.end() == Code.OK
        shown = screen.lines[screen.lines.index("May it use Write?") :]
    assert re.fullmatch(r"│ file_path: /.*\S", shown[1])
    assert shown[2:5] == ["│ content:", "│ + first", "│ + second"]


@pytest.mark.parametrize(
    "arguments, environment",
    [(("--no-color",), {}), ((), {"NO_COLOR": "1"})],
    ids=["flag", "variable"],
)
def test_colours_can_be_left_out(arguments: tuple[str, ...], environment: dict[str, str]) -> None:
    script = use_tool("Glob", pattern="*"), say("A **bold** word.")
    with machine(*script) as here, here.screen("run", "Hi", *arguments, environment=environment) as screen:
        assert screen.end() == Code.OK
        codes = set(COLOURS.findall(screen.raw))
    assert not [code for code in codes if re.search(rb"[;\[](3[0-7]|9[0-7]|4[0-7]|38|48)[;m]", code)]


def test_colours_are_used_otherwise() -> None:
    with machine(use_tool("Glob", pattern="*"), say("Done.")) as here, here.screen("run", "Hi") as screen:
        assert screen.end() == Code.OK
        assert COLOURS.findall(screen.raw)


def test_a_terminal_that_knows_no_signs_is_no_failure() -> None:
    script = use_tool("Glob", pattern="*"), say("Naïve.")
    plain = {"LC_ALL": "C", "PYTHONIOENCODING": "ascii"}
    with machine(*script) as here, here.screen("run", "Hi", environment=plain) as screen:
        assert screen.end() == Code.OK
        assert "* Glob *" in screen.text
        assert "Na?ve." in screen.text


def test_a_dumb_terminal_gets_plain_text() -> None:
    with (
        machine(say("A **bold** word.\x1b]0;title\x07")) as here,
        here.screen("run", "Hi", environment={"TERM": "dumb"}) as screen,
    ):
        assert screen.end() == Code.OK
        assert "A **bold** word." in screen.text
        assert b"\x1b" not in screen.raw


def test_what_a_tool_returns_cannot_command_the_terminal() -> None:
    with machine(use_tool("Read", file_path="evil.txt"), say("\x1b]0;title\x07Done.")) as here:
        (here.folder / "evil.txt").write_text("\x1b[2J\x1b]0;owned\x07\n")
        with here.screen("run", "Hi") as screen:
            assert screen.end() == Code.OK
            assert b"owned" in screen.raw
            assert b"\x1b]0;" not in screen.raw
            assert b"\x1b[2J" not in screen.raw


@pytest.mark.parametrize("columns", [40, 120])
def test_lines_fit_the_terminal(columns: int) -> None:
    words = "word " * 60
    script = use_tool("Bash", command=f"echo {words}", description="Talk"), say(words)
    arguments = ("run", "--allow", "Bash", "Hi")
    with machine(*script) as here, here.screen(*arguments, size=(40, columns)) as screen:
        assert screen.end() == Code.OK
        lines = screen.lines
    assert max(map(len, lines)) <= columns
    # A call is one line, however long it is.
    assert sum(line.startswith("⏺ Bash") for line in lines) == 1
    assert len([line for line in lines if line.startswith("  word")]) >= len(words) // columns

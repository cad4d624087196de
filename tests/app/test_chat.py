"""`outrider chat`: a conversation at a terminal, and with a pipe."""

from __future__ import annotations

from pathlib import Path

import pytest

from outrider.app._flags import Code
from outrider.testing import say, use_tool
from tests.app.machines import KINDS, SMOKE, Child, Kind, Screen, machine, run

PROMPT = "\N{HEAVY RIGHT-POINTING ANGLE QUOTATION MARK ORNAMENT}"


def say_to(screen: Screen | Child, text: str) -> None:
    screen.see(PROMPT)
    screen.press(f"{text}\r")


@pytest.mark.parametrize("kind", SMOKE)
def test_a_conversation_goes_on_from_turn_to_turn(kind: Kind) -> None:
    with machine(say("Hello **Ada**."), say("You are Ada."), kind=kind) as here:
        with here.screen("chat") as screen:
            say_to(screen, "I am Ada.")
            screen.see("Hello")
            say_to(screen, "Who am I?")
            screen.see("You are Ada.")
            say_to(screen, "/exit")
            assert screen.end() == Code.OK
            shown = screen.text
        assert len(here.requests[1].messages) > len(here.requests[0].messages)
    assert "Hello Ada." in shown
    assert "To continue: outrider chat --resume " in shown


@pytest.mark.parametrize("kind", KINDS)
def test_ctrl_c_interrupts_the_turn_and_the_conversation_goes_on(kind: Kind) -> None:
    with machine(say("word " * 1000, delay=0.1), say("Here I am."), kind=kind) as here:
        with here.child("chat") as screen:
            say_to(screen, "Talk.")
            screen.see("word word")
            screen.press("\x03")
            screen.see("interrupted")
            say_to(screen, "Go on.")
            screen.see("Here I am.")
            screen.see(PROMPT)
            screen.press("\x04")
            assert screen.end() == Code.OK
            assert sum(line.startswith("  word word") for line in screen.lines) == 1
        assert here.is_empty()


def test_ctrl_c_twice_leaves() -> None:
    with machine() as here:
        with here.child("chat") as screen:
            screen.see(PROMPT)
            screen.press("\x03")
            screen.see("Ctrl-C again leaves.")
            screen.see(PROMPT)
            screen.press("\x03")
            assert screen.end() == Code.INTERRUPTED
        assert here.is_empty()


def test_a_permission_is_asked_for() -> None:
    with machine(use_tool("Bash", command="touch made", description="Make it"), say("Made.")) as here:
        with here.screen("chat") as screen:
            say_to(screen, "Make it.")
            screen.see("no (Enter)")
            screen.press("y")
            screen.see("Made.")
            say_to(screen, "/exit")
            assert screen.end() == Code.OK
        assert (here.folder / "made").exists()


def test_lines_are_joined_by_a_backslash_and_history_is_kept() -> None:
    with machine(say("One."), say("Two.")) as here:
        with here.screen("chat") as screen:
            say_to(screen, "first \\")
            screen.see("…")
            screen.press("second\r")
            screen.see("One.")
            screen.see(PROMPT)
            # The arrow: the line before.
            screen.press("\x1b[A\r")
            screen.see("Two.")
            say_to(screen, "/exit")
            assert screen.end() == Code.OK
        assert [request.prompt for request in here.requests] == ["first \nsecond", "second"]


def test_own_commands_and_those_of_the_agent_are_listed() -> None:
    with machine(say("Hello.")) as here:
        with here.screen("chat", size=(60, 100)) as screen:
            say_to(screen, "/help")
            screen.see("/exit")
            say_to(screen, "Hi")
            screen.see("Hello.")
            say_to(screen, "/cost")
            screen.see("tokens (")
            say_to(screen, "/mode plan")
            screen.see("is now plan")
            say_to(screen, "/model haiku")
            screen.see("The model is now")
            say_to(screen, "/nonsense")
            screen.see("There is no command /nonsense.")
            say_to(screen, "/quit")
            assert screen.end() == Code.OK
            shown = screen.text
        assert len(here.requests) == 1
    assert "commands of Claude Code" in shown
    assert "/compact" in shown


IN_THE_BACKGROUND = use_tool("Bash", command="sh wait", description="Wait", run_in_background=True)
WAIT = "until [ -e go ]; do sleep 0.1; done\n"


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_said_between_turns_is_shown_above_the_prompt(kind: Kind) -> None:
    script = IN_THE_BACKGROUND, say("It has begun."), say("It is over."), say("Yes.")
    with machine(*script, kind=kind) as here, here.screen("chat", "--allow", "Bash") as screen:
        (here.folder / "wait").write_text(WAIT)
        say_to(screen, "Begin.")
        screen.see("It has begun.")
        screen.see(PROMPT)
        screen.press("Really")
        screen.see("Really")
        (here.folder / "go").touch()
        screen.see("It is over.")
        screen.see(f"{PROMPT} ")
        screen.see("Really")
        screen.press("?\r")
        screen.see("Yes.")
        say_to(screen, "/exit")
        assert screen.end() == Code.OK
        assert [screen.text.count(each) for each in ("It is over.", "Yes.", "background task")] == [1, 1, 1]
        assert f"{PROMPT} Really?" in screen.lines
        assert here.requests[-1].prompt == "Really?"


def test_a_question_between_turns_waits_for_who_is_typing() -> None:
    touch = use_tool("Bash", command="touch made", description="Make it")
    script = IN_THE_BACKGROUND, say("It has begun."), touch, say("It is over.")
    with machine(*script) as here, here.screen("chat", "--allow", "Bash(sh *)") as screen:
        (here.folder / "wait").write_text(WAIT)
        say_to(screen, "Begin.")
        screen.see("It has begun.")
        screen.see(PROMPT)
        (here.folder / "go").touch()
        screen.see("press Enter.")
        screen.press("\r")
        screen.see("no (Enter)")
        screen.press("y")
        screen.see("It is over.")
        say_to(screen, "/exit")
        assert screen.end() == Code.OK
        assert (here.folder / "made").exists()


def test_a_turn_that_fails_does_not_end_the_conversation() -> None:
    script = (use_tool("Glob", pattern="*"), say("Better."))
    with machine(*script) as here, here.screen("chat", "--max-turns", "1", size=(40, 200)) as screen:
        say_to(screen, "Hi")
        screen.see("error: The turn reached `--max-turns` of 1.")
        say_to(screen, "Hi")
        screen.see("Better.")
        say_to(screen, "/exit")
        assert screen.end() == Code.OK


def test_with_a_pipe_each_line_is_a_prompt() -> None:
    with machine(say("One."), say("Two.")) as here:
        code, out, err = here.run("chat", stdin="first\n\nsecond \\\nline\n")
        assert [request.prompt for request in here.requests] == ["first", "second \nline"]
    assert code == Code.OK
    assert out == "One.\nTwo.\n"
    assert "\x1b" not in out + err


def test_the_embedded_agent_needs_nothing(tmp_path: Path) -> None:
    code, out, err = run("chat", "--agent", "simulated", stdin="Hi\n", environment={"PATH": str(tmp_path)})
    assert (code, out) == (Code.OK, "You said: Hi\n")
    assert "the embedded agent" in err
    assert "--resume" not in err


def test_an_agent_that_dies_ends_the_conversation() -> None:
    with machine(use_tool("Bash", command="kill -9 $PPID", description="Die"), say("Still here?")) as here:
        with here.child("chat", "--allow", "Bash", size=(40, 200)) as screen:
            say_to(screen, "Die.")
            assert screen.end() == Code.LOST
            assert "error: The agent was ended by SIGKILL." in screen.text
        assert here.is_empty()

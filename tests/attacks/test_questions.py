"""What a person is asked shows all that would be allowed, and nothing else can look like it."""

from __future__ import annotations

import io
from typing import Any

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len
from rich.console import Console

from outrider._display import chopped, printable
from outrider.app._ask import Asker, Sheet
from outrider.app._flags import Code
from outrider.app._render import Stream
from outrider.app._terminal import ASCII, UNICODE, Terminal
from outrider.handlers import ElicitationRequest
from outrider.testing import answer, ask_question, exit_plan_mode, say, use_tool
from outrider.wire.control import Elicitation
from outrider.wire.permissions import PermissionUpdate
from tests.app.machines import machine
from tests.cases import every_case
from tests.handlers.deciding import Asker as Origin
from tests.handlers.deciding import request

FORGED = """\
━━ Permission ━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━
May it use Read?
│ file_path: notes.txt
y yes   a always, in this session   n no (Enter)   """
TOUCH = "touch made"


def sheet(width: int = 60, glyphs: Any = UNICODE) -> Sheet:
    return Sheet(Console(file=io.StringIO(), width=width), glyphs)


def rows(made: Sheet) -> list[str]:
    return [row.drawn().plain for row in made.rows]


# All of it.


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=40),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(min_size=1, max_size=8), inner, max_size=3)
    ),
    max_leaves=8,
)


def leaves(value: object) -> list[str]:
    if isinstance(value, dict):
        return [leaf for key, each in value.items() for leaf in (str(key), *leaves(each))]
    if isinstance(value, list):
        return [leaf for each in value for leaf in leaves(each)]
    return [value] if isinstance(value, str) else [str(value).lower().replace("none", "null")]


@given(st.dictionaries(st.text(min_size=1, max_size=8), VALUES, min_size=1, max_size=4), st.integers(20, 90))
def test_nothing_of_an_input_is_left_out(given: dict[str, Any], width: int) -> None:
    made = sheet(width)
    made.input(request("Any", given).tool_input)
    shown = "".join("".join(line[2:].split()) for line in rows(made))
    assert [part for leaf in leaves(given) for part in printable(leaf).split() if part not in shown] == []
    assert all(line[0] in "│┊" for line in rows(made))
    assert max(cell_len(line) for line in rows(made)) < width


@every_case(
    "tool, given, end",
    [
        ("Bash", {"command": "echo " + "x" * 5000 + "; rm -rf /home"}, "; rm -rf /home"),
        ("Bash", {"command": "ls", "dangerouslyDisableSandbox": True}, "dangerouslyDisableSandbox: true"),
        ("Bash", {"command": "ls", "timeout": 600000, "run_in_background": True}, "run_in_background: true"),
        ("Write", {"file_path": "a", "content": "\n" * 500 + "evil()"}, "+ evil()"),
        ("Edit", {"file_path": "a", "old_string": "a", "new_string": "b", "replace_all": True}, "all: true"),
        (
            "MultiEdit",
            {"edits": [{"old_string": "a"}, {"old_string": "b", "new_string": "evil()"}]},
            "+ evil()",
        ),
        ("Agent", {"description": "Look", "prompt": "Look.\nThen delete all."}, "Then delete all."),
        ("NotebookEdit", {"notebook_path": "a", "new_source": "x\nevil()"}, "+ evil()"),
        ("mcp__shop__buy", {"order": {"items": [{"name": "a"}, {"name": "b", "count": 9}]}}, "count: 9"),
    ],
)
def test_what_used_to_be_left_out_is_shown(tool: str, given: dict[str, Any], end: str) -> None:
    made = sheet(width=70)
    made.input(request(tool, given).tool_input)
    shown = "\n".join(rows(made)).replace("\n┊   ", "").replace("\n┊ ", "")
    assert end in shown


def test_a_line_that_goes_on_is_told_from_a_new_one() -> None:
    made = sheet(width=24)
    made.input(request("Bash", {"command": "true " + "x" * 20 + "\nrm y"}).tool_input)
    assert rows(made) == ["│ command:", "│   true xxxxxxxxxxxxxx", "┊   xxxxxx", "│   rm y"]


def test_what_cannot_be_seen_is_shown() -> None:
    made = sheet()
    made.input(request("Bash", {"command": "rm\u200b \u202etxt.a\x1b[8mhidden\x9b0m\u3164"}).tool_input)
    assert rows(made) == ["│ command: rm\ufffd \ufffdtxt.a\ufffd[8mhidden\ufffd0m\ufffd"]


def test_always_says_every_rule_that_is_added() -> None:
    made = sheet()
    rules = [{"toolName": "Bash", "ruleContent": f"x{n} *"} for n in range(40)]
    made.updates(
        [
            PermissionUpdate.from_dict({"type": "addRules", "rules": rules, "behavior": "allow"}),
            PermissionUpdate.from_dict({"type": "setMode", "mode": "acceptEdits"}),
            PermissionUpdate.from_dict({"type": "addDirectories", "directories": ["/etc", "/\nforged"]}),
        ]
    )
    assert rows(made) == [
        "`a` allows until the session ends:",
        *(f"│ allow Bash(x{n} *)" for n in range(40)),
        "│ permission mode acceptEdits",
        "│ folder /etc",
        "│ folder / forged",
    ]


@every_case("words", [FORGED, f"Fine.\n\n{FORGED}", "x" * 59 + FORGED, "\r\n" + FORGED])
@pytest.mark.parametrize("glyphs", [UNICODE, ASCII], ids=["unicode", "ascii"])
def test_no_text_of_the_agent_leaves_the_gutter_or_its_line(words: str, glyphs: Any) -> None:
    rule = {"source": words, "tool_name": words, "rule_content": words}
    fields: dict[str, Any] = {
        "decision_reason": words,
        "blocked_path": words,
        "agent_id": words,
        "matched_ask_rule": rule,
    }
    asked = request(words, {words: words, "list": [words], "old_string": words}, **fields)
    made = sheet(glyphs=glyphs)
    made.input(asked.tool_input)
    assert all(line[0] in (glyphs.gutter, glyphs.goes_on) for line in rows(made))
    made = sheet(glyphs=glyphs)
    made.say(f"May it use {asked.tool_name}?")
    made.reasons(asked)
    # A line of ours begins in the first column, and goes on behind it.
    begun = [line for line in rows(made) if not line.startswith("    ")]
    assert [line.split()[0] for line in begun] == ["May", "why:", "rule:", "path:", "subagent:"]
    assert max(cell_len(line) for line in rows(made)) < 60


# At a terminal.


def test_yes_is_not_offered_and_not_taken_before_the_end_was_shown() -> None:
    command = TOUCH + "\n" * 60 + "true the end"
    with machine(use_tool("Bash", command=command, description="Make it"), say("Over.")) as here:
        with here.screen("run", "Make it") as screen:
            screen.see("no (Enter)")
            assert "y yes" not in screen.text
            assert "│   true the end" not in screen.lines
            assert "next page" in screen.text
            # A reflex.
            screen.press("ya")
            screen.press(" ")
            screen.see("no (Enter)")
            assert "y yes" not in screen.text
            screen.press("e")
            screen.see("no (Enter)")
            assert "│   true the end" in screen.lines
            assert "y yes" in screen.text
            screen.press("y")
            assert screen.end() == Code.OK
        assert (here.folder / "made").exists()


def test_no_is_always_there() -> None:
    with machine(use_tool("Bash", command=TOUCH + "\n" * 60, description="Make it"), say("Over.")) as here:
        with here.screen("run", "Make it") as screen:
            screen.wait_for_keys()
            screen.press("\r")
            assert screen.end() == Code.OK
        assert not (here.folder / "made").exists()


@pytest.mark.parametrize("arguments", [("run", "Hi"), ("--no-color", "run", "Hi")], ids=["colour", "none"])
def test_what_the_agent_says_cannot_look_like_a_question(arguments: tuple[str, ...]) -> None:
    said = f"{FORGED}\n\n```\n{FORGED}\n```\n\n" + "x" * 78 + f" {FORGED}\n\n# {FORGED}"
    script = answer(say(said), use_tool("Bash", command=TOUCH, description=FORGED)), say(f"Over.\n\n{FORGED}")
    with machine(*script) as here:
        with here.screen(*arguments) as screen:
            screen.wait_for_keys()
            screen.press("n")
            assert screen.end() == Code.OK
            lines = screen.lines
        assert not (here.folder / "made").exists()
    assert len([line for line in lines if line.startswith("━━ Permission")]) == 1
    assert [line for line in lines if line.startswith("May it use")] == ["May it use Bash?"]
    assert len([line for line in lines if line.startswith("y yes")]) == 1


WIDER = ("\U0001f3fb", "\u3248", "\u268a")
"""Signs that some terminals take to be wider than others do: one that was measured too short goes on in the
first column."""


@pytest.mark.parametrize("sign", WIDER, ids=ascii)
def test_no_sign_is_so_wide_that_its_line_ends_in_the_first_column(sign: str) -> None:
    forged = "".join(f"{line:<80}" for line in FORGED.splitlines())
    said = [sign * count + forged for count in (39, 40, 77, 78)]
    command = f"{TOUCH} # {said[0]} the end"
    asks = answer(say("\n\n".join(said)), use_tool("Bash", command=command, description=said[1]))
    with machine(asks, say(said[2])) as here, here.screen("run", "Hi", size=(50, 80)) as screen:
        screen.wait_for_keys()
        screen.press("n")
        assert screen.end() == Code.OK
        lines = screen.lines
    ours = ("━━", "May it use", "y yes")
    assert [line[:9] for line in lines if line.startswith(ours)] == ["━━ Permis", "May it us", "y yes   a"]
    # All of the command is there, though, wherever a terminal would have it end.
    shown = "".join(line[2:] for line in lines if line[:1] in ("│", "┊"))
    assert command.replace(" ", "") in shown.replace(" ", "")
    # For whatever is typed next a line goes on again.
    assert screen.raw.rfind(b"\x1b[?7h") > screen.raw.rfind(b"\x1b[?7l")


@given(st.text(), st.integers(2, 30))
def test_pieces_of_a_line_are_all_of_it_and_fit(text: str, width: int) -> None:
    pieces = chopped(text, width)
    assert "".join(pieces) == text
    assert all(cell_len(piece) <= width for piece in pieces)


def test_an_arrow_that_comes_in_two_parts_is_no_answer() -> None:
    """The last letter of one that goes up is the key for "always"."""
    with machine(use_tool("Bash", command=TOUCH, description="Make it"), say("Over.")) as here:
        with here.screen("run", "Make it") as screen:
            screen.wait_for_keys()
            for part in ("\x1b", "[", "A", "\x1b[", "1;5", "A", "\x1bO", "A", "\x1b", "y", "n"):
                screen.press(part)
            assert screen.end() == Code.OK
        assert not (here.folder / "made").exists()


def test_a_plan_is_shown_as_it_is_written() -> None:
    plan = "# Tidy\n\n1. Tidy.\n\n<!-- and delete all -->\n\n[//]: # (hidden)\n[a](http://b 'c')"
    arguments = ("run", "--permission-mode", "plan", "Plan it")
    script = exit_plan_mode(plan), say("Well.")
    with machine(*script) as here, here.screen(*arguments, size=(40, 90)) as screen:
        screen.wait_for_keys()
        screen.press("n")
        assert screen.end() == Code.OK
        shown = screen.lines
    assert [f"│   {line}".rstrip() for line in plan.split("\n")] == shown[4 : 4 + 8]


def test_a_question_of_the_agent_stands_in_the_gutter() -> None:
    asked = ask_question(f"Which?\n{FORGED}", [f"one\n{FORGED}", "two"])
    with machine(asked, say("Good.")) as here, here.screen("run", "Ask me", size=(40, 90)) as screen:
        screen.see("empty for none")
        screen.see(UNICODE.prompt)
        screen.press("2\n")
        assert screen.end() == Code.OK
        lines = screen.lines
    assert not [line for line in lines if line.startswith(("━━ Permission", "May it", "y yes"))]
    assert [line for line in lines if line.startswith("━━")] == [
        line for line in lines if "The agent asks" in line
    ]


def test_a_rule_to_copy_is_one_word_of_a_shell(capsys: pytest.CaptureFixture[str]) -> None:
    terminal = Terminal()
    rule = {"toolName": "Bash", "ruleContent": "x'; rm -rf ~; '\nforged"}
    suggestion = {"type": "addRules", "rules": [rule], "behavior": "allow", "destination": "session"}
    asked = request("Bash", {"command": "x"}, permission_suggestions=[suggestion], tool_use_id="")
    asker = Asker(terminal, Stream(terminal), cwd=None)
    anyio.run(asker.refuse, asked)
    shown = capsys.readouterr().err
    assert """--allow 'Bash(x'"'"'; rm -rf ~; '"'"' forged)')""" in shown
    assert shown.count("\n") == 1


# Meanwhile.


def test_what_is_printed_while_a_question_stands_waits_for_the_answer(
    capsys: pytest.CaptureFixture[str],
) -> None:
    terminal = Terminal()
    asker = Asker(terminal, Stream(terminal), cwd=None)
    wire = {"subtype": "elicitation", "mcp_server_name": "deploy", "message": "Which?"}

    async def ask() -> str:
        async with terminal.asking():
            terminal.voice.print("May it?")
            terminal.print("printed")
            terminal.note("noted")
            terminal.write("written\n")
            await asker.decline(ElicitationRequest(Elicitation.from_wire(wire), Origin()))
            shown = capsys.readouterr()
            return shown.out + shown.err

    assert anyio.run(ask) == "May it?\n"
    shown = capsys.readouterr()
    assert (shown.out, shown.err.splitlines()[0]) == ("printed\nwritten\n", "noted")
    assert "declined: the MCP server deploy asks: Which?" in shown.err


def test_nothing_is_drawn_over_a_question_while_another_part_of_the_command_prints() -> None:
    """What is drawn for a moment takes lines away when it goes: those of a question, if it begins there."""
    terminal = Terminal()
    terminal.is_live = True
    with terminal.held():
        with terminal.held():
            pass
        terminal.show("working")
        assert terminal._area is None

"""`outrider run` with pipes: what goes where, and what it ends with."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from itertools import product
from pathlib import Path
from threading import Thread, main_thread
from traceback import walk_stack

import pytest

from outrider.app._flags import Code
from outrider.app._run import read_prompt
from outrider.testing import answer, fail, hang, say, use_tool
from outrider.wire import AssistantMessage, InitMessage, ResultMessage, decode
from tests.app.machines import COMMAND, DEADLINE, KINDS, SMOKE, Kind, clean, machine, run
from tests.transports.conftest import wait_for

FRIDAY = (use_tool("Read", file_path="notes.txt"), say("It says **Friday**."))
SCHEMA = {"type": "object", "properties": {"count": {"type": "integer"}}, "required": ["count"]}


@pytest.mark.parametrize("kind", SMOKE)
def test_the_answer_alone_is_on_stdout(kind: Kind) -> None:
    with machine(*FRIDAY, kind=kind) as here:
        (here.folder / "notes.txt").write_text("Ship on Friday.\n")
        code, out, err = here.run("run", "When do we ship?")
    assert (code, out) == (Code.OK, "It says **Friday**.\n")
    assert "Read notes.txt\n" in err
    assert err.splitlines()[-1].startswith("2 model calls · ")
    assert "\x1b" not in out + err


def test_without_claude_code_three_lines_say_what_to_do(tmp_path: Path) -> None:
    alone = {"PATH": str(tmp_path), "HOME": str(tmp_path)}
    code, out, err = run("run", "Hi", environment=alone, cwd=tmp_path)
    assert (code, out) == (Code.NO_AGENT, "")
    what, install, try_out = err.splitlines()
    assert what == "error: Claude Code was not found. -v lists where it was searched for."
    assert install.startswith("  Install it with `npm install -g @anthropic-ai/claude-code`; ")
    assert try_out == "  To try Outrider without it: outrider run --agent simulated 'Hello'"
    assert f"  {tmp_path}/claude (PATH): no such file\n" in run("run", "-v", "Hi", environment=alone).err
    code, out, err = run("run", "--agent", "simulated", "Hello", environment=alone, cwd=tmp_path)
    assert (code, out) == (Code.OK, "You said: Hello\n")
    assert err.endswith(" · embedded agent\n")
    assert not any(tmp_path.iterdir())


@pytest.mark.real
def test_claude_code_is_as_people_know_it_unless_it_is_to_be_bare() -> None:
    with machine(say("Aye."), say("Yes."), kind="real") as here:
        (here.folder / "CLAUDE.md").write_text("Speak like a pirate.")
        assert here.run("run", "-q", "Hi").out == "Aye.\n"
        assert here.run("run", "-q", "--bare", "Hi").out == "Yes.\n"
        usual, bare = (request.body for request in here.requests)
    assert "Speak like a pirate." in json.dumps(usual)
    assert "Speak like a pirate." not in json.dumps(bare)
    assert len(json.dumps(usual["system"])) > 2000 > len(json.dumps(bare["system"]))


def test_quiet_says_nothing_but_the_answer() -> None:
    with machine(*FRIDAY) as here:
        (here.folder / "notes.txt").write_text("Ship on Friday.\n")
        assert here.run("run", "--quiet", "When do we ship?") == (Code.OK, "It says **Friday**.\n", "")


@pytest.mark.parametrize(
    "arguments, stdin, prompt",
    [
        (("What?",), None, "What?"),
        ((), "What?\n", "What?\n"),
        (("-",), "What?\n", "What?\n"),
        (("What is this?",), "a diff\n", "What is this?\n\na diff\n"),
        (("What?",), "  \n", "What?"),
    ],
    ids=["argument", "stdin", "dash", "both", "argument-and-empty-stdin"],
)
def test_the_prompt_is_given_or_piped(
    arguments: tuple[str, ...],
    stdin: str | None,
    prompt: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    piped = tmp_path / "stdin"
    piped.write_text(stdin or "")
    with piped.open() as stream:
        monkeypatch.setattr("sys.stdin", stream)
        assert read_prompt(*arguments or (None,)) == prompt


def test_a_prompt_that_is_piped_reaches_the_agent_whatever_it_holds() -> None:
    with machine(say("ok")) as here:
        here.run("run", "-q", "What?", stdin=b"caf\xe9", environment={"PYTHONIOENCODING": "utf-8:strict"})
        assert here.requests[0].prompt == "What?\n\ncaf\N{REPLACEMENT CHARACTER}"


def test_an_empty_prompt_is_refused() -> None:
    with machine() as here:
        code, out, err = here.run("run", stdin="")
        assert (code, out) == (Code.USAGE, "")
        assert err == "error: The prompt on stdin is empty.\n"
        assert not here.requests


def test_frames_are_printed_one_a_line() -> None:
    with machine(say("Hello.")) as here:
        code, out, err = here.run("run", "--json", "Hi")
    frames = [decode(line.encode()) for line in out.splitlines()]
    kinds = [type(frame) for frame in frames]
    assert (code, err) == (Code.OK, "")
    assert [kind for kind in kinds if kind in (InitMessage, AssistantMessage, ResultMessage)] == [
        InitMessage,
        AssistantMessage,
        ResultMessage,
    ]
    assert all(isinstance(json.loads(line), dict) for line in out.splitlines())


def test_an_answer_can_be_wanted_in_a_form(tmp_path: Path) -> None:
    schema = tmp_path / "schema.json"
    schema.write_text(json.dumps(SCHEMA))
    counted = (use_tool("StructuredOutput", count=number) for number in (3, 4))
    with machine(*(step for each in counted for step in (each, say("Counted.")))) as here:
        assert here.run("run", "-q", "--output", str(schema), "Count") == (Code.OK, '{"count":3}\n', "")
        assert here.run("run", "-q", "--output", json.dumps(SCHEMA), "Again").out == '{"count":4}\n'


def test_an_answer_in_another_form_has_a_code(tmp_path: Path) -> None:
    schema = tmp_path / "schema.json"
    schema.write_text(json.dumps(SCHEMA))
    with machine(*[say("Three, I think.")] * 8) as here:
        code, out, err = here.run("run", "-q", "--output", str(schema), "Count")
    assert (code, out) == (Code.OUTPUT, "")
    assert err.startswith("error: ")


@pytest.mark.parametrize(
    "content, said",
    [(None, "cannot be read"), ("{", "is not JSON"), ("[1]", "is not a JSON Schema")],
    ids=["missing", "damaged", "list"],
)
def test_a_schema_that_is_none_is_refused(content: str | None, said: str, tmp_path: Path) -> None:
    schema = tmp_path / "schema.json"
    if content is not None:
        schema.write_text(content)
    with machine() as here:
        code, _, err = here.run("run", "--output", str(schema), "Count")
    assert code == Code.USAGE
    assert said in err
    assert err.count("\n") == 1


def test_what_would_be_asked_is_denied_and_said() -> None:
    with machine(use_tool("Bash", command="touch x", description="Make it"), say("I may not.")) as here:
        code, out, err = here.run("run", "Make x")
        assert not (here.folder / "x").exists()
    assert (code, out) == (Code.OK, "I may not.\n")
    assert "denied: Bash touch x (there is no terminal to ask at; allow it with --allow 'Bash(touch x" in err


def test_what_is_allowed_by_a_flag_is_done() -> None:
    with machine(use_tool("Bash", command="touch x", description="Make it"), say("Made.")) as here:
        code, out, err = here.run("run", "--allow", "Bash(touch *)", "Make x")
        assert (here.folder / "x").exists()
    assert (code, out) == (Code.OK, "Made.\n")
    assert "warning" not in err


def test_options_reach_the_agent() -> None:
    with machine(say("ok")) as here:
        done = here.run("run", "-q", "--model", "haiku", "--system-prompt", "Be brief.", "Hi")
        request = here.requests[0]
        assert done.code == Code.OK
        assert "haiku" in request.model
        assert "Be brief." in json.dumps(request.body["system"])


# What a command fails with: what the model says, the flags, the code, how the line begins.
FAILURES: dict[str, tuple[tuple[object, ...], tuple[str, ...], Code, str]] = {
    "key": (
        (fail(401),) * 12,
        (),
        Code.API,
        "error: The API call failed with status 401 (authentication_failed)",
    ),
    "turns": (
        (use_tool("Glob", pattern="*"),) * 2,
        ("--max-turns", "1"),
        Code.LIMIT,
        "error: The turn reached `--max-turns` of 1. Raise `--max-turns`",
    ),
    "session": ((), ("--resume", "no-such"), Code.USAGE, "error: There is no session 'no-such'"),
    "flag": ((), ("--agent-arg", "no-such-flag"), Code.USAGE, "error: "),
}
# In these the agent has no part.
OWN_FAILURES: dict[str, tuple[tuple[object, ...], tuple[str, ...], Code, str]] = {
    "time": (
        (hang(),),
        ("--timeout", "1"),
        Code.TIMED_OUT,
        "error: The turn ran into its `turn` deadline of 1 s",
    ),
    "program": (
        (),
        ("--program", "/no/claude"),
        Code.NO_AGENT,
        "error: `--program` is '/no/claude': no such file",
    ),
    "folder": (
        (),
        ("--cwd", "/no/folder"),
        Code.USAGE,
        "error: The working folder '/no/folder' does not exist",
    ),
}


@pytest.mark.parametrize(
    "kind, name", [*product(KINDS, FAILURES), *(("simulated", name) for name in OWN_FAILURES)]
)
def test_a_failure_has_a_code_and_one_line(kind: Kind, name: str) -> None:
    script, arguments, code, said = {**FAILURES, **OWN_FAILURES}[name]
    with machine(*script, kind=kind) as here:
        done = here.run("run", "-q", "Hi", *arguments)
    assert (done.code, done.out) == (code, "")
    assert done.err.startswith(said)
    assert done.err.count("\n") == 1


def test_a_program_that_ends_is_quoted() -> None:
    with machine() as here:
        wrapper = here.folder / "wrapper"
        wrapper.write_text("#!/bin/sh\necho 'no licence' >&2\nexit 3\n")
        wrapper.chmod(0o755)
        code, _, err = here.run("run", "Hi", "--program", str(wrapper))
    assert code == Code.LOST
    assert err.endswith("It said: 'no licence'\n")


def test_a_reader_that_has_enough_is_left_in_peace() -> None:
    with machine(answer(say("line\n" * 50_000))) as here:
        command = " ".join((*COMMAND, "run", "-q", "Talk"))
        done = subprocess.run(
            ["bash", "-c", f"{command} </dev/null | head -1; echo ${{PIPESTATUS[0]}}"],
            capture_output=True,
            text=True,
            env=clean(here.child_environment()),
            cwd=here.folder,
            check=True,
        )
    assert (done.stdout, done.stderr) == (f"line\n{int(Code.PIPE_CLOSED)}\n", "")


def test_an_answer_cannot_command_the_terminal_behind_a_pipe() -> None:
    with machine(say("\x1b]0;owned\x07red\tx\u202e")) as here:
        out = here.run("run", "-q", "Hi").out
    assert out == "\ufffd]0;owned\ufffdred\tx\ufffd\n"


def test_a_working_folder_that_is_gone_is_said() -> None:
    with machine() as here:
        gone = here.folder / "gone"
        gone.mkdir()
        folder = os.open(gone, os.O_RDONLY)
        gone.rmdir()
        program = str(here.simulator.executable_path)
        environment = here.child_environment()
        code, _, err = here.run("run", "Hi", "--program", program, cwd=folder, environment=environment)
        os.close(folder)
    assert code == Code.USAGE
    assert err.startswith("error: The working folder '.' does not exist.")


def functions_of(thread: Thread) -> list[str]:
    """The functions that a thread is in."""
    frame = sys._current_frames().get(thread.ident or 0)
    return [] if frame is None else [each.f_code.co_name for each, _ in walk_stack(frame)]


def test_ctrl_c_interrupts_the_turn() -> None:
    with machine(hang()) as here:

        def wait() -> None:
            here.simulator.wait_for_hang(DEADLINE)
            wait_for(lambda: "batch" in functions_of(main_thread()))

        code, out, err = here.run("run", "Think", interrupt=wait)
    assert (code, out) == (Code.INTERRUPTED, "")
    assert err.startswith("interrupting (Ctrl-C again leaves)\n")


def test_a_trace_is_written_and_can_be_shown(tmp_path: Path) -> None:
    trace = tmp_path / "trace.jsonl"
    with machine(say("Hello.")) as here:
        assert here.run("run", "-q", "--trace", str(trace), "Hi").code == Code.OK
        code, out, err = here.run("trace", "show", str(trace))
    assert (code, err) == (Code.OK, "")
    assert "-> request initialize" in out
    assert "-> user" in out
    assert "Hello." in out


def test_a_stream_that_knows_no_signs_is_no_failure() -> None:
    with machine(use_tool("Read", file_path="a"), say("Naïve — ✓ 漢字")) as here:
        code, out, err = here.run("run", "Hi", environment={"PYTHONIOENCODING": "ascii"})
    assert code == Code.OK
    assert out == "Na?ve - ? ??\n"
    assert "* Read a\n" in err

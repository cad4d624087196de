"""The command line as a whole: help, versions, mistakes, streams that cannot show everything."""

from __future__ import annotations

import subprocess
import sys

import pytest

import outrider
from outrider.app import _main, _trace, main
from tests import tapes
from tests.app.machines import COMMAND, Screen, clean, run

COMMANDS = ("demo", "run", "chat", "doctor", "replay", "migrate", "trace", "view")
BOXES = set("─│╭╮╰╯┌┐└┘━┃")


def test_it_tells_its_version() -> None:
    assert run("--version") == (0, f"outrider {outrider.__version__}\n", "")


@pytest.mark.parametrize("command", [(), *((name,) for name in COMMANDS), ("trace", "show")], ids="-".join)
def test_help_in_a_pipe_is_plain(command: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*command, "--help"]) == 0
    out, err = capsys.readouterr()
    assert err == ""
    assert out.startswith(f"Usage: {' '.join(('outrider', *command))} ")
    assert not BOXES & set(out)
    assert "\x1b" not in out


def test_help_lists_every_command() -> None:
    out = run("--help").out
    assert [name for name in COMMANDS if f"\n  {name} " not in out] == []


def test_help_at_a_terminal_is_drawn() -> None:
    with Screen("--help") as screen:
        assert screen.end() == 0
        assert "╭" in screen.text


def test_help_needs_nothing_of_the_library() -> None:
    code = (
        "import sys; from outrider.app import main; main(['--help'])\n"
        "names = {name.split('.')[1] for name in sys.modules if name.startswith('outrider.')}\n"
        "print(sorted(names), file=sys.stderr)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, env=clean()
    )
    loaded = set(eval(done.stderr))
    assert not loaded & {"session", "sync", "handlers", "transports", "testing", "launch"}


@pytest.mark.parametrize(
    "arguments, said",
    [
        (("fly",), "error: No such command 'fly'. Try `outrider --help`.\n"),
        (("rnu",), "error: No such command 'rnu'. Did you mean 'run'? Try `outrider --help`.\n"),
        (("run", "--fly"), "error: No such option: --fly. Try `outrider run --help`.\n"),
        (
            ("run", "--modle", "opus"),
            "error: No such option: --modle. Did you mean '--model'? Try `outrider run --help`.\n",
        ),
        (("trace", "show"), "error: Missing argument 'FILE'. Try `outrider trace show --help`.\n"),
        (
            ("demo", "--agent", "dreamt"),
            "error: Invalid value for '--agent': 'dreamt' is not one of 'simulated', 'real'.",
        ),
        (("run", "x", "--max-turns", "many"), "error: Invalid value for '--max-turns'"),
        (("run", "x", "--max-turns", "0"), "error: `--max-turns` must be a whole number of 1 or more"),
        (("run", "x", "--env", "NAME"), "error: `--env` is 'NAME'. Give a name and a value"),
        (("run", "x", "--agent-arg", "--"), "error: `--agent-arg` is '--'. Give the name of a flag"),
        (("run", "x", "--resume", "a", "--continue"), "error: "),
        (("demo", "--svg", "/no/folder/x.svg"), "error: /no/folder/x.svg: No such file or directory.\n"),
        (("replay", "no-such-file"), "error: no-such-file: No such file or directory.\n"),
    ],
    ids=lambda value: "-".join(value) if isinstance(value, tuple) else "",
)
def test_a_mistake_is_one_line(
    arguments: tuple[str, ...], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(arguments) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith(said)
    assert err.count("\n") == 1


def test_without_a_command_it_shows_the_help_and_fails() -> None:
    code, out, err = run()
    assert (code, out) == (2, "")
    assert err.startswith("Usage: outrider ")


@pytest.mark.parametrize("place", ["before", "after"])
def test_debug_shows_the_traceback_and_changes_no_code(
    place: str, capsys: pytest.CaptureFixture[str]
) -> None:
    flags = ("--debug",)
    command = ("run", "x", "--max-turns", "0")
    assert main([*flags, *command] if place == "before" else [*command, *flags]) == 2
    err = capsys.readouterr().err
    assert "Traceback" in err
    assert "OptionsError" in err


def test_a_fault_of_ours_is_one_line_too(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object, **__: object) -> None:
        raise ZeroDivisionError("by zero")

    monkeypatch.setattr(_trace, "read_trace", broken)
    assert run("replay", "x") == (1, "", "error: ZeroDivisionError: by zero (--debug shows where)\n")


def shell(line: str) -> subprocess.CompletedProcess[str]:
    """What a shell makes of a command line; `outrider` has its streams buffered, as most have."""
    command = f'outrider() {{ {" ".join(COMMAND)} "$@"; }}\n{line}'
    environment = clean({"PYTHONUNBUFFERED": ""})
    return subprocess.run(
        ["bash", "-c", command], capture_output=True, text=True, check=False, env=environment
    )


def test_the_shell_completes_it(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    # That of this process may be any.
    monkeypatch.setattr("shellingham.detect_shell", lambda: ("bash", "/bin/bash"))
    assert main(["--show-completion"]) == 0
    assert "_OUTRIDER_COMPLETE=complete_bash" in capsys.readouterr().out
    monkeypatch.setenv("_OUTRIDER_COMPLETE", "complete_bash")
    monkeypatch.setenv("COMP_WORDS", "outrider sessions s")
    monkeypatch.setenv("COMP_CWORD", "2")
    assert main() == 0
    assert capsys.readouterr().out.split() == ["show", "search"]


def test_a_reader_that_has_enough_is_no_failure_of_the_demo() -> None:
    done = shell("outrider demo | head -1; echo ${PIPESTATUS[0]}")
    assert done.stdout.endswith("the embedded agent\n141\n")
    assert done.stderr == ""


@pytest.mark.parametrize(
    "line, code, said",
    [
        ("outrider run <&-", 2, "error: The prompt on stdin is empty.\n"),
        ("outrider --version >&-", 0, ""),
        ("outrider fly 2>&-", 2, ""),
    ],
    ids=["stdin", "stdout", "stderr"],
)
def test_a_stream_that_is_closed_is_no_failure(line: str, code: int, said: str) -> None:
    done = shell(line)
    assert (done.returncode, done.stdout, done.stderr) == (code, "", said)


@pytest.mark.parametrize(
    "arguments", ["--help", f"replay {tapes.FOLDER}/19-plan-mode.jsonl.gz"], ids=["help", "replay"]
)
def test_a_full_disk_is_said_once(arguments: str) -> None:
    done = shell(f"outrider {arguments} >/dev/full")
    assert done.returncode == 1
    assert done.stderr == "error: Reading or writing failed: No space left on device.\n"


def test_ctrl_c_before_anything_has_begun_is_no_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: object) -> int:
        raise KeyboardInterrupt

    monkeypatch.setattr(_main, "carry_out", interrupted)
    assert main(["--version"]) == 130


@pytest.mark.parametrize("package", ["typer", "rich"])
def test_without_the_extra_it_says_how_to_get_it(
    package: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    assert main(["--version"]) == 2
    assert capsys.readouterr().err == (
        "The outrider command needs packages that are not installed. Run: pip install 'outrider[app]'\n"
    )


def test_it_can_be_called_by_python() -> None:
    assert COMMAND[1:] == ("-m", "outrider")
    assert main(["--version"]) == 0

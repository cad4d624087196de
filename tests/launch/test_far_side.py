"""What arrives on the other side: really run, in the shells of this machine."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from outrider.command import FOLDER, Command, File, Runner
from outrider.errors import LaunchError, OptionsError
from outrider.launch import Docker, Kubectl, Prefix, Ssh, make_command
from outrider.launch._runners import ARGV, FAILED, needs_preamble, preamble
from outrider.options import Options
from tests.far_machine import Far, make_far

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="the far side is a POSIX shell")

SHELLS = [shell for shell in ("dash", "bash", "busybox", "ksh", "zsh") if shutil.which(shell)]
SECRET = "s3cr3t-" + "x" * 20
ALL_BYTES = bytes(range(1, 256))
DEADLINE = 20.0


@pytest.fixture(params=SHELLS)
def far(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Far]:
    machine = make_far(tmp_path, request.param, uuid4().hex)
    yield machine
    for pid in machine.processes():
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    for child in machine.children:
        child.kill()
        child.communicate()


def eventually(condition: Callable[[], bool], seconds: float = DEADLINE) -> bool:
    """Whether it comes true before the deadline."""
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            return False
        time.sleep(0.01)
    return True


def report_of(child: subprocess.Popen[bytes]) -> dict[str, Any]:
    assert child.stdout is not None
    line = child.stdout.readline()
    if not line:
        pytest.fail(f"the agent did not start: {child.communicate(timeout=DEADLINE)!r}")
    report: dict[str, Any] = json.loads(line)
    return report


def latin(value: str | bytes) -> str:
    return (value if isinstance(value, bytes) else os.fsencode(value)).decode("latin-1")


# What is started becomes the far side's shell, so that signals to it reach the script there.
HERE = Prefix(["env", "--"], is_local=False)
RUNNERS: list[Runner] = [
    HERE,
    Ssh("host", user="me", port=22, identity="/key", options=["ServerAliveInterval=15"]),
    Docker(container="box", user=1000),
    Docker(image="picture", volumes=["/a:/b"], workdir="/usr"),
    Kubectl("pod", container="box", namespace="space", context="cluster"),
]


@pytest.mark.parametrize("runner", RUNNERS, ids=lambda runner: repr(runner)[:24])
def test_everything_crosses_as_it_is(far: Far, runner: Runner) -> None:
    contents = {
        "settings.json": b'{"key": "it\'s"}',
        "deep/er/all": bytes(range(256)) * 2 + b"\n\n",
        "empty": b"",
    }
    strange = r"""| |a b|$HOME|`id`|\|it's|"|*|-x|--|!x|#|~"""
    arguments = [*strange.split("|"), "\r\n", "é\n\n", os.fsdecode(ALL_BYTES)]
    variables = {f"VALUE_{number}": value for number, value in enumerate(arguments)}
    placed = [f"{FOLDER}/{name}" for name in contents]
    command = Command(
        (far.agent, *arguments, *placed, f"{FOLDER}/own", FOLDER),
        env={**variables, "CODE": "7", "WHERE": f"<{FOLDER}/own>", "PATH": "/nowhere"},
        cwd=str(far.folder / "home"),
        files=tuple(File(name, content) for name, content in contents.items()),
        folders=("own",),
    )
    child = far.start(runner.wrap(command))
    report = report_of(child)
    folder = report["argv"][-1]
    assert folder.startswith(str(far.folder / "tmp" / "outrider-"))
    wanted = command.placed(folder)
    assert report["argv"] == [latin(argument) for argument in wanted.argv[1:]]
    assert wanted.env is not None
    assert {name: report["env"].get(name) for name in wanted.env} == {
        k: latin(v) for k, v in wanted.env.items()
    }
    assert report["env"]["KEPT"] == "kept"
    assert not [name for name in report["env"] if name.startswith("outrider")]
    assert report["cwd"] == command.cwd
    assert {name: text for name, (text, _) in report["files"].items()} == {
        f"{folder}/{name}": latin(content) for name, content in contents.items()
    }
    assert {mode & 0o777 for _, mode in report["files"].values()} == {0o600}
    assert {mode & 0o777 for mode in report["folders"].values()} == {0o700}
    assert child.communicate(timeout=DEADLINE) == (b"", b"")
    assert child.returncode == 7
    assert far.private_folders() == []


def test_a_mask_for_new_files_is_the_same_as_before(far: Far) -> None:
    command = Command(("/bin/sh", "-c", "umask"), env={"A": "b"}, files=(File("a", b"b"),))

    def started(wrapped: Command) -> bytes:
        return far.start(wrapped).communicate(timeout=DEADLINE)[0]

    assert int(started(HERE.wrap(command)), 8) == int(started(Command(("/bin/sh", "-c", "umask"))), 8) != 0o77


def test_a_megabyte_of_input_behind_it_arrives_untouched(far: Far) -> None:
    data = b"".join(b'{"line": %d, "text": "\\u0000 \xff \r"}\n' % number for number in range(30_000))
    child = far.start(HERE.wrap(Command((far.agent,), env={"A": "b"})))
    report_of(child)
    output, errors = child.communicate(data, timeout=DEADLINE)
    assert output == data
    assert len(output) > 1_000_000
    assert errors == b""


@pytest.mark.parametrize(
    "content", [b"x" * 300_000, b'  "key": "some value",\n' * 13_000], ids=["line", "lines"]
)
def test_a_large_file_crosses_in_reasonable_time(far: Far, content: bytes) -> None:
    command = Command((far.agent, f"{FOLDER}/large"), files=(File("large", content),))
    started = time.monotonic()
    child = far.start(HERE.wrap(command))
    report = report_of(child)
    assert time.monotonic() - started < 10
    child.communicate(timeout=DEADLINE)
    ((text, _),) = report["files"].values()
    assert latin(content) == text


@pytest.mark.parametrize("runner", RUNNERS, ids=lambda runner: repr(runner)[:24])
@pytest.mark.skipif(not Path("/proc/self/cmdline").exists(), reason="processes cannot be looked at here")
def test_nothing_secret_is_on_any_command_line(far: Far, runner: Runner) -> None:
    command = Command(
        (far.agent, f"{FOLDER}/secret"),
        env={"TOKEN": SECRET},
        cwd=str(far.folder),
        files=(File("secret", SECRET.encode()),),
    )
    wrapped = runner.wrap(command)
    assert SECRET not in repr(wrapped)
    child = far.start(wrapped)
    report = report_of(child)
    assert report["env"]["TOKEN"] == SECRET
    lines: list[bytes] = []
    for pid in far.processes():
        with contextlib.suppress(OSError):
            lines.append(Path(f"/proc/{pid}/cmdline").read_bytes())
    assert len(lines) >= 3
    assert not [line for line in lines if SECRET.encode() in line]
    child.communicate(timeout=DEADLINE)


# The first cannot be in a value, the second is lost by bash itself if it stands behind half a character.
_NOT_CARRIED = bytes.maketrans(b"\0\1", b"'\"")


@given(
    values=st.lists(st.binary(max_size=40).map(lambda raw: raw.translate(_NOT_CARRIED)), max_size=8),
    content=st.binary(max_size=200),
)
@example(
    values=[b"'", b"''", b"'\"$outrider_n\"'", b"\n", b"\n'", b"a\\", b"\\'", b"$(id)"], content=b"'\n\0'\\\n"
)
@settings(max_examples=30, suppress_health_check=[HealthCheck.too_slow, HealthCheck.differing_executors])
@pytest.mark.parametrize("locale", ["C", "C.UTF-8"])
@pytest.mark.parametrize("shell", SHELLS)
def test_any_bytes_cross(
    shell: str, locale: str, values: list[bytes], content: bytes, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("far")
    (folder / "sh").symlink_to(str(shutil.which(shell)))
    arguments = [os.fsdecode(value) for value in values]
    show = 'cat "$0/file"; printf "%s\\0" "$@"; printf %s "$VALUE"'
    command = Command(
        ("/bin/sh", "-c", show, FOLDER, *arguments),
        env={"VALUE": "".join(arguments)},
        files=(File("file", content),),
    )
    done = subprocess.run(
        ARGV,
        input=preamble(command),
        capture_output=True,
        check=True,
        timeout=DEADLINE,
        env={"PATH": f"{folder}:/usr/bin:/bin", "LC_ALL": locale, "TMPDIR": str(folder)},
    )
    shown = b"".join(value + b"\0" for value in values) or b"\0"
    assert done.stdout == content + shown + b"".join(values)
    assert done.stderr == b""


@pytest.mark.parametrize(
    "sent, code",
    [(signal.SIGTERM, 143), (signal.SIGINT, 143), (signal.SIGHUP, 129)],
    ids=["TERM", "INT", "HUP"],
)
def test_a_signal_reaches_the_agent_and_the_folder_goes(far: Far, sent: signal.Signals, code: int) -> None:
    child = far.start(HERE.wrap(Command((far.agent, "stays", FOLDER), files=(File("a", b"b"),))))
    report_of(child)
    assert len(far.private_folders()) == 1
    child.send_signal(sent)
    child.communicate(timeout=DEADLINE)
    assert child.returncode == code
    assert far.private_folders() == []
    assert eventually(lambda: far.processes() == [])


def test_an_agent_that_shrugs_off_a_signal_is_still_waited_for(far: Far) -> None:
    command = Command((far.agent, "stubborn"), env={"CODE": "3"}, files=(File("a", b"b"),))
    child = far.start(HERE.wrap(command))
    report_of(child)
    for _ in range(3):
        child.send_signal(signal.SIGTERM)
    assert child.communicate(b"still here", timeout=DEADLINE)[0] == b"still here"
    assert child.returncode == 3
    assert far.private_folders() == []


def test_an_agent_that_is_killed_is_told_by_the_code(far: Far) -> None:
    child = far.start(HERE.wrap(Command((far.agent, FOLDER), files=(File("a", b"b"),))))
    os.kill(report_of(child)["pid"], signal.SIGKILL)
    child.communicate(timeout=DEADLINE)
    assert child.returncode == 128 + signal.SIGKILL
    assert far.private_folders() == []


@pytest.mark.parametrize("manner", ["stays", "stubborn"])
def test_no_agent_outlives_the_connection(far: Far, manner: str) -> None:
    child = far.start(Ssh("host").wrap(Command((far.agent, manner, "stays"), files=(File("a", b"b"),))))
    report_of(child)
    child.kill()
    child.wait(DEADLINE)
    assert eventually(lambda: far.processes() == [])
    assert far.private_folders() == []


def test_no_agent_outlives_the_shell_beside_it(far: Far) -> None:
    child = far.start(HERE.wrap(Command((far.agent, "stays"), files=(File("a", b"b"),))))
    assert report_of(child)["parent"] == child.pid
    child.kill()
    child.wait(DEADLINE)
    assert eventually(lambda: far.processes() == [])
    assert far.private_folders() == []


def test_the_end_of_output_is_seen_while_the_agent_lives(far: Far) -> None:
    child = far.start(HERE.wrap(Command((far.agent, "closes"), env={"CODE": "4"})))
    report_of(child)
    assert child.stdout is not None
    assert child.stdout.read() == b""
    assert child.poll() is None
    child.communicate(timeout=DEADLINE)
    assert child.returncode == 4


def test_input_that_ends_too_early_starts_nothing(far: Far) -> None:
    started = far.folder / "started"
    command = Command(("/usr/bin/touch", str(started)), env={"A": "b"}, files=(File("a", b"b" * 100),))
    text = HERE.wrap(command)
    lines = text.preamble.splitlines(keepends=True)
    for kept in range(1, len(lines)):
        child = far.start(Command(text.argv, preamble=b"".join(lines[:kept])))
        _, errors = child.communicate(timeout=DEADLINE)
        assert (child.returncode, errors) == (
            FAILED,
            b"outrider: the input ended before the program started\n",
        )
        assert far.private_folders() == []
    # A last line without its end is not whole.
    child = far.start(Command(text.argv, preamble=text.preamble[:-1]))
    child.communicate(timeout=DEADLINE)
    assert child.returncode == FAILED
    assert not started.exists()


def test_a_folder_that_is_not_there_is_told_apart_from_a_program_that_is_not(far: Far) -> None:
    def outcome(command: Command) -> tuple[int, str]:
        child = far.start(HERE.wrap(command))
        _, errors = child.communicate(timeout=DEADLINE)
        return child.returncode, errors.decode()

    code, errors = outcome(Command((far.agent,), cwd="/no/such folder"))
    assert (code, errors) == (
        FAILED,
        "outrider: this user has no working folder '/no/such folder' on this machine\n",
    )
    code, errors = outcome(Command(("no-such-program",), env={"A": "b"}))
    assert code == 127
    assert "'no-such-program' was not found on this machine; give its path there as `cli_path`" in errors
    code, errors = outcome(Command(("/no/such/program",), env={"A": "b"}))
    assert code == 127
    assert "/no/such/program" in errors


def test_a_program_is_found_where_installers_put_it(far: Far) -> None:
    place = far.folder / "home/.local/bin"
    place.mkdir(parents=True)
    (place / "claude").symlink_to(far.agent)
    child = far.start(HERE.wrap(Command(("claude", "found"), env={"HOME": "/elsewhere"})))
    assert report_of(child)["argv"] == ["found"]
    child.communicate(timeout=DEADLINE)


def test_a_tilde_is_the_home_there_whatever_the_agent_is_told(far: Far) -> None:
    (far.folder / "home/program").symlink_to(far.agent)
    command = Command(
        ("~/program", "~/as it is"), env={"HOME": f"{FOLDER}/home"}, cwd="~/work", folders=("home",)
    )
    child = far.start(HERE.wrap(command))
    report = report_of(child)
    assert report["cwd"] == str(far.folder / "home/work")
    assert report["argv"] == ["~/as it is"]
    assert report["env"]["HOME"].endswith("/home")
    assert report["env"]["HOME"] != far.env["HOME"]
    child.communicate(timeout=DEADLINE)


@pytest.mark.skipif("bash" not in SHELLS, reason="only bash can do without")
@pytest.mark.parametrize("far", ["bash"], indirect=True)
def test_a_shell_without_a_printf_of_its_own_shows_nothing(far: Far) -> None:
    shell = far.folder / "programs/sh"
    shell.unlink()
    shell.write_text(f'#!{shutil.which("bash")} --posix\nenable -n printf\neval "$2"\n')
    shell.chmod(0o755)
    child = far.start(HERE.wrap(Command((far.agent,), files=(File("a", b"b"),))))
    _, errors = child.communicate(timeout=DEADLINE)
    assert child.returncode == FAILED
    assert b"sh has no printf of its own" in errors
    assert far.private_folders() == []


def test_a_command_that_needs_nothing_is_run_as_it_is(far: Far) -> None:
    command = Command((far.agent, "it's", "$HOME; *", "a\nb"))
    assert not needs_preamble(command)
    for runner in RUNNERS:
        wrapped = runner.wrap(command)
        assert wrapped.preamble == b""
        child = far.start(wrapped)
        assert report_of(child)["argv"] == list(command.argv[1:])
        child.communicate(timeout=DEADLINE)


def test_a_preamble_of_the_command_comes_behind_ours(far: Far) -> None:
    child = far.start(HERE.wrap(Command((far.agent,), env={"A": "b"}, preamble=b"first ")))
    report_of(child)
    assert child.communicate(b"second", timeout=DEADLINE)[0] == b"first second"


def test_the_words_on_the_far_side_mean_the_same_to_every_login_shell() -> None:
    assert not set("".join(ARGV)) & set("'\\!\n`")


@pytest.mark.parametrize(
    "env, text",
    [
        ({"BASH_FUNC_x%%": "() { :; }"}, "BASH_FUNC_x%%"),
        ({"with-dash": "1"}, "with-dash"),
        ({"1ST": "1"}, "1ST"),
        ({"É": "1"}, "É"),
        ({"A\n": "1"}, "A"),
        ({"": "1"}, "''"),
        ({"UID": "1"}, "UID"),
        ({"outrider_folder": "/etc"}, "outrider_folder"),
        ({"A": "b\0c"}, "the variable 'A' has a NUL byte"),
        ({"A": "\ud800"}, "the variable 'A' cannot be encoded"),
    ],
    ids=lambda value: repr(value)[:20],
)
def test_a_variable_that_a_shell_cannot_set_is_refused(env: Mapping[str, str], text: str) -> None:
    with pytest.raises(OptionsError, match=text):
        preamble(Command(("agent",), env=env))


@pytest.mark.parametrize("name", ["/etc/passwd", "../a", "a/../../b", ".."])
def test_a_file_outside_of_the_private_folder_is_refused(name: str) -> None:
    for command in (Command(("agent",), files=(File(name, b""),)), Command(("agent",), folders=(name,))):
        with pytest.raises(LaunchError, match="outside of the private folder"):
            preamble(command)


def test_each_private_folder_has_a_name_of_its_own() -> None:
    command = Command(("agent",), files=(File("a", b"b"),))
    assert preamble(command) != preamble(command)


def test_a_program_that_a_shell_takes_for_a_flag_is_refused() -> None:
    with pytest.raises(OptionsError, match="'-c' would be taken for a flag"):
        preamble(Command(("-c", "x"), env={"A": "b"}))


def test_a_folder_named_dash_is_a_folder(far: Far) -> None:
    (far.folder / "home" / "-").mkdir()
    far.env["OLDPWD"] = "/usr"
    command = Command((far.agent,), cwd="-")
    child = subprocess.Popen(
        HERE.wrap(command).argv,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env=far.env,
        cwd=far.folder / "home",
    )
    out, _ = child.communicate(HERE.wrap(command).preamble, timeout=DEADLINE)
    assert json.loads(out)["cwd"] == str(far.folder / "home" / "-")


@pytest.mark.parametrize("runner", RUNNERS, ids=lambda runner: repr(runner)[:24])
def test_a_hermetic_run_gets_no_variable_of_the_other_machine_that_is_not_named(
    far: Far, runner: Runner
) -> None:
    far.env.update(
        SECRET="a b * ; $(id)",
        NODE_OPTIONS="--inspect",
        LINES="one\nexport PATH=/nowhere\nexport PPID\n",
        TRICK="export 1x export ; export PATH x",
        CLAUDE_CONFIG_DIR="/theirs",
        LC_ALL="C",
        NAMED="named",
        MY_OTHER="mine",
    )
    options = Options(
        cli_path=far.agent,
        runner=runner,
        isolation="hermetic",
        env={"OWN": "own"},
        env_policy=["NAMED", "MY_*"],
    )
    child = far.start(make_command(options, environ={}))
    env = report_of(child)["env"]
    child.communicate(timeout=DEADLINE)
    assert env["PATH"] == far.env["PATH"]
    assert {"NAMED": "named", "MY_OTHER": "mine", "OWN": "own", "LC_ALL": "C"}.items() <= env.items()
    assert env["CLAUDE_CONFIG_DIR"].startswith(str(far.folder / "tmp"))
    assert not {"SECRET", "KEPT", "NODE_OPTIONS", "LINES", "TRICK"} & env.keys()


@pytest.mark.parametrize("name", ["a|b) id;;", "x y", "*", "$(id)", ""])
def test_only_names_of_variables_can_be_kept(far: Far, name: str) -> None:
    command = Command((far.agent,), env={"A": "b"}, far_env=("PATH", name))
    env = report_of(far.start(HERE.wrap(command)))["env"]
    assert env["A"] == "b"
    assert ("KEPT" in env) == (name == "*")

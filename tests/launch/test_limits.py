"""How long a command line may be, on each system."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import Any

import pytest

from outrider.command import FOLDER, Command
from outrider.errors import CommandTooLong
from outrider.launch import Ssh, check_length, make_command
from outrider.launch._command import LINUX_ARGUMENT_LIMIT, POSIX_LIMIT, WINDOWS_LIMIT, Argument
from outrider.options import Options


def windows(length: int) -> Command:
    """A command whose line on Windows has this many characters."""
    return Command(("claude", "x" * (length - len("claude "))), env={})


@pytest.mark.requirement("C9")
def test_a_windows_command_line_may_be_as_long_as_the_limit() -> None:
    command = windows(WINDOWS_LIMIT)
    assert len(subprocess.list2cmdline(command.argv)) == WINDOWS_LIMIT
    check_length(command, platform="win32")


@pytest.mark.requirement("C9")
def test_one_character_more_is_refused_with_the_option_that_it_came_from() -> None:
    command = windows(WINDOWS_LIMIT + 1)
    arguments = [Argument(*each) for each in zip(command.argv, ("cli_path", "model"), strict=True)]
    with pytest.raises(CommandTooLong) as caught:
        check_length(command, arguments=arguments, platform="win32")
    assert (caught.value.option, caught.value.size, caught.value.limit) == ("model", 8192, 8191)


@pytest.mark.requirement("C9")
def test_quotes_count_on_windows() -> None:
    # Each becomes two characters, and the argument gets two around it.
    with pytest.raises(CommandTooLong):
        check_length(Command(("claude", '" ' * 3000), env={}), platform="win32")


@pytest.mark.requirement("C9")
@pytest.mark.parametrize("where", ["argv", "env"])
def test_linux_takes_an_argument_or_a_variable_up_to_the_limit(where: str) -> None:
    def command(size: int) -> Command:
        if where == "argv":
            return Command(("claude", "x" * (size - 1)), env={})
        return Command(("claude",), env={"LONG": "x" * (size - len("LONG=") - 1)})

    check_length(command(LINUX_ARGUMENT_LIMIT), platform="linux")
    with pytest.raises(CommandTooLong) as caught:
        check_length(command(LINUX_ARGUMENT_LIMIT + 1), platform="linux")
    assert caught.value.size == LINUX_ARGUMENT_LIMIT + 1
    assert caught.value.option == ("the command line" if where == "argv" else "env['LONG']")


@pytest.mark.requirement("C9")
def test_linux_counts_bytes_not_characters() -> None:
    with pytest.raises(CommandTooLong):
        check_length(Command(("claude", "é" * (LINUX_ARGUMENT_LIMIT // 2)), env={}), platform="linux")


@pytest.mark.requirement("C9")
def test_all_arguments_together_have_a_limit_too() -> None:
    argv = ("claude", *["x" * 100_000] * 11)
    with pytest.raises(CommandTooLong) as caught:
        check_length(Command(argv, env={}), platform="darwin")
    assert caught.value.limit == 1_048_576
    check_length(Command(argv[:10], env={}), platform="darwin")


@pytest.mark.requirement("C9")
def test_room_is_kept_for_the_path_of_the_private_folder() -> None:
    argument = f"--settings={FOLDER}/settings.json"
    padding = "x" * (WINDOWS_LIMIT - len("claude  ") - len(argument))
    with pytest.raises(CommandTooLong):
        check_length(Command(("claude", padding, argument), env={}), platform="win32")


def test_an_error_does_not_repeat_the_whole_command_line() -> None:
    with pytest.raises(CommandTooLong) as caught:
        check_length(Command(("claude", "x" * 200_000), env={}), platform="linux")
    assert len(str(caught.value)) < 2000


@pytest.mark.skipif(sys.platform != "linux", reason="asks the kernel of Linux")
@pytest.mark.requirement("C9")
@pytest.mark.parametrize("more", [0, 1])
def test_the_kernel_agrees(more: int) -> None:
    argv = ("/bin/true", "x" * (LINUX_ARGUMENT_LIMIT - 1 + more))
    try:
        subprocess.run(argv, check=True, env={})
        is_started = True
    except OSError:
        is_started = False
    try:
        check_length(Command(argv, env={}), platform="linux")
        is_allowed = True
    except CommandTooLong:
        is_allowed = False
    assert is_allowed is is_started is (more == 0)


@pytest.mark.skipif(not hasattr(os, "sysconf"), reason="asks the system")
def test_the_limit_for_all_is_that_of_this_system() -> None:
    limit = os.sysconf("SC_ARG_MAX")
    many = ("claude", *["x" * 100_000] * (limit // 100_000 + 1))
    with pytest.raises(CommandTooLong) as caught:
        check_length(Command(many, env={}), platform=sys.platform)
    assert caught.value.limit == limit


@pytest.mark.skipif(not hasattr(os, "sysconf"), reason="asks the system")
def test_a_system_that_does_not_know_its_limit_gets_the_usual_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sysconf", lambda name: -1)
    with pytest.raises(CommandTooLong) as caught:
        check_length(Command(("claude", *["x" * 100_000] * 30), env={}), platform=sys.platform)
    assert caught.value.limit in POSIX_LIMIT.values()


@pytest.mark.requirement("C9")
@pytest.mark.parametrize(
    "fields", [{"env": {"A": "x" * 200_000}}, {"model": "x" * 200_000}], ids=["env", "argv"]
)
def test_what_is_too_long_for_another_machine_is_refused_here(fields: dict[str, Any]) -> None:
    # On the way there it is not on a command line; there it would be.
    with pytest.raises(CommandTooLong) as caught:
        make_command(Options(runner=Ssh("host"), **fields), environ={})
    assert caught.value.option in ("env['A']", "model")

"""What is said when a process cannot be started, and that nothing is left then."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from outrider.command import FOLDER, Command, File, UserId
from outrider.errors import AgentNotFound, CommandTooLong, FolderNotFound, LaunchError, UserNotFound
from outrider.transports import ProcessTransport
from outrider.transports._process.spawn import explain
from tests.transports.conftest import child, own_processes

pytestmark = pytest.mark.anyio


def program(path: Path, text: str, mode: int = 0o755) -> str:
    path.write_text(text)
    path.chmod(mode)
    return str(path)


CASES: dict[str, tuple[Callable[[Path], Command], type[LaunchError], str]] = {
    "no such program": (lambda folder: Command((str(folder / "none"),)), AgentNotFound, "not found"),
    "no such program on PATH": (lambda _: Command(("no-such-program",)), AgentNotFound, "not found"),
    "a file as a folder": (lambda _: Command((f"{__file__}/claude",)), AgentNotFound, "not found"),
    "no such working folder": (
        lambda folder: Command((sys.executable,), cwd=str(folder / "none")),
        FolderNotFound,
        "does not exist",
    ),
    "working folder is a file": (
        lambda _: Command((sys.executable,), cwd=__file__),
        LaunchError,
        "is not a folder",
    ),
    "not executable": (
        lambda folder: Command((program(folder / "p", "#!/bin/sh\n", 0o644),)),
        LaunchError,
        "may not be run by this user",
    ),
    "a folder": (lambda folder: Command((str(folder),)), LaunchError, "is a folder"),
    "no interpreter": (
        lambda folder: Command((program(folder / "p", "#!/no/such/interpreter\n"),)),
        LaunchError,
        "not the interpreter",
    ),
    "wrong architecture": (
        lambda folder: Command((program(folder / "p", "\x7fELF is not enough"),)),
        LaunchError,
        "not in a form that this machine can run",
    ),
    "too long": (lambda _: Command((sys.executable, f"--text={'x' * 200_000}")), CommandTooLong, "--text"),
    "a NUL byte": (lambda _: Command((sys.executable, "a\0b")), LaunchError, "null byte"),
    "nothing at all": (lambda _: Command(()), LaunchError, "the command is empty"),
}


@pytest.mark.requirement("B4")
@pytest.mark.parametrize("case", CASES)
async def test_each_cause_has_its_own_error(case: str, tmp_path: Path) -> None:
    make, kind, text = CASES[case]
    command = make(tmp_path)
    transport = ProcessTransport(
        Command(command.argv, cwd=command.cwd, files=(File("secret", b"x"),), env=command.env)
    )
    with pytest.raises(LaunchError) as raised:
        await transport.connect()
    assert type(raised.value) is kind
    assert text in str(raised.value)
    assert raised.value.hint
    assert transport.pid is None
    await transport.close()


@pytest.mark.parametrize(
    "number, user, kind, text",
    [
        (errno.EAGAIN, None, LaunchError, "no room for another process"),
        (errno.ENOMEM, None, LaunchError, "no room for another process"),
        (errno.EMFILE, None, LaunchError, "no more files can be opened"),
        (errno.EPERM, UserId(7, 7), UserNotFound, "may not start others as user 7"),
        (errno.EIO, None, LaunchError, "cannot be started"),
    ],
)
def test_what_the_system_says_is_told_in_words(
    number: int, user: UserId | None, kind: type[LaunchError], text: str
) -> None:
    error = explain(OSError(number, os.strerror(number)), Command(("claude",), user=user))
    assert type(error) is kind
    assert text in str(error)


async def test_an_error_of_subprocess_itself_is_one_of_ours() -> None:
    error = explain(subprocess.SubprocessError("Exception occurred in preexec_fn."), Command(("claude",)))
    assert isinstance(error, LaunchError)


async def test_files_that_cannot_be_written_are_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", "/proc/none")
    transport = ProcessTransport(Command((sys.executable, FOLDER)))
    with pytest.raises(LaunchError, match="files that the program needs cannot be written"):
        await transport.connect()


async def test_a_file_outside_of_the_folder_cannot_be_asked_for() -> None:
    transport = ProcessTransport(Command((sys.executable,), files=(File("../outside", b""),)))
    with pytest.raises(LaunchError, match="outside"):
        await transport.connect()


async def test_when_no_thread_can_be_started_the_child_is_killed(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_: Any) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", refuse)
    transport = ProcessTransport(child("ignores_everything"))
    with pytest.raises(LaunchError, match="thread"):
        await transport.connect()
    assert own_processes() == []

"""Starts a process from a `Command`, and says in plain words why it could not be started.

Does not keep the process: whoever spawns it has to.
"""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from bridle.errors import AgentNotFound, CommandTooLong, FolderNotFound, LaunchError, UserNotFound

if TYPE_CHECKING:
    from collections.abc import Mapping

    from bridle.command import Command


class Spawned(NamedTuple):
    """A running process and our ends of its pipes."""

    process: subprocess.Popen[bytes]
    stdin: int
    stdout: int
    stderr: int


def spawn(command: Command, marker: tuple[str, str]) -> Spawned:
    """Start a process in a session of its own, with three pipes. Raises a `LaunchError`, and nothing is left
    open."""
    if not command.argv:
        raise LaunchError("the command is empty", hint="Its first argument is the program to start.")
    environment = dict(os.environ if command.env is None else command.env)
    environment[marker[0]] = marker[1]
    opened: list[int] = []
    try:
        for _ in range(3):
            opened += os.pipe()
        (in_child, stdin, stdout, out_child, stderr, err_child) = opened
        process = _start(command, environment, (in_child, out_child, err_child))
    except (OSError, ValueError, subprocess.SubprocessError) as error:
        for number in opened:
            os.close(number)
        raise explain(error, command) from error
    for number in (in_child, out_child, err_child):
        os.close(number)
    return Spawned(process, stdin, stdout, stderr)


def _start(
    command: Command, environment: Mapping[str, str], pipes: tuple[int, int, int]
) -> subprocess.Popen[bytes]:
    stdin, stdout, stderr = pipes
    user = command.user
    return subprocess.Popen(
        command.argv,
        stdin=stdin,
        stdout=stdout,
        stderr=stderr,
        cwd=command.cwd,
        env=environment,
        # Out of the terminal's reach: Ctrl-C is for the host, which then ends the child in order.
        start_new_session=True,
        user=None if user is None else user.uid,
        group=None if user is None else user.gid,
        extra_groups=None if user is None else user.groups,
    )


def explain(error: Exception, command: Command) -> LaunchError:
    """The error to raise for what the system said."""
    argv, program = command.argv, command.argv[0]
    number = error.errno if isinstance(error, OSError) else None
    about = os.fsdecode(error.filename) if isinstance(error, OSError) and error.filename else None
    if command.cwd is not None and about == command.cwd and about != program:
        return _explain_folder(error, command.cwd, argv)
    match number:
        case errno.ENOENT | errno.ENOTDIR if not Path(program).is_file() or Path(program).name == program:
            return AgentNotFound([program], argv=argv)
        case errno.ENOENT:
            message, hint = f"{program} is there, but not the interpreter that it names", _INTERPRETER
        case errno.EACCES if Path(program).is_dir():
            message, hint = f"{program} is a folder", "Give the path of the program in it."
        case errno.EACCES:
            message, hint = f"{program} may not be run by this user", f"Try `chmod +x {program}`."
        case errno.ENOEXEC:
            message, hint = f"{program} is not in a form that this machine can run", _ARCHITECTURE
        case errno.E2BIG:
            longest = max(argv, key=len)
            option = longest.partition("=")[0] if longest.startswith("--") else "an argument"
            return CommandTooLong(option, sum(map(len, argv)), os.sysconf("SC_ARG_MAX"), argv=argv[:1])
        case errno.EAGAIN | errno.ENOMEM:
            message, hint = f"the system has no room for another process: {error}", _PROCESSES
        case errno.EMFILE | errno.ENFILE:
            message, hint = (
                f"no more files can be opened: {error}",
                "Raise the limit (`ulimit -n`), or close some.",
            )
        case errno.EPERM if command.user is not None:
            message = f"this process may not start others as user {command.user.uid}"
            return UserNotFound(command.user.uid, message=message, argv=argv)
        case _:
            message, hint = f"{program} cannot be started: {error}", ""
    return LaunchError(message, argv=argv, hint=hint)


def _explain_folder(error: Exception, folder: str, argv: tuple[str, ...]) -> LaunchError:
    if isinstance(error, FileNotFoundError):
        return FolderNotFound(folder, argv=argv)
    reason = "is not a folder" if isinstance(error, NotADirectoryError) else f"cannot be entered: {error}"
    return LaunchError(f"the working folder {folder!r} {reason}", argv=argv, hint="Give another as `cwd`.")


_INTERPRETER = "Look at its first line, and install what it names."
_ARCHITECTURE = f"Install the build for {sys.platform}; a script must begin with `#!`."
_PROCESSES = "Raise the limit (`ulimit -u`, the container's pids limit), or run fewer at once."

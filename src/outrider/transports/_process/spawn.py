"""Starts a process from a `Command`, and says in plain words why it could not be started.

Does not own the process: the `Child` does, which `start` gives back.
"""

from __future__ import annotations

import contextlib
import errno
import os
import signal
import subprocess
import sys
from contextlib import ExitStack
from functools import cache, partial
from pathlib import Path
from threading import current_thread, main_thread
from typing import TYPE_CHECKING, Final, NamedTuple

from outrider.errors import AgentNotFound, CommandTooLong, FolderNotFound, LaunchError, UserNotFound
from outrider.transports._process.child import Child
from outrider.transports._process.folder import discard_folder, make_folder, remove_folder
from outrider.transports._process.pipes import InputClosed
from outrider.transports._process.processes import processes, put_tag
from outrider.transports._process.stderr import StderrLog
from outrider.transports._process.supervisor import supervisor

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from types import FrameType

    from outrider.command import Command
    from outrider.transports._process.child import ShutdownTimeouts


class Spawned(NamedTuple):
    """A running process and our ends of its pipes."""

    process: subprocess.Popen[bytes]
    stdin: int
    stdout: int
    stderr: int

    def discard(self) -> None:
        """It has no supervisor: kill it and close the pipes."""
        # Where SIGCHLD is ignored, it may be gone without a trace.
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        for number in (self.stdin, self.stdout, self.stderr):
            os.close(number)


def spawn(command: Command, marker: tuple[str, str], tag: int = 0) -> Spawned:
    """Start a process in a session of its own, with three pipes and two marks. Raises a `LaunchError`, and
    nothing is left open."""
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
        if tag:
            put_tag(process.pid, tag)
    except BaseException as error:
        # Also if it was interrupted: a process that is there all the same sees the end of its input.
        for number in opened:
            os.close(number)
        if isinstance(error, OSError | ValueError | subprocess.SubprocessError):
            raise explain(error, command) from error
        raise
    for number in (in_child, out_child, err_child):
        os.close(number)
    return Spawned(process, stdin, stdout, stderr)


def _start(
    command: Command, environment: Mapping[str, str], pipes: tuple[int, int, int]
) -> subprocess.Popen[bytes]:
    stdin, stdout, stderr = pipes
    user = command.user
    if user is not None and user.uid == os.geteuid() != 0:
        # To switch to oneself needs no right, but to set groups, even the same ones, does.
        user = None
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
            message, hint = f"{program} may not be run by this user", _RIGHTS.format(program)
        case errno.ENOEXEC:
            message, hint = f"{program} is not in a form that this machine can run", _ARCHITECTURE
        case errno.E2BIG:
            return _too_long(argv)
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


def _too_long(argv: tuple[str, ...]) -> CommandTooLong:
    longest = max(argv, key=len)
    option = longest.partition("=")[0] if longest.startswith("--") else "an argument"
    return CommandTooLong(option, sum(map(len, argv)), os.sysconf("SC_ARG_MAX"), argv=argv[:1])


def _explain_folder(error: Exception, folder: str, argv: tuple[str, ...]) -> LaunchError:
    if isinstance(error, FileNotFoundError):
        return FolderNotFound(folder, argv=argv)
    reason = "is not a folder" if isinstance(error, NotADirectoryError) else f"cannot be entered: {error}"
    return LaunchError(f"the working folder {folder!r} {reason}", argv=argv, hint="Give another as `cwd`.")


_INTERPRETER = "Look at its first line, and install what it names."
_ARCHITECTURE = f"Install the build for {sys.platform}; a script must begin with `#!`."
_RIGHTS = "Try `chmod +x {}`."
_PROCESSES = "Raise the limit (`ulimit -u`, the container's pids limit), or run fewer at once."


_SIGNALS: Final = tuple(
    getattr(signal, name)
    for name in (
        "SIGINT",
        "SIGTERM",
        "SIGHUP",
        "SIGQUIT",
        "SIGUSR1",
        "SIGUSR2",
        "SIGALRM",
        "SIGCHLD",
        "SIGXCPU",
    )
    if hasattr(signal, name)
)
"""Those that programs have handlers for. To look at all that there are takes a tenth of a millisecond."""


def start(command: Command, stderr: Callable[[str], object] | None, timeouts: ShutdownTimeouts) -> Child:
    """Start the process and have it supervised. Raises a `LaunchError`, and no process and no file is left
    behind."""
    if not (hasattr(os, "waitid") or processes().can_be_searched):
        # The exit of a process could not be noticed without its number being free for others.
        raise LaunchError(
            "this system needs psutil", argv=command.argv, hint="Install it: pip install psutil"
        )
    owner = supervisor()
    owner.watchdog.start()
    number = owner.next_number()
    folder: Path | None = None
    placed = command
    spawned: Spawned | None = None
    try:
        owner.open()
        if command.needs_folder:
            folder = make_folder(command, partial(owner.watchdog.expect, number))
            placed = command.placed(str(folder))
        spawned = spawn(placed, owner.marker(number), owner.tag(number))
        log = StderrLog(stderr, cache(lambda: command.redaction(os.environ)))
        child = Child(spawned, command, number, supervisor=owner, stderr=log, timeouts=timeouts)
        if folder is not None:
            child.cleanups.append(partial(remove_folder, folder))
    except BaseException as error:
        if spawned is not None:
            spawned.discard()
        if folder is not None:
            discard_folder(folder, command)
        owner.watchdog.release(number)
        if isinstance(error, OSError):
            raise explain(error, placed) from error
        raise
    try:
        owner.take(child, None if folder is None else str(folder))
        if command.preamble:
            child.input.put(command.preamble)
    except InputClosed:  # it has ended already; the reader gets the reason
        pass
    except BaseException as error:
        child.end(kill=True)
        if isinstance(error, OSError):
            raise explain(error, placed) from error
        raise
    return child


def run_uninterrupted(function: Callable[[], None]) -> None:
    """Call a function that no signal interrupts; their handlers are called afterwards.

    A handler may raise between any two steps in the main thread, as that of Ctrl-C does on trio, and a
    process that has been started and is not yet known to anybody would be left. (To start it in another
    thread would be safe too, and took three times as long on a busy machine.)
    """
    if current_thread() is not main_thread():
        function()
        return
    handlers = {each: handler for each in _SIGNALS if callable(handler := signal.getsignal(each))}
    received: dict[int, FrameType | None] = {}
    with ExitStack() as stack:
        # The last that is put here is called first, and one that raises does not keep the others from it.
        # They are called, not sent again: an event loop that listens for signals has seen these.
        for each, handler in handlers.items():
            stack.callback(_deliver, each, handler, received)
        for each, handler in handlers.items():
            stack.callback(signal.signal, each, handler)
            signal.signal(each, received.__setitem__)
        function()


def _deliver(
    number: int, handler: Callable[[int, FrameType | None], object], received: dict[int, FrameType | None]
) -> None:
    if number in received:
        handler(number, received[number])

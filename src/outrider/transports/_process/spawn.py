"""Starts a process from a `Command`, and says in plain words why it could not be started.

Does not keep the process: whoever spawns it has to.
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

from outrider.command import is_batch_file
from outrider.errors import AgentNotFound, CommandTooLong, FolderNotFound, LaunchError, UserNotFound
from outrider.transports._process.folder import discard_folder, make_folder
from outrider.transports._process.pipes import InputClosed
from outrider.transports._process.stderr import StderrLog
from outrider.transports._process.watchdog import host

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from types import FrameType

    from outrider.command import Command
    from outrider.transports._process.supervisor import Keeper, Patience


if sys.platform != "win32":
    from outrider.transports._process.processes import put_tag


_CREATION_FLAGS: Final = 0x08000000 | 0x00000004
"""CREATE_NO_WINDOW: no console of ours, so no Ctrl-C either. CREATE_SUSPENDED: until it is in its job."""
_FOLDER_INVALID, _LINE_TOO_LONG = 267, 206
"""What Windows says of a working folder, and of a command line; the error numbers alone mean other things."""
_LINE_LIMIT: Final = 32767
"""Characters that Windows takes in a command line."""


class Spawned(NamedTuple):
    """A running process and our ends of its pipes."""

    process: subprocess.Popen[bytes]
    stdin: int
    stdout: int
    stderr: int

    def discard(self) -> None:
        """Nobody can keep it: kill it and close the pipes."""
        if sys.platform == "win32":
            self.process.kill()
        else:
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
    if sys.platform == "win32":
        check_for_windows(command)
    environment = dict(os.environ if command.env is None else command.env)
    environment[marker[0]] = marker[1]
    opened: list[int] = []
    try:
        for _ in range(3):
            opened += os.pipe()
        (in_child, stdin, stdout, out_child, stderr, err_child) = opened
        process = _start(command, environment, (in_child, out_child, err_child))
        if tag and sys.platform != "win32":
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


def check_for_windows(command: Command) -> None:
    """Raise a `LaunchError` for what cannot, or must not, be started there."""
    if is_batch_file(command.argv[0]):
        message = f"{command.argv[0]} is a batch file; cmd.exe would take parts of its arguments for commands"
        raise LaunchError(message, argv=command.argv, hint="Give the program that it starts, an .exe file.")
    if command.user is not None:
        message = "on Windows a program cannot be started as another user"
        raise UserNotFound(command.user.uid, message=message, argv=command.argv)


def _start(
    command: Command, environment: Mapping[str, str], pipes: tuple[int, int, int]
) -> subprocess.Popen[bytes]:
    stdin, stdout, stderr = pipes
    if sys.platform == "win32":
        return subprocess.Popen(
            command.argv,
            stdin=stdin,
            stdout=stdout,
            stderr=stderr,
            cwd=command.cwd,
            env=environment,
            creationflags=_CREATION_FLAGS,
        )
    else:
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
    windows: object = getattr(error, "winerror", None)
    if command.cwd is not None and (
        windows == _FOLDER_INVALID or (about == command.cwd and about != program)
    ):
        return _explain_folder(error, command.cwd, argv)
    if windows == _LINE_TOO_LONG:
        return _too_long(argv, _LINE_LIMIT)
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
            return _too_long(argv, _arguments_limit())
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


def _too_long(argv: tuple[str, ...], limit: int) -> CommandTooLong:
    longest = max(argv, key=len)
    option = longest.partition("=")[0] if longest.startswith("--") else "an argument"
    return CommandTooLong(option, sum(map(len, argv)), limit, argv=argv[:1])


def _arguments_limit() -> int:
    if sys.platform == "win32":
        return _LINE_LIMIT
    else:
        return os.sysconf("SC_ARG_MAX")


def _explain_folder(error: Exception, folder: str, argv: tuple[str, ...]) -> LaunchError:
    # Windows says that it is no folder also of what is not there.
    if isinstance(error, FileNotFoundError) or (hasattr(error, "winerror") and not Path(folder).exists()):
        return FolderNotFound(folder, argv=argv)
    reason = "is not a folder" if isinstance(error, NotADirectoryError) else f"cannot be entered: {error}"
    return LaunchError(f"the working folder {folder!r} {reason}", argv=argv, hint="Give another as `cwd`.")


_INTERPRETER = "Look at its first line, and install what it names."
_ARCHITECTURE = f"Install the build for {sys.platform}; a script must begin with `#!`."
_RIGHTS = (
    "Look at its permissions, and at what may keep it from running (AppLocker, a virus scanner)."
    if sys.platform == "win32"
    else "Try `chmod +x {}`."
)
_PROCESSES = "Raise the limit (`ulimit -u`, the container's pids limit), or run fewer at once."


if sys.platform == "win32":
    from outrider.transports._process.windows import JobKeeper as SystemKeeper
else:
    from outrider.transports._process.polling import PollingKeeper as SystemKeeper


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


def start(command: Command, stderr: Callable[[str], object] | None, patience: Patience) -> Keeper:
    """Start the process and its keeper. Raises a `LaunchError`, and nothing is left running and no file is
    left behind."""
    owner = host()
    owner.warden.start()
    number = owner.next_number()
    folder: Path | None = None
    placed = command
    spawned: Spawned | None = None
    try:
        if command.needs_folder:
            folder = make_folder(command, partial(owner.warden.expect, number))
            placed = command.placed(str(folder))
        spawned = spawn(placed, owner.marker(number), owner.tag(number))
        log = StderrLog(stderr, cache(lambda: command.redaction(os.environ)))
        keeper = SystemKeeper(spawned, command, number, stderr=log, patience=patience, folder=folder)
    except BaseException as error:
        if spawned is not None:
            spawned.discard()
        if folder is not None:
            discard_folder(folder, command)
        owner.warden.release(number)
        if isinstance(error, OSError):
            raise explain(error, placed) from error
        raise
    try:
        keeper.start()
        if command.preamble:
            keeper.input.put(command.preamble)
    except InputClosed:  # it has ended already; whoever reads is told why
        pass
    except BaseException:
        keeper.end(kill=True)
        raise
    return keeper


def run_uninterrupted(function: Callable[[], None]) -> None:
    """Call a function that no signal breaks into; they are heard afterwards.

    A handler may raise between any two steps in the main thread, as that of Ctrl-C does on trio, and a
    process that has been started and is not yet known to anybody would be left. (To start it in another
    thread would be safe too, and took three times as long on a busy machine.)
    """
    if current_thread() is not main_thread():
        function()
        return
    handlers = {each: handler for each in _SIGNALS if callable(handler := signal.getsignal(each))}
    heard: dict[int, FrameType | None] = {}
    with ExitStack() as stack:
        # The last that is put here is called first, and one that raises does not keep the others from it.
        # They are called, not sent again: an event loop that is told of signals has been told of these.
        for each, handler in handlers.items():
            stack.callback(_hear, each, handler, heard)
        for each, handler in handlers.items():
            stack.callback(signal.signal, each, handler)
            signal.signal(each, heard.__setitem__)
        function()


def _hear(
    number: int, handler: Callable[[int, FrameType | None], object], heard: dict[int, FrameType | None]
) -> None:
    if number in heard:
        handler(number, heard[number])

"""Starts a process from a `Command`, with its private folder, and explains in plain words why it failed.

The folder is made before the process starts, is readable by its user alone, and is removed when it has ended,
or by the watchdog, or by the next host that is started. Does not own the process: the `Child` does, which
`start` returns."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import logging
import os
import signal
import subprocess
import sys
from contextlib import ExitStack
from functools import cache, partial
from pathlib import Path
from threading import current_thread, main_thread
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from outrider.errors import AgentNotFound, CommandTooLong, FolderNotFound, LaunchError, UserNotFound
from outrider.transports._process.child import Child, StderrLog
from outrider.transports._process.pipes import InputClosed
from outrider.transports._process.processes import processes, put_tag
from outrider.transports._process.removal import lock, new_name, remove_tree
from outrider.transports._process.supervisor import supervisor

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from types import FrameType

    from outrider.command import Command, UserId
    from outrider.transports._process.child import ShutdownTimeouts


log = logging.getLogger("outrider.process")

_ATTEMPTS: Final = 3
"""A process that is just ending may still write into the folder while it is being removed."""

_SECONDS: Final = 10.0
"""Seconds for an attempt; what it leaves is removed when the next host is started."""
_NAMES: Final = 10
"""How many random names are tried for a folder."""

_locks: Final[dict[Path, int]] = {}
"""Descriptors that show other hosts that a folder is in use. They are closed with this process, however it
ends."""


def make_folder(command: Command, expect: Callable[[str], object]) -> Path:
    """Make the folder with the command's files in it. Raises `LaunchError`, and leaves nothing behind.

    `expect` gets its path before it is there, for when this process is killed the next moment.
    """
    for name in (*command.folders, *(file.name for file in command.files)):
        if Path(name).is_absolute() or ".." in Path(name).parts:
            raise LaunchError(f"{name!r} is outside of the private folder", hint="Give a path inside of it.")
    folder: Path | None = None
    try:
        folder = _make_locked(expect)
        for name in command.folders:
            _make_path(folder, Path(name), command.user)
        for file in command.files:
            inner = Path(file.name)
            path = _make_path(folder, inner.parent, command.user) / inner.name
            path.touch(mode=0o600, exist_ok=False)
            path.write_bytes(file.content)
            _give(path, command.user)
        _give(folder, command.user)
    except OSError as error:
        if folder is not None:
            discard_folder(folder, command)
        raise LaunchError(
            f"the files that the program needs cannot be written: {error}",
            argv=command.argv,
            hint="Make room in the temporary folder, or set TMPDIR to one that can be written.",
        ) from error
    return folder


def discard_folder(folder: Path, command: Command) -> None:
    """Remove what `make_folder` has made, if the program was not started. Needs no descriptor: that none is
    left may be the reason for the failure."""
    _unlock(folder)
    names = [Path(name) for name in (*command.folders, *(file.name for file in command.files), ".")]
    paths = {folder / path for name in names for path in (name, *name.parents)}
    for path in sorted(paths, key=lambda path: len(path.parts), reverse=True):
        with contextlib.suppress(OSError):
            path.rmdir() if path.is_dir() else path.unlink()
    remove_folder(folder)


def remove_folder(folder: Path) -> None:
    """Remove it with all that is in it. A failure is logged, never raised."""
    for _ in range(_ATTEMPTS):
        remove_tree(str(folder), _SECONDS)
        if not os.path.lexists(folder):
            break
    else:
        log.warning("the private folder %s could not be removed", folder)
    _unlock(folder)


def _make_locked(expect: Callable[[str], object]) -> Path:
    """A new folder that other hosts do not mistake for an abandoned one."""
    # Here: it is large, and few commands need a folder.
    from tempfile import gettempdir

    for _ in range(_NAMES):
        folder = Path(gettempdir(), new_name())
        expect(str(folder))
        folder.mkdir(mode=0o700)
        try:
            _locks[folder] = lock(str(folder))
        except FileNotFoundError:
            continue
        except BaseException:
            folder.rmdir()
            raise
        return folder
    raise FileNotFoundError(f"every folder made in {gettempdir()} is taken away at once")


def _unlock(folder: Path) -> None:
    if (number := _locks.pop(folder, None)) is not None:
        # A process that is just being forked may hold a copy, and the lock with it.
        fcntl.flock(number, fcntl.LOCK_UN)
        os.close(number)


def _forget() -> None:
    """Close the descriptors in a forked process: the folders, and their locks, belong to the parent."""
    for number in _locks.values():
        os.close(number)
    _locks.clear()


os.register_at_fork(after_in_child=_forget)


def _make_path(folder: Path, name: Path, user: UserId | None) -> Path:
    path = folder
    for part in name.parts:
        path /= part
        if not path.is_dir():
            path.mkdir(mode=0o700)
            _give(path, user)
    return path


def _give(path: Path, user: UserId | None) -> None:
    if user is not None:
        os.chown(path, user.uid, user.gid)


class Spawned(NamedTuple):
    """A running process and our ends of its pipes."""

    process: subprocess.Popen[bytes]
    stdin: int
    stdout: int
    stderr: int

    def discard(self) -> None:
        """Kill it and close the pipes, as it has no supervisor."""
        # If SIGCHLD is ignored, it may be gone already.
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
        # Even if it was interrupted: a process that was started anyway sees the end of its input.
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
        # Switching to oneself needs no privilege, but setting groups does, even the same ones.
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
    """The error to raise for an error of the system."""
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
    getattr(signal, f"SIG{name}")
    for name in ("INT", "TERM", "HUP", "QUIT", "USR1", "USR2", "ALRM", "CHLD", "XCPU")
    if hasattr(signal, f"SIG{name}")
)
"""Signals that programs have handlers for. Checking all signals would take a tenth of a millisecond."""

_handlers: Final[Any] = sys.modules.get("_signal", signal)
"""Gets and sets handlers as they are. `signal` itself looks for an enum of each first, and there is none: its
error has the text of the handler, which takes longer than the rest."""


def start(command: Command, stderr: Callable[[str], object] | None, timeouts: ShutdownTimeouts) -> Child:
    """Start the process under the supervisor. Raises a `LaunchError`, and leaves no process and no file
    behind."""
    if not (hasattr(os, "waitid") or processes().can_be_searched):
        # The number of an exited process would be free for others before its exit is noticed.
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
        stderr_log = StderrLog(stderr, cache(lambda: command.redaction(os.environ)))
        child = Child(spawned, command, number, supervisor=owner, stderr=stderr_log, timeouts=timeouts)
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
    """Call a function without interruption by signals; their handlers are called afterwards.

    A handler may raise between any two steps in the main thread, as that of Ctrl-C does on trio, and a
    process that has been started and is not yet known to anyone would be left. (To start it in another
    thread would be safe too, and took three times as long on a busy machine.)
    """
    if current_thread() is not main_thread():
        function()
        return
    handlers = {each: handler for each in _SIGNALS if callable(handler := _handlers.getsignal(each))}
    received: dict[int, FrameType | None] = {}
    with ExitStack() as stack:
        # Callbacks run in reverse order, even if one raises. Handlers are called, and signals not sent again:
        # an event loop that listens for signals has seen them already.
        for each, handler in handlers.items():
            stack.callback(_deliver, each, handler, received)
        for each, handler in handlers.items():
            stack.callback(_handlers.signal, each, handler)
            _handlers.signal(each, received.__setitem__)
        function()


def _deliver(
    number: int, handler: Callable[[int, FrameType | None], object], received: dict[int, FrameType | None]
) -> None:
    if number in received:
        handler(number, received[number])

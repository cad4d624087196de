"""Owns the commands that the simulated agent runs: each in a process group of its own, none outlives the run.

Does not know tools or tasks: only commands, their output and their end.
"""

from __future__ import annotations

import os
import shlex
import shutil
import signal
import subprocess
import tempfile
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Final

import anyio

from outrider.testing._simulator._tool_results import WentWrong

if TYPE_CHECKING:
    from anyio.abc import Process, TaskGroup

__all__ = ["Shell", "Shells"]

_MARK: Final = "OUTRIDER_SIMULATED_COMMAND"
_BY_SIGNAL: Final[dict[int, int]] = {signal.SIGTERM: 144}
"""The exit codes of commands that a signal ended, as the program tells them; 1 for the others."""


class Shell:
    """A command that was started."""

    def __init__(self, process: Process, output: Path, follows: Path) -> None:
        self._process = process
        self._follows = follows
        self.output = output
        """Where both of its streams go."""
        self.ended = anyio.Event()
        self.code: int = 0
        """Its exit code, as the program tells it; 0 until it has ended."""
        self.cwd: Path | None = None
        """Where it went, if it succeeded."""
        self.group = process.pid

    async def run(self) -> None:
        """Wait for the end. Cancelled, it kills the whole group."""
        try:
            code = await self._process.wait()
        except BaseException:
            with anyio.CancelScope(shield=True):
                self.kill()
                await self._process.wait()
            self._conclude(1)
            raise
        # What the program says of a command that was killed.
        self._conclude(code if code >= 0 else _BY_SIGNAL.get(-code, 1))

    def _conclude(self, code: int) -> None:
        self.code = code
        try:
            if where := self._follows.read_text(encoding="utf-8", errors="surrogateescape").rstrip("\n"):
                self.cwd = Path(where)
        except OSError:
            pass
        self._follows.unlink(missing_ok=True)
        self.ended.set()

    def kill(self) -> None:
        """End all processes of its group, now."""
        if not self.ended.is_set():
            _kill_group(self.group)

    def text(self) -> str:
        """What it has written so far."""
        return self.raw().decode("utf-8", "replace")

    def raw(self) -> bytes:
        try:
            return self.output.read_bytes()
        except OSError:
            return b""


class Shells:
    """The commands of one run."""

    def __init__(self, tasks: TaskGroup, environment: Mapping[str, str]) -> None:
        self._tasks = tasks
        self._mark = uuid.uuid4().hex
        self._environment = {**environment, _MARK: self._mark}
        self._running: set[Shell] = set()
        self._groups: set[int] = set()
        """Of commands that ended and left something running."""

    async def start(self, command: str, *, cwd: Path, output: Path, extra: Mapping[str, str]) -> Shell:
        """Start a command with both of its streams in a file, which is made.

        Raises `WentWrong` if there is no shell, or no such folder.
        """
        program = _find_bash()
        follows = _make_place(output)
        name = str(follows)
        # Where the command went is told only if it succeeded, as in the program.
        script = f"eval {shlex.quote(command)} < /dev/null && pwd -P >| {shlex.quote(name)}"
        environment = {**self._environment, **extra, "SHELL": program, "PWD": str(cwd)}
        number = os.open(output, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        try:
            with os.fdopen(number, "wb") as file:
                process = await anyio.open_process(
                    [program, "-c", script],
                    stdin=subprocess.DEVNULL,
                    stdout=file,
                    stderr=file,
                    cwd=cwd,
                    env=environment,
                    start_new_session=True,
                )
        except OSError as error:
            follows.unlink(missing_ok=True)
            if isinstance(error, FileNotFoundError):
                raise WentWrong(
                    f'Working directory "{cwd}" no longer exists, so shell commands cannot run until it is '
                    "restored."
                ) from error
            raise WentWrong(f"The shell could not be started in {cwd}: {error}") from error
        shell = Shell(process, output, follows)
        self._running.add(shell)
        self._tasks.start_soon(self._watch, shell)
        return shell

    async def _watch(self, shell: Shell) -> None:
        try:
            await shell.run()
        finally:
            self._running.discard(shell)
            if _has_members(shell.group):
                self._groups.add(shell.group)

    async def end_all(self) -> None:
        """Kill all that runs, and what commands have left behind."""
        with anyio.CancelScope(shield=True):
            for shell in tuple(self._running):
                shell.kill()
            for shell in tuple(self._running):
                await shell.ended.wait()
            self.sweep()

    def sweep(self) -> None:
        """Kill what commands that have ended left behind."""
        groups, self._groups = self._groups, set()
        found = _marked(f"{_MARK}={self._mark}".encode())
        if found is None:
            for group in groups:
                _kill_group(group)
            return
        for pid in found:
            try:
                os.kill(pid, signal.SIGKILL)
            except (ProcessLookupError, PermissionError):
                pass


def _find_bash() -> str:
    if not hasattr(os, "killpg"):
        raise WentWrong("The simulated agent runs commands only where processes have groups: not on Windows.")
    program = "/bin/bash" if Path("/bin/bash").exists() else shutil.which("bash")
    if program is None:
        raise WentWrong("There is no bash on this machine, which the tool Bash needs.")
    return program


def _make_place(output: Path) -> Path:
    """A file for the folder that a command goes to, beside its output."""
    output.parent.mkdir(parents=True, exist_ok=True)
    number, name = tempfile.mkstemp(prefix="cwd-", dir=output.parent)
    os.close(number)
    return Path(name)


def _kill_group(group: int) -> None:
    try:
        os.killpg(group, signal.SIGKILL)
    except (ProcessLookupError, PermissionError):  # the last: macOS, when only zombies are left
        pass


def _has_members(group: int) -> bool:
    try:
        os.killpg(group, 0)
    except (ProcessLookupError, PermissionError):
        return False
    return True


def _marked(mark: bytes) -> list[int] | None:
    """The processes with this variable; none where processes cannot be looked at.

    A group's number may belong to others by now; a variable that nobody else has does not.
    """
    if not Path("/proc/self/environ").exists():
        return None
    found: list[int] = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                if mark in (entry / "environ").read_bytes().split(b"\0"):
                    found.append(int(entry.name))
            except OSError:
                pass
    return found

"""Owns the tool `Bash` of the simulated agent: commands really run, with the program's words for their end.

Commands that go on in the background are in `background`.
"""

from __future__ import annotations

import os
import re
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

from outrider.testing._simulator.world import Outcome, ToolCall, WentWrong
from outrider.wire import JsonObject

if TYPE_CHECKING:
    from anyio.abc import Process, TaskGroup

    from outrider.testing._simulator.tools.background import Background, ShellTask
    from outrider.testing._simulator.world import Surroundings

__all__ = ["Bash", "Shell", "Shells"]


_USUAL_LIMIT: Final = 120_000
_HIGHEST_LIMIT: Final = 600_000
_BACKGROUND_LIMIT: Final = 1_800_000
_HIGHEST_BACKGROUND_LIMIT: Final = 7_200_000
_ANNOUNCED_AFTER: Final = 3.0
_MOST_TEXT: Final = 30_000

_SILENT: Final = frozenset(
    ["mv", "cp", "rm", "mkdir", "rmdir", "chmod", "chown", "chgrp", "touch", "ln", "cd", "export", "unset"]
)


class Bash:
    """Runs commands, one after the other in the folder that the last one went to."""

    def __init__(self, run: Surroundings, background: Background) -> None:
        self._run = run
        self._background = background
        self._cwd: Path | None = None

    @property
    def cwd(self) -> Path:
        """Where the next command runs, and what paths count from."""
        return self._cwd if self._cwd is not None and self._cwd.is_dir() else self._run.cwd

    async def perform(self, call: ToolCall, given: JsonObject) -> Outcome:
        command: str = given["command"]
        description: str = given.get("description") or command
        cwd = self.cwd
        timeout = given.get("timeout")
        if given.get("run_in_background"):
            limit = _within(timeout, _BACKGROUND_LIMIT, _HIGHEST_BACKGROUND_LIMIT)
            task_id = await self._background.start_shell(
                call, command, description, cwd=cwd, limit=limit / 1000
            )
            return self._in_background(task_id)
        task = await self._background.open_shell(call, command, description, cwd=cwd, is_backgrounded=False)
        limit = _within(timeout, _USUAL_LIMIT, _HIGHEST_LIMIT)
        try:
            has_ended = await self._wait(task, limit / 1000)
        except BaseException:
            if not task.is_backgrounded:
                await self._background.kill_foreground(task)
            raise
        if has_ended:
            # A subagent is back where it was after each command.
            return self._ended(task, follows=call.agent_id is None)
        if task.is_backgrounded:
            return self._moved_by_user(task)
        seconds = _duration(-(-limit // 1000))
        self._background.move(task, _BACKGROUND_LIMIT / 1000)
        reason = f"Command did not complete within its {seconds} timeout and was moved to the background"
        return self._out_of_time(task, reason, limit)

    async def _wait(self, task: ShellTask, limit: float) -> bool:
        """Whether it ended before the limit, and before somebody moved it to the background."""
        ended = task.shell.ended
        with anyio.move_on_after(limit):
            with anyio.move_on_after(_ANNOUNCED_AFTER):
                await ended.wait()
                return True
            self._background.announce(task)
            async with anyio.create_task_group() as group:
                group.start_soon(_either, ended, task.moved, group.cancel_scope)
                group.start_soon(_either, task.moved, ended, group.cancel_scope)
        return ended.is_set() and not task.is_backgrounded

    def _ended(self, task: ShellTask, *, follows: bool) -> Outcome:
        shell = task.shell
        raw = shell.raw()
        self._background.end_foreground(task)
        text = _text(raw.decode("utf-8", "replace"))
        if shell.code:
            raise WentWrong(_shortened(f"Exit code {shell.code}\n{text}".removesuffix("\n")))
        note = self._follow(shell.cwd) if follows else ""
        detail: JsonObject = {
            "stdout": _shortened(text),
            "stderr": note,
            "interrupted": False,
            "isImage": False,
            "noOutputExpected": all(word in _SILENT for word in _words(task.command)),
        }
        content = "\n".join(part for part in (_shortened(text), note.strip()) if part)
        return Outcome(content=content or "(Bash completed with no output)", detail=detail)

    def _follow(self, cwd: Path | None) -> str:
        """Go where the command went, unless that is outside: then it says that it does not."""
        if cwd is None:
            return ""
        allowed = [self._run.cwd, *(self._run.cwd / given for given in self._run.invocation.add_dirs)]
        if any(cwd.is_relative_to(folder.resolve()) for folder in allowed):
            self._cwd = cwd
            return ""
        self._cwd = None
        return f"\nShell cwd was reset to {self._run.cwd}"

    def _in_background(self, task_id: str) -> Outcome:
        content = (
            f"Command running in background with ID: {task_id}. Output is being written to: "
            f"{self._background.output_file(task_id)}. You will be notified when it completes. "
            "To check interim output, use Read on that file path."
        )
        return Outcome(content=content, detail=_detail("", task_id))

    def _moved_by_user(self, task: ShellTask) -> Outcome:
        content = (
            f"Command was manually backgrounded by user with ID: {task.id}. Output is being written to: "
            f"{task.shell.output}. If it is still running after 30m in the background, it will be stopped "
            "and you will be notified."
        )
        return Outcome(content=content, detail={**_detail("", task.id), "backgroundedByUser": True})

    def _out_of_time(self, task: ShellTask, reason: str, limit: float) -> Outcome:
        text = _text(task.shell.text())
        content = (
            f"{reason} (ID: {task.id}). Output is being written to: {task.shell.output}. You will be "
            "notified when it completes. If it is still running after 30m in the background, it will be "
            "stopped and you will be notified. It is running now: do not start a second copy while it runs. "
            "If it is no longer needed, stop it with TaskStop. To check interim output, use Read on that "
            "file path."
        )
        detail = {**_detail(text, task.id), "timedOutAfterMs": limit}
        return Outcome(content=f"{text}\n{content}" if text else content, detail=detail)


async def _either(event: anyio.Event, other: anyio.Event, scope: anyio.CancelScope) -> None:
    if not other.is_set():
        await event.wait()
    scope.cancel()


def _detail(text: str, task_id: str) -> JsonObject:
    return {
        "stdout": text,
        "stderr": "",
        "interrupted": False,
        "isImage": False,
        "noOutputExpected": False,
        "backgroundTaskId": task_id,
    }


def _within(given: object, usual: int, highest: int) -> int | float:
    return min(given, highest) if isinstance(given, (int, float)) and given > 0 else usual


def _shortened(text: str) -> str:
    if len(text) <= _MOST_TEXT:
        return text
    half = _MOST_TEXT // 2
    return f"{text[:half]}\n\n... [{len(text) - _MOST_TEXT} characters truncated] ...\n\n{text[-half:]}"


def _text(output: str) -> str:
    """Output without blank lines before it and white space behind it."""
    return re.sub(r"\A(?:[^\S\n]*\n)+", "", output).rstrip()


def _words(command: str) -> list[str]:
    """The names of the commands in it, as far as they can be told without being a shell."""
    parts = re.split(r"\|\||&&|[;|&\n]", command)
    return [part.split()[0] for part in parts if part.split()] or [""]


def _duration(seconds: float) -> str:
    whole = int(seconds)
    if whole < 60:
        return f"{whole}s"
    minutes, rest = divmod(whole, 60)
    return f"{minutes}m {rest}s" if rest else f"{minutes}m"


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

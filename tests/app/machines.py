"""A machine on which the agent is installed, and the `outrider` command on it, piped and at a terminal.

The model is a script. Nothing of the machine that runs the tests is seen.
"""

from __future__ import annotations

import os
import select
import subprocess
import sys
from collections.abc import Generator, Iterable, Mapping
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Literal, NamedTuple, Self, TypeAlias

import pexpect
import pyte

from outrider.testing import RealAgent, Request, Simulator, clean_environment
from tests.real_program import require_program

Kind: TypeAlias = Literal["simulated", "real"]
KINDS: tuple[Kind, ...] = ("simulated", "real")

ROOT = Path(__file__).parents[2]
COMMAND = (sys.executable, "-m", "outrider.app")
DEADLINE = 45
"""Seconds for anything to be seen. The whole test has a deadline of its own."""

# What the machine of the tests might say about its terminal.
_OF_TERMINALS = (
    "COLUMNS",
    "FORCE_COLOR",
    "LINES",
    "NO_COLOR",
    "PYTHONIOENCODING",
    "TTY_COMPATIBLE",
    "TTY_INTERACTIVE",
)


class Done(NamedTuple):
    """What a command came to."""

    code: int
    out: str
    err: str


def run(
    *arguments: str,
    stdin: str | None = None,
    environment: Mapping[str, str] | None = None,
    cwd: Path | None = None,
) -> Done:
    """Run the command with pipes."""
    done = subprocess.run(
        [*COMMAND, *arguments],
        input=stdin,
        stdin=subprocess.DEVNULL if stdin is None else None,
        capture_output=True,
        encoding="utf-8",
        env=clean(environment),
        cwd=cwd,
        timeout=DEADLINE,
        check=False,
    )
    return Done(done.returncode, done.stdout, done.stderr)


def clean(environment: Mapping[str, str] | None = None) -> dict[str, str]:
    """An environment with no wishes about terminals."""
    kept = {name: value for name, value in os.environ.items() if name not in _OF_TERMINALS}
    return {**kept, "LC_ALL": "C.UTF-8", "TERM": "xterm-256color", **(environment or {})}


class Screen:
    """The command at a terminal, and what is to be seen there."""

    def __init__(
        self,
        *arguments: str,
        environment: Mapping[str, str] | None = None,
        cwd: Path | None = None,
        size: tuple[int, int] = (24, 80),
    ) -> None:
        rows, columns = size
        self._screen = pyte.HistoryScreen(columns, rows, history=5000)
        self._stream = pyte.ByteStream(self._screen)
        self.raw = b""
        """All that was written to the terminal."""
        self.child = pexpect.spawn(
            COMMAND[0],
            [*COMMAND[1:], *arguments],
            env=clean(environment),
            cwd=None if cwd is None else str(cwd),
            dimensions=size,
            timeout=DEADLINE,
        )
        self.child.logfile_read = self

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.child.close(force=True)

    # As a file, for pexpect.

    def write(self, data: bytes) -> None:
        self.raw += data
        self._stream.feed(data)

    def flush(self) -> None:
        pass

    def see(self, text: str) -> None:
        """Wait until this is written."""
        self.child.expect_exact(text.encode())

    def press(self, keys: str) -> None:
        self.child.send(keys)

    def end(self) -> int:
        """Wait for the end; gives the exit code, or what a shell gives for a signal, by which Ctrl-C ends the
        command if its agent has not ended yet."""
        self.child.expect(pexpect.EOF)
        self.child.close()
        code = self.child.exitstatus
        return code if code is not None else 128 + (self.child.signalstatus or 0)

    @property
    def lines(self) -> list[str]:
        """What is, or was, on the screen."""
        top = [
            "".join(line[column].data for column in range(self._screen.columns))
            for line in _rows(self._screen)
        ]
        return [line.rstrip() for line in (*top, *self._screen.display)]

    @property
    def text(self) -> str:
        return "\n".join(self.lines).rstrip()


def _rows(screen: pyte.HistoryScreen) -> Iterable[Any]:
    return screen.history.top


class Machine:
    """Where the commands of a test run."""

    def __init__(
        self, agent: RealAgent | Simulator, folder: Path, home: Path, environment: Mapping[str, str]
    ) -> None:
        self._agent = agent
        self.folder = folder
        """Where the command is run."""
        self.home = home
        self.environment = {**environment, "PYTHONPATH": str(ROOT / "src")}

    @property
    def requests(self) -> list[Request]:
        """What the model was asked."""
        return (
            self._agent.api.main_requests if isinstance(self._agent, RealAgent) else self._agent.main_requests
        )

    def is_empty(self) -> bool:
        """Whether nothing runs here any more, once those who are on their way out are gone."""
        for pid in self._processes():
            try:
                handle = os.pidfd_open(pid)
            except ProcessLookupError:
                continue
            try:
                select.select([handle], [], [], DEADLINE)
            finally:
                os.close(handle)
        return not self._processes()

    def _processes(self) -> list[int]:
        """Those that have this machine's home in their environment."""
        found: list[int] = []
        for path in Path("/proc").glob("[0-9]*/environ"):
            try:
                environment = path.read_bytes()
            except OSError:
                continue
            if f"\0HOME={self.home}\0".encode() in b"\0" + environment:
                found.append(int(path.parent.name))
        return found

    def run(
        self, *arguments: str, stdin: str | None = None, environment: Mapping[str, str] | None = None
    ) -> Done:
        """Run the command with pipes."""
        whole = {**self.environment, **(environment or {})}
        return run(*arguments, stdin=stdin, environment=whole, cwd=self.folder)

    def screen(
        self,
        *arguments: str,
        size: tuple[int, int] = (24, 80),
        environment: Mapping[str, str] | None = None,
    ) -> Screen:
        """Run the command at a terminal."""
        whole = {**self.environment, **(environment or {})}
        return Screen(*arguments, environment=whole, cwd=self.folder, size=size)


@contextmanager
def machine(*script: Any, kind: Kind = "simulated", otherwise: Any = None) -> Generator[Machine]:
    """A machine whose model answers from a script; on its PATH is the embedded agent, or the real program."""
    if kind == "real":
        with RealAgent(script, program=require_program(), otherwise=otherwise) as real:
            programs = real.home / "bin"
            programs.mkdir()
            (programs / "claude").symlink_to(real.program)
            path = os.pathsep.join((str(programs), os.environ["PATH"]))
            yield Machine(real, real.folder, real.home, {**real.environment, "PATH": path})
        return
    with Simulator(script, executable=True, otherwise=otherwise) as simulated, TemporaryDirectory() as place:
        home = Path(place).resolve()
        path = os.pathsep.join((str(simulated.executable_path.parent), os.environ["PATH"]))
        environment = {**clean_environment(home), **simulated.options().env, "PATH": path}
        yield Machine(simulated, simulated.folder, home, environment)

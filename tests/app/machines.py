"""A machine with Claude Code on it, and the `outrider` command there, with pipes and at a terminal.

The command runs in this process, with streams, environment and working folder of its own (`Streams`). Only
what needs a process of its own, such as Ctrl-C at a terminal, is started as one (`Child`). The model is a
script. Nothing of the machine that runs the tests is seen.
"""

from __future__ import annotations

import fcntl
import os
import pty
import select
import signal
import struct
import sys
import tempfile
import termios
import warnings
from collections.abc import Callable, Generator, Iterable, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Thread, main_thread
from typing import IO, Any, Literal, NamedTuple, Self, TypeAlias

import pexpect
import pyte
import pytest

from outrider.app import main
from outrider.testing import RealAgent, Request, Simulator, clean_environment
from outrider.transports import Transport, intercept
from tests.real_program import require_program

Kind: TypeAlias = Literal["simulated", "real"]
KINDS: tuple[Kind, ...] = ("simulated", "real")
SMOKE = ("simulated", pytest.param("real", marks=pytest.mark.smoke))
"""For those few that `make test` runs with the real program, too."""

ROOT = Path(__file__).parents[2]
COMMAND = (sys.executable, "-m", "outrider")
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


def clean(environment: Mapping[str, str] | None = None) -> dict[str, str]:
    """An environment with no wishes about terminals."""
    kept = {name: value for name, value in os.environ.items() if name not in _OF_TERMINALS}
    return {**kept, "LC_ALL": "C.UTF-8", "TERM": "xterm-256color", **(environment or {})}


class Streams:
    """Makes three descriptors, an environment and a folder those of this process, until it is closed."""

    def __init__(
        self, given: Iterable[int], environment: Mapping[str, str] | None, cwd: Path | int | None
    ) -> None:
        self._stack = ExitStack()
        self._restore_later()
        for number, descriptor in enumerate(given):
            os.dup2(descriptor, number)
        before = clean(environment)
        os.environ.clear()
        os.environ.update(before)
        if cwd is not None:
            os.chdir(cwd)
        # Tests make an error of every warning, and a command shows them.
        self._stack.enter_context(warnings.catch_warnings())
        warnings.resetwarnings()
        for kind in (DeprecationWarning, PendingDeprecationWarning, ResourceWarning):
            warnings.simplefilter("ignore", kind)
        encoding, _, errors = before.get("PYTHONIOENCODING", "utf-8").partition(":")
        sys.stdin, sys.stdout, sys.stderr = (
            open(number, mode, encoding=encoding, errors=errors or None, closefd=False)  # noqa: SIM115 - until it is closed
            for number, mode in enumerate("rww")
        )

    def _restore_later(self) -> None:
        def put_back(descriptor: int, number: int) -> None:
            os.dup2(descriptor, number)
            os.close(descriptor)

        def put_environment_back(before: Mapping[str, str]) -> None:
            os.environ.clear()
            os.environ.update(before)

        for number in range(3):
            self._stack.callback(put_back, os.dup(number), number)
        folder = os.open(".", os.O_RDONLY)
        self._stack.callback(os.close, folder)
        self._stack.callback(os.chdir, folder)
        self._stack.callback(put_environment_back, dict(os.environ))
        before = sys.stdin, sys.stdout, sys.stderr

        def put_streams_back() -> None:
            for stream in (sys.stdout, sys.stderr):
                stream.close()
            sys.stdin, sys.stdout, sys.stderr = before

        self._stack.callback(put_streams_back)

    def close(self) -> None:
        self._stack.close()


class Done(NamedTuple):
    """What a command came to."""

    code: int
    out: str
    err: str


def run(
    *arguments: str,
    stdin: str | bytes | None = None,
    environment: Mapping[str, str] | None = None,
    cwd: Path | int | None = None,
    interrupt: Callable[[], object] | None = None,
    is_merged: bool = False,
) -> Done:
    """Run the command with files for its streams, `is_merged` with one for both that it writes to.

    Ctrl-C is pressed when `interrupt` returns.
    """
    with tempfile.TemporaryFile() as given, tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        given.write(stdin.encode() if isinstance(stdin, str) else stdin or b"")
        given.seek(0)
        written = (out.fileno(), out.fileno() if is_merged else err.fileno())
        streams = Streams((given.fileno(), *written), environment, cwd)
        presser = Thread(target=_press_ctrl_c, args=(interrupt,), daemon=True)
        if interrupt is not None:
            presser.start()
        try:
            code = main(arguments)
        finally:
            streams.close()
        if interrupt is not None:
            presser.join(DEADLINE)
        return Done(code, _text(out), _text(err))


def _press_ctrl_c(wait: Callable[[], object]) -> None:
    wait()
    signal.pthread_kill(main_thread().ident or 0, signal.SIGINT)


def _text(file: IO[bytes]) -> str:
    file.seek(0)
    return file.read().decode()


class Picture:
    """What is to be seen at a terminal."""

    def __init__(self, size: tuple[int, int]) -> None:
        rows, columns = size
        self._screen = pyte.HistoryScreen(columns, rows, history=5000)
        self._stream = pyte.ByteStream(self._screen)
        self.raw = b""
        """All that was written to the terminal."""

    # As a file, for pexpect.

    def write(self, data: bytes) -> None:
        self.raw += data
        self._stream.feed(data)

    def flush(self) -> None:
        pass

    def take_from(self, terminal: int) -> bool:
        """Take what is written next; False at the end."""
        ready, _, _ = select.select([terminal], [], [], DEADLINE)
        assert ready, f"nothing more was shown:\n{self.text}"
        try:
            data = os.read(terminal, 65536)
        except OSError:
            data = b""
        self.write(data)
        return bool(data)

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


def _terminal(size: tuple[int, int]) -> tuple[int, int]:
    """Both ends of a terminal: that of the person, and that of the command."""
    master, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", *size, 0, 0))
    return master, slave


def show(
    *arguments: str,
    environment: Mapping[str, str] | None = None,
    cwd: Path | None = None,
    size: tuple[int, int] = (24, 80),
) -> tuple[int, Picture]:
    """Run the command at a terminal at which nobody presses a key; gives its code, and what is to be seen."""
    picture = Picture(size)
    master, slave = _terminal(size)
    streams = Streams((slave,) * 3, environment, cwd)
    os.close(slave)

    def read() -> None:
        while picture.take_from(master):
            pass

    reader = Thread(target=read, daemon=True)
    reader.start()
    try:
        code = main(arguments)
    finally:
        streams.close()
        reader.join(DEADLINE)
        os.close(master)
    return code, picture


class Screen(Picture):
    """The command at a terminal, in a thread of this process, which no signal reaches."""

    def __init__(
        self,
        *arguments: str,
        environment: Mapping[str, str] | None = None,
        cwd: Path | None = None,
        size: tuple[int, int] = (24, 80),
    ) -> None:
        super().__init__(size)
        self._master, slave = _terminal(size)
        self._seen = 0
        self._code: int | None = None
        self._streams = Streams((slave,) * 3, environment, cwd)
        os.close(slave)
        self._thread = Thread(target=self._run, args=arguments, daemon=True)
        self._thread.start()

    def _run(self, *arguments: str) -> None:
        try:
            self._code = main(arguments)
        finally:
            # The end of the terminal, for whoever reads from it.
            self._streams.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._master)
        self._thread.join(DEADLINE)

    def see(self, text: str) -> None:
        """Wait until this is written."""
        while (found := self.raw.find(text.encode(), self._seen)) < 0:
            assert self._read(), f"{text!r} was not shown:\n{self.text}"
        self._seen = found + len(text.encode())

    def press(self, keys: str) -> None:
        os.write(self._master, keys.encode())

    def wait_for_keys(self) -> None:
        """Wait until single keys are taken: what the agent says may look like a question."""
        while termios.tcgetattr(self._master)[3] & termios.ECHO:
            assert self._read(), f"nothing is asked:\n{self.text}"

    def end(self) -> int:
        """Wait for the end; gives the exit code."""
        while self._read():
            pass
        self._thread.join(DEADLINE)
        assert self._code is not None
        return self._code

    def _read(self) -> bool:
        return self.take_from(self._master)


class Child(Picture):
    """The command at a terminal, as a process of its own, which Ctrl-C and signals reach."""

    def __init__(
        self,
        *arguments: str,
        environment: Mapping[str, str] | None = None,
        cwd: Path | None = None,
        size: tuple[int, int] = (24, 80),
    ) -> None:
        super().__init__(size)
        self.process = pexpect.spawn(
            COMMAND[0],
            [*COMMAND[1:], *arguments],
            env=clean(environment),
            cwd=None if cwd is None else str(cwd),
            dimensions=size,
            timeout=DEADLINE,
        )
        # What is seen is ready for keys: `Terminal.key` and readline take them before they show anything.
        self.process.delaybeforesend = None
        self.process.logfile_read = self

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.close(force=True)

    def see(self, text: str) -> None:
        """Wait until this is written."""
        self.process.expect_exact(text.encode())

    def press(self, keys: str) -> None:
        self.process.send(keys)

    def resize(self, rows: int, columns: int) -> None:
        """Change the size of the terminal."""
        self._screen.resize(rows, columns)
        self.process.setwinsize(rows, columns)

    def end(self) -> int:
        """Wait for the end; gives the exit code, or what a shell gives for a signal, by which Ctrl-C ends the
        command if its agent has not ended yet."""
        self.process.expect(pexpect.EOF)
        self.process.close()
        code = self.process.exitstatus
        return code if code is not None else 128 + (self.process.signalstatus or 0)


class Machine:
    """Where the commands of a test run."""

    def __init__(
        self, agent: RealAgent | Simulator, folder: Path, home: Path, environment: Mapping[str, str]
    ) -> None:
        self._agent = agent
        self.folder = folder
        """Where the command is run."""
        self.home = home
        self.disguise: Callable[[Transport], Transport] = lambda agent: agent
        """Puts another agent in the place of the simulated one."""
        self._program = home / "bin" / "claude"
        self._program.parent.mkdir()
        if isinstance(agent, RealAgent):
            self._program.symlink_to(agent.program)
        path = os.pathsep.join((str(self._program.parent), os.environ["PATH"]))
        self.environment = {**environment, "PATH": path, "PYTHONPATH": str(ROOT / "src")}

    def child_environment(self) -> dict[str, str]:
        """The environment for a command in a process of its own."""
        if not isinstance(self._agent, Simulator):
            return self.environment
        if not self._program.is_symlink():
            self._program.unlink(missing_ok=True)
            self._program.symlink_to(self._agent.executable_path)
        return {**self.environment, **self._agent.options().env}

    @contextmanager
    def _played(self) -> Generator[None]:
        """Have the simulated agent stand in for the installed program, and for no other."""
        agent = self._agent
        if not isinstance(agent, Simulator):
            yield
            return
        if not self._program.exists():
            self._program.write_text("#!/bin/sh\nexit 1\n")
            self._program.chmod(0o755)

        def change(transport: Transport) -> Transport:
            command = getattr(transport, "command", None)
            if command is None or command.argv[0] != str(self._program):
                return transport
            another = agent.again()
            another.prepare(command)
            return self.disguise(another)

        with intercept(change, everywhere=True):
            yield

    @property
    def simulator(self) -> Simulator:
        assert isinstance(self._agent, Simulator)
        return self._agent

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
        self,
        *arguments: str,
        stdin: str | bytes | None = None,
        environment: Mapping[str, str] | None = None,
        cwd: int | None = None,
        interrupt: Callable[[], object] | None = None,
        is_merged: bool = False,
    ) -> Done:
        """Run the command with pipes: see `run`."""
        whole = {**self.environment, **(environment or {})}
        folder = self.folder if cwd is None else cwd
        with self._played():
            return run(
                *arguments,
                stdin=stdin,
                environment=whole,
                cwd=folder,
                interrupt=interrupt,
                is_merged=is_merged,
            )

    @contextmanager
    def screen(
        self,
        *arguments: str,
        size: tuple[int, int] = (24, 80),
        environment: Mapping[str, str] | None = None,
    ) -> Generator[Screen]:
        """Run the command at a terminal."""
        whole = {**self.environment, **(environment or {})}
        with self._played(), Screen(*arguments, environment=whole, cwd=self.folder, size=size) as screen:
            yield screen

    def show(
        self,
        *arguments: str,
        size: tuple[int, int] = (24, 80),
        environment: Mapping[str, str] | None = None,
    ) -> tuple[int, Picture]:
        """Run the command at a terminal at which nobody presses a key."""
        whole = {**self.environment, **(environment or {})}
        with self._played():
            return show(*arguments, environment=whole, cwd=self.folder, size=size)

    def child(
        self,
        *arguments: str,
        size: tuple[int, int] = (24, 80),
        environment: Mapping[str, str] | None = None,
    ) -> Child:
        """Run the command at a terminal, as a process of its own."""
        whole = {**self.child_environment(), **(environment or {})}
        return Child(*arguments, environment=whole, cwd=self.folder, size=size)


@contextmanager
def machine(*script: Any, kind: Kind = "simulated", otherwise: Any = None) -> Generator[Machine]:
    """A machine whose model answers from a script; on its PATH is the embedded agent, or the real program."""
    if kind == "real":
        with RealAgent(script, program=require_program(), otherwise=otherwise) as real:
            yield Machine(real, real.folder, real.home, real.environment)
        return
    with Simulator(script, executable=True, otherwise=otherwise) as simulated, TemporaryDirectory() as place:
        home = Path(place).resolve()
        environment = {**clean_environment(home), "CLAUDE_CONFIG_DIR": str(simulated.config_dir)}
        yield Machine(simulated, simulated.folder, home, environment)

"""`Simulator`, an agent that needs no program, as a transport for sessions."""

from __future__ import annotations

import os
import shutil
import socket
import tempfile
import threading
import traceback
import weakref
from collections import deque
from collections.abc import Iterable, Mapping
from concurrent.futures import Future
from contextlib import AbstractContextManager, suppress
from contextvars import Context
from copy import copy
from pathlib import Path
from typing import TYPE_CHECKING, Final, Self, Unpack

import anyio
import msgspec
from anyio.from_thread import BlockingPortalProvider
from anyio.lowlevel import checkpoint

from outrider.command import Command
from outrider.errors import FolderNotFound, LaunchError, ProcessExited, TransportClosed, UsageError
from outrider.options import OptionFields, Options
from outrider.testing._api.requests import KIT_VARIABLE, Asked
from outrider.testing._script.script import Item, Script, Scripted, ScriptSource
from outrider.testing._simulator.model import ModelSource
from outrider.testing._simulator.program import StartFailed, read_invocation
from outrider.transports import ProcessTransport, Transport, Unreachable, intercept

if TYPE_CHECKING:
    from types import TracebackType

    from outrider.errors import OutriderError
    from outrider.testing._simulator.program import Launcher


# Whatever the test runs on: it is another thread.
_provider: Final = BlockingPortalProvider(backend="asyncio")


_READ_BYTES: Final = 65536
_KEPT_LINES: Final = 200
STREAMING: Final = ("claude", "--output-format", "stream-json", "--verbose", "--input-format", "stream-json")


class PipeStreams:
    """The agent's stdin, stdout and stderr. What it writes is kept here, so that it never waits for a reader;
    a byte in the socket says that there is more, and the end of the socket that the agent has ended."""

    def __init__(self, end: socket.socket) -> None:
        self._end = end
        self._written: deque[bytes] = deque()
        self.stderr: deque[str] = deque(maxlen=_KEPT_LINES)

    async def receive(self) -> bytes:
        # What follows an answer is written before the host's next line is read.
        await checkpoint()
        while True:
            try:
                return self._end.recv(_READ_BYTES)
            except BlockingIOError:
                await anyio.wait_readable(self._end)
            except OSError:
                return b""

    def write(self, data: bytes) -> None:
        self._written.append(data)
        # If the socket is full there is a byte already; if it is closed, no one reads.
        with suppress(OSError):
            self._end.send(b"\n")

    def take(self) -> bytes:
        """All that was written since the last time. For the host, in another thread."""
        return b"".join(self._written.popleft() for _ in range(len(self._written)))

    def complain(self, line: str) -> None:
        self.stderr += line.splitlines()

    async def drain(self) -> None:
        pass

    def close(self) -> None:
        self._end.close()


class _Setup(msgspec.Struct, frozen=True):
    """What all runs of one agent share."""

    source: ModelSource
    folders: _Folders
    version: str
    environment: Mapping[str, str]


class _Life:
    """One run of a simulated agent in the background thread, which ends with the last of them."""

    def __init__(self, command: Command | None, setup: _Setup) -> None:
        self._setup, folders = setup, setup.folders
        self._private = Path(tempfile.mkdtemp(prefix="outrider-simulator-"))
        """For this run alone."""
        command = command or Command(STREAMING)
        for file in command.files:
            path = self._private / file.name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.touch(mode=0o600)
            path.write_bytes(file.content)
        for folder in command.folders:
            (self._private / folder).mkdir(parents=True, exist_ok=True)
        placed = command.placed(str(self._private))
        self._argv = placed.argv[1:]
        self._cwd = Path(placed.cwd) if placed.cwd is not None else folders.folder
        env = dict(os.environ if placed.env is None else placed.env) | dict(setup.environment)
        chosen = env.get("CLAUDE_CONFIG_DIR")
        # An inherited folder belongs to the user who runs the test: nothing is written there.
        is_inherited = chosen is None or chosen == os.environ.get("CLAUDE_CONFIG_DIR")
        self._config = folders.config_dir if is_inherited else Path(str(chosen))
        self._env = {**env, "CLAUDE_CONFIG_DIR": str(self._config)}
        _take_over(self._private / "config", self._config)
        self._has_begun = self._has_left = False
        self._lock = threading.Lock()
        self.code: int | None = None
        self.crash: BaseException | None = None
        self.end, far = socket.socketpair()
        """The host's end."""
        for each in (self.end, far):
            each.setblocking(False)
        self.pipe = PipeStreams(far)
        folders.enter()
        # In a context of its own: that of the caller may say that it runs on another event loop.
        portal = Context().run(_provider.__enter__)
        self._thread = Context().run(portal.call, threading.get_ident)
        self._future: Future[int] = Context().run(
            lambda: portal.start_task_soon(self._main, name="simulated agent")
        )

    @property
    def is_over(self) -> bool:
        return self.code is not None

    @property
    def stderr_tail(self) -> str:
        return "\n".join(self.pipe.stderr)

    async def _main(self) -> int:
        code = 1
        self._has_begun = True
        try:
            code = await self._run()
        except Exception as error:  # noqa: BLE001 - reported by the transport
            self.crash = error
            self.pipe.complain("The simulated agent itself failed, which is a mistake in Outrider:")
            self.pipe.complain("".join(traceback.format_exception(error)))
        finally:
            shutil.rmtree(self._private, ignore_errors=True)
            self.code = code
            # Last: a reader that sees the end finds everything else done.
            self.pipe.close()
        return code

    async def _run(self) -> int:
        from outrider.testing._simulator.run import Run

        try:
            invocation = read_invocation(self._argv, self._env, self._cwd)
        except StartFailed as failed:
            self.pipe.complain(str(failed))
            return 1
        run = Run(
            invocation,
            self.pipe,
            source=self._setup.source,
            environment=self._env,
            cwd=self._cwd,
            config_dir=self._config,
            version=self._setup.version,
        )
        return await run.main()

    def cancel(self) -> None:
        """End it now. From any thread."""
        self._future.cancel()

    def abandon(self) -> None:
        """End it and give back what it holds, from any thread and at any time. A second time does nothing."""
        with self._lock:
            if self._has_left:
                return
            self._has_left = True
        self.cancel()
        self.end.close()
        if threading.get_ident() == self._thread:
            # The thread cannot wait for its own end.
            threading.Thread(target=_leave, name="end of simulated agents").start()
        else:
            _leave()
        if not self._has_begun:
            # Cancelled before it could run: nothing else cleans up after it.
            self.pipe.close()
            shutil.rmtree(self._private, ignore_errors=True)
        self._setup.folders.leave()


def _leave() -> None:
    Context().run(_provider.__exit__, None, None, None)


def _take_over(given: Path, config: Path) -> None:
    """Move sessions that came with the command to where this agent keeps its own."""
    for path in sorted(given.glob("projects/**/*")) if given != config else ():
        place = config / path.relative_to(given)
        if path.is_file():
            place.parent.mkdir(parents=True, exist_ok=True)
            path.replace(place)


class _Folders:
    """The folders of one agent, or of several that share them. Those that were not given are temporary."""

    def __init__(
        self, folder: str | os.PathLike[str] | None, config_dir: str | os.PathLike[str] | None
    ) -> None:
        self._given = None if folder is None else Path(folder).absolute()
        self._given_config = None if config_dir is None else Path(config_dir).absolute()
        self._root: Path | None = None
        self._users = 0
        self._lock = threading.Lock()

    @property
    def folder(self) -> Path:
        if self._given is None:
            return self._make("project")
        self._given.mkdir(parents=True, exist_ok=True)
        return self._given

    @property
    def config_dir(self) -> Path:
        return self._make("config") if self._given_config is None else self._given_config

    def enter(self) -> None:
        """Keep them until as many times `leave` was called."""
        with self._lock:
            self._users += 1

    def leave(self) -> None:
        with self._lock:
            self._users -= 1
            if self._users > 0 or self._root is None:
                return
            root, self._root = self._root, None
        shutil.rmtree(root, ignore_errors=True)

    def _make(self, name: str) -> Path:
        with self._lock:
            if self._root is None:
                # As the agent will say it: on some systems the folder for temporary files is a link.
                self._root = Path(tempfile.mkdtemp(prefix="outrider-simulator-")).resolve()
                weakref.finalize(self, shutil.rmtree, self._root, ignore_errors=True)
            path = self._root / name
            path.mkdir(exist_ok=True)
        return path


SIMULATED_VERSION: Final = "2.1.325"
"""The version of the program that is played."""

_GRACE_SECONDS: Final = 5.0
"""How long the agent may take to end once its input has ended, as a program may."""
_CANCEL_SECONDS: Final = 5.0
"""How long it may take after that, when all that it does is cancelled."""


class Simulator(Asked, Transport):
    """An agent in this process that speaks the whole protocol, with a script for its model.

        agent = Simulator([use_tool("lookup", ticket=7), say("Ada owns it.")])
        async with outrider.Session(tools=[lookup], transport=agent) as session:
            result = await session.ask("Who owns ticket 7?")

    The script is a list of steps, a file, or a `Script`; without one the agent calls each tool that it is
    offered, once, and then answers. Built-in tools are really carried out: in the session's `cwd`, else in
    `folder`, else in a temporary folder. Sessions are kept in `config_dir`, temporary as well if it is not
    given: until the agent is closed, or, in a `with` block, until that ends. One `Simulator` is one run;
    `again()` gives another with the same script and folders.

    `environment` is added to the variables of the agent. With `executable`, `options()` starts it as a child
    process. `fail_at_close` is raised when it is closed, after everything was freed.

    What goes wrong in the script fails the turn, and is raised at the end of a `with` block, and by `check`.

    Raises `OptionsError` for an invalid script.
    """

    def __init__(
        self,
        script: ScriptSource = None,
        *,
        folder: str | os.PathLike[str] | None = None,
        config_dir: str | os.PathLike[str] | None = None,
        subagents: Iterable[Item] = (),
        otherwise: Scripted | None = None,
        version: str = SIMULATED_VERSION,
        environment: Mapping[str, str] | None = None,
        executable: bool = False,
        fail_at_close: BaseException | None = None,
    ) -> None:
        self.script = Script.of(script, subagents=subagents, otherwise=otherwise)
        self.command: Command | None = None
        """How the program would have been started; unset before a session is opened."""
        self.written: list[bytes] = []
        """Every line that the host has sent, without its end."""
        self.version = version
        self._source = ModelSource(self.script)
        self._requests = self._source.requests
        self._folders = _Folders(folder, config_dir)
        self._environment = dict(environment or {})
        self._is_executable = executable
        self._fail_at_close = fail_at_close
        self._launcher: Launcher | None = None
        self._reset()

    def _reset(self) -> None:
        self._life: _Life | None = None
        self._finalizer: weakref.finalize[[], Simulator] | None = None
        self._is_closed = False
        self._was_over = False
        self._is_input_over = False
        self._is_entered = False
        self._is_at_end = False
        self._reading = anyio.Lock()
        self._writing = anyio.Lock()

    def again(self) -> Simulator:
        """Another run with the same script, requests and folders, for another session."""
        other = copy(self)
        other.command, other.written, other._launcher = None, [], None
        other._reset()
        return other

    def stand_in(self, *, everywhere: bool = False) -> AbstractContextManager[None]:
        """Have every session that would start a program talk to this agent, as long as the block runs.

            with Simulator([say("Hello!")]) as agent, agent.stand_in():
                assert greet() == "Hello!"          # calls outrider.run() somewhere

        With `everywhere`, this counts for all threads and tasks of the process. Sessions that are given a
        `transport` keep it.
        """

        def change(transport: Transport) -> Transport:
            if not isinstance(transport, ProcessTransport | Unreachable):
                return transport
            another = self.again()
            another.prepare(transport.command)
            return another

        return intercept(change, everywhere=everywhere)

    # For tests.

    @property
    def folder(self) -> Path:
        """Where the agent works if the session has no `cwd`."""
        return self._folders.folder

    @property
    def config_dir(self) -> Path:
        """Where it keeps its sessions."""
        return self._folders.config_dir

    def options(self, **fields: Unpack[OptionFields]) -> Options:
        """Options that use this agent; those given are added. Raises `OptionsError` for what cannot work."""
        if not self._is_executable:
            own: OptionFields = {"transport": self}
            whole: OptionFields = {**own, **fields}
            return Options(**whole)
        environment = {**self._environment, **self._started().environment}
        environment["CLAUDE_CONFIG_DIR"] = str(self.config_dir)
        # As for the real program: it is meant to be started, and root may switch permissions off.
        environment |= {KIT_VARIABLE: "1", "IS_SANDBOX": "1"}
        base: OptionFields = {"cli_path": self.executable_path, "cwd": self.folder}
        merged: OptionFields = {**base, **fields, "env": {**environment, **fields.get("env", {})}}
        return Options(**merged)

    @property
    def executable_path(self) -> Path:
        """The agent as a program, to stand wherever a `claude` is expected. It is there until `with` ends, or
        the agent is closed."""
        return self._started().path

    def _started(self) -> Launcher:
        if self._launcher is None or self._launcher.is_closed:
            from outrider.testing._simulator.program import Launcher

            self._launcher = Launcher(self._source, version=self.version)
        return self._launcher

    def __enter__(self) -> Self:
        self._is_entered = True
        self._folders.enter()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._is_entered = False
        if self._life is not None and not self._is_closed:
            self._is_closed = True
            self._abandon()
        if self._launcher is not None:
            self._launcher.close()
        self._folders.leave()
        self.script.check(after=error)

    # The transport.

    def prepare(self, command: Command) -> None:
        """Take the command line of a session. Raises `UsageError` if another session has this agent."""
        if self.command is not None:
            raise UsageError(
                "This agent was given to a session already",
                hint="One `Simulator` is one run: use `agent.again()` for the next session.",
            )
        self.command = command

    async def connect(self) -> None:
        await checkpoint()
        if self._is_closed:
            raise TransportClosed("it has been closed")
        if self._life is not None:
            return
        if self.command is not None and self.command.cwd is not None:
            _check_folder(self.command.cwd, self.command.argv)
        setup = _Setup(self._source, self._folders, self.version, self._environment)
        self._life = _Life(self.command, setup)
        self._finalizer = weakref.finalize(self, self._life.abandon)

    async def receive(self) -> bytes:
        """The next bytes. Raises `ProcessExited` at an end that is a failure."""
        await checkpoint()
        life = self._connected()
        async with self._reading:
            while not (data := life.pipe.take()) and not self._is_at_end:
                await self._wait(life)
        if not data and (error := self.exit_error) is not None:
            raise error
        return data

    async def _wait(self, life: _Life) -> None:
        """Wait until the agent has written more, or has ended."""
        try:
            self._is_at_end = not life.end.recv(_READ_BYTES)
        except BlockingIOError:
            await anyio.wait_readable(life.end)
        except OSError:
            self._is_at_end = True

    async def send(self, data: bytes) -> None:
        await checkpoint()
        life = self._connected()
        async with self._writing:
            if self._is_closed:
                raise TransportClosed("it has been closed")
            if self._is_input_over:
                raise TransportClosed("its input has been ended")
            self.written += [line for line in data.split(b"\n") if line]
            left = memoryview(data)
            while left:
                try:
                    left = left[life.end.send(left) :]
                except BlockingIOError:
                    await anyio.wait_writable(life.end)
                except OSError:
                    raise self.exit_error or TransportClosed("the agent has ended") from None

    async def end_input(self) -> None:
        await checkpoint()
        if self._life is not None:
            self._end_input(self._life)

    def _end_input(self, life: _Life) -> None:
        if not self._is_input_over:
            self._is_input_over = True
            try:
                life.end.shutdown(socket.SHUT_WR)
            except OSError:
                # It has ended.
                return

    async def close(self) -> None:
        """End the agent: what it does is brought to its end for a while, and then cancelled."""
        life, failure = self._life, self._fail_at_close
        if not self._is_closed:
            # An end that came before is what it was.
            self._was_over = life is not None and life.is_over
        self._is_closed = True
        if life is not None and self._finalizer is not None and self._finalizer.alive:
            self._end_input(life)
            with anyio.CancelScope(shield=True):
                await self._wait_for_end(life)
            self._abandon()
        elif life is None and not self._is_entered and self._launcher is not None:
            self._launcher.close()
            # Its folders go with it, unless another run has them.
            self._folders.enter()
            self._folders.leave()
        await checkpoint()
        if failure is not None:
            self._fail_at_close = None
            raise failure

    async def _wait_for_end(self, life: _Life) -> None:
        for seconds in (_GRACE_SECONDS, _CANCEL_SECONDS):
            with anyio.move_on_after(seconds):
                while not self._is_at_end:
                    async with self._reading:
                        await self._wait(life)
                return
            life.cancel()

    def _abandon(self) -> None:
        if self._finalizer is not None:
            self._finalizer()
        if self._launcher is not None and not self._is_entered:
            self._launcher.close()

    def _connected(self) -> _Life:
        if self._life is None:
            raise TransportClosed("it has been closed" if self._is_closed else "it is not connected yet")
        return self._life

    @property
    def is_ready(self) -> bool:
        is_open = self._life is not None and not self._life.is_over
        return is_open and not self._is_closed and not self._is_input_over

    @property
    def returncode(self) -> int | None:
        """What the agent exited with; unset while it runs."""
        return None if self._life is None else self._life.code

    @property
    def stderr_tail(self) -> str:
        """The last lines that it wrote to stderr."""
        return "" if self._life is None else self._life.stderr_tail

    @property
    def exit_error(self) -> OutriderError | None:
        code = self.returncode
        if not code or (self._is_closed and not self._was_over):
            return None
        error = ProcessExited(code, stderr_tail=self.stderr_tail)
        error.__cause__ = None if self._life is None else self._life.crash
        return error

    def __repr__(self) -> str:
        state = "closed" if self._is_closed else "not connected" if self._life is None else "connected"
        return f"<Simulator {state} requests={len(self._requests)} {self.script!r}>"


def _check_folder(folder: str, argv: tuple[str, ...]) -> None:
    """Raises what a session raises whose program cannot be started there."""
    if not os.path.exists(folder):  # noqa: PTH110 - also for what is not a path
        raise FolderNotFound(folder, argv=argv)
    if not os.path.isdir(folder):  # noqa: PTH112
        message = f"the working folder {folder!r} is not a folder"
        raise LaunchError(message, argv=argv, hint="Give another as `cwd`.")

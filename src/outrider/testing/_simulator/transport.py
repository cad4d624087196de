"""Owns `Simulator`, an agent that needs no program, as a transport for sessions.

How the agent behaves is in the modules beside this one.
"""

from __future__ import annotations

import os
import socket
import weakref
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager
from copy import copy
from pathlib import Path
from typing import TYPE_CHECKING, Final, Self, Unpack

import anyio
from anyio.lowlevel import checkpoint

from outrider.errors import FolderNotFound, LaunchError, ProcessExited, TransportClosed, UsageError
from outrider.options import OptionFields, Options
from outrider.testing._api.real_agent import KIT_VARIABLE
from outrider.testing._api.requests import Request
from outrider.testing._script.script import Item, Script, Scripted, ScriptSource
from outrider.testing._simulator.life import Life, RequestLog
from outrider.testing._simulator.model_loop import Hanging
from outrider.testing._simulator.world import Places
from outrider.transports import Command, ProcessTransport, Transport, Unreachable, intercept

if TYPE_CHECKING:
    from types import TracebackType

    from outrider.errors import OutriderError
    from outrider.testing._simulator.program.process import Launcher

__all__ = ["SIMULATED_VERSION", "Simulator"]

SIMULATED_VERSION: Final = "2.1.325"
"""The version of the program that is played."""

_READ_BYTES: Final = 65536
_GRACE_SECONDS: Final = 5.0
"""How long the agent may take to end once its input has ended, as a program may."""
_CANCEL_SECONDS: Final = 5.0
"""How long it may take after that, when all that it does is cancelled."""


class Simulator(Transport):
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

    Raises `OptionsError` for a script that is none.
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
        self._requests = RequestLog()
        self._hanging = Hanging()
        self._places = Places(folder, config_dir)
        self._environment = dict(environment or {})
        self._is_executable = executable
        self._fail_at_close = fail_at_close
        self._launcher: Launcher | None = None
        self._reset()

    def _reset(self) -> None:
        self._life: Life | None = None
        self._finalizer: weakref.finalize[[], Simulator] | None = None
        self._is_closed = False
        self._was_over = False
        self._is_input_over = False
        self._is_entered = False
        self._kept: list[bytes] = []
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
    def requests(self) -> list[Request]:
        """What the model was asked, in order; shared by all runs of this agent."""
        return self._requests.all()

    @property
    def main_requests(self) -> list[Request]:
        """Those of the main conversation: one for each step that was taken."""
        return self._requests.main()

    def wait_for(self, what: int | Callable[[Request], bool], timeout: float = 30.0) -> Request:
        """Block this thread until a request is there: the n-th of the main conversation, from 1 on, or the
        first that a function says yes to.

        Raises `TimeoutError` if it does not come.
        """
        return self._requests.wait_for(what, timeout)

    @property
    def folder(self) -> Path:
        """Where the agent works if the session has no `cwd`."""
        return self._places.folder

    @property
    def config_dir(self) -> Path:
        """Where it keeps its sessions."""
        return self._places.config_dir

    def add(self, *items: Item) -> None:
        """Add steps to the script."""
        self.script.add(*items)

    def release(self) -> None:
        """Let all requests go on that `hang()` holds now."""
        self._hanging.release()

    def wait_for_hang(self, timeout: float = 30.0) -> None:
        """Block this thread until a request has come to a `hang()`.

        Raises `TimeoutError` if none does.
        """
        self._hanging.gate.wait_reached(timeout)

    def check(self) -> None:
        """Raise what functions and expectations of the script have raised, if they have."""
        self.script.check()

    def options(self, **fields: Unpack[OptionFields]) -> Options:
        """Options that use this agent; those given are added.

        Raises `OptionsError` for what cannot work.
        """
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
            from outrider.testing._simulator.program.process import Launcher

            self._launcher = Launcher(self.script, self._requests, self._hanging, version=self.version)
        return self._launcher

    def __enter__(self) -> Self:
        self._is_entered = True
        self._places.enter()
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
        self._places.leave()
        if error is None:
            self.check()

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
        self._life = Life(
            self.command,
            script=self.script,
            requests=self._requests,
            hanging=self._hanging,
            places=self._places,
            version=self.version,
            environment=self._environment,
        )
        self._finalizer = weakref.finalize(self, self._life.abandon)

    async def receive(self) -> bytes:
        """The next bytes. Raises `ProcessExited` at an end that is a failure."""
        await checkpoint()
        life = self._connected()
        async with self._reading:
            data = self._kept.pop(0) if self._kept else await self._read(life)
        if not data and (error := self.exit_error) is not None:
            raise error
        return data

    async def _read(self, life: Life) -> bytes:
        while not self._is_at_end:
            try:
                data = life.end.recv(_READ_BYTES)
            except BlockingIOError:
                await anyio.wait_readable(life.end)
                continue
            except OSError:
                data = b""
            if data:
                return data
            self._is_at_end = True
            # The agent hands over what it could not send while nobody read.
            if left := b"".join(life.socket.left):
                return left
        return b""

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

    def _end_input(self, life: Life) -> None:
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
            life.hand_over()
            with anyio.CancelScope(shield=True):
                await self._wait_for_end(life)
            self._abandon()
        elif life is None and not self._is_entered and self._launcher is not None:
            self._launcher.close()
            # Its folders go with it, unless another run has them.
            self._places.enter()
            self._places.leave()
        await checkpoint()
        if failure is not None:
            self._fail_at_close = None
            raise failure

    async def _wait_for_end(self, life: Life) -> None:
        for seconds in (_GRACE_SECONDS, _CANCEL_SECONDS):
            with anyio.move_on_after(seconds):
                await self._keep_rest(life)
                return
            life.cancel()

    async def _keep_rest(self, life: Life) -> None:
        """Read to the end, for whoever asks later."""
        while not self._is_at_end:
            async with self._reading:
                if data := await self._read(life):
                    self._kept.append(data)

    def _abandon(self) -> None:
        if self._finalizer is not None:
            self._finalizer()
        if self._launcher is not None and not self._is_entered:
            self._launcher.close()

    def _connected(self) -> Life:
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
    if not os.path.exists(folder):  # noqa: PTH110 - also for what is no path
        raise FolderNotFound(folder, argv=argv)
    if not os.path.isdir(folder):  # noqa: PTH112
        message = f"the working folder {folder!r} is not a folder"
        raise LaunchError(message, argv=argv, hint="Give another as `cwd`.")

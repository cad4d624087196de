"""Owns a run of the simulated agent as a process of its own: its standard streams, its signals, its script.

Where it is started from is `outrider.testing.agent`.
"""

from __future__ import annotations

import contextlib
import os
import queue
import secrets
import shutil
import signal
import stat
import sys
import tempfile
import threading
import traceback
import weakref
from collections.abc import Mapping
from multiprocessing import AuthenticationError
from multiprocessing.connection import Client, Connection, Listener
from pathlib import Path
from typing import TYPE_CHECKING, Final, cast

import anyio
import msgspec

import outrider
from outrider.testing._api.requests import Request
from outrider.testing._script.script import Script
from outrider.testing._script.steps import Answer, Drop, Hang, Step, fail
from outrider.testing._simulator.model_loop import Hanging
from outrider.testing._simulator.program.invocation import Invocation
from outrider.testing._simulator.run import Run
from outrider.testing._simulator.world import RequestLog

if TYPE_CHECKING:
    from anyio.abc import TaskStatus

    from outrider.testing._script.steps import Gate

__all__ = [
    "KEY_VARIABLE",
    "Launcher",
    "RemoteScript",
    "SCRIPT_VARIABLE",
    "VERSION_VARIABLE",
    "play",
    "write_launcher",
]


SCRIPT_VARIABLE: Final = "OUTRIDER_AGENT_SCRIPT"
"""The file that has the script of an agent that is started as a program; unset: it is automatic."""
KEY_VARIABLE: Final = "OUTRIDER_AGENT_KEY"
"""Set if the script is not in a file but in another process: `SCRIPT_VARIABLE` is then its address."""
VERSION_VARIABLE: Final = "OUTRIDER_AGENT_VERSION"
"""The version that the agent says it is."""

_POLL_SECONDS: Final = 0.05
_JOIN_SECONDS: Final = 2.0


def write_launcher(folder: str | os.PathLike[str]) -> Path:
    """Write a program `claude` into a folder: the simulated agent."""
    source = str(Path(outrider.__file__).parent.parent)
    if sys.platform == "win32":
        path = Path(folder, "claude.cmd")
        lines = (
            f'@set "PYTHONPATH={source};%PYTHONPATH%"',
            f'@"{sys.executable}" -m outrider.testing.agent %*',
        )
        path.write_text("\n".join((*lines, "")), encoding="utf-8")
        return path
    path = Path(folder, "claude")
    text = f"#!{sys.executable}\nimport sys\nsys.path.insert(0, {source!r})\n"
    path.write_text(f"{text}from outrider.testing.agent import main\nmain()\n", encoding="utf-8")
    path.chmod(path.stat().st_mode | stat.S_IXUSR | stat.S_IXGRP | stat.S_IXOTH)
    return path


class Launcher:
    """A program that plays the script of this process. It is there until `close`."""

    def __init__(self, script: Script, requests: RequestLog, hanging: Hanging, *, version: str) -> None:
        self._folder = Path(tempfile.mkdtemp(prefix="outrider-simulator-"))
        self.path = write_launcher(self._folder)
        key = secrets.token_hex(16)
        family = "AF_PIPE" if sys.platform == "win32" else "AF_UNIX"
        address = None if sys.platform == "win32" else str(self._folder / "script")
        self._listener = Listener(address, family, authkey=key.encode())
        self.environment = {
            SCRIPT_VARIABLE: str(self._listener.address),
            KEY_VARIABLE: key,
            VERSION_VARIABLE: version,
        }
        served = _Served(self._listener, script, requests, hanging, self._folder)
        self._thread = threading.Thread(target=served.accept, name="script of simulated agents", daemon=True)
        self._thread.start()
        self._finalizer = weakref.finalize(self, _end, served, str(self._listener.address), key)

    @property
    def is_closed(self) -> bool:
        return not self._finalizer.alive

    def close(self) -> None:
        """End it. A second time does nothing."""
        self._finalizer()
        self._thread.join()


def _end(served: _Served, address: str, key: str) -> None:
    served.is_over.set()
    # Wakes the thread that waits for agents; it may be gone.
    with contextlib.suppress(OSError, EOFError):
        Client(address, authkey=key.encode()).close()


class _Served:
    """Answers agents, each in a thread of its own."""

    def __init__(
        self, listener: Listener, script: Script, requests: RequestLog, hanging: Hanging, folder: Path
    ) -> None:
        self._listener, self._script, self._requests, self._hanging = listener, script, requests, hanging
        self._folder = folder
        self.is_over = threading.Event()

    def accept(self) -> None:
        """Wait for agents until it is over, and clean up."""
        threads: list[threading.Thread] = []
        with self._listener:
            while not self.is_over.is_set():
                try:
                    connection = self._listener.accept()
                except (OSError, EOFError, AuthenticationError):
                    continue
                threads = [thread for thread in threads if thread.is_alive()]
                thread = threading.Thread(target=self._serve, args=(connection,), daemon=True)
                thread.name = "script of a simulated agent"
                thread.start()
                threads.append(thread)
        for thread in threads:
            # Not for ever: a function of the test may hang.
            thread.join(_JOIN_SECONDS)
        shutil.rmtree(self._folder, ignore_errors=True)

    def _serve(self, connection: Connection) -> None:
        with connection:
            while not self.is_over.is_set():
                try:
                    if not connection.poll(_POLL_SECONDS):
                        continue
                    request = msgspec.convert(connection.recv(), type=Request)
                    self._requests.add(request)
                    connection.send(self._step(request))
                except (OSError, EOFError):
                    return

    def _step(self, request: Request) -> Step:
        """The step. What waits in it waits here: gates do not travel."""
        step = self._script.take(request)
        if isinstance(step, Hang):
            self._wait_at(self._hanging.gate)
            step = step.then or Drop()
        if isinstance(step, Answer) and step.gate is not None:
            self._wait_at(step.gate)
            step = msgspec.structs.replace(step, gate=None)
        return step

    def _wait_at(self, gate: Gate) -> None:
        gate.reached.set()
        opened = threading.Event()
        gate.on_open(opened.set)
        while not opened.wait(_POLL_SECONDS) and not self.is_over.is_set():
            pass
        gate.forget(opened.set)


class RemoteScript:
    """A script that is in another process, for an agent that was started by it."""

    def __init__(self, address: str, key: str) -> None:
        self._address, self._key = address, key.encode()

    def take(self, request: Request) -> Step:
        # A connection for each: one that waits, for a turn that was interrupted, must not hold up the next.
        try:
            with Client(self._address, authkey=self._key) as connection:
                connection.send(msgspec.to_builtins(request))
                return cast("Step", connection.recv())
        except (OSError, EOFError):
            return fail(418, message="The test that has the script of this agent is over.")


_READ_BYTES: Final = 65536
_SIGNALS: Final = ("SIGINT", "SIGTERM", "SIGHUP")


async def play(invocation: Invocation, environment: Mapping[str, str], cwd: Path, version: str) -> int:
    """Run the agent; gives the exit code."""
    streams = _Standard()
    script = _script(environment)
    home = environment.get("HOME") or str(Path.home())
    config = environment.get("CLAUDE_CONFIG_DIR") or str(Path(home) / ".claude")
    run = Run(
        invocation,
        streams,
        script=cast("Script", script),
        requests=RequestLog(),
        hanging=Hanging(),
        environment=environment,
        cwd=cwd,
        config_dir=Path(config),
        version=version,
    )
    code = 1
    async with anyio.create_task_group() as tasks:
        if sys.platform != "win32":
            await tasks.start(_watch_signals, run)
        code = await run.main()
        tasks.cancel_scope.cancel()
    for error in getattr(script, "errors", ()):
        told = "".join(traceback.format_exception_only(error)).rstrip()
        streams.complain(f"The script: {told}")
    return code


def _script(environment: Mapping[str, str]) -> Script | RemoteScript:
    source, key = environment.get(SCRIPT_VARIABLE), environment.get(KEY_VARIABLE)
    if source and key:
        return RemoteScript(source, key)
    return Script.of(source or None)


async def _watch_signals(run: Run, *, task_status: TaskStatus[None]) -> None:
    numbers = [getattr(signal, name) for name in _SIGNALS]
    with anyio.open_signal_receiver(*numbers) as received:
        task_status.started()
        async for number in received:
            await run.on_signal(signal.Signals(number).name)


class _Standard:
    """Stdin, stdout and stderr of this process."""

    def __init__(self) -> None:
        self._input, self._output = sys.stdin.fileno(), sys.stdout.fileno()
        mode = os.fstat(self._input).st_mode
        self._can_wait = sys.platform != "win32" and not stat.S_ISREG(mode)
        self._waiting: queue.SimpleQueue[bytes | threading.Event] = queue.SimpleQueue()
        # A thread: what reads may stop reading, and the program goes on all the same.
        threading.Thread(target=self._write_all, name="stdout", daemon=True).start()

    async def receive(self) -> bytes:
        try:
            if self._can_wait:
                await anyio.wait_readable(self._input)
                return os.read(self._input, _READ_BYTES)
            return await anyio.to_thread.run_sync(os.read, self._input, _READ_BYTES, abandon_on_cancel=True)
        except OSError:
            return b""

    def write(self, data: bytes) -> None:
        self._waiting.put(data)

    def complain(self, line: str) -> None:
        try:
            os.write(sys.stderr.fileno(), f"{line}\n".encode("utf-8", "replace"))
        except OSError:
            return

    async def drain(self) -> None:
        flag = threading.Event()
        self._waiting.put(flag)
        await anyio.to_thread.run_sync(flag.wait, abandon_on_cancel=True)

    def _write_all(self) -> None:
        is_broken = False
        while True:
            item = self._waiting.get()
            if isinstance(item, threading.Event):
                item.set()
                continue
            left = memoryview(item)
            while left and not is_broken:
                try:
                    left = left[os.write(self._output, left) :]
                except OSError:
                    is_broken = True

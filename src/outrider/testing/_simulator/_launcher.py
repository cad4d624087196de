"""Owns the simulated agent as a program on disk, and the way from it back to the script of a test.

The program itself is `outrider.testing.agent`.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
import stat
import sys
import tempfile
import threading
import weakref
from multiprocessing import AuthenticationError
from multiprocessing.connection import Client, Connection, Listener
from pathlib import Path
from typing import TYPE_CHECKING, Final, cast

import outrider
from outrider.testing._requests import Request
from outrider.testing._simulator._hanging import Hanging
from outrider.testing._steps import Answer, Drop, Hang, Step, fail

if TYPE_CHECKING:
    from outrider.testing._gate import Gate
    from outrider.testing._script import Script
    from outrider.testing._simulator._request_log import RequestLog

import msgspec

__all__ = [
    "KEY_VARIABLE",
    "SCRIPT_VARIABLE",
    "VERSION_VARIABLE",
    "Launcher",
    "RemoteScript",
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

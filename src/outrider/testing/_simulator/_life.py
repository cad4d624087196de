"""Owns a simulated agent that runs in this process: its end of the connection, its folder of files, its end.

Holds nothing of the transport that leads to it, so that one that is dropped is collected.
"""

from __future__ import annotations

import os
import shutil
import socket
import traceback
from collections.abc import Mapping
from concurrent.futures import Future
from pathlib import Path
from typing import TYPE_CHECKING, Final

import anyio

from outrider.command import Command
from outrider.testing._simulator._invocation import StartFailed, read_invocation
from outrider.testing._simulator._thread import Lease

if TYPE_CHECKING:
    from outrider.testing._script import Script
    from outrider.testing._simulator._hanging import Hanging
    from outrider.testing._simulator._places import Places
    from outrider.testing._simulator._request_log import RequestLog

__all__ = ["Life", "Socket"]

_READ_BYTES: Final = 65536
_KEPT_LINES: Final = 200
STREAMING: Final = ("claude", "--output-format", "stream-json", "--verbose", "--input-format", "stream-json")


class Socket:
    """The agent's end of a connection, as its stdin and stdout."""

    def __init__(self, end: socket.socket) -> None:
        self._end = end
        self.stderr: list[str] = []
        self.left: list[bytes] = []
        """What could not be sent before the end."""
        self._waiting: list[bytes] = []
        # Made in the thread where they are used: each belongs to an event loop.
        self._has_more: anyio.Event
        self._is_done: anyio.Event
        self._is_broken = False
        self._is_over = False
        self.is_handed_over = False
        """Set, from any thread, when what is written need not go through the connection any more."""

    def open(self) -> None:
        """Begin, in the event loop that it is used in."""
        self._has_more, self._is_done = anyio.Event(), anyio.Event()

    async def receive(self) -> bytes:
        while True:
            try:
                return self._end.recv(_READ_BYTES)
            except BlockingIOError:
                await anyio.wait_readable(self._end)
            except OSError:
                return b""

    def write(self, data: bytes) -> None:
        self._waiting.append(data)
        self._has_more.set()

    def complain(self, line: str) -> None:
        self.stderr += line.splitlines()
        del self.stderr[:-_KEPT_LINES]

    async def send_all(self) -> None:
        """Send what is written, until cancelled."""
        try:
            while True:
                while self._waiting:
                    data = b"".join(self._waiting)
                    self._waiting.clear()
                    await self._send(data)
                self._is_done.set()
                await self._has_more.wait()
                self._has_more = anyio.Event()
                self._is_done = anyio.Event()
        finally:
            # Whoever waits for the rest would wait for ever.
            self._is_over = True
            self._is_done.set()

    async def _send(self, data: bytes) -> None:
        left = memoryview(data)
        while left and not self._is_broken:
            if self.is_handed_over:
                self.left.append(bytes(left))
                return
            try:
                left = left[self._end.send(left) :]
            except BlockingIOError:
                try:
                    # In steps: nobody may read any more, and who closes the connection says so elsewhere.
                    with anyio.move_on_after(0.05):
                        await anyio.wait_writable(self._end)
                except BaseException:
                    self.left.append(bytes(left))
                    raise
            except OSError:
                self._is_broken = True

    async def drain(self) -> None:
        while not self._is_over and (self._waiting or not self._is_done.is_set()):
            self._has_more.set()
            await self._is_done.wait()

    def close(self) -> None:
        if not self._is_broken:
            self.left += self._waiting
        self._end.close()


class Life:
    """One run of a simulated agent in the background thread."""

    def __init__(
        self,
        command: Command | None,
        *,
        script: Script,
        requests: RequestLog,
        hanging: Hanging,
        places: Places,
        version: str,
        environment: Mapping[str, str],
    ) -> None:
        self._script, self._requests, self._hanging = script, requests, hanging
        self._places, self._version = places, version
        self._private = places.make_private()
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
        self._cwd = Path(placed.cwd) if placed.cwd is not None else places.folder
        env = dict(os.environ if placed.env is None else placed.env)
        env |= environment
        chosen = env.get("CLAUDE_CONFIG_DIR")
        # What a session inherits belongs to whoever runs the test: nothing is written there.
        is_inherited = chosen is None or chosen == os.environ.get("CLAUDE_CONFIG_DIR")
        self._config = places.config_dir if is_inherited else Path(str(chosen))
        self._env = {**env, "CLAUDE_CONFIG_DIR": str(self._config)}
        _take_over(self._private / "config", self._config)
        self._has_begun = False
        self.code: int | None = None
        self.crash: BaseException | None = None
        near, far = socket.socketpair()
        near.setblocking(False)
        far.setblocking(False)
        self.end = near
        """The host's end."""
        self.socket = Socket(far)
        places.enter()
        self._lease = Lease()
        self._future: Future[int] = self._lease.start(self._main)

    @property
    def is_over(self) -> bool:
        return self.code is not None

    @property
    def stderr_tail(self) -> str:
        return "\n".join(self.socket.stderr)

    async def _main(self) -> int:
        code = 1
        self._has_begun = True
        self.socket.open()
        try:
            code = await self._run()
        except Exception as error:  # noqa: BLE001 - shown to whoever uses the transport
            self.crash = error
            self.socket.complain("The simulated agent itself failed, which is a mistake in Outrider:")
            self.socket.complain("".join(traceback.format_exception(error)))
        finally:
            shutil.rmtree(self._private, ignore_errors=True)
            self.code = code
            # Last: whoever sees the end of the connection finds the rest.
            self.socket.close()
        return code

    async def _run(self) -> int:
        from outrider.testing._simulator._run import Run

        code = 1
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self.socket.send_all)
            try:
                invocation = read_invocation(self._argv, self._env, self._cwd)
            except StartFailed as failed:
                self.socket.complain(str(failed))
            else:
                run = Run(
                    invocation,
                    self.socket,
                    script=self._script,
                    requests=self._requests,
                    hanging=self._hanging,
                    environment=self._env,
                    cwd=self._cwd,
                    config_dir=self._config,
                    version=self._version,
                )
                code = await run.main()
                await self.socket.drain()
            tasks.cancel_scope.cancel()
        return code

    def hand_over(self) -> None:
        """Do not wait for whoever reads."""
        self.socket.is_handed_over = True

    def cancel(self) -> None:
        """End it now. From any thread."""
        self.hand_over()
        self._future.cancel()

    def leave(self) -> None:
        """Give back what it holds, when it is over or cancelled."""
        self.end.close()
        self._lease.end()
        if not self._has_begun:
            # Cancelled before it could run: nothing else cleans up after it.
            self.socket.close()
            shutil.rmtree(self._private, ignore_errors=True)
        self._places.leave()

    def abandon(self) -> None:
        """End it, from any thread and at any time."""
        self.cancel()
        self.leave()


def _take_over(given: Path, config: Path) -> None:
    """Move sessions that came with the command to where this agent keeps its own."""
    for path in sorted(given.glob("projects/**/*")) if given != config else ():
        place = config / path.relative_to(given)
        if path.is_file():
            place.parent.mkdir(parents=True, exist_ok=True)
            path.replace(place)

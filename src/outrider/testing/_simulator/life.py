"""Owns a simulated agent that runs in this process: its end of the connection, its folder of files, its end.

Holds nothing of the transport that leads to it, so that one that is dropped is collected.
"""

from __future__ import annotations

import os
import shutil
import socket
import threading
import time
import traceback
from collections.abc import Awaitable, Callable, Mapping
from concurrent.futures import Future
from contextvars import Context
from pathlib import Path
from typing import TYPE_CHECKING, Final

import anyio
from anyio.from_thread import BlockingPortalProvider

from outrider.command import Command
from outrider.testing._api.requests import Request
from outrider.testing._simulator.program.invocation import StartFailed, read_invocation

if TYPE_CHECKING:
    from outrider.testing._script.script import Script
    from outrider.testing._simulator.model_loop import Hanging
    from outrider.testing._simulator.world import Places

__all__ = ["Lease", "Life", "RequestLog", "Socket"]


# Whatever the test runs on: it is another thread.
_provider: Final = BlockingPortalProvider(backend="asyncio")


class Lease:
    """A share in the thread, which starts with the first and ends with the last. Any thread may use it."""

    def __init__(self) -> None:
        self._portal = Context().run(_provider.__enter__)
        self._thread = Context().run(self._portal.call, threading.get_ident)
        self._lock = threading.Lock()
        self._is_over = False

    def start(self, function: Callable[[], Awaitable[int]]) -> Future[int]:
        """Run this in the thread. Cancelling what this gives cancels it."""
        # In a context of its own: that of the caller may say that it runs on another event loop.
        return Context().run(lambda: self._portal.start_task_soon(function, name="simulated agent"))

    def end(self) -> None:
        """Give the share back, once what was started is over or cancelled. A second time does nothing."""
        with self._lock:
            if self._is_over:
                return
            self._is_over = True
        if threading.get_ident() == self._thread:
            # The thread cannot wait for its own end.
            threading.Thread(target=_leave, name="end of simulated agents").start()
        else:
            _leave()


def _leave() -> None:
    Context().run(_provider.__exit__, None, None, None)


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
        from outrider.testing._simulator.run import Run

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


class RequestLog:
    """Requests in the order in which they were made."""

    def __init__(self) -> None:
        self._requests: list[Request] = []
        self._arrived = threading.Condition()

    def __len__(self) -> int:
        return len(self._requests)

    def add(self, request: Request) -> None:
        with self._arrived:
            self._requests.append(request)
            self._arrived.notify_all()

    def all(self) -> list[Request]:
        with self._arrived:
            return list(self._requests)

    def main(self) -> list[Request]:
        """Those of the main conversation."""
        return [request for request in self.all() if request.kind == "main"]

    def wait_for(self, what: int | Callable[[Request], bool], timeout: float) -> Request:
        """Block this thread until one is there. Raises `TimeoutError` if it does not come."""
        deadline = time.monotonic() + timeout
        with self._arrived:
            while (found := self._find(what)) is None:
                left = deadline - time.monotonic()
                if left <= 0:
                    came = ", ".join(request.kind for request in self._requests) or "none"
                    wanted = f"main request {what}" if isinstance(what, int) else "the request"
                    raise TimeoutError(f"{wanted} did not come within {timeout:g} s; those that did: {came}")
                self._arrived.wait(left)
        return found

    def _find(self, what: int | Callable[[Request], bool]) -> Request | None:
        if callable(what):
            return next(filter(what, self._requests), None)
        main = [request for request in self._requests if request.kind == "main"]
        return main[what - 1] if 1 <= what <= len(main) else None

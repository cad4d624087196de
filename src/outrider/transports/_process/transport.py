"""A transport to a child process: its pipes, seen from an event loop.

Does not know what the program is. The supervisor does what must happen even if the event loop is gone.
Outrider starts no process on Windows, but can be imported there.
"""

from __future__ import annotations

import os
import sys
import weakref
from contextlib import suppress
from copy import copy
from typing import TYPE_CHECKING, NamedTuple

import anyio
from anyio.lowlevel import checkpoint, checkpoint_if_cancelled

from outrider.errors import (
    ConnectionLost,
    LaunchError,
    OptionsError,
    ProcessExited,
    TransportClosed,
    UsageError,
)
from outrider.transports._process.child import Child, ShutdownTimeouts
from outrider.transports._process.pipes import InputClosed, LoopPipes
from outrider.transports._process.supervisor import supervisor
from outrider.transports._process.wakeup import FreshLock
from outrider.transports._transport import Transport

if sys.platform != "win32":
    from outrider.transports._process.spawn import run_uninterrupted, start

if TYPE_CHECKING:
    from collections.abc import Callable

    from outrider.command import Command
    from outrider.errors import OutriderError
    from outrider.transports._process.pipes import Ticket


_EXIT_SECONDS = 0.5
"""A write fails a moment before the exit that caused it is known, and the exit explains more."""


class ProcessTransport(Transport):
    """Runs a command and talks to it over its stdin and stdout.

    The process, and all that it starts, ends with this object: when it is closed or garbage collected, when
    the interpreter exits, and when this process is killed. `close` always takes at most `bound` seconds. It
    may be used from any thread and on one event loop after another; only one task may receive at a time.

    `connect` raises a `LaunchError` if the process cannot be started, and on Windows, where none can.
    """

    def __init__(
        self,
        command: Command,
        *,
        stderr: Callable[[str], object] | None = None,
        max_buffer_size: int | None = None,
        grace: float = 5.0,
        terminate: float = 5.0,
        write_timeout: float | None = 60.0,
    ) -> None:
        """`stderr` is called with each line that the process writes there, in a thread of its own, while this
        object exists.

        The process has `grace` seconds to end after its input, then `terminate` seconds after SIGTERM. It has
        `write_timeout` seconds to read what is sent; None: for ever.
        """
        if max_buffer_size is not None and max_buffer_size < 0:
            raise OptionsError(f"max_buffer_size is {max_buffer_size}; give a number of bytes, or None")
        for name, seconds in (("grace", grace), ("terminate", terminate), ("write_timeout", write_timeout)):
            if seconds is not None and not seconds >= 0:
                raise OptionsError(f"{name} is {seconds}; give a number of seconds")
        self.command = command
        self.max_buffer_size = max_buffer_size
        self._stderr = stderr
        self._timeouts = ShutdownTimeouts(grace, terminate)
        self._write_timeout = write_timeout
        self._lock = FreshLock()
        self._child: Child | None = None
        self._is_closed = False
        self._is_receiving = False
        self._cleanups: list[Callable[[], object]] = []

    async def connect(self) -> None:
        await checkpoint()
        if sys.platform == "win32":
            raise LaunchError(
                "Outrider cannot run Claude Code on Windows",
                argv=self.command.argv,
                hint="Run it in WSL: `wsl --install`, then install Python, Outrider and Claude Code there.",
            )
        # It takes a millisecond: not worth a thread.
        with self._lock:
            if not self._may_connect():
                raise TransportClosed("it has been closed", hint="Make a new one.")
            if self._child is None:
                run_uninterrupted(self._start)
                if not self._may_connect():
                    raise TransportClosed("it has been closed")

    def _start(self) -> None:
        child = start(self.command, self._stderr, self._timeouts)
        child.cleanups.extend(self._cleanups)
        self._child = child
        # At exit the supervisor ends all children at once.
        weakref.finalize(self, child.end).atexit = False
        if self._is_closed:
            # `end` was called in another thread or a signal handler, which cannot wait for the lock.
            child.end()

    async def receive(self) -> bytes:
        """The next bytes that the process wrote.

        After `close`, what came until then can still be received. Raises `ProcessExited` after the last byte
        if the process failed, `TransportClosed` before `connect`, and after the last byte if it was closed.
        """
        child = self._connected()
        if self._is_receiving:
            raise UsageError(
                "two tasks receive at the same time; let one of them hand over what the other needs"
            )
        self._is_receiving = True
        try:
            if not child.output.is_drained:
                # First: a cancellation must not lose what was read, and a reader that never waits would
                # starve the consumer.
                await checkpoint()
            while (data := child.output.take()) is None:
                if child.output.is_closed and not child.output.is_handed_over:
                    child.notice_closed_output()
                await child.output.wait()
        finally:
            self._is_receiving = False
        if data:
            return data
        # The reason is known a moment after the pipe has ended.
        await child.ended.wait()
        if child.error is not None:
            # A copy: the traceback of a raised error keeps everything in its frames alive.
            raise copy(child.error)
        if self._is_closed:
            raise TransportClosed("it has been closed")
        return data

    async def send(self, data: bytes) -> None:
        """Send bytes as they are.

        Raises `TransportClosed` with the reason if nothing can be sent, `ProcessExited` if the process has
        ended, or `ConnectionLost` if it does not read. A cancelled call has sent everything or nothing.
        """
        child = self._connected()
        # No full checkpoint: the sender of a request waits for the answer anyway.
        await checkpoint_if_cancelled()
        try:
            ticket = child.input.put(data)
        except InputClosed as error:
            raise await _explain_closed(child, str(error)) from None
        if ticket is None:
            return
        try:
            await self._wait_while_read(child, ticket)
        finally:
            child.input.withdraw(ticket)
        if not ticket.was_sent:
            raise await _explain_closed(child, child.input.refusal or "it is closed")

    async def _wait_while_read(self, child: Child, ticket: Ticket) -> None:
        """Wait until it is sent. The timeout restarts whenever the program has read something."""
        sent_bytes = -1
        while sent_bytes != (sent_bytes := child.input.sent_bytes):
            with anyio.move_on_after(self._write_timeout):
                await ticket.settled.wait()
                return
        raise ConnectionLost(
            f"the program has not read its input for {self._write_timeout:g} s"
            f" ({child.input.waiting_bytes} bytes wait)",
            hint="It hangs, or is stopped: close the session. A longer limit is `timeouts.write`.",
        )

    def loop_pipes(self) -> LoopPipes | None:
        """Its pipes, for the event loop; None in a subclass that overrides `send` or `receive`."""
        kind = type(self)
        is_plain = kind.send is ProcessTransport.send and kind.receive is ProcessTransport.receive
        if self._child is None or not is_plain:
            return None
        return LoopPipes(self._child.input, self._child.output)

    async def end_input(self) -> None:
        """Close stdin, after all that was sent. Does nothing before `connect`, and the second time."""
        if self._child is None:
            return
        await checkpoint()
        if (ticket := self._child.input.end("its input has been ended")) is not None:
            with anyio.move_on_after(self._write_timeout):
                await ticket.settled.wait()

    async def close(self) -> None:
        """End the process and all that it started. Before `connect`, only forbids it.

        Returns within `bound` seconds. A cancelled anyio scope waits for it. A raw `asyncio` cancellation
        does not wait, and the process ends all the same.
        """
        await self._close(kill=False)

    async def kill(self) -> None:
        """Kill the process and all that it started, at once."""
        await self._close(kill=True)

    async def _close(self, *, kill: bool) -> None:
        with self._lock:
            self._is_closed = True
        if self._child is not None:
            self._child.end(kill=kill)
            # Shielded: an anyio scope waits for what has to be done anyway. A raw cancellation gets through,
            # and the supervisor continues alone.
            with anyio.CancelScope(shield=True):
                await self._child.ended.wait()

    def put(self, data: bytes) -> None:
        """Send without waiting, from any thread. What can no longer be sent is dropped."""
        if self._child is not None:
            with suppress(InputClosed):
                self._child.input.put(data)

    def end(self, *, kill: bool = False) -> None:
        """Begin to end the process, from any thread, without waiting for it."""
        self._is_closed = True
        if self._child is not None:
            self._child.end(kill=kill)

    async def wait_exited(self) -> int | None:
        """Wait until the process and all that it started is gone; returns its exit code, None if it is
        lost."""
        child = self._connected()
        await child.ended.wait()
        return child.returncode

    def on_cleanup(self, clean_up: Callable[[], object]) -> None:
        """Call a function after the process has ended. A failure is logged.

        It must not hold this object, which would then never be garbage collected.
        """
        with self._lock:
            self._cleanups.append(clean_up)
            if self._child is not None:
                self._child.cleanups.append(clean_up)

    def on_stderr(self, tell: Callable[[str], object]) -> None:
        """Call this function with each line on stderr too, before the callback.

        It must not hold this object. Raises `UsageError` after `connect`.
        """
        with self._lock:
            if self._child is not None:
                raise UsageError("The process runs already", hint="Call `on_stderr` before `connect`.")
            self._stderr = _both(tell, self._stderr)

    @property
    def is_ready(self) -> bool:
        child = self._child
        if child is None:
            return False
        return child.input.refusal is None and not child.is_ending and not child.has_exited

    @property
    def is_alive(self) -> bool:
        """Whether the process runs, or anything that it started."""
        return self._child is not None and not self._child.ended.is_set

    @property
    def pid(self) -> int | None:
        """None before `connect`."""
        return None if self._child is None else self._child.pid

    @property
    def returncode(self) -> int | None:
        """Negative for a signal; None while it runs."""
        return None if self._child is None else self._child.returncode

    @property
    def exit_error(self) -> OutriderError | None:
        """Why the process failed, if it was not asked to end. Known even if nothing is read."""
        return None if self._child is None else self._child.error

    @property
    def stderr_tail(self) -> str:
        """The last 100 lines on stderr."""
        return "" if self._child is None else self._child.stderr.tail

    @property
    def dropped_bytes(self) -> int:
        """How many bytes were dropped because the process wrote more than 64 MiB while it was being ended."""
        return 0 if self._child is None else self._child.output.dropped_bytes

    @property
    def bound(self) -> float:
        """The longest that `close` takes, in seconds."""
        return self._timeouts.bound

    def resident_bytes(self) -> int:
        """The memory of the process and all that it started. Looks at every process of the machine."""
        return 0 if self._child is None else self._child.resident_bytes()

    def _may_connect(self) -> bool:
        return not self._is_closed

    def _connected(self) -> Child:
        if self._child is None:
            why = "it has been closed" if self._is_closed else "it is not connected yet"
            raise TransportClosed(why, hint="Call `connect` first." if not self._is_closed else "")
        return self._child


async def _explain_closed(child: Child, why: str) -> OutriderError:
    """The error to raise when nothing can be sent."""
    # With an error, it failed before it was asked to end.
    if child.is_ending and child.error is None:
        return TransportClosed("it is closed")
    if child.input.is_broken or child.has_exited:
        with anyio.move_on_after(_EXIT_SECONDS):
            await child.ended.wait()
    if child.ended.is_set:
        return copy(child.error) or ProcessExited(child.returncode, stderr_tail=child.stderr.tail)
    return TransportClosed(why)


def _both(first: Callable[[str], object], second: Callable[[str], object] | None) -> Callable[[str], object]:
    def call(line: str) -> None:
        first(line)
        if second is not None:
            second(line)

    return call


class LiveProcess(NamedTuple):
    """A child of this process, with all that it started."""

    pid: int
    argv: tuple[str, ...]
    """Its command line, secrets masked."""
    started_at: float
    """Seconds since the epoch."""
    is_ending: bool
    """Whether it has been asked to end."""
    marker: str
    """The variable that it and all that it started carry in their environment."""


def live_processes() -> list[LiveProcess]:
    """All of them, the oldest first. One leaves the list when it and all that it started is gone."""
    return [
        LiveProcess(
            child.pid,
            tuple(child.command.redaction(os.environ).mask_argv(child.command.argv)),
            child.started_at,
            child.is_ending,
            "=".join(child.marker),
        )
        for child in supervisor().children()
    ]


_SAID_LIMIT = 1024 * 1024
"""An answer is short; a program that floods is none of those that are asked."""


class Finished(NamedTuple):
    """What became of a command."""

    returncode: int | None
    """None if it was still running when its time was up."""
    output: bytes
    """What it wrote to stdout until then."""
    stderr_tail: str


async def run_to_end(command: Command, *, timeout: float) -> Finished:
    """Run a command with empty input, for `timeout` seconds at most; then it is killed.

    Raises a `LaunchError` if it cannot be started. That it fails is not an error here: the exit code tells.
    """
    output = bytearray()
    transport = ProcessTransport(command)
    await transport.connect()
    try:
        with anyio.move_on_after(timeout):
            await transport.end_input()
            while len(output) < _SAID_LIMIT and (data := await transport.receive()):
                output += data
    except ConnectionLost:
        pass
    finally:
        # What the program did on its own is known by now, or its time is up.
        code = transport.returncode
        await transport.kill()
    return Finished(code, bytes(output), transport.stderr_tail)

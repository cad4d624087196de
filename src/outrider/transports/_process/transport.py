"""A transport to a child process: its pipes, seen from an event loop.

Does not know what the program is. What must happen whatever becomes of the event loop is up to the
supervisor. Nothing of Outrider starts a process on Windows, but all of it can be imported there.
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
from outrider.transports._transport import Inbox, Messages, Receiver, Sendable, Transport, line_of

if sys.platform != "win32":
    from outrider.transports._process.spawn import run_uninterrupted, start

if TYPE_CHECKING:
    from collections.abc import Callable

    from outrider.command import Command
    from outrider.errors import OutriderError
    from outrider.transports._process.pipes import Ticket


_EXIT_SECONDS = 0.5
"""A write fails a moment before the exit that caused it is known: the exit tells more."""


class Link:
    """A child that has been started, for those who hold an end of it."""

    def __init__(
        self, child: Child, write_timeout: float | None, stderr: Callable[[str], object] | None
    ) -> None:
        self.child = child
        # The supervisor holds it weakly: it may well hold the owner of this.
        self._stderr = stderr
        self._write_timeout = write_timeout
        self._is_receiving = False

    @property
    def is_ready(self) -> bool:
        child = self.child
        return child.input.refusal is None and not child.is_ending and not child.has_exited

    async def receive(self) -> bytes:
        if self._is_receiving:
            raise UsageError(
                "two tasks receive at the same time; let one of them hand over what the other needs"
            )
        self._is_receiving = True
        try:
            output = self.child.output
            if not output.is_drained:
                # First, because what is read must not be lost to a cancellation; and a reader that never has
                # to wait would starve the consumer.
                await checkpoint()
            while (data := output.take()) is None:
                if output.is_closed and not output.is_handed_over:
                    self.child.notice_closed_output()
                await output.wait()
        finally:
            self._is_receiving = False
        if not data:
            # The pipe ends a moment before the reason is known.
            await self.child.ended.wait()
            if self.child.error is not None:
                # A copy: the traceback of a raised one would hold on to everything in its frames.
                raise copy(self.child.error)
        return data

    async def send(self, data: bytes) -> None:
        # No more than that: the sender of a request waits for the answer anyway.
        await checkpoint_if_cancelled()
        try:
            ticket = self.child.input.put(data)
        except InputClosed as error:
            raise await self._why_closed(str(error)) from None
        if ticket is None:
            return
        try:
            await self._wait_while_read(ticket)
        finally:
            self.child.input.withdraw(ticket)
        if not ticket.was_sent:
            raise await self._why_closed(self.child.input.refusal or "it is closed")

    async def _wait_while_read(self, ticket: Ticket) -> None:
        """Wait until it is sent. A program that reads slowly reads: what counts is the time in which nothing
        is read."""
        sent_bytes = -1
        while sent_bytes != (sent_bytes := self.child.input.sent_bytes):
            with anyio.move_on_after(self._write_timeout):
                await ticket.settled.wait()
                return
        raise ConnectionLost(
            f"the program has not read its input for {self._write_timeout:g} s"
            f" ({self.child.input.waiting_bytes} bytes wait)",
            hint="It hangs, or is stopped: close the session. A longer limit is `timeouts.write`.",
        )

    async def end_input(self) -> None:
        await checkpoint()
        ticket = self.child.input.end("its input has been ended")
        if ticket is not None:
            with anyio.move_on_after(self._write_timeout):
                await ticket.settled.wait()

    async def close(self, *, kill: bool = False) -> None:
        self.child.end(kill=kill)
        # Shielded: an anyio scope waits for what has to be done anyway. A raw cancel gets through, and the
        # supervisor goes on without us.
        with anyio.CancelScope(shield=True):
            await self.child.ended.wait()

    async def _why_closed(self, why: str) -> OutriderError:
        child = self.child
        # With an error, it failed before anybody asked it to end.
        if child.is_ending and child.error is None:
            return TransportClosed("it is closed")
        if child.input.is_broken or child.has_exited:
            with anyio.move_on_after(_EXIT_SECONDS):
                await child.ended.wait()
        if child.ended.is_set:
            return copy(child.error) or ProcessExited(child.returncode, stderr_tail=child.stderr.tail)
        return TransportClosed(why)


class ProcessTransport(Transport):
    """Runs a command and talks to it over its stdin and stdout.

    The process, and all that it starts, ends with this object: when it is closed, garbage collected, when the
    interpreter ends, and when this process is killed. `close` takes at most `bound` seconds, whatever the
    child
    does. It may be used from any thread and on one event loop after another; one task receives at a time.

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
        """`stderr` is called for each line that the process writes there, in a thread of its own, for as long
        as this object is there.

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
        self._link: Link | None = None
        self._is_closed = False
        self._is_split = False
        self._cleanups: list[Callable[[], object]] = []

    async def connect(self) -> None:
        await checkpoint()
        if sys.platform == "win32":
            raise LaunchError(
                "Outrider cannot run Claude Code on Windows",
                argv=self.command.argv,
                hint="Run it in WSL: `wsl --install`, then install Python, Outrider and Claude Code there.",
            )
        # It takes a millisecond, so there is nothing to gain by not waiting for it.
        with self._lock:
            if self._is_split:
                raise _split_error()
            if not self._may_connect():
                raise TransportClosed("it has been closed", hint="Make a new one.")
            if self._link is None:
                run_uninterrupted(self._start)
                if not self._may_connect():
                    raise TransportClosed("it has been closed")

    def _start(self) -> None:
        child = start(self.command, self._stderr, self._timeouts)
        child.cleanups.extend(self._cleanups)
        self._link = Link(child, self._write_timeout, self._stderr)
        self._finalizer = _end_with(self, child)
        if self._is_closed:
            # By `end`, in another thread or a signal handler, which cannot wait for the lock.
            child.end()

    async def receive(self) -> bytes:
        """The next bytes that the process wrote.

        After `close`, what came until then can still be received. Raises `ProcessExited` after the last byte
        if the process failed, `TransportClosed` before `connect`, and after the last byte if it was closed.
        """
        link = self._connected()
        data = await link.receive()
        if not data and self._is_closed:
            raise TransportClosed("it has been closed")
        return data

    async def send(self, data: bytes) -> None:
        """Send bytes as they are.

        Raises `TransportClosed` that says why nothing can be sent, `ProcessExited` if the process has ended,
        or
        `ConnectionLost` if it does not read. A cancelled call has sent all of it or, if nothing had gone out
        yet,
        nothing.
        """
        await self._connected().send(data)

    def loop_pipes(self) -> LoopPipes | None:
        """Its pipes, to be used from the event loop itself; None in a subclass with ways of its own."""
        kind = type(self)
        is_plain = kind.send is ProcessTransport.send and kind.receive is ProcessTransport.receive
        if self._link is None or self._is_split or not is_plain:
            return None
        return LoopPipes(self._link.child.input, self._link.child.output)

    async def end_input(self) -> None:
        """Close stdin, after all that is on its way. Does nothing before `connect` and the second time."""
        if self._link is None or self._is_split:
            return
        await self._link.end_input()

    async def close(self) -> None:
        """End the process and all that it started. Does nothing before `connect` but forbid it.

        Returns within `bound` seconds. A cancelled anyio scope waits for it; a raw `asyncio` cancellation
        does not,
        and the process ends all the same.
        """
        await self._close(kill=False)

    async def kill(self) -> None:
        """The same, at once: no time to write anything."""
        await self._close(kill=True)

    def put(self, data: bytes) -> None:
        """Send without waiting, from any thread. What can no longer be sent is dropped."""
        if self._link is not None and not self._is_split:
            with suppress(InputClosed):
                self._link.child.input.put(data)

    def end(self, *, kill: bool = False) -> None:
        """Begin to end the process, from any thread, without waiting for it."""
        self._is_closed = True
        if self._link is not None and not self._is_split:
            self._link.child.end(kill=kill)

    async def wait_exited(self) -> int | None:
        """Wait until the process and all that it started is gone; gives its exit code, None if it got
        lost."""
        child = self._connected().child
        await child.ended.wait()
        return child.returncode

    def split(self) -> tuple[Reader, Writer, Closer]:
        """Three ends for different tasks; this object is of no more use then. The process ends with the
        `Closer`.

        Raises `TransportClosed` before `connect` and after `close`.
        """
        with self._lock:
            link = self._connected()
            if self._is_closed:
                raise TransportClosed("it has been closed")
            self._is_split = True
            self._finalizer.detach()
        return Reader(link, self._inbox or Inbox(self.max_buffer_size)), Writer(link), Closer(link)

    def on_cleanup(self, clean_up: Callable[[], object]) -> None:
        """Have something done after the process has ended. If it fails, that is logged.

        It must not hold this object, which would then never be garbage collected.
        """
        with self._lock:
            self._cleanups.append(clean_up)
            if self._link is not None:
                self._link.child.cleanups.append(clean_up)

    def on_stderr(self, tell: Callable[[str], object]) -> None:
        """Have each line on stderr given to this function too, before the callback gets it.

        It must not hold this object. Raises `UsageError` after `connect`.
        """
        with self._lock:
            if self._link is not None:
                raise UsageError("The process runs already", hint="Call `on_stderr` before `connect`.")
            self._stderr = _both(tell, self._stderr)

    @property
    def is_ready(self) -> bool:
        return self._link is not None and not self._is_split and self._link.is_ready

    @property
    def is_alive(self) -> bool:
        """Whether the process runs, or anything that it started."""
        return self._link is not None and not self._link.child.ended.is_set

    @property
    def pid(self) -> int | None:
        """None before `connect`."""
        return None if self._link is None else self._link.child.pid

    @property
    def returncode(self) -> int | None:
        """Negative for a signal; None while it runs."""
        return None if self._link is None else self._link.child.returncode

    @property
    def exit_error(self) -> OutriderError | None:
        """Why the process ended, if it was a failure and not asked for. Known whether anybody reads or
        not."""
        return None if self._link is None else self._link.child.error

    @property
    def stderr_tail(self) -> str:
        """The last 100 lines on stderr."""
        return "" if self._link is None else self._link.child.stderr.tail

    @property
    def dropped_bytes(self) -> int:
        """How much a process that wrote more than 64 MiB while it was being ended wrote for nothing."""
        return 0 if self._link is None else self._link.child.output.dropped_bytes

    @property
    def bound(self) -> float:
        """The longest that `close` takes, in seconds."""
        return self._timeouts.bound

    def resident_bytes(self) -> int:
        """The memory that the process and all that it started has in use. Looks at every process of the
        machine."""
        return 0 if self._link is None else self._link.child.resident_bytes()

    def _may_connect(self) -> bool:
        return not self._is_closed

    async def _close(self, *, kill: bool) -> None:
        with self._lock:
            if self._is_split:
                raise _split_error()
            self._is_closed = True
        if self._link is not None:
            await self._link.close(kill=kill)

    def _connected(self) -> Link:
        if self._is_split:
            raise _split_error()
        if self._link is None:
            why = "it has been closed" if self._is_closed else "it is not connected yet"
            raise TransportClosed(why, hint="Call `connect` first." if not self._is_closed else "")
        return self._link


class Reader(Receiver):
    """The receiving end of a transport that was split."""

    def __init__(self, link: Link, inbox: Inbox) -> None:
        self._link = link
        self._inbox = inbox

    async def receive(self) -> bytes:
        """The next bytes, as those of the transport."""
        data = await self._link.receive()
        if not data and self._link.child.is_ending:
            raise TransportClosed("it has been closed")
        return data

    def messages(self) -> Messages:
        """The messages from here on, those that the transport had read already first."""
        return Messages(self, self._inbox)


class Writer:
    """The sending end of a transport that was split."""

    def __init__(self, link: Link) -> None:
        self._link = link

    @property
    def is_ready(self) -> bool:
        return self._link.is_ready

    async def write(self, message: Sendable) -> None:
        """Send one message as one line."""
        await self._link.send(line_of(message))

    async def send(self, data: bytes) -> None:
        """Send bytes as they are."""
        await self._link.send(data)

    async def end_input(self) -> None:
        """Close stdin, after all that is on its way."""
        await self._link.end_input()


class Closer:
    """Holds the process of a transport that was split: it ends when this is closed or dropped."""

    def __init__(self, link: Link) -> None:
        self._link = link
        _end_with(self, link.child)

    @property
    def exit_error(self) -> OutriderError | None:
        return self._link.child.error

    @property
    def returncode(self) -> int | None:
        return self._link.child.returncode

    async def close(self) -> None:
        """End the process and all that it started."""
        await self._link.close()

    async def kill(self) -> None:
        """The same, at once."""
        await self._link.close(kill=True)


def _both(first: Callable[[str], object], second: Callable[[str], object] | None) -> Callable[[str], object]:
    def call(line: str) -> None:
        first(line)
        if second is not None:
            second(line)

    return call


def _end_with(owner: object, child: Child) -> weakref.finalize[..., object]:
    """End the child when its owner is gone. At exit the host does it, for all of them at once."""
    finalizer = weakref.finalize(owner, child.end)
    finalizer.atexit = False
    return finalizer


def _split_error() -> UsageError:
    return UsageError("the transport has been split; use the reader, the writer and the closer that it gave")


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

    Raises a `LaunchError` if it cannot be started. That it fails is no error here: the exit code tells.
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

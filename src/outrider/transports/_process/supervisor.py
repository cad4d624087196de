"""The keeper of a child: a thread that ends it, step by step and each step bounded, come what may.

It is started with the child and ends with it. Event loops only wait for it, so no cancellation, no dead loop
and no garbage collection can leave a child behind. Does not know how pipes are served and processes found:
`_polling` does where pipes can be polled, `_threads` where they cannot.
"""

from __future__ import annotations

import logging
import os
import time
from abc import ABC, abstractmethod
from functools import partial
from threading import Thread
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

from outrider._threads import no_thread
from outrider.errors import ConnectionLost, ProcessExited
from outrider.transports._process.folder import remove_folder
from outrider.transports._process.wakeup import Flag
from outrider.transports._process.watchdog import host

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from outrider.command import Command
    from outrider.errors import OutriderError
    from outrider.transports._process.pipes import Ticket
    from outrider.transports._process.spawn import Spawned
    from outrider.transports._process.stderr import StderrLog


log = logging.getLogger("outrider.process")

FLUSH_SECONDS: Final = 1.0
"""What was sent before the close still goes out, if the child reads at all."""
LEFT_SECONDS: Final = 1.0
"""For processes that the child left behind, between SIGTERM and SIGKILL. Their input has ended with it."""
KILL_SECONDS: Final = 2.0
"""Until the system has ended what was killed; more only if a device or a network disk hangs."""
CALLBACK_SECONDS: Final = 1.0
"""For the user's stderr callback to get through the last lines."""
SILENT_SECONDS: Final = 5.0
"""A child that has closed its stdout may take so long to exit: nothing more can be heard from it."""
LOOK_SECONDS: Final = 0.02
"""Between two looks at processes that are no children of ours, whose end is not announced."""

READ_SIZE: Final = 65536
"""Larger reads and larger pipes measured no better."""
ENDING_LIMIT: Final = 64 * 1024 * 1024
"""So much is kept of what a child writes while it is being ended; the rest is only counted."""

_LONGEST_WAIT: Final = 86400.0
"""The system takes no number of milliseconds above 2**31, and nobody minds a look at the pipes each day."""


class Patience(NamedTuple):
    """How long a child may take to end, in seconds."""

    grace: float = 5.0
    """After the end of its input: it writes its transcript now."""
    terminate: float = 5.0
    """After SIGTERM, before SIGKILL."""

    @property
    def bound(self) -> float:
        """The longest that ending a child takes, whatever it does."""
        return FLUSH_SECONDS + self.grace + self.terminate + LEFT_SECONDS + KILL_SECONDS + CALLBACK_SECONDS


class InputEnd(Protocol):
    """The writing end of the child's stdin. Every method may be called from any thread, and none blocks."""

    sent_bytes: int
    """Grows while the child reads what had to wait."""

    @property
    def refusal(self) -> str | None:
        """Why nothing can be sent; None if something can."""
        ...

    @property
    def is_broken(self) -> bool:
        """Whether the child has closed its end."""
        ...

    @property
    def has_more(self) -> bool:
        """Whether something waits for the pipe to take it."""
        ...

    @property
    def waiting_bytes(self) -> int: ...

    def put(self, data: bytes) -> Ticket | None:
        """Send; gives a ticket if it has to be waited for. Raises `InputClosed` if nothing can be sent."""
        ...

    def withdraw(self, ticket: Ticket) -> None:
        """Take back a piece that nobody waits for any more, if nothing of it has gone out yet."""
        ...

    def end(self, why: str) -> Ticket | None:
        """Take nothing more, and close the pipe after the last piece; gives a ticket if that takes time."""
        ...

    def close(self, why: str) -> None:
        """Take nothing more and close the pipe; what is still waiting is never sent."""
        ...

    def forget(self) -> None:
        """Close it in a forked process."""
        ...


class OutputEnd(Protocol):
    """The reading end of the child's stdout. `take` and `wait` are for the event loop."""

    dropped_bytes: int

    @property
    def is_closed(self) -> bool:
        """Whether the child, and all that had it from the child, has closed it."""
        ...

    @property
    def is_handed_over(self) -> bool: ...

    @property
    def is_drained(self) -> bool:
        """Whether it is known that `wait` comes first."""
        ...

    def take(self) -> bytes | None:
        """The next bytes; `b""` at the end; None if there is nothing yet."""
        ...

    async def wait(self) -> None:
        """Wait until `take` may have something."""
        ...

    def hand_over(self) -> None:
        """From now on it is read whether anybody takes it or not."""
        ...

    def finish(self) -> None:
        """The child is gone: let `take` come to an end."""
        ...

    def forget(self) -> None:
        """Close all of it, in a forked process."""
        ...


class Keeper(ABC):
    """Owns a child process. `end` may be called from anywhere, any number of times, and never blocks."""

    input: InputEnd
    output: OutputEnd

    def __init__(
        self,
        spawned: Spawned,
        command: Command,
        number: int,
        *,
        stderr: StderrLog,
        patience: Patience,
        folder: Path | None,
    ) -> None:
        self.process = spawned.process
        self.command: Final = command
        self.pid: Final = spawned.process.pid
        self.number: Final = number
        self.started_at: Final = time.time()
        self.ended: Final = Flag()
        """Set when the child and all that belongs to it is gone."""
        self.returncode: int | None = None
        self.error: OutriderError | None = None
        """Why it ended, if it was a failure."""
        self.cleanups: Final[list[Callable[[], object]]] = []
        """Called at the very end, also after a failure."""
        self.stderr: Final = stderr
        self._patience = patience
        self._folder = folder
        self._is_asked = self._is_urgent = self._is_output_closed = False
        self._has_exited = False
        self._is_forgotten = False
        self._deadline = 0.0
        """When what was killed is given up."""
        self._threads = [Thread(target=self._run, name=f"outrider-keeper-{self.pid}", daemon=True)]

    def start(self) -> None:
        """Start keeping. Raises `LaunchError` if there can be no more threads, and the child is killed."""
        host().enter(self.number, self)
        try:
            for thread in self._threads:
                thread.start()
        except RuntimeError as error:
            self.end(kill=True)
            self._run_here()
            raise no_thread(error) from error

    def end(self, *, kill: bool = False) -> None:
        """Begin to end the child, in order or at once."""
        if not self._is_forgotten:
            self._is_asked = True
            self._is_urgent |= kill
            self._wake()

    def notice_closed_output(self) -> None:
        """The child has closed its stdout: it must exit soon."""
        self._is_output_closed = True
        self._wake()

    @property
    def is_ending(self) -> bool:
        return self._is_asked

    @property
    def has_exited(self) -> bool:
        """Whether the child itself has ended; what it left behind may still be there."""
        return self._has_exited

    @abstractmethod
    def resident_bytes(self) -> int:
        """The memory that the child and all that it started has in use."""

    def wait_blocking(self) -> None:
        self.ended.wait_blocking(min(self._patience.bound, _LONGEST_WAIT))

    def forget(self) -> None:
        """In a forked process: the child is the other one's. Only its pipes are here too, and must not stay
        open."""
        self._is_forgotten = True
        # Nobody here ends it, so nobody is to wait for that. Its descriptor is closed by now: in the other
        # process it would be set as well.
        self.ended.set()
        self.input.forget()
        self.output.forget()
        self.process.returncode = 0

    # What depends on the system. `_wake` may be called at any moment, even by the garbage collector.

    @abstractmethod
    def _wake(self) -> None:
        """Have `_serve_once` return."""

    @abstractmethod
    def _serve_once(self, seconds: float | None) -> None:
        """Keep the pipes moving until something happens, or the time is up."""

    @abstractmethod
    def _ask(self) -> bool:
        """Ask the child to end, in another way than by its input; says whether there is one."""

    @abstractmethod
    def _ask_others(self) -> bool:
        """Ask what the child left behind to end; says whether there is anything."""

    @abstractmethod
    def _has_others(self) -> bool: ...

    @abstractmethod
    def _kill(self) -> bool:
        """Kill the child and all that it started; says whether there was anything beside it."""

    @abstractmethod
    def _drain(self) -> None:
        """Read what is left in the pipes."""

    @abstractmethod
    def _reap(self) -> None: ...

    def _run_here(self) -> None:
        """There are no threads: be done with it in this one."""
        self._run()

    # The thread.

    def _run(self) -> None:
        try:
            self._serve(lambda: self._is_asked or self._is_output_closed)
            if self._is_output_closed and not self._is_asked:
                self._serve(lambda: self._is_asked, SILENT_SECONDS)
            was_asked, has_overstayed = self._is_asked, not self._has_exited
            if not self._has_exited:
                self._go_down()
            self._end_rest()
            self._finish()
            if not was_asked:
                self.error = self._failure(has_overstayed)
        except BaseException:
            self._abort()
            log.exception("the keeper of process %d failed; the process was killed", self.pid)
        finally:
            try:
                self._clean_up()
                host().warden.release(self.number)
            finally:
                # Whatever happens, nobody waits for this in vain.
                host().leave(self.number)
                self.ended.set()

    def _go_down(self) -> None:
        """The ladder. Each step is bounded and ends with the child."""
        self.output.hand_over()
        self.input.end("it is being closed")
        self._serve(lambda: not self.input.has_more or self._is_urgent, FLUSH_SECONDS)
        self.input.close("it is closed")
        self._serve(lambda: self._is_urgent, self._patience.grace)
        if not self._has_exited and not self._is_urgent and self._ask():
            self._serve(lambda: self._is_urgent, self._patience.terminate)

    def _end_rest(self) -> None:
        """End what is still there. The child is not reaped yet, so its number still means its group."""
        self.input.close("the program has ended")
        self.output.hand_over()
        if self._has_exited and not self._is_urgent:
            if not self._ask_others():
                self._deadline = time.monotonic() + KILL_SECONDS
                return
            self._look_while(self._has_others, LEFT_SECONDS)
        self._deadline = time.monotonic() + KILL_SECONDS
        if not self._look_while(lambda: self._kill() or not self._has_exited, KILL_SECONDS):
            log.error("not all that process %d started could be killed", self.pid)

    def _look_while(self, is_there: Callable[[], bool], seconds: float) -> bool:
        """Says whether it is gone."""
        deadline = time.monotonic() + seconds
        while is_there():
            if time.monotonic() >= deadline:
                return False
            self._serve(lambda: False, LOOK_SECONDS, exit_ends=False)
        return True

    def _finish(self) -> None:
        self._drain()
        self.output.finish()
        self._reap()
        self.stderr.finish(CALLBACK_SECONDS)

    def _failure(self, has_overstayed: bool) -> OutriderError | None:
        """What went wrong with a child that nobody asked to end."""
        if has_overstayed:
            return ConnectionLost("the program closed its stdout and went on running, so it was ended")
        if self.returncode == 0:
            return None
        return ProcessExited(self.returncode, stderr_tail=self.stderr.tail)

    def _abort(self) -> None:
        """The keeper itself has failed: do all that can still be done."""
        self.error = ConnectionLost("the keeper of the process failed; see the log of outrider.process")
        try:
            self._kill()
            self._has_exited = True
        except Exception:
            log.exception("process %d could not be killed either", self.pid)
        self.input.close("its keeper failed")
        self.output.finish()
        self._reap()

    def _clean_up(self) -> None:
        for clean_up in self._all_cleanups():
            try:
                clean_up()
            except BaseException:  # an exit that is meant for another thread, too
                log.exception("a clean-up after process %d failed", self.pid)

    def _all_cleanups(self) -> Iterator[Callable[[], object]]:
        if self._folder is not None:
            yield partial(remove_folder, self._folder)
        yield from self.cleanups

    def _serve(
        self, is_done: Callable[[], bool], seconds: float | None = None, *, exit_ends: bool = True
    ) -> None:
        """Keep the pipes moving until it is done, the time is up, or the child has exited."""
        deadline = None if seconds is None else time.monotonic() + seconds
        while not is_done() and not (exit_ends and self._has_exited):
            left = None if deadline is None else deadline - time.monotonic()
            if left is not None and left <= 0:
                return
            self._serve_once(None if left is None else min(left, _LONGEST_WAIT))


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
            keeper.pid,
            tuple(keeper.command.redaction(os.environ).mask_argv(keeper.command.argv)),
            keeper.started_at,
            keeper.is_ending,
            "=".join(host().marker(keeper.number)),
        )
        for keeper in host().live()
        if isinstance(keeper, Keeper)
    ]

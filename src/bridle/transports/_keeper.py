"""The keeper of a child: a thread that drains its stderr, notices its exit, and ends it, come what may.

It is started with the child and ends with it. Event loops only wait for it, so no cancellation, no dead loop
and no
garbage collection can leave a child behind. Does not read stdout while all is well: the event loop does.
"""

from __future__ import annotations

import logging
import os
import select
import signal
import time
from threading import Thread
from typing import TYPE_CHECKING, Final, NamedTuple

from bridle.errors import ConnectionLost, LaunchError, ProcessExited
from bridle.transports._flags import Bell, Descriptor, Flag
from bridle.transports._folder import remove_folder
from bridle.transports._host import host
from bridle.transports._input import Input
from bridle.transports._output import Output
from bridle.transports._tree import Tree

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from bridle.command import Command
    from bridle.errors import BridleError
    from bridle.transports._spawn import Spawned
    from bridle.transports._stderr import StderrLog

log = logging.getLogger("bridle.process")

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
_LOOK_SECONDS: Final = 0.02
"""Between two looks at processes that are no children of ours, whose end is not announced."""
_STDERR_LIMIT: Final = 1024 * 1024
_THREADS: Final = "Raise the limit (`ulimit -u`, the container's pids limit), or run fewer at once."


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


class Keeper:
    """Owns a child process. `end` may be called from anywhere, any number of times, and never blocks."""

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
        self.error: BridleError | None = None
        """Why it ended, if it was a failure."""
        self.cleanups: Final[list[Callable[[], object]]] = []
        """Called at the very end, also after a failure."""
        self._bell = Bell()
        self.input: Final = Input(spawned.stdin, self._bell.ring)
        self.output: Final = Output(spawned.stdout)
        self.stderr: Final = stderr
        self._stderr = Descriptor(spawned.stderr)
        os.set_blocking(spawned.stderr, False)
        self._patience = patience
        self._folder = folder
        name, value = host().marker(number)
        self.tree: Final = Tree(self.pid, f"{name}={value}")
        self._pidfd = _open_pidfd(self.pid)
        self._is_asked = self._is_urgent = self._is_output_closed = False
        self._has_exited = False
        self._is_forgotten = False
        self._thread = Thread(target=self._run, name=f"bridle-keeper-{self.pid}", daemon=True)

    def start(self) -> None:
        """Start keeping. Raises `LaunchError` if there can be no more threads, and the child is killed."""
        host().enter(self.number, self)
        try:
            self._thread.start()
        except RuntimeError as error:
            self.end(kill=True)
            self._run()
            raise LaunchError(
                f"no thread can be started to keep the process: {error}", hint=_THREADS
            ) from error
        folder = None if self._folder is None else str(self._folder)
        host().warden.watch(self.number, self.pid, self.tree.started, folder)

    def end(self, *, kill: bool = False) -> None:
        """Begin to end the child, in order or at once."""
        if not self._is_forgotten:
            self._is_asked = True
            self._is_urgent |= kill
            self._bell.ring()

    def notice_closed_output(self) -> None:
        """The child has closed its stdout: it must exit soon."""
        self._is_output_closed = True
        self._bell.ring()

    @property
    def is_ending(self) -> bool:
        return self._is_asked

    @property
    def has_exited(self) -> bool:
        """Whether the child itself has ended; what it left behind may still be there."""
        return self._has_exited

    def wait_blocking(self) -> None:
        self.ended.wait_blocking(self._patience.bound)

    def forget(self) -> None:
        """In a forked process: the child is the other one's. Only its pipes are here too, and must not stay
        open."""
        self._is_forgotten = True
        self.input.forget()
        self.output.forget()
        self._stderr.close()
        self.process.returncode = 0

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
        except Exception:
            log.exception("the keeper of process %d failed; the process is killed", self.pid)
            self._abort()
        finally:
            host().leave(self.number)
            self._clean_up()
            host().warden.release(self.number)
            self.ended.set()

    def _go_down(self) -> None:
        """The ladder. Each step is bounded and ends with the child."""
        self.output.hand_over()
        self.input.end("it is being closed")
        self._serve(lambda: not self.input.has_more or self._is_urgent, FLUSH_SECONDS)
        self.input.close("it is closed")
        self._serve(lambda: self._is_urgent, self._patience.grace)
        if not self._has_exited and not self._is_urgent:
            log.debug("process %d goes on without input; SIGTERM", self.pid)
            self.tree.signal_group(signal.SIGTERM)
            # A stopped process gets its signals only when it goes on.
            self.tree.signal_group(signal.SIGCONT)
            self._serve(lambda: self._is_urgent, self._patience.terminate)

    def _end_rest(self) -> None:
        """End what is still there. The child is not reaped yet, so its number still means its group."""
        self.input.close("the program has ended")
        self.output.hand_over()
        if self._has_exited and not self._is_urgent:
            if not self.tree.signal_others(signal.SIGTERM):
                return
            self.tree.signal_others(signal.SIGCONT)
            self._look_until_gone(LEFT_SECONDS)
        deadline = time.monotonic() + KILL_SECONDS
        self.tree.signal_group(signal.SIGKILL)
        while (
            self.tree.signal_others(signal.SIGKILL) or not self._has_exited
        ) and time.monotonic() < deadline:
            self._serve(lambda: False, _LOOK_SECONDS, exit_ends=False)

    def _look_until_gone(self, seconds: float) -> None:
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline and self.tree.others():
            self._serve(lambda: False, _LOOK_SECONDS, exit_ends=False)

    def _finish(self) -> None:
        self.output.finish()
        self._drain_stderr()
        self._reap()
        self.stderr.finish(CALLBACK_SECONDS)

    def _failure(self, has_overstayed: bool) -> BridleError | None:
        """What went wrong with a child that nobody asked to end."""
        if has_overstayed:
            return ConnectionLost("the program closed its stdout and went on running, so it was ended")
        if self.returncode == 0:
            return None
        return ProcessExited(self.returncode, stderr_tail=self.stderr.tail)

    def _reap(self) -> None:
        """Last of all: until now the zombie has kept its number, and that of its group, for itself."""
        if not self._has_exited:
            log.error("process %d cannot be killed; it is left to the system", self.pid)
            self.process.returncode = 0
            return
        try:
            self.returncode = _exit_code(_wait_for(self.pid, self._pidfd))
        except ChildProcessError:  # somebody else in this process waits for any child
            log.warning("process %d was reaped by somebody else; its exit code is lost", self.pid)
        # Popen would try to wait for it again.
        self.process.returncode = self.returncode or 0

    def _abort(self) -> None:
        self.tree.signal_group(signal.SIGKILL)
        self.tree.signal_others(signal.SIGKILL)
        self.input.close("its keeper failed")
        self.output.finish()
        self._has_exited = True
        self._reap()
        self.error = ConnectionLost("the keeper of the process failed; see the log of bridle.process")

    def _clean_up(self) -> None:
        self._stderr.close()
        self._pidfd.close()
        if self._folder is not None:
            remove_folder(self._folder)
        for clean_up in self.cleanups:
            try:
                clean_up()
            except Exception:
                log.exception("a clean-up after process %d failed", self.pid)

    def _serve(
        self, is_done: Callable[[], bool], seconds: float | None = None, *, exit_ends: bool = True
    ) -> None:
        """Keep the pipes moving until it is done, the time is up, or the child has exited."""
        deadline = None if seconds is None else time.monotonic() + seconds
        while not is_done() and not (exit_ends and self._has_exited):
            left = None if deadline is None else deadline - time.monotonic()
            if left is not None and left <= 0:
                return
            self._serve_once(left)

    def _serve_once(self, seconds: float | None) -> None:
        poll = select.poll()
        poll.register(self._bell.fileno(), select.POLLIN)
        if self._stderr.fileno() >= 0:
            poll.register(self._stderr.fileno(), select.POLLIN)
        if self._pidfd.fileno() >= 0 and not self._has_exited:
            poll.register(self._pidfd.fileno(), select.POLLIN)
        if self.input.has_more and (stdin := self.input.fileno()) >= 0:
            poll.register(stdin, select.POLLOUT)
        if self.output.is_handed_over and (stdout := self.output.fileno()) >= 0:
            poll.register(stdout, select.POLLIN)
        if self._pidfd.fileno() < 0:  # a system without pidfd: the exit has to be looked for
            seconds = _LOOK_SECONDS if seconds is None else min(seconds, _LOOK_SECONDS)
        ready = {number for number, _ in poll.poll(None if seconds is None else seconds * 1000)}
        if self._bell.fileno() in ready:
            self._bell.clear()
        if self._stderr.fileno() in ready:
            self._read_stderr()
        self.input.pump()
        if self.output.is_handed_over:
            self.output.drain()
        if not self._has_exited:
            self._has_exited = (
                _has_exited(self.pid) if self._pidfd.fileno() < 0 else self._pidfd.fileno() in ready
            )

    def _read_stderr(self) -> bool:
        try:
            data = os.read(self._stderr.fileno(), 65536)
        except BlockingIOError:
            return False
        if data:
            self.stderr.feed(data)
        else:
            self._stderr.close()
        return bool(data)

    def _drain_stderr(self) -> None:
        left = _STDERR_LIMIT
        while left > 0 and self._stderr.fileno() >= 0 and self._read_stderr():
            left -= 65536


def _open_pidfd(pid: int) -> Descriptor:
    try:
        return Descriptor(os.pidfd_open(pid) if hasattr(os, "pidfd_open") else -1)
    except OSError:
        return Descriptor(-1)


def _has_exited(pid: int) -> bool:
    try:
        return os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None
    except ChildProcessError:
        return True


def _wait_for(pid: int, pidfd: Descriptor) -> os.waitid_result | None:
    if pidfd.fileno() >= 0:
        return os.waitid(os.P_PIDFD, pidfd.fileno(), os.WEXITED)
    return os.waitid(os.P_PID, pid, os.WEXITED)


def _exit_code(result: os.waitid_result | None) -> int | None:
    if result is None:
        return None
    return result.si_status if result.si_code == os.CLD_EXITED else -result.si_status

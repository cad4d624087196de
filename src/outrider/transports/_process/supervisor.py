"""The supervisor of a child: a thread that ends it, step by step and each step bounded, come what may.

It is started with the child and ends with it. It drains stderr, notices the exit, and runs the shutdown.
Event loops only wait for it, so no cancellation, no dead loop and no garbage collection can leave a child
behind. Does not read stdout while all is well: the event loop does.
"""

from __future__ import annotations

import errno
import logging
import os
import select
import signal
import time
from threading import Thread
from typing import TYPE_CHECKING, Final, NamedTuple

from outrider._threads import no_thread
from outrider.errors import ConnectionLost, ProcessExited
from outrider.transports._process.pipes import LEFT_LIMIT, READ_SIZE, Input, Output
from outrider.transports._process.tree import Tree
from outrider.transports._process.wakeup import Descriptor, EventFd, WakeupFd
from outrider.transports._process.watchdog import host

if TYPE_CHECKING:
    from collections.abc import Callable

    from outrider.command import Command
    from outrider.errors import OutriderError
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
POLL_SECONDS: Final = 0.02
"""Between two looks at processes that are no children of ours, whose end is not announced."""

_LONGEST_WAIT: Final = 86400.0
"""The system takes no number of milliseconds above 2**31, and nobody minds a look at the pipes each day."""


class ShutdownTimeouts(NamedTuple):
    """How long a child may take to end, in seconds."""

    grace: float = 5.0
    """After the end of its input: it writes its transcript now."""
    terminate: float = 5.0
    """After SIGTERM, before SIGKILL."""

    @property
    def bound(self) -> float:
        """The longest that ending a child takes, whatever it does."""
        return FLUSH_SECONDS + self.grace + self.terminate + LEFT_SECONDS + KILL_SECONDS + CALLBACK_SECONDS


class Supervisor:
    """Owns a child process. `end` may be called from anywhere, any number of times, and never blocks."""

    def __init__(
        self,
        spawned: Spawned,
        command: Command,
        number: int,
        *,
        stderr: StderrLog,
        timeouts: ShutdownTimeouts,
    ) -> None:
        self.process = spawned.process
        self.command: Final = command
        self.pid: Final = spawned.process.pid
        self.number: Final = number
        self.started_at: Final = time.time()
        self.ended: Final = EventFd()
        """Set when the child and all that belongs to it is gone."""
        self.returncode: int | None = None
        self.error: OutriderError | None = None
        """Why it ended, if it was a failure."""
        self.cleanups: Final[list[Callable[[], object]]] = []
        """Called at the very end, also after a failure."""
        self.stderr: Final = stderr
        self._timeouts = timeouts
        self._is_asked = self._is_urgent = self._is_output_closed = False
        self._has_exited = False
        self._is_forgotten = False
        self._thread = Thread(target=self._run, name=f"outrider-supervisor-{self.pid}", daemon=True)
        self._wakeup = WakeupFd()
        self.input: Final = Input(spawned.stdin, self._wakeup.notify)
        self.output: Final = Output(spawned.stdout)
        name, value = host().marker(number)
        self.tree: Final = Tree(self.pid, f"{name}={value}", host().tag(number))
        self._pidfd = _open_pidfd(self.pid)
        # Last, because it owns what the caller closes if any of this fails.
        self._stderr = Descriptor(spawned.stderr)
        os.set_blocking(spawned.stderr, False)

    def start(self, folder: str | None) -> None:
        """Start the thread. Raises `LaunchError` if there can be no more threads, and the child is killed.

        The watchdog removes the private `folder` if this process is killed.
        """
        # First, because the thread takes both back at the end, and that may come at once.
        host().watchdog.watch(self.number, self.pid, self.tree.started, folder)
        host().enter(self.number, self)
        try:
            self._thread.start()
        except RuntimeError as error:
            self.end(kill=True)
            self._run()
            raise no_thread(error) from error

    def end(self, *, kill: bool = False) -> None:
        """Begin to end the child, in order or at once. The garbage collector may call it at any moment."""
        if not self._is_forgotten:
            self._is_asked = True
            self._is_urgent |= kill
            self._wakeup.notify()

    def notice_closed_output(self) -> None:
        """The child has closed its stdout: it must exit soon."""
        self._is_output_closed = True
        self._wakeup.notify()

    @property
    def is_ending(self) -> bool:
        return self._is_asked

    @property
    def has_exited(self) -> bool:
        """Whether the child itself has ended; what it left behind may still be there."""
        return self._has_exited

    def wait_blocking(self) -> None:
        self.ended.wait_blocking(min(self._timeouts.bound, _LONGEST_WAIT))

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

    # The thread.

    def _run(self) -> None:
        try:
            self._serve(lambda: self._is_asked or self._is_output_closed)
            if self._is_output_closed and not self._is_asked:
                self._serve(lambda: self._is_asked, SILENT_SECONDS)
            was_asked, has_overstayed = self._is_asked, not self._has_exited
            if not self._has_exited:
                self._shut_down()
            self._end_others()
            self._finish()
            if not was_asked:
                self.error = self._failure(has_overstayed)
        except BaseException:
            self._abort()
            log.exception("the supervisor of process %d failed; the process was killed", self.pid)
        finally:
            try:
                self._clean_up()
                host().watchdog.release(self.number)
            finally:
                # Whatever happens, nobody waits for this in vain.
                host().leave(self.number)
                self.ended.set()

    def _shut_down(self) -> None:
        """Flush, end of input, SIGTERM. Each step is bounded and ends with the child."""
        self.tree.note_descendants()
        self.output.hand_over()
        self.input.end("it is being closed")
        self._serve(lambda: not self.input.has_more or self._is_urgent, FLUSH_SECONDS)
        self.input.close("it is closed")
        self._serve(lambda: self._is_urgent, self._timeouts.grace)
        if not self._has_exited and not self._is_urgent:
            log.debug("process %d goes on without input; SIGTERM", self.pid)
            self.tree.note_descendants()
            self.tree.signal_group(signal.SIGTERM)
            # A stopped process gets its signals only when it goes on.
            self.tree.signal_group(signal.SIGCONT)
            self._serve(lambda: self._is_urgent, self._timeouts.terminate)

    def _end_others(self) -> None:
        """End what is still there. The child is not reaped yet, so its number still means its group."""
        self.input.close("the program has ended")
        self.output.hand_over()
        if self._has_exited and not self._is_urgent:
            if not self.tree.signal_others(signal.SIGTERM):
                return
            self.tree.signal_others(signal.SIGCONT)
            self._poll_while(self.tree.has_others, LEFT_SECONDS)
        if not self._poll_while(lambda: self._kill() or not self._has_exited, KILL_SECONDS):
            log.error("not all that process %d started could be killed", self.pid)

    def _kill(self) -> bool:
        """Kill the child and all that it started; says whether there was anything beside it."""
        # After the exit of the child its group is signalled with the others, if its number is still its own:
        # an application that ignores SIGCHLD has no zombies to keep one.
        if not self._has_exited:
            self.tree.note_descendants()
            self.tree.signal_group(signal.SIGKILL)
        return bool(self.tree.signal_others(signal.SIGKILL))

    def _poll_while(self, is_there: Callable[[], bool], seconds: float) -> bool:
        """Says whether it is gone."""
        deadline = time.monotonic() + seconds
        while is_there():
            if time.monotonic() >= deadline:
                return False
            self._serve(lambda: False, POLL_SECONDS, exit_ends=False)
        return True

    def _finish(self) -> None:
        left = LEFT_LIMIT
        while left > 0 and self._stderr.fileno() >= 0 and self._read_stderr():
            left -= READ_SIZE
        self.output.finish()
        self._reap()
        self.stderr.finish(CALLBACK_SECONDS)

    def _reap(self) -> None:
        """Last of all: until now the zombie has kept its number, and that of its group, for itself."""
        if not self._has_exited:
            log.error("process %d cannot be killed; it is left to the system", self.pid)
            self.process.returncode = 0
            return
        try:
            self.returncode = _wait_for(self.pid, self._pidfd)
        except ChildProcessError:  # somebody else in this process waits for any child
            log.warning("process %d was reaped by somebody else; its exit code is lost", self.pid)
        # Popen would try to wait for it again.
        self.process.returncode = self.returncode or 0
        self.tree.reap_orphans()

    def _failure(self, has_overstayed: bool) -> OutriderError | None:
        """What went wrong with a child that nobody asked to end."""
        if has_overstayed:
            return ConnectionLost("the program closed its stdout and went on running, so it was ended")
        if self.returncode == 0:
            return None
        return ProcessExited(self.returncode, stderr_tail=self.stderr.tail)

    def _abort(self) -> None:
        """The supervisor itself has failed: do all that can still be done."""
        self.error = ConnectionLost("the supervisor of the process failed; see the log of outrider.process")
        try:
            self._kill()
            self._has_exited = True
        except Exception:
            log.exception("process %d could not be killed either", self.pid)
        self.input.close("its supervisor failed")
        self.output.finish()
        self._reap()

    def _clean_up(self) -> None:
        self._stderr.close()
        self._pidfd.close()
        # A list that may grow meanwhile.
        for clean_up in self.cleanups:
            try:
                clean_up()
            except BaseException:  # an exit that is meant for another thread, too
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
            self._serve_once(None if left is None else min(left, _LONGEST_WAIT))

    def _serve_once(self, seconds: float | None) -> None:
        """Keep the pipes moving until something happens, or the time is up."""
        poll = select.poll()
        poll.register(self._wakeup.fileno(), select.POLLIN)
        if self._stderr.fileno() >= 0:
            poll.register(self._stderr.fileno(), select.POLLIN)
        if self._pidfd.fileno() >= 0 and not self._has_exited:
            poll.register(self._pidfd.fileno(), select.POLLIN)
        if self.input.has_more and (stdin := self.input.fileno()) >= 0:
            poll.register(stdin, select.POLLOUT)
        if self.output.is_handed_over and (stdout := self.output.fileno()) >= 0:
            poll.register(stdout, select.POLLIN)
        watchdog = host().watchdog
        pipe = watchdog.register(poll)
        if (due := watchdog.due_in()) is not None:
            seconds = due if seconds is None else min(seconds, due)
        if self._pidfd.fileno() < 0:  # a system without pidfd: the exit has to be looked for
            seconds = POLL_SECONDS if seconds is None else min(seconds, POLL_SECONDS)
        ready = {number for number, _ in poll.poll(None if seconds is None else seconds * 1000)}
        if pipe in ready or (pipe < 0 and watchdog.due_in() == 0):
            watchdog.maintain()
        if self._wakeup.fileno() in ready:
            self._wakeup.clear()
        if self._stderr.fileno() in ready:
            self._read_stderr()
        self.input.pump()
        if self.output.is_handed_over:
            self.output.drain()
        if not self._has_exited:
            pidfd = self._pidfd.fileno()
            self._has_exited = pidfd in ready if pidfd >= 0 else self.tree.has_exited()

    def _read_stderr(self) -> bool:
        try:
            data = os.read(self._stderr.fileno(), READ_SIZE)
        except BlockingIOError:
            return False
        if data:
            self.stderr.feed(data)
        else:
            self._stderr.close()
        return bool(data)


def _open_pidfd(pid: int) -> Descriptor:
    try:
        return Descriptor(os.pidfd_open(pid) if hasattr(os, "pidfd_open") else -1)
    except OSError as error:
        if error.errno in (errno.EMFILE, errno.ENFILE):
            raise
        return Descriptor(-1)


def _wait_for(pid: int, pidfd: Descriptor) -> int | None:
    """Reap a child that has exited; gives its exit code, negative for a signal."""
    if pidfd.fileno() < 0:
        return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    # By its handle: where somebody else has reaped it, its number may be that of another child.
    result = os.waitid(os.P_PIDFD, pidfd.fileno(), os.WEXITED)
    if result is None:
        return None
    return result.si_status if result.si_code == os.CLD_EXITED else -result.si_status

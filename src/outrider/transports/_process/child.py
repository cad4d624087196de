"""A child process: its pipes, and its shutdown, step by step and each step bounded.

Does not wait by itself: the supervisor's thread runs the steps of all children, so none of them may block.
Does not read stdout while all is well: the event loop does.
"""

from __future__ import annotations

import errno
import logging
import math
import os
import select
import signal
import time
from collections.abc import Callable, Generator, Iterator
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias, TypeVar

from outrider.errors import ConnectionLost, ProcessExited
from outrider.transports._process.pipes import LEFT_LIMIT, READ_SIZE, Input, Output
from outrider.transports._process.processes import Leader, processes
from outrider.transports._process.wakeup import Descriptor, ThreadEvent

if TYPE_CHECKING:
    from outrider.command import Command
    from outrider.errors import OutriderError
    from outrider.transports._process.spawn import Spawned
    from outrider.transports._process.stderr import StderrLog
    from outrider.transports._process.supervisor import Supervisor


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
"""Between two looks at processes whose end is not announced."""

_LONGEST_WAIT: Final = 86400.0
"""No thread can wait for as long as a float can say."""

T = TypeVar("T")
Steps: TypeAlias = Generator[float, None, T]
"""What is done for a child. It gives the time until which it waits, and goes on when that has come or
anything has happened to the child."""


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


class Child:
    """Owns a child process. `end` may be called from anywhere, any number of times, and never blocks."""

    def __init__(
        self,
        spawned: Spawned,
        command: Command,
        number: int,
        *,
        supervisor: Supervisor,
        stderr: StderrLog,
        timeouts: ShutdownTimeouts,
    ) -> None:
        self.process = spawned.process
        self.command: Final = command
        self.pid: Final = spawned.process.pid
        self.number: Final = number
        self.started_at: Final = time.time()
        self.ended: Final = ThreadEvent()
        """Set when the child and all that belongs to it is gone."""
        self.returncode: int | None = None
        self.error: OutriderError | None = None
        """Why it ended, if it was a failure."""
        self.cleanups: Final[list[Callable[[], object]]] = []
        """Called at the very end, also after a failure."""
        self.stderr: Final = stderr
        self._supervisor = supervisor
        self._timeouts = timeouts
        self._is_asked = self._is_urgent = self._is_output_closed = False
        self._has_exited = False
        self._is_forgotten = False
        self.input: Final = Input(spawned.stdin, self.wake)
        self.output: Final = Output(spawned.stdout)
        self.leader: Final = Leader(number, self.pid)
        self.steps: Final = self._run()
        # The next three are the supervisor's.
        self.timer = -1
        self.registered: Final[set[int]] = set()
        self.found: int | None = None
        """How many processes the search that it asked for has found beside it."""
        self._pidfd = _open_pidfd(self.pid)
        # Last, because it owns what the caller closes if any of this fails.
        self._stderr = Descriptor(spawned.stderr)
        os.set_blocking(spawned.stderr, False)

    def wake(self) -> None:
        """Have its next step taken. May be called in any thread, and by the garbage collector."""
        self._supervisor.wake(self)

    def end(self, *, kill: bool = False) -> None:
        """Begin to end the child, in order or at once. The garbage collector may call it at any moment."""
        if not self._is_forgotten:
            self._is_asked = True
            self._is_urgent |= kill
            self.wake()

    def notice_closed_output(self) -> None:
        """The child has closed its stdout: it must exit soon."""
        self._is_output_closed = True
        self.wake()

    @property
    def is_ending(self) -> bool:
        return self._is_asked

    @property
    def has_exited(self) -> bool:
        """Whether the child itself has ended; what it left behind may still be there."""
        return self._has_exited

    @property
    def marker(self) -> tuple[str, str]:
        """Name and value of the variable that marks it and all that it starts."""
        return self._supervisor.marker(self.number)

    def resident_bytes(self) -> int:
        """The memory that it and all that it started has in use. Looks at every process of the machine."""
        return self._supervisor.tree.resident_bytes(self.leader)

    def wait_blocking(self) -> None:
        self.ended.wait_blocking(min(self._timeouts.bound, _LONGEST_WAIT))

    def forget(self) -> None:
        """In a forked process: the child is the other one's. Only its pipes are here too, and must not stay
        open."""
        self._is_forgotten = True
        # Nobody here ends it, so nobody is to wait for that.
        self.ended.forget()
        self.input.forget()
        self.output.forget()
        self.process.returncode = 0

    # For the supervisor, in its thread.

    @property
    def announces_its_exit(self) -> bool:
        """Whether a descriptor says when it exits."""
        return self._pidfd.fileno() >= 0

    def descriptors(self) -> Iterator[tuple[int, int]]:
        """Those that are to be polled now, each with what for."""
        if (stderr := self._stderr.fileno()) >= 0:
            yield stderr, select.POLLIN
        if not self._has_exited and (pidfd := self._pidfd.fileno()) >= 0:
            yield pidfd, select.POLLIN
        if self.input.has_more and (stdin := self.input.fileno()) >= 0:
            yield stdin, select.POLLOUT
        if self.output.is_handed_over and (stdout := self.output.fileno()) >= 0:
            yield stdout, select.POLLIN

    def serve(self, ready: set[int]) -> None:
        """Move what can be moved through the pipes, a piece of each, and notice the exit."""
        if self._stderr.fileno() in ready:
            self._read_stderr()
        if self.input.has_more:
            self.input.pump()
        if self.output.fileno() in ready and self.output.is_handed_over:
            self.output.drain()
        if self._pidfd.fileno() in ready:
            self.notice_exit()

    def notice_exit(self) -> bool:
        """Look whether it has exited."""
        if not self._has_exited and (pidfd := self._pidfd.fileno()) >= 0:
            # By its handle: where somebody else has reaped it, its number may be that of another child.
            try:
                flags = os.WEXITED | os.WNOHANG | os.WNOWAIT
                self._has_exited = os.waitid(os.P_PIDFD, pidfd, flags) is not None
            except ChildProcessError:
                self._has_exited = True
        elif not self._has_exited:
            self._has_exited = self.leader.has_exited()
        return self._has_exited

    def release(self) -> None:
        """All steps have been taken, or one of them failed: nobody waits for it in vain."""
        self._stderr.close()
        self._pidfd.close()
        self.ended.set()

    # The steps.

    def _run(self) -> Steps[None]:
        try:
            yield from self._supervise()
        except GeneratorExit:  # in a forked process
            raise
        except BaseException:
            log.exception("the supervisor failed for process %d, which is killed", self.pid)
            yield from self._abort()
        yield from self._clean_up()

    def _supervise(self) -> Steps[None]:
        yield from self._wait(lambda: self._is_asked or self._is_output_closed)
        if self._is_output_closed and not self._is_asked:
            yield from self._wait(lambda: self._is_asked, SILENT_SECONDS)
        was_asked, has_overstayed = self._is_asked, not self._has_exited
        if not self._has_exited:
            yield from self._shut_down()
        yield from self._end_others()
        yield from self._finish()
        if not was_asked:
            self.error = self._failure(has_overstayed)

    def _wait(
        self, is_done: Callable[[], bool], seconds: float = math.inf, *, until_exit: bool = True
    ) -> Steps[None]:
        """Wait until it is done, the time is up, or the child has exited."""
        deadline = time.monotonic() + seconds
        while not (is_done() or (until_exit and self._has_exited)) and time.monotonic() < deadline:
            yield deadline

    def _shut_down(self) -> Steps[None]:
        """Flush, end of input, SIGTERM. Each step is bounded and ends with the child."""
        yield from self._note_descendants()
        self.output.hand_over()
        self.input.end("it is being closed")
        yield from self._wait(lambda: not self.input.has_more or self._is_urgent, FLUSH_SECONDS)
        self.input.close("it is closed")
        yield from self._wait(lambda: self._is_urgent, self._timeouts.grace)
        if not self._has_exited and not self._is_urgent:
            log.debug("process %d goes on without input; SIGTERM", self.pid)
            yield from self._note_descendants()
            self.leader.signal_group(signal.SIGTERM)
            # A stopped process gets its signals only when it goes on.
            self.leader.signal_group(signal.SIGCONT)
            yield from self._wait(lambda: self._is_urgent, self._timeouts.terminate)

    def _end_others(self) -> Steps[None]:
        """End what is still there. The child is not reaped yet, so its number still means its group."""
        self.input.close("the program has ended")
        self.output.hand_over()
        if self._has_exited and not self._is_urgent:
            if not (yield from self._signal_others(signal.SIGTERM, signal.SIGCONT)):
                return
            yield from self._poll_while(self._has_others, LEFT_SECONDS)
        if not (yield from self._poll_while(self._kill, KILL_SECONDS)):
            log.error("not all that process %d started could be killed", self.pid)

    def _kill(self) -> Steps[bool]:
        """Kill the child and all that it started; says whether any of it may still be there."""
        # After the exit of the child its group is signalled with the others, if its number is still its own:
        # an application that ignores SIGCHLD has no zombies to keep one.
        if not self._has_exited:
            yield from self._note_descendants()
            self.leader.signal_group(signal.SIGKILL)
        return (yield from self._signal_others(signal.SIGKILL)) or not self._has_exited

    def _signal_others(self, *numbers: int) -> Steps[bool]:
        """Signal those beside the child, each only if it is certainly ours; says whether there may be any."""
        is_there = False
        if self.leader.keeps_its_number():
            # All at once: one that forks on and on does not get away.
            for number in numbers:
                is_there |= self.leader.signal_group(number)
        if processes().can_be_searched:
            return (yield from self._search(*numbers)) > 0
        # Linux says nothing of a group but that its first, who has ended, is still in it; and what was killed
        # has not to be looked at again.
        return is_there and signal.SIGKILL not in numbers

    def _has_others(self) -> Steps[bool]:
        if processes().can_be_searched:
            return (yield from self._search()) > 0
        return self.leader.keeps_its_number()

    def _note_descendants(self) -> Steps[None]:
        """Have what it started remembered before it is ended, where nothing else marks that."""
        if processes().can_be_searched and not processes().has_tags:
            yield from self._search()

    def _search(self, *numbers: int) -> Steps[int]:
        """Have all processes that belong to the child found and signalled; says how many there may be."""
        self.found = None
        self._supervisor.request_search(self, numbers)
        yield from self._wait(lambda: self.found is not None, until_exit=False)
        return self.found or 0

    def _poll_while(self, is_there: Callable[[], Steps[bool]], seconds: float) -> Steps[bool]:
        """Says whether it is gone."""
        deadline = time.monotonic() + seconds
        while (yield from is_there()):
            if time.monotonic() >= deadline:
                return False
            yield from self._wait(lambda: False, POLL_SECONDS, until_exit=not self.notice_exit())
        return True

    def _finish(self) -> Steps[None]:
        left = LEFT_LIMIT
        while left > 0 and self._stderr.fileno() >= 0 and self._read_stderr():
            left -= READ_SIZE
        self.output.finish()
        self._reap()
        self.stderr.finish(self.wake)
        yield from self._wait(lambda: self.stderr.is_finished, CALLBACK_SECONDS, until_exit=False)
        if not self.stderr.is_finished:
            log.warning(
                "the stderr callback still runs after %g s; not waiting for it any longer", CALLBACK_SECONDS
            )

    def _reap(self) -> None:
        """Last of all: until now the zombie has kept its number, and that of its group, for itself."""
        # Popen would try to wait for it again.
        self.process.returncode = 0
        if not self._has_exited:
            log.error("process %d cannot be killed; it is left to the system", self.pid)
            return
        try:
            self.returncode = self._wait_for_exit_code()
        except ChildProcessError:  # somebody else in this process waits for any child
            log.warning("process %d was reaped by somebody else; its exit code is lost", self.pid)
        self.leader.reap_orphans()

    def _wait_for_exit_code(self) -> int | None:
        if (pidfd := self._pidfd.fileno()) < 0:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            return os.waitstatus_to_exitcode(status) if pid else None
        result = os.waitid(os.P_PIDFD, pidfd, os.WEXITED | os.WNOHANG)
        if result is None:
            return None
        return result.si_status if result.si_code == os.CLD_EXITED else -result.si_status

    def _failure(self, has_overstayed: bool) -> OutriderError | None:
        """What went wrong with a child that nobody asked to end."""
        if has_overstayed:
            return ConnectionLost("the program closed its stdout and went on running, so it was ended")
        if self.returncode == 0:
            return None
        return ProcessExited(self.returncode, stderr_tail=self.stderr.tail)

    def _abort(self) -> Steps[None]:
        """A step has failed: do all that can still be done."""
        self.error = ConnectionLost("the supervisor of the process failed; see the log of outrider.process")
        try:
            yield from self._poll_while(self._kill, KILL_SECONDS)
        except Exception:
            log.exception("process %d could not be killed either", self.pid)
        self.input.close("its supervisor failed")
        self.output.finish()
        self._reap()

    def _clean_up(self) -> Steps[None]:
        if self.cleanups:
            # They may take their time, and other children may not wait for them.
            is_done = self._supervisor.run_aside(self, self._call_cleanups)
            yield from self._wait(is_done, until_exit=False)

    def _call_cleanups(self) -> None:
        # A list that may grow meanwhile.
        for clean_up in self.cleanups:
            try:
                clean_up()
            except BaseException:  # an exit that is meant for another thread, too
                log.exception("a clean-up after process %d failed", self.pid)

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

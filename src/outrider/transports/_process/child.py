"""A child process: its pipes, what it says on stderr, and its shutdown, step by step and each step bounded.

Does not wait by itself: the supervisor's thread runs the steps of all children, so none of them may block.
Does not read stdout while all is well: the event loop does."""

from __future__ import annotations

import errno
import logging
import math
import os
import select
import signal
import time
import weakref
from collections import deque
from collections.abc import Callable, Generator
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias, TypeVar

from outrider.errors import ConnectionLost, ProcessExited
from outrider.redaction import DEFAULT
from outrider.transports._process.pipes import LEFT_LIMIT, READ_SIZE, Input, Output
from outrider.transports._process.processes import Leader, processes
from outrider.transports._process.wakeup import AsideThread, Descriptor, ThreadEvent
from outrider.transports._process.wakeup import process_log as log

if TYPE_CHECKING:
    from outrider.command import Command
    from outrider.errors import OutriderError
    from outrider.redaction import Redaction
    from outrider.transports._process.spawn import Spawned
    from outrider.transports._process.supervisor import Supervisor

KEPT_LINES: Final = 100
_KEPT_LENGTH: Final = 65536
"""How many characters are kept of a line, and of all lines together: errors made of them are searched for
secrets on the event loop. The callback gets everything."""

_LONGEST: Final = 16 * 1024 * 1024
"""Bytes after which a line counts as ended even without a line end, so that memory stays bounded."""
_WAITING_LIMIT: Final = 64 * 1024 * 1024
"""How many characters wait for a slow callback; more are left out, so that memory stays bounded."""


class StderrLog:
    """Splits stderr into lines, right-stripped and without blank ones."""

    def __init__(
        self,
        callback: Callable[[str], object] | None = None,
        redaction: Callable[[], Redaction] | None = None,
    ) -> None:
        """`redaction` returns what to hide in lines that are kept and logged; called when they are shown."""
        self._redaction = redaction
        self._callback = Callback(callback) if callback is not None else None
        self._pieces: list[bytes] = []
        self._held = 0
        self._lines: deque[str] = deque(maxlen=KEPT_LINES)
        self._count = self._length = 0

    @property
    def tail(self) -> str:
        """The last lines; if there were more, the first one says so."""
        lines = list(self._lines)
        if not lines:
            return ""
        hidden = self._hidden().mask_values("\n".join(lines))
        if self._count > len(lines):
            return f"[stderr truncated, showing last {len(lines)} lines]\n{hidden}"
        return hidden

    def feed(self, data: bytes) -> None:
        first, *others = data.split(b"\n")
        self._hold(first)
        for line in others:
            self._end_line()
            self._hold(line)

    def finish(self, wake: Callable[[], object]) -> None:
        """Note the end. Calls `wake`, in the thread of the callback, once that has got all lines."""
        self._end_line()
        if self._callback is not None:
            self._callback.finish(wake)

    @property
    def is_finished(self) -> bool:
        """Whether the callback has got all lines."""
        return self._callback is None or self._callback.is_finished

    def _hold(self, piece: bytes) -> None:
        if piece:
            self._pieces.append(piece)
            self._held += len(piece)
            if self._held > _LONGEST:
                self._end_line()

    def _end_line(self) -> None:
        # Bytes that are not UTF-8 are escaped: they may be the very problem.
        line = b"".join(self._pieces).decode("utf-8", "backslashreplace").rstrip()
        self._pieces, self._held = [], 0
        if not line:
            return
        self._count += 1
        self._keep(line if len(line) <= _KEPT_LENGTH else line[:_KEPT_LENGTH] + "…")
        if log.isEnabledFor(logging.DEBUG):
            log.debug("stderr: %s", self._hidden().preview(line, _KEPT_LENGTH))
        if self._callback is not None:
            self._callback.put(line)

    def _keep(self, line: str) -> None:
        if len(self._lines) == KEPT_LINES:
            self._length -= len(self._lines.popleft())
        self._lines.append(line)
        self._length += len(line)
        while self._length > _KEPT_LENGTH and len(self._lines) > 1:
            self._length -= len(self._lines.popleft())

    def _hidden(self) -> Redaction:
        return DEFAULT if self._redaction is None else self._redaction()


class Callback:
    """Calls the user's function for each line, in a thread of its own: it may be slow.

    Holds it weakly: it often is a method of what holds the transport, which could never be garbage collected
    then.
    """

    def __init__(self, function: Callable[[str], object]) -> None:
        self._function = _weakly(function)
        self._thread = AsideThread("outrider-stderr")
        self.is_finished = False
        # Each is changed by one thread only.
        self._given = self._taken = self._left_out = 0

    def put(self, line: str) -> None:
        if self._given - self._taken > _WAITING_LIMIT:
            self._left_out += 1
            return
        self._given += len(line)
        self._thread.call(partial(self._call, line))

    def finish(self, wake: Callable[[], object]) -> None:
        if self._left_out:
            log.warning("%d lines were not given to the stderr callback: it is too slow", self._left_out)
        self._thread.call(partial(self._end, wake))

    def _call(self, line: str) -> None:
        self._taken += len(line)
        function = self._function()
        if function is None:
            return
        try:
            function(line)
        except BaseException:  # an exit that is meant for another thread, too
            log.exception("the stderr callback failed for a line; it will be called for the next one")

    def _end(self, wake: Callable[[], object]) -> None:
        self.is_finished = True
        wake()


def _weakly(function: Callable[[str], object]) -> Callable[[], Callable[[str], object] | None]:
    try:
        return weakref.ref(function)
    except TypeError:  # there are objects without weak references
        return lambda: function


FLUSH_SECONDS: Final = 1.0
"""For what was sent before the close to go out, if the child reads at all."""
LEFT_SECONDS: Final = 1.0
"""For processes that the child left behind, between SIGTERM and SIGKILL. Their input has ended with it."""
KILL_SECONDS: Final = 2.0
"""For the system to end killed processes; it takes longer only if a device or a network disk hangs."""
CALLBACK_SECONDS: Final = 1.0
"""For the user's stderr callback to handle the last lines."""
SILENT_SECONDS: Final = 5.0
"""For a child that has closed its stdout to exit: nothing more can come from it."""
POLL_SECONDS: Final = 0.02
"""Between two checks of processes whose exit is not announced."""

_LONGEST_WAIT: Final = 86400.0
"""No thread can wait as long as a float can express."""

T = TypeVar("T")
Steps: TypeAlias = Generator[float, None, T]
"""The steps of a child's supervision. Yields the time until which it waits, and continues then or when
something happens to the child."""


class ShutdownTimeouts(NamedTuple):
    """How long a child may take to end, in seconds."""

    grace: float = 5.0
    """After the end of its input: it writes its transcript now."""
    terminate: float = 5.0
    """After SIGTERM, before SIGKILL."""

    @property
    def bound(self) -> float:
        """The longest time that ending a child can take."""
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
        """Called at the very end, even after a failure."""
        self.stderr: Final = stderr
        self._supervisor = supervisor
        self._timeouts = timeouts
        self.is_ending = False
        """Whether it has been asked to end."""
        self.has_exited = False
        """Whether the child itself has ended; what it left behind may still be there."""
        self._is_urgent = self._is_output_closed = False
        self._is_forgotten = self._is_clean = False
        self.input: Final = Input(spawned.stdin, self.wake)
        self.output: Final = Output(spawned.stdout)
        self.leader: Final = Leader(number, self.pid)
        self.steps: Final = self._run()
        # The next three are the supervisor's.
        self.timer = -1
        self.registered: Final[set[int]] = set()
        self.found = -1
        """How many other processes its last search has found; -1 before that."""
        self._pidfd = _open_pidfd(self.pid)
        # Last: the caller closes these if anything above fails.
        self._stderr = Descriptor(spawned.stderr)
        os.set_blocking(spawned.stderr, False)

    def wake(self) -> None:
        """Wake the supervisor for its next step. Safe in any thread, and in the garbage collector."""
        self._supervisor.wake(self)

    def end(self, *, kill: bool = False) -> None:
        """Begin to end the child, in order or at once. Safe in the garbage collector."""
        if not self._is_forgotten:
            self.is_ending = True
            self._is_urgent |= kill
            self.wake()

    def notice_closed_output(self) -> None:
        """Note that the child has closed its stdout, and must exit soon."""
        self._is_output_closed = True
        self.wake()

    @property
    def marker(self) -> tuple[str, str]:
        """Name and value of the variable that marks it and all that it starts."""
        return self._supervisor.marker(self.number)

    def resident_bytes(self) -> int:
        """The memory of it and all that it started. Looks at every process of the machine."""
        return self._supervisor.tree.resident_bytes(self.leader)

    def wait_blocking(self) -> None:
        self.ended.wait_blocking(min(self._timeouts.bound, _LONGEST_WAIT))

    def forget(self) -> None:
        """Close its pipes in a forked process: the child belongs to the parent."""
        self._is_forgotten = True
        # This process does not end it, so nothing here may wait for its end.
        self.ended.forget()
        self.input.forget()
        self.output.forget()
        self.process.returncode = 0

    # For the supervisor, in its thread.

    @property
    def announces_its_exit(self) -> bool:
        """Whether a descriptor says when it exits."""
        return self._pidfd.number >= 0

    def descriptors(self) -> list[tuple[int, int]]:
        """Those to poll now, each with the events to wait for."""
        wanted = [(self._stderr.number, select.POLLIN)]
        if not self.has_exited:
            wanted.append((self._pidfd.number, select.POLLIN))
        if self.input.has_more:
            wanted.append((self.input.number, select.POLLOUT))
        if self.output.is_handed_over:
            wanted.append((self.output.number, select.POLLIN))
        return wanted

    def serve(self, ready: set[int]) -> None:
        """Move a piece of data through each ready pipe, and notice the exit."""
        if self._stderr.number in ready:
            self._read_stderr()
        if self.input.has_more:
            self.input.pump()
        if self.output.number in ready and self.output.is_handed_over:
            self.output.drain()
        if self._pidfd.number in ready:
            self.notice_exit()

    def notice_exit(self) -> bool:
        """Look whether it has exited."""
        if not self.has_exited and (pidfd := self._pidfd.number) >= 0:
            # By its handle: if other code has reaped it, its number may belong to another child.
            try:
                flags = os.WEXITED | os.WNOHANG | os.WNOWAIT
                self.has_exited = os.waitid(os.P_PIDFD, pidfd, flags) is not None
            except ChildProcessError:
                self.has_exited = True
        elif not self.has_exited:
            self.has_exited = self.leader.has_exited()
        return self.has_exited

    def release(self) -> None:
        """Wake all that wait for its end: all steps are done, or one failed."""
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
        yield from self._wait(lambda: self.is_ending or self._is_output_closed)
        if self._is_output_closed and not self.is_ending:
            yield from self._wait(lambda: self.is_ending, SILENT_SECONDS)
        was_asked, has_overstayed = self.is_ending, not self.has_exited
        if not self.has_exited:
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
        while not (is_done() or (until_exit and self.has_exited)) and time.monotonic() < deadline:
            yield deadline

    def _shut_down(self) -> Steps[None]:
        """Flush, end of input, SIGTERM. Each step is bounded and ends with the child."""
        yield from self._note_descendants()
        self.output.hand_over()
        self.input.end("it is being closed")
        yield from self._wait(lambda: not self.input.has_more or self._is_urgent, FLUSH_SECONDS)
        self.input.close("it is closed")
        yield from self._wait(lambda: self._is_urgent, self._timeouts.grace)
        if not self.has_exited and not self._is_urgent:
            log.debug("process %d goes on without input; SIGTERM", self.pid)
            yield from self._note_descendants()
            self.leader.signal_group(signal.SIGTERM)
            # A stopped process gets its signals only when it continues.
            self.leader.signal_group(signal.SIGCONT)
            yield from self._wait(lambda: self._is_urgent, self._timeouts.terminate)

    def _end_others(self) -> Steps[None]:
        """End what is still there. The child is not reaped yet, so its number still means its group."""
        self.input.close("the program has ended")
        self.output.hand_over()
        if self.has_exited and not self._is_urgent:
            if not (yield from self._signal_others(signal.SIGTERM, signal.SIGCONT)):
                return
            yield from self._poll_while(self._has_others, LEFT_SECONDS)
        if not (yield from self._poll_while(self._kill, KILL_SECONDS)):
            log.error("not all that process %d started could be killed", self.pid)

    def _kill(self) -> Steps[bool]:
        """Kill the child and all that it started; returns whether any of it may be left."""
        # After the child's exit its group is signalled with the others, if its number is still its own: an
        # application that ignores SIGCHLD has no zombies that keep it.
        if not self.has_exited:
            yield from self._note_descendants()
            self.leader.signal_group(signal.SIGKILL)
        return (yield from self._signal_others(signal.SIGKILL)) or not self.has_exited

    def _signal_others(self, *numbers: int) -> Steps[bool]:
        """Signal the child's other processes that are certainly ours; returns whether there may be any."""
        is_there = False
        if self.leader.keeps_its_number():
            # All at once: a process that keeps forking does not escape.
            for number in numbers:
                is_there |= self.leader.signal_group(number)
        if processes().can_be_searched:
            return (yield from self._search(*numbers)) > 0
        # A group exists while its ended leader is unreaped, so this says nothing of the others; killed ones
        # need no second look.
        return is_there and signal.SIGKILL not in numbers

    def _has_others(self) -> Steps[bool]:
        if processes().can_be_searched:
            return (yield from self._search()) > 0
        return self.leader.keeps_its_number()

    def _note_descendants(self) -> Steps[None]:
        """Remember what it started before it is ended, where nothing else marks these processes."""
        if processes().can_be_searched and not processes().has_tags:
            yield from self._search()

    def _search(self, *numbers: int) -> Steps[int]:
        """Find and signal all processes of the child; returns how many there may be."""
        self.found = -1
        self._supervisor.request_search(self, numbers)
        yield from self._wait(lambda: self.found >= 0, until_exit=False)
        return self.found

    def _poll_while(self, is_there: Callable[[], Steps[bool]], seconds: float) -> Steps[bool]:
        """Poll for `seconds` at most; returns whether it is gone."""
        deadline = time.monotonic() + seconds
        while (yield from is_there()):
            if time.monotonic() >= deadline:
                return False
            yield from self._wait(lambda: False, POLL_SECONDS, until_exit=not self.notice_exit())
        return True

    def _finish(self) -> Steps[None]:
        left = LEFT_LIMIT
        while left > 0 and self._stderr.number >= 0 and self._read_stderr():
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
        """Reap the child. Last of all: until now the zombie has reserved its number and that of its group."""
        # Popen would try to wait for it again.
        self.process.returncode = 0
        if not self.has_exited:
            log.error("process %d cannot be killed; it is left to the system", self.pid)
            return
        try:
            self.returncode = self._wait_for_exit_code()
        except ChildProcessError:  # someone else in this process waits for any child
            log.warning("process %d was reaped by somebody else; its exit code is lost", self.pid)
        self.leader.reap_orphans()

    def _wait_for_exit_code(self) -> int | None:
        if (pidfd := self._pidfd.number) < 0:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            return os.waitstatus_to_exitcode(status) if pid else None
        result = os.waitid(os.P_PIDFD, pidfd, os.WEXITED | os.WNOHANG)
        if result is None:
            return None
        return result.si_status if result.si_code == os.CLD_EXITED else -result.si_status

    def _failure(self, has_overstayed: bool) -> OutriderError | None:
        """The failure of a child that was not asked to end."""
        if has_overstayed:
            return ConnectionLost("the program closed its stdout and went on running, so it was ended")
        if self.returncode == 0:
            return None
        return ProcessExited(self.returncode, stderr_tail=self.stderr.tail)

    def _abort(self) -> Steps[None]:
        """Do all that can still be done after a step has failed."""
        self.error = ConnectionLost("the supervisor of the process failed; see the log of outrider.process")
        try:
            if not self.has_exited:
                # At once, without waiting: the next step may fail as well.
                self._supervisor.tree.note_descendants()
                self.leader.signal_group(signal.SIGKILL)
            yield from self._poll_while(self._kill, KILL_SECONDS)
        except Exception:
            log.exception("process %d could not be killed either", self.pid)
        self.input.close("its supervisor failed")
        self.output.finish()
        self._reap()

    def _clean_up(self) -> Steps[None]:
        if self.cleanups:
            # In a thread: they may be slow, and other children must not wait for them.
            AsideThread(f"outrider-cleanup-{self.pid}").call(self._call_cleanups)
            yield from self._wait(lambda: self._is_clean, until_exit=False)

    def _call_cleanups(self) -> None:
        # The list may grow meanwhile.
        for clean_up in self.cleanups:
            try:
                clean_up()
            except BaseException:  # an exit that is meant for another thread, too
                log.exception("a clean-up after process %d failed", self.pid)
        self._is_clean = True
        self.wake()

    def _read_stderr(self) -> bool:
        try:
            data = os.read(self._stderr.number, READ_SIZE)
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

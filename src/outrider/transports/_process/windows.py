"""Windows: the job object that a child lives and dies in with all that it starts, and the keeper with one.

The system ends a job with its last handle, so also when the host is killed. Does not keep the child: the
threads do. Sizes and signatures are declared here in full, so that they can be checked on any system.
"""

from __future__ import annotations

import ctypes
import errno
import logging
import os
import sys
import time
from collections import deque
from collections.abc import Callable, Mapping
from functools import cache, partial
from queue import Empty, SimpleQueue
from threading import Condition, Lock, Thread
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

from outrider.transports._process.pipes import InputClosed, Ticket
from outrider.transports._process.supervisor import ENDING_LIMIT, READ_SIZE, Keeper
from outrider.transports._process.wakeup import Bell

if TYPE_CHECKING:
    import subprocess
    from pathlib import Path

    from outrider.command import Command
    from outrider.transports._process.spawn import Spawned
    from outrider.transports._process.stderr import StderrLog
    from outrider.transports._process.supervisor import Patience


BUFFER_LIMIT: Final = 65536
"""So much is taken on trust in each direction, as a pipe does elsewhere; then writers wait, and the child."""


class Piece:
    """Bytes on their way to the child that nobody waits for."""

    def __init__(self, data: bytes) -> None:
        self.rest = memoryview(data)
        self.has_begun = False


class BlockingInput:
    """The writing end of the child's stdin. `run` is for a thread; nothing else blocks."""

    def __init__(self, number: int, wake: Callable[[], None]) -> None:
        self._number = number
        self._wake = wake
        self._changed = Condition(Lock())
        self._queue: deque[Piece | Ticket] = deque()
        self._waiting = 0
        self._refusal: str | None = None
        self._is_broken = False
        self._is_cut = False
        """Whether what is in the queue is of no more interest."""
        self._is_closed = False
        self.sent_bytes = 0
        """How much the pipe has taken."""

    @property
    def refusal(self) -> str | None:
        """Why nothing can be sent; None if something can."""
        return self._refusal

    @property
    def is_broken(self) -> bool:
        """Whether the child has closed its end. Known only after something was sent."""
        return self._is_broken

    @property
    def is_closed(self) -> bool:
        """Whether `run` has come to its end."""
        return self._is_closed

    @property
    def has_more(self) -> bool:
        return bool(self._queue)

    @property
    def waiting_bytes(self) -> int:
        return self._waiting

    def put(self, data: bytes) -> Ticket | None:
        """Send; gives a ticket if more waits than is taken on trust."""
        with self._changed:
            if self._refusal is not None:
                raise InputClosed(self._refusal)
            ticket = Ticket(memoryview(data)) if self._waiting + len(data) > BUFFER_LIMIT else None
            self._append(ticket or Piece(data))
        return ticket

    def withdraw(self, ticket: Ticket) -> None:
        with self._changed:
            if not ticket.has_begun and ticket in self._queue:
                self._queue.remove(ticket)
                self._waiting -= len(ticket.rest)
                # Nobody waits, but on Windows somebody may look; see `Flag.wait`.
                ticket.flag.set()

    def end(self, why: str) -> Ticket | None:
        with self._changed:
            if self._refusal is None:
                self._refusal = why
            last = self._queue[-1] if self._queue else None
            if isinstance(last, Piece):
                last = Ticket(memoryview(b""))
                self._append(last)
            self._changed.notify()
            return last

    def close(self, why: str) -> None:
        """Close the pipe as soon as it can be: a write that blocks goes on until the child reads or ends."""
        with self._changed:
            if self._refusal is None:
                self._refusal = why
            self._cut()

    def forget(self) -> None:
        self._refusal = "it belongs to the process that this one was forked from"
        if not self._is_closed:
            os.close(self._number)

    # The thread.

    def run(self) -> None:
        """Write what is put until the end is reached, then close the pipe."""
        while (piece := self._next()) is not None:
            try:
                # Nothing is never written: on Windows the child would take it for the end.
                sent = os.write(self._number, piece.rest[:READ_SIZE]) if piece.rest else 0
            except OSError as error:
                self._break(error)
            else:
                self._advance(piece, sent)
        os.close(self._number)
        self._is_closed = True
        self._wake()

    def _next(self) -> Piece | Ticket | None:
        with self._changed:
            while not self._queue and self._refusal is None:
                self._changed.wait()
            if not self._queue:
                return None
            # From now on it cannot be withdrawn.
            self._queue[0].has_begun = True
            return self._queue[0]

    def _advance(self, piece: Piece | Ticket, sent: int) -> None:
        with self._changed:
            if self._is_cut:
                return
            piece.rest = piece.rest[sent:]
            self._waiting -= sent
            self.sent_bytes += sent
            if not piece.rest:
                self._queue.popleft()
                if isinstance(piece, Ticket):
                    piece.was_sent = True
                    piece.flag.set()
            is_flushed = not self._queue and self._refusal is not None
        if is_flushed:
            self._wake()

    def _break(self, error: OSError) -> None:
        with self._changed:
            self._is_broken = True
            # Windows calls a pipe without a reader an invalid argument.
            reason = os.strerror(errno.EPIPE) if error.errno == errno.EINVAL else error.strerror
            self._refusal = self._refusal or f"the program has closed its stdin ({reason})"
            self._cut()

    def _append(self, piece: Piece | Ticket) -> None:
        self._queue.append(piece)
        self._waiting += len(piece.rest)
        self._changed.notify()

    def _cut(self) -> None:
        self._is_cut = True
        self._waiting = 0
        while self._queue:
            piece = self._queue.popleft()
            if isinstance(piece, Ticket):
                piece.flag.set()
        self._changed.notify()


class BlockingOutput:
    """The reading end of the child's stdout. `take` and `wait` are for the event loop, `run` for a thread."""

    def __init__(self, number: int, wake: Callable[[], None]) -> None:
        self._number = number
        self._wake = wake
        self._changed = Condition(Lock())
        self._kept: deque[bytes] = deque()
        self._kept_size = 0
        self.dropped_bytes = 0
        """What was thrown away because it came too late and was too much."""
        self._is_handed_over = False
        self._is_closed = False
        self._is_over = False
        self._is_awaited = False
        self._news = Bell()

    @property
    def is_closed(self) -> bool:
        """Whether the child, and all that had it from the child, has closed it, and `run` is at its end."""
        return self._is_closed

    @property
    def is_handed_over(self) -> bool:
        return self._is_handed_over

    @property
    def is_drained(self) -> bool:
        return False

    def take(self) -> bytes | None:
        with self._changed:
            if self._kept:
                return self._pop()
            if self._is_over:
                return b""
            self._news.clear()
            self._is_awaited = True
            return None

    async def wait(self) -> None:
        await self._news.wait()

    def hand_over(self) -> None:
        """From now on it is read whether anybody takes it or not."""
        with self._changed:
            self._is_handed_over = True
            self._changed.notify()

    def finish(self) -> None:
        """Let `take` come to an end, after what has been read."""
        with self._changed:
            self._is_handed_over = self._is_over = True
            self._changed.notify()
            self._news.ring()

    def forget(self) -> None:
        if not self._is_closed:
            os.close(self._number)
        self._is_over = True

    # The thread.

    def run(self) -> None:
        """Read until the end, but no more than a buffer full that nobody takes; then close the pipe."""
        while self._wait_for_room() and (data := read(self._number)):
            self._keep(data)
        os.close(self._number)
        with self._changed:
            self._is_closed = True
            self._news.ring()
        self._wake()

    def _wait_for_room(self) -> bool:
        with self._changed:
            while self._kept_size >= BUFFER_LIMIT and not self._is_handed_over:
                self._changed.wait()
            return not self._is_over

    def _keep(self, data: bytes) -> None:
        with self._changed:
            # Once there is a gap, what comes after it would be taken for the rest of what came before.
            if self._is_over or self.dropped_bytes or self._kept_size + len(data) > ENDING_LIMIT:
                self.dropped_bytes += len(data)
                return
            self._kept.append(data)
            self._kept_size += len(data)
            if self._is_awaited:
                self._is_awaited = False
                self._news.ring()

    def _pop(self) -> bytes:
        # Together, because a thread that is always there reads each line by itself.
        pieces: list[bytes] = []
        size = 0
        while self._kept and size < READ_SIZE:
            pieces.append(self._kept.popleft())
            size += len(pieces[-1])
        self._kept_size -= size
        self._changed.notify()
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)


def read(number: int) -> bytes:
    """Wait for bytes; none at the end."""
    try:
        return os.read(number, READ_SIZE)
    except OSError:  # Windows has more than one way to say that nobody writes any more
        return b""


log = logging.getLogger("outrider.process")


class Job(Protocol):
    """A child with all that it starts. Every method may be called from any thread, also after `close`."""

    def count(self) -> int:
        """How many of them run."""
        ...

    def terminate(self) -> None:
        """Kill all of them."""
        ...

    def resident_bytes(self) -> int:
        """The memory that they have in use, added up."""
        ...

    def close(self) -> None:
        """Give it back; whatever still runs is killed."""
        ...


class ThreadedKeeper(Keeper):
    """Owns a child process, in threads that block: one for each pipe, one for its exit, one that ends it."""

    def __init__(
        self,
        spawned: Spawned,
        command: Command,
        number: int,
        *,
        stderr: StderrLog,
        patience: Patience,
        folder: Path | None,
        job: Job,
    ) -> None:
        super().__init__(spawned, command, number, stderr=stderr, patience=patience, folder=folder)
        # Its `put` may be called by the garbage collector, inside of another `put`: a condition's may not.
        self._news: SimpleQueue[None] = SimpleQueue()
        self._job = job
        wake = partial(self._news.put, None)
        self.input = self._stdin = BlockingInput(spawned.stdin, wake)
        self.output = self._stdout = BlockingOutput(spawned.stdout, wake)
        self._stderr = spawned.stderr
        self._is_stderr_closed = False
        self._is_given_up = False
        # The last one ends the child, so it is there only if all the others are.
        self._threads[:0] = [
            Thread(target=target, name=f"outrider-{name}-{self.pid}", daemon=True)
            for target, name in (
                (self._watch, "exit"),
                (self._stdout.run, "stdout"),
                (self._read_stderr, "stderr"),
                (self._stdin.run, "stdin"),
            )
        ]

    def resident_bytes(self) -> int:
        return self._job.resident_bytes()

    def forget(self) -> None:
        super().forget()
        if not self._is_stderr_closed:
            os.close(self._stderr)

    def _wake(self) -> None:
        self._news.put(None)

    def _serve_once(self, seconds: float | None) -> None:
        try:
            self._news.get(timeout=seconds)
        except Empty:
            pass

    def _ask(self) -> bool:
        return False

    def _ask_others(self) -> bool:
        # They have been told: their input has ended with the child.
        return self._has_others()

    def _has_others(self) -> bool:
        return self._job.count() > 0

    def _kill(self) -> bool:
        self._job.terminate()
        return self._has_others()

    def _drain(self) -> None:
        left = max(0.0, self._deadline - time.monotonic())
        self._serve(self._are_pipes_closed, left, exit_ends=False)
        if not self._are_pipes_closed():
            log.error("somebody outside of its job has pipes of process %d; they are left", self.pid)
        self._is_given_up = True

    def _reap(self) -> None:
        if self._has_exited:
            self.returncode = self.process.returncode
        else:
            log.error("process %d cannot be killed; it is left to the system", self.pid)
            self.process.returncode = 0

    def _clean_up(self) -> None:
        self._job.close()
        super()._clean_up()

    def _run_here(self) -> None:
        # With all of the tree dead and the pipes at their end, nothing blocks.
        self._job.terminate()
        self.input.close("there are no threads")
        self.output.hand_over()
        for thread in self._threads:
            if thread.ident is None:
                thread.run()

    def _are_pipes_closed(self) -> bool:
        return self._stdin.is_closed and self._stdout.is_closed and self._is_stderr_closed

    # The other threads.

    def _watch(self) -> None:
        self.process.wait()
        self._has_exited = True
        self._wake()

    def _read_stderr(self) -> None:
        while data := read(self._stderr):
            if not self._is_given_up:
                self.stderr.feed(data)
        os.close(self._stderr)
        self._is_stderr_closed = True
        self._wake()


# Not those of `ctypes.wintypes`: its DWORD has eight bytes anywhere else.
_DWORD = ctypes.c_uint32
_BOOL = ctypes.c_int32
_NTSTATUS = ctypes.c_int32
_LARGE = ctypes.c_int64
_SIZE = ctypes.c_size_t
_HANDLE = ctypes.c_void_p
_POINTER = ctypes.c_void_p

_BASIC_ACCOUNTING, _PROCESS_LIST, _EXTENDED_LIMIT = 1, 3, 9
"""Which structure a job is asked for, or given."""
_KILL_ON_JOB_CLOSE: Final = 0x2000
_TERMINATE, _SET_QUOTA, _SUSPEND_RESUME, _QUERY_LIMITED = 0x1, 0x100, 0x800, 0x1000
"""Rights to a process."""
_MORE_DATA: Final = 234
_EXIT_CODE: Final = 1
"""What a process that was killed is said to have ended with."""


class BasicLimit(ctypes.Structure):
    """JOBOBJECT_BASIC_LIMIT_INFORMATION."""

    _fields_ = [
        ("PerProcessUserTimeLimit", _LARGE),
        ("PerJobUserTimeLimit", _LARGE),
        ("LimitFlags", _DWORD),
        ("MinimumWorkingSetSize", _SIZE),
        ("MaximumWorkingSetSize", _SIZE),
        ("ActiveProcessLimit", _DWORD),
        ("Affinity", _SIZE),
        ("PriorityClass", _DWORD),
        ("SchedulingClass", _DWORD),
    ]


class IoCounters(ctypes.Structure):
    """IO_COUNTERS."""

    _fields_ = [
        ("ReadOperationCount", ctypes.c_uint64),
        ("WriteOperationCount", ctypes.c_uint64),
        ("OtherOperationCount", ctypes.c_uint64),
        ("ReadTransferCount", ctypes.c_uint64),
        ("WriteTransferCount", ctypes.c_uint64),
        ("OtherTransferCount", ctypes.c_uint64),
    ]


class ExtendedLimit(ctypes.Structure):
    """JOBOBJECT_EXTENDED_LIMIT_INFORMATION."""

    _fields_ = [
        ("BasicLimitInformation", BasicLimit),
        ("IoInfo", IoCounters),
        ("ProcessMemoryLimit", _SIZE),
        ("JobMemoryLimit", _SIZE),
        ("PeakProcessMemoryUsed", _SIZE),
        ("PeakJobMemoryUsed", _SIZE),
    ]


class BasicAccounting(ctypes.Structure):
    """JOBOBJECT_BASIC_ACCOUNTING_INFORMATION."""

    _fields_ = [
        ("TotalUserTime", _LARGE),
        ("TotalKernelTime", _LARGE),
        ("ThisPeriodTotalUserTime", _LARGE),
        ("ThisPeriodTotalKernelTime", _LARGE),
        ("TotalPageFaultCount", _DWORD),
        ("TotalProcesses", _DWORD),
        ("ActiveProcesses", _DWORD),
        ("TotalTerminatedProcesses", _DWORD),
    ]


class ProcessList(ctypes.Structure):
    """JOBOBJECT_BASIC_PROCESS_ID_LIST, with room for 1024; what is beyond is not listed."""

    _fields_ = [
        ("NumberOfAssignedProcesses", _DWORD),
        ("NumberOfProcessIdsInList", _DWORD),
        ("ProcessIdList", _SIZE * 1024),
    ]


class MemoryCounters(ctypes.Structure):
    """PROCESS_MEMORY_COUNTERS."""

    _fields_ = [
        ("cb", _DWORD),
        ("PageFaultCount", _DWORD),
        ("PeakWorkingSetSize", _SIZE),
        ("WorkingSetSize", _SIZE),
        ("QuotaPeakPagedPoolUsage", _SIZE),
        ("QuotaPagedPoolUsage", _SIZE),
        ("QuotaPeakNonPagedPoolUsage", _SIZE),
        ("QuotaNonPagedPoolUsage", _SIZE),
        ("PagefileUsage", _SIZE),
        ("PeakPagefileUsage", _SIZE),
    ]


SIGNATURES: Final[dict[str, tuple[type, ...]]] = {
    "AssignProcessToJobObject": (_BOOL, _HANDLE, _HANDLE),
    "CloseHandle": (_BOOL, _HANDLE),
    "CreateJobObjectW": (_HANDLE, _POINTER, _POINTER),
    "K32GetProcessMemoryInfo": (_BOOL, _HANDLE, _POINTER, _DWORD),
    "NtResumeProcess": (_NTSTATUS, _HANDLE),
    "OpenProcess": (_HANDLE, _DWORD, _BOOL, _DWORD),
    "QueryInformationJobObject": (_BOOL, _HANDLE, ctypes.c_int, _POINTER, _DWORD, _POINTER),
    "SetInformationJobObject": (_BOOL, _HANDLE, ctypes.c_int, _POINTER, _DWORD),
    "TerminateJobObject": (_BOOL, _HANDLE, ctypes.c_uint),
}
"""Of each function of the system that is used: what it gives, then what it takes."""


class System(NamedTuple):
    """The functions of `SIGNATURES`, and the one that says why the last of them failed."""

    functions: Mapping[str, Callable[..., int | None]]
    last_error: Callable[[], int]

    def call(self, name: str, *arguments: object) -> int:
        """Call a function that gives nothing but zero if it fails. Raises `OSError`."""
        given = self.functions[name](*arguments)
        if not given:
            raise OSError(f"{name} failed (Windows error {self.last_error()})")
        return given


@cache
def this_system() -> System:
    """That of this machine. There is none but on Windows."""
    if sys.platform == "win32":
        libraries = {True: ctypes.WinDLL("ntdll"), False: ctypes.WinDLL("kernel32", use_last_error=True)}
        functions: dict[str, Callable[..., int | None]] = {}
        for name, (gives, *takes) in SIGNATURES.items():
            function = getattr(libraries[name.startswith("Nt")], name)
            function.restype, function.argtypes = gives, takes
            functions[name] = function
        return System(functions, ctypes.get_last_error)
    else:
        raise NotImplementedError("there are no job objects on this system")


class WindowsJob:
    """A job object. Whatever a process in it starts is in it too, and nothing gets out."""

    def __init__(self, system: System) -> None:
        """Raises `OSError` if there can be no more."""
        self._system = system
        self._lock = Lock()
        self._handle: int | None = system.call("CreateJobObjectW", None, None)
        limits = ExtendedLimit()
        limits.BasicLimitInformation.LimitFlags = _KILL_ON_JOB_CLOSE
        try:
            self._system.call(
                "SetInformationJobObject",
                *(self._handle, _EXTENDED_LIMIT, ctypes.byref(limits), ctypes.sizeof(limits)),
            )
        except OSError:
            self.close()
            raise

    def assign(self, process: subprocess.Popen[bytes]) -> None:
        """Take in a process that was started suspended, and let it go on. Raises `OSError`."""
        # The number is its own for as long as the `Popen` holds on to it.
        handle = self._system.call(
            "OpenProcess", _TERMINATE | _SET_QUOTA | _SUSPEND_RESUME, False, process.pid
        )
        try:
            self._system.call("AssignProcessToJobObject", self._handle, handle)
            # No documented function resumes a process whose thread one has no handle of.
            status = self._system.functions["NtResumeProcess"](handle) or 0
            if status < 0:
                raise OSError(f"NtResumeProcess failed (status {status & 0xFFFFFFFF:#x})")
        finally:
            self._system.functions["CloseHandle"](handle)

    def count(self) -> int:
        found = BasicAccounting()
        return int(found.ActiveProcesses) if self._query(_BASIC_ACCOUNTING, found) else 0

    def terminate(self) -> None:
        with self._lock:
            if self._handle is not None:
                self._system.call("TerminateJobObject", self._handle, _EXIT_CODE)

    def resident_bytes(self) -> int:
        found = ProcessList()
        if not self._query(_PROCESS_LIST, found):
            return 0
        return sum(map(self._working_set, found.ProcessIdList[: found.NumberOfProcessIdsInList]))

    def close(self) -> None:
        with self._lock:
            handle, self._handle = self._handle, None
            if handle is not None:
                self._system.functions["CloseHandle"](handle)

    def _query(self, kind: int, into: ctypes.Structure) -> bool:
        """Says whether there is a job to ask. Raises `OSError`."""
        with self._lock:
            if self._handle is None:
                return False
            ask = self._system.functions["QueryInformationJobObject"]
            is_answered = ask(self._handle, kind, ctypes.byref(into), ctypes.sizeof(into), None)
            if not is_answered and (error := self._system.last_error()) != _MORE_DATA:
                raise OSError(f"QueryInformationJobObject failed (Windows error {error})")
            return True

    def _working_set(self, pid: int) -> int:
        functions = self._system.functions
        handle = functions["OpenProcess"](_QUERY_LIMITED, False, pid)
        if not handle:  # it has just ended
            return 0
        try:
            found = MemoryCounters()
            size = ctypes.sizeof(found)
            is_answered = functions["K32GetProcessMemoryInfo"](handle, ctypes.byref(found), size)
            return int(found.WorkingSetSize) if is_answered else 0
        finally:
            functions["CloseHandle"](handle)


class JobKeeper(ThreadedKeeper):
    """Owns a child process, which was started suspended, in a job of its own."""

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
        job = WindowsJob(this_system())
        try:
            job.assign(spawned.process)
            super().__init__(
                *(spawned, command, number),
                stderr=stderr,
                patience=patience,
                folder=folder,
                job=job,
            )
        except BaseException:
            job.close()
            raise

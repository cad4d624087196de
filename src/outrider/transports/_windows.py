"""Windows: the job object that a child lives and dies in with all that it starts, and the keeper with one.

The system ends a job with its last handle, so also when the host is killed. Does not keep the child: the
threads do. Sizes and signatures are declared here in full, so that they can be checked on any system.
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Callable, Mapping
from functools import cache
from threading import Lock
from typing import TYPE_CHECKING, Final, NamedTuple

from outrider.transports._threads import ThreadedKeeper

if TYPE_CHECKING:
    import subprocess
    from pathlib import Path

    from outrider.command import Command
    from outrider.transports._keeper import Patience
    from outrider.transports._spawn import Spawned
    from outrider.transports._stderr import StderrLog

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

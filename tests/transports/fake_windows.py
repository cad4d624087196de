"""The functions of Windows that a job needs, in Python: they take and give what the declared signatures say.

Imports nothing of Outrider at the top, so that a program can pretend to be on Windows before it does.
"""

# ruff: noqa: N802 - the names are those of the system
from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

ACCESS_DENIED, INVALID_PARAMETER, MORE_DATA = 5, 87, 234


class Machine:
    """Its processes: which run, with how much memory, and what becomes of them. Here, they are made up."""

    def __init__(self, **working_sets: int) -> None:
        self.working_sets = {int(name.removeprefix("pid")): size for name, size in working_sets.items()}
        self.resumed: list[int] = []

    def members(self, pids: list[int]) -> list[int]:
        """Those that run of these and of what they started."""
        return [pid for pid in pids if pid in self.working_sets]

    def kill(self, pids: list[int]) -> None:
        for pid in pids:
            self.working_sets.pop(pid, None)

    def resume(self, pid: int) -> None:
        self.resumed.append(pid)

    def working_set(self, pid: int) -> int:
        return self.working_sets[pid]


class FakeWindows:
    """Jobs and handles. Each function is called through `ctypes`, so that a wrong type shows."""

    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        self.calls: list[tuple[Any, ...]] = []
        self.failures: dict[str, int] = {}
        """Functions that fail, and with which error."""
        self.handles: dict[int, Any] = {}
        """Those that are open: a process by its number, a job by what is in it."""
        self.limits: dict[int, int] = {}
        self._error = 0

    def system(self) -> Any:
        from outrider.transports._process.windows import SIGNATURES, System

        functions: dict[str, Callable[..., int | None]] = {
            name: ctypes.CFUNCTYPE(*signature)(self._recorded(name, getattr(self, f"_{name}")))
            for name, signature in SIGNATURES.items()
        }
        return System(functions, lambda: self._error)

    def names(self) -> list[str]:
        return [name for name, *_ in self.calls]

    def _recorded(self, name: str, function: Callable[..., int]) -> Callable[..., int]:
        def call(*arguments: Any) -> int:
            self.calls.append((name, *arguments))
            if name in self.failures:
                self._error = self.failures[name]
                return -0x3FFFFFFF if name.startswith("Nt") else 0
            return function(*arguments)

        return call

    def _open(self, what: Any) -> int:
        # Beyond what 32 bits hold, so that a handle that was cut is none.
        handle = 0x7_0000_0000 + 4 * (len(self.calls) + 1)
        self.handles[handle] = what
        return handle

    def _CreateJobObjectW(self, attributes: int | None, name: int | None) -> int:
        assert attributes is None, "a handle that children inherit would keep the job alive"
        assert name is None
        return self._open([])

    def _SetInformationJobObject(self, job: int, kind: int, address: int, size: int) -> int:
        from outrider.transports._process.windows import ExtendedLimit

        assert (kind, size) == (9, 144)
        self.limits[job] = ExtendedLimit.from_address(address).BasicLimitInformation.LimitFlags
        return 1

    def _OpenProcess(self, rights: int, inherit: int, pid: int) -> int:
        assert inherit == 0
        if not self.machine.members([pid]):
            self._error = INVALID_PARAMETER
            return 0
        return self._open((pid, rights))

    def _AssignProcessToJobObject(self, job: int, process: int) -> int:
        pid, rights = self.handles[process]
        assert rights & 0x101 == 0x101
        self.handles[job].append(pid)
        return 1

    def _NtResumeProcess(self, process: int) -> int:
        pid, rights = self.handles[process]
        assert rights & 0x800
        assert any(pid in job for job in self.handles.values()), "it must not run before it is in its job"
        self.machine.resume(pid)
        return 0

    def _TerminateJobObject(self, job: int, code: int) -> int:
        self.machine.kill(self.machine.members(self.handles[job]))
        return 1

    def _QueryInformationJobObject(
        self, job: int, kind: int, address: int, size: int, length: int | None
    ) -> int:
        from outrider.transports._process.windows import BasicAccounting, ProcessList

        members = self.machine.members(self.handles[job])
        if kind == 1:
            assert size == 48
            BasicAccounting.from_address(address).ActiveProcesses = len(members)
            return 1
        assert kind == 3
        room = (size - 8) // 8
        found = ProcessList.from_address(address)
        found.NumberOfAssignedProcesses = len(members)
        found.NumberOfProcessIdsInList = len(members[:room])
        for index, pid in enumerate(members[:room]):
            found.ProcessIdList[index] = pid
        self._error = MORE_DATA
        return int(len(members) <= room)

    def _K32GetProcessMemoryInfo(self, process: int, address: int, size: int) -> int:
        from outrider.transports._process.windows import MemoryCounters

        pid, rights = self.handles[process]
        assert (size, rights) == (72, 0x1000)
        MemoryCounters.from_address(address).WorkingSetSize = self.machine.working_set(pid)
        return 1

    def _CloseHandle(self, handle: int) -> int:
        what = self.handles.pop(handle)
        if isinstance(what, list) and self.limits.get(handle) == 0x2000:
            self.machine.kill(self.machine.members(what))
        return 1

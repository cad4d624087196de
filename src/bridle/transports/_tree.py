"""The processes that belong to a child: its group, and whatever carries its marker in the environment.

The agent's shell tool starts a session of its own for each command, so a group alone misses them. Does not
decide when anything is signalled. Finds nothing beyond the group where there is no `/proc`.
"""

from __future__ import annotations

import os
import select
import signal
import sys
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator

# Not for Windows: there, type checkers need not look further.
assert sys.platform != "win32"

_PAGE: Final = os.sysconf("SC_PAGE_SIZE")
_HAS_PIDFD: Final = hasattr(os, "pidfd_open") and hasattr(signal, "pidfd_send_signal")


class Stat(NamedTuple):
    """What `/proc/<pid>/stat` says of a process."""

    state: str
    group: int
    session: int
    started: int
    """In clock ticks since the machine started: with the pid, it names one process for ever."""

    @property
    def is_running(self) -> bool:
        return self.state not in "ZX"


def stat_of(pid: int) -> Stat | None:
    """None if there is no such process."""
    try:
        with open(f"/proc/{pid}/stat", "rb", buffering=0) as file:  # noqa: PTH123 - for each process there is
            text = file.read(4096)
    except OSError:
        return None
    # The name is in brackets and may hold anything, brackets and spaces included.
    fields = text[text.rfind(b")") + 2 :].split(None, 20)
    return Stat(fields[0].decode(), int(fields[2]), int(fields[3]), int(fields[19]))


def environment_of(pid: int) -> bytes:
    """The variables that a process was started with, each ended by NUL; empty if they may not be read."""
    try:
        with open(f"/proc/{pid}/environ", "rb", buffering=0) as file:  # noqa: PTH123 - for each process there is
            return b"\0" + file.readall()
    except OSError:
        return b""


def process_ids() -> Iterator[int]:
    """All processes of this machine that can be seen."""
    try:
        names = os.listdir("/proc")  # noqa: PTH208 - a hundred times a second, of a thousand names
    except OSError:
        return
    for name in names:
        if name.isdecimal():
            yield int(name)


class Tree:
    """A child, those in its group and session, and those that carry its marker."""

    def __init__(self, pid: int, marker: str) -> None:
        self._pid = pid
        stat = stat_of(pid)
        self.started: Final = 0 if stat is None else stat.started
        """When the child started; whatever started earlier is not of its making."""
        self.can_be_searched: Final = stat is not None
        """Whether there is a `/proc` to look into."""
        self._signalled: dict[int, int] = {}
        self._marker = b"\0" + os.fsencode(marker) + b"\0"

    def members(self) -> list[int]:
        """The processes of it that run, the child itself included."""
        return [pid for pid in process_ids() if self._has(pid)]

    def others(self) -> list[int]:
        """The same without the child itself."""
        return [pid for pid in self.members() if pid != self._pid]

    def signal_group(self, number: int) -> None:
        """Signal the group. Only while the child has not been reaped: until then nobody else can get its
        number."""
        try:
            os.killpg(self._pid, number)
        except (ProcessLookupError, PermissionError):  # the last: macOS, when only zombies are left
            pass

    def signal_others(self, number: int) -> int:
        """Signal those beside the child, each only if it is certainly ours; says how many there were."""
        others = self.others()
        for pid in others:
            if (stat := stat_of(pid)) is not None:
                self._signalled[pid] = stat.started
            self._signal(pid, number)
        return len(others)

    def reap_orphans(self) -> None:
        """Reap those that were signalled and have become our own: orphans go to a host that is the first
        process of its container, and would stay there as zombies."""
        for pid, started in self._signalled.items():
            stat = stat_of(pid)
            if stat is not None and not stat.is_running and stat.started == started:
                try:
                    os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG)
                except ChildProcessError:  # somebody else's, as usual
                    pass

    def resident_bytes(self) -> int:
        """The memory that the processes have in use, added up; pages they share count for each."""
        total = 0
        for pid in self.members():
            try:
                with open(f"/proc/{pid}/statm", "rb", buffering=0) as file:  # noqa: PTH123 - as above
                    total += int(file.read(256).split()[1]) * _PAGE
            except (OSError, IndexError):
                continue
        return total

    def _has(self, pid: int) -> bool:
        stat = stat_of(pid)
        if stat is None or stat.started < self.started or not stat.is_running:
            return False
        return self._pid in (stat.group, stat.session) or self._marker in environment_of(pid)

    def _signal(self, pid: int, number: int) -> None:
        if not _HAS_PIDFD:
            os.kill(pid, number)
            return
        try:
            handle = os.pidfd_open(pid)
        except OSError:
            return
        try:
            # Looked at again now that the number is held: it may have gone to another process in between.
            if self._has(pid) and not select.select([handle], [], [], 0)[0]:
                signal.pidfd_send_signal(handle, number)
        except OSError:
            pass
        finally:
            os.close(handle)

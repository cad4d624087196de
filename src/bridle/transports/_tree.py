"""The processes that belong to a child: its group, and whatever carries its marker in the environment.

The agent's shell tool starts a session of its own for each command, so a group alone misses them. Does not
decide when anything is signalled. Finds nothing beyond the group where there is no `/proc`.
"""

from __future__ import annotations

import errno
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
_OUT_OF_FILES: Final = (errno.EMFILE, errno.ENFILE)
_LOOKS: Final = 20
"""So often the list is read again because a process in it was gone when it was looked at."""


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
    """None if there is no such process. Raises `OSError` if no file can be opened to look."""
    try:
        with open(f"/proc/{pid}/stat", "rb", buffering=0) as file:  # noqa: PTH123 - for each process there is
            text = file.read(4096)
    except OSError as error:
        if error.errno in _OUT_OF_FILES:
            raise
        return None
    # The name is in brackets and may hold anything, brackets and spaces included.
    fields = text[text.rfind(b")") + 2 :].split(None, 20)
    return Stat(fields[0].decode(), int(fields[2]), int(fields[3]), int(fields[19]))


def environment_of(pid: int) -> bytes:
    """The variables that a process was started with, each ended by NUL; empty if they may not be read.

    Raises `OSError` if no file can be opened.
    """
    try:
        with open(f"/proc/{pid}/environ", "rb", buffering=0) as file:  # noqa: PTH123 - for each process there is
            return b"\0" + file.readall()
    except OSError as error:
        if error.errno in _OUT_OF_FILES:
            raise
        return b""


def process_ids() -> Iterator[int]:
    """All processes of this machine that can be seen, the newest first. Raises `OSError` as above."""
    try:
        names = os.listdir("/proc")  # noqa: PTH208 - a hundred times a second, of a thousand names
    except OSError as error:
        if error.errno in _OUT_OF_FILES:
            raise
        return
    yield from sorted((int(name) for name in names if name.isdecimal()), reverse=True)


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
        return list(self._find_others())

    def has_others(self) -> bool:
        """Whether any of them may be there."""
        try:
            return next(self._find_others(), None) is not None
        except OSError:
            return True

    def signal_group(self, number: int) -> None:
        """Signal the group. Only while the child has not been reaped: until then nobody else can get its
        number."""
        try:
            os.killpg(self._pid, number)
        except (ProcessLookupError, PermissionError):  # the last: macOS, when only zombies are left
            pass

    def signal_others(self, number: int) -> int:
        """Signal those beside the child, each only if it is certainly ours; says how many there may be."""
        count = 0
        try:
            if self._keeps_its_number():
                # All at once: one that forks on and on does not get away.
                self.signal_group(number)
            # Each as soon as it is found, for the same reason.
            for pid in self._find_others():
                count += 1
                if (stat := stat_of(pid)) is not None:
                    self._signalled[pid] = stat.started
                self._signal(pid, number)
        except OSError:
            count += 1
        return count

    def reap_orphans(self) -> None:
        """Reap those that were signalled and have become our own: orphans go to a host that is the first
        process of its container, and would stay there as zombies."""
        for pid, started in self._signalled.items():
            try:
                stat = stat_of(pid)
                if stat is not None and not stat.is_running and stat.started == started:
                    os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG)
            except OSError:  # somebody else's, as usual
                pass

    def resident_bytes(self) -> int:
        """The memory that the processes have in use, added up; pages they share count for each."""
        total = 0
        for pid in self._members_if_possible():
            try:
                with open(f"/proc/{pid}/statm", "rb", buffering=0) as file:  # noqa: PTH123 - as above
                    total += int(file.read(256).split()[1]) * _PAGE
            except (OSError, IndexError):
                continue
        return total

    def _members_if_possible(self) -> list[int]:
        try:
            return self.members()
        except OSError:
            return []

    def _find_others(self) -> Iterator[int]:
        """Give each as soon as it is found; not the child itself. Raises `OSError` if it cannot be told.

        One that forks and ends, on and on, has ended when its turn in the list comes, and one that is just
        becoming another program has no environment for a moment: then the list is read again.
        """
        settled = {self._pid}
        for look in range(_LOOKS):
            is_found = is_unclear = False
            for pid in process_ids():
                if pid in settled:
                    continue
                stat = stat_of(pid)
                if stat is None:
                    is_unclear = True
                elif stat.started < self.started:
                    settled.add(pid)
                elif not stat.is_running:
                    settled.add(pid)
                    is_unclear = True
                elif self._is_ours(pid, stat):
                    is_found = True
                    yield pid
                elif look == 0 and environment_of(pid) == b"\0":
                    is_unclear = True
            if is_found or not is_unclear:
                return
        raise OSError(errno.EAGAIN, "processes come and go too fast")

    def _has(self, pid: int) -> bool:
        stat = stat_of(pid)
        return stat is not None and self._is_ours(pid, stat)

    def _is_ours(self, pid: int, stat: Stat) -> bool:
        if stat.started < self.started or not stat.is_running:
            return False
        return self._pid in (stat.group, stat.session) or self._marker in environment_of(pid)

    def _keeps_its_number(self) -> bool:
        """Whether the child has ended and has not been reaped, so that its group can be signalled."""
        stat = stat_of(self._pid)
        return stat is not None and not stat.is_running and stat.started == self.started

    def _signal(self, pid: int, number: int) -> None:
        handle = _hold(pid)
        try:
            # Looked at again now that the number is held: it may have gone to another process in between.
            if self._has(pid) and not _is_readable(handle):
                if handle >= 0:
                    signal.pidfd_send_signal(handle, number)
                else:
                    os.kill(pid, number)
        except (ProcessLookupError, PermissionError):
            pass
        finally:
            if handle >= 0:
                os.close(handle)


def _hold(pid: int) -> int:
    """A handle that means this process and no later one; -1 where the system has none, or none to give."""
    if not _HAS_PIDFD:
        return -1
    try:
        handle = os.pidfd_open(pid)
    except OSError:
        return -1
    try:
        stat_of(pid)
    except OSError:  # it took the last that was left, and without another nothing can be looked at
        os.close(handle)
        return -1
    return handle


def _is_readable(number: int) -> bool:
    # Not `select`, which takes no number above 1023.
    if number < 0:
        return False
    poll = select.poll()
    poll.register(number, select.POLLIN)
    return bool(poll.poll(0))

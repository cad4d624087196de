"""The processes that belong to a child: its group, whatever carries one of its marks, and its descendants.

The agent's shell tool starts a session of its own for each command, so a group alone misses them. Does not
decide when anything is signalled, nor how processes are looked at: where they cannot be, there is the group.
"""

from __future__ import annotations

import errno
import os
import select
import signal
from typing import TYPE_CHECKING, Final

from outrider.transports._process.processes import add_descendants, processes

if TYPE_CHECKING:
    from collections.abc import Iterator

    from outrider.transports._process.processes import Stat

_HAS_PIDFD: Final = hasattr(os, "pidfd_open") and hasattr(signal, "pidfd_send_signal")
_LOOKS: Final = 20
"""So often the list is read again because a process in it was gone when it was looked at."""


class Tree:
    """A child, those in its group and session, and those that carry its marker or its tag."""

    def __init__(self, pid: int, marker: str, tag: int = 0) -> None:
        """`marker` is a variable in the environment, `tag` what `put_tag` has given to the child."""
        self._pid = pid
        self._table = processes()
        stat = self._table.stat_of(pid)
        self.started: Final = 0 if stat is None else stat.started
        """When the child started; whatever started earlier is not of its making."""
        self._descendants = {pid: self.started}
        """By number, with their start. Only where the table has no tags."""
        self._signalled: dict[int, int] = {}
        self._marker = b"\0" + os.fsencode(marker) + b"\0"
        self._tag = tag

    def note_descendants(self) -> None:
        """Remember what the child has started: once it has ended, that has another parent. To be called
        before it is ended; a table with tags does not need it."""
        if not self._table.has_tags:
            try:
                add_descendants(self._descendants, self._table)
            except OSError:  # no file can be opened to look: there are other marks
                pass

    def members(self) -> list[int]:
        """The processes of it that run, the child itself included."""
        return [pid for pid in self._table.process_ids() if self._has(pid)]

    def others(self) -> list[int]:
        """The same without the child itself."""
        return list(self._find_others())

    def has_others(self) -> bool:
        """Whether any of them may be there."""
        if not self._table.can_be_searched:
            return self._keeps_its_number()
        try:
            return next(self._find_others(), None) is not None
        except OSError:
            return True

    def has_exited(self) -> bool:
        """Whether the child has ended. Does not reap it."""
        if hasattr(os, "waitid"):
            try:
                return os.waitid(os.P_PID, self._pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None
            except ChildProcessError:  # somebody has reaped it
                return True
        # macOS, before Python 3.13.
        stat = self._table.stat_of(self._pid)
        return stat is None or not stat.is_running

    def signal_group(self, number: int) -> bool:
        """Signal the group; says whether anything may be in it. Only while the child has not been reaped:
        until then nobody else can get its number."""
        try:
            os.killpg(self._pid, number)
        except (ProcessLookupError, PermissionError):  # the last: macOS, when only zombies are left
            return False
        return True

    def signal_others(self, number: int) -> int:
        """Signal those beside the child, each only if it is certainly ours; says how many there may be."""
        if not self._table.can_be_searched:
            # Linux says nothing of a group but that its first, who has ended, is still in it; and what was
            # killed has not to be looked at again.
            return int(self._keeps_its_number() and self.signal_group(number) and number != signal.SIGKILL)
        count = 0
        self.note_descendants()
        try:
            if self._keeps_its_number():
                # All at once: one that forks on and on does not get away.
                self.signal_group(number)
            # Each as soon as it is found, for the same reason.
            for pid in self._find_others():
                count += 1
                if (stat := self._table.stat_of(pid)) is not None:
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
                stat = self._table.stat_of(pid)
                if stat is not None and not stat.is_running and stat.started == started:
                    os.waitpid(pid, os.WNOHANG)
            except OSError:  # somebody else's, as usual
                pass

    def resident_bytes(self) -> int:
        """The memory that the processes have in use, added up; pages they share count for each."""
        self.note_descendants()
        try:
            return sum(map(self._table.resident_bytes_of, self.members()))
        except OSError:
            return 0

    def _find_others(self) -> Iterator[int]:
        """Give each as soon as it is found; not the child itself. Raises `OSError` if it is unclear.

        One that forks and ends, on and on, has ended when its turn in the list comes, and one that is just
        becoming another program has no environment for a moment: then the list is read again.
        """
        settled = {self._pid}
        for look in range(_LOOKS):
            is_found = is_unclear = False
            for pid in self._table.process_ids():
                if pid in settled:
                    continue
                stat = self._table.stat_of(pid)
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
                elif look == 0 and self._table.environment_of(pid) == b"\0":
                    is_unclear = True
            if is_found or not is_unclear:
                return
        raise OSError(errno.EAGAIN, "processes come and go too fast")

    def _has(self, pid: int) -> bool:
        stat = self._table.stat_of(pid)
        return stat is not None and self._is_ours(pid, stat)

    def _is_ours(self, pid: int, stat: Stat) -> bool:
        if stat.started < self.started or not stat.is_running:
            return False
        if self._pid in (stat.group, stat.session) or self._descendants.get(pid) == stat.started:
            return True
        if self._tag and self._table.tag_of(pid) == self._tag:
            return True
        return self._marker in self._table.environment_of(pid)

    def _keeps_its_number(self) -> bool:
        """Whether the child has ended and has not been reaped, so that its group can be signalled."""
        if not self._table.can_be_searched:
            try:
                flags = os.WEXITED | os.WNOHANG | os.WNOWAIT
                return os.waitid(os.P_PID, self._pid, flags) is not None
            except ChildProcessError:  # somebody has reaped it
                return False
        stat = self._table.stat_of(self._pid)
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
        processes().stat_of(pid)
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

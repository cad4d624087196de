"""The watchdog: a program that waits for the death of its host, then ends the processes that the host left
behind.

Run by itself with the bare interpreter, so it imports nothing but the standard library, and `processes` and
`removal`, which do so too. When it is started, it removes what earlier hosts have left of their folders.
It finds what it has to end by the marker in the environment, `OUTRIDER_<host id>=…`, by the tag in a limit,
and by descent, see `processes.py`. Its input has one JSON object a line about each child, for those that lost
all of that, and for the folders to remove.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import sys
import time
from _thread import start_new_thread

if __package__:
    from outrider.transports._process.processes import add_descendants, processes, use_psutil
    from outrider.transports._process.removal import remove_tree, sweep
else:  # as a program of its own, it finds nothing but what is beside it
    sys.path.insert(0, os.path.dirname(__file__))
    from processes import (  # type: ignore[import-not-found,no-redef]
        add_descendants,
        processes,
        use_psutil,
    )
    from removal import remove_tree, sweep  # type: ignore[import-not-found,no-redef]

    del sys.path[0]

TYPE_CHECKING = False
if TYPE_CHECKING:  # `typing` takes longer to import than all the rest
    from collections.abc import Iterator

POLITE_SECONDS = 2.0
"""Most agents end by themselves when their input ends with the host."""
TERM_SECONDS = 1.0
KILL_SECONDS = 10.0
STEP_SECONDS = 0.05
LOOKS = 1000
"""So often the list of processes is read again at most."""
LOOK_SECONDS = 1.0
"""Where the death of a process is not announced, it is looked for so often."""

TAG_BITS = 20
"""Of a tag, for the child; the rest is the host's."""


def main() -> None:
    host_id, host_pid, tag, psutil, *temporary = sys.argv[1:]
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    for folder in temporary:
        # What other hosts have left. It may take its time, and the host may not wait for it.
        start_new_thread(sweep, (folder,))
    if psutil:
        use_psutil(psutil)
    children = wait_for_death(int(host_pid))
    clean_up(f"OUTRIDER_{host_id}=".encode(), children, int(tag))


def wait_for_death(host_pid: int, notes: int = 0) -> dict[int, dict[str, object]]:
    """Listen to the host's notes until it is dead; gives the children that it had then."""
    host = os.pidfd_open(host_pid) if hasattr(os, "pidfd_open") and os.getppid() == host_pid else -1
    poll = select.poll()
    poll.register(notes, select.POLLIN)
    # A forked worker of the host may hold the other end of the pipe, so its end alone does not tell.
    if host >= 0:
        poll.register(host, select.POLLIN)
    children: dict[int, dict[str, object]] = {}
    rest = b""
    is_over = False
    while not is_over:
        ready = dict(poll.poll(None if host >= 0 else LOOK_SECONDS * 1000))
        # What the host said before it died still counts, so that is read first.
        data = os.read(notes, 65536) if notes in ready else b""
        *lines, rest = (rest + data).split(b"\n")
        for line in lines:
            try:
                note = json.loads(line)
            except ValueError:  # the pipe was full in the middle of it
                continue
            if note["do"] == "watch":
                children[note["number"]] = note
            else:
                children.pop(note["number"], None)
        # Its number may have been given to another process, but never to our parent.
        is_over = not data and (notes in ready or os.getppid() != host_pid or host in ready)
    if host >= 0:
        os.close(host)
    return children


def clean_up(marker: bytes, children: dict[int, dict[str, object]], tag: int = 0) -> None:
    groups = {
        group: started
        for note in children.values()
        if isinstance(group := note["group"], int) and isinstance(started := note["started"], int)
    }
    if processes().can_be_searched:
        Marked(marker, groups, tag).end()
    else:
        end_groups(set(groups))
    for note in children.values():
        if note["folder"]:
            remove_tree(str(note["folder"]))


class Marked:
    """The processes of a host: those that carry its marker or its tag, and the groups that it has reported,
    with the start of the first of each."""

    def __init__(self, marker: bytes, groups: dict[int, int], tag: int = 0) -> None:
        self._marker = b"\0" + marker
        self._groups = groups
        self._tag = tag
        self._table = processes()
        self._descendants = dict(groups)

    def end(self) -> None:
        self._wait(POLITE_SECONDS)
        for number in (signal.SIGTERM, signal.SIGCONT):
            self.signal(number)
        self._wait(TERM_SECONDS)
        deadline = time.monotonic() + KILL_SECONDS
        while self.signal(signal.SIGKILL) and time.monotonic() < deadline:
            time.sleep(STEP_SECONDS)

    def signal(self, number: int) -> int:
        """Says how many there were."""
        count = 0
        for pid in self.find():
            count += 1
            self.signal_one(pid, number)
        return count

    def signal_one(self, pid: int, number: int) -> None:
        with contextlib.suppress(OSError):
            handle = hold(pid)
            try:
                # Looked at again now that the number is held: it may have gone to another process in between.
                if not self.has(pid):
                    return
                if handle < 0:
                    os.kill(pid, number)
                elif not select.select([handle], [], [], 0)[0]:
                    signal.pidfd_send_signal(handle, number)
            finally:
                if handle >= 0:
                    os.close(handle)

    def find(self) -> Iterator[int]:
        """Give each as soon as it is found, the newest first. If one has ended before its turn came, it may
        have started another: then the list is read again."""
        settled = {os.getpid()}
        for _ in range(LOOKS):
            is_found = is_unclear = False
            try:
                if not self._table.has_tags:
                    add_descendants(self._descendants, self._table)
                for pid in self._table.process_ids():
                    if pid in settled:
                        continue
                    if self.has(pid):
                        is_found = True
                        yield pid
                    else:
                        settled.add(pid)
                        stat = self._table.stat_of(pid)
                        is_unclear |= stat is None or not stat.is_running
            except OSError:  # the system has no more files to open: it may have some in a moment
                time.sleep(STEP_SECONDS)
                continue
            if is_found or not is_unclear:
                return

    def has(self, pid: int) -> bool:
        """Whether a process runs and is one of them. Raises `OSError` if no file can be opened to look."""
        stat = self._table.stat_of(pid)
        if stat is None or not stat.is_running:
            return False
        if self._descendants.get(pid) == stat.started:
            return True
        # These are ours while their leader lives and is the one that was reported: numbers are used again.
        for leader in (stat.group, stat.session):
            if leader in self._groups:
                first = self._table.stat_of(leader)
                if first is not None and first.started == self._groups[leader]:
                    return True
        if self._tag and self._table.tag_of(pid) >> TAG_BITS == self._tag:
            return True
        return self._marker in self._table.environment_of(pid)

    def _wait(self, seconds: float) -> None:
        deadline = time.monotonic() + seconds
        while any(self.find()) and time.monotonic() < deadline:
            time.sleep(STEP_SECONDS)


def end_groups(groups: set[int]) -> None:
    """Where processes cannot be looked at. A group whose number is free may be another's soon, so one that
    was gone is never signalled again."""
    for numbers, seconds in (
        ((0,), POLITE_SECONDS),
        ((signal.SIGTERM, signal.SIGCONT), TERM_SECONDS),
        ((signal.SIGKILL,), KILL_SECONDS),
    ):
        for number in numbers:
            groups = {group for group in groups if is_signalled(group, number)}
        deadline = time.monotonic() + seconds
        while groups and time.monotonic() < deadline:
            time.sleep(STEP_SECONDS)
            groups = {group for group in groups if is_signalled(group, 0)}


def is_signalled(group: int, number: int) -> bool:
    """Signal a group; says whether there is one."""
    try:
        os.killpg(group, number)
    except OSError:
        return False
    return True


def hold(pid: int) -> int:
    """A handle that means this process and no later one; -1 where the system has none."""
    with contextlib.suppress(OSError, AttributeError):
        return os.pidfd_open(pid)
    return -1


if __name__ == "__main__":
    main()

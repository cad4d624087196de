"""The warden: a program that waits for the death of its host, then ends the processes that the host left
behind.

Run by itself with the bare interpreter, so it imports nothing but the standard library and `removal`, which
does so too. When it is started, it removes what earlier hosts have left of their folders.
It finds what it has to end by the marker in the environment, `OUTRIDER_<host id>=…`, and by the tag in a
limit, see `processes.py`.
Its input has one JSON object a line about each child, for those that lost both, and for
the folders to remove.
"""

from __future__ import annotations

import contextlib
import json
import os
import resource
import select
import signal
import sys
import time
from _thread import start_new_thread

# Not for Windows: there, type checkers need not look further.
assert sys.platform != "win32"

if __package__:
    from outrider.transports._process.removal import remove_tree, sweep
else:  # as a program of its own, it finds nothing but what it is told
    sys.path.insert(0, os.path.dirname(__file__))
    from removal import remove_tree, sweep  # type: ignore[import-not-found,no-redef]

    del sys.path[0]

TYPE_CHECKING = False
if TYPE_CHECKING:  # `typing` takes longer to import than all the rest
    from collections.abc import Iterable, Iterator

POLITE_SECONDS = 2.0
"""Most agents end by themselves when their input ends with the host."""
TERM_SECONDS = 1.0
KILL_SECONDS = 10.0
STEP_SECONDS = 0.05
LOOKS = 1000
"""So often the list of processes is read again at most."""
LOOK_SECONDS = 1.0
"""Where the death of a process is not announced, it is looked for so often."""

PROC = "/proc"
TAG_BITS = 20
"""Of a tag, for the child; the rest is the host's."""
TAG_BIT = 1 << 61
host_tag = 0


def main() -> None:
    global host_tag
    host_id, host_pid, host_tag, *temporary = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), *sys.argv[4:]
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    for folder in temporary:
        # What other hosts have left. It may take its time, and the host may not wait for it.
        start_new_thread(sweep, (folder,))
    children = wait_for_death(host_pid)
    clean_up(f"OUTRIDER_{host_id}=".encode(), children)


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


def clean_up(marker: bytes, children: dict[int, dict[str, object]]) -> None:
    groups = {(note["group"], note["started"]) for note in children.values() if note["group"]}
    if os.path.isdir(PROC):
        end_marked(marker, groups)
    else:
        end_groups({group for group, _ in groups if isinstance(group, int)})
    for note in children.values():
        if note["folder"]:
            remove_tree(str(note["folder"]))


def end_marked(marker: bytes, groups: set[tuple[object, object]]) -> None:
    wait(marker, groups, POLITE_SECONDS)
    for number in (signal.SIGTERM, signal.SIGCONT):
        send(find(marker, groups), marker, groups, number)
    wait(marker, groups, TERM_SECONDS)
    deadline = time.monotonic() + KILL_SECONDS
    while send(find(marker, groups), marker, groups, signal.SIGKILL) and time.monotonic() < deadline:
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


def wait(marker: bytes, groups: set[tuple[object, object]], seconds: float) -> None:
    deadline = time.monotonic() + seconds
    while any(find(marker, groups)) and time.monotonic() < deadline:
        time.sleep(STEP_SECONDS)


def find(marker: bytes, groups: set[tuple[object, object]]) -> Iterator[int]:
    """Give each as soon as it is found, the newest first. If one has ended before its turn came, it may have
    started another: then the list is read again."""
    settled = {os.getpid()}
    for _ in range(LOOKS):
        is_found = is_unclear = False
        names = os.listdir(PROC)
        for pid in sorted((int(name) for name in names if name.isdecimal()), reverse=True):
            if pid in settled:
                continue
            if is_ours(pid, marker, groups):
                is_found = True
                yield pid
            else:
                settled.add(pid)
                is_unclear |= has_ended(pid)
        if is_found or not is_unclear:
            return


def has_ended(pid: int) -> bool:
    with contextlib.suppress(OSError), open(f"/proc/{pid}/stat", "rb") as file:
        text = file.read()
        return text[text.rfind(b")") + 2 :][:1] in b"ZX"
    return True


def is_ours(pid: int, marker: bytes, groups: set[tuple[object, object]]) -> bool:
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            text = file.read()
        fields = text[text.rfind(b")") + 2 :].split()
        if fields[0] in (b"Z", b"X"):
            return False
        group, session = int(fields[2]), int(fields[3])
        # These are ours while their leader lives and is the one that was reported: numbers are used again.
        if any(known in (group, session) and started_at(known) == start for known, start in groups):
            return True
        if host_tag and tag_of(pid) >> TAG_BITS == host_tag:
            return True
        with open(f"/proc/{pid}/environ", "rb") as file:
            return b"\0" + marker in b"\0" + file.read()
    except OSError:
        return False


def tag_of(pid: int) -> int:
    """What the host has given to its child, and the child to all that it started."""
    with contextlib.suppress(OSError, ValueError):
        soft, _ = resource.prlimit(pid, resource.RLIMIT_RTTIME)
        return soft & ~TAG_BIT if soft > 0 and soft & TAG_BIT else 0
    return 0


def started_at(pid: object) -> int | None:
    with contextlib.suppress(OSError), open(f"/proc/{pid}/stat", "rb") as file:
        text = file.read()
        return int(text[text.rfind(b")") + 2 :].split()[19])
    return None


def send(pids: Iterable[int], marker: bytes, groups: set[tuple[object, object]], number: int) -> int:
    """Says how many there were."""
    count = 0
    for pid in pids:
        count += 1
        with contextlib.suppress(OSError):
            handle = hold(pid)
            try:
                if not is_ours(pid, marker, groups):
                    continue
                if handle < 0:
                    os.kill(pid, number)
                elif not select.select([handle], [], [], 0)[0]:
                    signal.pidfd_send_signal(handle, number)
            finally:
                if handle >= 0:
                    os.close(handle)
    return count


def hold(pid: int) -> int:
    """A handle that means this process and no later one; -1 where the system has none."""
    with contextlib.suppress(OSError, AttributeError):
        return os.pidfd_open(pid)
    return -1


if __name__ == "__main__":
    main()

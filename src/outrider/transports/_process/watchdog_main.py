"""The watchdog: a program that waits for the death of its host, then ends the processes that the host left
behind.

Run by itself with the bare interpreter, so it imports nothing but the standard library, and `processes` and
`removal`, which do so too. When it is started, it removes what earlier hosts have left of their folders.
It finds what it has to end by the marker in the environment, `OUTRIDER_<host id>=…`, by the tag in a limit,
and by descent, see `processes.py`. Its input has a note about each child, for those that lost all of that,
and for the folders to remove. It loads little: it starts while its host starts the first child.
"""

from __future__ import annotations

import os
import select
import signal
import sys
import time
from _thread import start_new_thread

TYPE_CHECKING = False
if TYPE_CHECKING or __package__:
    from outrider.transports._process.processes import Leader, Tree, processes, use_psutil
    from outrider.transports._process.removal import remove_tree, sweep
else:  # as a program of its own, it finds nothing but what is beside it
    sys.path.insert(0, os.path.dirname(__file__))
    from processes import Leader, Tree, processes, use_psutil
    from removal import remove_tree, sweep

    del sys.path[0]

POLITE_SECONDS = 2.0
"""Most agents end by themselves when their input ends with the host."""
TERM_SECONDS = 1.0
KILL_SECONDS = 10.0
STEP_SECONDS = 0.05
NOTE_SECONDS = 0.02
"""The pause after notes were read: children often start together, and so their notes are read together. The
pipe keeps them meanwhile."""
LOOK_SECONDS = 1.0
"""How often a process is checked whose exit is not announced."""


def main() -> None:
    host_id, host_pid, tag, psutil = sys.argv[1:]
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    # It may take its time, and the host may not wait for it.
    start_new_thread(sweep_all, ())
    if psutil:
        use_psutil(psutil)
    children = wait_for_death(int(host_pid))
    clean_up(host_id, children, int(tag))


def sweep_all() -> None:
    """Remove the folders that other hosts have left."""
    # The one that `tempfile` would take, which is large.
    named = [os.environ.get(name, "") for name in ("TMPDIR", "TEMP", "TMP")]
    for place in (*named, "/tmp", "/var/tmp", "/usr/tmp"):
        if place and os.access(place, os.W_OK | os.X_OK):
            sweep(place)
            break


def take_note(text: bytes, children: dict[int, tuple[int, int, str]]) -> None:
    """Take a note: the number of a child with its group, start and folder, or only that of one that has
    ended. Raises `ValueError` for what is none."""
    number, *facts = text.split(b" ", 3)
    if facts:
        group, started, folder = facts
        children[int(number)] = int(group), int(started), os.fsdecode(folder)
    else:
        children.pop(int(number), None)


def wait_for_death(host_pid: int, notes: int = 0) -> dict[int, tuple[int, int, str]]:
    """Read the host's notes, a NUL after each, until it is dead; returns the children that it had then, each
    with its group (0: it was not started yet), its start and its folder (empty: none)."""
    host = os.pidfd_open(host_pid) if hasattr(os, "pidfd_open") and os.getppid() == host_pid else -1
    poll = select.poll()
    poll.register(notes, select.POLLIN)
    # A forked worker of the host may hold the other end of the pipe, so its end alone proves nothing.
    if host >= 0:
        poll.register(host, select.POLLIN)
    children: dict[int, tuple[int, int, str]] = {}
    rest = b""
    is_over = False
    while not is_over:
        ready = dict(poll.poll(None if host >= 0 else LOOK_SECONDS * 1000))
        # The host's last notes still count, so they are read first.
        data = os.read(notes, 65536) if notes in ready else b""
        *texts, rest = (rest + data).split(b"\0")
        for text in texts:
            try:
                take_note(text, children)
            except ValueError:  # the pipe was full in the middle of it
                pass
        # Its number may have been given to another process, but never to our parent.
        is_over = not data and (notes in ready or os.getppid() != host_pid or host in ready)
        if data:
            time.sleep(NOTE_SECONDS)
    if host >= 0:
        os.close(host)
    return children


def clean_up(host_id: str, children: dict[int, tuple[int, int, str]], tag: int = 0) -> None:
    """End the processes that the host has left, and remove its folders."""
    tree = Tree(host_id, tag)
    groups: set[int] = set()
    for number, (group, started, _) in children.items():
        if group:
            tree.add(Leader(number, group, started))
            groups.add(group)
    if processes().can_be_searched:
        end_all(tree)
    else:
        end_groups(groups)
    for _, _, folder in children.values():
        if folder:
            remove_tree(folder)


def end_all(tree: Tree) -> None:
    """End all processes of a tree, step by step."""
    signal_while_there(tree, POLITE_SECONDS)
    signal_all(tree, signal.SIGTERM, signal.SIGCONT)
    signal_while_there(tree, TERM_SECONDS)
    signal_while_there(tree, KILL_SECONDS, signal.SIGKILL)


def signal_while_there(tree: Tree, seconds: float, *numbers: int) -> None:
    deadline = time.monotonic() + seconds
    while signal_all(tree, *numbers) and time.monotonic() < deadline:
        time.sleep(STEP_SECONDS)


def signal_all(tree: Tree, *numbers: int) -> int:
    """Signal all processes of a tree; returns how many there may be."""
    count = 0
    try:
        for _, pid in tree.find():
            count += 1
            tree.signal(pid, *numbers)
    except OSError:  # no more files can be opened, or processes come and go too fast
        count += 1
    return count


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
    """Signal a group; returns whether it exists."""
    try:
        os.killpg(group, number)
    except OSError:
        return False
    return True


if __name__ == "__main__":
    main()

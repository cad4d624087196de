"""The warden: a program that waits for the death of its host, then ends the processes that the host left
behind.

Run by itself with the bare interpreter, so it imports nothing but the standard library and nothing of Bridle.
It finds what it has to end by the marker in the environment, `BRIDLE_<host id>=…`. Its input has one JSON
object a line about each child, for those that lost their environment, and for the folders to remove.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import shutil
import signal
import sys
import time

# Not for Windows: there, type checkers need not look further.
assert sys.platform != "win32"

POLITE_SECONDS = 2.0
"""Most agents end by themselves when their input ends with the host."""
TERM_SECONDS = 1.0
KILL_SECONDS = 10.0
STEP_SECONDS = 0.05
LOOK_SECONDS = 1.0
"""Where the death of a process is not announced, it is looked for so often."""


def main() -> None:
    host_id, host_pid = sys.argv[1], int(sys.argv[2])
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    children = wait_for_death(host_pid)
    clean_up(f"BRIDLE_{host_id}=".encode(), children)


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
            note = json.loads(line)
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
    groups = {(note["group"], note["started"]) for note in children.values()}
    for number, seconds in ((None, POLITE_SECONDS), (signal.SIGTERM, TERM_SECONDS)):
        left = find(marker, groups)
        if number is not None:
            send(left, marker, groups, number)
            send(left, marker, groups, signal.SIGCONT)
        wait(marker, groups, seconds)
    deadline = time.monotonic() + KILL_SECONDS
    while (left := find(marker, groups)) and time.monotonic() < deadline:
        send(left, marker, groups, signal.SIGKILL)
        time.sleep(STEP_SECONDS)
    for note in children.values():
        if note["folder"]:
            shutil.rmtree(str(note["folder"]), ignore_errors=True)


def wait(marker: bytes, groups: set[tuple[object, object]], seconds: float) -> None:
    deadline = time.monotonic() + seconds
    while find(marker, groups) and time.monotonic() < deadline:
        time.sleep(STEP_SECONDS)


def find(marker: bytes, groups: set[tuple[object, object]]) -> list[int]:
    me = os.getpid()
    names = [name for name in os.listdir("/proc") if name.isdecimal()] if os.path.isdir("/proc") else []
    return [pid for pid in map(int, names) if pid != me and is_ours(pid, marker, groups)]


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
        with open(f"/proc/{pid}/environ", "rb") as file:
            return b"\0" + marker in b"\0" + file.read()
    except OSError:
        return False


def started_at(pid: object) -> int | None:
    with contextlib.suppress(OSError), open(f"/proc/{pid}/stat", "rb") as file:
        text = file.read()
        return int(text[text.rfind(b")") + 2 :].split()[19])
    return None


def send(pids: list[int], marker: bytes, groups: set[tuple[object, object]], number: int) -> None:
    for pid in pids:
        with contextlib.suppress(OSError):
            handle = os.pidfd_open(pid)
            try:
                if is_ours(pid, marker, groups) and not select.select([handle], [], [], 0)[0]:
                    signal.pidfd_send_signal(handle, number)
            finally:
                os.close(handle)


if __name__ == "__main__":
    main()

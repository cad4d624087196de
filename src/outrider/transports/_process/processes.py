"""The process table: the only module that asks the system about its processes.

Does not know what a process belongs to. Linux has `/proc`. Where there is none (macOS), `psutil` is asked;
where that is not installed either, nothing is known but the process group.

The watchdog uses this too, with the bare interpreter: so it imports nothing of Outrider, and not `typing`.
"""

from __future__ import annotations

import errno
import os
import sys

if sys.platform == "linux":
    import resource

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Final

SWITCH: Final = "OUTRIDER_PROCESS_TABLE"
"""The variable that has `psutil` used although there is a `/proc`: what macOS does can be tested on Linux."""

_OUT_OF_FILES: Final = (errno.EMFILE, errno.ENFILE)


class Stat:
    """What is known of a process."""

    __slots__ = ("group", "is_running", "parent", "session", "started")

    def __init__(self, *, is_running: bool, parent: int, group: int, session: int, started: int) -> None:
        self.is_running = is_running
        """False for a zombie."""
        self.parent = parent
        self.group = group
        self.session = session
        self.started = started
        """When it started, in a unit of the table's: with the pid, it names one process for ever."""


class ProcessTable:
    """The processes of this machine. As it is here: of a system that says nothing about them.

    Each method raises `OSError` if no file can be opened to look.
    """

    can_be_searched = False
    has_tags = False
    """Whether `put_tag` marks a process for good. Where it does not, descent counts as well."""

    def stat_of(self, pid: int) -> Stat | None:
        """None if there is no such process."""
        return None

    def environment_of(self, pid: int) -> bytes:
        """The variables that a process was started with, NUL before and after each; empty if they may not be
        read."""
        return b""

    def tag_of(self, pid: int) -> int:
        """What `put_tag` has given to it, or to one that it comes from; 0 if nothing has."""
        return 0

    def process_ids(self) -> Iterator[int]:
        """All that can be seen, the newest first."""
        return iter(())

    def resident_bytes_of(self, pid: int) -> int:
        """The memory that it has in use; 0 if it is gone."""
        return 0


def stat_of(pid: int) -> Stat | None:
    """What `/proc` says of a process."""
    try:
        with open(f"/proc/{pid}/stat", "rb", buffering=0) as file:  # noqa: PTH123 - for each process there is
            text = file.read(4096)
    except OSError as error:
        if error.errno in _OUT_OF_FILES:
            raise
        return None
    # The name is in brackets and may hold anything, brackets and spaces included.
    fields = text[text.rfind(b")") + 2 :].split(None, 20)
    return Stat(
        is_running=fields[0] not in (b"Z", b"X"),
        parent=int(fields[1]),
        group=int(fields[2]),
        session=int(fields[3]),
        started=int(fields[19]),
    )


def environment_of(pid: int) -> bytes:
    """What `/proc` says of its environment."""
    try:
        with open(f"/proc/{pid}/environ", "rb", buffering=0) as file:  # noqa: PTH123 - for each process there is
            return b"\0" + file.readall()
    except OSError as error:
        if error.errno in _OUT_OF_FILES:
            raise
        return b""


def process_ids() -> Iterator[int]:
    """The processes in `/proc`, the newest first."""
    try:
        names = os.listdir("/proc")  # noqa: PTH208 - a hundred times a second, of a thousand names
    except OSError as error:
        if error.errno in _OUT_OF_FILES:
            raise
        return
    yield from sorted((int(name) for name in names if name.isdecimal()), reverse=True)


# A limit is handed down to all that a process starts, and a new session, an empty environment, another
# program or another parent change nothing about it. This one concerns real-time scheduling alone, and counts
# microseconds: tens of thousands of years are no limit, and nobody else has a use for such a number.
_TAG_BIT: Final = 1 << 61


def put_tag(pid: int, tag: int) -> None:
    """Mark a process and all that it starts, where the system can do that.

    What is started from now on has the tag by itself. A shell may have started something before it could be
    marked, so its children are looked for after that.
    """
    if sys.platform == "linux":
        pending = [pid]
        while pending:
            each = pending.pop()
            try:
                _, hard = resource.prlimit(each, resource.RLIMIT_RTTIME)
                if hard == resource.RLIM_INFINITY:
                    resource.prlimit(each, resource.RLIMIT_RTTIME, (_TAG_BIT | tag, hard))
                    pending += [child for child in _children_of(each) if tag_of(child) != tag]
            except (OSError, ValueError):  # it is gone, or some sandbox forbids it: there are other marks
                pass


def _children_of(pid: int) -> Iterator[int]:
    """What the threads of a process have started. Raises `OSError`, too where the system does not tell."""
    for thread in os.listdir(f"/proc/{pid}/task"):  # noqa: PTH208
        with open(f"/proc/{pid}/task/{thread}/children", "rb") as file:  # noqa: PTH123
            yield from map(int, file.read().split())


def tag_of(pid: int) -> int:
    """See `ProcessTable.tag_of`."""
    if sys.platform == "linux":
        try:
            soft, _ = resource.prlimit(pid, resource.RLIMIT_RTTIME)
        except (OSError, ValueError):
            return 0
        return soft & ~_TAG_BIT if soft & _TAG_BIT and soft > 0 else 0
    else:
        return 0


class ProcTable(ProcessTable):
    """Of a system that has `/proc`: Linux."""

    can_be_searched = True
    has_tags = True

    def stat_of(self, pid: int) -> Stat | None:
        return stat_of(pid)

    def environment_of(self, pid: int) -> bytes:
        return environment_of(pid)

    def tag_of(self, pid: int) -> int:
        return tag_of(pid)

    def process_ids(self) -> Iterator[int]:
        return process_ids()

    def resident_bytes_of(self, pid: int) -> int:
        try:
            with open(f"/proc/{pid}/statm", "rb", buffering=0) as file:  # noqa: PTH123 - as above
                return int(file.read(256).split()[1]) * os.sysconf("SC_PAGE_SIZE")
        except (OSError, IndexError):
            return 0


class PsutilTable(ProcessTable):
    """Of a system without `/proc`: macOS. Raises `ImportError` if there is no psutil."""

    can_be_searched = True

    def __init__(self) -> None:
        import psutil

        self._psutil = psutil
        self.path = os.path.dirname(os.path.dirname(psutil.__file__))  # noqa: PTH120
        """Where psutil can be imported from."""

    def stat_of(self, pid: int) -> Stat | None:
        try:
            process = self._psutil.Process(pid)
            # Not `create_time`, which changes when the clock is set.
            started: float | None = vars(process)["_ident"][1]
            with process.oneshot():
                is_running = process.status() not in (self._psutil.STATUS_ZOMBIE, self._psutil.STATUS_DEAD)
                parent = process.ppid()
        except self._psutil.Error:
            return None
        try:
            group, session = os.getpgid(pid), os.getsid(pid)
        except OSError:  # macOS does not give those of a zombie
            group = session = 0
        return Stat(
            is_running=is_running,
            parent=parent,
            group=group,
            session=session,
            started=round((started or 0) * 1_000_000),
        )

    def environment_of(self, pid: int) -> bytes:
        # macOS hides those of its own programs, the shells among them.
        try:
            variables = self._psutil.Process(pid).environ()
        except self._psutil.Error:
            return b""
        lines = [os.fsencode(f"{name}={value}") for name, value in variables.items()]
        return b"\0" + b"\0".join(lines) + b"\0" if lines else b""

    def process_ids(self) -> Iterator[int]:
        # The first is the kernel, and its number means this process to some calls.
        return iter(sorted(filter(None, self._psutil.pids()), reverse=True))

    def resident_bytes_of(self, pid: int) -> int:
        try:
            return self._psutil.Process(pid).memory_info().rss
        except (OSError, self._psutil.Error):
            return 0


def add_descendants(known: dict[int, int], table: ProcessTable) -> None:
    """Add to these processes, by number and start, all that they have started.

    What has lost its parent cannot be found any more: it has to be known by then.
    """
    stats = {pid: stat for pid in table.process_ids() if (stat := table.stat_of(pid)) is not None}
    children: dict[int, list[int]] = {}
    for pid, stat in stats.items():
        children.setdefault(stat.parent, []).append(pid)
    pending = [pid for pid, started in known.items() if pid in stats and stats[pid].started == started]
    while pending:
        for child in children.get(pending.pop(), ()):
            if known.get(child) != stats[child].started:
                known[child] = stats[child].started
                pending.append(child)


def _choose() -> ProcessTable:
    if os.environ.get(SWITCH) != "psutil" and stat_of(os.getpid()) is not None:
        return ProcTable()
    try:
        return PsutilTable()
    except ImportError:
        return ProcessTable()


_table: ProcessTable = _choose()


def processes() -> ProcessTable:
    """The table of this system."""
    return _table


def use_psutil(path: str) -> None:
    """Use psutil, from this folder. For the watchdog, which has no packages."""
    global _table
    sys.path.append(path)
    try:
        _table = PsutilTable()
    except ImportError:  # it was removed meanwhile
        pass
    finally:
        sys.path.remove(path)

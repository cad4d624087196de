"""The processes of the system, and which of them belong to the children of a host.

Linux has `/proc`. Where there is none (macOS), psutil is asked; where that is not installed either, nothing
is known but the process group. Does not decide when anything is signalled.

The watchdog uses this too, with the bare interpreter: so it imports nothing of Outrider, and not `typing`.
"""

from __future__ import annotations

import errno
import os
import select
import signal
import sys
import time

if sys.platform == "linux":
    import resource

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Container, Iterator
    from typing import Final

SWITCH: Final = "OUTRIDER_PROCESS_TABLE"
"""The variable that selects `psutil` even with a `/proc`, to test on Linux what macOS does."""

_OUT_OF_FILES: Final = (errno.EMFILE, errno.ENFILE)
_PIECE: Final = 65536
"""How much is read of a file at once."""


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
    """Whether `put_tag` marks a process permanently. Where it does not, descent counts as well."""

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

    def entries(self) -> list[tuple[int, int]]:
        """All that can be seen, the newest first, each with a key that no later process of the same number
        has; 0 if the system gives none."""
        return []

    def resident_bytes_of(self, pid: int) -> int:
        """The memory that it has in use; 0 if it is gone."""
        return 0


class ProcTable(ProcessTable):
    """Of a system that has `/proc`: Linux."""

    can_be_searched = True
    has_tags = True

    def stat_of(self, pid: int) -> Stat | None:
        if (text := self._read(pid, "stat")) is None:
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

    def environment_of(self, pid: int) -> bytes:
        text = self._read(pid, "environ")
        return b"" if text is None else b"\0" + text

    def tag_of(self, pid: int) -> int:
        if sys.platform == "linux":
            try:
                soft, _ = resource.prlimit(pid, resource.RLIMIT_RTTIME)
            except (OSError, ValueError):
                return 0
            return soft & ~_TAG_BIT if soft & _TAG_BIT and soft > 0 else 0
        else:
            return 0

    def entries(self) -> list[tuple[int, int]]:
        # The inode of its entry is what a process has for life.
        try:
            with os.scandir("/proc") as entries:
                found = [(int(entry.name), entry.inode()) for entry in entries if entry.name.isdecimal()]
        except OSError as error:
            if error.errno in _OUT_OF_FILES:
                raise
            return []
        found.sort(reverse=True)
        return found

    def resident_bytes_of(self, pid: int) -> int:
        text = self._read(pid, "statm")
        return int(text.split()[1]) * os.sysconf("SC_PAGE_SIZE") if text else 0

    def _read(self, pid: int, name: str) -> bytes | None:
        """A file about a process; None if there is none."""
        try:
            return _content_of(f"/proc/{pid}/{name}")
        except OSError as error:
            if error.errno in _OUT_OF_FILES:
                raise
            return None


def _content_of(path: str) -> bytes:
    """What a file of `/proc` says. Not `open`, which asks the system six times more: this is done for each
    process there is."""
    number = os.open(path, os.O_RDONLY)
    try:
        content = b""
        # Some give a page at a time, however much there is.
        while data := os.read(number, _PIECE):
            content += data
        return content
    finally:
        os.close(number)


# A limit is handed down to all that a process starts, and a new session, an empty environment, another
# program or another parent change nothing about it. This one concerns real-time scheduling alone, and counts
# microseconds: tens of thousands of years are no limit, and no one else has a use for such a number.
_TAG_BIT: Final = 1 << 61


def put_tag(pid: int, tag: int) -> None:
    """Mark a process and all that it starts, where the system can do that.

    What is started from now on has the tag by itself. A shell may have started something before it could be
    marked, so its children are looked for after that.
    """
    if sys.platform == "linux":
        tag_of, pending = ProcTable().tag_of, [pid]
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
        yield from map(int, _content_of(f"/proc/{pid}/task/{thread}/children").split())


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

    def entries(self) -> list[tuple[int, int]]:
        # The first is the kernel, and its number means this process to some calls.
        return [(pid, 0) for pid in sorted(filter(None, self._psutil.pids()), reverse=True)]

    def resident_bytes_of(self, pid: int) -> int:
        try:
            return self._psutil.Process(pid).memory_info().rss
        except (OSError, self._psutil.Error):
            return 0


def _choose() -> ProcessTable:
    if os.environ.get(SWITCH) != "psutil" and ProcTable().stat_of(os.getpid()) is not None:
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


TAG_BITS: Final = 20
"""Of a tag, for the number of the child; the rest is the host's."""
_TAG_MASK: Final = (1 << TAG_BITS) - 1
_LOOKS: Final = 20
"""How often the list is read again because a process in it was already gone."""
_SEARCH_SECONDS: Final = 0.1
"""How long a search may continue after the first pass over all processes."""


class Leader:
    """A child of the host: the first process of its group and session."""

    __slots__ = ("number", "pid", "signalled", "started")

    def __init__(self, number: int, pid: int, started: int | None = None) -> None:
        self.number = number
        self.pid = pid
        if started is None:
            stat = processes().stat_of(pid)
            started = 0 if stat is None else stat.started
        self.started = started
        """Its start; processes that started earlier are not its own."""
        self.signalled: dict[int, int] = {}
        """Its processes that got a signal, by number, with their start."""

    def has_exited(self) -> bool:
        """Whether it has ended. Does not reap it."""
        if hasattr(os, "waitid"):
            try:
                return os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None
            except ChildProcessError:  # someone has reaped it
                return True
        # macOS, before Python 3.13.
        stat = processes().stat_of(self.pid)
        return stat is None or not stat.is_running

    def keeps_its_number(self) -> bool:
        """Whether it has ended and has not been reaped, so that its group can be signalled."""
        if not processes().can_be_searched:
            try:
                flags = os.WEXITED | os.WNOHANG | os.WNOWAIT
                return os.waitid(os.P_PID, self.pid, flags) is not None
            except ChildProcessError:  # someone has reaped it
                return False
        try:
            stat = processes().stat_of(self.pid)
        except OSError:
            return False
        return stat is not None and not stat.is_running and stat.started == self.started

    def signal_group(self, number: int) -> bool:
        """Signal the group; says whether anything may be in it. Only while the child has not been reaped:
        until then no one else can get its number."""
        try:
            os.killpg(self.pid, number)
        except (ProcessLookupError, PermissionError):  # the last: macOS, when only zombies are left
            return False
        return True

    def reap_orphans(self) -> None:
        """Reap those that were signalled and have become our own: orphans go to a host that is the first
        process of its container, and would stay there as zombies."""
        for pid, started in self.signalled.items():
            try:
                stat = processes().stat_of(pid)
                if stat is not None and not stat.is_running and stat.started == started:
                    os.waitpid(pid, os.WNOHANG)
            except OSError:  # someone else's, as usual
                pass


class Tree:
    """The processes of a host: those in the group or the session of one of its children, those that carry
    its marker or its tag, and, where there are no tags, the descendants of its children.

    One search serves all children, and a process that is known already is not looked at again. The agent's
    shell tool starts a session of its own for each command, so groups alone would miss them.
    """

    def __init__(self, host_id: str, tag: int = 0) -> None:
        """`host_id` is in the name of the variable that marks processes, `tag` is the host's part of what
        `put_tag` gives to its children."""
        self._marker = f"\0OUTRIDER_{host_id}=".encode()
        self._tag = tag
        self._leaders: dict[int, Leader] = {}
        self._by_number: dict[int, Leader] = {}
        self._descendants: dict[int, tuple[int, int]] = {}
        """By process id: when it started, and the number of its child. Only where there are no tags."""
        self._known: dict[int, tuple[int, int]] = {}
        """By process id: the key of its entry, and the number of its child, 0 for those of others. A process
        never becomes part of a tree that it was not part of before."""

    def add(self, leader: Leader) -> None:
        self._leaders[leader.pid] = leader
        self._by_number[leader.number & _TAG_MASK] = leader
        if not processes().has_tags:
            self._descendants[leader.pid] = leader.started, leader.number

    def remove(self, leader: Leader) -> None:
        self._leaders.pop(leader.pid, None)
        self._by_number.pop(leader.number & _TAG_MASK, None)
        self._descendants = {
            pid: known for pid, known in self._descendants.items() if known[1] != leader.number
        }

    def find(self, numbers: Container[int] | None = None) -> Iterator[tuple[int, int]]:
        """Give each process with the number of its child, as soon as it is found: of the children with these
        numbers, and without the children themselves. Or those of all, with the children.

        One that forks and ends, on and on, has ended when its turn in the list comes, and one that is just
        becoming another program has no environment for a moment: then the list is read again. Raises
        `OSError` if it is still unclear whether these are all.
        """
        table = processes()
        deadline = 0.0
        leaders = {} if numbers is None else dict(self._leaders)
        oldest = min((leader.started for leader in leaders.values()), default=0)
        settled = {os.getpid(), *leaders}
        self.note_descendants()
        for look in range(_LOOKS):
            is_unclear = False
            entries = table.entries()
            known = self._known
            self._known = {pid: known[pid] for pid, key in entries if pid in known and known[pid][0] == key}
            for pid, key in entries:
                number = self._known[pid][1] if pid in self._known else None
                if pid in settled or (number is not None and numbers is not None and number not in numbers):
                    continue
                stat = table.stat_of(pid)
                if stat is None:
                    is_unclear = True
                    continue
                if not stat.is_running:
                    is_unclear = True
                    number = 0
                elif stat.started < oldest:
                    number = 0
                elif not number:
                    number = self._number_of(pid, stat)
                    is_unclear |= number is None and look == 0
                if number is None:
                    continue
                settled.add(pid)
                # A process that a dying host was about to start is not to be found out by its watchdog yet.
                if key and numbers is not None and number >= 0:
                    self._known[pid] = key, number
                if number > 0 and (numbers is None or number in numbers):
                    yield number, pid
            if not is_unclear:
                return
            # The first look takes longest; those that follow are at what is new.
            deadline = time.monotonic() + _SEARCH_SECONDS if look == 0 else deadline
            if time.monotonic() > deadline:
                break
        raise OSError(errno.EAGAIN, "processes come and go too fast")

    def note_descendants(self) -> None:
        """Remember what the children have started: once a parent has ended, what it started has another.
        Has to be called before it is ended; a table with tags does not need it."""
        table, known = processes(), self._descendants
        if table.has_tags or not known:
            return
        stats = {pid: stat for pid, _ in table.entries() if (stat := table.stat_of(pid)) is not None}
        children: dict[int, list[int]] = {}
        for pid, stat in stats.items():
            children.setdefault(stat.parent, []).append(pid)
        pending = [
            pid for pid, (started, _) in known.items() if pid in stats and stats[pid].started == started
        ]
        while pending:
            parent = pending.pop()
            for pid in children.get(parent, ()):
                if known.get(pid, (-1,))[0] != stats[pid].started:
                    known[pid] = stats[pid].started, known[parent][1]
                    pending.append(pid)

    def signal(self, pid: int, *numbers: int) -> None:
        """Signal a process that was found, but only if it is certainly still that one."""
        handle = _hold(pid)
        try:
            # Looked at again now that the number is held: it may have gone to another process in between.
            stat = processes().stat_of(pid)
            if stat is None or not stat.is_running or _is_readable(handle):
                return
            child = self._number_of(pid, stat)
            if child is None or child <= 0:
                return
            if (leader := self._by_number.get(child & _TAG_MASK)) is not None:
                leader.signalled[pid] = stat.started
            for number in numbers:
                if handle >= 0:
                    signal.pidfd_send_signal(handle, number)
                else:
                    os.kill(pid, number)
        except (ProcessLookupError, PermissionError):
            pass
        finally:
            if handle >= 0:
                os.close(handle)

    def members(self, leader: Leader) -> list[int]:
        """The processes of a child that run, itself included. Raises `OSError` if no file can be opened."""
        table = processes()
        self.note_descendants()
        return [
            pid
            for pid, _ in table.entries()
            if (stat := table.stat_of(pid)) is not None
            and stat.is_running
            and self._number_of(pid, stat) == leader.number
        ]

    def resident_bytes(self, leader: Leader) -> int:
        """The memory that the processes of a child have in use, added up; pages they share count for each."""
        try:
            return sum(map(processes().resident_bytes_of, self.members(leader)))
        except OSError:
            return 0

    def _number_of(self, pid: int, stat: Stat) -> int | None:
        """The number of the child that a process belongs to; 0 if it is none of ours, -1 if we may not know,
        None if it is unclear now. Raises `OSError` if no file can be opened."""
        number = self._claimed_number(pid, stat)
        leader = self._by_number.get(number & _TAG_MASK) if number is not None and number > 0 else None
        return 0 if leader is not None and stat.started < leader.started else number

    def _claimed_number(self, pid: int, stat: Stat) -> int | None:
        started, number = self._descendants.get(pid, (-1, 0))
        if started == stat.started:
            return number
        table = processes()
        if self._tag and (tag := table.tag_of(pid)) >> TAG_BITS == self._tag:
            leader = self._by_number.get(tag & _TAG_MASK)
            return tag & _TAG_MASK if leader is None else leader.number
        # A group or session is ours while its leader is there and is the one that we know: numbers are used
        # again.
        for leader in map(self._leaders.get, (stat.group, stat.session)):
            if leader is not None:
                first = table.stat_of(leader.pid)
                if first is not None and first.started == leader.started:
                    return leader.number
        environment = table.environment_of(pid)
        if len(environment) < 2:
            return None if environment else -1
        text = environment.partition(self._marker)[2].partition(b"\0")[0]
        return int(text) if text.isdigit() else 0


def _hold(pid: int) -> int:
    """A handle that means this process and no later one; -1 where the system has none, or none to give."""
    if not (hasattr(os, "pidfd_open") and hasattr(signal, "pidfd_send_signal")):
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

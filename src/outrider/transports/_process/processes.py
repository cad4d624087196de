"""What the system tells of its processes: the one place where it is asked.

Does not know what a process belongs to. A system that tells nothing has `NoTable`; one that can be asked in
another way gets a table of its own here, and nothing else changes.
"""

from __future__ import annotations

import errno
import os
import resource
import sys
from typing import TYPE_CHECKING, ClassVar, Final, NamedTuple, Protocol

if TYPE_CHECKING:
    from collections.abc import Iterator

# Not for Windows: there, type checkers need not look further.
assert sys.platform != "win32"

_PAGE: Final = os.sysconf("SC_PAGE_SIZE")
_OUT_OF_FILES: Final = (errno.EMFILE, errno.ENFILE)


class Stat(NamedTuple):
    """What is known of a process."""

    state: str
    """A letter, as in `/proc/<pid>/stat`: `Z` and `X` have ended."""
    group: int
    session: int
    started: int
    """In clock ticks since the machine started: with the pid, it names one process for ever."""

    @property
    def is_running(self) -> bool:
        return self.state not in "ZX"


class ProcessTable(Protocol):
    """The processes of this machine. Each method raises `OSError` if no file can be opened to look."""

    can_be_searched: ClassVar[bool]
    """Whether it tells anything at all."""

    def stat_of(self, pid: int) -> Stat | None:
        """None if there is no such process."""
        ...

    def environment_of(self, pid: int) -> bytes:
        """The variables that a process was started with, NUL before and after each; empty if they may not be
        read."""
        ...

    def tag_of(self, pid: int) -> int:
        """What `put_tag` has given to it, or to one that it comes from; 0 if nothing has."""
        ...

    def process_ids(self) -> Iterator[int]:
        """All that can be seen, the newest first."""
        ...

    def resident_bytes_of(self, pid: int) -> int:
        """The memory that it has in use; 0 if it is gone."""
        ...


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
    return Stat(fields[0].decode(), int(fields[2]), int(fields[3]), int(fields[19]))


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


class ProcTable:
    """Of a system that has `/proc`: Linux."""

    can_be_searched: ClassVar[bool] = True
    stat_of = staticmethod(stat_of)
    environment_of = staticmethod(environment_of)
    tag_of = staticmethod(tag_of)
    process_ids = staticmethod(process_ids)

    def resident_bytes_of(self, pid: int) -> int:
        try:
            with open(f"/proc/{pid}/statm", "rb", buffering=0) as file:  # noqa: PTH123 - as above
                return int(file.read(256).split()[1]) * _PAGE
        except (OSError, IndexError):
            return 0


class NoTable:
    """Of a system that tells nothing that is understood here. What is left is the process group."""

    can_be_searched: ClassVar[bool] = False

    def stat_of(self, pid: int) -> Stat | None:
        return None

    def environment_of(self, pid: int) -> bytes:
        return b""

    def tag_of(self, pid: int) -> int:
        return 0

    def process_ids(self) -> Iterator[int]:
        return iter(())

    def resident_bytes_of(self, pid: int) -> int:
        return 0


_table: ProcessTable = ProcTable() if stat_of(os.getpid()) is not None else NoTable()


def processes() -> ProcessTable:
    """The table of this system."""
    return _table

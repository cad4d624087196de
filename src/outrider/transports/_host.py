"""This process as the host of children: the name that marks them, the list of those alive, and the last
resort.

Does not start or end a child; keepers do, and enter themselves here.
"""

from __future__ import annotations

import atexit
import itertools
import os
import secrets
import sys
from threading import Lock
from typing import TYPE_CHECKING, Final, Protocol

from outrider.transports._warden import Warden

if TYPE_CHECKING:
    from collections.abc import Iterator


TAG_BITS: Final = 20
"""Of a tag, for the child; the warden looks at the rest, which is the host's."""
_HOST_BITS: Final = 40


class Kept(Protocol):
    """A keeper, as the host sees it."""

    def end(self, *, kill: bool = False) -> None: ...
    def wait_blocking(self) -> None: ...
    def forget(self) -> None: ...


class Host:
    """All children of this process. One for each process: a fork starts with an empty one."""

    def __init__(self) -> None:
        self.id = secrets.token_hex(8)
        """In the *name* of the variable that marks children, so that hosts inside hosts add theirs."""
        self._tag = secrets.randbits(_HOST_BITS) | 1
        self._numbers: Iterator[int] = itertools.count(1)
        self._live: dict[int, Kept] = {}
        self._lock = Lock()
        self.warden = Warden(self.id, self._tag)

    def next_number(self) -> int:
        return next(self._numbers)

    def marker(self, number: int) -> tuple[str, str]:
        """Name and value of the variable that marks the child of this number."""
        return f"OUTRIDER_{self.id}", str(number)

    def tag(self, number: int) -> int:
        """What marks the child of this number where it has lost its environment; see `put_tag`."""
        return self._tag << TAG_BITS | number & (1 << TAG_BITS) - 1

    def enter(self, number: int, keeper: Kept) -> None:
        with self._lock:
            self._live[number] = keeper

    def leave(self, number: int) -> None:
        with self._lock:
            self._live.pop(number, None)

    def live(self) -> list[Kept]:
        with self._lock:
            return list(self._live.values())

    def end_all(self) -> None:
        """End every child and wait for it: the interpreter is about to go."""
        keepers = self.live()
        for keeper in keepers:
            keeper.end()
        for keeper in keepers:
            keeper.wait_blocking()
        self.warden.dismiss()

    def forget(self) -> None:
        """In a forked process: the children are the other one's. No lock is taken, it may have been held."""
        for keeper in self._live.values():
            keeper.forget()
        self.warden.forget()


_host = Host()


def host() -> Host:
    """The host that this process is."""
    return _host


def _start_anew() -> None:
    global _host
    # First: whatever happens, nothing of this process may carry the name of the other.
    forgotten, _host = _host, Host()
    forgotten.forget()


def _end_all() -> None:
    _host.end_all()


# Threads cannot be started any more when these run; the keepers are there already.
atexit.register(_end_all)
if sys.platform != "win32":
    os.register_at_fork(after_in_child=_start_anew)

"""What a forked process has of its parent's and must let go of.

A fork copies descriptors, and the event loop under which it happened: whoever unwinds that loop in the child
takes its waits back in the kernel, which the parent's loop shares. What is closed by then cannot be taken
back. It copies locks, too, as they are, with no thread that would ever open them. Does not know what they are
for: each object forgets by itself.
"""

from __future__ import annotations

import os
import sys
from threading import Lock
from typing import Protocol
from weakref import WeakSet


class Inherited(Protocol):
    """What is to be forgotten in a forked process."""

    def forget(self) -> None:
        """Called there, where nothing else runs yet. It must neither wait nor say a word to anybody."""
        ...


_all: WeakSet[Inherited] = WeakSet()


def forget_in_forks(one: Inherited) -> None:
    """Have it forgotten in every process that is forked while it is there."""
    _all.add(one)


class FreshLock:
    """A lock that is open in a forked process, whichever thread of the other one held it."""

    __slots__ = ("__weakref__", "_lock")

    def __init__(self) -> None:
        self._lock = Lock()
        forget_in_forks(self)

    def __enter__(self) -> None:
        self._lock.acquire()

    def __exit__(self, *_: object) -> None:
        self._lock.release()

    def forget(self) -> None:
        self._lock = Lock()


def _forget_all() -> None:
    for one in tuple(_all):
        one.forget()
    _all.clear()


if sys.platform != "win32":
    os.register_at_fork(after_in_child=_forget_all)

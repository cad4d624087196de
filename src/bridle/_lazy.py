"""Owns how a package loads its names when they are first used, and that a fork waits for that.

Does not say which: each package has its table.
"""

from __future__ import annotations

import importlib
import os
import sys
import time
from collections.abc import Callable, Iterable, Mapping
from importlib import import_module
from threading import get_ident
from typing import Any

__all__ = ["lazily"]

_LOADING_SECONDS = 5.0
"""So long a fork waits for threads that load modules: one of them may wait for the thread that forks."""


def lazily(
    package: str, homes: Mapping[str, Iterable[str]], modules: Iterable[str] = ()
) -> tuple[Callable[[str], object], Callable[[], list[str]]]:
    """The `__getattr__` and `__dir__` of a package whose modules have these names.

    `modules` are there as names themselves."""
    home_of = {name: home for home, names in homes.items() for name in names}

    def get(name: str) -> object:
        if name in modules:
            return import_module(f"{package}.{name}")
        if name not in home_of:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        found: object = getattr(import_module(f"{package}.{home_of[name]}"), name)
        setattr(sys.modules[package], name, found)
        return found

    def names() -> list[str]:
        return sorted({*vars(sys.modules[package]), *home_of, *modules})

    return get, names


def _wait_until_loaded() -> None:
    """Wait until no other thread loads a module: its lock would stay shut in a forked process, for ever, and
    whoever needs that module there would hang. Python sees to that for no lock but its first."""
    # Neither is public; where they are called something else, a fork is what it is without Bridle.
    locks: dict[str, Callable[[], Any]] = getattr(vars(importlib)["_bootstrap"], "_module_locks", {})
    nobody = (None, get_ident())
    deadline = time.monotonic() + _LOADING_SECONDS
    while time.monotonic() < deadline:
        held = [lock for reference in tuple(locks.values()) if (lock := reference()) is not None]
        if all(getattr(lock, "owner", None) in nobody for lock in held):
            return
        time.sleep(0.001)


if sys.platform != "win32":
    os.register_at_fork(before=_wait_until_loaded)

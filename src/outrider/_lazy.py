"""Loads the names of a package on first use, also in a forked process.

Each package has its own table of names.
"""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Callable, Iterable, Mapping
from importlib import import_module
from threading import get_ident
from typing import Any

__all__ = ["lazily"]


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


def _load_anew() -> None:
    """In a forked process: let go of the modules that threads of the other one were just loading. Nobody here
    would ever open their locks, and whoever needs one would hang; Python sees to that for no lock but its
    first. What there is of them is half of a module, so that is forgotten, too."""
    # None of this is public; where it is called something else, a fork is what it is without Outrider.
    locks: dict[str, Callable[[], Any]] = getattr(vars(importlib)["_bootstrap"], "_module_locks", {})
    for name, reference in tuple(locks.items()):
        if getattr(reference(), "owner", None) not in (None, get_ident()):
            locks.pop(name, None)
            spec = getattr(sys.modules.get(name), "__spec__", None)
            if getattr(spec, "_initializing", False):
                sys.modules.pop(name, None)


if sys.platform != "win32":
    os.register_at_fork(after_in_child=_load_anew)

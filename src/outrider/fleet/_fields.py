"""The keywords that sessions, pools and runs share, and how amounts of memory and time are written."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final, TypeVar, cast

from outrider.options import OptionFields
from outrider.options._validators import LARGEST_WHOLE, invalid_value, seconds

if TYPE_CHECKING:
    from outrider.fleet._budget.budget import Budget, Gate
    from outrider.fleet._budget.ledger import Ledger
    from outrider.fleet._resilient.retry import Restart, Retry
    from outrider.fleet._resilient.turn_runner import Starter

__all__ = [
    "PolicyFields",
    "ResilientFields",
    "of_kind",
    "read_ledger",
    "read_seconds",
    "read_size",
    "read_starter",
    "split_keywords",
    "write_size",
]


T = TypeVar("T")
F = TypeVar("F", bound=OptionFields)


class PolicyFields(OptionFields, total=False):
    """What may go wrong, and what may be spent: keywords of sessions and of runs, beside every option."""

    restart: Restart | None
    """What is done when the agent's process, or the worker of a task, is lost. Unset: `Restart()`; None:
    nothing."""
    retry: Retry | None
    """When a turn that the API failed is tried again. Unset: `Retry()`; None: never."""
    budget: Budget | None
    """What may be spent; may be shared. In a run, what earlier runs of its journal spent counts."""
    ledger: Ledger | None
    """Gets each turn."""
    gate: Gate | None
    """Where all that share it wait for a limit of the account. A run has one of its own, if none is given."""


class ResilientFields(PolicyFields, total=False):
    """What a resilient session takes as keywords: these, and every option."""

    tags: Mapping[str, str] | None
    """What its turns are found by in the ledger."""


def split_keywords(fields: F, kind: type[F]) -> tuple[F, OptionFields]:
    """The keywords that are this kind's own; the rest are options, or nothing that is known."""
    own = kind.__annotations__.keys() - OptionFields.__annotations__.keys()
    mine = {name: value for name, value in fields.items() if name in own}
    rest = {name: value for name, value in fields.items() if name not in own}
    return cast("F", mine), cast("OptionFields", rest)


def of_kind(name: str, value: object, kind: type[T]) -> T | None:
    """An object of a class, or None. Raises `OptionsError`."""
    if value is not None and not isinstance(value, kind):
        raise invalid_value(f"`{name}`", f"a `{kind.__name__}` or None", value)
    return value


def read_ledger(name: str, value: object) -> Ledger | None:
    """What takes entries, or None. Raises `OptionsError`."""
    return cast("Ledger | None", _able(name, "a `Ledger` or None", value, "add"))


def read_starter(name: str, value: object) -> Starter | None:
    """What gives out processes, or None. Raises `OptionsError`."""
    wanted = "a `Pool`, or what has its `start` and `stop`"
    return cast("Starter | None", _able(name, wanted, value, "start", "stop"))


def _able(name: str, wanted: str, value: object, *methods: str) -> object:
    if value is not None and not all(callable(getattr(value, each, None)) for each in methods):
        raise invalid_value(f"`{name}`", wanted, value)
    return value


_AMOUNT: Final = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([a-zA-Z]*)\s*")
_BYTES: Final = {
    "": 1,
    "b": 1,
    "kb": 1000,
    "mb": 1000**2,
    "gb": 1000**3,
    "tb": 1000**4,
    "kib": 1024,
    "mib": 1024**2,
    "gib": 1024**3,
    "tib": 1024**4,
}
_SECONDS: Final = {"": 1.0, "ms": 0.001, "s": 1.0, "min": 60.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_SIZE: Final = 'a number of bytes over 0, or a text such as "512MiB" or "6GiB"'
_TIME: Final = 'a finite number of seconds, 0 or more, or a text such as "90s", "5min" or "2h"'


def read_size(place: str, value: object) -> int:
    """A number of bytes, of a whole number or a text with a unit. Raises `OptionsError`."""
    if isinstance(value, str):
        found = _AMOUNT.fullmatch(value)
        unit = None if found is None else _BYTES.get(found[2].lower())
        if found is None or unit is None:
            raise invalid_value(place, _SIZE, value, "Units are KB, MB, GB, TB and KiB, MiB, GiB, TiB.")
        amount = int(min(float(found[1]) * unit, 2.0 * LARGEST_WHOLE))
    elif isinstance(value, int) and not isinstance(value, bool):
        amount = int(value)
    else:
        raise invalid_value(place, _SIZE, value)
    if not 0 < amount <= LARGEST_WHOLE:
        raise invalid_value(place, _SIZE, value, "Leave it out for no limit.")
    return amount


def read_seconds(place: str, value: object) -> float:
    """A number of seconds, of a number or a text with a unit. Raises `OptionsError`."""
    if not isinstance(value, str):
        return seconds(place, value)
    found = _AMOUNT.fullmatch(value)
    unit = None if found is None else _SECONDS.get(found[2].lower())
    if found is None or unit is None:
        raise invalid_value(place, _TIME, value, "Units are ms, s, min, h and d.")
    return seconds(place, float(found[1]) * unit)


def write_size(amount: int) -> str:
    """A number of bytes for people: `"512 MiB"`."""
    size = float(amount)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if size < 1024:
            return f"{size:.4g} {unit}"
        size /= 1024
    return f"{size:.4g} TiB"

"""The keywords that sessions, pools and runs share, and how amounts of memory and time are written."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final, TypeVar, cast

from outrider.options import OptionFields
from outrider.options._validators import LARGEST_WHOLE, invalid_value, seconds

if TYPE_CHECKING:
    from outrider.fleet._budget.budget import Budget
    from outrider.fleet._budget.ledger import Ledger
    from outrider.fleet._resilient.retry import Gate, Restart, Retry
    from outrider.fleet._resilient.turn_runner import Starter


T = TypeVar("T")
F = TypeVar("F", bound=OptionFields)


class PolicyFields(OptionFields, total=False):
    """Keywords of sessions and of runs, besides every option."""

    restart: Restart | None
    """When a lost process, or a lost worker of a task, is replaced. Unset: `Restart()`; None: never."""
    retry: Retry | None
    """When a turn is retried after the API failed. Unset: `Retry()`; None: never."""
    budget: Budget | None
    """The limit of what may be spent; may be shared. A run also counts what earlier runs of its journal
    spent."""
    ledger: Ledger | None
    """Records each turn."""
    gate: Gate | None
    """Makes all that share it wait for a limit of the account. A run makes one if none is given."""


class ResilientFields(PolicyFields, total=False):
    """The keywords of a resilient session: these, and every option."""

    tags: Mapping[str, str] | None
    """Written into the ledger with each turn."""


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
    """An object that takes entries, or None. Raises `OptionsError`."""
    if value is not None and not callable(getattr(value, "add", None)):
        raise invalid_value(f"`{name}`", "a `Ledger` or None", value)
    return cast("Ledger | None", value)


def read_starter(name: str, value: object) -> Starter | None:
    """An object that gives out processes, or None. Raises `OptionsError`."""
    if value is not None and not all(callable(getattr(value, each, None)) for each in ("start", "stop")):
        raise invalid_value(f"`{name}`", "a `Pool`, or what has its `start` and `stop`", value)
    return cast("Starter | None", value)


_AMOUNT: Final = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([a-zA-Z]*)\s*")
_BYTES: Final = {"": 1, "b": 1} | {
    f"{prefix}{suffix}": base**power
    for suffix, base in (("b", 1000), ("ib", 1024))
    for power, prefix in enumerate("kmgt", 1)
}
_SECONDS: Final = {"": 1.0, "ms": 0.001, "s": 1.0, "min": 60.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_SIZE: Final = 'a number of bytes over 0, or a text such as "512MiB" or "6GiB"'
_TIME: Final = 'a finite number of seconds, 0 or more, or a text such as "90s", "5min" or "2h"'


def read_size(place: str, value: object) -> int:
    """A number of bytes, from a whole number or a text with a unit. Raises `OptionsError`."""
    if isinstance(value, str):
        units = "Units are KB, MB, GB, TB and KiB, MiB, GiB, TiB."
        amount = int(min(_in_units(place, value, _BYTES, _SIZE, units), 2.0 * LARGEST_WHOLE))
    elif isinstance(value, int) and not isinstance(value, bool):
        amount = int(value)
    else:
        raise invalid_value(place, _SIZE, value)
    if not 0 < amount <= LARGEST_WHOLE:
        raise invalid_value(place, _SIZE, value, "Leave it out for no limit.")
    return amount


def read_seconds(place: str, value: object) -> float:
    """A number of seconds, from a number or a text with a unit. Raises `OptionsError`."""
    if isinstance(value, str):
        value = _in_units(place, value, _SECONDS, _TIME, "Units are ms, s, min, h and d.")
    return seconds(place, value)


def _in_units(place: str, text: str, units: Mapping[str, float], wanted: str, hint: str) -> float:
    found = _AMOUNT.fullmatch(text)
    if found is None or found[2].lower() not in units:
        raise invalid_value(place, wanted, text, hint)
    return float(found[1]) * units[found[2].lower()]


def write_size(amount: int) -> str:
    """Format a number of bytes: `"512 MiB"`."""
    size = float(amount)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if size < 1024:
            return f"{size:.4g} {unit}"
        size /= 1024
    return f"{size:.4g} TiB"

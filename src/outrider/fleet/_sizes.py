"""Owns how amounts of memory and of time are written: `"6GiB"`, `"90s"`, `"1.5h"`, or plain numbers.

Does not know what they limit.
"""

from __future__ import annotations

import re
from typing import Final

from outrider.options._readers import LARGEST_WHOLE, fault, seconds

__all__ = ["read_seconds", "read_size", "write_size"]

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
            raise fault(place, _SIZE, value, "Units are KB, MB, GB, TB and KiB, MiB, GiB, TiB.")
        amount = int(min(float(found[1]) * unit, 2.0 * LARGEST_WHOLE))
    elif isinstance(value, int) and not isinstance(value, bool):
        amount = int(value)
    else:
        raise fault(place, _SIZE, value)
    if not 0 < amount <= LARGEST_WHOLE:
        raise fault(place, _SIZE, value, "Leave it out for no limit.")
    return amount


def read_seconds(place: str, value: object) -> float:
    """A number of seconds, of a number or a text with a unit. Raises `OptionsError`."""
    if not isinstance(value, str):
        return seconds(place, value)
    found = _AMOUNT.fullmatch(value)
    unit = None if found is None else _SECONDS.get(found[2].lower())
    if found is None or unit is None:
        raise fault(place, _TIME, value, "Units are ms, s, min, h and d.")
    return seconds(place, float(found[1]) * unit)


def write_size(amount: int) -> str:
    """A number of bytes for people: `"512 MiB"`."""
    size = float(amount)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if size < 1024:
            return f"{size:.4g} {unit}"
        size /= 1024
    return f"{size:.4g} TiB"

"""Owns how an entry becomes a line again, and a line that is to be taken over an entry: with nothing lost.

More than the wire needs: files hold what any version of the program wrote, numbers of any size for one.
"""

from __future__ import annotations

import json
import math
from typing import TYPE_CHECKING, Any, NoReturn, cast

from outrider.errors import TranscriptError

if TYPE_CHECKING:
    from outrider.wire import JsonObject

__all__ = ["fields_of", "finite", "from_line", "read_json", "to_line", "to_object"]


def to_line(value: object) -> str:
    """Compact JSON that can be written as UTF-8. What JSON has no number for becomes null."""
    try:
        text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
        text.encode()
    except UnicodeEncodeError:
        # A lone surrogate has no UTF-8 form, but an escape.
        return json.dumps(value, allow_nan=False, separators=(",", ":"))
    except RecursionError as error:
        raise TranscriptError(
            "an entry is nested too deeply to be written", hint="Take that line out of the transcript."
        ) from error
    except ValueError:
        return to_line(finite(value))
    return text


def from_line(line: str) -> JsonObject:
    """The entry on a line. Raises a ValueError that says why it is none."""
    entry = to_object(line)
    if not isinstance(entry.get("type"), str):
        raise ValueError("it has no `type`")  # noqa: TRY004 - one kind of error for all that is no entry
    return entry


def to_object(text: str) -> JsonObject:
    """The object that a text is. Raises a ValueError that says why it is none."""
    found = read_json(text)
    if not isinstance(found, dict):
        raise ValueError("it is no JSON object")  # noqa: TRY004 - as above
    return cast("JsonObject", found)


def read_json(text: str) -> object:
    """Read strict JSON; a number that is too large for a float is read as what is written for it: null.
    Raises a ValueError if it is no JSON."""
    try:
        return cast("object", json.loads(text, parse_constant=_refuse, parse_float=_to_float))
    except RecursionError as error:
        raise ValueError("it is nested too deeply") from error


def fields_of(value: object) -> JsonObject:
    """The value, if it is an object; else one without fields."""
    return cast("JsonObject", value) if isinstance(value, dict) else {}


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is no JSON")


def _to_float(text: str) -> float | None:
    number = float(text)
    return number if math.isfinite(number) else None


def finite(value: Any) -> Any:  # noqa: ANN401 - anything made of JSON types
    """The value, with null for what JSON has no number for."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, list):
        return [finite(item) for item in cast("list[object]", value)]
    if isinstance(value, dict):
        return {name: finite(item) for name, item in cast("dict[str, object]", value).items()}
    return value

"""Owns which arguments make sense: numbers, texts, times, folders, ids. What does not is refused by its name.

Does not know what they are for.
"""

from __future__ import annotations

import os
from datetime import UTC, datetime
from typing import TYPE_CHECKING, TypeAlias, cast
from uuid import UUID

from outrider.errors import OptionsError

if TYPE_CHECKING:
    from typing import NoReturn

__all__ = [
    "StrPath",
    "check_choices",
    "check_count",
    "check_folder",
    "check_range",
    "check_text",
    "check_time",
    "checked_id",
    "in_utc",
]

StrPath: TypeAlias = str | os.PathLike[str]


def check_count(name: str, number: object, least: int = 0) -> None:
    if number is not None and (type(number) is not int or number < least):
        _refuse(name, number, f"Give a whole number, {least} or more.")


def check_range(last: int | None, limit: int | None, offset: int, history: str) -> None:
    """Which messages of a conversation are asked for."""
    check_count("last", last, 1)
    check_count("limit", limit)
    check_count("offset", offset)
    if last is not None and (limit is not None or offset):
        raise OptionsError("last cannot be given with limit or offset", hint="Give one or the other.")
    if history not in ("compacted", "full"):
        _refuse("history", history, "Give 'compacted' or 'full'.")


def check_text(name: str, text: object) -> None:
    if text is not None and not isinstance(text, str):
        _refuse(name, text, "Give a str.")


def check_choices(**values: object) -> None:
    """What is either so, or not so, or None."""
    for name, value in values.items():
        if value is not None and not isinstance(value, bool):
            _refuse(name, value, "Give True, False or None.")


def check_time(name: str, time: object) -> None:
    if time is not None and not isinstance(time, datetime):
        _refuse(name, time, "Give a datetime.")


def check_folder(name: str, folder: StrPath | None) -> StrPath | None:
    """The folder, which need not be there."""
    if folder is None:
        return None
    try:
        path = cast("object", os.fspath(folder))
        is_path = isinstance(path, str) and path and b"\x00" not in os.fsencode(path)
    except (TypeError, UnicodeEncodeError):
        is_path = False
    if not is_path:
        _refuse(name, folder, "Give the path of a folder, '.' for this one.")
    return folder


def checked_id(session_id: str) -> str:
    """The id, in small letters. Raises `OptionsError` if it is none: it becomes part of a path."""
    try:
        if str(UUID(session_id)) == session_id.lower():
            return session_id.lower()
    except (ValueError, AttributeError, TypeError):
        # Of no type that an id can have, or not in its form.
        pass
    raise OptionsError(
        f"the session's id cannot be {_shown(session_id)}",
        hint="Give a UUID, as `list` shows it (`info.id`).",
    )


def in_utc(time: datetime) -> datetime:
    """The time with a zone; local time if it has none."""
    try:
        return time.astimezone(UTC)
    except (OverflowError, ValueError, OSError):
        # The first and the last day that there is, for "always".
        return time.replace(tzinfo=UTC)


def _refuse(name: str, value: object, hint: str) -> NoReturn:
    raise OptionsError(f"{name} cannot be {_shown(value)}", hint=hint)


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 100 else f"{text[:100]}…"

"""Validates single values: each validator takes a value and returns the form that is kept, or raises."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from contextlib import suppress
from math import isfinite
from typing import Final, TypeAlias, TypeGuard, cast

from outrider.errors import OptionsError
from outrider.redaction import preview

Validator: TypeAlias = Callable[[str, object], object]
"""Takes a place, as an error names it, and a value."""

Check: TypeAlias = Callable[[str, str], None]
"""Takes a place and a text, and raises if the text cannot stand there."""

_SURROGATE = re.compile("[\ud800-\udfff]")
# Python makes U+DC80 to U+DCFF of bytes that are not UTF-8, in file names and variables, and bytes of these.
_SURROGATE_NOT_A_BYTE = re.compile("[\ud800-\udc7f\udd00-\udfff]")
_WORD_BREAKS = re.compile(r"[\s_-]+")


LARGEST_WHOLE: Final = 2**53 - 1
"""The agent counts in floating point, which is exact up to here."""
_LARGEST_FLOAT: Final = sys.float_info.max


def invalid_value(
    place: str, wanted: str, value: object, hint: str = "", *, hidden: bool = False
) -> OptionsError:
    """The error for an invalid value; `hidden`: it only names the type of the value."""
    return OptionsError(f"{place} must be {wanted}, not {_described(value, hidden=hidden)}", hint=hint)


def _described(value: object, *, hidden: bool) -> str:
    kind = type(value).__name__
    # What is in lists, mappings, bytes and objects may be secret, and need not look like it.
    if hidden or not isinstance(value, (str, os.PathLike, int, float, type(None))):
        return kind
    # Python refuses to format very long numbers.
    if isinstance(value, int) and abs(value) > LARGEST_WHOLE:
        return f"a number of {value.bit_length()} bits ({kind})"
    return f"{preview(repr(cast(object, value)), 80)} ({kind})"


def within(place: str, key: object) -> str:
    """The place of an item: `env['A']`."""
    subscript = f"[{key if isinstance(key, int) else preview(repr(key), 80)}]"
    return f"{place[:-1]}{subscript}`" if place.endswith("`") else place + subscript


# What type checkers should know of a value; without these, that it is a mapping of nothing known.


def is_mapping(value: object) -> TypeGuard[Mapping[object, object]]:
    return isinstance(value, Mapping)


def is_path(value: object) -> TypeGuard[str | os.PathLike[str]]:
    return isinstance(value, (str, os.PathLike))


def is_list(value: object) -> TypeGuard[Sequence[object]]:
    """Whether a value is a sequence of values: a text is not, nor are bytes."""
    return isinstance(value, Sequence) and not isinstance(value, (str, bytes, bytearray))


# Texts.


def _clean(place: str, value: str, surrogates: re.Pattern[str] = _SURROGATE, *, hidden: bool = False) -> str:
    if "\0" in value:
        problem, hint = "a NUL byte", "Remove it: no argument or variable can contain one."
    elif surrogates.search(value):
        problem = "a lone surrogate, which is not a character"
        hint = 'Decode the text again, for example with `errors="replace"`.'
    else:
        # Without what a subclass makes of it, as an enumeration does.
        return str.__str__(value)
    shown = "" if hidden else f": {preview(repr(value), 80)}"
    raise OptionsError(f"{place} contains {problem}{shown}", hint=hint)


def any_text(place: str, value: object) -> str:
    """A text, which may be empty."""
    if not isinstance(value, str):
        raise invalid_value(place, "a text", value)
    return _clean(place, value)


def text(place: str, value: object) -> str:
    """A text with something in it."""
    found = any_text(place, value)
    if not found.strip():
        raise invalid_value(
            place, "a text that is not empty", value, "Leave it out if there is nothing to say."
        )
    return found


def secret_text(place: str, value: object) -> str:
    """A text that is never shown; it may hold bytes that are not UTF-8, as a variable of this process may."""
    if not isinstance(value, str):
        hint = "Leave it out." if value is None else "Convert it with `str(…)`."
        raise invalid_value(place, "a text", value, hint, hidden=True)
    return _clean(place, value, _SURROGATE_NOT_A_BYTE, hidden=True)


def path_text(place: str, value: object) -> str:
    """A path, as text or as anything that stands for a path."""
    found: object = os.fspath(value) if is_path(value) else value
    if not isinstance(found, str):
        raise invalid_value(
            place, "a path: a text or a `Path`", value, "Turn bytes into a path with `os.fsdecode`."
        )
    if not found:
        raise invalid_value(place, "a path", value, "The current folder is '.'.")
    return _clean(place, found, _SURROGATE_NOT_A_BYTE)


def checked(*checks: Check, of: Callable[[str, object], str] = text) -> Validator:
    """A text for which all the checks hold."""

    def read(place: str, value: object) -> object:
        found = of(place, value)
        for check in checks:
            check(place, found)
        return found

    return read


# Choices.


def choice(*values: str) -> Validator:
    """One of a closed set."""
    wanted = ("one of " if len(values) > 1 else "") + ", ".join(map(repr, values))

    def read(place: str, value: object) -> object:
        if not isinstance(value, str) or value not in values:
            raise invalid_value(place, wanted, value, did_you_mean(value, values))
        return str.__str__(value)

    return read


def open_choice(known: Sequence[str], *, typos: bool) -> Validator:
    """A text that may be none of the known ones, but may not look like a misspelling of one. `typos`: one
    that is spelled nearly like a known one counts as such; if not, only another case does."""

    def read(place: str, value: object) -> object:
        found = text(place, value)
        if found not in known and (meant := near(found, known, cutoff=0.7 if typos else 1.0)):
            raise invalid_value(
                place, f"one of {', '.join(map(repr, known))}", value, f"Did you mean {meant!r}?"
            )
        return found

    return read


def near(name: str, known: Sequence[str], cutoff: float = 0.7) -> str | None:
    """The known name that was probably meant; case and what separates words do not count."""
    from difflib import get_close_matches

    folded, wanted = {fold(each): each for each in known}, fold(name)
    close = get_close_matches(wanted, list(folded), 1, cutoff)
    if not close and cutoff < 1 and len(wanted) > 3:
        close = [each for each in folded if each.startswith(wanted)][:1]
    return folded[close[0]] if close else None


def did_you_mean(value: object, known: Sequence[str]) -> str:
    """A hint that names what was probably meant; empty if nothing comes near."""
    meant = near(value, known) if isinstance(value, str) else None
    return f"Did you mean {meant!r}?" if meant else ""


def fold(name: str) -> str:
    return _WORD_BREAKS.sub("", name).lower()


# Numbers and switches.


def switch(place: str, value: object) -> bool:
    """True or False, and nothing that merely counts as such."""
    if not isinstance(value, bool):
        raise invalid_value(place, "True or False", value)
    return value


def whole(least: int, most: int | None = None) -> Validator:
    """A whole number within bounds."""
    wanted = (
        f"a whole number of {least} or more" if most is None else f"a whole number from {least} to {most}"
    )

    def read(place: str, value: object) -> object:
        if isinstance(value, bool) or not isinstance(value, int):
            raise invalid_value(place, wanted, value)
        if not least <= value <= (LARGEST_WHOLE if most is None else most):
            raise invalid_value(place, wanted, value, "Leave it out for the default.")
        return _plain_number(value)

    return read


def above_zero(place: str, value: object) -> float:
    """A number over 0 that is finite."""
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 < value <= _LARGEST_FLOAT:
        raise invalid_value(place, "a finite number over 0", value, "None stands for no limit.")
    return _plain_number(value)


def seconds(place: str, value: object) -> float:
    """A time to wait: a finite number, 0 or more."""
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value <= _LARGEST_FLOAT:
        raise invalid_value(place, "a finite number of seconds, 0 or more", value)
    return _plain_number(value)


def _plain_number(value: float) -> float:
    """Without what a subclass makes of it, as an enumeration and the numbers of numpy do."""
    return int(value) if isinstance(value, int) else float(value)


# What is made of others.


def optional(read: Validator) -> Validator:
    """None, or what the reader takes."""
    return lambda place, value: None if value is None else read(place, value)


def either(kind: type, first: Validator, second: Validator) -> Validator:
    """What the first reader takes, for a value of this type; else what the second takes."""
    return lambda place, value: (first if isinstance(value, kind) else second)(place, value)


def listed(read: Validator, *, example: str = "") -> Validator:
    """A list, kept as a tuple. A lone text is refused, because it is a sequence too, of characters."""

    def read_all(place: str, value: object) -> object:
        if is_path(value) or callable(value):
            meant = preview(repr(value), 80) if is_path(value) else getattr(value, "__name__", "…")
            raise invalid_value(place, "a list", value, f"Did you mean [{meant}]?")
        if not is_list(value):
            raise invalid_value(place, "a list", value, example or "Make a list of it.")
        with suppress(OptionsError):
            return tuple([read(place, item) for item in value])
        # Again, for an error that names the item.
        return tuple([read(within(place, number), item) for number, item in enumerate(value)])

    return read_all


def mapped(read_key: Validator, read_value: Validator, *, hidden: bool = False) -> Validator:
    """A mapping, kept as a dict of its own."""

    def read_all(place: str, value: object) -> object:
        if not is_mapping(value):
            raise invalid_value(place, "a mapping", value, hidden=hidden)
        with suppress(OptionsError):
            return {read_key(place, key): read_value(place, item) for key, item in value.items()}
        # Again, for an error that names the item.
        return {
            read_key(f"a key of {place}", key): read_value(within(place, key), item)
            for key, item in value.items()
        }

    return read_all


def json_object(place: str, value: object) -> object:
    """A JSON object: a copy that shares nothing with what was given."""
    if not is_mapping(value):
        raise invalid_value(place, "a mapping", value, hidden=True)
    try:
        return json_value(place, value)
    except RecursionError:
        raise OptionsError(f"{place} contains itself, or is too deep", hint="Give plain JSON.") from None


def json_value(place: str, value: object) -> object:
    """Anything that can be written as JSON, copied."""
    if value is None or isinstance(value, (str, bool)):
        return value
    if isinstance(value, int) or (isinstance(value, float) and isfinite(value)):
        return _plain_number(value)
    if is_mapping(value):
        for key in value:
            if not isinstance(key, str):
                raise invalid_value(f"a key of {place}", "a text, as in JSON", key)
        return {key: json_value(within(place, key), item) for key, item in value.items()}
    if is_list(value):
        return [json_value(within(place, number), item) for number, item in enumerate(value)]
    # What cannot be shown might be a secret of another form.
    raise invalid_value(
        place, "something that can be written as JSON", value, hidden=not isinstance(value, float)
    )


# What stays in this process.


def function(place: str, value: object) -> object:
    """Something that can be called."""
    if not callable(value):
        raise invalid_value(place, "a function", value, "Give the function itself, not what it returns.")
    return value


def thing(wanted: str) -> Validator:
    """An object that only its user knows: anything but plain data."""
    plain = (str, bytes, int, float, complex, Mapping, Sequence, AbstractSet, type(None))

    def read(place: str, value: object) -> object:
        if isinstance(value, plain):
            raise invalid_value(place, wanted, cast(object, value), hidden=True)
        return value

    return read

"""The patterns of policies: which are well formed, and what they match.

A pattern for text has `*` for any text, `?` for one character and `[abc]` for one of several. A pattern for
paths has the same inside of one part, and `**` for any number of parts. Does not know what is matched.
"""

from __future__ import annotations

import re
from enum import IntEnum
from fnmatch import translate
from functools import lru_cache
from typing import Final

from outrider.errors import OptionsError

_BRACES: Final = re.compile(r"\{[^{}]*,[^{}]*\}")
_CLASS: Final = re.compile(r"\[!?\]?[^\]]*\]")
_CONTROL: Final = re.compile(r"[\x00-\x1f\x7f]")
_SPECIAL: Final = re.compile(r"[*?\[]")


class Match(IntEnum):
    """Whether a pattern fits. Of several conditions the least counts."""

    NO = 0
    MAYBE = 1
    """It fits a part of it, or what it will be cannot be told: enough to deny, not to allow."""
    YES = 2


def check_pattern(place: str, pattern: str) -> None:
    """Raise `OptionsError` for a pattern that would not match what it seems to."""
    if not pattern.strip():
        raise OptionsError(f"{place} is an empty pattern", hint='"*" matches everything.')
    if pattern != pattern.strip():
        raise OptionsError(f"{place} has blanks around it: {pattern!r}", hint="Leave them out.")
    if _CONTROL.search(pattern):
        raise OptionsError(
            f"{place} has a control character in it: {pattern!r}", hint="`*` matches any text."
        )
    if braces := _BRACES.search(pattern):
        raise OptionsError(
            f"{place} has {braces[0]!r} in it, and braces stand for themselves: {pattern!r}",
            hint="Give a list of patterns.",
        )
    if "[" in _CLASS.sub("", pattern):
        raise OptionsError(
            f"{place} has a `[` that is never closed: {pattern!r}", hint="Write `[[]` for the character."
        )


def check_path_pattern(place: str, pattern: str) -> None:
    """The same for a path."""
    check_pattern(place, pattern)
    parts = pattern.split("/")
    if "***" in pattern or any("**" in part and part != "**" for part in parts):
        raise OptionsError(
            f"{place} has `**` next to something else: {pattern!r}",
            hint="`**` stands for whole parts of a path: 'src/**', '**/*.py'.",
        )
    first_special = next((number for number, part in enumerate(parts) if is_special(part)), len(parts))
    if ".." in parts[first_special:]:
        raise OptionsError(
            f"{place} has `..` after a wildcard: {pattern!r}", hint="Write the path without it."
        )


def is_special(pattern: str) -> bool:
    """Whether a pattern matches more than itself."""
    return _SPECIAL.search(pattern) is not None


def literal_prefix(pattern: str) -> str:
    """What everything that a pattern matches begins with."""
    found = _SPECIAL.search(pattern)
    return pattern if found is None else pattern[: found.start()]


def escaped(text: str) -> str:
    """A pattern that matches this text alone."""
    return _SPECIAL.sub(lambda special: f"[{special[0]}]", text)


@lru_cache(maxsize=1024)
def text_regex(pattern: str, *, ignores_case: bool = False) -> re.Pattern[str]:
    """What matches a pattern for text as a whole."""
    return re.compile(translate(pattern), re.IGNORECASE if ignores_case else 0)


def fits(pattern: str, text: str) -> bool:
    """Whether a pattern for text matches all of a text."""
    return text_regex(pattern).match(text) is not None


@lru_cache(maxsize=1024)
def path_regex(pattern: str, *, ignores_case: bool = False, below: bool = False) -> re.Pattern[str]:
    """What matches a pattern for paths as a whole; `src/**` matches `src` too. `below`: or all that is inside
    of what it matches."""
    while pattern.endswith("/**"):
        pattern, below = pattern.removesuffix("/**"), True
    pieces = [""]
    for part in pattern.split("/"):
        if part == "**":
            pieces.append("")
        else:
            pieces[-1] += _part_regex(part) + "/"
    regex = _in_a_row(pieces, "(?:.*?/)??", "(?:.*/)?").removesuffix("/")
    regex = ".*" if pattern == "**" else regex + "(?:/.*)?" if below else regex
    return re.compile(f"(?s:{regex})\\Z", re.IGNORECASE if ignores_case else 0)


def _part_regex(part: str) -> str:
    """The regular expression for a part of a path, in which no wildcard matches a slash."""
    pieces, position = [""], 0
    while position < len(part):
        character = part[position]
        if character == "*":
            pieces.append("")
        elif character == "?":
            pieces[-1] += "[^/]"
        elif character == "[" and (found := _CLASS.match(part, position)):
            # Without what makes it a pattern of its own: `(?s:` and `)\\Z`.
            pieces[-1] += f"(?!/){translate(found[0])[4:-3]}"
            position = found.end() - 1
        else:
            pieces[-1] += re.escape(character)
        position += 1
    return _in_a_row(pieces, "[^/]*?", "[^/]*")


def _in_a_row(pieces: list[str], first_gap: str, last_gap: str) -> str:
    """The pieces of a pattern with what may be between them. The first place where a piece fits is as good as
    any but for the last one: that no others are tried is what keeps it fast."""
    first, *others = pieces
    if not others:
        return first
    *middle, last = others
    return first + "".join(f"(?>{first_gap}{each})" for each in middle if each) + last_gap + last

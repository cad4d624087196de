"""Makes text from elsewhere safe to show: on a terminal, in a log, in a file.

Replaces control characters, bidirectional controls and invisible characters (those that Unicode calls
default-ignorable). They are replaced rather than removed, so that a reader sees that something was there.
Secrets are hidden in `outrider.redaction`.
"""

from __future__ import annotations

import re
from functools import cache
from typing import Final

_REPLACED: Final = "\N{REPLACEMENT CHARACTER}"

# Controls but for tab and newline, separators of lines, lone surrogates, and all default-ignorable characters
# but for those below.
_NEVER: Final = (
    r"\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff"
    r"\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b\u200e\u200f\u202a-\u202e\u2060-\u206f\u3164"
    r"\ufe00-\ufe0d\ufeff\uffa0\ufff0-\ufffb\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0000-\U000e0fff"
)
# What joins is part of how an emoji, a Persian or an Indian word is written: one, between two of its signs.
_JOINERS: Final = "\u200c\u200d\ufe0e\ufe0f"
_EMOJI: Final = (
    r"\u00a9\u00ae\u203c\u2049\u2100-\u27bf\u2900-\u2bff\u3030\u303d\u3297\u3299\U0001f000-\U0001faff"
)
_JOINED: Final = r"\u0620-\u06dc\u06de-\u06ff\u0900-\u0dff\u1000-\u109f\u1780-\u17b3"


@cache
def _hidden() -> re.Pattern[str]:
    """Compiled on first use: most programs that import Outrider show nothing. One set of characters, because
    that is looked for ten times as fast as what is around them."""
    return re.compile(rf"[{_NEVER}\u200c\u200d\ufe0e\ufe0f]")


@cache
def _joining() -> re.Pattern[str]:
    emoji = rf"(?<=[{_EMOJI}\ufe0f])\u200d(?=[{_EMOJI}])"
    word = rf"(?<=[{_JOINED}])[\u200c\u200d](?=[{_JOINED}])"
    return re.compile(rf"{emoji}|{word}|(?<=[{_EMOJI}])[\ufe0e\ufe0f]|[\ufe0e\ufe0f](?=\u20e3)")


def _joins(found: re.Match[str]) -> bool:
    return found[0] in _JOINERS and _joining().match(found.string, found.start()) is not None


@cache
def _emoji_joiners() -> re.Pattern[str]:
    return re.compile("(?<![\u0620-\u17b3])[\u200d\ufe0e\ufe0f]")


def plain(text: str) -> str:
    """A text that may be shown anywhere, with its tabs and line ends: for pipes and files."""
    return _hidden().sub(_replaced, text.replace("\r\n", "\n"))


def printable(text: str) -> str:
    """A text for a layout: as `plain`, with spaces for tabs, and without what joins emoji, of which terminals
    do not agree how wide they are."""
    return _emoji_joiners().sub("", plain(text)).expandtabs(4)


def one_line(text: str) -> str:
    """A text that has to stand in a line of ours, as `printable`: it cannot begin one of its own."""
    return " ".join(printable(text).split())


def chopped(text: str, width: int) -> list[str]:
    """A line in pieces that fit into so many columns on every terminal, however wide that takes a sign to be:
    what does not fit would continue in the first column."""
    if text.isascii():
        return [text[start : start + width] for start in range(0, len(text), width)] or [""]
    pieces: list[str] = []
    begun = used = 0
    for number, sign in enumerate(text):
        size = _widest(sign)
        if used + size > width and used:
            pieces.append(text[begun:number])
            begun, used = number, 0
        used += size
    return [*pieces, text[begun:]]


def _widest(sign: str) -> int:
    """The columns that any terminal may give a sign. What joins another one has some too, and all signs of
    the later planes have two: which of them do is another question with every version of Unicode."""
    is_narrow = sign < "\u1100" or "\u1200" <= sign < "\u2300" or "\u2500" <= sign < "\u25a0"
    return 1 if is_narrow else 2


def escaped_json(text: str) -> str:
    """JSON that a terminal shows and does not obey: the same value, what `plain` replaces as escapes."""
    return _hidden().sub(_escape, text)


def _replaced(found: re.Match[str]) -> str:
    return found[0] if _joins(found) else _REPLACED


def _escape(found: re.Match[str]) -> str:
    if _joins(found):
        return found[0]
    sign = ord(found[0])
    if sign < 0x20:
        # Inside a string it would be no JSON, so it stands between two values.
        return " "
    if sign < 0x10000:
        return f"\\u{sign:04x}"
    sign -= 0x10000
    return f"\\u{0xD800 + (sign >> 10):04x}\\u{0xDC00 + (sign & 0x3FF):04x}"

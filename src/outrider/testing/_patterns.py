"""Owns texts made from simple patterns: letters, classes, groups, choices and repetitions.

Does not know look-arounds and references back: whoever asks checks what is made.
"""

from __future__ import annotations

from typing import Final

__all__ = ["text_for"]

_CLASSES: Final = {"d": "1", "w": "a", "s": " ", "D": "a", "W": "-", "S": "a"}
_SIGNS: Final = {"n": "\n", "t": "\t", "r": "\r", "f": "\f", "v": "\v", "0": "\0"}
_MOST: Final = 1000


class _Unknown(Exception):
    """The pattern has what is not known here."""


def text_for(pattern: str, length: int = 0) -> str | None:
    """A text that a pattern is found in, of this length if its repetitions allow it; None if it is not
    simple."""
    for wished in dict.fromkeys((length, max(length - 1, 0))):
        try:
            reader = _Reader(pattern)
            made = reader.choice(0)
            if wished > len(made):
                reader = _Reader(pattern, more=wished - len(made))
                made = reader.choice(0)
        except (_Unknown, IndexError, ValueError, RecursionError):
            return None
        if reader.at == len(pattern):
            return made
    return None


class _Reader:
    """Reads a pattern and writes a text for it."""

    def __init__(self, pattern: str, *, more: int = 0) -> None:
        self._pattern = pattern
        self._more = more
        """How many characters repetitions have to add."""
        self.at = 0

    def choice(self, depth: int) -> str:
        """The first of the alternatives."""
        made = self._sequence(depth)
        while self._next() == "|":
            self.at += 1
            more, self._more = self._more, 0
            self._sequence(depth)
            self._more = more
        return made

    def _next(self) -> str:
        return self._pattern[self.at : self.at + 1]

    def _sequence(self, depth: int) -> str:
        made = ""
        while self._next() not in ("", "|", ")"):
            start = self.at
            more, self._more = self._more, 0
            piece = self._atom(depth)
            self._more = more
            least, most = self._repetition()
            if least > _MOST:
                raise _Unknown
            if piece and self._more:
                extra = min(most - least, -(-self._more // len(piece)))
                self._more = max(0, self._more - extra * len(piece))
                least += extra
            made += piece * least
            if self.at == start:
                raise _Unknown
        return made

    def _atom(self, depth: int) -> str:
        sign = self._pattern[self.at]
        self.at += 1
        if sign in "^$":
            return ""
        if sign == ".":
            return "a"
        if sign == "\\":
            return self._escaped()
        if sign == "[":
            return self._one_of()
        if sign == "(":
            return self._group(depth)
        if sign in "*+?{":
            raise _Unknown
        return sign

    def _escaped(self) -> str:
        sign = self._pattern[self.at]
        self.at += 1
        if sign in "AZbB":
            return ""
        if sign in "xu":
            digits = 2 if sign == "x" else 4
            code = self._pattern[self.at : self.at + digits]
            self.at += digits
            return chr(int(code, 16))
        if sign.isdigit() and sign != "0":
            raise _Unknown
        if sign in "pPk":
            raise _Unknown
        return _CLASSES.get(sign) or _SIGNS.get(sign) or sign

    def _group(self, depth: int) -> str:
        is_needed = True
        if self._pattern.startswith("?", self.at):
            if self._pattern.startswith("?:", self.at):
                self.at += 2
            elif self._pattern.startswith(("?P<", "?<"), self.at) and self._pattern[self.at + 2] not in "=!":
                self.at = self._pattern.index(">", self.at) + 1
            elif self._pattern.startswith(("?=", "?!", "?<=", "?<!"), self.at):
                # What follows may fit by chance.
                self.at += 2 if self._pattern[self.at + 1] in "=!" else 3
                is_needed = False
            else:
                raise _Unknown
        made = self.choice(depth + 1)
        if self._next() != ")":
            raise _Unknown
        self.at += 1
        return made if is_needed else ""

    def _one_of(self) -> str:
        is_not = self._next() == "^"
        self.at += is_not
        allowed: set[str] = set()
        shown = ""
        start = self.at
        while self._next() != "]" or self.at == start:
            low = self._member()
            high = low
            if self._next() == "-" and self._pattern[self.at + 1] != "]":
                self.at += 1
                high = self._member()
            shown = shown or low
            allowed.update(chr(code) for code in range(ord(low), min(ord(high), ord(low) + 200) + 1))
        self.at += 1
        if is_not:
            return next(sign for sign in "a1-_ x.Z!~" if sign not in allowed)
        return shown

    def _member(self) -> str:
        sign = self._pattern[self.at]
        self.at += 1
        return self._escaped() if sign == "\\" else sign

    def _repetition(self) -> tuple[int, int]:
        least, most = 1, 1
        sign = self._next()
        if sign in ("*", "+", "?") and sign:
            self.at += 1
            least, most = (1 if sign == "+" else 0), (1 if sign == "?" else _MOST)
        elif sign == "{":
            end = self._pattern.index("}", self.at)
            first, comma, last = self._pattern[self.at + 1 : end].partition(",")
            self.at = end + 1
            least = int(first or 0)
            most = (int(last) if last else _MOST) if comma else least
        else:
            return least, most
        if self._next() in ("?", "+") and self._next():
            self.at += 1
        return least, most

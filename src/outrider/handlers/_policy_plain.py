"""Whether a shell command is one plain command, so that its text tells all that it does.

Nothing but one simple command passes, with nothing left to the shell but file names, and nothing that is in
doubt. Which commands there are in any other text is a matter of `_policy_shell`.
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple

LONGEST: Final = 20_000
"""Characters of a command that are looked at; a longer one is not understood."""

_SEPARATORS: Final[dict[str, str]] = {
    ";": "it has more than one command",
    "&": "it has more than one command",
    "|": "it is a pipe",
    "\n": "it has more than one line",
    "<": "it reads from a file",
    ">": "it writes to a file",
    "(": "it starts another shell",
    ")": "it starts another shell",
    "`": "it runs a command within",
    "$": "a part of it is known to the shell alone",
    "\\": "it has a backslash outside of quotes",
}
_ASSIGNMENT: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*(\[[^]]*\])?\+?=")
_ORDINARY: Final = re.compile(r"[A-Za-z0-9_./:=@,+%~^!*?\[\]-]+")
_PLAIN_NAME: Final = re.compile(r"[A-Za-z0-9_./+:@%,^-]+")


class NotPlain(ValueError):
    """A command is more than one simple command, or not what it looks like; the text says why."""


class Plain(NamedTuple):
    """One simple command, with nothing that the shell would still change but file names."""

    written: str
    """As it is written, with single blanks between the words."""
    meant: str
    """Without the quotes."""


def plain_command(text: str) -> Plain:
    """The one simple command that a text is. Raises `NotPlain` for all else, and in every case of doubt."""
    if len(text) > LONGEST:
        raise NotPlain("it is too long")
    if "\0" in text:
        raise NotPlain("it has a NUL byte in it")
    written, meant = _plain_words(text.strip(" \t\n"))
    if not written:
        raise NotPlain("it is empty")
    if _ASSIGNMENT.match(written[0]):
        raise NotPlain("it sets a variable first")
    if not _PLAIN_NAME.fullmatch(written[0]):
        raise NotPlain("the name of its command is not plain text")
    return Plain(" ".join(written), " ".join(meant))


def _plain_words(text: str) -> tuple[list[str], list[str]]:
    written, meant = [""], [""]
    position = 0
    while position < len(text):
        if ordinary := _ORDINARY.match(text, position):
            written[-1] += ordinary[0]
            meant[-1] += ordinary[0]
            position = ordinary.end()
            continue
        character = text[position]
        end = position + 1
        if character in " \t":
            if written[-1]:
                written.append("")
                meant.append("")
            position = end
            continue
        if character in _SEPARATORS:
            raise NotPlain(_SEPARATORS[character])
        if character.isspace() or not character.isprintable():
            raise NotPlain("it has a strange character outside of quotes")
        if character == "#" and not written[-1]:
            raise NotPlain("it has a comment")
        if character == "{" and text[end : end + 1] != "}":
            raise NotPlain("it has a brace outside of quotes")
        says = character
        if character == "'":
            end = _closing(text, end)
            says = text[position + 1 : end - 1]
        elif character == '"':
            end, says = _double_quoted(text, end)
        written[-1] += text[position:end]
        meant[-1] += says
        position = end
    if not written[-1]:
        del written[-1], meant[-1]
    return written, meant


def _closing(text: str, start: int) -> int:
    """Behind the quote that closes what begins at `start`."""
    end = text.find("'", start)
    if end < 0:
        raise NotPlain("a quote in it is never closed")
    return end + 1


def _double_quoted(text: str, position: int) -> tuple[int, str]:
    """Behind the quote that closes, and what is inside of it."""
    inside = ""
    while position < len(text):
        character = text[position]
        if character == '"':
            return position + 1, inside
        if character in "$`":
            raise NotPlain("a part of it is known to the shell alone")
        if character == "\\":
            following = text[position + 1 : position + 2]
            if following == "\n":
                raise NotPlain("it goes on in another line")
            if following and following in '"\\$`':
                position += 1
                character = following
        inside += character
        position += 1
    raise NotPlain("a quote in it is never closed")

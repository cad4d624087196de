"""Defines the words of a parsed shell command, with markers for what only the shell knows.

Reads plain commands, which need no shell; `shell` reads all others.
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple

# Markers, in place of what the shell puts in.
UNKNOWN: Final = "\x00"
"""Any text, as a part of one word: `"$X"`, `"$(…)"`, `<(…)`."""
WORDS: Final = "\x01"
"""Any text, which may become several words: `$X`, `$(…)`, `"$@"`."""
STAR: Final = "\x02"
"""Text of file names without a slash: `*`, `[a-z]`."""
ONE: Final = "\x03"
"""One character of a file name: `?`."""
HOME: Final = "\x04"
"""The home folder: `$HOME`."""
HERE: Final = "\x05"
"""The working folder: `$PWD`."""
NUMBER: Final = "\x06"
"""A whole number: `$?`, `$#`, `$((…))`."""
LISTED: Final = "\x0e"
"""A variable of which all values are in the text: `$X` in `for X in a b`. Only where that is asked for."""
OPEN: Final = "\x07"
"""A bracket that may begin a class of characters."""
BRACE: Final = "\x08"
"""A brace that may begin alternatives."""
MARKERS: Final = re.compile(r"[\x00-\x06\x0e]")
DYNAMIC: Final = re.compile(r"[\x00\x01\x0e]")

_NAME: Final = re.compile(r"[A-Za-z_]\w*")
_UNCLOSED_SUBSCRIPT: Final = re.compile(r"\w*\x07")
_ALTERNATIVES: Final = re.compile(
    r"([^\x00-\x08{}]*)\x08([^\x00-\x08{}]*,[^\x00-\x08{}]*)\}([^\x00-\x08{}]*)"
)
PARAMETER: Final = re.compile(
    r"\{(?:#(?P<counted>\w+|\w+\[[@*]\])|(?P<name>\w+|[@*])(?P<all>\[[@*\d]+\])?"
    r"(?P<rest>(?::?[-+?]|##?|%%?|//?|\^\^?|,,?)(?:[^'\"\\`{}$\n]|\$\w+|\$\{\w+\})*|:\s*\d+(?::\d+)?)?)\}"
)
"""`${…}` in the forms that do nothing but take a value."""
_SET_BY_BASH: Final = re.compile(
    r"_|REPLY|MAPFILE|OPTARG|COPROC|DIRSTACK|(?:OLD)?PWD|HOME|FUNCNAME|SHELLOPTS|(?:BASH|COMP|HIST|READLINE)\w*"
)
"""Variables that bash sets to any text, though no one names them."""


class Unclear(ValueError):
    """It cannot be told which commands a text runs; the text says why."""


class Command(NamedTuple):
    """A simple command: words without quotes, with markers for what only the shell knows."""

    words: list[str]
    sets: list[str]
    """Assignments in front of it, or on their own."""
    files: list[str]
    """What it is redirected from and to."""
    inputs: list[str]
    """Texts that it gets as input: here-documents and here-strings."""
    pipes: list[bool]
    """Not empty if its input may be the output of another command."""


class Script(NamedTuple):
    """All simple commands of a text, those in substitutions too."""

    commands: list[Command]
    redefines: bool
    """Whether it may give a program's name another meaning: a function, or a path of its own."""
    written: frozenset[str]
    """Names of the files that it redirects something to."""
    reads: frozenset[str]
    """Files that it redirects something from."""


def finished_word(word: str, *, is_plain: bool) -> list[str]:
    """A word with its brackets and braces read: as alternatives, as unknown, or as what they are."""
    if OPEN in word and word not in (OPEN, OPEN * 2):
        before, _, after = word.partition(OPEN)
        inside, bracket, after = after.rpartition("]")
        if not bracket and _UNCLOSED_SUBSCRIPT.match(word):
            raise Unclear("a bracket in it is not closed")
        if bracket and _NAME.fullmatch(before) and after[:1] in ("=", "+") and not inside.isdigit():
            raise Unclear("it runs what is in a subscript")
        if bracket and not (_NAME.fullmatch(before) and after[:1] == "="):
            word = before + (UNKNOWN if "/" in inside or BRACE in inside else STAR) + after
    word = word.replace(OPEN, "[")
    if BRACE not in word:
        return [word]
    if is_plain and (found := _ALTERNATIVES.fullmatch(word)):
        return [f"{found[1]}{each}{found[3]}" for each in found[2].split(",")]
    several = word[word.index(BRACE) : word.rfind("}") + 1]
    return [WORDS] if "," in several or ".." in several else [word.replace(BRACE, "{")]


def is_number(name: str, text: str, arithmetic: list[tuple[int, int]]) -> bool:
    """Whether a variable is set to whole numbers in a text, and to nothing else."""
    if _SET_BY_BASH.fullmatch(name):
        return False
    ends = [0, *(end for _, end in arithmetic)]
    starts = [*(start for start, _ in arithmetic), len(text)]
    rest = NUMBER.join(text[end:start] for end, start in zip(ends, starts, strict=True))
    known = rf"\$\{{?#?{name}\b|\b{name}=(?:\d*|\${NUMBER})(?![^\s;&|)])|\bfor {name} in [\d .{{}}-]*[;\n]"
    return not re.search(rf"\b{name}\b", re.sub(known, "", rest))


def names_of(path: str) -> set[str]:
    """What a file that is written may be called: its name with and without its ending, or as a folder."""
    *folders, name = path.split("/")
    return {name, name.rpartition(".")[0], *(f"{folder}/" for folder in (*folders, "."))} - {""}


# Plain commands.

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
_PLAIN_ASSIGNMENT: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*(\[[^]]*\])?\+?=")
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
    if _PLAIN_ASSIGNMENT.match(written[0]):
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

"""What a shell command is read as: simple commands of words, with markers for what only the shell will know.

Does not read anything: that is in `_policy_shell`.
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
MARKERS: Final = re.compile(r"[\x00-\x06]")
DYNAMIC: Final = re.compile(r"[\x00\x01]")


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

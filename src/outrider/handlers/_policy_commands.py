"""Whether a shell command is one that a pattern of a policy means.

To allow, all of it has to be meant; to deny, any part of it. How commands are taken apart is not known here.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from functools import lru_cache
from typing import Final

from outrider.handlers._policy_glob import Match, is_special, literal_prefix, text_regex
from outrider.handlers._policy_plain import LONGEST, NotPlain, Plain, plain_command
from outrider.handlers._policy_programs import runs_of
from outrider.handlers._policy_script import MARKERS, NUMBER, ONE, STAR, UNKNOWN, WORDS
from outrider.redaction import preview_value

IGNORES_CASE: Final = sys.platform in ("darwin", "win32")
"""Whether programs are found whatever the case of their names. Then they are for a denial."""

_MOST_OPTIONS: Final = 50
_MOST_WORDS: Final = 500
_LONGEST_NAME: Final = 255
_SHAPES: Final = {STAR: "[^/]*", ONE: "[^/]", NUMBER: "[0-9]*"}
_PLAIN_POWERSHELL: Final = re.compile(r"[\w ./\\:=,+-]+")
_POWERSHELL_PARTS: Final = re.compile(r"[;|&\n\r(){}`$<>\"']+")
_POWERSHELL_TEXT: Final = re.compile(
    r"`|[&.]\s*[$(\"']|\b(iex|icm)\b|invoke-(expression|command)|\.invoke|scriptblock"
    r"|-e[cn]?(?!\w)|-enc(?!oding)",
    re.IGNORECASE,
)
"""What runs a text as a command, or hides its name."""


def command_match(pattern: str, command: str, *, is_powershell: bool = False) -> tuple[Match, str]:
    """Whether a command is meant by a pattern, and why.

    YES: it is one plain command, which is. MAYBE: one of its commands is, or it cannot be told.
    """
    if is_powershell:
        return _powershell_match(pattern, command)
    plain, not_plain = _plain(command)
    if plain is not None and _is_meant(pattern, plain.written) and _is_meant(pattern, plain.meant):
        return Match.YES, f"{plain.written!r} is meant"
    runs = runs_of(command)
    for words in runs.commands:
        if why := _reason_to_doubt(pattern, words):
            return Match.MAYBE, f"{why}; {not_plain}" if not_plain else why
    for words in runs.hidden:
        # What begins with `*` means all that is behind its first word, too.
        for start, word in enumerate(words[:1] if pattern.startswith("*") else words):
            if _may_name(pattern, word) and (why := _reason_to_doubt(pattern, words[start:])):
                return Match.MAYBE, why
    if runs.doubt:
        return Match.MAYBE, f"it cannot be told: {runs.doubt}"
    return Match.NO, "no command in it is meant"


@lru_cache(maxsize=16)
def _plain(command: str) -> tuple[Plain | None, str]:
    try:
        return plain_command(command), ""
    except NotPlain as error:
        return None, str(error)


def _powershell_match(pattern: str, command: str) -> tuple[Match, str]:
    text = command.strip()
    if len(text) > LONGEST:
        return Match.MAYBE, "it cannot be told: it is too long"
    if _PLAIN_POWERSHELL.fullmatch(text) and _is_meant(pattern, " ".join(text.split())):
        return Match.YES, f"{text!r} is meant"
    for part in (text, *_POWERSHELL_PARTS.split(text)):
        words = part.replace("\\", "/").split()
        if len(words) > _MOST_WORDS:
            return Match.MAYBE, "it cannot be told: it has too many words"
        if any(_is_meant_widely(pattern, words[start:], ignores_case=True) for start in range(len(words))):
            return Match.MAYBE, f"{part.strip()!r} is in it"
    if _POWERSHELL_TEXT.search(text):
        return Match.MAYBE, "it cannot be told: it runs a text as a command"
    return Match.NO, "no command in it is meant"


def _reason_to_doubt(pattern: str, words: list[str]) -> str:
    """Why a command among others is what a pattern means, or may be; empty if it is not."""
    if not _may_name(pattern, words[0]):
        return ""
    if _is_meant_widely(pattern, words):
        return f"{_shown(words)} is in it"
    if MARKERS.search(words[0]) or any(_may_become(pattern, text) for text in _texts(words)):
        return f"{_shown(words)} may become what is meant"
    for number, start in enumerate(_after_options(words)):
        # `git -C folder push` is meant by `git push *`.
        if number and _is_meant_widely(pattern, [words[0], *words[start:]]):
            return f"{_shown(words)} is in it"
        if number > _MOST_OPTIONS:
            return f"{_shown(words)} has too many options to be sure"
    return ""


def _after_options(words: list[str]) -> Iterator[int]:
    """Where the first word may be that is neither an option nor the value of one."""
    for number in range(1, len(words)):
        yield number
        if not words[number].startswith("-") and not words[number - 1].startswith("-"):
            break


def _may_name(pattern: str, word: str) -> bool:
    """Whether a word may name the program that a pattern is about."""
    wanted, name = _basename(pattern.split(" ", 1)[0]), _basename(word)
    if WORDS in word or UNKNOWN in name:
        return True
    flags = re.IGNORECASE if IGNORES_CASE else re.NOFLAG
    if is_special(wanted):
        known, fixed = MARKERS.split(name, maxsplit=1)[0], literal_prefix(wanted)
        length = len(fixed) if known == name else min(len(known), len(fixed))
        return re.match(re.escape(fixed[:length]), known, flags) is not None
    if not MARKERS.search(name):
        return name == wanted or (IGNORES_CASE and name.lower() == wanted.lower())
    if len(name) > _LONGEST_NAME:
        return True
    name = re.sub(f"{STAR}+", STAR, name)
    shape = "".join(_SHAPES.get(character) or re.escape(character) for character in name)
    return re.fullmatch(shape, wanted, flags) is not None


def _shown(words: list[str]) -> str:
    return preview_value(MARKERS.sub("…", " ".join(words)))


def _basename(word: str) -> str:
    return word.rpartition("/")[2]


def _texts(words: list[str]) -> list[str]:
    """A command as text: as it is, and with programs named without their folder."""
    names = [_basename(word) for word in words]
    return list(dict.fromkeys((" ".join(words), " ".join((names[0], *words[1:])), " ".join(names))))


def _is_meant_widely(pattern: str, words: list[str], *, ignores_case: bool | None = None) -> bool:
    ignores = IGNORES_CASE if ignores_case is None else ignores_case
    program, blank, rest = pattern.partition(" ")
    patterns = {pattern, _basename(program) + blank + rest}
    return any(_is_meant(each, text, ignores_case=ignores) for text in _texts(words) for each in patterns)


def _is_meant(pattern: str, text: str, *, ignores_case: bool = False) -> bool:
    """Whether a pattern fits a command; `git *` fits `git` alone too."""
    if text_regex(pattern, ignores_case=ignores_case).match(text):
        return True
    bare = pattern.removesuffix(" *")
    return bare != pattern and text_regex(bare, ignores_case=ignores_case).match(text) is not None


def _may_become(pattern: str, text: str) -> bool:
    """Whether a text may be what a pattern means, once the shell has put in what is not known."""
    found = MARKERS.search(text)
    if found is None:
        return False
    known, fixed = text[: found.start()], literal_prefix(pattern)
    if IGNORES_CASE:
        known, fixed = known.lower(), fixed.lower()
    return known.startswith(fixed) or fixed.startswith(known)

"""Whether a shell command is one that a pattern of a policy means.

To allow, all of it has to be meant; to deny, any part of it. How commands are taken apart is not known here.
"""

from __future__ import annotations

import re
import sys
from functools import lru_cache
from typing import Final

from bridle.handlers._policy_glob import Match, literal_prefix, text_regex
from bridle.handlers._policy_plain import NotPlain, plain_command
from bridle.handlers._policy_shell import READERS, UNKNOWN, WRAPPERS, basename, found_commands

IGNORES_CASE: Final = sys.platform in ("darwin", "win32")
"""Whether programs are found whatever the case of their names. Then they are for a denial."""

_MOST_WORDS: Final = 2_000
_PLAIN_POWERSHELL: Final = re.compile(r"[\w ./\\:=,+-]+")
_POWERSHELL_PARTS: Final = re.compile(r"[;|&\n\r(){}`$<>\"']+")
_OPTION: Final = re.compile(r"-|\d+[smhd]?\Z|\w+=")


def command_match(pattern: str, command: str, *, is_powershell: bool = False) -> tuple[Match, str]:
    """Whether a command is meant by a pattern, and why.

    YES: it is one plain command, which is. MAYBE: one of its commands is, or it cannot be told.
    """
    if is_powershell:
        return _powershell_match(pattern, command)
    try:
        plain = plain_command(command)
    except NotPlain as error:
        not_plain = str(error)
    else:
        if _is_meant(pattern, plain.written) and _is_meant(pattern, plain.meant):
            return Match.YES, f"{plain.written!r} is meant"
        not_plain = ""
    found = found_commands(command)
    for words in found.commands:
        if why := _reason_to_doubt(pattern, words):
            return Match.MAYBE, f"{why}; {not_plain}" if not_plain else why
    if found.doubt:
        return Match.MAYBE, f"it cannot be told: {found.doubt}"
    return Match.NO, "no command in it is meant"


def _powershell_match(pattern: str, command: str) -> tuple[Match, str]:
    text = command.strip()
    if _PLAIN_POWERSHELL.fullmatch(text) and _is_meant(pattern, " ".join(text.split())):
        return Match.YES, f"{text!r} is meant"
    for part in (text, *_POWERSHELL_PARTS.split(text)):
        words = part.split()
        if any(_is_meant(pattern, " ".join(words[start:]), widely=True) for start in range(len(words))):
            return Match.MAYBE, f"{part.strip()!r} is in it"
    if re.search(r"(?i)\biex\b|invoke-expression|-enc", text):
        return Match.MAYBE, "it cannot be told: it runs a text as a command"
    return Match.NO, "no command in it is meant"


def _reason_to_doubt(pattern: str, words: list[str]) -> str:
    """Why a command among others is what a pattern means, or may be; empty if it is not."""
    names = [basename(word) for word in words]
    texts = dict.fromkeys((" ".join(words), " ".join((names[0], *words[1:])), " ".join(names)))
    shown = " ".join(words).replace(UNKNOWN, "…")
    if any(_is_meant(pattern, text, widely=True) for text in texts):
        return f"{shown!r} is in it"
    if any(UNKNOWN in text and _may_become(pattern, text) for text in texts):
        return f"{shown!r} may become what is meant"
    if names[0] in WRAPPERS | READERS or "{" in words:
        if any(_ends_with_meant(pattern).search(text) for text in texts):
            return f"{shown!r} runs it"
        if any(_may_become(pattern, " ".join(words[start:])) for start in _command_positions(words)):
            return f"{shown!r} may run what is meant"
    return ""


def _is_meant(pattern: str, text: str, *, widely: bool = False) -> bool:
    """Whether a pattern fits a command; `git *` fits `git` alone too."""
    ignores_case = widely and IGNORES_CASE
    if text_regex(pattern, ignores_case=ignores_case).match(text):
        return True
    bare = pattern.removesuffix(" *")
    return bare != pattern and text_regex(bare, ignores_case=ignores_case).match(text) is not None


@lru_cache(maxsize=1024)
def _ends_with_meant(pattern: str) -> re.Pattern[str]:
    """Finds a text whose last words are what a pattern means."""
    endings = [text_regex(pattern).pattern]
    if (bare := pattern.removesuffix(" *")) != pattern:
        endings.append(text_regex(bare).pattern)
    return re.compile(r"(?:\A|(?<= ))(?:" + "|".join(endings) + ")", re.IGNORECASE if IGNORES_CASE else 0)


def _may_become(pattern: str, text: str) -> bool:
    """Whether a text may be what a pattern means, once the shell has put in what is not known."""
    if UNKNOWN not in text:
        return False
    known, fixed = text[: text.index(UNKNOWN)], literal_prefix(pattern)
    if IGNORES_CASE:
        known, fixed = known.lower(), fixed.lower()
    return known.startswith(fixed) or fixed.startswith(known)


def _command_positions(words: list[str]) -> list[int]:
    """Where in the words of a command the one may begin that it runs."""
    if len(words) > _MOST_WORDS:
        return list(range(1, _MOST_WORDS))
    if words[0] in READERS:
        return list(range(1, len(words)))
    found = [number + 1 for number, word in enumerate(words) if word.startswith(("-exec", "-ok", "{"))]
    for number, word in enumerate(words[1:], 1):
        found.append(number)
        if not _OPTION.match(word) and not words[number - 1].startswith("-"):
            break
    return found

"""Whether a shell command is one that a pattern of a policy means.

To allow, all of it has to be meant; to deny, any part of it. How commands are taken apart is not known here.
"""

from __future__ import annotations

import re
import sys
from typing import Final

from bridle.handlers._policy_glob import Match, literal_prefix, text_regex
from bridle.handlers._policy_plain import LONGEST, NotPlain, plain_command
from bridle.handlers._policy_shell import MOST_WORDS, UNKNOWN, after_options, basename, found_commands
from bridle.redaction import preview_value

IGNORES_CASE: Final = sys.platform in ("darwin", "win32")
"""Whether programs are found whatever the case of their names. Then they are for a denial."""

_MOST_OPTIONS: Final = 50
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
    for words in found.runners:
        if any(_is_meant_widely(pattern, words[start:]) for start in range(1, len(words))):
            return Match.MAYBE, f"{_shown(words)} runs it"
    if found.doubt:
        return Match.MAYBE, f"it cannot be told: {found.doubt}"
    return Match.NO, "no command in it is meant"


def _powershell_match(pattern: str, command: str) -> tuple[Match, str]:
    text = command.strip()
    if len(text) > LONGEST:
        return Match.MAYBE, "it cannot be told: it is too long"
    if _PLAIN_POWERSHELL.fullmatch(text) and _is_meant(pattern, " ".join(text.split())):
        return Match.YES, f"{text!r} is meant"
    for part in (text, *_POWERSHELL_PARTS.split(text)):
        words = part.replace("\\", "/").split()
        if len(words) > MOST_WORDS:
            return Match.MAYBE, "it cannot be told: it has too many words"
        if any(_is_meant_widely(pattern, words[start:], ignores_case=True) for start in range(len(words))):
            return Match.MAYBE, f"{part.strip()!r} is in it"
    if _POWERSHELL_TEXT.search(text):
        return Match.MAYBE, "it cannot be told: it runs a text as a command"
    return Match.NO, "no command in it is meant"


def _reason_to_doubt(pattern: str, words: list[str]) -> str:
    """Why a command among others is what a pattern means, or may be; empty if it is not."""
    if _is_meant_widely(pattern, words):
        return f"{_shown(words)} is in it"
    if UNKNOWN in "".join(words) and any(_may_become(pattern, text) for text in _texts(words)):
        return f"{_shown(words)} may become what is meant"
    for number, start in enumerate(after_options(words)):
        # `git -C folder push` is meant by `git push *`.
        if number and _is_meant_widely(pattern, [words[0], *words[start:]]):
            return f"{_shown(words)} is in it"
        if number > _MOST_OPTIONS:
            return f"{_shown(words)} has too many options to be sure"
    return ""


def _shown(words: list[str]) -> str:
    return preview_value(" ".join(words).replace(UNKNOWN, "…"))


def _texts(words: list[str]) -> list[str]:
    """A command as text: as it is, and with programs named without their folder."""
    names = [basename(word) for word in words]
    return list(dict.fromkeys((" ".join(words), " ".join((names[0], *words[1:])), " ".join(names))))


def _is_meant_widely(pattern: str, words: list[str], *, ignores_case: bool | None = None) -> bool:
    ignores = IGNORES_CASE if ignores_case is None else ignores_case
    return any(_is_meant(pattern, text, ignores_case=ignores) for text in _texts(words))


def _is_meant(pattern: str, text: str, *, ignores_case: bool = False) -> bool:
    """Whether a pattern fits a command; `git *` fits `git` alone too."""
    if text_regex(pattern, ignores_case=ignores_case).match(text):
        return True
    bare = pattern.removesuffix(" *")
    return bare != pattern and text_regex(bare, ignores_case=ignores_case).match(text) is not None


def _may_become(pattern: str, text: str) -> bool:
    """Whether a text may be what a pattern means, once the shell has put in what is not known."""
    if UNKNOWN not in text:
        return False
    known, fixed = text[: text.index(UNKNOWN)], literal_prefix(pattern)
    if IGNORES_CASE:
        known, fixed = known.lower(), fixed.lower()
    return known.startswith(fixed) or fixed.startswith(known)

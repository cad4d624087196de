"""Whether a path is one that a pattern of a policy means, wherever it seems to be and wherever it really is.

Looks at links on this machine, and at nothing else of it. Does not know which argument of a tool is a path.
"""

from __future__ import annotations

import os
import posixpath
import sys
import unicodedata
from functools import lru_cache
from typing import Final

import msgspec

from bridle.handlers._policy_glob import Match, escaped, is_special, path_regex

LONGEST: Final = 4096
"""Characters of a path that are looked at; hardly a system knows longer ones."""
IGNORES_CASE: Final = sys.platform in ("darwin", "win32")
"""Whether file names that differ in case name one file, as they mostly do here. Then they do for a denial."""


class Where(msgspec.Struct, frozen=True):
    """What relative paths and patterns are relative to."""

    cwd: str
    """The agent's working folder, which it can change."""
    is_local: bool = True
    """Whether the agent runs on this machine, so that links can be followed. If not, `..` makes it uncertain
    what a path is."""
    root: str | None = None
    """The folder that it was started in, if that is another. Patterns begin there, wherever it goes."""


def path_match(pattern: str, path: str, where: Where, *, reaches_in: bool = False) -> Match:
    """Whether a path is meant by a pattern.

    YES: it is, both as it is written and with all links followed. MAYBE: only one of these, or it is inside
    of what is meant, or the pattern would have to begin at another folder: the one that the agent has gone
    to, or any if it begins with `**`; with `reaches_in`, for a search, also if what is meant may be inside.
    """
    spellings = _spellings(path, where)
    if spellings is None:
        return Match.MAYBE
    patterns = _patterns(pattern, where.root or where.cwd, where)
    if all(_fits(patterns, each) for each in spellings):
        is_sure = where.is_local or ".." not in _slashed(path).split("/")
        return Match.YES if is_sure else Match.MAYBE
    if where.root not in (None, where.cwd):
        patterns += _patterns(pattern, where.cwd, where)
    if pattern.startswith("**/"):
        patterns.append(pattern)
    for each in map(_folded, spellings):
        if _fits(patterns, each, widely=True):
            return Match.MAYBE
        if reaches_in and any(_may_hold(each, _folded(form)) for form in patterns):
            return Match.MAYBE
    return Match.NO


def _spellings(path: str, where: Where) -> list[str] | None:
    """The path from the root: as it is written, and with links followed. None if it is no path at all."""
    if len(path) > LONGEST or "\0" in path or "\ufeff" in path:
        return None
    # The agent takes blanks around a path away, and writes accented letters in one of the two ways.
    given = [path, unicodedata.normalize("NFC", path.strip())]
    if given[1].startswith("~") and where.is_local:
        # Some take it for the home folder, and some for the name of a file.
        given.append(os.path.expanduser(given[1]))  # noqa: PTH111 - pathlib raises for a user who is not there
    found: list[str] = []
    for each in dict.fromkeys(given):
        joined = posixpath.join(_slashed(where.cwd), _slashed(each))
        found.append(_normal(joined))
        if where.is_local and (real := _real(joined)) not in found:
            found.append(real)
    return found


def _patterns(pattern: str, folder: str, where: Where) -> list[str]:
    """The pattern from the root: as it is written, and with the links in its fixed beginning followed."""
    slashed = pattern + "**" if pattern.endswith("/") else pattern
    if slashed.startswith("~/") and where.is_local:
        slashed = escaped(_slashed(os.path.expanduser("~"))) + slashed[1:]  # noqa: PTH111
    base = _slashed(folder)
    found: list[str] = []
    for each in dict.fromkeys([base, _real(base)] if where.is_local else [base]):
        written = _normal(posixpath.join(escaped(each), slashed))
        found.append(written)
        if where.is_local:
            found.append(_with_real_beginning(written))
    return list(dict.fromkeys(found))


def _with_real_beginning(pattern: str) -> str:
    parts = pattern.split("/")
    first = next((number for number, part in enumerate(parts) if is_special(part)), len(parts))
    beginning = _real("/".join(parts[:first]) or "/")
    return posixpath.join(escaped(beginning), *parts[first:]) if parts[first:] else escaped(beginning)


def _fits(patterns: list[str], path: str, *, widely: bool = False) -> bool:
    """Whether a pattern fits; `widely` also if it fits a folder that the path is in."""
    if not widely:
        return any(path_regex(each).match(path) for each in patterns)
    below = (path_regex(_folded(each), ignores_case=IGNORES_CASE, below=True) for each in patterns)
    return any(each.match(path) for each in below)


def _may_hold(folder: str, pattern: str) -> bool:
    """Whether something that a pattern means may be inside of a folder."""
    if pattern.startswith("**"):
        return True
    own, theirs = _parts(folder), _parts(pattern)
    for mine, other in zip(own, theirs, strict=False):
        if other == "**":
            return True
        if not path_regex(other, ignores_case=IGNORES_CASE).match(mine):
            return False
    return True


def _parts(path: str) -> list[str]:
    return [part for part in path.split("/") if part]


def _folded(path: str) -> str:
    """What the two ways to write an accented letter have in common, where they name one file."""
    return unicodedata.normalize("NFC", path) if IGNORES_CASE else path


def _normal(path: str) -> str:
    # Two slashes at the beginning mean something to POSIX, and nothing to any system here.
    return "/" + posixpath.normpath(path).lstrip("/") if path.startswith("/") else posixpath.normpath(path)


def _real(path: str) -> str:
    try:
        return _slashed(os.path.realpath(path))
    except (OSError, ValueError):
        return _normal(path)


@lru_cache(maxsize=1)
def _has_backslashes() -> bool:
    return os.sep == "\\"


def _slashed(path: str) -> str:
    return path.replace("\\", "/") if _has_backslashes() else path

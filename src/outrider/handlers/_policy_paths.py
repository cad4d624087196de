"""Whether a path is one that a pattern of a policy means, wherever it seems to be and wherever it really is.

Looks at links on this machine, and at nothing else of it. Does not know which argument of a tool is a path.
"""

from __future__ import annotations

import os
import posixpath
import re
import sys
import unicodedata
from collections.abc import Iterator
from functools import lru_cache
from typing import Final

import msgspec

from outrider.handlers._policy_glob import Match, escaped, fits, is_special, path_regex
from outrider.handlers._policy_script import NUMBER, ONE, STAR

_LONGEST_WILDCARD: Final = 256
LONGEST: Final = 4096
"""Characters of a path that are looked at; hardly a system knows longer ones."""
_MOST_LINKS: Final = 40
_OF_PROCESS: Final = re.compile(r"/proc/(self|thread-self|\d+)(/|\Z)|/dev/(fd|std\w+)(/|\Z)|/\.vol(/|\Z)")
"""What names other files for each process, or names them by their numbers."""
_OF_EACH_PROCESS: Final = (["proc", "*", "**"], ["dev", "fd", "**"], ["dev", "std*"])
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


def wildcard_match(pattern: str, path: str, where: Where, *, reaches_in: bool = False) -> Match:
    """Whether a path with wildcards of a shell in it may become one that is meant by a pattern.

    Links behind the first of them are not followed.
    """
    expanded = os.path.expanduser(path) if where.is_local else path  # noqa: PTH111
    joined = posixpath.join(_slashed(where.cwd), expanded)
    first = re.search(f"[{STAR}{ONE}{NUMBER}]", joined)
    if len(path) > _LONGEST_WILDCARD or (first and ".." in joined[first.start() :].split("/")):
        return Match.MAYBE
    fixed = joined[: first.start() if first else None].rpartition("/")[0]
    rest = joined[len(fixed) + 1 :]
    real = _real(fixed or "/") if where.is_local else fixed
    own = _parts(_normal(joined))
    if real is None or any(_meet(own, each, reaches_in=False) for each in _OF_EACH_PROCESS):
        return Match.MAYBE
    patterns = _patterns(pattern, where.root or where.cwd, where)
    patterns += [*_patterns(pattern, where.cwd, where), *([pattern] if pattern.startswith("**/") else [])]
    for written in dict.fromkeys((_normal(joined), _normal(posixpath.join(real, rest)))):
        own = _parts(_folded(written))
        if any(_meet(own, _parts(_folded(each)), reaches_in=reaches_in) for each in patterns):
            return Match.MAYBE
    return Match.NO


def _meet(own: list[str], theirs: list[str], *, reaches_in: bool) -> bool:
    """Whether a path with wildcards may be what a pattern means, or inside of it, or hold it."""
    places = {0}
    for part in own:
        places = {place for each in places for place in _through(theirs, each)}
        if len(theirs) in places:
            return True
        places = {
            place if theirs[place] == "**" else place + 1
            for place in places
            if theirs[place] == "**" or _part_meets(part, theirs[place])
        }
    places = {place for each in places for place in _through(theirs, each)}
    return len(theirs) in places or (reaches_in and bool(places))


def _through(parts: list[str], place: int) -> Iterator[int]:
    """A place in a pattern, and those that are reached without a part: `**` may be none."""
    yield place
    while place < len(parts) and parts[place] == "**":
        place += 1
        yield place


def _part_meets(own: str, theirs: str) -> bool:
    """Whether a part of a path with wildcards may be what a part of a pattern means."""
    if own[:1] in (STAR, ONE) and theirs.startswith("."):
        # The shell leaves these out.
        return False
    if IGNORES_CASE:
        own, theirs = own.lower(), theirs.lower()
    places = {0}
    tokens = re.findall(r"\[!?\]?[^\]]*\]|.", theirs, re.DOTALL)
    for character in own:
        places = {place for each in places for place in _past_stars(tokens, each)}
        if character == STAR:
            places = set(range(min(places), len(tokens) + 1)) if places else places
            continue
        if character == NUMBER:
            places = {place for each in places for place in _past_digits(tokens, each)}
            continue
        places = {
            place if tokens[place] == "*" else place + 1
            for place in places
            if place < len(tokens) and (character == ONE or _token_fits(tokens[place], character))
        }
    return any(place == len(tokens) for each in places for place in _past_stars(tokens, each))


def _past_stars(tokens: list[str], place: int) -> Iterator[int]:
    yield place
    while place < len(tokens) and tokens[place] == "*":
        place += 1
        yield place


def _past_digits(tokens: list[str], place: int) -> Iterator[int]:
    yield place
    while place < len(tokens) and any(_token_fits(tokens[place], each) for each in "-0123456789"):
        place += 1
        yield place


def _token_fits(token: str, character: str) -> bool:
    return token in ("*", "?", character) or (len(token) > 1 and fits(token, character))


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
        written, real = _normal(joined), _real(joined) if where.is_local else ""
        if real is None or _OF_PROCESS.match(written):
            return None
        found += [written] if real in ("", written) else [written, real]
    return list(dict.fromkeys(found))


def _patterns(pattern: str, folder: str, where: Where) -> list[str]:
    """The pattern from the root: as it is written, and with the links in its fixed beginning followed."""
    slashed = pattern + "**" if pattern.endswith("/") else pattern
    if slashed.startswith("~/") and where.is_local:
        slashed = escaped(_slashed(os.path.expanduser("~"))) + slashed[1:]  # noqa: PTH111
    base = _slashed(folder)
    found: list[str] = []
    for each in dict.fromkeys([base, _real(base) or base] if where.is_local else [base]):
        written = _normal(posixpath.join(escaped(each), slashed))
        found.append(written)
        if where.is_local:
            found.append(_with_real_beginning(written))
    return list(dict.fromkeys(found))


def _with_real_beginning(pattern: str) -> str:
    parts = pattern.split("/")
    first = next((number for number, part in enumerate(parts) if is_special(part)), len(parts))
    fixed = "/".join(parts[:first]) or "/"
    beginning = _real(fixed) or fixed
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


def _real(path: str) -> str | None:
    """A path with its links followed; None if that is another one for each process, or has no end."""
    if _has_backslashes():
        return _slashed(os.path.realpath(path))
    at, ahead, links = "/", path.split("/")[::-1], 0
    while ahead:
        part = ahead.pop()
        if part in ("", ".", ".."):
            at = posixpath.dirname(at) if part == ".." else at
            continue
        following = posixpath.join(at, part)
        if _OF_PROCESS.match(following):
            return None
        try:
            target = os.readlink(following)  # noqa: PTH115 - thousands of parts, each of them once
        except (OSError, ValueError):
            at = following
            continue
        links += 1
        if links > _MOST_LINKS:
            return None
        at = "/" if target.startswith("/") else at
        ahead += target.split("/")[::-1]
    return at


@lru_cache(maxsize=1)
def _has_backslashes() -> bool:
    return os.sep == "\\"


def _slashed(path: str) -> str:
    return path.replace("\\", "/") if _has_backslashes() else path

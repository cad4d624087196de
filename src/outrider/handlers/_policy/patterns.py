"""Validates the patterns of policies, and matches text, paths, hosts and URLs against them.

In text, `*` matches any text, `?` one character and `[abc]` one of several. In paths they match inside one
part, and `**` matches any number of parts. Commands are matched in `commands`.
"""

from __future__ import annotations

import os
import posixpath
import re
import sys
import unicodedata
from collections.abc import Iterator, Mapping
from enum import IntEnum
from fnmatch import translate
from functools import lru_cache
from typing import Final, NamedTuple

import msgspec

from outrider.errors import OptionsError
from outrider.handlers._policy.shell import NUMBER, ONE, STAR

# Text.

_BRACES: Final = re.compile(r"\{[^{}]*,[^{}]*\}")
_CLASS: Final = re.compile(r"\[!?\]?[^\]]*\]")
_CONTROL: Final = re.compile(r"[\x00-\x1f\x7f]")
_SPECIAL: Final = re.compile(r"[*?\[]")


class Match(IntEnum):
    """Whether a pattern fits. Of several conditions the least counts."""

    NO = 0
    MAYBE = 1
    """It fits a part of it, or what it will be cannot be told: enough to deny, not to allow."""
    YES = 2


def check_pattern(place: str, pattern: str) -> None:
    """Raise `OptionsError` for a pattern that would not match what it seems to."""
    if not pattern.strip():
        raise OptionsError(f"{place} is an empty pattern", hint='"*" matches everything.')
    if pattern != pattern.strip():
        raise OptionsError(f"{place} has spaces around it: {pattern!r}", hint="Leave them out.")
    if _CONTROL.search(pattern):
        raise OptionsError(
            f"{place} has a control character in it: {pattern!r}", hint="`*` matches any text."
        )
    if braces := _BRACES.search(pattern):
        raise OptionsError(
            f"{place} has {braces[0]!r} in it, and braces stand for themselves: {pattern!r}",
            hint="Give a list of patterns.",
        )
    if "[" in _CLASS.sub("", pattern):
        raise OptionsError(
            f"{place} has a `[` that is never closed: {pattern!r}", hint="Write `[[]` for the character."
        )


def check_path_pattern(place: str, pattern: str) -> None:
    """The same for a path."""
    check_pattern(place, pattern)
    parts = pattern.split("/")
    if "***" in pattern or any("**" in part and part != "**" for part in parts):
        raise OptionsError(
            f"{place} has `**` next to something else: {pattern!r}",
            hint="`**` stands for whole parts of a path: 'src/**', '**/*.py'.",
        )
    first_special = next((number for number, part in enumerate(parts) if is_special(part)), len(parts))
    if ".." in parts[first_special:]:
        raise OptionsError(
            f"{place} has `..` after a wildcard: {pattern!r}", hint="Write the path without it."
        )


def is_special(pattern: str) -> bool:
    """Whether a pattern matches more than itself."""
    return _SPECIAL.search(pattern) is not None


def literal_prefix(pattern: str) -> str:
    """What everything that a pattern matches begins with."""
    found = _SPECIAL.search(pattern)
    return pattern if found is None else pattern[: found.start()]


def escaped(text: str) -> str:
    """A pattern that matches this text alone."""
    return _SPECIAL.sub(lambda special: f"[{special[0]}]", text)


@lru_cache(maxsize=1024)
def text_regex(pattern: str, *, ignores_case: bool = False) -> re.Pattern[str]:
    """What matches a pattern for text as a whole."""
    return re.compile(translate(pattern), re.IGNORECASE if ignores_case else 0)


def fits(pattern: str, text: str) -> bool:
    """Whether a pattern for text matches all of a text."""
    return text_regex(pattern).match(text) is not None


@lru_cache(maxsize=1024)
def path_regex(pattern: str, *, ignores_case: bool = False, below: bool = False) -> re.Pattern[str]:
    """What matches a pattern for paths as a whole; `src/**` matches `src` too. `below`: or all that is inside
    of what it matches."""
    while pattern.endswith("/**"):
        pattern, below = pattern.removesuffix("/**"), True
    pieces = [""]
    for part in pattern.split("/"):
        if part == "**":
            pieces.append("")
        else:
            pieces[-1] += _part_regex(part) + "/"
    regex = _in_a_row(pieces, "(?:.*?/)??", "(?:.*/)?").removesuffix("/")
    regex = ".*" if pattern == "**" else regex + "(?:/.*)?" if below else regex
    return re.compile(f"(?s:{regex})\\Z", re.IGNORECASE if ignores_case else 0)


def _part_regex(part: str) -> str:
    """The regular expression for a part of a path, in which no wildcard matches a slash."""
    pieces, position = [""], 0
    while position < len(part):
        character = part[position]
        if character == "*":
            pieces.append("")
        elif character == "?":
            pieces[-1] += "[^/]"
        elif character == "[" and (found := _CLASS.match(part, position)):
            # Without what makes it a pattern of its own: `(?s:` and `)\\Z`.
            pieces[-1] += f"(?!/){translate(found[0])[4:-3]}"
            position = found.end() - 1
        else:
            pieces[-1] += re.escape(character)
        position += 1
    return _in_a_row(pieces, "[^/]*?", "[^/]*")


def _in_a_row(pieces: list[str], first_gap: str, last_gap: str) -> str:
    """The pieces of a pattern with what may be between them. The first place where a piece fits is as good as
    any but for the last one: that no others are tried is what keeps it fast."""
    first, *others = pieces
    if not others:
        return first
    *middle, last = others
    return first + "".join(f"(?>{first_gap}{each})" for each in middle if each) + last_gap + last


# Paths.

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


# Hosts and URLs.

_LONGEST: Final = 10_000
_LONGEST_HOST: Final = 255
_PORTS: Final[Mapping[str, int | str]] = {"http": 80, "https": 443, "ws": 80, "wss": 443}
_STRANGE: Final = re.compile(r"[\s\\\x00-\x1f\x7f]|[^\x00-\x7f]")
_NUMBER: Final = re.compile(r"[0-9a-fx.]*\Z")
_EMBEDS: Final = re.compile(
    r"(0000:){6}|(0000:){5}ffff:|(0000:){4}ffff:0000:|0064:ff9b:(0000:){4}|0064:ff9b:0001:|\w+:(\w+:){3}0[02]00:5efe:"
)
"""Addresses of version 6 that end with one of version 4."""
_NUMBERS: Final = re.compile(r"\[[^\]]*:")
_SLASHES: Final = re.compile(r"\A([A-Za-z][\w+.-]*):[/\\]+")
_URL: Final = re.compile(r"(?P<scheme>[^:/]+)://(?P<host>[^/]+)(?P<path>/.*)?\Z", re.DOTALL)


class _Address(NamedTuple):
    scheme: str
    hosts: tuple[str, ...]
    """The host in all the ways in which it can be written."""
    port: str
    paths: tuple[str, ...]
    """The path and the query, as written and with escapes and dots taken away."""
    is_clear: bool
    """Whether every program would read it in this way."""


def check_domain_pattern(place: str, pattern: str) -> None:
    """Raise `OptionsError` for a pattern that no host can match."""
    check_pattern(place, pattern)
    if "/" in pattern or ":" in pattern:
        raise OptionsError(
            f"{place} is not a domain: {pattern!r}",
            hint="Write the host alone, such as '*.example.com', or use `url`.",
        )


def check_url_pattern(place: str, pattern: str) -> None:
    """Raise `OptionsError` for a pattern that is not made like a URL."""
    check_pattern(place, pattern)
    found = _URL.match(pattern)
    if found and _NUMBERS.match(found["host"]):
        raise OptionsError(
            f"{place} cannot name a host by its IPv6 address: {pattern!r}",
            hint="Use `arguments`: {'url': …}, with `[[]` for the bracket.",
        )
    if not found:
        raise OptionsError(
            f"{place} is not made like a URL: {pattern!r}",
            hint="Write 'https://example.com/docs/*', or use `domain` for all of a host.",
        )


def domain_match(pattern: str, url: str) -> Match:
    """Whether the host of a URL is meant by a pattern: the very host, or all below it for `*.example.com`."""
    address = _read(url)
    return Match.MAYBE if address is None else _host_match(pattern, address)


def host_match(pattern: str, host: str) -> Match:
    """The same for a host alone."""
    return domain_match(pattern, f"https://{host}/")


def is_meant_within(pattern: str, address: str) -> bool:
    """Whether a URL, or a word that may be a host, is meant by a pattern for hosts or for URLs, or may be."""
    wanted = _URL.match(pattern)
    address = _SLASHES.sub(r"\1://", address)
    if "://" in address:
        return bool(url_match(pattern, address) if wanted else domain_match(pattern, address))
    is_number = address.count(":") > 1 and not address.startswith("[")
    found = _read(f"http://[{address}]/" if is_number else f"http://{address}/")
    return found is not None and bool(
        _host_match(wanted["host"].partition(":")[0] if wanted else pattern, found)
    )


def url_match(pattern: str, url: str) -> Match:
    """Whether a URL is meant by a pattern: its scheme, its host and its path, each for itself. A pattern
    without a path means all of a host."""
    address = _read(url)
    wanted = _URL.match(pattern)
    if address is None or wanted is None:
        return Match.MAYBE
    host, _, port = wanted["host"].partition(":")
    if not fits(wanted["scheme"].lower(), address.scheme) or not fits(port or address.port, address.port):
        return Match.NO
    of_path = _match_of(wanted["path"] or "*", address.paths)
    return min(of_path, _host_match(host, address))


def _host_match(pattern: str, address: _Address) -> Match:
    wanted = pattern.lower().rstrip(".")
    found = max(_match_of(each, address.hosts) for each in (wanted, _in_ascii(wanted), _in_punycode(wanted)))
    return found if address.is_clear else min(found, Match.MAYBE)


def _match_of(pattern: str, spellings: tuple[str, ...]) -> Match:
    meant = [fits(pattern, each) for each in spellings]
    return Match.YES if all(meant) else Match.MAYBE if any(meant) else Match.NO


def _read(url: str) -> _Address | None:
    from urllib.parse import unquote, urlsplit

    if len(url) > _LONGEST:
        return None
    try:
        split = urlsplit(url.strip())
        port = split.port
        # Browsers take a backslash for a slash.
        hosts = [each.hostname or "" for each in (split, urlsplit(url.strip().replace("\\", "/")))]
    except ValueError:
        return None
    if not all(hosts):
        return None
    is_clear = split.scheme in _PORTS and not _STRANGE.search(url) and "@" not in split.netloc
    is_clear = is_clear and "%" not in split.netloc
    query = f"?{split.query}" if split.query else ""
    path = split.path or "/"
    plain = "/" + posixpath.normpath(unquote(path)).lstrip("/")
    if path.endswith("/") and plain != "/":
        plain += "/"
    paths = tuple(dict.fromkeys((path + query, plain + query)))
    ways = tuple(dict.fromkeys(way for host in hosts for way in _ways_to_write(host)))
    return _Address(split.scheme, ways, str(port or _PORTS.get(split.scheme, "")), paths, is_clear)


def _ways_to_write(host: str) -> list[str]:
    """A host, and what it is the same as: without escapes, in ASCII, as the numbers of an address."""
    from urllib.parse import unquote

    ways = [host.rstrip("."), _in_ascii(unquote(host)).lower().rstrip(".")]
    ways += [] if host.isascii() else [_in_punycode(host.rstrip("."))]
    if ":" in host:
        return [*ways, *_embedded(host)]
    if _NUMBER.match(ways[1]) and any(map(str.isdigit, ways[1])):
        import socket

        try:
            # It takes whatever resolvers do: "127.1", "0x7f000001", "2130706433".
            ways.append(socket.inet_ntoa(socket.inet_aton(ways[1])))
        except OSError:
            pass
    return ways


def _embedded(host: str) -> list[str]:
    """The IPv4 addresses that an IPv6 address stands for: mapped, translated, tunnelled."""
    from ipaddress import AddressValueError, IPv4Address, IPv6Address

    try:
        number = int(IPv6Address(host.partition("%")[0]))
    except AddressValueError:
        return []
    address = IPv6Address(number)
    found = [IPv4Address(number & 0xFFFF_FFFF)] if _EMBEDS.match(address.exploded) else []
    tunnelled = (address.sixtofour, *(address.teredo or ()))
    return [str(each) for each in (*found, *filter(None, tunnelled))]


def _in_punycode(host: str) -> str:
    """The same with the letters that the older rules for names replace, such as a sharp s."""
    if len(host) > _LONGEST_HOST:
        return host
    labels = unicodedata.normalize("NFC", host).split(".")
    return ".".join(each if each.isascii() else f"xn--{each.encode('punycode').decode()}" for each in labels)


def _in_ascii(host: str) -> str:
    try:
        return host if host.isascii() else host.encode("idna").decode()
    except UnicodeError:
        return unicodedata.normalize("NFKC", host).replace("\u3002", ".")

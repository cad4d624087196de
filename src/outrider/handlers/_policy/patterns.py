"""Matches text, paths, hosts and URLs against the patterns of policies.

In text, `*` matches any text, `?` one character and `[abc]` one of several. In paths they match inside one
part, and `**` matches any number of parts.
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
from outrider.handlers._policy.shell import MARKERS, NUMBER, ONE, STAR

# Text.

_BRACES: Final = re.compile(r"\{[^{}]*,[^{}]*\}")
_CLASS: Final = re.compile(r"\[!?\]?[^\]]*\]")
_CONTROL: Final = re.compile(r"[\x00-\x1f\x7f]")
_SPECIAL: Final = re.compile(r"[*?\[]")


class Match(IntEnum):
    """Whether a pattern matches. Of several conditions the least counts."""

    NO = 0
    MAYBE = 1
    """It matches in part, or that is not certain: enough to deny, not to allow."""
    YES = 2


def check_pattern(place: str, pattern: str) -> None:
    """Raise `OptionsError` for a misleading pattern."""
    braces = _BRACES.search(pattern)
    problems = {
        ("is an empty pattern", '"*" matches everything.'): not pattern.strip(),
        ("has spaces around it", "Leave them out."): pattern != pattern.strip(),
        ("has a control character in it", "`*` matches any text."): _CONTROL.search(pattern),
        (f"has {braces and braces[0]!r}, which only matches itself", "Give a list of patterns."): braces,
        ("has a `[` that is never closed", "Write `[[]` for the character."): "[" in _CLASS.sub("", pattern),
    }
    for (text, hint), is_there in problems.items():
        if is_there:
            raise OptionsError(f"{place} {text}: {pattern!r}", hint=hint)


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
    """The text that every match of a pattern begins with."""
    found = _SPECIAL.search(pattern)
    return pattern if found is None else pattern[: found.start()]


def escaped(text: str) -> str:
    """A pattern that matches this text alone."""
    return _SPECIAL.sub(lambda special: f"[{special[0]}]", text)


@lru_cache(maxsize=1024)
def text_regex(pattern: str, *, ignores_case: bool = False) -> re.Pattern[str]:
    return re.compile(translate(pattern), re.IGNORECASE if ignores_case else 0)


def fits(pattern: str, text: str) -> bool:
    """Whether a pattern matches a whole text."""
    return text_regex(pattern).match(text) is not None


@lru_cache(maxsize=1024)
def path_regex(pattern: str, *, ignores_case: bool = False) -> re.Pattern[str]:
    """A regular expression for a whole path; `src/**` also matches `src`."""
    below = pattern.endswith("/**")
    while pattern.endswith("/**"):
        pattern = pattern.removesuffix("/**")
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
            # Without the `(?s:` and `)\\Z` around it.
            pieces[-1] += f"(?!/){translate(found[0])[4:-3]}"
            position = found.end() - 1
        else:
            pieces[-1] += re.escape(character)
        position += 1
    return _in_a_row(pieces, "[^/]*?", "[^/]*")


def _in_a_row(pieces: list[str], first_gap: str, last_gap: str) -> str:
    """The pieces of a pattern with the gaps between them. Except for the last one, the first match is as good
    as any: not to try others keeps it fast."""
    first, *others = pieces
    if not others:
        return first
    *middle, last = others
    return first + "".join(f"(?>{first_gap}{each})" for each in middle if each) + last_gap + last


# Paths.

_LONGEST_WILDCARD: Final = 256
LONGEST: Final = 4096
"""The longest path that is checked; hardly a system has longer ones."""
_MOST_LINKS: Final = 40
_OF_PROCESS: Final = re.compile(r"/proc/(self|thread-self|\d+)(/|\Z)|/dev/(fd|std\w+)(/|\Z)|/\.vol(/|\Z)")
"""Paths that mean other files in each process, or name files by number."""
_OF_EACH_PROCESS: Final = (["proc", "*", "**"], ["dev", "fd", "**"], ["dev", "std*"])
IGNORES_CASE: Final = sys.platform in ("darwin", "win32")
"""Whether names of files ignore case on this system, as they mostly do; denials then do, too."""


class Where(msgspec.Struct, frozen=True):
    """What relative paths and patterns are relative to."""

    cwd: str
    """The agent's working folder at present."""
    is_local: bool = True
    """Whether the agent runs on this machine, so that links can be followed. If not, a path with `..` is
    uncertain."""
    root: str | None = None
    """The folder that it was started in, if that differs. Patterns are relative to it."""


def path_match(pattern: str, path: str, where: Where, *, reaches_in: bool = False) -> Match:
    """Whether a pattern matches a path. YES: both as written and with all links followed. MAYBE: only one of
    these, or the path is inside a match, or the pattern matches relative to another folder: the current one,
    or any if it begins with `**`; with `reaches_in`, for a search, also if a match may be inside the path."""
    spellings = _spellings(path, where)
    if spellings is None:
        return Match.MAYBE
    patterns = _patterns(pattern, where.root or where.cwd, where)
    if all(any(path_regex(form).match(each) for form in patterns) for each in spellings):
        is_sure = where.is_local or ".." not in _slashed(path).split("/")
        return Match.YES if is_sure else Match.MAYBE
    if where.root not in (None, where.cwd):
        patterns += _patterns(pattern, where.cwd, where)
    if pattern.startswith("**/"):
        patterns.append(pattern)
    return _may_match(patterns, spellings, reaches_in=reaches_in)


def wildcard_match(pattern: str, path: str, where: Where, *, reaches_in: bool = False) -> Match:
    """Whether a path with wildcards of a shell may become one that a pattern matches. Links behind the first
    wildcard are not followed."""
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
    spellings = [_normal(joined), _normal(posixpath.join(real, rest))]
    return _may_match(patterns, spellings, reaches_in=reaches_in)


def _may_match(patterns: list[str], paths: list[str], *, reaches_in: bool) -> Match:
    ours = [_parts(_folded(each)) for each in dict.fromkeys(paths)]
    theirs = [_parts(_folded(each)) for each in dict.fromkeys(patterns)]
    meets = any(_meet(own, each, reaches_in=reaches_in) for own in ours for each in theirs)
    return Match.MAYBE if meets else Match.NO


def _meet(own: list[str], theirs: list[str], *, reaches_in: bool) -> bool:
    """Whether a path with wildcards may be a match of a pattern, or inside one, or hold one."""
    places = {0}
    for part in own:
        if not places:
            return False
        places = {place for each in places for place in _through(theirs, each, "**")}
        if len(theirs) in places:
            return True
        places = {
            place if theirs[place] == "**" else place + 1
            for place in places
            if theirs[place] == "**" or _part_meets(part, theirs[place])
        }
    places = {place for each in places for place in _through(theirs, each, "**")}
    return len(theirs) in places or (reaches_in and bool(places))


def _through(parts: list[str], place: int, wildcard: str) -> Iterator[int]:
    """A position in a pattern, and those behind wildcards there, which may match nothing."""
    yield place
    while place < len(parts) and parts[place] == wildcard:
        place += 1
        yield place


def _part_meets(own: str, theirs: str) -> bool:
    """Whether a part of a path with wildcards may match a part of a pattern."""
    if not MARKERS.search(own):
        return path_regex(theirs, ignores_case=IGNORES_CASE).match(own) is not None
    if own[:1] in (STAR, ONE) and theirs.startswith("."):
        # The shell omits hidden files.
        return False
    if IGNORES_CASE:
        own, theirs = own.lower(), theirs.lower()
    places = {0}
    tokens = re.findall(r"\[!?\]?[^\]]*\]|.", theirs, re.DOTALL)
    for character in own:
        places = {place for each in places for place in _through(tokens, each, "*")}
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
    return any(place == len(tokens) for each in places for place in _through(tokens, each, "*"))


def _past_digits(tokens: list[str], place: int) -> Iterator[int]:
    yield place
    while place < len(tokens) and any(_token_fits(tokens[place], each) for each in "-0123456789"):
        place += 1
        yield place


def _token_fits(token: str, character: str) -> bool:
    return token in ("*", "?", character) or (len(token) > 1 and fits(token, character))


def _spellings(path: str, where: Where) -> list[str] | None:
    """The path from the root: as written, and with links followed. None if it is not a path."""
    if len(path) > LONGEST or "\0" in path or "\ufeff" in path:
        return None
    # The agent strips blanks around a path, and normalizes accented letters.
    given = [path, unicodedata.normalize("NFC", path.strip())]
    if given[1].startswith("~") and where.is_local:
        # For some programs it is the home folder, for others the name of a file.
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
    """The pattern from the root: as written, and with the links in its fixed beginning followed."""
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


def _parts(path: str) -> list[str]:
    return [part for part in path.split("/") if part]


def _folded(path: str) -> str:
    """A path in normal form, on systems where both ways to write accented letters name one file."""
    return unicodedata.normalize("NFC", path) if IGNORES_CASE else path


def _normal(path: str) -> str:
    # POSIX allows a meaning for two slashes at the beginning; no system here has one.
    return "/" + posixpath.normpath(path).lstrip("/") if path.startswith("/") else posixpath.normpath(path)


def _real(path: str) -> str | None:
    """A path with its links followed; None if that depends on the process, or never ends."""
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
"""IPv6 addresses that end with an IPv4 address."""
_NUMBERS: Final = re.compile(r"\[[^\]]*:")
_SLASHES: Final = re.compile(r"\A([A-Za-z][\w+.-]*):[/\\]+")
_URL: Final = re.compile(r"(?P<scheme>[^:/]+)://(?P<host>[^/]+)(?P<path>/.*)?\Z", re.DOTALL)


class _Address(NamedTuple):
    scheme: str
    hosts: tuple[str, ...]
    """The host in all its notations."""
    port: str
    paths: tuple[str, ...]
    """The path and the query, as written and without escapes and dots."""
    is_clear: bool
    """Whether every program reads it in this way."""


def check_domain_pattern(place: str, pattern: str) -> None:
    """Raise `OptionsError` for a pattern that no host can match."""
    check_pattern(place, pattern)
    if "/" in pattern or ":" in pattern:
        raise OptionsError(
            f"{place} is not a domain: {pattern!r}",
            hint="Write the host alone, such as '*.example.com', or use `url`.",
        )


def check_url_pattern(place: str, pattern: str) -> None:
    """Raise `OptionsError` for a pattern that is not a URL."""
    check_pattern(place, pattern)
    found = _URL.match(pattern)
    if found and _NUMBERS.match(found["host"]):
        raise OptionsError(
            f"{place} cannot name a host by its IPv6 address: {pattern!r}",
            hint="Use `arguments`: {'url': …}, with `[[]` for the bracket.",
        )
    if not found:
        raise OptionsError(
            f"{place} is not a URL: {pattern!r}",
            hint="Write 'https://example.com/docs/*', or use `domain` for all of a host.",
        )


def domain_match(pattern: str, url: str) -> Match:
    """Whether a pattern matches the host of a URL: the very host, or all below it for `*.example.com`."""
    address = _read(url)
    return Match.MAYBE if address is None else _host_match(pattern, address)


def host_match(pattern: str, host: str) -> Match:
    """The same for a host alone."""
    return domain_match(pattern, f"https://{host}/")


def is_meant_within(pattern: str, address: str) -> bool:
    """Whether a pattern for hosts or URLs matches, or may match, a URL or a word that may be a host."""
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
    """Whether a pattern matches a URL: its scheme, host and path, each by itself. A pattern without a path
    matches all of a host."""
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
        # Browsers read a backslash as a slash.
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
    """A host in its notations: as written, without escapes, in ASCII, as the numbers of an address."""
    from urllib.parse import unquote

    ways = [host.rstrip("."), _in_ascii(unquote(host)).lower().rstrip(".")]
    ways += [] if host.isascii() else [_in_punycode(host.rstrip("."))]
    if ":" in host:
        return [*ways, *_embedded(host)]
    if _NUMBER.match(ways[1]) and any(map(str.isdigit, ways[1])):
        import socket

        try:
            # Accepts what resolvers accept: "127.1", "0x7f000001", "2130706433".
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
    """In punycode, with letters that the older rules for names replace, such as a sharp s."""
    if len(host) > _LONGEST_HOST:
        return host
    labels = unicodedata.normalize("NFC", host).split(".")
    return ".".join(each if each.isascii() else f"xn--{each.encode('punycode').decode()}" for each in labels)


def _in_ascii(host: str) -> str:
    try:
        return host if host.isascii() else host.encode("idna").decode()
    except UnicodeError:
        return unicodedata.normalize("NFKC", host).replace("\u3002", ".")

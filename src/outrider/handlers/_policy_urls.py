"""Whether an address on the web is one that a pattern of a policy means, by its host or as a whole.

Does not look anything up.
"""

from __future__ import annotations

import posixpath
import re
import unicodedata
from collections.abc import Mapping
from typing import Final, NamedTuple

from outrider.errors import OptionsError
from outrider.handlers._policy_glob import Match, check_pattern, fits

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

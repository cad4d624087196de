"""Parses the URLs of stores, and shows them without passwords.

Does not know which stores exist: `_open` does.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import TYPE_CHECKING, Final
from urllib.parse import parse_qsl, unquote, urlencode, urlsplit

from outrider.errors import OptionsError
from outrider.redaction import MASK, is_secret_key

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

__all__ = ["absolute_path", "local_path", "refuse_parameters", "shown", "take_parameters", "take_seconds"]

_PASSWORD: Final = re.compile(r"(?<=://)([^:/?#@]*):.*(?:@|%40)", re.DOTALL)
"""Up to the last `@`: in a URL that is not written right, the password may have any of the signs in it, and
the `@` may have been taken for a part of the query."""

_PARAMETER: Final = re.compile(r"(?<=[?&])([^=&#]+)=([^&#]*)")


def shown(url: str) -> str:
    """The URL without a password, for people to read."""
    shorter = _PASSWORD.sub(r"\1@", url)
    return _PARAMETER.sub(
        lambda found: f"{found[1]}={MASK}" if is_secret_key(unquote(found[1])) else found[0], shorter
    )


def take_parameters(url: str, *names: str) -> tuple[str, dict[str, str]]:
    """The URL without these parameters of its query, and what they are.

    Raises `OptionsError` if one is there twice.
    """
    place, mark, query = url.partition("?")
    if not mark:
        return url, {}
    taken: dict[str, str] = {}
    left: list[tuple[str, str]] = []
    for name, value in parse_qsl(query.partition("#")[0], keep_blank_values=True):
        if name not in names:
            left.append((name, value))
        elif name in taken:
            raise OptionsError(f"{name!r} is twice in {shown(url)!r}", hint="Give it once.")
        else:
            taken[name] = value
    return f"{place}?{urlencode(left)}" if left else place, taken


def refuse_parameters(url: str, known: Collection[str]) -> None:
    """Raises `OptionsError` if the query of the URL has a parameter still: none of the `known` ones."""
    for name, _ in parse_qsl(url.partition("?")[2], keep_blank_values=True):
        raise OptionsError(
            f"{shown(url)!r} has the parameter {name!r}, which means nothing here",
            hint=f"There {'are' if len(known) > 1 else 'is'}: {', '.join(known)}.",
        )


def take_seconds(parameters: Mapping[str, str], name: str, default: float) -> float:
    """A parameter that is a number of seconds. Raises `OptionsError` if it is none."""
    if name not in parameters:
        return default
    try:
        seconds = float(parameters[name])
    except ValueError:
        seconds = 0.0
    if not 0 < seconds < float("inf"):
        raise OptionsError(f"`{name}` is {parameters[name]!r}", hint="Give a number of seconds above 0.")
    return seconds


def local_path(url: str) -> str:
    """The path in a URL of this machine: `scheme:///relative` or `scheme:////absolute` for databases.

    Gives what follows the third slash, unquoted. Raises `OptionsError` if there is a host, or no path.
    """
    try:
        parts = urlsplit(url, allow_fragments=False)
    except ValueError as error:
        raise OptionsError(f"{shown(url)!r} is no URL: {error}") from error
    if parts.netloc not in ("", "localhost"):
        host = parts.netloc.rpartition("@")[2]
        raise OptionsError(
            f"{shown(url)!r} names the host {host!r}, and files are on this machine",
            hint=f"Write {parts.scheme}:/// with three slashes before the path.",
        )
    path = unquote(parts.path.removeprefix("/"))
    if not path:
        raise OptionsError(f"{shown(url)!r} has no path", hint=f"Write {parts.scheme}:///path.")
    return path


def absolute_path(given: str, what: str, hint: str) -> Path:
    """A path, from the folder that is the current one now: it may be another one later.

    Raises `OptionsError` if it can be none of `what`.
    """
    try:
        path = Path(given).expanduser().absolute()
        if given not in ("", ":memory:") and b"\0" not in os.fsencode(path):
            return path
        reason = ""
    except (RuntimeError, ValueError, OSError) as error:
        reason = f": {error}"
    raise OptionsError(f"{given!r} is no path of {what}{reason}", hint=hint)

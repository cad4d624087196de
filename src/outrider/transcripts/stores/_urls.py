"""Finds the store for a URL or a path, and parses the URLs of stores; passwords in them are not shown."""

from __future__ import annotations

import os
import re
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple, cast
from urllib.parse import parse_qsl, unquote, urlencode, urlsplit

from outrider.errors import OptionsError
from outrider.redaction import MASK, is_secret_key

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from outrider.transcripts.stores._base import SessionStore

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


class Parameter(NamedTuple):
    """What a parameter of a URL may be."""

    read: Callable[[str], object]
    """Raises `ValueError` or `LookupError` for an invalid value."""
    hint: str = ""


def _seconds(text: str) -> float:
    if not 0 < (seconds := float(text)) < float("inf"):
        raise ValueError(text)
    return seconds


TEXT: Final = Parameter(str)
FLAG: Final = Parameter({"0": False, "1": True}.__getitem__, "Give 0 or 1.")
SECONDS: Final = Parameter(_seconds, "Give a number of seconds above 0.")


def take_parameters(
    url: str, known: Mapping[str, Parameter], *, others: bool = False
) -> tuple[str, dict[str, Any]]:
    """The URL without the known parameters of its query, and their values.

    Raises `OptionsError` for a repeated or invalid parameter; unless `others` are allowed, also for an
    unknown one.
    """
    place, _, query = url.partition("?")
    taken: dict[str, Any] = {}
    left: list[tuple[str, str]] = []
    for name, value in parse_qsl(query.partition("#")[0], keep_blank_values=True):
        if name in taken:
            raise OptionsError(f"{name!r} appears twice in {shown(url)!r}", hint="Give it once.")
        if name in known:
            try:
                taken[name] = known[name].read(value)
            except (ValueError, LookupError):
                raise OptionsError(f"`{name}` is {value!r}", hint=known[name].hint) from None
        elif others:
            left.append((name, value))
        else:
            raise OptionsError(
                f"{shown(url)!r} has the parameter {name!r}, which is not known here",
                hint=f"Known: {', '.join(known) or 'none'}.",
            )
    return f"{place}?{urlencode(left)}" if left else place, taken


def local_path(url: str) -> str:
    """The path in a URL of this machine: `scheme:///relative` or `scheme:////absolute` for databases.

    Gives what follows the third slash, unquoted. Raises `OptionsError` if there is a host, or no path.
    """
    try:
        parts = urlsplit(url, allow_fragments=False)
    except ValueError as error:
        raise OptionsError(f"{shown(url)!r} is not a URL: {error}") from error
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

    Raises `OptionsError` if it is not the path of `what`.
    """
    try:
        path = Path(given).expanduser().absolute()
        if given not in ("", ":memory:") and b"\0" not in os.fsencode(path):
            return path
        reason = ""
    except (RuntimeError, ValueError, OSError) as error:
        reason = f": {error}"
    raise OptionsError(f"{given!r} is not a path of {what}{reason}", hint=hint)


class _Kind(NamedTuple):
    module: str
    name: str
    driver: str = ""
    """What has to be installed, as it is imported."""
    extra: str = ""


_POSTGRES: Final = _Kind("_postgres", "PostgresStore", "psycopg", "postgres")
_REDIS: Final = _Kind("_redis", "RedisStore", "redis", "redis")

_KINDS: Final[Mapping[str, _Kind]] = {
    "sqlite": _Kind("_sqlite", "SqliteStore"),
    "file": _Kind("_file", "FileStore"),
    "memory": _Kind("_memory", "MemoryStore"),
    "postgresql": _POSTGRES,
    "postgres": _POSTGRES,
    "redis": _REDIS,
    "rediss": _REDIS,
    "unix": _REDIS,
    "s3": _Kind("_s3", "S3Store", "boto3", "s3"),
}

_SCHEME: Final = re.compile(r"([A-Za-z][A-Za-z0-9+.\-]+):")
"""At least two letters: one is a drive."""


def open_store(place: SessionStore | str | os.PathLike[str]) -> SessionStore:
    """Return the store for a URL or a path. A store is returned as it is.

    * `sqlite:///agents.db` (relative), `sqlite:////srv/agents.db` (absolute), or a plain path
    * `file:///srv/sessions`: a folder
    * `postgresql://user:password@host/database`
    * `redis://host:6379/0`, `rediss://…` (TLS), `unix:///run/redis.sock`
    * `s3://bucket/prefix`
    * `memory:`, or `memory://name` for one that is shared within this process

    All but the last accept `?timeout=10`, the seconds that a call may take. Nothing is connected or created
    until the store is used. Close it with `await store.close()`.

    Raises `OptionsError` if there is no such store, or if its driver is not installed.
    """
    if isinstance(place, os.PathLike) or (isinstance(place, str) and place and not _SCHEME.match(place)):
        from outrider.transcripts.stores._sqlite import SqliteStore

        return SqliteStore(place)
    if not isinstance(place, str):
        if callable(getattr(place, "append", None)) and callable(getattr(place, "load", None)):
            return place
        raise OptionsError(
            f"a {type(cast('object', place)).__name__} is not a session store",
            hint="Give a SessionStore, a URL or the path of a SQLite database.",
        )
    if not place:
        raise OptionsError(
            "the session store is an empty string", hint="Give a URL, or the path of a SQLite database."
        )
    kind = _KINDS.get(place.partition(":")[0].lower())
    if kind is None:
        raise OptionsError(
            f"there is no session store for {shown(place)!r}",
            hint=f"Begin it with one of {', '.join(f'{name}:' for name in _KINDS)}; or give the path of a"
            f" SQLite database (with ./ before a name that has a colon).",
        )
    return _opened(kind, place)


def _opened(kind: _Kind, place: str) -> SessionStore:
    try:
        if kind.driver:
            import_module(kind.driver)
        module = import_module(f"outrider.transcripts.stores.{kind.module}")
    except ImportError as error:
        if not kind.driver or (error.name or "").startswith("outrider"):
            raise
        # Without a name: it is there, and something that it needs itself is not.
        reason = f"{error.name}, which is not installed" if error.name else f"{kind.driver}: {error}"
        raise OptionsError(
            f"{shown(place)!r} needs {reason}",
            hint=f"Run: pip install 'outrider[{kind.extra}]'",
        ) from error
    from_url: Callable[[str], SessionStore] = getattr(module, kind.name).from_url
    return from_url(place)

"""Defines `open_store`, which finds the store for a URL or a path.

Each store reads its own URL.
"""

from __future__ import annotations

import os
import re
from importlib import import_module
from typing import TYPE_CHECKING, Final, NamedTuple, cast

from outrider.errors import OptionsError
from outrider.transcripts.stores._sqlite import SqliteStore
from outrider.transcripts.stores._urls import shown

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from outrider.transcripts.stores._base import SessionStore

__all__ = ["open_store"]


class _Kind(NamedTuple):
    module: str
    name: str
    driver: str = ""
    """What has to be installed, as it is imported."""
    extra: str = ""


_POSTGRES: Final = _Kind("_postgres.store", "PostgresStore", "psycopg", "postgres")
_REDIS: Final = _Kind("_redis.store", "RedisStore", "redis", "redis")

_KINDS: Final[Mapping[str, _Kind]] = {
    "sqlite": _Kind("_sqlite", "SqliteStore"),
    "file": _Kind("_file.store", "FileStore"),
    "memory": _Kind("_memory", "MemoryStore"),
    "postgresql": _POSTGRES,
    "postgres": _POSTGRES,
    "redis": _REDIS,
    "rediss": _REDIS,
    "unix": _REDIS,
    "s3": _Kind("_s3.store", "S3Store", "boto3", "s3"),
}

_SCHEME: Final = re.compile(r"([A-Za-z][A-Za-z0-9+.\-]+):")
"""At least two letters: one is a drive."""


def open_store(place: SessionStore | str | os.PathLike[str]) -> SessionStore:
    """The store that a URL or a path stands for; a store is given back as it is.

    * `sqlite:///agents.db` (relative), `sqlite:////srv/agents.db` (absolute), or a plain path
    * `file:///srv/sessions`: a folder
    * `postgresql://user:password@host/database`
    * `redis://host:6379/0`, `rediss://…` (TLS), `unix:///run/redis.sock`
    * `s3://bucket/prefix`
    * `memory:`, or `memory://name` for one that is shared within this process

    All but the last take `?timeout=10`: seconds that a call may take. Nothing is connected or made before the
    store is used. Close it with `await store.close()`.

    Raises `OptionsError` if there is no such store, or if its driver is not installed.
    """
    if isinstance(place, os.PathLike):
        return SqliteStore(place)
    if not isinstance(place, str):
        if callable(getattr(place, "append", None)) and callable(getattr(place, "load", None)):
            return place
        raise OptionsError(
            f"a {type(cast('object', place)).__name__} is no session store",
            hint="Give a SessionStore, a URL or the path of a SQLite database.",
        )
    if not place:
        raise OptionsError(
            "the session store is an empty text", hint="Give a URL, or the path of a SQLite database."
        )
    found = _SCHEME.match(place)
    if found is None:
        return SqliteStore(place)
    kind = _KINDS.get(found[1].lower())
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

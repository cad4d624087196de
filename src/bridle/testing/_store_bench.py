"""Owns what is put into a store to see whether it keeps a clause: new keys, entries, and how to compare.

What should come of it is in `_store_clauses`.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, cast
from uuid import uuid4

from bridle.testing._contract import Violation, opened
from bridle.transcripts import SessionKey, SessionStore, SessionStoreEntry

if TYPE_CHECKING:
    from collections.abc import Collection

    from bridle.testing._contract import Make

__all__ = ["Bench", "expect_loaded", "make_entries", "make_entry", "make_key", "make_name", "shown"]


class Bench:
    """Makes stores."""

    def __init__(self, make: Make[SessionStore]) -> None:
        self._make = make
        self._doing = ""

    def told(self) -> str:
        return f"while {self._doing}"

    @asynccontextmanager
    async def made(self) -> AsyncGenerator[SessionStore]:
        self._doing = "it was made"
        async with opened(self._make, _is_store, "store") as store:
            self._doing = "it was used"
            yield cast("SessionStore", store)


def _is_store(made: object) -> bool:
    return callable(getattr(made, "append", None)) and callable(getattr(made, "load", None))


def make_name() -> str:
    return uuid4().hex


def make_key(
    project: str | None = None, session: str | None = None, subpath: str | None = None
) -> SessionKey:
    key: SessionKey = {"project_key": project or make_name(), "session_id": session or str(uuid4())}
    if subpath is not None:
        key["subpath"] = subpath
    return key


def make_entry(number: int = 0, **fields: object) -> SessionStoreEntry:
    timestamp = "2026-01-01T00:00:00.000Z"
    entry = {"type": "user", "uuid": str(uuid4()), "timestamp": timestamp, "number": number, **fields}
    return cast("SessionStoreEntry", entry)


def make_entries(count: int) -> list[SessionStoreEntry]:
    return [make_entry(number) for number in range(count)]


async def expect_loaded(
    store: SessionStore, key: SessionKey, expected: list[SessionStoreEntry], where: str = ""
) -> None:
    loaded = await store.load(key)
    if loaded == expected:
        return
    if loaded is None or len(loaded) != len(expected):
        told = f"{len(expected)} entries should be there, and {_count(loaded)}"
    else:
        pairs = zip(expected, loaded, strict=True)
        told = next(f"{shown(one)} came back as {shown(other)}" for one, other in pairs if one != other)
    raise Violation(f"{where}{told} (key {key})")


def _count(loaded: Collection[object] | None) -> str:
    return "`load` gave None" if loaded is None else f"{len(loaded)} came back"


def shown(value: object) -> str:
    text = ascii(value)
    return text if len(text) <= 120 else f"{text[:120]}…"

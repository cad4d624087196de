"""Owns what is put into a store to see whether it keeps a clause: new keys, entries, and how to compare.

What should come of it is in `_store_clauses`.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, Final, cast
from uuid import uuid4

from outrider.errors import LeaseLost, SessionBusy
from outrider.testing._contract import Violation, opened
from outrider.transcripts import SessionKey, SessionStore, SessionStoreEntry

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Collection

    from outrider.testing._contract import Make

__all__ = [
    "ANOTHER",
    "Bench",
    "expect_busy",
    "expect_loaded",
    "expect_lost",
    "make_entries",
    "make_entry",
    "make_key",
    "make_name",
    "make_titles",
    "shown",
]

ANOTHER: Final = "another object on the same data"
"""Stands among the methods that a clause needs."""


class Bench:
    """Makes stores."""

    def __init__(
        self,
        make: Make[SessionStore],
        again: Callable[[Any], object] | None = None,
    ) -> None:
        self._make, self._again = make, again
        self._doing = ""

    def told(self) -> str:
        return f"while {self._doing}"

    @asynccontextmanager
    async def made(self) -> AsyncGenerator[SessionStore]:
        self._doing = "it was made"
        async with opened(self._make, _is_store, "store") as store:
            self._doing = "it was used"
            yield cast("SessionStore", store)

    @asynccontextmanager
    async def two(self) -> AsyncGenerator[tuple[SessionStore, SessionStore]]:
        """Two objects on the same data."""
        again = self._again
        async with self.made() as one:
            make: Callable[[], object] = self._make if again is None else lambda: again(one)
            async with opened(make, _is_store, "store") as two:
                yield one, cast("SessionStore", two)

    async def can_make_two(self) -> bool:
        """Whether there are two, and one has what the other stores."""
        if self._again is not None:
            return True
        async with self.two() as (one, two):
            key, entries = make_key(), make_entries(1)
            try:
                await one.append(key, entries)
                return one is not two and await two.load(key) == entries
            except Exception:  # noqa: BLE001 - what is wrong with it is seen later
                return False


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


def make_titles(count: int) -> list[SessionStoreEntry]:
    """Entries without a `uuid`."""
    titles = [{"type": "custom-title", "customTitle": f"title {number}"} for number in range(count)]
    return cast("list[SessionStoreEntry]", titles)


async def expect_busy(call: Awaitable[object], where: str = "") -> SessionBusy:
    try:
        await call
    except SessionBusy as busy:
        return busy
    raise Violation(f"{where}another has the lease, and there was no SessionBusy")


async def expect_lost(call: Awaitable[object]) -> LeaseLost:
    try:
        await call
    except LeaseLost as lost:
        return lost
    raise Violation("the lease is not there, and there was no LeaseLost")


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

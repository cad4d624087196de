"""How a contract is checked clause by clause and reported, and the entries that stores are checked with."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from inspect import isawaitable
from typing import TYPE_CHECKING, Any, Final, Generic, TypeAlias, TypeVar, cast
from uuid import uuid4

import anyio
import msgspec

from outrider._display import plain
from outrider.errors import LeaseLost, OptionsError, SessionBusy
from outrider.transcripts import SessionKey, SessionStore, SessionStoreEntry

if TYPE_CHECKING:
    from collections.abc import Collection

T = TypeVar("T")

Make: TypeAlias = Callable[[], T | Awaitable[T] | AbstractAsyncContextManager[T]]
"""Makes what is checked, a new one for each clause: plainly, asynchronously, or as a context manager where
something has to be started before and ended after."""


class Broken(msgspec.Struct, frozen=True):
    """A clause that is not kept."""

    clause: str
    """What should be."""
    seen: str
    """What was."""

    def __str__(self) -> str:
        return f"{self.clause}\n    Seen: {self.seen}"


class ContractBroken(AssertionError):
    """Some clauses of a contract are not kept: `broken` has each with what was seen."""

    def __init__(self, subject: str, broken: list[Broken], checked: int) -> None:
        self.broken = tuple(broken)
        lines = [f"  {number}. {one}" for number, one in enumerate(broken, 1)]
        super().__init__(plain(f"{subject} breaks {len(broken)} of {checked} clauses:\n" + "\n".join(lines)))


class Violation(Exception):
    """Raised inside a check, with what was seen."""


class Clause(msgspec.Struct, Generic[T], frozen=True):
    """What should be, and how to see whether it is."""

    text: str
    check: Callable[[T], Awaitable[None]]


class Clauses(list[Clause[T]]):
    """The clauses of a contract, in their order; a decorator adds one."""

    def clause(self, text: str) -> Callable[[Callable[[T], Awaitable[None]]], Callable[[T], Awaitable[None]]]:
        def add(check: Callable[[T], Awaitable[None]]) -> Callable[[T], Awaitable[None]]:
            self.append(Clause(text, check))
            return check

        return add


def expect(condition: object, seen: str) -> None:
    """Raises `Violation` with what was seen unless it is as it should be."""
    if not condition:
        raise Violation(seen)


async def check_clauses(
    clauses: list[Clause[T]], bench: T, doing: Callable[[], str], deadline: float, *, is_first_vital: bool
) -> list[Broken]:
    """Check one after the other; returns those that are not kept. If the first is vital, all others rest on
    it, and are not tried if it is not kept."""
    broken: list[Broken] = []
    for clause in clauses:
        seen = await _seen(clause, bench, doing, deadline)
        if seen is not None:
            broken.append(Broken(clause.text, seen))
            if is_first_vital and clause is clauses[0]:
                break
    return broken


async def _seen(clause: Clause[T], bench: T, doing: Callable[[], str], deadline: float) -> str | None:
    """What shows that a clause is not kept; None if it is."""
    try:
        with anyio.move_on_after(deadline) as scope:
            await clause.check(bench)
    except Exception as error:  # noqa: BLE001 - whatever it is, it is what was seen
        cause = _first(error)
        if isinstance(cause, Violation):
            return str(cause)
        return f"{type(cause).__name__}: {cause} ({doing()})"
    if scope.cancelled_caught:
        return f"nothing for {deadline:g} s ({doing()})"
    return None


def _first(error: BaseException) -> BaseException:
    """The error that matters in a group of them."""
    if not isinstance(error, BaseExceptionGroup):
        return error
    found = [_first(one) for one in cast("BaseExceptionGroup[BaseException]", error).exceptions]
    return next((one for one in found if isinstance(one, Violation)), found[0])


@asynccontextmanager
async def opened(
    make: Callable[[], object], is_one: Callable[[object], bool], name: str
) -> AsyncGenerator[object]:
    """What `make` makes. Raises `OptionsError` if it is not of the right kind."""
    hint = f"Give a function that makes a new {name} at each call."
    if not callable(make):
        raise OptionsError(f"`make` is {make!r}, which makes nothing", hint=hint)
    made = make()
    if isawaitable(made):
        made = await cast("Awaitable[object]", made)
    if is_one(made):
        yield made
    elif isinstance(made, AbstractAsyncContextManager):
        async with cast("AbstractAsyncContextManager[object]", made) as inner:
            if not is_one(inner):
                raise OptionsError(f"`make` gave a context manager of {inner!r}, which is not a {name}")
            yield inner
    else:
        raise OptionsError(f"`make` gave {made!r}, which is not a {name}", hint=hint)


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

    def target(self) -> str:
        return f"while {self._doing}"

    @asynccontextmanager
    async def stores(self, *, two: bool = False) -> AsyncGenerator[tuple[SessionStore, ...]]:
        """A new store, or two objects on the same data."""
        self._doing, again = "it was made", self._again
        async with opened(self._make, _is_store, "store") as made:
            self._doing, one = "it was used", cast("SessionStore", made)
            if not two:
                yield (one,)
                return
            make: Callable[[], object] = self._make if again is None else lambda: again(one)
            async with opened(make, _is_store, "store") as other:
                yield one, cast("SessionStore", other)

    async def can_make_two(self) -> bool:
        """Whether there are two, and one has what the other stores."""
        if self._again is not None:
            return True
        async with self.stores(two=True) as (one, two):
            key, entries = make_key(), make_entries(1)
            try:
                await one.append(key, entries)
                return one is not two and await two.load(key) == entries
            except Exception:  # noqa: BLE001 - what is wrong with it is seen later
                return False


class StoreClauses(dict[tuple[str, ...], Clauses[Bench]]):
    """Clauses about stores, by the optional methods that they need, and whether they need a second object on
    the same data."""

    def clause(
        self, text: str, *needs: str
    ) -> Callable[[Callable[..., Awaitable[None]]], Callable[..., Awaitable[None]]]:
        """Add one. The function is given a store, or two on the same data."""

        def add(check: Callable[..., Awaitable[None]]) -> Callable[..., Awaitable[None]]:
            async def checked(bench: Bench) -> None:
                async with bench.stores(two=ANOTHER in needs) as stores:
                    await check(*stores)

            self.setdefault(needs, Clauses()).append(Clause(text, checked))
            return check

        return add


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
        difference = f"{len(expected)} entries should be there, and {_count(loaded)}"
    else:
        pairs = zip(expected, loaded, strict=True)
        difference = next(f"{shown(one)} came back as {shown(other)}" for one, other in pairs if one != other)
    raise Violation(f"{where}{difference} (key {key})")


def _count(loaded: Collection[object] | None) -> str:
    return "`load` gave None" if loaded is None else f"{len(loaded)} came back"


def shown(value: object) -> str:
    text = ascii(value)
    return text if len(text) <= 120 else f"{text[:120]}…"

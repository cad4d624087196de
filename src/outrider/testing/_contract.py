"""Owns how a contract is checked clause by clause, and how what was found is told.

Does not know any contract.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from inspect import isawaitable
from typing import Generic, TypeAlias, TypeVar, cast

import anyio
import msgspec

from outrider._display import plain
from outrider.errors import OptionsError

__all__ = [
    "Broken",
    "Clause",
    "Clauses",
    "ContractBroken",
    "Make",
    "Violation",
    "check_clauses",
    "expect",
    "opened",
]

T = TypeVar("T")

Make: TypeAlias = Callable[[], T | Awaitable[T] | AbstractAsyncContextManager[T]]
"""Makes what is checked, anew for each clause: plainly, asynchronously, or as a context manager where
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
    """Check one after the other; gives those that are not kept.

    If the first is vital, all others rest on it, and are not tried if it is not kept.
    """
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
    """What `make` makes. Raises `OptionsError` if that is none."""
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
                raise OptionsError(f"`make` gave a context manager of {inner!r}, which is no {name}")
            yield inner
    else:
        raise OptionsError(f"`make` gave {made!r}, which is no {name}", hint=hint)

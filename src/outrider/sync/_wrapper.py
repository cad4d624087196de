"""Owns `Wrapper`, what all classes of `outrider.sync` are: an async object, and the loop that it lives in.

Adds nothing to what the object does.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ParamSpec, TypeVar
from weakref import WeakValueDictionary

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from contextlib import AbstractAsyncContextManager

    from outrider.sync._portal import Portal

P = ParamSpec("P")
T = TypeVar("T")
W = TypeVar("W", bound="Wrapper")


class Wrapper:
    """An object of an event loop, for use from any thread but that of the loop."""

    def __init__(self, wrapped: object, loop: Portal) -> None:
        """Made by what gives it."""
        self._wrapped = wrapped
        self._portal = loop
        _wrappers[id(wrapped)] = self

    def _wait(self, function: Callable[P, Awaitable[T]], *args: P.args, **kwargs: P.kwargs) -> T:
        try:
            return self._portal.call(function, *args, **kwargs)
        except StopAsyncIteration:
            raise StopIteration from None

    def _read(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        return self._portal.read(function, *args, **kwargs)

    def _enter(self, manager: AbstractAsyncContextManager[T]) -> T:
        return self._portal.enter(manager)


def wrap(kind: type[W], wrapped: object, loop: Portal) -> W:
    """The wrapper of an object: the same one for the same object, as long as anybody has it."""
    found = _wrappers.get(id(wrapped))
    return found if isinstance(found, kind) else kind(wrapped, loop)


# By the address of what is wrapped, which nothing else can have while the wrapper lives.
_wrappers: WeakValueDictionary[int, Wrapper] = WeakValueDictionary()

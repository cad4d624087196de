"""Owns `intercept`, which puts something in the way of every connection that is opened meanwhile.

Does not open connections: whoever does asks `intercepted` for the transport to use.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, TypeAlias, cast

from outrider.errors import UsageError
from outrider.transports._transport import Transport

if TYPE_CHECKING:
    from typing import NoReturn

    from outrider.command import Command
    from outrider.errors import OutriderError

__all__ = ["Interceptor", "Unreachable", "intercept", "intercepted", "is_intercepted"]

Interceptor: TypeAlias = Callable[[Transport], Transport]
"""Is given the transport that a session is about to connect, and gives back the one to use: the same, one
around it, or another. What it raises, the session raises."""

_here: ContextVar[tuple[Interceptor, ...]] = ContextVar("outrider.intercept", default=())
_everywhere: list[Interceptor] = []


@contextmanager
def intercept(change: Interceptor, *, everywhere: bool = False) -> Generator[None]:
    """Let `change` choose the transport of every session that is opened inside the block.

    Where several are in force, the innermost comes first, and the next is given what it chose. By default
    the block counts for the tasks that are started in it, as context variables do; with `everywhere`, for
    all threads and tasks of the process.

    An agent that would be started as a program is given as a transport with a `command`, whether the program
    is installed or not.
    """
    if everywhere:
        _everywhere.append(change)
        try:
            yield
        finally:
            # Not the last one: blocks of different threads need not end in order.
            _everywhere.remove(change)
    else:
        _here.set((*_here.get(), change))
        try:
            yield
        finally:
            # Not by a token: a fixture may be ended in another context than it was begun in.
            left = list(_here.get())
            if change in left:
                left.remove(change)
            _here.set(tuple(left))


def is_intercepted() -> bool:
    """Whether anything is in the way here."""
    return bool(_here.get() or _everywhere)


def intercepted(transport: Transport) -> Transport:
    """The transport to use in the place of this one. Raises `UsageError` for what is none."""
    for change in (*reversed(_here.get()), *reversed(tuple(_everywhere))):
        chosen = cast("object", change(transport))
        if not isinstance(chosen, Transport):
            raise UsageError(
                f"An interceptor gave {chosen!r}, which is no transport",
                hint="Return the transport that it was given, or another.",
            )
        transport = chosen
    return transport


class Unreachable(Transport):
    """Stands for a program that is not there: what is in the way may do without it."""

    def __init__(self, command: Command, error: OutriderError) -> None:
        self.command = command
        self._error = error

    async def connect(self) -> None:
        raise self._error

    async def receive(self) -> NoReturn:
        raise self._error

    async def send(self, data: bytes) -> NoReturn:
        raise self._error

    async def end_input(self) -> None:
        return

    async def close(self) -> None:
        return

    @property
    def is_ready(self) -> bool:
        return False

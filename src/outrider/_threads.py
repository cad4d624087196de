"""Starts threads, and raises an Outrider error if the system cannot start one."""

from __future__ import annotations

from collections.abc import Callable
from threading import Thread
from typing import Final, TypeVar, TypeVarTuple

from anyio import CapacityLimiter, to_thread

from outrider.errors import LaunchError

T = TypeVar("T")
Ts = TypeVarTuple("Ts")

_HINT: Final = "Raise the limit (`ulimit -u`, the container's pids limit), or run fewer at once."


def start_thread(function: Callable[[*Ts], object], *arguments: *Ts, name: str) -> Thread:
    """Start a daemon thread. Raises `LaunchError` if there can be no more."""
    thread = Thread(target=function, args=arguments, name=name, daemon=True)
    try:
        thread.start()
    except RuntimeError as error:
        raise no_thread(error) from error
    return thread


async def run_sync(
    function: Callable[[*Ts], T],
    *arguments: *Ts,
    abandon_on_cancel: bool = False,
    limiter: CapacityLimiter | None = None,
) -> T:
    """Call a function in a worker thread, as that of anyio does. Raises `LaunchError` if there can be no
    more threads."""
    has_begun = False

    def call() -> T:
        nonlocal has_begun
        has_begun = True
        return function(*arguments)

    try:
        return await to_thread.run_sync(call, abandon_on_cancel=abandon_on_cancel, limiter=limiter)
    except RuntimeError as error:
        if has_begun:
            raise
        raise no_thread(error) from error


def no_thread(error: RuntimeError) -> LaunchError:
    """What to raise if a thread could not be started."""
    return LaunchError(f"no thread can be started: {error}", hint=_HINT)

"""Calls a callback that decides something, so that each way in which it can fail is one more outcome.

Does not know what the callback decides, nor what is done when it fails.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, cast

import anyio
import msgspec
from anyio.lowlevel import checkpoint

from outrider.handlers._calling import CallContext, CallTimedOut, call, unwrapped

if TYPE_CHECKING:
    from collections.abc import Callable

    from outrider.handlers._handled import Outcome


class Attempt(msgspec.Struct, frozen=True, kw_only=True):
    """What came of a call."""

    outcome: Outcome
    value: object = None
    """What the callback returned, if it did."""
    error: BaseException | None = None
    """What it raised, if it did."""


async def attempt(
    function: Callable[..., object], request: CallContext, timeout: float | None = None
) -> Attempt:
    """Call a callback with its request.

    Raises nothing but what is meant for others than this call: the cancellation of this task, and what ends
    programs (`KeyboardInterrupt`, `SystemExit`). A cancellation that comes out of the callback and was not
    meant for this task, as when something that it waited for was cancelled, is a failure like any other. So
    is an answer that comes too late, from a callback that would not be cancelled.
    """
    deadline = math.inf if timeout is None else anyio.current_time() + timeout
    try:
        value = await call(function, request, timeout=timeout, context=request)
    except CallTimedOut as error:
        return Attempt(outcome="timed_out", error=error)
    except Exception as error:  # noqa: BLE001 - whatever the user's code raises
        return Attempt(outcome="failed", error=unwrapped(error))
    except BaseException as error:
        if not _is_cancellation(error):
            raise
        await checkpoint()
        return Attempt(outcome="failed", error=error)
    if anyio.current_effective_deadline() == -math.inf:
        # The callback was cancelled and went on to give an answer, which nobody waits for.
        request.is_cancelled = True
        await checkpoint()
    if timeout is not None and anyio.current_time() > deadline:
        request.is_cancelled = True
        return Attempt(outcome="timed_out", error=CallTimedOut(timeout))
    return Attempt(outcome="answered", value=value)


def outcome_of(error: BaseException) -> Outcome:
    """What a call came to that was left by an exception which `attempt` raised."""
    return "cancelled" if isinstance(error, GeneratorExit) or _is_cancellation(error) else "failed"


def _is_cancellation(error: BaseException) -> bool:
    """Whether it is a cancellation, or a group of nothing but these and plain errors."""
    if isinstance(error, BaseExceptionGroup):
        group = cast("BaseExceptionGroup[BaseException]", error)
        return all(isinstance(each, Exception) or _is_cancellation(each) for each in group.exceptions)
    return isinstance(error, anyio.get_cancelled_exc_class())

"""Calls the user's functions with a timeout, and tells them which session and turn a call is for.

Does not know what a function is for or what its result means.
"""

from __future__ import annotations

import inspect
import math
from functools import partial
from time import monotonic
from typing import TYPE_CHECKING, Any, Final, cast

import anyio
import msgspec
from anyio import CapacityLimiter
from anyio.lowlevel import checkpoint

from outrider._threads import run_sync

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from outrider.handlers._router import Origin, Outcome
    from outrider.options._tool_names import ToolNames
    from outrider.session import Session, Turn


class CallTimedOut(TimeoutError):
    """A function of the user took longer than it may."""

    def __init__(self, seconds: float) -> None:
        super().__init__(f"no answer within {seconds:g} s")
        self.seconds: Final = seconds


class CallContext:
    """What a function of yours can know about the call: for which session and turn it is, and whether the
    answer is still wanted."""

    def __init__(self, origin: Origin, tool_use_id: str | None = None) -> None:
        self._origin = origin
        self.tool_use_id: Final = tool_use_id
        """The tool call that it is about, if it is about one."""
        self.is_cancelled = False
        """Whether nobody waits for the answer any more. Async functions are cancelled then; one that runs in
        a thread cannot be, and may look here."""

    @property
    def session(self) -> Session:
        """The session that asks."""
        return self._origin.session

    @property
    def turn(self) -> Turn | None:
        """The turn that asks; None before the first one, and between turns."""
        return self._origin.turn

    def names_of_tools(self) -> ToolNames:
        """The tools that the session can have, for policies."""
        return self._origin.tool_names


async def call(
    function: Callable[..., object],
    /,
    *arguments: object,
    timeout: float | None = None,
    context: CallContext | None = None,
    **keywords: object,
) -> object:
    """Call a function of the user's, async or not, and wait for what it gives.

    One that is not async runs in a thread, in a copy of this task's context, however many others do; when the
    call is cancelled it is left to itself. Raises `CallTimedOut` after `timeout` seconds, else what the
    function raises.
    """
    is_over = False
    result: object = None
    try:
        made = partial(function, *arguments, **keywords)
        if timeout is None:
            result = await _begin(made)
        else:
            with anyio.move_on_after(timeout):
                result = await _begin(made)
                is_over = True
            if not is_over:
                raise CallTimedOut(timeout)
        is_over = True
        return result
    except StopIteration as error:
        # Python ends generators and coroutines with it; it must not end one of ours.
        raise RuntimeError(f"{name_of(function)} raised {error!r}") from error
    finally:
        if not is_over and context is not None:
            context.is_cancelled = True


def _begin(function: partial[object]) -> Awaitable[object]:
    return cast("Awaitable[object]", function()) if is_async(function) else _call_in_thread(function)


async def _call_in_thread(function: Callable[[], object]) -> object:
    # A limiter of its own: others that block must not make this one wait.
    (result,) = await run_sync(_called_here, function, abandon_on_cancel=True, limiter=CapacityLimiter(1))
    return await cast("Awaitable[object]", result) if inspect.isawaitable(result) else result


def _called_here(function: Callable[[], object]) -> tuple[object]:
    """Call it, in a thread. The result is wrapped: trio takes a bare coroutine for a mistake."""
    try:
        return (function(),)
    except StopIteration as error:
        # A future refuses to carry it.
        raise RuntimeError(f"{name_of(function)} raised {error!r}") from error


def is_async(function: object) -> bool:
    """Whether calling it gives a coroutine: an async function or method, also inside a `partial`, or an
    object whose `__call__` is one."""
    inner: Any = function
    while isinstance(inner, partial):
        inner = cast("partial[object]", inner).func
    if (code := getattr(inner, "__code__", None)) is not None and code.co_flags & inspect.CO_COROUTINE:
        # Most of them.
        return True
    return inspect.iscoroutinefunction(inner) or inspect.iscoroutinefunction(getattr(inner, "__call__", None))  # noqa: B004


def name_of(function: object) -> str:
    """What a function is called in logs and events."""
    while isinstance(function, partial):
        function = cast("partial[object]", function).func
    return getattr(function, "__qualname__", None) or type(function).__qualname__


def unwrapped(error: BaseException) -> BaseException:
    """The one exception in a group of one, as task groups make them."""
    if not isinstance(error, BaseExceptionGroup):
        return error
    group = cast("BaseExceptionGroup[BaseException]", error)
    return group if len(group.exceptions) > 1 else unwrapped(next(iter(group.exceptions)))


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
    began, is_over = monotonic(), False
    value: object = None
    try:
        # As `call`, which would be one more coroutine for each of the user's functions.
        made = partial(function, request)
        if timeout is None:
            value = await _begin(made)
        else:
            with anyio.CancelScope(deadline=anyio.current_time() + timeout):
                value = await _begin(made)
                is_over = True
            if not is_over:
                raise CallTimedOut(timeout)
        is_over = True
    except CallTimedOut as error:
        return Attempt(outcome="timed_out", error=error)
    except Exception as error:  # noqa: BLE001 - whatever the user's code raises
        return Attempt(outcome="failed", error=unwrapped(error))
    except BaseException as error:
        if not _is_cancellation(error):
            raise
        # Before others have their turn.
        request.is_cancelled = True
        await checkpoint()
        return Attempt(outcome="failed", error=error)
    finally:
        request.is_cancelled = request.is_cancelled or not is_over
    if anyio.current_effective_deadline() == -math.inf:
        # The callback was cancelled and went on to give an answer, which nobody waits for.
        request.is_cancelled = True
        await checkpoint()
    if timeout is not None and monotonic() - began > timeout:
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

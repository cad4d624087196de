"""Calls the user's functions with a timeout, and tells them which session and turn a call is for."""

from __future__ import annotations

import inspect
import math
from functools import partial
from time import monotonic
from typing import TYPE_CHECKING, Any, Final, TypeGuard, cast

import anyio
import msgspec
from anyio import CapacityLimiter
from anyio.lowlevel import checkpoint

from outrider._threads import run_sync

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine
    from typing import TypeAlias

    from outrider.handlers._router import Origin, Outcome
    from outrider.options._tool_names import ToolNames
    from outrider.session import Session, Turn

    Start: TypeAlias = Callable[..., Awaitable[object]]


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
        """Whether no one waits for the answer any more. Async functions are cancelled then; one that runs in
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
    """Call a user's function, async or not, and wait for what it gives.

    One that is not async runs in a thread, in a copy of this task's context, however many others do; when the
    call is cancelled it is left to itself. Raises `CallTimedOut` after `timeout` seconds, else what the
    function raises.
    """
    is_over = False
    result: object = None
    try:
        start = starter_of(partial(function, **keywords) if keywords else function)
        if timeout is None:
            result = await start(*arguments)
        else:
            with anyio.move_on_after(timeout):
                result = await start(*arguments)
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


def starter_of(function: Callable[..., object]) -> Start:
    """What starts a call of a function: the function itself if it is async, else one that calls it in a
    thread."""
    return cast("Start", function) if is_async(function) else partial(_call_in_thread, function)


async def _call_in_thread(function: Callable[..., object], /, *arguments: object) -> object:
    # A limiter of its own: others that block must not make this one wait.
    limiter = CapacityLimiter(1)
    (result,) = await run_sync(_called_here, function, arguments, abandon_on_cancel=True, limiter=limiter)
    return await cast("Awaitable[object]", result) if inspect.isawaitable(result) else result


def _called_here(function: Callable[..., object], arguments: tuple[object, ...]) -> tuple[object]:
    """Call it, in a thread. The result is wrapped: trio takes a bare coroutine for a mistake."""
    try:
        return (function(*arguments),)
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
    outcome: Outcome
    value: object = None
    """What the callback returned, if it did."""
    error: BaseException | None = None
    """What it raised, if it did."""


def attempt(
    function: Callable[..., object], request: CallContext, timeout: float | None = None
) -> Coroutine[Any, Any, Attempt]:
    """Call a callback with its request: see `attempt_call`."""
    return attempt_call(starter_of(function), (request,), request, timeout)


async def attempt_call(
    start: Start,
    arguments: tuple[object, ...],
    request: CallContext,
    timeout: float | None,
    origin: Origin | None = None,
) -> Attempt:
    """Call a callback, given what starts it, with these arguments. With an `origin` that asks for
    this call alone, its timeout is set there.

    Raises nothing but what is meant for others than this call: the cancellation of this task, and what ends
    programs (`KeyboardInterrupt`, `SystemExit`). A cancellation that comes out of the callback and was not
    meant for this task, as when something that it waited for was cancelled, is a failure like any other. So
    is an answer that comes too late, from a callback that would not be cancelled.
    """
    began, is_over = monotonic(), False
    value: object = None
    try:
        # As `call`, which would be one more coroutine for each of the user's functions.
        if timeout is None or (origin is not None and origin.limit(timeout)):
            value = await start(*arguments)
        else:
            with anyio.CancelScope(deadline=anyio.current_time() + timeout):
                value = await start(*arguments)
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
        if origin is not None and origin.is_cancelled and _is_late(timeout, began, origin):
            return Attempt(outcome="timed_out", error=CallTimedOut(timeout))
        await checkpoint()
        return Attempt(outcome="failed", error=error)
    finally:
        request.is_cancelled = request.is_cancelled or not is_over
    if _is_late(timeout, began, origin):
        request.is_cancelled = True
        return Attempt(outcome="timed_out", error=CallTimedOut(timeout))
    if anyio.current_effective_deadline() == -math.inf if origin is None else origin.is_cancelled:
        # The callback was cancelled and went on to give an answer, which no one waits for.
        request.is_cancelled = True
        await checkpoint()
    return Attempt(outcome="answered", value=value)


def _is_late(timeout: float | None, began: float, origin: Origin | None) -> TypeGuard[float]:
    if timeout is None:
        return False
    # By both clocks: that of the loop may be coarser, and then cancels a little early.
    return monotonic() - began >= timeout or (origin is not None and origin.is_late)


def outcome_of(error: BaseException) -> Outcome:
    """The outcome of a call that `attempt` left with this exception."""
    return "cancelled" if isinstance(error, GeneratorExit) or _is_cancellation(error) else "failed"


def _is_cancellation(error: BaseException) -> bool:
    """Whether it is a cancellation, or a group of cancellations and plain errors."""
    if isinstance(error, BaseExceptionGroup):
        group = cast("BaseExceptionGroup[BaseException]", error)
        return all(isinstance(each, Exception) or _is_cancellation(each) for each in group.exceptions)
    return isinstance(error, anyio.get_cancelled_exc_class())

"""How the user's functions are called, and what they are told about the call.

Does not know what a function is for, nor what its result means.
"""

from __future__ import annotations

import inspect
from functools import partial
from typing import TYPE_CHECKING, Any, Final, cast

import anyio
from anyio import CapacityLimiter

from outrider._threads import run_sync

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from outrider.handlers._origin import Origin
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
    finished = False
    result: object = None
    try:
        if timeout is None:
            result = await _called(function, arguments, keywords)
        else:
            with anyio.move_on_after(timeout) as scope:
                result = await _called(function, arguments, keywords)
                finished = True
            if scope.cancelled_caught and not finished:
                raise CallTimedOut(timeout)
        finished = True
        return result
    except StopIteration as error:
        # Python ends generators and coroutines with it; it must not end one of ours.
        raise RuntimeError(f"{name_of(function)} raised {error!r}") from error
    finally:
        if not finished and context is not None:
            context.is_cancelled = True


async def _called(
    function: Callable[..., object], arguments: tuple[object, ...], keywords: dict[str, object]
) -> object:
    if is_async(function):
        return await cast("Awaitable[object]", function(*arguments, **keywords))
    # A limiter of its own: others that block must not make this one wait.
    (result,) = await run_sync(
        _called_here,
        partial(function, *arguments, **keywords),
        abandon_on_cancel=True,
        limiter=CapacityLimiter(1),
    )
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

"""A function that is called when something happens in the agent, with all that was said about how: `Hook`.

Does not call it for the agent; that is in `_hooks`. The decorator that makes one is in `_hooks_decorator`.
"""

from __future__ import annotations

import inspect
import math
from functools import update_wrapper
from typing import TYPE_CHECKING, Any, Final, Generic, ParamSpec, TypeVar, cast, get_args

from outrider.errors import OptionsError
from outrider.handlers._calling import CallContext, is_async, name_of
from outrider.handlers._hooks_events import EVENTS, Fails, facts_of
from outrider.handlers._hooks_matchers import Matcher, read_matcher
from outrider.options._normal import NEW_EVENT
from outrider.options._readers import did_you_mean
from outrider.wire.hooks import HOOK_EVENTS

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from typing import TypeAlias

    from outrider.wire.hooks import HookInput

    Runs: TypeAlias = Callable[[HookInput, "HookContext"], object]

P = ParamSpec("P")
T = TypeVar("T")
R_co = TypeVar("R_co", covariant=True)

DEFAULT_TIMEOUT: Final = 60.0
"""Seconds; what a hook does holds the agent up."""


class HookContext(CallContext):
    """What a hook's function can know about the call beside the input: pass it as a second parameter."""


class Hook(Generic[P, R_co]):
    """A function with the event that it is called for. Made by `@outrider.hook`; it can be called as before.

    In a class it works as a method does: `Session(hooks=[checks.guard])`.
    """

    def __init__(
        self,
        function: Callable[P, R_co],
        event: str,
        *,
        matcher: Matcher = None,
        timeout: float | None = DEFAULT_TIMEOUT,
        fails: Fails | None = None,
        allow_unknown: bool = False,
        in_order: bool = True,
        may_wait_in_vain: bool = False,
    ) -> None:
        """Raises `OptionsError` for what cannot work."""
        if not callable(function):
            raise OptionsError(
                f"A hook must be a function, not {type(function).__name__}",
                hint='Write @outrider.hook("PreToolUse") above a function.',
            )
        if isinstance(function, Hook):
            # One of the two events would be forgotten.
            raise OptionsError(
                f"The hook {function.name} is for {function.event} already, and a hook has one event",
                hint="Give a plain function to each event: hooks={'PreToolUse': [guard], 'Stop': [guard]}.",
            )
        update_wrapper(self, cast("Callable[..., object]", function))
        self.function: Final = function
        self.allow_unknown: Final = allow_unknown
        """Whether the event, and what the matcher names, may be such that Outrider does not know it."""
        self.event: Final[str] = _read_event(event, allow_unknown=allow_unknown)
        self.matcher: Final[str | None] = read_matcher(
            matcher, event, allow_unknown=allow_unknown, as_it_is=may_wait_in_vain
        )
        """For what it is called, with names as they were given; None for all."""
        self.timeout: Final[float | None] = _read_timeout(timeout)
        """Seconds after which it has failed; None: never."""
        self.fails: Final[Fails] = _read_fails(fails, event)
        """What it stands for when it fails: `closed`, a refusal; `open`, no answer."""
        self.in_order: Final = in_order
        """Whether it waits for those before it, and is left out if one of them refuses."""
        self.may_wait_in_vain: Final = may_wait_in_vain
        """Whether nobody is told if its event does not come, or its matcher never matches."""

    @property
    def name(self) -> str:
        """The function's."""
        return name_of(self.function)

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R_co:
        return self.function(*args, **kwargs)

    def on(self, function: Callable[..., T]) -> Hook[..., T]:
        """The same for another function."""
        return Hook(
            function,
            self.event,
            matcher=self.matcher,
            timeout=self.timeout,
            fails=self.fails,
            allow_unknown=self.allow_unknown,
            in_order=self.in_order,
            may_wait_in_vain=self.may_wait_in_vain,
        )

    def __get__(self, instance: object, owner: type | None = None) -> Hook[..., R_co]:
        if instance is None:
            return self
        return self.on(cast("Any", self.function).__get__(instance, owner))

    def __reduce__(self) -> str:
        # By name, as functions are: it stands where its function did.
        return cast("str", getattr(self, "__qualname__", self.name))

    def __repr__(self) -> str:
        matcher = "" if self.matcher is None else f" {self.matcher!r}"
        return f"<Hook {self.name} for {self.event}{matcher}, fails {self.fails}>"


def runner_of(hook: Hook[..., object]) -> Runs:
    """The hook's function as one that takes the input and the context, whether it wants the latter or not.

    Raises `OptionsError` if it can take neither one nor both.
    """
    function = hook.function
    if _takes_context(hook):
        return function
    if is_async(function):

        async def run_async(told: HookInput, context: HookContext) -> object:
            return await cast("Awaitable[object]", function(told))

        return run_async

    def run(told: HookInput, context: HookContext) -> object:
        return function(told)

    return run


def _takes_context(hook: Hook[..., object]) -> bool:
    try:
        signature = inspect.signature(hook.function)
    except (TypeError, ValueError):
        # Some that are not written in Python do not tell.
        return False
    places = [each for each in signature.parameters.values() if each.kind in _POSITIONAL]
    wanted = [each for each in places if each.default is each.empty]
    named = len(places) > 1 and places[1].name in ("ctx", "context")
    for count in (2, 1) if len(wanted) == 2 or named else (1, 2):
        try:
            signature.bind(*[None] * count)
        except TypeError:
            continue
        return count == 2
    raise OptionsError(
        f"The hook {hook.name} cannot be called with what it would get: {hook.name}{signature}",
        hint="It gets the event's input and, as a second parameter if it has one, a HookContext.",
    )


_POSITIONAL: Final = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)


def _read_event(event: object, *, allow_unknown: bool) -> str:
    if not isinstance(event, str) or not event.strip():
        raise OptionsError(
            f"A hook needs the name of an event, not {event!r}",
            hint='Write @outrider.hook("PreToolUse") above the function.',
        )
    if event not in EVENTS and not allow_unknown:
        hint = f"{did_you_mean(event, HOOK_EVENTS)} {NEW_EVENT}".lstrip()
        raise OptionsError(f"No event is called {event!r}", hint=hint)
    return event


def _read_timeout(timeout: object) -> float | None:
    if timeout is None:
        return None
    if isinstance(timeout, bool) or not isinstance(timeout, int | float) or not 0 < timeout < math.inf:
        raise OptionsError(
            f"The timeout of a hook must be a number of seconds over 0, not {timeout!r}",
            hint="None stands for no limit.",
        )
    return float(timeout)


def _read_fails(fails: object, event: str) -> Fails:
    facts = facts_of(event)
    if fails is None:
        return facts.fails
    if fails not in get_args(Fails):
        raise OptionsError(f'`fails` must be "open" or "closed", not {fails!r}')
    if fails == "closed" and (facts.refusal is None or not facts.can_close):
        raise OptionsError(
            f"A {event} hook cannot fail closed: it cannot keep anything from happening",
            hint='Use fails="open", or an earlier event.',
        )
    return cast("Fails", fails)

"""Calls the hooks of a session in order, and applies the failure policy of each."""

from __future__ import annotations

import logging
import warnings
from time import perf_counter
from typing import TYPE_CHECKING, Final, TypeAlias, cast

import anyio
import msgspec
from anyio.lowlevel import checkpoint

from outrider.errors import Denied, OptionsError
from outrider.handlers._answers import deny
from outrider.handlers._calls import Attempt, CallTimedOut, attempt_call, outcome_of, starter_of
from outrider.handlers._hooks.events import NotAnAnswer, facts_of, read_answer, refused
from outrider.handlers._hooks.hook import Hook, HookContext, resolve_matcher, takes_context
from outrider.handlers._router import HookHandled
from outrider.handlers._tool_names import check_names, resolved_updates
from outrider.wire.hooks import HookRegistration

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence

    from outrider.handlers._calls import Start
    from outrider.handlers._router import Observe, Origin, Outcome
    from outrider.options._tool_names import ToolNames
    from outrider.wire import JsonObject
    from outrider.wire.control import HookCallback
    from outrider.wire.hooks import HookInput


log = logging.getLogger("outrider.session")

# The order of hooks.

_KEPT: Final = 100
"""How many occurrences are remembered whose last hook has not been heard of: it may be called yet, or not be
meant. One that is late by more than that many others sees the input as it was."""


class Line:
    """The hooks that are called for one occurrence of an event."""

    def __init__(self) -> None:
        self.places: Final[dict[int, anyio.Event]] = {}
        """By the hook's place in the order; set when it is through."""
        self.changes: Final[dict[str, object]] = {}
        """The fields of the input that hooks have changed."""
        self.is_over = False
        """Whether a hook has had the last word."""

    async def wait_turn(self, place: int) -> None:
        """Wait for the hooks before this one."""
        while (before := self._open_before(place)) is not None:
            await before.wait()

    def _open_before(self, place: int) -> anyio.Event | None:
        return next(
            (done for other, done in self.places.items() if other < place and not done.is_set()), None
        )

    @property
    def is_idle(self) -> bool:
        return all(done.is_set() for done in self.places.values())

    def as_left(self, hook_input: HookInput) -> HookInput:
        """The input, with what hooks have changed of it."""
        # One that could not be read has no such fields.
        changes = {name: self.changes[name] for name in self.changes if name in hook_input.__struct_fields__}
        return msgspec.structs.replace(hook_input, **changes) if changes else hook_input

    def take(self, event: str, wire: JsonObject) -> None:
        """Remember what a hook answered."""
        own: JsonObject = wire.get("hookSpecificOutput") or {}
        self.is_over = self.is_over or (
            wire.get("continue") is False
            or wire.get("decision") == "block"
            or own.get("permissionDecision") in ("deny", "defer")
            # Of a permission request the agent takes the first decision that it gets.
            or (event == "PermissionRequest" and "decision" in own)
        )
        for key, field in _FIELDS.get(event, {}).items():
            if key in own:
                self.changes[field] = own[key]


_FIELDS: Final[dict[str, dict[str, str]]] = {
    "PreToolUse": {"updatedInput": "tool_input"},
    "PostToolUse": {"updatedMCPToolOutput": "tool_response", "updatedToolOutput": "tool_response"},
    "MessageDisplay": {"displayContent": "delta"},
}
"""Which part of an answer changes which field of the input."""


class Lines:
    """The occurrences of an event that hooks are called for at present."""

    def __init__(self, last: int) -> None:
        self._last = last
        """The place of the last hook that there is."""
        self._lines: dict[str, Line] = {}

    def join(self, occurrence: str, place: int) -> Line:
        line = self._lines.get(occurrence)
        if line is None or place in line.places:
            # The pieces of a message all go by the same name.
            line = self._lines[occurrence] = Line()
        line.places[place] = anyio.Event()
        return line

    def leave(self, occurrence: str, place: int, line: Line) -> None:
        """Leave the line, and forget occurrences that are over."""
        line.places[place].set()
        if self._lines.get(occurrence) is not line:
            return
        matters = line.is_over or line.changes
        if line.is_idle and (self._last in line.places or not matters):
            del self._lines[occurrence]
        elif len(self._lines) > _KEPT:
            oldest = next((key for key, each in self._lines.items() if each.is_idle), None)
            if oldest is not None:
                del self._lines[oldest]


# Calls.

_GRACE: Final = 30.0
"""Seconds that the agent waits longer than we do, so that it is we who decide what a slow hook means. It is
for a host that is stopped or too busy to answer at all."""

_LONGEST: Final = 2_000_000.0
"""Seconds, for a hook without a limit: without one, the agent gives up after 600. The timers of JavaScript
end at 2**31 ms."""


class HookNeverCalledWarning(UserWarning):
    """A hook waits for an event that the agent does not deliver, or not in every case."""


class Registered(msgspec.Struct, frozen=True, kw_only=True):
    """A hook in its place."""

    id: str
    hook: Hook[..., object]
    start: Start
    takes_context: bool
    matcher: str | None
    """As sent."""
    place: int
    """Among the hooks of the same event."""
    lines: Lines | None
    """None for the only hook of an event."""
    about_tool: bool
    wire_timeout: float


Answered: TypeAlias = "tuple[JsonObject, Outcome, BaseException | None]"
"""The answer as sent, the outcome, and the error."""


class Hooks:
    """The hooks of one session.

    Those of an event are called one after the other, in the order in which they were given; which of them are
    meant, the agent decides by their matchers. Each gets the input as those before it have left it. The first
    that refuses has the last word, and with a permission request the first that decides: those after it are
    not called.
    """

    def __init__(
        self, hooks: Mapping[str, Sequence[object]], observe: Observe, names: Callable[[], ToolNames]
    ) -> None:
        """`names` gives those of the session's tools. Raises `OptionsError` for what cannot be a hook, and
        for a matcher that fits no tool; warns about one that never matches."""
        self._observe = observe
        self._names = names
        self._registered: Final[dict[str, Registered]] = {}
        known = names()
        for event, given in hooks.items():
            made = [as_hook(event, one) for one in given]
            for each in _in_order(event, made, len(self._registered), known):
                self._registered[each.id] = each
        for each in self._registered.values():
            check_names(each.hook.function, known)
            _warn_if_unseen(each.hook)

    def registrations(self) -> dict[str, list[HookRegistration]]:
        """The hooks as `initialize` registers them."""
        registrations: dict[str, list[HookRegistration]] = {}
        for each in self._registered.values():
            registration = HookRegistration(
                hook_callback_ids=[each.id],
                timeout=each.wire_timeout,
                # For what goes wrong on the way: the agent takes that for no answer otherwise.
                on_failure="block" if each.hook.fails == "closed" else None,
            )
            if each.matcher is not None:
                registration.matcher = each.matcher
            registrations.setdefault(each.hook.event, []).append(registration)
        return registrations

    def answer(self, ask: HookCallback, origin: Origin) -> Awaitable[JsonObject]:
        """The answer of the hook that is due, as sent. Raises `LookupError` for a hook that there is not. To
        wait for it raises nothing but cancellation and what ends programs."""
        began = perf_counter()
        registered = self._registered.get(ask.callback_id)
        if registered is None:
            raise LookupError(f"there is no hook {ask.callback_id!r}")
        if registered.lines is None:
            return self._call(registered, ask.input, ask, origin, began)
        return self._call_in_line(registered, registered.lines, ask, origin, began)

    async def _call_in_line(
        self, registered: Registered, lines: Lines, ask: HookCallback, origin: Origin, began: float
    ) -> JsonObject:
        occurrence, place = ask.tool_use_id or "", registered.place
        line = lines.join(occurrence, place)
        try:
            # The tasks of requests that came together may begin in any order. After this all are in line.
            await checkpoint()
            await line.wait_turn(place)
            if line.is_over:
                return {}
            wire = await self._call(registered, line.as_left(ask.input), ask, origin, began)
            line.take(registered.hook.event, wire)
            return wire
        finally:
            lines.leave(occurrence, place, line)

    async def _call(
        self, registered: Registered, hook_input: HookInput, ask: HookCallback, origin: Origin, began: float
    ) -> JsonObject:
        occurrence = ask.tool_use_id
        context = HookContext(origin, occurrence if registered.about_tool else None, occurrence)
        hook = registered.hook
        try:
            arguments = (hook_input, context) if registered.takes_context else (hook_input,)
            tried = await attempt_call(registered.start, arguments, context, hook.timeout, origin)
        except BaseException as error:
            self._report(hook, context, began, ({}, outcome_of(error), error))
            raise
        answered = _judged(tried, hook, hook_input, self._names)
        if bool(self._observe):  # it says whether anyone follows
            self._report(hook, context, began, answered)
        return answered[0]

    def _report(
        self, hook: Hook[..., object], context: HookContext, began: float, answered: Answered
    ) -> None:
        wire, outcome, error = answered
        self._observe(
            HookHandled(
                seconds=perf_counter() - began,
                outcome=outcome,
                error=error,
                tool_use_id=context.tool_use_id,
                event=hook.event,
                name=hook.name,
                answer=wire,
            )
        )


def as_hook(event: str, given: object) -> Hook[..., object]:
    """A hook for an event, from one or from a function. Raises `OptionsError` for anything else."""
    if isinstance(given, Hook):
        hook = cast("Hook[..., object]", given)
        if hook.event != event:
            raise OptionsError(
                f"The hook {hook.name} is for {hook.event}, and was given for {event}",
                hint=f"Put it into hooks[{hook.event!r}], or into a plain list of hooks.",
            )
        return hook
    if not callable(given) or isinstance(given, type):
        raise OptionsError(
            f"hooks[{event!r}] has something that is not a hook: {type(given).__name__}",
            hint='Give a function, or one with @outrider.hook("…") above it.',
        )
    return Hook(given, event)


def sent_matcher(hook: Hook[..., object], names: ToolNames) -> str | None:
    """What a hook is called for, as sent. Raises `OptionsError` if that is not a tool of the session."""
    if hook.matcher is None or not facts_of(hook.event).tool:
        return hook.matcher
    return resolve_matcher(f"the hook {hook.name}", hook.matcher, names, allow_unknown=hook.allow_unknown)


def _in_order(
    event: str, hooks: Sequence[Hook[..., object]], start: int, names: ToolNames
) -> Iterator[Registered]:
    lines = Lines(len(hooks) - 1) if len(hooks) > 1 else None
    about_tool = facts_of(event).tool
    before = 0.0
    for place, hook in enumerate(hooks):
        own = _LONGEST if hook.timeout is None else hook.timeout
        # Each may have to wait for all before it, and the agent counts from the start.
        seconds = min(_LONGEST, _GRACE + own + (before if hook.in_order else 0))
        before += own
        yield Registered(
            id=f"hook_{start + place}",
            hook=hook,
            start=starter_of(hook.function),
            takes_context=takes_context(hook),
            matcher=sent_matcher(hook, names),
            place=place,
            lines=lines if hook.in_order else None,
            about_tool=about_tool,
            wire_timeout=seconds,
        )


def _judged(
    tried: Attempt, hook: Hook[..., object], hook_input: HookInput, names: Callable[[], ToolNames]
) -> Answered:
    """What a call comes to: the answer that it gave, or what the hook's policy says."""
    value, error = tried.value, tried.error
    if isinstance(error, Denied):
        value, error = deny(error.reason, interrupt=error.interrupt), None
    if error is None:
        try:
            wire = read_answer(value, hook.event, hook_input, strict=hook.fails == "closed")
            if hook.event == "PermissionRequest":
                _resolve_updates(wire, hook_input, names)
            return wire, "answered", None
        except (NotAnAnswer, OptionsError) as nonsense:
            error = nonsense
    outcome: Outcome = "timed_out" if tried.outcome == "timed_out" else "failed"
    fails = hook.fails_late if outcome == "timed_out" else hook.fails
    log.error("the hook %s for %s failed %s", hook.name, hook.event, fails, exc_info=error)
    wire = refused(hook.event, _why(hook, error), hook_input) if fails == "closed" else {}
    return wire, outcome, error


def _resolve_updates(wire: JsonObject, hook_input: HookInput, names: Callable[[], ToolNames]) -> None:
    """Put the full names of tools into the permission rules that an answer brings."""
    match wire:
        case {"hookSpecificOutput": {"decision": {"updatedPermissions": [*updates]} as decision}}:
            suggested = getattr(hook_input, "permission_suggestions", None) or ()
            decision["updatedPermissions"] = resolved_updates(updates, suggested, names())
        case _:
            pass


def _why(hook: Hook[..., object], error: BaseException) -> str:
    """What the model is told about a failure: the rest is for the log."""
    if isinstance(error, CallTimedOut):
        return f"Not allowed: the hook {hook.name} gave no answer within {error.seconds:g} s."
    if isinstance(error, NotAnAnswer | OptionsError):
        return f"Not allowed: the hook {hook.name} gave an answer that means nothing."
    return f"Not allowed: the hook {hook.name} failed ({type(error).__name__})."


def _warn_if_unseen(hook: Hook[..., object]) -> None:
    unseen = facts_of(hook.event).unseen
    comes = hook.event == "SessionStart" and hook.matcher in _SEEN_SOURCES
    if not unseen or comes or hook.allow_undelivered:
        return
    warnings.warn(
        f"The hook {hook.name} waits for {hook.event}. {unseen}", HookNeverCalledWarning, stacklevel=2
    )


_SEEN_SOURCES: Final = ("clear", "compact", "clear|compact", "compact|clear")

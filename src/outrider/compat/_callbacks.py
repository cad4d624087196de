"""Adapts the reference SDK's callbacks to those that sessions call.

Hooks get dicts and return dicts; permission callbacks return `PermissionResultAllow` or
`PermissionResultDeny`. Does not answer the agent: `outrider.handlers` does.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, cast

from outrider.compat._types.hooks import HookMatcher
from outrider.compat._types.options import ToolPermissionContext
from outrider.handlers._calls import call, name_of, starter_of
from outrider.wire._tolerant import is_object
from outrider.wire.permissions import PermissionResultAllow, PermissionResultDeny

if TYPE_CHECKING:
    from collections.abc import Callable

    from outrider.compat.types import CanUseTool, HookCallback
    from outrider.handlers import Hook, HookContext, PermissionRequest
    from outrider.wire.hooks import HookInput

log = logging.getLogger("outrider.session")

_HOOK_SECONDS: Final = 600.0
"""The default timeout of hooks in Claude Code."""

_REFUSED_LATE: Final = frozenset(("PreToolUse", "UserPromptSubmit"))
"""Events whose hooks guard something: Claude Code refuses it if one takes longer than its timeout."""


def hooks_of(given: object) -> dict[str, list[Hook[..., object]]]:
    """The hooks of each event. Matching hooks run concurrently, each with the original input.

    Raises `TypeError` for an invalid hook.
    """
    if not given:
        return {}
    if not isinstance(given, Mapping):
        raise TypeError(f"hooks must be a dict of lists of HookMatcher by event, not {type(given).__name__}")
    return {
        str(event): [hook for matcher in _list_of(event, matchers) for hook in _each_of(str(event), matcher)]
        for event, matchers in cast("Mapping[object, object]", given).items()
        if matchers
    }


def has_to_block(given: Mapping[Any, Sequence[HookMatcher]] | None) -> bool:
    """Whether a hook must block when it fails."""
    matchers = [matcher for each in (given or {}).values() for matcher in each]
    return any(matcher.on_failure not in (None, "continue") for matcher in matchers)


def _each_of(event: str, matcher: object) -> list[Hook[..., object]]:
    if not isinstance(matcher, HookMatcher):
        raise TypeError(f"hooks[{event!r}] must hold HookMatcher objects, not {type(matcher).__name__}")
    return [_hook(event, matcher, callback) for callback in _list_of(event, matcher.hooks)]


def _hook(event: str, matcher: HookMatcher, callback: HookCallback) -> Hook[..., object]:
    # Here: most programs have none, and start sooner.
    from outrider.handlers import Hook

    hook = Hook(
        _calling(event, callback),
        event,
        matcher=matcher.matcher,
        timeout=_HOOK_SECONDS if matcher.timeout is None else matcher.timeout,
        fails="closed" if matcher.on_failure == "block" else "open",
        in_order=False,
        # The reference accepts any event and matcher without a warning.
        allow_unknown=True,
        allow_undelivered=True,
    )
    if event in _REFUSED_LATE:
        hook.fails_late = "closed"
    return hook


def _list_of(event: object, given: object) -> Sequence[Any]:
    if isinstance(given, list | tuple):
        return cast("list[Any]", given)
    raise TypeError(f"hooks[{event!r}] must be a list, not {type(given).__name__}")


def _calling(event: str, callback: HookCallback) -> Callable[..., object]:
    if not callable(callback):
        raise TypeError(f"hooks[{event!r}] must hold functions, not {type(callback).__name__}")

    start = starter_of(callback)

    async def hook(hook_input: HookInput, context: HookContext) -> object:
        return _for_event(event, await start(hook_input.raw, context.occurrence, {"signal": None}))

    hook.__name__ = hook.__qualname__ = name_of(callback)
    return hook


def _for_event(event: str, answer: object) -> object:
    """An answer under the name of its event. With another name it would be no answer, and a denial in it
    would be lost; Claude Code itself lets the call fail then."""
    own: object = answer.get("hookSpecificOutput") if is_object(answer) else None
    if not is_object(answer) or not is_object(own) or own.get("hookEventName", event) == event:
        return answer
    named = own["hookEventName"]
    log.warning("a hook for %s answers as one for %s, and is taken for the former", event, named)
    return {**answer, "hookSpecificOutput": {**own, "hookEventName": event}}


def decide_with(callback: object) -> Decide | None:
    """Adapt `can_use_tool`. Raises `TypeError` if it is not callable."""
    if callback is not None and not callable(callback):
        raise TypeError(f"can_use_tool must be a function, not {type(callback).__name__}")
    return None if callback is None else Decide(cast("CanUseTool", callback))


class Decide:
    """Adapts `can_use_tool` to the permission callback of a session."""

    warns_itself: Final = True
    """Warnings are worded as in the reference."""

    def __init__(self, callback: CanUseTool) -> None:
        self._callback = callback
        self.__qualname__ = name_of(callback)

    async def __call__(self, request: PermissionRequest) -> object:
        # Here: most programs have none, and start sooner.
        from outrider.handlers._permissions.requests import NotADecision, read_updates

        context = ToolPermissionContext(
            suggestions=[*request.suggestions],
            tool_use_id=request.tool_use_id,
            agent_id=request.agent_id,
            blocked_path=request.blocked_path,
            decision_reason=request.decision_reason,
            title=request.title,
            display_name=request.display_name,
            description=request.description,
        )
        try:
            answer = await call(self._callback, request.tool_name, request.tool_input, context)
            if not isinstance(answer, PermissionResultAllow | PermissionResultDeny):
                # Sessions accept True and dicts, which the reference rejects.
                wanted = "PermissionResult (PermissionResultAllow or PermissionResultDeny)"
                raise TypeError(f"Tool permission callback must return {wanted}, got {type(answer)}")
        except Exception as error:
            log.exception("%s failed to decide about %s: denied", self.__qualname__, request.tool_name)
            return PermissionResultDeny(message=f"Tool permission request failed: Error: {error}")
        if isinstance(answer, PermissionResultDeny):
            return answer
        updates = answer.updated_permissions
        try:
            read_updates(updates)
        except NotADecision as error:
            log.warning("%s allowed %s without its updates: %s", self.__qualname__, request.tool_name, error)
            updates = None
        # The callback may have changed the input in place.
        changed = request.tool_input if request.is_changed else None
        changed = changed if answer.updated_input is None else answer.updated_input
        return PermissionResultAllow(updated_input=changed, updated_permissions=updates)

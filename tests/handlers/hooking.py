"""Hooks without a session, for the tests of this folder.

Does not check anything.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from outrider.handlers import Hook, HookNeverCalledWarning
from outrider.handlers._hooks.dispatch import Hooks
from outrider.options._tool_names import ANY_TOOL
from outrider.wire import JsonObject
from outrider.wire.control import HookCallback
from outrider.wire.hooks import HookInput, hook_input_from_wire

TOLD: JsonObject = {
    "session_id": "s",
    "transcript_path": "/t",
    "cwd": "/c",
    "tool_name": "Bash",
    "tool_input": {"command": "ls", "timeout": 5},
    "tool_use_id": "toolu_1",
    "tool_response": {"stdout": "out", "stderr": ""},
    "delta": "Hello",
    "name": "tree",
    "stop_hook_active": False,
}


class Unlimited:
    """Somebody who asks, and sets no limit to the answer."""

    is_cancelled = False
    is_late = False

    def limit(self, seconds: float) -> bool:
        return False


class Asker(Unlimited):
    """A session and a turn, as far as hooks look at them."""

    session: Any = "the session"
    turn: Any = "the turn"
    tool_names = ANY_TOOL


def told(event: str, **fields: object) -> HookInput:
    """What the agent tells a hook, with something in every field."""
    return hook_input_from_wire(TOLD | {"hook_event_name": event} | fields)


def callback(event: str, id: str = "hook_0", occurrence: str = "toolu_1", **fields: object) -> HookCallback:
    return HookCallback(id, told(event, **fields), occurrence)


class Hooked:
    """Hooks, and what they reported."""

    def __init__(self, hooks: Mapping[str, Sequence[object]]) -> None:
        self.reports: list[Any] = []
        """Of `HookHandled`."""
        with warnings.catch_warnings():
            # Here all events come.
            warnings.simplefilter("ignore", HookNeverCalledWarning)
            self.hooks = Hooks(hooks, self.reports.append, lambda: ANY_TOOL)

    async def answer(self, event: str, place: int = 0, **fields: Any) -> JsonObject:
        """What the hook at this place of an event says."""
        ids = [each.hook_callback_ids[0] for each in self.hooks.registrations()[event]]
        return await self.hooks.answer(callback(event, ids[place], **fields), Asker())


async def answer_of(event: str, function: Callable[..., object], **how: Any) -> JsonObject:
    """What a hook of one function says."""
    return await Hooked({event: [Hook(function, event, **how)]}).answer(event)


def is_refusal(event: str, wire: JsonObject) -> bool:
    """Whether the agent takes an answer for a refusal, by what was seen of it."""
    own = wire.get("hookSpecificOutput", {})
    if event in ("PreToolUse", "PreModelSwitch"):
        return bool(own.get("permissionDecision") == "deny" and own.get("permissionDecisionReason"))
    if event == "PermissionRequest":
        decision = own.get("decision", {})
        return bool(decision.get("behavior") == "deny" and isinstance(decision.get("message"), str))
    return bool(wire.get("decision") == "block" and wire.get("reason"))

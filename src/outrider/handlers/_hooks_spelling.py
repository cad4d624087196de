"""Spells an `Answer` as each event has it on the wire, and refuses what the event cannot say.

Knows nothing of functions and sessions; what the events can say is in `_hooks_events`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, cast, get_args

import msgspec
from msgspec import UNSET

from outrider.errors import UsageError
from outrider.handlers._answers import Answer, Verdict
from outrider.handlers._hooks_events import facts_of
from outrider.wire import JsonObject
from outrider.wire.hooks import HookInput
from outrider.wire.permissions import PermissionResultAllow, PermissionResultDeny

if TYPE_CHECKING:
    from collections.abc import Iterator

    from outrider.handlers._hooks_events import Event

_PLAIN: Final = Answer()
_SAYABLE: Final = (None, *get_args(Verdict))
_NO_REASON: Final = "A hook of the host does not allow this, and gave no reason."


def spelled(answer: Answer, told: HookInput | str) -> JsonObject:
    """The answer as sent, for an event: its input, or its name where nothing of the input is needed.

    Raises `UsageError` for what the event cannot say.
    """
    event = told if isinstance(told, str) else told.hook_event_name
    facts = facts_of(event)
    verdict = answer.verdict
    for problem in _problems(answer, event, facts):
        raise UsageError(f"A {event} hook cannot {problem}", hint=_hint(event, facts))
    if verdict == "later":
        seconds = answer.timeout
        return {"async": True} | ({} if seconds is None else {"asyncTimeout": round(seconds * 1000)})
    wire: JsonObject = {} if answer.notice is None else {"systemMessage": answer.notice}
    own: JsonObject = {"hookEventName": event}
    if answer.context is not None:
        own["additionalContext"] = answer.context
    changed = _changed(answer, told, event, facts)
    if facts.refusal == "decision":
        own |= _decision(answer, changed)
    else:
        if changed is not UNSET:
            own[_key_of_change(told, facts)] = changed
        if facts.refusal == "permission":
            own |= _permission(answer)
        elif verdict in ("deny", "block"):
            wire |= {"decision": "block", "reason": answer.reason or _NO_REASON}
        if verdict == "stop" or (answer.interrupt and not facts.ends):
            wire |= {"continue": False} | ({"stopReason": answer.reason} if answer.reason else {})
    if len(own) > 1:
        wire["hookSpecificOutput"] = own
    return wire


def refused(event: str, reason: str, told: HookInput) -> JsonObject:
    """What a hook that fails closed says, as sent."""
    answer = Answer(verdict="deny", reason=reason)
    if event == "PostToolUse" or getattr(told, "stop_hook_active", False) is True:
        # The tool has run, and only the end of the turn keeps the model from its result. And to a model that
        # wants to stop a refusal means to go on, which must not be for ever.
        return {"decision": "block", "reason": reason, "continue": False, "stopReason": reason}
    return spelled(answer, event)


def _permission(answer: Answer) -> JsonObject:
    match answer.verdict:
        case "deny" | "block" | "stop":
            # A stop alone would still run the tool, and end the turn after it.
            return {"permissionDecision": "deny", "permissionDecisionReason": answer.reason or _NO_REASON}
        case "allow" | "ask" | "defer":
            why: JsonObject = {"permissionDecisionReason": answer.reason} if answer.reason else {}
            return {"permissionDecision": answer.verdict} | why
        case _:
            return {}


def _decision(answer: Answer, changed: object) -> JsonObject:
    match answer.verdict:
        case "allow":
            result: PermissionResultAllow | PermissionResultDeny = PermissionResultAllow(
                updated_input=None if changed is UNSET else cast("JsonObject", changed),
                updated_permissions=list(answer.updates) or None,
            )
        case "deny" | "block" | "stop":
            interrupt = answer.interrupt or answer.verdict == "stop"
            result = PermissionResultDeny(message=answer.reason or _NO_REASON, interrupt=interrupt)
        case _:
            return {}
    return {"decision": result.to_wire()}


def _changed(answer: Answer, told: HookInput | str, event: str, facts: Event) -> object:
    """What the changed field of the input is to be; UNSET if it stays."""
    if not answer.changes:
        return answer.value
    if isinstance(told, str):
        raise UsageError(
            f"The keys that a {event} hook changes need the rest of what it was told",
            hint="Give the input of the event in place of its name.",
        )
    before: object = getattr(told, facts.changes or "", None)
    if not isinstance(before, dict):
        raise UsageError(
            f"There are no keys to change in {type(before).__name__}", hint="Write modify(…) with all of it."
        )
    return cast("JsonObject", before) | answer.changes


def _key_of_change(told: HookInput | str, facts: Event) -> str:
    match facts.changes:
        case "tool_response":
            name: object = getattr(told, "tool_name", "")
            of_server = isinstance(name, str) and name.startswith("mcp__")
            return "updatedMCPToolOutput" if of_server else "updatedToolOutput"
        case "delta":
            return "displayContent"
        case _:
            return "updatedInput"


# What cannot be said.


def _problems(answer: Answer, event: str, facts: Event) -> Iterator[str]:
    match answer.verdict:
        case "allow" if facts.refusal is None:
            yield "allow anything: it only gets to know of it"
        case "deny" | "block" if facts.refusal is None:
            yield "keep it from happening: it only gets to know of it"
        case "ask" if not facts.asks:
            yield "have somebody asked"
        case "defer" if not facts.defers:
            yield "put anything off"
        case "stop" if not facts.stops:
            yield "end the turn"
        case "later" if msgspec.structs.replace(answer, verdict=None, timeout=None) != _PLAIN:
            yield "say anything else together with later()"
        case _:
            pass
    if answer.verdict not in _SAYABLE:
        yield f"say {answer.verdict!r}"
    if answer.interrupt and not facts.stops:
        yield "end the turn"
    if answer.context is not None and not facts.context:
        yield "tell the model anything"
    if answer.notice is not None and event == "WorktreeCreate":
        # The agent takes any text that it finds there for the path.
        yield "show the user anything"
    if answer.updates and (facts.refusal != "decision" or answer.verdict != "allow"):
        yield "change the permission settings: only allow() in a PermissionRequest hook can"
    if answer.changes or answer.value is not UNSET:
        if facts.changes is None:
            yield "change what it was told"
        elif facts.refusal == "decision" and answer.verdict != "allow":
            yield "change the input without an allow()"


def _hint(event: str, facts: Event) -> str:
    """What the event can say."""
    words = ["allow()", "deny(…)"] if facts.refusal else []
    words += ["ask()"] * facts.asks + ["defer()"] * facts.defers + ["stop()"] * facts.stops
    words += ["add_context(…)"] * facts.context
    words += ["modify(…)"] * (facts.changes is not None and facts.refusal != "decision")
    if event == "WorktreeCreate":
        words = ["the path of the worktree", "deny(…)"]
    return f"Return {', '.join([*words, 'None'])}."

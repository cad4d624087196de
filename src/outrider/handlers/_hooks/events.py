"""Describes each hook event, as observed with Claude Code, and encodes and validates the answers to it."""

from __future__ import annotations

import os
from functools import cache
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias, cast, get_args

import msgspec
from msgspec import UNSET

from outrider.errors import UsageError
from outrider.handlers._answers import Answer, Verdict
from outrider.redaction import preview_value
from outrider.wire import JsonObject, encode
from outrider.wire import hooks as wire_hooks
from outrider.wire._tolerant import is_object
from outrider.wire._value import PlainObject
from outrider.wire.choices import ASSISTANT_MESSAGE_ERRORS, EXIT_REASONS
from outrider.wire.hooks import (
    HOOK_EVENTS,
    AsyncHookOutput,
    HookInput,
    HookOutput,
    SpecificOutput,
    encode_output,
)
from outrider.wire.permissions import PermissionResultAllow, PermissionResultDeny

if TYPE_CHECKING:
    from collections.abc import Iterator


Refusal: TypeAlias = Literal["permission", "decision", "block"]
"""The form of a refusal: `permissionDecision`, the `decision` of a permission request, or `block`."""

Fails: TypeAlias = Literal["open", "closed"]
"""What the failure of a hook means: no answer, or a refusal."""


class Event(msgspec.Struct, frozen=True, kw_only=True):
    """What a hook can do about an event."""

    refusal: Refusal | None = None
    """How it prevents what is about to happen; None if it cannot."""
    stops: bool = False
    """Whether it can end the turn. False also for events that accept a stop and continue."""
    ends: bool = False
    """Whether a refusal ends the turn anyway. A refused prompt is dropped; after a stop it is kept, and the
    model gets it with the next one."""
    context: bool = False
    """Whether it can add to what the model sees."""
    changes: str | None = None
    """The field of the input that it can change."""
    asks: bool = False
    defers: bool = False
    matcher: bool = True
    """Whether a matcher has anything to look at; without, it is ignored."""
    tool: bool = False
    """Whether the event is about one tool call."""
    words: tuple[str, ...] = ()
    """Everything that a matcher may name, if that is known and not names of tools."""
    fails: Fails = "open"
    """What the failure of a hook means by default."""
    can_close: bool = True
    """Whether a refusal prevents anything."""
    unseen: str = ""
    """When the event is not delivered, if there is such a case."""


_NEVER: Final = "The agent has never been seen to deliver it to a hook in this process"

_COMPACTIONS: Final = ("manual", "auto")

_PROMPT: Final = Event(refusal="block", stops=True, ends=True, context=True, matcher=False, fails="closed")
_GATE: Final = Event(refusal="block", matcher=False)
_STOP: Final = Event(refusal="block", stops=True, context=True)
_CONTEXT: Final = Event(context=True)
_SEEN: Final = Event()

EVENTS: Final[dict[str, Event]] = {
    "PreToolUse": Event(
        refusal="permission",
        stops=True,
        context=True,
        changes="tool_input",
        asks=True,
        defers=True,
        tool=True,
        fails="closed",
    ),
    "PostToolUse": Event(refusal="block", stops=True, context=True, changes="tool_response", tool=True),
    "PostToolUseFailure": Event(refusal="block", context=True, tool=True, can_close=False),
    "PostToolBatch": msgspec.structs.replace(_STOP, ends=True, matcher=False),
    "Notification": Event(
        context=True,
        unseen=f"{_NEVER}.",
        words=(
            *("permission_prompt", "idle_prompt", "auth_success", "elicitation_dialog", "agent_needs_input"),
            *("agent_completed", "elicitation_url_dialog", "worker_permission_prompt", "push_notification"),
            *("computer_use_enter", "computer_use_exit", "quota_auto_resume_fired"),
            *("quota_auto_resume_stale", "quota_auto_resume_disabled", "model_refusal_fallback"),
            *("auth_storage_failure", "plugin_notification", "elicitation_complete", "elicitation_response"),
        ),
    ),
    "UserPromptSubmit": _PROMPT,
    "UserPromptExpansion": msgspec.structs.replace(_PROMPT, matcher=True),
    "SessionStart": Event(
        context=True,
        words=("startup", "resume", "clear", "compact", "fork"),
        unseen="The agent delivers it only for the sources 'clear' and 'compact', not for the start of a"
        " session, nor when one is resumed or forked.",
    ),
    "SessionEnd": Event(
        words=(*EXIT_REASONS, "bypass_permissions_disabled"),
        unseen="The agent delivers it only when the conversation is cleared or a signal ends the agent, not"
        " at the end of a session that is closed.",
    ),
    "Stop": msgspec.structs.replace(_STOP, matcher=False),
    "StopFailure": Event(words=ASSISTANT_MESSAGE_ERRORS),
    "SubagentStart": _CONTEXT,
    "SubagentStop": _STOP,
    "PreCompact": Event(refusal="block", words=_COMPACTIONS),
    "PostCompact": Event(words=_COMPACTIONS),
    "PreModelSwitch": Event(refusal="permission", asks=True, fails="closed"),
    "PostModelSwitch": _CONTEXT,
    "PermissionRequest": Event(
        refusal="decision", stops=True, changes="tool_input", tool=True, fails="closed"
    ),
    "PermissionDenied": Event(tool=True, unseen=f"{_NEVER}; it belongs to the permission mode 'auto'."),
    "Setup": Event(context=True, unseen=f"{_NEVER}.", words=("init", "maintenance")),
    "TeammateIdle": msgspec.structs.replace(_GATE, unseen=f"{_NEVER}; it belongs to teams of agents."),
    "TaskCreated": _GATE,
    "TaskCompleted": _GATE,
    "Elicitation": Event(refusal="block"),
    "ElicitationResult": Event(refusal="block"),
    "ConfigChange": Event(
        refusal="block",
        words=("user_settings", "project_settings", "local_settings", "policy_settings", "skills"),
    ),
    # Without a path from the hook the agent has no worktree: it fails closed by itself.
    "WorktreeCreate": msgspec.structs.replace(_GATE, fails="closed"),
    "WorktreeRemove": Event(matcher=False),
    "InstructionsLoaded": Event(
        words=("session_start", "nested_traversal", "path_glob_match", "include", "compact")
    ),
    "CwdChanged": Event(matcher=False, unseen=f"{_NEVER}, not even when a command changes the folder."),
    "FileChanged": _SEEN,
    "DirectoryAdded": _SEEN,
    "MessageDisplay": Event(matcher=False, changes="delta"),
}
"""Every event that has a class of its own."""

_UNKNOWN: Final = Event(refusal="block", stops=True, context=True)


def facts_of(event: str) -> Event:
    """The facts of an event. A new event of the agent may do anything."""
    return EVENTS.get(event, _UNKNOWN)


_PLAIN: Final = Answer()
_SAYABLE: Final = (None, *get_args(Verdict))
_NO_REASON: Final = "A hook of the host does not allow this, and gave no reason."


def encode_answer(answer: Answer, hook_input: HookInput | str) -> JsonObject:
    """The answer as sent, for an event: its input, or its name where nothing of the input is needed. Raises
    `UsageError` for what the event cannot say."""
    event = hook_input if isinstance(hook_input, str) else hook_input.hook_event_name
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
    changed = _changed(answer, hook_input, event, facts)
    if facts.refusal == "decision":
        own |= _decision(answer, changed)
    else:
        if changed is not UNSET:
            own[_key_of_change(hook_input, facts)] = changed
        if facts.refusal == "permission":
            own |= _permission(answer)
        elif verdict in ("deny", "block"):
            wire |= {"decision": "block", "reason": answer.reason or _NO_REASON}
        if verdict == "stop" or (answer.interrupt and not facts.ends):
            wire |= {"continue": False} | ({"stopReason": answer.reason} if answer.reason else {})
    if len(own) > 1:
        wire["hookSpecificOutput"] = own
    return wire


def refused(event: str, reason: str, hook_input: HookInput) -> JsonObject:
    """The answer of a hook that fails closed, as sent."""
    answer = Answer(verdict="deny", reason=reason)
    if event == "PostToolUse" or getattr(hook_input, "stop_hook_active", False) is True:
        # The tool has run, and only the end of the turn keeps its result from the model. A model that wants
        # to stop would continue after a refusal, which must not be for ever.
        return {"decision": "block", "reason": reason, "continue": False, "stopReason": reason}
    return encode_answer(answer, event)


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


def _changed(answer: Answer, hook_input: HookInput | str, event: str, facts: Event) -> object:
    """The new value of the changed field of the input; UNSET if it stays."""
    if not answer.changes:
        return answer.value
    if isinstance(hook_input, str):
        raise UsageError(
            f"The keys that a {event} hook changes need the rest of its input",
            hint="Give the input of the event in place of its name.",
        )
    before: object = getattr(hook_input, facts.changes or "", None)
    if not isinstance(before, dict):
        raise UsageError(
            f"There are no keys to change in {type(before).__name__}", hint="Write modify(…) with all of it."
        )
    return cast("JsonObject", before) | answer.changes


def _key_of_change(hook_input: HookInput | str, facts: Event) -> str:
    match facts.changes:
        case "tool_response":
            name: object = getattr(hook_input, "tool_name", "")
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
            yield "allow anything: it is only notified"
        case "deny" | "block" if facts.refusal is None:
            yield "prevent anything: it is only notified"
        case "ask" if not facts.asks:
            yield "ask anybody"
        case "defer" if not facts.defers:
            yield "defer anything"
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
        yield "add to what the model sees"
    if answer.notice is not None and event == "WorktreeCreate":
        # The agent would read the text as the path.
        yield "show the user anything"
    if answer.updates and (facts.refusal != "decision" or answer.verdict != "allow"):
        yield "change the permission settings: only allow() in a PermissionRequest hook can"
    if answer.changes or answer.value is not UNSET:
        if facts.changes is None:
            yield "change its input"
        elif facts.refusal == "decision" and answer.verdict != "allow":
            yield "change the input without an allow()"


def _hint(event: str, facts: Event) -> str:
    """The answers that the event accepts."""
    words = ["allow()", "deny(…)"] if facts.refusal else []
    words += ["ask()"] * facts.asks + ["defer()"] * facts.defers + ["stop()"] * facts.stops
    words += ["add_context(…)"] * facts.context
    words += ["modify(…)"] * (facts.changes is not None and facts.refusal != "decision")
    if event == "WorktreeCreate":
        words = ["the path of the worktree", "deny(…)"]
    return f"Return {', '.join([*words, 'None'])}."


# What a hook returned.


class NotAnAnswer(ValueError):
    """A hook returned something that is not an answer; the text says why."""


def read_answer(value: object, event: str, hook_input: HookInput, *, strict: bool) -> JsonObject:
    """The answer that a hook of an event returned, as sent; empty for none. `strict` also rejects keys that
    the agent does not know: a verdict with a typo would be no verdict. Raises `NotAnAnswer`."""
    if value is None:
        return PlainObject()
    if (plain := _plain_answer(value, event)) is not None:
        return plain
    wire = _encode(value, event, hook_input)
    # An `Answer` is valid, except for values of the user in it.
    if isinstance(value, Answer) and value.is_plain:
        return PlainObject(wire)
    if wire:
        _check(wire, event, strict=strict)
    return wire


_TEXT_OR_TRUTH: Final = frozenset((str, bool))


def _plain_answer(value: object, event: str) -> PlainObject | None:
    """A dict that can be sent as it is: nearly all answers are. None: it needs a closer look."""
    if type(value) is not dict:
        return None
    answer, own = PlainObject(cast("JsonObject", value)), None
    if type(answer.get("hookSpecificOutput")) is dict:
        # Copied: it is the hook's, and may change.
        own = answer["hookSpecificOutput"] = answer["hookSpecificOutput"].copy()
        if own.get("hookEventName") != event:
            return None
        for each in own.values():
            if type(each) not in _TEXT_OR_TRUTH:
                return None
    for each in answer.values():
        if type(each) not in _TEXT_OR_TRUTH and each is not own:
            return None
    if "async" in answer:
        # It has a form of its own.
        return None
    try:
        msgspec.convert(answer, _shape_of(event, strict=True))
    except ValueError:
        return None
    return answer


def _encode(value: object, event: str, hook_input: HookInput) -> JsonObject:
    try:
        if isinstance(value, Answer):
            return encode_answer(value, hook_input if hook_input.hook_event_name == event else event)
        if isinstance(value, SpecificOutput):
            value = HookOutput(hook_specific_output=value)
        if isinstance(value, HookOutput | AsyncHookOutput):
            return _completed(value.to_wire(), event)
    except Exception as error:
        raise NotAnAnswer(str(error)) from error
    if is_object(value):
        return _completed(encode_output(value), event)
    if event == "WorktreeCreate" and isinstance(value, str | os.PathLike):
        path = os.fspath(cast("str | os.PathLike[str]", value))
        return {"hookSpecificOutput": {"hookEventName": event, "worktreePath": path}}
    raise NotAnAnswer(
        f"{preview_value(value)} is not an answer: return None, allow(), deny('why') or the like, "
        "an output of `outrider.wire.hooks`, or the same as a dict"
    )


def _completed(wire: JsonObject, event: str) -> JsonObject:
    """Without nulls, for which the agent rejects the whole answer, and with the event's name."""
    wire = {key: item for key, item in wire.items() if item is not None}
    own: object = wire.get("hookSpecificOutput")
    if is_object(own):
        said = {key: item for key, item in own.items() if item is not None}
        wire["hookSpecificOutput"] = {"hookEventName": event} | said
    return wire


def _check(wire: JsonObject, event: str, *, strict: bool) -> None:
    # "Later" allows nothing else in the answer: the agent would ignore it.
    kind = _Later if wire.get("async") is True else _shape_of(event, strict=strict)
    try:
        msgspec.convert(wire, kind)
        own: JsonObject = wire.get("hookSpecificOutput") or {}
        unchecked = own.values() if strict else (*wire.values(), *own.values())
        if not all(each is own or isinstance(each, str | bool) for each in unchecked):
            # Its type shows that anything else is plain JSON.
            encode(wire)
    except Exception as error:
        # Also what objects of the user's raise, and texts that are not Unicode.
        raise NotAnAnswer(f"{preview_value(wire)} is not an answer to {event}: {error}") from error


# The schema of the answers to each event.


class _Later(msgspec.Struct, forbid_unknown_fields=True):
    is_async: bool = msgspec.field(name="async")
    async_timeout: int | float = msgspec.field(name="asyncTimeout", default=0)


class _Allowed(msgspec.Struct, tag_field="behavior", tag="allow", rename="camel", forbid_unknown_fields=True):
    updated_input: JsonObject = {}
    updated_permissions: list[JsonObject] = []
    decision_classification: str = ""
    tool_use_id: str = msgspec.field(default="", name="toolUseID")


class _Denied(msgspec.Struct, tag_field="behavior", tag="deny", rename="camel", forbid_unknown_fields=True):
    message: str
    interrupt: bool = False
    decision_classification: str = ""
    tool_use_id: str = msgspec.field(default="", name="toolUseID")


_CLOSED: Final[dict[str, object]] = {
    "permission_decision": Literal["allow", "deny", "ask", "defer"],
    "action": Literal["accept", "decline", "cancel"],
}
"""Fields that take a few words only: the agent rejects all others."""


@cache
def _shape_of(event: str, *, strict: bool) -> type:
    fields: list[Any] = [
        ("is_async", bool, msgspec.field(default=False, name="async")),
        ("continue_", bool, msgspec.field(default=True, name="continue")),
        ("suppress_output", bool, msgspec.field(default=False, name="suppressOutput")),
        ("stop_reason", str, msgspec.field(default="", name="stopReason")),
        ("decision", Literal["block", "approve"], "approve"),
        ("system_message", str, msgspec.field(default="", name="systemMessage")),
        ("reason", str, ""),
        ("terminal_sequence", str, msgspec.field(default="", name="terminalSequence")),
        ("own", _own_shape_of(event, strict), msgspec.field(default=None, name="hookSpecificOutput")),
    ]
    return msgspec.defstruct(f"{event}Answer", fields, forbid_unknown_fields=strict)


def _own_shape_of(event: str, strict: bool) -> object:
    """The type of the part of an answer that only this event has."""
    kind: type[SpecificOutput] | None = getattr(wire_hooks, f"{event}Output", None)
    if kind is None and event in HOOK_EVENTS:
        # The agent rejects an answer with a part that the event does not have.
        return type(None)
    fields: list[Any] = []
    if event == "PermissionRequest":
        fields = [("decision", _Allowed | _Denied)]
    elif kind is not None:
        fields = [
            (each.name, _CLOSED.get(each.name, each.type), msgspec.field(default=None, name=each.encode_name))
            for each in msgspec.structs.fields(kind)
        ]
    return msgspec.defstruct(
        f"{event}Own",
        fields,
        tag_field="hookEventName",
        tag=event,
        forbid_unknown_fields=strict and kind is not None,
    )

"""Describes each hook event, and encodes and validates the answers to it.

A description says what a hook can answer, what a matcher matches, and when the event occurs. All of it was
observed with Claude Code itself, not taken from its manual. `dispatch` calls the hooks.
"""

from __future__ import annotations

import os
from functools import cache
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias, cast, get_args

import msgspec
from msgspec import UNSET

from outrider.errors import OutriderError, UsageError
from outrider.handlers._answers import Answer, Verdict
from outrider.redaction import preview_value
from outrider.wire import JsonObject, encode
from outrider.wire import hooks as wire_hooks
from outrider.wire._tolerant import is_object
from outrider.wire.choices import ASSISTANT_MESSAGE_ERRORS
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
"""How a refusal is spelled: `permissionDecision`, the `decision` of a permission request, or `block`."""

Fails: TypeAlias = Literal["open", "closed"]
"""What a hook that fails stands for: no answer, or a refusal."""


class Event(msgspec.Struct, frozen=True, kw_only=True):
    """What a hook can do about an event."""

    refusal: Refusal | None = None
    """How it keeps the thing from happening; None if it cannot."""
    stops: bool = False
    """Whether it can end the turn. Some events take the words and go on all the same: those have False."""
    ends: bool = False
    """Whether a refusal ends the turn anyway. A prompt that was refused is gone; after a stop it is kept, and
    goes to the model with the next one."""
    context: bool = False
    """Whether it can tell the model something."""
    changes: str | None = None
    """The field of the input that it can change."""
    asks: bool = False
    defers: bool = False
    matcher: bool = True
    """Whether a matcher has anything to look at; without, it is ignored."""
    tool: bool = False
    """Whether the event is about one tool call."""
    words: tuple[str, ...] = ()
    """All that a matcher may name, if that is known, and not names of tools."""
    fails: Fails = "open"
    """What a hook that fails stands for, unless its user says otherwise."""
    can_close: bool = True
    """Whether a refusal holds anything back."""
    unseen: str = ""
    """When the event does not come, if there is such a case."""


_NEVER: Final = "The agent has never been seen to deliver it to a hook in this process"

_COMPACTIONS: Final = ("manual", "auto")

_PROMPT: Final = Event(refusal="block", stops=True, ends=True, context=True, matcher=False, fails="closed")
_GATE: Final = Event(refusal="block", matcher=False)
_STOP: Final = Event(refusal="block", stops=True, context=True)
_TOLD: Final = Event(context=True)
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
        words=("clear", "resume", "logout", "prompt_input_exit", "other", "bypass_permissions_disabled"),
        unseen="The agent delivers it only when the conversation is cleared or a signal ends the agent, not"
        " at the end of a session that is closed.",
    ),
    "Stop": msgspec.structs.replace(_STOP, matcher=False),
    "StopFailure": Event(words=ASSISTANT_MESSAGE_ERRORS),
    "SubagentStart": _TOLD,
    "SubagentStop": _STOP,
    "PreCompact": Event(refusal="block", words=_COMPACTIONS),
    "PostCompact": Event(words=_COMPACTIONS),
    "PreModelSwitch": Event(refusal="permission", asks=True, fails="closed"),
    "PostModelSwitch": _TOLD,
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
    """What is known of an event. One that the agent has learnt since is taken at its word."""
    return EVENTS.get(event, _UNKNOWN)


_PLAIN: Final = Answer()
_SAYABLE: Final = (None, *get_args(Verdict))
_NO_REASON: Final = "A hook of the host does not allow this, and gave no reason."


def encode_answer(answer: Answer, hook_input: HookInput | str) -> JsonObject:
    """The answer as sent, for an event: its input, or its name where nothing of the input is needed.

    Raises `UsageError` for what the event cannot say.
    """
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
    """What a hook that fails closed says, as sent."""
    answer = Answer(verdict="deny", reason=reason)
    if event == "PostToolUse" or getattr(hook_input, "stop_hook_active", False) is True:
        # The tool has run, and only the end of the turn keeps the model from its result. And to a model that
        # wants to stop a refusal means to go on, which must not be for ever.
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
    """What the changed field of the input is to be; UNSET if it stays."""
    if not answer.changes:
        return answer.value
    if isinstance(hook_input, str):
        raise UsageError(
            f"The keys that a {event} hook changes need the rest of what it was told",
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


# What a hook returned.


class NotAnAnswer(ValueError):
    """What a hook returned says nothing to the agent; the text says what is wrong with it."""


def read_answer(value: object, event: str, hook_input: HookInput, *, strict: bool) -> JsonObject:
    """What a hook of an event returned, as sent; empty if it says nothing.

    `strict` refuses keys that the agent does not know as well: a misspelled verdict would be no verdict.
    Raises `NotAnAnswer`.
    """
    if value is None:
        return {}
    wire = _encode(value, event, hook_input)
    # What `Answer` spells is right, but for what the user put into it.
    if wire and not (isinstance(value, Answer) and value.is_plain):
        _check(wire, event, strict=strict)
    return wire


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
    """Without nulls, which the agent refuses together with all around them, and with the event's name."""
    wire = {key: item for key, item in wire.items() if item is not None}
    own: object = wire.get("hookSpecificOutput")
    if is_object(own):
        said = {key: item for key, item in own.items() if item is not None}
        wire["hookSpecificOutput"] = {"hookEventName": event} | said
    return wire


def _check(wire: JsonObject, event: str, *, strict: bool) -> None:
    # "Later" goes with nothing else: whatever else it said would not count.
    kind = _Later if wire.get("async") is True else _shape_of(event, strict)
    try:
        msgspec.convert(wire, kind)
        own: JsonObject = wire.get("hookSpecificOutput") or {}
        unchecked = own.values() if strict else (*wire.values(), *own.values())
        if not all(each is own or isinstance(each, str | bool) for each in unchecked):
            # All else is plain by its type.
            encode(wire)
    except (msgspec.ValidationError, OutriderError, RecursionError, TypeError) as error:
        raise NotAnAnswer(f"{preview_value(wire)} is not an answer to {event}: {error}") from error


# How an answer has to look, for each event.


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
"""What has to be one of a few words: the agent refuses all others."""


@cache
def _shape_of(event: str, strict: bool) -> type:
    """What an answer to the event has to be like."""
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
    """What the part of an answer has to be like that only this event has."""
    kind: type[SpecificOutput] | None = getattr(wire_hooks, f"{event}Output", None)
    if kind is None and event in HOOK_EVENTS:
        # The agent refuses an answer with a part that the event does not have.
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

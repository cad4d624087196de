"""Reads what a hook's function returned, and writes it as the agent takes it.

Whatever the agent would not certainly understand is refused with `NotAnAnswer`: the agent treats an answer
that it cannot read as none. Does not call anybody.
"""

from __future__ import annotations

import os
from functools import cache
from typing import TYPE_CHECKING, Any, Final, Literal, TypeGuard, cast

import msgspec

from outrider.errors import OutriderError
from outrider.handlers._answers import Answer
from outrider.handlers._hooks_spelling import spelled
from outrider.redaction import preview_value
from outrider.wire import JsonObject, encode
from outrider.wire import hooks as wire_hooks
from outrider.wire.hooks import HOOK_EVENTS, AsyncHookOutput, HookOutput, SpecificOutput, spelled_for_wire

if TYPE_CHECKING:
    from outrider.wire.hooks import HookInput


class NotAnAnswer(ValueError):
    """What a hook returned says nothing to the agent; the text says what is wrong with it."""


def read_answer(value: object, event: str, told: HookInput, *, strict: bool) -> JsonObject:
    """What a hook of an event returned, as sent; empty if it says nothing.

    `strict` refuses keys that the agent does not know as well: a misspelled verdict would be no verdict.
    Raises `NotAnAnswer`.
    """
    if value is None:
        return {}
    wire = _spelled(value, event, told)
    # What `Answer` spells is right, but for what the user put into it.
    if wire and not (isinstance(value, Answer) and value.is_plain):
        _check(wire, event, strict=strict)
    return wire


def _spelled(value: object, event: str, told: HookInput) -> JsonObject:
    try:
        if isinstance(value, Answer):
            return spelled(value, told if told.hook_event_name == event else event)
        if isinstance(value, SpecificOutput):
            value = HookOutput(hook_specific_output=value)
        if isinstance(value, HookOutput | AsyncHookOutput):
            return _completed(value.to_wire(), event)
    except Exception as error:
        raise NotAnAnswer(str(error)) from error
    if _is_object(value):
        return _completed(spelled_for_wire(value), event)
    if event == "WorktreeCreate" and isinstance(value, str | os.PathLike):
        path = os.fspath(cast("str | os.PathLike[str]", value))
        return {"hookSpecificOutput": {"hookEventName": event, "worktreePath": path}}
    raise NotAnAnswer(
        f"{preview_value(value)} is no answer: return None, allow(), deny('why') or the like, "
        "an output of `outrider.wire.hooks`, or the same as a dict"
    )


def _completed(wire: JsonObject, event: str) -> JsonObject:
    """Without nulls, which the agent refuses together with all around them, and with the event's name."""
    wire = {key: item for key, item in wire.items() if item is not None}
    own: object = wire.get("hookSpecificOutput")
    if _is_object(own):
        said = {key: item for key, item in own.items() if item is not None}
        wire["hookSpecificOutput"] = {"hookEventName": event} | said
    return wire


def _check(wire: JsonObject, event: str, *, strict: bool) -> None:
    # "Later" goes with nothing else: whatever else it said would not count.
    kind = _Later if wire.get("async") is True else _shape_of(event, strict)
    try:
        msgspec.convert(wire, kind)
        own: JsonObject = wire.get("hookSpecificOutput") or {}
        if not strict or not all(isinstance(each, str) for each in own.values()):
            # All else is plain by its type.
            encode(wire)
    except (msgspec.ValidationError, OutriderError, RecursionError, TypeError) as error:
        raise NotAnAnswer(f"{preview_value(wire)} is no answer to {event}: {error}") from error


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


def _is_object(value: object) -> TypeGuard[JsonObject]:
    return isinstance(value, dict)

"""Reads what a permission callback returned, and encodes it for the agent.

Raises `NotADecision` for anything that is not clearly a decision. Does not call the callback: `requests`
does.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final, TypeGuard, cast

import msgspec

from outrider.errors import OutriderError
from outrider.handlers._answers import Answer
from outrider.redaction import preview_value
from outrider.wire import JsonObject, encode
from outrider.wire._encoding import to_wire
from outrider.wire.permissions import PermissionResultAllow, PermissionResultDeny, PermissionUpdate

if TYPE_CHECKING:
    from outrider.handlers._router import Outcome

NO_REASON: Final = "The host does not allow this, and gave no reason."
"""What the model is told by a denial without words."""

_ALLOW_KEYS: Final = frozenset(("updatedInput", "updatedPermissions"))
_DENY_KEYS: Final = frozenset(("message", "interrupt"))
_ANY_KEYS: Final = frozenset(("behavior", "toolUseID", "decisionClassification"))

_NEEDED: Final[Mapping[str, str]] = {
    "addRules": "rules",
    "replaceRules": "rules",
    "removeRules": "rules",
    "setMode": "mode",
    "addDirectories": "directories",
    "removeDirectories": "directories",
}
"""What each kind of update cannot do without."""


class NotADecision(ValueError):
    """What a callback returned decides nothing; the text says what is wrong with it."""


class Decision(msgspec.Struct, frozen=True, kw_only=True):
    """A permission request decided, as sent."""

    wire: JsonObject
    reason: str
    """Who decided and why, for those who watch; the model is told `wire["message"]` at the most."""
    outcome: Outcome = "answered"
    error: BaseException | None = None

    @property
    def is_allowed(self) -> bool:
        return bool(self.wire["behavior"] == "allow")


def allowed(input: JsonObject, reason: str, **more: object) -> Decision:
    """The tool may run, with this input."""
    return Decision(wire={"behavior": "allow", "updatedInput": input} | more, reason=reason)


def denied(
    message: str,
    reason: str,
    *,
    interrupt: bool = False,
    outcome: Outcome = "answered",
    error: BaseException | None = None,
) -> Decision:
    """The tool may not run, and the model is told this."""
    wire: JsonObject = {"behavior": "deny", "message": message}
    return Decision(
        wire=wire | {"interrupt": True} if interrupt else wire, reason=reason, outcome=outcome, error=error
    )


def read_decision(value: object, original: JsonObject, tool_use_id: str, who: str) -> Decision:
    """The decision that a callback returned about a call with the input `original`. `who` is the callback.

    Raises `NotADecision` for anything that is none beyond doubt.
    """
    if value is True:
        return allowed(original, f"{who} allowed it")
    if value is False:
        return denied(NO_REASON, f"{who} denied it")
    if isinstance(value, Answer):
        return _from_answer(value, original, who)
    if isinstance(value, PermissionResultAllow | PermissionResultDeny):
        try:
            value = value.to_wire()
        except Exception as error:
            raise NotADecision(f"{preview_value(value)} cannot be written as JSON: {error}") from error
    if _is_object(value):
        return _from_wire(value, original, tool_use_id, who)
    raise NotADecision(f"{preview_value(value)} is no decision: return allow() or deny('why')")


def _from_answer(answer: Answer, original: JsonObject, who: str) -> Decision:
    note = answer.notice if isinstance(answer.notice, str) else None
    if answer.verdict == "deny":
        return _denial(answer.reason, answer.interrupt, who, note)
    if answer.verdict != "allow":
        raise NotADecision(
            f"{answer.verdict or 'an answer without a verdict'} decides no permission: "
            "return allow() or deny('why')"
        )
    changed = original
    if answer.value is not msgspec.UNSET:
        changed = _input(answer.value)
    elif answer.changes:
        changed = original | _input(answer.changes)
    note = note or (answer.reason if isinstance(answer.reason, str) else None)
    more = {"updatedPermissions": updates} if (updates := _updates(answer.updates)) else {}
    return allowed(changed, _says(who, "allowed it", note), **more)


def _from_wire(value: JsonObject, original: JsonObject, tool_use_id: str, who: str) -> Decision:
    behavior = value.get("behavior")
    if behavior not in ("allow", "deny"):
        raise NotADecision(f"`behavior` must be 'allow' or 'deny', not {preview_value(behavior)}")
    # A misspelled `updatedInput` would let the call through as it was.
    if unknown := value.keys() - _ANY_KEYS - (_ALLOW_KEYS if behavior == "allow" else _DENY_KEYS):
        raise NotADecision(f"{sorted(map(str, unknown))} mean nothing with `behavior` {behavior!r}")
    if value.get("toolUseID") not in (None, tool_use_id):
        raise NotADecision("it decides about another tool call, by its `toolUseID`")
    classification = value.get("decisionClassification")
    if not isinstance(classification, str | None):
        raise NotADecision("`decisionClassification` must be a text")
    aside: JsonObject = {} if classification is None else {"decisionClassification": classification}
    if behavior == "deny":
        decision = _denial(value.get("message", ""), value.get("interrupt", False), who)
        return msgspec.structs.replace(decision, wire=decision.wire | aside)
    if updates := _updates(value.get("updatedPermissions")):
        aside["updatedPermissions"] = updates
    changed: object = value.get("updatedInput")
    return allowed(original if changed is None else _input(changed), f"{who} allowed it", **aside)


def _denial(message: object, interrupt: object, who: str, note: str | None = None) -> Decision:
    if not isinstance(message, str):
        raise NotADecision(f"a denial says why in a text, not in {preview_value(message)}")
    if not isinstance(interrupt, bool):
        raise NotADecision(f"`interrupt` must be True or False, not {preview_value(interrupt)}")
    said = message if message.strip() else NO_REASON
    return denied(said, _says(who, "denied it", note or message.strip()), interrupt=interrupt)


def _input(value: object) -> JsonObject:
    if not _is_object(value):
        raise NotADecision(f"the input of a tool must be a dict, not {preview_value(value)}")
    if not all(isinstance(key, str) for key in cast("dict[object, object]", value)):
        raise NotADecision("the names in the input of a tool must be texts")
    try:
        plain: JsonObject = to_wire(value)
        encode(plain)
    except (OutriderError, RecursionError) as error:
        raise NotADecision("the input of a tool must be something that JSON can say") from error
    return plain


def _updates(value: object) -> list[JsonObject]:
    if value is None:
        return []
    if not _is_sequence(value):
        raise NotADecision(f"updates must be a list, not {preview_value(value)}")
    return [_update(each) for each in value]


def _update(value: object) -> JsonObject:
    # One that the agent suggested goes back as it came, also if it is of a kind that is not known here.
    is_suggested = getattr(value, "_raw", None) is not None
    if isinstance(value, PermissionUpdate):
        try:
            value = value.to_dict()
        except Exception as error:
            raise NotADecision(f"{preview_value(value)} is no `PermissionUpdate`") from error
    if not _is_object(value):
        raise NotADecision(f"an update must be a `PermissionUpdate`, not {preview_value(value)}")
    try:
        plain = _input(value)
        update = msgspec.convert(plain, PermissionUpdate)
    except msgspec.ValidationError as error:
        raise NotADecision(f"{preview_value(value)} is no `PermissionUpdate`: {error}") from error
    if update.type not in _NEEDED:
        if is_suggested:
            return plain
        raise NotADecision(f"no update is of the type {update.type!r}")
    if getattr(update, _NEEDED[update.type]) is None:
        raise NotADecision(f"an update of the type {update.type!r} needs `{_NEEDED[update.type]}`")
    return plain


def _says(who: str, did: str, why: str | None) -> str:
    return f"{who} {did}: {why}" if why else f"{who} {did}"


def _is_object(value: object) -> TypeGuard[JsonObject]:
    return isinstance(value, dict)


def _is_sequence(value: object) -> TypeGuard[Sequence[object]]:
    return isinstance(value, Sequence) and not isinstance(cast(object, value), str | bytes)

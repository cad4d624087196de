"""Defines permission decisions, and the updates to permission rules that come with them.

The requests for a decision are in `outrider.wire.control`; `outrider.handlers` decides.
"""

from __future__ import annotations

from typing import Final, Literal, TypeAlias, cast

import msgspec

from outrider.wire._tolerant import convert_leniently, is_object
from outrider.wire._value import JsonObject, Received, Value
from outrider.wire.choices import (
    DecisionClassification,
    PermissionBehavior,
    PermissionMode,
    PermissionUpdateDestination,
    PermissionUpdateType,
)


class PermissionRuleValue(Value, rename="camel"):
    """A permission rule: a tool and, in the tool's own notation, which of its uses are meant."""

    tool_name: str
    rule_content: str | None = None
    """Such as `npm run *`; unset for every use of the tool."""


_RULES: Final = ("rules", "behavior")
UPDATE_KEYS: Final[dict[str, tuple[str, ...]]] = {
    "addRules": _RULES,
    "replaceRules": _RULES,
    "removeRules": _RULES,
    "setMode": ("mode",),
    "addDirectories": ("directories",),
    "removeDirectories": ("directories",),
}
"""What each type of update needs: Claude Code ignores all updates of an answer if one of them lacks it."""


class PermissionUpdate(Received):
    """A change to the permission settings; which of the fields count depends on its `type`."""

    type: PermissionUpdateType
    rules: list[PermissionRuleValue] | None = None
    """With `addRules`, `replaceRules` and `removeRules`."""
    behavior: PermissionBehavior | None = None
    """What the rules do."""
    mode: PermissionMode | None = None
    """With `setMode`."""
    directories: list[str] | None = None
    """With `addDirectories` and `removeDirectories`."""
    destination: PermissionUpdateDestination | None = None
    """Where the change is kept; `session`, as which none is sent, forgets it at the end."""

    @classmethod
    def from_dict(cls, data: JsonObject) -> PermissionUpdate:
        """Read an update as the agent suggests it; never raises, and `to_dict` gives the same object back."""
        return cls.from_wire(data)

    def to_dict(self) -> JsonObject:
        """The update as sent: only the keys that its type has, or all that are set if the type is unknown.

        An update that was received and not changed since is given back as it was, unknown keys included.
        """
        received: JsonObject | None = getattr(self, "_raw", None)
        if received is not None and self == convert_leniently(type(self), received):
            return dict(received)
        fields = super().to_wire()
        if self.type not in UPDATE_KEYS:
            return fields
        keys = ("type", "destination", *UPDATE_KEYS[self.type])
        fields.setdefault("destination", "session")
        return {key: fields[key] for key in keys if key in fields}

    def to_wire(self) -> JsonObject:
        """The same as `to_dict`."""
        return self.to_dict()


def permission_updates_from_wire(data: object) -> list[PermissionUpdate] | None:
    """Read a list of updates, without items that are not objects; None if there is no list."""
    if not isinstance(data, list):
        return None
    return [PermissionUpdate.from_dict(update) for update in cast(list[object], data) if is_object(update)]


class PermissionResultAllow(Value, rename="camel"):
    """The tool may run."""

    behavior: Literal["allow"] = "allow"
    updated_input: JsonObject | None = None
    """Runs the tool with this input instead: the whole of it, not only what changes."""
    updated_permissions: list[PermissionUpdate] | None = None
    """Changes to the settings, so that similar calls are not asked about again."""
    decision_classification: DecisionClassification | None = None
    """How a person decided, where one did."""
    tool_use_id: str | None = msgspec.field(default=None, name="toolUseID")
    """The tool call that this decides."""

    def to_wire(self, tool_use_id: str | None = None, original_input: JsonObject | None = None) -> JsonObject:
        """The answer as sent. `original_input` is repeated where the decision has no input of its own."""
        wire: JsonObject = {"behavior": "allow"}
        updated_input = original_input if self.updated_input is None else self.updated_input
        if updated_input is not None:
            wire["updatedInput"] = updated_input
        if self.updated_permissions is not None:
            wire["updatedPermissions"] = [update.to_dict() for update in self.updated_permissions]
        return wire | _answer_fields(tool_use_id or self.tool_use_id, self.decision_classification)


class PermissionResultDeny(Value, rename="camel"):
    """The tool may not run."""

    behavior: Literal["deny"] = "deny"
    message: str = ""
    """Shown to the model, unless the turn is interrupted."""
    interrupt: bool = False
    """End the turn as well."""
    decision_classification: DecisionClassification | None = None
    """How a person decided, where one did."""
    tool_use_id: str | None = msgspec.field(default=None, name="toolUseID")
    """The tool call that this decides."""

    def to_wire(self, tool_use_id: str | None = None, original_input: JsonObject | None = None) -> JsonObject:
        """The answer as sent; `original_input` is there for symmetry only."""
        # An answer without the key counts as invalid, so an empty message is sent too.
        wire: JsonObject = {"behavior": "deny", "message": self.message}
        if self.interrupt:
            wire["interrupt"] = True
        return wire | _answer_fields(tool_use_id or self.tool_use_id, self.decision_classification)


PermissionResult: TypeAlias = PermissionResultAllow | PermissionResultDeny
"""The answer to a permission request."""


def _answer_fields(tool_use_id: str | None, classification: str | None) -> JsonObject:
    fields = {"toolUseID": tool_use_id, "decisionClassification": classification}
    return {key: value for key, value in fields.items() if value is not None}


def permission_result_from_wire(data: JsonObject) -> PermissionResult | None:
    """Read an answer; None for one that the agent refuses as invalid. Never raises."""
    match data:
        case {"behavior": "allow"}:
            allow = convert_leniently(PermissionResultAllow, data)
            allow.updated_permissions = permission_updates_from_wire(data.get("updatedPermissions"))
            return allow
        case {"behavior": "deny", "message": str()}:
            return convert_leniently(PermissionResultDeny, data)
        case _:
            return None

"""Owns the values that a judgement about a call can have, and how they are told to the host.

Does not come to any.
"""

from __future__ import annotations

from typing import Self, TypeAlias

import msgspec

from outrider.wire import JsonObject

__all__ = ["Allow", "Ask", "Deny", "Judgement", "result_meta"]


class Allow(msgspec.Struct, frozen=True, kw_only=True):
    """The call may run."""

    reason_type: str | None = None


class Deny(msgspec.Struct, frozen=True, kw_only=True):
    """The call does not run, and nobody is asked."""

    message: str
    reason_type: str | None = None
    reason: str | None = None
    reason_code: str | None = None
    kind: str | None = "permission-rule"
    """`non_execution_kind` of the result."""
    detail: str = ""
    """`tool_use_result`; empty: the message, as an error."""
    is_silent: bool = False
    """No frame tells of it."""


class Ask(msgspec.Struct, frozen=True, kw_only=True):
    """Somebody has to say whether the call may run."""

    message: str
    """For the model, if there is nobody to ask."""
    reason: str | None = None
    reason_type: str | None = None
    rule_source: str | None = None
    suggestions: tuple[JsonObject, ...] | None = None
    """Unset: the program makes none; empty: it says that there are none."""
    blocked_path: str | None = None
    is_policy: bool | None = None
    """`server_policy_ask_only`."""
    is_approvable: bool = False
    is_interactive: bool = False
    """The tool is a question to the user itself."""
    is_forced: bool = False
    """Asked in every mode: by a rule, by a hook, or because the tool is a question."""
    hook_event: str | None = None

    @classmethod
    def by_rule(cls, name: str, source: str) -> Self:
        """A rule wants it."""
        return cls(
            message=f"Claude requested permissions to use {name}, but you haven't granted it yet.",
            reason_type="rule",
            rule_source=source,
            is_policy=False,
            is_forced=True,
        )

    @classmethod
    def by_hook(cls, event: str, reason: str) -> Self:
        """A hook wants it."""
        return cls(message=reason, reason=reason, reason_type="hook", hook_event=event, is_forced=True)

    def fields(self) -> JsonObject:
        """Those of `can_use_tool` that tell why it is asked."""
        made: JsonObject = {}
        if self.suggestions is not None:
            made["permission_suggestions"] = list(self.suggestions)
        if self.blocked_path is not None:
            made["blocked_path"] = self.blocked_path
        if self.reason is not None:
            made["decision_reason"] = self.reason
        if self.reason_type is not None:
            made["decision_reason_type"] = self.reason_type
        if self.hook_event is not None:
            made["decision_reason_hook_event"] = self.hook_event
            made["decision_reason_hook_source"] = "settings"
        if self.rule_source is not None:
            made["decision_reason_rule_source"] = self.rule_source
        if self.is_policy is not None:
            made["server_policy_ask_only"] = self.is_policy
        if self.is_approvable:
            made["classifier_approvable"] = True
        return made


Judgement: TypeAlias = Allow | Deny | Ask


def result_meta(
    call_id: str,
    decision: str | None,
    source: str = "",
    *,
    reason_type: str | None = None,
    kind: str | None = None,
) -> JsonObject:
    """The entry of `tool_result_meta` for a call. Without a decision, nobody came to one."""
    made: JsonObject = {"id": call_id}
    if kind is not None:
        made["non_execution_kind"] = kind
    if decision is not None:
        made["permission_decision"] = {"decision": decision, "source": source}
        if reason_type is not None:
            made["permission_decision"]["reason_type"] = reason_type
    return made

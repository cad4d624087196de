"""Defines `Answer`, what a hook or a permission callback decides, and the functions that make one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, TypeAlias

import msgspec
from msgspec import UNSET, UnsetType

from outrider.errors import UsageError
from outrider.wire import Json, JsonObject
from outrider.wire._tolerant import is_object
from outrider.wire.permissions import PermissionUpdate

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from outrider.wire.hooks import HookAnswer, HookInput

Verdict: TypeAlias = Literal["allow", "deny", "ask", "defer", "block", "stop", "later"]


_TEXTS = (str, type(None))


class Answer(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, repr_omit_defaults=True):
    """The decision of a hook or a permission callback, made by `allow`, `deny` and the like. Its `with_…`
    methods return a copy that says more."""

    verdict: Verdict | None = None
    """None: no decision, only the other fields count."""
    reason: str | None = None
    """Why. Who sees it depends on the event; with `deny` and `block` mostly the model."""
    value: Json | UnsetType = UNSET
    """Replaces what the callback was shown: the whole input of the tool, or its whole result."""
    changes: JsonObject = {}
    """Changes to what the callback was shown, key by key."""
    context: str | None = None
    """Added to what the model sees."""
    notice: str | None = None
    """Shown to the user, not to the model."""
    interrupt: bool = False
    """Whether a denial ends the turn as well."""
    updates: tuple[PermissionUpdate, ...] = ()
    """Changes to the permission settings, so that similar calls are not asked about again."""
    timeout: float | None = None
    """With `later`: how many seconds the work may still take."""

    @property
    def input(self) -> JsonObject | None:
        """The new input of the tool, if it is replaced as a whole."""
        return self.value if is_object(self.value) else None

    @property
    def is_plain(self) -> bool:
        """Whether everything in it can be written as JSON without a check."""
        return (
            self.value is UNSET
            and not (self.changes or self.updates or self.timeout)
            and type(self.reason) in _TEXTS
            and type(self.context) in _TEXTS
            and type(self.notice) in _TEXTS
        )

    def with_changes(self, value: Json | UnsetType = UNSET, /, **changes: Json) -> Answer:
        """A copy with another input or result: see `modify`."""
        if (value is UNSET) is (not changes):
            raise UsageError(
                "modify() takes either the whole new value, or the keys that change",
                hint="Write modify(command='ls') to change a key of the input, modify({…}) to replace it.",
            )
        return msgspec.structs.replace(self, value=value, changes=changes)

    def with_context(self, text: str) -> Answer:
        """A copy that also tells the model this."""
        return msgspec.structs.replace(self, context=joined(self.context, text))

    def with_notice(self, text: str) -> Answer:
        """A copy that also shows the user this."""
        return msgspec.structs.replace(self, notice=joined(self.notice, text))

    def for_event(self, hook_input: HookInput | str) -> HookAnswer:
        """The answer as sent for an event: its input or, where no input is needed, its name.

        Raises `UsageError` for an answer that the event does not have."""
        from outrider.handlers._hooks.events import encode_answer
        from outrider.wire.hooks import hook_output_from_wire

        return hook_output_from_wire(encode_answer(self, hook_input))


def allow(
    input: Mapping[str, Json] | None = None,
    *,
    updates: Iterable[PermissionUpdate] = (),
    reason: str | None = None,
    context: str | None = None,
    notice: str | None = None,
) -> Answer:
    """Allow it. `input` replaces the tool's whole input.

    `updates` change the permission settings, so that similar calls are not asked about again.
    """
    return Answer(
        verdict="allow",
        value=UNSET if input is None else dict(input),
        updates=tuple(updates),
        reason=reason,
        context=context,
        notice=notice,
    )


def deny(
    reason: str, *, interrupt: bool = False, context: str | None = None, notice: str | None = None
) -> Answer:
    """Deny it, and tell the model why. `interrupt` also ends the turn."""
    return Answer(verdict="deny", reason=reason, interrupt=interrupt, context=context, notice=notice)


class Postponed(Answer, frozen=True, kw_only=True):
    """A denial for now: a person was asked, and will decide. Sessions with approvals make it."""


def ask(reason: str | None = None, *, context: str | None = None, notice: str | None = None) -> Answer:
    """Ask for permission, even if none is needed. `reason` is shown to the person who decides."""
    return Answer(verdict="ask", reason=reason, context=context, notice=notice)


def defer() -> Answer:
    """End the turn with the tool call left open: the result has it as `deferred_tool_use`."""
    return Answer(verdict="defer")


def modify(value: Json | UnsetType = UNSET, /, **changes: Json) -> Answer:
    """Change what the hook was shown, without a decision.

    `modify(command="ls")` changes some keys, `modify({…})` replaces all of it: the input before a tool runs,
    its result afterwards, or the text of a message that is displayed.
    """
    return Answer().with_changes(value, **changes)


def add_context(text: str) -> Answer:
    """Tell the model something."""
    return Answer(context=text)


def notify(text: str) -> Answer:
    """Show the user something; the model does not see it."""
    return Answer(notice=text)


def block(reason: str, *, context: str | None = None, notice: str | None = None) -> Answer:
    """Block it, and say why. After a tool call, the model learns what is wrong with it; when the model wants
    to stop, it continues."""
    return Answer(verdict="block", reason=reason, context=context, notice=notice)


def stop(reason: str | None = None, *, notice: str | None = None) -> Answer:
    """End the turn. If what the hook was asked about can still be prevented, it is."""
    return Answer(verdict="stop", reason=reason, notice=notice)


def later(timeout: float | None = None) -> Answer:
    """Decide nothing: work continues in the background, for `timeout` seconds at most."""
    return Answer(verdict="later", timeout=timeout)


def joined(before: str | None, text: str | None) -> str | None:
    """Two texts as paragraphs of one."""
    return "\n".join(filter(None, (before, text))) or text

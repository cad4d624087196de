"""Defines `Answer`, what a hook or a permission callback decides, and the functions that make one.

`_hooks.events` encodes it for each event, `_permissions.decisions` for permission requests.
"""

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
    """What a hook or a permission callback decided, and what goes with it. A value; made by `allow`, `deny`
    and the like, and extended by its `with_…` methods."""

    verdict: Verdict | None = None
    """None decides nothing: only what goes with it counts."""
    reason: str | None = None
    """Why; whom it is shown to depends on the event. With `deny` and `block` mostly the model."""
    value: Json | UnsetType = UNSET
    """What to take in place of what the callback was shown: the whole input of the tool, or its whole
    result."""
    changes: JsonObject = {}
    """What to change of what the callback was shown, key by key."""
    context: str | None = None
    """Told to the model."""
    notice: str | None = None
    """Shown to the user, not to the model."""
    interrupt: bool = False
    """Whether a denial ends the turn as well."""
    updates: tuple[PermissionUpdate, ...] = ()
    """Settings to change from now on, so that the like is not asked again."""
    timeout: float | None = None
    """With `later`: seconds that it may still take."""

    @property
    def input(self) -> JsonObject | None:
        """The input of the tool as a whole, if it is to be another."""
        return self.value if is_object(self.value) else None

    @property
    def is_plain(self) -> bool:
        """Whether it holds nothing that might have no form in JSON."""
        texts = (self.reason, self.context, self.notice)
        rest = (self.changes, self.updates, self.timeout)
        return self.value is UNSET and not any(rest) and all(type(text) in _TEXTS for text in texts)

    def with_changes(self, value: Json | UnsetType = UNSET, /, **changes: Json) -> Answer:
        """The same, with another input or result: see `modify`."""
        if (value is UNSET) is (not changes):
            raise UsageError(
                "modify() takes either the whole new value, or the keys that change",
                hint="Write modify(command='ls') to change a key of the input, modify({…}) to replace it.",
            )
        return msgspec.structs.replace(self, value=value, changes=changes)

    def with_context(self, text: str) -> Answer:
        """The same, and the model is told this."""
        return msgspec.structs.replace(self, context=joined(self.context, text))

    def with_notice(self, text: str) -> Answer:
        """The same, and the user is shown this."""
        return msgspec.structs.replace(self, notice=joined(self.notice, text))

    def for_event(self, hook_input: HookInput | str) -> HookAnswer:
        """The answer as the event has it, for the input that the hook got, or for the name of the event where
        nothing of the input is needed. Raises `UsageError` for what the event cannot say."""
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
    """Let it happen; with `input` in place of the tool's whole input, if given.

    `updates` change the permission settings, so that the like is not asked again.
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
    """Do not let it happen; the model is told why. `interrupt` ends the turn as well."""
    return Answer(verdict="deny", reason=reason, interrupt=interrupt, context=context, notice=notice)


def ask(reason: str | None = None, *, context: str | None = None, notice: str | None = None) -> Answer:
    """Ask for permission, even where none would be needed. `reason` is shown to the one who decides."""
    return Answer(verdict="ask", reason=reason, context=context, notice=notice)


def defer() -> Answer:
    """End the turn with the tool call left open: the result has it as `deferred_tool_use`."""
    return Answer(verdict="defer")


def modify(value: Json | UnsetType = UNSET, /, **changes: Json) -> Answer:
    """Change what the hook was shown, and decide nothing else.

    `modify(command="ls")` changes keys of it and keeps the others, `modify({…})` replaces it as a whole:
    before a tool runs its input, afterwards its result, of a message the text that is displayed.
    """
    return Answer().with_changes(value, **changes)


def add_context(text: str) -> Answer:
    """Tell the model something."""
    return Answer(context=text)


def notify(text: str) -> Answer:
    """Show the user something; the model does not see it."""
    return Answer(notice=text)


def block(reason: str, *, context: str | None = None, notice: str | None = None) -> Answer:
    """Stop what is under way, and tell why. After a tool call: tell the model what is wrong with it. When the
    model wants to stop: make it go on."""
    return Answer(verdict="block", reason=reason, context=context, notice=notice)


def stop(reason: str | None = None, *, notice: str | None = None) -> Answer:
    """End the turn. What the hook was asked about does not happen either, if it can still be kept from it."""
    return Answer(verdict="stop", reason=reason, notice=notice)


def later(timeout: float | None = None) -> Answer:
    """Decide nothing, and let the agent know that work goes on beside it, for `timeout` seconds at most."""
    return Answer(verdict="later", timeout=timeout)


def joined(before: str | None, text: str | None) -> str | None:
    """Two texts as paragraphs of one."""
    return "\n".join(filter(None, (before, text))) or text

"""Owns what is decided about a call of a tool, as the values that the core acts on.

Does not decide.
"""

from __future__ import annotations

import msgspec

from outrider.wire import JsonObject

__all__ = ["Allowed", "Denied", "ModeRefused"]


class ModeRefused(ValueError):
    """The mode cannot be had. The text is the program's."""

    def __init__(self, text: str, code: str) -> None:
        super().__init__(text)
        self.code = code


class Allowed(msgspec.Struct, frozen=True, kw_only=True):
    """The call may run."""

    input: JsonObject
    """What the tool is given: perhaps changed by a hook or by the host."""
    source: str
    """Who said so, for `tool_result_meta`."""
    meta: JsonObject | None = None
    """The entry of `tool_result_meta` for the call; none if the program writes none."""
    stop_reason: str | None = None
    """Set when a hook wants the turn to end after the call."""
    additional_context: tuple[str, ...] = ()
    notices: tuple[JsonObject, ...] = ()
    """Frames to be written right before the tool's result."""
    reminders: tuple[str, ...] = ()
    """What the model is told of the hooks' answers with its next request."""


class Denied(msgspec.Struct, frozen=True, kw_only=True):
    """The call does not run."""

    message: str
    """For the model, as the text of the tool's result."""
    source: str
    interrupt: bool = False
    """The turn ends with it."""
    was_asked: bool = False
    """The host was asked."""
    deferred: bool = False
    """A hook put the call off: the turn ends, and the call has no result."""
    meta: JsonObject | None = None
    """The entry of `tool_result_meta` for the call; none if the program writes none."""
    stop_reason: str | None = None
    """Set when a hook wants the turn to end after the call."""
    detail: str = ""
    """`tool_use_result` of the frame."""
    additional_context: tuple[str, ...] = ()
    notices: tuple[JsonObject, ...] = ()
    """Frames to be written right before the tool's result."""
    reminders: tuple[str, ...] = ()
    """What the model is told of the hooks' answers with its next request."""

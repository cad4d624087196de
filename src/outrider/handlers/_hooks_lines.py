"""Keeps the hooks of an event in the order in which they were given, each with what those before it left.

The agent calls all that match at the same time, in that order, and takes of two changes the one that it gets
last. Does not call hooks, and knows no answers but for what a later hook has to know of them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import anyio
import msgspec

if TYPE_CHECKING:
    from outrider.wire import JsonObject
    from outrider.wire.hooks import HookInput

_KEPT: Final = 100
"""How many occurrences are remembered whose last hook has not been heard of: it may be called yet, or not be
meant. One that is late by more than that many others sees the input as it was."""


class Line:
    """The hooks that are called for one occurrence of an event."""

    def __init__(self) -> None:
        self.places: Final[dict[int, anyio.Event]] = {}
        """By the hook's place in the order; set when it is through."""
        self.changes: Final[dict[str, object]] = {}
        """The fields of the input that hooks have changed."""
        self.is_over = False
        """Whether a hook has had the last word."""

    async def wait_turn(self, place: int) -> None:
        """Wait for those before."""
        while (before := self._open_before(place)) is not None:
            await before.wait()

    def _open_before(self, place: int) -> anyio.Event | None:
        return next(
            (done for other, done in self.places.items() if other < place and not done.is_set()), None
        )

    @property
    def is_idle(self) -> bool:
        return all(done.is_set() for done in self.places.values())

    def as_left(self, told: HookInput) -> HookInput:
        """The input, with what hooks have changed of it."""
        # One that could not be read has no such fields.
        changes = {name: self.changes[name] for name in self.changes if name in told.__struct_fields__}
        return msgspec.structs.replace(told, **changes) if changes else told

    def take(self, event: str, wire: JsonObject) -> None:
        """Remember what a hook answered."""
        own: JsonObject = wire.get("hookSpecificOutput") or {}
        self.is_over = self.is_over or (
            wire.get("continue") is False
            or wire.get("decision") == "block"
            or own.get("permissionDecision") in ("deny", "defer")
            # Of a permission request the agent takes the first decision that it gets.
            or (event == "PermissionRequest" and "decision" in own)
        )
        for key, field in _FIELDS.get(event, {}).items():
            if key in own:
                self.changes[field] = own[key]


_FIELDS: Final[dict[str, dict[str, str]]] = {
    "PreToolUse": {"updatedInput": "tool_input"},
    "PostToolUse": {"updatedMCPToolOutput": "tool_response", "updatedToolOutput": "tool_response"},
    "MessageDisplay": {"displayContent": "delta"},
}
"""Which part of an answer changes which field of the input."""


class Lines:
    """The occurrences of an event that hooks are called for at present."""

    def __init__(self, last: int) -> None:
        self._last = last
        """The place of the last hook that there is."""
        self._lines: dict[str, Line] = {}

    def join(self, occurrence: str, place: int) -> Line:
        """Take one's place in the line for an occurrence."""
        line = self._lines.get(occurrence)
        if line is None or place in line.places:
            # The pieces of a message all go by the same name.
            line = self._lines[occurrence] = Line()
        line.places[place] = anyio.Event()
        return line

    def leave(self, occurrence: str, place: int, line: Line) -> None:
        """One is through; forget what nobody can ask for any more."""
        line.places[place].set()
        if self._lines.get(occurrence) is not line:
            return
        matters = line.is_over or line.changes
        if line.is_idle and (self._last in line.places or not matters):
            del self._lines[occurrence]
        elif len(self._lines) > _KEPT:
            oldest = next((key for key, each in self._lines.items() if each.is_idle), None)
            if oldest is not None:
                del self._lines[oldest]

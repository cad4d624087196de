"""What all system messages have in common.

The subtypes are in `_system` and `_system_tasks`.
"""

from __future__ import annotations

from typing import ClassVar, Literal

from outrider.wire._value import Frame, JsonObject


class SystemMessage(Frame):
    """News from the agent itself. Each known subtype is a class of its own."""

    type: ClassVar[Literal["system"]] = "system"

    subtype: str
    data: JsonObject
    """The whole frame as sent, keys as the agent spells them."""

    inferred: ClassVar[frozenset[str]] = frozenset()
    """Fields that never travel under their own name."""

    @classmethod
    def derive(cls, data: JsonObject) -> JsonObject:
        """Fields that are not in the frame under their own name, but follow from it."""
        return {}

"""The base of values that arrive inside a frame and keep the object they were read from: `Received`.

Knows no particular value, and nothing of lines: what arrives as a line of its own is a `Frame`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

import msgspec

from outrider.wire._tolerant import convert_leniently
from outrider.wire._value import JsonObject, Value

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Self


class _Source:
    """Adds a place for the object that a value was read from; it takes no part in `==` and `repr`."""

    __slots__ = ("_raw",)

    if TYPE_CHECKING:
        _raw: JsonObject


class Received(_Source, Value):
    """A value read from a JSON object inside a frame. `raw` is that object, with all that no field names."""

    @classmethod
    def from_wire(cls, data: JsonObject) -> Self:
        """Read an object; never raises. What is missing or mistyped takes its default or an empty value."""
        value = convert_leniently(cls, data)
        value._raw = data
        return value

    @property
    def raw(self) -> JsonObject:
        """The object as received, not a copy of it; for a value made by hand, its wire form."""
        try:
            return self._raw
        except AttributeError:
            return self.to_wire()

    def to_wire(self) -> JsonObject:
        """The fields as a JSON object, keys as the agent spells them."""
        return cast(JsonObject, msgspec.to_builtins(self))

    def __copy__(self) -> Self:
        return self._rebuilt(self._values(), getattr(self, "_raw", None))

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        return self._rebuilt, (self._values(), getattr(self, "_raw", None))

    def _values(self) -> dict[str, object]:
        return {name: getattr(self, name) for name in self.__struct_fields__}

    @classmethod
    def _rebuilt(cls, values: dict[str, object], raw: JsonObject | None) -> Self:
        value = cls(**values)
        if raw is not None:
            value._raw = raw
        return value

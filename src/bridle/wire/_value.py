"""The bases of all wire values: `Value` for any of them, `Frame` for what arrives as a line of its own.

Does not know any particular message; the codec fills in the line a frame came from.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias

import msgspec

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Self

Json: TypeAlias = str | int | float | bool | list[Any] | dict[str, Any] | None
"""A JSON value. What is inside lists and objects is not typed further."""

JsonObject: TypeAlias = dict[str, Any]
"""A JSON object whose keys the program is free to choose."""


Number: TypeAlias = int | float
"""A JSON number: whole numbers stay whole."""


class Value(msgspec.Struct, omit_defaults=True, repr_omit_defaults=True, gc=False):
    """A typed JSON object: positional or keyword construction, `==`, `match`, a `repr` without defaults.

    Left-out fields stay out of the encoded form. Values hold data, never a reference back to what holds
    them, so the garbage collector need not track them (`gc=False`); that keeps long histories cheap.
    """


class Line:
    """Adds a place for the bytes that a frame was decoded from; they take no part in `==` and `repr`."""

    __slots__ = ("wire_line",)

    if TYPE_CHECKING:
        wire_line: bytes
        """Set by the codec; absent from what was made by hand."""


class Frame(Line, Value):
    """A value that travels as one line. `raw` and `raw_json` are that line, with all that no field names."""

    @property
    def raw_json(self) -> bytes:
        """The line as it was sent, or the frame encoded if it was made by hand."""
        try:
            return self.wire_line.strip()
        except AttributeError:
            from bridle.wire._encoding import encode

            return encode(self)

    @property
    def raw(self) -> JsonObject:
        """The frame as sent, decoded anew at each use: changing it changes nothing else."""
        from bridle.wire._decoding import decode_object

        return decode_object(self.raw_json)

    def __copy__(self) -> Self:
        return self._with_line(msgspec.structs.replace(self))

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        values = tuple(getattr(self, name) for name in self.__struct_fields__)
        return _rebuild, (type(self), values, getattr(self, "wire_line", None))

    def _with_line(self, other: Self) -> Self:
        """Give `other` the line of this frame, if there is one."""
        if (line := getattr(self, "wire_line", None)) is not None:
            other.wire_line = line
        return other


def _rebuild(kind: type[Frame], values: tuple[Any, ...], line: bytes | None) -> Frame:
    frame = kind(**dict(zip(kind.__struct_fields__, values, strict=True)))
    if line is not None:
        frame.wire_line = line
    return frame

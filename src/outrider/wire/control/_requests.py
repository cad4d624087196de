"""What all requests to the agent have in common: their name on the wire, their fields, the answer they get.

The requests themselves are in the `_requests_*` modules, the way from a JSON object to one of them in
`_request_table`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypeVar, cast

import msgspec

from outrider.wire._value import JsonObject, Value
from outrider.wire.control._answers import Acknowledged

if TYPE_CHECKING:
    from typing import Self

R = TypeVar("R")


class Request(Value, Generic[R], tag_field="subtype"):
    """A question to the agent. `answer` is the class that its success payload is read into.

    Fields that may be None are left out when they are. Where the agent tells null from absent, the default
    is `msgspec.UNSET`, which is left out, and None is sent as null.
    """

    answer: ClassVar[type[Any]] = Acknowledged

    @property
    def subtype(self) -> str:
        """The name of the request on the wire."""
        return cast(str, self.__struct_config__.tag)

    def to_wire(self) -> JsonObject:
        """The `request` object of a control request, made of plain JSON types."""
        return cast(JsonObject, msgspec.to_builtins(self))

    @classmethod
    def from_wire(cls, data: JsonObject) -> Self:
        """Read a `request` object of this subtype. Raises `msgspec.ValidationError` if it does not fit."""
        return msgspec.convert(data, cls)

    def read_answer(self, payload: object) -> R:
        """Type the success payload; never raises. What is missing or mistyped takes its default."""
        return cast(R, self.answer.from_wire(payload))


class OpenRequest(Request[R], Generic[R]):
    """A request whose fields are published nowhere: `fields` are sent beside `subtype` as they are."""

    fields: JsonObject = {}

    def to_wire(self) -> JsonObject:
        return {"subtype": self.subtype, **self.fields}

    @classmethod
    def from_wire(cls, data: JsonObject) -> Self:
        return cls({key: value for key, value in data.items() if key != "subtype"})


class GenericRequest(Request[JsonObject], tag=False):
    """A request that has no class of its own (yet); its answer stays a dict."""

    answer: ClassVar[type[Any]] = dict

    # A field of the same name: a stored text may stand in for a computed one.
    subtype: str  # pyright: ignore[reportIncompatibleMethodOverride]
    fields: JsonObject = {}
    """Sent beside `subtype` as they are."""

    def to_wire(self) -> JsonObject:
        return {"subtype": self.subtype, **self.fields}

    @classmethod
    def from_wire(cls, data: JsonObject) -> Self:
        """Any object will do; a subtype that is no text stays among the fields."""
        subtype = data.get("subtype")
        if isinstance(subtype, str):
            return cls(subtype, {key: value for key, value in data.items() if key != "subtype"})
        return cls("", dict(data))

    def read_answer(self, payload: object) -> JsonObject:
        return cast(JsonObject, payload) if isinstance(payload, dict) else {}

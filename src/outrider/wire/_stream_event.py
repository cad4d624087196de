"""Stream events, the pieces of a message while the model writes it: there are more of them than of all else.

What other messages there are is not known here.
"""

from __future__ import annotations

from types import MemberDescriptorType
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import msgspec

from outrider.wire._json import loads
from outrider.wire._value import Frame, Value

if TYPE_CHECKING:
    from outrider.wire.shapes import AbandonedBlocks, ApiEvent
else:
    # A plain dict when decoding: msgspec would drop every key that a TypedDict does not name.
    AbandonedBlocks = dict
    # Left undecoded until somebody looks at it.
    ApiEvent = msgspec.Raw


class StreamDetails(Value):
    """Fields of a stream event that few events have, or few readers want."""

    api_message_id: str | None = None
    ttft_ms: int | None = None
    """Time to the first token."""
    thinking_display: str | None = None
    user_message_uuid: str | None = None
    user_message_uuids: list[str] | None = None
    """The sent messages that this begins to answer."""
    resume_reason: str | None = None
    owed_rows: list[Any] | None = None
    abandoned_blocks: AbandonedBlocks | None = None


class _Delta(msgspec.Struct, frozen=True, gc=False):
    text: str = ""
    thinking: str = ""
    partial_json: str = ""


class _DeltaEvent(msgspec.Struct, frozen=True, gc=False):
    delta: _Delta = _Delta()


_decode_delta = msgspec.json.Decoder(_DeltaEvent).decode


class StreamEvent(Frame, tag_field="type", tag="stream_event"):
    """A piece of a message while the model writes it (`include_partial_messages`).

    The event stays undecoded until `event` or a helper is used: most readers look at few of the many.
    """

    type: ClassVar[Literal["stream_event"]] = "stream_event"

    uuid: str
    session_id: str
    event: ApiEvent
    """The API's own event, as a dict."""
    parent_tool_use_id: str | None = None

    @property
    def details(self) -> StreamDetails:
        """What else the frame says. Read from it anew at each use: a field for each would slow all down."""
        from outrider.wire._tolerant import convert_leniently

        return convert_leniently(StreamDetails, self.raw)

    @property
    def text(self) -> str:
        """The text that this event adds to the answer; empty for all but text deltas."""
        return self._delta().text

    @property
    def thinking(self) -> str:
        """The thinking that this event adds; empty for all but thinking deltas."""
        return self._delta().thinking

    @property
    def partial_json(self) -> str:
        """The piece of a tool's input that this event adds; empty for all but input deltas."""
        return self._delta().partial_json

    def _delta(self) -> _Delta:
        event: object = _EVENT.__get__(self, StreamEvent)
        if type(event) is msgspec.Raw:
            # For the text alone, the event need not become a dict.
            try:
                return _decode_delta(event).delta
            except (ValueError, RecursionError):
                pass
        try:
            return msgspec.convert(self.event, _DeltaEvent).delta
        except (ValueError, RecursionError):
            return _Delta()

    # Comparing, printing and pickling in C would look at the undecoded event, so it is decoded first.

    def __eq__(self, other: object) -> bool:
        if type(other) is StreamEvent:
            _ = self.event, other.event
        return super().__eq__(other)

    # Like every value: not to be hashed, it can be changed.
    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        _ = self.event
        return super().__repr__()


class _DecodedOnUse:
    """Stands in for the `event` slot: decodes the event when it is first looked at, then keeps the dict."""

    def __init__(self, slot: MemberDescriptorType) -> None:
        self._slot = slot

    def __get__(self, frame: StreamEvent | None, owner: type[StreamEvent]) -> object:
        if frame is None:
            return self
        event: object = self._slot.__get__(frame, owner)
        if type(event) is msgspec.Raw:
            decoded = loads(bytes(event))
            event = decoded if isinstance(decoded, dict) else {}
            self._slot.__set__(frame, event)
        return event

    def __set__(self, frame: StreamEvent, event: object) -> None:
        self._slot.__set__(frame, event)


# After the class is made: msgspec fills the slot itself when it decodes, past this descriptor.
_EVENT: MemberDescriptorType = vars(StreamEvent)["event"]
setattr(StreamEvent, "event", _DecodedOnUse(_EVENT))  # noqa: B010 - no assignment by type

"""Tracks the requests of the control protocol in both directions, so that each one ends exactly once.

Host and agent use the same class. Does no I/O and starts no tasks: bytes go in, events and bytes come out.
`outrider.handlers` answers requests. `Table` describes any state machine as data.
"""

from __future__ import annotations

import logging
import re
from collections import OrderedDict
from enum import Enum
from typing import TYPE_CHECKING, Any, Final, Generic, Literal, TypeAlias, TypeVar, cast
from uuid import uuid4

from outrider.errors import TransportClosed, UsageError
from outrider.wire import (
    UNSUPPORTED_REQUEST,
    Arrival,
    ControlCancelRequest,
    ControlOutcome,
    ControlRequest,
    ControlResponse,
    Frame,
    Framer,
    JsonObject,
    MalformedLine,
    OversizedMessage,
    RequestId,
    Value,
    encode,
    frame_from_wire,
)
from outrider.wire._decoding import asker_of
from outrider.wire._value import dumps
from outrider.wire.control import ASKS, REMOTE_SUBTYPES, Ask, GenericRequest, Request, ask_from_wire

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping


log = logging.getLogger("outrider.wire")

_REMEMBERED: Final = 1024
"""How many finished requests of the other side are remembered, to know a repeated frame."""

_SUCCESS: Final = b'{"type":"control_response","response":{"subtype":"success","request_id":'

_ERROR_CODE: Final = r"[a-z][a-z0-9_]{0,63}"

NEVER_ANSWERED: Final = frozenset(REMOTE_SUBTYPES)
"""Broadcasts in the form of a request: an error from one listener would spoil another's answer."""

_CONTROL: Final[frozenset[type]] = frozenset(
    (ControlRequest, ControlResponse, ControlCancelRequest, MalformedLine, OversizedMessage)
)
"""Arrivals that may need more than to be passed on."""

AnyRequest: TypeAlias = Ask | Request[Any]
"""A request in either direction."""


class RequestReceived(Value):
    """The other side asks. Answer with `Peer.respond` or `Peer.refuse`, under this id."""

    id: RequestId
    request: AnyRequest


class RequestWithdrawn(Value):
    """The other side withdrew its request, or is gone. Stop working on it: an answer would be dropped."""

    id: RequestId
    request: AnyRequest
    is_lost: bool = False
    """Whether the stream has ended, and the request was not withdrawn."""


class RequestAnswered(Value):
    """Our request succeeded."""

    id: RequestId
    request: AnyRequest
    payload: JsonObject
    """The answer as sent; `request.read_answer(payload)` makes it a typed value."""


class RequestRefused(Value):
    """Our request failed on the other side."""

    id: RequestId
    request: AnyRequest
    error: str
    code: str | None = None


class RequestLost(Value):
    """The stream ended before our request was answered."""

    id: RequestId
    request: AnyRequest


RequestEvent: TypeAlias = RequestReceived | RequestWithdrawn | RequestAnswered | RequestRefused | RequestLost
"""What happens to requests."""

Event: TypeAlias = Arrival | RequestEvent
"""What a `Peer` yields: all that arrives except control traffic, and the outcomes of requests."""


class Peer:
    """One end of a connection.

    `role` says which end: it decides how requests of the other side are read and which of them are known.
    `serves` names the requests that someone here answers; any other is refused as unsupported at once, so
    that the other side never waits for nothing. By default all known ones are handed over.
    """

    def __init__(
        self,
        role: Literal["host", "agent"] = "host",
        *,
        serves: Collection[str] | None = None,
        make_id: Callable[[int], str] | None = None,
        limit: int | None = None,
    ) -> None:
        self.role: Final = role
        known: Mapping[str, object] = ASKS
        self._read_request: Callable[[JsonObject], AnyRequest] = ask_from_wire
        if role == "agent":
            # Only here: a host never reads the requests that it sends, and there are many.
            from outrider.wire.control import REQUESTS, request_from_wire

            known, self._read_request = REQUESTS, request_from_wire
        self.serves = frozenset(known if serves is None else serves) - NEVER_ANSWERED
        self._make_id = make_id or _id_maker()
        self._framer = Framer(limit)
        self._count = 0
        self._ours: dict[RequestId, AnyRequest] = {}
        self._theirs: dict[RequestId, AnyRequest] = {}
        self._finished: OrderedDict[RequestId, None] = OrderedDict()
        self._output: list[bytes] = []
        self._is_closed = False
        self.kinds: set[type] = set()
        """The types of the events that it returned last."""

    @property
    def pending(self) -> dict[RequestId, AnyRequest]:
        """Our requests that have no answer yet."""
        return dict(self._ours)

    @property
    def open(self) -> dict[RequestId, AnyRequest]:
        """Requests of the other side that we have not answered yet."""
        return dict(self._theirs)

    @property
    def is_closed(self) -> bool:
        """Whether the other side's stream has ended."""
        return self._is_closed

    # Input.

    def receive(self, data: bytes) -> list[Event]:
        """Take bytes of the other side, in any chunks; returns the events in them."""
        return self._sort(self._framer.feed(data))

    def begin(self, data: bytes | None) -> list[Event]:
        """The same in steps, as `Framer.begin`: returns what the first one found. None: the end of the
        stream; call `receive_eof` too, once there is no more."""
        return self._sort(self._framer.begin(data))

    @property
    def has_more(self) -> bool:
        """Whether `go_on` has more to do on the bytes that have come."""
        return self._framer.has_more

    def go_on(self) -> list[Event]:
        """Do the next step."""
        return self._sort(self._framer.go_on())

    def drop_input(self) -> None:
        """Forget the bytes that were not processed."""
        self._framer.drop()

    def receive_eof(self) -> list[Event]:
        """Note the end of the other side's stream: every open request ends now, in both directions."""
        if self._is_closed:
            return []
        events = self._sort(self._framer.flush())
        self._is_closed = True
        events += [RequestLost(id, request) for id, request in self._ours.items()]
        events += [RequestWithdrawn(id, request, is_lost=True) for id, request in self._theirs.items()]
        self._ours.clear()
        self._theirs.clear()
        self.kinds = set(map(type, events))
        return events

    def _sort(self, arrivals: list[Arrival]) -> list[Event]:
        self.kinds = set(map(type, arrivals))
        if _CONTROL.isdisjoint(self.kinds):
            # Nearly all chunks: nothing to sort out.
            return cast("list[Event]", arrivals)
        events: list[Event] = []
        for arrival in arrivals:
            if isinstance(arrival, ControlRequest):
                self._on_request(arrival, events)
            elif isinstance(arrival, ControlResponse):
                self._on_response(arrival, events)
            elif isinstance(arrival, ControlCancelRequest):
                self._on_cancel(arrival, events)
            else:
                if isinstance(arrival, MalformedLine | OversizedMessage):
                    self._on_unreadable(arrival)
                events.append(arrival)
        self.kinds = set(map(type, events))
        return events

    def _on_request(self, frame: ControlRequest, events: list[Event]) -> None:
        id = frame.request_id
        if id == "":
            log.warning("dropped a control request that has no id")
            return
        if id in self._theirs or id in self._finished:
            log.debug("dropped a repeated control request: %s", id)
            return
        request = self._read_request(frame.request)
        self._theirs[id] = request
        if request.subtype in self.serves:
            events.append(RequestReceived(id, request))
        elif request.subtype in NEVER_ANSWERED:
            self._finish_theirs(id)
        elif not request.subtype:
            self.refuse(id, "control request without a subtype", "invalid_request")
        else:
            self.refuse(id, f"Unsupported control request subtype: {request.subtype}", UNSUPPORTED_REQUEST)

    def _on_unreadable(self, arrival: MalformedLine | OversizedMessage) -> None:
        """Refuse what cannot be read, if it is a request: the other side would wait for ever."""
        if isinstance(arrival, MalformedLine):
            id, reason = asker_of(arrival.line, arrival.line), arrival.reason
        else:
            id, reason = arrival.request_id, f"it has {arrival.size} bytes"
        if id is None or id in self._theirs or id in self._finished:
            return
        log.warning("refused a control request that cannot be read: %s", reason)
        self._theirs[id] = GenericRequest("", {})
        self.refuse(id, f"the control request cannot be read: {reason}", "invalid_request")

    def _on_response(self, frame: ControlResponse, events: list[Event]) -> None:
        outcome = frame.response
        request = None if outcome.request_id is None else self._ours.pop(outcome.request_id, None)
        if outcome.request_id is None or request is None:
            log.debug("dropped a control response with no or an unknown id: %s", outcome.request_id)
            return
        id = outcome.request_id
        if outcome.subtype == "success":
            payload = outcome.response if isinstance(outcome.response, dict) else {}
            events.append(RequestAnswered(id, request, payload))
            if request.subtype == "initialize":
                self._take_up(outcome, events)
        else:
            events.append(RequestRefused(id, request, outcome.error or "no reason given", outcome.error_code))

    def _take_up(self, outcome: ControlOutcome, events: list[Event]) -> None:
        """Take the open requests that come with the answer to a second `initialize`."""
        for pending in (
            outcome.pending_permission_requests,
            outcome.pending_user_dialog_requests,
            outcome.pending_elicitation_requests,
        ):
            for data in pending or ():
                frame = frame_from_wire(data)
                if isinstance(frame, ControlRequest):
                    self._on_request(frame, events)

    def _on_cancel(self, frame: ControlCancelRequest, events: list[Event]) -> None:
        request = self._finish_theirs(frame.request_id)
        if request is None:
            log.debug("dropped a cancel for an unknown control request: %s", frame.request_id)
        else:
            events.append(RequestWithdrawn(frame.request_id, request))

    def _finish_theirs(self, id: RequestId) -> AnyRequest | None:
        request = self._theirs.pop(id, None)
        if request is not None:
            self._finished[id] = None
            if len(self._finished) > _REMEMBERED:
                # A plain dict would be searched for its first key.
                self._finished.popitem(last=False)
        return request

    # Output.

    def request(self, request: AnyRequest | str, /, **fields: object) -> RequestId:
        """Send a request; returns the id under which the outcome will come.

        A text is the subtype of a request that has no class here, with its `fields`. Raises
        `TransportClosed` once the other side is gone, `MessageInvalid` for what cannot be encoded,
        `UsageError` for fields beside a request that has a class.
        """
        if self._is_closed:
            raise TransportClosed("the other side's output has ended, so no answer can come")
        if isinstance(request, str):
            request = GenericRequest(request, dict(fields))
        elif fields:
            raise UsageError(f"{type(request).__name__} has fields of its own: set {', '.join(fields)} there")
        self._count += 1
        id = self._make_id(self._count)
        # Not by way of the frame's class, which is slower: the caller waits.
        frame = {"type": "control_request", "request_id": id, "request": request.to_wire()}
        self._output.append(encode(frame) + b"\n")
        self._ours[id] = request
        return id

    def cancel(self, id: RequestId, *, tell: bool = True) -> bool:
        """Withdraw one of our requests. A late answer is dropped. False if it had ended already.

        `tell`: the other side learns of it. Programs that do not expect that exit.
        """
        if self._ours.pop(id, None) is None:
            return False
        if tell:
            self._output.append(encode(ControlCancelRequest(id)) + b"\n")
        return True

    def respond(self, id: RequestId, payload: Value | JsonObject | None = None) -> bool:
        """Answer a request of the other side; `payload` is a value of the wire, a dict, or nothing.

        False, and nothing is sent, if the request was withdrawn or has ended. If the payload cannot be
        encoded, `MessageInvalid` is raised and the request stays open.
        """
        if payload is None or id not in self._theirs:
            return self._reply(id, {"subtype": "success", "request_id": id})
        # The frame around it is always the same, and answers are what the other side waits for.
        line = b'%b%b,"response":%b}}\n' % (_SUCCESS, dumps(id), encode(payload))
        self._finish_theirs(id)
        self._output.append(line)
        return True

    def refuse(self, id: RequestId, error: str, code: str | None = None) -> bool:
        """Answer a request of the other side with an error. False if it was withdrawn or has ended."""
        if code is not None and not re.fullmatch(_ERROR_CODE, code):
            raise UsageError(f"error code {code!r}: use lower case letters, digits and _, at most 64")
        outcome: JsonObject = {"subtype": "error", "request_id": id, "error": error}
        if code is not None:
            outcome["error_code"] = code
        return self._reply(id, outcome)

    def _reply(self, id: RequestId, outcome: JsonObject) -> bool:
        if id not in self._theirs:
            return False
        # Not by way of the frame's class: answers are what the other side waits for.
        line = encode({"type": "control_response", "response": outcome}) + b"\n"
        self._finish_theirs(id)
        self._output.append(line)
        return True

    def send(self, message: Frame | JsonObject) -> None:
        """Send a frame that is not control traffic. Raises `MessageInvalid` for what cannot be encoded."""
        self._output.append(encode(message) + b"\n")

    @property
    def has_output(self) -> bool:
        """Whether there is something to write."""
        return bool(self._output)

    def take_output(self) -> bytes:
        """The bytes to write to the other side; each is returned once."""
        output = b"".join(self._output)
        self._output.clear()
        return output


def _id_maker() -> Callable[[int], str]:
    """Makes ids that no other peer makes."""
    tag = uuid4().hex[:8]
    return lambda number: f"req_{number}_{tag}"


# State machines as data.

S = TypeVar("S", bound=Enum)
T = TypeVar("T", bound=Enum)


class Table(Generic[S, T]):
    """A state machine as data: for each state, where each signal leads. Others change nothing."""

    def __init__(self, initial: S, transitions: dict[S, dict[T, S]]) -> None:
        self.initial = initial
        self.transitions = transitions

    def next(self, state: S, signal: T) -> S:
        """The state after the signal."""
        return self.transitions[state].get(signal, state)

    def is_final(self, state: S) -> bool:
        """Whether nothing leads away from the state."""
        return not self.transitions[state]

    def diagram(self) -> str:
        """The table as a Mermaid state diagram, for the documentation."""
        lines = ["stateDiagram-v2", f"    [*] --> {self.initial.value}"]
        for state, row in self.transitions.items():
            targets: dict[S, list[str]] = {}
            for signal, target in row.items():
                targets.setdefault(target, []).append(signal.value)
            for target, signals in targets.items():
                lines.append(f"    {state.value} --> {target.value}: {', '.join(signals)}")
            if not row:
                lines.append(f"    {state.value} --> [*]")
        return "\n".join(lines)

"""Owns the line between the simulated program and its host: what comes in on stdin, and requests both ways.

What a message or a request means is not known here.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from contextvars import ContextVar
from typing import TYPE_CHECKING, Final, Protocol, cast
from uuid import uuid4

import anyio

from outrider.protocol import Peer, RequestAnswered, RequestReceived, RequestRefused, RequestWithdrawn
from outrider.testing._simulator.turn import Prompt
from outrider.testing._simulator.world import Refused
from outrider.wire import JsonObject, encode

if TYPE_CHECKING:
    from outrider.testing._simulator.run import Run
    from outrider.wire import RequestId

__all__ = ["CONTROL_TYPES", "Gone", "HostLine", "Lines", "Streams", "current_owner"]


class Streams(Protocol):
    """Where a run reads and writes."""

    async def receive(self) -> bytes:
        """The next bytes of stdin; `b""` at its end."""
        ...

    def write(self, data: bytes) -> None:
        """Write to stdout. Never waits, and never fails: the program does not notice that nobody reads."""
        ...

    def complain(self, line: str) -> None:
        """Write a line to stderr."""
        ...

    async def drain(self) -> None:
        """Wait until all that was written is on its way, or cannot be."""
        ...


class Lines:
    """Cuts bytes into lines, at line feeds alone."""

    def __init__(self) -> None:
        self._held: list[bytes] = []

    def feed(self, data: bytes) -> list[bytes]:
        """The lines that are whole now, without their ends."""
        *whole, rest = data.split(b"\n")
        if whole:
            whole[0] = b"".join((*self._held, whole[0]))
            self._held = []
        if rest:
            self._held.append(rest)
        return whole

    def flush(self) -> bytes:
        """What has no end."""
        rest = b"".join(self._held)
        self._held = []
        return rest


CONTROL_TYPES: Final = frozenset(("control_request", "control_response", "control_cancel_request"))

current_owner: ContextVar[object] = ContextVar("simulated turn", default=None)
"""What a request of the program belongs to: it is taken back when that is interrupted."""


class Gone(Refused):
    """The host can no longer answer: stdin has ended."""

    is_gone = True


class _Asked:
    """A request to the host."""

    def __init__(self, subtype: str, owner: object) -> None:
        self.subtype, self.owner = subtype, owner
        self.done = anyio.Event()
        self.payload: JsonObject = {}
        self.error: Refused | None = None


class HostLine:
    """The line of one run."""

    def __init__(self, run: Run, streams: Streams) -> None:
        self._run, self._streams = run, streams
        self._peer = Peer("agent", serves=run.control.serves, make_id=lambda _: str(uuid4()))
        self._lines = Lines()
        self._count = 0
        self._asked: dict[RequestId, _Asked] = {}
        self._answering: dict[RequestId, anyio.CancelScope] = {}
        self.is_input_over = False

    # What comes in.

    async def read(self) -> None:
        """Take what the host sends, to its end."""
        while data := await self._streams.receive():
            for line in self._lines.feed(data):
                self._on_line(line)
            self._run.wake()
        if rest := self._lines.flush():
            self._on_line(rest)
        self._end_input()

    def _end_input(self) -> None:
        self.is_input_over = True
        for asked in self._asked.values():
            asked.error = Gone("stream closed before response received")
            asked.done.set()
        self._asked.clear()
        self._run.on_end_of_input()

    def _on_line(self, raw: bytes) -> None:
        text = raw.decode("utf-8", "replace").lstrip("\ufeff").strip("\r \t")
        if not text or self._run.is_ending:
            return
        self._count += 1
        try:
            value: object = json.loads(text)
        except ValueError:
            self._die(f"Error parsing streaming input line (type=unknown, {len(text)} chars): SyntaxError")
            return
        if value is None:
            self._die(f"Error parsing streaming input line (type=unknown, {len(text)} chars): TypeError")
        elif isinstance(value, dict):
            self._on_frame(cast("JsonObject", value))

    def _on_frame(self, frame: JsonObject) -> None:
        kind, request = frame.get("type"), frame.get("request")
        is_initialize = (
            isinstance(request, dict) and cast("JsonObject", request).get("subtype") == "initialize"
        )
        if self._run.invocation.await_initialize and self._count == 1 and not is_initialize:
            self._die(
                "Error: --await-initialize requires the initialize control request as the first stdin line, "
                "and the first line is a different message."
            )
        elif kind == "user":
            self._on_user(frame)
        elif kind == "control_request" and not isinstance(request, dict):
            self._die("Error: Missing request on control_request")
        elif kind in CONTROL_TYPES:
            self._on_control(frame)

    def _die(self, text: str) -> None:
        """One line that is not as it should be ends the program."""
        self._run.complain(text)
        self._run.end(1)

    def _on_user(self, frame: JsonObject) -> None:
        message = frame.get("message")
        role = cast("JsonObject", message).get("role") if isinstance(message, dict) else None
        if role != "user":
            self._die(f"Error: Expected message role 'user', got '{'undefined' if role is None else role}'")
            return
        if isinstance(cast("JsonObject", message).get("content"), str | list):
            self._run.add_prompt(Prompt.of(frame))

    def _on_control(self, frame: JsonObject) -> None:
        for event in self._peer.receive(json.dumps(frame).encode() + b"\n"):
            match event:
                case RequestReceived(id=id):
                    self._on_request(id, cast("JsonObject", frame["request"]))
                case RequestWithdrawn(id=id):
                    if (scope := self._answering.pop(id, None)) is not None:
                        scope.cancel()
                case RequestAnswered(id=id, payload=payload):
                    if (asked := self._asked.pop(id, None)) is not None:
                        asked.payload = payload
                        asked.done.set()
                case RequestRefused(id=id, error=error):
                    if (asked := self._asked.pop(id, None)) is not None:
                        asked.error = Refused(error)
                        asked.done.set()
                case _:
                    pass
        self.flush()

    def _on_request(self, id: RequestId, request: JsonObject) -> None:
        handler = self._run.control.handler(id, request)
        if handler is not None:
            is_first = request.get("subtype") == "initialize"
            if is_first:
                self._run.begin_start()
            self._run.tasks.start_soon(self._answer, id, handler, is_first, name="simulated request")

    async def _answer(self, id: RequestId, handler: Callable[[], Awaitable[None]], is_first: bool) -> None:
        with anyio.CancelScope() as scope:
            self._answering[id] = scope
            await handler()
        self._answering.pop(id, None)
        if is_first:
            await self._run.finish_start()

    # What goes out.

    def send(self, frame: JsonObject) -> None:
        """Write a frame that is no request and no answer."""
        self._peer.send(frame)
        self.flush()

    def flush(self) -> None:
        if data := self._peer.take_output():
            self._streams.write(data)

    def respond(
        self, id: RequestId, payload: JsonObject | None = None, beside: JsonObject | None = None
    ) -> None:
        """Answer a request of the host; `beside` is what stands beside the payload."""
        self.flush()
        self._peer.respond(id, payload)
        self._flush_answer(beside)

    def refuse(
        self, id: RequestId, error: str, code: str | None = None, beside: JsonObject | None = None
    ) -> None:
        """Answer a request of the host with an error."""
        self.flush()
        self._peer.refuse(id, error, code)
        self._flush_answer(beside)

    def _flush_answer(self, beside: JsonObject | None) -> None:
        data = self._peer.take_output()
        if data and beside is not None:
            # The protocol has no place for it; the program puts it there all the same.
            frame: JsonObject = json.loads(data)
            data = encode({**frame, "response": {**frame["response"], **beside}}) + b"\n"
        if data:
            self._streams.write(data)

    async def ask(self, subtype: str, fields: JsonObject) -> JsonObject:
        """Ask the host, and wait. Raises `Refused`, and `Gone` once stdin has ended."""
        if self.is_input_over:
            raise Gone("stream closed before response received")
        asked = _Asked(subtype, current_owner.get())
        id = self._peer.request(subtype, **fields)
        self._asked[id] = asked
        self.flush()
        try:
            await asked.done.wait()
        finally:
            if self._asked.pop(id, None) is not None and subtype != "mcp_message":
                self._peer.cancel(id)
                self.flush()
        if asked.error is not None:
            raise asked.error
        return asked.payload

    def withdraw(self, owner: object) -> None:
        """Take back what was asked for a turn that is interrupted, before that is confirmed."""
        for id, asked in list(self._asked.items()):
            if asked.owner is owner and asked.subtype != "mcp_message":
                del self._asked[id]
                self._peer.cancel(id)
        self.flush()

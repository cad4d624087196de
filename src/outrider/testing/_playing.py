"""Plays a step of a script: sends what it says, when it says so, as the answer to a request.

Does not choose the step.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, TypeAlias, assert_never

from outrider.testing._events import count_pieces, error_body, error_event, event_stream, message_body
from outrider.testing._steps import Answer, Drop, Failure, Hang, Step, say

if TYPE_CHECKING:
    from outrider.testing._gate import Gate
    from outrider.testing._requests import Request
    from outrider.testing._server import Exchange
    from outrider.wire import JsonObject

__all__ = ["Player"]

_JSON = "application/json"
_EVENTS = "text/event-stream; charset=utf-8"


class Player:
    """Plays one step for one request. `id` ends the ids of all that it makes."""

    def __init__(self, exchange: Exchange, request: Request, *, id: str, hanging: Gate) -> None:
        self._exchange, self._request, self._hanging = exchange, request, hanging
        self._message_id, self._request_id = f"msg_{id}", f"req_{id}"
        self._is_streamed = request.body.get("stream") is True

    def play(self, step: Step) -> None:
        """Raises `Ended` if the connection does, which a step may want."""
        match step:
            case Answer():
                self._answer(step)
            case Failure():
                self._fail(step)
            case Hang():
                self._wait_at(self._hanging)
                self.play(step.then or Drop())
            case Drop():
                if step.after is not None and self._is_streamed:
                    self._begin(step.after)
                self._exchange.cut()
            case _:
                assert_never(step)

    def send_json(self, body: JsonObject, status: int = 200, headers: Headers | None = None) -> None:
        self._exchange.send(status, self._headers(_JSON, headers or {}), json.dumps(body).encode())

    def _answer(self, answer: Answer) -> None:
        body = self._body(answer)
        gate, held_at = answer.gate, 0
        if gate is not None:
            # An answer that is too short is held before its end.
            held_at = min(gate.after, count_pieces(answer))
        if not self._is_streamed:
            self._exchange.wait(lambda: False, answer.delay)
            if gate is not None:
                self._wait_at(gate)
            self.send_json(body, headers=dict(answer.headers))
            return
        if gate is not None and held_at == 0:
            self._wait_at(gate)
        self._exchange.start(self._headers(_EVENTS, dict(answer.headers)))
        sent = 0
        for event in event_stream(answer, body):
            if event.is_piece:
                self._exchange.wait(lambda: False, answer.delay)
                sent += 1
            self._exchange.send_piece(event.data)
            if gate is not None and event.is_piece and sent == held_at:
                self._wait_at(gate)
        self._exchange.finish()

    def _fail(self, failure: Failure) -> None:
        if failure.after is not None and self._is_streamed:
            self._begin(failure.after)
            self._exchange.send_piece(error_event(failure))
            self._exchange.finish()
        else:
            body = error_body(failure, request_id=self._request_id)
            self.send_json(body, failure.status, dict(failure.headers))

    def _begin(self, text: str) -> None:
        """Stream a message as far as the end of this text."""
        self._exchange.start(self._headers(_EVENTS, {}))
        beginning = say(text)
        for event in event_stream(beginning, self._body(beginning)):
            self._exchange.send_piece(event.data)
            if event.is_piece:
                return

    def _body(self, answer: Answer) -> JsonObject:
        return message_body(answer, id=self._message_id, model=str(self._request.body.get("model", "")))

    def _wait_at(self, gate: Gate) -> None:
        gate.on_open(self._exchange.wake)
        gate.reached.set()
        try:
            self._exchange.wait(lambda: gate.is_open)
        finally:
            gate.forget(self._exchange.wake)

    def _headers(self, kind: str, more: Headers) -> Headers:
        return {"content-type": kind, "request-id": self._request_id, **more}


Headers: TypeAlias = dict[str, str]

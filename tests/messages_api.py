"""A Messages API on this machine, for tests of the real agent: it answers as told and records the questions.

Speaks as much of the API as the agent needs for a turn, and judges nothing.
"""

from __future__ import annotations

import json
import threading
from collections import deque
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any, NamedTuple, Self, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from types import TracebackType

Json: TypeAlias = dict[str, Any]


class Request(NamedTuple):
    """One request for a message, as it arrived."""

    path: str
    headers: dict[str, str]
    """By name in lower case."""
    body: Json


class MessagesApi:
    """Serves `POST /v1/messages` while the `with` block runs; point `ANTHROPIC_BASE_URL` at `url`.

    Each request takes the next of `answers`: a text, or a list of content blocks. When they are used up,
    the answer is `"ok"`.
    """

    def __init__(self, answers: Iterable[str | list[Json]] = ()) -> None:
        self.answers: deque[str | list[Json]] = deque(answers)
        self.requests: list[Request] = []
        self._lock = threading.Lock()
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(self))
        # A connection that the agent keeps open must not keep the tests alive.
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.02})

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_port}"

    @property
    def bodies(self) -> list[Json]:
        return [request.body for request in self.requests]

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    def _answer(self, request: Request) -> Json:
        with self._lock:
            self.requests.append(request)
            answer = self.answers.popleft() if self.answers else "ok"
            number = len(self.requests)
        content = [{"type": "text", "text": answer}] if isinstance(answer, str) else answer
        uses_tool = any(block["type"] == "tool_use" for block in content)
        return {
            "id": f"msg_{number:04}",
            "type": "message",
            "role": "assistant",
            "model": request.body.get("model", ""),
            "content": content,
            "stop_reason": "tool_use" if uses_tool else "end_turn",
            "stop_sequence": None,
            "usage": {"input_tokens": 10, "output_tokens": 5},
        }


def _handler(api: MessagesApi) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_HEAD(self) -> None:
            self._send(200, "application/json", b"")

        def do_GET(self) -> None:
            self._send(404, "application/json", b"{}")

        def do_POST(self) -> None:
            raw = self.rfile.read(int(self.headers.get("content-length") or 0))
            path = self.path.partition("?")[0]
            if path == "/v1/messages/count_tokens":
                self._send(200, "application/json", b'{"input_tokens": 10}')
            elif path == "/v1/messages":
                headers = {name.lower(): value for name, value in self.headers.items()}
                body: Json = json.loads(raw)
                message = api._answer(Request(self.path, headers, body))
                if body.get("stream"):
                    self._send(200, "text/event-stream", b"".join(_events(message)))
                else:
                    self._send(200, "application/json", json.dumps(message).encode())
            else:
                self._send(404, "application/json", b"{}")

        def _send(self, status: int, kind: str, body: bytes) -> None:
            self.send_response(status)
            self.send_header("content-type", kind)
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - its name in the base class
            """Say nothing: stderr is the tests'."""

    return Handler


def _events(message: Json) -> Iterator[bytes]:
    """A message as the server-sent events that it is streamed in."""
    yield _event("message_start", message={**message, "content": [], "stop_reason": None})
    for index, block in enumerate(message["content"]):
        if block["type"] == "tool_use":
            empty: Json = {**block, "input": {}}
            delta = {"type": "input_json_delta", "partial_json": json.dumps(block["input"])}
        else:
            empty = {**block, "text": ""}
            delta = {"type": "text_delta", "text": block["text"]}
        yield _event("content_block_start", index=index, content_block=empty)
        yield _event("content_block_delta", index=index, delta=delta)
        yield _event("content_block_stop", index=index)
    ending = {"stop_reason": message["stop_reason"], "stop_sequence": None}
    yield _event("message_delta", delta=ending, usage=message["usage"])
    yield _event("message_stop")


def _event(type: str, **fields: object) -> bytes:
    return f"event: {type}\ndata: {json.dumps({'type': type, **fields})}\n\n".encode()

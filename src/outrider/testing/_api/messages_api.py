"""`MessagesApi`, a Messages API on this machine that answers from a script, and its HTTP server."""

from __future__ import annotations

import json
import secrets
import selectors
import socket
import struct
import sys
import threading
import time
from functools import partial
from http import HTTPStatus
from http.client import HTTPException, parse_headers
from typing import TYPE_CHECKING, Literal, Self, TypeAlias, assert_never, cast, get_args

from outrider.errors import OptionsError, UsageError
from outrider.testing._api.requests import Asked, Request, RequestLog, kind_of
from outrider.testing._script.script import NOT_OURS, Item, Script, Scripted, ScriptSource
from outrider.testing._script.steps import (
    Answer,
    Drop,
    Failure,
    Gate,
    Hang,
    Step,
    count_pieces,
    events_of,
    fail,
    message_of,
    say,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from io import BufferedReader
    from types import TracebackType

    from outrider.wire import JsonObject


# Enough for a whole test run on one machine.
_BACKLOG = 64
# Some clients send nothing of a large body before they are told to.
_CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"


class Ended(Exception):
    """The exchange cannot go on: the client has left, or the server closes."""


class _Wakeup:
    """Wakes a thread that waits for it, or for a socket."""

    def __init__(self) -> None:
        self._inside, self._outside = socket.socketpair()
        self._outside.setblocking(False)

    def set(self) -> None:
        try:
            self._outside.send(b"\0")
        except OSError:
            # Full, so it has rung; or closed, so nobody waits.
            pass

    def wait(self, other: socket.socket | None, timeout: float | None = None) -> bool:
        """Wait until it is set or the other can be read; says whether the latter is so."""
        with selectors.DefaultSelector() as selector:
            selector.register(self._inside, selectors.EVENT_READ)
            if other is not None:
                selector.register(other, selectors.EVENT_READ)
            ready = [key.fileobj for key, _ in selector.select(timeout)]
        if self._inside in ready:
            self._inside.recv(1024)
        return other in ready

    def close(self) -> None:
        self._inside.close()
        self._outside.close()


class Exchange:
    """One request, and the means to answer it."""

    def __init__(
        self, server: Server, connection: _Connection, method: str, path: str, headers: Mapping[str, str]
    ) -> None:
        self.method, self.path, self.headers = method, path, headers
        self.body = b""
        self._server, self._connection = server, connection

    def send(self, status: int, headers: Mapping[str, str], body: bytes) -> None:
        """Answer at once."""
        length = {"content-length": str(len(body))}
        # An answer to HEAD says how long it would be.
        self._write(_head(status, {**headers, **length}) + (b"" if self.method == "HEAD" else body))

    def start(self, headers: Mapping[str, str]) -> None:
        """Begin an answer in pieces."""
        self._write(_head(200, {**headers, "transfer-encoding": "chunked"}))

    def send_piece(self, piece: bytes) -> None:
        self._write(b"%x\r\n%b\r\n" % (len(piece), piece))

    def finish(self) -> None:
        self._write(b"0\r\n\r\n")

    def cut(self) -> None:
        """End the connection where it is, with no goodbye."""
        self._connection.reset()
        raise Ended

    def wake(self) -> None:
        """Have `wait` look again. Any thread may call it."""
        self._connection.wakeup.set()

    def wait(self, is_over: Callable[[], bool], timeout: float | None = None) -> None:
        """Wait until it is so, or the time is up. Raises `Ended` if the client or the server leaves."""
        deadline = None if timeout is None else time.monotonic() + timeout
        while not is_over():
            left = None if deadline is None else deadline - time.monotonic()
            if left is not None and left <= 0:
                return
            self._connection.wait(left)
            if self._server.is_closing:
                raise Ended

    def _write(self, data: bytes) -> None:
        try:
            self._connection.socket.sendall(data)
        except OSError:
            raise Ended from None


def _head(status: int, headers: Mapping[str, str]) -> bytes:
    known = {entry.value: entry.phrase for entry in HTTPStatus}
    lines = [f"HTTP/1.1 {status} {known.get(status, 'Unknown')}"]
    lines += [f"{name}: {value}" for name, value in headers.items()]
    return ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1")


class _Connection:
    """A client's connection."""

    def __init__(self, client: socket.socket) -> None:
        self.socket = client
        self.wakeup = _Wakeup()
        self._is_watched = True
        client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def wait(self, timeout: float | None) -> None:
        """Wait for the bell. Raises `Ended` if the client leaves."""
        if self.wakeup.wait(self.socket if self._is_watched else None, timeout):
            try:
                has_left = not self.socket.recv(1, socket.MSG_PEEK)
            except OSError:
                has_left = True
            if has_left:
                raise Ended
            # It has sent its next request already, behind which its end cannot be seen.
            self._is_watched = False

    def reset(self) -> None:
        """Have the client see a reset, not an end, when it is closed."""
        linger = struct.pack("hh" if sys.platform == "win32" else "ii", 1, 0)
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)

    def end(self) -> None:
        """Wake whoever reads from it or waits."""
        try:
            self.socket.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass
        self.wakeup.set()

    def close(self) -> None:
        self.socket.close()
        self.wakeup.close()


class Server:
    """Calls `respond` for each request, in a thread of the connection's.

    What it raises, other than `Ended`, goes to `on_error`, and the connection ends.
    """

    def __init__(
        self, respond: Callable[[Exchange], object], on_error: Callable[[Exception], object]
    ) -> None:
        self.is_closing = False
        self._respond, self._on_error = respond, on_error
        # Touched by the accepting thread alone, and by `close` once that has ended.
        self._threads: dict[threading.Thread, _Connection] = {}
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=_BACKLOG)
        self._listener.setblocking(False)
        self.port: int = self._listener.getsockname()[1]
        self._wakeup = _Wakeup()
        # Daemons: a server that was forgotten does not keep a program from its end.
        self._thread = threading.Thread(target=self._accept, name=f"messages-api-{self.port}", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """End every connection, and wait until all threads have."""
        self.is_closing = True
        self._wakeup.set()
        self._thread.join()
        self._listener.close()
        self._wakeup.close()
        for connection in self._threads.values():
            connection.end()
        for thread in self._threads:
            thread.join()

    def _accept(self) -> None:
        while not self.is_closing:
            if not self._wakeup.wait(self._listener):
                continue
            try:
                client, _ = self._listener.accept()
            except OSError:
                # It left again.
                continue
            client.setblocking(True)
            connection = _Connection(client)
            thread = threading.Thread(
                target=self._serve, args=(connection,), name=f"{self._thread.name}-client", daemon=True
            )
            self._threads = {each: its for each, its in self._threads.items() if each.is_alive()}
            self._threads[thread] = connection
            thread.start()

    def _serve(self, connection: _Connection) -> None:
        try:
            with connection.socket.makefile("rb") as reader:
                while not self.is_closing and (exchange := self._read(connection, reader)):
                    self._respond(exchange)
                    if exchange.headers.get("connection", "").lower() == "close":
                        break
        except (Ended, OSError):
            pass
        except Exception as error:  # noqa: BLE001 - told to whoever runs the server
            self._on_error(error)
        finally:
            connection.close()

    def _read(self, connection: _Connection, reader: BufferedReader) -> Exchange | None:
        """The next request of a connection, if there is one."""
        words = reader.readline(65536).decode("latin-1").split()
        if not words:
            return None
        if len(words) != 3:
            raise HTTPException(f"the first line of a request is {' '.join(words)[:80]!r}")
        headers = {name.lower(): value for name, value in parse_headers(reader).items()}
        exchange = Exchange(self, connection, words[0], words[1].partition("?")[0], headers)
        if "transfer-encoding" in headers:
            exchange.send(411, {"connection": "close"}, b"")
            return None
        if headers.get("expect", "").lower() == "100-continue":
            connection.socket.sendall(_CONTINUE)
        exchange.body = reader.read(int(headers.get("content-length") or 0))
        return exchange


def _event(data: JsonObject) -> bytes:
    return f"event: {data['type']}\ndata: {json.dumps(data)}\n\n".encode()


_JSON = "application/json"
_EVENTS = "text/event-stream; charset=utf-8"


class _Player:
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
        for event in events_of(answer, body):
            if event.is_piece:
                self._exchange.wait(lambda: False, answer.delay)
                sent += 1
            self._exchange.send_piece(_event(event.data))
            if gate is not None and event.is_piece and sent == held_at:
                self._wait_at(gate)
        self._exchange.finish()

    def _fail(self, failure: Failure) -> None:
        error = {"type": failure.type, "message": failure.message}
        if failure.after is not None and self._is_streamed:
            self._begin(failure.after)
            self._exchange.send_piece(_event({"type": "error", "error": error}))
            self._exchange.finish()
        else:
            body: JsonObject = {"type": "error", "error": error, "request_id": self._request_id}
            self.send_json(body, failure.status, dict(failure.headers))

    def _begin(self, text: str) -> None:
        """Stream a message as far as the end of this text."""
        self._exchange.start(self._headers(_EVENTS, {}))
        beginning = say(text)
        for event in events_of(beginning, self._body(beginning)):
            self._exchange.send_piece(_event(event.data))
            if event.is_piece:
                return

    def _body(self, answer: Answer) -> JsonObject:
        return message_of(answer, id=self._message_id, model=str(self._request.body.get("model", "")))

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


SideKind: TypeAlias = Literal["count_tokens", "probe", "title"]
"""The requests beside the conversation, which take nothing from a script."""

_TITLE = say(json.dumps({"title": "A scripted session"}))


class MessagesApi(Asked):
    """A Messages API on loopback, for as long as the `with` block runs.

        with MessagesApi([use_tool("Bash", command="echo hi"), say("done")]) as api:
            ...                         # ANTHROPIC_BASE_URL is api.url
        api.main_requests[1].tool_results

    Each request of the main conversation takes the next step of the script, which may also be a `Script`, the
    path of a file that has one, or None for the automatic one; when it is used up, the answer is `otherwise`.
    Requests of `subagents` that were not given steps of their own have a script for all of them together.
    What the agent asks beside these, the size of a prompt, whether a model is there, a title, is answered so
    that it is content; `side` has other answers, which are given each time.

    What a function or an `expect` in a script raises is raised at the end of the `with` block. Raises
    `OptionsError` for a script that is none, and for a kind of `side` request that there is not.
    """

    def __init__(
        self,
        script: ScriptSource = (),
        *,
        subagents: Iterable[Item] = (),
        otherwise: Scripted | None = None,
        side: Mapping[SideKind, Scripted] | None = None,
    ) -> None:
        self.script = Script.of(script, subagents=subagents, otherwise=otherwise)
        self._side: dict[str, Scripted] = {"probe": say("ok"), "title": _TITLE, "other": fail(404)}
        for kind, scripted in (side or {}).items():
            if kind not in get_args(SideKind):
                hint = f"There are {', '.join(map(repr, get_args(SideKind)))}."
                raise OptionsError(f"`side` has a kind of request that means nothing: {kind!r}", hint=hint)
            self._side[kind] = scripted
        self._requests = RequestLog()
        self._hanging = Gate(after=0)
        self._errors = self.script.errors
        self._server: Server | None = None
        # Ids of one API must differ from those of the next, which may go on with the same session.
        self._mark = secrets.token_hex(4)

    # Its life.

    def start(self) -> None:
        """Begin to listen; `with` does it.

        Raises `UsageError` if it has begun already.
        """
        if self._server is not None:
            raise UsageError("This API was started already", hint="Make a new one for each `with` block.")
        self._server = Server(self._respond, self._errors.append)

    def close(self) -> None:
        """End all connections, with what hangs on them. No thread is left. A second time does nothing."""
        if self._server is not None and not self._server.is_closing:
            self._server.close()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
        self.script.check(after=error)

    @property
    def url(self) -> str:
        """What `ANTHROPIC_BASE_URL` has to be.

        Raises `UsageError` before the start.
        """
        if self._server is None:
            raise UsageError("This API has no address yet", hint="Enter it first: `with api: …`")
        return f"http://127.0.0.1:{self._server.port}"

    # What tests do with it.

    def release(self) -> None:
        """Let all requests go on that `hang()` holds now."""
        with self._requests.arrived:
            hanging, self._hanging = self._hanging, Gate(after=0)
        hanging.open()

    def wait_for_hang(self, timeout: float = 30.0) -> None:
        """Block this thread until a request has come to a `hang()`.

        Raises `TimeoutError` if none does.
        """
        self._hanging.wait_reached(timeout)

    # What becomes of a request.

    def _respond(self, exchange: Exchange) -> None:
        body = _read(exchange.body)
        kind = kind_of(exchange.method, exchange.path, exchange.headers, body)
        request = Request(
            kind=kind, method=exchange.method, path=exchange.path, headers=exchange.headers, body=body
        )
        with self._requests.arrived:
            self._requests.add(request)
            number, hanging = len(self._requests), self._hanging
            # Which step it is follows from the order of arrival; a function in the script may take its time.
            is_side = kind not in ("main", "subagent")
            chosen = partial(self._beside, request) if is_side else self.script.reserve(request)
        step = chosen()
        player = _Player(exchange, request, id=f"{self._mark}{number:04}", hanging=hanging)
        if kind == "count_tokens" and (step is None or isinstance(step, Answer)):
            player.send_json({"input_tokens": 10 if step is None else step.usage.get("input_tokens", 10)})
        elif exchange.method == "HEAD":
            # The agent looks whether anyone is there.
            exchange.send(200, {}, b"")
        elif step is not None:
            player.play(step)

    def _beside(self, request: Request) -> Step | None:
        """The answer to a request beside the conversation."""
        scripted = self._side.get(request.kind)
        if not callable(scripted):
            return scripted
        try:
            return scripted(request)
        except NOT_OURS:
            raise
        except BaseException as error:  # noqa: BLE001 - raised at the end of the block
            self._errors.append(error)
            return fail(403, message=f"What `side` has for {request.kind!r} raised {error!r}")

    def __repr__(self) -> str:
        state = "not started" if self._server is None else "closed" if self._server.is_closing else self.url
        return f"<MessagesApi {state} requests={len(self._requests)} remaining={len(self.remaining)}>"


def _read(body: bytes) -> JsonObject:
    try:
        value: object = json.loads(body)
    except ValueError:
        return {}
    return cast("JsonObject", value) if isinstance(value, dict) else {}

"""`MessagesApi`, an API on this machine that answers from a script, and `RealAgent`, Claude Code with it."""

from __future__ import annotations

import json
import math
import os
import secrets
import shutil
import socket
import struct
import sys
import tempfile
import threading
import time
from contextlib import suppress
from functools import partial
from http.client import HTTPException
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from socketserver import ThreadingTCPServer
from typing import (
    TYPE_CHECKING,
    Any,
    Final,
    Literal,
    NoReturn,
    Self,
    TypeAlias,
    Unpack,
    assert_never,
    cast,
    get_args,
)

import msgspec

from outrider.command import Command
from outrider.errors import OptionsError, UsageError
from outrider.launch import find_agent
from outrider.options import OptionFields, Options
from outrider.testing._api.requests import KIT_VARIABLE, Asked, Request, RequestLog, kind_of
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
from outrider.transports import ProcessTransport, Transport, Unreachable, intercept

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from contextlib import AbstractContextManager
    from types import TracebackType

    from outrider.wire import JsonObject


_LOOK_SECONDS: Final = 0.02
"""How often a request that waits looks whether its client is still there."""


class Ended(Exception):
    """The exchange cannot continue: the client has left, or the server closes."""


class Exchange(BaseHTTPRequestHandler):
    """A connection: its requests, one after the other, and the means to answer them."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    server: Server  # pyright: ignore[reportIncompatibleVariableOverride]

    def setup(self) -> None:
        super().setup()
        self._woken = threading.Event()
        self.body = b""

    def do_POST(self) -> None:
        """Read the request, and have it answered."""
        if "transfer-encoding" in self.headers:
            self.send(411, {"connection": "close"}, b"")
            return
        self.body = self.rfile.read(int(self.headers.get("content-length") or 0))
        self.server.respond(self)

    do_GET = do_HEAD = do_POST  # noqa: N815 - as `http.server` calls them

    def send(self, status: int, headers: Mapping[str, str], body: bytes) -> None:
        """Answer at once."""
        self._begin(status, {**headers, "content-length": str(len(body))})
        # An answer to HEAD says how long it would be.
        self.wfile.write(b"" if self.command == "HEAD" else body)

    def start(self, headers: Mapping[str, str]) -> None:
        """Begin an answer in pieces."""
        self._begin(200, {**headers, "transfer-encoding": "chunked"})

    def send_piece(self, piece: bytes) -> None:
        self.wfile.write(b"%x\r\n%b\r\n" % (len(piece), piece))

    def finish_pieces(self) -> None:
        self.wfile.write(b"0\r\n\r\n")

    def _begin(self, status: int, headers: Mapping[str, str]) -> None:
        self.send_response_only(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()

    def cut(self) -> NoReturn:
        """Have the client see a reset, not an end."""
        self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        raise Ended

    def wake(self) -> None:
        """Have `wait` look again. Any thread may call it."""
        self._woken.set()

    def wait(self, is_over: Callable[[], bool], timeout: float = math.inf) -> None:
        """Wait until it is so, or the time is up. Raises `Ended` if the client or the server leaves."""
        deadline = time.monotonic() + timeout
        while not is_over() and (left := deadline - time.monotonic()) > 0:
            self._woken.wait(min(left, _LOOK_SECONDS))
            self._woken.clear()
            if self.server.is_closing or self._has_left():
                raise Ended

    def _has_left(self) -> bool:
        try:
            return not self.connection.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT)
        except BlockingIOError:
            return False

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:
        """Called for what is not HTTP."""
        self.close_connection = True
        self.server.on_error(HTTPException(f"{code} {message}"))


class Server(ThreadingTCPServer):
    """Calls `respond` for each request, in a thread of the connection's.

    What it raises, other than `Ended`, goes to `on_error`, and the connection ends.
    """

    # Enough for a whole test run on one machine.
    request_queue_size = 64

    def __init__(
        self, respond: Callable[[Exchange], object], on_error: Callable[[Exception], object]
    ) -> None:
        super().__init__(("127.0.0.1", 0), Exchange)
        self.respond, self.on_error = respond, on_error
        self.is_closing = False
        self.port: int = self.socket.getsockname()[1]
        # Touched by the accepting thread alone, and by `close` once that has ended.
        self._clients: dict[threading.Thread, socket.socket] = {}
        # Daemons: a server that was forgotten does not keep a program from its end.
        self._thread = threading.Thread(target=self._accept, name=f"messages-api-{self.port}", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """End every connection, and wait until all threads have."""
        self.is_closing = True
        # Wakes the thread that accepts.
        with suppress(OSError):
            socket.create_connection(("127.0.0.1", self.port), timeout=1).close()
        self._thread.join()
        self.server_close()
        for client in self._clients.values():
            with suppress(OSError):
                client.shutdown(socket.SHUT_RDWR)
        for thread in self._clients:
            thread.join()

    def _accept(self) -> None:
        while not self.is_closing:
            self.handle_request()

    def process_request(self, request: Any, client_address: Any) -> None:  # noqa: ANN401 - as `socketserver` has it
        thread = threading.Thread(
            target=self.process_request_thread,
            args=(request, client_address),
            name=f"{self._thread.name}-client",
            daemon=True,
        )
        self._clients = {each: its for each, its in self._clients.items() if each.is_alive()}
        self._clients[thread] = request
        thread.start()

    def shutdown_request(self, request: Any) -> None:  # noqa: ANN401
        # With no goodbye, which would come before a reset.
        self.close_request(request)

    def handle_error(self, request: object, client_address: object) -> None:
        error = sys.exception()
        if isinstance(error, Exception) and not isinstance(error, Ended | OSError):
            self.on_error(error)


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
        self._exchange.finish_pieces()

    def _fail(self, failure: Failure) -> None:
        error = {"type": failure.type, "message": failure.message}
        if failure.after is not None and self._is_streamed:
            self._begin(failure.after)
            self._exchange.send_piece(_event({"type": "error", "error": error}))
            self._exchange.finish_pieces()
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


class _Block(Asked):
    """What lasts as long as a `with` block."""

    def start(self) -> None:
        raise NotImplementedError

    def close(self) -> None:
        raise NotImplementedError

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
        self.script.check(after=error)


class MessagesApi(_Block):
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
    `OptionsError` for an invalid script, and for an unknown kind of `side` request.
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
        self._errors = self.script.errors
        self._server: Server | None = None
        # Ids of one API must differ from those of the next, which may continue the same session.
        self._mark = secrets.token_hex(4)

    # Its life.

    def start(self) -> None:
        """Begin to listen; `with` does it. Raises `UsageError` if it has begun already."""
        if self._server is not None:
            raise UsageError("This API was started already", hint="Make a new one for each `with` block.")
        self._server = Server(self._respond, self._errors.append)

    def close(self) -> None:
        """End all connections, with what hangs on them. No thread is left. A second time does nothing."""
        if self._server is not None and not self._server.is_closing:
            self._server.close()

    @property
    def url(self) -> str:
        """What `ANTHROPIC_BASE_URL` has to be. Raises `UsageError` before the start."""
        if self._server is None:
            raise UsageError("This API has no address yet", hint="Enter it first: `with api: …`")
        return f"http://127.0.0.1:{self._server.port}"

    # What becomes of a request.

    def _respond(self, exchange: Exchange) -> None:
        body, method, path = _read(exchange.body), exchange.command, exchange.path.partition("?")[0]
        headers = {name.lower(): value for name, value in exchange.headers.items()}
        kind = kind_of(method, path, headers, body)
        request = Request(kind=kind, method=method, path=path, headers=headers, body=body)
        with self._requests.arrived:
            self._requests.add(request)
            number, hanging = len(self._requests), self._requests.hanging
            # Which step it is follows from the order of arrival; a function in the script may take its time.
            is_side = kind not in ("main", "subagent")
            chosen = partial(self._beside, request) if is_side else self.script.reserve(request)
        step = chosen()
        player = _Player(exchange, request, id=f"{self._mark}{number:04}", hanging=hanging)
        if kind == "count_tokens" and (step is None or isinstance(step, Answer)):
            player.send_json({"input_tokens": 10 if step is None else step.usage.get("input_tokens", 10)})
        elif method == "HEAD":
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


PROGRAM_VARIABLE: Final = "OUTRIDER_TEST_AGENT"
"""Names the program for tests, if it is not the one that is installed."""

# Port 9 is closed everywhere.
_NOWHERE: Final = "http://127.0.0.1:9"

# What a hermetic run chooses itself.
_OF_ISOLATION: Final = ("HOME", "TMPDIR", "CLAUDE_CONFIG_DIR")


def clean_environment(home: str | os.PathLike[str], *, url: str = _NOWHERE) -> dict[str, str]:
    """The environment of the agent, without the keys, settings and network of the user who runs the test.

    `url` is that of a Messages API; left out, the agent reaches none.
    """
    folder = Path(home)
    return {
        "PATH": os.environ.get("PATH", os.defpath),
        "HOME": str(folder),
        "TMPDIR": str(folder),
        "CLAUDE_CONFIG_DIR": str(folder / ".claude"),
        "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
        "DISABLE_AUTOUPDATER": "1",
        "ANTHROPIC_BASE_URL": url,
        "ANTHROPIC_API_KEY": "made-up",
        # Without it the program refuses root to switch permissions off.
        "IS_SANDBOX": "1",
        KIT_VARIABLE: "1",
    }


class RealAgent(_Block):
    """Claude Code with a scripted model, in folders of its own that are gone after the `with` block.

        with RealAgent([use_tool("Bash", command="ls"), say("done")]) as agent:
            result = await outrider.run("list", options=agent.options(permission_mode="bypassPermissions"))
            assert "ls" in agent.main_requests[1].tool_results[0]["content"]

    The program is the one given, the one that the variable `OUTRIDER_TEST_AGENT` names, or the one that is
    installed. The script and what follows it are those of `MessagesApi`. End sessions inside the block.

    Raises `AgentNotFound` if there is no program.
    """

    def __init__(
        self,
        script: ScriptSource = (),
        *,
        program: str | os.PathLike[str] | None = None,
        subagents: Iterable[Item] = (),
        otherwise: Scripted | None = None,
        side: Mapping[SideKind, Scripted] | None = None,
    ) -> None:
        self.program: str = find_agent(cli_path=program or os.environ.get(PROGRAM_VARIABLE) or None)
        self.api = MessagesApi(script, subagents=subagents, otherwise=otherwise, side=side)
        self.script, self._requests = self.api.script, self.api._requests
        self._root: Path | None = None

    def start(self) -> None:
        """Make the folders and begin to listen; `with` does it.

        Raises `UsageError` if that was done already.
        """
        self.api.start()
        try:
            # As the agent will say it: on some systems the folder for temporary files is a link.
            self._root = Path(tempfile.mkdtemp(prefix="outrider-agent-")).resolve()
            for folder in (self.folder, self.config_dir):
                folder.mkdir(parents=True)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """End the API and remove the folders. A second time does nothing."""
        self.api.close()
        if self._root is not None:
            # An agent that is still ending may write on.
            shutil.rmtree(self._root, ignore_errors=True)

    @property
    def folder(self) -> Path:
        """The working folder, empty at first."""
        return self._place() / "project"

    @property
    def home(self) -> Path:
        return self._place() / "home"

    @property
    def config_dir(self) -> Path:
        """Where the agent keeps its settings and sessions."""
        return self.home / ".claude"

    @property
    def environment(self) -> dict[str, str]:
        """The variables that the agent is given."""
        return clean_environment(self.home, url=self.api.url)

    def options(self, **fields: Unpack[OptionFields]) -> Options:
        """Options that start the program here; those given are added, `env` to the variables.

        Raises `OptionsError` for what cannot work.
        """
        base: OptionFields = {"cli_path": self.program, "cwd": self.folder, "env_policy": ["PATH"]}
        environment = self.environment
        if "isolation" in fields and Options(isolation=fields["isolation"]).isolation.is_hermetic:
            environment = {name: environment[name] for name in environment if name not in _OF_ISOLATION}
        merged: OptionFields = {**base, **fields, "env": {**environment, **fields.get("env", {})}}
        return Options(**merged)

    def stand_in(self, *, everywhere: bool = False) -> AbstractContextManager[None]:
        """Have every session that would start a program start this one here, as long as the block runs.

            with RealAgent([say("Hello!")]) as agent, agent.stand_in():
                assert greet() == "Hello!"          # calls outrider.run() somewhere

        With `everywhere`, this counts for all threads and tasks of the process. Sessions that are given a
        `transport`, and those with `options()` of this agent, are left as they are.
        """

        def change(transport: Transport) -> Transport:
            command = getattr(transport, "command", None)
            if not isinstance(transport, ProcessTransport | Unreachable) or not isinstance(command, Command):
                return transport
            if KIT_VARIABLE in (command.env or {}):
                return transport
            argv = (self.program, *command.argv[1:])
            cwd = command.cwd or str(self.folder)
            changed = msgspec.structs.replace(command, argv=argv, env=self.environment, cwd=cwd)
            return ProcessTransport(changed)

        return intercept(change, everywhere=everywhere)

    def _place(self) -> Path:
        if self._root is None:
            raise UsageError("This agent has no folders yet", hint="Enter it first: `with agent: …`")
        return self._root

    def __repr__(self) -> str:
        return f"<RealAgent {self.program} {self.api!r}>"

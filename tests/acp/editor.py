"""An editor for tests: speaks the protocol on any event loop, and holds every frame it gets to the schema."""

from __future__ import annotations

import json
import socket
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from functools import partial
from typing import Any

import anyio
import jsonschema  # type: ignore[import-untyped]
from acp import schema
from anyio.abc import ByteStream, SocketStream
from pydantic import BaseModel, TypeAdapter

from outrider.acp import serve

RESULTS: dict[str, type[BaseModel]] = {
    "initialize": schema.InitializeResponse,
    "session/new": schema.NewSessionResponse,
    "session/load": schema.LoadSessionResponse,
    "session/resume": schema.ResumeSessionResponse,
    "session/fork": schema.ForkSessionResponse,
    "session/list": schema.ListSessionsResponse,
    "session/close": schema.CloseSessionResponse,
    "session/delete": schema.DeleteSessionResponse,
    "session/prompt": schema.PromptResponse,
    "session/set_mode": schema.SetSessionModeResponse,
    "session/set_config_option": schema.SetSessionConfigOptionResponse,
}
REQUESTS: dict[str, Any] = {
    "session/update": schema.SessionNotification,
    "session/request_permission": schema.RequestPermissionRequest,
    "elicitation/create": schema.CreateFormSessionElicitationRequest
    | schema.CreateUrlSessionElicitationRequest,
    "elicitation/complete": schema.CompleteElicitationNotification,
    "fs/read_text_file": schema.ReadTextFileRequest,
    "fs/write_text_file": schema.WriteTextFileRequest,
    "terminal/create": schema.CreateTerminalRequest,
    "terminal/output": schema.TerminalOutputRequest,
    "terminal/wait_for_exit": schema.WaitForTerminalExitRequest,
    "terminal/kill": schema.KillTerminalRequest,
    "terminal/release": schema.ReleaseTerminalRequest,
    "$/cancel_request": schema.CancelRequestNotification,
}
_schemas: dict[Any, Any] = {}


def check(form: Any, data: Any) -> None:
    """Hold a frame's content to the schema: structure, nothing unknown, nothing that a reader would drop."""
    adapter: TypeAdapter[Any] = TypeAdapter(form)
    if form not in _schemas:
        _schemas[form] = jsonschema.Draft202012Validator(adapter.json_schema(by_alias=True))
    _schemas[form].validate(data)
    read = adapter.validate_python(data)
    assert adapter.dump_python(read, mode="json", by_alias=True, exclude_none=True) == data


class Refused(Exception):
    def __init__(self, error: dict[str, Any]) -> None:
        super().__init__(error)
        self.code, self.text = error["code"], error["message"]


Handler = Callable[[dict[str, Any]], Awaitable[Any]]


class Editor:
    """The editor's end of a connection."""

    def __init__(self, stream: ByteStream) -> None:
        self.stream = stream
        self.updates: list[dict[str, Any]] = []
        """What came for any session, in order, without its id."""
        self.asked: list[tuple[str, dict[str, Any]]] = []
        """The requests of the agent."""
        self.errors: list[dict[str, Any]] = []
        """Errors that answer no request."""
        self.taken_back: list[int] = []
        self.completed: list[str] = []
        """The pages that were opened, and are done."""
        self.handlers: dict[str, Handler] = {}
        self._waiting: dict[int, tuple[str, anyio.Event]] = {}
        self._answers: dict[int, dict[str, Any]] = {}
        self._changed = anyio.Event()
        self._id = 0
        self.session_id = ""
        self._sending = anyio.Lock()
        self.reads = anyio.Event()
        self.reads.set()

    # Talking.

    async def send(self, frame: object) -> None:
        async with self._sending:
            await self.stream.send(json.dumps(frame).encode() + b"\n")

    async def begin(self, method: str, **params: Any) -> int:
        id = self._id = self._id + 1
        self._waiting[id] = method, anyio.Event()
        await self.send({"jsonrpc": "2.0", "id": id, "method": method, "params": params})
        return id

    def expect(self, id: int, method: str) -> int:
        self._waiting[id] = method, anyio.Event()
        return id

    async def end(self, id: int) -> dict[str, Any]:
        await self._waiting[id][1].wait()
        answer = self._answers[id]
        if "error" in answer:
            raise Refused(answer["error"])
        result: dict[str, Any] = answer["result"]
        return result

    async def call(self, method: str, **params: Any) -> dict[str, Any]:
        return await self.end(await self.begin(method, **params))

    async def tell(self, method: str, **params: Any) -> None:
        await self.send({"jsonrpc": "2.0", "method": method, "params": params})

    async def initialize(self, **capabilities: Any) -> dict[str, Any]:
        return await self.call("initialize", protocolVersion=1, clientCapabilities=capabilities)

    async def new(self, cwd: Any, **more: Any) -> dict[str, Any]:
        made = await self.call("session/new", **{"cwd": str(cwd), "mcpServers": [], **more})
        self.session_id = made["sessionId"]
        return made

    async def prompt(self, text: str | list[dict[str, Any]], session_id: str | None = None) -> dict[str, Any]:
        return await self.end(await self.begin_prompt(text, session_id))

    async def begin_prompt(self, text: str | list[dict[str, Any]], session_id: str | None = None) -> int:
        blocks = [{"type": "text", "text": text}] if isinstance(text, str) else text
        return await self.begin("session/prompt", sessionId=session_id or self.session_id, prompt=blocks)

    def answer_permission(self, *options: str | None) -> None:
        """Answer permission requests with these options, in order; None: cancelled."""
        left = list(options)

        async def choose(_: dict[str, Any]) -> Any:
            chosen = left.pop(0)
            if chosen is None:
                return {"outcome": {"outcome": "cancelled"}}
            return {"outcome": {"outcome": "selected", "optionId": chosen}}

        self.handlers["session/request_permission"] = choose

    # What came.

    def of(self, kind: str) -> list[dict[str, Any]]:
        return [each for each in self.updates if each["sessionUpdate"] == kind]

    def asked_of(self, method: str) -> list[dict[str, Any]]:
        """What the agent asked by this method. Handlers run in tasks, and may not have begun with it."""
        return [params for each, params in self.asked if each == method]

    @property
    def text(self) -> str:
        return "".join(each["content"]["text"] for each in self.of("agent_message_chunk"))

    def call_of(self, id: str) -> dict[str, Any]:
        """A tool call, with all that was said of it."""
        merged: dict[str, Any] = {}
        for each in self.updates:
            if each.get("toolCallId") == id:
                merged |= each
        return merged

    async def until(self, holds: Callable[[], Any]) -> None:
        while not holds():
            await self._changed.wait()

    # Reading.

    async def read(self) -> None:
        rest = b""
        async with anyio.create_task_group() as tasks:
            try:
                while True:
                    *lines, rest = (rest + await self.stream.receive()).split(b"\n")
                    await self.reads.wait()
                    for line in lines:
                        await self._take(json.loads(line), tasks)
                        self._changed.set()
                        self._changed = anyio.Event()
            except (anyio.EndOfStream, anyio.ClosedResourceError, anyio.BrokenResourceError):
                tasks.cancel_scope.cancel()
        assert not rest

    async def _take(self, frame: dict[str, Any], tasks: Any) -> None:
        assert frame.pop("jsonrpc") == "2.0"
        if "method" in frame:
            method, params = frame["method"], frame["params"]
            check(REQUESTS[method], params)
            if method == "session/update":
                self.updates.append(params["update"])
            elif method == "$/cancel_request":
                self.taken_back.append(params["requestId"])
            elif method == "elicitation/complete":
                self.completed.append(params["elicitationId"])
            else:
                self.asked.append((method, params))
                tasks.start_soon(self._answer, frame["id"], method, params)
            return
        if "error" in frame:
            check(schema.Error, frame["error"])
        if frame["id"] is None:
            self.errors += [frame["error"]] if "error" in frame else []
            return
        method, event = self._waiting[frame["id"]]
        if "result" in frame:
            check(RESULTS[method], frame["result"])
        self._answers[frame["id"]] = frame
        event.set()

    async def _answer(self, id: int, method: str, params: dict[str, Any]) -> None:
        with suppress(anyio.BrokenResourceError, anyio.ClosedResourceError):
            await self._send_answer(id, method, params)

    async def _send_answer(self, id: int, method: str, params: dict[str, Any]) -> None:
        if method in self.handlers:
            result = await self.handlers[method](params)
            await self.send({"jsonrpc": "2.0", "id": id, "result": result})
        else:
            error = {"code": -32601, "message": f"no {method} here"}
            await self.send({"jsonrpc": "2.0", "id": id, "error": error})


@asynccontextmanager
async def served(source: Any, **serving: Any) -> AsyncGenerator[Editor]:
    """An editor that is connected to an agent with these options."""
    ours, theirs = socket.socketpair()
    with anyio.fail_after(40):
        async with anyio.create_task_group() as tasks:
            far = await SocketStream.from_socket(theirs)
            near = await SocketStream.from_socket(ours)

            tasks.start_soon(partial(serve, source, stream=far, **serving))
            editor = Editor(near)
            tasks.start_soon(editor.read)
            try:
                yield editor
            finally:
                await near.aclose()

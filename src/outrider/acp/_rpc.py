"""JSON-RPC 2.0 over lines, in both directions: frames, requests, answers and errors.

Knows neither editors nor agents. What comes in is never trusted: a frame that cannot be read is answered
with an error, and the next one is read.
"""

from __future__ import annotations

import json
import logging
import os
import sys
from collections.abc import Awaitable, Callable, Generator, Mapping
from contextlib import contextmanager
from io import BytesIO
from select import PIPE_BUF
from stat import S_ISFIFO, S_ISSOCK
from typing import Final, NamedTuple, TypeAlias, TypeVar, cast

import anyio
import msgspec
from anyio.abc import ByteStream, TaskGroup
from pydantic import BaseModel, TypeAdapter, ValidationError

from outrider.redaction import preview
from outrider.wire import JsonObject

log = logging.getLogger("outrider.acp")

M = TypeVar("M")
RequestId: TypeAlias = int | str | None


class Then(NamedTuple):
    """An answer, and what is to be sent after it."""

    answer: BaseModel
    then: Callable[[], Awaitable[None]]


Answered: TypeAlias = BaseModel | Then | None
Answer: TypeAlias = Answered | Awaitable[Answered]
"""What a method gives: its answer, or the work that leads to one."""
Method: TypeAlias = Callable[[JsonObject], Answer]
"""Takes the parameters as they came. It is called in the order of the frames, before the next one is read;
what takes time is an awaitable, and the methods run side by side."""

PARSE_ERROR, INVALID_REQUEST, NO_METHOD, INVALID_PARAMS, INTERNAL = -32700, -32600, -32601, -32602, -32603
REQUEST_CANCELLED, AUTH_REQUIRED, NOT_FOUND = -32800, -32000, -32002

MOST_BYTES: Final = 64 * 1024 * 1024
"""A frame may be this large: twice of what the API takes in one request."""
_CHUNK: Final = 65536
_QUEUED: Final = 256
"""So many frames wait for an editor that reads slowly; then whoever sends waits."""
_FLUSH_SECONDS: Final = 2.0


class RpcError(Exception):
    """An error that is sent, or was received, in answer to a request."""

    def __init__(self, code: int, message: str, data: object = None) -> None:
        super().__init__(message)
        self.code, self.message, self.data = code, message, data


class Rpc:
    """One end of a connection."""

    def __init__(self, stream: ByteStream, methods: Mapping[str, Method]) -> None:
        self._stream = stream
        self._methods = methods
        self._frames, self._outgoing = anyio.create_memory_object_stream[bytes](_QUEUED)
        self._waiting: dict[RequestId, _Reply] = {}
        self._running: dict[RequestId, anyio.CancelScope] = {}
        self._sent = 0
        self._is_closed = False

    async def serve(self) -> None:
        """Answer requests until the other end closes its side or stops reading."""
        async with anyio.create_task_group() as writing:
            writing.start_soon(self._write, writing.cancel_scope)
            try:
                async with anyio.create_task_group() as tasks:
                    await self._read(tasks)
                    tasks.cancel_scope.cancel()
            finally:
                self._is_closed = True
                for reply in self._waiting.values():
                    reply.fail(RpcError(INTERNAL, "the editor has gone"))
                self._frames.close()
            # The last answers still go out.
            writing.cancel_scope.deadline = anyio.current_time() + _FLUSH_SECONDS

    # Sending.

    async def request(self, method: str, params: BaseModel, answer: type[M]) -> M:
        """Ask the other end. Raises `RpcError` if it refuses, gives no valid answer, or has gone."""
        if self._is_closed:
            raise RpcError(INTERNAL, "the editor has gone")
        self._sent += 1
        id, reply = self._sent, _Reply()
        self._waiting[id] = reply
        try:
            await self._send({"jsonrpc": "2.0", "id": id, "method": method, "params": _plain(params)})
            await reply.done.wait()
        except anyio.get_cancelled_exc_class():
            # Nobody wants the answer any more: the editor may take its question away.
            taken_back = {"jsonrpc": "2.0", "method": "$/cancel_request", "params": {"requestId": id}}
            try:
                self._frames.send_nowait(_encode(taken_back))
            except (anyio.WouldBlock, anyio.BrokenResourceError, anyio.ClosedResourceError):
                pass
            raise
        finally:
            del self._waiting[id]
        if reply.error is not None:
            raise reply.error
        try:
            # An answer without content may be null.
            return TypeAdapter(answer).validate_python({} if reply.result is None else reply.result)
        except ValidationError as error:
            raise RpcError(
                INTERNAL, f"the editor's answer to {method} is invalid: {_reason(error)}"
            ) from None

    async def notify(self, method: str, params: BaseModel) -> None:
        """Tell the other end. One that has gone is told nothing."""
        await self._send({"jsonrpc": "2.0", "method": method, "params": _plain(params)})

    async def _send(self, frame: JsonObject) -> None:
        try:
            await self._frames.send(_encode(frame))
        except (anyio.BrokenResourceError, anyio.ClosedResourceError):
            pass

    async def _write(self, scope: anyio.CancelScope) -> None:
        with self._outgoing:
            async for frame in self._outgoing:
                frames = [frame]
                while self._outgoing.statistics().current_buffer_used:
                    frames.append(self._outgoing.receive_nowait())
                try:
                    await self._stream.send(b"".join(frames))
                except (OSError, anyio.BrokenResourceError, anyio.ClosedResourceError):
                    log.info("the editor does not read any more")
                    scope.cancel()

    # Receiving.

    async def _read(self, tasks: TaskGroup) -> None:
        line, skipped = BytesIO(), 0
        while True:
            try:
                chunk = await self._stream.receive(_CHUNK)
            except (anyio.EndOfStream, anyio.BrokenResourceError, anyio.ClosedResourceError, OSError):
                return
            *ended, rest = chunk.split(b"\n")
            for piece in ended:
                line.write(piece)
                if skipped or line.tell() > MOST_BYTES:
                    await self._refuse_size(skipped + line.tell())
                else:
                    await self._take(line.getvalue(), tasks)
                line, skipped = BytesIO(), 0
            line.write(rest)
            if line.tell() > MOST_BYTES:
                skipped += line.tell()
                line = BytesIO()

    async def _refuse_size(self, size: int) -> None:
        text = f"a frame of {size} bytes is too large: {MOST_BYTES} is the most"
        await self._answer_error(None, RpcError(INVALID_REQUEST, text))

    async def _take(self, line: bytes, tasks: TaskGroup) -> None:
        if not line.strip():
            return
        try:
            frame: object = msgspec.json.decode(line)
        except (ValueError, RecursionError) as error:
            await self._answer_error(None, RpcError(PARSE_ERROR, f"a frame is not JSON: {error}"))
            return
        if not isinstance(frame, dict):
            text = "a frame is not a JSON object; batches are not supported"
            await self._answer_error(None, RpcError(INVALID_REQUEST, text))
            return
        message = cast("JsonObject", frame)
        id: object = message.get("id")
        if isinstance(id, bool) or not isinstance(id, int | str | None):
            text = "the `id` of a frame is neither a number nor a text"
            await self._answer_error(None, RpcError(INVALID_REQUEST, text))
        elif "method" in message:
            await self._call(message, id, tasks)
        elif "result" in message or "error" in message:
            self._take_reply(id, message)
        else:
            text = "a frame has neither `method` nor `result` nor `error`"
            await self._answer_error(id, RpcError(INVALID_REQUEST, text))

    def _take_reply(self, id: RequestId, message: JsonObject) -> None:
        reply = self._waiting.get(id)
        if reply is None:
            log.info("an answer to the request %r, which nobody waits for", id)
            return
        error: object = message.get("error")
        if isinstance(error, dict):
            told = cast("JsonObject", error)
            code: object = told.get("code")
            reply.fail(
                RpcError(
                    code if isinstance(code, int) else INTERNAL, str(told.get("message")), told.get("data")
                )
            )
        elif error is not None:
            reply.fail(RpcError(INTERNAL, preview(str(error), 200)))
        else:
            reply.result = message.get("result")
            reply.done.set()

    async def _call(self, message: JsonObject, id: RequestId, tasks: TaskGroup) -> None:
        name, params = message["method"], message.get("params")
        is_request = "id" in message
        if name == "$/cancel_request" and isinstance(params, dict):
            meant: object = cast("JsonObject", params).get("requestId")
            if isinstance(meant, int | str) and meant in self._running:
                self._running[meant].cancel()
            return
        try:
            if not isinstance(name, str):
                raise RpcError(INVALID_REQUEST, "the `method` of a frame is not a text")
            if name not in self._methods:
                raise RpcError(NO_METHOD, f"there is no method {preview(name, 100)!r}")
            if not isinstance(params, dict | None):
                raise RpcError(INVALID_PARAMS, f"the `params` of {name} are not an object")
            if is_request and id in self._running:
                raise RpcError(INVALID_REQUEST, f"the request {id!r} is still running")
            answer = self._methods[name](cast("JsonObject", params or {}))
        except Exception as error:  # noqa: BLE001 - every error is an answer
            await self._answer_error(id if is_request else None, error, is_wanted=is_request)
            return
        if not isinstance(answer, Awaitable):
            if is_request:
                await self._answer(id, answer)
            return
        scope = anyio.CancelScope()
        if is_request:
            self._running[id] = scope
        tasks.start_soon(self._run, answer, id, scope, is_request)

    async def _run(
        self, work: Awaitable[Answered], id: RequestId, scope: anyio.CancelScope, is_request: bool
    ) -> None:
        answer: Answered = None
        error: Exception | None = RpcError(REQUEST_CANCELLED, "the request was cancelled")
        try:
            with scope:
                answer, error = await work, None
            if error is None and is_request:
                # What is done cannot be cancelled any more: there is one answer.
                await self._answer(id, answer)
        except Exception as failed:  # noqa: BLE001 - every error is an answer
            error = failed
        finally:
            if is_request:
                del self._running[id]
        if error is not None:
            await self._answer_error(id, error, is_wanted=is_request)

    async def _answer(self, id: RequestId, answer: Answered) -> None:
        model = answer.answer if isinstance(answer, Then) else answer
        result: object = {} if model is None else _plain(model)
        await self._send({"jsonrpc": "2.0", "id": id, "result": result})
        if isinstance(answer, Then):
            try:
                await answer.then()
            except Exception:
                log.exception("what follows an answer could not be sent")

    async def _answer_error(self, id: RequestId, error: Exception, *, is_wanted: bool = True) -> None:
        if isinstance(error, ValidationError):
            error = RpcError(INVALID_PARAMS, f"the `params` are invalid: {_reason(error)}")
        elif not isinstance(error, RpcError):
            log.error("a request of the editor failed", exc_info=error)
            error = RpcError(INTERNAL, f"{type(error).__name__}: {error}")
        if not is_wanted:
            log.warning("a notification of the editor failed: %s", error)
            return
        told: JsonObject = {"code": error.code, "message": error.message}
        if error.data is not None:
            told["data"] = error.data
        await self._send({"jsonrpc": "2.0", "id": id, "error": told})


class _Reply:
    def __init__(self) -> None:
        self.done = anyio.Event()
        self.result: object = None
        self.error: RpcError | None = None

    def fail(self, error: RpcError) -> None:
        self.error = error
        self.done.set()


def _plain(model: BaseModel) -> JsonObject:
    return model.model_dump(mode="json", by_alias=True, exclude_none=True)


def _encode(frame: JsonObject) -> bytes:
    try:
        return msgspec.json.encode(frame) + b"\n"
    except UnicodeEncodeError:
        # Half of a surrogate pair is not text: as an escape, most editors could not read the frame.
        return json.dumps(frame, ensure_ascii=False).encode(errors="replace") + b"\n"


def _reason(error: ValidationError) -> str:
    first = error.errors(include_url=False, include_context=False, include_input=False)[0]
    return f"`{'.'.join(map(str, first['loc']))}`: {first['msg']}"


# The streams of this process.


class _Stdio(ByteStream):
    """Reads and writes file descriptors, of whatever kind. Both can be cancelled."""

    def __init__(self, source: int, sink: int) -> None:
        self._source, self._sink = source, sink
        self._can_wait = {each: _can_wait(each) for each in (source, sink)}

    async def receive(self, max_bytes: int = _CHUNK) -> bytes:
        if self._can_wait[self._source]:
            await anyio.wait_readable(self._source)
        if data := os.read(self._source, max_bytes):
            return data
        raise anyio.EndOfStream

    async def send(self, item: bytes) -> None:
        # The descriptor may be shared, so it cannot be made non-blocking: no more than surely fits.
        rest = memoryview(item)
        while rest:
            if self._can_wait[self._sink]:
                await anyio.wait_writable(self._sink)
            rest = rest[os.write(self._sink, rest[:PIPE_BUF]) :]

    async def send_eof(self) -> None:
        pass

    async def aclose(self) -> None:
        pass


def _can_wait(descriptor: int) -> bool:
    """Others, such as files, are always ready."""
    mode = os.fstat(descriptor).st_mode
    return S_ISFIFO(mode) or S_ISSOCK(mode) or os.isatty(descriptor)


@contextmanager
def stdio() -> Generator[ByteStream]:
    """The standard streams, taken from the rest of the process: what anybody else prints goes to stderr, and
    nobody else reads what the editor sends."""
    sys.stdout.flush()
    source, sink = os.dup(0), os.dup(1)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.dup2(2, 1)
    os.close(nothing)
    try:
        yield _Stdio(source, sink)
    finally:
        sys.stdout.flush()
        os.dup2(source, 0)
        os.dup2(sink, 1)
        os.close(source)
        os.close(sink)

"""Owns how messages get to an MCP server and back: to one of the host, or to a process of its own.

Does not know what they say, but for which answer belongs to which request.
"""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Awaitable, Callable
from subprocess import DEVNULL
from typing import TYPE_CHECKING, Final, Protocol, TypeAlias, cast

import anyio
from anyio.streams.buffered import BufferedByteReceiveStream

from outrider.testing._simulator._world import Refused
from outrider.wire import JsonObject

if TYPE_CHECKING:
    from anyio.abc import Process, TaskGroup

    from outrider.testing._simulator._world import Surroundings

__all__ = ["HostWire", "OnMessage", "ProcessWire", "Wire", "WireError"]

_MOST_BYTES: Final = 64 * 1024 * 1024

OnMessage: TypeAlias = Callable[[JsonObject], Awaitable[JsonObject | None]]
"""What is done with a message that a server sends by itself; gives the answer, if there is one."""


class WireError(Exception):
    """The server cannot be reached, or is gone. The text is for the model."""


class Wire(Protocol):
    """A way to one server."""

    async def exchange(self, message: JsonObject) -> JsonObject:
        """Send a request and wait for its answer: forever, if none comes. Raises `WireError`."""
        ...

    async def send(self, message: JsonObject) -> None:
        """Send what has no answer. Raises `WireError`."""
        ...

    async def close(self) -> None:
        """End it. A second time does nothing."""
        ...


class HostWire:
    """To a server in the host, through `mcp_message`."""

    def __init__(self, run: Surroundings, name: str) -> None:
        self._run, self._name = run, name

    async def exchange(self, message: JsonObject) -> JsonObject:
        try:
            answer = await self._ask(message)
        except Refused as refusal:
            raise WireError(str(refusal)) from None
        found = answer.get("mcp_response")
        if isinstance(found, dict):
            response = cast("JsonObject", found)
            if response.get("id") == message["id"]:
                return response
        # The program waits on for the right one.
        await anyio.sleep_forever()
        raise AssertionError

    async def send(self, message: JsonObject) -> None:
        try:
            await self._ask(message)
        except Refused as refusal:
            raise WireError(str(refusal)) from None

    async def _ask(self, message: JsonObject) -> JsonObject:
        return await self._run.ask("mcp_message", {"server_name": self._name, "message": message})

    async def close(self) -> None:
        pass


class ProcessWire:
    """To a program of its own, a line for each message."""

    def __init__(self, process: Process, on_message: OnMessage) -> None:
        self._process, self._on_message = process, on_message
        self._waiting: dict[object, tuple[anyio.Event, list[JsonObject]]] = {}
        self._is_over = False
        self._sending = anyio.Lock()

    @classmethod
    async def start(cls, run: Surroundings, config: JsonObject, on_message: OnMessage) -> ProcessWire:
        """Start the program. Raises `WireError`."""
        words = cast("list[object]", config.get("args") or [])
        command = [str(config.get("command", "")), *map(str, words)]
        extra = cast("dict[str, str]", config.get("env") or {})
        try:
            process = await anyio.open_process(
                command,
                cwd=run.cwd,
                env={**run.environment, **extra},
                stderr=DEVNULL,
                start_new_session=os.name != "nt",
            )
        except FileNotFoundError:
            raise WireError("ENOENT: no such file or directory, posix_spawn 'stdio'") from None
        except OSError as error:
            raise WireError(str(error)) from None
        wire = cls(process, on_message)
        run.tasks.start_soon(wire._read, name="simulated MCP client")
        return wire

    async def exchange(self, message: JsonObject) -> JsonObject:
        if self._is_over:
            raise WireError("Connection closed")
        done, answers = anyio.Event(), list[JsonObject]()
        self._waiting[message["id"]] = (done, answers)
        try:
            await self.send(message)
            await done.wait()
        finally:
            self._waiting.pop(message["id"], None)
        if not answers:
            raise WireError("Connection closed")
        return answers[0]

    async def send(self, message: JsonObject) -> None:
        assert self._process.stdin is not None
        try:
            async with self._sending:
                await self._process.stdin.send(json.dumps(message).encode() + b"\n")
        except (anyio.BrokenResourceError, anyio.ClosedResourceError, OSError):
            raise WireError("Connection closed") from None

    async def _read(self) -> None:
        assert self._process.stdout is not None
        stream = BufferedByteReceiveStream(self._process.stdout)
        try:
            async with anyio.create_task_group() as tasks:
                while True:
                    line = await stream.receive_until(b"\n", _MOST_BYTES)
                    try:
                        message = json.loads(line)
                    except ValueError:
                        continue
                    if isinstance(message, dict):
                        self._take(cast("JsonObject", message), tasks)
        except* (
            anyio.IncompleteRead,
            anyio.ClosedResourceError,
            anyio.BrokenResourceError,
            anyio.EndOfStream,
        ):
            pass
        finally:
            self._is_over = True
            for done, _ in self._waiting.values():
                done.set()

    def _take(self, message: JsonObject, tasks: TaskGroup) -> None:
        if "method" in message:
            tasks.start_soon(self._serve, message)
        elif (waiting := self._waiting.get(message.get("id"))) is not None:
            waiting[1].append(message)
            waiting[0].set()

    async def _serve(self, message: JsonObject) -> None:
        answer = await self._on_message(message)
        if answer is not None:
            try:
                await self.send(answer)
            except WireError:
                self._is_over = True

    async def close(self) -> None:
        self._is_over = True
        with anyio.CancelScope(shield=True):
            if self._process.returncode is None:
                self._kill()
            await self._process.aclose()

    def _kill(self) -> None:
        try:
            if os.name == "nt":
                self._process.kill()
            else:
                os.killpg(self._process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass

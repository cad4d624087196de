"""The host's side of a scenario: lines written by hand to an agent, and every line that it writes back.

Knows neither which agent it is nor what is expected of it.
"""

from __future__ import annotations

import json
import os
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final, Protocol

import anyio
from anyio import to_thread

from outrider.errors import ConnectionLost
from outrider.testing import Gate, Simulator
from outrider.transports import ProcessTransport, Transport

__all__ = ["DEADLINE", "HOLD", "SILENT", "Host", "Place", "Refusal", "Run", "Stage"]

DEADLINE: Final = 30.0
"""Far longer than anything takes, and shorter than the limit of a test."""

STREAMING: Final = ("--output-format", "stream-json", "--verbose", "--input-format", "stream-json")

HOLD: Final = "echo running > began; cat end"
"""A command that waits: `began` and `end` are pipes for the host."""

SILENT: Final = object()
"""The answer of a host that gives none."""

Frame = dict[str, Any]


class Refusal(Exception):
    """Raised by what answers a request of the agent's: the answer is this error."""


class Place(Protocol):
    """Where an agent runs: it is started there, perhaps several times."""

    folder: Path
    config_dir: Path

    def transport(self, arguments: tuple[str, ...], env: Mapping[str, str]) -> Transport:
        """A way to the agent, started with these arguments."""
        ...


class Run:
    """All that came of one start of an agent."""

    def __init__(self) -> None:
        self.frames: list[Frame] = []
        self.output = b""
        """What is not a line of JSON."""
        self.exit_code: int | None = None
        self.stderr = ""


class Stage:
    """What a script and a host share: gates, where the model stops until the host lets it go on."""

    def __init__(self) -> None:
        self.gates: list[Gate] = []

    def gate(self, *, after: int = 1) -> Gate:
        gate = Gate(after=after)
        self.gates.append(gate)
        return gate


class Host:
    """Talks to an agent, which is started by `started()`."""

    def __init__(self, place: Place, stage: Stage, flags: tuple[str, ...], env: Mapping[str, str]) -> None:
        self.folder, self.config_dir = place.folder, place.config_dir
        self.gates = stage.gates
        self.runs: list[Run] = []
        self.answers: dict[str, Callable[[Frame], object]] = {}
        """What answers the agent's requests, by subtype. It may raise `Refusal`; what it gives is the answer,
        or `SILENT`."""
        self._place, self._flags, self._env = place, flags, env
        self._transport: Transport | None = None
        self._buffer = b""
        self._waiting: list[Frame] = []
        self._requests = 0
        self._is_killed = False

    # Its life.

    @asynccontextmanager
    async def started(self, *flags: str, streaming: bool = True, **env: str) -> AsyncGenerator[None]:
        """The agent runs, with these flags added to those of the scenario, until it has ended by itself."""
        self.runs.append(Run())
        self._is_killed = False
        self._buffer, self._waiting = b"", []
        arguments = (*(STREAMING if streaming else ()), *self._flags, *flags)
        self._transport = self._place.transport(arguments, {**self._env, **env})
        try:
            await self._transport.connect()
            yield
            if not self._is_killed:
                await self.end()
        finally:
            await self._transport.close()
            self.run.stderr = str(getattr(self._transport, "stderr_tail", ""))

    @property
    def run(self) -> Run:
        return self.runs[-1]

    @property
    def frames(self) -> list[Frame]:
        return self.run.frames

    @property
    def session_id(self) -> str:
        """The id that the agent has named last."""
        found: str = [
            frame["session_id"] for run in self.runs for frame in run.frames if "session_id" in frame
        ][-1]
        return found

    # Writing.

    async def write(self, line: object) -> None:
        """Write a line: a value as JSON, a text as it is."""
        assert self._transport is not None
        text = line if isinstance(line, str) else json.dumps(line)
        await self._transport.send(text.encode() + b"\n")

    async def prompt(self, text: object, **fields: object) -> None:
        await self.write({"type": "user", "message": {"role": "user", "content": text}, **fields})

    async def post(self, subtype: str, **fields: object) -> str:
        """Write a request; gives its id, which is a number that counts up."""
        self._requests += 1
        id = f"host-{self._requests}"
        await self.write(
            {"type": "control_request", "request_id": id, "request": {"subtype": subtype, **fields}}
        )
        return id

    # Reading.

    async def request(self, subtype: str, **fields: object) -> Frame:
        """Write a request, and read until it is answered; gives the answer."""
        id = await self.post(subtype, **fields)
        return await self.answered(id)

    async def answered(self, id: str) -> Frame:
        frame = await self.until(
            lambda frame: (
                frame.get("type") == "control_response" and frame["response"].get("request_id") == id
            )
        )
        response: Frame = frame["response"]
        return response

    async def initialize(self, **fields: object) -> Frame:
        return await self.request("initialize", **fields)

    async def ask(self, text: object, **fields: object) -> Frame:
        """A prompt, up to its result."""
        await self.prompt(text, **fields)
        return await self.result()

    async def result(self) -> Frame:
        return await self.until(type="result")

    async def until(self, is_it: Callable[[Frame], bool] | None = None, **fields: object) -> Frame:
        """Read on to the next frame that is the one, or that has these values."""
        wanted = is_it or (lambda frame: all(frame.get(key) == value for key, value in fields.items()))
        while (frame := await self._next()) is not None:
            if wanted(frame):
                return frame
        came = [(frame.get("type"), frame.get("subtype")) for frame in self.frames]
        raise AssertionError(
            f"the agent ended before {fields or 'what was awaited'}: {came} {self.run.output[-300:]!r}"
        )

    async def until_requested(self, subtype: str) -> Frame:
        """Read on to a request of the agent's."""
        return await self.until(
            lambda frame: frame.get("type") == "control_request" and frame["request"]["subtype"] == subtype
        )

    async def until_text(self) -> Frame:
        """Read on to a piece of text."""
        return await self.until(
            lambda frame: (
                frame.get("type") == "stream_event" and frame["event"]["type"] == "content_block_delta"
            )
        )

    async def end_input(self) -> None:
        assert self._transport is not None
        await self._transport.end_input()

    async def kill(self) -> None:
        """End the program at once, as by SIGKILL."""
        self._is_killed = True
        if isinstance(self._transport, ProcessTransport):
            await self._transport.kill()
        elif isinstance(self._transport, Simulator):
            self._transport._abandon()  # It has no such end of its own.

    async def end(self) -> None:
        """End the input, and read to the end."""
        await self.end_input()
        while await self._next() is not None:
            pass
        code = getattr(self._transport, "returncode", None)
        self.run.exit_code = code

    async def _next(self) -> Frame | None:
        """The next frame. What it asks has been answered by then."""
        while not self._waiting:
            try:
                assert self._transport is not None
                with anyio.fail_after(DEADLINE):
                    data = await self._transport.receive()
            except ConnectionLost:
                data = b""
            if not data:
                self.run.output += self._buffer
                self._buffer = b""
                return None
            *lines, self._buffer = (self._buffer + data).split(b"\n")
            for line in lines:
                self._keep(line)
        frame = self._waiting.pop(0)
        if frame.get("type") == "control_request":
            await self._answer(frame)
        return frame

    def _keep(self, line: bytes) -> None:
        try:
            frame = json.loads(line)
        except ValueError:
            self.run.output += line + b"\n"
            return
        if isinstance(frame, list):
            self.run.output += b"(all frames in one list)"
        for each in frame if isinstance(frame, list) else [frame]:
            self.frames.append(each)
            self._waiting.append(each)

    async def _answer(self, frame: Frame) -> None:
        request = frame["request"]
        response: Frame = {"subtype": "success", "request_id": frame["request_id"]}
        try:
            answer = self.answers[request["subtype"]](request)
        except Refusal as error:
            response |= {"subtype": "error", "error": str(error)}
        else:
            if answer is SILENT:
                return
            response["response"] = answer
        await self.write({"type": "control_response", "response": response})

    # What the host does beside it.

    async def reached(self, number: int = 0) -> None:
        """Wait until the model is held at a gate."""
        await to_thread.run_sync(self.gates[number].wait_reached)

    def make_pipes(self) -> None:
        """What the command `HOLD` needs."""
        for name in ("began", "end"):
            os.mkfifo(self.folder / name)

    async def began(self) -> None:
        """Wait until the command `HOLD` runs."""
        assert await to_thread.run_sync((self.folder / "began").read_text) == "running\n"

    async def let_end(self) -> None:
        """Let the command `HOLD` end."""
        await to_thread.run_sync((self.folder / "end").write_text, "went\n")

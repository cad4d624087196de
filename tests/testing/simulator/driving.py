"""Drives a simulated agent line by line, as a host would, to see every frame that it writes."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from typing import Any

import anyio

from outrider.command import Command
from outrider.errors import ProcessExited
from outrider.testing import ScriptSource, Simulator
from outrider.transports import Transport
from tests.testing.simulator.recorded_host import kind

STREAMING = ("--output-format", "stream-json", "--verbose", "--input-format", "stream-json")
SECONDS = 20.0


class Driver:
    """A host that sends what it is told to, and waits for what it is told to."""

    def __init__(self, transport: Transport) -> None:
        self.transport = transport
        self.said: list[dict[str, Any]] = []
        """All that the agent wrote."""
        self._rest = b""
        self._taken = 0
        self._count = 0

    async def send(self, *frames: dict[str, Any] | str) -> None:
        """Send these together."""
        lines = [frame if isinstance(frame, str) else json.dumps(frame) for frame in frames]
        await self.transport.send("".join(f"{line}\n" for line in lines).encode())

    async def request(self, subtype: str, **fields: Any) -> dict[str, Any]:
        """Send a request, and give its answer."""
        frame = request(subtype, id=self._next_id(), **fields)
        await self.send(frame)
        frames = await self.until(
            lambda said: (
                said["type"] == "control_response" and said["response"]["request_id"] == frame["request_id"]
            )
        )
        answer: dict[str, Any] = frames[-1]["response"]
        return answer

    async def ask(self, prompt: str, **fields: Any) -> dict[str, Any]:
        """Send a prompt, and give the result."""
        await self.send(user(prompt, **fields))
        return (await self.until("result"))[-1]

    async def until(self, wanted: str | Callable[[dict[str, Any]], bool]) -> list[dict[str, Any]]:
        """What is said from where the last call ended, up to a frame of a kind or that a function accepts."""
        is_wanted = wanted if callable(wanted) else (lambda frame: kind(frame).startswith(wanted))
        found: list[dict[str, Any]] = []
        with anyio.fail_after(SECONDS):
            while True:
                while self._taken < len(self.said):
                    frame = self.said[self._taken]
                    self._taken += 1
                    found.append(frame)
                    if is_wanted(frame):
                        return found
                if not await self._receive():
                    raise AssertionError(f"it ended without {wanted}: {[kind(frame) for frame in self.said]}")

    async def rest(self) -> list[dict[str, Any]]:
        """What is left, to the end."""
        with anyio.fail_after(SECONDS):
            try:
                while await self._receive():
                    pass
            except ProcessExited:
                pass
        found, self._taken = self.said[self._taken :], len(self.said)
        return found

    async def _receive(self) -> bool:
        data = await self.transport.receive()
        *lines, self._rest = (self._rest + data).split(b"\n")
        self.said += [json.loads(line) for line in lines]
        return bool(data)

    def _next_id(self) -> str:
        self._count += 1
        return f"req_{self._count}"


def user(content: Any, **fields: Any) -> dict[str, Any]:
    return {"type": "user", "message": {"role": "user", "content": content}, **fields}


def request(subtype: str, *, id: str = "req", **fields: Any) -> dict[str, Any]:
    return {"type": "control_request", "request_id": id, "request": {"subtype": subtype, **fields}}


def answer(asked: dict[str, Any], **payload: Any) -> dict[str, Any]:
    """A success for a request of the agent."""
    response = {"subtype": "success", "request_id": asked["request_id"], "response": payload}
    return {"type": "control_response", "response": response}


@asynccontextmanager
async def driven(
    script: ScriptSource | Simulator = None,
    *argv: str,
    env: dict[str, str] | None = None,
    initialize: dict[str, Any] | None = None,
    cwd: str | None = None,
) -> AsyncGenerator[Driver]:
    """A simulated agent that has answered `initialize`, unless that is empty."""
    agent = script if isinstance(script, Simulator) else Simulator(script)
    agent.prepare(Command(("claude", *STREAMING, *argv), env=env or {}, cwd=cwd))
    await agent.connect()
    try:
        driver = Driver(agent)
        if initialize is None or initialize:
            await driver.request("initialize", **(initialize or {"hooks": None}))
        yield driver
    finally:
        await agent.close()
